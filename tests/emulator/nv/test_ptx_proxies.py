"""Mistakes around asynchronous copies and products, each reported by name; the same kernels without them are silent."""

# ruff: noqa: E501 - lines of PTX read best unbroken

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from emulator.ir.library import Sanitizers
from emulator.ir.report import ReportKind
from emulator.simt.engine import Settings
from hcq.config import config

REGS = ".reg .pred %p<4>; .reg .b32 %d<4>, %a<4>, %r<16>; .reg .b64 %rd<8>;\n"
FENCE, BARRIER = "fence.proxy.async.shared::cta;", "bar.sync 0;"
PRODUCT = "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%d0,%d1,%d2,%d3}, %rd5, %rd5, 0, 1, 1, 0, 0;"
COMMIT, WAIT = "wgmma.commit_group.sync.aligned;", "wgmma.wait_group.sync.aligned 0;"
TILE = "mov.u32 %r1, s; mad.lo.u32 %r1, %r0, 16, %r1; st.shared.v4.b32 [%r1], {%r0, %r0, %r0, %r0};"
USE = "st.global.b32 [%rd1], %d0;"
BEGIN = "mov.b32 %d0, 0; mov.b32 %d1, 0; mov.b32 %d2, 0; mov.b32 %d3, 0;"
ARM = "wgmma.fence.sync.aligned;"


def found(bench: Any, *lines: str) -> set[ReportKind]:
    """Run a kernel of one warpgroup with all checks; return the kinds of its findings."""
    text = f""".version 8.7\n.target sm_90a\n.address_size 64
.visible .entry k(.param .u64 out, .param .u64 data) {{ .shared .align 1024 .b8 s[4096]; .shared .align 8 .b64 b;\n{REGS}
mov.u32 %r0, %tid.x; ld.param.u64 %rd1, [out]; ld.param.u64 %rd2, [data]; mad.wide.u32 %rd1, %r0, 4, %rd1; setp.eq.u32 %p0, %r0, 0;
mov.u64 %rd5, {16 << 16 | 8 << 32}; mov.u32 %r3, s; shr.u32 %r3, %r3, 4; cvt.u64.u32 %rd6, %r3; or.b64 %rd5, %rd5, %rd6; {" ".join(lines)} ret; }}"""
    out, data = bench.new(np.zeros(512), "u4"), bench.new(np.zeros(1024), "u4")
    settings = Settings(cache=config().cache, checks=Sanitizers.all(in_step=False))
    result = bench.run(text, "k", 1, 128, out, data, arch="sm_90a", settings=settings)
    assert result.fault is None, result.fault
    return {one.kind for one in result.findings}


@pytest.mark.parametrize(
    ("lines", "kinds"),
    [
        ((TILE, FENCE, BARRIER, BEGIN, ARM, PRODUCT, COMMIT, WAIT, USE), set()),
        ((TILE, BARRIER, FENCE, BEGIN, ARM, PRODUCT, COMMIT, WAIT, USE), set()),
        ((TILE, BARRIER, BEGIN, ARM, PRODUCT, COMMIT, WAIT, USE), {ReportKind.MISSING_PROXY_FENCE}),
        ((TILE, FENCE, BEGIN, ARM, PRODUCT, COMMIT, WAIT, USE), {ReportKind.SHARED_RACE}),
        ((FENCE, TILE, BARRIER, BEGIN, ARM, PRODUCT, COMMIT, WAIT, USE), {ReportKind.MISSING_PROXY_FENCE}),
        ((TILE, FENCE, BARRIER, BEGIN, ARM, PRODUCT, COMMIT, USE), {ReportKind.UNWAITED_WGMMA}),
        ((TILE, FENCE, BARRIER, BEGIN, ARM, PRODUCT, WAIT, COMMIT, USE), {ReportKind.UNWAITED_WGMMA}),
        ((TILE, FENCE, BARRIER, BEGIN, ARM, PRODUCT, COMMIT, "wgmma.wait_group.sync.aligned 1;", USE), {ReportKind.UNWAITED_WGMMA}),
        ((TILE, FENCE, BARRIER, BEGIN, PRODUCT, COMMIT, WAIT, USE), {ReportKind.MISSING_WGMMA_FENCE}),
        ((TILE, FENCE, BARRIER, BEGIN, ARM, PRODUCT, COMMIT, WAIT, "mov.b32 %d1, 0;", PRODUCT, COMMIT, WAIT, USE), {ReportKind.MISSING_WGMMA_FENCE}),
        ((TILE, FENCE, BARRIER, BEGIN, ARM, PRODUCT, PRODUCT, COMMIT, WAIT, USE), set()),
        ((TILE, FENCE, BARRIER, BEGIN, ARM, PRODUCT, COMMIT, WAIT, BARRIER, TILE, USE), set()),
        ((TILE, FENCE, BARRIER, BEGIN, ARM, PRODUCT, COMMIT, BARRIER, TILE, WAIT, USE), {ReportKind.SHARED_RACE, ReportKind.ASYNC_READ}),
    ],
)  # fmt: skip
def test_mistakes_around_products(bench: Any, lines: tuple[str, ...], kinds: set[ReportKind]) -> None:
    assert found(bench, *lines) == kinds


