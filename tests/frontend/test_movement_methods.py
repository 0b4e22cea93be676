"""Movement and indexing against NumPy; more values: `test_operator_database`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from frontend import Tensor, tensor
from hcq.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

X = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
V = np.arange(7, dtype=np.int32)


def same(got: Tensor, want: Any) -> None:
    array = got.numpy()
    assert array.shape == np.shape(want)
    np.testing.assert_array_equal(array, want)


def test_pad_in_both_forms():
    want = np.pad(X, ((0, 0), (1, 2), (3, 0)))
    same(Tensor(X).pad((None, (1, 2), (3, 0))), want)
    same(Tensor(X).pad((3, 0, 1, 2)), want)
    same(Tensor(X).pad((1, 1), value=-1.0), np.pad(X, ((0, 0), (0, 0), (1, 1)), constant_values=-1))
    same(Tensor(X).pad((-1, 2)), np.pad(X[..., 1:], ((0, 0), (0, 0), (0, 2))))


def test_shrink_and_flip():
    same(Tensor(X).shrink(((0, 1), None, (1, 3))), X[0:1, :, 1:3])
    same(Tensor(X).flip(0, 2), X[::-1, :, ::-1])
    same(Tensor(X).flip((1,)), X[:, ::-1])
    with pytest.raises(UsageError):
        Tensor(X).shrink(((0, 3), None, None))


@pytest.mark.parametrize("join", [Tensor.cat, Tensor.stack])
def test_non_tensors_are_not_concatenated(join: Any):
    with pytest.raises(UsageError, match="saw none"):
        join([])
    with pytest.raises(UsageError, match="saw Tensor, int"):
        join([Tensor([1]), 2])
    with pytest.raises(UsageError, match="saw Tensor, list"):
        join(Tensor([1]), [2])


KEYS: list[Any] = [
    0,
    -1,
    slice(None, None, 2),
    slice(None, None, -1),
    (slice(None), slice(2, None, -2)),
    (..., 1),
    (None, 0, ..., None),
    (1, slice(1, 3), slice(-3, -1)),
    (slice(5, 9), slice(None)),
    (slice(None), slice(None), slice(3, 0, -2)),
    (slice(1, 1),),
]


@pytest.mark.parametrize("key", KEYS, ids=repr)
def test_basic_indexing(key: Any):
    same(Tensor(X)[key], X[key])


def test_indices_out_of_range_are_refused():
    with pytest.raises(UsageError, match="outside its 2"):
        Tensor(X)[2]
    with pytest.raises(UsageError, match="only 3 axes"):
        Tensor(X)[0, 0, 0, 0]
    with pytest.raises(UsageError, match="integers"):
        Tensor(X)[Tensor([0.5])]
    np.testing.assert_array_equal(Tensor(V)[Tensor(V) > 2].numpy(), V[V > 2])
    with pytest.raises(UsageError, match="step"):
        Tensor(X)[::0]


WRITES: list[Any] = [
    0,
    (slice(None), 1),
    (..., slice(None, None, 2)),
    (slice(None), slice(None, None, -2), 3),
    (1, 2, 3),
]


@pytest.mark.parametrize("key", WRITES, ids=repr)
def test_writing_a_part(key: Any):
    want = X.copy()
    value = np.arange(X[key].size, dtype=np.float32).reshape(X[key].shape) + 50
    want[key] = value
    t = Tensor(X)
    t[key] = Tensor(value)
    same(t, want)


def test_writing_broadcasts_numbers_and_masks():
    t, want = Tensor(X), X.copy()
    t[:, 1:] = 7
    want[:, 1:] = 7
    same(t, want)
    t[t > 6] = 0.0
    want[want > 6] = 0
    same(t, want)
    with pytest.raises(UsageError, match="writing a part"):
        t[0] = Tensor.zeros(5)


def test_writing_changes_views_and_no_copy():
    t = Tensor(X)
    view, copy = t[0], t + 0
    t[0] = 1.0
    same(view, np.ones_like(X[0]))
    same(copy, X)


def test_iteration_and_length():
    assert len(Tensor(X)) == 2
    assert [row.tolist() for row in Tensor([[1, 2], [3, 4]])] == [[1, 2], [3, 4]]
    with pytest.raises(UsageError):
        len(tensor(1))


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda: Tensor(1.0).unbind(), "unbind: there is no axis 0"),
        (lambda: Tensor(X).repeat_interleave(-1), "not negative, saw -1"),
        (lambda: Tensor.meshgrid(Tensor([1.0]), indexing="yx"), r"indexing .* saw 'yx'"),  # type: ignore[arg-type]
        (lambda: Tensor([1.0]).diagonal(), "at least two axes"),
        (lambda: Tensor([[1.0]]).diagonal(axis1=1, axis2=-1), "two different axes, saw 1 and -1"),
        (lambda: Tensor(X).diag(), "a vector or a matrix"),
        (lambda: Tensor(X).reshape(5, 5), "24 elements"),
        (lambda: Tensor(X).reshape(-1, -1), "at most one"),
        (lambda: Tensor(X).permute(0, 0, 1), "exactly once"),
        (lambda: Tensor(X).cat(Tensor(V)), "cat"),
    ],
)
def test_axes_and_sizes_that_do_not_fit_are_named(call: Callable[[], object], text: str):
    with pytest.raises(UsageError, match=text):
        call()
