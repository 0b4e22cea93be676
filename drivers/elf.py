"""The reader of ELF files: sections, symbols and relocations, and the relocated image of a file.

`Elf` reads any little-endian 64-bit file, with `struct` alone. `place_sections` and `place_segments` decide
at which offset of an image each section lies. `Image.relocate` applies relocations by a table of formulas;
each machine (host, AMDGPU, CUDA) has its own table. Nothing here allocates executable memory. Records are
named tuples, because loading a kernel creates hundreds of them and a frozen dataclass takes three times as
long.

Not here: the formulas (`drivers.cpu.link`, `drivers.amd.code`, `drivers.nv.cubin`), mapping code
(`drivers.cpu.image`). Next: `drivers.cpu.link`. Source: System V ABI, generic part and the supplements for
x86-64 and AArch64.
"""

from __future__ import annotations

import enum
import struct
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property
from typing import NamedTuple, TypeAlias

from hcq.errors import HcqError, UnsupportedError, UsageError


class ElfError(UsageError):
    """The bytes are no ELF file that can be loaded; the message names the wrong part."""


_CONTRADICTIONS = (
    *(ArithmeticError, AttributeError, LookupError),
    *(StopIteration, TypeError, ValueError, struct.error),
)
"""The errors that Python raises when contradictory records are read and used in computations."""


@contextmanager
def malformed(what: str) -> Iterator[None]:
    """Raise `ElfError` instead of the Python errors that contradictory records cause; `what` names the file.

    For a `with` block, or as a decorator of a function that only reads and computes. An `HcqError` passes.
    """
    try:
        yield
    except HcqError:
        raise
    except _CONTRADICTIONS as error:
        raise ElfError(f"{what} is malformed: its records contradict each other ({error!r})") from error


class ElfKind(enum.IntEnum):
    """Values of `e_type`."""

    REL = 1
    EXEC = 2
    DYN = 3


class ElfMachine(enum.IntEnum):
    """Values of `e_machine` in the files that this project reads."""

    X86_64 = 62
    AARCH64 = 183
    CUDA = 190
    AMDGPU = 224


class SectionType(enum.IntEnum):
    """Values of `sh_type` that this module interprets."""

    PROGBITS = 1
    SYMTAB = 2
    STRTAB = 3
    RELA = 4
    NOTE = 7
    NOBITS = 8
    REL = 9
    DYNSYM = 11


WRITE, ALLOC, EXECUTE, TLS = 0x1, 0x2, 0x4, 0x400
"""Bits of `sh_flags`."""
LOAD = 1
"""The `p_type` of a segment that is loaded into memory."""
HEADER_BYTES = 64
LARGEST = 1 << 30
"""The largest image, in bytes; a file that needs more is rejected as invalid."""
UNDEFINED, ABSOLUTE, COMMON = 0, 0xFFF1, 0xFFF2
"""Values of `st_shndx` that are no index of a section."""


class Section(NamedTuple):
    """A section header, with its name resolved. Sizes and offsets are in bytes."""

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


class ElfSegment(NamedTuple):
    """A program header. Sizes and offsets are in bytes."""

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
    """One entry of a relocation table."""

    section: int
    """Index of the section in which `offset` lies; 0 if `offset` is a virtual address of the file."""
    offset: int
    type: int
    symbol: Symbol | None
    addend: int | None
    """None for a REL entry, whose addend is stored in the bytes that are relocated."""


