"""The verifier of waits: good code gives no report, code without one of its waits does."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from drivers.amd.emu.isa import objects
from drivers.amd.emu.isa.decode import decode
from drivers.amd.emu.isa.opcodes import target
from drivers.amd.emu.isa.translate import read_kernel
from drivers.amd.emu.isa.wait_counters import waited
from drivers.amd.emu.isa.waits import missing_waits
from drivers.emu.report import ReportKind, parse
from tests.drivers.amd_isa import ir
from tests.drivers.amd_isa.conftest import compiled

if TYPE_CHECKING:
    from drivers.amd.emu.isa.instruction import Instruction

KERNELS = {"reduction": ir.REDUCTION, "scratch": ir.SCRATCH, "histogram": ir.HISTOGRAM, "shuffle": ir.SHUFFLE}
_ORDERS_STORES = {
    "gfx1100": {"s_waitcnt_vscnt null, 0x0"},
    "gfx1201": {"s_wait_storecnt 0x0"},
    "gfx942": {"s_waitcnt vmcnt(0)"},
}
"""Waits that make stores visible: no register depends on them."""


def _instructions(text: str, name: str) -> list[Instruction]:
    kernel = objects.kernels(compiled(text, name), name)["k"]
    return read_kernel(kernel.code, kernel.target, lanes=kernel.lanes, kernel="k")


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", ["gfx1100", "gfx1201", "gfx942"])
def test_only_code_without_its_waits_is_reported(name: str) -> None:
    family = target(name).family
    for kernel in KERNELS.values():
        code = _instructions(kernel, name)
        assert missing_waits(code, family, kernel="k") == []
        for number, instruction in enumerate(code):
            if not waited(instruction, family):
                continue
            without = list(code)
            opcode = replace(instruction.opcode, name="s_nop")
            without[number] = replace(instruction, opcode=opcode, name="s_nop")
            assert missing_waits(without, family, kernel="k") or instruction.text in _ORDERS_STORES[name], (
                instruction.text
            )


def _code(words: str, name: str = "gfx1100") -> list[Instruction]:
    return decode(b"".join(int(w, 16).to_bytes(4, "little") for w in words.split()), target(name))


LOAD_0, LOAD_1, ADD_0 = "DC520000 007C0004", "DC520000 017C0004", "06060500"
"""global_load_b32 v0 and v1, v[4:5], off; v_add_f32 v3, v0, v2."""


def test_a_report_names_instruction_register_counter_and_access() -> None:
    code = _code(f"BF800000 {LOAD_0} {ADD_0} BFB00000")
    (found,) = missing_waits(code, "gfx11", kernel="k")
    assert (found.kind, found.kernel, found.line) == (ReportKind.MISSING_WAIT, "k", 12)
    assert (found.instruction, found.thread) == (code[2].text, None)
    assert found.other == f"line 4: {code[1].text}; v0 needs a wait for vmcnt"
    assert parse(f"{found}; pc 0x10") == [(found, "")]


@pytest.mark.parametrize(("count", "reports"), [(0, 0), (1, 0), (2, 1)])
def test_loads_return_in_order(count: int, reports: int) -> None:
    wait = f"{0xBF8903F7 | count << 10:08X}"
    found = missing_waits(_code(f"{LOAD_0} {LOAD_1} {wait} {ADD_0} BFB00000"), "gfx11", kernel="k")
    assert len(found) == reports


@pytest.mark.parametrize(("count", "reports"), [(0, 0), (1, 1)])
def test_scalar_loads_return_in_any_order(count: int, reports: int) -> None:
    """s_load_b32 s0, s_load_b32 s1, s_waitcnt lgkmcnt(count), s_mov_b32 s2, s0."""
    wait = f"{0xBF89FC07 | count << 4:08X}"
    words = f"F4000002 F8000000 F4000042 F8000000 {wait} BE820000 BFB00000"
    assert len(missing_waits(_code(words), "gfx11", kernel="k")) == reports


def test_stores_to_lds_must_have_arrived_at_a_barrier() -> None:
    store, wait, barrier = "D8340000 00000100", "BF89FC07", "BFBD0000"
    assert missing_waits(_code(f"{store} {wait} {barrier} BFB00000"), "gfx11", kernel="k") == []
    (found,) = missing_waits(_code(f"{store} {barrier} BFB00000"), "gfx11", kernel="k")
    assert found.other.endswith("; LDS needs a wait for lgkmcnt")
    (found,) = missing_waits(_code(f"{store} {barrier} {wait} BFB00000"), "gfx11", kernel="k")
    assert found.instruction == "s_barrier"


def test_stores_to_lds_of_the_turn_before_must_have_arrived_at_a_barrier() -> None:
    """A loop of s_barrier, ds_store_b32, s_cbranch_scc1, with and without a wait at its begin."""
    store, wait, barrier = "D8340000 00000100", "BF89FC07", "BFBD0000"
    assert missing_waits(_code(f"{wait} {barrier} {store} BFA2FFFB BFB00000"), "gfx11", kernel="k") == []
    (found,) = missing_waits(_code(f"{barrier} {store} BFA2FFFC BFB00000"), "gfx11", kernel="k")
    assert found.line == 0
    assert found.other.startswith("line 4: ds_store_b32")


def test_a_wait_on_one_of_two_ways_is_not_enough() -> None:
    """The branch over the wait leads to the use as well."""
    words = f"{LOAD_0} BFA10001 BF8903F7 {ADD_0} BFB00000"
    assert len(missing_waits(_code(words), "gfx11", kernel="k")) == 1
