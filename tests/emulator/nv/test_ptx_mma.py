"""Products on matrix fragments (mma, wmma) over random values, against whole matrices."""

# ruff: noqa: E501, PLR0917 - summaries and tables that name their parameters read best on one line

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from emulator.nv.ptx.statements import PtxError
from tests.float8 import table

LARGEST, SMALLEST = 2**31 - 1, -(2**31)


def fragment(matrix: Any, bits: int) -> Any:
    """Distribute an operand (rows x k) over lanes as PTX's figures show: 32 lanes x registers of words, of 64 bits if elements are."""
    rows, k = matrix.shape
    pack = max(32 // bits, 1)
    words = np.zeros((32, (rows // 8) * (k // (4 * pack))), "u8")
    for r in range(rows):
        for c in range(k):
            lane = (r % 8) * 4 + (c % (4 * pack)) // pack
            register = r // 8 + (c // (4 * pack)) * (rows // 8)
            words[lane, register] |= np.uint64((int(matrix[r, c]) & ((1 << bits) - 1)) << (bits * (c % pack)))
    return words if bits > 32 else words.astype("u4")


def spread(matrix: Any, dtype: str) -> Any:
    """Distribute an accumulator over lanes."""
    m, n = matrix.shape
    found = np.zeros((32, m * n // 32), dtype)
    for lane in range(32):
        for i in range(m * n // 32):
            found[lane, i] = matrix[lane // 4 + 8 * (i // 2), lane % 4 * 2 + i % 2]
    return found


def multiply(bench: Any, modifiers: str, a: Any, b: Any, c: Any, *, arch: str = "sm_90") -> Any:
    """Run one mma on fragments; returns the accumulators of the lanes."""
    bits = 64 if a.dtype == np.uint64 else 32
    size = bits // 8
    regs = c.nbytes // 32 // size
    name = {
        letter: "{" + ", ".join(f"%{letter}{i}" for i in range(count)) + "}"
        for letter, count in (("x", a.shape[1]), ("y", b.shape[1]), ("z", regs))
    }
    reads = [f"ld.param.u64 %q, [{p}]; mad.wide.u32 %q, %l, {size * count}, %q; " + " ".join(f"ld.global.b{bits} %{letter}{i}, [%q+{size * i}];" for i in range(count))
             for p, letter, count in (("a", "x", a.shape[1]), ("b", "y", b.shape[1]), ("c", "z", regs))]  # fmt: skip
    text = f""".version 8.4\n.target {arch}\n.address_size 64
.visible .entry k(.param .u64 a, .param .u64 b, .param .u64 c) {{ .reg .b{bits} %x<8>, %y<8>, %z<8>; .reg .b64 %q; .reg .b32 %l;
mov.u32 %l, %laneid; {" ".join(reads)}
mma.sync.aligned.{modifiers} {name["z"]}, {name["x"]}, {name["y"]}, {name["z"]};
{" ".join(f"st.global.b{bits} [%q+{size * i}], %z{i};" for i in range(regs))} ret; }}"""
    out = bench.map(c.copy())
    result = bench.run(text, "k", 1, 32, bench.map(a), bench.map(b), out, arch=arch)
    assert result.fault is None, result.fault
    return out


def shape_of(word: str) -> tuple[int, int, int]:
    m, n, k = map(int, re.findall(r"\d+", word))
    return m, n, k


INTEGERS = [
    (shape, a, b)
    for shapes, types in (
        (("m8n8k16", "m16n8k16", "m16n8k32"), ("s8", "u8")),
        (("m8n8k32", "m16n8k32", "m16n8k64"), ("s4", "u4")),
    )
    for shape in shapes
    for a in types
    for b in types
]


def any_of(rng: Any, type_: str, shape: tuple[int, int]) -> Any:
    bits = int(type_[1:])
    low, high = (-(1 << bits - 1), 1 << bits - 1) if type_[0] == "s" else (0, 1 << bits)
    return rng.choice(
        np.array([low, low + 1, -1 if low else 0, 0, 1, high - 1, *rng.integers(low, high, 32)]), shape
    )


@pytest.mark.sampled(53)
@pytest.mark.parametrize("saturates", [False, True])
@pytest.mark.parametrize(("shape", "a_type", "b_type"), INTEGERS)
def test_products_of_integers(bench: Any, shape: str, a_type: str, b_type: str, saturates: bool) -> None:  # noqa: FBT001 - a case
    m, n, k = shape_of(shape)
    rng = np.random.default_rng(m * k + n)
    a, b = any_of(rng, a_type, (m, k)), any_of(rng, b_type, (n, k))
    c = rng.choice(np.array([LARGEST, SMALLEST, 0, -1, LARGEST - 100, SMALLEST + 100, 12345]), (m, n))
    word = f"{shape}.row.col{'.satfinite' if saturates else ''}.s32.{a_type}.{b_type}.s32"
    bits = int(a_type[1:])
    got = multiply(bench, word, fragment(a, bits), fragment(b, bits), spread(c, "i4"))
    want = a.astype("i8") @ b.astype("i8").T + c
    want = np.clip(want, SMALLEST, LARGEST) if saturates else want.astype("i4")
    assert np.array_equal(got, spread(want, "i4"))


@pytest.mark.sampled(29)
@pytest.mark.parametrize("op", ["xor", "and"])
@pytest.mark.parametrize("shape", ["m8n8k128", "m16n8k128", "m16n8k256"])
def test_products_of_bits(any_bench: Any, shape: str, op: str) -> None:
    m, n, k = shape_of(shape)
    rng = np.random.default_rng(k)
    a, b, c = rng.integers(0, 2, (m, k)), rng.integers(0, 2, (n, k)), rng.integers(-100, 100, (m, n))
    got = multiply(
        any_bench, f"{shape}.row.col.s32.b1.b1.s32.{op}.popc", fragment(a, 1), fragment(b, 1), spread(c, "i4")
    )
    pairs = a[:, None, :] ^ b[None, :, :] if op == "xor" else a[:, None, :] & b[None, :, :]
    assert np.array_equal(got, spread(pairs.sum(axis=2) + c, "i4"))


@pytest.mark.sampled(5)
def test_integers_are_multiplied_alike_every_way(any_bench: Any) -> None:
    rng = np.random.default_rng(5)
    a, b, c = any_of(rng, "s4", (16, 64)), any_of(rng, "u4", (8, 64)), rng.integers(-1000, 1000, (16, 8))
    got = multiply(
        any_bench, "m16n8k64.row.col.s32.s4.u4.s32", fragment(a, 4), fragment(b, 4), spread(c, "i4")
    )
    assert np.array_equal(got, spread(a @ b.T + c, "i4"))


def decoded(raw: Any, type_: str) -> Any:
    """Return the values of 8-bit floats."""
    return table({"e4m3": "float8_e4m3fn", "e5m2": "float8_e5m2"}[type_])[raw].astype("f8")


@pytest.mark.sampled(17)
@pytest.mark.parametrize(
    ("a_type", "b_type"), [("e4m3", "e4m3"), ("e4m3", "e5m2"), ("e5m2", "e4m3"), ("e5m2", "e5m2")]
)
@pytest.mark.parametrize("shape", ["m16n8k16", "m16n8k32"])
@pytest.mark.parametrize("total", ["f32", "f16"])
def test_products_of_8_bit_floats(bench: Any, shape: str, a_type: str, b_type: str, total: str) -> None:
    """Magnitudes near one, so that float32 sums are exact in any order."""
    m, n, k = shape_of(shape)
    rng = np.random.default_rng(k)

    def some(type_: str, rows: int) -> Any:
        middle = 7 << 3 if type_ == "e4m3" else 15 << 2
        return (middle + rng.integers(-10, 9, (rows, k))) | rng.integers(0, 2, (rows, k)) << 7

    a, b = some(a_type, m), some(b_type, n)
    c = rng.integers(-8, 9, (m, n)).astype("f4")
    exact = decoded(a, a_type) @ decoded(b, b_type).T + c
    if total == "f32":
        got = multiply(
            bench,
            f"{shape}.row.col.f32.{a_type}.{b_type}.f32",
            fragment(a, 8),
            fragment(b, 8),
            spread(c, "f4"),
        )
        assert np.array_equal(got, spread(exact, "f4"))
    else:
        got = multiply(
            bench,
            f"{shape}.row.col.f16.{a_type}.{b_type}.f16",
            fragment(a, 8),
            fragment(b, 8),
            spread(c, "f2"),
        )
        assert np.array_equal(got, spread(exact.astype("f4"), "f2"))


FLOATS = {"f16": ("f2", 16), "bf16": ("f4", 16), "tf32": ("f4", 32), "f64": ("f8", 64)}


@pytest.mark.sampled(5)
@pytest.mark.parametrize(
    ("shape", "type_", "total"),
    [
        ("m16n8k16", "f16", "f32"), ("m16n8k8", "f16", "f32"), ("m16n8k16", "bf16", "f32"), ("m16n8k16", "f16", "f16"),
        ("m16n8k8", "tf32", "f32"), ("m16n8k4", "tf32", "f32"), ("m8n8k4", "f64", "f64"),
    ],
)  # fmt: skip
def test_products_of_floats(bench: Any, shape: str, type_: str, total: str) -> None:
    m, n, k = shape_of(shape)
    rng = np.random.default_rng(1)
    a, b, c = rng.integers(-4, 5, (m, k)), rng.integers(-4, 5, (n, k)), rng.integers(-20, 20, (m, n))
    dtype, bits = FLOATS[type_]

    def encode(values: Any) -> Any:
        raw = values.astype(dtype)
        return fragment(raw.view(f"u{raw.itemsize}") >> (16 if type_ == "bf16" else 0), bits)

    sums = {"f32": "f4", "f16": "f2", "f64": "f8"}[total]
    got = multiply(bench, f"{shape}.row.col.{total}.{type_}.{type_}.{total}", encode(a), encode(b), spread(c, sums))
    assert np.array_equal(got, spread(a @ b.T + c, sums))


def test_products_of_8_bit_floats_that_name_their_kind(bench: Any) -> None:
    rng = np.random.default_rng(3)
    a, b = (8 * 7 + rng.integers(-10, 9, (rows, 32)) for rows in (16, 8))
    c = rng.integers(-8, 9, (16, 8)).astype("f4")
    word = "kind::f8f6f4.m16n8k32.row.col.f32.e4m3.e5m2.f32"
    got = multiply(bench, word, fragment(a, 8), fragment(b, 8), spread(c, "f4"), arch="sm_120a")
    assert np.array_equal(got, spread(decoded(a, "e4m3") @ decoded(b, "e5m2").T + c, "f4"))


@pytest.mark.parametrize(
    ("word", "arch", "message"),
    [
        ("m16n8k32.row.col.f32.s8.s8.f32", "sm_90", "one of .s32"),
        ("m16n8k32.row.col.s32.s8.e4m3.s32", "sm_90", "not supported"),
        ("m16n8k16.row.col.f32.f16.f16.f16", "sm_90", "same type"),
        ("m16n8k32.row.col.f32.e4m3.e4m3.f32", "sm_80", "sm_89"),
        ("kind::f8f6f4.m16n8k32.row.col.f32.e4m3.e4m3.f32", "sm_90", "sm_120a"),
        ("kind::f8f6f4.m16n8k32.row.col.f32.e2m1.e4m3.f32", "sm_120a", "e2m1 and .e4m3 is not supported"),
        ("kind::f8f6f4.m16n8k16.row.col.f32.e4m3.e4m3.f32", "sm_120a", "m16n8k32"),
        ("m16n8k256.row.col.s32.b1.b1.s32", "sm_90", "operation"),
        ("m16n8k32.row.col.s32.s8.s8.s32.xor.popc", "sm_90", "operation"),
        ("m16n8k32.col.col.s32.s8.s8.s32", "sm_90", "row"),
        ("sp.m16n8k32.row.col.f32.f16.f16.f32", "sm_90", "sp is not supported"),
    ],
)
def test_products_that_do_not_exist_are_refused(bench: Any, word: str, arch: str, message: str) -> None:
    words = np.zeros((32, 4), "u4")
    with pytest.raises(PtxError, match=message):
        multiply(bench, word, words, words[:, :2].copy(), words, arch=arch)


WIDE = ("m16n16k16", "m32n8k16", "m8n32k16")
REGISTERS = {"f16": (8, 8), "s8": {"m16n16k16": (2, 2), "m32n8k16": (4, 1), "m8n32k16": (1, 4)}, "bf16": {"m16n16k16": (4, 4), "m32n8k16": (8, 2), "m8n32k16": (2, 8)},
             "tf32": (4, 4), "f64": (1, 1), "s4": (1, 1), "b1": (1, 1)}  # fmt: skip
"""Registers of A and B, as PTX lists them."""
SUMS = {"f16": ("f2", 16), "f32": ("f4", 32), "s32": ("i4", 32), "f64": ("f8", 64)}


def counts(type_: str, shape: str) -> tuple[int, int]:
    found = REGISTERS["s8" if type_ == "u8" else "s4" if type_ == "u4" else type_]
    return found[shape] if isinstance(found, dict) else found


def packed(values: Any, type_: str) -> Any:
    """Return a matrix as memory: rows of elements, as bytes."""
    if type_ in ("f16", "f64"):
        return values.astype("f2" if type_ == "f16" else "f8").view("u1")
    if type_ in ("bf16", "tf32"):
        words = values.astype("f4").view("u4")
        return (words >> 16).astype("u2").view("u1") if type_ == "bf16" else words.view("u1")
    if type_ in ("s8", "u8"):
        return values.astype("i1" if type_ == "s8" else "u1").view("u1")
    if type_ == "b1":
        return np.packbits(values.astype("u1"), axis=1, bitorder="little")
    nibbles = values.astype("u1") & 15
    return nibbles[:, ::2] | nibbles[:, 1::2] << 4


def sample_wmma(rng: Any, type_: str, shape: tuple[int, int]) -> Any:
    low, high = {"u8": (0, 256), "s8": (-128, 128), "u4": (0, 16), "s4": (-8, 8), "b1": (0, 2)}.get(
        type_, (-9, 10)
    )
    return rng.integers(low, high, shape) * (1 if type_[0] in "usb" and type_ != "bf16" else 0.25)


def names(letter: str, count: int) -> str:
    return "{" + ", ".join(f"%{letter}{n}" for n in range(count)) + "}"


def multiply_wmma(
    bench: Any,
    shape: str,
    types: tuple[str, str, str],
    layouts: tuple[str, str, str],
    words: str = "",
    tail: str = "",
    space: str = "",
) -> None:
    """Run one product, with padded rows in memory, and compare it with NumPy."""
    d_type, type_, c_type = types
    m, n, k = map(int, re.findall(r"\d+", shape))
    rng = np.random.default_rng(m + k)
    a, b = sample_wmma(rng, type_, (m, k)), sample_wmma(rng, type_, (n, k))
    c = rng.integers(-50, 50, (m, n)).astype(SUMS[c_type][0])
    pads, memory, strides = (16, 32, 8), [], []
    for x, layout, pad in ((a, layouts[0], pads[0]), (b.T, layouts[1], pads[1])):
        rows = x if layout == "row" else x.T
        pad = pad if type_ not in ("s4", "u4", "b1") else 128  # noqa: PLW2901 - whole words
        memory.append(packed(np.ascontiguousarray(np.pad(rows, ((0, 0), (0, pad)))), type_))
        strides.append(rows.shape[1] + pad)
    rows_of_c = c if layouts[2] == "row" else c.T
    d = np.zeros((rows_of_c.shape[0], rows_of_c.shape[1] + pads[2]), SUMS[d_type][0])
    count_a, count_b = counts(type_, shape)
    count_c, count_d = (m * n * SUMS[s][1] // 32 // (64 if s == "f64" else 32) for s in (c_type, d_type))
    middle = f"{d_type}.{c_type}" if type_ == "f16" else f"{d_type}.{type_}.{type_}.{c_type}"
    width = 64 if type_ == "f64" else 32
    text = f""".version 8.4\n.target sm_90\n.address_size 64
.visible .entry k(.param .u64 pa, .param .u64 pb, .param .u64 pc, .param .u64 pd) {{ .reg .b{width} %a<16>, %b<16>, %c<16>, %d<16>; .reg .b64 %q<4>; .reg .b32 %s<4>;
ld.param.u64 %q0, [pa]; ld.param.u64 %q1, [pb]; ld.param.u64 %q2, [pc]; ld.param.u64 %q3, [pd]; mov.u32 %s0, {strides[0]}; mov.u32 %s1, {strides[1]};
wmma.load.a.sync.aligned.{layouts[0]}.{shape}.{space}{type_} {names("a", count_a)}, [%q0], %s0;
wmma.load.b.sync.aligned.{layouts[1]}.{shape}.{space}{type_} {names("b", count_b)}, [%q1], %s1;
wmma.load.c.sync.aligned.{layouts[2]}.{shape}.{space}{c_type} {names("c", count_c)}, [%q2];
wmma.mma.{words}sync.aligned.{layouts[0]}.{layouts[1]}.{shape}.{middle}{tail} {names("d", count_d)}, {names("a", count_a)}, {names("b", count_b)}, {names("c", count_c)};
wmma.store.d.sync.aligned.{layouts[2]}.{shape}.{space}{d_type} [%q3], {names("d", count_d)}, {d.shape[1]}; ret; }}"""
    given = [bench.map(np.ascontiguousarray(x)) for x in (*memory, rows_of_c)]
    out = bench.map(d)
    result = bench.run(text, "k", 1, 32, *given, out)
    assert result.fault is None, result.fault
    pairs = (
        (a[:, None, :].astype(int) & b[None].astype(int)).sum(2)
        if words.startswith("and")
        else (a[:, None, :] != b[None]).sum(2)
        if words
        else a @ b.T
    )
    want = pairs + c.astype("f8" if d_type != "s32" else "i8")
    if tail:
        want = np.clip(want, -(2**31), 2**31 - 1)
    got = out[:, : -pads[2]] if layouts[2] == "row" else out[:, : -pads[2]].T
    assert np.array_equal(got, want.astype(SUMS[d_type][0]))
    assert not out[:, -pads[2] :].any()


HALVES = [
    (shape, ("f32", "f16", "f32"), layouts)
    for shape in WIDE
    for layouts in (("row", "col", "row"), ("col", "row", "col"), ("row", "row", "row"))
]


@pytest.mark.sampled(2)
@pytest.mark.parametrize(("shape", "types", "layouts"), HALVES)
def test_products_of_f16_in_every_layout(
    bench: Any, shape: str, types: tuple[str, str, str], layouts: tuple[str, str, str]
) -> None:
    multiply_wmma(bench, shape, types, layouts, space="global.")


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("shape", "types"),
    [
        ("m16n16k16", ("f16", "f16", "f32")), ("m16n16k16", ("f32", "f16", "f16")), ("m8n32k16", ("f16", "f16", "f16")),
        *((shape, ("f32", "bf16", "f32")) for shape in WIDE), *((shape, ("s32", "s8", "s32")) for shape in WIDE),
        ("m32n8k16", ("s32", "u8", "s32")), ("m16n16k8", ("f32", "tf32", "f32")), ("m8n8k4", ("f64", "f64", "f64")),
    ],
)  # fmt: skip
def test_products_of_other_types(bench: Any, shape: str, types: tuple[str, str, str]) -> None:
    for layouts in (("row", "col", "row"), ("col", "row", "col")):
        multiply_wmma(bench, shape, types, layouts)


def test_products_of_small_integers_and_bits(bench: Any) -> None:
    plain = ("row", "col", "row")
    multiply_wmma(bench, "m8n8k32", ("s32", "s4", "s32"), plain)
    multiply_wmma(bench, "m8n8k32", ("s32", "u4", "s32"), ("row", "col", "col"), tail=".satfinite")
    multiply_wmma(bench, "m8n8k128", ("s32", "b1", "s32"), plain, "xor.popc.")
    multiply_wmma(bench, "m8n8k128", ("s32", "b1", "s32"), plain, "and.popc.")


@pytest.mark.parametrize(
    ("line", "word"),
    [
        ("wmma.load.a.sync.aligned.row.m16n16k8.global.f16 {%r0,%r1,%r2,%r3,%r4,%r5,%r6,%r7}, [%q], 16;",
         "m16n16k8"),
        ("wmma.load.a.sync.aligned.col.m8n8k32.global.s4 {%r0}, [%q], 32;", "row for A"),
        ("wmma.load.a.sync.aligned.row.m16n16k16.global.s8 {%r0,%r1,%r2}, [%q], 32;", "2 registers"),
        ("wmma.mma.sync.aligned.row.col.m8n8k32.s32.s4.s4.s32.xor {%r0,%r1}, {%r2}, {%r3}, {%r0,%r1};",
         "popc"),
    ],
)  # fmt: skip
def test_undefined_fragments_are_refused(bench: Any, line: str, word: str) -> None:
    text = f".version 8.4\n.target sm_90\n.address_size 64\n.visible .entry k() {{ .reg .b32 %r<8>; .reg .b64 %q; {line} ret; }}"
    with pytest.raises(PtxError, match=word):
        bench.run(text, "k", 1, 32)
