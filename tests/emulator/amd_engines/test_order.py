"""What a queue's work comes after."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from drivers.amd.layouts.kfd import QueueType
from drivers.amd.layouts.pm4 import Function
from emulator.amd.engines.order import OrderWatch, QueueClock
from emulator.amd.engines.packets import PacketWait
from emulator.ir.library import Sanitizers
from emulator.shared.waits import RELEASES, SemaphoreStore

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.emulator.amd_engines.conftest import Bench

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
