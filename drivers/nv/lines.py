"""The line table of a cubin: the PTX line of each machine instruction.

The assembler writes the table, a DWARF line program, if line information is enabled. Lines are numbers in the
PTX text as it was passed to the assembler, comments and empty lines included.

Not here: the readers of the table, which are fault reports (`faults`) and the emulated GPU
(`emulator.nv.engines.faults`). Next: `faults`.

Source: DWARF 2 and 3, section 6.2. The name and the meaning of the ELF section were measured with nvJitLink
and ptxas 13.5.
"""

from __future__ import annotations

import io
import re
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from drivers.elf import Elf, ElfError
from drivers.nv.layouts.cubin import INSTRUCTION_BYTES, Section

_SECTION_SHIFT: Final = 32
"""A relocated address of the line program holds the section's index above this bit and the offset below."""
_LENGTH_BYTES, _VERSION_BYTES = 4, 2
_VERSIONS: Final = (2, 3, 4)
_LOC: Final = re.compile(r"\s*\.loc\s+(\d+)\s+(\d+)(?:\s+(\d+)(?:.*\binlined_at\s+(\d+)\s+(\d+)\s+(\d+))?)?")
"""A `.loc`: file, line and column; for inlined code also file, line and column of the call."""
_UNWRITTEN: Final = 0
"""The line number of instructions without a PTX line."""


@dataclass(frozen=True, slots=True)
class LineTable:
    """The lines of one function; offsets are bytes from its start, line numbers start at 1."""

    rows: tuple[tuple[int, int], ...]
    """Ascending (offset, line); a line is valid up to the next row's offset, and 0 means no line."""

    @classmethod
    def of(cls, elf: Elf, section: str) -> LineTable | None:
        """Return the lines of the function in `section` (".text.k"); None if there is no section or no line.

        Raises `ElfError` if the table is malformed.
        """
        table, text = elf.section(Section.LINES), elf.section(section)
        if table is None or text is None:
            return None
        data = bytearray(elf.content(table))
        for relocation in elf.relocations_of(table):
            symbol, at = relocation.symbol, relocation.offset
            if symbol is not None and at + 8 <= len(data):
                value = (symbol.section << _SECTION_SHIFT) + symbol.value + (relocation.addend or 0)
                data[at : at + 8] = (value & (1 << 64) - 1).to_bytes(8, "little")
        found: dict[int, int] = {}
        for address, line in _rows(bytes(data)):
            if address >> _SECTION_SHIFT == text.index:
                found[address & (1 << _SECTION_SHIFT) - 1] = line
        return cls(tuple(sorted(found.items()))) if found else None

    def line_at(self, offset: int) -> int | None:
        """Return the PTX line of the instruction at `offset`, or None if the table has none for it."""
        at = bisect_right(self.rows, offset, key=lambda row: row[0])
        return (self.rows[at - 1][1] or None) if at else None

    def offsets_of(self, line: int) -> tuple[int, ...]:
        """Return the offsets of the instructions of a PTX line, ascending; empty if there are none."""
        return tuple(
            offset
            for (start, own), (end, _) in zip(self.rows, self.rows[1:], strict=False)
            if own == line != _UNWRITTEN
            for offset in range(start, end, INSTRUCTION_BYTES)
        )


def ptx_line(ptx: str, line: int) -> str:
    """Return a line of PTX text without surrounding space; "" if there is no such line."""
    lines = ptx.split("\n")
    return lines[line - 1].strip() if 0 < line <= len(lines) else ""


def source_place(ptx: str, line: int) -> str:
    """Return "file.py:12", the source line from which a line of PTX was compiled; "" if it is not known.

    The nearest `.loc` before the PTX line in the same function gives the source line. For code that was
    inlined from another file, such as a header, the result is the innermost call in the kernel's own file.
    """
    lines = ptx.split("\n")
    line = _before_inline(lines, line)
    chain: list[re.Match[str]] = []
    for text in reversed(lines[: max(0, line)]):
        if ".entry" in text or ".func" in text:
            break
        here = _LOC.match(text)
        if here is None or (chain and here.group(1, 2, 3) != chain[-1].group(4, 5, 6)):
            continue
        chain.append(here)
        if here[4] is None:
            break
    if chain:
        own = chain[-1][4] or chain[-1][1]
        places = [one.group(1, 2) for one in chain] + [chain[-1].group(4, 5)]
        file, number = next(place for place in places if place[0] == own)
        named = re.search(rf'^\s*\.file\s+{file}\s+"([^"]*)"', ptx, re.MULTILINE)
        return f"{named[1]}:{number}" if named else ""
    return ""


def _before_inline(lines: list[str], line: int) -> int:
    """Return the PTX line at which the inline assembly around `line` begins; `line` outside of assembly.

    LLVM increments the line of `.loc` for each line of the assembly, so only the `.loc` before it is right.
    """
    for at in range(min(line, len(lines)) - 1, -1, -1):
        text = lines[at].strip()
        if text == "// begin inline asm":
            return at
        if text == "// end inline asm" or ".entry" in text:
            break
    return line


def _rows(data: bytes) -> Iterator[tuple[int, int]]:
    """Yield (address, line) from all line programs; the end of a sequence has line 0."""
    # Imported here because only fault reports need it.
    from elftools.common.exceptions import DWARFError, ELFError  # noqa: PLC0415
    from elftools.common.utils import struct_parse  # noqa: PLC0415
    from elftools.dwarf.lineprogram import LineProgram  # noqa: PLC0415
    from elftools.dwarf.structs import DWARFStructs  # noqa: PLC0415

    structs: Any = DWARFStructs(little_endian=True, dwarf_format=32, address_size=8, dwarf_version=3)
    stream, at = io.BytesIO(data), 0
    while at < len(data):
        start = at
        try:
            version = int.from_bytes(data[at + _LENGTH_BYTES : at + _LENGTH_BYTES + _VERSION_BYTES], "little")
            if version not in _VERSIONS:
                raise ElfError(
                    f"section {Section.LINES} has a line program of version {version} at {start:#x}"
                )
            head: Any = struct_parse(structs.Dwarf_lineprog_header, stream, at)
            at += _LENGTH_BYTES + head.unit_length
            code = start + 2 * _LENGTH_BYTES + _VERSION_BYTES + head.header_length
            if not start < code <= at <= len(data) or not head.line_range or not head.opcode_base:
                raise ElfError(f"section {Section.LINES} has a malformed header at {start:#x}")
            entries = LineProgram(head, stream, structs, code, at).get_entries()
        except (DWARFError, ELFError) as error:
            raise ElfError(f"section {Section.LINES} is malformed at {start:#x}: {error}") from error
        for entry in entries:
            if entry.state is not None:
                yield entry.state.address, 0 if entry.state.end_sequence else entry.state.line
