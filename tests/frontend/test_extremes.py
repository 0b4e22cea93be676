"""Greatest and least values and their indices, against NumPy; pairs as in PyTorch."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from frontend import Tensor, dtypes, stats
from hcq.errors import UsageError

RNG = np.random.default_rng(23)
X = RNG.normal(size=(3, 4, 5)).astype(np.float32)
NAMES = (("amax", np.max), ("amin", np.min))


@pytest.mark.sampled(5)
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


@pytest.mark.sampled(3)
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


def test_a_nan_is_both_extremes_and_both_indices_name_it():
    t = Tensor([[1.0, math.nan, 5.0, math.nan], [2.0, 1.0, 2.0, 1.0]])
    for got in (t.amax(1), t.amin(1), t.aminmax(dim=1).min, t.aminmax(dim=1).max):
        assert math.isnan(got[0].item())
    assert t.argmax(dim=1).tolist() == [1, 0]
    assert t.argmin(dim=1).tolist() == [1, 1]


def test_argmax_and_argmin_over_all_axes_return_the_first_flat_index():
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
def test_an_empty_tensor_has_no_extreme(name: str):
    with pytest.raises(UsageError, match="there is no element to choose"):
        getattr(Tensor.zeros(0, 3), name)()


PAIRS = (("max", np.max, np.argmax), ("min", np.min, np.argmin))


@pytest.mark.sampled(5)
@pytest.mark.parametrize("keepdim", [False, True])
@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize(("name", "wanted", "place"), PAIRS)
def test_extremes_along_an_axis_return_values_and_indices(
    name: str,
    wanted: Any,
    place: Any,
    axis: int,
    keepdim: bool,  # noqa: FBT001 - a parameter of the test
):
    got = getattr(Tensor(X), name)(dim=axis, keepdim=keepdim)
    np.testing.assert_array_equal(got.values.numpy(), wanted(X, axis=axis, keepdims=keepdim))
    np.testing.assert_array_equal(got.indices.numpy(), place(X, axis=axis, keepdims=keepdim))
    values, indices = got
    assert values is got[0]
    assert indices is got.indices
    assert indices.dtype is dtypes.int64


@pytest.mark.parametrize(("name", "wanted", "place"), PAIRS)
def test_an_extreme_over_all_axes_is_one_value(name: str, wanted: Any, place: Any):
    assert getattr(Tensor(X), name)().item() == wanted(X)
    assert getattr(Tensor(X), "arg" + name)().item() == place(X)
    assert getattr(Tensor(X), name)(keepdim=True).shape == (1, 1, 1)


@pytest.mark.parametrize("name", ["max", "min"])
def test_values_and_indices_over_several_axes_are_refused(name: str):
    with pytest.raises(TypeError, match=rf"one axis, saw \(0, 1\)\nhint: a{name}\(\(0, 1\)\)"):
        getattr(Tensor(X), name)((0, 1))
    with pytest.raises(UsageError, match="there is no element to choose"):
        getattr(Tensor.zeros(3, 0), name)(1)
    with pytest.raises(IndexError, match="there is no axis 3"):
        getattr(Tensor(X), name)(3)


def test_the_gradient_of_extreme_values_goes_to_the_indexed_element():
    t = Tensor([[2.0, 1.0, 2.0], [0.0, math.nan, math.nan]])
    values, indices = t.max(1)
    assert indices.tolist() == [0, 1]
    (g,) = values.sum().gradient(t)
    np.testing.assert_array_equal(g.numpy(), [[1, 0, 0], [0, 1, 0]])


def test_a_pair_of_every_dtype():
    for dtype in ("bool", "uint8", "int64", "bfloat16", "float64"):
        values, indices = Tensor([[0, 1, 1], [1, 0, 0]]).cast(dtype).min(0)
        assert values.dtype.name == dtype
        assert values.int().tolist() == [0, 0, 0]
        assert indices.tolist() == [0, 1, 1]
