"""Atomics of every operation and type, scalars and vectors, on global and shared memory."""

# ruff: noqa: E501 - summaries and tables that name their parameters read best on one line

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from emulator.nv.ptx.statements import PtxError

HEAD = ".version 8.7\n.target sm_90\n.address_size 64\n"
REGS = ".reg .pred %p<8>; .reg .b16 %h<16>; .reg .b32 %r<32>; .reg .b64 %rd<16>; .reg .b128 %q<8>;\n"


def kernel(body: str) -> str:
    """Return a kernel of values `a`, more values `b`, cells `c`, old values `d`: %rd1 to %rd4 are a thread's own."""
    return f"""{HEAD}.visible .entry k(.param .u64 a, .param .u64 b, .param .u64 c, .param .u64 d) {{
    .shared .align 16 .b8 s[4096];\n{REGS} mov.u32 %r0, %tid.x;
    ld.param.u64 %rd1, [a]; ld.param.u64 %rd2, [b]; ld.param.u64 %rd3, [c]; ld.param.u64 %rd4, [d];
    {body} ret; }}"""


def run(bench: Any, body: str, *arrays: Any) -> None:
    result = bench.run(kernel(body), "k", 1, 32, *arrays)
    assert result.fault is None, result.fault


INTEGERS = {
    "add.u32": lambda x, v: x + v,
    "add.s32": lambda x, v: x + v,
    "add.u64": lambda x, v: x + v,
    "and.b32": lambda x, v: x & v,
    "or.b64": lambda x, v: x | v,
    "xor.b32": lambda x, v: x ^ v,
    "exch.b32": lambda _, v: v,
    "exch.b64": lambda _, v: v,
    "inc.u32": lambda x, v: 0 if x >= v else x + 1,
    "dec.u32": lambda x, v: v if x == 0 or x > v else x - 1,
    "min.u32": min,
    "max.u64": max,
    "min.s32": min,
    "max.s32": max,
    "max.s64": max,
}


@pytest.mark.sampled(7)
@pytest.mark.parametrize("space", ["global", "shared", ""])
@pytest.mark.parametrize("op", INTEGERS)
def test_integer_atomics_run_in_lane_order(bench: Any, ints: Any, op: str, space: str) -> None:
    bits = int(op[-2:])
    signed = ".s" in op
    values = ints(bits, 32, 1)
    cell = ints(bits, 1, 5)
    a, c, d = (
        bench.new(values, values.dtype.str),
        bench.new(cell, cell.dtype.str),
        bench.new(values, values.dtype.str),
    )
    v, old = ("%r1", "%r2") if bits == 32 else ("%rd5", "%rd6")
    size, dot = bits // 8, f".{space}" if space else ""
    there = "[s]" if space == "shared" else "[%rd3]"
    body = f"""mad.wide.u32 %rd1, %r0, {size}, %rd1; mad.wide.u32 %rd4, %r0, {size}, %rd4; ld.global.b{bits} {v}, [%rd1];
    {f"ld.global.b{bits} {old}, [%rd3]; st.shared.b{bits} [s], {old};" if space == "shared" else ""}
    atom{dot}.{op} {old}, {there}, {v}; st.global.b{bits} [%rd4], {old};
    {f"ld.shared.b{bits} {old}, [s]; st.global.b{bits} [%rd3], {old};" if space == "shared" else ""}"""
    run(bench, body, a, a, c, d)
    wrap = 1 << bits

    def read(x: int) -> int:
        return x - wrap if signed and x >= wrap // 2 else x

    now = read(int(cell[0]))
    for i in range(32):
        assert read(int(d[i])) == now
        now = read(INTEGERS[op](now, read(int(values[i]))) % wrap)
    assert read(int(c[0])) == now


def bf16_bits(x: Any) -> Any:
    """Round float32 to bf16, to nearest even."""
    raw = x.astype("f4").view("u4").astype("u8")
    rounded = ((raw + 0x7FFF + ((raw >> 16) & 1)) >> 16).astype("u2")
    return np.where(np.isnan(x), np.uint16(0x7FFF), rounded)


def wide(raw: Any, type_: str) -> Any:
    """16-bit patterns as float32."""
    return raw.view("f2").astype("f4") if type_.startswith("f16") else (raw.astype("u4") << 16).view("f4")


def narrow(x: Any, type_: str) -> Any:
    if not type_.startswith("f16"):
        return bf16_bits(x)
    with np.errstate(all="ignore"):
        return np.where(np.isnan(x), np.uint16(0x7FFF), x.astype("f2").view("u2"))


