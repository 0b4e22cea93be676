"""Arithmetic that tests.facts.ptx_table lacks: approximations, carries, forms of later GPUs, refusals."""

# ruff: noqa: E501 - summaries and tables that name their parameters read best on one line

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from emulator.nv.ptx.statements import PtxError

COUNT = 768
pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")
NAN = {16: 0x7FFF, 32: 0x7FFF_FFFF, 64: 0xFFF8_0000_0000_0000}


def bits_of(values: Any):
    """The bit patterns, with every NaN as the hardware writes it."""
    values = np.asarray(values)
    width = values.dtype.itemsize
    raw = values.view(f"u{width}")
    return np.where(np.isnan(values), np.array(NAN[8 * width], raw.dtype), raw).tolist()


@pytest.mark.parametrize("op", ["add", "mul", "fma"])
def test_pairs_of_single_precision_are_two_numbers(bench: Any, floats: Any, op: Any) -> None:
    pairs = [floats(32, 2 * COUNT, seed) for seed in (1, 2, 3)]
    arguments = "%a, %b, %c" if op == "fma" else "%a, %b"
    wide = [p.view(np.uint64) for p in pairs]
    got = bench.apply(f"{op}.rn.f32x2 %d, {arguments};", "u8", *wide, arch="sm_100").view(np.uint32)
    want = bench.apply(f"{op}.rn.f32 %d, {arguments};", "u4", *(p.view(np.uint32) for p in pairs))
    assert got.tolist() == want.tolist()


@pytest.mark.parametrize(
    ("op", "reference", "low", "high"),
    [
        ("ex2.approx", math.exp2 if hasattr(math, "exp2") else lambda x: 2**x, -150, 128),
        ("lg2.approx", math.log2, 1e-30, 1e30),
        ("sin.approx", math.sin, -100, 100),
        ("cos.approx", math.cos, -100, 100),
        ("tanh.approx", math.tanh, -20, 20),
        ("rsqrt.approx", lambda x: 1 / math.sqrt(x), 1e-30, 1e30),
        ("rcp.approx", lambda x: 1 / x, 1e-30, 1e30),
        ("sqrt.approx", math.sqrt, 1e-30, 1e30),
    ],
)
def test_approximations_are_within_an_ulp(bench: Any, op: Any, reference: Any, low: Any, high: Any):
    rng = np.random.default_rng(1)
    a = (
        rng.uniform(low, high, COUNT).astype(np.float32)
        if low < 0
        else np.exp(rng.uniform(math.log(low), math.log(high), COUNT)).astype("f4")
    )
    got = bench.apply(f"{op}.f32 %d, %a;", "f4", a)
    for x, y in zip(a.tolist(), got.tolist(), strict=True):
        want = reference(x)
        assert abs(y - want) <= max(float(np.spacing(np.float32(abs(want)))), 2e-45), (x, y, want)


@pytest.mark.parametrize(("op", "reference"), [("rcp", lambda x: 1 / x), ("rsqrt", lambda x: 1 / np.sqrt(x))])
def test_double_approximations_use_and_give_upper_halves_only(
    bench: Any, floats: Any, op: Any, reference: Any
):
    a = np.abs(floats(64, 500, 3))
    upper = np.uint64(0xFFFF_FFFF_0000_0000)
    got = bench.apply(f"{op}.approx.ftz.f64 %d, %a;", "f8", a)
    assert not (got.view("u8")[~np.isnan(got)] & ~upper).any()
    normal = np.where(a < np.finfo("f8").tiny, 0.0, a)
    with np.errstate(all="ignore"):
        want = reference(np.where(np.isnan(a), a, (normal.view("u8") & upper).view("f8")))
    want = np.where(want < np.finfo("f8").tiny, 0.0, want)
    same = (got == want) | (np.isnan(got) & np.isnan(want))
    with np.errstate(all="ignore"):
        assert (same | (np.abs(got / want - 1) < 2.0**-19)).all()


