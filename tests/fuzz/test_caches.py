"""Damaged caches never give wrong code: a share of `tests.fuzz.caches`, and that it finds defects."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from tests.fuzz.caches import Step, Subject, as_test, case, explore, run, shrink, subjects
from tests.fuzz.damages import DAMAGES, Entry

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(scope="module")
def made() -> list[Subject]:
    return subjects()


@pytest.mark.slow
def test_random_damages_give_no_wrong_code(made: list[Subject]):
    damages, failed = explore(0, 12, made)
    assert failed == {}
    assert damages > 20


@pytest.mark.sampled(5)
@pytest.mark.parametrize("name", sorted(DAMAGES))
def test_each_damage_alone_gives_no_wrong_code(made: list[Subject], name: str):
    assert [run([Step(name, subject, seed)], made) for subject, seed in ((0, 1), (6, 2))] == [[], []]


@dataclass(frozen=True, slots=True)
class Trusting:
    """A reader of the cache that checks nothing."""

    entry: Entry

    def obtain(self, root: Path) -> bytes:
        path = self.entry.path(root)
        return path.read_bytes()[32:] if path.exists() else self.entry.payload


@pytest.mark.parametrize("name", ["bits flipped", "swapped with another", "a file of others"])
def test_the_fuzzer_detects_a_cache_reader_without_checks(made: list[Subject], name: str):
    trusting = [Trusting(subject.entry) for subject in made]
    assert any(run([Step(name, 0, seed)], trusting) for seed in range(4))


def test_a_case_is_repeated_by_its_seed_and_shrunk_to_what_fails():
    steps, busy = next((s, b) for s, b in map(case, range(100)) if len(s) == 5)
    assert (steps, busy) == next((s, b) for s, b in map(case, range(100)) if len(s) == 5)
    small = shrink(steps, lambda left: steps[1] in left and steps[3] in left)
    assert small == [steps[1], steps[3]]
    assert repr(steps[3]) in as_test(1, small, ["wrong code"], busy=busy)
