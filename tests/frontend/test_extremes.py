"""Greatest and least values and their places, by all names, against NumPy; no result is taken for a pair."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from frontend import Tensor, dtypes, stats
from hcq.errors import UsageError

RNG = np.random.default_rng(23)
X = RNG.normal(size=(3, 4, 5)).astype(np.float32)
NAMES = (("amax", np.max), ("amin", np.min), ("max", np.max), ("min", np.min))


@pytest.mark.parametrize("keepdim", [False, True])
@pytest.mark.parametrize("axis", [None, 0, -1, (0, 2), (2, 0), (-1, -2, -3), [1, 2]], ids=str)
@pytest.mark.parametrize(("name", "wanted"), NAMES)
def test_extremes_over_any_axes(name: str, wanted: Any, axis: Any, keepdim: bool):  # noqa: FBT001 - a parameter of the test
    axes = tuple(axis) if isinstance(axis, list) else axis
    got = getattr(Tensor(X), name)(dim=axis, keepdim=keepdim)
    np.testing.assert_array_equal(got.numpy(), wanted(X, axis=axes, keepdims=keepdim))


@pytest.mark.parametrize("name", ["amax", "amin"])
def test_over_no_axes_means_over_all(name: str):
    assert getattr(Tensor(X), name)(()).item() == getattr(X, name[1:])()


@pytest.mark.parametrize(
    "dtype", ["bool", "int8", "uint8", "int64", "uint64", "float16", "bfloat16", "float64"]
)
def test_extremes_of_every_dtype(dtype: str):
    x = RNG.integers(0, 2 if dtype == "bool" else 120, (4, 6))
    t = Tensor(x).cast(dtypes.int32).cast(getattr(dtypes, dtype))
    low, high = t.aminmax(dim=1)
    assert low.dtype is high.dtype is t.dtype
    np.testing.assert_array_equal(low.float().numpy(), x.min(1))
    np.testing.assert_array_equal(high.float().numpy(), x.max(1))


def test_a_nan_is_both_extremes_and_the_place_of_both():
    t = Tensor([[1.0, math.nan, 5.0, math.nan], [2.0, 1.0, 2.0, 1.0]])
    for got in (t.amax(1), t.amin(1), t.aminmax(dim=1).min, t.aminmax(dim=1).max):
        assert math.isnan(got[0].item())
    assert t.argmax(dim=1).tolist() == [1, 0]
    assert t.argmin(dim=1).tolist() == [1, 1]


def test_the_first_of_equals_is_the_place_in_the_whole_too():
    t = Tensor([[0, 3, 3], [3, -1, -1]])
    assert (t.argmax().item(), t.argmin().item()) == (1, 4)
    assert t.argmax(0, keepdim=True).tolist() == [[1, 0, 0]]


def test_aminmax_is_a_named_pair_of_one_kernel():
    both = Tensor(X).aminmax()
    before = stats.kernels
    Tensor.realize(*both)
    assert stats.kernels - before == 1
    assert (both.min.item(), both.max.item()) == (X.min(), X.max())
    low, high = Tensor(X).aminmax(dim=2, keepdim=True)
    np.testing.assert_array_equal(low.numpy(), X.min(2, keepdims=True))
    np.testing.assert_array_equal(high.numpy(), X.max(2, keepdims=True))


def test_a_gradient_is_shared_evenly_among_equals():
    t = Tensor([[2.0, 1.0, 2.0], [0.0, 0.0, 0.0]])
    (g,) = t.amax((1,)).sum().gradient(t)
    np.testing.assert_allclose(g.numpy(), [[0.5, 0, 0.5], [1 / 3] * 3])


@pytest.mark.parametrize("name", ["amax", "amin", "aminmax", "argmax", "argmin"])
def test_nothing_has_no_extreme(name: str):
    with pytest.raises(UsageError, match="there is no element to choose"):
        getattr(Tensor.zeros(0, 3), name)()


@pytest.mark.parametrize("name", ["max", "min"])
def test_two_rows_of_extremes_are_not_taken_for_a_pair(name: str):
    t = Tensor(X[:, :2])
    for wrong in (
        lambda: getattr(t, name)(0),
        lambda: getattr(t, name)(dim=0),
        lambda: getattr(t[:2], name)(2, keepdim=True),
    ):
        with pytest.raises(UsageError, match=rf"{name}\(\) gives values alone.*\nhint: .*arg{name}\(axis\)"):
            _values, _places = wrong()


def test_rows_of_extremes_are_gone_through_otherwise():
    t = Tensor(X)
    assert len([*t.max(1)]) == 3
    first, second = t[:2].amax(1)
    np.testing.assert_array_equal(second.numpy(), X[1].max(0))
    first, second = t[:2].max(1).unbind()
    np.testing.assert_array_equal(first.numpy(), X[0].max(0))
    with pytest.raises(ValueError, match="too many values"):
        _values, _places = t.max(1)
    with pytest.raises(UsageError, match=r"shape \(\) cannot be iterated over"):
        _values, _places = t.max()
