"""The remainder of float division: exact for any two numbers."""

# ruff: noqa: ANN001  # parametrised arguments: their values are listed at the test

import math
from fractions import Fraction

import numpy as np
import pytest

from compiler.dtype import dtypes
from compiler.ir.scalar import compute
from tests.compiler.kernels import ARCH, elementwise

FLOATS = [dtypes.float16, dtypes.float32, dtypes.float64]
SPECIALS = [0.0, 1.0, 0.1, 2.0, 3.0, 5.0, 6.0, 1e-7, 1e4, 65504.0, 123456789.0, 1e20, 1e-40, 5e-324, np.inf]


def same(got: np.ndarray, want: np.ndarray) -> None:
    np.testing.assert_array_equal(got, want)
    sign = ~np.isnan(want)
    np.testing.assert_array_equal(np.signbit(got[sign]), np.signbit(want[sign]))


def any_bits(dtype, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Pairs of any bits, half of them with quotients that one division handles."""
    rng, word = np.random.default_rng(6), np.dtype(f"u{dtype.itemsize}")
    x, y = rng.integers(0, np.iinfo(word).max, (2, count), word, endpoint=True).view(dtype.numpy)
    with np.errstate(all="ignore"):
        y[::2] = x[::2] / rng.uniform(0.5, 1e6, x[::2].size).astype(dtype.numpy)
        y[::6] = x[::6] / rng.integers(1, 1000, x[::6].size).astype(dtype.numpy)
    return x, y


@pytest.mark.parametrize("arch", [ARCH, "x86_64-v3"])
@pytest.mark.parametrize("dtype", FLOATS, ids=lambda d: d.name)
def test_remainder_of_any_bits_is_exact(dtype, arch):
    x, y = any_bits(dtype, 1 << 15)
    with np.errstate(all="ignore"):
        same(elementwise("FMOD", [x, y], [dtype, dtype], dtype, arch=arch), np.fmod(x, y))


@pytest.mark.parametrize("dtype", FLOATS, ids=lambda d: d.name)
def test_special_remainders_match_c(dtype):
    with np.errstate(all="ignore"):
        points = np.array([*SPECIALS, *[-s for s in SPECIALS], np.nan]).astype(dtype.numpy)
        x, y = [part.ravel() for part in np.meshgrid(points, points)]
        same(elementwise("FMOD", [x, y], [dtype, dtype], dtype), np.fmod(x, y))
        folded = [compute("FMOD", dtype, [a, b], dtype) for a, b in zip(x.tolist(), y.tolist(), strict=True)]
        same(np.array(folded, dtype.numpy), np.fmod(x, y))


def test_remainder_with_the_largest_quotient_is_that_of_fractions():
    for dtype, top, least in (
        (dtypes.float32, 3.4028234663852886e38, 2.0**-149 * 3),
        (dtypes.float64, 1.7976931348623157e308, 5e-324 * 3),
    ):
        x, y = (np.array([value], dtype.numpy) for value in (top, least))
        want = Fraction(float(x[0])) % Fraction(float(y[0]))
        got = elementwise("FMOD", [x, y], [dtype, dtype], dtype)[0]
        assert math.isfinite(got)
        assert Fraction(float(got)) == want
