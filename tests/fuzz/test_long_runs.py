"""Recorded bits, damaged caches, and rounds that leak nothing: shares of the long runs."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import pytest

import frontend.evaluation.expr
import frontend.evaluation.plan
from compiler import compile as compiling
from compiler.ir.uop import table_size
from hcq.config import override
from tests.children import python
from tests.fuzz import bits
from tests.fuzz.caches import Step, Subject, as_test, case, explore, run, shrink, subjects
from tests.fuzz.damages import DAMAGES, Entry
from tests.fuzz.endurance import Sample, census, fault_and_recover, growth, open_and_close, step


def test_a_run_agrees_with_itself_and_not_with_a_changed_digest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(bits, "MODES", ("graphs",))
    assert bits.recorded(3, 1, golden=None, folder=str(tmp_path)) == {}
    golden = tmp_path / "3.bits"
    (key, (kernels, code, digests)), *others = map(json.loads, golden.read_text().splitlines())
    assert kernels > 0
    assert others == []
    assert bits.recorded(3, 1, golden=str(golden), folder=str(tmp_path)) == {}
    golden.write_text(json.dumps([key, [kernels, code, [*digests[:-1], "0"]]]))
    assert key in bits.recorded(3, 1, golden=str(golden), folder=str(tmp_path))[3]


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


ROOT = Path(__file__).resolve().parents[2]


ROUNDS = """
import random, sys
from pathlib import Path
from hcq.config import override
from tests.fuzz.endurance import census, rounds, sample
cache, rng = Path(sys.argv[1]), random.Random(1)
with override(cache=cache, validate=False):
    rounds(rng, 3, width=5)
    before, held = census(), sample(cache)
    rounds(rng, 3, width=5)
    after, holds = census(), sample(cache)
assert after - before == {}, after - before
assert (holds.descriptors, holds.cache) == (held.descriptors, held.cache)
"""


@pytest.mark.slow
def test_rounds_leak_no_objects_descriptors_or_files(tmp_path: Path) -> None:
    # In a process of its own: devices that other tests opened with validation keep a bounded history.
    python("-c", ROUNDS, str(tmp_path))


@pytest.mark.slow
def test_devices_opened_and_closed_leak_no_objects() -> None:
    open_and_close()
    fault_and_recover()
    before = census()
    for _ in range(5):
        open_and_close()
        fault_and_recover()
    assert census() - before == {}


def test_steps_of_ever_new_shapes_keep_a_bounded_number_of_objects(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(frontend.evaluation.plan, "NODE_LIMIT", 300)
    monkeypatch.setattr(frontend.evaluation.expr, "TABLE_LIMIT", 300)
    counts, before = [], table_size()
    with override(cache=tmp_path, plan_bytes=1 << 20, validate=False):
        compiling.forget()
        for number in range(150):
            step(number)
            if table_size() < before:  # the tables were trimmed
                counts.append(sum(census("compiler.", "frontend.", "hcq.", "drivers.").values()))
            before = table_size()
    middle = len(counts) // 2
    assert middle >= 4
    assert max(counts[middle:]) <= 1.2 * max(counts[1:middle])


def test_a_growing_resource_is_reported() -> None:
    flat = [Sample(1000, 10, 4, 100, 500, 60)] * 9
    assert growth(flat) == []
    more = [Sample(1000 + 50 * n, 10 + (n == 8), 4, 100, 500, 60) for n in range(9)]
    assert growth(more) == ["resident grew from 1250 to 1400", "descriptors grew from 10 to 11"]
    assert growth([Sample(1000 + 500 * (n < 3), 10, 4, 100, 500, 60) for n in range(9)]) == [], (
        "warm-up is not judged"
    )
