"""Gradients of gradients where a rule selects by value: zeros of products, ends of series; and clip's bounds.

The numbers are PyTorch's (2.14), or follow from the function. Not here: first gradients at special points
(`test_gradients_of_pytorch`).
"""

from __future__ import annotations

import math
import sys
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from frontend import Tensor, autograd, nn
from frontend.autograd import anomaly
from frontend.stats import stats
from hcq.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable


def slopes(f: Callable[[Tensor], Tensor], values: Any, times: int) -> list[Any]:
    """Return the gradients of f(x).sum(), of that times weights, and so on."""
    x = Tensor(values, dtype="float64", requires_grad=True)
    weights = Tensor(np.array([1.0, 2.0, -1.0, 0.5])[: x.shape[-1]])
    found, now = [], f(x).sum()
    for _ in range(times):
        (g,) = now.gradient(x)
        found.append(g.tolist())
        now = (g * weights).sum()
    return found


PRODUCTS: dict[str, tuple[Callable[[Tensor], Tensor], Any, Any]] = {
    "one zero": (lambda x: x.prod(), [0.0, 2.0, 3.0, -1.0], [-1.0, -3.0, -2.0, 6.0]),
    "two zeros": (lambda x: x.prod(), [0.0, 2.0, 0.0, -1.0], [2.0, 0.0, -2.0, 0.0]),
    "even series": (lambda x: x.i0(), [0.0, 0.0, -0.0, 0.0], [0.5, 1.0, -0.5, 0.25]),
    "rows": (lambda x: x.prod(1), [[0.0, 2.0, 3.0], [1.0, 0.0, 0.0]], [[4.0, 3.0, 2.0], [0.0, -1.0, 2.0]]),
    "columns": (lambda x: x.prod(0), [[0.0, 2.0], [3.0, 0.0]], [[1.0, 2.0], [1.0, 2.0]]),
    "all of a matrix": (lambda x: x.prod(), [[0.0, 2.0], [3.0, 1.0]], [[20.0, 3.0], [2.0, 6.0]]),
    "running": (
        lambda x: x.cumprod(1),
        [[0.0, 2.0, 3.0], [1.0, 0.0, 0.0]],
        [[6.0, 4.0, 2.0], [2.0, 0.0, 2.0]],
    ),
}


@pytest.mark.parametrize("name", PRODUCTS)
def test_second_gradients_of_products_are_exact_at_zeros(name: str):
    f, values, want = PRODUCTS[name]
    assert slopes(f, values, 2)[1] == want


def test_third_gradients_of_products_are_exact_at_zeros():
    assert slopes(lambda x: x.prod(), [0.0, 0.0, 0.0], 3)[2] == [-4.0, -2.0, 4.0]


def test_a_first_gradient_of_a_product_computes_no_more_than_before():
    x = Tensor(np.arange(1.0, 2000.0), requires_grad=True).realize()
    before = stats.kernels
    x.prod().gradient(x)[0].realize()
    assert stats.kernels - before <= 3


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_digamma_has_a_gradient_at_whole_numbers(dtype: str):
    x = Tensor([1.0, 2.0, 3.0, 4.5, -1.5, -0.5], dtype=dtype, requires_grad=True)
    want = [1.6449340668, 0.6449340668, 0.3949340668, 0.2487251030, 9.3792466450, 8.9348022005]
    (g,) = x.digamma().sum().gradient(x)
    np.testing.assert_allclose(g.numpy(), want, rtol=1e-6)
    (first,) = x[:3].lgamma().sum().gradient(x)
    (g,) = first.sum().gradient(x)
    np.testing.assert_allclose(g.numpy()[:3], want[:3], rtol=1e-6)


