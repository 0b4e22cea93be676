"""Floating-point instructions against numpy and exact rational arithmetic, on special and random values. NaNs must be the hardware's."""

# ruff: noqa: ARG005, E501 - summaries and tables that name their parameters read best on one line

from __future__ import annotations

import math
from fractions import Fraction
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


FORMATS = {"f16": (5, 10), "bf16": (8, 7), "f32": (8, 23), "f64": (11, 52), "e4m3": (4, 3), "e5m2": (5, 2)}


def rounded(value: Fraction, format_: str, mode: str = "rn", zero: float = 0.0) -> float:
    """Round a rational to a format; `zero` gives the sign of a zero result."""
    exponent_bits, mantissa = FORMATS[format_]
    bias = (1 << (exponent_bits - 1)) - 1
    if value == 0:
        return zero
    size, negative = abs(value), value < 0
    exponent = max(math.frexp(float(size))[1] - 1 if float(size) not in (0.0, math.inf) else -2000, 1 - bias)
    if exponent != 1 - bias:
        while Fraction(2) ** exponent > size:
            exponent -= 1
        while Fraction(2) ** (exponent + 1) <= size:
            exponent += 1
        exponent = max(exponent, 1 - bias)
    step = Fraction(2) ** (exponent - mantissa)
    whole, rest = divmod(size, step)
    up = {
        "rn": rest * 2 > step or (rest * 2 == step and whole & 1),
        "rz": False,
        "rp": not negative and rest > 0,
        "rm": negative and rest > 0,
    }[mode]
    size = (whole + (1 if up else 0)) * step
    top = Fraction(2) ** bias * (2 - Fraction(1, 1 << mantissa))
    if size > top:
        outward = mode == "rn" or (mode == "rp" and not negative) or (mode == "rm" and negative)
        return (-math.inf if negative else math.inf) if outward else float(-top if negative else top)
    return -float(size) if negative else float(size)


@pytest.mark.parametrize("type_", ["f32", "f64"])
@pytest.mark.parametrize(
    ("op", "reference"), [("add", np.add), ("sub", np.subtract), ("mul", np.multiply), ("div.rn", np.divide)]
)
def test_arithmetic_to_nearest_is_exact(bench: Any, floats: Any, op: Any, reference: Any, type_: Any):
    bits = int(type_[1:])
    a, b = floats(bits, COUNT, 1), floats(bits, COUNT, 2)
    got = bench.apply(f"{op}.{type_} %d, %a, %b;", f"u{bits // 8}", a, b)
    assert got.tolist() == bits_of(reference(a, b))


@pytest.mark.sampled(5)
@pytest.mark.parametrize("mode", ["rz", "rm", "rp"])
@pytest.mark.parametrize("op", ["add", "mul", "div", "fma"])
def test_directed_rounding_is_exact(bench: Any, floats: Any, op: Any, mode: Any):
    a, b, c = (floats(32, COUNT, seed) for seed in (1, 2, 3))
    finite = np.isfinite(a) & np.isfinite(b) & np.isfinite(c) & (b != 0) & (a != 0)
    a, b, c = a[finite], b[finite], c[finite]
    operands = "%a, %b, %c" if op == "fma" else "%a, %b"
    got = bench.apply(f"{op}.{mode}.f32 %d, {operands};", "f4", a, b, c)
    exact = {
        "add": lambda x, y, z: x + y,
        "mul": lambda x, y, z: x * y,
        "div": lambda x, y, z: x / y,
        "fma": lambda x, y, z: x * y + z,
    }[op]
    for i, value in enumerate(got):
        true = exact(*(Fraction(float(v[i])) for v in (a, b, c)))
        if true != 0:
            want = math.copysign(rounded(true, "f32", mode), -1 if true < 0 else 1)
            assert (value, math.copysign(1, value)) == (want, math.copysign(1, want)), (a[i], b[i], c[i])


