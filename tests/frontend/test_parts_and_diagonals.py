"""Parts of axes, grids and diagonals against NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from frontend import Tensor
from hcq.errors import UsageError

X = np.arange(60, dtype=np.float32).reshape(3, 4, 5)


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_unbind(axis: int):
    parts = Tensor(X).unbind(axis)
    assert isinstance(parts, tuple)
    for got, want in zip(parts, np.moveaxis(X, axis, 0), strict=True):
        np.testing.assert_array_equal(got.numpy(), want)


def test_unbind_of_nothing_and_of_a_number():
    assert Tensor.zeros(0, 3).unbind() == ()
    with pytest.raises(UsageError, match="unbind: there is no axis 0"):
        Tensor(1.0).unbind()


def test_squeeze_of_several_axes():
    x = Tensor.zeros(1, 3, 1, 1)
    assert x.squeeze((0, 2)).shape == (3, 1)
    assert x.squeeze((0, 1)).shape == (3, 1, 1)
    assert x.squeeze(()).shape == (1, 3, 1, 1)


def test_repeat_interleave_of_no_and_of_negative_times():
    assert Tensor(X).repeat_interleave(0, 1).shape == (3, 0, 5)
    with pytest.raises(UsageError, match="not negative, saw -1"):
        Tensor(X).repeat_interleave(-1)


@pytest.mark.parametrize("indexing", ["ij", "xy"])
def test_meshgrid(indexing: Any):
    vectors = [np.arange(n, dtype=np.float32) for n in (2, 3, 4)]
    for count in (1, 2, 3):
        got = Tensor.meshgrid([Tensor(v) for v in vectors[:count]], indexing=indexing)
        for g, w in zip(got, np.meshgrid(*vectors[:count], indexing=indexing), strict=True):
            np.testing.assert_array_equal(g.numpy(), w)
    with pytest.raises(UsageError, match=r"indexing .* saw 'yx'"):
        Tensor.meshgrid(Tensor([1.0]), indexing="yx")  # type: ignore[arg-type]  # what it refuses


@pytest.mark.parametrize("offset", [-4, -3, -1, 0, 2, 4, 5])
@pytest.mark.parametrize("axes", [(0, 1), (1, 2), (-1, 0), (2, -2)], ids=str)
def test_diagonal(offset: int, axes: tuple[int, int]):
    got = Tensor(X).diagonal(offset, *axes)
    np.testing.assert_array_equal(got.numpy(), np.diagonal(X, offset, *axes))


@pytest.mark.parametrize("offset", [-2, 0, 1, 6])
def test_diag(offset: int):
    for x in (X[0, 0], X[0], X[0, :0], np.array([True, False])):
        got = Tensor(x).diag(offset)
        np.testing.assert_array_equal(got.numpy(), np.diag(x, offset))


def test_diagonals_require_axes():
    with pytest.raises(UsageError, match="at least two axes"):
        Tensor([1.0]).diagonal()
    with pytest.raises(UsageError, match="two different axes, saw 1 and -1"):
        Tensor([[1.0]]).diagonal(axis1=1, axis2=-1)
    with pytest.raises(UsageError, match="a vector or a matrix"):
        Tensor(X).diag()


def test_gradients_of_diagonals():
    x, v = Tensor(X[0]), Tensor(X[0, 0])
    (g,) = (x.diagonal(1) * Tensor([1.0, 2.0, 3.0, 4.0])).sum().gradient(x)
    np.testing.assert_array_equal(g.numpy(), np.diag([1.0, 2.0, 3.0, 4.0], 1)[:4])
    weight = np.arange(49, dtype=np.float32).reshape(7, 7)
    (g,) = (v.diag(-2) * Tensor(weight)).sum().gradient(v)
    np.testing.assert_array_equal(g.numpy(), np.diag(weight, -2))
