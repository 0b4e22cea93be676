"""Programs typed for PyTorch run with another import alone, and compute PyTorch's values."""

from __future__ import annotations

import json

import pytest

import frontend
from tests.oracles.programs import DATA, PROGRAMS, run, same

WANT = json.loads((DATA / "programs.json").read_text())


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_has_pytorch_s_values(name: str):
    got = run(name, frontend, ours=True)
    assert len(got) == len(WANT[name])
    wrong = [(k, a, b) for k, (a, b) in enumerate(zip(got, WANT[name], strict=True)) if not same(a, b)]
    assert not wrong, f"(place, ours, PyTorch): {wrong[:5]}"


def test_every_program_is_recorded():
    assert sorted(WANT) == PROGRAMS
