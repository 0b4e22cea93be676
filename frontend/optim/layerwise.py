"""Optimisers whose rate depends on the norm of each parameter, or whose update is an orthogonal matrix.

Arguments that all optimisers have, and errors: `optimiser.Optimizer`. w is a parameter, g its gradient.

Not here: rates for each element (`adam`, `descent`). Next: `optimiser`.
"""

# ruff: noqa: PLR0917 - the field's signatures

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from frontend.arguments.checks import whole
from frontend.arguments.conversion import number, shown
from frontend.arguments.settings import GroupFlag, GroupSetting
from frontend.optim.adam import Moments
from frontend.optim.optimiser import Group, Optimizer, Params, pair
from hcq.errors import UsageError, UsageTypeError

if TYPE_CHECKING:
    from frontend.tensor import Tensor


def _norm(x: Tensor) -> Tensor:
    return x.square().sum().sqrt()


def _trust(w: Tensor, other: Tensor, factor: float = 1.0) -> Tensor:
    """Return factor * |w| / other, or 1 if |w| or `other` is 0."""
    size = _norm(w)
    usable = (size > 0) & (other > 0)
    return usable.where(size * factor / usable.where(other, 1.0), 1.0)


class LARS(Optimizer):
    """SGD with momentum, whose rate for each parameter depends on its norm (You and others, 2017).

    b = momentum * b + lr * trust * (g + weight_decay * w), and b is subtracted from w. trust is tcoef * |w| /
    (|g| + weight_decay * |w|), or 1 if |w| or the divisor is 0.
    """

    moments = ("b",)
    momentum = GroupSetting()
    weight_decay = GroupSetting()
    tcoef = GroupSetting()
    b: list[Tensor]

    def __init__(
        self,
        params: Params,
        lr: Tensor | float = 0.001,
        momentum: float = 0.9,
        weight_decay: float = 1e-4,
        tcoef: float = 0.001,
        *,
        maximize: bool = False,
    ) -> None:
        settings = {"momentum": momentum, "weight_decay": weight_decay, "tcoef": tcoef}
        super().__init__(params, lr, **settings, maximize=maximize)

    def _moved(self, i: int, w: Tensor, g: Tensor, group: Group) -> Tensor:
        w, decay = w.cast(g.dtype), group.number("weight_decay")
        trust = _trust(w, _norm(g) + _norm(w) * decay, group.number("tcoef"))
        step = (g + w * decay) * trust * group.lr.cast(g.dtype)
        return w - self.store(self.b[i], self.b[i] * group.number("momentum") + step)


class LAMB(Moments):
    """AdamW whose rate for each parameter depends on its norm (You and others, 2020).

    With u the update of `AdamW`, lr * |w| / |u| * u is subtracted from w, or lr * u if |w| or |u| is 0.
    """

    def __init__(
        self,
        params: Params,
        lr: Tensor | float = 0.001,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-6,
        weight_decay: float = 0.0,
        *,
        maximize: bool = False,
    ) -> None:
        b1, b2 = pair("betas", betas)
        super().__init__(params, lr, b1=b1, b2=b2, eps=eps, weight_decay=weight_decay, maximize=maximize)

    def _moved(self, i: int, w: Tensor, g: Tensor, group: Group) -> Tensor:
        w = w.cast(g.dtype)
        m, v = self._fair(i, g, group)
        update = m / (v.sqrt() + group.number("eps")) + w * group.number("weight_decay")
        return w - update * _trust(w, _norm(update)) * group.lr.cast(g.dtype)


class Muon(Optimizer):
    """Momentum made orthogonal by Newton-Schulz iterations (Jordan, 2024), for matrices only.

    w is multiplied by 1 - lr * weight_decay, and lr * sqrt(max(1, rows / columns)) * O is subtracted. O is
    the orthogonal part of b = momentum * b + (1 - momentum) * g, with `nesterov` of momentum * b + (1 -
    momentum) * g for the new b. The `ns_steps` iterations run in the dtype of the moments; PyTorch uses
    bfloat16. Biases, norms and embeddings need another optimiser.

    Raises `UsageError` for parameters that are no matrices and ns_steps outside 1..99.
    """

    moments = ("b",)
    weight_decay = GroupSetting()
    momentum = GroupSetting(high=1.0)
    nesterov = GroupFlag()
    eps = GroupSetting()
    b: list[Tensor]

    def __init__(
        self,
        params: Params,
        lr: Tensor | float = 0.001,
        weight_decay: float = 0.1,
        momentum: float = 0.95,
        nesterov: bool = True,  # noqa: FBT001, FBT002 - the field's signature
        ns_coefficients: tuple[float, float, float] = (3.4445, -4.775, 2.0315),
        eps: float = 1e-7,
        ns_steps: int = 5,
        *,
        maximize: bool = False,
    ) -> None:
        if not isinstance(ns_coefficients, (tuple, list)) or len(ns_coefficients) != 3:
            raise UsageTypeError(f"Muon, ns_coefficients: wanted three numbers, saw {shown(ns_coefficients)}")
        if not 0 < whole(ns_steps, "Muon, ns_steps") < 100:
            raise UsageError(f"Muon, ns_steps: wanted 1 to 99, saw {ns_steps}")
        self.coefficients = [number(n, "Muon, ns_coefficients") for n in ns_coefficients]
        self.iterations = ns_steps
        settings = {"weight_decay": weight_decay, "momentum": momentum, "eps": eps}
        super().__init__(params, lr, **settings, nesterov=nesterov, maximize=maximize)

    def _check(self, group: Group) -> None:
        wrong = [p.shape for p in group.params if p.ndim != 2]
        if wrong:
            raise UsageError(
                f"Muon: wanted matrices, saw the shape {wrong[0]}\nhint: pass other parameters to AdamW"
            )

    def _orthogonal(self, x: Tensor, eps: float) -> Tensor:
        """Return a matrix with the singular vectors of x, and singular values near 1."""
        a, b, c = self.coefficients
        tall = x.shape[0] > x.shape[1]
        x = x.transpose(0, 1) if tall else x
        x = x / _norm(x).maximum(eps)
        for _ in range(self.iterations):
            square = x @ x.transpose(0, 1)
            x = x * a + (square * b + square @ square * c) @ x
        return x.transpose(0, 1) if tall else x

    def _moved(self, i: int, w: Tensor, g: Tensor, group: Group) -> Tensor:
        keep, lr = group.number("momentum"), group.lr.cast(g.dtype)
        b = self.store(self.b[i], self.b[i] * keep + g * (1 - keep))
        update = self._orthogonal(
            g * (1 - keep) + b * keep if group.number("nesterov") else b, group.number("eps")
        )
        ratio = math.sqrt(max(1.0, w.shape[0] / w.shape[1]))
        return w * (1 - lr * group.number("weight_decay")) - update * lr * ratio
