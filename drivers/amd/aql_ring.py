"""Rings of AQL packets, with memory for the PM4 words that vendor packets run.

The encoder's words are units of 16: packets, and behind a vendor packet without an address its PM4 words,
which go to a block of this ring. The first header of what is appended is stored last: it hands all over.

When a block may be written again: the read index passes a packet once it is launched, maybe before its PM4
words have run. But the packet behind a vendor packet has its barrier bit set, so that one is launched only
when the words have run, on every XCC. There are twice as many blocks as packets: a block is written again
only after the read index passed its packet by a whole ring.

Not here: rings of other packets (`ring`).
"""

from __future__ import annotations

import time
from array import array
from typing import TYPE_CHECKING, Final, TypeAlias

from drivers.amd.encode_aql import CALL_SHIFT, INLINE, MAX_INLINE, SIZE, SIZE_MASK, call_of, packets_of
from drivers.amd.layouts import aql
from drivers.amd.ring import nothing
from drivers.kernel import view_at
from hcq.errors import DeviceFault, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from drivers.amd.memory import Memories, Memory
    from drivers.amd.queues import HwQueue
    from hcq.errors import FaultReport
    from hcq.pushbuffer import PushBuffer

Run: TypeAlias = "array[int] | memoryview"
"""Packets as words."""
_NAP_S: Final = 20e-6
_UNIT: Final = aql.PACKET_WORDS
_BLOCK_BYTES: Final = 4 * MAX_INLINE
"""PM4 words of one vendor packet."""
_BLOCKS: Final = 2
"""Blocks a packet of the ring."""
_VIEWS_KEPT: Final = 1024
_INVALID: Final = int(aql.Header(TYPE=aql.Type.INVALID))
_LOW: Final = 0xFFFF_FFFF
_ADDRESS: Final = aql.Pm4Ib.sites("IB_ADDRESS_LO")[0].word
_ADDRESS_FROM_END: Final = _ADDRESS - _UNIT
_HIGH_FROM_END: Final = _ADDRESS_FROM_END + 1
_SIZE_FROM_END: Final = SIZE - _UNIT
"""Where in packets that end with a vendor packet its address and the size of its words stand."""


