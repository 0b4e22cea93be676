"""Whole PTX kernels on the emulator, also in a forked child of a process that ran kernels."""

# ruff: noqa: E501 - summaries and tables that name their parameters read best on one line

from __future__ import annotations

import subprocess
import sys
import textwrap
from typing import Any

import numpy as np
import pytest

from emulator.simt.engine import Settings
from emulator.simt.work import LaunchOptions
from hcq.config import config
from tests.limits import CHILD_S, HANG_S

HEAD = ".version 8.0\n.target sm_80\n.address_size 64\n"
INDEX = "mov.u32 %r0, %ctaid.x; mov.u32 %r1, %ntid.x; mov.u32 %r2, %tid.x; mad.lo.s32 %r3, %r0, %r1, %r2;\n"
REGS = ".reg .pred %p<16>; .reg .b16 %h<16>; .reg .b32 %r<64>; .reg .b64 %rd<32>; .reg .f32 %f<32>;\n"


def kernel(body: str, params: str = ".param .u64 out", before: str = "") -> str:
    return f"{HEAD}{before}\n.visible .entry k({params}) {{\n{REGS}{INDEX}ld.param.u64 %rd0, [out];\nmad.wide.u32 %rd1, %r3, 4, %rd0;\n{body}\n}}\n"


COLLATZ = """
    add.u32 %r4, %r3, 1; mov.u32 %r5, 0;
LOOP: setp.eq.u32 %p0, %r4, 1; @%p0 bra DONE;
    and.b32 %r6, %r4, 1; setp.eq.u32 %p1, %r6, 0; @%p1 bra EVEN;
    mad.lo.u32 %r4, %r4, 3, 1; add.u32 %r5, %r5, 1; bra LOOP;
EVEN: shr.u32 %r4, %r4, 1; add.u32 %r5, %r5, 1; bra LOOP;
DONE: st.global.u32 [%rd1], %r5; ret;"""


