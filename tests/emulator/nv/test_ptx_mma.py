"""Products of integers, bits and 8-bit floats on matrix fragments, over random values, against whole matrices."""

# ruff: noqa: E501 - summaries and tables that name their parameters read best on one line

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
    regs = c.nbytes // 128
    name = {
        letter: "{" + ", ".join(f"%{letter}{i}" for i in range(count)) + "}"
        for letter, count in (("x", a.shape[1]), ("y", b.shape[1]), ("z", regs))
    }
    reads = [f"ld.param.u64 %q, [{p}]; mad.wide.u32 %q, %l, {4 * count}, %q; " + " ".join(f"ld.global.b32 %{letter}{i}, [%q+{4 * i}];" for i in range(count))
             for p, letter, count in (("a", "x", a.shape[1]), ("b", "y", b.shape[1]), ("c", "z", regs))]  # fmt: skip
    text = f""".version 8.4\n.target {arch}\n.address_size 64
.visible .entry k(.param .u64 a, .param .u64 b, .param .u64 c) {{ .reg .b32 %x<8>, %y<8>, %z<8>; .reg .b64 %q; .reg .b32 %l;
mov.u32 %l, %laneid; {" ".join(reads)}
mma.sync.aligned.{modifiers} {name["z"]}, {name["x"]}, {name["y"]}, {name["z"]};
{" ".join(f"st.global.b32 [%q+{4 * i}], %z{i};" for i in range(regs))} ret; }}"""
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
