"""Cache of decoded and translated kernels, one for the process: emulated machines share equal code.

Not here: where code lies on a GPU (`emulator.amd.engines.kernels`), its translation (`translate`).
"""

from __future__ import annotations

import functools
import hashlib
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from emulator.amd.isa import memory, scalar_memory
from emulator.amd.isa.opcodes import target
from emulator.amd.isa.operands import Reg
from emulator.amd.isa.translate import read_kernel, translate_instructions
from emulator.amd.isa.waits import missing_waits
from emulator.simt.engine import Settings, SimtEngine, TranslatedProgram, engine

if TYPE_CHECKING:
    from emulator.amd.isa.instruction import Instruction
    from emulator.amd.isa.translate import KernelEntry
    from emulator.ir.report import KernelReport

_NARROW_SHAPES: Final = ((8, 1), (16, 1), (32, 1), (32, 2), (32, 4))
"""(bits, elements) of the accesses that an engine for waves of 64 lanes is compiled with beforehand."""
KEPT: Final = 512
"""Translated kernels of a process: each has its instructions, IR text and machine code, some 200 KiB."""


@dataclass(frozen=True, slots=True)
class Translated:
    """A kernel's code, and what a launch of it needs to know."""

    program: TranslatedProgram
    registers: int
    """Vector registers that the instructions name."""
    accumulators: int
    """Accumulation registers that the instructions name."""
    missing_waits: tuple[KernelReport, ...] = ()
    """Uses of registers whose loads have not completed, and of LDS; each is a fault."""


def engine_of(settings: Settings, lanes: int) -> SimtEngine:
    """Return the engine of some settings for waves of 32 or 64 lanes, created once per process."""
    shapes = _NARROW_SHAPES if lanes == 64 else settings.shapes
    brings = (memory.define_core, scalar_memory.define_core)
    return engine(replace(settings, lanes=lanes, shapes=shapes, brings=brings, strips=True))


@dataclass(frozen=True, slots=True)
class Decoded:
    """A kernel's code and its instructions; equal where the code is."""

    code: bytes
    """The bytes from the first to the last instruction that can be reached."""
    instructions: list[Instruction] = field(compare=False, repr=False)
    before: int = 0
    """How many of the bytes lie in front of the kernel's first instruction."""


def decoded(code: bytes, processor: str, lanes: int, kernel: str, *, before: int = 0) -> Decoded:
    """Decode the kernel behind the first `before` bytes; raises `IsaError`, in which `kernel` names it."""
    instructions = read_kernel(code, target(processor), lanes=lanes, kernel=kernel, before=before)
    first = min(one.address for one in instructions)
    return Decoded(
        code[before + first : before + max(one.next for one in instructions)], instructions, -first
    )


@functools.lru_cache(maxsize=KEPT)
def translated(
    settings: Settings,
    processor: str,
    lanes: int,
    entry: KernelEntry,
    kernel: Decoded,
    *,
    counts: bool = False,
) -> Translated:
    """Return the program of a kernel, translated once per process; raises `IsaError`.

    With `counts` it counts what it executes.
    """
    begin = kernel.before.to_bytes(4, "little") if kernel.before else b""
    name = f"code_{hashlib.blake2b(kernel.code + begin, digest_size=8).hexdigest()}"
    made = engine_of(settings, lanes)
    known = target(processor)
    translation = translate_instructions(made.library, name, kernel.instructions, known, entry, counts=counts)
    missing = tuple(missing_waits(kernel.instructions, known.family, kernel=name))
    vectors, accumulators = _registers(kernel.instructions, "v"), _registers(kernel.instructions, "a")
    return Translated(TranslatedProgram(made, translation), vectors, accumulators, missing)


def _registers(instructions: list[Instruction], file: str) -> int:
    most = 0
    for one in instructions:
        for part in (one, one.second):
            for operand in () if part is None else part.operands:
                if isinstance(operand, Reg) and operand.file == file:
                    most = max(most, operand.index + operand.count)
    return most
