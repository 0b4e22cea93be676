"""Rings of AQL packets, with memory for the PM4 words that vendor packets run.

The encoder's stream consists of packets of 16 words. The PM4 words of a vendor packet without an address
follow it in the stream ("inline"); the ring copies them to a block of its own memory and fills in the
address. The header of the first packet of a submission is stored last, which makes the whole submission
visible.

Reuse of blocks: the read index may pass a vendor packet before its PM4 words have run. The packet after a
vendor packet has its barrier bit set, so it is launched only when these words have run on every XCC. The ring
has twice as many blocks as packets: a block is written again only after the read index has passed its packet
by a whole ring.

Not here: the part that all rings share, and rings of other packets (`ring`); the stream (`encode_aql`).
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import Final, TypeAlias

from drivers.amd.encode_aql import INLINE, MAX_INLINE, SIZE, SIZE_MASK, call_of, packets_of
from drivers.amd.layouts import aql
from drivers.amd.memory import AmdMemories, AmdMemory
from drivers.amd.queues import HwQueue
from drivers.amd.ring import HardwareRing, RingHooks
from drivers.kernel import view_at

Run: TypeAlias = "array[int] | memoryview"
"""Packets, as words of 32 bits."""
_UNIT: Final = aql.PACKET_WORDS
_BLOCK_BYTES: Final = 4 * MAX_INLINE
"""Size of a block, which holds the PM4 words of one vendor packet."""
_BLOCKS: Final = 2
"""Blocks for each packet of the ring."""
_VIEWS_KEPT: Final = 1024
"""Views of prebuilt packets that are cached; the cache is emptied when it is full."""
_NO_ROOM: Final = 1 << 62
"""A length that no ring has: it makes `send` leave a submission to `_send_runs`."""
_INVALID: Final = int(aql.Header(TYPE=aql.Type.INVALID))
_LOW: Final = 0xFFFF_FFFF
_ADDRESS: Final = aql.Pm4Ib.sites("IB_ADDRESS_LO")[0].word
_ADDRESS_FROM_END: Final = _ADDRESS - _UNIT
_HIGH_FROM_END: Final = _ADDRESS_FROM_END + 1
_SIZE_FROM_END: Final = SIZE - _UNIT
"""Indices, from the end of a run that ends with a vendor packet, of its address and of its number of words.
"""


class AqlRing(HardwareRing):
    """One ring of AQL packets; see `HardwareRing`. It owns the memory of its blocks.

    Not thread-safe: the caller holds the queue's lock. Raises `OutOfMemoryError` if there is no memory for
    the blocks; then the caller still owns `queue`.
    """

    unit = "packets"

    def __init__(self, queue: HwQueue, memories: AmdMemories, hooks: RingHooks) -> None:
        super().__init__(queue, hooks)
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
        """Entry of `PushBuffer.calls` -> its words, their number, and its words without the first one."""
        self.words = self._size // 2 * _UNIT
        self.submissions = self._size
        self.attach()

    def attach(self) -> None:
        """Start on a new, empty hardware queue."""
        super().attach()
        self._block = 0
        """Offset of the next block, in words."""
        self._limit = self._size
        """Limit of `_put`, which unread packets or the end of the ring set. Above it the ring reads the read
        index again."""

    def send(self, words: Sequence[int], calls: Sequence[tuple[int, int]] = ()) -> None:
        """Send packets, with prebuilt packets from memory between them; see `PushBuffer.calls`.

        Blocks while the ring has no space. Raises `UsageError` for more words than `words`, `DeviceFault` if
        the device faults in the meantime; `stalled` may raise its own errors.

        Nearly all submissions are packets or one call, followed by one vendor packet that signals. This
        method writes such a submission in one piece; `_send_runs` writes all others.
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
        # `inline`: index of the first inline word. `stop`: end of the vendor packet in the ring, in words.
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
        """Publish packets that are in the ring from word `first`, except for their first header, `head`.

        The queue takes packets in order and stops at an INVALID one, so the store of the first header makes
        all packets visible.
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
        """Send any packets and calls, in parts if they are longer than the ring."""
        self._refuse_longer(len(words))
        runs: list[Run] = []
        count = packets_of(words) + sum([call_of(entry)[1] for _, entry in calls])
        # Wait before the first part: a timeout after it would leave half a submission.
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
        """Return the packets of a call in the form of `_views`, and cache them."""
        va, packets = call_of(entry)
        if len(self._views) >= _VIEWS_KEPT:
            self._views.clear()
        words = view_at(va, packets * aql.PACKET_BYTES).cast("I")
        view = self._views[entry] = words, len(words), words[1:]
        return view

    def _resolve(self, words: array[int], runs: list[Run]) -> None:
        """Append packets of the stream to `runs` and copy inline words to blocks. `words` is not changed."""
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
        """Write packets, for which there is space, and ring the doorbell."""
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
        """Wait until `count` packets are free.

        `begun`: a part of the submission was sent, so only a fault may end the wait with an error.
        """
        while self._put + count > (free_to := self.read() + self._size):
            self._wait_for_room(self._put + count - self._size, begun=begun)
        self._limit = min(free_to, (self._put | self._mask) + 1)

    def read(self) -> int:
        """Return the total number of packets that the queue has read; the firmware may update it late."""
        return self.queue.read_pointer[0]

    def unread(self, ending_words: int) -> int:
        """Return 1: while the queue waits inside a submission, at least its last packet is unread.

        The read index may already have passed a vendor packet whose words wait.
        """
        del ending_words
        return 1

    def close(self) -> None:
        """Destroy the queue, even if a kernel hangs, and free its memory; idempotent."""
        if not self.closed:
            try:
                super().close()
            finally:
                self._memories.free(self._blocks)
