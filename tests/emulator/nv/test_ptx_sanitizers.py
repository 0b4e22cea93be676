"""The optional sanitizers: they find each mistake, and report nothing on correct kernels."""

# ruff: noqa: E501 - summaries and tables that name their parameters read best on one line

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from emulator.ir.library import Sanitizers
from emulator.ir.report import ReportKind
from emulator.simt.engine import Settings
from hcq.config import config

HEAD = ".version 8.0\n.target sm_80\n.address_size 64\n"
REGS = ".reg .pred %p<16>; .reg .b32 %r<64>; .reg .b64 %rd<32>; .reg .f32 %f<16>;\n"
START = "mov.u32 %r0, %tid.x; mov.u32 %r1, %ctaid.x; mov.u32 %r2, %ntid.x; mad.lo.u32 %r3, %r1, %r2, %r0; ld.param.u64 %rd0, [out];\nmad.wide.u32 %rd1, %r3, 4, %rd0;\n"


CHECKED = Settings(checks=Sanitizers.all(in_step=False), cache=config().cache)


def kernel(body: Any):
    return (
        f"{HEAD}.visible .entry k(.param .u64 out) {{ .shared .align 16 .b8 s[1024];\n{REGS}{START}{body}\n}}"
    )


REDUCE = """mov.u32 %r4, s; mad.lo.u32 %r5, %r0, 4, %r4; st.shared.u32 [%r5], %r0;
bar.sync 0;
mov.u32 %r6, 128;
L: setp.ge.u32 %p0, %r0, %r6; @%p0 bra S; mad.lo.u32 %r7, %r6, 4, %r5; ld.shared.u32 %r8, [%r7]; ld.shared.u32 %r9, [%r5];
add.u32 %r9, %r9, %r8; st.shared.u32 [%r5], %r9;
S: bar.sync 0;
shr.u32 %r6, %r6, 1; setp.ne.u32 %p1, %r6, 0; @%p1 bra L;
setp.ne.u32 %p2, %r0, 0; @%p2 ret; ld.shared.u32 %r8, [s]; st.global.u32 [%rd1], %r8; ret;"""


@pytest.fixture
def checked(bench: Any):
    def run(
        body: Any,
        grid: Any = 2,
        block: Any = 256,
        size: Any = 1024,
        *,
        tracked: Any = False,
        may_fault: bool = False,
    ) -> Any:
        out = np.zeros(size, "u4")
        bench._kept.append(out)
        bench.memory.map(out.ctypes.data, out.nbytes, label="out", tracked=tracked)
        result = bench.run(kernel(body), "k", grid, block, out, settings=CHECKED)
        assert may_fault or result.fault is None, result.fault
        return out, result.findings

    return run


def test_a_correct_reduction_gives_no_report(checked: Any):
    out, findings = checked(REDUCE)
    assert out[0] == sum(range(256))
    assert findings == ()


@pytest.mark.parametrize("number", [0, 1])
def test_each_missing_barrier_of_the_reduction_is_a_race(checked: Any, number: Any):
    at = [m.start() for m in re.finditer(r"bar\.sync 0;", REDUCE)][number]
    _, findings = checked(REDUCE[:at] + REDUCE[at + len("bar.sync 0;") :])
    assert ReportKind.SHARED_RACE in {f.kind for f in findings}
    race = next(f for f in findings if f.kind is ReportKind.SHARED_RACE)
    assert ".shared.u32" in race.instruction
    assert re.match(r"line \d+: (st|ld)\.shared\.u32 .*; thread \(\d+, 0, 0\)$", race.other)
    assert race.other.split(":")[0] != f"line {race.line}", "the other side is another instruction"
    assert "shared" in race.instruction


def test_reads_of_uninitialized_shared_memory(checked: Any):
    _, findings = checked("ld.shared.u32 %r4, [s+64]; st.global.u32 [%rd1], %r4; ret;", block=32)
    assert [f.kind for f in findings] == [ReportKind.UNINITIALISED]


def test_reads_of_uninitialized_global_memory(checked: Any):
    body = "st.global.u32 [%rd1], %r0; ld.global.u32 %r4, [%rd1]; ld.global.u32 %r5, [%rd1+2048]; ret;"
    _, findings = checked(body, block=32, tracked=True)
    assert [f.kind for f in findings] == [ReportKind.UNINITIALISED]
    assert "+2048" in findings[0].instruction


