"""Clusters of workgroups: their registers and barrier, distributed shared memory, and what their checks report."""

# ruff: noqa: E501 - summaries and tables that name their parameters read best on one line

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from emulator.ir.library import Sanitizers
from emulator.ir.report import ReportKind
from emulator.simt.engine import Settings
from emulator.simt.work import LaunchOptions
from hcq.config import config
from hcq.errors import UsageError

SYNC = "barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;"


def kernel(body: str, *, limits: str = "", arch: str = "sm_90a") -> str:
    """Return a kernel of `out` with the thread's word of `out` at %rd1, its rank in %r1, its cluster's size in %r2, and shared memory."""
    return f""".version 8.7\n.target {arch}\n.address_size 64
    .visible .entry k(.param .u64 out, .param .u64 data) {limits} {{
    .shared .align 128 .b8 s[2048]; .shared .align 8 .b64 b;
    .reg .pred %p<8>; .reg .b32 %r<32>; .reg .b64 %rd<16>; .reg .f32 %f<8>;
    ld.param.u64 %rd0, [out]; ld.param.u64 %rd2, [data]; mov.u32 %r0, %tid.x; mov.u32 %r3, %ctaid.x; mov.u32 %r4, %ntid.x;
    mad.lo.u32 %r5, %r3, %r4, %r0; mad.wide.u32 %rd1, %r5, 4, %rd0; mad.wide.u32 %rd3, %r5, 4, %rd2;
    mov.u32 %r1, %cluster_ctarank; mov.u32 %r2, %cluster_nctarank; setp.eq.u32 %p0, %r0, 0;
    shl.b32 %r6, %r0, 2; mov.u32 %r7, s; add.u32 %r7, %r7, %r6;
    add.u32 %r8, %r1, 1; rem.u32 %r8, %r8, %r2; mapa.shared::cluster.u32 %r9, %r7, %r8;
    {body} ret; }}"""


def run(bench: Any, body: str, groups: int = 4, threads: int = 64, size: int = 4, **how: Any) -> Any:
    """Run a kernel in clusters of `size` workgroups; return its output, its input and the result."""
    limits = how.pop("limits", "")
    out = bench.new(np.zeros(groups * threads), "u4")
    data = bench.new(np.arange(groups * threads) * 7 + 3, "u4")
    result = bench.run(
        kernel(body, limits=limits),
        "k",
        groups,
        threads,
        out,
        data,
        arch="sm_90a",
        cluster=(size, 1, 1),
        **how,
    )
    return out, data, result


def good(bench: Any, body: str, *more: int, **how: Any) -> Any:
    out, data, result = run(bench, body, *more, **how)
    assert (result.fault, result.findings) == (None, ())
    return out, data


def checked(seed: int = 0) -> dict[str, Any]:
    order: Any = seed or "forward"
    return {
        "settings": Settings(checks=Sanitizers.all(), cache=config().cache),
        "options": LaunchOptions(warp_order=order, group_seed=seed),
    }


