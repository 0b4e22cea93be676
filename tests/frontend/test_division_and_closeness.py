"""Rounded quotients, bounds that are tensors, and closeness, against NumPy."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from frontend import Tensor, dtypes
from hcq.errors import UsageError

NUMBERS = [-7, -6, -1, 0, 1, 5, 7, 100]
DIVISORS = [-3, -1, 2, 3, 7]


@pytest.mark.sampled(3)
@pytest.mark.parametrize("dtype", ["int8", "int32", "int64", "uint8", "float32", "float64"])
def test_quotients_rounded_towards_zero_and_down(dtype: str):
    a, b = (np.array([n for n in ns if n >= 0 or dtype != "uint8"]) for ns in (NUMBERS, DIVISORS))
    x, y = Tensor(a, dtype=dtype).unsqueeze(1), Tensor(b, dtype=dtype)
    exact = a[:, None] / b
    for mode, want in (("trunc", np.trunc(exact)), ("floor", np.floor(exact))):
        got = x.div(y, rounding_mode=mode)
        assert got.dtype.name == dtype
        np.testing.assert_array_equal(got.numpy(), want)
    np.testing.assert_array_equal(x.div(3, rounding_mode="trunc").numpy(), np.trunc(a[:, None] / 3))
    np.testing.assert_allclose(x.div(y).numpy(), exact, rtol=1e-6)


def test_integers_by_zero_and_unknown_modes_are_refused():
    with pytest.raises(ZeroDivisionError, match="an integer divisor is 0"):
        Tensor([5, -5]).div(0, rounding_mode="trunc")
    assert Tensor([True]).div(Tensor([True]), rounding_mode="trunc").dtype is dtypes.int64
    with pytest.raises(UsageError, match=r"rounding_mode .* saw 'round'"):
        Tensor([1.0]).div(2, rounding_mode="round")  # type: ignore[arg-type]  # what it refuses


CLOSE: list[Any] = [1.0, 1.00001, 1.1, 0.0, 1e-9, np.inf, -np.inf, np.nan]


@pytest.mark.sampled(5)
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "int32", "bool"])
@pytest.mark.parametrize("equal_nan", [False, True])
def test_closeness(dtype: str, equal_nan: bool):  # noqa: FBT001 - a parameter of the test
    numbers = CLOSE if dtype.startswith("float") else [0, 1, 2, 1000]
    a = np.array(numbers).astype(dtype)
    x = Tensor(a)
    wide = a.astype(np.float64) if dtype == "bool" else a.astype(np.float32) if dtype == "float16" else a
    for rtol, atol in ((1e-5, 1e-8), (0.0, 0.2), (0.01, 0.0)):
        want = np.isclose(wide[:, None], wide, rtol, atol, equal_nan)
        got = x.unsqueeze(1).isclose(x, rtol, atol, equal_nan)
        np.testing.assert_array_equal(got.numpy(), want)


def test_allclose_returns_a_python_bool():
    x = Tensor([1.0, 2.0])
    assert x.allclose(x + 1e-7) is True
    assert x.allclose(Tensor([1.0, 2.1])) is False
    assert x.allclose(2.0, atol=1.5) is True
    assert Tensor.zeros(0).allclose(1.0) is True


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_remainders_and_rounded_quotients_of_floats_are_exact(dtype: str):
    rng = np.random.default_rng(2)
    x, y = (np.concatenate([rng.normal(size=999), 2.0 ** rng.uniform(-14, 15, 999)]) for _ in range(2))
    x, y = x.astype(dtype), rng.permutation(y).astype(dtype)
    got, quotient = Tensor(x) % Tensor(y), Tensor(x) // Tensor(y)
    want = np.where(np.fmod(x, y) == 0, np.fmod(x, y), np.mod(x, y))
    np.testing.assert_array_equal(got.numpy(), want)
    exact = [Fraction(a) // Fraction(b) for a, b in zip(x.tolist(), y.tolist(), strict=True)]
    held = np.array([abs(q) < 2**11 for q in exact])
    np.testing.assert_array_equal(quotient.numpy()[held], np.array([float(q) for q in exact])[held])


def test_remainders_of_large_quotients_are_exact():
    assert (Tensor([1e20], dtype="float64") % 3).item() == int(1e20) % 3
    x = np.float32(123456789.0)
    assert (Tensor([x]) % 0.1).item() == np.fmod(x, np.float32(0.1))
    assert (Tensor([1.0]) // 0.1).item() == 9
    assert (1.0 // Tensor([0.1])).item() == 9
    assert (Tensor([5.0, -5.0]) % math.inf).tolist() == [5.0, math.inf]


def test_a_selection_is_written_as_in_pytorch_too():
    x = Tensor([1.0, 5.0])
    assert x.where(x > 2, 0.0).tolist() == (x > 2).where(x, 0.0).tolist() == [0.0, 5.0]
    with pytest.raises(UsageError, match="bool"):
        x.where(x, 0.0)
    with pytest.raises(UsageError, match="low, high or both"):
        x.clamp()
