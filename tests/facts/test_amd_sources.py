"""The page of sources has a row for every field of ioctls, packets, registers and code objects."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.facts import amd_aql, amd_code, amd_kfd_header, amd_pm4, amd_sdma
from tests.facts.layout_probe import c_structs

Fields = tuple[tuple[int, int, str], ...]
"""Offset, size and name of each field."""

PAGE = Path(__file__).resolve().parents[2] / "docs" / "sources-amd.md"


def sections() -> dict[str, list[list[str]]]:
    """Return the rows of the tables below each heading, as cells."""
    found: dict[str, list[list[str]]] = {}
    heading = ""
    for line in PAGE.read_text().splitlines():
        if line.startswith("## "):
            heading = line[3:]
            found[heading] = []
        elif heading and line.startswith("| "):
            found[heading].append([cell.strip() for cell in line.strip("|").split("|")])
    return found


SECTIONS = sections()


def packets(heading: str) -> dict[str, dict[str, str]]:
    """Return field -> place of every packet; a row in bold begins one."""
    found: dict[str, dict[str, str]] = {}
    fields: dict[str, str] = {}
    for cells in SECTIONS[heading]:
        bold = re.match(r"\*\*(.+?)\*\*(.*)", cells[0])
        if bold:
            fields = found.setdefault(bold[1] + (bold[2] if bold[2].startswith(",") else ""), {})
        else:
            fields.setdefault(cells[0], cells[1])
    return found


def place(field: tuple[int, int, int]) -> str:
    dword, lo, hi = field
    return f"{dword}[{hi}:{lo}]" if lo != hi else f"{dword}[{lo}]"


def test_every_field_of_an_ioctl_has_a_row():
    found = packets("KFD ioctls")
    for name, struct in c_structs(amd_kfd_header.STRUCTS).items():
        rows = found[struct.call or name]
        fields = {field: f"{at} / {size}" for at, size, field in struct.fields if field != "pad"}
        assert fields.items() <= rows.items(), name


def test_every_constant_of_the_header_has_a_row():
    text = " ".join(cell for cells in SECTIONS["KFD ioctls"] for cell in cells)
    for name in amd_kfd_header.CONSTANTS:
        parts = name.split("_")
        assert any("_".join(parts[n:]) in text for n in range(1, len(parts))) or name in text, name


PM4 = {
    "SET_SH_REG": amd_pm4.SET_REG,
    "RELEASE_MEM": amd_pm4.RELEASE_MEM,
    "WAIT_REG_MEM": amd_pm4.WAIT_REG_MEM,
    "WRITE_DATA": amd_pm4.WRITE_DATA,
    "COPY_DATA": amd_pm4.COPY_DATA,
    "INDIRECT_BUFFER": amd_pm4.INDIRECT_BUFFER,
    "DISPATCH_DIRECT": amd_pm4.DISPATCH_DIRECT,
    "EVENT_WRITE": amd_pm4.EVENT_WRITE,
    "ATOMIC_MEM": amd_pm4.ATOMIC_MEM,
    "DMA_DATA": amd_pm4.DMA_DATA,
    "ACQUIRE_MEM": amd_pm4.ACQUIRE_MEM,
    "PRED_EXEC": amd_pm4.PRED_EXEC,
    "ACQUIRE_MEM, gfx9": {name: (1, bit, bit) for name, bit in amd_pm4.COHER_CNTL_GFX9.items()},
    "GCR_CNTL, gfx10 on": {name: (7, lo, hi) for name, (lo, hi) in amd_pm4.GCR_CNTL.items()},
    "RELEASE_MEM, cache bits": {
        f"{name}, {generation}": (1, lo, hi)
        for generation, label in (("gfx9", "gfx9"), ("gfx10/11", "gfx11"))
        for name, (lo, hi) in amd_pm4.RELEASE_CACHE_BITS[label].items()
    },
}


@pytest.mark.parametrize("name", PM4)
def test_every_field_of_a_pm4_packet_has_a_row(name: str):
    rows = packets("PM4")[name]
    assert {field: place(bits) for field, bits in PM4[name].items()}.items() <= rows.items()


@pytest.mark.parametrize("name", amd_sdma.PACKETS)
def test_every_field_of_an_sdma_packet_has_a_row(name: str):
    rows = packets("SDMA")[name]
    fields = amd_sdma.PACKETS[name]
    assert {
        "CPV or DCC" if field == "DCC" else field: place(bits) for field, bits in fields.items()
    }.items() <= rows.items()


@pytest.mark.parametrize(
    ("name", "fields"),
    [
        ("kernel dispatch packet", amd_aql.KERNEL_DISPATCH),
        ("barrier packets", amd_aql.BARRIER),
        ("vendor packet of PM4", amd_aql.PM4_IB),
        ("barrier value packet", amd_aql.BARRIER_VALUE),
        ("amd_signal_t", amd_aql.SIGNAL),
        ("amd_queue_t", amd_aql.QUEUE),
    ],
)
def test_every_field_of_an_aql_structure_has_a_row(name: str, fields: Fields):
    rows = packets("AQL")[name]
    assert {field: f"{at} / {size}" for at, size, field in fields}.items() <= rows.items()


def test_every_register_has_a_row():
    rows = {(cells[0], cells[1]) for cells in SECTIONS["Compute registers"]}
    for table in (amd_pm4.SH_REGISTERS, amd_pm4.SH_REGISTERS_GFX9, amd_pm4.SH_REGISTERS_GFX11):
        wanted = {(name.removeprefix("COMPUTE_"), f"0x{at:03X}") for name, at in table.items()}
        assert wanted <= rows


def test_every_part_of_a_code_object_has_a_row():
    rows = {cells[0]: cells[1] for cells in SECTIONS["Code objects"]}
    for at, size, name in amd_code.DESCRIPTOR:
        assert rows[f"descriptor.{name}"] == f"{at} / {size}"
    assert {f"property {name}" for name in amd_code.PROPERTIES} <= rows.keys()
    assert {
        f"mach {name}": f"0x{number:02X}" for name, number in amd_code.MACH.items()
    }.items() <= rows.items()
    assert {f"R_AMDGPU_{name}" for name in amd_code.RELOCATIONS} <= rows.keys()


def test_no_row_lacks_its_source():
    for heading in ("KFD ioctls", "PM4", "SDMA", "AQL", "Compute registers", "Code objects"):
        for cells in SECTIONS[heading]:
            sources = [cell for cell in cells[2:] if cell not in ("", "-")]
            assert sources, (heading, cells[0])
            assert "?" not in cells, (heading, cells[0])