@pytest.mark.parametrize("shape", [(2, 2, 1), (1, 2, 3), (4, 1, 1)])
def test_registers_of_a_cluster(bench: Any, shape: tuple[int, int, int]) -> None:
    names = [
        f"{base}.{axis}"
        for base in ("%cluster_ctaid", "%cluster_nctaid", "%clusterid", "%nclusterid", "%ctaid")
        for axis in "xyz"
    ]
    names += ["%cluster_ctarank", "%cluster_nctarank"]
    stores = "".join(
        f"mov.u32 %r1, {name}; st.global.u32 [%rd1+{4 * n}], %r1;" for n, name in enumerate(names)
    )
    text = f""".version 8.7\n.target sm_90\n.address_size 64\n.visible .entry k(.param .u64 out) {{ .reg .b32 %r<8>; .reg .b64 %rd<4>; .reg .pred %p<2>;
    ld.param.u64 %rd0, [out]; mov.u32 %r0, %ctaid.x; mov.u32 %r2, %nctaid.x; mov.u32 %r3, %ctaid.y; mad.lo.u32 %r0, %r3, %r2, %r0;
    mov.u32 %r4, %nctaid.y; mul.lo.u32 %r2, %r2, %r4; mov.u32 %r3, %ctaid.z; mad.lo.u32 %r0, %r3, %r2, %r0; mad.wide.u32 %rd1, %r0, 80, %rd0;
    {stores} mov.pred %p0, %is_explicit_cluster; selp.u32 %r1, 1, 0, %p0; st.global.u32 [%rd1+76], %r1; ret; }}"""
    from emulator.nv.ptx.module import launch, load_ptx

    grid = (4, 4, 6)
    out = bench.new(np.zeros((96, 20)), "u4")
    done = launch(
        load_ptx(text, arch="sm_90", settings=bench.settings).kernel("k"), grid, (1, 1, 1), out.ctypes.data.to_bytes(8, "little"),
        memory=bench.memory, cluster=shape,
    )  # fmt: skip
    assert done.fault is None, done.fault
    for flat, row in enumerate(out):
        at = (flat % 4, flat // 4 % 4, flat // 16)
        inner = [a % s for a, s in zip(at, shape, strict=True)]
        rank = inner[0] + shape[0] * (inner[1] + shape[1] * inner[2])
        whole = (
            [a // s for a, s in zip(at, shape, strict=True)],
            [g // s for g, s in zip(grid, shape, strict=True)],
        )
        want = [*inner, *shape, *whole[0], *whole[1], *at, rank, shape[0] * shape[1] * shape[2]]
        assert row[:17].tolist() == want
        assert row[19] == 1


@pytest.mark.parametrize("seed", [0, 1, 2, 3])
@pytest.mark.parametrize(
    "take",
    [
        "ld.shared::cluster.u32 %r10, [%r9];",
        "cvt.u64.u32 %rd5, %r7; cvta.shared.u64 %rd5, %rd5; mapa.u64 %rd6, %rd5, %r8; ld.u32 %r10, [%rd6];",
        "mapa.shared::cluster.u32 %r11, s, %r8; add.u32 %r11, %r11, %r6; ld.relaxed.cluster.shared::cluster.u32 %r10, [%r11];",
    ],
)
def test_a_workgroup_reads_the_shared_memory_of_the_next(bench: Any, seed: int, take: str) -> None:
    body = f"ld.global.u32 %r10, [%rd3]; st.shared.u32 [%r7], %r10; {SYNC} {take} st.global.u32 [%rd1], %r10; {SYNC}"
    out, data = good(bench, body, 8, **checked(seed))
    assert np.array_equal(out.reshape(2, 4, 64), np.roll(data.reshape(2, 4, 64), -1, axis=1))


def test_stores_and_atomics_in_the_shared_memory_of_others(any_bench: Any) -> None:
    """Every workgroup adds to the words of all others, and stores into the next one."""
    body = f"""mov.u32 %r10, 0; st.shared.u32 [%r7], %r10; {SYNC}
    mov.u32 %r11, 0; L: mapa.shared::cluster.u32 %r12, %r7, %r11; add.u32 %r13, %r1, 1; red.relaxed.cluster.shared::cluster.add.u32 [%r12], %r13;
    add.u32 %r11, %r11, 1; setp.lt.u32 %p1, %r11, %r2; @%p1 bra L;
    st.shared::cluster.u32 [%r9+256], %r5; {SYNC} ld.shared.u32 %r10, [%r7]; ld.shared.u32 %r11, [%r7+256]; mad.lo.u32 %r10, %r11, 100, %r10;
    st.global.u32 [%rd1], %r10;"""
    out, _ = good(any_bench, body)
    before = np.roll(np.arange(256).reshape(4, 64), 1, axis=0)
    assert np.array_equal(out.reshape(4, 64), 10 + 100 * before)
    assert np.array_equal(good(any_bench, body, **checked(5))[0], out)


def test_ranks_and_spaces_of_addresses(bench: Any) -> None:
    body = f"""getctarank.shared::cluster.u32 %r10, %r9; getctarank.shared::cluster.u32 %r11, %r7; cvt.u64.u32 %rd5, %r9; cvta.shared::cluster.u64 %rd5, %rd5;
    getctarank.u64 %r12, %rd5; isspacep.shared::cluster %p1, %rd5; isspacep.shared::cta %p2, %rd5; isspacep.global %p3, %rd5;
    mapa.u64 %rd6, %rd5, %r1; isspacep.shared %p4, %rd6; selp.u32 %r13, 1, 0, %p1; selp.u32 %r14, 2, 0, %p2; selp.u32 %r15, 4, 0, %p3; selp.u32 %r16, 8, 0, %p4;
    or.b32 %r13, %r13, %r14; or.b32 %r13, %r13, %r15; or.b32 %r13, %r13, %r16; shl.b32 %r13, %r13, 24;
    mad.lo.u32 %r10, %r10, 256, %r11; mad.lo.u32 %r10, %r10, 256, %r12; or.b32 %r10, %r10, %r13; st.global.u32 [%rd1], %r10; {SYNC}"""
    out, _ = good(bench, body)
    for rank, row in enumerate(out.reshape(4, 64)):
        assert set(row.tolist()) == {9 << 24 | (rank + 1) % 4 << 16 | rank << 8 | (rank + 1) % 4}


def test_arrivals_of_threads_that_left_are_not_awaited(bench: Any) -> None:
    body = "setp.ge.u32 %p1, %r0, 40; @%p1 bra E; barrier.cluster.arrive; barrier.cluster.wait; mov.u32 %r10, 1; st.global.u32 [%rd1], %r10; E:"
    out, _ = good(bench, body)
    assert out.reshape(4, 64).sum(axis=1).tolist() == [40] * 4


REMOTE = """@%p0 mbarrier.init.shared.b64 [b], {count}; fence.mbarrier_init.release.cluster; barrier.cluster.arrive.relaxed; barrier.cluster.wait;
    mov.u32 %r20, b; mapa.shared::cluster.u32 %r21, %r20, %r8;"""
WAIT = "W: mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 %p2, [b], 0; @!%p2 bra W;"


@pytest.mark.parametrize("seed", [0, 7])
def test_arrival_at_the_mbarrier_of_another_workgroup(bench: Any, seed: int) -> None:
    body = f"""{REMOTE.format(count=64)} st.shared::cluster.u32 [%r9], %r5; mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r21];
    {WAIT} ld.shared.u32 %r10, [%r7]; st.global.u32 [%rd1], %r10; {SYNC}"""
    out, _ = good(bench, body, **checked(seed))
    assert np.array_equal(out.reshape(4, 64), np.roll(np.arange(256).reshape(4, 64), 1, axis=0))


@pytest.mark.parametrize("seed", [0, 7])
def test_asynchronous_stores_complete_at_the_mbarrier_beside_them(bench: Any, seed: int) -> None:
    body = f"""{REMOTE.format(count=1)} @%p0 mbarrier.arrive.expect_tx.shared.b64 _, [b], 512;
    add.u32 %r10, %r5, 1; st.async.shared::cluster.mbarrier::complete_tx::bytes.u32 [%r9], %r5, [%r21];
    red.async.relaxed.cluster.shared::cluster.mbarrier::complete_tx::bytes.add.u32 [%r9+1024], %r10, [%r21];
    {WAIT} ld.shared.u32 %r10, [%r7]; st.global.u32 [%rd1], %r10; {SYNC}"""
    start = "mov.u32 %r19, 0; st.shared.u32 [%r7+1024], %r19;"
    out, _ = good(bench, start + body, **checked(seed))
    assert np.array_equal(out.reshape(4, 64), np.roll(np.arange(256).reshape(4, 64), 1, axis=0))


COPY = """@%p0 mbarrier.arrive.expect_tx.shared.b64 _, [b], 256; st.shared.u32 [%r7], %r5; fence.proxy.async; bar.sync 0;
    @!%p0 bra S; cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [%r9+1024], [%r7], 256, [%r21]; S:"""


@pytest.mark.parametrize("seed", [0, 7])
def test_bulk_copy_to_the_shared_memory_of_another_workgroup(bench: Any, seed: int) -> None:
    body = f"{REMOTE.format(count=1)} {COPY} {WAIT} ld.shared.u32 %r10, [%r7+1024]; st.global.u32 [%rd1], %r10; {SYNC}"
    out, _ = good(bench, body, **checked(seed))
    assert np.array_equal(out.reshape(4, 64), np.roll(np.arange(256).reshape(4, 64), 1, axis=0))


def test_writes_to_global_memory_are_ordered_by_the_barrier_of_a_cluster(bench: Any) -> None:
    body = f"st.global.u32 [%rd3], %r5; {SYNC} mad.lo.u32 %r10, %r3, 0, %r8; mad.lo.u32 %r10, %r10, %r4, %r0; mad.wide.u32 %rd5, %r10, 4, %rd2; ld.global.u32 %r11, [%rd5]; st.global.u32 [%rd1], %r11;"
    out, _ = good(bench, body, **checked(3))
    assert np.array_equal(out.reshape(4, 64), np.roll(np.arange(256).reshape(4, 64), -1, axis=0))
    _, _, result = run(
        bench, body.replace("barrier.cluster.arrive", "barrier.cluster.arrive.relaxed"), **checked(3)
    )
    assert {f.kind for f in result.findings} == {ReportKind.GLOBAL_RACE}


BAD = {
    "no barrier before the read": (f"{SYNC} st.shared.u32 [%r7], %r5; ld.shared::cluster.u32 %r10, [%r9]; st.global.u32 [%rd1], %r10; {SYNC}", {ReportKind.SHARED_RACE}),
    "relaxed arrival": (f"{SYNC} st.shared.u32 [%r7], %r5; barrier.cluster.arrive.relaxed; barrier.cluster.wait; ld.shared::cluster.u32 %r10, [%r9]; st.global.u32 [%rd1], %r10; {SYNC}", {ReportKind.SHARED_RACE}),
    "barrier of a workgroup only": (f"{SYNC} st.shared.u32 [%r7], %r5; bar.sync 0; ld.shared::cluster.u32 %r10, [%r9]; st.global.u32 [%rd1], %r10; {SYNC}", {ReportKind.SHARED_RACE}),
    "plain remote sums": (f"mov.u32 %r10, 0; st.shared.u32 [%r7], %r10; {SYNC} mapa.shared::cluster.u32 %r9, %r7, 0; ld.shared::cluster.u32 %r10, [%r9]; add.u32 %r10, %r10, %r1; st.shared::cluster.u32 [%r9], %r10; {SYNC}", {ReportKind.SHARED_RACE}),
    "no barrier at the start": (f"st.shared::cluster.u32 [%r9], %r5; {SYNC}", {ReportKind.UNSTARTED_PEER}),
    "arrival of the scope of a workgroup": (f"{REMOTE.format(count=64)} st.shared::cluster.u32 [%r9], %r5; mbarrier.arrive.relaxed.cluster.shared::cluster.b64 _, [%r21]; {WAIT} ld.shared.u32 %r10, [%r7]; st.global.u32 [%rd1], %r10; {SYNC}", {ReportKind.SHARED_RACE}),
    "no fence of the proxies": (f"{REMOTE.format(count=1)} {COPY.replace('fence.proxy.async;', '')} {WAIT} {SYNC}", {ReportKind.MISSING_PROXY_FENCE}),
    "tile read before it arrived": (f"{REMOTE.format(count=1)} {COPY} ld.shared.u32 %r10, [%r7+1024]; st.global.u32 [%rd1], %r10; {WAIT} {SYNC}", {ReportKind.COPY_IN_FLIGHT}),
}  # fmt: skip


ALSO = {ReportKind.UNINITIALISED, ReportKind.SHARED_RACE}
"""What such a mistake may show besides, by the order of the warps."""


@pytest.mark.parametrize("seed", [0, 11])
@pytest.mark.parametrize("what", list(BAD))
def test_mistakes_between_workgroups_of_a_cluster_are_named(bench: Any, what: str, seed: int) -> None:
    body, kinds = BAD[what]
    _, _, result = run(bench, body, **checked(seed))
    found = {f.kind for f in result.findings}
    assert result.fault is None
    assert kinds <= found <= kinds | ALSO


POLLS_FIRST = """mov.u32 %r11, s; setp.eq.u32 %p2, %r0, 32; @%p0 st.volatile.shared.u32 [%r11], 0; bar.sync 0; @%p2 st.volatile.shared.u32 [%r11], 9;
    @!%p0 bra J; L: ld.volatile.shared.u32 %r10, [%r11]; setp.ne.u32 %p1, %r10, 9; @%p1 bra L; J:"""
ALIGNED = "barrier.cluster.arrive.release.aligned; barrier.cluster.wait.acquire.aligned;"
TWO_PLACES = "@%p0 bra J; barrier.cluster.arrive.aligned; bra E; J: barrier.cluster.arrive.aligned; E: barrier.cluster.wait.aligned;"


@pytest.mark.parametrize(
    ("body", "kinds"),
    [
        (f"{POLLS_FIRST} {ALIGNED}", set()),
        (TWO_PLACES, {ReportKind.PARTIAL_BARRIER}),
        (f"@%p0 bra J; {ALIGNED} J: barrier.cluster.arrive; barrier.cluster.wait;", {ReportKind.PARTIAL_BARRIER}),
    ],
    ids=["one polls first", "two places", "one elsewhere"],
)  # fmt: skip
def test_lanes_may_come_one_by_one_to_an_aligned_barrier_of_a_cluster(
    bench: Any, body: str, kinds: set[ReportKind]
) -> None:
    _, _, result = run(bench, body, **checked(0))
    assert {f.kind for f in result.findings} | {result.fault.kind for _ in "x" if result.fault} == kinds


def test_race_names_both_places_and_workgroups(bench: Any) -> None:
    body = f"{SYNC} st.shared.u32 [%r7], %r5;\n ld.shared::cluster.u32 %r10, [%r9];\n st.global.u32 [%rd1], %r10; {SYNC}"
    _, _, result = run(bench, body, **checked())
    race = next(f for f in result.findings if f.kind is ReportKind.SHARED_RACE)
    lines = kernel(body).splitlines()
    assert "of block" in race.other
    seen = {
        lines[race.line - 1].strip(),
        lines[int(race.other.split(":")[0].removeprefix("line ")) - 1].strip(),
    }
    assert any("st.shared.u32 [%r7]" in line for line in seen)
    assert any("ld.shared::cluster" in line for line in seen)
    assert "shared memory of" in race.nearest
    assert "of block" in race.nearest or race.instruction.startswith("st.shared.u32")


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        ("barrier.cluster.arrive; barrier.cluster.arrive;", ReportKind.CLUSTER_ARRIVED_TWICE),
        ("barrier.cluster.wait;", ReportKind.CLUSTER_NOT_ARRIVED),
        (
            "setp.eq.u32 %p1, %r1, 2; @%p1 bra B; barrier.cluster.arrive; B: @!%p1 barrier.cluster.wait; bar.sync 1, 96;",
            ReportKind.CLUSTER_DEADLOCK,
        ),
        (
            "mapa.shared::cluster.u32 %r9, %r7, 4; ld.shared::cluster.u32 %r10, [%r9];",
            ReportKind.SHARED_OUT_OF_BOUNDS,
        ),
        ("add.u32 %r9, %r9, 4096; ld.shared::cluster.u32 %r10, [%r9];", ReportKind.SHARED_OUT_OF_BOUNDS),
        ("add.u32 %r9, %r9, 2; ld.shared::cluster.u32 %r10, [%r9];", ReportKind.MISALIGNED),
        ("ld.shared.u32 %r10, [%r9];", ReportKind.SHARED_OUT_OF_BOUNDS),
        ("@%p0 mbarrier.init.b64 [%rd5], 1;", ReportKind.SHARED_OUT_OF_BOUNDS),
    ],
)
def test_faults_of_clusters(bench: Any, body: str, kind: ReportKind) -> None:
    _, _, result = run(bench, f"cvt.u64.u32 %rd5, %r9; cvta.shared::cluster.u64 %rd5, %rd5; {body}")
    assert result.fault.kind is kind


def test_deadlock_says_who_has_not_arrived(bench: Any) -> None:
    body = "setp.eq.u32 %p1, %r1, 2; @%p1 bra B; barrier.cluster.arrive;\n barrier.cluster.wait;\n B: bar.sync 1, 96;"
    _, _, result = run(bench, body)
    assert result.fault.kind in (ReportKind.CLUSTER_DEADLOCK, ReportKind.BARRIER_DEADLOCK)
    if result.fault.kind is ReportKind.CLUSTER_DEADLOCK:
        assert result.fault.other == "warp 0 of block (2, 0, 0), which has not arrived"


@pytest.mark.parametrize("seed", [0, 1, 2, 3])
def test_access_to_a_workgroup_that_exits_without_order(bench: Any, seed: int) -> None:
    """Whichever runs first: either the access comes too late, or the exit is not ordered behind it."""
    _, _, result = run(
        bench,
        f"st.shared.u32 [%r7], %r5; {SYNC} ld.shared::cluster.u32 %r10, [%r9]; st.global.u32 [%rd1], %r10;",
        **checked(seed),
    )
    kinds = {f.kind for f in (*result.findings, *([result.fault] if result.fault else []))}
    assert kinds & {ReportKind.EXITED_PEER, ReportKind.UNORDERED_EXIT}
    assert kinds <= {ReportKind.EXITED_PEER, ReportKind.UNORDERED_EXIT}


def test_access_to_a_workgroup_that_has_exited(bench: Any) -> None:
    body = f"{SYNC} setp.eq.u32 %p1, %r1, 1; @%p1 bra E; mov.u32 %r10, 0; L: add.u32 %r10, %r10, 1; nanosleep.u32 1; setp.lt.u32 %p2, %r10, 4000; @%p2 bra L; ld.shared::cluster.u32 %r10, [%r9]; st.global.u32 [%rd1], %r10; {SYNC} E:"
    _, _, result = run(bench, body, 2, 32, 2)
    assert result.fault.kind is ReportKind.EXITED_PEER
    assert result.fault.nearest == "shared memory of 2048 bytes of block (1, 0, 0)"


@pytest.mark.parametrize(
    ("groups", "size", "limits"),
    [(6, 4, ""), (34, 17, ""), (4, 4, ".reqnctapercluster 2"), (4, 4, ".maxclusterrank 2")],
)
def test_clusters_that_cannot_be_launched(bench: Any, groups: int, size: int, limits: str) -> None:
    with pytest.raises(UsageError, match="cluster"):
        run(bench, "", groups, 32, size, limits=limits)


def test_required_clusters_need_no_argument_and_explicit_ones_do(bench: Any) -> None:
    out = bench.new(np.zeros(128), "u4")
    done = bench.run(
        kernel("st.global.u32 [%rd1], %r2;", limits=".explicitcluster .reqnctapercluster 2, 1, 1"),
        "k",
        4,
        32,
        out,
        out,
        arch="sm_90a",
    )
    assert done.fault is None
    assert set(out.tolist()) == {2}
    with pytest.raises(UsageError, match="explicitcluster"):
        bench.run(kernel("", limits=".explicitcluster"), "k", 4, 32, out, out, arch="sm_90a")