SECOND_TILE = TILE.replace("[%r1]", "[%r1+2048]")
SECOND = "add.u64 %rd7, %rd5, 128; " + PRODUCT.replace("%rd5, %rd5", "%rd7, %rd7")
LEAVES_ONE = WAIT.replace(" 0;", " 1;")
TWO = (TILE, SECOND_TILE, FENCE, BARRIER, BEGIN, ARM, PRODUCT, COMMIT, SECOND, COMMIT)
RACES = {ReportKind.SHARED_RACE, ReportKind.ASYNC_READ}


@pytest.mark.parametrize(
    ("lines", "kinds"),
    [
        ((*TWO, LEAVES_ONE, BARRIER, TILE, WAIT, USE), set()),
        ((*TWO, LEAVES_ONE, BARRIER, SECOND_TILE, WAIT, USE), RACES),
        ((*TWO, LEAVES_ONE, WAIT, BARRIER, SECOND_TILE, USE), set()),
        ((*TWO, LEAVES_ONE, PRODUCT, COMMIT, LEAVES_ONE, BARRIER, SECOND_TILE, WAIT, USE), set()),
        ((*TWO, LEAVES_ONE, PRODUCT, COMMIT, LEAVES_ONE, BARRIER, TILE, WAIT, USE), RACES),
        ((*TWO, COMMIT, LEAVES_ONE, BARRIER, SECOND_TILE, WAIT, USE), set()),
        ((*TWO, PRODUCT, WAIT, BARRIER, SECOND_TILE, COMMIT, WAIT, USE), set()),
        ((*TWO, PRODUCT, WAIT, BARRIER, TILE, COMMIT, WAIT, USE), RACES),
    ],
    ids=["first", "second", "both", "third in flight", "overwritten third", "empty group", "open group", "overwritten open group"],
)  # fmt: skip
def test_products_of_groups_not_waited_for_go_on_reading(
    bench: Any, lines: tuple[str, ...], kinds: set[ReportKind]
) -> None:
    assert found(bench, *lines) == kinds


INIT = f"@%p0 mbarrier.init.shared.b64 [b], 1; {BARRIER}"
LOAD = "@!%p0 bra J; mbarrier.arrive.expect_tx.shared.b64 _, [b], 2048; cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [s], [%rd2], 2048, [b]; J:"
READ = "mov.u32 %r1, s; mad.lo.u32 %r1, %r0, 16, %r1; ld.shared.b32 %r2, [%r1]; st.global.b32 [%rd1], %r2;"


def waits(parity: int) -> str:
    return f"W: mbarrier.try_wait.parity.shared.b64 %p2, [b], {parity}; @!%p2 bra W;"


@pytest.mark.parametrize(
    ("lines", "kinds"),
    [
        ((INIT, LOAD, waits(0), READ), set()),
        ((INIT, LOAD, waits(1), READ), {ReportKind.COPY_IN_FLIGHT}),
        ((INIT, LOAD, BARRIER, READ), {ReportKind.COPY_IN_FLIGHT}),
        ((INIT, LOAD, waits(0), BEGIN, ARM, PRODUCT, COMMIT, WAIT, USE), set()),
        ((INIT, LOAD, BARRIER, BEGIN, ARM, PRODUCT, COMMIT, WAIT, USE), {ReportKind.COPY_IN_FLIGHT}),
    ],
)  # fmt: skip
def test_mistakes_around_loads(bench: Any, lines: tuple[str, ...], kinds: set[ReportKind]) -> None:
    assert found(bench, *lines) == kinds