def test_workgroups_that_write_the_same_place_race(checked: Any):
    _, findings = checked("mad.wide.u32 %rd1, %r0, 4, %rd0; st.global.u32 [%rd1], %r1; ret;", block=32)
    assert {f.kind for f in findings} == {ReportKind.GLOBAL_RACE}
    assert "block (0, 0, 0)" in findings[0].other
    assert "inside out" in findings[0].nearest




LAST_BLOCK = """setp.ne.u32 %p0, %r0, 0; @%p0 ret; mad.wide.u32 %rd2, %r1, 4, %rd0; st.global.u32 [%rd2+64], %r1;
membar.gl;
atom.global.inc.u32 %r4, [%rd0], 100; setp.ne.u32 %p1, %r4, 7; @%p1 ret; mov.u32 %r5, 0; mov.u32 %r6, 0;
L: mad.wide.u32 %rd3, %r5, 4, %rd0; ld.global.u32 %r7, [%rd3+64]; add.u32 %r6, %r6, %r7; add.u32 %r5, %r5, 1; setp.lt.u32 %p2, %r5, 8; @%p2 bra L;
st.global.u32 [%rd0+4], %r6; ret;"""


def test_the_last_block_pattern_needs_its_fence(checked: Any):
    out, findings = checked(LAST_BLOCK, grid=8, block=32)
    assert out[1] == 28
    assert findings == ()
    _, findings = checked(LAST_BLOCK.replace("membar.gl;", ""), grid=8, block=32)
    assert {f.kind for f in findings} == {ReportKind.GLOBAL_RACE}


def test_flags_and_fences_order_shared_memory(checked: Any):
    body = """mov.u32 %r9, 7; setp.ge.u32 %p0, %r0, 32; @%p0 bra W;
    setp.eq.u32 %p1, %r0, 0; @%p1 st.shared.u32 [s], %r9; membar.cta; @%p1 atom.shared.exch.b32 %r4, [s+16], 1; ret;
W:  atom.shared.or.b32 %r4, [s+16], 0; and.b32 %r4, %r4, 1; setp.eq.u32 %p2, %r4, 0; @%p2 bra W; membar.cta; ld.shared.u32 %r5, [s];
    st.global.u32 [%rd1], %r5; ret;"""
    out, findings = checked(body, grid=1, block=64)
    assert out[32:64].tolist() == [7] * 32
    assert {f.kind for f in findings} <= {ReportKind.UNINITIALISED}


def test_a_barrier_for_whole_warps_reached_by_a_part(checked: Any):
    _, findings = checked(
        "setp.lt.u32 %p0, %r0, 5; @%p0 bra A; bar.sync 0; ret; A: bar.sync 0; ret;", grid=1, block=32
    )
    assert {f.kind for f in findings} == {ReportKind.PARTIAL_BARRIER}


POLLED = """setp.ge.u32 %p0, %r0, 32; @%p0 bra SET; setp.ne.u32 %p1, %r0, 0; @%p1 bra MEET;
L: atom.shared.or.b32 %r4, [s], 0; setp.eq.u32 %p2, %r4, 0; @%p2 bra L; bra MEET;
SET: setp.eq.u32 %p1, %r0, 32; @%p1 atom.shared.exch.b32 %r4, [s], 1;
MEET: {} ret;"""


def test_lanes_may_poll_before_a_barrier_of_the_whole_warp(checked: Any):
    """Thread 0 polls for the other warp while the lanes beside it wait at the barrier that all reach."""
    begin = "setp.eq.u32 %p3, %r0, 0; @%p3 st.shared.u32 [s], 0; bar.sync 0;"
    assert checked(begin + POLLED.format("bar.sync 0;"), grid=1, block=64)[1] == ()
    parted = "@%p1 bra A; bar.sync 0; ret; A: bar.sync 0;"
    _, findings = checked(begin + POLLED.format(parted), grid=1, block=64)
    assert {f.kind for f in findings} == {ReportKind.PARTIAL_BARRIER}


def test_lanes_that_leave_while_others_wait_for_the_warp(checked: Any):
    body = "setp.lt.u32 %p0, %r0, 5; @%p0 bra A; bar.sync 0; ret; A: bar.sync 1; ret;"
    assert checked(body.replace("bar.sync 1", "add.u32 %r4, %r0, 1"), grid=1, block=32)[1][0].kind is (
        ReportKind.PARTIAL_BARRIER
    )
    either = body.replace("bar.sync 0", "barrier.sync 0").replace("bar.sync 1", "barrier.sync 0")
    assert checked(either, grid=1, block=32)[1] == ()




