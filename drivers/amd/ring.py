"""Rings of PM4 and of SDMA packets: words into the ring, the write pointer, the doorbell.

A submission lies in one piece: what is left before the ring's end is filled with NOPs. Both kinds count here
in words of 32 bits; the SDMA engine's pointers count bytes. Not here: AQL packets (`aql_ring`), how queues
are made (`queues`).
"""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING, Final

from drivers.amd.hardware_ring import HardwareRing, nothing_known
from drivers.amd.layouts import pm4, sdma
from drivers.amd.queues import Packets

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from drivers.amd.queues import HwQueue
    from hcq.errors import FaultReport

_FILLERS: Final = {Packets.PM4: pm4.NOP_ONE_DWORD, Packets.SDMA: sdma.NOP_WORD}
_KEPT_FREE: Final = {Packets.PM4: 1, Packets.SDMA: sdma.ALIGN_WORDS}
"""Words of a full ring that stay free, so that full and empty differ."""

_LEAST: Final = sdma.Fence.WORDS
"""Words of a submission at least: it ends with a fence, or with a release, which is longer."""


class AmdRing(HardwareRing):
    """One ring of words. Not thread-safe: the queue above holds its lock."""

    def __init__(
        self,
        queue: HwQueue,
        *,
        refresh: Callable[[], Sequence[int]],
        fault: Callable[[], FaultReport | None],
        fence: Callable[[], None],
        known: Callable[[int], str] = nothing_known,
    ) -> None:
        super().__init__(queue, refresh=refresh, fault=fault, fence=fence, known=known)
        self._size = len(self._words)
        self._mask = self._size - 1
        self._shift = 2 if queue.packets is Packets.SDMA else 0
        """The pointers of memory and doorbell are words shifted left by it."""
        self._filler = _FILLERS[queue.packets]
        self._kept_free = _KEPT_FREE[queue.packets]
        # In the worst case as much again is filled before the ring's end.
        self.words = self._size // 2 - self._kept_free
        self.submissions = (self._size - self._kept_free) // _LEAST
        self.attach()

    def attach(self) -> None:
        """Start on the queue, which was made anew and is empty."""
        super().attach()
        self._limit = self._size - self._kept_free
        """How far words may be written before the read pointer is asked: to what was read, or to the end."""

    def send(self, words: Sequence[int], calls: Sequence[tuple[int, int]] = ()) -> None:
        """Send words as they are. No `calls`: indirect buffers are packets among the words."""
        assert not calls
        count, put = len(words), self._put
        if put + count > self._limit or count > self.words:
            put = self._make_room(count)
        if words.__class__ is not array:
            words = array("I", words)
        at = put & self._mask
        self._words[at : at + count] = words
        self._put = put = put + count
        position = put << self._shift
        queue, fence = self.queue, self._fence
        fence()
        queue.write_pointer[0] = position
        fence()
        queue.ring_doorbell(position)

    def _make_room(self, count: int) -> int:
        """Wait until `count` words in one piece are free; return where they begin, in words ever written."""
        self._refuse_longer(count)
        put, left = self._put, self._size - (self._put & self._mask)
        start = put if count <= left else put + left
        free = self._size - self._kept_free
        while (free_to := self.read() + free) < start + count:
            self._wait_for_room(start + count - free)
        if start > put:
            at = put & self._mask
            self._words[at:] = array("I", (self._filler,)) * left
            # The queue reads them with what follows: they are behind its write pointer until then.
        end = start - (start & self._mask) + self._size
        self._limit = min(free_to, end)
        return start

    def read(self) -> int:
        """Return how many words the queue has read, of all that were ever written."""
        seen = self.queue.read_pointer[0]
        if self.queue.packets is Packets.SDMA:
            return seen >> 2
        # An index that wraps at the ring's size; its upper half means nothing.
        return self._put - ((self._put - seen) & self._mask)

    def unread(self, ending_words: int) -> int:
        """Return the words of a submission that are unread while the queue waits inside it, at least.

        They are its end, and a word of the wait.
        """
        return ending_words + 1

    def position(self) -> str:
        """Return how far the ring was read, and where in it; empty when all was."""
        text = super().position()
        return f"{text}, the next at word {self.read() & self._mask} of the ring" if text else ""
