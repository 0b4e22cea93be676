"""Mbarriers of every form, bulk copies, and stores into a cluster's shared memory."""

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

HEAD = ".version 8.7\n.target sm_90\n.address_size 64\n"
REGS = ".reg .pred %p<8>; .reg .b16 %h<8>; .reg .b32 %r<32>; .reg .b64 %rd<16>;\n"


def kernel(body: str) -> str:
    """Return a kernel of `out` (%rd0, a thread's own word at %rd1) and `data` (%rd2) with shared memory s and mbarrier b."""
    return f"""{HEAD}.visible .entry k(.param .u64 out, .param .u64 data) {{
    .shared .align 128 .b8 s[8192]; .shared .align 8 .b64 b; .shared .align 8 .b64 b2;\n{REGS} mov.u32 %r0, %tid.x;
    ld.param.u64 %rd0, [out]; ld.param.u64 %rd2, [data]; mad.wide.u32 %rd1, %r0, 4, %rd0; setp.eq.u32 %p0, %r0, 0;
    {body} ret; }}"""


def run(bench: Any, body: str, data: Any = None, *, threads: int = 32, **how: Any) -> Any:
    """Run a kernel; return its output and the result."""
    out = bench.new(np.zeros(1024, "u4"), "u4")
    given = bench.new(np.arange(4096) * 7 + 3, "u4") if data is None else data
    return out, bench.run(kernel(body), "k", 1, threads, out, given, **how)


def good(bench: Any, body: str, data: Any = None, *, threads: int = 32) -> Any:
    out, result = run(bench, body, data, threads=threads)
    assert result.fault is None, result.fault
    return out


INIT = "@%p0 mbarrier.init.shared.b64 [b], {}; bar.sync 0;"
PHASE = "mbarrier.test_wait.parity.shared.b64 %p1, [b], 0; selp.u32 %r9, 1, 0, %p1;"
"""Makes %r9 whether phase 0 is over."""


@pytest.mark.parametrize(
    ("steps", "want"),
    [
        ("mbarrier.arrive.shared.b64 _, [b];", 0),
        ("mbarrier.arrive.shared.b64 _, [b], 3;", 1),
        ("mbarrier.arrive.release.cta.shared::cta.b64 %rd5, [b], 2; mbarrier.arrive.relaxed.cluster.shared.b64 _, [b];", 1),
        ("mbarrier.arrive.noComplete.shared.b64 %rd5, [b], 2; mbarrier.arrive.shared.b64 _, [b];", 1),
        ("mbarrier.arrive.expect_tx.shared.b64 _, [b], 64; mbarrier.arrive.shared.b64 _, [b], 2;", 0),
        ("mbarrier.arrive.expect_tx.shared.b64 _, [b], 64; mbarrier.arrive.shared.b64 _, [b], 2; mbarrier.complete_tx.shared.b64 [b], 64;", 1),
        ("mbarrier.complete_tx.relaxed.cta.shared::cta.b64 [b], 16; mbarrier.arrive.shared.b64 _, [b], 3;", 0),
        ("mbarrier.complete_tx.shared.b64 [b], 16; mbarrier.arrive.shared.b64 _, [b], 3; mbarrier.expect_tx.shared.b64 [b], 16;", 1),
        ("mbarrier.arrive_drop.shared.b64 _, [b], 3;", 1),
        ("mbarrier.arrive_drop.expect_tx.shared::cta.b64 %rd5, [b], 4; mbarrier.arrive.shared.b64 _, [b], 2;", 0),
        ("mbarrier.arrive_drop.noComplete.shared.b64 %rd5, [b], 2;", 0),
        ("mov.u64 %rd6, b; cvta.shared.u64 %rd6, %rd6; mbarrier.arrive.b64 %rd5, [%rd6], 3;", 1),
        ("mbarrier.arrive.release.cluster.shared::cluster.b64 _, [b], 3;", 1),
    ],
)  # fmt: skip
def test_steps_of_an_mbarrier_of_three(bench: Any, steps: str, want: int) -> None:
    out = good(bench, f"{INIT.format(3)} @!%p0 bra E; {steps} {PHASE} st.global.u32 [%rd1], %r9; E:")
    assert out[0] == want


