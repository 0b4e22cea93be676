"""`frontend.func`: what is refused, and that results keep no history where nothing outside needs it.

Not here: values beside PyTorch's (`data/programs/function_transforms.txt`).
"""

# ruff: noqa: ARG005, PLW0108 - rows are calls with a tensor

from __future__ import annotations

from typing import Any

import pytest

import frontend as torch
from frontend import func
from hcq.errors import UsageError, UsageTypeError


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda x: func.grad(lambda t: t)(x), UsageError, r"whose result has the shape \(\)"),
        (lambda x: func.grad(lambda t: 3)(x), UsageTypeError, "whose results are tensors, saw 3"),
        (lambda x: func.vjp(lambda t: 3, x), UsageTypeError, "whose results are tensors, saw 3"),
        (
            lambda x: func.jvp(lambda t: None, (x,), (x,)),
            UsageTypeError,
            "whose results are tensors, saw None",
        ),
        (lambda x: func.vjp(lambda t: (), x), UsageTypeError, r"whose results are tensors, saw \(\)"),
        (lambda x: func.vjp(lambda t: [t, t], x, has_aux=True), UsageTypeError, "wanted a pair"),
        (lambda x: func.vjp(lambda t: (t, t), x)[1](x), UsageError, "vjp, cotangents: .* structure"),
        (lambda x: func.jvp(lambda t: t, x, (x,)), UsageTypeError, "primals: wanted a tuple"),
        (lambda x: func.jvp(lambda t: t, (), ()), UsageTypeError, "primals: wanted a tuple"),
        (lambda x: func.jvp(lambda t: t, (x,), (x, x)), UsageError, "jvp, tangents: .* structure"),
        (lambda x: func.jvp(lambda t: t, (x,), (1.0,)), UsageError, "jvp, tangents: .* structure"),
        (lambda x: func.jacrev(lambda t: (t, t, t), has_aux=True)(x), UsageTypeError, "wanted a pair"),
        (lambda x: func.grad(lambda t: t.sum(), argnums=1)(x), UsageError, "wanted places of 1 arg"),
        (lambda x: func.grad(lambda t: t.sum())(x.int()), UsageTypeError, "wanted float tensors"),
        (lambda x: func.grad(lambda t: t.sum())({"a": 3}), UsageTypeError, "wanted float tensors.*saw 3"),
        (lambda x: func.vmap(torch.dot, in_dims=(0,))(x, x), UsageError, "wanted 2, one for each argument"),
        (lambda x: func.vmap(torch.add)(x, x[:2]), UsageError, r"equal lengths .* saw \[2, 3\]"),
        (lambda x: func.vmap(lambda t: t, in_dims=None)(x), UsageError, r"equal lengths .* saw \[\]"),
        (lambda x: func.vmap(lambda t: t)(x[:0]), UsageError, r"equal lengths .* saw \[0\]"),
        (lambda x: func.vmap(lambda t: t)(3), UsageTypeError, "wanted a tensor where in_dims is 0, saw 3"),
        (lambda x: func.vmap(lambda t: (t, t), out_dims=(0, 0, 0))(x), UsageError, "vmap, out_dims"),
        (lambda x: func.jacrev(lambda t: t[:0])(x), UsageError, "wanted results with elements"),
        (lambda x: func.stack_module_state([]), UsageError, "wanted modules of one structure, saw 0"),
    ],
)
def test_wrong_calls_are_refused(call: Any, error: Any, message: str):
    with pytest.raises(error, match=message):
        call(torch.arange(3.0))


def test_arguments_are_left_as_they_were():
    x, p = torch.arange(3.0), torch.tensor([1.0, 2.0, 3.0], requires_grad=True)
    assert func.grad(lambda t: (t * x * p).sum())(x).tolist() == [0, 2, 6]
    assert (x.requires_grad, p.requires_grad, p.grad) == (False, True, None)
    with pytest.raises(ZeroDivisionError):
        func.grad(lambda _: 1 / 0)(x)
    assert not x.requires_grad


