"""Schedules of the learning rate, and clipping of gradients.

A schedule is a factor of the first learning rate by the number of steps; `step()` sets the rate of the
optimiser, also of one whose step was captured.

Not here: the optimisers (`optim`).
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from frontend.nn.settings import number_within
from frontend.tensor import Tensor
from hcq.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from frontend.nn.optim import Optimizer


class LambdaLR:
    """The first learning rate times a function of the number of steps."""

    def __init__(self, optimizer: Optimizer, lr_lambda: Callable[[int], float]) -> None:
        self.optimizer, self.factor = optimizer, lr_lambda
        self.first = float(optimizer.lr.item())
        self.steps = -1
        self.step()

    def step(self) -> None:
        """Count a step, and set the learning rate of the optimiser."""
        self.steps += 1
        self.optimizer.lr = self.first * number_within("lr_lambda", self.factor(self.steps), 0.0)

    def get_last_lr(self) -> list[float]:
        """Return the learning rate that was set."""
        return [self.first * self.factor(self.steps)]


class StepLR(LambdaLR):
    """The learning rate times gamma every `step_size` steps."""

    def __init__(self, optimizer: Optimizer, step_size: int, gamma: float = 0.1) -> None:
        super().__init__(optimizer, lambda n: gamma ** (n // step_size))


class MultiStepLR(LambdaLR):
    """The learning rate times gamma at each milestone."""

    def __init__(self, optimizer: Optimizer, milestones: Iterable[int], gamma: float = 0.1) -> None:
        every = tuple(milestones)
        super().__init__(optimizer, lambda n: gamma ** sum([m <= n for m in every]))


class ExponentialLR(LambdaLR):
    """The learning rate times gamma at each step."""

    def __init__(self, optimizer: Optimizer, gamma: float) -> None:
        super().__init__(optimizer, lambda n: gamma**n)


class LinearLR(LambdaLR):
    """The learning rate from a share of itself to another one, evenly over `total_iters` steps."""

    def __init__(
        self,
        optimizer: Optimizer,
        start_factor: float = 1 / 3,
        end_factor: float = 1.0,
        total_iters: int = 5,
    ) -> None:
        span = end_factor - start_factor
        super().__init__(optimizer, lambda n: start_factor + span * min(n, total_iters) / total_iters)


class CosineAnnealingLR(LambdaLR):
    """The learning rate down to `eta_min` along half a cosine of `T_max` steps."""

    def __init__(self, optimizer: Optimizer, T_max: int, eta_min: float = 0.0) -> None:  # noqa: N803 - the field's name
        first = float(optimizer.lr.item())
        least = eta_min / first if first else 0.0
        super().__init__(optimizer, lambda n: least + (1 - least) * (1 + math.cos(math.pi * n / T_max)) / 2)


def clip_grad_norm_(parameters: Tensor | Iterable[Tensor], max_norm: float, norm_type: float = 2.0) -> Tensor:
    """Scale gradients so that the norm of all together is at most `max_norm`; return the norm before.

    Lazy, so it may be captured with the step. Raises `UsageError` when no parameter has a gradient.
    """
    every = _with_gradients(parameters)
    norms = [t.grad.detach().norm(norm_type).reshape(1) for t in every if t.grad is not None]
    total = Tensor.cat(norms).norm(norm_type)
    scale = (number_within("clip_grad_norm_, max_norm", max_norm, 0.0) / (total + 1e-6)).minimum(1.0)
    for t in every:
        if t.grad is not None:
            t.grad = t.grad.detach() * scale.cast(t.dtype)
    return total


def clip_grad_value_(parameters: Tensor | Iterable[Tensor], clip_value: float) -> None:
    """Limit each element of all gradients to ±clip_value."""
    limit = number_within("clip_grad_value_, clip_value", clip_value, 0.0)
    for t in _with_gradients(parameters):
        if t.grad is not None:
            t.grad = t.grad.detach().clip(-limit, limit)


def _with_gradients(parameters: Tensor | Iterable[Tensor]) -> list[Tensor]:
    every = [parameters] if isinstance(parameters, Tensor) else list(parameters)
    found = [t for t in every if t.grad is not None]
    if not found:
        raise UsageError("clipping gradients: no parameter has one; call backward() first")
    return found
