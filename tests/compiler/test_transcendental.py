"""Errors in units of the last place.

Against correctly rounded values made with long-double or integer arithmetic.
"""

# ruff: noqa: ANN001  # parametrised arguments: their values are listed at the test

import numpy as np
import pytest

from compiler.dtype import dtypes
from tests.compiler.kernels import ARCH, elementwise

NAMES = ("EXP", "EXP2", "LOG", "LOG2", "EXPM1", "LOG1P", "SIN", "COS", "TANH", "SQRT")
FUNCTIONS = {
    "EXP": np.exp, "EXP2": np.exp2, "LOG": np.log, "LOG2": np.log2, "SIN": np.sin,
    "COS": np.cos, "TANH": np.tanh,
    "EXPM1": np.expm1, "LOG1P": np.log1p, "SQRT": np.sqrt,
}  # fmt: skip
LIMITS_32 = {
    "EXP": 0.95, "EXP2": 0.95, "LOG": 0.95, "LOG2": 1.2, "SIN": 1.6, "COS": 1.6, "TANH": 1.5, "SQRT": 0.5001,
    "EXPM1": 1.5, "LOG1P": 1.2,
}  # fmt: skip
LIMITS_64 = {
    "EXP": 1.0, "EXP2": 1.1, "LOG": 1.0, "LOG2": 1.6, "SIN": 1.6, "COS": 1.6, "TANH": 1.7, "SQRT": 0.5001,
    "EXPM1": 1.5, "LOG1P": 1.2,
}  # fmt: skip
RANGES_32 = {
    "EXP": (-104, 89), "EXP2": (-150, 128), "LOG": (1e-45, 3e38), "LOG2": (1e-45, 3e38),
    "SIN": (-3.4e38, 3.4e38), "COS": (-3.4e38, 3.4e38), "TANH": (-20, 20), "SQRT": (0, 3e38),
    "EXPM1": (-104, 89), "LOG1P": (-0.99999994, 3e38),
}  # fmt: skip
RANGES_64 = {
    "EXP": (-746, 710), "EXP2": (-1075, 1024), "LOG": (5e-324, 1.7e308), "LOG2": (5e-324, 1.7e308),
    "SIN": (-1.7e308, 1.7e308), "COS": (-1.7e308, 1.7e308), "TANH": (-25, 25), "SQRT": (0, 1.7e308),
    "EXPM1": (-746, 710), "LOG1P": (-0.9999999999999999, 1.7e308),
}  # fmt: skip
SPECIALS = [
    0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -1.0, -2.0, 1e-45, -1e-45, 1e-38, -1e-38, 88.73, -103.98, 128.0,
    -150.0, 3.4e38,
]  # fmt: skip


def samples(low: float, high: float, dtype: type, count: int) -> np.ndarray:
    """Values whose bits are spread evenly, and whose magnitudes are, within [low, high]."""
    bits = np.uint32 if dtype is np.float32 else np.uint64
    rng = np.random.default_rng(1)
    raw = rng.integers(0, np.iinfo(bits).max, 4 * count, dtype=bits, endpoint=True).view(dtype)
    even = rng.uniform(max(low, -1e5), min(high, 1e5), count).astype(dtype)
    near = (np.arange(1, 2000) * (np.pi / 4)).astype(dtype)
    with np.errstate(invalid="ignore"):
        both = np.concatenate(
            [raw[np.isfinite(raw)], even, near, 1 + rng.uniform(-0.1, 0.1, count).astype(dtype)]
        )
        return both[(both >= low) & (both <= high)]


def error_in_ulps(got: np.ndarray, exact: np.ndarray) -> np.ndarray:
    """|got - exact| in units of the last place of the exact value in got's type."""
    tiny = np.finfo(got.dtype).smallest_subnormal
    with np.errstate(over="ignore", invalid="ignore"):
        rounded = exact.astype(got.dtype)
        unit = np.maximum(np.abs(np.spacing(rounded)).astype(exact.dtype), tiny)
        error = np.abs(got.astype(exact.dtype) - exact) / unit
    return np.where(
        (got == rounded) | (np.isnan(got) & np.isnan(rounded)), np.minimum(np.nan_to_num(error), 0.5), error
    )


@pytest.mark.sampled(3)
@pytest.mark.parametrize("arch", [ARCH, "x86_64-v3"])
@pytest.mark.parametrize("name", NAMES)
def test_float32_error_is_within_its_bound(name, arch):
    x = samples(*RANGES_32[name], np.float32, 1 << 17)
    got = elementwise(name, [x], [dtypes.float32], dtypes.float32, arch=arch)
    with np.errstate(all="ignore"):
        exact = FUNCTIONS[name](x.astype(np.float64))
    worst = error_in_ulps(got, exact)
    assert worst.max() <= LIMITS_32[name], f"{worst.max()} at {x[worst.argmax()]!r}"


@pytest.mark.sampled(3)
@pytest.mark.skipif(np.finfo(np.longdouble).nmant < 63, reason="needs a long double of 64 bits or more")
@pytest.mark.parametrize("name", NAMES)
def test_float64_error_is_within_its_bound(name):
    x = samples(*RANGES_64[name], np.float64, 1 << 15)
    got = elementwise(name, [x], [dtypes.float64], dtypes.float64)
    with np.errstate(all="ignore"):
        exact = FUNCTIONS[name](x.astype(np.longdouble))
    worst = error_in_ulps(got, exact)
    assert worst.max() <= LIMITS_64[name], f"{worst.max()} at {x[worst.argmax()]!r}"


@pytest.mark.sampled(3)
@pytest.mark.parametrize("dtype", [dtypes.float32, dtypes.float64])
@pytest.mark.parametrize("name", NAMES)
def test_special_values_agree_with_numpy(name, dtype):
    x = np.array(SPECIALS, dtype.numpy)
    got = elementwise(name, [x], [dtype], dtype)
    with np.errstate(all="ignore"):
        want = FUNCTIONS[name](x)
    exact = ~np.isfinite(want) | (want == 0)
    np.testing.assert_array_equal(got[exact], want[exact])
    np.testing.assert_array_equal(np.signbit(got[want == 0]), np.signbit(want[want == 0]))
    np.testing.assert_allclose(got[~exact], want[~exact], rtol=3e-7 if dtype is dtypes.float32 else 1e-15)


@pytest.mark.sampled(9)
@pytest.mark.slow
@pytest.mark.parametrize("name", ["EXP", "LOG", "EXPM1", "LOG1P", "SIN", "TANH"])
@pytest.mark.parametrize("every", [1024, pytest.param(256, marks=pytest.mark.landing)])
def test_one_float32_of_many_is_within_its_bound(name, every):
    bits = np.arange(5, 1 << 32, every, dtype=np.uint64).astype(np.uint32)
    x = bits.view(np.float32)
    x = x[np.isfinite(x)]
    low, high = RANGES_32[name]
    x = x[(x >= low) & (x <= high)]
    for part in np.array_split(x, 1024 // every):
        padded = np.resize(part, 1 << 22)
        got = elementwise(name, [padded], [dtypes.float32], dtypes.float32)
        worst = error_in_ulps(got, FUNCTIONS[name](padded.astype(np.float64)))
        assert worst.max() <= LIMITS_32[name], f"{worst.max()} at {padded[worst.argmax()]!r}"
