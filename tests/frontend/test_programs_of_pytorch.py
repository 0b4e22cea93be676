"""Programs typed for PyTorch run with another import alone, and compute PyTorch's values."""

from __future__ import annotations

import json

import pytest

import frontend
from tests.oracles.programs import DATA, PROGRAMS, run, wrong

WANT = json.loads((DATA / "programs.json").read_text())


@pytest.mark.sampled(400)
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_has_pytorch_s_values(name: str):
    places = wrong(name, run(name, frontend, ours=True), WANT[name])
    assert not places, f"(place, ours, PyTorch): {places[:5]}"


def test_every_program_is_recorded():
    assert sorted(WANT) == PROGRAMS
