"""Casts from integers to floats and back give the bits of an oracle, at any realize point.

The oracle is exact arithmetic: an integer to a float rounds once, to nearest even, in integers; a float to an
integer saturates. Nothing of the product's own arithmetic takes part.
"""

from __future__ import annotations

import math

import numpy as np
import pytest

from frontend import Tensor

INTEGERS = ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]
FLOATS = {"float16": (11, 16), "bfloat16": (8, 128), "float32": (24, 128), "float64": (53, 1024)}
"""Digits, and the exponent of 2 that is too large."""


def limits(dtype: str) -> tuple[int, int]:
    info = np.iinfo(dtype)
    return int(info.min), int(info.max)


def rounded(value: int, dtype: str) -> float:
    """Return the nearest value of a float dtype, computed with integers only."""
    digits, top = FLOATS[dtype]
    size = abs(value)
    shift = max(0, size.bit_length() - digits)
    unit = 1 << shift
    kept, rest = divmod(size, unit)
    if 2 * rest > unit or (2 * rest == unit and kept & 1):
        kept += 1
    result = kept * unit
    if result >= 1 << top:
        return math.copysign(math.inf, value)
    return math.copysign(float(result), value) if value else 0.0


def saturated(value: float, dtype: str) -> int:
    low, high = limits(dtype)
    if math.isinf(value):
        return high if value > 0 else low
    return min(max(int(value), low), high)


def boundaries(dtype: str) -> list[int]:
    """Return numbers near the limits of every type, and those where rounding twice goes wrong."""
    low, high = limits(dtype)
    edges = {0, 1, *[limit for t in INTEGERS for limit in limits(t)], 65504, 65519, 65520, 65536}
    edges |= {1 << digits for digits, _ in FLOATS.values()}
    near = {sign * edge + step for edge in edges for sign in (1, -1) for step in (-2, -1, 0, 1, 2)}
    twice = {
        (1 << 60) + (1 << 36) + 1,
        (1 << 40) + (1 << 29) + 1,
        (1 << 15) + (1 << 4) + 1,
        (1 << 62) - (1 << 8) + 1,
    }
    twice |= {(1 << n) + (1 << n - d) + 1 for d, _ in FLOATS.values() for n in range(d + 1, 63)}
    return sorted(n for n in near | twice | {-n for n in twice} if low <= n <= high)


@pytest.mark.sampled(37)
@pytest.mark.parametrize("between", FLOATS)
@pytest.mark.parametrize("source", INTEGERS)
def test_integer_casts_through_a_float_saturate_at_any_realize_point(source: str, between: str):
    values = boundaries(source)
    x = Tensor(np.array(values, source))
    floats = [rounded(n, between) for n in values]
    stored = x.cast(between).realize()
    assert stored.double().tolist() == floats
    for target in INTEGERS:
        want = [saturated(f, target) for f in floats]
        assert stored.cast(target).tolist() == want, target
        assert x.cast(between).cast(target).tolist() == want, target


@pytest.mark.sampled(5)
@pytest.mark.parametrize("between", FLOATS)
@pytest.mark.parametrize("source", INTEGERS)
def test_constants_are_cast_as_stored_values_are(source: str, between: str):
    values = boundaries(source)
    for at, target in enumerate(INTEGERS):
        value = values[(at + 1) * len(values) // 9]
        x = Tensor.full((2,), value, dtype=source).cast(between).cast(target)
        assert x.tolist() == [saturated(rounded(value, between), target)] * 2, (value, target)


@pytest.mark.sampled(5)
@pytest.mark.parametrize("source", INTEGERS)
def test_folding_integer_casts_ignores_an_intermediate_float(source: str):
    """To a float or to bool, one cast less is the same."""
    x = Tensor(np.array(boundaries(source), source))
    for between in ("float32", "float64"):
        stored = x.cast(between).realize()
        for target in ("float16", "float32", "float64", "bool"):
            assert x.cast(between).cast(target).tolist() == stored.cast(target).tolist(), (between, target)
