"""Sums, means and variances of short floats accumulate in float32, and round once at the end."""

from __future__ import annotations

import numpy as np
import pytest

from frontend import Tensor

SHORT = {"float16": 2.0**-10, "bfloat16": 2.0**-7}
"""One unit of the last place, relative."""


@pytest.mark.parametrize("dtype", SHORT)
@pytest.mark.parametrize("scale", [1.0, 100.0])
def test_variance_of_many_numbers_is_that_of_float64(dtype: str, scale: float):
    x = np.random.default_rng(0).normal(3 * scale, scale, 100_000).astype(np.float32)
    t = Tensor(x).cast(dtype)
    exact = t.double().numpy()
    for got, want in [
        (t.var(), exact.var(ddof=1)),
        (t.std(), exact.std(ddof=1)),
        (t.var(correction=0), exact.var()),
    ]:
        assert got.dtype.name == dtype
        assert got.item() == pytest.approx(want, rel=0.51 * SHORT[dtype] + 1e-5)


@pytest.mark.parametrize("dtype", SHORT)
def test_variance_of_alternating_numbers_is_a_quarter(dtype: str):
    t = Tensor((np.arange(80_000) % 2).astype(np.float32)).cast(dtype)
    assert t.var(correction=0).item() == 0.25
    assert t.std(correction=0).item() == 0.5
    assert t.mean().item() == 0.5
    assert t.reshape(8, 10_000).var(1, correction=0).tolist() == [0.25] * 8


@pytest.mark.parametrize("dtype", SHORT)
def test_sums_of_short_floats_round_once(dtype: str):
    t = Tensor(np.full(30_000, 0.5, np.float32)).cast(dtype)
    assert t.sum().item() == Tensor([15_000.0], dtype=dtype).item()
    steps = Tensor(np.full(3_000, 0.25, np.float32)).cast(dtype).cumsum(0)
    assert steps[-1].item() == Tensor([750.0], dtype=dtype).item()


def test_variance_of_integers_is_a_float32():
    x = np.array([100, -100, 127, -128], np.int8)
    got = Tensor(x).var()
    assert got.dtype.name == "float32"
    assert got.item() == pytest.approx(x.astype(np.float64).var(ddof=1), rel=1e-6)


def test_variance_of_too_few_numbers_is_no_number():
    assert np.isnan(Tensor([1.0]).var().item())
    assert np.isnan(Tensor([1.0]).std().item())
