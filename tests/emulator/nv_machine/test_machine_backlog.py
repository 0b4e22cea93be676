"""The work in flight of a channel: what may run next, and that the time to find it does not grow."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any, cast

import pytest

from emulator.nv.engines.inflight import InFlight
from tests.emulator.nv_machine.client import Client, sem, wait_word
from tests.emulator.nv_machine.test_machine_copy import copy


@dataclass(eq=False)
class Step:
    """An operation as `InFlight` uses it, which counts how often it is looked at."""

    engine: str
    ordered: bool
    in_background: bool = False
    over: bool = False
    looks: list[int] = field(default_factory=lambda: [0])
    _number: int = 0

    @property
    def number(self) -> int:
        self.looks[0] += 1
        return self._number

    @number.setter
    def number(self, value: int) -> None:
        self._number = value

    def abandon(self) -> None:
        self.over = True


def by_definition(started: list[Step]) -> list[Step]:
    """Return the operations that may run: unordered ones, and the oldest of each engine."""
    live = [one for one in started if not one.over]
    first = {engine: next(o for o in live if o.engine == engine) for engine in {o.engine for o in live}}
    return [one for one in live if not one.ordered or one is first[one.engine]]


@pytest.mark.parametrize("seed", range(12))
def test_a_random_choice_is_that_from_all_operations_that_may_run(seed: int):
    rng = random.Random(seed)
    flights, started, begun = cast("Any", InFlight()), [], set()
    for _ in range(300):
        if rng.random() < 0.55:
            started.append(Step(rng.choice("abc"), ordered=rng.random() < 0.6))
            flights.add(started[-1])
        may = by_definition(started)
        assert flights.computing is (bool(may) and all(one in begun for one in may))
        for engine in "abc":
            assert flights.any(engine) is any(o.engine == engine and not o.over for o in started)
        assert bool(flights) is flights.any() is any(not one.over for one in started)
        here = [one for one in may if not one.in_background]
        ready = flights.ready()
        assert bool(ready) is bool(here)
        if not here:
            for one in started:
                one.in_background = False
            continue
        number = rng.getrandbits(32)
        chosen = ready.choose(random.Random(number))
        assert chosen is random.Random(number).choice(here)
        over = rng.random() < 0.5
        flights.ran(chosen, over=over)
        begun.add(chosen)
        chosen.in_background = not over and rng.random() < 0.5
    assert set(flights) == {one for one in started if not one.over}
    flights.abandon()
    assert not flights
    assert all(one.over for one in started)


def looks(count: int, *, ordered: bool) -> int:
    """Return how often operations are looked at while a backlog is run off."""
    seen, rng, flights = [0], random.Random(1), cast("Any", InFlight())
    for _ in range(count):
        flights.add(Step("copy", ordered, looks=seen))
    for _ in range(count):
        flights.ran(flights.ready().choose(rng), over=True)
    assert not flights
    return seen[0]


@pytest.mark.parametrize("ordered", [True, False])
def test_a_backlog_is_run_off_in_linear_time(*, ordered: bool):
    assert looks(4000, ordered=ordered) < 3 * looks(2000, ordered=ordered)
    assert looks(4000, ordered=ordered) < 40 * 4000


def test_copies_and_the_release_behind_them_finish_from_a_backlog(up: Client):
    ring, memory = up.copy_channel(), up.memory(1 << 16)
    memory.view[:64] = bytes(range(64))
    words = [word for at in range(64, 1 << 12, 64) for word in copy(memory.va + at - 64, memory.va + at, 64)]
    ring.push(words + sem(memory.va + 0x8000, 2, RELEASE_WFI=True))
    wait_word(memory, 0x8000, 2, up)
    assert bytes(memory.view[: 1 << 12]) == bytes(range(64)) * 64
