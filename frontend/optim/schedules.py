"""Schedules of the learning rate.

A schedule multiplies the first learning rate by a factor that depends on the number of steps. `step()` sets
the rate of each group of the optimiser, also of one whose step was captured; it raises `UsageError` inside a
captured function. As in PyTorch, the factors of several schedules of one optimiser are multiplied, and a rate
that the program sets in between is scaled from then on. `LambdaLR`, `OneCycleLR` and
`CosineAnnealingWarmRestarts` set their own rate instead. Numbers of steps below 1, and rates below 0, raise
`UsageError`, values that are no numbers `UsageTypeError`.

Not here: a step (`optimiser`), gradients (`clipping`). Next: `lr_scheduler`, PyTorch's name of this module.
"""

# ruff: noqa: PLR0917 - the field's signatures

from __future__ import annotations

import copy
import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import wraps
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal

from frontend.arguments.aliases import answer_class, check_call
from frontend.arguments.checks import whole
from frontend.arguments.conversion import flag, number, shown
from frontend.arguments.settings import choice, number_within
from frontend.evaluation.plan import refuse
from frontend.tensor import Tensor
from hcq.errors import UsageError, UsageTypeError

if TYPE_CHECKING:
    from frontend.optim.base import Optimizer
    from frontend.optim.group import Group


OTHERS: Final = ("CosineAnnealingWarmRestarts", "ReduceLROnPlateau")
"""The schedules whose names do not end with "LR"."""


def _initial(group: Group) -> float:
    """Return the learning rate that a group had when its first schedule was made."""
    if group.initial is None:
        group.initial = group.rate_now()
    return group.initial


def _refuse_capture(schedule: Schedule) -> None:
    refuse(
        f"{type(schedule).__name__}.step() inside a captured function: replays would not count it\n"
        "hint: call it outside, after the captured step, which uses the rate that it sets"
    )


def _from_start(init: Callable[..., None]) -> Callable[..., None]:
    """Return a constructor of a schedule that accepts `last_epoch`, and keeps the arguments for a checkpoint.

    A number other than -1 goes on after that step, as PyTorch's schedules do. It raises `UsageError` for
    groups without "initial_lr" and for schedules that do not go on.
    """
    places = init.__code__.co_argcount - 1

    @wraps(init)
    def made(self: Any, optimizer: Optimizer, *args: Any, last_epoch: int = -1, **names: Any) -> None:
        if len(args) == places:
            *args, last_epoch = args  # type: ignore[assignment]  # PyTorch's place for it
        if last_epoch != -1:
            self.begun = whole(last_epoch, "last_epoch")
            if not self.resumes or any(group.initial is None for group in optimizer.param_groups):
                hint = "give each group of the optimiser an initial_lr, or use load_state_dict"
                raise UsageError(f"{type(self).__name__}: last_epoch {last_epoch} needs more\nhint: {hint}")
        if "settings" not in vars(self):
            bound = check_call(type(self).__name__, init, (self, optimizer, *args), names)
            if "optimizer" in list(bound.arguments)[:2] and not hasattr(optimizer, "param_groups"):
                raise UsageTypeError(f"{type(self).__name__}: wanted an optimiser, saw {shown(optimizer)}")
            bound.apply_defaults()
            self.settings = dict(list(bound.arguments.items())[2:])
        init(self, optimizer, *args, **names)

    return made


