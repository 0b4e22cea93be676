"""Plain loads that a compare-and-swap validates do not race with atomics; all others do."""

# ruff: noqa: E501 - lines of PTX read best on one line

from __future__ import annotations

from typing import Any

import pytest

from emulator.ir.report import ReportKind
from tests.emulator.nv.test_ptx_order import kinds

__all__ = ["kinds"]

LOOP = """{load}
L:  {first} add.u32 %r5, %r4, 1; {between}
    atom.global.cas.b32 %r6, [%rd0], %r4, %r5; setp.ne.u32 %p0, %r6, %r4; mov.u32 %r3, %r6; @%p0 bra L; ret;"""
PLAIN, MOVED = "ld.global.u32 %r3, [%rd0];", "mov.u32 %r4, %r3;"
GOOD = {
    "moved": {},
    "bits of a float": {"load": "ld.global.f32 %f0, [%rd0]; mov.b32 %r3, %f0;"},
    "cached": {"load": "ld.global.cg.u32 %r3, [%rd0];"},
    "other loads between": {"between": "ld.global.u32 %r9, [%rd0+256];"},
}
BAD = {
    "another address": {"load": "ld.global.u32 %r3, [%rd0+4]; st.global.u32 [%rd0+4], %r1;"},
    "another value": {"first": "add.u32 %r4, %r3, 0;"},
    "not coherent": {"load": "ld.global.nc.u32 %r3, [%rd0];"},
    "skipped": {"load": f"{PLAIN} setp.gt.u32 %p1, %r3, 100; @%p1 ret;"},
    "stored between": {"between": "st.global.u32 [%rd0+512], %r5;"},
}


def body(change: dict[str, str]) -> str:
    parts = {"load": PLAIN, "first": MOVED, "between": ""} | change
    return ".reg .f32 %f<2>;" + LOOP.format(**parts)


@pytest.mark.parametrize("what", GOOD)
def test_the_first_guess_of_a_compare_and_swap_is_no_race(kinds: Any, what: str) -> None:
    assert kinds(body(GOOD[what]), grid=2, block=64) == set()


@pytest.mark.parametrize("what", BAD)
def test_a_plain_load_that_nothing_validates_races(kinds: Any, what: str) -> None:
    assert ReportKind.GLOBAL_RACE in kinds(body(BAD[what]), grid=2, block=64)
