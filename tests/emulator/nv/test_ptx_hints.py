"""Advice to the caches is checked and changes nothing; parameters at computed addresses; predicates of lop3; barriers under a predicate."""

# ruff: noqa: E501 - summaries and tables that name their parameters read best on one line

from __future__ import annotations

import struct
from typing import Any

import numpy as np
import pytest

from emulator.ir.report import ReportKind
from emulator.nv.ptx.module import launch, load_ptx
from emulator.nv.ptx.statements import PtxError

HEAD = ".version 8.7\n.target sm_90\n.address_size 64\n"
REGS = ".reg .pred %p<8>; .reg .b16 %h<8>; .reg .b32 %r<32>; .reg .b64 %rd<16>;\n"


def kernel(body: str) -> str:
    return f"""{HEAD}.visible .entry k(.param .u64 out) {{ .shared .align 128 .b8 s[1024];\n{REGS} mov.u32 %r0, %tid.x;
    ld.param.u64 %rd0, [out]; mad.wide.u32 %rd1, %r0, 4, %rd0; {body} ret; }}"""


def aligned(bench: Any, count: int) -> Any:
    """Return words that begin at a line of the cache."""
    raw = np.zeros(count + 32, "u4")
    at = -(raw.ctypes.data // 4) % 32
    return bench.map(raw[at : at + count])


GOOD = """createpolicy.fractional.L2::evict_last.L2::evict_unchanged.b64 %rd2, 0.5; createpolicy.range.global.L2::evict_last.L2::evict_first.b64 %rd3, [%rd0], 64, 256;
    createpolicy.cvt.L2.b64 %rd4, %rd2; prefetch.global.L1 [%rd0]; prefetch.local.L2 [%rd0]; prefetch.global.L2::evict_last [%rd0+4096]; prefetchu.L1 [%rd0];
    applypriority.global.L2::evict_normal [%rd0], 128; ld.global.nc.L1::no_allocate.L2::cache_hint.L2::256B.u32 %r1, [%rd1], %rd2;
    ld.global.cv.u32 %r2, [%rd1]; add.u32 %r1, %r1, %r2; st.global.L1::evict_first.L2::cache_hint.u32 [%rd1], %r1, %rd4; red.global.add.L2::cache_hint.u32 [%rd1], 1, %rd3;"""


def test_advice_changes_nothing(bench: Any) -> None:
    out = aligned(bench, 64)
    out[:32] = np.arange(32)
    assert bench.run(kernel(GOOD), "k", 1, 32, out).fault is None
    assert out[:32].tolist() == [2 * i + 1 for i in range(32)]


def test_discarded_lines_are_lost(bench: Any) -> None:
    out = aligned(bench, 64)
    out[:] = 5
    assert bench.run(kernel("discard.global.L2 [%rd0+128], 128;"), "k", 1, 1, out).fault is None
    assert out[:32].tolist() == [5] * 32
    assert 5 not in out[32:]


def test_lines_that_are_not_there_are_reported(bench: Any) -> None:
    out = aligned(bench, 64)
    for line, kind in (
        ("discard.global.L2 [%rd0+64], 128;", ReportKind.MISALIGNED),
        ("applypriority.global.L2::evict_normal [%rd0+256], 128;", ReportKind.OUT_OF_BOUNDS),
    ):
        assert bench.run(kernel(line), "k", 1, 1, out).fault.kind is kind


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("prefetch.shared.L1 [s];", "shared is not supported"),
        ("prefetch.global [%rd0];", "needs one of"),
        ("prefetch.global.L1.nc [%rd0];", "nc"),
        ("prefetch.shared.tensormap [%rd0];", "shared"),
        ("applypriority.global.L2::evict_last [%rd0], 128;", "evict_normal"),
        ("applypriority.global.L2::evict_normal [%rd0], 64;", "128"),
        ("discard.global.L1 [%rd0], 128;", "L2"),
        ("createpolicy.fractional.L1::evict_last.b64 %rd1, 0.5;", "L2::evict_last"),
        ("createpolicy.range.L2::evict_last.b64 %rd1, [%rd0];", "4 operands"),
        ("ld.shared.L1::evict_last.u32 %r1, [s];", "cache hint"),
        ("ld.global.wt.u32 %r1, [%rd0];", "wt"),
        ("st.global.nc.u32 [%rd0], %r1;", "nc"),
        ("st.bulk.weak.shared::cta [%rd0], 128, 0;", "st.bulk"),
        ("suld.b.1d.b32.trap {%r1}, [%rd0, {%r2}];", "suld.b.1d.b32.trap"),
    ],
)
def test_advice_that_is_malformed_is_refused(bench: Any, line: str, message: str) -> None:
    with pytest.raises(PtxError, match=message):
        bench.run(kernel(line), "k", 1, 1, aligned(bench, 64))


