"""CUDA's matrix fragments: load, multiply and store for every type, shape and layout, against whole matrices."""

# ruff: noqa: E501, PLR0917 - lines of PTX read best unbroken

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from emulator.nv.ptx.statements import PtxError

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


def sample(rng: Any, type_: str, shape: tuple[int, int]) -> Any:
    low, high = {"u8": (0, 256), "s8": (-128, 128), "u4": (0, 16), "s4": (-8, 8), "b1": (0, 2)}.get(
        type_, (-9, 10)
    )
    return rng.integers(low, high, shape) * (1 if type_[0] in "usb" and type_ != "bf16" else 0.25)


def names(letter: str, count: int) -> str:
    return "{" + ", ".join(f"%{letter}{n}" for n in range(count)) + "}"


def multiply(
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
    a, b = sample(rng, type_, (m, k)), sample(rng, type_, (n, k))
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
    multiply(bench, shape, types, layouts, space="global.")


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
        multiply(bench, shape, types, layouts)


def test_products_of_small_integers_and_bits(bench: Any) -> None:
    plain = ("row", "col", "row")
    multiply(bench, "m8n8k32", ("s32", "s4", "s32"), plain)
    multiply(bench, "m8n8k32", ("s32", "u4", "s32"), ("row", "col", "col"), tail=".satfinite")
    multiply(bench, "m8n8k128", ("s32", "b1", "s32"), plain, "xor.popc.")
    multiply(bench, "m8n8k128", ("s32", "b1", "s32"), plain, "and.popc.")


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
