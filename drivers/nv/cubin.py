"""The reader of cubins: the facts that a launch needs, and the image for device memory.

The image is the whole file with its relocations applied in place, so that code keeps its offset in the file
and a memory dump can be identified. Sections without bytes in the file, and constant banks with too small an
alignment, are placed after the file's bytes.

Not here: the launch descriptor (`qmd`), the launch's data (`program`), the upload (`device`). Next:
`program`. Source: `drivers.nv.layouts.cubin`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from drivers.elf import (
    ALLOC,
    UNDEFINED,
    Elf,
    ElfMachine,
    ElfSite,
    Formula,
    Image,
    Placement,
    SectionType,
    malformed,
)
from drivers.elf import Relocation as ElfRelocation
from drivers.elf import Section as ElfSection
from drivers.nv.layouts.cubin import (
    PREFETCH_PAD,
    RELOCATION_WORD_OFFSET,
    SM_SHIFT,
    TEXT_BARRIERS_SHIFT,
    CallAbs47,
    CallAbs55,
    InfoAttribute,
    InfoFormat,
    InfoKparam,
    InfoParamCbank,
    InfoRecord,
    InfoSymbolValue,
    InfoThreads,
    Relocation,
    Section,
)
from drivers.nv.layouts.qmd import CONSTANT_BANKS
from hcq.errors import UnsupportedError, UsageError
from hcq.layout import BitStruct
from hcq.program import Dim3

BANK_ALIGN: Final = 256
"""Alignment of an image and of its constant banks, in bytes: the largest that a descriptor version needs."""
_BANK: Final = re.compile(rf"{re.escape(Section.CONSTANT)}([1-{CONSTANT_BANKS - 1}])(?:\.(.*))?")
_LOADED: Final = (SectionType.PROGBITS, SectionType.NOBITS)
_WORD = 0xFFFF_FFFF


@dataclass(frozen=True, slots=True, kw_only=True)
class NvKernelFacts:
    """One kernel of a cubin, from its info records."""

    name: str
    sm: int
    """The file's SM number, such as 90."""
    registers: int
    """Registers of a thread, of the function of the file that needs most; 0: the file has no record."""
    barriers: int
    stack_bytes: int
    """Local memory of a thread in bytes; `UNBOUNDED_STACK` if calls are recursive or indirect; 0 if the file
    has no record."""
    shared_bytes: int
    """Size of the kernel's shared section in bytes; since sm_90 it includes the system's reserve."""
    cluster: Dim3 | None
    """The only cluster size that the code supports, in workgroups along x, y and z; None: any."""
    explicit_cluster: bool
    """Whether a launch must state its cluster."""
    max_cluster: int
    """The most workgroups of a cluster that the code was compiled for; 0: the file has no record."""
    parameter_base: int
    """Offset of the parameters in constant bank 0, in bytes."""
    parameter_bytes: int
    parameters: tuple[InfoKparam, ...]
    """Ordinal, offset from `parameter_base` and size of each, sorted by offset; empty if the file has no
    record."""
    code: int
    """Offset of the entry in the image, in bytes."""
    code_bytes: int
    """Size of the kernel's text section."""
    banks: Mapping[int, tuple[int, int]]
    """Number of a constant bank -> (offset in the image, size), in bytes."""
    max_threads: int = 0
    """The most threads of a workgroup that the code was compiled for; 0: the file has no record."""
    required_threads: Dim3 | None = None
    """The only workgroup size that the code supports, in threads along x, y and z; None: any."""