class AqlRing:
    """One ring. Not thread-safe: the queue above holds its lock."""

    def __init__(
        self,
        queue: HwQueue,
        memories: Memories,
        *,
        refresh: Callable[[], Sequence[int]],
        fault: Callable[[], FaultReport | None],
        fence: Callable[[], None],
    ) -> None:
        self.queue = queue
        self._memories = memories
        self._refresh = refresh
        self._fault = fault
        self._fence = fence
        self.stalled: Callable[[int], None] = nothing
        """See `hcq.driver.Ring`; `words` and `submissions`, too."""
        view = queue.ring.view
        assert view is not None, "the ring is always mapped"
        self._words = view.cast("I")
        self._end = len(self._words)
        self._size = self._end // _UNIT
        self._mask = self._size - 1
        self._blocks: Memory = memories.system(
            _BLOCKS * self._size * _BLOCK_BYTES, label=f"PM4 words of {queue.label}", zeroed=False
        )
        assert self._blocks.view is not None, "system memory is mapped"
        self._block_words = self._blocks.view.cast("I")
        self._blocks_va = self._blocks.va
        self._last_block = len(self._block_words) - MAX_INLINE
        self._views: dict[int, memoryview] = {}
        """Entry of `PushBuffer.calls` -> its packets."""
        self.words = self._size // 2 * _UNIT
        self.submissions = self._size
        self.closed = False
        self.attach()

    def attach(self) -> None:
        """Start on the queue, which was made anew and is empty."""
        self._put = 0
        """Packets ever written."""
        self._block = 0
        """Where the next block begins, in words."""
        self._limit = self._size
        self.stale = True
        """Set by the device: the next words must be preceded by those for new code."""

    @property
    def taken(self) -> int:
        """Packets ever written; see `hcq.driver.Ring`."""
        return self._put

    def submit(self, pushbuffer: PushBuffer) -> None:
        """Make the packets of `pushbuffer` visible and ring the bell; see `hcq.driver.Ring`."""
        if self.stale:
            before = self._refresh()
            if before:
                self.send(before)
            self.stale = False
        self.send(pushbuffer.words, pushbuffer.calls)

    def send(self, given: Sequence[int], calls: Sequence[tuple[int, int]] = ()) -> None:
        """Send units as they are, with prebuilt packets from memory between them; see `PushBuffer.calls`."""
        words = given if isinstance(given, array) else array("I", given)
        most = len(words) // _UNIT
        for _, entry in calls:
            most += entry >> CALL_SHIFT
        if (self._put + most > self._limit or len(words) > self.words) and not self._make_way(words, calls):
            return
        runs: list[Run] = []
        start = 0
        for position, entry in calls:
            if position > start:
                self._resolve(words[start:position], runs)
                start = position
            runs.append(self._views.get(entry) or self._view(entry))
        self._resolve(words[start:] if start else words, runs)
        self._append(runs)

    def _make_way(self, words: array[int], calls: Sequence[tuple[int, int]]) -> bool:
        """Wait for room for a submission; return False when it was sent in parts, longer than the ring."""
        if len(words) > self.words:
            raise UsageError(
                f"{len(words)} words at once are larger than the ring takes, {self.words}; submit it in parts"
            )
        count = packets_of(words) + sum([call_of(entry)[1] for _, entry in calls])
        if count <= self._size:
            self._make_room(count)
            return True
        # As much as the ring can ever take is waited for before the first part.
        self._make_room(self._size)
        runs: list[Run] = []
        start = 0
        for position, entry in calls:
            self._resolve(words[start:position], runs)
            runs.append(self._view(entry))
            start = position
        self._resolve(words[start:], runs)
        begun, step = False, self.words
        for run in runs:
            for at in range(0, len(run), step):
                piece = run[at : at + step]
                self._make_room(len(piece) // _UNIT, begun=begun)
                self._append([piece])
                begun = True
        return False

    def _view(self, entry: int) -> memoryview:
        """Return the packets of a call."""
        va, packets = call_of(entry)
        if len(self._views) >= _VIEWS_KEPT:
            self._views.clear()
        view = self._views[entry] = view_at(va, packets * aql.PACKET_BYTES).cast("I")
        return view

    def _resolve(self, words: array[int], runs: list[Run]) -> None:
        """Append the packets of units to `runs`; their inline PM4 goes to blocks. `words` stays as it is."""
        heads = words[::_UNIT]
        count, done, start = len(heads), 0, 0
        heads.append(INLINE)  # ends the search
        while (unit := heads.index(INLINE, done)) < count:
            inline = (unit + 1) * _UNIT
            run = words[start:inline]
            length = run[_SIZE_FROM_END] & SIZE_MASK
            block = self._block
            self._block = block + MAX_INLINE if block < self._last_block else 0
            self._block_words[block : block + length] = words[inline : inline + length]
            va = self._blocks_va + 4 * block
            run[_ADDRESS_FROM_END], run[_HIGH_FROM_END] = va & _LOW, va >> 32
            runs.append(run)
            done = unit + 1 - -length // _UNIT
            start = done * _UNIT
        if done < count:
            runs.append(words[start:])

    def _append(self, runs: Sequence[Run]) -> None:
        """Write packets, for which there is room, and ring the bell.

        The queue takes packets in order and stops at an INVALID one: the first header, stored last, hands
        all of them over.
        """
        if not runs:
            return
        words, queue, fence, end = self._words, self.queue, self._fence, self._end
        first = at = (self._put & self._mask) * _UNIT
        words[first] = _INVALID
        count, skipped = 0, 1
        for run in runs:
            length = len(run)
            stop = at + length
            if stop <= end:
                words[at + skipped : stop] = run[skipped:]
                at = stop
            else:
                left, at = end - at, stop - end
                words[end - left + skipped :] = run[skipped:left]
                words[:at] = run[left:]
            count += length
            skipped = 0
        self._put = put = self._put + count // _UNIT
        fence()
        words[first] = runs[0][0]
        # The write index may be seen before the header, as in HSA, where producers move it first.
        queue.write_pointer[0] = put
        fence()
        queue.bell(put - 1)

    def _make_room(self, count: int, *, begun: bool = False) -> None:
        """Wait until `count` packets are free. `begun`: a part was sent, so only a fault ends the wait."""
        if self._put + count <= self._limit:
            return
        while True:
            self._limit = self.read() + self._size
            if self._put + count <= self._limit:
                return
            report = self._fault()
            if report is not None:
                raise DeviceFault(report)
            if not begun:
                self.stalled(count * _UNIT)
            time.sleep(_NAP_S)

    def read(self) -> int:
        """Return how many packets the queue has read; the firmware may tell late."""
        return self.queue.read_pointer[0]

    def stuck(self) -> str:
        """Say how far the ring was read; empty when all was."""
        read = self.read()
        if self.closed or not self.queue.created or read == self._put:
            return ""
        return f"{self.queue.label}: read {read} of {self._put} packets"

    def close(self) -> None:
        """Destroy the queue, a kernel that hangs notwithstanding, and free its memory; idempotent."""
        if not self.closed:
            self.closed = True
            try:
                self.queue.close()
            finally:
                self._memories.free(self._blocks)
