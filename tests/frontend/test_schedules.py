"""Schedules of learning rates beside each other, and beside rates that a program sets: as PyTorch 2.13.

One schedule by itself: `test_habits_of_pytorch`.
"""

from __future__ import annotations

import copy
import math
import pickle
from typing import Any

import pytest

from frontend import Tensor, TinyJit, nn
from frontend.optim import lr_scheduler
from hcq.errors import UsageError

MADE: dict[str, Any] = {
    "linear": lambda o: lr_scheduler.LinearLR(o, 0.25, 1.0, total_iters=3),
    "exponential": lambda o: lr_scheduler.ExponentialLR(o, 0.5),
    "step": lambda o: lr_scheduler.StepLR(o, 2, 0.1),
    "milestones": lambda o: lr_scheduler.MultiStepLR(o, [1, 1, 3], 0.5),
    "constant": lambda o: lr_scheduler.ConstantLR(o, 0.5, total_iters=2),
    "cosine": lambda o: lr_scheduler.CosineAnnealingLR(o, 6, eta_min=0.1),
    "to 0": lambda o: lr_scheduler.LinearLR(o, 1.0, 0.0, total_iters=2),
    "cosine to 0": lambda o: lr_scheduler.CosineAnnealingLR(o, 2),
    "lambda": lambda o: lr_scheduler.LambdaLR(o, lambda n: 1 / (1 + n)),
}


def rates(names: list[str], steps: int, given: dict[int, float] | None = None) -> list[float]:
    optimiser = nn.optim.SGD([Tensor.ones(2)], lr=1.0)
    every = [MADE[name](optimiser) for name in names]
    found = [optimiser.param_groups[0].lr.item()]
    for i in range(steps):
        if i in (given or {}):
            optimiser.param_groups[0]["lr"] = given[i] if given else 0.0
        for schedule in every:
            schedule.step()
        found.append(optimiser.param_groups[0].lr.item())
    return found


@pytest.mark.parametrize(
    ("names", "want"),
    [
        (["linear", "exponential"], [0.25, 0.25, 0.1875, 0.125, 0.0625]),
        (["exponential", "linear"], [0.25, 0.25, 0.1875, 0.125, 0.0625]),
        (["step", "milestones"], [1.0, 0.25, 0.025, 0.0125, 0.00125]),
        (["constant", "exponential"], [0.5, 0.25, 0.25, 0.125, 0.0625]),
        (["exponential", "lambda"], [1.0, 0.5, 1 / 3, 0.25, 0.2]),
        (["exponential", "exponential"], [1.0, 0.25, 0.0625, 0.015625, 0.00390625]),
    ],
)
def test_schedules_of_one_optimiser_are_factors_of_each_other(names: list[str], want: list[float]):
    assert rates(names, 4) == pytest.approx(want)


@pytest.mark.parametrize(
    ("name", "want"),
    [
        ("exponential", [1.0, 0.5, 0.4, 0.2, 0.1]),
        ("step", [1.0, 1.0, 0.08, 0.08, 0.008]),
        ("constant", [0.5, 0.5, 1.6, 1.6, 1.6]),
        ("lambda", [1.0, 0.5, 1 / 3, 0.25, 0.2]),
    ],
)
def test_a_rate_that_the_program_sets_is_scaled_on(name: str, want: list[float]):
    assert rates([name], 4, {1: 0.8}) == pytest.approx(want)


def test_a_rate_that_is_set_to_a_tensor_is_read():
    optimiser = nn.optim.SGD([Tensor.ones(2)], lr=1.0)
    schedule = lr_scheduler.ExponentialLR(optimiser, 0.5)
    optimiser.lr = Tensor([0.25])
    schedule.step()
    assert optimiser.lr.item() == 0.125
    optimiser.lr *= 2
    schedule.step()
    assert (optimiser.lr.item(), schedule.get_last_lr()) == (0.125, [0.125])


WRITES: dict[str, Any] = {
    "assign": lambda t: t.assign(0.25),
    "assign and compute": lambda t: t.assign(0.25).realize(),
    "a number and assign": lambda t: t.fill_(9.0).assign(0.25).realize(),
    "copy": lambda t: t.copy_(Tensor([0.25])),
    "a view": lambda t: t.reshape(1, 1)[0].fill_(0.25),
    "an element": lambda t: t.__setitem__(0, 0.25),
}


@pytest.mark.parametrize("way", WRITES)
@pytest.mark.parametrize("stepped", [False, True])
def test_a_rate_that_is_written_as_a_tensor_is_scaled_on(way: str, *, stepped: bool):
    w = Tensor([1.0], requires_grad=True)
    optimiser = nn.optim.SGD([w], lr=1.0)
    schedule = lr_scheduler.ExponentialLR(optimiser, 0.5)
    schedule.step()
    WRITES[way](optimiser.param_groups[0].lr)
    if stepped:
        w.sum().backward()
        optimiser.step()
    schedule.step()
    assert (optimiser.lr.item(), schedule.get_last_lr()) == (0.125, [0.125])


