"""Rounds of training, opening, closing, faults and recoveries leak nothing."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import frontend.evaluation.expr
import frontend.evaluation.plan
from compiler import compile as compiling
from compiler.ir.uop import table_size
from hcq.config import override
from tests.fuzz.endurance import Sample, census, fault_and_recover, growth, open_and_close, step

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
    done = subprocess.run(
        [sys.executable, "-c", ROUNDS, str(tmp_path)], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]


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
