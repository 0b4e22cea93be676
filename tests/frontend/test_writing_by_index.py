"""`x[key] = value` through integer tensors and masks, against NumPy."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np
import pytest

from compiler.ir.ops import Ops
from compiler.ir.serialize import postorder
from compiler.schedule.scheduler import schedule
from frontend import Tensor
from frontend.evaluation.expr import uops
from hcq.config import override
from hcq.errors import UsageError

RNG = np.random.default_rng(31)
X = RNG.normal(size=(4, 5, 6)).astype(np.float32)
KEYS: dict[str, Any] = {
    "one index": np.array([2, 0]),
    "negative": np.array([-1, 1]),
    "another axis": (slice(None), np.array([4, 0, 2])),
    "beside slices": (slice(1, 3), np.array([4, 0]), slice(None, None, -2)),
    "beside a number": (1, slice(None), np.array([5, 3])),
    "two indices": (np.array([0, 3, 1]), np.array([4, 4, 0])),
    "two apart": (np.array([0, 3]), slice(None), np.array([5, 2])),
    "broadcasting": (np.array([[0], [2]]), np.array([1, 3, 4])),
    "of two axes": np.array([[0, 1], [3, 2]]),
    "after an ellipsis": (..., np.array([0, 5])),
    "with a new axis": (np.array([0, 3]), None),
    "a list": [0, 2],
    "nothing": np.array([], np.int64),
}


@pytest.mark.sampled(7)
@pytest.mark.parametrize("name", KEYS)
def test_writing_what_integers_name(name: str):
    key = KEYS[name]
    got = Tensor(X)
    part = got[key].shape
    values = RNG.normal(size=part).astype(np.float32)
    got[key] = values
    want = X.copy()
    # NumPy takes the number for an index too, and puts the new axis in front
    place, inner = (want[1], key[1:]) if name == "beside a number" else (want, key)
    place[inner] = values
    np.testing.assert_array_equal(got.numpy(), want)
    got[key] = 7
    place[inner] = 7
    np.testing.assert_array_equal(got.numpy(), want)


def test_a_new_axis_of_the_key_is_one_of_the_value():
    got, want = Tensor(X), X.copy()
    values = RNG.normal(size=(2, 1, 6)).astype(np.float32)
    got[1:3, None, 2] = values
    want[1:3, None, 2] = values
    np.testing.assert_array_equal(got.numpy(), want)
    with pytest.raises(UsageError, match="writing"):
        got[:2, None, 2] = Tensor(values[:, 0])  # (2, 6) is not (2, 1, 6)


def test_axes_of_size_1_before_those_of_the_part_fall_away():
    got, want = Tensor(X), X.copy()
    got[0] = X[None, 1:2]
    want[0] = X[None, 1:2]
    got[Tensor([2, 3]), 1] = X[None, :2, 4]
    want[[2, 3], 1] = X[None, :2, 4]
    np.testing.assert_array_equal(got.numpy(), want)


def test_a_value_broadcasts_to_what_is_named():
    got, want = Tensor(X), X.copy()
    row = RNG.normal(size=(6,)).astype(np.float32)
    got[Tensor([3, 1])] = Tensor(row)
    want[[3, 1]] = row
    np.testing.assert_array_equal(got.numpy(), want)
    with pytest.raises(UsageError, match="writing a part"):
        got[Tensor([3, 1])] = Tensor([1.0, 2.0])


def test_adding_to_what_integers_name_adds_once():
    got, want = Tensor(X), X.copy()
    got[Tensor([3, 1, 3])] += 1
    want[[3, 1, 3]] += 1
    np.testing.assert_array_equal(got.numpy(), want)


def test_the_last_of_several_values_is_written_and_none_outside(unchecked: None):
    got = Tensor([1.0, 2.0, 3.0, 4.0])
    got[Tensor([0, 2, 0, 3, -6]) + 1] = Tensor([10.0, 20.0, 30.0, 40.0, 50.0])
    assert got.tolist() == [1.0, 30.0, 3.0, 20.0]


def test_views_see_an_assignment_and_computed_values_do_not():
    x = Tensor(X)
    y, part = x + 0, x[1]
    x[Tensor([1])] = 0
    np.testing.assert_array_equal(y.numpy(), X)
    np.testing.assert_array_equal(part.numpy(), 0 * X[1])


def test_many_places_are_written_in_order_of_their_indices():
    x = RNG.normal(size=(5000, 3)).astype(np.float32)
    index = RNG.integers(0, 5000, 700)
    values = RNG.normal(size=(700, 3)).astype(np.float32)
    got = Tensor(x).scatter(0, Tensor(np.repeat(index[:, None], 3, 1)), Tensor(values))
    want = x.copy()
    for at, row in zip(index, values, strict=True):
        want[at] = row
    np.testing.assert_array_equal(got.numpy(), want)
    total = 0
    for item in schedule(uops([(got.expr, (0, 1, 2)[: got.expr.n])])):
        total += prod([node.arg[1] for node in postorder((item.ast,)) if node.op is Ops.RANGE])
    assert total < 5000 * 700 * 3 / 2


def test_gradients_of_what_was_written_and_of_what_was_written_over():
    x = Tensor(X.astype(np.float64))
    values = Tensor(RNG.normal(size=(3, 5, 6)))
    index = Tensor([2, 0, 2])
    y = x + 0
    y[index] = values
    weight = RNG.normal(size=X.shape)
    dx, dv = (y * Tensor(weight)).sum().gradient(x, values)
    kept = weight.copy()
    kept[[0, 2]] = 0
    np.testing.assert_array_equal(dx.numpy(), kept)
    np.testing.assert_array_equal(dv.numpy(), weight[[2, 0, 2]])  # also of a value that another one follows


def test_a_mask_stands_for_the_first_axes():
    rows = np.array([True, False, True])
    got = Tensor.zeros(3, 3).contiguous()
    got[Tensor(rows)] = 1
    np.testing.assert_array_equal(got.numpy(), np.repeat(rows[:, None], 3, 1))
    got[rows] = Tensor([1.0, 2.0, 3.0])
    np.testing.assert_array_equal(got.numpy()[0], [1, 2, 3])
    with pytest.raises(UsageError, match=r"mask of shape \(4,\) holds: wanted the first axes of \(3, 3\)"):
        got[Tensor([True, False, True, False])] = 0
    got[got > 1] = Tensor([5.0, 6.0, 7.0, 8.0])
    np.testing.assert_array_equal(got.numpy(), [[1, 5, 6], [0, 0, 0], [1, 7, 8]])
    with pytest.raises(UsageError, match="broadcast"):
        got[got > 1] = Tensor([1.0, 2.0, 3.0])


def test_a_mask_beside_other_indices_selects_where_it_is_true():
    x, mask = Tensor(X).contiguous(), np.arange(X.shape[1]) % 2 == 0
    np.testing.assert_array_equal(x[0, Tensor(mask)].numpy(), X[0, mask])
    x[0, Tensor(mask)] = 0
    want = X.copy()
    want[0, mask] = 0
    np.testing.assert_array_equal(x.numpy(), want)
    with pytest.raises(IndexError, match="mask of shape"):
        x[Tensor([True] * (X.shape[0] + 1))]


def test_indices_outside_an_axis_are_added_nowhere():
    x, one = Tensor.zeros(3, 4).contiguous(), Tensor([1.0])
    for index in (([0], [5]), ([0], [-5]), ([3], [0]), ([-4], [0])):
        with pytest.raises(IndexError, match="outside"):
            x.index_put_(tuple(Tensor(i) for i in index), one, accumulate=True)
    with pytest.raises(IndexError, match="outside"):
        x.index_put_((Tensor([3]),), one, accumulate=True)
    rows, columns = ((Tensor(i) * 2).realize() // 2 for i in ([0, 2, -1, 3, -4], [5, -5, -1, 0, 0]))
    with override(validate=False):
        x.index_put_((rows, columns), Tensor([1.0, 2.0, 4.0, 8.0, 16.0]), accumulate=True)
        assert x.tolist() == [[0.0] * 4, [0.0] * 4, [0.0, 0.0, 0.0, 4.0]]
    x.index_put_((Tensor([-1, 1]),), Tensor([1.0, 2.0, 3.0, 4.0]), accumulate=True)
    assert x[1:].tolist() == [[1.0, 2.0, 3.0, 4.0], [1.0, 2.0, 3.0, 8.0]]