def test_dropped_arrivals_are_missing_in_the_next_phase(any_bench: Any) -> None:
    """Two of eight threads drop out, so the next phase completes after six arrivals."""
    body = f"""{INIT.format(8)} @!%p0 bra E; mbarrier.arrive_drop.shared.b64 %rd5, [b], 2; mbarrier.pending_count.b64 %r2, %rd5; st.global.u32 [%rd0], %r2;
    mbarrier.arrive.shared.b64 %rd5, [b], 6; mbarrier.pending_count.b64 %r2, %rd5; st.global.u32 [%rd0+4], %r2;
    mbarrier.arrive.shared.b64 %rd6, [b], 5; mbarrier.pending_count.b64 %r2, %rd6; st.global.u32 [%rd0+8], %r2;
    mbarrier.test_wait.shared.b64 %p1, [b], %rd5; selp.u32 %r3, 1, 0, %p1; st.global.u32 [%rd0+12], %r3;
    mbarrier.test_wait.shared.b64 %p1, [b], %rd6; selp.u32 %r3, 1, 0, %p1; st.global.u32 [%rd0+16], %r3;
    mbarrier.arrive.shared.b64 _, [b]; mbarrier.try_wait.acquire.cta.shared::cta.b64 %p1, [b], %rd6, 1000; selp.u32 %r3, 1, 0, %p1; st.global.u32 [%rd0+20], %r3; E:"""
    assert good(any_bench, body)[:6].tolist() == [8, 6, 6, 1, 0, 1]


@pytest.mark.parametrize(
    "steps",
    [
        "mbarrier.init.shared.b64 [b2], 0;",
        "mbarrier.arrive.shared.b64 _, [b], 4;",
        "mbarrier.arrive.noComplete.shared.b64 %rd5, [b], 3;",
        "mbarrier.expect_tx.shared.b64 [b], 1048576;",
        "mbarrier.inval.shared.b64 [b]; mbarrier.arrive.shared.b64 _, [b];",
    ],
)
def test_impossible_mbarrier_steps_are_reported(bench: Any, steps: str) -> None:
    _, result = run(bench, f"{INIT.format(3)} @!%p0 bra E; {steps} E:")
    assert result.fault.kind is ReportKind.BAD_MBARRIER
    assert "mbarrier" in result.fault.instruction


def test_an_mbarrier_lies_in_shared_memory(bench: Any) -> None:
    _, result = run(bench, "mbarrier.init.b64 [%rd0], 1;")
    assert result.fault.kind is ReportKind.SHARED_OUT_OF_BOUNDS


BULK = """{init} mov.u32 %r1, s; @!%p0 bra W; mbarrier.arrive.expect_tx.shared.b64 _, [b], 2048;
    cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r1], [%rd2], 1024, [b];
    cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes.L2::cache_hint [%r1+1024], [%rd2+4096], 1024, [b], %rd7;
W:  {wait} mad.lo.u32 %r2, %r0, 4, %r1; ld.shared.u32 %r3, [%r2]; ld.shared.u32 %r4, [%r2+1024]; st.global.u32 [%rd1], %r3; st.global.u32 [%rd1+1024], %r4;"""
WAIT = "mbarrier.try_wait.parity.shared.b64 %p1, [b], 0; @!%p1 bra W;"


def test_bulk_copies_are_visible_after_their_mbarrier(any_bench: Any) -> None:
    """They are visible also to another warp than the issuing one."""
    out = good(any_bench, BULK.format(init=INIT.format(1), wait=WAIT), threads=128)
    assert out[:128].tolist() == [7 * i + 3 for i in range(128)]
    assert out[256:384].tolist() == [7 * (1024 + i) + 3 for i in range(128)]


def test_bulk_copies_are_invisible_before_their_mbarrier(any_bench: Any) -> None:
    clear = "mad.lo.u32 %r2, %r0, 4, s; st.shared.u32 [%r2], 5; st.shared.u32 [%r2+1024], 6;"
    out = good(any_bench, clear + BULK.format(init=INIT.format(1), wait="bar.sync 0;"), threads=128)
    assert out[:128].tolist() == [5] * 128
    assert out[256:384].tolist() == [6] * 128


