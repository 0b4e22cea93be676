"""Runs kernels of AMDGPU code objects on the SIMT engine, without a queue: load, translate, launch.

    kernel = kernels(code_object, "gfx1100")["vadd"]
    result = run(program(kernel, settings), kernel, grid, block, kernarg_va, memory)

For tools and tests. The emulated GPU takes launches from registers, packets and memory instead
(`emulator.amd.engines.kernels`).

Not here: the ELF file (`drivers.elf`), the instructions (`decode`). Next: `translate`.
"""

# ruff: noqa: E501 - summaries and tables that name their parameters read best on one line

from __future__ import annotations

import itertools
import struct
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from drivers.amd.layouts.code import DESCRIPTOR_SUFFIX, USER_SGPRS, Descriptor, Properties
from drivers.amd.layouts.registers import RSRC2
from drivers.elf import Elf
from emulator.amd.isa.modes import at_start
from emulator.amd.isa.opcodes import IsaTarget, target
from emulator.amd.isa.programs import engine_of
from emulator.amd.isa.translate import KernelEntry, read_kernel, translate_instructions
from emulator.simt.engine import TranslatedProgram
from emulator.simt.launch import LaunchResult, launch
from emulator.simt.work import Dim3, LaunchOptions, LaunchWork
from hcq.errors import UsageError

if TYPE_CHECKING:
    from emulator.shared.memory import AddressSpace
    from emulator.simt.engine import Settings

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