COPY = """mov.u32 %r4, s; mad.lo.u32 %r5, %r0, 16, %r4; mad.wide.u32 %rd2, %r0, 16, %rd0;
cp.async.ca.shared.global [%r5], [%rd2+1024], 16; cp.async.commit_group; cp.async.wait_group 0; bar.sync 0;
sub.u32 %r6, 63, %r0; mad.lo.u32 %r6, %r6, 16, %r4; ld.shared.u32 %r7, [%r6]; st.global.u32 [%rd1], %r7; ret;"""


def test_asynchronous_copies_are_visible_to_other_warps_after_wait_and_barrier(checked: Any):
    assert checked(COPY, grid=1, block=64)[1] == ()


def test_bytes_of_a_copy_in_flight_are_not_reused(checked: Any):
    _, findings = checked(COPY.replace("cp.async.wait_group 0;", ""), grid=1, block=64)
    assert {f.kind for f in findings} == {ReportKind.COPY_IN_FLIGHT}
    own = COPY.replace("cp.async.wait_group 0; bar.sync 0;", "").replace(
        "sub.u32 %r6, 63, %r0;", "mov.u32 %r6, %r0;"
    )
    assert {f.kind for f in checked(own, grid=1, block=64)[1]} == {ReportKind.COPY_IN_FLIGHT}


def test_a_copy_that_was_waited_for_races_without_a_barrier(checked: Any):
    _, findings = checked(COPY.replace("bar.sync 0;", ""), grid=1, block=64)
    assert findings
    assert {f.kind for f in findings} <= {
        ReportKind.SHARED_RACE, ReportKind.UNINITIALISED, ReportKind.COPY_IN_FLIGHT
    }  # fmt: skip


MBARRIER = """mov.u32 %r4, s; setp.eq.u32 %p0, %r0, 0; @%p0 mbarrier.init.shared.b64 [%r4], 64;
bar.sync 0;
mbarrier.arrive.shared.b64 %rd5, [%r4]; W: mbarrier.test_wait.shared.b64 %p1, [%r4], %rd5; @!%p1 bra W;
st.global.u32 [%rd1], %r0; ret;"""


def test_mbarriers_are_initialised_before_others_use_them(checked: Any):
    assert checked(MBARRIER, grid=1, block=64)[1] == ()
    body = MBARRIER.replace("@%p0 mbarrier.init.shared.b64 [%r4], 64;", "")
    # What shared memory holds at first is left over from before: it may be a sound mbarrier or none.
    _, findings = checked(body, grid=1, block=64, may_fault=True)
    assert ReportKind.UNINITIALISED in {f.kind for f in findings}


IN_BRANCH = "setp.ge.u32 %p0, %r0, 8; @%p0 bra E; {}\nE: st.global.u32 [%rd1], %r0; ret;"


@pytest.mark.parametrize(
    "operation",
    [
        "shfl.sync.down.b32 %r4, %r0, 1, 31, {};",
        "vote.sync.ballot.b32 %r4, %p0, {};",
        "match.any.sync.b32 %r4, %r0, {};",
        "redux.sync.add.u32 %r4, %r0, {};",
        "bar.warp.sync {};",
    ],
)
def test_masks_name_the_lanes_that_take_part(checked: Any, bench: Any, operation: str):
    right = IN_BRANCH.format(operation.format("0xff"))
    assert checked(right, grid=1, block=32)[1] == ()
    assert checked(operation.format("-1") + " ret;", grid=1, block=20)[1] == (), "lanes that never were"
    for mask in ("-1", "0x1ff", "0xfe"):
        body = IN_BRANCH.format(operation.format(mask))
        fault = bench.run(kernel(body), "k", 1, 32, bench.new([0] * 32, "u4"), settings=CHECKED).fault
        assert fault.kind is ReportKind.ABSENT_LANE
        assert fault.instruction.startswith(operation.split(maxsplit=1)[0])
        assert fault.line == kernel(body)[: kernel(body).index(operation[:8])].count("\n") + 1


def test_lanes_that_come_later_take_part(checked: Any):
    body = """and.b32 %r4, %r0, 1; setp.eq.u32 %p0, %r4, 0; @%p0 bra A; bra.uni B;
A: add.u32 %r5, %r0, 1; setp.lt.u32 %p1, %r5, 9; @%p1 add.u32 %r5, %r5, 1;
B: shfl.sync.bfly.b32 %r6, %r0, 1, 31, -1; st.global.u32 [%rd1], %r6; ret;"""
    out, findings = checked(body, grid=1, block=32)
    assert findings == ()
    assert out[:4].tolist() == [1, 0, 3, 2]