def expected(op: str, x: Any, v: Any, type_: str) -> Any:
    """Return the new value of one element, computed in float32; 16-bit sums are rounded once."""
    a, b = wide(x, type_), wide(v, type_)
    with np.errstate(all="ignore"):
        if op == "add":
            return narrow(
                (a.astype("f8") + b.astype("f8")).astype("f4") if type_.startswith("f16") else a + b, type_
            )
    if np.isnan(a) or np.isnan(b):
        return narrow(b if np.isnan(a) else a, type_)
    if a == b == 0:
        negative = np.signbit(a) or np.signbit(b) if op == "min" else np.signbit(a) and np.signbit(b)
        return narrow(np.float32(-0.0 if negative else 0.0), type_)
    return narrow(min(a, b) if op == "min" else max(a, b), type_)


@pytest.mark.sampled(5)
@pytest.mark.parametrize("type_", ["f16", "bf16", "f16x2", "bf16x2"])
@pytest.mark.parametrize("op", ["add", "min", "max"])
@pytest.mark.parametrize("opcode", ["atom", "red"])
def test_vectors_of_small_floats_are_an_atomic_each(
    bench: Any, floats: Any, op: str, type_: str, opcode: str
) -> None:
    count = 4 if type_.endswith("x2") else 8
    values = floats(16, 32 * 8, 3).view("u2").reshape(32, 8)
    cells = floats(16, 8, 4).view("u2")
    a, c, d = bench.new(values, "u2"), bench.new(cells, "u2"), bench.new(np.zeros((32, 8)), "u2")
    width, letter = (32, "r") if type_.endswith("x2") else (16, "h")
    pieces = [f"%{letter}{1 + k}" for k in range(count)]
    old = "{" + ", ".join(pieces) + "}"
    loads = " ".join(f"ld.global.b{width} {p}, [%rd1+{k * width // 8}];" for k, p in enumerate(pieces))
    stores = " ".join(f"st.global.b{width} [%rd4+{k * width // 8}], {p};" for k, p in enumerate(pieces))
    target = f"{old}, " if opcode == "atom" else ""
    body = f"""mad.wide.u32 %rd1, %r0, 16, %rd1; mad.wide.u32 %rd4, %r0, 16, %rd4; {loads}
    {opcode}.relaxed.gpu.global.{op}.noftz.v{count}.{type_} {target}[%rd3], {old}; {stores}"""
    run(bench, body, a, a, c, d)
    now = cells.copy()
    for lane in range(32):
        if opcode == "atom":
            assert d[lane].tolist() == now.tolist()
        now = np.array(
            [expected(op, now[k : k + 1], values[lane, k : k + 1], type_).reshape(-1)[0] for k in range(8)],
            "u2",
        )
    assert c.tolist() == now.tolist()


