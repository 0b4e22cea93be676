"""What semaphores order: which release made a word what it is, and which work a wait for it happens after.

Happens-before is kept as vector clocks (`Known`): for each stream, how many pieces of its work are done. A
word is identified by its host address, so it is one word whatever device addresses queues and devices have
for it. A wait takes over the clock of the release that made its condition true, and of no later one: it could
have ended before that. A plain release replaces the word's clock; a reduction joins its own to it. Host
writes create no ordering edge: what the host observed is unknown. All that it may have observed is joined to
its next doorbell.

Needs of its vendor that every release is noted just before it becomes visible. Not here: which accesses
race (`races`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

Stream = tuple[int, str]
"""A queue's number and an engine."""
Known = dict[Stream, int]
"""A vector clock: how many pieces of each stream's work are known to be done."""

_REMEMBERED: Final = 64


def join(into: Known, other: Known) -> None:
    """Raise each component of a clock to that of another."""
    for stream, count in other.items():
        if into.get(stream, 0) < count:
            into[stream] = count


@dataclass(frozen=True, slots=True)
class Written:
    """A store of an engine to a semaphore's word."""

    at: int
    """Its host address."""
    old: int
    new: int
    adds: bool
    """Whether it is made of the old value: a reduction."""
    bits: int = 64


class _Told(NamedTuple):
    """A value that a word had, and the clock of the queue that wrote it; queue 0 is the host."""

    value: int
    queue: int
    known: Known


class Releases:
    """The words that queues of all machines released, and what the host may have seen.

    Each machine notes and reads on a thread of its own. Values are replaced, never changed in place, and each
    is replaced by one queue alone, except words that several release. So no lock is needed, which a fork
    could copy while held.
    """

    def __init__(self) -> None:
        self._words: dict[int, tuple[_Told, ...]] = {}
        """Of each word the values since the host last wrote it, the latest last."""
        self._seen: dict[int, Known] = {}
        """Of each queue the clock of its releases."""

    def host(self) -> Known:
        """Return what the host may have seen done: all that living queues released."""
        seen: Known = {}
        for known in list(self._seen.values()):
            join(seen, known)
        return seen

    def note(self, queue: int, one: Written, known: Known) -> None:
        """Take note, just before, that a queue with this clock writes a word."""
        before = self._words.get(one.at, ())
        if not before or before[-1].value != one.old:
            before = (_Told(one.old, 0, {}),)
        told = dict(known)
        if one.adds:
            join(told, before[-1].known)
        self._words[one.at] = (*before[1 - _REMEMBERED :], _Told(one.new, queue, told))
        seen = dict(self._seen.get(queue, {}))
        join(seen, known)
        self._seen[queue] = seen

    def learn(self, at: int, value: int, bits: int, ends: Callable[[int], bool]) -> Known:
        """Return the clock of the release that ended a wait; `value` was seen, `ends` tests values."""
        mask = (1 << bits) - 1
        told = self._words.get(at, ())
        last = next((i for i in reversed(range(len(told))) if told[i].value & mask == value), None)
        if last is None:
            return {}
        first = last
        while first and ends(told[first - 1].value & mask):
            first -= 1
        return told[first].known

    def gone(self, queue: int) -> None:
        """Drop a freed queue: whatever the host does comes after its work."""
        self._seen.pop(queue, None)

    def forget(self, queues: Collection[int]) -> None:
        """Drop the words that only these queues released."""
        for at, told in list(self._words.items()):
            if {one.queue for one in told} <= {0, *queues}:
                self._words.pop(at, None)


RELEASES: Final = Releases()
"""One for the process, because its memory is: engines of several devices release the same words."""
