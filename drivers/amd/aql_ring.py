"""Rings of AQL packets, with memory for the PM4 words that vendor packets run.

The encoder's words are units of 16: packets, and behind a vendor packet without an address its PM4 words,
which go to memory of this ring, a block a slot; so they retire with the packet. A packet's first word is
stored last: it hands the packet over. Not here: rings of other packets (`ring`).
"""

from __future__ import annotations

import time
from array import array
from typing import TYPE_CHECKING, Final

from drivers.amd.encode_aql import call_of, inline_words
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

_NAP_S: Final = 20e-6
_UNIT: Final = aql.PACKET_WORDS
_BLOCK_BYTES: Final = 1024
"""PM4 words of one slot."""
_BLOCK_WORDS: Final = _BLOCK_BYTES // 4
_INVALID: Final = int(aql.Header(TYPE=aql.Type.INVALID))


def _packets_of(units: Sequence[int]) -> int:
    """Return how many packets units of 16 words are: inline PM4 words are none."""
    at = count = 0
    while at < len(units):
        at += _UNIT - (-inline_words(units, at) // _UNIT) * _UNIT
        count += 1
    return count


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
        self._size = len(self._words) // _UNIT
        self._blocks: Memory = memories.system(
            self._size * _BLOCK_BYTES, label=f"PM4 words of {queue.label}", zeroed=False
        )
        assert self._blocks.view is not None, "system memory is mapped"
        self._block_words = self._blocks.view.cast("I")
        self.words = self._size // 2 * _UNIT
        self.submissions = self._size // 2
        self.closed = False
        self.attach()

    def attach(self) -> None:
        """Start on the queue, which was made anew and is empty."""
        self._put = 0
        """Packets ever written."""
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

    def send(self, words: Sequence[int], calls: Sequence[tuple[int, int]] = ()) -> None:
        """Send units as they are, with prebuilt packets from memory between them; see `PushBuffer.calls`."""
        if words.__class__ is not array:
            words = array("I", words)
        if len(words) > self.words:
            raise UsageError(
                f"{len(words)} words at once are larger than the ring takes, {self.words}; submit it in parts"
            )
        if not calls:
            self._make_room(_packets_of(words))
            self._append(words)
            return
        parts: list[tuple[bool, Sequence[int]]] = []
        start = 0
        for position, entry in calls:
            if position > start:
                parts.append((False, words[start * _UNIT : position * _UNIT]))
            va, packets = call_of(entry)
            parts.append((True, view_at(va, packets * aql.PACKET_BYTES).cast("I")))
            start = position
        if start * _UNIT < len(words):
            parts.append((False, words[start * _UNIT :]))
        # As much as the ring can ever take is waited for before anything is sent.
        self._make_room(min(sum(_packets_of(part) for _, part in parts), self._size))
        begun = False
        for prebuilt, part in parts:
            for at in range(0, len(part), self.words) if prebuilt else (0,):
                piece = part[at : at + self.words] if prebuilt else part
                self._make_room(_packets_of(piece), begun=begun)
                self._append(array("I", piece))
                begun = True

    def _append(self, units: Sequence[int]) -> None:
        """Write units, for whose packets there is room, and ring the bell."""
        packets, headers = self._resolved(units)
        count, put, size = len(headers), self._put, self._size
        if not count:
            return
        at = put % size
        first = min(count, size - at) * _UNIT
        words = self._words
        words[at * _UNIT : at * _UNIT + first] = packets[:first]
        if first < len(packets):
            words[: len(packets) - first] = packets[first:]
        self._fence()
        for index, header in enumerate(headers):
            words[(put + index) % size * _UNIT] = header
        self._put = put = put + count
        self._fence()
        self.queue.write_pointer[0] = put
        self._fence()
        self.queue.bell(put - 1)

    def _resolved(self, units: Sequence[int]) -> tuple[array[int], list[int]]:
        """Return packets whose first words are INVALID, and those words; place inline PM4 in its blocks."""
        packets, headers = array("I"), []
        at, slot = 0, self._put
        while at < len(units):
            packet = array("I", units[at : at + _UNIT])
            at += _UNIT
            head = packet[0]
            count = inline_words(units, at - _UNIT)
            if count:
                if count > _BLOCK_WORDS:
                    raise UsageError(f"{count} PM4 words in one packet, {_BLOCK_WORDS} are the most")
                block = slot % self._size
                self._block_words[block * _BLOCK_WORDS : block * _BLOCK_WORDS + count] = array(
                    "I", units[at : at + count]
                )
                va = self._blocks.va + block * _BLOCK_BYTES
                packet[2], packet[3] = va & 0xFFFF_FFFF, va >> 32
                at += -(-count // _UNIT) * _UNIT
            headers.append(head)
            packet[0] = _INVALID
            packets += packet
            slot += 1
        return packets, headers

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
