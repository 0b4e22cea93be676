"""Strong accesses and orders in the race sanitizers: exactly the races of PTX's memory model are reported."""

# ruff: noqa: E501 - summaries and tables that name their parameters read best on one line

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from emulator.ir.library import Sanitizers
from emulator.ir.report import ReportKind
from emulator.nv.ptx.statements import PtxError
from emulator.simt.engine import Settings
from emulator.simt.work import LaunchOptions
from hcq.config import config

HEAD = ".version 8.2\n.target sm_80\n.address_size 64\n"
REGS = ".reg .pred %p<8>; .reg .b32 %r<32>; .reg .b64 %rd<16>;\n"
START = "mov.u32 %r0, %tid.x; mov.u32 %r1, %ctaid.x; ld.param.u64 %rd0, [out];\n"


ORDERS = (LaunchOptions(), LaunchOptions(group_seed=2, warp_order="reverse"))


@pytest.fixture
def kinds(bench: Any) -> Any:
    """Return the findings on a kernel, which must not depend on the order of its workgroups."""
    settings = Settings(checks=Sanitizers.all(), cache=config().cache)

    def run(
        body: str, *, grid: int, block: int = 32, orders: tuple[LaunchOptions, ...] = ORDERS
    ) -> set[ReportKind]:
        text = f"{HEAD}.visible .entry k(.param .u64 out) {{ .shared .align 16 .b8 s[1024];\n{REGS}{START}{body}\n}}"
        found: set[ReportKind] = set()
        for options in orders:
            out = bench.new(np.zeros(2048, "u4"), "u4")
            result = bench.run(text, "k", grid, block, out, settings=settings, options=options)
            assert result.fault is None, result.fault
            found |= {f.kind for f in result.findings}
        return found

    return run


STORES = {
    "st.volatile.global.u32": True,
    "st.relaxed.gpu.global.u32": True,
    "st.release.sys.global.u32": True,
    "st.mmio.relaxed.sys.global.u32": True,
    "st.global.u32": False,
    "st.weak.global.u32": False,
    "st.relaxed.cta.global.u32": False,
    "st.volatile.u32": True,
    "st.u32": False,
}
LOADS = {
    "ld.volatile.global.u32": True,
    "ld.relaxed.gpu.global.u32": True,
    "ld.acquire.gpu.global.u32": True,
    "ld.mmio.relaxed.sys.global.u32": True,
    "ld.global.u32": False,
    "ld.acquire.cta.global.u32": False,
    "ld.relaxed.cluster.global.u32": False,
    "ld.relaxed.gpu.u32": True,
}


@pytest.mark.sampled(19)
@pytest.mark.parametrize("store", STORES)
@pytest.mark.parametrize("load", LOADS)
def test_a_flag_between_workgroups_races_unless_both_sides_are_strong(
    kinds: Any, store: str, load: str
) -> None:
    body = f"""setp.ne.u32 %p0, %r0, 0; @%p0 ret; xor.b32 %r2, %r1, 1; mad.wide.u32 %rd1, %r1, 4, %rd0; mad.wide.u32 %rd2, %r2, 4, %rd0;
    {store} [%rd1], 1; {load} %r3, [%rd2]; st.global.u32 [%rd1+256], %r3; ret;"""
    assert kinds(body, grid=2) == (set() if STORES[store] and LOADS[load] else {ReportKind.GLOBAL_RACE})


@pytest.mark.parametrize("scope", ["gpu", "cta"])
def test_an_atomic_whose_scope_is_a_workgroup_races_with_other_workgroups(kinds: Any, scope: str) -> None:
    found = kinds(f"red.relaxed.{scope}.global.add.u32 [%rd0], 1; ret;", grid=2)
    assert found == (set() if scope == "gpu" else {ReportKind.GLOBAL_RACE})
    assert kinds(f"atom.relaxed.{scope}.shared.add.u32 %r2, [s], 1; ret;", grid=2, block=64) <= {
        ReportKind.UNINITIALISED
    }