ACROSS = """xor.b32 %r4, %r0, 32; mad.wide.u32 %rd2, %r4, 4, %rd0;
st.global.u32 [%rd1], %r0; bar.sync 0;
ld.global.u32 %r5, [%rd2]; bar.sync 0;
st.global.u32 [%rd1], %r5; ret;"""


def test_warps_of_a_workgroup_race_in_global_memory_without_a_barrier(checked: Any):
    out, findings = checked(ACROSS, grid=1, block=64)
    assert findings == ()
    assert out[:2].tolist() == [32, 33]
    for number in (0, 1):
        at = [m.start() for m in re.finditer(r"bar\.sync 0;", ACROSS)][number]
        _, findings = checked(ACROSS[:at] + ACROSS[at + len("bar.sync 0;") :], grid=1, block=64)
        assert {f.kind for f in findings} == {ReportKind.GLOBAL_RACE}
        assert re.fullmatch(r"line \d+: (st|ld)\.global\.u32 .*; thread \(\d+, 0, 0\)", findings[0].other)


@pytest.mark.parametrize(
    ("first", "second", "race"),
    [
        ("st.global.u32 [%rd0], 7;", "st.global.u32 [%rd0], 7;", False),
        ("st.global.u32 [%rd0], 7;", "st.global.u32 [%rd0], 8;", True),
        ("red.global.add.u32 [%rd0], 1;", "red.global.add.u32 [%rd0], 1;", False),
        ("st.global.u32 [%rd0], 0;", "red.global.add.u32 [%rd0], 1;", True),
        ("st.global.u32 [%rd0], 0; membar.cta;", "membar.cta; ld.global.u32 %r4, [%rd0];", False),
        ("ld.global.u32 %r4, [%rd0];", "ld.global.u32 %r4, [%rd0];", False),
    ],
)
def test_which_accesses_of_two_warps_race(checked: Any, first: str, second: str, *, race: bool):
    body = f"setp.lt.u32 %p0, %r0, 32; @!%p0 bra B; {first} ret; B: {second} ret;"
    _, findings = checked(body, grid=1, block=64)
    assert {f.kind for f in findings} == ({ReportKind.GLOBAL_RACE} if race else set())


LOCAL = "mov.u64 %rd3, depot; and.b32 %r4, %r0, 7; mad.wide.u32 %rd4, %r4, 4, %rd3; {} st.global.u32 [%rd1], %r5; ret;"


@pytest.mark.parametrize(
    ("accesses", "count"),
    [
        ("st.local.u32 [%rd4], 5; ld.local.u32 %r5, [%rd4];", 0),
        ("st.local.u32 [%rd4], 5; ld.local.u32 %r5, [%rd3];", 1),
        ("cvta.local.u64 %rd5, %rd4; st.u32 [%rd5], 5; ld.local.u8 %r5, [%rd4+3];", 0),
        ("st.local.u32 [%rd3], 5; cvta.local.u64 %rd5, %rd3; ld.u32 %r5, [%rd5+4];", 1),
        ("st.local.u8 [%rd3], 5; ld.local.v4.u32 {%r5, %r6, %r7, %r8}, [%rd3];", 0),
        ("st.local.v4.u32 [%rd3], {%r0, %r0, %r0, %r0}; ld.local.v4.u32 {%r5, %r6, %r7, %r8}, [%rd3+16];", 1),
    ],
)
def test_local_memory_is_written_before_it_is_read(checked: Any, accesses: str, count: int):
    body = ".local .align 16 .b8 depot[32];\n" + LOCAL.format(accesses)
    _, findings = checked(body, grid=2, block=48)
    assert [f.kind for f in findings] == [ReportKind.UNINITIALISED] * count
    assert all(f.access == "read" and "local memory of 32 bytes" in f.nearest for f in findings)


PAIRS = """mov.u32 %r4, s; mad.lo.u32 %r5, %r0, 4, %r4; xor.b32 %r6, %r0, 1; mad.lo.u32 %r6, %r6, 4, %r4; setp.lt.u32 %p2, %r0, 16;
st.shared.u32 [%r5], %r0;
{}
ld.shared.u32 %r7, [%r6];
{}
st.shared.u32 [%r5], %r7; ret;"""
PART = "selp.b32 %r8, 0xffff, 0xffff0000, %p2; bar.warp.sync %r8;"