@pytest.mark.sampled(3)
@pytest.mark.parametrize("format_", ["f16", "bf16"])
@pytest.mark.parametrize("op", ["add", "sub", "mul", "fma"])
def test_sixteen_bit_arithmetic_rounds_once(bench: Any, floats: Any, ints: Any, format_: Any, op: Any):
    raw = [
        floats(16, COUNT, seed).view(np.uint16) if format_ == "f16" else ints(16, COUNT, seed)
        for seed in (1, 2, 3)
    ]
    values = [widen(r, format_) for r in raw]
    finite = np.isfinite(values[0]) & np.isfinite(values[1]) & np.isfinite(values[2])
    raw, values = [r[finite] for r in raw], [v[finite] for v in values]
    rn = "rn." if format_ == "bf16" or op == "fma" else ""
    got = widen(
        bench.apply(f"{op}.{rn}{format_} %d, %a, %b{', %c' if op == 'fma' else ''};", "u2", *raw), format_
    )
    exact = {
        "add": lambda x, y, z: x + y,
        "sub": lambda x, y, z: x - y,
        "mul": lambda x, y, z: x * y,
        "fma": lambda x, y, z: x * y + z,
    }[op]
    for i, value in enumerate(got):
        true = exact(*(Fraction(float(v[i])) for v in values))
        assert value == rounded(true, format_), tuple(v[i] for v in values)


def widen(raw: Any, format_: Any):
    return (
        raw.view(np.float16).astype(np.float64)
        if format_ == "f16"
        else (raw.astype(np.uint32) << 16).view(np.float32).astype(np.float64)
    )


def test_packed_halves_are_two_numbers(bench: Any, floats: Any):
    pairs = [floats(16, 2 * COUNT, seed) for seed in (1, 2, 3)]
    got = bench.apply("fma.rn.f16x2 %d, %a, %b, %c;", "u4", *(p.view(np.uint32) for p in pairs)).view(
        np.uint16
    )
    want = bench.apply("fma.rn.f16 %d, %a, %b, %c;", "u2", *(p.view(np.uint16) for p in pairs))
    assert got.tolist() == want.tolist()


@pytest.mark.parametrize("op", ["add", "mul", "fma"])
def test_pairs_of_single_precision_are_two_numbers(bench: Any, floats: Any, op: Any) -> None:
    pairs = [floats(32, 2 * COUNT, seed) for seed in (1, 2, 3)]
    arguments = "%a, %b, %c" if op == "fma" else "%a, %b"
    wide = [p.view(np.uint64) for p in pairs]
    got = bench.apply(f"{op}.rn.f32x2 %d, {arguments};", "u8", *wide, arch="sm_100").view(np.uint32)
    want = bench.apply(f"{op}.rn.f32 %d, {arguments};", "u4", *(p.view(np.uint32) for p in pairs))
    assert got.tolist() == want.tolist()


def test_flush_to_zero_flushes_operands_and_result(bench: Any, floats: Any):
    a, b = floats(32, COUNT, 1), floats(32, COUNT, 2)
    got = bench.apply("mul.ftz.f32 %d, %a, %b;", "u4", a, b)
    tiny = np.finfo(np.float32).tiny

    def flush(x: Any) -> Any:
        return np.where(np.abs(x) < tiny, np.copysign(np.float32(0), x), x)

    assert got.tolist() == bits_of(flush(flush(a) * flush(b)))


def test_saturation_clamps_and_drops_nan(bench: Any, floats: Any):
    a, b = floats(32, COUNT, 1), floats(32, COUNT, 2)
    got = bench.apply("add.sat.f32 %d, %a, %b;", "f4", a, b)
    total = a + b
    assert got.tolist() == np.where(np.isnan(total), np.float32(0), np.clip(total, 0, 1)).tolist()


@pytest.mark.parametrize("op", ["min", "max"])
def test_extremes_prefer_numbers_and_order_zeros(bench: Any, floats: Any, op: Any):
    a, b = floats(32, COUNT, 1), floats(32, COUNT, 2)
    got = bench.apply(f"{op}.f32 %d, %a, %b;", "u4", a, b)

    def pick(x: Any, y: Any) -> Any:
        if math.isnan(x) or math.isnan(y):
            return y if math.isnan(x) else x
        if x == y == 0:
            negative = math.copysign(1, x) < 0, math.copysign(1, y) < 0
            return -0.0 if (any(negative) if op == "min" else all(negative)) else 0.0
        return min(x, y) if op == "min" else max(x, y)

    assert got.tolist() == bits_of(
        np.array([pick(float(x), float(y)) for x, y in zip(a, b, strict=True)], np.float32)
    )
    got = bench.apply(f"{op}.NaN.f32 %d, %a, %b;", "f4", a, b)
    assert np.isnan(got).tolist() == (np.isnan(a) | np.isnan(b)).tolist()


