"""Powers: of floats within two units of the last place, of integers exactly."""

# ruff: noqa: ANN001  # parametrised arguments: their values are listed at the test

import numpy as np
import pytest

from compiler.dtype import dtypes
from compiler.ir.scalar import compute
from tests.compiler.kernels import ARCH, elementwise, load, loop, number, op, run, sink, store
from tests.compiler.test_transcendental import error_in_ulps

INTEGERS = [t for t in dtypes.all() if t.is_int]
WIDE = {dtypes.float32: np.float64, dtypes.float64: np.longdouble}
RANGE = {dtypes.float32: (-149, 127.9), dtypes.float64: (-1074, 1023.9)}
"""Binary logarithms of the least and the greatest number."""
SPECIALS = [
    0.0, 1.0, 2.0, 0.5, 3.0, 2.5, 0.3, 1e-3, 1e4, 1e30, 1e-40, 5e-324, 2.0**24 + 1, 2.0**53 - 1, np.inf,
]  # fmt: skip
pytestmark = pytest.mark.skipif(
    np.finfo(np.longdouble).nmant < 63, reason="needs a long double of 64 bits or more"
)


def operands(dtype) -> tuple[np.ndarray, np.ndarray]:
    """Bases and exponents: of any size, near 1 with large exponents, and whose power is near the limits."""
    rng, count, (least, top) = np.random.default_rng(3), 1 << 15, RANGE[dtype]
    base = np.exp2(rng.uniform(least, top, count))
    near = 1 + rng.uniform(-0.1, 0.1, count)
    middle = rng.uniform(0.5, 2, count)
    exponents = (
        rng.uniform(-4, 4, count),
        rng.uniform(-8 * top, 8 * top, count),
        rng.uniform(-top, top, count),
    )
    return np.concatenate([base, near, middle]).astype(dtype.numpy), np.concatenate(exponents).astype(
        dtype.numpy
    )


@pytest.mark.parametrize("arch", [ARCH, "x86_64-v3"])
@pytest.mark.parametrize("dtype", WIDE, ids=lambda d: d.name)
def test_power_of_floats_is_within_its_bound(dtype, arch):
    x, y = operands(dtype)
    got = elementwise("POW", [x, y], [dtype, dtype], dtype, arch=arch)
    with np.errstate(all="ignore"):
        exact = x.astype(WIDE[dtype]) ** y.astype(WIDE[dtype])
    worst = error_in_ulps(got, exact)
    assert worst.max() <= 1.6, f"{worst.max()} at {x[worst.argmax()]!r} ** {y[worst.argmax()]!r}"


@pytest.mark.sampled(5)
@pytest.mark.parametrize("exponent", [2, 3, -1, -2, 5, -5, 13, 64, -64, 65, 0.25, -1.5])
@pytest.mark.parametrize("dtype", WIDE, ids=lambda d: d.name)
def test_power_to_a_known_exponent_is_within_its_bound(dtype, exponent):
    rng, (least, top) = np.random.default_rng(4), RANGE[dtype]
    reach = -1.1 * least / abs(exponent)
    x = np.exp2(rng.uniform(max(-reach, least), min(reach, top), 1 << 15)).astype(dtype.numpy)
    x = np.concatenate([x, -x[:5000] if exponent == int(exponent) else x[:0]])
    i = loop(0, x.size)
    value = op("POW", load(1, i, dtype), number(float(exponent), dtype), dtype=dtype)
    got = run(sink(store(0, i, value)), {1: x}, {0: (x.size, dtype)})[0]
    with np.errstate(all="ignore"):
        exact = x.astype(WIDE[dtype]) ** WIDE[dtype](exponent)
    worst = error_in_ulps(got, exact)
    assert worst.max() <= 1.6, f"{worst.max()} at {x[worst.argmax()]!r}"


@pytest.mark.sampled(5)
@pytest.mark.parametrize("known", [False, True])
@pytest.mark.parametrize("dtype", WIDE, ids=lambda d: d.name)
def test_special_powers_match_c(dtype, known):
    with np.errstate(all="ignore"):
        points = np.array([*SPECIALS, *[-s for s in SPECIALS], np.nan], dtype.numpy)
        x, y = [part.ravel() for part in np.meshgrid(points, points)]
        want = x**y
    if known:
        i, got = loop(0, points.size), []
        for exponent in points.tolist():
            value = op("POW", load(1, i, dtype), number(exponent, dtype), dtype=dtype)
            got.append(run(sink(store(0, i, value)), {1: points}, {0: (points.size, dtype)})[0])
        found = np.concatenate(got)
    else:
        found = elementwise("POW", [x, y], [dtype, dtype], dtype)
    exact = ~np.isfinite(want) | (want == 0) | (want == 1)
    np.testing.assert_array_equal(found[exact], want[exact])
    sign = ~np.isnan(want)
    np.testing.assert_array_equal(np.signbit(found[sign]), np.signbit(want[sign]))
    np.testing.assert_allclose(
        found[~exact], want[~exact], rtol=2.0 ** (-22 if dtype.bits == 32 else -51), atol=2e-45
    )


def integer_power(x: int, y: int, bits: int, *, signed: bool) -> int:
    """x**y modulo 2**bits by Python's integers; 0 for a negative power, but of 1 and -1."""
    if y < 0:
        return (-1 if y % 2 else 1) if x == -1 else int(x == 1)
    rest = pow(x, y, 1 << bits)
    return rest - (1 << bits) if signed and rest >> (bits - 1) else rest


@pytest.mark.sampled(3)
@pytest.mark.parametrize("arch", [ARCH, "x86_64-v3"])
@pytest.mark.parametrize("dtype", INTEGERS, ids=lambda d: d.name)
def test_power_of_integers_is_exact(dtype, arch):
    low, high = dtype.min, dtype.max
    some = [low, low + 1, high, high - 1, 0, 1, 2, 3, 5, 7, 10, 39, 40, 62, 63, 64, 65, 100]
    some += [-1, -2, -3, -64, -65] if low else []
    rng = np.random.default_rng(5)
    values = [*some, *rng.integers(low, high, 30, dtype.numpy, endpoint=True).tolist()]
    pairs = [(a, b) for a in values for b in values]
    x, y = (np.array(part, dtype.numpy) for part in zip(*pairs, strict=True))
    got = elementwise("POW", [x, y], [dtype, dtype], dtype, arch=arch)
    want = [integer_power(a, b, dtype.bits, signed=bool(low)) for a, b in pairs]
    assert got.tolist() == want


@pytest.mark.parametrize("dtype", INTEGERS, ids=lambda d: d.name)
def test_constant_powers_of_integers_fold_to_what_kernels_give(dtype):
    values = [dtype.min, dtype.max, 0, 1, 2, 3, 7, 39, 64, 100, *([-1, -2, -3] if dtype.min else [])]
    for a in values:
        for b in values:
            want = integer_power(a, b, dtype.bits, signed=bool(dtype.min))
            assert compute("POW", dtype, [a, b], dtype) == want, (a, b)
