"""Doorbells, write pointers, read pointers (facts: R1 to R6), and what a queue's work comes after."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from drivers.amd.layouts.kfd import QueueType
from drivers.amd.layouts.pm4 import Function
from emulator.amd.engines.order import OrderWatch, QueueClock
from emulator.amd.engines.packets import PacketWait
from emulator.amd.reports import QueueFault
from emulator.ir.library import Sanitizers
from emulator.shared.waits import RELEASES, SemaphoreStore
from tests.emulator.amd_engines.conftest import DATA, RING, RING_BYTES, Bench

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.emulator.amd_engines.conftest import Bench


NOP = 0xFFFF1000


def write_data(va: int, value: int) -> tuple[int, ...]:
    return (0xC0033700, 5 << 8 | 1 << 20, va & 0xFFFF_FFFF, va >> 32, value)


def test_a_doorbell_without_its_write_pointer_is_refused(bench: Callable[..., Bench]) -> None:
    b = bench()
    b.write(NOP)
    with pytest.raises(QueueFault, match="write pointer in memory is 0x0"):
        b.run.rung(1)


def test_a_doorbell_that_goes_back_is_refused(bench: Callable[..., Bench]) -> None:
    b = bench()
    b.do(NOP, NOP)
    b.put64(b.queue.wptr_va, 1)
    with pytest.raises(QueueFault, match="went back"):
        b.run.rung(1)


def test_a_ring_that_overflows_is_refused(bench: Callable[..., Bench]) -> None:
    b = bench()
    b.write(*[NOP] * (RING_BYTES // 4))
    with pytest.raises(QueueFault, match="overflows"):
        b.ring()


@pytest.mark.parametrize("kind", [QueueType.COMPUTE, QueueType.SDMA])
def test_a_packet_overwritten_before_it_was_taken_is_found(
    bench: Callable[..., Bench], kind: QueueType
) -> None:
    b = bench(kind)
    b.write(NOP if kind is QueueType.COMPUTE else 0)
    b.ring()
    b.put(RING, 0x80000000)
    with pytest.raises(QueueFault, match="when the doorbell rang"):
        b.finish()


def test_the_read_index_of_pm4_wraps_with_the_ring(bench: Callable[..., Bench]) -> None:
    b = bench()
    for value in range(500):
        b.do(*write_data(DATA, value))
        assert b.get(b.queue.rptr_va) == [b.written // 4 % (RING_BYTES // 4)]
        assert b.get(DATA) == [value]


def test_the_read_pointer_of_sdma_counts_bytes_for_ever(bench: Callable[..., Bench]) -> None:
    b = bench(QueueType.SDMA)
    for _ in range(300):
        b.do(0, 0, 0, 0, 0, 0, 0, 0)
    assert b.get64(b.queue.rptr_va) == b.written == 300 * 32


def test_an_sdma_packet_may_not_go_beyond_the_ring_s_end(bench: Callable[..., Bench]) -> None:
    b = bench(QueueType.SDMA)
    for _ in range(1020 // 4):
        b.do(0, 0, 0, 0)
    b.write(0, 0, 0, 5 | 3 << 16, DATA, 0, 1)  # one dword is left for the fence
    b.ring()
    with pytest.raises(QueueFault, match="beyond its end"):
        b.finish()


def test_a_queue_that_is_mapped_again_reads_its_write_pointer(bench: Callable[..., Bench]) -> None:
    b = bench()
    b.write(*write_data(DATA, 7))
    b.put64(b.queue.wptr_va, b.written // 4)
    b.run.changed()  # as after a doorbell that was lost while the queue was unmapped
    b.finish()
    assert b.get(DATA) == [7]
    b.run.rung(b.written // 4)  # the doorbell that comes late changes nothing
    assert not b.run.busy


@pytest.mark.parametrize(("remaps", "seen"), [(True, 7), (False, 0)])
def test_words_before_their_doorbell_are_taken_by_a_queue_that_is_mapped_again(
    bench: Callable[..., Bench], *, remaps: bool, seen: int
) -> None:
    """Some boundary of 500 packets is one where the queue is mapped again, unless that is off."""
    b = bench(remaps=remaps)
    b.write(*(NOP,) * 500)
    b.ring()
    b.write(*write_data(DATA, 7))
    b.put64(b.queue.wptr_va, b.written // 4)
    b.finish()
    assert b.get(DATA) == [seen]
    b.ring()
    b.finish()
    assert b.get(DATA) == [7]


DONE, GATE = 0x1000, 0x2000


@pytest.fixture
def orders(bench: Callable[..., Bench]) -> Iterator[tuple[QueueClock, QueueClock]]:
    """A queue that released a word after one piece of its work, and another queue."""
    watch = OrderWatch.of(Sanitizers.all())
    assert watch is not None
    first, second = (QueueClock(watch, bench(QueueType.SDMA).queue) for _ in range(2))
    first.known[first.number, "copy"] = 1
    first.on_store(SemaphoreStore(DONE, 0, 1, adds=False, bits=32))
    yield first, second
    first.on_destroy()
    RELEASES.forget([first.number])


def test_a_wait_for_a_word_of_the_host_comes_after_what_the_host_may_have_observed(
    orders: tuple[QueueClock, QueueClock],
) -> None:
    first, second = orders
    second.on_wait_end(PacketWait("a wait", 0, 1, Function.GE), GATE, 1)
    assert second.known[first.number, "copy"] == 1


def test_a_wait_for_a_word_that_was_never_stored_to_comes_after_nothing(
    orders: tuple[QueueClock, QueueClock],
) -> None:
    _, second = orders
    second.on_wait_end(PacketWait("a wait", 0, 1, Function.NE), GATE, 0)
    assert second.known == {}


def test_a_wait_for_a_value_before_the_release_comes_after_nothing(
    orders: tuple[QueueClock, QueueClock],
) -> None:
    _, second = orders
    second.on_wait_end(PacketWait("a wait", 0, 0, Function.GE), DONE, 0)
    assert second.known == {}
