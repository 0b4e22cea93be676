"""Decoded kernels, and the process's cache of translated kernels, which all emulated machines share.

Not here: the address of code on a GPU (`emulator.amd.engines.kernels`), translation (`translate`). Next:
`translate`.
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
"""(bits, elements) of the accesses whose helpers an engine for waves of 64 lanes compiles at its start."""
KEPT: Final = 512
"""Translated kernels that are kept; each takes about 200 KiB: instructions, IR text and machine code."""


@dataclass(frozen=True, slots=True)
class Translated:
    """A translated kernel, with the facts that the checks of a launch need."""

    program: TranslatedProgram
    registers: int
    """Vector registers that the instructions name."""
    accumulators: int
    """Accumulation registers that the instructions name."""
    missing_waits: tuple[KernelReport, ...] = ()
    """The reports of `waits.missing_waits`; each is a fault."""


def engine_of(settings: Settings, lanes: int) -> SimtEngine:
    """Return the engine for `settings` and waves of 32 or 64 lanes; it is created once per process."""
    shapes = _NARROW_SHAPES if lanes == 64 else settings.shapes
    brings = (memory.define_core, scalar_memory.define_core)
    return engine(replace(settings, lanes=lanes, shapes=shapes, brings=brings, strips=True))


@dataclass(frozen=True, slots=True)
class Decoded:
    """A kernel's code and its instructions. Two are equal if `code` and `before` are."""

    code: bytes
    """The bytes from the first to the last instruction that can be reached."""
    instructions: list[Instruction] = field(compare=False, repr=False)
    before: int = 0
    """The number of bytes before the kernel's first instruction."""


def decoded(code: bytes, processor: str, lanes: int, kernel: str, *, before: int = 0) -> Decoded:
    """Decode the kernel that begins `before` bytes after the start of `code`.

    Raises `IsaError` for an unknown encoding (`kernel` is the name in it), `UnsupportedError` for an unknown
    processor.
    """
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
    """Return the program of a kernel, translated once per process for equal arguments.

    With `counts` the program counts its instructions and accesses. Raises `IsaError` for unsupported code.
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
    """Return 1 plus the highest register of a file that the instructions name; 0 for none."""
    most = 0
    for one in instructions:
        for part in (one, one.second):
            for operand in () if part is None else part.operands:
                if isinstance(operand, Reg) and operand.file == file:
                    most = max(most, operand.index + operand.count)
    return most