@malformed("the cubin")
def read(data: bytes, name: str) -> tuple[Elf, Placement, NvKernelFacts]:
    """Return the parsed file, the placement of its sections, and the facts of kernel `name`.

    Raises `UsageError` (or its subclass `ElfError`) if the data is not a valid cubin, has no such kernel, or
    was not assembled by ptxas.
    """
    elf = Elf(data)
    if elf.machine != ElfMachine.CUDA:
        raise UsageError(
            f"kernel {name}: the code is for ELF machine {elf.machine}; a cubin has {int(ElfMachine.CUDA)}"
        )
    text = elf.section(f"{Section.TEXT}{name}")
    if text is None:
        have = [s.name.removeprefix(Section.TEXT) for s in elf.sections if s.name.startswith(Section.TEXT)]
        raise UsageError(f"the cubin has no kernel {name!r}; it has: {', '.join(have) or 'none'}")
    banks = dict(_banks(elf, name))
    placement = _place(elf, {section.index for section in banks.values()})
    infos = _infos(elf, Section.INFO)
    own = _infos(elf, f"{Section.INFO}.{name}")
    own_symbols = (i for i, s in enumerate(elf.symbols) if s.name == name and s.section == text.index)
    symbol = next(own_symbols, None)
    if symbol is None:
        raise UsageError(f"kernel {name}: the cubin has no symbol of that name in its section {text.name}")
    values = _symbol_values(infos)
    parameters = _parameters(elf, name, own.get(InfoAttribute.PARAM_CBANK))
    shared = elf.section(f"{Section.SHARED}{name}")
    counts = own.get(InfoAttribute.NUM_BARRIERS)
    kernel = NvKernelFacts(
        name=name,
        sm=(elf.flags >> SM_SHIFT.get(elf.abi, 0)) & 0xFF,
        # A linked function may need more registers than the kernel itself.
        registers=max(values.get(InfoAttribute.REGCOUNT, {}).values(), default=0),
        barriers=counts[0][0] if counts else text.flags >> TEXT_BARRIERS_SHIFT & 0x1F,
        stack_bytes=values.get(InfoAttribute.MIN_STACK_SIZE, {}).get(symbol, 0),
        shared_bytes=shared.size if shared else 0,
        cluster=_dimensions(own, InfoAttribute.CTA_PER_CLUSTER),
        explicit_cluster=InfoAttribute.EXPLICIT_CLUSTER in own,
        max_cluster=int.from_bytes(own.get(InfoAttribute.MAX_CLUSTER_RANK, [b""])[0], "little"),
        parameter_base=parameters.offset,
        parameter_bytes=parameters.size,
        parameters=_records(own.get(InfoAttribute.KPARAM_INFO, [])),
        code=placement.offsets[text.index] + elf.symbols[symbol].value,
        code_bytes=text.size,
        banks={number: (placement.offsets[s.index], s.size) for number, s in banks.items()},
        max_threads=math.prod(_dimensions(own, InfoAttribute.MAX_THREADS) or (0,)),
        required_threads=_dimensions(own, InfoAttribute.REQNTID),
    )
    return elf, placement, kernel


def _dimensions(infos: Mapping[int, list[bytes]], attribute: InfoAttribute) -> Dim3 | None:
    """Return the three numbers of a record; None if it is absent or too short."""
    payload = infos.get(attribute, [b""])[0]
    return InfoThreads.from_bytes(payload).xyz if len(payload) >= InfoThreads.SIZE else None


def _parameters(elf: Elf, name: str, records: list[bytes] | None) -> InfoParamCbank:
    """Return offset and size of the parameters; without a record the size is 0.

    Raises `UsageError` if the file has neither the record nor a section of constant bank 0.
    """
    if records:
        return InfoParamCbank.from_bytes(records[0])
    bank0 = elf.section(f"{Section.CONSTANT0}{name}")
    if bank0 is None:
        raise UsageError(f"{name} is not a kernel from ptxas: it has no section {Section.CONSTANT0}{name}")
    return InfoParamCbank(offset=bank0.size, size=0)


def _records(payloads: list[bytes]) -> tuple[InfoKparam, ...]:
    """Return the records of the parameters, sorted by offset; in a file the last parameter comes first."""
    return tuple(sorted(map(InfoKparam.from_bytes, payloads), key=lambda record: record.offset))


def _banks(elf: Elf, kernel: str) -> Iterator[tuple[int, ElfSection]]:
    """Yield the constant banks above 0 that `kernel` reads: those of the file and those of the kernel."""
    for section in elf.sections:
        found = _BANK.fullmatch(section.name)
        if found and section.size and found[2] in {None, kernel}:
            yield int(found[1]), section