MESSAGE = {
    "release, acquire": ("st.release.gpu.global.u32 [%rd0], 1;", "ld.acquire.gpu.global.u32 %r3, [%rd0];", ""),
    "fences round relaxed": ("fence.acq_rel.gpu; st.relaxed.gpu.global.u32 [%rd0], 1;", "ld.relaxed.gpu.global.u32 %r3, [%rd0];", "fence.acq_rel.gpu;"),
    "sc fences": ("fence.sc.sys; st.relaxed.sys.global.u32 [%rd0], 1;", "ld.relaxed.sys.global.u32 %r3, [%rd0];", "fence.sc.sys;"),
    "membar round volatile": ("membar.gl; st.volatile.global.u32 [%rd0], 1;", "ld.volatile.global.u32 %r3, [%rd0];", "membar.gl;"),
    "fence, acquire": ("fence.acq_rel.gpu; red.relaxed.gpu.global.add.u32 [%rd0], 1;", "ld.acquire.gpu.global.u32 %r3, [%rd0];", ""),
    "atomics": ("red.release.gpu.global.add.u32 [%rd0], 1;", "atom.acquire.gpu.global.or.b32 %r3, [%rd0], 0;", ""),
    "halves": ("st.release.gpu.global.u16 [%rd0], 1;", "ld.acquire.gpu.global.u16 %r3, [%rd0];", ""),
    "flag in generic memory": ("st.release.gpu.u32 [%rd0], 1;", "ld.acquire.gpu.u32 %r3, [%rd0];", ""),
    "atomics both": ("atom.acq_rel.gpu.global.exch.b32 %r4, [%rd0], 1;", "atom.acq_rel.gpu.global.or.b32 %r3, [%rd0], 0;", ""),
}  # fmt: skip
TORN = {
    "no release": ("st.relaxed.gpu.global.u32 [%rd0], 1;", "ld.acquire.gpu.global.u32 %r3, [%rd0];", ""),
    "no acquire": ("st.release.gpu.global.u32 [%rd0], 1;", "ld.relaxed.gpu.global.u32 %r3, [%rd0];", ""),
    "volatile alone": ("st.volatile.global.u32 [%rd0], 1;", "ld.volatile.global.u32 %r3, [%rd0];", ""),
    "fence on one side": ("fence.acq_rel.gpu; st.relaxed.gpu.global.u32 [%rd0], 1;", "ld.relaxed.gpu.global.u32 %r3, [%rd0];", ""),
    "fence on the other": ("st.relaxed.gpu.global.u32 [%rd0], 1;", "ld.relaxed.gpu.global.u32 %r3, [%rd0];", "fence.acq_rel.gpu;"),
    "fences of a workgroup": ("fence.acq_rel.cta; st.relaxed.gpu.global.u32 [%rd0], 1;", "ld.relaxed.gpu.global.u32 %r3, [%rd0];", "membar.cta;"),
    "fence behind the flag": ("st.relaxed.gpu.global.u32 [%rd0], 1; fence.acq_rel.gpu;", "ld.acquire.gpu.global.u32 %r3, [%rd0];", ""),
    "proxy fence": ("fence.proxy.async; st.relaxed.gpu.global.u32 [%rd0], 1;", "ld.acquire.gpu.global.u32 %r3, [%rd0];", ""),
}  # fmt: skip


def message(put: str, poll: str, then: str) -> str:
    """One workgroup writes data and sets a flag; the other polls the flag, then reads the data."""
    return f"""setp.ne.u32 %p0, %r0, 0; @%p0 ret; setp.eq.u32 %p1, %r1, 1; @%p1 bra W;
    st.global.u32 [%rd0+64], 7; {put} ret;
W:  {poll} setp.eq.u32 %p2, %r3, 0; @%p2 bra W; {then} ld.global.u32 %r5, [%rd0+64]; st.global.u32 [%rd0+128], %r5; ret;"""


@pytest.mark.sampled(3)
@pytest.mark.parametrize("how", MESSAGE)
def test_release_and_acquire_order_workgroups(kinds: Any, how: str) -> None:
    assert kinds(message(*MESSAGE[how]), grid=2) == set()


@pytest.mark.parametrize("how", TORN)
def test_a_message_between_workgroups_without_release_or_acquire_is_a_race(kinds: Any, how: str) -> None:
    assert kinds(message(*TORN[how]), grid=2) == {ReportKind.GLOBAL_RACE}


def test_a_release_does_not_order_later_work(kinds: Any) -> None:
    """The data is written after the release."""
    put = "st.release.gpu.global.u32 [%rd0], 1; st.global.u32 [%rd0+64], 8;"
    assert kinds(message(put, "ld.acquire.gpu.global.u32 %r3, [%rd0];", ""), grid=2) == {
        ReportKind.GLOBAL_RACE
    }


