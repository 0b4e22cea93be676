"""Optimisers with one rate for all elements, or with rates from the history of squared gradients.

w is a parameter, g its gradient plus `weight_decay` times w. Moments start at 0 unless a class says
otherwise. Arguments that all optimisers have, and errors: `optimiser.Rule`.

Not here: Adam's variants (`adam`), rates by the norm of a parameter (`layerwise`). Next: `optimiser`.
"""

# ruff: noqa: RUF012 - tables of a class, as in the base

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from compiler.dtype import DType
from frontend.arguments.settings import GroupFlag, GroupNumbers, GroupSetting
from frontend.evaluation.constants import stopped
from frontend.optim.optimiser import Rule
from hcq.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from frontend.optim.group import Group
    from frontend.tensor import Tensor


class SGD(Rule):
    """Stochastic gradient descent, with momentum, Nesterov's variant and weight decay.

    b = momentum * b + (1 - dampening) * g, but b = g at the first step. lr * b is subtracted from w; with
    `nesterov` lr * (g + momentum * b); without momentum lr * g, and there is no b. `self.b` are the tensors
    b.

    Raises `UsageError` for numbers below 0, dampening of 2 or more, and `nesterov` without momentum or with
    dampening.
    """

    moments = {"b": "momentum_buffer"}
    counted = False
    momentum = GroupSetting()
    dampening = GroupSetting(high=2.0)
    weight_decay = GroupSetting()
    nesterov = GroupFlag()
    b: list[Tensor]

    def _check(self, group: Group) -> None:
        if group.number("nesterov") and (not group.number("momentum") or group.number("dampening")):
            raise UsageError("Nesterov's variant needs a momentum above 0, and no dampening")

    def _counters(self, group: Group) -> dict[str, tuple[float, DType]]:
        return {"t": (0.0, group.exact)} if group.number("momentum") and group.number("dampening") else {}

    def _needed(self, group: Group) -> tuple[str, ...]:
        return ("b",) if group.number("momentum") else ()

    def _moved(self, i: int, w: Tensor, g: Tensor, group: Group) -> Tensor:
        if group.number("weight_decay"):
            g = g + w * group.number("weight_decay")
        if group.number("momentum"):
            b = self.b[i]
            added = b * group.number("momentum") + (
                g * (1 - group.number("dampening")) if group.number("dampening") else g
            )
            if group.number("dampening"):
                added = (group.counters["t"] > 1).where(added, g)
            self.store(b, added)
            g = g + b * group.number("momentum") if group.number("nesterov") else b
        return w - g * group.lr.cast(g.dtype)


class RMSprop(Rule):
    """Gradients divided by the root of the running mean of their squares (Hinton, 2012).

    v = alpha * v + (1 - alpha) * g**2, and lr * g / (sqrt(v) + eps) is subtracted from w. With `centered`,
    the square of the running mean of g is subtracted from v first. With `momentum`, b = momentum * b + g /
    (sqrt(v) + eps), and lr * b is subtracted.
    """

    moments = {"v": "square_avg", "b": "momentum_buffer", "mean": "grad_avg"}
    rate = 0.01
    alpha = GroupSetting(0.99)
    eps = GroupSetting(1e-8)
    weight_decay = GroupSetting()
    momentum = GroupSetting()
    centered = GroupFlag()
    v: list[Tensor]
    b: list[Tensor]
    mean: list[Tensor]

    def _needed(self, group: Group) -> tuple[str, ...]:
        return (
            "v",
            *(("b",) if group.number("momentum") else ()),
            *(("mean",) if group.number("centered") else ()),
        )

    def _moved(self, i: int, w: Tensor, g: Tensor, group: Group) -> Tensor:
        if group.number("weight_decay"):
            g = g + w * group.number("weight_decay")
        keep = group.number("alpha")
        v = self.store(self.v[i], self.v[i] * keep + g * g * (1 - keep))
        if group.number("centered"):
            mean = self.store(self.mean[i], self.mean[i] * keep + g * (1 - keep))
            v = v - mean * mean
        update = g / (v.sqrt() + group.number("eps"))
        if group.number("momentum"):
            update = self.store(self.b[i], self.b[i] * group.number("momentum") + update)
        return w - update * group.lr.cast(g.dtype)


class Adagrad(Rule):
    """Gradients divided by the root of the sum of their squares (Duchi and others, 2011).

    The sum starts at `initial_accumulator_value`. The rate at step t, from 1 on, is lr / (1 + (t - 1) *
    lr_decay); rate * g / (sqrt(sum) + eps) is subtracted from w.
    """

    moments = {"sum": "sum"}
    rate = 0.01
    lr_decay = GroupSetting()
    weight_decay = GroupSetting()
    initial_accumulator_value = GroupSetting()
    eps = GroupSetting(1e-10)
    sum: list[Tensor]

    def _first(self, name: str, group: Group) -> float:  # noqa: ARG002 - there is one moment
        return float(group.number("initial_accumulator_value"))

    def is_fresh(self, group: Group) -> bool:  # noqa: ARG002 - always
        """Return False: PyTorch's has a state before the first step, too."""
        return False

    def _moved(self, i: int, w: Tensor, g: Tensor, group: Group) -> Tensor:
        if group.number("weight_decay"):
            g = g + w * group.number("weight_decay")
        rate = group.lr
        if group.number("lr_decay"):
            rate = rate / ((group.counters["t"] - 1) * group.number("lr_decay") + 1)
        total = self.store(self.sum[i], self.sum[i] + g * g)
        return w - g / (total.sqrt() + group.number("eps")) * rate.cast(g.dtype)