ONE, INFINITE, MINUS, NONE = 0x3F80_0000, 0x7F80_0000, 0x8000_0000, 0x7FFF_FFFF
SUBNORMAL, LARGEST_SUBNORMAL = 1, 0x007F_FFFF
SMALLEST, POWER_126, POWER_127 = 0x0080_0000, 0x7E80_0000, 0x7F00_0000
HALF_SMALLEST = 0x0040_0000
"""2 to the power of -127, which is subnormal."""
SPECIAL = {
    "ex2.approx": {
        0: ONE, MINUS: ONE, MINUS | INFINITE: 0, INFINITE: INFINITE, NONE: NONE, SUBNORMAL: ONE,
        0xC2FE_0000: HALF_SMALLEST, 0xC2FC_0000: SMALLEST, 0x4300_0000: INFINITE, 0x42FE_0000: POWER_127,
        MINUS | ONE: 0x3F00_0000,
    },
    "ex2.approx.ftz": {
        SUBNORMAL: ONE, MINUS | LARGEST_SUBNORMAL: ONE, 0xC2FE_0000: 0, 0xC2FC_0000: SMALLEST,
        0x4300_0000: INFINITE, MINUS | INFINITE: 0, NONE: NONE,
    },
    "rcp.approx": {
        0: INFINITE, MINUS: MINUS | INFINITE, INFINITE: 0, MINUS | INFINITE: MINUS, NONE: NONE,
        POWER_127: HALF_SMALLEST, HALF_SMALLEST: POWER_127, SUBNORMAL: INFINITE, MINUS | SUBNORMAL: MINUS | INFINITE,
        MINUS | ONE: MINUS | ONE,
    },
    "rcp.approx.ftz": {
        LARGEST_SUBNORMAL: INFINITE, MINUS | LARGEST_SUBNORMAL: MINUS | INFINITE, POWER_127: 0,
        MINUS | POWER_127: MINUS, POWER_126: SMALLEST, SMALLEST: POWER_126, INFINITE: 0, NONE: NONE,
    },
    "rcp.rn.ftz": {
        LARGEST_SUBNORMAL: INFINITE, MINUS | SUBNORMAL: MINUS | INFINITE, MINUS | POWER_127: MINUS,
        POWER_126: SMALLEST, 0: INFINITE, INFINITE: 0, NONE: NONE,
    },
    "sqrt.approx.ftz": {
        LARGEST_SUBNORMAL: 0, MINUS | LARGEST_SUBNORMAL: MINUS, MINUS: MINUS, MINUS | ONE: NONE,
        INFINITE: INFINITE, 0x4080_0000: 0x4000_0000,
    },
    "sqrt.rn.ftz": {
        LARGEST_SUBNORMAL: 0, MINUS | LARGEST_SUBNORMAL: MINUS, MINUS: MINUS, MINUS | SMALLEST: NONE,
        MINUS | INFINITE: NONE, 0x4080_0000: 0x4000_0000,
    },
    "rsqrt.approx.ftz": {
        LARGEST_SUBNORMAL: INFINITE, MINUS | SUBNORMAL: MINUS | INFINITE, 0: INFINITE, MINUS: MINUS | INFINITE,
        MINUS | ONE: NONE, INFINITE: 0, MINUS | INFINITE: NONE, 0x4080_0000: 0x3F00_0000,
    },
    "lg2.approx.ftz": {
        LARGEST_SUBNORMAL: MINUS | INFINITE, MINUS | SUBNORMAL: MINUS | INFINITE, MINUS: MINUS | INFINITE,
        MINUS | ONE: NONE, INFINITE: INFINITE, MINUS | INFINITE: NONE, 0x4080_0000: 0x4000_0000, ONE: 0,
    },
    "sin.approx.ftz": {LARGEST_SUBNORMAL: 0, MINUS | LARGEST_SUBNORMAL: MINUS, MINUS: MINUS, INFINITE: NONE},
    "cos.approx.ftz": {LARGEST_SUBNORMAL: ONE, MINUS | SUBNORMAL: ONE, 0: ONE, MINUS | INFINITE: NONE},
    "lg2.approx": {
        0: MINUS | INFINITE, MINUS: MINUS | INFINITE, INFINITE: INFINITE, MINUS | INFINITE: NONE, NONE: NONE,
        MINUS | ONE: NONE,
    },
    "rsqrt.approx": {
        0: INFINITE, MINUS: MINUS | INFINITE, INFINITE: 0, MINUS | INFINITE: NONE, NONE: NONE, MINUS | ONE: NONE,
    },
    "sin.approx": {0: 0, MINUS: MINUS, INFINITE: NONE, MINUS | INFINITE: NONE, NONE: NONE},
    "tanh.approx": {0: 0, MINUS: MINUS, INFINITE: ONE, MINUS | INFINITE: MINUS | ONE, NONE: NONE},
}  # fmt: skip
"""Instruction of f32 -> input and result where the manual's table, or exactness, has one."""