class Elf:
    """A parsed file. `data` is kept, not copied.

    Raises `ElfError` if a header is invalid; reading a table of symbols or relocations raises it for the
    table.
    """

    def __init__(self, data: bytes) -> None:
        self.data = data
        if data[:4] != b"\x7fELF":
            raise ElfError(f"not an ELF file: it begins with {data[:4]!r}")
        if data[4:6] != b"\x02\x01" or len(data) < HEADER_BYTES:
            raise ElfError("only complete 64-bit little-endian ELF files are supported")
        self.abi, self.abi_version = data[7:9]
        kind, self.machine, _, self.entry, head, sections, self.flags, *counts = self._unpack(
            "<HHIQQQIHHHHHH", 16
        )
        self.kind = kind
        _, segment_size, segment_count, section_size, section_count, names = counts
        self.segments = tuple(self._segment(head + i * segment_size) for i in range(segment_count))
        raw = [self._unpack("<IIQQQQIIQQ", sections + i * section_size) for i in range(section_count)]
        if raw and names >= len(raw):
            raise ElfError(f"section {names} should hold the names; the file has {len(raw)} sections")
        self.sections = tuple(
            Section(i, self._text(raw[names], words[0]), *words[1:]) for i, words in enumerate(raw)
        )

    @property
    def linked(self) -> bool:
        """Whether symbol values and relocation offsets are virtual addresses; False: offsets in sections.

        Cubins have offsets in sections although they are linked.
        """
        return self.kind != ElfKind.REL and self.machine != ElfMachine.CUDA

    def _unpack(self, form: str, at: int) -> tuple[int, ...]:
        if at < 0 or at + struct.calcsize(form) > len(self.data):
            raise ElfError(f"the file is truncated: {len(self.data)} bytes, a header refers to {at:#x}")
        return struct.unpack_from(form, self.data, at)

    def _segment(self, at: int) -> ElfSegment:
        kind, flags, offset, va, _, file_size, memory_size, align = self._unpack("<IIQQQQQQ", at)
        return ElfSegment(kind, flags, offset, va, file_size, memory_size, align)

    def _text(self, table: tuple[int, ...], at: int) -> str:
        start, end = table[4] + at, table[4] + table[5]
        stop = self.data.find(b"\0", start, end)
        if stop < 0:
            raise ElfError(f"the name at {start:#x} has no end in its string table")
        return self.data[start:stop].decode(errors="replace")

    def section(self, name: str) -> Section | None:
        """Return the first section with a name; None if there is none."""
        return next((section for section in self.sections if section.name == name), None)

    def content(self, section: Section) -> bytes:
        """Return a section's bytes; zeros for a NOBITS section.

        Raises `ElfError` if the section ends outside the file.
        """
        if section.type == SectionType.NOBITS:
            return bytes(section.size)
        if section.offset + section.size > len(self.data):
            raise ElfError(f"section {section.name} ends outside the file")
        return self.data[section.offset : section.offset + section.size]

    def _table(self, section: Section) -> tuple[Symbol, ...]:
        names = self._section_at(section.link)
        words = (0, names.type, 0, 0, names.offset, names.size)
        return tuple(
            [
                Symbol(self._text(words, name), value, size, info & 15, info >> 4, other, where)
                for name, info, other, where, value, size in self._records(section, "<IBBHQQ")
            ]
        )

    def _records(self, section: Section, form: str) -> Iterator[tuple[int, ...]]:
        """Return the records of a table. Raises `ElfError` if it ends outside the file or in a record."""
        end, size = section.offset + section.size, struct.calcsize(form)
        if end > len(self.data) or section.size % size:
            raise ElfError(
                f"the file is truncated: {len(self.data)} bytes, the table {section.name} has records of "
                f"{size} bytes from {section.offset:#x} to {end:#x}"
            )
        return struct.iter_unpack(form, memoryview(self.data)[section.offset : end])

    def _section_at(self, index: int) -> Section:
        if index >= len(self.sections):
            raise ElfError(f"a header refers to section {index}; the file has {len(self.sections)} sections")
        return self.sections[index]

    @cached_property
    def _tables(self) -> Mapping[int, tuple[Symbol, ...]]:
        kinds = (SectionType.SYMTAB, SectionType.DYNSYM)
        return {section.index: self._table(section) for section in self.sections if section.type in kinds}

    @cached_property
    def symbols(self) -> tuple[Symbol, ...]:
        """The symbols of the full table, else those of the dynamic table; empty if the file has neither."""
        order = sorted(self._tables, key=lambda index: self.sections[index].type)
        return self._tables[order[0]] if order else ()

    def symbol(self, name: str) -> Symbol | None:
        """Return the first defined symbol with a name; None if there is none."""
        return next((s for s in self.symbols if s.name == name and s.section != UNDEFINED), None)

    def relocations(self) -> tuple[Relocation, ...]:
        """Return the relocations of loaded sections; for a linked file, all relocations."""
        return self._relocations

    @cached_property
    def _relocations(self) -> tuple[Relocation, ...]:
        found: list[Relocation] = []
        for table in self.sections:
            if table.type not in (SectionType.RELA, SectionType.REL):
                continue
            if self.linked or self._section_at(table.info).flags & ALLOC:
                found += self._relocations_in(table)
        return tuple(found)

    def relocations_of(self, section: Section) -> Iterator[Relocation]:
        """Yield the relocations of one section of an unlinked file, whether or not the section is loaded."""
        for table in self.sections:
            if table.type in (SectionType.RELA, SectionType.REL) and table.info == section.index:
                yield from self._relocations_in(table)

    def _relocations_in(self, table: Section) -> Iterator[Relocation]:
        symbols = self._tables.get(table.link, ())
        form = "<QQq" if table.type == SectionType.RELA else "<QQ"
        target = 0 if self.linked else table.info
        for offset, info, *addend in self._records(table, form):
            index, kind = info >> 32, info & 0xFFFF_FFFF
            if index >= len(symbols) and index:
                raise ElfError(f"a relocation of {table.name} refers to symbol {index} of {len(symbols)}")
            symbol = symbols[index] if index else None
            yield Relocation(target, offset, kind, symbol, addend[0] if addend else None)


