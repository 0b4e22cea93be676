"""Schedules of the learning rate that repeat, chain or follow each other.

Not here: single ones (`frontend.optim.schedules`), which say what a schedule is.
"""

# ruff: noqa: PLR0917 - PyTorch's signatures

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from frontend.arguments.settings import number_within
from frontend.optim.schedules import LambdaLR, Schedule, for_groups, keep_momenta, set_momenta
from hcq.errors import UsageError

if TYPE_CHECKING:
    from frontend.optim.base import Optimizer


class MultiplicativeLR(LambdaLR):
    """The learning rate times `lr_lambda(steps)` at each step from the first on."""

    def _rates(self) -> list[float]:
        pairs = zip(self.get_lr(), self._factors(), strict=True)
        return self.get_lr() if self.initial else [now * factor for now, factor in pairs]


class CyclicLR(LambdaLR):
    """The learning rate from `base_lr` up to `max_lr` and down again, in straight lines, over and over.

    It rises for `step_size_up` steps and falls for `step_size_down`; None is as many. `mode`: "triangular",
    "triangular2", which halves the height with each cycle, or "exp_range", which multiplies it by gamma **
    steps. `scale_fn` replaces this factor by its result for the number of the cycle, from 1, or with
    `scale_mode` "iterations" for the number of steps. Rates may be lists, one for each group. With
    `cycle_momentum` the momentum moves the other way. Raises `UsageError` for another mode and for
    `step_size_up` below 1, `ValueError` for a list of another length, and as `OneCycleLR`.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        base_lr: float | Sequence[float],
        max_lr: float | Sequence[float],
        step_size_up: int = 2000,
        step_size_down: int | None = None,
        mode: Literal["triangular", "triangular2", "exp_range"] = "triangular",
        gamma: float = 1.0,
        scale_fn: Callable[[float], float] | None = None,
        scale_mode: Literal["cycle", "iterations"] = "cycle",
        cycle_momentum: bool = True,  # noqa: FBT001, FBT002 - PyTorch's signature
        base_momentum: float | Sequence[float] = 0.8,
        max_momentum: float | Sequence[float] = 0.9,
    ) -> None:
        scales: dict[str, tuple[Callable[[float], float], str]] = {
            "triangular": (lambda _: 1.0, "cycle"),
            "triangular2": (lambda cycle: 0.5 ** (cycle - 1), "cycle"),
            "exp_range": (lambda n: gamma**n, "iterations"),
        }
        if mode not in scales:
            raise UsageError(f"CyclicLR, mode: wanted one of {', '.join(scales)}, saw {mode!r}")
        self.scale, self.counted = scales[mode] if scale_fn is None else (scale_fn, scale_mode)
        low = for_groups(optimizer, "CyclicLR, base_lr", base_lr)
        self.high = for_groups(optimizer, "CyclicLR, max_lr", max_lr)
        self.rise = number_within("CyclicLR, step_size_up", step_size_up, 1)
        self.length = self.rise + (self.rise if step_size_down is None else step_size_down)
        self.optimizer, self.cycled = optimizer, cycle_momentum
        for group, rate in zip(optimizer.param_groups if self.begun == -1 else (), low, strict=False):
            group.set_lr(rate)
        if cycle_momentum:
            keep_momenta(self, base_momentum, max_momentum)
        super().__init__(optimizer, None)
        self.bases = low

    def state_dict(self) -> dict[str, Any]:
        """Return the state; PyTorch's has a place for a function, which is not stored."""
        own = {n: v for n, v in super().state_dict().items() if n != "scale_fn"}
        return {**own, "_scale_fn_custom": None}

    def _rates(self) -> list[float]:
        done, within = divmod(self.steps, self.length)
        height = min(within / self.rise, (self.length - within) / max(self.length - self.rise, 1e-9))
        height *= self.scale(done + 1 if self.counted == "cycle" else self.steps)
        if self.cycled:
            set_momenta(self, lambda least, most: most - (most - least) * height)
        return [low + (high - low) * height for low, high in zip(self.bases, self.high, strict=True)]


class ChainedScheduler(Schedule):
    """Several schedules of one optimiser, which take each step together.

    `optimizer` None is that of the first schedule.
    """

    milestones: Sequence[int] = ()

    def __init__(self, schedulers: Sequence[LambdaLR], optimizer: Optimizer | None = None) -> None:
        self.optimizer = optimizer or schedulers[0].optimizer
        self.schedulers = list(schedulers)
        self.steps, self.last = 0, self.get_lr()

    def step(self) -> None:  # type: ignore[override]  # as in PyTorch
        """Take a step of each schedule. Raises as their `step`."""
        for schedule in self.schedulers:
            schedule.step()

        self.last = self.get_lr()

    def begin(self, last_epoch: float = -1) -> None:
        """Take the first step of each schedule, after `last_epoch`."""
        for schedule in self.schedulers:
            schedule.begin(last_epoch)
        self.last = self.get_lr()

    def restart(self) -> None:
        """Begin anew, at the first learning rates."""
        for group in self.optimizer.param_groups:
            group.set_lr(group.initial)
        self.begin()

    def state_dict(self) -> dict[str, Any]:
        """Return the states of the schedules, milestones, steps and the last rates, as PyTorch does."""
        own = {"_last_lr": self.get_last_lr(), "last_epoch": self.steps, "_milestones": [*self.milestones]}
        return {**own, "_schedulers": [schedule.state_dict() for schedule in self.schedulers]}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Set what `state_dict` returned, here or in PyTorch. Raises as the method of a schedule."""
        for schedule, value in zip(self.schedulers, state_dict["_schedulers"], strict=True):
            schedule.load_state_dict(value)
        self.steps, self.milestones = state_dict.get("last_epoch", 0), [*state_dict.get("_milestones", ())]
        self.last = list(state_dict["_last_lr"])


class SequentialLR(ChainedScheduler):
    """One schedule after the other: schedule i + 1 begins, at the first learning rates, at milestone i.

    Raises `UsageError` unless there is one milestone fewer than schedules.
    """

    def __init__(
        self, optimizer: Optimizer, schedulers: Sequence[LambdaLR], milestones: Sequence[int]
    ) -> None:
        if len(milestones) != len(schedulers) - 1:
            wanted = f"{len(schedulers) - 1} milestones for {len(schedulers)} schedules"
            raise UsageError(f"SequentialLR: wanted {wanted}, saw {len(milestones)}")
        super().__init__(schedulers, optimizer)
        self.milestones = list(milestones)
        self.restart()

    def begin(self, last_epoch: float = -1) -> None:
        """Take the first step of the first schedule, after `last_epoch`."""
        self.schedulers[bisect_right(self.milestones, 0)].begin(last_epoch)
        self.steps, self.last = 0, self.get_lr()

    def step(self) -> None:  # type: ignore[override]  # as in PyTorch
        """Take a step of the schedule whose turn it is. Raises as its `step`."""
        self.steps += 1
        turn = self.schedulers[bisect_right(self.milestones, self.steps)]
        (turn.restart if self.steps in self.milestones else turn.step)()
        self.last = turn.get_last_lr()
