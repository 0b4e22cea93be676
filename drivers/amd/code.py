"""The reader of code objects: the facts of a kernel that a launch needs, and the image for device memory.

Linked files and the unlinked objects that LLVM emits are read alike: sections or segments are placed,
relocations are applied, and symbols that code addresses through a table (GOT) get an entry in one.

Not here: what a launch writes to registers and packets (`launch`, `program`), the metadata note (`metadata`).
Next: `program`. Source: LLVM AMDGPUUsage, ELF code object; ROCr's loader.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from drivers.amd import metadata
from drivers.amd.layouts import chips
from drivers.amd.layouts.chips import AmdChip
from drivers.amd.layouts.code import (
    ABI_NAMES,
    ABI_V5,
    ABI_V6,
    CODE_ALIGN,
    DESCRIPTOR_ALIGN,
    DESCRIPTOR_SUFFIX,
    HIDDEN_ALIGN,
    HIDDEN_PREFIX,
    OSABI_HSA,
    PREFETCH_PAD,
    Descriptor,
    Feature,
    Flags,
    HiddenArguments,
    Properties,
    Relocation,
)
from drivers.elf import (
    UNDEFINED,
    Elf,
    ElfError,
    ElfKind,
    ElfMachine,
    ElfSite,
    Formula,
    Image,
    Placement,
    malformed,
    place_sections,
    place_segments,
)
from drivers.elf import Relocation as ElfRelocation
from hcq.errors import UnsupportedError, UsageError

_THROUGH_TABLE: Final = frozenset({Relocation.GOTPCREL, Relocation.GOTPCREL32_LO, Relocation.GOTPCREL32_HI})
"""Relocations that store the distance to a table entry; the entry holds the symbol's address."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AmdKernelFacts:
    """One kernel of a code object, from its descriptor and its metadata."""

    name: str
    descriptor: int
    """Offset of the descriptor in the image, in bytes."""
    entry: int
    """Offset of the code in the image, in bytes."""
    fields: Descriptor
    properties: Properties
    max_threads: int
    """The most work-items of a workgroup that the code was compiled for; 0: the file has no record."""
    arguments: tuple[metadata.Argument, ...] | None
    """The arguments that the metadata list; None for a file without metadata of the kernel."""
    hidden: Mapping[str, int]
    """Field of `HiddenArguments` -> its offset in the argument block, in bytes; empty without metadata."""

    @property
    def wave(self) -> int:
        """Lanes of a wave."""
        return 32 if self.properties.WAVEFRONT_SIZE32 else 64


@dataclass(frozen=True, slots=True)
class Object:
    """A code object and the offsets of its parts in memory."""

    elf: Elf
    placement: Placement
    table: Mapping[str, int]
    """Symbol -> offset in the image of the table entry that holds its address; the table follows the file."""

    def load(self, base: int) -> bytes:
        """Return the image, relocated for device address `base`, a multiple of 256.

        Raises `UnsupportedError` for a symbol that the image does not define, an address or distance that a
        relocation cannot hold, and a relocation type without a formula; `ElfError` for a relocation outside
        the image.
        """
        image = Image(self.elf, self.placement)

        def resolve(relocation: ElfRelocation) -> int:
            symbol = relocation.symbol
            if symbol is None:
                return base - self.placement.first_va
            if symbol.section == UNDEFINED:
                raise UnsupportedError(
                    f"the kernel refers to {symbol.name!r}, which is not in its image (printf, malloc, "
                    "device libraries)\nhint: link the code object first"
                )
            address = base + image.offset_of(symbol)
            if relocation.type not in _THROUGH_TABLE:
                return address
            entry = self.table[symbol.name]
            image.content[entry : entry + 8] = address.to_bytes(8, "little")
            return base + entry

        image.relocate(base, FORMULAS, resolve)
        return bytes(image.content)


@malformed("the code object")
def read(data: bytes, name: str, target: AmdChip) -> tuple[Object, AmdKernelFacts]:
    """Return the code object, with its parts placed, and its kernel `name`.

    Raises `UsageError` (or its subclass `ElfError`) for a file that is no valid code object or has no such
    kernel. Raises `UnsupportedError` for another target, version or feature setting, and as `Object.load`.
    """
    elf = Elf(data)
    _check(elf, name, target)
    placement = place_sections(elf) if elf.kind == ElfKind.REL else place_segments(elf)
    found = _laid_out(elf, placement)
    symbol = elf.symbol(f"{name}{DESCRIPTOR_SUFFIX}")
    if symbol is None:
        have = [s.name for s in elf.symbols if s.name.endswith(DESCRIPTOR_SUFFIX) and s.section != UNDEFINED]
        names = ", ".join(one.removesuffix(DESCRIPTOR_SUFFIX) for one in have) or "none"
        raise UsageError(f"the code object has no kernel {name!r}; it has: {names}")
    content = found.load(0)
    at = Image(elf, found.placement).offset_of(symbol)
    return found, _kernel(elf, content, at, name)


def _check(elf: Elf, name: str, target: AmdChip) -> None:
    if elf.machine != ElfMachine.AMDGPU or elf.abi != OSABI_HSA:
        raise UsageError(
            f"kernel {name}: ELF machine {elf.machine}, OS ABI {elf.abi}; an AMD code object has "
            f"{int(ElfMachine.AMDGPU)} and {OSABI_HSA}"
        )
    if elf.abi_version not in {ABI_V5, ABI_V6}:
        seen = ABI_NAMES.get(elf.abi_version, str(elf.abi_version))
        raise UnsupportedError(f"kernel {name}: code object version {seen}; V5 and V6 are read")
    flags = Flags.from_int(elf.flags)
    made_for = chips.by_mach(flags.MACH)
    if made_for is not target:
        seen = made_for.name if made_for else f"machine {flags.MACH:#x}"
        raise UnsupportedError(
            f"kernel {name} was compiled for {seen}, this GPU is {target.name}\n"
            f"hint: compile it for {target.name}, or open a GPU of {seen}"
        )
    if flags.XNACK == Feature.ON:
        raise UnsupportedError(f"kernel {name} was compiled for XNACK, which this driver leaves off")
    if flags.SRAMECC == Feature.OFF:
        raise UnsupportedError(f"kernel {name} was compiled for memory without ECC; {target.name} has it on")