def collatz(n: int) -> int:
    steps = 0
    while n != 1:
        n, steps = (n // 2 if n % 2 == 0 else 3 * n + 1), steps + 1
    return steps


def test_lanes_of_a_warp_may_loop_differently_often(bench: Any):
    out = bench.new(np.zeros(300, "u4"), "u4")
    assert bench.run(kernel(COLLATZ), "k", 3, 100, out).fault is None
    assert out.tolist() == [collatz(i + 1) for i in range(300)]


def test_metamorphic_settings_change_no_bit(bench: Any):
    results = []
    for bits in (0, 256):
        for tier in ("quick", "optimised"):
            for order in ("forward", "reverse", 7):
                out = bench.new(np.zeros(512, "u4"), "u4")
                settings = Settings(vector_bits=bits, cache=config().cache)
                options = LaunchOptions(
                    tier=tier, warp_order=order, threads=1 + (order == 7), group_seed=3 if order == 7 else 0
                )
                assert (
                    bench.run(kernel(COLLATZ), "k", 4, 128, out, settings=settings, options=options).fault
                    is None
                )
                results.append(out.tolist())
    assert all(r == results[0] for r in results)


def test_irreducible_flow_and_nested_divergence(bench: Any):
    body = """mov.u32 %r4, 0; mov.u32 %r5, 0; and.b32 %r6, %r3, 1; setp.ne.u32 %p0, %r6, 0; @%p0 bra B;
A: add.u32 %r4, %r4, 1;
B: add.u32 %r5, %r5, 3; add.u32 %r4, %r4, %r5; setp.lt.u32 %p1, %r5, %r3; @%p1 bra A;
    and.b32 %r7, %r4, 3; setp.eq.u32 %p2, %r7, 0; @%p2 bra Z; setp.eq.u32 %p3, %r7, 1; @%p3 bra Y;
    add.u32 %r4, %r4, 1000; bra Z;
Y:  add.u32 %r4, %r4, 50;
Z:  st.global.u32 [%rd1], %r4; ret;"""

    def reference(i: int) -> int:
        a, b, enter = 0, 0, i & 1
        while True:
            if not enter:
                a += 1
            enter = 0
            b += 3
            a += b
            if b >= i:
                break
        return a if a & 3 == 0 else a + 50 if a & 3 == 1 else a + 1000

    out = bench.new(np.zeros(256, "u4"), "u4")
    bench.run(kernel(body), "k", 2, 128, out)
    assert out.tolist() == [reference(i) for i in range(256)]


def test_indexed_branches(bench: Any):
    body = """and.b32 %r4, %r3, 3; TAB: .branchtargets L0, L1, L2, L1; brx.idx %r4, TAB;
L0: mov.u32 %r5, 10; bra E; L1: mov.u32 %r5, 20; bra E; L2: mov.u32 %r5, 30; E: st.global.u32 [%rd1], %r5; ret;"""
    out = bench.new(np.zeros(64, "u4"), "u4")
    bench.run(kernel(body), "k", 1, 64, out)
    assert out.tolist() == [(10, 20, 30, 20)[i & 3] for i in range(64)]


def test_barriers_order_shared_memory(bench: Any):
    body = """mov.u32 %r4, s; mad.lo.u32 %r5, %r2, 4, %r4; st.shared.u32 [%r5], %r2; bar.sync 0;
    xor.b32 %r6, %r2, 200; rem.u32 %r6, %r6, %r1; mad.lo.u32 %r7, %r6, 4, %r4; ld.shared.u32 %r8, [%r7]; st.global.u32 [%rd1], %r8; ret;"""
    out = bench.new(np.zeros(500, "u4"), "u4")
    bench.run(kernel(body, before=".shared .align 4 .b8 s[2000];"), "k", 2, 250, out)
    assert out.tolist() == [(t ^ 200) % 250 for _ in range(2) for t in range(250)]


def test_threads_that_left_do_not_hold_up_a_barrier(bench: Any):
    body = """setp.ge.u32 %p0, %r2, 70; @%p0 ret; mov.u32 %r4, s; mad.lo.u32 %r5, %r2, 4, %r4; st.shared.u32 [%r5], %r2; bar.sync 0;
    sub.u32 %r6, 69, %r2; mad.lo.u32 %r5, %r6, 4, %r4; ld.shared.u32 %r8, [%r5]; st.global.u32 [%rd1], %r8; ret;"""
    out = bench.new(np.zeros(128, "u4"), "u4")
    assert bench.run(kernel(body, before=".shared .align 4 .b8 s[512];"), "k", 1, 128, out).fault is None
    assert out.tolist() == [69 - t for t in range(70)] + [0] * 58


def test_a_barrier_may_be_reached_in_divergent_code(bench: Any):
    body = """and.b32 %r4, %r2, 1; setp.eq.u32 %p0, %r4, 0; mov.u32 %r5, 1; @%p0 bra X; barrier.sync 1; add.u32 %r5, %r5, 10; bra J;
X: barrier.sync 1; add.u32 %r5, %r5, 20;
J: barrier.sync 0; st.global.u32 [%rd1], %r5; ret;"""
    out = bench.new(np.zeros(64, "u4"), "u4")
    assert bench.run(kernel(body), "k", 1, 64, out).fault is None
    assert out.tolist() == [21 if t % 2 == 0 else 11 for t in range(64)]


def test_barrier_votes(bench: Any):
    body = """setp.lt.u32 %p0, %r2, 50; bar.red.popc.u32 %r4, 0, %p0; bar.red.and.pred %p1, 0, %p0; bar.red.or.pred %p2, 0, !%p0;
    selp.u32 %r5, 1000, 0, %p1; selp.u32 %r6, 2000, 0, %p2; add.u32 %r4, %r4, %r5; add.u32 %r4, %r4, %r6; st.global.u32 [%rd1], %r4; ret;"""
    out = bench.new(np.zeros(96, "u4"), "u4")
    bench.run(kernel(body), "k", 1, 96, out)
    assert out.tolist() == [2050] * 96


def test_named_barriers_pair_producers_with_consumers(bench: Any):
    body = """mov.u32 %r4, s; setp.ge.u32 %p0, %r2, 32; @%p0 bra CONSUME;
    mov.u32 %r9, 0;
P:  mad.lo.u32 %r5, %r2, 4, %r4; mad.lo.u32 %r6, %r9, 100, %r2; st.shared.u32 [%r5], %r6; bar.arrive 1, 64; bar.sync 2, 64;
    add.u32 %r9, %r9, 1; setp.lt.u32 %p1, %r9, 5; @%p1 bra P; ret;
CONSUME: mov.u32 %r9, 0; mov.u32 %r10, 0; sub.u32 %r11, 63, %r2;
C:  bar.sync 1, 64; mad.lo.u32 %r5, %r11, 4, %r4; ld.shared.u32 %r6, [%r5]; add.u32 %r10, %r10, %r6; bar.arrive 2, 64;
    add.u32 %r9, %r9, 1; setp.lt.u32 %p1, %r9, 5; @%p1 bra C; st.global.u32 [%rd1], %r10; ret;"""
    out = bench.new(np.zeros(64, "u4"), "u4")
    assert bench.run(kernel(body, before=".shared .align 4 .b8 s[128];"), "k", 1, 64, out).fault is None
    assert out[32:].tolist() == [5 * (63 - t) + 1000 for t in range(32, 64)]


def test_a_lock_within_one_warp_makes_progress(bench: Any):
    body = """mov.u32 %r10, 0;
TRY: atom.global.cas.b32 %r4, [%rd0], 0, 1; setp.ne.u32 %p0, %r4, 0; @%p0 bra TRY;
    ld.volatile.global.u32 %r5, [%rd0+4]; add.u32 %r5, %r5, 1; st.volatile.global.u32 [%rd0+4], %r5;
    membar.gl; atom.global.exch.b32 %r6, [%rd0], 0; ret;"""
    out = bench.new(np.zeros(2, "u4"), "u4")
    assert bench.run(kernel(body), "k", 3, 96, out, options=LaunchOptions(timeout_s=HANG_S)).fault is None
    assert out.tolist() == [0, 288]


def test_a_barrier_across_the_grid_keeps_all_blocks_resident(bench: Any):
    body = """setp.ne.u32 %p0, %r2, 0; @%p0 bra W; atom.global.add.u32 %r4, [%rd0], 1;
S:  ld.acquire.gpu.global.u32 %r5, [%rd0]; setp.lt.u32 %p1, %r5, 20; @%p1 bra S;
W:  bar.sync 0; st.global.u32 [%rd1+4], %r0; ret;"""
    out = bench.new(np.zeros(641, "u4"), "u4")
    assert bench.run(kernel(body), "k", 20, 32, out, options=LaunchOptions(timeout_s=HANG_S)).fault is None
    assert out[0] == 20
    assert out[1:].tolist() == [b for b in range(20) for _ in range(32)]


def test_device_functions_calls_and_local_arrays(bench: Any):
    before = """
.func (.param .b32 r) square(.param .b32 x) { .reg .b32 %a<3>; ld.param.b32 %a1, [x]; mul.lo.s32 %a2, %a1, %a1; st.param.b32 [r], %a2; ret; }
.func (.reg .b32 res) pick(.reg .b32 v, .reg .b32 w) { .reg .pred %q; setp.gt.s32 %q, v, w; @%q bra BIG; mov.b32 res, w; ret; BIG: mov.b32 res, v; ret; }
"""
    body = """.local .align 8 .b8 depot[64]; mov.u64 %rd5, depot;
    { .param .b32 p0; .param .b32 q0; st.param.b32 [p0], %r3; call.uni (q0), square, (p0); ld.param.b32 %r4, [q0]; }
    call (%r5), pick, (%r4, 50);
    and.b32 %r6, %r3, 15; mad.wide.u32 %rd6, %r6, 4, %rd5; st.local.u32 [%rd6], %r5; cvta.local.u64 %rd7, %rd6; ld.u32 %r7, [%rd7];
    st.global.u32 [%rd1], %r7; ret;"""
    out = bench.new(np.zeros(64, "u4"), "u4")
    assert bench.run(kernel(body, before=before), "k", 2, 32, out).fault is None
    assert out.tolist() == [max(i * i, 50) for i in range(64)]


def test_global_and_constant_variables_are_initialised(bench: Any):
    before = """.const .align 4 .u32 table[4] = {5, 6, 7, 8};
.global .align 8 .u64 where = generic(table) + 4;
.global .align 4 .u32 counter = 3;"""
    body = """mov.u64 %rd4, where; ld.global.u64 %rd5, [%rd4]; ld.u32 %r4, [%rd5]; mov.u64 %rd6, table; ld.const.u32 %r5, [%rd6+12];
    ld.global.u32 %r6, [counter]; add.u32 %r4, %r4, %r5; add.u32 %r4, %r4, %r6; st.global.u32 [%rd1], %r4; ret;"""
    out = bench.new(np.zeros(32, "u4"), "u4")
    assert bench.run(kernel(body, before=before), "k", 1, 32, out).fault is None
    assert out.tolist() == [6 + 8 + 3] * 32


def test_generic_addresses_reach_every_space(bench: Any):
    body = """mov.u32 %r4, s; mad.lo.u32 %r4, %r2, 4, %r4; cvt.u64.u32 %rd4, %r4; cvta.shared.u64 %rd5, %rd4; st.u32 [%rd5], %r2; bar.sync 0;
    and.b32 %r5, %r2, 1; setp.eq.u32 %p0, %r5, 0; selp.b64 %rd6, %rd5, %rd1, %p0; ld.u32 %r6, [%rd6]; add.u32 %r6, %r6, 5;
    isspacep.shared %p1, %rd6; selp.u32 %r7, 100, 200, %p1; add.u32 %r6, %r6, %r7; st.global.u32 [%rd1], %r6; ret;"""
    out = bench.new(np.full(64, 7, "u4"), "u4")
    assert bench.run(kernel(body, before=".shared .align 4 .b8 s[256];"), "k", 1, 64, out).fault is None
    assert out.tolist() == [t + 105 if t % 2 == 0 else 212 for t in range(64)]


def test_vector_loads_and_stores(bench: Any):
    body = """mad.wide.u32 %rd3, %r3, 16, %rd0; ld.global.v4.u32 {%r4, %r5, %r6, %r7}, [%rd3]; add.u32 %r4, %r4, %r7;
    setp.lt.u32 %p0, %r3, 40; @%p0 st.global.v4.b32 [%rd3], {%r7, %r6, %r5, %r4}; ret;"""
    out = bench.new(np.arange(256), "u4")
    bench.run(kernel(body), "k", 1, 64, out)
    want = np.arange(256, dtype="u4").reshape(64, 4)
    want = np.stack([want[:, 3], want[:, 2], want[:, 1], want[:, 0] + want[:, 3]], 1)
    want[40:] = np.arange(256).reshape(64, 4)[40:]
    assert out.reshape(64, 4).tolist() == want.tolist()


def test_narrow_loads_extend_by_their_type(bench: Any):
    body = "cvt.u64.u32 %rd3, %r3; add.u64 %rd3, %rd3, %rd0; ld.global.s8 %r4, [%rd3+256]; st.global.u32 [%rd1], %r4; ret;"
    raw = bench.new(np.zeros(80, "u4"), "u4")
    raw[64:].view("u1")[:] = np.arange(64) * 4
    bench.run(kernel(body), "k", 1, 64, raw)
    assert raw[:64].view("i4").tolist() == (np.arange(64) * 4).astype("u1").view("i1").tolist()


def test_dynamic_shared_memory_begins_where_the_static_ends(bench: Any):
    body = """mov.u32 %r4, dyn; mov.u32 %r5, %dynamic_smem_size; mad.lo.u32 %r6, %r2, 4, %r4; st.shared.u32 [%r6], %r2; ld.shared.u32 %r7, [%r6];
    add.u32 %r7, %r7, %r4; add.u32 %r7, %r7, %r5; st.global.u32 [%rd1], %r7; ret;"""
    before = ".shared .align 4 .b8 fixed[20];\n.extern .shared .align 16 .b8 dyn[];"
    out = bench.new(np.zeros(32, "u4"), "u4")
    assert (
        bench.run(kernel("mov.u32 %r9, fixed;" + body, before=before), "k", 1, 32, out, shared=128).fault
        is None
    )
    assert out.tolist() == [32 + 128 + t for t in range(32)]


def test_threads_of_the_host_share_atomics(bench: Any):
    out = bench.new(np.zeros(1, "u4"), "u4")
    bench.run(
        kernel("red.global.add.u32 [%rd0], 1; ret;"), "k", 500, 64, out, options=LaunchOptions(threads=2)
    )
    assert out[0] == 32000


def test_block_and_grid_shapes_reach_the_kernel(bench: Any):
    from emulator.nv.ptx.module import launch, load_ptx

    text = (
        HEAD
        + ".visible .entry k(.param .u64 out) {"
        + REGS
        + """
    mov.u32 %r0, %tid.x; mov.u32 %r1, %tid.y; mov.u32 %r2, %tid.z; mov.u32 %r3, %ntid.x; mov.u32 %r4, %ntid.y; mov.u32 %r5, %ntid.z;
    mad.lo.u32 %r6, %r2, %r4, %r1; mad.lo.u32 %r6, %r6, %r3, %r0;
    mov.u32 %r7, %ctaid.x; mov.u32 %r8, %ctaid.y; mov.u32 %r9, %ctaid.z; mov.u32 %r10, %nctaid.x; mov.u32 %r11, %nctaid.y;
    mad.lo.u32 %r12, %r9, %r11, %r8; mad.lo.u32 %r12, %r12, %r10, %r7; mul.lo.u32 %r13, %r3, %r4; mul.lo.u32 %r13, %r13, %r5;
    mad.lo.u32 %r14, %r12, %r13, %r6; ld.param.u64 %rd0, [out]; mad.wide.u32 %rd1, %r14, 4, %rd0; mov.u32 %r15, %nctaid.z;
    mad.lo.u32 %r16, %r14, 10, %r15; st.global.u32 [%rd1], %r16; ret; }"""
    )
    out = bench.new(np.zeros(2 * 3 * 4 * 5 * 3 * 2, "u4"), "u4")
    k = load_ptx(text, arch="sm_90", settings=bench.settings).kernel("k")
    assert (
        launch(k, (2, 3, 4), (5, 3, 2), out.ctypes.data.to_bytes(8, "little"), memory=bench.memory).fault
        is None
    )
    assert out.tolist() == [10 * i + 4 for i in range(out.size)]


PROGRAM = textwrap.dedent(
    """
    import os
    import signal
    from emulator.simt.work import LaunchOptions
    from emulator.ir.report import ReportKind
    from tests.emulator.nv.conftest import Bench

    def run(body, limit):
        head = ".version 8.0\\n.target sm_90\\n.address_size 64\\n.visible .entry k() {"
        return Bench().run(head + body + "}", "k", 1, 32, options=LaunchOptions(timeout_s=limit)).fault

    assert run("ret;", 200.0) is None
    child = os.fork()
    if not child:
        signal.alarm(1000)  # should it hang, it must not outlive the test
        os._exit(0 if run("L: bra L;", 0.2).kind is ReportKind.HANG else 1)
    raise SystemExit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    """
)


@pytest.mark.slow
def test_kernel_that_never_ends_is_stopped_in_a_forked_child() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], timeout=CHILD_S, check=False, capture_output=True)
    assert done.returncode == 0, done.stderr.decode()