def test_the_gradient_of_xlogy_at_0_is_the_logarithm():
    x = Tensor([0.0, 0.0, 0.0, 2.0, 0.0], requires_grad=True)
    y = Tensor([2.0, 0.0, -1.0, 3.0, math.nan], requires_grad=True)
    of_x, of_y = x.xlogy(y).sum().gradient(x, y)
    np.testing.assert_allclose(of_x.numpy(), [math.log(2), 0.0, 0.0, math.log(3), math.nan], rtol=1e-6)
    np.testing.assert_allclose(of_y.numpy(), [0.0, math.nan, 0.0, 2 / 3, math.nan], rtol=1e-6)


def test_sinc_is_smooth_at_0():
    points = [0.0, 1e-9, 0.003, 0.0032]
    x = Tensor(points, dtype="float64", requires_grad=True)
    y = x.sinc()
    (first,) = y.sum().gradient(x)
    (second,) = first.sum().gradient(x)
    np.testing.assert_allclose(y.numpy(), np.sinc(points), rtol=1e-15)
    np.testing.assert_allclose(first.numpy(), [-(math.pi**2) * p / 3 for p in points], rtol=2e-5)
    np.testing.assert_allclose(second.numpy(), [-(math.pi**2) / 3] * 4, rtol=1e-4)


def test_the_gradient_on_a_bound_of_clip_is_that_of_pytorch_2_13():
    """PyTorch 2.14 has 0 on a bound that is a number, and halves on one that is a tensor."""
    values = [-0.5, 0.0, 0.5, 1.0, 1.5, math.nan]
    x = Tensor(values, requires_grad=True)
    assert x.clamp(0.0, 1.0).sum().gradient(x)[0].tolist() == [0.0, 1.0, 1.0, 1.0, 0.0, 0.0]
    assert x.clamp(min=0.0).sum().gradient(x)[0].tolist() == [0.0, 1.0, 1.0, 1.0, 1.0, 0.0]
    assert x.clamp(max=1.0).sum().gradient(x)[0].tolist() == [1.0, 1.0, 1.0, 1.0, 0.0, 0.0]
    low, high = (Tensor([n] * 6, requires_grad=True) for n in (0.0, 1.0))
    found = x.clamp(low, high).sum().gradient(x, low, high)
    assert [g.tolist() for g in found] == [
        [0.0, 1.0, 1.0, 1.0, 0.0, 0.0],
        [1.0, 0.0, 0.0, 0.0, 0.0, 0.0],
        [0.0, 0.0, 0.0, 0.0, 1.0, 0.0],
    ]


@pytest.mark.parametrize("form", ["root", "quotient", "layer"])
def test_anomaly_mode_names_the_line_of_the_operation(form: str):
    w = Tensor([0.0, 1.0], requires_grad=True)
    calls = {
        "root": lambda: Tensor.sqrt(w),
        "quotient": lambda: w / (w * 2.0),
        "layer": lambda: nn.functional.normalize(w * 0.0, eps=0.0, dim=0),
    }
    first = calls["root"].__code__.co_firstlineno
    line = first + list(calls).index(form)
    with autograd.detect_anomaly():
        made = calls[form]()
        loss = (made * 0.0 + w).sum()
        with pytest.raises(UsageError, match=rf"has NaN; .*test_second_gradients.py:{line}\n"):
            loss.backward()
    assert w.grad is None
    assert sys.getprofile() is None
    loss = (w.sqrt() * 0.0).sum()
    with autograd.set_detect_anomaly(True), pytest.raises(UsageError, match="of no known line"):
        loss.backward()


def test_anomaly_mode_keeps_no_tensor_of_a_step_that_ended():
    w = Tensor([1.0, 2.0], requires_grad=True)
    with autograd.detect_anomaly():
        for _ in range(3):
            loss = (w * w).sum()
            loss.backward()
            assert [e.op for e, _ in anomaly._LINES] == [loss.expr.op]  # backward returns the loss
        (w * w).sum().backward(create_graph=True)
        assert len(anomaly._LINES) == 2  # the product and the sum
    assert not anomaly._LINES
