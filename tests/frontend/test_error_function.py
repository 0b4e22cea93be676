"""The error function, and activations that use it, against the C library."""

from __future__ import annotations

import math

import numpy as np
import pytest

from frontend import Tensor
from hcq.errors import UsageError

erf = np.vectorize(math.erf)


def numbers(dtype: str) -> np.ndarray:
    rng = np.random.default_rng(7)
    wide = [rng.uniform(-7, 7, 40_000), rng.uniform(-1.1, 1.1, 40_000), 10 ** rng.uniform(-37, 0, 20_000)]
    return np.concatenate([*wide, np.linspace(0.99, 1.01, 999), [0.0, 1.0, -1.0, 4.0, 6.0]]).astype(dtype)


@pytest.mark.parametrize(("dtype", "most"), [("float32", 1.3), ("float64", 1.3), ("float16", 0.51)])
def test_error_in_units_of_the_last_place(dtype: str, most: float):
    x = numbers(dtype)
    got, want = Tensor(x).erf().numpy(), erf(x.astype(np.float64))
    assert got.dtype == x.dtype
    unit = np.spacing(np.abs(want).astype(dtype)).astype(np.float64)
    error = np.abs(got.astype(np.float64) - want) / unit
    assert error.max() <= most, x[error.argmax()]


def test_special_values():
    x = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1e-45, 30.0, -30.0], np.float32)
    got = Tensor(x).erf().numpy()
    np.testing.assert_array_equal(got, np.float32([0.0, -0.0, 1.0, -1.0, np.nan, 1e-45, 1.0, -1.0]))
    np.testing.assert_array_equal(np.signbit(got[:2]), [False, True])
    assert Tensor([1]).erf().item() == pytest.approx(math.erf(1))


def test_gelu_is_exact_by_default():
    x = np.linspace(-5, 5, 101)
    exact = x * 0.5 * (1 + erf(x / math.sqrt(2)))
    near = x * 0.5 * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))
    np.testing.assert_allclose(Tensor(x).gelu().numpy(), exact, rtol=1e-13, atol=1e-15)
    np.testing.assert_allclose(Tensor(x).gelu(approximate="tanh").numpy(), near, rtol=1e-13, atol=1e-15)
    with pytest.raises(UsageError, match="'none' or 'tanh', saw True"):
        Tensor(x).gelu(True)  # type: ignore[arg-type]  # what it refuses
