"""Derivatives of functions: PyTorch's `autograd.functional`, and `autograd.backward`.

Functions take one tensor or a tuple of tensors. Without `create_graph` results have no history. PyTorch's
arguments `strict`, `outer_jacobian_strategy` and `vectorize` are not there.

Not here: gradients of tensors (`frontend.autograd.gradients`).
"""

# ruff: noqa: FBT001, FBT002 - PyTorch's signatures

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from frontend.autograd.gradients import grad
from frontend.tensor import Tensor
from hcq.errors import UsageError

__all__ = ["hessian", "hvp", "jacobian", "jvp", "vhp", "vjp"]


def _tuple(value: Any) -> tuple[Any, ...]:
    return tuple(value) if isinstance(value, (tuple, list)) else (value,)


def _fresh(inputs: Any, create_graph: bool) -> tuple[Tensor, ...]:
    """Return the inputs, each with requires_grad; new tensors without `create_graph`."""
    return tuple(
        [
            t if create_graph and t.requires_grad else t.detach().clone().requires_grad_()
            for t in _tuple(inputs)
        ]
    )


def _like(found: list[Tensor], inputs: Any) -> Any:
    return tuple(found) if isinstance(inputs, (tuple, list)) else found[0]


def _result(outputs: Any, create_graph: bool) -> Any:
    """Return outputs, without history unless `create_graph`."""
    if create_graph:
        return outputs
    found = tuple([o.detach() for o in _tuple(outputs)])
    return found if isinstance(outputs, (tuple, list)) else found[0]


def _grads(outputs: Any, xs: Any, v: Any, create_graph: bool) -> list[Tensor]:
    """Return the gradients of outputs times v, zeros where there is no dependence."""
    found = grad(outputs, xs, v, create_graph=create_graph, allow_unused=True)
    return [x.zeros_like() if g is None else g for g, x in zip(found, xs, strict=True)]


def jacobian(func: Callable[..., Any], inputs: Any, create_graph: bool = False) -> Any:
    """Return the derivatives (*output, *input) of each output by each input, nested as both are."""
    xs = _fresh(inputs, create_graph)
    outputs, rows = func(*xs), []
    for out in _tuple(outputs):
        flat = out.reshape(-1)
        parts = [_grads(flat[i], xs, None, create_graph) for i in range(out.numel())]
        each = [Tensor.stack([p[k] for p in parts]).reshape(*out.shape, *x.shape) for k, x in enumerate(xs)]
        rows.append(_like(each, inputs))
    return tuple(rows) if isinstance(outputs, (tuple, list)) else rows[0]


def _slope(func: Callable[..., Any]) -> Callable[..., tuple[Tensor, ...]]:
    def slope(*xs: Tensor) -> tuple[Tensor, ...]:
        out = func(*xs)
        if out.numel() != 1:
            raise UsageError(f"wanted a function of one number, its result has the shape {out.shape}")
        return tuple(_grads(out.reshape(()), xs, None, True))

    return slope


def hessian(func: Callable[..., Any], inputs: Any, create_graph: bool = False) -> Any:
    """Return the second derivatives of a function. Raises `UsageError` unless its result is one number."""
    found = jacobian(_slope(func), tuple(_fresh(inputs, create_graph)), create_graph)
    return found if isinstance(inputs, (tuple, list)) else found[0][0]


def vjp(func: Callable[..., Any], inputs: Any, v: Any = None, create_graph: bool = False) -> tuple[Any, Any]:
    """Return the outputs, and the gradients of v times them; v may be left out for one number."""
    xs = _fresh(inputs, create_graph)
    outputs = func(*xs)
    return _result(outputs, create_graph), _like(_grads(outputs, xs, v, create_graph), inputs)


def jvp(func: Callable[..., Any], inputs: Any, v: Any = None, create_graph: bool = False) -> tuple[Any, Any]:
    """Return the outputs, and their derivatives along the direction v of the inputs."""
    xs = _fresh(inputs, create_graph)
    outputs = func(*xs)
    us = [
        Tensor.ones(o.shape, dtype=o.dtype, device=o.device).realize().requires_grad_()
        for o in _tuple(outputs)
    ]
    back = _grads(outputs, xs, us, True)
    along = [x.ones_like() for x in xs] if v is None else _tuple(v)
    total = sum((b * d).sum() for b, d in zip(back, along, strict=True))
    return _result(outputs, create_graph), _like(_grads(total, us, None, create_graph), outputs)


def vhp(func: Callable[..., Any], inputs: Any, v: Any = None, create_graph: bool = False) -> tuple[Any, Any]:
    """Return the output, one number, and v times the matrix of second derivatives, which is symmetric."""
    xs = _fresh(inputs, create_graph)
    back = _slope(func)(*xs)
    along = [x.ones_like() for x in xs] if v is None else _tuple(v)
    total: Any = sum((b * d).sum() for b, d in zip(back, along, strict=True))
    return _result(func(*xs), create_graph), _like(_grads(total, xs, None, create_graph), inputs)


hvp = vhp


def backward(
    tensors: Any, grad_tensors: Any = None, retain_graph: bool | None = None, create_graph: bool = False
) -> None:
    """Call `backward` of each tensor, with its gradient, so that gradients of all are added.

    Raises as `Tensor.backward`.
    """
    seeds = [None] * len(_tuple(tensors)) if grad_tensors is None else _tuple(grad_tensors)
    for t, seed in zip(_tuple(tensors), seeds, strict=True):
        t.backward(seed, retain_graph=retain_graph, create_graph=create_graph)