STORE = (
    "@!%p0 bra J; cp.async.bulk.global.shared::cta.bulk_group [%rd2], [s], 2048; cp.async.bulk.commit_group;"
)
DONE, ONE_LEFT = "cp.async.bulk.wait_group.read 0;", "cp.async.bulk.wait_group.read 1;"
OTHER = "cp.async.bulk.global.shared::cta.bulk_group [%rd2+2048], [s+1024], 16; cp.async.bulk.commit_group;"


@pytest.mark.parametrize(
    ("lines", "kinds"),
    [
        ((TILE, FENCE, BARRIER, STORE, DONE, "J:", BARRIER, TILE), set()),
        ((TILE, BARRIER, STORE, DONE, "J:"), {ReportKind.MISSING_PROXY_FENCE}),
        ((TILE, FENCE, BARRIER, STORE, "J:", BARRIER, TILE, DONE), {ReportKind.SHARED_RACE, ReportKind.ASYNC_READ}),
        ((TILE, FENCE, BARRIER, STORE, "J:", "@%p0 st.shared.b32 [s], 1;", DONE), {ReportKind.ASYNC_READ}),
        ((TILE, FENCE, BARRIER, STORE, ONE_LEFT, "J:", BARRIER, TILE), {ReportKind.SHARED_RACE, ReportKind.ASYNC_READ}),
        ((TILE, FENCE, BARRIER, STORE, OTHER, ONE_LEFT, "@%p0 st.shared.b32 [s], 1;", "J:"), set()),
        ((TILE, FENCE, BARRIER, STORE, OTHER, ONE_LEFT, "@%p0 st.shared.b32 [s+1024], 1;", "J:"), {ReportKind.ASYNC_READ}),
        ((TILE, FENCE, BARRIER, STORE, OTHER, ONE_LEFT, DONE, "@%p0 st.shared.b32 [s+1024], 1;", "J:"), set()),
        ((TILE, FENCE, BARRIER, STORE, DONE, "ld.global.b32 %r2, [%rd2+64];", "J:"), {ReportKind.COPY_IN_FLIGHT}),
        ((TILE, FENCE, BARRIER, STORE, DONE, "st.global.b32 [%rd2+64], 9;", "J:"), {ReportKind.COPY_IN_FLIGHT}),
        ((TILE, FENCE, BARRIER, STORE, DONE, "ld.global.b32 %r2, [%rd2+2048];", "J:"), set()),
        ((TILE, FENCE, BARRIER, STORE, "cp.async.bulk.wait_group 0;", "ld.global.b32 %r2, [%rd2+64];", "J:"), set()),
        ((TILE, FENCE, BARRIER, STORE, DONE, "cp.async.bulk.wait_group 0;", "ld.global.b32 %r2, [%rd2+64];", "J:"), set()),
    ],
)  # fmt: skip
def test_mistakes_around_stores(bench: Any, lines: tuple[str, ...], kinds: set[ReportKind]) -> None:
    assert found(bench, *lines) == kinds


@pytest.mark.parametrize(("value", "kinds"), [("7", set()), ("%r4", {ReportKind.SHARED_RACE})])
def test_warps_may_store_one_value_to_one_place(bench: Any, value: str, kinds: set[ReportKind]) -> None:
    """Without a barrier between, stores of different values race; stores of what is there do not."""
    assert found(bench, "shr.u32 %r4, %r0, 5;", f"st.shared.b32 [s], {value};") == kinds


def test_a_store_of_one_value_races_with_reads(bench: Any) -> None:
    lines = (
        "shr.u32 %r4, %r0, 5; setp.eq.u32 %p1, %r4, 0; setp.eq.u32 %p3, %r4, 1;",
        "@%p1 st.shared.b32 [s], 7;",
        BARRIER,
        "@%p1 ld.shared.b32 %r5, [s];",
        "@%p3 st.shared.b32 [s], 7;",
    )
    assert found(bench, *lines) == {ReportKind.SHARED_RACE}
