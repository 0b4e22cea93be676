"""Rings of AQL packets, with memory for the PM4 words that vendor packets run.

The encoder's words are units of 16: packets, and after a vendor packet without an address its PM4 words,
which are copied to a block of this ring. The header of the first packet of a submission is stored last, which
makes the whole submission visible.

Reuse of blocks: the read index passes a packet when it is launched, perhaps before its PM4 words have run.
The packet after a vendor packet has its barrier bit set and is launched only when those words have run on
every XCC. There are twice as many blocks as packets, so that a block is written again only after the read
index passed its packet by a whole ring.

Not here: rings of other packets, and what all rings share (`ring`).
"""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING, Final, TypeAlias

from drivers.amd.encode_aql import INLINE, MAX_INLINE, SIZE, SIZE_MASK, call_of, packets_of
from drivers.amd.layouts import aql
from drivers.amd.ring import HardwareRing, nothing_known
from drivers.kernel import view_at

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from drivers.amd.memory import AmdMemories, AmdMemory
    from drivers.amd.queues import HwQueue
    from hcq.errors import FaultReport

Run: TypeAlias = "array[int] | memoryview"
"""Packets as words."""
_UNIT: Final = aql.PACKET_WORDS
_BLOCK_BYTES: Final = 4 * MAX_INLINE
"""PM4 words of one vendor packet."""
_BLOCKS: Final = 2
"""Blocks a packet of the ring."""
_VIEWS_KEPT: Final = 1024
"""Views of prebuilt packets, the oldest of which are dropped."""
_NO_ROOM: Final = 1 << 62
"""More packets than a ring has: of submissions that `send` does not write in one piece."""
_INVALID: Final = int(aql.Header(TYPE=aql.Type.INVALID))
_LOW: Final = 0xFFFF_FFFF
_ADDRESS: Final = aql.Pm4Ib.sites("IB_ADDRESS_LO")[0].word
_ADDRESS_FROM_END: Final = _ADDRESS - _UNIT
_HIGH_FROM_END: Final = _ADDRESS_FROM_END + 1
_SIZE_FROM_END: Final = SIZE - _UNIT
"""Where in packets that end with a vendor packet its address and the size of its words stand."""