@pytest.mark.parametrize("name", list(SPECIAL))
def test_special_values_of_approximations(bench: Any, name: str) -> None:
    given, wanted = (np.array(column, "u4") for column in zip(*SPECIAL[name].items(), strict=True))
    assert bench.apply(f"{name}.f32 %d, %a;", "u4", given).tolist() == wanted.tolist()


@pytest.mark.parametrize("type_", ["bf16", "bf16x2"])
@pytest.mark.parametrize("op", ["add", "sub", "mul"])
def test_rounding_to_nearest_may_be_left_out(bench: Any, ints: Any, op: str, type_: str) -> None:
    size = 4 if type_ == "bf16x2" else 2
    a, b = ints(8 * size, COUNT, 1), ints(8 * size, COUNT, 2)
    got = bench.apply(f"{op}.{type_} %d, %a, %b;", f"u{size}", a, b)
    assert got.tolist() == bench.apply(f"{op}.rn.{type_} %d, %a, %b;", f"u{size}", a, b).tolist()


@pytest.mark.parametrize("line", ["vadd.u32.u32.u32 %d, %a, %b;", "vset4.u32.u32.eq %d, %a, %b, %a;"])
def test_video_instructions_are_refused_by_name(bench: Any, ints: Any, line: str) -> None:
    with pytest.raises(PtxError, match=f"instruction {line.split('.', maxsplit=1)[0]} is not supported"):
        bench.apply(line, "u4", ints(32, 4, 1), ints(32, 4, 2))


@pytest.mark.parametrize("type_", ["u32", "s32"])
def test_saturation_to_the_same_type_is_refused(bench: Any, ints: Any, type_: str) -> None:
    with pytest.raises(PtxError, match="sat is not supported here"):
        bench.apply(f"cvt.sat.{type_}.{type_} %d, %a;", "u4", ints(32, COUNT, 1))


def test_moves_pack_and_unpack(bench: Any, ints: Any):
    a, b = ints(32, COUNT, 1), ints(32, COUNT, 2)
    got = bench.apply(
        "mov.b64 %rd1, {%a, %b}; mov.b64 {%r5, %r6}, %rd1; mov.b32 {%h1, %h2}, %r6; mov.b32 %d, {%h2, %h1};",
        "u4",
        a,
        b,
    )
    assert got.tolist() == [(v >> 16 | v << 16) & 0xFFFF_FFFF for v in b.tolist()]


@pytest.mark.parametrize("op", ["min", "max"])
@pytest.mark.parametrize("words", ["", ".NaN", ".abs"])
def test_extremes_of_three(bench: Any, floats: Any, op: str, words: str) -> None:
    """Three inputs give the extreme of all; NaNs are skipped, or win with .NaN; .abs compares magnitudes."""
    a, b, c = (floats(32, 400, seed) for seed in (1, 2, 3))
    got = bench.apply(f"{op}{words}.f32 %d, %a, %b, %c;", "f4", a, b, c, arch="sm_100")
    three = np.stack([np.abs(x) if words == ".abs" else x for x in (a, b, c)])
    nan = np.isnan(three)
    lost = nan.any(axis=0) if words == ".NaN" else nan.all(axis=0)
    best = np.where(nan, np.inf if op == "min" else -np.inf, three)
    want = np.where(lost, np.nan, best.min(axis=0) if op == "min" else best.max(axis=0)).astype("f4")
    assert np.array_equal(got, want, equal_nan=True)


