"""The order that semaphores create: which release set a word's value, and what a wait for it happens after.

Happens-before is represented by vector clocks (`VectorClock`): for each stream, how many pieces of its work
are done. A word is identified by its host address, because queues and devices may map it at different device
addresses. A wait joins the clock of the release that made its condition true, not of a later release: the
wait could have ended before that. A plain release replaces the word's clock; a reduction joins its clock to
it. Host writes create no ordering edge, because what the host observed is unknown. Everything that the host
may have observed is joined at its next doorbell.

The vendor records every release immediately before it becomes visible. Not here: which accesses race
(`races`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

Stream = tuple[int, str]
"""The number of a queue and the name of an engine."""
VectorClock = dict[Stream, int]
"""A vector clock: how many pieces of each stream's work are known to be done."""

_REMEMBERED: Final = 64


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
    by: str = ""
    """What stores it, for reports."""


class _WordValue(NamedTuple):
    """A value of a word, and the clock of the queue that wrote it; queue 0 is the host."""

    value: int
    queue: int
    known: VectorClock


class Releases:
    """The semaphore words that queues of all machines released, and what the host may have observed of them.

    Each machine records and reads on its own thread. Values are replaced, never changed in place, and each is
    replaced by one queue only, except words that several queues release. Therefore no lock is needed, which a
    fork could copy while it is held.
    """

    def __init__(self) -> None:
        self._words: dict[int, tuple[_WordValue, ...]] = {}
        """Host address of a word -> its values since the host last wrote it, the latest last."""
        self._seen: dict[int, VectorClock] = {}
        """Number of a queue -> the joined clock of its releases."""

    def host(self) -> VectorClock:
        """Return the clock of everything that the host may have observed: all releases of live queues."""
        seen: VectorClock = {}
        for known in list(self._seen.values()):
            join(seen, known)
        return seen

    def record(self, queue: int, one: SemaphoreStore, known: VectorClock) -> None:
        """Record that a queue with the clock `known` is about to write a word."""
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
        """Return the clock of the release that ended a wait.

        `value` is what the wait read, of `bits` bits; `ends` returns whether a value ends the wait.
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
        """Drop a freed queue: everything that the host does next is ordered after its work."""
        self._seen.pop(queue, None)

    def forget(self, queues: Collection[int]) -> None:
        """Drop the words that only these queues released."""
        for at, told in list(self._words.items()):
            if {one.queue for one in told} <= {0, *queues}:
                self._words.pop(at, None)


RELEASES: Final = Releases()
"""One instance for the process: engines of several devices release words in the same memory."""
