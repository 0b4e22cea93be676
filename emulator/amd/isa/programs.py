"""Decoded kernels, and the process's cache of translated kernels, which all emulated machines share.

Tools and tests run kernels of code objects on the SIMT engine, without a queue:

    kernel = kernels(code_object, "gfx1100")["vadd"]
    result = run(program(kernel, settings), kernel, grid, block, kernarg_va, memory)

The emulated GPU takes launches from registers, packets and memory instead (`emulator.amd.engines.kernels`).

Not here: the address of code on a GPU (`emulator.amd.engines.kernels`), translation (`translate`). Next:
`translate`.
"""

# ruff: noqa: E501 - summaries and tables that name their parameters read best on one line

from __future__ import annotations

import functools
import hashlib
import itertools
import struct
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from drivers.amd.layouts.code import DESCRIPTOR_SUFFIX, USER_SGPRS, Descriptor, Properties
from drivers.amd.layouts.registers import RSRC2
from drivers.elf import Elf
from emulator.amd.isa import memory, scalar_memory
from emulator.amd.isa.instruction import Reg
from emulator.amd.isa.modes import at_start
from emulator.amd.isa.opcodes import IsaTarget, target
from emulator.amd.isa.translate import KernelEntry, read_kernel, translate_instructions
from emulator.amd.isa.waits import missing_waits
from emulator.simt.engine import Settings, SimtEngine, TranslatedProgram, engine
from emulator.simt.launch import LaunchResult, launch
from emulator.simt.work import Dim3, LaunchOptions, LaunchWork
from hcq.errors import UsageError

if TYPE_CHECKING:
    from emulator.amd.isa.instruction import Instruction
    from emulator.ir.report import KernelReport
    from emulator.shared.memory import AddressSpace

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

    With `counts` the program counts its instructions and accesses. Raises `IsaError` for unsupported code, and as `target`.
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


SHARED_WINDOW, PRIVATE_WINDOW = 1 << 48, 2 << 48
"""The first flat addresses of the LDS and scratch apertures."""
_UNSET = b"\xcc"
"""Fills user SGPRs that a launch does not set, so that a kernel that reads one fails visibly."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelCode:
    """One kernel of a code object."""

    name: str
    code: bytes
    target: IsaTarget
    lanes: int
    """Lanes of a wave: 32 or 64."""
    entry: KernelEntry
    shared_bytes: int
    """LDS of a workgroup, as the descriptor states it."""
    scratch_bytes: int
    """Scratch memory of one lane."""
    kernarg_bytes: int
    kernarg_at: int
    """Number of the first of the two user SGPRs that hold the address of the arguments."""


def kernels(data: bytes, processor: str) -> dict[str, KernelCode]:
    """Return the kernels of a relocatable object or a code object by name, for a processor such as "gfx1100".

    Raises `UsageError` for a kernel descriptor without code, `ElfError` for a broken file, `UnsupportedError` for
    an unknown processor.
    """
    elf, known = Elf(data), target(processor)
    found = {}
    for symbol in elf.symbols:
        if not symbol.name.endswith(DESCRIPTOR_SUFFIX):
            continue
        name = symbol.name.removesuffix(DESCRIPTOR_SUFFIX)
        code = elf.symbol(name)
        if code is None:
            raise UsageError(f"{symbol.name} has no code named {name}")
        content = elf.content(elf.sections[symbol.section])
        descriptor = Descriptor.from_bytes(content, _offset(elf, symbol.section, symbol.value))
        text = elf.content(elf.sections[code.section])[_offset(elf, code.section, code.value) :]
        found[name] = _kernel(name, bytes(text), known, descriptor)
    return found


def _offset(elf: Elf, section: int, value: int) -> int:
    """Return the offset in its section of a symbol's value."""
    return value - (elf.sections[section].va if elf.linked else 0)


def _kernel(name: str, code: bytes, known: IsaTarget, descriptor: Descriptor) -> KernelCode:
    """Return a kernel with the entry and sizes that its descriptor states."""
    resources = RSRC2[int(known.family.removeprefix("gfx"))].from_int(descriptor.compute_pgm_rsrc2)
    properties = Properties.from_int(descriptor.kernel_code_properties)
    entry = KernelEntry(
        user_sgprs=resources.USER_SGPR,
        group_ids=(resources.TGID_X_EN, resources.TGID_Y_EN, resources.TGID_Z_EN),
        group_info=resources.TG_SIZE_EN,
        modes=at_start(descriptor.compute_pgm_rsrc1, known.family),
    )
    before = itertools.takewhile(lambda row: row[0] != "KERNARG_SEGMENT_PTR", USER_SGPRS)
    return KernelCode(
        name=name, code=code, target=known, lanes=32 if properties.WAVEFRONT_SIZE32 else 64, entry=entry,
        shared_bytes=descriptor.group_segment_fixed_size, scratch_bytes=descriptor.private_segment_fixed_size,
        kernarg_bytes=descriptor.kernarg_size,
        kernarg_at=sum(count for name, count in before if getattr(properties, name)),
    )  # fmt: skip


def program(kernel: KernelCode, settings: Settings, *, counts: bool = False) -> TranslatedProgram:
    """Translate a kernel. Raises `IsaError` for unsupported code.

    With `counts` the program counts its instructions and accesses.
    """
    made = engine_of(settings, kernel.lanes)
    instructions = read_kernel(kernel.code, kernel.target, lanes=made.library.lanes, kernel=kernel.name)
    translation = translate_instructions(
        made.library, kernel.name, instructions, kernel.target, kernel.entry, counts=counts
    )
    return TranslatedProgram(made, translation)


def run(  # noqa: PLR0917 - a launch has that many parts
    ready: TranslatedProgram,
    kernel: KernelCode,
    grid: Dim3,
    block: Dim3,
    kernarg: int,
    memory: AddressSpace,
    options: LaunchOptions | None = None,
    *,
    shared_bytes: int = 0,
    code: int = 0,
) -> LaunchResult:
    """Run a kernel over `grid` workgroups of `block` threads, and wait; faults and findings are in the result.

    - `kernarg`: device address of the arguments, which `memory` maps. No other user SGPRs are set: a kernel that
      needs them (dispatch pointer, queue pointer) reads the bytes 0xCC there.
    - `shared_bytes`: LDS of the launch, in addition to the kernel's own.
    - `code`: device address of the code, for a kernel whose entry has `code_address`.

    Raises as `launch`.
    """
    params = _UNSET * (4 * kernel.kernarg_at) + struct.pack("<Q", kernarg)
    params = params.ljust(4 * kernel.entry.user_sgprs, _UNSET)
    if kernel.entry.code_address:
        params += struct.pack("<Q", code)
    work = LaunchWork(
        grid=grid,
        block=block,
        params=params,
        shared_bytes=kernel.shared_bytes + shared_bytes,
        local_bytes=kernel.scratch_bytes,
    )
    chosen = replace(options or LaunchOptions(), shared_window=SHARED_WINDOW, local_window=PRIVATE_WINDOW)
    return launch(ready, work, memory, chosen)
