"""Work of a channel: what may run next, the clock that a wait joins, pauses, fills that are far too long."""

from __future__ import annotations

import random
import struct
import tracemalloc
from dataclasses import dataclass, field
from typing import Any, cast

import pytest

from drivers.nv.layouts.dma import DmaMethod, RemapComponents, RemapSource
from drivers.nv.layouts.fault import RcCode
from drivers.nv.layouts.host import SemOperation
from emulator.nv.engines.inflight import InFlight
from emulator.nv.engines.semaphore import Acquire
from emulator.shared.waits import Releases, SemaphoreStore, VectorClock
from tests.emulator.nv_machine.client import Client, method, sem, wait_word
from tests.emulator.nv_machine.copying import copy


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


AT, ELSEWHERE = 0x1000, 0x2000
ONE, TWO, THREE = (1, "copy"), (2, "compute"), (3, "copy")


def release(
    told: Releases, old: int, new: int, known: VectorClock, *, at: int = AT, adds: bool = False
) -> None:
    ((channel, _), *_) = known
    told.record(channel, SemaphoreStore(at, old, new, adds=adds), known)


def learned(told: Releases, wanted: int, value: int, *, at: int = AT, bits: int = 64) -> VectorClock:
    wait = Acquire(at, SemOperation.ACQ_STRICT_GEQ, wanted, bits)
    return told.clock_after_wait(at, value, bits, wait.satisfied)


Stored = tuple[int, int, VectorClock]
SEQUENCES: dict[str, tuple[list[Stored], bool, int, int, VectorClock]] = {
    "the release of the value": ([(0, 1, {ONE: 5})], False, 1, 1, {ONE: 5}),
    "no release of the word": ([], False, 1, 1, {}),
    "no release of the value": ([(0, 1, {ONE: 5})], False, 2, 2, {}),
    "a late wait": ([(0, 1, {ONE: 5}), (1, 2, {ONE: 6})], False, 1, 2, {ONE: 5}),
    "a wait for the second value": ([(0, 1, {ONE: 5}), (1, 2, {ONE: 6})], False, 2, 2, {ONE: 6}),
    "a release of another channel": ([(0, 1, {ONE: 5}), (1, 2, {TWO: 7})], False, 2, 2, {TWO: 7}),
    "reductions": ([(0, 1, {ONE: 5}), (1, 2, {TWO: 7})], True, 2, 2, {ONE: 5, TWO: 7}),
    "a store of the host between": ([(0, 1, {ONE: 5}), (0, 1, {TWO: 7})], True, 1, 1, {TWO: 7}),
    "a value that falls and rises": ([(0, 1, {ONE: 5}), (1, 0, {TWO: 7}), (0, 1, {THREE: 9})], False, 1, 1,
        {THREE: 9}),
    "the newest are kept": ([(v, v + 1, {ONE: v + 1}) for v in range(1000)], False, 1000, 1000,
        {ONE: 1000}),
    "the oldest are dropped": ([(v, v + 1, {ONE: v + 1}) for v in range(1000)], False, 1, 1000, {ONE: 937}),
}  # fmt: skip
"""Stores, whether they add; the value that is waited for and the one seen; what is known then."""


@pytest.mark.parametrize("what", SEQUENCES)
def test_a_wait_is_ordered_after_the_releases_that_made_it_true(what: str) -> None:
    steps, adds, wanted, value, known = SEQUENCES[what]
    told = Releases()
    release(told, 0, 1, {TWO: 8}, at=ELSEWHERE)
    for old, new, clock in steps:
        release(told, old, new, clock, adds=adds)
    assert learned(told, wanted, value) == known
    assert learned(told, 1, 1, at=ELSEWHERE) == {TWO: 8}


def test_a_wait_of_32_bits_compares_the_low_half() -> None:
    told = Releases()
    release(told, 0, 1 << 32 | 3, {ONE: 5})
    assert learned(told, 3, 3, bits=32) == {ONE: 5}


def test_host_state_covers_releases_of_live_channels() -> None:
    told = Releases()
    release(told, 0, 1, {ONE: 5})
    release(told, 0, 1, {TWO: 7, ONE: 6}, at=ELSEWHERE)
    assert told.host() == {ONE: 6, TWO: 7}
    told.drop_queue(TWO[0])
    assert told.host() == {ONE: 5}


def test_releases_of_freed_channels_order_nothing() -> None:
    told = Releases()
    release(told, 0, 1, {ONE: 5})
    release(told, 0, 1, {TWO: 7}, at=ELSEWHERE)
    told.forget({ONE[0]})
    assert learned(told, 1, 1) == {}
    assert learned(told, 1, 1, at=ELSEWHERE) == {TWO: 7}


def test_waiting_work_continues_after_a_pause_without_another_doorbell(up: Client):
    ring, memory = up.copy_channel(), up.memory(4096, system=True)
    scheduler = up.machine.scheduler
    ring.push(sem(memory.va, 1, SemOperation.ACQ_STRICT_GEQ) + sem(memory.va + 64, 7))
    scheduler.close()
    struct.pack_into("<Q", memory.view, 0, 1)
    assert not scheduler.running
    assert struct.unpack_from("<Q", memory.view, 64) == (0,)
    scheduler.resume()
    wait_word(memory, 64, 7, up)


def test_nothing_is_started_when_there_is_nothing_to_go_on_with(up: Client):
    up.machine.scheduler.resume()
    assert up.machine.scheduler.running is False


def test_a_fill_of_many_gigabytes_faults_before_its_bytes_are_made(up: Client) -> None:
    ring, memory = up.copy_channel(), up.memory(1 << 16)
    remap = RemapComponents(
        DST_X=RemapSource.CONST_A,
        COMPONENT_SIZE=3,
        NUM_SRC_COMPONENTS=0,
        NUM_DST_COMPONENTS=0,
    )
    words = method(4, DmaMethod.SET_REMAP_CONST_A, 7)
    words += method(4, DmaMethod.SET_REMAP_COMPONENTS, int(remap))
    words += copy(memory.va, memory.va, 0xFFFF_FFFF, REMAP_ENABLE=True)
    tracemalloc.start()
    try:
        ring.push(words)
        assert ring.wait_error() == RcCode.MMU_FAULT
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most < 1 << 30