def _laid_out(elf: Elf, placement: Placement) -> Object:
    """Add the table of addresses, and padding that instruction prefetch may read."""
    names = [
        one.symbol.name
        for one in elf.relocations()
        if one.type in _THROUGH_TABLE and one.symbol and one.symbol.section != UNDEFINED
    ]
    start = -(-placement.size // 8) * 8
    table = {name: start + 8 * i for i, name in enumerate(dict.fromkeys(names))}
    size = start + 8 * len(table) + PREFETCH_PAD
    return Object(elf, placement._replace(size=size, align=max(placement.align, CODE_ALIGN)), table)


def _kernel(elf: Elf, content: bytes, at: int, name: str) -> AmdKernelFacts:
    if at % DESCRIPTOR_ALIGN or at + Descriptor.SIZE > len(content):
        raise ElfError(f"kernel {name}: its descriptor lies at {at:#x}, not {DESCRIPTOR_ALIGN}-byte aligned")
    fields = Descriptor.from_bytes(content, at)
    stray = fields.check()
    if stray:
        raise UsageError(f"kernel {name}: its descriptor is broken: {stray[0]}")
    entry = at + fields.kernel_code_entry_byte_offset
    if not 0 <= entry < len(content) or entry % CODE_ALIGN:
        raise UsageError(
            f"kernel {name}: its code starts at {entry:#x} of the image, wanted {CODE_ALIGN}-byte aligned"
        )
    found = metadata.of_kernel(elf, f"{name}{DESCRIPTOR_SUFFIX}")
    properties = Properties.from_int(fields.kernel_code_properties)
    return AmdKernelFacts(
        name=name,
        descriptor=at,
        entry=entry,
        fields=fields,
        properties=properties,
        max_threads=found.max_threads if found else 0,
        arguments=found.arguments if found else None,
        hidden=_hidden(found) if found else {},
    )


def _hidden(found: metadata.Metadata) -> dict[str, int]:
    """Return the offsets of the hidden arguments that `HiddenArguments` has, in bytes."""
    out = {}
    for argument in found.arguments:
        name = argument.kind.removeprefix(HIDDEN_PREFIX)
        if argument.hidden and name in HiddenArguments.FIELDS:
            out[name] = argument.offset
    return out


def assumed_hidden(explicit_bytes: int) -> dict[str, int]:
    """Return the offsets of the hidden arguments of a kernel without metadata: after the explicit ones."""
    start = -(-explicit_bytes // HIDDEN_ALIGN) * HIDDEN_ALIGN
    return {name: start + member.offset for name, member in HiddenArguments.FIELDS.items()}


def _old(site: ElfSite, size: int) -> int:
    if site.addend is not None:
        return site.addend
    return int.from_bytes(site.content[site.at : site.at + size], "little")


def _store(site: ElfSite, value: int, size: int) -> None:
    site.content[site.at : site.at + size] = (value & (1 << 8 * size) - 1).to_bytes(size, "little")


def _absolute(size: int, shift: int = 0, *, fits: bool = False) -> Formula:
    def apply(site: ElfSite) -> None:
        value = site.symbol + _old(site, size)
        if fits and value >> 8 * size:
            raise UnsupportedError(f"a relocation of {8 * size} bits cannot hold the address {value:#x}")
        _store(site, value >> shift, size)

    return apply


def _relative(size: int, shift: int = 0, *, fits: bool = False) -> Formula:
    def apply(site: ElfSite) -> None:
        value = site.symbol + _old(site, size) - site.place
        if fits and not -(1 << 8 * size - 1) <= value < 1 << 8 * size - 1:
            raise UnsupportedError(f"a relocation of {8 * size} bits cannot hold the distance {value:#x}")
        _store(site, value >> shift, size)

    return apply


def _branch(site: ElfSite) -> None:
    """Store the distance in dwords from the next instruction: R_AMDGPU_REL16."""
    value = site.symbol + _old(site, 2) - site.place - 4
    if value % 4 or not -(1 << 17) <= value < 1 << 17:
        raise UnsupportedError(f"a relocation of 16 bits cannot hold the distance {value:#x} in dwords")
    _store(site, value // 4, 2)


FORMULAS: Final[Mapping[int, Formula]] = {
    Relocation.ABS32_LO: _absolute(4),
    Relocation.ABS32_HI: _absolute(4, 32),
    Relocation.ABS64: _absolute(8),
    Relocation.REL32: _relative(4, fits=True),
    Relocation.REL64: _relative(8),
    Relocation.ABS32: _absolute(4, fits=True),
    Relocation.GOTPCREL: _relative(4, fits=True),
    Relocation.GOTPCREL32_LO: _relative(4),
    Relocation.GOTPCREL32_HI: _relative(4, 32),
    Relocation.REL32_LO: _relative(4),
    Relocation.REL32_HI: _relative(4, 32),
    Relocation.RELATIVE64: _absolute(8),
    Relocation.REL16: _branch,
}
"""Relocation type -> the function that patches the image (LLVM AMDGPUUsage, relocation records)."""
