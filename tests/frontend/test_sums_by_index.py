"""Sums of values by index, the gradient of reading by index, against `numpy.add.at`, and their cost."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np
import pytest

from compiler.ir.ops import Ops
from compiler.ir.serialize import postorder
from compiler.schedule.scheduler import schedule
from frontend import Tensor, dtypes
from frontend.evaluation.expr import uops
from frontend.nn import Embedding

RNG = np.random.default_rng(17)


def added(shape: Any, index: Any, values: Any) -> Any:
    """The sums of NumPy by index along the first axis."""
    out = np.zeros(shape, values.dtype)
    np.add.at(out, index, values)
    return out


def work(t: Tensor) -> int:
    """An upper bound of the innermost loop iterations of a pending tensor's kernels."""
    total = 0
    for item in schedule(uops([(t.expr, tuple(range(len(t.leaves))))])):
        total += prod([node.arg[1] for node in postorder((item.ast,)) if node.op is Ops.RANGE])
    return total


def gradient(n: int, d: int, index: Any, seed: Any) -> Tensor:
    x = Tensor(RNG.normal(size=(n, d)).astype(seed.dtype))
    return x[Tensor(index)].gradient(x, gradient=Tensor(seed))[0]


@pytest.mark.sampled(7)
@pytest.mark.parametrize(
    ("n", "d", "m"), [(9, 3, 5), (9, 3, 0), (2000, 3, 300), (1500, 2, 1300), (3000, 1, 129), (300, 8, 512)]
)
def test_the_gradient_of_reading_by_index_is_what_numpy_adds_up(n: int, d: int, m: int):
    index = RNG.integers(0, n, m).astype(np.int32)
    seed = RNG.normal(size=(m, d))
    np.testing.assert_allclose(gradient(n, d, index, seed).numpy(), added((n, d), index, seed), atol=1e-12)


@pytest.mark.parametrize("named", [1, 3, 40])
def test_few_indices_repeated_many_times(named: int):
    index = RNG.choice(4000, named, replace=False)[RNG.integers(0, named, 700)].astype(np.int64)
    seed = RNG.integers(-50, 50, (700, 5)).astype(np.float32)  # whole numbers: exact in any order
    np.testing.assert_array_equal(gradient(4000, 5, index, seed).numpy(), added((4000, 5), index, seed))


@pytest.mark.parametrize("n", [50, 5000])
def test_non_finite_values_stay_in_their_row(n: int):
    index = RNG.integers(1, n - 1, 400).astype(np.int32)
    index[:5] = 0
    index[-5:] = n - 1
    seed = RNG.integers(-50, 50, (400, 7)).astype(np.float32)
    seed[2, 1] = np.nan
    seed[-2, 3] = np.inf
    seed[200, 5] = -np.inf
    np.testing.assert_array_equal(gradient(n, 7, index, seed).numpy(), added((n, 7), index, seed))


def test_non_finite_unread_elements_do_not_affect_gradients():
    data = np.full((50, 3), np.nan, np.float32)
    data[7] = 1
    x = Tensor(data)
    (g,) = (x[Tensor([7, 7])] * 2).sum().gradient(x)
    np.testing.assert_array_equal(g.numpy(), added((50, 3), np.array([7, 7]), np.full((2, 3), 2, np.float32)))


def test_indices_outside_add_nowhere_and_negative_ones_count_from_the_end(unchecked: None):
    index = RNG.integers(-1700, 1700, 600).astype(np.int32)
    seed = RNG.integers(-9, 9, (600, 4)).astype(np.float32)
    inside = (index >= -1500) & (index < 1500)
    want = added((1500, 4), index[inside] % 1500, seed[inside])
    x = Tensor(RNG.normal(size=(1500, 4)).astype(np.float32))
    (g,) = x[Tensor(index - 1) + 1].gradient(x, gradient=Tensor(seed))
    np.testing.assert_array_equal(g.numpy(), want)


def test_an_index_of_several_axes_and_an_axis_that_is_not_the_first():
    x = Tensor(RNG.normal(size=(3, 800, 4)))
    index = RNG.integers(0, 800, (20, 10))
    seed = RNG.integers(-9, 9, (3, 20, 10, 4)).astype(np.float64)
    (g,) = x[:, Tensor(index)].gradient(x, gradient=Tensor(seed))
    want = np.zeros((3, 800, 4))
    np.add.at(want, (slice(None), index), seed)
    np.testing.assert_array_equal(g.numpy(), want)


def test_two_indices():
    x = Tensor(RNG.normal(size=(60, 70, 2)))
    i, j = RNG.integers(0, 60, 300), RNG.integers(0, 70, 300)
    seed = RNG.integers(-9, 9, (300, 2)).astype(np.float64)
    (g,) = x[Tensor(i), Tensor(j)].gradient(x, gradient=Tensor(seed))
    want = np.zeros((60, 70, 2))
    np.add.at(want, (i, j), seed)
    np.testing.assert_array_equal(g.numpy(), want)


@pytest.mark.sampled(7)
@pytest.mark.parametrize(("rows", "n", "m"), [(1, 5000, 500), (3, 9000, 100), (2, 4000, 1100)])
@pytest.mark.parametrize("dtype", ["float32", "int64"])
def test_scatter_add_of_long_rows(rows: int, n: int, m: int, dtype: str):
    x = RNG.integers(-50, 50, (rows, n)).astype(dtype)
    index = RNG.integers(0, n, (rows, m))
    src = RNG.integers(-50, 50, (rows, m)).astype(dtype)
    want = x.copy()
    np.add.at(want, (np.arange(rows)[:, None], index), src)
    got = Tensor(x).scatter_add(1, Tensor(index), Tensor(src))
    assert work(got) < rows * n * m / 2
    np.testing.assert_array_equal(got.numpy(), want)


@pytest.mark.slow
def test_small_floats_in_order_are_added_up_in_float32():
    index = np.zeros(1000, np.int32)
    got = gradient(3000, 2, index, np.full((1000, 2), 3, np.float16))  # in float16, 2048 + 3 is 2052
    assert got.dtype is dtypes.float16
    assert got[0].tolist() == [3000.0, 3000.0]
    assert got[1:].abs().max().item() == 0.0


def test_the_cost_of_an_embedding_s_gradient_does_not_grow_with_words_times_places():
    layer = Embedding(10_000, 64)
    (g,) = layer(Tensor(RNG.integers(0, 10_000, 512))).sum().gradient(layer.weight)
    assert work(g) < 10_000 * 64 * 512 / 50


def test_a_sum_in_order_has_the_same_bits_each_time():
    index = RNG.integers(0, 300, 900).astype(np.int32)
    seed = RNG.normal(size=(900, 6)).astype(np.float32)
    first = gradient(3000, 6, index, seed).numpy().tobytes()
    assert all(gradient(3000, 6, index, seed).numpy().tobytes() == first for _ in range(5))


def test_a_sum_in_order_differentiates_twice():
    x = Tensor(RNG.normal(size=(3000, 2)))
    index = RNG.integers(0, 200, 400)
    (g,) = (x[Tensor(index)] ** 3).sum().gradient(x)  # for each place: times named * 3 x²
    (second,) = (g * Tensor(np.arange(6000.0).reshape(3000, 2))).sum().gradient(x)
    times = np.bincount(index, minlength=3000)[:, None]
    np.testing.assert_allclose(second.numpy(), times * 6 * x.numpy() * np.arange(6000.0).reshape(3000, 2))