GROUPS = """mov.u32 %r1, s; mad.lo.u32 %r2, %r0, 64, %r1; mad.wide.u32 %rd3, %r0, 64, %rd0; mov.u32 %r4, 0;
L:  mad.lo.u32 %r5, %r0, 16, %r4; mad.lo.u32 %r6, %r4, 4, %r2; st.shared.u32 [%r6], %r5; add.u32 %r4, %r4, 1; setp.lt.u32 %p1, %r4, 16; @%p1 bra L;
    fence.proxy.async.shared::cta; cp.async.bulk.global.shared::cta.bulk_group [%rd3], [%r2], 32; cp.async.bulk.commit_group;
    cp.async.bulk.global.shared::cta.bulk_group [%rd3+32], [%r2+32], 32; cp.async.bulk.commit_group; {wait}"""


@pytest.mark.parametrize(
    ("wait", "there"), [("cp.async.bulk.wait_group 0;", 16), ("cp.async.bulk.wait_group.read 1;", 8)]
)
def test_groups_of_bulk_copies_of_each_thread(any_bench: Any, wait: str, there: int) -> None:
    out = good(any_bench, GROUPS.format(wait=wait), threads=48).reshape(-1, 16)
    # A ring of 64 makes room for the 96 copies of 48 threads: the 32 oldest are made early.
    early = 32
    for t in range(48):
        assert out[t, :there].tolist() == [16 * t + i for i in range(there)]
    if there == 8:
        late = [t for t in range(48) if not out[t, 8:].any()]
        assert len(late) >= 48 - early


def test_uncommitted_bulk_copies_are_not_waited_for(bench: Any) -> None:
    body = "@!%p0 bra E; st.shared.u32 [s], 9; cp.async.bulk.global.shared::cta.bulk_group [%rd0], [s], 16; cp.async.bulk.wait_group 0; E:"
    assert good(bench, body)[0] == 0


def test_bulk_copies_from_shared_to_shared_memory(bench: Any) -> None:
    body = f"""{INIT.format(1)} mov.u32 %r1, s; mad.lo.u32 %r2, %r0, 4, %r1; st.shared.u32 [%r2], %r0; bar.sync 0; @!%p0 bra W;
    mbarrier.arrive.expect_tx.shared.b64 _, [b], 128; mapa.shared::cluster.u32 %r5, %r1, 0; add.u32 %r5, %r5, 256;
    cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [%r5], [%r1], 128, [b];
W:  {WAIT} ld.shared.u32 %r3, [%r2+256]; st.global.u32 [%rd1], %r3;"""
    assert good(bench, body)[:32].tolist() == list(range(32))


@pytest.mark.parametrize(
    ("copy", "kind"),
    [
        ("cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes [%r1], [%rd2], 24, [b];", ReportKind.MISALIGNED),
        ("cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes [%r1+8], [%rd2], 32, [b];", ReportKind.MISALIGNED),
        ("cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes [%r1], [%rd2+16368], 32, [b];", ReportKind.OUT_OF_BOUNDS),
        ("cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes [%r1+16384], [%rd2], 32, [b];", ReportKind.SHARED_OUT_OF_BOUNDS),
        ("cp.async.bulk.global.shared::cta.bulk_group [%rd2], [%r1+8184], 32;", ReportKind.MISALIGNED),
    ],
)  # fmt: skip
def test_bulk_copies_that_stray_are_reported(bench: Any, copy: str, kind: ReportKind) -> None:
    _, result = run(bench, f"{INIT.format(1)} mov.u32 %r1, s; @%p0 {copy}")
    assert result.fault.kind is kind
    assert "cp.async.bulk" in result.fault.instruction


CHECKED = Settings(checks=Sanitizers.all(), cache=config().cache)


def test_sanitizers_accept_bulk_copies_that_were_waited_for(bench: Any) -> None:
    for order in (LaunchOptions(), LaunchOptions(warp_order="reverse")):
        _, result = run(
            bench, BULK.format(init=INIT.format(1), wait=WAIT), threads=128, settings=CHECKED, options=order
        )
        assert result.fault is None
        assert result.findings == ()


def test_memory_of_a_bulk_copy_in_flight_may_not_be_accessed(bench: Any) -> None:
    _, result = run(
        bench, BULK.format(init=INIT.format(1), wait="bar.sync 0;"), threads=128, settings=CHECKED
    )
    assert {f.kind for f in result.findings} == {ReportKind.COPY_IN_FLIGHT}


