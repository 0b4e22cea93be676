"""ELF files as data, and a loader for those that this host can run.

`Elf` reads sections, segments, symbols and relocations of any little-endian 64-bit file, with `struct` alone.
`place_sections` and `place_segments` decide where each section goes in an image, and `Image.relocate` applies
relocations by a table of formulas, so that AMDGPU and CUDA images use the same loader with tables of their
own. `HostImage` is the loader for x86-64 and aarch64 code of this process: it adds an address slot and a jump
for each function from outside. Nothing here allocates executable memory. Records are named tuples: a kernel's
load makes hundreds, and they cost a third of frozen dataclasses.

Source: System V ABI, generic part and the supplements for x86-64 and AArch64.

Next: `drivers.cpu.link` and `drivers.nv.cubin`, which use it.
"""

from __future__ import annotations

import enum
import struct
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from hcq.errors import UnsupportedError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping


class ElfError(UsageError):
    """The bytes are no ELF file that can be loaded; the text has the place."""


class Kind(enum.IntEnum):
    """`e_type`."""

    REL = 1
    EXEC = 2
    DYN = 3


class Machine(enum.IntEnum):
    """`e_machine` of the files that this project reads."""

    X86_64 = 62
    AARCH64 = 183
    CUDA = 190
    AMDGPU = 224


class SectionType(enum.IntEnum):
    """`sh_type`, those that mean something here."""

    PROGBITS = 1
    SYMTAB = 2
    STRTAB = 3
    RELA = 4
    NOTE = 7
    NOBITS = 8
    REL = 9
    DYNSYM = 11


WRITE, ALLOC, EXECUTE, TLS = 0x1, 0x2, 0x4, 0x400
"""`sh_flags`."""
LOAD = 1
"""`p_type` of a segment that is in memory."""
HEADER_BYTES = 64
LARGEST = 1 << 30
"""Bytes of an image; a file that needs more is invalid."""
UNDEFINED, ABSOLUTE, COMMON = 0, 0xFFF1, 0xFFF2
"""`st_shndx` that are no section."""


class Section(NamedTuple):
    """A section header, its name read."""

    index: int  # type: ignore[assignment]  # hides tuple.index, which is not used
    name: str
    type: int
    flags: int
    va: int
    offset: int
    size: int
    link: int
    info: int
    align: int
    entry_size: int


class Segment(NamedTuple):
    """A program header."""

    type: int
    flags: int
    offset: int
    va: int
    file_size: int
    memory_size: int
    align: int


class Symbol(NamedTuple):
    """A symbol; `section` is its section's index or one of UNDEFINED, ABSOLUTE, COMMON."""

    name: str
    value: int
    size: int
    kind: int
    """0 none, 1 object, 2 function, 3 section, 4 file."""
    binding: int
    """0 local, 1 global, 2 weak."""
    other: int
    section: int


class Relocation(NamedTuple):
    """A place to be patched."""

    section: int
    """Index of the section that `offset` counts from, or 0: `offset` is a virtual address of the file."""
    offset: int
    type: int
    symbol: Symbol | None
    addend: int | None
    """None where the addend lies at the place itself (REL)."""