FIRST = "setp.ne.u32 %p0, %r0, 0; @%p0 ret; setp.eq.u32 %p1, %r1, 1; @%p1 bra Q; setp.eq.u32 %p1, %r1, 2; @%p1 bra M;\n"
RELAY = f"""{FIRST} st.global.u32 [%rd0+64], 7; st.release.gpu.global.u32 [%rd0], 1; ret;
Q:  AWAIT st.release.gpu.global.u32 [%rd0+4], 1; ret;
M:  ld.acquire.gpu.global.u32 %r3, [%rd0+4]; setp.eq.u32 %p2, %r3, 0; @%p2 bra M; ld.global.u32 %r5, [%rd0+64]; ret;"""
"""One workgroup writes and releases, a second releases a flag of its own, a third acquires that and reads."""


def test_workgroup_ordering_is_transitive(kinds: Any) -> None:
    wait = "ld.acquire.gpu.global.u32 %r3, [%rd0]; setp.eq.u32 %p2, %r3, 0; @%p2 bra Q;"
    assert kinds(RELAY.replace("AWAIT", wait), grid=3) == set()


def test_an_acquire_of_another_flag_orders_nothing(kinds: Any) -> None:
    for options in ORDERS:
        assert kinds(RELAY.replace("AWAIT", ""), grid=3, orders=(options,)) == {ReportKind.GLOBAL_RACE}


COUNT = """setp.ne.u32 %p0, %r0, 0; @%p0 ret; mad.wide.u32 %rd1, %r1, 4, %rd0; st.global.u32 [%rd1+64], %r1;
    RELEASE red.relaxed.gpu.global.add.u32 [%rd0], 1; BEHIND setp.ne.u32 %p1, %r1, 0; @%p1 ret;
W:  ld.acquire.gpu.global.u32 %r3, [%rd0]; setp.lt.u32 %p2, %r3, 6; @%p2 bra W;
    mov.u32 %r4, 0;
L:  mad.wide.u32 %rd2, %r4, 4, %rd0; ld.global.u32 %r5, [%rd2+64]; add.u32 %r4, %r4, 1; setp.lt.u32 %p3, %r4, 6; @%p3 bra L; ret;"""
"""All workgroups increment a counter; the first waits for all and reads their stores."""


def test_an_atomic_counter_propagates_all_releases(kinds: Any) -> None:
    right = COUNT.replace("RELEASE", "fence.acq_rel.gpu;").replace("BEHIND", "")
    assert kinds(right, grid=6) == set()
    late = COUNT.replace("RELEASE", "").replace("BEHIND", "fence.acq_rel.gpu;")
    assert kinds(late, grid=6) == {ReportKind.GLOBAL_RACE}


def test_ordering_is_shared_among_very_many_workgroups(kinds: Any) -> None:
    right = COUNT.replace("RELEASE", "fence.acq_rel.gpu;").replace("BEHIND", "").replace(", 6;", ", 1100;")
    assert kinds(right, grid=1100) == set()


def shared_message(put: str, poll: str, then: str) -> str:
    """The same between two warps of a workgroup, in its shared memory."""
    return f"""setp.ne.u32 %p0, %r0, 0; @!%p0 st.shared.u32 [s], 0; @!%p0 st.shared.u32 [s+64], 0; bar.sync 0;
    and.b32 %r2, %r0, 31; setp.ne.u32 %p0, %r2, 0; @%p0 ret; setp.ge.u32 %p1, %r0, 32; @%p1 bra W;
    st.shared.u32 [s+64], 7; {put} ret;
W:  {poll} setp.eq.u32 %p2, %r3, 0; @%p2 bra W; {then} ld.shared.u32 %r5, [s+64]; st.global.u32 [%rd0+128], %r5; ret;"""


SHARED_MESSAGE = {
    "release, acquire": ("st.release.cta.shared.u32 [s], 1;", "ld.acquire.cta.shared.u32 %r3, [s];", ""),
    "fences round relaxed": ("fence.acq_rel.cta; st.relaxed.cta.shared.u32 [s], 1;", "ld.relaxed.cta.shared.u32 %r3, [s];", "fence.acq_rel.cta;"),
    "membar round volatile": ("membar.cta; st.volatile.shared.u32 [s], 1;", "ld.volatile.shared.u32 %r3, [s];", "membar.cta;"),
    "atomics": ("atom.release.cta.shared.exch.b32 %r4, [s], 1;", "atom.acquire.cta.shared.or.b32 %r3, [s], 0;", ""),
}  # fmt: skip
SHARED_TORN = {
    "no release": ("st.relaxed.cta.shared.u32 [s], 1;", "ld.acquire.cta.shared.u32 %r3, [s];", ""),
    "no acquire": ("st.release.cta.shared.u32 [s], 1;", "ld.relaxed.cta.shared.u32 %r3, [s];", ""),
    "volatile alone": ("st.volatile.shared.u32 [s], 1;", "ld.volatile.shared.u32 %r3, [s];", ""),
    "plain store": ("fence.acq_rel.cta; st.shared.u32 [s], 1;", "ld.acquire.cta.shared.u32 %r3, [s];", ""),
}  # fmt: skip


