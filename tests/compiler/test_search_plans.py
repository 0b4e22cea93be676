"""Every plan that the search can produce computes what the kernel means: small kernels against NumPy."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import hcq
from compiler.pipeline import planned
from compiler.plan.choice import brief
from compiler.targets import target_of
from frontend.tuning.space import Space
from frontend.tuning.trial import Trial
from tests import oracle
from tests.fuzz.plans import exhaustive, small

if TYPE_CHECKING:
    from compiler.plan.proposal import Proposal

STRIDE = {"cpu": 9, "nv-emu": 40, "amd-emu": 40}
"""One plan of so many is run here; `python -m tests.fuzz.plans` runs all."""

ROUNDED = 4.0
"""Units in the last place of the largest result that NumPy's own functions may be off."""


def _wrong(trial: Trial, wanted: dict[int, bytes], candidates: list[Proposal]) -> list[str]:
    """Return the plans whose results differ from the oracle's."""
    out = []
    for candidate in candidates:
        difference = trial.difference(wanted, trial.results(trial.load(candidate.choice)), least=ROUNDED)
        if difference:
            out.append(f"{brief(candidate.choice)}: {difference}")
    return out


def _check(device: hcq.Device, name: str, number: int) -> None:
    ast = small.ast_of(name)
    space = Space(ast, target_of(device.info.arch))
    trial = Trial(device, ast)
    memory = trial.inputs()
    oracle.run_kernel(ast, memory)
    wanted = {slot: memory[slot].tobytes() for slot in trial.stored}
    stride = STRIDE[device.info.driver]
    every = exhaustive.every(space)
    moves = space.moves(every[0].choice)
    assert not _wrong(trial, wanted, every[number % stride :: stride] + moves[number % stride :: stride])
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


@pytest.mark.parametrize("name", ["transpose", "norm", "thin", "window", "half", small.IN_PLACE])
def test_the_estimated_choice_gives_the_plan_of_a_compilation(name: str) -> None:
    ast = small.ast_of(name)
    for arch in ("x86_64-v3", "x86_64-v4", "sm_90a", "gfx1100"):
        made = Space(ast, target_of(arch)).estimated()
        assert (made.ast, made.plan) == planned(ast, target_of(arch))
