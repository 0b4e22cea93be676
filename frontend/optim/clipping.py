"""Clipping of gradients: by the norm of all of them, or element by element.

Not here: scaling of losses in mixed precision (`frontend.nn.amp`). Next: `optimiser`, which takes the step.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

from frontend.arguments.conversion import flag, number, shown
from frontend.arguments.settings import number_within
from frontend.assignment import renew_gradient, shares_gradient
from frontend.evaluation.plan import refuse
from frontend.tensor import Tensor
from hcq.errors import UsageError, UsageTypeError


def clip_grad_norm_(
    parameters: Tensor | Iterable[Tensor],
    max_norm: float,
    norm_type: float = 2.0,
    error_if_nonfinite: bool = False,  # noqa: FBT001, FBT002 - the field's signature
    foreach: bool | None = None,  # noqa: FBT001 - as above; without effect
) -> Tensor:
    """Scale gradients so that the `norm_type`-norm of all their elements is at most `max_norm`, or infinity.

    Return the norm before, 0 without gradients. Nothing is computed, so it may be captured with the step;
    with `error_if_nonfinite` the norm is read, and one that is not finite raises `UsageError`. So does a
    negative max_norm; `UsageTypeError` for no tensors.
    """
    every = _with_gradients(parameters)
    if max_norm != math.inf:
        number_within("clip_grad_norm_, max_norm", max_norm, 0.0)
    shares = [shares_gradient(t) for t in every]  # before the norms, which have views of gradients
    grads = [t.grad for t in every if t.grad is not None]
    total = get_total_norm(grads, norm_type, error_if_nonfinite, foreach)
    _scale(every, shares, max_norm, total)
    return total


def get_total_norm(
    tensors: Tensor | Iterable[Tensor],
    norm_type: Any = 2.0,
    error_if_nonfinite: bool = False,  # noqa: FBT001, FBT002 - the field's signature
    foreach: bool | None = None,  # noqa: FBT001, ARG001 - as above; without effect
) -> Tensor:
    """Return the norm of all elements of tensors, 0 for none.

    With `error_if_nonfinite` it is read, and one that is not finite raises `UsageError`.
    """
    every = [tensors] if isinstance(tensors, Tensor) else list(tensors)
    if not every:
        return Tensor(0.0)
    p = math.inf if norm_type == "inf" else number(norm_type, "clip_grad_norm_, norm_type")
    total = Tensor.cat([t.detach().norm(p).reshape(1) for t in every]).norm(p)
    if flag(error_if_nonfinite, "clip_grad_norm_, error_if_nonfinite"):
        refuse("clip_grad_norm_ with error_if_nonfinite inside a captured function: replays would not check")
        if not math.isfinite(total.item()):
            raise UsageError(f"clip_grad_norm_: the norm of the gradients is {total.item()}")
    return total


def clip_grads_with_norm_(
    parameters: Tensor | Iterable[Tensor],
    max_norm: float,
    total_norm: Tensor,
    foreach: bool | None = None,  # noqa: FBT001, ARG001 - the field's signature; without effect
) -> None:
    """Scale gradients by max_norm / total_norm if it is below 1. Raises `UsageTypeError` for no tensors."""
    every = _with_gradients(parameters)
    if max_norm != math.inf:
        number_within("clip_grads_with_norm_, max_norm", max_norm, 0.0)
    _scale(every, [shares_gradient(t) for t in every], max_norm, total_norm)


def _scale(every: list[Any], shares: list[bool], max_norm: float, total_norm: Tensor) -> None:
    scale = (max_norm / (total_norm + 1e-6)).minimum(1.0)
    for t, shared in zip(every, shares, strict=True):
        if t.grad is not None:
            renew_gradient(t, t.grad.detach() * scale.cast(t.dtype), shared=shared)


def clip_grad_value_(
    parameters: Tensor | Iterable[Tensor],
    clip_value: float,
    foreach: bool | None = None,  # noqa: FBT001, ARG001 - the field's signature
) -> None:
    """Limit each element of all gradients to ±clip_value; `foreach` has no effect.

    Raises as `clip_grad_norm_`.
    """
    limit = number_within("clip_grad_value_, clip_value", clip_value, 0.0)
    for t in _with_gradients(parameters):
        if t.grad is not None:
            renew_gradient(t, t.grad.clip(-limit, limit).detach(), shared=shares_gradient(t))


def _with_gradients(parameters: Any) -> list[Tensor]:
    if not isinstance(parameters, Iterable):
        hint = "give the list of tensors, for a model model.parameters()"
        raise UsageTypeError(f"clipping gradients: wanted tensors, saw {shown(parameters)}\nhint: {hint}")
    every = [parameters] if isinstance(parameters, Tensor) else list(parameters)
    return [t for t in every if t.grad is not None]