class Elf:
    """A parsed file; `data` is kept, not copied."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        if data[:4] != b"\x7fELF":
            raise ElfError(f"no ELF file: it begins with {data[:4]!r}")
        if data[4:6] != b"\x02\x01" or len(data) < HEADER_BYTES:
            raise ElfError("only whole 64-bit little-endian ELF files are read")
        self.abi, self.abi_version = data[7:9]
        kind, self.machine, _, self.entry, head, sections, self.flags, *counts = self._unpack(
            "<HHIQQQIHHHHHH", 16
        )
        self.kind = kind
        _, segment_size, segment_count, section_size, section_count, names = counts
        self.segments = tuple(self._segment(head + i * segment_size) for i in range(segment_count))
        raw = [self._unpack("<IIQQQQIIQQ", sections + i * section_size) for i in range(section_count)]
        if raw and names >= len(raw):
            raise ElfError(f"section {names} should hold the names, there are {len(raw)}")
        self.sections = tuple(
            Section(i, self._text(raw[names], words[0]), *words[1:]) for i, words in enumerate(raw)
        )

    @property
    def linked(self) -> bool:
        """Values and offsets are virtual addresses; else they count from their sections, as in a cubin."""
        return self.kind != Kind.REL and self.machine != Machine.CUDA

    def _unpack(self, form: str, at: int) -> tuple[int, ...]:
        if at < 0 or at + struct.calcsize(form) > len(self.data):
            raise ElfError(f"the file is cut short: {len(self.data)} bytes, something lies at {at:#x}")
        return struct.unpack_from(form, self.data, at)

    def _segment(self, at: int) -> Segment:
        kind, flags, offset, va, _, file_size, memory_size, align = self._unpack("<IIQQQQQQ", at)
        return Segment(kind, flags, offset, va, file_size, memory_size, align)

    def _text(self, table: tuple[int, ...], at: int) -> str:
        start, end = table[4] + at, table[4] + table[5]
        stop = self.data.find(b"\0", start, end)
        if stop < 0:
            raise ElfError(f"a name at {start:#x} runs out of its table")
        return self.data[start:stop].decode(errors="replace")

    def section(self, name: str) -> Section | None:
        """Return the first section of that name."""
        return next((section for section in self.sections if section.name == name), None)

    def content(self, section: Section) -> bytes:
        """Return a section's bytes; zeros for one that has none in the file."""
        if section.type == SectionType.NOBITS:
            return bytes(section.size)
        if section.offset + section.size > len(self.data):
            raise ElfError(f"section {section.name} ends outside the file")
        return self.data[section.offset : section.offset + section.size]

    def _table(self, section: Section) -> tuple[Symbol, ...]:
        names = self._section_at(section.link)
        words = (0, names.type, 0, 0, names.offset, names.size)
        out = []
        for at in range(section.offset, section.offset + section.size, 24):
            name, info, other, where, value, size = self._unpack("<IBBHQQ", at)
            out.append(Symbol(self._text(words, name), value, size, info & 15, info >> 4, other, where))
        return tuple(out)

    def _section_at(self, index: int) -> Section:
        if index >= len(self.sections):
            raise ElfError(f"section {index} is named, there are {len(self.sections)}")
        return self.sections[index]

    @cached_property
    def _tables(self) -> Mapping[int, tuple[Symbol, ...]]:
        kinds = (SectionType.SYMTAB, SectionType.DYNSYM)
        return {section.index: self._table(section) for section in self.sections if section.type in kinds}

    @cached_property
    def symbols(self) -> tuple[Symbol, ...]:
        """The symbols of the full table, or of the dynamic one in a stripped file."""
        order = sorted(self._tables, key=lambda index: self.sections[index].type)
        return self._tables[order[0]] if order else ()

    def symbol(self, name: str) -> Symbol | None:
        """Return the defined symbol of that name."""
        return next((s for s in self.symbols if s.name == name and s.section != UNDEFINED), None)

    def relocations(self) -> Iterator[Relocation]:
        """Yield the relocations of sections that are in memory (in a linked file: all)."""
        for table in self.sections:
            if table.type not in (SectionType.RELA, SectionType.REL):
                continue
            if self.linked or self._section_at(table.info).flags & ALLOC:
                yield from self._relocations_in(table)

    def relocations_of(self, section: Section) -> Iterator[Relocation]:
        """Yield the relocations of one section, in memory or not, of a file that is not linked."""
        for table in self.sections:
            if table.type in (SectionType.RELA, SectionType.REL) and table.info == section.index:
                yield from self._relocations_in(table)

    def _relocations_in(self, table: Section) -> Iterator[Relocation]:
        symbols = self._tables.get(table.link, ())
        form = "<QQq" if table.type == SectionType.RELA else "<QQ"
        for at in range(table.offset, table.offset + table.size, struct.calcsize(form)):
            offset, info, *addend = self._unpack(form, at)
            index, kind = info >> 32, info & 0xFFFF_FFFF
            if index >= len(symbols) and index:
                raise ElfError(f"a relocation of {table.name} names symbol {index} of {len(symbols)}")
            symbol = symbols[index] if index else None
            target = 0 if self.linked else table.info
            yield Relocation(target, offset, kind, symbol, addend[0] if addend else None)


