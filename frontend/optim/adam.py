"""Adam and its variants: running means of the gradient and of its square, corrected for their start at 0.

Arguments that all optimisers have, and errors: `optimiser.Rule`.

Not here: plain descent (`descent`), rates by the norm of a parameter (`layerwise`). Next: `optimiser`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from compiler.dtype import DType, dtypes
from frontend.arguments.settings import GroupFlag, GroupNumbers, GroupSetting
from frontend.optim.optimiser import Rule

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from frontend.optim.group import Group
    from frontend.tensor import Tensor


class Moments(Rule):
    """Base of Adam's variants: moments `m` and `v` of each parameter, and counters of each group.

    The counters are the number of steps t, b1 ** t and b2 ** t. `b1` and `b2`, or `betas`, are the decay
    rates of m and v, each 0 <= b < 1. 16-bit parameters have float32 moments. Raises `UsageError` for numbers
    out of range.
    """

    moments = {"m": "exp_avg", "v": "exp_avg_sq"}  # noqa: RUF012 - as in the base
    betas = GroupNumbers((0.9, 0.999), b1=(0.0, 1.0), b2=(0.0, 1.0))
    eps = GroupSetting(1e-8)
    weight_decay = GroupSetting()
    exact: DType | None = None
    """The dtype of the counters; None: that of the group's numbers."""
    m: list[Tensor]
    v: list[Tensor]

    def _counters(self, group: Group) -> dict[str, tuple[float, DType]]:
        exact = self.exact or group.exact
        return {"t": (0.0, exact), "b1_t": (1.0, exact), "b2_t": (1.0, exact)}

    def _count(self, group: Group) -> None:
        """Count the step. The powers are those of the present b1 and b2, also if these were changed."""
        t = self.store(group.counters["t"], group.counters["t"] + 1)
        for name in ("b1", "b2"):
            self.store(group.counters[f"{name}_t"], group.number(name) ** t)

    def restored(self, group: Group, step: float, saved: Mapping[str, Any]) -> dict[str, float]:
        """Return the counters; the powers of a saved state are those of the group's b1 and b2."""
        powers = {f"{name}_t": group.number(name) ** step for name in ("b1", "b2")}
        return super().restored(group, step, saved) | powers

    def _means(self, i: int, g: Tensor, group: Group) -> tuple[Tensor, Tensor]:
        """Assign and return m and v of parameter i."""
        m, v, b1, b2 = self.m[i], self.v[i], group.number("b1"), group.number("b2")
        self.store(m, m * b1 + g * (1 - b1))
        self.store(v, v * b2 + (g * g) * (1 - b2))
        return m, v

    def _fair(self, i: int, g: Tensor, group: Group) -> tuple[Tensor, Tensor]:
        """Return m and v of parameter i, corrected for their start at 0."""
        m, v = self._means(i, g, group)
        b1_t, b2_t = group.counters["b1_t"], group.counters["b2_t"]
        return m / (1.0 - b1_t).cast(g.dtype), v / (1.0 - b2_t).cast(g.dtype)


class Adam(Moments):
    """Adam (Kingma and Ba, 2015).

    With m and v the running means of the gradient and its square, corrected for their start at 0, a step
    subtracts lr * m / (sqrt(v) + eps) from a parameter. With `amsgrad` the greatest v so far replaces v.
    weight_decay * parameter is added to the gradient, or if `decoupled_weight_decay` to the update, times lr.

    Raises `UsageError` for numbers out of range.
    """

    moments = {**Moments.moments, "top": "max_exp_avg_sq"}  # noqa: RUF012 - as in the base
    amsgrad = GroupFlag()
    decoupled_weight_decay = GroupFlag()
    top: list[Tensor]

    def _needed(self, group: Group) -> Iterable[str]:
        return self.moments if group.number("amsgrad") else ("m", "v")

    def _moved(self, i: int, w: Tensor, g: Tensor, group: Group) -> Tensor:
        decay, decoupled = group.number("weight_decay"), group.number("decoupled_weight_decay")
        if decay and not decoupled:
            g = g + w * decay
        m, v = self._fair(i, g, group)
        if group.number("amsgrad"):
            top = self.store(self.top[i], self.top[i].maximum(self.v[i]))
            v = top / (1.0 - group.counters["b2_t"]).cast(g.dtype)
        update = m / (v.sqrt() + group.number("eps"))
        if decay and decoupled:
            update = update + w * decay
        return w - update * group.lr.cast(g.dtype)