@pytest.mark.parametrize("type_", ["f32", "f64"])
def test_square_root_and_reciprocal_to_nearest_are_exact(bench: Any, floats: Any, type_: Any):
    bits = int(type_[1:])
    a = floats(bits, COUNT, 1)
    assert bench.apply(f"sqrt.rn.{type_} %d, %a;", f"u{bits // 8}", a).tolist() == bits_of(np.sqrt(a))
    assert bench.apply(f"rcp.rn.{type_} %d, %a;", f"u{bits // 8}", a).tolist() == bits_of(a.dtype.type(1) / a)


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


def test_approximations_are_right_at_special_values(bench: Any):
    a = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, -1.0], np.float32)
    inf, nan = math.inf, math.nan
    for op, want in {
        "ex2": [1, 1, inf, 0, nan, 0.5],
        "lg2": [-inf, -inf, inf, nan, nan, nan],
        "sin": [0, -0.0, nan, nan, nan, None],
        "rcp": [inf, -inf, 0, -0.0, nan, -1],
        "rsqrt": [inf, -inf, 0, nan, nan, nan],
    }.items():
        got = bench.apply(f"{op}.approx.f32 %d, %a;", "f4", a).tolist()
        for x, y in zip(want, got, strict=True):
            assert x is None or (math.isnan(x) and math.isnan(y)) or x == y, (op, want, got)


@pytest.mark.sampled(5)
@pytest.mark.parametrize(
    ("how", "test"),
    [
        ("eq", lambda a, b: a == b),
        ("ne", lambda a, b: (a != b) & ~np.isnan(a) & ~np.isnan(b)),
        ("lt", lambda a, b: a < b),
        ("ge", lambda a, b: a >= b),
        ("neu", lambda a, b: a != b),
        ("ltu", lambda a, b: ~(a >= b)),
        ("num", lambda a, b: ~np.isnan(a) & ~np.isnan(b)),
        ("nan", lambda a, b: np.isnan(a) | np.isnan(b)),
    ],
)
@pytest.mark.parametrize("type_", ["f16", "f32", "f64"])
def test_comparison_with_nans(bench: Any, floats: Any, how: Any, test: Any, type_: Any):
    bits = int(type_[1:])
    a, b = floats(bits, COUNT, 1), floats(bits, COUNT, 1)[::-1].copy()
    got = bench.apply(f"setp.{how}.{type_} %p1, %a, %b; selp.b32 %d, 1, 0, %p1;", "u4", a, b)
    assert got.astype(bool).tolist() == test(a, b).tolist()


def test_set_gives_ones_or_one_point_zero(bench: Any, floats: Any):
    a, b = floats(32, COUNT, 1), floats(32, COUNT, 2)
    assert (
        bench.apply("set.lt.u32.f32 %d, %a, %b;", "u4", a, b).tolist()
        == np.where(a < b, 0xFFFF_FFFF, 0).tolist()
    )
    assert (
        bench.apply("set.lt.f32.f32 %d, %a, %b;", "f4", a, b).tolist() == (a < b).astype(np.float32).tolist()
    )