def _place(elf: Elf, banks: set[int]) -> Placement:
    """Keep the file's layout; place sections without bytes, and misaligned banks, after it.

    `banks` are the section indices of the constant banks.
    """
    at = -(-len(elf.data) // BANK_ALIGN) * BANK_ALIGN
    offsets: dict[int, int] = {}
    for section in elf.sections:
        if (
            section.type not in _LOADED
            or not section.flags & ALLOC
            or section.name.startswith(Section.SHARED)
        ):
            continue
        align = max(section.align, BANK_ALIGN if section.index in banks else 1)
        if section.type != SectionType.NOBITS and section.offset % align == 0:
            offsets[section.index] = section.offset
            continue
        at = -(-at // align) * align
        offsets[section.index] = at
        at += section.size
    return Placement(at + PREFETCH_PAD, BANK_ALIGN, offsets)


def _infos(elf: Elf, name: str) -> dict[int, list[bytes]]:
    """Return the payloads of an info section, by attribute.

    Raises `UsageError` if the section is malformed.
    """
    section = elf.section(name)
    out: dict[int, list[bytes]] = {}
    if section is None:
        return out
    data, at = elf.content(section), 0
    while at + InfoRecord.SIZE <= len(data):
        record = InfoRecord.from_bytes(data, at)
        at += InfoRecord.SIZE
        size = record.value if record.format == InfoFormat.SVAL else 0
        payload = data[at : at + size] if size else record.value.to_bytes(2, "little")
        if len(payload) < size or record.format not in InfoFormat._value2member_map_:
            raise UsageError(f"section {name} is malformed at {at - InfoRecord.SIZE:#x}")
        out.setdefault(record.attribute, []).append(payload)
        at += size
    return out


def _symbol_values(infos: Mapping[int, list[bytes]]) -> dict[int, dict[int, int]]:
    out: dict[int, dict[int, int]] = {}
    for attribute in (InfoAttribute.REGCOUNT, InfoAttribute.MIN_STACK_SIZE, InfoAttribute.FRAME_SIZE):
        for payload in infos.get(attribute, []):
            pair = InfoSymbolValue.from_bytes(payload)
            out.setdefault(attribute, {})[pair.symbol] = pair.value
    return out


def load(elf: Elf, placement: Placement, base: int) -> bytes:
    """Return the image, relocated for device address `base`.

    Raises `UnsupportedError` for a symbol that the image does not define and for a relocation type without a
    formula, `ElfError` for a relocation whose offset lies outside the image.
    """
    image = Image(elf, placement)
    image.content[: len(elf.data)] = elf.data

    def resolve(relocation: ElfRelocation) -> int:
        symbol = relocation.symbol
        if symbol is None or symbol.section == UNDEFINED:
            name = symbol.name if symbol else "nothing"
            raise UnsupportedError(
                f"the kernel refers to {name!r}, which is not in its image (vprintf, malloc and the like)"
            )
        return base + image.offset_of(symbol)

    image.relocate(base, FORMULAS, resolve)
    return bytes(image.content)


def _abs64(site: ElfSite) -> None:
    old = (
        int.from_bytes(site.content[site.at : site.at + 8], "little") if site.addend is None else site.addend
    )
    site.content[site.at : site.at + 8] = ((site.symbol + old) & (1 << 64) - 1).to_bytes(8, "little")


def _half(shift: int) -> Formula:
    def apply(site: ElfSite) -> None:
        at = site.at + RELOCATION_WORD_OFFSET
        old = int.from_bytes(site.content[at : at + 4], "little") if site.addend is None else site.addend
        value = (site.symbol + old) >> shift & _WORD
        site.content[at : at + 4] = value.to_bytes(4, "little")

    return apply


def _call(layout: type[BitStruct]) -> Formula:
    field = layout.FIELDS["TARGET"]

    def apply(site: ElfSite) -> None:
        end = site.at + layout.SIZE
        raw = int.from_bytes(site.content[site.at : end], "little")
        old = field.extract(raw) if site.addend is None else site.addend
        value = layout(TARGET=site.symbol + old)
        site.content[site.at : end] = (raw & ~field.mask() | int(value)).to_bytes(layout.SIZE, "little")

    return apply


FORMULAS: Final[Mapping[int, Formula]] = {
    Relocation.R_CUDA_64: _abs64,
    Relocation.R_CUDA_ABS32_LO: _half(0),
    Relocation.R_CUDA_ABS32_HI: _half(32),
    Relocation.R_CUDA_ABS47_34: _call(CallAbs47),
    Relocation.R_CUDA_ABS55_16_34: _call(CallAbs55),
}
"""Relocation type -> the function that patches the image. Other types raise `UnsupportedError`."""