class AqlRing(HardwareRing):
    """One ring of packets. Not thread-safe: the queue above holds its lock."""

    unit = "packets"

    def __init__(
        self,
        queue: HwQueue,
        memories: AmdMemories,
        *,
        refresh: Callable[[], Sequence[int]],
        fault: Callable[[], FaultReport | None],
        fence: Callable[[], None],
        known: Callable[[int], str] = nothing_known,
    ) -> None:
        super().__init__(queue, refresh=refresh, fault=fault, fence=fence, known=known)
        self._memories = memories
        self._pairs = self._words.cast("B").cast("L")
        """The ring as numbers of 64 bits: the address in a vendor packet is one."""
        self._end = len(self._words)
        self._size = self._end // _UNIT
        self._mask = self._size - 1
        self._blocks: AmdMemory = memories.system(
            _BLOCKS * self._size * _BLOCK_BYTES, label=f"PM4 words of {queue.label}", zeroed=False
        )
        assert self._blocks.view is not None, "system memory is mapped"
        self._block_words = self._blocks.view.cast("I")
        self._blocks_va = self._blocks.va
        self._last_block = len(self._block_words) - MAX_INLINE
        self._views: dict[int, tuple[memoryview, int, memoryview]] = {}
        """Entry of `PushBuffer.calls` -> its packets, their number of words, those behind the first one."""
        self.words = self._size // 2 * _UNIT
        self.submissions = self._size
        self.attach()

    def attach(self) -> None:
        """Start on the queue, which was made anew and is empty."""
        super().attach()
        self._block = 0
        """Where the next block begins, in words."""
        self._limit = self._size
        """How many packets may be written before the read index is asked: to what was read, or to the end."""

    def send(self, words: Sequence[int], calls: Sequence[tuple[int, int]] = ()) -> None:
        """Send units as they are, with prebuilt packets from memory between them; see `PushBuffer.calls`.

        Nearly all submissions are packets, or one call, before one vendor packet that signals: those are
        written here. `_send_runs` writes all others.
        """
        if words.__class__ is not array:
            words = array("I", words)
        put = self._put
        first = middle = (put & self._mask) * _UNIT
        inline = _UNIT
        if calls:
            position, entry = calls[0]
            prebuilt, length, rest = self._views.get(entry) or self._view(entry)
            middle += length if not position and words[0] == INLINE and len(calls) == 1 else _NO_ROOM
        else:
            end = len(words)
            while inline <= end and words[inline - _UNIT] != INLINE:
                inline += _UNIT
        # `inline`: where the PM4 words behind the first vendor packet begin, `stop`: where that ends.
        stop = middle + inline
        count = len(words) - inline
        after = put + (stop - first) // _UNIT
        if after > self._limit or count < 0 or count - (words[inline + _SIZE_FROM_END] & SIZE_MASK) >= _UNIT:
            self._send_runs(words, calls)
            return
        block = self._block
        self._block = block + MAX_INLINE if block < self._last_block else 0
        self._block_words[block : block + count] = words[inline:]
        ring = self._words
        ring[first] = _INVALID
        if calls:
            head = prebuilt[0]
            ring[first + 1 : middle] = rest
            ring[middle:stop] = words[:inline]
        else:
            head = words[0]
            ring[first + 1 : stop] = words[1:inline]
        self._pairs[stop + _ADDRESS_FROM_END >> 1] = self._blocks_va + 4 * block
        self._publish(first, head, after)

    def _publish(self, first: int, head: int, put: int) -> None:
        """Publish packets whose bodies stand in the ring from word `first`, and ring the doorbell.

        The queue takes packets in order and stops at an INVALID one, so that the first header, stored last,
        makes all of them visible.
        """
        self._put = put
        queue, fence = self.queue, self._fence
        fence()
        self._words[first] = head
        # The write index may be seen before the header, as in HSA, where producers move it first.
        queue.write_pointer[0] = put
        fence()
        queue.ring_doorbell(put - 1)

    def _send_runs(self, words: array[int], calls: Sequence[tuple[int, int]]) -> None:
        """Send any units and calls, in parts where they are longer than the ring."""
        self._refuse_longer(len(words))
        runs: list[Run] = []
        count = packets_of(words) + sum([call_of(entry)[1] for _, entry in calls])
        # As much as the ring can ever take is waited for before the first part.
        self._make_room(min(count, self._size))
        start = 0
        for position, entry in calls:
            self._resolve(words[start:position], runs)
            runs.append((self._views.get(entry) or self._view(entry))[0])
            start = position
        self._resolve(words[start:], runs)
        if count <= self._size:
            self._append(runs)
            return
        begun = False
        for run in runs:
            for at in range(0, len(run), self.words):
                piece = run[at : at + self.words]
                self._make_room(len(piece) // _UNIT, begun=begun)
                self._append([piece])
                begun = True

    def _view(self, entry: int) -> tuple[memoryview, int, memoryview]:
        """Return the packets of a call, as `_views` holds them."""
        va, packets = call_of(entry)
        if len(self._views) >= _VIEWS_KEPT:
            self._views.clear()
        words = view_at(va, packets * aql.PACKET_BYTES).cast("I")
        view = self._views[entry] = words, len(words), words[1:]
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
        """Write packets, for which there is room, and ring the doorbell."""
        if not runs:
            return
        words, end, put = self._words, self._end, self._put
        first = at = (put & self._mask) * _UNIT
        words[first] = _INVALID
        skipped = 1
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
            put += length // _UNIT
            skipped = 0
        self._publish(first, runs[0][0], put)

    def _make_room(self, count: int, *, begun: bool = False) -> None:
        """Wait until `count` packets are free. `begun`: a part was sent, so only a fault ends the wait."""
        while self._put + count > (free_to := self.read() + self._size):
            self._wait_for_room(self._put + count - self._size, begun=begun)
        self._limit = min(free_to, (self._put | self._mask) + 1)

    def read(self) -> int:
        """Return how many packets the queue has read; the firmware may update the index late."""
        return self.queue.read_pointer[0]

    def unread(self, ending_words: int) -> int:
        """Return the packets of a submission that are unread while the queue waits inside it, at least.

        It is the last one: the read index may pass a vendor packet whose words wait.
        """
        del ending_words
        return 1

    def close(self) -> None:
        """Destroy the queue, also while a kernel hangs, and free its memory; idempotent."""
        if not self.closed:
            try:
                super().close()
            finally:
                self._memories.free(self._blocks)