STORED = """{init} mov.u32 %r1, s; @!%p0 bra W; mbarrier.arrive.expect_tx.shared.b64 _, [b], 24;
    st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.b32 [%r1], {{11, 12, 13, 14}}, [b]; st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.u64 [%r1+16], %rd2, [b];
W:  {wait} and.b32 %r2, %r0, 3; mad.lo.u32 %r2, %r2, 4, %r1; ld.shared.u32 %r3, [%r2]; st.global.u32 [%rd1], %r3;"""


def test_asynchronous_stores_complete_at_their_mbarrier(any_bench: Any) -> None:
    assert (
        good(any_bench, STORED.format(init=INIT.format(1), wait=WAIT), threads=64)[:64].tolist()
        == [11, 12, 13, 14] * 16
    )


def test_asynchronous_stores_race_with_those_who_do_not_wait(bench: Any) -> None:
    _, result = run(bench, STORED.format(init=INIT.format(1), wait=WAIT), threads=64, settings=CHECKED)
    assert result.findings == ()
    _, result = run(bench, STORED.format(init=INIT.format(1), wait=""), threads=64, settings=CHECKED)
    assert {f.kind for f in result.findings} <= {ReportKind.SHARED_RACE, ReportKind.UNINITIALISED}
    assert result.findings


REDUCED = [
    ("add.u32", 5, 7, 12),
    ("inc.u32", 5, 5, 0),
    ("dec.u32", 0, 9, 9),
    ("min.s32", 5, 0xFFFF_FFFF, 0xFFFF_FFFF),
    ("max.u32", 5, 9, 9),
    ("xor.b32", 5, 6, 3),
]


@pytest.mark.parametrize(("op", "before", "given", "after"), REDUCED)
def test_asynchronous_reductions_complete_at_their_mbarrier(
    bench: Any, op: str, before: int, given: int, after: int
) -> None:
    body = f"""{INIT.format(1)} @!%p0 bra E; mov.u32 %r1, s; st.shared.u32 [s], {before}; mov.u32 %r2, {given};
    mbarrier.arrive.expect_tx.shared.b64 _, [b], 4; red.async.relaxed.cluster.shared::cluster.mbarrier::complete_tx::bytes.{op} [%r1], %r2, [b];
    {PHASE} ld.shared.u32 %r3, [s]; st.global.u32 [%rd0], %r3; st.global.u32 [%rd0+4], %r9; E:"""
    assert good(bench, body)[:2].tolist() == [after, 1]


def test_a_copy_that_ignores_its_source_gives_zeros(bench: Any) -> None:
    body = """mov.u32 %r1, s; mad.lo.u32 %r2, %r0, 4, %r1; mad.wide.u32 %rd3, %r0, 4, %rd2; setp.lt.u32 %p2, %r0, 10;
    cp.async.ca.shared.global.L2::128B [%r2], [%rd3], 4, %p2; cp.async.ca.shared.global [%r2+256], [%rd3], 4, !%p2; cp.async.wait_all;
    ld.shared.u32 %r3, [%r2]; ld.shared.u32 %r4, [%r2+256]; st.global.u32 [%rd1], %r3; st.global.u32 [%rd1+128], %r4;"""
    out = good(bench, body)
    assert out[:32].tolist() == [0] * 10 + [7 * i + 3 for i in range(10, 32)]
    assert out[32:64].tolist() == [7 * i + 3 for i in range(10)] + [0] * 22