def test_three_inputs_need_a_later_gpu(bench: Any, floats: Any) -> None:
    a = floats(32, 4, 1)
    with pytest.raises(PtxError, match="sm_100"):
        bench.apply("min.f32 %d, %a, %b, %c;", "f4", a, a, a)


@pytest.mark.parametrize("type_", ["e4m3x2", "e5m2x2"])
def test_small_floats_and_pairs_of_bf16(bench: Any, type_: str) -> None:
    """Every 8-bit float survives a way to bf16 and back; bf16 to 8 bits rounds as f16 does where f16 is exact."""
    raw = np.arange(256, dtype="u2")
    pairs = raw | raw[::-1] << 8
    wide = bench.apply(f"cvt.rn.bf16x2.{type_} %d, %a;", "u4", pairs, arch="sm_120")
    half = bench.apply(f"cvt.rn.f16x2.{type_} %d, %a;", "u4", pairs, arch="sm_120")
    values = half.view("f2").astype("f4")
    assert np.array_equal((wide.view("u2").astype("u4") << 16).view("f4"), values, equal_nan=True)
    back = bench.apply(f"cvt.rn.satfinite.{type_}.bf16x2 %d, %a;", "u2", wide, arch="sm_120")
    finite = np.isfinite(values.reshape(-1, 2)).all(axis=1)
    assert np.array_equal(back[finite], pairs[finite])


def test_pairs_of_bf16_need_a_later_gpu(bench: Any) -> None:
    with pytest.raises(PtxError, match="sm_90"):
        bench.apply("cvt.rn.bf16x2.e4m3x2 %d, %a;", "u4", np.arange(4, dtype="u2"))


@pytest.mark.parametrize("type_", ["f16", "bf16"])
@pytest.mark.parametrize("mode", ["rn", "rz"])
def test_sums_of_float32_and_16_bit_floats(bench: Any, floats: Any, type_: str, mode: str):
    """The 16-bit operand is exact in float32; products are exact in float64 there, and rounded once."""
    small = floats(16, COUNT, 5)
    raw, rest = small.view("u2"), floats(32, COUNT, 6)
    wide = small.astype("f4") if type_ == "f16" else (raw.astype("u4") << 16).view("f4")
    sums = {
        "add": (f"add.{mode}.f32.{type_} %d, %a, %b;", wide.astype("f8") + rest),
        "sub": (f"sub.{mode}.f32.{type_} %d, %a, %b;", wide.astype("f8") - rest),
    }
    for line, exact in sums.values():
        got = bench.apply(line, "f4", raw, rest, arch="sm_100")
        plain = line.replace(f".{type_}", "").replace("%a", "%c")
        want = bench.apply(plain, "f4", raw, rest, wide, arch="sm_100")
        assert bits_of(got) == bits_of(want)
        near = np.isfinite(exact) & (np.abs(exact) < 1e30) & (np.abs(exact) > 1e-30)
        assert np.allclose(got[near], exact[near], rtol=2e-7, atol=0)
    got = bench.apply(f"fma.{mode}.sat.f32.{type_} %d, %a, %a, %b;", "f4", raw, rest, arch="sm_100")
    want = bench.apply(f"fma.{mode}.sat.f32 %d, %c, %c, %b;", "f4", raw, rest, wide, arch="sm_100")
    assert bits_of(got) == bits_of(want)


@pytest.mark.parametrize(
    ("line", "arch"), [("add.f32.f16 %d, %a, %b;", "sm_90"), ("sub.f32.f16x2 %d, %b, %b;", "sm_100")]
)
def test_sums_of_mixed_floats_that_do_not_exist(bench: Any, line: str, arch: str):
    with pytest.raises(PtxError):
        bench.apply(line, "f4", np.zeros(4, "u2"), np.zeros(4, "f4"), arch=arch)


