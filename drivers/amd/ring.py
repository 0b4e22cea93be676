"""Rings of PM4 and of SDMA packets (words, write pointer, doorbell), and the part that all rings share.

All share their start, the wait for room, and their end. A submission lies in one piece: what is left before
the ring's end is filled with NOPs. Both kinds count here in words of 32 bits; the SDMA engine's pointers
count bytes.

Not here: AQL packets (`aql_ring`), how queues are made (`queues`).
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
"""Between two looks at the read pointer of a full ring."""


def nothing(_until: int) -> None:
    """Do nothing."""


def nothing_known(_queue: int) -> str:
    """Return no reports."""
    return ""


class HardwareRing:
    """The shared part of `hcq.driver.Ring`. Not thread-safe: the queue above holds its lock.

    A kind of ring sets `words` and `submissions`, calls `attach`, and has `send`, `read` and `attach` of its
    own.
    """

    words: int
    submissions: int
    unit = "words"
    """The unit of `taken` and `read`."""

    def __init__(
        self,
        queue: HwQueue,
        *,
        refresh: Callable[[], Sequence[int]],
        fault: Callable[[], FaultReport | None],
        fence: Callable[[], None],
        known: Callable[[int], str] = nothing_known,
    ) -> None:
        self.queue = queue
        self._refresh = refresh
        self._fault = fault
        self._fence = fence
        self._known = known
        """Returns the reports of the kernel's side when a queue, given its id, does not finish."""
        self.stalled: Callable[[int], None] = nothing
        """See `hcq.driver.Ring`; `words` and `submissions`, too."""
        view = queue.ring.view
        assert view is not None, "the ring is always mapped"
        self._words = view.cast("I")
        self._put = 0
        """Units ever written."""
        self.stale = True
        """Set by the device: the next words must be preceded by those for new code."""
        self.closed = False

    def attach(self) -> None:
        """Start on the queue, which was made anew and is empty."""
        self._put = 0
        self.stale = True

    @property
    def taken(self) -> int:
        """Units ever written; see `hcq.driver.Ring`."""
        return self._put

    def submit(self, pushbuffer: PushBuffer) -> None:
        """Make the words of `pushbuffer` visible and ring the doorbell; see `hcq.driver.Ring`."""
        if self.stale:
            before = self._refresh()
            if before:
                self.send(before)
            self.stale = False
        self.send(pushbuffer.words, pushbuffer.calls)

    def send(self, words: Sequence[int], calls: Sequence[tuple[int, int]] = ()) -> None:
        """Send words as they are; `calls` as in `PushBuffer`."""
        raise NotImplementedError

    def read(self) -> int:
        """Return how many units the queue has read, of all that were ever written."""
        raise NotImplementedError

    def unread(self, ending_words: int) -> int:
        """Return the units of a submission that are unread while the queue waits inside it, at least."""
        raise NotImplementedError

    def _refuse_longer(self, count: int) -> None:
        """Raise `UsageError` for more words in one submission than the ring takes."""
        if count > self.words:
            raise UsageError(
                f"{count} words at once are larger than the ring takes, {self.words}; submit it in parts"
            )

    def _wait_for_room(self, until: int, *, begun: bool = False) -> None:
        """Wait briefly for the queue to read `until` units; raise `DeviceFault`, or what `stalled` raises.

        `begun`: a part of the submission was sent, so that only a fault may end it.
        """
        report = self._fault()
        if report is not None:
            raise DeviceFault(report)
        if not begun:
            self.stalled(until)
        time.sleep(_NAP_S)

    def stuck(self) -> str:
        """Return how far the ring was read, and what the kernel's side reports; empty when all was read."""
        text = self.position()
        if not text or self._fault() is not None:  # the report of a fault has those of the kernel's side
            return text
        return text + self._known(self.queue.number)

    def position(self) -> str:
        """Return how far the ring was read; empty when all was."""
        read = self.read()
        if self.closed or not self.queue.created or read == self._put:
            return ""
        return f"{self.queue.label}: read {read} of {self._put} {self.unit}"

    def close(self) -> None:
        """Destroy the queue, also while a kernel hangs, and free its memory; idempotent."""
        if not self.closed:
            self.closed = True
            self.queue.close()


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
        # An index that wraps at the ring's size, or a count: both are the same modulo that size.
        seen = self.queue.read_pointer[0] >> self._shift
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
