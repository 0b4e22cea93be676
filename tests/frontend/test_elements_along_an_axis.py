"""Reading, adding and writing at integer indices along an axis, against NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from frontend import Tensor, TinyJit, dtypes, stats
from hcq.errors import UsageError

RNG = np.random.default_rng(11)


def scattered(x: Any, axis: int, index: Any, src: Any, *, add: bool) -> Any:
    """The definition, one element after the other."""
    out = x.copy()
    for at in np.ndindex(*index.shape):
        to = list(at)
        to[axis] = index[at]
        out[tuple(to)] = out[tuple(to)] + src[at] if add else src[at]
    return out


SHAPES = [
    ((7,), (9,), 0),
    ((5, 4), (3, 4), 0),
    ((5, 4), (5, 6), 1),
    ((5, 4), (2, 3), -1),
    ((2, 6, 3), (2, 8, 2), 1),
    ((2, 6, 3), (1, 2, 3), -2),
    ((3, 4), (0, 4), 0),
    ((0, 4), (0, 2), 1),
]


@pytest.mark.sampled(5)
@pytest.mark.parametrize(("shape", "wanted", "axis"), SHAPES, ids=str)
@pytest.mark.parametrize("dtype", ["float32", "int64", "uint8"])
def test_gather_scatter_and_scatter_add(shape: Any, wanted: Any, axis: int, dtype: str):
    a = axis % len(shape)
    x = RNG.integers(0, 50, shape).astype(dtype)
    src = RNG.integers(0, 50, tuple(m + 1 for m in wanted)).astype(dtype)
    index = RNG.integers(0, max(1, shape[a]), wanted)
    named = Tensor(index, dtype="int32")
    part = x[tuple(slice(None) if i == a else slice(m) for i, m in enumerate(wanted))]
    got = Tensor(x).gather(axis, named)
    np.testing.assert_array_equal(got.numpy(), np.take_along_axis(part, index, a))
    assert got.dtype.name == dtype
    for name, add in (("scatter", False), ("scatter_add", True)):
        got = getattr(Tensor(x), name)(axis, named, Tensor(src))
        np.testing.assert_array_equal(got.numpy(), scattered(x, a, index, src, add=add))
        assert got.dtype.name == dtype


def test_negative_indices_count_from_the_end_and_those_outside_are_written_nowhere(unchecked: None):
    x = Tensor([1.0, 2.0, 3.0])
    index = Tensor([0, 4, -3, 1]) - 1
    values = Tensor([10.0, 20.0, 30.0, 40.0])
    assert x.gather(0, index).tolist() == [3.0, 0.0, 0.0, 1.0]
    assert x.scatter(0, index, values).tolist() == [40.0, 2.0, 10.0]
    assert x.scatter_add(0, index, values).tolist() == [41.0, 2.0, 13.0]
    rows = Tensor([[1.0, 2.0], [3.0, 4.0]])
    assert rows.gather(1, Tensor([[1, -1], [-4, 0]]) + 1).tolist() == [[0.0, 1.0], [0.0, 4.0]]


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "uint32", "int64"])
def test_an_index_of_any_integers(dtype: str):
    x, index = RNG.normal(size=(4, 5)).astype(np.float32), RNG.integers(0, 5, (4, 3))
    got = Tensor(x).gather(1, Tensor(index, dtype=dtype))
    np.testing.assert_array_equal(got.numpy(), np.take_along_axis(x, index, 1))
    got = Tensor(x).scatter(1, Tensor(index, dtype=dtype), -1.0)
    np.testing.assert_array_equal(got.numpy(), scattered(x, 1, index, np.full((4, 3), -1.0), add=False))


def test_scatter_of_a_number_and_of_bools():
    x = Tensor([[False, False, False]])
    assert x.scatter(1, Tensor([[2, 0]]), True).tolist() == [[True, False, True]]
    assert Tensor.zeros(2, 2).scatter(0, Tensor([[1, 0]]), value=3).tolist() == [[0.0, 3.0], [3.0, 0.0]]
    assert x.scatter_add(1, Tensor([[0, 0]]), Tensor([[True, False]])).tolist() == [[True, False, False]]


def test_non_finite_values_do_not_spread():
    values = Tensor([[np.inf, np.nan, 1.0]])
    index = Tensor([[0, 2, 1]])
    assert Tensor.zeros(1, 4).scatter_add(1, index, values)[:, :2].tolist() == [[np.inf, 1.0]]
    assert Tensor.zeros(1, 4).scatter(1, index, values)[:, :2].tolist() == [[np.inf, 1.0]]
    x = Tensor([[1.0, 2.0, 3.0]])
    seed = Tensor([[np.inf, 1.0]])
    (g,) = x.gather(1, Tensor([[0, 2]])).gradient(x, gradient=seed)
    assert g.tolist() == [[np.inf, 0.0, 1.0]]


def test_small_floats_are_added_up_in_float32():
    ones = Tensor.ones(1, 4096, dtype=dtypes.float16)
    total = Tensor.zeros(1, 1, dtype=dtypes.float16).scatter_add(
        1, Tensor.zeros(1, 4096, dtype="int32"), ones
    )
    assert total.item() == 4096.0


def test_index_select_and_take():
    x = RNG.normal(size=(3, 4, 5)).astype(np.float32)
    index = Tensor([3, 0, 0, -1])
    np.testing.assert_array_equal(Tensor(x).index_select(1, index).numpy(), x[:, [3, 0, 0, -1]])
    np.testing.assert_array_equal(Tensor(x).index_select(dim=-2, index=index).numpy(), x[:, [3, 0, 0, -1]])
    assert Tensor(x).index_select(2, Tensor.empty(0, dtype="int32")).shape == (3, 4, 0)
    with pytest.raises(UsageError, match="vector of integers"):
        Tensor(x).index_select(0, Tensor([[0]]))


def test_each_composite_is_one_kernel():
    x, index = Tensor(RNG.normal(size=(16, 32))), Tensor(RNG.integers(0, 32, (16, 8)))
    values = Tensor(RNG.normal(size=(16, 8)))
    for make, most in (
        (lambda: x.gather(1, index), 1),
        (lambda: x.scatter_add(1, index, values), 1),
        (lambda: x.scatter(1, index, values), 2),
        (lambda: x.gather(1, index).gradient(x, gradient=values)[0], 1),
    ):
        t = make()
        before = stats.kernels
        t.realize()
        assert stats.kernels - before <= most


def test_variables_out_of_range_are_refused():
    x, index = Tensor.zeros(3, 4), Tensor([[0, 1]])
    with pytest.raises(UsageError, match=r"gather along axis 1: the index \(4, 2\) must have the rank"):
        x.gather(1, Tensor.zeros(4, 2, dtype="int32"))
    with pytest.raises(UsageError, match="rank"):
        x.scatter(0, Tensor([0]), 1.0)
    with pytest.raises(UsageError, match="at least as long as in the index"):
        x.scatter(1, index, Tensor([[1.0]]))
    with pytest.raises(UsageError, match=r"src is int64, self is float32; cast"):
        x.scatter_add(1, index, Tensor([[1, 2]]))
    with pytest.raises(UsageError, match="must hold integers, saw float32"):
        x.gather(1, Tensor([[0.5]]))


def test_sizes_that_depend_on_values_are_refused_by_name():
    x = Tensor([1.0, 0.0])
    for choose in (x.nonzero, lambda: x.masked_select(x > 0), lambda: x[x > 0]):
        with pytest.raises(UsageError, match="inside a captured function: the size depends on values"):
            [jitted() for jitted in [TinyJit(choose)] * 3]
    places, chosen = TinyJit(lambda: x.nonzero(size=2)), TinyJit(lambda: x.masked_select(x > 0, size=2))
    assert [places().tolist() for _ in range(3)] == [[[0], [0]]] * 3
    assert [chosen().tolist() for _ in range(3)] == [[1, 0]] * 3
    counts = Tensor([1, 2]).realize()
    with pytest.raises(UsageError, match="read inside a captured function"):
        [jitted() for jitted in [TinyJit(lambda: x.repeat_interleave(counts))] * 3]