class AdamW(Adam):
    """Adam with decoupled weight decay (Loshchilov and Hutter, 2019), 0.01 by default; always decoupled."""

    weight_decay = GroupSetting(0.01)
    decoupled_weight_decay = GroupFlag(True)

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Set settings and state as every optimiser, also to those of an `Adam`."""
        super().load_state_dict(state_dict)
        self.decoupled_weight_decay = True


class Adamax(Moments):
    """Adam with v = max(b2 * v, |g| + eps) instead of the root of v (Kingma and Ba, 2015).

    Raises as `Adam`.
    """

    moments = {"m": "exp_avg", "v": "exp_inf"}  # noqa: RUF012 - as in the base
    rate = 0.002

    def _moved(self, i: int, w: Tensor, g: Tensor, group: Group) -> Tensor:
        if group.number("weight_decay"):
            g = g + w * group.number("weight_decay")
        m = self.store(self.m[i], self.m[i] * group.number("b1") + g * (1 - group.number("b1")))
        top = self.store(self.v[i], (self.v[i] * group.number("b2")).maximum(g.abs() + group.number("eps")))
        return w - m / top * (group.lr / (1.0 - group.counters["b1_t"])).cast(g.dtype)


class NAdam(Moments):
    """Adam with Nesterov's momentum (Dozat, 2016).

    The momentum at step t is b1 * (1 - 0.96 ** (t * momentum_decay) / 2). Raises as `Adam`. Weight decay is
    added to the gradient; with `decoupled_weight_decay` it is subtracted as in `AdamW`.
    """

    rate = 0.002
    momentum_decay = GroupSetting(0.004)
    decoupled_weight_decay = GroupFlag()

    def _counters(self, group: Group) -> dict[str, tuple[float, DType]]:
        return {**super()._counters(group), "product": (1.0, self.exact or group.exact)}

    def counts(self, group: Group, step: float) -> dict[str, Any]:
        """Return the numbers of a parameter in a checkpoint: the steps, and the product of the momenta."""
        return {**super().counts(group, step), "mu_product": group.counters["product"].item()}

    def restored(self, group: Group, step: float, saved: Mapping[str, Any]) -> dict[str, float]:
        """Return the counters of a saved state."""
        return super().restored(group, step, saved) | {"product": float(saved.get("mu_product", 1.0))}

    def _factor(self, group: Group, ahead: int) -> Tensor:
        """Return the momentum of the step that is `ahead` of this one: 0 or 1."""
        power = (group.counters["t"] + ahead) * group.number("momentum_decay")
        return (1 - 0.5 * 0.96**power) * group.number("b1")

    def _count(self, group: Group) -> None:
        super()._count(group)
        self.store(group.counters["product"], group.counters["product"] * self._factor(group, 0))

    def _moved(self, i: int, w: Tensor, g: Tensor, group: Group) -> Tensor:
        decay, lr = group.number("weight_decay"), group.lr
        if decay and group.number("decoupled_weight_decay"):
            w = w - w * (lr * decay).cast(g.dtype)
        elif decay:
            g = g + w * decay
        m, v = self._means(i, g, group)
        root = (v / (1.0 - group.counters["b2_t"]).cast(g.dtype)).sqrt() + group.number("eps")
        now, ahead, product = self._factor(group, 0), self._factor(group, 1), group.counters["product"]
        of_g = (lr * (1 - now) / (1 - product)).cast(g.dtype)
        of_m = (lr * ahead / (1 - product * ahead)).cast(g.dtype)
        return w - g / root * of_g - m / root * of_m


class RAdam(Moments):
    """Adam that divides by the root of v only after the first steps, when its variance is small (Liu, 2020).

    Raises as `Adam`.

    Weight decay is added to the gradient; with `decoupled_weight_decay` it is subtracted as in `AdamW`.
    """

    decoupled_weight_decay = GroupFlag()
    exact = dtypes.float64  # differences of nearly equal numbers decide when v is used

    def _moved(self, i: int, w: Tensor, g: Tensor, group: Group) -> Tensor:
        decay, lr = group.number("weight_decay"), group.lr.cast(g.dtype)
        if decay and group.number("decoupled_weight_decay"):
            w = w - w * lr * decay
        elif decay:
            g = g + w * decay
        m, v = self._means(i, g, group)
        b1_t, b2_t, t = [group.counters[name] for name in ("b1_t", "b2_t", "t")]
        most = 2 / (1 - group.number("b2")) - 1
        length = most - t * 2 * b2_t / (1 - b2_t)
        known = length.maximum(5.0)
        scale = (most / ((most - 4) * (most - 2))) * (known - 4) * (known - 2) / known
        root = ((1 - b2_t).sqrt() * scale.sqrt()).cast(g.dtype) / (v.sqrt() + group.number("eps"))
        return w - m / (1 - b1_t).cast(g.dtype) * (length > 5.0).where(root, 1.0) * lr
