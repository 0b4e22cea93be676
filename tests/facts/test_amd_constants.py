"""Constants of the layouts that belong to no single packet, and a check that none lacks a fact."""

from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path

import pytest

from drivers.amd.layouts import aql, code, drm, events, pm4, pm4_generations, registers, sdma, topology
from tests.facts import amd_aql, amd_code, amd_kfd, amd_pm4, amd_sdma, amd_topology

TESTS = sorted(Path(__file__).parent.glob("test_amd_*.py"))
MODULES = (
    "aql", "chips", "code", "cwsr", "drm", "events", "kfd", "kfd_unused", "pm4", "pm4_generations",
    "registers", "sdma", "topology",
)  # fmt: skip
CONSTANT = re.compile(r"[A-Z][A-Z0-9_]*")


@pytest.mark.parametrize("name", MODULES)
def test_every_constant_of_a_layout_is_compared(name: str):
    text = "".join(path.read_text() for path in TESTS)
    module = import_module(f"drivers.amd.layouts.{name}")
    declared = module.__annotations__
    found = {key for key in declared if CONSTANT.fullmatch(key) and isinstance(vars(module)[key], int | str)}
    assert [key for key in sorted(found) if not re.search(rf"\b{name}\.{key}\b", text)] == []


def test_every_module_of_layouts_is_compared():
    folder = Path(aql.__file__).parent
    assert {path.stem for path in folder.glob("*.py")} == {"__init__", *MODULES}


def test_vendor_formats():
    assert aql.PM4_IB_FORMAT == amd_aql.PM4_IB_FORMAT
    assert aql.BARRIER_VALUE_FORMAT == amd_aql.BARRIER_VALUE_FORMAT
    assert aql.PM4_IB_DW_CNT_REMAIN == amd_aql.PM4_IB_DW_CNT_REMAIN


def test_names_of_files():
    assert topology.KFD_NODE == amd_topology.KFD_NODE
    assert topology.RENDER_NODE.format(minor=128) == amd_topology.RENDER_NODE_128
    assert code.NOTE_SECTION == amd_code.NOTE_SECTION


def test_masks_and_alignments():
    assert registers.PROGRAM_ALIGN == 1 << amd_pm4.PGM_SHIFT
    assert pm4.ALL_BITS == 2**32 - 1
    assert sdma.POLL_INTERVAL == amd_sdma.POLL_INTERVAL
    assert drm.IDS_FLAGS_FUSION == amd_kfd.IDS_FLAGS_FUSION


def test_every_exception_of_a_queue_has_a_text():
    assert set(events.EXCEPTION_TEXT) <= set(events.QueueException)


def test_packets_with_data():
    names = {opcode.name for opcode in pm4_generations.WITH_DATA}
    assert names == {"SET_SH_REG", "WRITE_DATA"}