def test_a_rate_that_a_captured_function_writes_is_scaled_on():
    optimiser = nn.optim.SGD([Tensor.ones(2)], lr=1.0)
    schedule = lr_scheduler.ExponentialLR(optimiser, 0.5)
    grow = TinyJit(lambda: optimiser.lr.assign(optimiser.lr * 4))
    for n in range(1, 6):
        grow()
        schedule.step()
        assert schedule.get_last_lr() == [2.0**n]


@pytest.mark.parametrize("way", [copy.deepcopy, lambda pair: pickle.loads(pickle.dumps(pair))])
def test_a_copied_schedule_sees_what_is_written_to_its_rate(way: Any):
    optimiser = nn.optim.SGD([Tensor.ones(2)], lr=0.1)
    first = lr_scheduler.CosineAnnealingWarmRestarts(optimiser, 4)
    optimiser, first = copy.deepcopy((optimiser, first))
    group = way(optimiser.param_groups[0])
    assert group.rate_now() == 0.1
    group.lr.assign(0.25)
    assert group.rate_now() == 0.25
    group["lr"] = 0.3
    assert (group.rate_now(), first.get_last_lr()) == (0.3, [0.1])


@pytest.mark.parametrize(
    ("names", "want"),
    [
        (["cosine to 0", "constant"], [0.5, 0.25, 0.0, 0.5, 1.0, 0.5]),
        (["to 0", "exponential"], [1.0, 0.25, 0.0, 0.0, 0.0]),
        (["to 0", "lambda"], [1.0, 0.5, 1 / 3, 0.25, 0.2]),
        (["lambda", "to 0"], [1.0, 0.25, 0.0, 0.25, 0.2]),
    ],
)
def test_a_schedule_goes_on_behind_a_rate_of_0(names: list[str], want: list[float]):
    assert rates(names, len(want) - 1) == pytest.approx(want, abs=1e-7)


def test_a_rate_that_is_set_after_the_end_of_a_schedule_stays():
    assert rates(["to 0"], 5, {3: 0.75}) == pytest.approx([1.0, 0.5, 0.0, 0.0, 0.75, 0.75])


@pytest.mark.parametrize("name", [*MADE, "plateau"])
def test_a_schedule_goes_on_from_its_state(name: str):
    make = {**MADE, "plateau": lambda o: lr_scheduler.ReduceLROnPlateau(o, patience=1)}[name]
    given = (1.0,) if name == "plateau" else ()
    made = [nn.optim.SGD([Tensor.ones(2)], lr=1.0) for _ in range(2)]
    first, second = (make(optimiser) for optimiser in made)
    for _ in range(3):
        first.step(*given)
    made[1].load_state_dict(made[0].state_dict())
    second.load_state_dict(pickle.loads(pickle.dumps(first.state_dict())))
    assert first.state_dict() == second.state_dict()
    for _ in range(4):
        for schedule in (first, second):
            schedule.step(*given)
        assert second.get_last_lr() == pytest.approx(first.get_last_lr())
    with pytest.raises(UsageError, match="missing"):
        second.load_state_dict({"steps": 1})


def test_a_schedule_goes_on_from_the_rate_of_a_checkpoint():
    first, second = (nn.optim.SGD([Tensor.ones(2)], lr=rate) for rate in (0.5, 8.0))
    schedule = lr_scheduler.ExponentialLR(second, 0.5)
    second.load_state_dict(first.state_dict())
    schedule.step()
    assert second.lr.item() == 0.25


def test_a_linear_schedule_ends_at_zero():
    optimiser = nn.optim.SGD([Tensor.ones(2)], lr=0.1)
    schedule = lr_scheduler.LinearLR(optimiser, 0.1, 0.0, total_iters=9)
    for _ in range(12):
        schedule.step()
    assert optimiser.lr.item() == pytest.approx(0.0, abs=1e-12)


@pytest.mark.parametrize(("mode", "measured"), [("min", [3.0, 2.0, 1.0, 0.5]), ("max", [1.0, 2.0, 3.0, 4.0])])
def test_a_number_that_is_nan_or_infinite_is_no_best_one(mode: Any, measured: list[float]):
    optimiser = nn.optim.SGD([Tensor.ones(2)], lr=1.0)
    schedule = lr_scheduler.ReduceLROnPlateau(optimiser, mode=mode, patience=1)
    schedule.step(math.nan)
    schedule.step(math.inf if mode == "min" else -math.inf)
    assert optimiser.lr.item() == pytest.approx(0.1)
    for value in measured:
        schedule.step(value)
    assert optimiser.lr.item() == pytest.approx(0.1)
