"""The clock that a wait joins: that of the release that ended it, not of a later one."""

from __future__ import annotations

from drivers.nv.layouts.host import SemOperation
from emulator.nv.engines.semaphore import Acquire
from emulator.shared.waits import Releases, SemaphoreStore, VectorClock

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


def test_a_wait_is_ordered_after_the_releases_of_its_word() -> None:
    told = Releases()
    release(told, 0, 1, {ONE: 5})
    release(told, 0, 1, {TWO: 7}, at=ELSEWHERE)
    assert learned(told, 1, 1) == {ONE: 5}
    assert learned(told, 1, 1, at=ELSEWHERE) == {TWO: 7}


def test_an_unreleased_word_orders_nothing() -> None:
    told = Releases()
    release(told, 0, 1, {ONE: 5}, at=ELSEWHERE)
    assert learned(told, 1, 1) == {}


def test_an_unreleased_value_orders_nothing() -> None:
    told = Releases()
    release(told, 0, 1, {ONE: 5})
    assert learned(told, 2, 2) == {}


def test_a_late_wait_is_ordered_only_after_its_value() -> None:
    told = Releases()
    release(told, 0, 1, {ONE: 5})
    release(told, 1, 2, {ONE: 6})
    assert learned(told, 1, 2) == {ONE: 5}
    assert learned(told, 2, 2) == {ONE: 6}


def test_a_release_after_others_of_the_same_word_starts_a_new_sequence() -> None:
    told = Releases()
    release(told, 0, 1, {ONE: 5})
    release(told, 1, 2, {TWO: 7})
    assert learned(told, 2, 2) == {TWO: 7}


def test_a_semaphore_reduction_extends_the_release_sequence() -> None:
    told = Releases()
    release(told, 0, 1, {ONE: 5}, adds=True)
    release(told, 1, 2, {TWO: 7}, adds=True)
    assert learned(told, 2, 2) == {ONE: 5, TWO: 7}


def test_a_host_store_ends_the_release_sequence() -> None:
    told = Releases()
    release(told, 0, 1, {ONE: 5})
    release(told, 0, 1, {TWO: 7}, adds=True)
    assert learned(told, 1, 1) == {TWO: 7}


def test_a_word_that_decreases_and_rises_orders_by_its_last_release() -> None:
    told = Releases()
    release(told, 0, 1, {ONE: 5})
    release(told, 1, 0, {TWO: 7})
    release(told, 0, 1, {THREE: 9})
    assert learned(told, 1, 1) == {THREE: 9}


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


def test_a_long_history_drops_its_oldest_entries() -> None:
    told = Releases()
    for value in range(1000):
        release(told, value, value + 1, {ONE: value + 1})
    assert learned(told, 1000, 1000) == {ONE: 1000}
    assert learned(told, 1, 1000) == {ONE: 937}