class Schedule:
    """Base of all schedules: their state for a checkpoint, with PyTorch's names."""

    resumes: ClassVar[bool] = False
    """Whether a schedule goes on after `last_epoch`."""
    begun = -1
    """The step before the first."""
    optimizer: Optimizer
    settings: dict[str, Any]
    """The arguments of the constructor but the optimiser."""
    bases: list[float]
    """The learning rates that the groups had when their first schedule was made."""
    last: list[float]
    steps: float
    initial = False
    """Whether the step of the constructor is being taken."""

    def __init__(self, optimizer: Any, last_epoch: int = -1) -> None:
        """Begin with step 0, or after `last_epoch`: a schedule of a program defines `get_lr`."""
        self.optimizer = optimizer
        vars(self).setdefault("settings", {})
        self.last = self.bases = [_initial(group) for group in optimizer.param_groups]
        self.begun = whole(last_epoch, "last_epoch")
        self.begin(self.begun)

    def begin(self, last_epoch: float = -1) -> None:
        """Take the step of a constructor, after `last_epoch`."""
        self.steps, self.initial = last_epoch, True
        try:
            self.step()
        finally:
            self.initial = False

    def get_lr(self) -> list[float]:
        """Return the learning rates of this step, one for each group; a schedule of a program defines it."""
        return [group.rate_now() for group in self.optimizer.param_groups]

    _rates = get_lr

    def _rates_at(self) -> list[float]:
        """Return the rates of a step that the program names, which do not depend on the present ones."""
        return self._rates()

    def restart(self) -> None:
        """Begin anew, as the next one of a sequence."""
        self._set_rates(0)

    def step(self, epoch: float | None = None) -> None:
        """Count a step, or go to step `epoch`, which may lie between two; set the rates of the optimiser.

        Raises `UsageError` inside a captured function, whose replays would not count, and for a rate below 0.
        """
        _refuse_capture(self)
        self._set_rates(epoch)

    def _set_rates(self, epoch: float | None) -> None:
        self.steps = self.steps + 1 if epoch is None else number(epoch, "step, epoch")
        self.last = self._rates() if epoch is None else self._rates_at()
        groups = self.optimizer.param_groups
        if len(self.last) != len(groups):
            what = f"{type(self).__name__} has {len(self.last)} rates, the optimiser {len(groups)} groups"
            raise UsageError(f"{what}\nhint: make another schedule after add_param_group()")
        for group, rate in zip(groups, self.last, strict=True):
            group.set_lr(rate)

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if "get_lr" in vars(cls):
            cls._rates = cls.get_lr
        if "__init__" in vars(cls) and cls.__module__.startswith("frontend."):
            cls.__init__ = _from_start(cls.__init__)  # type: ignore[method-assign]  # with one argument more
        answer_class(cls)

    @property
    def last_epoch(self) -> float:
        """The number of steps; a whole number for a schedule with periods."""
        return math.floor(self.steps) if hasattr(self, "growth") else self.steps

    @last_epoch.setter
    def last_epoch(self, value: float) -> None:
        self.steps = value

    @property
    def base_lrs(self) -> list[float]:
        """The learning rates that the groups had when their first schedule was made."""
        return [*self.bases, *map(_initial, self.optimizer.param_groups[len(self.bases) :])]

    def get_last_lr(self) -> list[float]:
        """Return the learning rates that the last step set, one for each group."""
        return list(self.last)

    def state_dict(self) -> dict[str, Any]:
        """Return settings, steps and rates, but no functions, as PyTorch's schedules do."""
        own = {n: v for n, v in {**self.settings, **self._program()}.items() if not callable(v)}
        return copy.deepcopy(own) | {
            "base_lrs": self.base_lrs, "last_epoch": self.last_epoch, "_step_count": self.last_epoch + 1,
            "_last_lr": self.get_last_lr(),
        }  # fmt: skip

    def _program(self) -> dict[str, Any]:
        """Return the attributes that a schedule of a program set."""
        own = {"optimizer", "settings", "bases", "last", "steps", "begun", "initial"}
        foreign = not type(self).__module__.startswith("frontend.")
        return {n: v for n, v in vars(self).items() if foreign and n not in own}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Set what a `state_dict` has, also one of PyTorch's; learning rates are the optimiser's state.

        Raises `UsageError` for a state without its steps or rates.
        """
        kind = type(self).__name__
        if missing := [n for n in ("last_epoch", "_last_lr") if n not in state_dict]:
            raise UsageError(f"{kind}, load_state_dict: missing {', '.join(missing)}")
        known = [n for n, old in self.settings.items() if not callable(old) and n in state_dict]
        changed = {n: _listed(state_dict[n]) for n in known}
        if any(_listed(self.settings[n]) != value for n, value in changed.items()):
            groups, kept = self.optimizer.param_groups, ("lr", "initial_lr", "momentum", "betas")
            before = [{n: group[n] for n in kept if n in group} for group in groups]
            self.settings |= changed
            again: Any = type(self).__init__
            again(self, self.optimizer, **self.settings)
            for group, values in zip(groups, before, strict=True):
                group.update(values)
        self.bases = list(state_dict.get("base_lrs", self.bases))
        vars(self).update({n: state_dict[n] for n in self._program() if n in state_dict})
        self.steps, self.last = state_dict["last_epoch"], list(state_dict["_last_lr"])


def _listed(value: Any) -> Any:
    """Return a setting of a file: counts of numbers, as PyTorch has them, are a sorted list."""
    if isinstance(value, Mapping):
        return sorted([n for n, count in value.items() for _ in range(count)])
    return list(value) if isinstance(value, (list, tuple)) else value


def for_groups(optimizer: Optimizer, what: str, value: Any) -> list[Any]:
    """Return a list with a value for each group, of a list or one value; `UsageError` for another length."""
    count = len(optimizer.param_groups)
    found = list(value) if isinstance(value, (list, tuple)) else [value] * count
    if len(found) != count:
        raise UsageError(f"{what}: wanted {count}, one for each group, saw {len(found)}")
    return found


class LambdaLR(Schedule):
    """The first learning rate of each group times `lr_lambda(steps)`, a number of at least 0.

    A list has a function for each group. The constructor takes step 0, as for all schedules.
    """

    resumes = True

    def __init__(self, optimizer: Optimizer, lr_lambda: Any) -> None:
        self.factors = for_groups(optimizer, f"{type(self).__name__}, lr_lambda", lr_lambda)
        super().__init__(optimizer, self.begun)

    def state_dict(self) -> dict[str, Any]:
        """Return the state; PyTorch's has a place for a function, which is not stored."""
        own = {"lr_lambdas": [None] * len(self.last)} if "lr_lambda" in self.settings else {}
        return super().state_dict() | own

    def _rates(self) -> list[float]:
        return [base * factor for base, factor in zip(self.base_lrs, self._factors(), strict=True)]

    def _factors(self) -> list[float]:
        return [number_within("lr_lambda", factor(self.steps), 0.0) for factor in self.factors]