class Adadelta(Rule):
    """Gradients times a ratio of running root mean squares (Zeiler, 2012).

    v = rho * v + (1 - rho) * g**2. The update is sqrt(u + eps) / sqrt(v + eps) * g, with u the running mean
    of earlier squared updates; lr times the update is subtracted from w.
    """

    moments = {"v": "square_avg", "u": "acc_delta"}
    rate = 1.0
    rho = GroupSetting(0.9, high=1.0)
    eps = GroupSetting(1e-6)
    weight_decay = GroupSetting()
    v: list[Tensor]
    u: list[Tensor]

    def _moved(self, i: int, w: Tensor, g: Tensor, group: Group) -> Tensor:
        if group.number("weight_decay"):
            g = g + w * group.number("weight_decay")
        keep, eps, before = group.number("rho"), group.number("eps"), stopped(self.u[i])
        v = self.store(self.v[i], self.v[i] * keep + g * g * (1 - keep))
        update = (before + eps).sqrt() / (v + eps).sqrt() * g
        self.store(self.u[i], before * keep + update * update * (1 - keep))
        return w - update * group.lr.cast(g.dtype)


class Rprop(Rule):
    """A step size for each element, which grows while the gradient keeps its sign (Riedmiller, 1993).

    A size starts at the lr of its first step. It is multiplied by `etas[1]` >= 1 where the gradient keeps its
    sign, by `etas[0]` < 1 where the sign changes, and limited to `step_sizes`, (least, greatest). The element
    moves by its size against the gradient, and not at all where the sign changed. Raises `UsageError` for
    settings out of range, `UsageTypeError` for pairs that are none.
    """

    moments = {"before": "prev", "size": "step_size"}
    rate = 0.01
    etas = GroupNumbers((0.5, 1.2), shrink=(0.0, 1.0), grow=(1.0, math.inf))
    step_sizes = GroupNumbers((1e-6, 50.0), least=(0.0, math.inf), most=(0.0, math.inf))
    before: list[Tensor]
    size: list[Tensor]

    def _moved(self, i: int, w: Tensor, g: Tensor, group: Group) -> Tensor:
        same = (g * self.before[i]).sign()
        size = (group.counters["t"] > 1).where(self.size[i], group.lr).cast(g.dtype)
        size = (same > 0).where(
            size * group.number("grow"), (same < 0).where(size * group.number("shrink"), size)
        )
        size = self.store(self.size[i], size.clip(group.number("least"), group.number("most")))
        kept = (same < 0).where(0.0, g)
        self.store(self.before[i], kept)
        return w - kept.sign() * size


class ASGD(Rule):
    """Descent with a falling rate, which also averages the parameters, in `ax`.

    The rate of the first step is lr, that of step t + 1 is lr / (1 + lambd * lr * t) ** alpha with the lr of
    step t. w is multiplied by 1 - rate * lambd, and rate * g is subtracted. Averages are the parameters
    themselves for the first `t0` steps. Source: Polyak and Juditsky, "Acceleration of stochastic
    approximation by averaging", 1992.
    """

    moments = {"ax": "ax"}
    rate = 0.01
    lambd = GroupSetting(1e-4)
    alpha = GroupSetting(0.75)
    t0 = GroupSetting(1e6)
    weight_decay = GroupSetting()
    ax: list[Tensor]

    def _counters(self, group: Group) -> dict[str, tuple[float, DType]]:
        return dict.fromkeys(("t", "rate", "next"), (0.0, group.exact))

    def _count(self, group: Group) -> None:
        super()._count(group)
        t, rate, later = (group.counters[name] for name in ("t", "rate", "next"))
        self.store(rate, (t > 1).where(stopped(later), group.lr))
        self.store(later, group.lr / (group.lr * group.number("lambd") * t + 1.0) ** group.number("alpha"))

    def restored(self, group: Group, step: float, saved: Mapping[str, Any]) -> dict[str, float]:
        """Return the counters of a saved state."""
        return super().restored(group, step, saved) | {"next": float(saved.get("eta", 0.0))}

    def counts(self, group: Group, step: float) -> dict[str, Any]:
        """Return the numbers of a parameter in a checkpoint: steps, rate, and share of averages."""
        share = 1 / max(1.0, step - group.number("t0"))
        return {**super().counts(group, step), "eta": group.counters["next"].item(), "mu": share}

    def _moved(self, i: int, w: Tensor, g: Tensor, group: Group) -> Tensor:
        if group.number("weight_decay"):
            g = g + w * group.number("weight_decay")
        t, rate = (group.counters[name].cast(g.dtype) for name in ("t", "rate"))
        new = w * (1.0 - rate * group.number("lambd")) - g * rate
        share = 1.0 / (t - 1 - group.number("t0")).maximum(1.0)
        before = stopped(self.ax[i])
        self.store(self.ax[i], (share == 1.0).where(new, before + (new - before) * share))
        return new
