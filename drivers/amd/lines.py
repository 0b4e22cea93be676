"""The source lines of a code object: file and line from which an instruction was compiled.

Compilers record them as DWARF: a line program has file and line of each instruction, and a tree of entries
has the calls whose code was inlined. Linked files and unlinked objects are read alike.

Not here: the users (`faults`, `program`), the facts of a kernel for its launch (`code`). Next: `faults`.
Source: DWARF 4 and 5, sections 2.17, 3.3.8 and 6.2; LLVM AMDGPUUsage, relocation records.
"""

from __future__ import annotations

import io
import posixpath
from collections.abc import Iterator
from typing import Any, Final

from drivers.amd.layouts.code import Relocation
from drivers.elf import ABSOLUTE, UNDEFINED, Elf, Placement

_DEBUG: Final = ".debug_"
_LINES: Final = ".debug_line"
_SIZES: Final = {Relocation.ABS32: 4, Relocation.ABS64: 8}
"""Relocation type of a debug section -> bytes that it patches."""
_FROM_ZERO: Final = 5
"""The DWARF version since which files and folders are numbered from 0."""


def source_place(elf: Elf, placement: Placement, offset: int) -> str:
    """Return "folder/file.py:12", the source line of an instruction; "" if the file records none.

    `offset` is the instruction's, in bytes from the start of the image. For code that was inlined from
    another file, such as a library, the result is the innermost call in the file of the kernel.

    Raises `ValueError` if the debug sections are malformed.
    """
    if elf.section(_LINES) is None:
        return ""
    # Imported here because only fault reports need it.
    from elftools.elf.elffile import ELFFile  # noqa: PLC0415

    try:
        file: Any = ELFFile(io.BytesIO(_relocated(elf, placement)))
        units = file.get_dwarf_info(relocate_dwarf_sections=False).iter_CUs()
        found = (_place(unit, offset + placement.first_va) for unit in units)
        return next(filter(None, found), "")
    except Exception as error:  # the parser's errors have no common class
        raise ValueError(f"malformed debug sections: {error!r}") from error


def _relocated(elf: Elf, placement: Placement) -> bytes:
    """Return the file with the relocations of its debug sections applied for an image at address 0."""
    data = bytearray(elf.data)
    for section in elf.sections:
        if elf.linked or not section.name.startswith(_DEBUG):
            continue
        for one in elf.relocations_of(section):
            symbol, size = one.symbol, _SIZES.get(Relocation(one.type), 0)
            if symbol is None or symbol.section in {UNDEFINED, ABSOLUTE}:
                continue
            value = placement.offsets.get(symbol.section, 0) + symbol.value + (one.addend or 0)
            at = section.offset + one.offset
            data[at : at + size] = (value & (1 << 8 * size) - 1).to_bytes(size, "little")
    return bytes(data)


def _place(unit: Any, address: int) -> str:
    """Return the source line of an address in a compilation unit; "" if the unit has none for it."""
    program = unit.dwarfinfo.line_program_for_CU(unit)
    row = None if program is None else _row(program, address)
    if row is None:
        return ""
    calls = reversed([one.attributes for one in _inlined(unit, address)])
    chain = [(row.file, row.line)] if row.line else []
    chain += [(one["DW_AT_call_file"].value, one["DW_AT_call_line"].value) for one in calls]
    if not chain:
        return ""  # the compiler records line 0 for code of no line, or of several lines
    file, line = next(one for one in chain if one[0] == chain[-1][0])
    return f"{_path(unit, program, file)}:{line}"


def _row(program: Any, address: int) -> Any:
    """Return the state of a line program at an address, or None."""
    before = None
    for state in filter(None, (entry.state for entry in program.get_entries())):
        if before is not None and before.address <= address < state.address:
            return before
        before = None if state.end_sequence else state
    return None


def _path(unit: Any, program: Any, number: int) -> str:
    """Return the path of a file of a line program."""
    head, top = program.header, unit.get_top_DIE().attributes
    first = int(head.version < _FROM_ZERO)
    file = head.file_entry[number - first]
    folder = top["DW_AT_comp_dir"].value if "DW_AT_comp_dir" in top else b""
    if file.dir_index >= first:
        folder = head.include_directory[file.dir_index - first]
    return posixpath.normpath(posixpath.join(folder, file.name).decode(errors="replace"))


def _inlined(unit: Any, address: int) -> Iterator[Any]:
    """Yield the entries of inlined calls around an address, the outermost first."""
    entry = unit.get_top_DIE()
    while entry is not None:
        entry = next((one for one in entry.iter_children() if _holds(unit, one, address)), None)
        if entry is not None and entry.tag == "DW_TAG_inlined_subroutine":
            yield entry


def _holds(unit: Any, entry: Any, address: int) -> bool:
    """Return whether the code of an entry includes an address."""
    attributes = entry.attributes
    if "DW_AT_ranges" in attributes:
        return _in_ranges(unit, attributes["DW_AT_ranges"].value, address)
    if "DW_AT_low_pc" not in attributes or "DW_AT_high_pc" not in attributes:
        return False
    low, high = attributes["DW_AT_low_pc"].value, attributes["DW_AT_high_pc"]
    relative = high.form != "DW_FORM_addr"
    return bool(low <= address < high.value + low * relative)


def _in_ranges(unit: Any, at: int, address: int) -> bool:
    top = unit.get_top_DIE().attributes
    base = top["DW_AT_low_pc"].value if "DW_AT_low_pc" in top else 0
    for one in unit.dwarfinfo.range_lists().get_range_list_at_offset(at, unit):
        if hasattr(one, "base_address"):
            base = one.base_address
        elif one.begin_offset <= address - base * (not one.is_absolute) < one.end_offset:
            return True
    return False