PARAMS = f"""{HEAD}.visible .entry k(.param .u64 out, .param .align 4 .b8 table[24]) {{ {REGS} mov.u32 %r0, %tid.x;
    ld.param.u64 %rd0, [out]; mad.wide.u32 %rd1, %r0, 8, %rd0; mov.b64 %rd2, table; mad.wide.u32 %rd3, %r0, 4, %rd2;
    ld.param.u32 %r1, [%rd3]; ld.param.v2.u16 {{%h1, %h2}}, [%rd3]; cvt.u32.u16 %r2, %h2; st.global.v2.u32 [%rd1], {{%r1, %r2}}; ret; }}"""


@pytest.mark.parametrize("threads", [6, 7])
def test_parameters_at_addresses_in_registers(bench: Any, threads: int) -> None:
    out = bench.new(np.zeros(16), "u4")
    table = np.arange(6, dtype="u4") * 0x10003 + 7
    module = load_ptx(PARAMS, arch="sm_90", settings=bench.settings)
    raw = struct.pack("<Q", out.ctypes.data) + table.tobytes()
    done = launch(module.kernel("k"), (1, 1, 1), (threads, 1, 1), raw, memory=bench.memory)
    if threads == 7:
        assert done.fault is not None
        assert done.fault.kind is ReportKind.PARAM_OUT_OF_BOUNDS
        assert done.fault.thread == (6, 0, 0)
    else:
        assert out[:12].tolist() == [v for word in table.tolist() for v in (word, word >> 16)]


@pytest.mark.sampled(5)
@pytest.mark.parametrize("op", ["or", "and"])
def test_lop3_returns_whether_any_bit_is_set(any_bench: Any, ints: Any, op: str) -> None:
    a, b = ints(32, 200, 1), ints(32, 200, 2)
    for table in (0x1E, 0x80, 0, 0xFE):
        lines = f"""setp.lt.u32 %p1, %b, 64; lop3.{op}.b32 %r5|%p2, %a, %b, 255, {table}, !%p1; lop3.b32.{op} _|%p3, %a, %b, 255, {table}, %p1;
        and.b32 %r5, %r5, 0x3fffffff; selp.u32 %r6, 0x40000000, 0, %p2; selp.u32 %r7, 0x80000000, 0, %p3; or.b32 %r5, %r5, %r6; or.b32 %d, %r5, %r7;"""
        got = any_bench.apply(lines, "u4", a, b)
        for x, y, d in zip(a.tolist(), b.tolist(), got.tolist(), strict=True):
            full = sum(
                1 << i
                for i in range(32)
                if table >> ((x >> i & 1) << 2 | (y >> i & 1) << 1 | (255 >> i & 1)) & 1
            )
            p, some = y < 64, full != 0
            first, second = (some or not p, some or p) if op == "or" else (some and not p, some and p)
            assert d == full & 0x3FFF_FFFF | first << 30 | second << 31