class _Factor(Schedule):
    """A schedule that scales the part of the optimiser's present rate that is above `least`.

    A step multiplies it by the ratio of the factor of the new step to that of the last. After a factor of 0
    there is no ratio: the first rate times the factor is added.
    """

    resumes = True
    least = 0.0
    keeps: ClassVar[bool] = False
    """Whether the first step after `last_epoch` leaves the rate."""

    def __init__(self, optimizer: Optimizer, factor: Callable[[float], float]) -> None:
        self.factor = factor
        super().__init__(optimizer, self.begun)

    def _rates(self) -> list[float]:
        n, least, rates = self.steps, self.least, self.get_lr()
        if n and self.keeps and self.initial:
            return rates
        before, after = self.factor(n - 1) if n > 0 else 1.0, self.factor(n)
        if before == after:
            return rates
        if before == 0:
            return [now + (base - least) * after for now, base in zip(rates, self.base_lrs, strict=True)]
        return [least + (now - least) * (after / before) for now in rates]

    def _rates_at(self) -> list[float]:
        return [self.least + (base - self.least) * self.factor(self.steps) for base in self.base_lrs]


class StepLR(_Factor):
    """The learning rate times gamma every `step_size` steps."""

    def __init__(self, optimizer: Optimizer, step_size: int, gamma: float = 0.1) -> None:
        size = number_within("StepLR, step_size", step_size, 1)
        super().__init__(optimizer, lambda n: gamma ** (n // size))


class MultiStepLR(_Factor):
    """The learning rate times gamma at each milestone."""

    def __init__(self, optimizer: Optimizer, milestones: Iterable[int], gamma: float = 0.1) -> None:
        every = tuple(milestones)
        super().__init__(optimizer, lambda n: gamma ** sum([m <= n for m in every]))

    def state_dict(self) -> dict[str, Any]:
        """Return the state, with the milestones counted, as PyTorch's are."""
        return super().state_dict() | {"milestones": Counter(self.settings["milestones"])}


class ExponentialLR(_Factor):
    """The learning rate times gamma at each step."""

    keeps = True

    def __init__(self, optimizer: Optimizer, gamma: float) -> None:
        super().__init__(optimizer, lambda n: gamma**n)


class LinearLR(_Factor):
    """The learning rate times a factor that goes evenly, in `total_iters` steps, from a start to an end."""

    keeps = True

    def __init__(
        self, optimizer: Optimizer, start_factor: float = 1 / 3, end_factor: float = 1.0, total_iters: int = 5
    ) -> None:
        span, total = end_factor - start_factor, number_within("LinearLR, total_iters", total_iters, 1)
        super().__init__(optimizer, lambda n: start_factor + span * min(n, total) / total)


class ConstantLR(_Factor):
    """The learning rate times a factor for the first `total_iters` steps (0: all), then the rate itself."""

    def __init__(self, optimizer: Optimizer, factor: float = 1 / 3, total_iters: int = 5) -> None:
        super().__init__(optimizer, lambda n: factor if n < total_iters or not total_iters else 1.0)


class PolynomialLR(_Factor):
    """The learning rate times (1 - n / total_iters) ** power at step n, 0 after `total_iters` steps."""

    keeps = True

    def __init__(self, optimizer: Optimizer, total_iters: int = 5, power: float = 1.0) -> None:
        total = number_within("PolynomialLR, total_iters", total_iters, 1)
        super().__init__(optimizer, lambda n: (1 - min(n, total) / total) ** power)


class CosineAnnealingLR(_Factor):
    """The learning rate down to `eta_min` along half a period of a cosine, `T_max` steps; then up again."""

    keeps = True

    def __init__(self, optimizer: Optimizer, T_max: int, eta_min: float = 0.0) -> None:  # noqa: N803 - the field's name
        self.least, half = eta_min, number_within("CosineAnnealingLR, T_max", T_max, 1)
        super().__init__(optimizer, lambda n: (1 + math.cos(math.pi * (n / half % 2))) / 2)


class CosineAnnealingWarmRestarts(LambdaLR):
    """Half a period of a cosine of `T_0` steps down to `eta_min`, repeated, each `T_mult` times as long."""

    def __init__(
        self,
        optimizer: Optimizer,
        T_0: int,  # noqa: N803 - the field's name
        T_mult: int = 1,  # noqa: N803 - as above
        eta_min: float = 0.0,
    ) -> None:
        self.length = number_within("CosineAnnealingWarmRestarts, T_0", T_0, 1)
        self.growth = number_within("CosineAnnealingWarmRestarts, T_mult", T_mult, 1)
        self.least = eta_min
        super().__init__(optimizer, None)

    def _rates(self) -> list[float]:
        n, length = self._place(self.steps)
        factor = (1 + math.cos(math.pi * n / length)) / 2
        return [self.least + (base - self.least) * factor for base in self.base_lrs]

    def state_dict(self) -> dict[str, Any]:
        """Return the state, with the place in the present period, as PyTorch does."""
        n, length = self._place(self.steps)
        return super().state_dict() | {"T_cur": n, "T_i": length}

    def _place(self, n: float) -> tuple[float, float]:
        """Return the number of a step in its period, and the length of the period."""
        length = self.length
        while n >= length:
            n, length = n - length, length * self.growth
        return n, length

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Set what a `state_dict` has, also one of PyTorch's. Raises as a `Schedule`."""
        super().load_state_dict(state_dict)
        self.steps += state_dict.get("T_cur", 0) % 1


class OneCycleLR(LambdaLR):
    """The learning rate up to `max_lr` and down again, along half cosines, over `total_steps` steps.

    It starts at max_lr / div_factor, reaches max_lr after the share `pct_start` of the steps, and ends at
    max_lr / div_factor / final_div_factor. With `anneal_strategy` "linear" it goes along straight lines.
    With `three_phase` it is back at its start after twice that share, less one step. `max_lr` may be a list,
    one for each group; one of another length raises `UsageError`. `epochs` times `steps_per_epoch` may be
    given instead of `total_steps`; without either the constructor raises `UsageError`. A step after
    `total_steps` ones raises it, too.

    With `cycle_momentum`, the momentum, or b1 of Adam's variants, goes from `max_momentum` to `base_momentum`
    and back. The constructor raises `UsageError` for an optimiser without momentum, `step` for one whose step
    was captured, as the momentum of a captured step cannot change.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        max_lr: float | Sequence[float],
        total_steps: int | None = None,
        epochs: int | None = None,
        steps_per_epoch: int | None = None,
        pct_start: float = 0.3,
        anneal_strategy: Literal["cos", "linear"] = "cos",
        cycle_momentum: bool = True,  # noqa: FBT001, FBT002 - the field's signature
        base_momentum: float | Sequence[float] = 0.85,
        max_momentum: float | Sequence[float] = 0.95,
        div_factor: float = 25.0,
        final_div_factor: float = 1e4,
        three_phase: bool = False,  # noqa: FBT001, FBT002 - as above
    ) -> None:
        straight = choice("OneCycleLR, anneal_strategy", anneal_strategy, ("cos", "linear")) == "linear"
        if total_steps is None:
            if epochs is None or steps_per_epoch is None:
                raise UsageError("OneCycleLR: wanted total_steps, or epochs and steps_per_epoch")
            total_steps = epochs * steps_per_epoch
        groups = optimizer.param_groups
        tops = for_groups(optimizer, "OneCycleLR, max_lr", max_lr)
        rise, last = pct_start * total_steps - 1, total_steps - 1
        fall = 2 * pct_start * total_steps - 2 if flag(three_phase, "OneCycleLR, three_phase") else last
        self.optimizer, self.cycled = optimizer, flag(cycle_momentum, "OneCycleLR, cycle_momentum")

        def between(n: float, first: float, middle: float, end: float) -> float:
            """Return the number at step n of curves from `first` to `middle`, maybe back, and on to `end`."""
            begin, stop, start, goal = 0.0, rise, first, middle
            if n > rise or rise <= 0:
                begin, stop, start, goal = rise, fall, middle, first if three_phase else end
            if three_phase and n > fall:
                begin, stop, start, goal = fall, last, first, end
            share = (n - begin) / (stop - begin)
            left = 1 - share if straight else (1 + math.cos(math.pi * share)) / 2
            return goal + (start - goal) * left

        self.between, self.total_steps = between, total_steps
        self.settings["total_steps"] = total_steps
        for group, top in zip(groups if self.begun == -1 else (), tops, strict=False):
            start = group.initial = top / div_factor
            group.more.update({"max_lr": top, "min_lr": start / final_div_factor})
        if self.cycled:
            keep_momenta(self, base_momentum, max_momentum)
        super().__init__(optimizer, None)

    def _rates(self) -> list[float]:
        n, groups = self.steps, self.optimizer.param_groups
        if n > self.total_steps:  # PyTorch allows one step after the last, on the same curve
            raise UsageError(f"OneCycleLR: {self.total_steps} steps were wanted, this is one more")
        if self.cycled:
            set_momenta(self, lambda least, most: self.between(n, most, least, most))
        return [self.between(n, _initial(g), g.more["max_lr"], g.more["min_lr"]) for g in groups]


def keep_momenta(schedule: Schedule, *limits: Any) -> None:
    """Store the least and the greatest momentum in each group, unless the schedule goes on."""
    for name, given in zip(("base_momentum", "max_momentum"), limits, strict=True):
        values = for_groups(schedule.optimizer, f"{type(schedule).__name__}, {name}", given)
        for group, value in zip(schedule.optimizer.param_groups, values, strict=True):
            group.more.update({name: value} if schedule.begun == -1 else {})


def set_momenta(schedule: Schedule, value_of: Callable[[float, float], float]) -> None:
    """Set the momentum, or b1, of each group to `value_of(least, greatest)`.

    Raises `UsageError` if a group has none or was captured.
    """
    optimizer = schedule.optimizer
    for group in optimizer.param_groups:
        value = value_of(group.more["base_momentum"], group.more["max_momentum"])
        name = next((n for n in ("b1", "betas", "momentum") if n in group), None)
        if name is None or getattr(group, "captured", False):
            what = "has no momentum" if name is None else "is captured with the momentum that it has"
            what = f"OneCycleLR cycles the momentum, and {type(optimizer).__name__} {what}"
            raise UsageError(f"{what}\nhint: pass cycle_momentum=False")
        group[name] = (value, *group[name][1:]) if name == "betas" else value


class ReduceLROnPlateau(Schedule):
    """The learning rate times a factor after more than `patience` steps without a better measured number.

    For `mode` "min" a number below best * (1 - threshold) is an improvement, for "max" one above best * (1 +
    threshold). With `threshold_mode` "abs" it is one below best - threshold, or above best + threshold.
    After a reduction, `cooldown` steps are not counted. The rate is at least `min_lr`, which may be a list,
    one for each group; a reduction by `eps` or less is left out. Raises `UsageError` for another mode, a list
    of another length, and unless 0 <= factor < 1.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        mode: Literal["min", "max"] = "min",
        factor: float = 0.1,
        patience: int = 10,
        threshold: float = 1e-4,
        threshold_mode: Literal["rel", "abs"] = "rel",
        cooldown: int = 0,
        min_lr: float | Sequence[float] = 0.0,
        eps: float = 1e-8,
    ) -> None:
        wanted = choice("ReduceLROnPlateau, mode", mode, ("min", "max"))
        self.optimizer, self.sign = optimizer, 1.0 if wanted == "min" else -1.0
        self.factor = number_within("ReduceLROnPlateau, factor", factor, 0.0, 1.0)
        self.threshold_mode = choice("ReduceLROnPlateau, threshold_mode", threshold_mode, ("rel", "abs"))
        self.patience, self.threshold, self.cooldown, self.eps = patience, threshold, cooldown, eps
        self.least = for_groups(optimizer, "ReduceLROnPlateau, min_lr", min_lr)
        self.best, self.bad, self.rest, self.steps = math.inf, 0, 0, 0
        self.bases = [_initial(group) for group in optimizer.param_groups]
        self.last = self.get_lr()

    def state_dict(self) -> dict[str, Any]:
        """Return the state as PyTorch's."""
        own = {n: v for n, v in super().state_dict().items() if n not in {"_step_count", "min_lr"}}
        return own | {
            "best": self.sign * self.best, "num_bad_epochs": self.bad, "cooldown_counter": self.rest,
            "min_lrs": self.least, "threshold_mode": self.threshold_mode, "eps": self.eps,
        }  # fmt: skip

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Set what a `state_dict` has, also one of PyTorch's.

        Raises as a `Schedule`.
        """
        super().load_state_dict(state_dict)
        least = state_dict.get("min_lrs", self.least)
        self.least = for_groups(self.optimizer, "ReduceLROnPlateau, min_lr", least)
        self.threshold_mode = state_dict.get("threshold_mode", self.threshold_mode)
        self.eps = state_dict.get("eps", self.eps)
        self.best = self.sign * state_dict.get("best", math.inf)
        self.bad, self.rest = state_dict.get("num_bad_epochs", 0), state_dict.get("cooldown_counter", 0)

    def step(self, metrics: Tensor | float) -> None:  # type: ignore[override]  # as in PyTorch
        """Count a step with a measured number, and lower the learning rates if there was no improvement.

        A tensor is read. Raises `UsageError` inside a captured function.
        """
        _refuse_capture(self)
        value = self.sign * float(metrics.item() if isinstance(metrics, Tensor) else metrics)
        share = self.best * (1 - self.sign * self.threshold)
        better = value < (share if self.threshold_mode == "rel" else self.best - self.threshold)
        self.best, self.bad = (value, 0) if better else (self.best, self.bad + 1)
        self.steps += 1
        if self.rest > 0:
            self.rest, self.bad = self.rest - 1, 0
        if self.bad > self.patience:
            self.bad, self.rest = 0, self.cooldown
            if len(self.least) != len(self.optimizer.param_groups):  # a group was added
                least = self.settings["min_lr"]
                self.least = for_groups(self.optimizer, "ReduceLROnPlateau, min_lr", least)
            for group, least in zip(self.optimizer.param_groups, self.least, strict=True):
                rate = max(group.rate_now() * self.factor, least)
                if group.rate_now() - rate > self.eps:
                    group.set_lr(rate)
        self.last = self.get_lr()
