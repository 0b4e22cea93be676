"""Hooks of gradients of modules and of tensors: what they may return, captures, copies, values that are read.

Not here: values and order beside PyTorch's (`data/programs/module_hooks.txt`).
"""

from __future__ import annotations

import copy
from typing import Any

import pytest

from frontend import Tensor, TinyJit, autograd, nn
from hcq.errors import UsageError, UsageTypeError


def hooked(hook: Any) -> nn.Module:
    layer = nn.Linear(2, 2)
    layer.register_full_backward_hook(hook)
    return layer


@pytest.mark.parametrize(
    ("found", "error", "message"),
    [
        (lambda g: (g, g), UsageError, "wanted 1 gradients of inputs, saw 2"),
        (lambda _: (3,), UsageTypeError, "wanted a gradient, a tensor or None, saw 3"),
        (lambda g: (g.sum(),), UsageError, r"wanted a gradient of shape \(1, 2\), saw \(\)"),
    ],
)
def test_a_hook_returns_a_gradient_for_each_argument(found: Any, error: type[Exception], message: str):
    layer = hooked(lambda _, given, __: found(given[0]))
    x = Tensor.ones(1, 2, requires_grad=True)
    with pytest.raises(error, match=message):
        layer(x).sum().backward()
    assert x.grad is None


def test_a_hook_is_a_function():
    for register in (nn.ReLU().register_full_backward_hook, nn.ReLU().register_forward_hook):
        with pytest.raises(UsageTypeError, match="wanted a function as a hook, saw 3"):
            register(3)  # type: ignore[arg-type]  # the mistake


def test_a_hook_that_returns_none_for_an_argument_ends_its_gradient():
    layer = hooked(lambda *_: (None,))
    x = Tensor.ones(1, 2, requires_grad=True)
    (layer(x * 2).sum() + x.sum()).backward()
    assert x.grad is not None
    assert x.grad.tolist() == [[1.0, 1.0]]


def test_a_value_that_is_read_inside_a_module_keeps_its_hooks():
    seen: list[Any] = []

    class Read(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            y = x * 3
            y.numpy()
            return y * y

    module = Read()
    module.register_full_backward_hook(lambda _, given, of: seen.append((given[0].item(), of[0].item())))
    x = Tensor([2.0], requires_grad=True)
    (module(x) * 5).sum().backward()
    assert x.grad is not None
    assert (x.grad.tolist(), seen) == ([180.0], [(180.0, 5.0)])


def test_a_gradient_of_an_argument_without_one_of_a_result_is_refused():
    kept: list[Tensor] = []

    class Kept(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            kept.append(x)
            return x * 2

    module = Kept()
    module.register_full_backward_hook(lambda *_: None)
    module(Tensor([2.0], requires_grad=True))
    with pytest.raises(UsageError, match="hook of Kept: saw a gradient of an argument and none of a result"):
        kept[0].sum().backward()


def test_a_captured_step_replays_the_gradients_that_its_hooks_gave():
    calls: list[int] = []

    def hook(_: nn.Module, given: Any, __: Any) -> Any:
        calls.append(1)
        return (given[0] * 10,)

    layer = hooked(hook)
    layer.weight.assign(Tensor.ones(2, 2)).realize()
    x = Tensor.ones(1, 2, requires_grad=True)

    def step(scale: Tensor) -> Tensor:
        (layer(x) * scale).sum().backward()
        found, x.grad = x.grad, None
        assert found is not None
        return found.realize()

    captured = TinyJit(step)
    assert [captured(Tensor([float(k)])).tolist() for k in range(1, 5)] == [
        [[20.0 * k, 20.0 * k]] for k in range(1, 5)
    ]
    assert len(calls) < 4


def test_a_copy_of_a_module_calls_its_hooks_with_itself():
    seen: list[Any] = []
    layer = hooked(lambda module, *_: seen.append(module))
    other = copy.deepcopy(layer)
    x = Tensor.ones(1, 2, requires_grad=True)
    (layer(x) + other(x)).sum().backward()
    assert {id(m) for m in seen} == {id(layer), id(other)}


@pytest.mark.parametrize("change", [lambda x: x * 1, lambda x: x.view(3), lambda x: x.exp()])
def test_another_gradient_from_a_hook_of_no_leaf_is_refused(change: Any):
    x = Tensor([1.0, 2.0, 3.0], requires_grad=True)
    seen: list[Any] = []
    y = change(x)
    handle = y.register_hook(lambda g: seen.append(g.tolist()))
    (y * 2).sum().backward()
    assert seen == [[2.0, 2.0, 2.0]]
    handle.remove()
    y.register_hook(lambda g: g * 10)
    for backward in (lambda t: t.backward(), lambda t: autograd.grad(t, [x])):
        with pytest.raises(UsageError, match="which is no leaf, returned another gradient"):
            backward((y * 2).sum())


def test_autograd_grad_calls_hooks_of_inputs_and_on_the_way():
    x, other = (Tensor([1.0, 2.0], requires_grad=True) for _ in range(2))
    seen: list[Any] = []
    x.register_hook(lambda g: g * 2)
    other.register_hook(lambda _: seen.append("other"))
    y = x * 3
    y.register_hook(lambda g: seen.append(g.tolist()))
    (found,) = autograd.grad((y * y * other).sum(), [x], create_graph=True)
    (second,) = autograd.grad(found.sum(), [other])
    assert (found.tolist(), second.tolist(), seen) == ([36, 144], [36, 72], [[6, 24], "other"])


def test_a_hook_of_a_detached_value_may_return_another_gradient():
    x = Tensor([1.0, 2.0], requires_grad=True)
    y = x.detach().requires_grad_()
    y.register_hook(lambda g: g * 10)
    (x * y * y).sum().backward()
    assert x.grad is not None
    assert y.grad is not None
    assert (x.grad.tolist(), y.grad.tolist()) == ([1, 4], [20, 80])
