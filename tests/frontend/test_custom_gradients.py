"""Functions with a gradient that the user writes, and keywords of captured functions in any order."""

from __future__ import annotations

from typing import Any

import pytest

from frontend import Function, Tensor, TinyJit
from hcq.errors import UsageError


class Doubled(Function):
    """x * k, with a gradient twice as large."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, k: float) -> Tensor:
        ctx.save_for_backward(x)
        ctx.k = k
        return x * k

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Any:
        (x,) = ctx.saved_tensors
        return g * ctx.k * 2 + x * 0, None


class Cubed(Function):
    """x**3, differentiated by hand."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x * x * x

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Tensor:
        return ctx.saved_tensors[0].square() * 3 * g


@pytest.mark.parametrize("k", [3.0, 5.0])
def test_the_gradient_is_that_of_backward(k: float):
    x = Tensor([1.0, -2.0], requires_grad=True)
    y = Doubled.apply(x, k)
    (y * Tensor([1.0, 10.0])).sum().backward()
    assert y.tolist() == [k, -2 * k]
    assert x.grad is not None
    assert x.grad.tolist() == [2 * k, 20 * k]


def test_a_gradient_is_differentiated_again():
    x = Tensor([2.0])
    (first,) = Cubed.apply(x).sum().gradient(x)
    (second,) = first.sum().gradient(x)
    assert (first.tolist(), second.tolist()) == ([12.0], [12.0])


def test_it_is_captured_and_follows_realized_tensors():
    weight = Tensor([1.0, 2.0], requires_grad=True)

    @TinyJit
    def step(x: Tensor) -> Tensor:
        return Cubed.apply(weight * x).sum().gradient(weight)[0]

    for v in (1.0, 2.0, 3.0, 4.0):
        assert step(Tensor([v, v]).realize()).tolist() == [3 * v**3, 12 * v**3]


class Wrong(Function):
    """A gradient of another shape."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        del ctx
        return x + 1

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Any:
        del ctx
        return g.sum()


def test_a_gradient_of_another_shape_is_refused():
    x = Tensor([1.0, 2.0])
    with pytest.raises(UsageError, match="argument 0"):
        Wrong.apply(x).sum().gradient(x)


def test_a_function_without_tensors_is_refused():
    with pytest.raises(UsageError, match="tensor among"):
        Cubed.apply(3.0)


def test_keywords_of_a_captured_function_come_in_any_order():
    step = TinyJit(lambda *, a, b: a["x"] * 10 + a["y"] + b)
    x, y, b = (Tensor([v]).realize() for v in (1.0, 2.0, 100.0))
    assert step(a={"x": x, "y": y}, b=b).tolist() == [112.0]
    assert step(b=b, a={"x": x, "y": y}).tolist() == [112.0]
    assert step(a={"x": x, "y": y}, b=b).tolist() == [112.0]
    assert step(b=x, a={"x": b, "y": y}).tolist() == [1003.0]


class Paired(Function):
    """2 x and 3 x, with a gradient that is no sum over both."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Any:
        ctx.save_for_backward(x)
        ctx.set_materialize_grads(False)
        return x * 2, x * 3

    @staticmethod
    def backward(_: Any, a: Any, b: Any) -> Any:
        if a is None or b is None:
            return b * 10 if a is None else a * 100
        return a * b + a


@pytest.mark.parametrize("chained", [False, True])
@pytest.mark.parametrize("read", ["", "a", "b", "ab", "loss"])
def test_results_that_were_read_get_their_gradients_at_once(read: str, chained: bool):  # noqa: FBT001 - a case
    x = Tensor([1.0, -2.0], requires_grad=True)
    a, b = Paired.apply(x)
    if "a" in read:
        a.tolist()
    if chained:
        c = a * 1.5
        c.tolist()  # read between both results, and before b is
        b = b + c * 0
    if "b" in read:
        b.tolist()
    first, second = a.sum() * 2, (b * Tensor([-1.0, 3.0])).sum()
    if read == "loss":
        first.item()
    (first + second).backward()
    assert x.grad is not None
    assert x.grad.tolist() == [0.0, 8.0]


@pytest.mark.parametrize(("k", "want"), [(0, [200.0, 200.0]), (1, [10.0, 10.0])])
def test_a_result_that_was_read_and_the_unused_one_have_no_gradient(k: int, want: list[float]):
    x = Tensor([1.0, -2.0], requires_grad=True)
    found = Paired.apply(x)
    found[0].tolist()
    (found[k].sum() * (2 if k == 0 else 1)).backward()
    assert x.grad is not None
    assert x.grad.tolist() == want


def test_a_value_read_late_is_reached_through_two_graphs():
    x = Tensor([1.0, -2.0], requires_grad=True)
    each = [Doubled.apply(x, 0.5)]
    for _ in range(4):
        each.append(Doubled.apply(each[-1], 0.5))
    product = each[1] * each[4]
    each[4].tolist()  # the product was computed from what it was before
    product.tolist()
    sum([*each, product]).sum().backward()
    # each call has the gradient 1, twice its slope: five values, and the product by its two factors
    assert x.grad.tolist() == [5 + 0.25 * 1.0 + 0.03125 * 1.0, 5 - 0.25 * 2.0 - 0.03125 * 2.0]
