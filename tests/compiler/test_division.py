"""Divisions and square roots made of multiplications: right for every start value that PTX allows.

The texts run as host code, with the reciprocal or inverse root that they start from moved by whole units:
`rcp.approx` promises one unit, `rsqrt.approx` 2**-22.9 of the value, which is less than three. The results
must be those of the host's own instructions, to the bit.
"""

from __future__ import annotations

import functools
import math
import random

import numpy as np
import pytest

from compiler.targets.nvptx import float_division, int_division, sqrt
from compiler.targets.nvptx.expansion import Expansion
from tests.compiler.expanded import run

DIVIDE = {np.float32: float_division.divide_float32, np.float64: float_division.divide_float64}
ROOT = {np.float32: sqrt.root_float32, np.float64: sqrt.root_float64}
DIGITS = {np.float32: 24, np.float64: 53}
WORD = {np.float32: np.uint32, np.float64: np.uint64}
MOVED = (-4, -1, 0, 1, 4)
COUNT = 50_000


def words(rng: np.random.Generator, kind: type, count: int = COUNT) -> np.ndarray:
    """Any bits."""
    return rng.integers(0, np.iinfo(WORD[kind]).max, count, WORD[kind], endpoint=True).view(kind)


def significands(rng: np.random.Generator, kind: type, count: int = COUNT) -> np.ndarray:
    """Numbers in [1, 2)."""
    fraction = rng.integers(0, 1 << DIGITS[kind] - 1, count, WORD[kind])
    return (fraction | np.ones(1, kind).view(WORD[kind])).view(kind)


def same(got: np.ndarray, want: np.ndarray) -> None:
    """The same numbers, with their signs; NaNs where NaNs are wanted."""
    nan = np.isnan(want)
    np.testing.assert_array_equal(np.isnan(got), nan)
    word = WORD[got.dtype.type]
    np.testing.assert_array_equal(got[~nan].view(word), want[~nan].view(word))


def divided(x: np.ndarray, y: np.ndarray, offset: int) -> None:
    with np.errstate(all="ignore"):
        same(run(DIVIDE[x.dtype.type](), x, y, offset=offset), x / y)


@pytest.mark.parametrize("offset", MOVED)
@pytest.mark.parametrize("kind", DIVIDE)
def test_quotients_of_any_operands(kind: type, offset: int):
    rng = np.random.default_rng(1)
    divided(words(rng, kind), words(rng, kind), offset)
    divided(significands(rng, kind), significands(rng, kind), offset)