@pytest.mark.parametrize(
    ("first", "second", "races"),
    [
        ("bar.warp.sync -1;", "bar.warp.sync -1;", 0),
        ("", "bar.warp.sync -1;", 1),
        ("bar.warp.sync -1;", "", 1),
        ("shfl.sync.bfly.b32 %r9, %r0, 1, 31, -1;", "vote.sync.ballot.b32 %r9, %p2, -1;", 0),
        (PART, "bar.sync 0;", 0),
        (PART, PART, 0),
        ("setp.eq.u32 %p3, %r0, 40; @%p3 bar.warp.sync 1;", PART, 1),
        ("membar.cta;", "membar.cta;", 0),
        ("and.b32 %r8, %r0, 30; shl.b32 %r9, 3, %r8; bar.warp.sync %r9;", PART, 0),
        ("and.b32 %r8, %r0, 1; shl.b32 %r9, 0x55555555, %r8; bar.warp.sync %r9;", PART, 1),
    ],
)
def test_lanes_of_a_warp_race_where_they_do_not_meet(checked: Any, first: str, second: str, races: int):
    _, findings = checked(PAIRS.format(first, second), grid=1, block=32)
    assert [f.kind for f in findings] == [ReportKind.SHARED_RACE] * races
    assert all(re.match(r"line \d+: (st|ld)\.shared\.u32 .*; thread", f.other) for f in findings)


def test_groups_of_lanes_pass_their_order_on(checked: Any):
    """Pairs meet, then groups of four: the order reaches all four."""
    body = """mov.u32 %r4, s; mad.lo.u32 %r5, %r0, 4, %r4; xor.b32 %r6, %r0, 3; mad.lo.u32 %r6, %r6, 4, %r4;
st.shared.u32 [%r5], %r0; and.b32 %r8, %r0, 30; shl.b32 %r9, 3, %r8; bar.warp.sync %r9;
and.b32 %r8, %r0, 28; shl.b32 %r9, 15, %r8; bar.warp.sync %r9; ld.shared.u32 %r7, [%r6]; st.global.u32 [%rd1], %r7; ret;"""
    out, findings = checked(body, grid=1, block=32)
    assert findings == ()
    assert out[:4].tolist() == [3, 2, 1, 0]


def test_lanes_of_one_store_may_write_one_place(checked: Any):
    """The result is that of one of them, which one is open: no race."""
    assert checked("st.shared.u32 [s], %r0; ret;", grid=1, block=32)[1] == ()


@pytest.mark.parametrize("byte", [0, 1, 3])
def test_one_byte_of_a_word_races_or_is_not_written(checked: Any, byte: int):
    """Bytes of a word with one history are checked at once; the others are not."""
    words = "st.shared.u32 [s], %r0; bar.warp.sync -1; st.shared.u32 [s+4], %r0;"
    race = f"setp.lt.u32 %p0, %r0, 32; @!%p0 bra B; {words} bar.sync 0; st.shared.u8 [s+{byte}], %r0; ret;"
    race += "B: bar.sync 0; ld.shared.u64 %rd3, [s]; ret;"
    _, findings = checked(race, grid=1, block=64)
    assert [f.kind for f in findings] == [ReportKind.SHARED_RACE]
    assert "u8" in findings[0].instruction + findings[0].other
    others = " ".join(f"st.shared.u8 [s+{at}], %r0;" for at in range(4) if at != byte)
    _, findings = checked(f"{others} ld.shared.u32 %r4, [s]; ret;", grid=1, block=1)
    assert [f.kind for f in findings] == [ReportKind.UNINITIALISED]


def test_an_mbarrier_is_used_by_other_warps_after_a_barrier(checked: Any):
    body = """setp.eq.u32 %p0, %r0, 0; @%p0 mbarrier.init.shared.b64 [s], 64; {}
mbarrier.arrive.shared.b64 %rd3, [s]; ret;"""
    assert checked(body.format("bar.sync 0;"), grid=1, block=64)[1] == ()
    _, findings = checked(body.format("bar.warp.sync -1;"), grid=1, block=64, may_fault=True)
    assert ReportKind.SHARED_RACE in {f.kind for f in findings}
    assert "mbarrier.init" in findings[0].other


def test_volatile_accesses_do_not_order_lanes(checked: Any):
    volatile = PAIRS.replace("shared", "volatile.shared")
    assert checked(volatile.format("bar.warp.sync -1;", "bar.warp.sync -1;"), grid=1, block=32)[1] == ()
    _, findings = checked(volatile.format("", "bar.warp.sync -1;"), grid=1, block=32)
    assert [f.kind for f in findings] == [ReportKind.SHARED_RACE]