def test_results_of_many_steps_keep_no_history():
    w = torch.ones(2)
    for _ in range(3):
        slope, value = func.grad_and_value(lambda t: (t * t).sum())(w)
        assert [slope.requires_grad, value.requires_grad] == [False, False]
        w = w - 0.25 * slope
    assert w.tolist() == [0.125, 0.125]
    assert not w.requires_grad
    with pytest.raises(UsageError):
        slope.sum().backward()


def test_second_derivatives_at_a_detached_tensor_are_not_lost():
    x = torch.tensor([1.0, 2.0], requires_grad=True)
    found = func.hessian(lambda t: (t**3).sum())(x.detach())
    assert found.tolist() == [[6, 0], [0, 12]]


def test_a_result_that_was_read_keeps_its_derivatives():
    x = torch.tensor(0.7)
    result, back = func.vjp(func.grad(torch.sin), x)
    assert result.item() == pytest.approx(0.764842)
    assert back(torch.tensor(2.0))[0].item() == pytest.approx(-1.288435)
    result, back = func.vjp(func.vmap(func.grad(torch.sin)), torch.tensor([0.1, 0.2]))
    assert result.tolist() == pytest.approx([0.995004, 0.980067])
    assert back(torch.tensor([1.0, 2.0]))[0].tolist() == pytest.approx([-0.0998334, -0.3973387])


@pytest.mark.parametrize("wanted", [False, True])
def test_no_grad_outside_ends_histories_and_changes_no_derivative(wanted: bool):  # noqa: FBT001 - a case
    x = torch.tensor([0.5, 2.0], requires_grad=wanted)
    with torch.no_grad():
        slope = func.grad(lambda t: (t * t).sum())(x)
        result, back = func.vjp(lambda t: t * t, x)
        (product,) = back(torch.ones(2))
        _, along = func.jvp(lambda t: t * t, (x,), (torch.ones(2),))
        rows = func.jacrev(lambda t: t * t)(x)
    for t in (slope, product, along, rows.sum(0)):
        assert t.tolist() == [1, 4]
    assert not any(t.requires_grad for t in (slope, result, product, along, rows))

    class Sine(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, t: Any) -> Any:
            ctx.save_for_backward(t)
            return -func.jvp(torch.cos, (t,), (torch.ones_like(t),))[1]

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            (t,) = ctx.saved_tensors
            return g * func.jvp(torch.sin, (t,), (torch.ones_like(t),))[1]

    y = x.detach().requires_grad_()
    found = Sine.apply(y)
    assert found.tolist() == pytest.approx(y.sin().tolist())
    found.sum().backward()
    assert y.grad.tolist() == pytest.approx(y.cos().tolist())


def test_detached_tensors_are_no_parameters_of_a_call():
    module = torch.nn.Linear(3, 3)
    values = {name: t.detach() for name, t in module.named_parameters()}
    assert func.functional_call(module, values, (torch.ones(2, 3),)).grad_fn is None
    assert func.functional_call(module, dict(module.named_parameters()), (torch.ones(2, 3),)).requires_grad


def test_products_of_autograd_take_one_tensor_or_a_tuple():
    x, y = torch.tensor([1.0, 2.0]), torch.tensor([3.0, -1.0])
    functional = torch.autograd.functional
    for given in (y, (y,)):
        assert functional.vjp(lambda t: t * t, x, given)[1].tolist() == [6, -4]
        assert functional.vjp(lambda t: (t * t,), x, given)[1].tolist() == [6, -4]
        assert functional.vhp(lambda t: (t**3).sum(), x, given)[1].tolist() == [18, -12]
        assert functional.jvp(lambda t: (t * t,), x, given)[1][0].tolist() == [6, -4]
    assert functional.jvp(lambda t: t * t, x)[1].tolist() == [2, 4]
    with pytest.raises(UsageError, match="structure"):
        functional.vjp(lambda t: t * t, x)
