"""Rings of PM4 and of SDMA packets (words, write pointer, doorbell), and the part that all rings share.

`HardwareRing` is the shared part: attaching a queue, waiting for space, reports, and closing. `AmdRing`
writes each submission in one piece; if it does not fit before the end of the ring, NOPs fill the rest. Both
kinds count words of 32 bits here, although the pointers of SDMA engines count bytes.

Not here: AQL packets (`aql_ring`), creating queues (`queues`). Next: `hcq.driver.Ring`, the contract.
"""

from __future__ import annotations

import time
from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from drivers.amd.layouts import pm4, sdma
from drivers.amd.queues import HwQueue, Packets
from hcq.errors import DeviceFault, FaultReport, UsageError
from hcq.pushbuffer import PushBuffer

_NAP_S: Final = 20e-6
"""Seconds between two reads of the read pointer of a full ring."""


def nothing(_until: int) -> None:
    """Do nothing: the default of `HardwareRing.stalled`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RingHooks:
    """What a ring calls of its device."""

    refresh: Callable[[], Sequence[int]]
    """Returns words to send before the next submission if `HardwareRing.stale` is set."""
    fault: Callable[[], FaultReport | None]
    fence: Callable[[], None]
    """Orders the host's stores."""
    reports: Callable[[int], str]
    """Returns the kernel driver's reports on a queue, given its id, that does not finish."""


class HardwareRing:
    """The shared part of `hcq.driver.Ring`. Not thread-safe: the caller holds the queue's lock.

    A subclass sets `words` and `submissions`, calls `attach`, and overrides `attach`, and `send`, `read` and
    `unread`, which raise `NotImplementedError` here. The ring owns `queue`.
    """

    words: int
    submissions: int
    unit = "words"
    """The unit of `taken`, `read` and `position`."""

    def __init__(self, queue: HwQueue, hooks: RingHooks) -> None:
        self.queue = queue
        self._refresh, self._fault, self._fence = hooks.refresh, hooks.fault, hooks.fence
        self._reports = hooks.reports
        self.stalled: Callable[[int], None] = nothing
        """This attribute, `words` and `submissions`: see `hcq.driver.Ring`."""
        view = queue.ring.view
        assert view is not None, "the ring is always mapped"
        self._words = view.cast("I")
        self._put = 0
        """Total units written."""
        self.stale = True
        """Set by the device if `refresh` must be called before the next words, after new code."""
        self.closed = False

    def attach(self) -> None:
        """Start on a new, empty hardware queue."""
        self._put = 0
        self.stale = True

    @property
    def taken(self) -> int:
        """Total units written; see `hcq.driver.Ring`."""
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
        """Send words, with calls of prebuilt words between them; see `PushBuffer.calls`.

        Blocks while the ring has no space. Raises `UsageError` for more words than `words`, `DeviceFault` if
        the device faults in the meantime; `stalled` may raise its own errors.
        """
        raise NotImplementedError

    def read(self) -> int:
        """Return the total number of units that the queue has read."""
        raise NotImplementedError

    def unread(self, ending_words: int) -> int:
        """Return the least number of unread units of a submission while the queue waits inside it."""
        raise NotImplementedError

    def _refuse_longer(self, count: int) -> None:
        """Raise `UsageError` for more words in one submission than the ring takes."""
        if count > self.words:
            raise UsageError(
                f"{count} words at once are larger than the ring takes, {self.words}; submit it in parts"
            )

    def _wait_for_room(self, until: int, *, begun: bool = False) -> None:
        """Sleep briefly while the queue has not read `until` units in total.

        Raises `DeviceFault` if the device faults. Unless a part of the submission was sent (`begun`), calls
        `stalled`, which may raise its own errors.
        """
        report = self._fault()
        if report is not None:
            raise DeviceFault(report)
        if not begun:
            self.stalled(until)
        time.sleep(_NAP_S)

    def stuck(self) -> str:
        """Return the position of the ring and the kernel driver's reports on it; "" if all is read."""
        text = self.position()
        if not text or self._fault() is not None:  # a fault's report contains the kernel driver's reports
            return text
        return text + self._reports(self.queue.number)

    def position(self) -> str:
        """Describe how far the ring is read; "" if all is read."""
        read = self.read()
        if self.closed or not self.queue.created or read == self._put:
            return ""
        return f"{self.queue.label}: read {read} of {self._put} {self.unit}"

    def close(self) -> None:
        """Destroy the queue, even if a kernel hangs, and free its memory; idempotent."""
        if not self.closed:
            self.closed = True
            self.queue.close()


_FILLERS: Final = {Packets.PM4: pm4.NOP_ONE_DWORD, Packets.SDMA: sdma.NOP_WORD}
_KEPT_FREE: Final = {Packets.PM4: 1, Packets.SDMA: sdma.ALIGN_WORDS}
"""Words of a full ring that stay free, so that a full ring differs from an empty one."""
_LEAST: Final = sdma.Fence.WORDS
"""The least number of words of a submission: it ends with a fence, or with a release, which is longer."""


class AmdRing(HardwareRing):
    """One ring of PM4 or SDMA words; see `HardwareRing`. Not thread-safe: the caller holds the lock."""

    def __init__(self, queue: HwQueue, hooks: RingHooks) -> None:
        super().__init__(queue, hooks)
        self._size = len(self._words)
        self._mask = self._size - 1
        self._shift = 2 if queue.packets is Packets.SDMA else 0
        """The pointers in memory and the doorbell count words shifted left by this number."""
        self._filler = _FILLERS[queue.packets]
        self._kept_free = _KEPT_FREE[queue.packets]
        # Before the ring's end up to as many words are filled with NOPs.
        self.words = self._size // 2 - self._kept_free
        self.submissions = (self._size - self._kept_free) // _LEAST
        self.attach()

    def attach(self) -> None:
        """Start on a new, empty hardware queue."""
        super().attach()
        self._limit = self._size - self._kept_free
        """Limit of `_put`, which unread words or the end of the ring set. Above it the ring reads the read
        pointer again."""

    def send(self, words: Sequence[int], calls: Sequence[tuple[int, int]] = ()) -> None:
        """Send words; see `HardwareRing.send`. No `calls`: indirect buffers are packets in the words."""
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
        """Wait until `count` contiguous words are free; return `_put` at their start. Raises as `send`."""
        self._refuse_longer(count)
        put, left = self._put, self._size - (self._put & self._mask)
        start = put if count <= left else put + left
        free = self._size - self._kept_free
        while (free_to := self.read() + free) < start + count:
            self._wait_for_room(start + count - free)
        if start > put:
            at = put & self._mask
            self._words[at:] = array("I", (self._filler,)) * left
            # The write pointer moves past them with the next words.
        end = start - (start & self._mask) + self._size
        self._limit = min(free_to, end)
        return start

    def read(self) -> int:
        """Return the total number of words that the queue has read."""
        # The pointer is a total, or an index that wraps at the ring's size: both are equal modulo the size.
        seen = self.queue.read_pointer[0] >> self._shift
        return self._put - ((self._put - seen) & self._mask)

    def unread(self, ending_words: int) -> int:
        """Return the least number of unread words of a submission while the queue waits inside it.

        They are the words that end the submission, and a word of the wait.
        """
        return ending_words + 1

    def position(self) -> str:
        """Describe how far the ring is read, with the index of the next word; "" if all is read."""
        text = super().position()
        return f"{text}, the next at word {self.read() & self._mask} of the ring" if text else ""
