"""Optimisers whose rate depends on the norm of each parameter, or whose update is an orthogonal matrix.

Arguments that all optimisers have, and errors: `optimiser.Rule`. w is a parameter, g its gradient.

Not here: rates for each element (`adam`, `descent`). Next: `optimiser`.
"""

# ruff: noqa: RUF012 - tables of a class, as in the base

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from frontend.arguments.settings import GroupChoice, GroupCount, GroupFlag, GroupNumbers, GroupSetting
from frontend.array_api.data_types import finfo
from frontend.optim.adam import Moments
from frontend.optim.optimiser import Rule
from hcq.errors import UsageError

if TYPE_CHECKING:
    from frontend.optim.group import Group
    from frontend.tensor import Tensor


_ANY: Final = (-math.inf, math.inf)


def _norm(x: Tensor) -> Tensor:
    return x.square().sum().sqrt()


def _trust(w: Tensor, other: Tensor, factor: float = 1.0) -> Tensor:
    """Return factor * |w| / other, or 1 if |w| or `other` is 0."""
    size = _norm(w)
    usable = (size > 0) & (other > 0)
    return usable.where(size * factor / usable.where(other, 1.0), 1.0)


class LARS(Rule):
    """SGD with momentum, whose rate for each parameter depends on its norm (You and others, 2017).

    b = momentum * b + lr * trust * (g + weight_decay * w), and b is subtracted from w. trust is tcoef * |w| /
    (|g| + weight_decay * |w|), or 1 if |w| or the divisor is 0.
    """

    moments = {"b": "momentum_buffer"}
    counted = False
    momentum = GroupSetting(0.9)
    weight_decay = GroupSetting(1e-4)
    tcoef = GroupSetting(0.001)
    b: list[Tensor]

    def _moved(self, i: int, w: Tensor, g: Tensor, group: Group) -> Tensor:
        w, decay = w.cast(g.dtype), group.number("weight_decay")
        trust = _trust(w, _norm(g) + _norm(w) * decay, group.number("tcoef"))
        step = (g + w * decay) * trust * group.lr.cast(g.dtype)
        return w - self.store(self.b[i], self.b[i] * group.number("momentum") + step)


class LAMB(Moments):
    """AdamW whose rate for each parameter depends on its norm (You and others, 2020).

    With u the update of `AdamW`, lr * |w| / |u| * u is subtracted from w, or lr * u if |w| or |u| is 0.
    Raises as `Adam`.
    """

    eps = GroupSetting(1e-6)

    def _moved(self, i: int, w: Tensor, g: Tensor, group: Group) -> Tensor:
        w = w.cast(g.dtype)
        m, v = self._fair(i, g, group)
        update = m / (v.sqrt() + group.number("eps")) + w * group.number("weight_decay")
        return w - update * _trust(w, _norm(update)) * group.lr.cast(g.dtype)


