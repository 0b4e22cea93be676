"""Rings of PM4 and of SDMA packets: words into the ring, the write pointer, the doorbell.

A submission lies in one piece: what is left before the ring's end is filled with NOPs. Both kinds count here
in words of 32 bits; the SDMA engine's pointers count bytes. Not here: AQL packets (`aql_ring`), how queues
are made (`queues`).
"""

from __future__ import annotations

import time
from array import array
from typing import TYPE_CHECKING, Final

from drivers.amd.layouts import pm4, sdma
from drivers.amd.queues import Packets
from hcq.errors import DeviceFault, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from drivers.amd.queues import HwQueue
    from hcq.errors import FaultReport
    from hcq.pushbuffer import PushBuffer

_NAP_S: Final = 20e-6
_FILLERS: Final = {Packets.PM4: pm4.NOP_ONE_DWORD, Packets.SDMA: sdma.NOP_WORD}
_KEPT_FREE: Final = {Packets.PM4: 1, Packets.SDMA: sdma.ALIGN_WORDS}
"""Words of a full ring that stay free, so that full and empty differ."""


def nothing(_words: int) -> None:
    """Do nothing."""


class AmdRing:
    """One ring. Not thread-safe: the queue above holds its lock."""

    def __init__(
        self,
        queue: HwQueue,
        *,
        refresh: Callable[[], Sequence[int]],
        fault: Callable[[], FaultReport | None],
        fence: Callable[[], None],
    ) -> None:
        self.queue = queue
        self._refresh = refresh
        self._fault = fault
        self._fence = fence
        self.stalled: Callable[[int], None] = nothing
        """See `hcq.driver.Ring`; `words` and `submissions`, too."""
        view = queue.ring.view
        assert view is not None, "the ring is always mapped"
        self._words = view.cast("I")
        self._size = len(self._words)
        self._mask = self._size - 1
        self._shift = 2 if queue.packets is Packets.SDMA else 0
        """The pointers of memory and doorbell are words shifted left by it."""
        self._filler = _FILLERS[queue.packets]
        self._kept_free = _KEPT_FREE[queue.packets]
        # In the worst case as much again is filled before the ring's end.
        self.words = self._size // 2 - self._kept_free
        self.submissions = self.words
        self.closed = False
        self.attach()

    def attach(self) -> None:
        """Start on the queue, which was made anew and is empty."""
        self._put = 0
        """Words ever written."""
        self._limit = self._size - self._kept_free
        """How far one may write before one must look again: to what was not read, or to the ring's end."""
        self.stale = True
        """Set by the device: the next words must be preceded by those for new code."""

    @property
    def taken(self) -> int:
        """Words ever written; see `hcq.driver.Ring`."""
        return self._put

    def submit(self, pushbuffer: PushBuffer) -> None:
        """Make the words of `pushbuffer` visible and ring the bell; see `hcq.driver.Ring`."""
        if self.stale:
            before = self._refresh()
            if before:
                self.send(before)
            self.stale = False
        self.send(pushbuffer.words)

    def send(self, words: Sequence[int]) -> None:
        """Send words as they are."""
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
        queue.bell(position)

    def _make_room(self, count: int) -> int:
        """Wait until `count` words in one piece are free; return where they begin, in words ever written."""
        if count > self.words:
            raise UsageError(
                f"{count} words at once are larger than the ring takes, {self.words}; submit it in parts"
            )
        put, left = self._put, self._size - (self._put & self._mask)
        start = put if count <= left else put + left
        while True:
            free_to = self.read() + self._size - self._kept_free
            if start + count <= free_to:
                break
            report = self._fault()
            if report is not None:
                raise DeviceFault(report)
            self.stalled(count)
            time.sleep(_NAP_S)
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

    def stuck(self) -> str:
        """Say how far the ring was read; empty when all was."""
        read = self.read()
        if self.closed or not self.queue.created or read == self._put:
            return ""
        at = read & self._mask
        return f"{self.queue.label}: read {read} of {self._put} words, the next at word {at} of the ring"

    def close(self) -> None:
        """Destroy the queue, a kernel that hangs notwithstanding, and free its memory; idempotent."""
        if not self.closed:
            self.closed = True
            self.queue.close()
