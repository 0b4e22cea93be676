"""What semaphores pass on: which release made a word what it is, and what a wait for it learns.

A word is known by where it lies in this process, so that it is one word whatever addresses channels, and
devices, have for it. A wait learns what the release knew that made its condition true, and what no later one
knew: it could have ended before that. A plain release begins anew; a reduction passes on what the word told
before, too. A value that no engine released is the host's, whose eyes nobody can follow: it tells nothing.
What the host has seen it tells with its next doorbell.

Not here: who races with whom (`races`), what is written (`semaphore`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from drivers.nv.emu.engines.semaphore import Written

Stream = tuple[int, str]
"""A channel's number and an engine."""
Known = dict[Stream, int]
"""How many pieces of a stream's work are known to be done."""

_REMEMBERED: Final = 64


def join(into: Known, other: Known) -> None:
    """Make one know what another knows."""
    for stream, count in other.items():
        if into.get(stream, 0) < count:
            into[stream] = count


class _Told(NamedTuple):
    """A value that a word had, and what the channel that wrote it knew; 0 is the host."""

    value: int
    channel: int
    known: Known


class Releases:
    """The words that channels of all machines released, and what the host may have seen.

    Each machine notes and asks on a thread of its own. What is kept is replaced, never changed, and but for
    words that several release by one channel alone: so no lock is needed, which a fork could copy while held.
    """

    def __init__(self) -> None:
        self._words: dict[int, tuple[_Told, ...]] = {}
        """Of each word the values since the host last wrote it, the latest last."""
        self._seen: dict[int, Known] = {}
        """Of each channel what its releases made known."""

    def host(self) -> Known:
        """Return what the host may have seen done: all that living channels released."""
        seen: Known = {}
        for known in list(self._seen.values()):
            join(seen, known)
        return seen

    def note(self, channel: int, one: Written, known: Known) -> None:
        """Take note, just before, that a channel that knows this writes a word."""
        before = self._words.get(one.at, ())
        if not before or before[-1].value != one.old:
            before = (_Told(one.old, 0, {}),)
        told = dict(known)
        if one.adds:
            join(told, before[-1].known)
        self._words[one.at] = (*before[1 - _REMEMBERED :], _Told(one.new, channel, told))
        seen = dict(self._seen.get(channel, {}))
        join(seen, known)
        self._seen[channel] = seen

    def learn(self, at: int, value: int, bits: int, ends: Callable[[int], bool]) -> Known:
        """Return what a wait learns that saw a word's value; `ends` says which values end it."""
        mask = (1 << bits) - 1
        told = self._words.get(at, ())
        last = next((i for i in reversed(range(len(told))) if told[i].value & mask == value), None)
        if last is None:
            return {}
        first = last
        while first and ends(told[first - 1].value & mask):
            first -= 1
        return told[first].known

    def gone(self, channel: int) -> None:
        """A channel is no more: whatever the host does comes after its work."""
        self._seen.pop(channel, None)

    def forget(self, channels: Collection[int]) -> None:
        """Forget the words that none but these released."""
        for at, told in list(self._words.items()):
            if {one.channel for one in told} <= {0, *channels}:
                self._words.pop(at, None)


RELEASES: Final = Releases()
"""One for the process, because its memory is: engines of several devices release the same words."""
