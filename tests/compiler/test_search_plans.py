"""Every plan that the search can produce computes what the kernel means: small kernels against NumPy."""

from __future__ import annotations

import pytest

import hcq
from compiler.pipeline import planned
from compiler.targets import target_of
from frontend.tuning.space import Space
from frontend.tuning.trial import Trial
from tests.fuzz.plans import exhaustive, small
from tests.fuzz.plans.__main__ import check, wrong_plans

STRIDE = {"cpu": 9, "nv-emu": 40, "amd-emu": 40}
"""One plan of so many is run here; `python -m tests.fuzz.plans` runs all."""


def _check(device: hcq.Device, name: str, number: int) -> None:
    ast = small.ast_of(name)
    space = Space(ast, target_of(device.info.arch))
    trial = Trial(device, ast)
    stride = STRIDE[device.info.driver]
    every = exhaustive.every(space)
    moves = space.moves(every[0].choice)
    assert not wrong_plans(trial, every[number % stride :: stride] + moves[number % stride :: stride])
    trial.close()


@pytest.mark.sampled(36)
@pytest.mark.parametrize("number", range(len(small.NAMES)), ids=small.NAMES)
def test_plans_of_the_search_are_right_on_the_host(number: int) -> None:
    with hcq.open("cpu") as device:
        _check(device, small.NAMES[number], number)


@pytest.mark.sampled(9)
@pytest.mark.slow
@pytest.mark.parametrize("driver", ["nv-emu", "amd-emu"])
@pytest.mark.parametrize("name", ["transpose", "softmax", "product", "half"])
def test_plans_of_the_search_are_right_on_emulated_gpus(name: str, driver: str) -> None:
    with hcq.open(driver) as device:
        _check(device, name, small.NAMES.index(name))


def test_plans_that_all_differ_from_numpy_alike_are_all_named() -> None:
    (found,) = check("cpu", ["transpose"], lambda _ast, _memory: None)
    assert len(found.wrong) == found.plans > 1
    (found,) = check("cpu", ["transpose"])
    assert not found.wrong


@pytest.mark.parametrize("name", ["transpose", "norm", "thin", "window", "half", small.IN_PLACE])
def test_the_estimated_choice_gives_the_plan_of_a_compilation(name: str) -> None:
    ast = small.ast_of(name)
    for arch in ("x86_64-v3", "x86_64-v4", "sm_90a", "gfx1100"):
        made = Space(ast, target_of(arch)).estimated()
        assert (made.ast, made.plan) == planned(ast, target_of(arch))