@pytest.mark.parametrize("how", SHARED_MESSAGE)
def test_release_and_acquire_order_warps(kinds: Any, how: str) -> None:
    assert kinds(shared_message(*SHARED_MESSAGE[how]), grid=1, block=64) == set()


@pytest.mark.parametrize("how", SHARED_TORN)
def test_a_message_between_warps_without_release_or_acquire_is_a_race(kinds: Any, how: str) -> None:
    assert kinds(shared_message(*SHARED_TORN[how]), grid=1, block=64) == {ReportKind.SHARED_RACE}


GRID_BARRIER = """mov.u32 %r10, 0; mad.wide.u32 %rd1, %r1, 4, %rd0; xor.b32 %r2, %r1, 1; mad.wide.u32 %rd2, %r2, 4, %rd0;
L:  st.global.u32 [%rd1+64], %r10; bar.sync 0; setp.ne.u32 %p0, %r0, 0; @%p0 bra J;
    FENCE red.relaxed.gpu.global.add.u32 [%rd0], 1; shl.b32 %r11, %r10, 2; add.u32 %r11, %r11, 2;
W:  ld.relaxed.gpu.global.u32 %r3, [%rd0]; setp.lt.u32 %p1, %r3, %r11; @%p1 bra W; fence.acq_rel.gpu;
J:  barrier.sync 0; ld.global.u32 %r4, [%rd2+64]; add.u32 %r10, %r10, 1; bar.sync 0; @%p0 bra K;
    fence.acq_rel.gpu; red.relaxed.gpu.global.add.u32 [%rd0], 1; shl.b32 %r11, %r10, 2;
X:  ld.relaxed.gpu.global.u32 %r3, [%rd0]; setp.lt.u32 %p1, %r3, %r11; @%p1 bra X; fence.acq_rel.gpu;
K:  barrier.sync 0; setp.lt.u32 %p2, %r10, 6; @%p2 bra L; ret;"""
"""Two barriers in each round: one workgroup reads the data that another rewrites in the next round."""


def test_a_barrier_of_all_workgroups_needs_the_fence_before_it(kinds: Any) -> None:
    # Every thread of a workgroup writes the same: that is no race, a warp is taken to be in order.
    assert kinds(GRID_BARRIER.replace("FENCE", "fence.acq_rel.gpu;"), grid=2) == set()
    assert kinds(GRID_BARRIER.replace("FENCE", ""), grid=2) == {ReportKind.GLOBAL_RACE}


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("ld.relaxed.global.u32 %r3, [%rd0];", "scope"),
        ("ld.gpu.global.u32 %r3, [%rd0];", "scope"),
        ("ld.release.gpu.global.u32 %r3, [%rd0];", "release"),
        ("st.acquire.gpu.global.u32 [%rd0], 1;", "acquire"),
        ("fence.acq_rel;", "cta"),
        ("membar.gpu;", "gl"),
    ],
)
def test_an_invalid_memory_order_is_refused(bench: Any, line: str, message: str) -> None:
    text = f"{HEAD}.visible .entry k(.param .u64 out) {{ {REGS}{START}{line} ret; }}"
    with pytest.raises(PtxError, match=message):
        bench.run(text, "k", 1, 1, bench.new(np.zeros(8, "u4"), "u4"))


@pytest.mark.parametrize("orders", ORDERS, ids=["forward", "backward"])
def test_workgroups_that_poll_between_barriers_let_others_run(kinds: Any, orders: LaunchOptions) -> None:
    """Thread 0 looks at the turn, and all threads meet and vote whether it has come."""
    body = """mov.u32 %r3, -1; setp.eq.u32 %p0, %r0, 0;
    W: setp.ne.u32 %p1, %r3, %r1; barrier.sync 0; bar.red.and.pred %p2, 0, %p1; @!%p2 bra D; @%p0 ld.acquire.gpu.global.u32 %r3, [%rd0]; bra W;
    D: mad.wide.u32 %rd1, %r0, 4, %rd0; ld.global.u32 %r4, [%rd1+64]; add.u32 %r4, %r4, 1; st.global.u32 [%rd1+64], %r4; bar.sync 0;
    add.u32 %r5, %r1, 1; @%p0 st.release.gpu.global.u32 [%rd0], %r5; ret;"""
    assert kinds(body, grid=4, block=64, orders=(orders,)) == set()


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