def test_a_barrier_under_a_predicate_is_for_those_who_reach_it(bench: Any) -> None:
    """Two of four warps arrive at barrier 1; the others never do."""
    body = """mov.u32 %r2, s; shr.u32 %r1, %r0, 5; setp.lt.u32 %p1, %r1, 2; mad.lo.u32 %r3, %r0, 4, %r2; st.shared.u32 [%r3], %r0;
    @%p1 bar.sync 1, 64; xor.b32 %r4, %r0, 32; mad.lo.u32 %r4, %r4, 4, %r2; @%p1 ld.shared.u32 %r5, [%r4]; st.global.u32 [%rd1], %r5;"""
    out = bench.new(np.zeros(128), "u4")
    assert (
        bench.run(
            kernel(body.replace("mov.u32 %r2, s;", "mov.u32 %r2, s; mov.u32 %r5, 9;")), "k", 1, 128, out
        ).fault
        is None
    )
    assert out.tolist() == [t ^ 32 for t in range(64)] + [9] * 64


@pytest.mark.parametrize(
    ("op", "absolute", "propagates"),
    [("min", False, False), ("max", False, True), ("min", True, True), ("max", True, False)],
)
def test_floats_are_reduced_over_a_warp(
    bench: Any, floats: Any, op: str, *, absolute: bool, propagates: bool
) -> None:
    a = floats(32, 32 * 12, 4)
    a[:32] = np.nan
    a[32:64] = np.where(np.arange(32) % 2, 0.0, -0.0)
    a[64:96] = np.abs(np.where(np.isnan(a[64:96]), 1.0, a[64:96]))
    word = op + (".abs" if absolute else "") + (".NaN" if propagates else "")
    got = bench.apply(f"redux.sync.{word}.f32 %d, %a, -1;", "u4", a, arch="sm_100").reshape(-1, 32)
    for w, part in enumerate(a.reshape(-1, 32)):
        values = np.abs(part) if absolute else part
        known = values[~np.isnan(values)]
        if not len(known) or (propagates and len(known) < 32):
            want = 0x7FFF_FFFF
        else:
            # -0 is below +0: compare sign and size.
            pick = sorted(known.tolist(), key=lambda v: (v, not np.signbit(v)))
            want = int(np.float32(pick[0] if op == "min" else pick[-1]).view("u4"))
        assert set(got[w].tolist()) == {want}
    with pytest.raises(PtxError, match="sm_100"):
        bench.apply("redux.sync.min.f32 %d, %a, -1;", "u4", a)


@pytest.mark.sampled(5)
@pytest.mark.parametrize("count", [1, 2, 4])
@pytest.mark.parametrize("trans", [False, True])
def test_matrices_are_stored_to_rows_in_shared_memory(any_bench: Any, count: int, *, trans: bool) -> None:
    regs = ", ".join(f"%r{10 + i}" for i in range(count))
    make = " ".join(
        f"mad.lo.u32 %r{10 + i}, %r0, 2, {64 * i}; mad.lo.u32 %r9, %r{10 + i}, 65536, 65536; add.u32 %r{10 + i}, %r{10 + i}, %r9;"
        for i in range(count)
    )
    body = f"""mov.u32 %r1, s; mad.lo.u32 %r2, %r0, 16, %r1; {make}
    stmatrix.sync.aligned.m8n8.x{count}{".trans" if trans else ""}.shared.b16 [%r2], {{{regs}}};
    ld.shared.v4.b32 {{%r4, %r5, %r6, %r7}}, [%r2]; mad.wide.u32 %rd2, %r0, 16, %rd0; st.global.v4.b32 [%rd2], {{%r4, %r5, %r6, %r7}};"""
    out = any_bench.new(np.zeros(128), "u4")
    assert any_bench.run(kernel(body), "k", 1, 32, out).fault is None
    got = out.view("u2").reshape(4, 8, 8)
    for i in range(count):
        matrix = np.arange(64).reshape(8, 8) + 64 * i
        assert got[i].tolist() == (matrix.T if trans else matrix).tolist()


def test_every_form_of_ptx_that_is_refused_is_refused_by_name() -> None:
    from tools.ptx_forms import refusal, rows

    for _, forms in rows():
        for form in forms:
            error = refusal(form)
            if error is not None:
                assert form.text.partition(" ")[0] in str(error)
                assert str(error).startswith("PTX line ")
