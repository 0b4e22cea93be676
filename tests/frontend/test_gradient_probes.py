"""Methods at random shapes and numbers, against PyTorch's results: `tests.oracles.gradients.probes`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.oracles.gradients.probes import differing, probe

LINES = (Path(__file__).parent / "data" / "gradient_probes.jsonl").read_text().splitlines()
PARTS = 20


@pytest.mark.sampled(20)
@pytest.mark.parametrize("part", range(PARTS))
def test_values_and_gradients_of_probes_match_pytorch(part: int):
    found = differing(LINES[part::PARTS])
    assert not found, "\n".join(found.values())


def test_a_wrong_gradient_is_reported():
    told = 0
    for line in LINES:
        want = json.loads(line)
        numbers = want["gradients"][0]
        if numbers and numbers[0] not in {"nan", "inf", "-inf"} and not want.get("closer gradients", [{}])[0]:
            numbers[0] = str(float(numbers[0]) + 1.0 + abs(float(numbers[0])))
            assert "gradient 0" in differing([json.dumps(want)])[want["seed"]]
            told += 1
        if told == 5:
            return
    pytest.fail("there are no records with gradients")


def test_one_seed_gives_one_probe():
    for seed in range(50):
        assert repr(probe(seed).numbers) == repr(probe(seed).numbers)