class Placement(NamedTuple):
    """Where sections lie in an image."""

    size: int
    align: int
    offsets: Mapping[int, int]
    """Section index -> bytes from the start of the image."""
    first_va: int = 0
    """The file's virtual address of the start of the image, in a linked file."""


def place_sections(elf: Elf, *, keep: Callable[[Section], bool] | None = None) -> Placement:
    """Lay the sections that are in memory one behind the other, aligned; for files that are not linked."""
    at, align, offsets = 0, 16, {}
    for section in elf.sections:
        if section.flags & ALLOC and (keep is None or keep(section)):
            need = max(section.align, 1)
            if need & (need - 1):
                raise ElfError(f"section {section.name} is aligned to {need}, which is no power of two")
            at = (at + need - 1) & -need
            offsets[section.index] = at
            at += section.size
            align = max(align, need)
    return Placement(at, align, offsets)


def place_segments(elf: Elf) -> Placement:
    """Keep the layout that the linker chose: sections lie as their segments do."""
    loads = [segment for segment in elf.segments if segment.type == LOAD]
    if not loads:
        raise ElfError("the file has no segment to load")
    first = min(segment.va for segment in loads)
    end = max(segment.va + segment.memory_size for segment in loads)
    offsets = {s.index: s.va - first for s in elf.sections if s.flags & ALLOC and not s.flags & TLS}
    for section in elf.sections:
        if section.index in offsets and not 0 <= offsets[section.index] <= end - first - section.size:
            raise ElfError(f"section {section.name} lies in no segment")
    return Placement(end - first, max(segment.align for segment in loads), offsets, first)


class Site(NamedTuple):
    """What a relocation formula works on."""

    content: bytearray
    at: int
    """Offset of the place in `content`."""
    place: int
    """Its address when loaded (P)."""
    symbol: int
    """Address of the symbol, or the image's base where there is none (S, or B)."""
    addend: int | None
    """None where it lies at the place (A)."""


Formula: TypeAlias = "Callable[[Site], None]"
"""Writes one relocation's bits."""


class Image:
    """The bytes of a file as they lie in memory."""

    def __init__(self, elf: Elf, placement: Placement) -> None:
        self.elf = elf
        self.placement = placement
        if placement.size > LARGEST:
            raise ElfError(
                f"the image would have {placement.size:#x} bytes, at most {LARGEST:#x} are allowed"
            )
        self.content = bytearray(placement.size)
        for index, offset in placement.offsets.items():
            section = elf.sections[index]
            if section.type != SectionType.NOBITS:
                self.content[offset : offset + section.size] = elf.content(section)

    def offset_of(self, symbol: Symbol) -> int:
        """Return where a defined symbol lies in the image."""
        if self.elf.linked:
            return symbol.value - self.placement.first_va
        if symbol.section not in self.placement.offsets:
            raise ElfError(f"symbol {symbol.name} lies in section {symbol.section}, which is not loaded")
        return self.placement.offsets[symbol.section] + symbol.value

    def relocate(
        self, base: int, formulas: Mapping[int, Formula], resolve: Callable[[Relocation], int]
    ) -> None:
        """Apply all relocations for an image at address `base`.

        `resolve` gives the address a relocation's symbol has; a type without a formula is an error.
        """
        for relocation in self.elf.relocations():
            dropped = relocation.section and relocation.section not in self.placement.offsets
            if relocation.type == 0 or dropped:
                continue
            formula = formulas.get(relocation.type)
            if formula is None:
                name = relocation.symbol.name if relocation.symbol else ""
                raise UnsupportedError(
                    f"relocation type {relocation.type} of machine {self.elf.machine} (symbol {name!r}) "
                    f"has no formula; there are: {sorted(formulas)}"
                )
            at = self.offset_in(relocation)
            formula(Site(self.content, at, base + at, resolve(relocation), relocation.addend))

    def offset_in(self, relocation: Relocation) -> int:
        """Return where a relocation's place lies in the image."""
        if relocation.section:
            at = self.placement.offsets[relocation.section] + relocation.offset
        else:
            at = relocation.offset - self.placement.first_va
        if not 0 <= at <= len(self.content) - 4:
            raise ElfError(f"a relocation patches {at:#x}, outside of the image of {len(self.content):#x}")
        return at