class Muon(Rule):
    """Momentum made orthogonal by Newton-Schulz iterations (Jordan, 2024), for matrices only.

    w is multiplied by 1 - lr * weight_decay, and lr * sqrt(max(1, rows / columns)) * O is subtracted, for the
    `adjust_lr_fn` "match_rms_adamw" lr * 0.2 * sqrt(max(rows, columns)) * O. O is the orthogonal part of b =
    momentum * b + (1 - momentum) * g, with `nesterov` of momentum * b + (1 - momentum) * g for the new b. The
    `ns_steps` iterations run in the dtype of the moments; PyTorch uses bfloat16. Biases, norms and embeddings
    need another optimiser.

    Raises `UsageError` for parameters that are no matrices and ns_steps outside 1..99.
    """

    moments = {"b": "momentum_buffer"}
    counted = False
    weight_decay = GroupSetting(0.1)
    momentum = GroupSetting(0.95, high=1.0)
    nesterov = GroupFlag(True)
    ns_coefficients = GroupNumbers((3.4445, -4.775, 2.0315), ns_a=_ANY, ns_b=_ANY, ns_c=_ANY)
    eps = GroupSetting(1e-7)
    ns_steps = GroupCount(5, 1, 100)
    adjust_lr_fn = GroupChoice(None, ("original", "match_rms_adamw"))
    b: list[Tensor]

    def _check(self, group: Group) -> None:
        wrong = [p.shape for p in group.params if p.ndim != 2]
        if wrong:
            raise UsageError(
                f"Muon: wanted matrices, saw the shape {wrong[0]}\nhint: pass other parameters to AdamW"
            )

    def _orthogonal(self, x: Tensor, group: Group) -> Tensor:
        """Return a matrix with the singular vectors of x, and singular values near 1."""
        a, b, c = group["ns_coefficients"]
        tall = x.shape[0] > x.shape[1]
        x = x.transpose(0, 1) if tall else x
        x = x / _norm(x).maximum(group.number("eps"))
        for _ in range(group["ns_steps"]):
            square = x @ x.transpose(0, 1)
            x = x * a + (square * b + square @ square * c) @ x
        return x.transpose(0, 1) if tall else x

    def _moved(self, i: int, w: Tensor, g: Tensor, group: Group) -> Tensor:
        keep, lr = group.number("momentum"), group.lr.cast(g.dtype)
        b = self.store(self.b[i], self.b[i] * keep + g * (1 - keep))
        update = self._orthogonal(g * (1 - keep) + b * keep if group.number("nesterov") else b, group)
        ratio = math.sqrt(max(1.0, w.shape[0] / w.shape[1]))
        if group["adjust_lr_fn"] == "match_rms_adamw":
            ratio = 0.2 * math.sqrt(max(w.shape))
        return w * (1 - lr * group.number("weight_decay")) - update * lr * ratio


class Adafactor(Rule):
    """Rates from row and column means of squared gradients (Shazeer and Stern, 2018).

    A matrix has two vectors of moments, its last two axes being the rows and columns; other parameters have
    one moment for each element. At step t the moments move by t ** beta2_decay towards the squares, whose
    estimate is V = rows * columns / max(mean(rows), eps[0]); u = g / sqrt(max(V, eps[0] ** 2)). The parameter
    is multiplied by 1 - lr * weight_decay, and max(eps[1], rms(w)) * min(lr, 1 / sqrt(t)) * u / max(1, rms(u)
    / d) is subtracted. `eps[0]` None: the distance from 1 to the next number of the dtype.
    """

    moments = {"rows": "row_var", "columns": "col_var", "v": "variance"}
    rate = 0.01
    beta2_decay = GroupSetting(-0.8, -math.inf)
    eps = GroupNumbers((None, 0.001), eps1=(0.0, math.inf), eps2=(0.0, math.inf))
    d = GroupSetting(1.0, 1.0)
    weight_decay = GroupSetting()
    rows: list[Tensor]
    columns: list[Tensor]
    v: list[Tensor]

    def shape_of(self, name: str, p: Tensor) -> tuple[int, ...] | None:
        """Return the shape of a moment of a parameter; None: it has none."""
        if p.ndim < 2 or name == "v":
            return p.shape if p.ndim < 2 and name == "v" else None
        return (*p.shape[:-1], 1) if name == "rows" else (*p.shape[:-2], 1, p.shape[-1])

    def _moved(self, i: int, w: Tensor, g: Tensor, group: Group) -> Tensor:
        t, lr = group.counters["t"].cast(g.dtype), group.lr.cast(g.dtype)
        eps1, eps2 = group["eps"]
        eps1 = finfo(g.dtype).eps if eps1 is None else eps1
        share = t ** group.number("beta2_decay")
        w = w.cast(g.dtype)
        if w.ndim < 2:
            v = self.store(self.v[i], self.v[i] + (g * g - self.v[i]) * share)
        else:
            rows, columns = self.rows[i], self.columns[i]
            rows = self.store(rows, rows + ((g * g).mean(-1, keepdim=True) - rows) * share)
            columns = self.store(columns, columns + ((g * g).mean(-2, keepdim=True) - columns) * share)
            v = rows * columns / rows.mean(-2, keepdim=True).maximum(eps1)
        update = g / v.maximum(eps1 * eps1).sqrt()
        size = _norm(w) / math.sqrt(w.numel())
        limit = (_norm(update) / (math.sqrt(w.numel()) * group.number("d"))).maximum(1.0)
        step = size.maximum(eps2) * lr.minimum(1.0 / t.sqrt()) / limit
        return w * (1 - lr * group.number("weight_decay")) - update * step
