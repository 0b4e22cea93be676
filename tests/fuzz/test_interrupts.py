"""A share of `tests.fuzz.interrupts`: always the same places, so that each failure can be repeated."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from emulator.shared.scheduler import TurnLock
from hcq.heap import Heap
from hcq.locks import Condition
from hcq.validate.accesses import Intervals
from tests.children import python
from tests.fuzz import interrupts
from tests.fuzz.interrupt_probes import PROBES, free
from tests.fuzz.interrupts import KINDS, Run, Tracer
from tests.hcq.fake import FakeDevice
from tests.limits import HANG_S

EVERY = 5
_ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(PROBES))
def test_an_interrupt_at_any_call_leaves_usable_state(name: str, tmp_path: Path) -> None:
    """In a process of its own: an alarm bounds each use, and no other test's threads are traced."""
    told = tmp_path / "told.json"
    limits = ("--every", str(EVERY), "--first", "1", "--bound", str(HANG_S))
    python("-m", "tests.fuzz.interrupts", "--probe", name, *limits, "--json", told)
    found = json.loads(told.read_text())
    assert found["findings"] == []
    assert found["places"][name] >= 15


class Half:
    """Something whose halves do not agree once it was interrupted between them."""

    def __init__(self) -> None:
        self.parts = [0, 0]

    def act(self) -> None:
        self.parts[0] += 1
        Intervals()
        self.parts[1] += 1

    def check(self) -> None:
        if self.parts[0] != self.parts[1]:
            raise AssertionError("halves")

    def close(self) -> None:
        self.parts = []


def test_a_split_value_whose_halves_disagree_is_reported() -> None:
    run = Run("half", bound_s=HANG_S, make=Half)
    run.run("line", every=1, first=0)
    assert run.places == 3  # the lines of Intervals.__init__
    assert [(one.outcome, one.what) for one in run.findings] == [("wrong", "halves")] * 3
    assert all(one.where.startswith("accesses.py:") for one in run.findings)


def test_the_end_of_a_with_block_is_no_interrupt_point() -> None:
    """CPython delivers no signal between the last line of the block and the manager's `__exit__`."""
    run = Run("with", bound_s=HANG_S, make=Locked)
    run.run("line", every=1, first=0)
    assert run.places == 6  # three each sweep: the line of `with` is told of twice
    assert run.findings == []


class Locked:
    def __init__(self) -> None:
        self.heap = Heap(
            FakeDevice(), reclaim=lambda _attempt: False, deferred=lambda: None, short=lambda error: error
        )

    def act(self) -> None:
        self.heap.sweep()
        self.heap.sweep()

    def check(self) -> None:
        assert free(self.heap._lock)

    def close(self) -> None:
        pass


def test_every_kind_of_interrupt_is_known() -> None:
    assert set(KINDS) == {"line", "driver short of memory", "driver interrupted after"}


def test_an_uninterrupted_action_is_only_counted() -> None:
    with Tracer("line", 10**9) as tracer:
        Half().act()
    assert tracer.seen > 0
    assert tracer.fired == ""


class Twice:
    """A lock that is taken twice, and the locks that it consists of."""

    def __init__(self, lock: TurnLock | Condition) -> None:
        self.lock = lock
        self.parts = [lock._next, lock._held] if isinstance(lock, TurnLock) else [lock]

    def act(self) -> None:
        with self.lock, self.lock:
            pass

    def check(self) -> None:
        assert all(map(free, self.parts)), "held"

    def close(self) -> None:
        self.parts = []


@pytest.mark.parametrize("lock", [TurnLock, Condition])
def test_an_interrupt_leaves_no_lock_held(
    lock: type[TurnLock | Condition], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(interrupts, "_inside", lambda _path: True)
    run = Run("lock", bound_s=HANG_S, make=lambda: Twice(lock()))
    run.run("line", every=1, first=0)
    assert run.findings == []
    assert run.places >= 1