@pytest.mark.sampled(7)
@pytest.mark.parametrize("target", ["u8", "s8", "u16", "s16", "u32", "s32", "u64", "s64"])
@pytest.mark.parametrize("source", ["f32", "f64"])
@pytest.mark.parametrize("how", ["rni", "rzi", "rmi", "rpi"])
def test_floats_to_integers_saturate(bench: Any, floats: Any, how: Any, source: Any, target: Any):
    a = floats(int(source[1:]), COUNT, 1)
    bits = int(target[1:])
    out = max(bits, 16)
    got = bench.apply(
        f"cvt.{how}.{target}.{source} %d, %a;", f"i{out // 8}" if target[0] == "s" else f"u{out // 8}", a
    )
    low, high = (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if target[0] == "s" else (0, (1 << bits) - 1)
    nan = 1 << (bits - 1) if source == "f64" or bits == 64 else 0
    nan = nan - (1 << bits) if target[0] == "s" and nan else nan
    step = {"rni": round, "rzi": math.trunc, "rmi": math.floor, "rpi": math.ceil}[how]
    for x, y in zip(a.tolist(), got.tolist(), strict=True):
        want = (
            nan
            if math.isnan(x)
            else low
            if x == -math.inf
            else high
            if x == math.inf
            else max(low, min(high, step(x)))
        )
        assert y == want, (x, y, want)


@pytest.mark.sampled(29)
@pytest.mark.parametrize("mode", ["rn", "rz", "rm", "rp"])
@pytest.mark.parametrize("source", ["u16", "s16", "u32", "s32", "u64", "s64"])
@pytest.mark.parametrize("target", ["f16", "f32", "f64"])
def test_integers_to_floats_round_by_their_modifier(
    bench: Any, ints: Any, target: Any, source: Any, mode: Any
):
    bits = int(source[1:])
    a = ints(bits, COUNT, 1)
    got = bench.apply(f"cvt.{mode}.{target}.{source} %d, %a;", f"f{int(target[1:]) // 8}", a)
    values = a.view(f"i{bits // 8}") if source[0] == "s" else a
    for x, y in zip(values.tolist(), got.tolist(), strict=True):
        assert y == rounded(Fraction(x), target, mode), (x, y)


@pytest.mark.parametrize("mode", ["rn", "rz", "rm", "rp"])
def test_double_to_single_rounds_by_its_modifier(bench: Any, floats: Any, mode: Any):
    a = floats(64, COUNT, 1)
    got = bench.apply(f"cvt.{mode}.f32.f64 %d, %a;", "f4", a)
    for x, y in zip(a.tolist(), got.tolist(), strict=True):
        if math.isnan(x):
            assert math.isnan(y)
        else:
            assert y == (x if math.isinf(x) else rounded(Fraction(x), "f32", mode)), x


@pytest.mark.parametrize("source", ["f32", "f64"])
@pytest.mark.parametrize("target", ["f16", "bf16"])
@pytest.mark.parametrize("mode", ["rn", "rz"])
def test_narrowing_to_sixteen_bits_rounds_once(bench: Any, floats: Any, source: Any, target: Any, mode: Any):
    a = floats(int(source[1:]), COUNT, 1)
    a[: COUNT // 2] = (
        (floats(16, COUNT // 2, 3).astype(a.dtype) * a.dtype.type(1 + 2.0**-12))
        if source == "f32"
        else (floats(16, COUNT // 2, 3).astype(a.dtype) * (1 + 2.0**-11 + 2.0**-40))
    )
    got = widen(bench.apply(f"cvt.{mode}.{target}.{source} %d, %a;", "u2", a), target)
    for x, y in zip(a.tolist(), got.tolist(), strict=True):
        if math.isnan(x):
            assert math.isnan(y)
        else:
            assert y == (x if math.isinf(x) else rounded(Fraction(x), target, mode)), x


@pytest.mark.parametrize("format_", ["e4m3", "e5m2"])
def test_eight_bit_floats_round_trip_and_saturate(bench: Any, floats: Any, format_: Any):
    a, b = floats(32, COUNT, 1), floats(32, COUNT, 2)
    packed = bench.apply(f"cvt.rn.satfinite.{format_}x2.f32 %d, %a, %b;", "u2", a, b)
    wide = bench.apply(f"cvt.rn.f16x2.{format_}x2 %d, %a;", "u4", packed).view(np.float16).reshape(-1, 2)
    largest = 448.0 if format_ == "e4m3" else 57344.0
    for i in range(COUNT):
        for x, y in ((float(b[i]), float(wide[i, 0])), (float(a[i]), float(wide[i, 1]))):
            if math.isnan(x):
                assert math.isnan(y)
                continue
            want = math.copysign(largest, x) if math.isinf(x) else rounded(Fraction(x), format_)
            if format_ == "e4m3" and not math.isinf(x):
                want = e4m3(x)
            want = max(-largest, min(largest, want))
            assert y == want, (x, y, want)


def e4m3(value: float) -> float:
    """e4m3 has no infinity: its top exponent holds numbers up to 448."""
    codes = [(1 + m / 8) * 2.0 ** (e - 7) for e in range(1, 16) for m in range(8) if (e, m) != (15, 7)] + [
        m / 8 * 2.0**-6 for m in range(8)
    ]
    codes.sort()
    size = abs(value)
    if size >= 448:
        return math.copysign(448.0, value)
    import bisect

    at = bisect.bisect_left(codes, size)
    if codes[at] == size:
        return value
    low, high = codes[at - 1], codes[at]
    middle = (low + high) / 2
    pick = low if size < middle or (size == middle and at % 2 == 1) else high
    return math.copysign(pick, value)


@pytest.mark.parametrize("how", ["rni", "rzi", "rmi", "rpi"])
def test_rounding_to_integral_floats(bench: Any, floats: Any, how: Any):
    a = floats(32, COUNT, 1)
    got = bench.apply(f"cvt.{how}.f32.f32 %d, %a;", "u4", a)
    assert got.tolist() == bits_of({"rni": np.rint, "rzi": np.trunc, "rmi": np.floor, "rpi": np.ceil}[how](a))


def test_tf32_keeps_ten_bits_ties_away(bench: Any, floats: Any):
    a = floats(32, COUNT, 1)
    a = a[np.isfinite(a) & (np.abs(a) < 1e38)]
    got = bench.apply("cvt.rna.tf32.f32 %d, %a;", "u4", a)
    assert got.tolist() == [((x + 0x1000) & 0xFFFF_E000) for x in a.view(np.uint32).tolist()]


@pytest.mark.sampled(5)
@pytest.mark.parametrize("target", ["u8", "s8", "u16", "s16", "u32", "s32"])
@pytest.mark.parametrize("source", ["u32", "s32", "u64", "s64"])
def test_integer_conversion_with_saturation(bench: Any, ints: Any, source: Any, target: Any):
    if source == target:  # nothing can saturate, and no assembler takes it
        with pytest.raises(PtxError, match="sat is not supported here"):
            bench.apply(f"cvt.sat.{target}.{source} %d, %a;", "u4", ints(32, COUNT, 1))
        return
    bits, out = int(source[1:]), int(target[1:])
    a = ints(bits, COUNT, 1)
    got = bench.apply(
        f"cvt.sat.{target}.{source} %d, %a;", f"{'i' if target[0] == 's' else 'u'}{max(out, 16) // 8}", a
    )
    low, high = (-(1 << (out - 1)), (1 << (out - 1)) - 1) if target[0] == "s" else (0, (1 << out) - 1)
    values = a.view(f"i{bits // 8}") if source[0] == "s" else a
    assert got.tolist() == [max(low, min(high, x)) for x in values.tolist()]


def test_narrow_conversion_sign_extends_from_its_type(bench: Any, ints: Any):
    a = ints(32, COUNT, 1)
    assert (
        bench.apply("cvt.s32.s8 %d, %a;", "i4", a).tolist()
        == a.astype(np.uint8).view(np.int8).astype(np.int32).tolist()
    )
    assert bench.apply("cvt.u64.u16 %d, %a;", "u8", a).tolist() == a.astype(np.uint16).tolist()


def test_moves_pack_and_unpack(bench: Any, ints: Any):
    a, b = ints(32, COUNT, 1), ints(32, COUNT, 2)
    got = bench.apply(
        "mov.b64 %rd1, {%a, %b}; mov.b64 {%r5, %r6}, %rd1; mov.b32 {%h1, %h2}, %r6; mov.b32 %d, {%h2, %h1};",
        "u4",
        a,
        b,
    )
    assert got.tolist() == [(v >> 16 | v << 16) & 0xFFFF_FFFF for v in b.tolist()]


def test_nans_are_canonical_only_when_arithmetic_made_them(bench: Any):
    a = np.array([0x7F80_1234, 0xFFC0_0001, 0x3F80_0000], np.uint32)
    assert bench.apply("mov.b32 %d, %a;", "u4", a).tolist() == a.tolist()
    assert bench.apply("add.f32 %d, %a, 0f00000000;", "u4", a).tolist() == [
        0x7FFF_FFFF,
        0x7FFF_FFFF,
        0x3F80_0000,
    ]


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
