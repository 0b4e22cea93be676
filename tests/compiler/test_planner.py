"""The memory planner: temporaries that live together never overlap, others share."""

from __future__ import annotations

import random

import pytest

from compiler.schedule.memory import ALIGNMENT, place


def test_a_chain_needs_two_arena_slots() -> None:
    _, size = place({i: (1024, i, i + 1) for i in range(10)})
    assert size == 2 * 1024


def test_an_empty_plan_needs_no_arena() -> None:
    assert place({}) == ({}, 0)


@pytest.mark.sampled(5)
@pytest.mark.parametrize("seed", range(40))
def test_temporaries_that_live_together_do_not_overlap(seed: int) -> None:
    draw = random.Random(seed)
    lives = {}
    for key in range(60):
        first = draw.randrange(50)
        lives[key] = (draw.randrange(1, 5000), first, first + draw.randrange(12))
    offsets, total = place(lives)
    for a, (size_a, first_a, last_a) in lives.items():
        assert offsets[a] % ALIGNMENT == 0
        assert offsets[a] + size_a <= total
        for b, (size_b, first_b, last_b) in lives.items():
            if a != b and first_a <= last_b and first_b <= last_a:
                assert offsets[a] + size_a <= offsets[b] or offsets[b] + size_b <= offsets[a]
