"""Sums, means and variances of short floats accumulate in float32, and round once at the end."""

from __future__ import annotations

import numpy as np
import pytest

from frontend import Tensor

SHORT = {"float16": 2.0**-10, "bfloat16": 2.0**-7}
"""One unit of the last place, relative."""


@pytest.mark.sampled(5)
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


@pytest.mark.sampled(3)
@pytest.mark.parametrize("shape", [(200_000, 8), (1 << 18, 3), (70_001, 16)])
def test_long_sums_along_columns_do_not_accumulate_rounding(shape: tuple[int, int]):
    x = np.full(shape, 0.1, np.float32)
    exact = float(x[0, 0]) * shape[0]
    for got in (Tensor(x).sum(0), (Tensor(x) * Tensor(np.ones_like(x))).sum(0)):
        np.testing.assert_allclose(got.numpy(), exact, rtol=3e-6)
    both = Tensor.stack(Tensor(x).sum(0), Tensor(x).amax(0), (Tensor(x) + 1).prod(0).minimum(5)).numpy()
    np.testing.assert_allclose(both[0], exact, rtol=3e-6)
    np.testing.assert_array_equal(both[1], np.float32(0.1))


@pytest.mark.slow
def test_a_long_sum_of_one_number_stays_near():
    x = Tensor(np.full(1 << 25, 0.1, np.float32))
    assert x.sum().item() == pytest.approx(float(np.float32(0.1)) * 2**25, rel=1.5e-6)


def test_a_long_sum_of_integers_is_exact():
    whole = Tensor(np.arange(1 << 20, dtype=np.int64) % 7)
    assert whole.sum().item() == sum(n % 7 for n in range(1 << 20))