@pytest.mark.parametrize("type_", ["f16", "bf16x2"])
def test_small_floats_are_added_one_by_one(any_bench: Any, floats: Any, type_: str) -> None:
    values, cells = floats(16, 64, 8).view("u2"), floats(16, 2, 9).view("u2")
    width, letter = (32, "r") if type_.endswith("x2") else (16, "h")
    a, c, d = any_bench.new(values, "u2"), any_bench.new(cells, "u2"), any_bench.new(np.zeros(64), "u2")
    body = f"""mad.wide.u32 %rd1, %r0, 4, %rd1; mad.wide.u32 %rd4, %r0, 4, %rd4; ld.global.b{width} %{letter}1, [%rd1];
    atom.global.add.noftz.{type_} %{letter}2, [%rd3], %{letter}1; st.global.b{width} [%rd4], %{letter}2;"""
    run(any_bench, body, a, a, c, d)
    now = cells.copy()
    for lane in range(32):
        for k in range(width // 16):
            assert d[2 * lane + k] == now[k]
            at = 2 * lane + k
            now[k] = expected("add", now[k : k + 1], values[at : at + 1], type_)[0]
    assert c.tolist() == now.tolist()


@pytest.mark.parametrize(("form", "count"), [("f32", 1), ("v2.f32", 2), ("v4.f32", 4), ("f64", 1)])
def test_floats_are_added_one_by_one(any_bench: Any, floats: Any, form: str, count: int) -> None:
    bits = 64 if form == "f64" else 32
    kind, letter = f"f{bits // 8}", "rd1" if bits == 64 else "r"
    values, cells = floats(bits, 32 * count, 11).reshape(32, count), floats(bits, count, 12)
    a, c = any_bench.new(values, kind), any_bench.new(cells, kind)
    pieces = [f"%{letter}{1 + k}" for k in range(count)]
    loads = " ".join(f"ld.global.b{bits} {p}, [%rd1+{k * bits // 8}];" for k, p in enumerate(pieces))
    body = f"""mad.wide.u32 %rd1, %r0, {count * bits // 8}, %rd1; {loads}
    red.global.add.{form} [%rd3], {"{" + ", ".join(pieces) + "}" if count > 1 else pieces[0]};"""
    run(any_bench, body, a, a, c, c)
    now = cells.copy()
    with np.errstate(all="ignore"):
        for lane in range(32):
            now = now + values[lane]
    assert np.array_equal(c, now, equal_nan=True)


@pytest.mark.parametrize("space", ["global", "shared"])
def test_a_pair_of_64_bit_words_is_exchanged_at_once(any_bench: Any, ints: Any, space: str) -> None:
    values = ints(64, 64, 2)
    a, c, d = (
        any_bench.new(values, "u8"),
        any_bench.new(ints(64, 2, 3), "u8"),
        any_bench.new(np.zeros(64), "u8"),
    )
    first = c.tolist()
    there = "[s]" if space == "shared" else "[%rd3]"
    body = f"""mad.wide.u32 %rd1, %r0, 16, %rd1; mad.wide.u32 %rd4, %r0, 16, %rd4; ld.global.b128 %q0, [%rd1];
    {"ld.global.b128 %q1, [%rd3]; st.shared.b128 [s], %q1;" if space == "shared" else ""}
    atom.{space}.exch.b128 %q1, {there}, %q0; mov.b128 {{%rd5, %rd6}}, %q1; st.global.v2.b64 [%rd4], {{%rd5, %rd6}};
    {"ld.shared.b128 %q1, [s]; st.global.b128 [%rd3], %q1;" if space == "shared" else ""}"""
    run(any_bench, body, a, a, c, d)
    assert d.tolist() == first + values[:62].tolist()
    assert c.tolist() == values[62:].tolist()


def test_a_pair_of_64_bit_words_is_swapped_where_both_are_as_expected(any_bench: Any) -> None:
    """Each lane expects the previous lane's value, except lane 7, which expects a wrong upper half."""
    fresh = np.arange(2, 66, dtype="u8") * 3
    wanted = np.concatenate([[1, 2], fresh[:-2]]).astype("u8")
    wanted[15] += 1
    a, b = any_bench.new(wanted, "u8"), any_bench.new(fresh, "u8")
    c, d = any_bench.new([1, 2], "u8"), any_bench.new(np.zeros(64), "u8")
    body = """mad.wide.u32 %rd1, %r0, 16, %rd1; mad.wide.u32 %rd2, %r0, 16, %rd2; mad.wide.u32 %rd4, %r0, 16, %rd4;
    ld.global.v2.b64 {%rd5, %rd6}, [%rd1]; mov.b128 %q0, {%rd5, %rd6}; ld.global.b128 %q1, [%rd2];
    atom.acq_rel.gpu.global.cas.b128 %q2, [%rd3], %q0, %q1; st.global.b128 [%rd4], %q2;"""
    run(any_bench, body, a, b, c, d)
    assert c.tolist() == fresh[12:14].tolist()
    assert d[:16].tolist() == [1, 2, *fresh[:14].tolist()]
    assert d[16:].tolist() == fresh[12:14].tolist() * 24


def test_16_bits_are_compared_and_swapped(bench: Any) -> None:
    c, d = bench.new([0, 5, 9], "u2"), bench.new(np.zeros(32), "u2")
    body = """cvt.u16.u32 %h1, %r0; add.u16 %h2, %h1, 1; atom.global.cas.b16 %h3, [%rd3], %h1, %h2;
    mad.wide.u32 %rd4, %r0, 2, %rd4; st.global.b16 [%rd4], %h3;"""
    run(bench, body, c, c, c, d)
    assert c.tolist() == [32, 5, 9]
    assert d.tolist() == list(range(32))


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("atom.global.exch.u32 %r1, [%rd3], %r2;", "exch of .u32"),
        ("atom.global.add.s64 %rd5, [%rd3], %rd6;", "add of .s64"),
        ("atom.global.min.f32 %r1, [%rd3], %r2;", "min of .f32"),
        ("atom.global.add.f16 %h1, [%rd3], %h2;", "noftz"),
        ("atom.global.add.noftz.f32 %r1, [%rd3], %r2;", "noftz"),
        ("atom.global.min.noftz.f16 %h1, [%rd3], %h2;", "min of .f16"),
        ("red.shared.add.v2.f32 [s], {%r1, %r2};", "shared"),
        ("red.global.add.v2.u32 [%rd3], {%r1, %r2};", "vectors of .u32"),
        ("red.acquire.gpu.global.add.u32 [%rd3], %r1;", "acquire"),
        ("atom.local.add.u32 %r1, [%rd3], %r2;", "local"),
        ("red.global.add.noftz.v8.f16x2 [%rd3], {%r1, %r2, %r3, %r4, %r5, %r6, %r7, %r8};", "128 bits"),
    ],
)
def test_ptx_that_the_assembler_refuses_is_refused(bench: Any, line: str, message: str) -> None:
    a = bench.new(np.zeros(32), "u4")
    with pytest.raises(PtxError, match=message):
        bench.run(kernel(line), "k", 1, 32, a, a, a, a)