class Placement(NamedTuple):
    """The positions of sections in an image; `size` and `align` are in bytes."""

    size: int
    align: int
    offsets: Mapping[int, int]
    """Section index -> offset from the start of the image, in bytes."""
    first_va: int = 0
    """The virtual address, in a linked file, of the start of the image."""


def place_sections(elf: Elf, *, keep: Callable[[Section], bool] | None = None) -> Placement:
    """Place the loaded sections of an unlinked file one after another, each aligned as its header requires.

    `keep` returns whether a section is placed; None places all. Raises `ElfError` if an alignment is not a
    power of two.
    """
    at, align, offsets = 0, 16, {}
    for section in elf.sections:
        if section.flags & ALLOC and (keep is None or keep(section)):
            need = max(section.align, 1)
            if need & (need - 1):
                raise ElfError(f"section {section.name} is aligned to {need}, which is not a power of two")
            at = (at + need - 1) & -need
            offsets[section.index] = at
            at += section.size
            align = max(align, need)
    return Placement(at, align, offsets)


def place_segments(elf: Elf) -> Placement:
    """Place the sections of a linked file as the linker did.

    Raises `ElfError` if the file has no LOAD segment, or if a section lies outside all of them.
    """
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


class ElfSite(NamedTuple):
    """The operands of a relocation formula. Letters are those of the System V ABI."""

    content: bytearray
    at: int
    """Offset in `content` of the bytes to patch."""
    place: int
    """Address of these bytes when the image is loaded (P)."""
    symbol: int
    """Address of the symbol (S), or the base of the image (B) if the relocation has no symbol."""
    addend: int | None
    """The addend (A); None if it is stored in the bytes to patch."""


Formula: TypeAlias = "Callable[[ElfSite], None]"
"""A function that writes the bits of one relocation."""


class Image:
    """The bytes of a file as they are loaded into memory: `content`, before or after `relocate`.

    Raises `ElfError` if the image would be larger than `LARGEST`.
    """

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
        """Return the offset of a defined symbol in the image, in bytes.

        Raises `ElfError` if the symbol's section is not loaded.
        """
        if self.elf.linked:
            return symbol.value - self.placement.first_va
        if symbol.section not in self.placement.offsets:
            raise ElfError(f"symbol {symbol.name} lies in section {symbol.section}, which is not loaded")
        return self.placement.offsets[symbol.section] + symbol.value

    def relocate(
        self, base: int, formulas: Mapping[int, Formula], resolve: Callable[[Relocation], int]
    ) -> None:
        """Apply all relocations, for an image that will be loaded at address `base`.

        `formulas` maps a relocation type to its formula; type 0 and relocations of sections that are not
        placed are skipped. `resolve` returns the address of a relocation's symbol. Raises `UnsupportedError`
        if `formulas` has no entry for a type, `ElfError` for a relocation outside the image, and what
        `resolve` and the formulas raise.
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
                    f"has no formula; supported types: {sorted(formulas)}"
                )
            at = self.offset_in(relocation)
            formula(ElfSite(self.content, at, base + at, resolve(relocation), relocation.addend))

    def offset_in(self, relocation: Relocation) -> int:
        """Return the offset in the image of the bytes that a relocation patches, of which 4 must be inside.

        Raises `ElfError` if they lie outside.
        """
        if relocation.section:
            at = self.placement.offsets[relocation.section] + relocation.offset
        else:
            at = relocation.offset - self.placement.first_va
        if not 0 <= at <= len(self.content) - 4:
            raise ElfError(f"a relocation patches {at:#x}, outside the image of {len(self.content):#x} bytes")
        return at
