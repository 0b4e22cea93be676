"""Kernels of AMDGPU code objects, as the engine runs them: code, initial registers of a wave, memory.

For tools and tests. The emulated GPU reads the same out of registers, packets and memory.

Not here: the ELF file (`drivers.elf`), the instructions (`decode`).
"""

# ruff: noqa: E501 - summaries and tables that name their parameters read best on one line

from __future__ import annotations

import struct
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from drivers.amd.emu.isa.opcodes import Target, target
from drivers.amd.emu.isa.translate import Entry, translate
from drivers.amd.layouts.code import Descriptor
from drivers.elf import Elf
from drivers.emu.simt.engine import Program, Settings, engine
from drivers.emu.simt.launch import Dim3, LaunchResult, Options, Work, launch
from hcq.errors import UsageError

if TYPE_CHECKING:
    from drivers.emu.memory import AddressSpace

SHARED_WINDOW, PRIVATE_WINDOW = 1 << 48, 2 << 48
"""Where flat addresses of LDS and of scratch begin."""
_WAVE32 = 1 << 10
_BEFORE_KERNARG = ((1 << 0, 4), (1 << 1, 2), (1 << 2, 2))
"""User registers in front of the arguments' pointer: a descriptor's property, how many."""
_KERNARG_POINTER = 1 << 3
_NARROW_SHAPES = ((8, 1), (16, 1), (32, 1), (32, 2), (32, 4))
"""Accesses that machine code makes: what an engine for waves of 64 lanes is compiled with beforehand."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelCode:
    """One kernel of a code object."""

    name: str
    code: bytes
    target: Target
    lanes: int
    entry: Entry
    shared_bytes: int
    scratch_bytes: int
    """Scratch memory a lane."""
    kernarg_bytes: int
    kernarg_at: int
    """The first of the two user registers that hold the arguments' address."""


def kernels(data: bytes, processor: str) -> dict[str, KernelCode]:
    """Return the kernels of an object or code object by name."""
    elf, known = Elf(data), target(processor)
    found = {}
    for symbol in elf.symbols:
        if not symbol.name.endswith(".kd"):
            continue
        name = symbol.name.removesuffix(".kd")
        code = elf.symbol(name)
        if code is None:
            raise UsageError(f"{symbol.name} has no code named {name}")
        content = elf.content(elf.sections[symbol.section])
        descriptor = Descriptor.from_bytes(content, _offset(elf, symbol.section, symbol.value))
        text = elf.content(elf.sections[code.section])[_offset(elf, code.section, code.value) :]
        found[name] = _kernel(name, bytes(text), known, descriptor)
    return found


def _offset(elf: Elf, section: int, value: int) -> int:
    return value - (elf.sections[section].va if elf.linked else 0)


def _kernel(name: str, code: bytes, known: Target, descriptor: Descriptor) -> KernelCode:
    registers, properties = descriptor.compute_pgm_rsrc2, descriptor.kernel_code_properties
    entry = Entry(
        user_sgprs=registers >> 1 & 31,
        group_ids=(bool(registers >> 7 & 1), bool(registers >> 8 & 1), bool(registers >> 9 & 1)),
        group_info=bool(registers >> 10 & 1),
        modes=descriptor.compute_pgm_rsrc1 >> 12 & 0xFF,
    )
    return KernelCode(
        name=name, code=code, target=known, lanes=32 if properties & _WAVE32 else 64, entry=entry,
        shared_bytes=descriptor.group_segment_fixed_size, scratch_bytes=descriptor.private_segment_fixed_size,
        kernarg_bytes=descriptor.kernarg_size,
        kernarg_at=sum(count for bit, count in _BEFORE_KERNARG if properties & bit),
    )  # fmt: skip


def program(kernel: KernelCode, settings: Settings) -> Program:
    """Translate a kernel for an engine of its width of wave."""
    shapes = _NARROW_SHAPES if kernel.lanes == 64 else settings.shapes
    made = engine(replace(settings, lanes=kernel.lanes, shapes=shapes))
    return Program(made, translate(made.library, kernel.name, kernel.code, kernel.target, kernel.entry))


def run(  # noqa: PLR0917 - a launch has that many parts
    ready: Program,
    kernel: KernelCode,
    grid: Dim3,
    block: Dim3,
    kernarg: int,
    memory: AddressSpace,
    options: Options | None = None,
    *,
    shared_bytes: int = 0,
    code: int = 0,
) -> LaunchResult:
    """Run a kernel with its arguments at a device address. It may ask for no other user register than their pointer.

    `shared_bytes` is LDS of the launch, behind the kernel's own; `code` is the device address of the kernel's code,
    for one that asks for it.
    """
    params = b"\xcc" * (4 * kernel.kernarg_at) + struct.pack("<Q", kernarg)
    params = params.ljust(4 * kernel.entry.user_sgprs, b"\xcc")
    if kernel.entry.code_address:
        params += struct.pack("<Q", code)
    work = Work(
        grid=grid,
        block=block,
        params=params,
        shared_bytes=kernel.shared_bytes + shared_bytes,
        local_bytes=kernel.scratch_bytes,
    )
    chosen = replace(options or Options(), shared_window=SHARED_WINDOW, local_window=PRIVATE_WINDOW)
    return launch(ready, work, memory, chosen)
