"""Values stored into the memory they are computed from, at ragged sizes, with threads.

A kernel may compute its last block twice, and its workgroups run in any order: what is stored must not be
what another workgroup still reads.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from frontend import Tensor

if TYPE_CHECKING:
    from collections.abc import Callable

Array = np.ndarray[Any, Any]
SHAPES = [
    (1,), (7,), (9,), (33,), (129,), (1025,), (65537,), (300007,),
    (3, 5), (17, 129), (101, 33), (513, 1001), (17, 33, 65),
]  # fmt: skip
VALUES: dict[str, tuple[Callable[[Any], Any], Callable[[Array], Array]]] = {
    "itself": (lambda t: t + t * 2, lambda a: a * 3),
    "its sum": (lambda t: t + t.sum(), lambda a: a + a.sum()),
    "its rows' maxima": (lambda t: t - t.amax(-1, keepdim=True), lambda a: a - a.max(-1, keepdims=True)),
    "its columns' maxima": (lambda t: t + t.amax(0, keepdim=True), lambda a: a + a.max(0, keepdims=True)),
    "its reverse": (lambda t: t.flip(0), lambda a: np.flip(a, 0)),
    "its rows reversed": (lambda t: t.flip(t.ndim - 1) + 1, lambda a: np.flip(a, -1) + 1),
    "itself rolled": (lambda t: t.roll(1, 0), lambda a: np.roll(a, 1, 0)),
    "itself and its reverse": (lambda t: t * 2 + t.flip(0), lambda a: a * 2 + np.flip(a, 0)),
}


@pytest.mark.usefixtures("fast")
@pytest.mark.parametrize("name", VALUES)
def test_tensor_is_assigned_a_value_computed_from_it(name: str) -> None:
    value, wanted = VALUES[name]
    for shape in SHAPES:
        data = np.random.default_rng(0).integers(-8, 9, shape).astype(np.int32)
        t = Tensor(data)
        for _ in range(2):
            t.assign(value(t)).realize()
            data = wanted(data)
        assert np.array_equal(t.numpy(), data), shape


@pytest.mark.usefixtures("fast")
@pytest.mark.parametrize("n", [3, 17, 129, 1025, 70001])
def test_slices_are_assigned_from_shifted_slices(n: int) -> None:
    data = np.random.default_rng(0).integers(-8, 9, n).astype(np.int32)
    t = Tensor(data)
    t[1:] = t[:-1]
    t.realize()
    data[1:] = data[:-1].copy()
    t[:-1] = t[1:] * 2
    t.realize()
    data[:-1] = data[1:] * 2
    t[::2] = t.flip(0)[::2]
    data[::2] = data[::-1][::2].copy()
    assert np.array_equal(t.numpy(), data)


@pytest.mark.usefixtures("fast")
@pytest.mark.parametrize("n", [5, 33, 257])
def test_matrix_is_assigned_its_transpose_product_and_softmax(n: int) -> None:
    data = np.random.default_rng(0).integers(-8, 9, (n, n)).astype("f")
    t = Tensor(data)
    t.assign(t.T + t).realize()
    assert np.array_equal(t.numpy(), data.T + data)
    t = Tensor(data)
    t.assign(t @ t).realize()
    assert np.array_equal(t.numpy(), data @ data)
    t = Tensor(data)
    t.assign(t.softmax(0)).realize()
    e = np.exp(data - data.max(0))
    assert np.allclose(t.numpy(), e / e.sum(0), atol=1e-5)


def test_two_tensors_swap_values_in_one_launch() -> None:
    a, b = np.arange(1025, dtype="f"), np.ones(1025, "f")
    u, v = Tensor(a), Tensor(b)
    old = u + 0
    u.assign(v + 1)
    v.assign(old * 2)
    u.realize(v)
    assert np.array_equal(u.numpy(), b + 1)
    assert np.array_equal(v.numpy(), a * 2)