def test_an_mbarrier_tracks_copies_with_and_without_expected_count(bench: Any) -> None:
    """With .noinc the arrival is one of those that the mbarrier expects; without, it is one more."""
    for noinc, want in ((".noinc", 1), ("", 0)):
        body = f"""{INIT.format(32)} mov.u32 %r1, s; mad.lo.u32 %r2, %r0, 4, %r1; mad.wide.u32 %rd3, %r0, 4, %rd2;
        cp.async.ca.shared.global [%r2], [%rd3], 4; cp.async.mbarrier.arrive{noinc}.shared.b64 [b]; {PHASE} st.global.u32 [%rd1], %r9;
        ld.shared.u32 %r3, [%r2]; st.global.u32 [%rd1+128], %r3;"""
        out = good(bench, body)
        assert out[0] == want
        assert out[32:64].tolist() == [7 * i + 3 for i in range(32)]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("mbarrier.arrive.shared::cluster.b64 %rd5, [b];", "no state"),
        ("mbarrier.arrive.shared.b64 [b];", "takes 2 or 3"),
        ("mbarrier.arrive.acquire.cta.shared.b64 _, [b];", "acquire"),
        ("mbarrier.try_wait.release.cta.shared.b64 %p1, [b], %rd5;", "release"),
        ("cp.async.cg.shared.global [%r1], [%rd2], 8;", "16"),
        ("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%r1], [%rd2], 16, [b], %h1;", "multicast"),
        ("st.async.mmio.release.sys.global.b32 [%rd2], %r1;", "st.async"),
    ],
)  # fmt: skip
def test_absent_names_are_refused_by_name(bench: Any, line: str, message: str) -> None:
    with pytest.raises(PtxError, match=message):
        run(bench, line)


WAIT = "L: mbarrier.try_wait.parity.shared.b64 %p1, [b], 0;\n@%p1 bra D;\nbra L;\nD:"


@pytest.mark.parametrize(
    ("count", "arrives", "other"),
    [
        (65, "mbarrier.arrive.shared.b64 _, [b];", "waits for 1 arrivals and 0 bytes"),
        (1, "@%p0 mbarrier.arrive.expect_tx.shared.b64 _, [b], 48;", "waits for 0 arrivals and 48 bytes"),
        (
            64,
            "@%p0 mbarrier.complete_tx.shared.b64 [b], 16; mbarrier.arrive.shared.b64 _, [b];",
            "waits for 0 arrivals and -16 bytes",
        ),
    ],
)
def test_waits_that_can_never_end_are_reported_at_once(
    bench: Any, count: int, arrives: str, other: str
) -> None:
    body = f"{INIT.format(count)} {arrives}\n{WAIT}"
    _, result = run(bench, body, threads=64)
    assert result.fault.kind is ReportKind.BARRIER_DEADLOCK
    assert result.fault.instruction.startswith("mbarrier.try_wait")
    assert result.fault.line == kernel(body)[: kernel(body).index("L: mb")].count("\n") + 1
    assert other in result.fault.other


def test_a_barrier_and_a_wait_that_both_never_end(bench: Any) -> None:
    body = f"{INIT.format(2)} setp.ge.u32 %p2, %r0, 32; @%p2 bra B; {WAIT} B: bar.sync 0;"
    _, result = run(bench, body, threads=64)
    assert result.fault.kind is ReportKind.BARRIER_DEADLOCK
    assert "2 arrivals" in result.fault.other


def test_waits_end_when_another_warp_arrives_later(any_bench: Any) -> None:
    """The first warp tests while the second sleeps, waits at barriers and spins on global memory."""
    body = f"""{INIT.format(1)} setp.ge.u32 %p2, %r0, 32; @%p2 bra S;
    {WAIT} mov.u32 %r8, 5; st.global.u32 [%rd1], %r8; ret;
S:  setp.ge.u32 %p3, %r0, 64; @%p3 bra T; mov.u32 %r4, 0;
N:  nanosleep.u32 100; add.u32 %r4, %r4, 1; setp.lt.u32 %p4, %r4, 1000; @%p4 bra N; red.global.add.u32 [%rd0+2048], 1; ret;
T:  ld.volatile.global.u32 %r5, [%rd0+2048]; setp.ne.u32 %p4, %r5, 32; @%p4 bra T;
    setp.eq.u32 %p5, %r0, 64; @%p5 mbarrier.arrive.shared.b64 _, [b];"""
    assert good(any_bench, body, threads=96)[:32].tolist() == [5] * 32


def test_more_bytes_than_a_phase_expects_are_reported(bench: Any) -> None:
    copy = "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [s{0}], [%rd2{0}], 64, [b];"
    body = f"""{INIT.format(1)} @!%p0 bra W; mbarrier.arrive.expect_tx.shared.b64 _, [b], {{}};
    {copy.format("")} {copy.format("+64")}\nW: {WAIT}"""
    good(bench, body.format(128))
    _, result = run(bench, body.format(64))
    assert result.fault.kind is ReportKind.BAD_MBARRIER
    assert "[s+64]" in result.fault.instruction
