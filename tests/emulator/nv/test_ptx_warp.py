"""Operations across lanes, matrix instructions, asynchronous copies and mbarriers."""

# ruff: noqa: E501 - summaries and tables that name their parameters read best on one line

from __future__ import annotations

from typing import Any

import numpy as np
import pytest


def shuffled(mode: Any, lane: Any, b: Any, control: Any):
    clamp, segment = control & 31, control >> 8 & 31
    lowest = lane & segment
    highest = lowest | (clamp & ~segment & 31)
    b &= 31
    source = {"up": lane - b, "down": lane + b, "bfly": lane ^ b, "idx": lowest | (b & ~segment & 31)}[mode]
    good = source >= highest if mode == "up" else source <= highest
    return (source if good else lane), good


@pytest.mark.sampled(25)
@pytest.mark.parametrize("constant", [True, False])
@pytest.mark.parametrize(
    "control", [31, 0, 15, 0x101F, 0x10F, 0x1800, 0x181F, 0x1C00, 0x1C03, 0x1C0F, 0x1C1F, 0x1E1F, 0x1F1F]
)
@pytest.mark.parametrize("mode", ["up", "down", "bfly", "idx"])
def test_shuffles(bench: Any, mode: Any, control: Any, constant: Any):
    for b in (0, 1, 2, 5, 16, 31, 33):
        a = np.arange(64, dtype="u4") * 3 + 1
        lines = f"mov.u32 %r5, {b}; mov.u32 %r6, {control}; shfl.sync.{mode}.b32 %r7|%p1, %a, {b if constant else '%r5'}, "
        lines += f"{control if constant else '%r6'}, -1; selp.u32 %r8, 1000, 0, %p1; add.u32 %d, %r7, %r8;"
        got = bench.apply(lines, "u4", a)
        want = []
        for i in range(64):
            source, good = shuffled(mode, i % 32, b, control)
            want.append((i // 32 * 32 + source) * 3 + 1 + (1000 if good else 0))
        assert got.tolist() == want


def test_votes_and_ballots(bench: Any):
    a = np.array([i % 3 for i in range(32)] + [1] * 32 + [0] * 32, "u4")
    lines = """setp.ne.u32 %p1, %a, 0; vote.sync.ballot.b32 %r5, %p1, -1; vote.sync.all.pred %p2, %p1, -1; vote.sync.any.pred %p3, %p1, -1;
    vote.sync.uni.pred %p4, %p1, -1; popc.b32 %r5, %r5; selp.u32 %r6, 100, 0, %p2; selp.u32 %r7, 1000, 0, %p3; selp.u32 %r8, 10000, 0, %p4;
    add.u32 %r5, %r5, %r6; add.u32 %r5, %r5, %r7; add.u32 %d, %r5, %r8;"""
    got = bench.apply(lines, "u4", a)
    assert got[[0, 32, 64]].tolist() == [21 + 1000, 32 + 100 + 1000 + 10000, 10000]


def test_matching_lanes(bench: Any):
    a = np.array([i % 5 for i in range(32)] + [9] * 32, "u4")
    got = bench.apply("match.any.sync.b32 %d, %a, -1;", "u4", a)
    assert got[:32].tolist() == [sum(1 << j for j in range(32) if j % 5 == i % 5) for i in range(32)]
    got = bench.apply("match.all.sync.b32 %r5|%p1, %a, -1; selp.b32 %d, %r5, 7, %p1;", "u4", a)
    assert got[[0, 32]].tolist() == [7, 0xFFFF_FFFF]


@pytest.mark.parametrize(
    ("op", "reference"),
    [
        ("add.u32", lambda v: sum(v) % 2**32),
        ("min.s32", min),
        ("max.s32", max),
        ("and.b32", None),
        ("min.u32", None),
        ("xor.b32", None),
    ],
)
def test_reductions_over_a_warp(bench: Any, ints: Any, op: Any, reference: Any):
    a = ints(32, 96, 1)
    got = bench.apply(f"redux.sync.{op} %d, %a, -1;", "u4", a)
    for w in range(3):
        part = a[32 * w : 32 * w + 32]
        if op == "and.b32":
            want = int(np.bitwise_and.reduce(part))
        elif op == "xor.b32":
            want = int(np.bitwise_xor.reduce(part))
        elif op == "min.u32":
            want = int(part.min())
        elif op == "add.u32":
            want = sum(part.tolist()) % 2**32
        else:
            want = reference(part.view("i4").tolist()) % 2**32
        assert got[32 * w : 32 * w + 32].tolist() == [want] * 32


def test_lane_masks_and_active_lanes(bench: Any):
    a = np.arange(32, dtype="u4")
    assert bench.apply("mov.u32 %d, %lanemask_lt;", "u4", a).tolist() == [(1 << i) - 1 for i in range(32)]
    got = bench.apply("setp.lt.u32 %p1, %a, 9; mov.u32 %d, 0; @!%p1 bra S; activemask.b32 %d; S:", "u4", a)
    assert got.tolist() == [511] * 9 + [0] * 23
    got = bench.apply("elect.sync %r5|%p1, -1; selp.u32 %d, 1, 0, %p1;", "u4", a)
    assert got.tolist() == [1] + [0] * 31


GROUPS = "match.any.sync.b32 %r5, %a, -1; "
"""Makes %r5 the mask of a lane's own group: lanes with the same %a."""


def grouped(a: Any, reference: Any) -> list[int]:
    return [reference([j for j in range(32) if a[j] == a[i]]) for i in range(32)]


def test_subgroups_of_a_warp_reduce_separately(bench: Any):
    a = np.array([i % 5 for i in range(32)], "u4")
    got = bench.apply(GROUPS + "mov.u32 %r6, %laneid; redux.sync.add.u32 %d, %r6, %r5;", "u4", a)
    assert got.tolist() == grouped(a, sum)
    got = bench.apply(GROUPS + "mov.u32 %r6, %laneid; redux.sync.max.u32 %d, %r6, %r5;", "u4", a)
    assert got.tolist() == grouped(a, max)


def test_subgroups_of_a_warp_vote_and_elect_separately(bench: Any):
    a = np.array([i % 5 for i in range(32)], "u4")
    lines = GROUPS + "mov.u32 %r6, %laneid; setp.lt.u32 %p1, %r6, 7; vote.sync.ballot.b32 %d, %p1, %r5;"
    assert bench.apply(lines, "u4", a).tolist() == grouped(a, lambda g: sum(1 << j for j in g if j < 7))
    lines = GROUPS + "setp.eq.u32 %p1, %a, 3; vote.sync.all.pred %p2, %p1, %r5; selp.u32 %d, 1, 0, %p2;"
    assert bench.apply(lines, "u4", a).tolist() == [int(v == 3) for v in a]
    got = bench.apply(GROUPS + "elect.sync %d|%p1, %r5;", "u4", a)
    assert got.tolist() == grouped(a, min)


def test_subgroups_of_a_warp_match_separately(bench: Any):
    a = np.array([i % 5 for i in range(32)], "u4")
    lines = (
        GROUPS
        + "mov.u32 %r6, %laneid; shr.u32 %r6, %r6, 4; match.all.sync.b32 %r7|%p1, %r6, %r5; mov.u32 %d, %r7;"
    )
    assert bench.apply(lines, "u4", a).tolist() == [0] * 32
    lines = GROUPS + "mov.u32 %r6, %laneid; shr.u32 %r6, %r6, 4; match.any.sync.b32 %d, %r6, %r5;"
    want = [sum(1 << j for j in range(32) if j % 5 == i % 5 and j // 16 == i // 16) for i in range(32)]
    assert bench.apply(lines, "u4", a).tolist() == want


def test_lanes_reconverge_after_longer_paths_and_exits(bench: Any):
    a = np.arange(32, dtype="u4")
    lines = """mov.u32 %r5, 0; setp.lt.u32 %p1, %a, 8; @%p1 bra LEAVE; setp.lt.u32 %p2, %a, 16; @%p2 bra LONG;
    MEET: vote.sync.ballot.b32 %d, %p2, -1; bra STORE;
    LONG: add.u32 %r5, %r5, 1; setp.lt.u32 %p3, %r5, %a; @%p3 bra LONG; bra MEET;
    LEAVE: ret; STORE:"""
    assert bench.apply(lines, "u4", a).tolist() == [0] * 8 + [0xFF00] * 24


def test_a_predicate_takes_part_in_a_warp_operation_as_a_branch_does(bench: Any):
    a = np.arange(32, dtype="u4")
    lines = "mov.u32 %d, 5; setp.lt.u32 %p1, %a, 8; @%p1 redux.sync.add.u32 %d, %a, 255;"
    assert bench.apply(lines, "u4", a).tolist() == [28] * 8 + [5] * 24


HEAD = ".version 8.0\n.target sm_90\n.address_size 64\n"
REGS = ".reg .pred %p<16>; .reg .b16 %h<16>; .reg .b32 %r<64>; .reg .b64 %rd<32>;\n"
START = "mov.u32 %r0, %tid.x; ld.param.u64 %rd0, [out]; mad.wide.u32 %rd1, %r0, 4, %rd0;\n"


def kernel(body: Any, shared: Any = 4096):
    return f"{HEAD}.visible .entry k(.param .u64 out) {{ .shared .align 128 .b8 s[{shared}];\n{REGS}{START}{body}\n}}"


@pytest.mark.parametrize("trans", [False, True])
def test_matrices_are_loaded_from_rows_in_shared_memory(bench: Any, trans: Any):
    body = f"""mov.u32 %r1, s; mad.lo.u32 %r2, %r0, 16, %r1; mul.lo.u32 %r3, %r0, 8; mov.u32 %r4, 0;
F:  add.u32 %r5, %r3, %r4; cvt.u16.u32 %h1, %r5; mad.lo.u32 %r6, %r4, 2, %r2; st.shared.u16 [%r6], %h1; add.u32 %r4, %r4, 1;
    setp.lt.u32 %p0, %r4, 8; @%p0 bra F; bar.sync 0;
    ldmatrix.sync.aligned.m8n8.x4{".trans" if trans else ""}.shared.b16 {{%r10, %r11, %r12, %r13}}, [%r2];
    mad.wide.u32 %rd2, %r0, 16, %rd0; st.global.v4.b32 [%rd2], {{%r10, %r11, %r12, %r13}};
    movmatrix.sync.aligned.m8n8.trans.b16 %r14, %r10; st.global.b32 [%rd1+512], %r14; ret;"""
    out = bench.new(np.zeros(160, "u4"), "u4")
    assert bench.run(kernel(body), "k", 1, 32, out).fault is None
    matrices = np.arange(256).reshape(4, 8, 8)
    for lane in range(32):
        for i in range(4):
            matrix = matrices[i].T if trans else matrices[i]
            low, high = matrix[lane // 4, lane % 4 * 2 : lane % 4 * 2 + 2]
            assert out[4 * lane + i] == low | high << 16
        turned = matrices[0] if trans else matrices[0].T
        low, high = turned[lane // 4, lane % 4 * 2 : lane % 4 * 2 + 2]
        assert out[128 + lane] == low | high << 16




def test_copy_groups_complete_in_order_and_short_copies_fill_with_zeros(bench: Any):
    body = """mov.u32 %r1, s; mad.lo.u32 %r2, %r0, 4, %r1; st.shared.u32 [%r2], 9; st.shared.u32 [%r2+128], 9;
    cp.async.ca.shared.global [%r2], [%rd1+256], 4; cp.async.commit_group; cp.async.ca.shared.global [%r2+128], [%rd1+384], 4, 2;
    cp.async.commit_group; cp.async.wait_group 1; ld.shared.u32 %r4, [%r2]; ld.shared.u32 %r5, [%r2+128]; cp.async.wait_all;
    ld.shared.u32 %r6, [%r2+128]; mad.lo.u32 %r4, %r5, 1000, %r4; mad.lo.u32 %r4, %r6, 100000, %r4; st.global.u32 [%rd1], %r4; ret;"""
    out = bench.new(np.concatenate([np.zeros(64), np.arange(32), np.arange(32) + (7 << 16)]), "u4")
    assert bench.run(kernel(body), "k", 1, 32, out).fault is None
    assert out[:32].tolist() == [t + 9000 + 100000 * t for t in range(32)]


