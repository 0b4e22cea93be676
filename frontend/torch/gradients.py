"""Derivatives of functions: PyTorch's `autograd.functional`, and `autograd.backward`.

Functions take one tensor or a tuple of tensors. Without `create_graph` results have no history. PyTorch's
arguments `strict`, `outer_jacobian_strategy` and `vectorize` are not there.

Not here: gradients of tensors (`frontend.autograd.gradients`). Next: `frontend.func`, which computes them.
"""

# ruff: noqa: FBT001, FBT002 - PyTorch's signatures

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from frontend import func as transforms
from frontend.tensor import Tensor
from hcq.errors import UsageError

__all__ = ["hessian", "hvp", "jacobian", "jvp", "vhp", "vjp"]


def _tuple(value: Any) -> tuple[Any, ...]:
    return tuple(value) if isinstance(value, (tuple, list)) else (value,)


def _fresh(inputs: Any, create_graph: bool) -> tuple[Tensor, ...]:
    """Return the inputs, each with requires_grad; new tensors without `create_graph`."""
    kept = [create_graph and t.requires_grad for t in _tuple(inputs)]
    every = zip(_tuple(inputs), kept, strict=True)
    return tuple([t if keep else t.detach().clone().requires_grad_() for t, keep in every])


def _places(inputs: Any) -> Any:
    """Return what makes results of a transform a tuple for several inputs: the places of all."""
    return tuple(range(len(inputs))) if isinstance(inputs, (tuple, list)) else 0


def _like(found: Any, inputs: Any) -> Any:
    return tuple(found) if isinstance(inputs, (tuple, list)) else found[0]


def _result(outputs: Any, create_graph: bool) -> Any:
    """Return tensors in tuples, without history unless `create_graph`."""
    if isinstance(outputs, (tuple, list)):
        return tuple([_result(o, create_graph) for o in outputs])
    return outputs if create_graph else outputs.detach()


def _number(func: Callable[..., Any]) -> Callable[..., Tensor]:
    def number(*xs: Tensor) -> Tensor:
        out: Tensor = func(*xs)
        if out.numel() != 1:
            raise UsageError(f"wanted a function of one number, its result has the shape {out.shape}")
        return out.reshape(())

    return number


def jacobian(func: Callable[..., Any], inputs: Any, create_graph: bool = False) -> Any:
    """Return the derivatives (*output, *input) of each output by each input, nested as both are."""
    found = transforms.jacrev(func, _places(inputs))(*_fresh(inputs, create_graph))
    return _result(found, create_graph)


def hessian(func: Callable[..., Any], inputs: Any, create_graph: bool = False) -> Any:
    """Return the second derivatives of a function. Raises `UsageError` unless its result is one number."""
    return jacobian(transforms.grad(_number(func), _places(inputs)), inputs, create_graph)


def vjp(func: Callable[..., Any], inputs: Any, v: Any = None, create_graph: bool = False) -> Any:
    """Return the outputs, and the gradients of v times them; v may be left out for one number."""
    outputs, back = transforms.vjp(func, *_fresh(inputs, create_graph))
    one = v is None and isinstance(outputs, Tensor) and outputs.ndim == 0
    given = outputs.ones_like() if one else _tuple(v)[0] if isinstance(outputs, Tensor) else _tuple(v)
    found = back(given)
    return _result((outputs, _like(found, inputs)), create_graph)


def jvp(func: Callable[..., Any], inputs: Any, v: Any = None, create_graph: bool = False) -> Any:
    """Return the outputs, and their derivatives along the direction v of the inputs."""
    xs = _fresh(inputs, create_graph)
    along = tuple([x.ones_like() for x in xs]) if v is None else _tuple(v)
    return _result(transforms.jvp(func, xs, along), create_graph)


def vhp(func: Callable[..., Any], inputs: Any, v: Any = None, create_graph: bool = False) -> Any:
    """Return the output, one number, and v times the matrix of second derivatives, which is symmetric."""
    xs = _fresh(inputs, create_graph)
    slope = transforms.grad(_number(func), tuple(range(len(xs))))
    along = tuple([x.ones_like() for x in xs]) if v is None else _tuple(v)
    found = transforms.vjp(slope, *xs)[1](along)
    return _result((func(*xs), _like(found, inputs)), create_graph)


hvp = vhp


def backward(  # noqa: PLR0917 - PyTorch's signature
    tensors: Any,
    grad_tensors: Any = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    grad_variables: None = None,  # noqa: ARG001 - which PyTorch had before grad_tensors
    inputs: Any = None,
) -> None:
    """Call `backward` of each tensor, with its gradient, so that gradients of all are added.

    Raises as `Tensor.backward`.
    """
    seeds = [None] * len(_tuple(tensors)) if grad_tensors is None else _tuple(grad_tensors)
    for t, seed in zip(_tuple(tensors), seeds, strict=True):
        t.backward(seed, retain_graph=retain_graph, create_graph=create_graph, inputs=inputs)
