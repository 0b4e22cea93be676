"""Semaphores: the order that waits create, and waits that never end.

Happens-before is represented by vector clocks (`VectorClock`): for each stream, the number of pieces of its
work that are done. A word is identified by its host address, because queues and devices may map it at
different device addresses. A wait joins the clock of the release that made its condition true, not of a later
release, because the wait could have ended before the later one. A plain release replaces the word's clock. A
reduction joins its clock to the word's. Writes of the host create no order, because it is unknown which
values the host has observed. Instead, the host's next doorbell joins the clocks of all releases that it may
have observed. The vendor records every release immediately before it becomes visible.

A wait never ends in a deadlock, or when the one value that it needs has passed. The host may also write a
semaphore, and submit more to any queue. So a wait counts as endless in two cases
only:

- every release of the least value that ends the wait comes later in the stream of a queue that itself waits
  without end;
- the wait needs one exact value, and the word, which only rises, has passed it.

A later release of a greater value does not make a wait endless: queues may share a timeline, so another queue
may store the values between.

Not here: how a vendor's queue finds its later releases (`emulator.nv.engines.semaphore`), which accesses
race. Next: `races`.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

Stream = tuple[int, str]
"""The number of a queue and the name of an engine."""
VectorClock = dict[Stream, int]
"""A vector clock: stream -> the number of pieces of its work that are known to be done."""

_RELEASES_KEPT: Final = 64
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
        self._words[one.at] = (*before[1 - _RELEASES_KEPT :], _WordValue(one.new, queue, told))
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


_REMEMBERED = 64


class QueueWait(Protocol):
    """A queue's wait for a semaphore; `str` of a wait describes the condition."""

    @property
    def va(self) -> int:
        """Device address of the word."""

    @property
    def bits(self) -> int:
        """Number of bits that are compared."""

    @property
    def payload(self) -> int:
        """The value that the word is compared with."""

    @property
    def equality(self) -> bool:
        """Whether only the exact payload ends the wait."""

    def satisfied(self, value: int) -> bool:
        """Return whether a value of the word ends the wait."""


class ReleasePromise(Protocol):
    """A release that a queue has not reached yet."""

    @property
    def va(self) -> int:
        """Device address of the word."""

    @property
    def payload(self) -> int:
        """The value that it will write."""


class WaitingQueue(Protocol):
    """A queue as deadlock detection uses it."""

    @property
    def name(self) -> str:
        """Its name in reports."""

    @property
    def at(self) -> str:
        """The position in its stream at which it waits."""

    @property
    def waiting(self) -> QueueWait | None:
        """The wait that blocks it, or None."""


W = TypeVar("W", bound=WaitingQueue)


def find_deadlock(
    blocked: Sequence[W], promised: Callable[[W], Iterable[ReleasePromise]]
) -> dict[W, str] | None:
    """Return the queues of one cycle of waits, each with a description of the cycle; None if there is none.

    `blocked` are queues that can only wait; `promised` returns the later releases in the stream of a queue.
    """
    edges: dict[int, list[tuple[W, ReleasePromise]]] = {}
    promises = {id(queue): list(promised(queue)) for queue in blocked}
    for queue in blocked:
        wait = queue.waiting
        if wait is not None:
            edges[id(queue)] = [
                (other, one) for other in blocked for one in promises[id(other)] if _ends(wait, one)
            ]
    while free := [
        waiter for waiter, ways in edges.items() if not ways or any(id(one) not in edges for one, _ in ways)
    ]:
        for waiter in free:
            del edges[waiter]
    for queue in blocked:
        cycle = _cycle(queue, edges)
        if cycle:
            words = "; ".join(_describe(one, edges) for one in cycle)
            return dict.fromkeys(cycle, f"queues wait for each other: {words}")
    return None


def _ends(wait: QueueWait, one: ReleasePromise) -> bool:
    """Return whether a release stores the least value that ends a wait."""
    whole = (1 << wait.bits) - 1
    value = one.payload & whole
    return one.va == wait.va and wait.satisfied(value) and not wait.satisfied((value - 1) & whole)


def _cycle(start: W, edges: Mapping[int, Sequence[tuple[W, ReleasePromise]]]) -> list[W]:
    """Return a cycle of waits that is reachable from a queue; empty if there is none."""
    path: list[W] = []
    queue = start
    while all(queue is not one for one in path):
        path.append(queue)
        following = edges.get(id(queue), [])
        if not following:
            return []
        queue = following[0][0]
    first = next(i for i, one in enumerate(path) if one is queue)
    return path[first:]


def _describe(queue: W, edges: Mapping[int, Sequence[tuple[W, ReleasePromise]]]) -> str:
    other, one = edges[id(queue)][0]
    who = "itself" if other is queue else other.name
    later = f"which {who} would release with {one.payload:#x} later"
    return f"{queue.name} does {queue.waiting} ({queue.at}), {later}"


@dataclass(slots=True)
class _Word:
    """The recent values that engines wrote to a word."""

    values: deque[int] = field(default_factory=lambda: deque(maxlen=_REMEMBERED))
    rising: bool = True
    """Whether each value exceeds the one before, and nothing else wrote the word in between."""
    bits: int = 64
    """Width of the last store in bits."""
    by: str = ""
    """A description of the origin of the last store."""


class SemaphoreHistory:
    """The recent values that engines of a machine wrote to semaphores, by host address.

    The vendor records every store to a semaphore immediately before it becomes visible.
    """

    def __init__(self) -> None:
        self._words: dict[int, _Word] = {}

    def width(self, at: int) -> int:
        """Return the width in bits of the last engine store to a word; 0 if there was none."""
        word = self._words.get(at)
        return 0 if word is None else word.bits

    def writer(self, at: int) -> str:
        """Return a description of the origin of the last engine store to a word; "" if there was none."""
        word = self._words.get(at)
        return "" if word is None else word.by

    def forget(self, start: int, end: int) -> None:
        """Drop the words in [start, end), whose memory is freed."""
        for at in [at for at in self._words if start <= at < end]:
            del self._words[at]

    def record(self, one: SemaphoreStore) -> None:
        """Record a store that is about to become visible."""
        word = self._words.get(one.at)
        if word is None or (word.values and one.old != word.values[-1] and one.old == 0):
            word = self._words[one.at] = _Word()  # new, or reset by its owner
        if (word.values and one.old != word.values[-1]) or one.new <= one.old:
            word.rising = False
        word.values.append(one.new)
        word.bits, word.by = one.bits, one.by

    def passed(self, at: int, wait: QueueWait, seen: int) -> bool:
        """Return whether an equality wait never ends: the word had the value, rose above it, and never fell.

        `at` is the host address of the word, `seen` its current value. False if the host wrote the word
        since.
        """
        word = self._words.get(at)
        return (
            word is not None
            and wait.equality
            and word.rising
            and seen > wait.payload
            and word.values[-1] == seen
            and wait.payload in word.values
        )
