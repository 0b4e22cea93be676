"""sort, argsort and topk against NumPy's stable sort."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from frontend import Tensor, stats
from frontend.ops.sorting import BLOCK, DIRECT
from hcq.errors import UsageError

RNG = np.random.default_rng(5)


def sorted_as(x: Any, axis: int, *, descending: bool) -> Any:
    """Return the stable order, with NaN greatest."""
    if not descending:
        return np.argsort(x, axis, kind="stable")
    n = x.shape[axis]
    return np.flip(n - 1 - np.argsort(np.flip(x, axis), axis, kind="stable"), axis)


def check(x: Any, axis: int = -1, *, descending: bool = False) -> None:
    want = sorted_as(x, axis, descending=descending)
    got = Tensor(x).sort(axis, descending=descending)
    np.testing.assert_array_equal(got.indices.numpy(), want)
    np.testing.assert_array_equal(got.values.numpy(), np.take_along_axis(x, want, axis))
    assert got.values.dtype is Tensor(x).dtype


@pytest.mark.sampled(5)
@pytest.mark.parametrize(
    "dtype", ["bool", "int8", "uint8", "int32", "uint32", "int64", "uint64", "float16", "float64"]
)
@pytest.mark.parametrize("descending", [False, True])
def test_sort_of_every_dtype(dtype: str, descending: bool):  # noqa: FBT001 - a parameter of the test
    low, high = (0, 255) if dtype.startswith(("u", "b")) else (-128, 127)
    x = RNG.integers(low, high + 1, (3, 40)).astype(dtype)
    x[:, 5:8] = np.iinfo(dtype).max if dtype[:3] in {"int", "uin"} else 1
    check(x, descending=descending)


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize("descending", [False, True])
def test_special_floats_are_in_order(dtype: str, descending: bool):  # noqa: FBT001 - a parameter of the test
    x = np.array([1, np.nan, -np.inf, -0.0, 0.0, np.inf, -1, -np.nan, 0.0, -0.0, 1e-7, -1e-7], dtype)
    check(x, descending=descending)


@pytest.mark.sampled(7)
@pytest.mark.parametrize("n", [0, 1, 2, DIRECT, DIRECT + 1, 5 * BLOCK])
def test_sort_of_any_length(n: int):
    x = RNG.integers(0, 200, (2, n)).astype(np.int32)  # many equals
    check(x)
    check(x, descending=True)


@pytest.mark.slow
def test_the_largest_value_is_not_confused_with_sort_padding():
    x = np.full((1, DIRECT + 9), np.nan, np.float32)
    x[0, ::3] = np.inf
    check(x)
    top = Tensor(x).topk(4)
    assert top.indices.tolist() == [[1, 2, 4, 5]]


@pytest.mark.sampled(3)
@pytest.mark.parametrize("n", [6, DIRECT, 3 * DIRECT + 5])
@pytest.mark.parametrize("largest", [True, False])
def test_topk(n: int, largest: bool):  # noqa: FBT001 - a parameter of the test
    x = RNG.integers(-300, 300, (3, n)).astype(np.float32)
    want = sorted_as(x, 1, descending=largest)
    for k in (0, 1, 5, min(n, BLOCK)):
        got = Tensor(x).topk(k, dim=1, largest=largest)
        np.testing.assert_array_equal(got.indices.numpy(), want[:, :k])
        np.testing.assert_array_equal(got.values.numpy(), np.take_along_axis(x, want, 1)[:, :k])


def test_unsortable_input_is_refused():
    x = Tensor([[1.0, 2.0]])
    with pytest.raises(UsageError, match="topk: wanted 0 to 2 values along axis 1"):
        x.topk(3)
    with pytest.raises(UsageError, match="argsort: there is no axis 2"):
        x.argsort(2)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("n", [8, DIRECT + 1])
def test_gradients_of_sorted_values_go_to_their_sources(n: int):
    x, weight = RNG.normal(size=(2, n)), RNG.normal(size=(2, n))
    t = Tensor(x)
    (g,) = (t.sort(descending=True).values * Tensor(weight)).sum().gradient(t)
    want = np.zeros_like(x)
    np.put_along_axis(want, np.argsort(-x, 1), weight, 1)
    np.testing.assert_array_equal(g.numpy(), want)
    (g,) = t.topk(3).values.sum().gradient(t)
    want = np.zeros_like(x)
    np.put_along_axis(want, np.argsort(-x, 1)[:, :3], 1.0, 1)
    np.testing.assert_array_equal(g.numpy(), want)


def test_a_short_row_is_sorted_in_three_kernels():
    for data in (RNG.normal(size=(4, 30)), RNG.integers(0, 9, (4, 30))):
        x = Tensor(data)
        for found in (x.sort(), x.topk(5), (x.argsort(),)):
            before = stats.kernels
            Tensor.realize(*found)
            assert stats.kernels - before <= 3


def test_a_long_row_is_sorted_in_two_kernels_a_merge():
    x = Tensor(RNG.normal(size=(1, 4 * BLOCK)))
    order = x.argsort()
    before = stats.kernels
    order.realize()
    assert stats.kernels - before <= 3 + 2 * 2
