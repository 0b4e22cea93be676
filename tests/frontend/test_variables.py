"""Bound variables: one structure for all values, in slices, indices, arithmetic and captured functions."""

from __future__ import annotations

import numpy as np
import pytest

from frontend import Tensor, TinyJit, Variable, stats
from hcq.errors import UnsupportedError, UsageError

X = np.arange(40, dtype=np.float32).reshape(5, 8)


def test_a_slice_with_a_changing_start_is_one_structure():
    x, v = Tensor(X), Variable("v", 0, 5)
    plans = 0
    for i in range(6):
        b = v.bind(i)
        np.testing.assert_array_equal(x[:, b : b + 3].numpy(), X[:, i : i + 3])
        if i == 0:
            plans = stats.plans
    assert stats.plans == plans


def test_indices_and_several_axes():
    x, v, w = Tensor(X), Variable("v", 0, 4), Variable("w", 0, 3)
    b, c = v.bind(2), w.bind(3)
    np.testing.assert_array_equal(x[b].numpy(), X[2])
    np.testing.assert_array_equal(x[..., c].numpy(), X[:, 3])
    np.testing.assert_array_equal(x[b, c : c + 2].numpy(), X[2, 3:5])
    np.testing.assert_array_equal(x[None, b, c * 2].numpy(), X[None, 2, 6])


def test_writing_at_a_variable_place():
    x, want, v = Tensor(X), X.copy(), Variable("v", 0, 4)
    for i in (3, 0, 4):
        x[v.bind(i)] = Tensor(np.full(8, i, np.float32))
        want[i] = i
    b = v.bind(1)
    x[1:3, b : b + 2] = Tensor([[5.0, 6.0], [7.0, 8.0]])
    want[1:3, 1:3] = [[5, 6], [7, 8]]
    x[b, b] = -1.0
    want[1, 1] = -1
    np.testing.assert_array_equal(x.numpy(), want)


def test_arithmetic_with_tensors():
    b = Variable("v", 0, 9).bind(4)
    assert (Tensor([1, 2]) + (b * 2 + 1)).tolist() == [10, 11]
    assert repr(b * 2 + 1) == "2 * v + 1"


def test_variables_are_arguments_of_captured_functions():
    cache, v = Tensor.zeros(6, 2).contiguous().realize(), Variable("at", 0, 5)

    @TinyJit
    def push(row: Tensor, at: object) -> Tensor:
        cache[at] = row
        return cache.sum()

    for i in range(6):
        assert push(Tensor([float(i), 1.0]), v.bind(i)).item() == sum(range(i + 1)) + i + 1
    np.testing.assert_array_equal(cache.numpy(), [[i, 1] for i in range(6)])


def test_gradients_flow_through_moving_slices():
    x, b = Tensor(X), Variable("v", 0, 3).bind(2)
    (g,) = (x[:, b : b + 2] * 3).sum().gradient(x)
    want = np.zeros_like(X)
    want[:, 2:4] = 3
    np.testing.assert_array_equal(g.numpy(), want)


def test_variables_out_of_range_are_refused():
    v = Variable("v", 0, 5)
    with pytest.raises(UsageError, match=r"v must lie in 0\.\.5, saw 6"):
        v.bind(6)
    b = v.bind(1)
    with pytest.raises(UsageError, match=r"reaches 0\.\.9 of 8"):
        Tensor(X)[:, b : b + 4]
    with pytest.raises(UnsupportedError, match="step 1"):
        Tensor(X)[:, : v.bind(1) : 2]
    with pytest.raises(UsageError, match="low <= high"):
        Variable("v", 3, 2)
    with pytest.raises(UsageError, match="numbers of elements are not equal"):
        Tensor(X).reshape(v.bind(2), 4)


def test_binding_inside_a_captured_function_is_refused():
    v = Variable("v", 0, 4)
    f = TinyJit(lambda x: x[v.bind(1)])
    f(Tensor(X))
    with pytest.raises(UsageError, match="bind it outside"):
        f(Tensor(X))


@pytest.mark.sampled(7)
@pytest.mark.parametrize("shape", [(), (3,)])
@pytest.mark.parametrize("dtype", ["bool", "int8", "uint8", "uint32", "uint64", "float16", "float64"])
def test_a_bound_variable_changes_dtypes_as_a_python_number_does(dtype: str, shape: tuple[int, ...]):
    x, b = Tensor(np.ones(shape, dtype)), Variable("v", 0, 9).bind(4) * 2 + 1
    for with_variable, with_number in (
        (x + b, x + 9), (b * x, 9 * x), (b + x, 9 + x), (x < b, x < 9), (x.maximum(b), x.maximum(9)),
    ):  # fmt: skip
        assert with_variable.dtype is with_number.dtype
        np.testing.assert_array_equal(with_variable.numpy(), with_number.numpy())


@pytest.mark.parametrize("device", ["cpu", "nv-emu", "amd-emu"])
@pytest.mark.parametrize(("shape", "axis"), [((1,), 0), ((131,), 0), ((5, 33), 1), ((2, 64, 3), 1)])
def test_a_part_written_at_a_variable_leaves_the_rest(device: str, shape: tuple[int, ...], axis: int):
    want = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
    x = Tensor(want, device=device).realize()
    for size in {1, min(3, shape[axis]), shape[axis]}:
        v = Variable("v", 0, shape[axis] - size)
        for start in {0, v.high // 2, v.high}:
            b, before = v.bind(start, device=device), (slice(None),) * axis
            want[(*before, slice(start, start + size))] *= -2
            x[(*before, slice(b, b + size))] = x[(*before, slice(b, b + size))] * -2
            np.testing.assert_array_equal(x.numpy(), want)
