"""Rings of AQL packets, with memory for the PM4 words that vendor packets run.

The encoder's words are units of 16: packets, and behind a vendor packet without an address its PM4 words,
which go to memory of this ring, a block a slot; so they retire with the packet. The first header of what is
appended is stored last: it hands all over. Not here: rings of other packets (`ring`).
"""

from __future__ import annotations

import time
from array import array
from typing import TYPE_CHECKING, Final, TypeAlias

from drivers.amd.encode_aql import MAX_INLINE, call_of, inline_words
from drivers.amd.encode_aql import units as inline_units
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
_BLOCK_WORDS: Final = MAX_INLINE
_BLOCK_BYTES: Final = 4 * _BLOCK_WORDS
"""PM4 words of one slot."""
_INVALID: Final = int(aql.Header(TYPE=aql.Type.INVALID))
_FROM_END: Final = _UNIT - aql.Pm4Ib.sites("IB_ADDRESS_LO")[0].word
"""Words from the address in a vendor packet to its end."""


def _packets_of(units: Sequence[int]) -> int:
    """Return how many packets units of 16 words are: inline PM4 words are none."""
    at = count = 0
    while at < len(units):
        at += _UNIT + inline_units(inline_words(units, at))
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
        self._blocks_va = self._blocks.va
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

    def send(self, given: Sequence[int], calls: Sequence[tuple[int, int]] = ()) -> None:
        """Send units as they are, with prebuilt packets from memory between them; see `PushBuffer.calls`."""
        words = given if isinstance(given, array) else array("I", given)
        if len(words) > self.words:
            raise UsageError(
                f"{len(words)} words at once are larger than the ring takes, {self.words}; submit it in parts"
            )
        most = len(words) // _UNIT
        if self._put + most > self._limit:
            most = _packets_of(words)
        if not calls:
            self._make_room(most)
            # Words that are sent again stay as they are.
            self._append([self._resolved(words[:] if words is given else words, self._put)])
            return
        most += sum([call_of(entry)[1] for _, entry in calls])
        if most <= self._size:
            self._make_room(most)
            self._append(self._parts(words, calls))
        else:
            self._send_long(words, calls)

    def _parts(self, words: array[int], calls: Sequence[tuple[int, int]]) -> list[Run]:
        """Return the packets of a submission in runs; there is room for all of them."""
        parts: list[Run] = []
        start, slot = 0, self._put
        for position, entry in calls:
            if position > start:
                parts.append(self._resolved(words[start:position], slot))
                slot += len(parts[-1]) // _UNIT
            va, packets = call_of(entry)
            parts.append(view_at(va, packets * aql.PACKET_BYTES).cast("I"))
            start, slot = position, slot + packets
        if start < len(words):
            parts.append(self._resolved(words[start:], slot))
        return parts

    def _send_long(self, words: array[int], calls: Sequence[tuple[int, int]]) -> None:
        """Send more than the ring holds: as much as it can ever take is waited for before the first part."""
        self._make_room(self._size)
        begun, start, step = False, 0, self.words
        for position, entry in [*calls, (len(words), 0)]:
            if position > start:
                self._make_room(_packets_of(words[start:position]), begun=begun)
                self._append([self._resolved(words[start:position], self._put)])
                begun = True
            va, packets = call_of(entry)
            for at in range(0, packets * _UNIT, step):
                piece = view_at(va + 4 * at, 4 * min(step, packets * _UNIT - at)).cast("I")
                self._make_room(len(piece) // _UNIT, begun=begun)
                self._append([piece])
                begun = True
            start = position

    def _append(self, parts: Sequence[Run]) -> None:
        """Write packets, for which there is room, and ring the bell.

        The queue takes packets in order and stops at an INVALID one: the first header, stored last, hands
        all of them over.
        """
        if not any(parts):
            return
        words, end, put = self._words, self._size * _UNIT, self._put
        first = at = put % self._size * _UNIT
        words[first] = _INVALID
        count, skipped = 0, 1
        for part in parts:
            length = len(part)
            if at + length <= end:
                words[at + skipped : at + length] = part[skipped:]
            else:
                left = end - at
                words[at + skipped :] = part[skipped:left]
                words[: length - left] = part[left:]
            at, count, skipped = (at + length) % end, count + length, 0
        fence = self._fence
        fence()
        words[first] = parts[0][0]
        self._put = put = put + count // _UNIT
        fence()
        self.queue.write_pointer[0] = put
        fence()
        self.queue.bell(put - 1)

    def _resolved(self, units: array[int], slot: int) -> array[int]:
        """Return the packets of units, from slot `slot` on; their inline PM4 goes to the slots' blocks.

        The addresses are written to `units`.
        """
        packets = array("I")
        start = at = 0
        end, size = len(units), self._size
        while at < end:
            count = inline_words(units, at)
            at += _UNIT
            slot += 1
            if count:
                block = (slot - 1) % size
                place = block * _BLOCK_WORDS
                self._block_words[place : place + count] = units[at : at + count]
                va = self._blocks_va + block * _BLOCK_BYTES
                units[at - _FROM_END], units[at - _FROM_END + 1] = va & 0xFFFF_FFFF, va >> 32
                packets += units[start:at]
                start = at = at + inline_units(count)
        return packets + units[start:] if start < end else packets

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
