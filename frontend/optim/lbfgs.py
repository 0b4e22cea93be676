"""LBFGS: a quasi-Newton method, which evaluates the loss several times a step.

Source: Nocedal and Wright, "Numerical optimization", 2nd edition, chapter 7, and algorithms 3.5 and 3.6.
The settings and the conditions to stop are PyTorch's.

Not here: methods of one gradient a step (`descent`, `adam`, `layerwise`). Next: `optimiser`.
"""

# ruff: noqa: PLR0917 - the field's signatures

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from frontend.arguments.settings import GroupCount, GroupSetting, choice
from frontend.evaluation.plan import refuse
from frontend.evaluation.realize import realize_many
from frontend.optim.optimiser import Rule, wide
from frontend.tensor import Tensor
from hcq.errors import UnsupportedError, UsageError, UsageTypeError

if TYPE_CHECKING:
    from frontend.optim.base import Params
    from frontend.optim.group import Group


_LESS, _FLAT, _NEAR = 1e-4, 0.9, 1e-9
"""The least decrease by the slope, the greatest share of it, and the least change in a line search."""


class _Point(NamedTuple):
    """A point of a line search."""

    rate: float
    loss: float
    gradient: Tensor
    slope: float


def _lowest(a: _Point, b: _Point, least: float, most: float) -> float:
    """Return where the cubic through two points and slopes is lowest, within bounds; else the middle."""
    a, b = (a, b) if a.rate <= b.rate else (b, a)
    mean = a.slope + b.slope - 3 * (a.loss - b.loss) / (a.rate - b.rate)
    square = mean * mean - a.slope * b.slope
    if square < 0 or math.isnan(square):
        return (least + most) / 2
    root = math.sqrt(square)
    share = (b.slope + root - mean) / (b.slope - a.slope + 2 * root)
    return min(max(b.rate - (b.rate - a.rate) * share, least), most)