FEW = 512


def signed(value: int, bits: int) -> int:
    value &= (1 << bits) - 1
    return value - (1 << bits) if value >> (bits - 1) else value


def as_type(value: int, type_: str) -> int:
    bits = int(type_[1:])
    return signed(value, bits) if type_[0] == "s" else value & ((1 << bits) - 1)


def test_guarded_instructions_change_only_their_lanes(bench: Any, ints: Any):
    a, b = ints(32, FEW, 1), ints(32, FEW, 2)
    got = bench.apply(
        "setp.lt.u32 %p1, %a, %b; mov.b32 %d, 7; @%p1 add.u32 %d, %a, %b; @!%p1 sub.u32 %d, %d, 1;",
        "u4",
        a,
        b,
    )
    assert got.tolist() == [
        (x + y) & 0xFFFF_FFFF if x < y else 6 for x, y in zip(a.tolist(), b.tolist(), strict=True)
    ]


@pytest.mark.parametrize(
    ("lines", "word"),
    [
        ("add.bogus.u32 %d, %a, %b;", "bogus"),
        ("frob.b32 %d, %a;", "frob"),
        ("add.u32 %d, %a;", "operands"),
        ("add.u64 %d, %a, %b;", "64"),
        ("mov.u32 %d, %nothing;", "nothing"),
        ("ld.global.u32 %d, [undefined];", "undefined"),
    ],
)
def test_unknown_instructions_are_named_with_their_line(bench: Any, ints: Any, lines: Any, word: Any):
    with pytest.raises(ValueError, match=rf"PTX line \d+: .*{word}"):
        bench.apply(lines, "u4", ints(32, 4, 1), ints(32, 4, 2))


def adder(op: str, a: int, b: int, type_: str, carry: int) -> tuple[int, int]:
    """Return result and carry of one instruction by the machine's adder, which adds three numbers and carries out.

    A difference is a + ~b + 1. `mad` adds b, the third operand of these tests, to half of a * b.
    """
    bits = int(type_[1:])
    mask = (1 << bits) - 1
    name = op.removesuffix(".cc").replace("c", "")
    if name.startswith("mad"):
        product = as_type(a, type_) * as_type(b, type_)
        a = product if name == "mad.lo" else product >> bits
    whole = (a & mask) + ((~b if name == "sub" else b) & mask) + carry
    return whole & mask, whole >> bits


@pytest.mark.sampled(7)
@pytest.mark.parametrize("type_", ["u32", "s32", "u64", "s64"])
@pytest.mark.parametrize("second", ["addc", "subc", "madc.lo", "madc.hi"])
@pytest.mark.parametrize("first", ["add", "sub", "mad.lo", "mad.hi"])
def test_a_carry_passes_between_all_instructions_as_in_one_adder(
    bench: Any, first: str, second: str, type_: str
):
    bits = int(type_[1:])
    top = 1 << (bits - 1)
    edges = [0, 1, 2, 7, top - 1, top, top + 1, 2 * top - 2, 2 * top - 1]
    pairs = [(x, y) for x in edges for y in edges]
    a, b = (np.array(column, f"u{bits // 8}") for column in zip(*pairs, strict=True))
    three = ", %b" if first.startswith("mad") else ""
    also = ", %a" if second.startswith("mad") else ""
    begin = f"{first}.cc.{type_} %d, %a, %b{three}; {second}.cc.{type_} %d, %b, %a{also};"
    found = bench.apply(begin, a.dtype.str[1:], a, b)
    carries = bench.apply(f"{begin} addc.{type_} %d, 0, 0;", a.dtype.str[1:], a, b)
    wanted = []
    for x, y in pairs:
        _, carry = adder(first, x, y, type_, int(first == "sub"))
        wanted.append(adder(second, y, x, type_, carry))
    assert list(zip(found.tolist(), carries.tolist(), strict=True)) == wanted
