"""The order that semaphores create: the releases of each word, and the work that a wait is ordered after.

Happens-before is represented by vector clocks (`VectorClock`): for each stream, the number of pieces of its
work that are done. A word is identified by its host address, because queues and devices may map it at
different device addresses. A wait joins the clock of the release that made its condition true, not of a later
release, because the wait could have ended before the later one. A plain release replaces the word's clock. A
reduction joins its clock to the word's. Writes of the host create no order, because it is unknown which
values the host has observed. Instead, the host's next doorbell joins the clocks of all releases that it may
have observed.

The vendor records every release immediately before it becomes visible.

Not here: which accesses race (`races`). Next: `waits`, waits that never end.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

Stream = tuple[int, str]
"""The number of a queue and the name of an engine."""
VectorClock = dict[Stream, int]
"""A vector clock: stream -> the number of pieces of its work that are known to be done."""

_REMEMBERED: Final = 64
"""The most values that are kept for a word."""


def join(into: VectorClock, other: VectorClock) -> None:
    """Set each component of a clock to the maximum of both clocks."""
    for stream, count in other.items():
        if into.get(stream, 0) < count:
            into[stream] = count


@dataclass(frozen=True, slots=True)
class SemaphoreStore:
    """A store of an engine to the word of a semaphore."""

    at: int
    """The host address of the word."""
    old: int
    new: int
    adds: bool
    """Whether the new value depends on the old one: a reduction."""
    bits: int = 64
    """The width of the store in bits."""
    by: str = ""
    """A description of the store's origin, for reports."""


class _WordValue(NamedTuple):
    """A value of a word, and the clock of the queue that wrote it; queue 0 is the host."""

    value: int
    queue: int
    known: VectorClock


class Releases:
    """The semaphore words that queues of all machines released, and the releases that the host may have seen.

    Each machine records and reads on its own thread. There is no lock, because a fork could copy a held one.
    Values are replaced, never changed in place. Of two simultaneous releases of one word one may be lost.
    """

    def __init__(self) -> None:
        self._words: dict[int, tuple[_WordValue, ...]] = {}
        """Host address of a word -> its values since the host last wrote it, the latest last."""
        self._seen: dict[int, VectorClock] = {}
        """Number of a queue -> the joined clock of its releases."""

    def host(self) -> VectorClock:
        """Return the joined clock of all releases of live queues: the host may have observed each."""
        seen: VectorClock = {}
        for known in list(self._seen.values()):
            join(seen, known)
        return seen

    def record(self, queue: int, one: SemaphoreStore, known: VectorClock) -> None:
        """Record that queue number `queue`, whose clock is `known`, is about to write a word."""
        before = self._words.get(one.at, ())
        if not before or before[-1].value != one.old:
            before = (_WordValue(one.old, 0, {}),)
        told = dict(known)
        if one.adds:
            join(told, before[-1].known)
        self._words[one.at] = (*before[1 - _REMEMBERED :], _WordValue(one.new, queue, told))
        seen = dict(self._seen.get(queue, {}))
        join(seen, known)
        self._seen[queue] = seen

    def clock_after_wait(self, at: int, value: int, bits: int, ends: Callable[[int], bool]) -> VectorClock:
        """Return the clock of the release that ended a wait for the word at host address `at`.

        `value` is the value of `bits` bits that the wait read; `ends` returns whether a value ends the wait.
        The clock is empty if no recorded release wrote that value, or the host did.
        """
        mask = (1 << bits) - 1
        told = self._words.get(at, ())
        last = next((i for i in reversed(range(len(told))) if told[i].value & mask == value), None)
        if last is None:
            return {}
        first = last
        while first and ends(told[first - 1].value & mask):
            first -= 1
        return told[first].known

    def released(self, at: int) -> bool:
        """Return whether a queue released the word at a host address."""
        return at in self._words

    def drop_queue(self, queue: int) -> None:
        """Drop the releases of a freed queue from the clock of the host."""
        self._seen.pop(queue, None)

    def forget(self, queues: Collection[int]) -> None:
        """Drop the words that only these queues and the host wrote."""
        for at, told in list(self._words.items()):
            if {one.queue for one in told} <= {0, *queues}:
                self._words.pop(at, None)


RELEASES: Final = Releases()
"""One instance for the process: engines of several devices release words in the same memory."""