class LBFGS(Rule):
    """Steps along the gradient times an inverse curvature, estimated from the last `history_size` changes.

    `step(closure)` calls the closure, which clears the gradients, computes the loss, calls `backward` and
    returns the loss. Each step has at most `max_iter` iterations and about `max_eval` calls of the closure
    (None: max_iter * 5 // 4). It ends early when the greatest element of the gradient is at most
    `tolerance_grad`, or when the greatest change of a parameter, or the change of the loss, is below
    `tolerance_change`. There is one group of parameters. With the `line_search_fn` "strong_wolfe" each
    iteration searches along its direction for a point that meets the strong Wolfe conditions.

    A step reads values, so it cannot be captured. Raises `UsageError` for several groups, numbers out of
    range and another `line_search_fn`, and as `Optimizer`.
    """

    counted = False
    max_iter = GroupCount(20)
    max_eval = GroupCount()
    tolerance_grad = GroupSetting()
    tolerance_change = GroupSetting()
    history_size = GroupCount(100)

    def __init__(
        self,
        params: Params,
        lr: Tensor | float = 1.0,
        max_iter: int = 20,
        max_eval: int | None = None,
        tolerance_grad: float = 1e-7,
        tolerance_change: float = 1e-9,
        history_size: int = 100,
        line_search_fn: str | None = None,
    ) -> None:
        if line_search_fn is not None:
            choice("LBFGS, line_search_fn", line_search_fn, ("strong_wolfe",))
        settings = {"tolerance_grad": tolerance_grad, "tolerance_change": tolerance_change}
        most = max_iter * 5 // 4 if max_eval is None and isinstance(max_iter, int) else max_eval
        settings |= {"max_iter": max_iter, "max_eval": most}
        super().__init__(params, lr, maximize=False, history_size=history_size, **settings)
        if len(self.param_groups) > 1:
            raise UsageError(f"LBFGS has one group of parameters, saw {len(self.param_groups)}")
        self.param_groups[0].more["line_search_fn"] = line_search_fn
        self.iterations = 0
        self.evaluations = 0
        self.loss = 0.0
        """The loss before the last iteration."""
        self.changes: list[tuple[Tensor, ...]] = []
        """The last changes: (of the gradient, of the parameters, 1 / the sum of their products)."""
        self.direction: Tensor | None = None
        """The last change of the parameters; None before the first iteration."""
        self.before: Tensor | None = None
        """The gradient of the last iteration; None before the first one."""

    def step(self, closure: Callable[[], Tensor] | None = None) -> Tensor:
        """Evaluate the closure and update the parameters several times.

        Return the loss of the first evaluation. Raises `UsageTypeError` without a closure, `UsageError`
        inside a captured function and for a parameter without a gradient.
        """
        if not callable(closure):
            raise UsageTypeError(f"LBFGS: step needs a function that computes the loss, saw {closure!r}")
        refuse("LBFGS reads values during a step: it cannot be captured; capture the closure")
        group = self.param_groups[0]
        first = closure()
        loss, calls = first.item(), 1
        self.evaluations += 1
        g = self._flat_gradient()
        if _most(g) <= group.number("tolerance_grad"):
            return first
        for n in range(1, self.max_iter + 1):
            self.iterations += 1
            rate, along = self._step_along(g, group)
            slope = (g * along).sum().item()
            if slope > -group.number("tolerance_change"):
                break
            last = self.loss = loss
            if group.more["line_search_fn"] is not None:
                done = self.evaluations
                first_try = _Point(rate, loss, g, slope)
                rate, loss, g = self._searched(closure, along, first_try, self.max_eval - calls)
                self.direction = (along * rate).realize()
                calls += self.evaluations - done
            else:
                self._add(along, rate)
            if n < self.max_iter and group.more["line_search_fn"] is None:
                loss, g = closure().item(), self._flat_gradient()
                calls += 1
                self.evaluations += 1
            if (
                calls >= self.max_eval
                or _most(g) <= group.number("tolerance_grad")
                or _most(along * rate) <= group.number("tolerance_change")
                or abs(loss - last) < group.number("tolerance_change")
            ):
                break
        return first

    def _step_along(self, g: Tensor, group: Group) -> tuple[float, Tensor]:
        """Return the rate and the direction of an iteration, from the gradient and the history; extend it."""
        rate = float(group.lr.item())
        if self.direction is None or self.before is None:
            along = -g
            self.changes = []
            step = min(1.0, 1.0 / g.abs().sum().item()) * rate
        else:
            change, moved = g - self.before, self.direction
            product = (change * moved).sum()
            if product.item() > 1e-10:
                self.changes = [*self.changes, (change, moved, 1.0 / product)][-self.history_size :]
            along, step = self._inverse_times(-g), rate
        along.realize()
        self.before, self.direction = g, (along * step).realize()
        return step, along

    def _searched(
        self, closure: Callable[[], Tensor], along: Tensor, first: _Point, most_calls: int
    ) -> tuple[float, float, Tensor]:
        """Return (rate, loss, gradient) of a point along a direction that meets the strong Wolfe conditions.

        `first` is the rate to try, and the loss, gradient and slope at the present point. The parameters
        become those of the point.
        """
        rate, loss, g, slope = first
        origins = [p.detach().clone().realize() for p in self.params]

        def at(t: float) -> _Point:
            for p, x in zip(self.params, origins, strict=True):
                p.assign(x)
            self._add(along, t)
            value, grad = closure().item(), self._flat_gradient()
            self.evaluations += 1
            return _Point(t, value, grad, (grad * along).sum().item())

        start = before = _Point(0.0, loss, g, slope)
        now, count, found = at(rate), 0, None
        low, high = start, now
        while count < most_calls:
            if now.loss > loss + _LESS * now.rate * slope or (count > 1 and now.loss >= before.loss):
                low, high = before, now
                break
            if abs(now.slope) <= -_FLAT * slope:
                found = now
                break
            if now.slope >= 0:
                low, high = before, now
                break
            t, past = now.rate, before.rate
            before, now = now, at(_lowest(before, now, t + 0.01 * (t - past), t * 10))
            low, high, count = start, now, count + 1
        low, high = (low, high) if low.loss <= high.loss else (high, low)
        stuck, size = False, _most(along)
        while found is None and count < most_calls and abs(high.rate - low.rate) * size >= _NEAR:
            least, most = sorted((low.rate, high.rate))
            t, margin = _lowest(low, high, least, most), 0.1 * (most - least)
            near = min(most - t, t - least) < margin
            if near and (stuck or t >= most or t <= least):
                t, near = (most - margin if abs(t - most) < abs(t - least) else least + margin), False
            stuck, now, count = near, at(t), count + 1
            if now.loss > loss + _LESS * t * slope or now.loss >= low.loss:
                low, high = (low, now) if low.loss <= now.loss else (now, low)
                continue
            if abs(now.slope) <= -_FLAT * slope:
                found = now
            high, low = (low if now.slope * (high.rate - low.rate) >= 0 else high), now
        found = found or low
        for p, x in zip(self.params, origins, strict=True):
            p.assign(x)
        self._add(along, found.rate)
        return found.rate, found.loss, found.gradient

    def _inverse_times(self, q: Tensor) -> Tensor:
        """Return the estimated inverse curvature times a vector, by the method's two loops."""
        factors: list[Tensor] = []
        for y, s, rho in reversed(self.changes):
            factors.append((s * q).sum() * rho)
            q = q - y * factors[-1]
        if self.changes:
            y, _, rho = self.changes[-1]
            q = q / (rho * (y * y).sum())
        for (y, s, rho), a in zip(self.changes, reversed(factors), strict=True):
            q = q + s * (a - (y * q).sum() * rho)
        return q

    def _flat_gradient(self) -> Tensor:
        pairs = zip(self.params, self.gradients(), strict=True)
        every = [(p.detach() * 0 if g is None else g).cast(wide(p)).reshape(-1) for p, g in pairs]
        flat = Tensor.cat(*every)
        return flat.realize()

    def _add(self, along: Tensor, rate: float) -> None:
        """Add `rate` times a direction to the parameters, and remove their gradients."""
        at = 0
        for p in self.params:
            part = along[at : at + p.numel()].reshape(p.shape) * rate
            at += p.numel()
            p.assign((p.detach() + part).cast(p.dtype))
            p.grad = None
        realize_many(self.params)

    def state_dict(self) -> dict[str, Any]:
        """Return the state as PyTorch's, all of it with the first parameter."""
        found = super().state_dict()
        if self.direction is not None and self.before is not None:
            y, s, rho = ([c[k] for c in self.changes] for k in range(3))
            curvature = 1 / (rho[-1] * y[-1].square().sum()) if y else Tensor(1.0)
            found["state"] = {0: {
                "func_evals": self.evaluations, "n_iter": self.iterations, "d": self.direction, "t": 1.0,
                "old_dirs": y, "old_stps": s, "ro": rho, "H_diag": curvature,
                "prev_flat_grad": self.before, "prev_loss": self.loss,
            }}  # fmt: skip
        return found

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Set settings and history to those of a `state_dict`, also of PyTorch's; the history is copied.

        Raises `UsageError` for a history that is not complete, and for tensors of other shapes.
        """
        state = dict(next(iter(state_dict["state"].values()), {}))
        names = ("d", "prev_flat_grad", "old_dirs", "old_stps", "ro")
        if state and (missing := [name for name in names if state.get(name) is None]):
            raise UsageError(f"LBFGS, load_state_dict: the history is not complete, without {missing[0]}")
        like, count = self.params[0], sum([p.numel() for p in self.params])
        every = [state[n] for n in names[:2]] + [t for n in names[2:] for t in state[n]] if state else []
        rows = len(state.get("ro", ()))
        wanted = [(count,)] * (len(every) - rows) + [()] * rows
        for t, shape in zip(every, wanted, strict=True):
            if tuple(t.shape) != shape:
                raise UsageError(
                    f"LBFGS, load_state_dict: a vector of the history has the shape {shape}, the value has "
                    f"{tuple(t.shape)}"
                )
        super().load_state_dict({**state_dict, "state": {}})
        copies = [t.detach().to(like.device).cast(wide(like)).clone() for t in every]
        self.direction, self.before = (copies[0] * float(state["t"]), copies[1]) if state else (None, None)
        self.changes = [tuple(copies[2 + k * rows + i] for k in range(3)) for i in range(rows)]
        self.iterations, self.evaluations = (int(state.get(n, 0)) for n in ("n_iter", "func_evals"))
        self.loss = float(state.get("prev_loss", 0.0))
        realize_many([*copies, *([] if self.direction is None else [self.direction])])

    def schedule_step(self) -> list[Tensor]:
        """Raise `UnsupportedError`: a step reads values, so it is no list of tensors to realize."""
        raise _refused()

    def _moved(self, i: int, w: Tensor, g: Tensor, group: Group) -> Tensor:  # noqa: ARG002
        raise _refused()


def _refused() -> UnsupportedError:
    return UnsupportedError(
        "LBFGS reads the loss several times a step: schedule_step and a GradScaler cannot launch it\n"
        "hint: call step(closure)"
    )


def _most(x: Tensor) -> float:
    return float(x.abs().max().item())