@pytest.mark.parametrize("offset", MOVED)
@pytest.mark.parametrize("kind", DIVIDE)
def test_quotients_at_both_ends_of_the_exponents(kind: type, offset: int):
    rng = np.random.default_rng(2)
    info = np.finfo(kind)
    for center in (info.minexp, info.minexp - DIGITS[kind] // 2, info.minexp - DIGITS[kind], info.maxexp):
        gap = center + rng.integers(-4, 5, COUNT)
        low = rng.integers(
            max(info.minexp, info.minexp + center), min(info.maxexp, info.maxexp + center), COUNT
        )
        x = np.ldexp(significands(rng, kind), np.clip(low, info.minexp, info.maxexp - 1)).astype(kind)
        y = np.ldexp(significands(rng, kind), np.clip(low - gap, info.minexp - 9, info.maxexp - 1)).astype(
            kind
        )
        divided(x, y, offset)


@pytest.mark.parametrize("kind", DIVIDE)
def test_subnormal_quotients_on_a_midpoint_go_to_the_even_number(kind: type):
    info, rng = np.finfo(kind), np.random.default_rng(3)
    odd = (2 * rng.integers(0, 1 << 20, COUNT) + 1).astype(kind)
    x = np.ldexp(odd, info.minexp).astype(kind)
    y = np.full(COUNT, np.ldexp(kind(1), info.nmant + 1), kind)
    divided(x, y, 0)
    divided(-x, np.nextafter(y, kind(0)), 1)
    divided(x, np.nextafter(y, kind(np.inf)), -1)


@pytest.mark.parametrize("kind", DIVIDE)
def test_zeros_infinities_nans_and_edges(kind: type):
    info = np.finfo(kind)
    some = [0, np.inf, np.nan, 1, 3, info.tiny, info.smallest_subnormal, info.max, 1 / info.tiny, info.eps]
    values = np.array([*some, *[-v for v in some]], kind)
    x, y = (a.ravel() for a in np.meshgrid(values, values))
    divided(x, y, 0)
    with np.errstate(all="ignore"):
        same(run(ROOT[kind](), values), np.sqrt(values))


@functools.cache
def beside_midpoints(kind: type, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Operands whose quotient lies beside a midpoint: 2**p X = (2 M + 1) Y + j with j small."""
    p, choose, pairs = DIGITS[kind], random.Random(4), []
    tops = [(1 << p) - k for k in range(1, 400, 2)]
    for y in tops + [choose.randrange((1 << p - 1) + 1, 1 << p, 2) for _ in range(count)]:
        for j in (-5, -3, -1, 1, 3, 5):
            for shift in (p, p + 1):
                x = j * pow(1 << shift, -1, y) % y
                pairs += [(v, y) for v in (x, x + y) if 1 << p - 1 <= v < 1 << p]
    x, y = (np.array(side, np.uint64).astype(kind) for side in zip(*pairs, strict=True))
    return x, y


@pytest.mark.parametrize("offset", MOVED)
@pytest.mark.parametrize("kind", DIVIDE)
def test_quotients_beside_midpoints(kind: type, offset: int):
    x, y = beside_midpoints(kind, 1000)
    assert x.size > 5000
    divided(x, y, offset)
    divided(-x, np.ldexp(y, np.finfo(kind).maxexp - DIGITS[kind]).astype(kind), offset)


@pytest.mark.slow
@pytest.mark.sampled(9)
@pytest.mark.parametrize("k", [63, 1, 61, 64, 2, 62, 65, 3, 66])
def test_float32_quotients_on_both_sides_of_the_last_ordinary_divisor(k: int):
    x = np.arange(127 << 23, 128 << 23, dtype=np.uint32).view(np.float32)
    y = np.full_like(x, np.float32(2.0 - k * 2.0**-23))
    want = x / y
    for offset in (-2, 0, 2):
        np.testing.assert_array_equal(run(float_division.divide_float32(), x, y, offset=offset), want)


@pytest.mark.sampled(16)
@pytest.mark.slow
@pytest.mark.parametrize("offset", range(-5, 6))
def test_every_float32_root_with_every_start_value(offset: int):
    x = np.arange(127 << 23, 129 << 23, dtype=np.uint32).view(np.float32)
    np.testing.assert_array_equal(run(sqrt.root_float32(), x, offset=offset), np.sqrt(x))


@pytest.mark.parametrize("offset", MOVED)
@pytest.mark.parametrize("kind", ROOT)
def test_roots_of_any_arguments(kind: type, offset: int):
    rng = np.random.default_rng(5)
    x = np.concatenate([words(rng, kind), np.abs(words(rng, kind)), significands(rng, kind)])
    subnormal = (words(rng, kind).view(WORD[kind]) >> WORD[kind](12)).view(kind)
    for part in (x, subnormal, subnormal * kind(2) ** -12):
        with np.errstate(all="ignore"):
            same(run(ROOT[kind](), part, offset=offset), np.sqrt(part))


@functools.cache
def squares_of_midpoints(reach: int) -> np.ndarray:
    """Float64 numbers next to the square of a midpoint: x = M (M + 1) - c, c even and small, by lifting M."""
    found = [1.0, 1.0 + 2.0**-52, 4.0 - 2.0**-51, 2.0 - 2.0**-52]
    for bits in (52, 53):
        for c in range(-reach, reach, 2):
            for first in (0, 1):
                m = first
                for k in range(1, bits):
                    if (m * (m + 1) - c) >> k & 1:
                        m |= 1 << k
                m |= 1 << 52
                x = m * (m + 1) - c
                if x % (1 << bits) == 0 and x >> bits < 1 << 53:
                    found.append(math.ldexp(x >> bits, bits - 104))
    return np.array(found)


@pytest.mark.parametrize("offset", [*range(-6, 7)])
def test_roots_beside_midpoints(offset: int):
    x = squares_of_midpoints(400)
    assert x.size > 500
    for part in (x, x * 2.0**-40, x * 2.0**900):
        same(run(sqrt.root_float64(), part, offset=offset), np.sqrt(part))


def integers(kind: type) -> tuple[np.ndarray, np.ndarray]:
    """Operands of all sizes, multiples and their neighbours, and the ends."""
    rng = np.random.default_rng(6)
    x, y = (
        rng.integers(0, 2**64 - 1, COUNT, np.uint64, endpoint=True) >> rng.integers(0, 64, COUNT, np.uint64)
        for _ in range(2)
    )
    y[y == 0] = 1
    multiple = x // y * y
    ends = np.array(
        [1, 2, 3, 2**31, 2**32 - 1, 2**32, 2**62, 2**63 - 1, 2**63, 2**63 + 1, 2**64 - 1], np.uint64
    )
    end_x, end_y = (a.ravel() for a in np.meshgrid(ends, ends))
    xs = np.concatenate([x, multiple, multiple - (multiple > 0), np.full_like(y, 2**64 - 1), end_x])
    ys = np.concatenate([y, y, y, y, end_y])
    return xs.view(kind), ys.view(kind)


@pytest.mark.parametrize("offset", MOVED)
def test_unsigned_quotients(offset: int):
    x, y = integers(np.uint64)
    np.testing.assert_array_equal(run(int_division.divide_unsigned(), x, y, offset=offset), x // y)


@pytest.mark.parametrize("offset", MOVED)
def test_signed_quotients_round_towards_zero_and_the_least_by_minus_one_wraps(offset: int):
    x, y = integers(np.int64)
    want = (np.abs(x).view(np.uint64) // np.abs(y).view(np.uint64)).view(np.int64)
    want = np.where((x < 0) != (y < 0), -want, want)
    np.testing.assert_array_equal(run(int_division.divide_signed(), x, y, offset=offset), want)


def test_names_of_an_expansion_are_its_own():
    twice = Expansion(
        "declare float @f(float)\n  %a = fadd float %x, %y\n  br label %done\ndone:\n"
        "  %result = fneg float %a\n"
    )
    assert twice.declared == ("declare float @f(float)",)
    assert twice.ends == "done"
    assert twice.written("v7.", {"x": "%v1", "y": "2.0", "result": "%v7"}, "entry").splitlines() == [
        "  %v7.a = fadd float %v1, 2.0",
        "  br label %v7.done",
        "v7.done:",
        "  %v7 = fneg float %v7.a",
    ]
