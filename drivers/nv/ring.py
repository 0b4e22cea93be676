"""The ring of one channel: words into push-buffer memory, entries into the ring, the doorbell.

Each submission ends with a store of its number to a slot of the ring's own: so the ring knows, on every
generation, which words and entries the GPU has fetched and may be written again. Not here: how channels are
made (`channel`).
"""

from __future__ import annotations

import contextlib
import time
from array import array
from collections import deque
from typing import TYPE_CHECKING, Final

from drivers.nv import push
from drivers.nv.channel import ENTRIES, Channel, ChannelKind
from drivers.nv.layouts.gpfifo import MAX_SEGMENT_WORDS, GpfifoEntry, Subchannel
from hcq.errors import DeviceFault, DriverError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from drivers.nv.memory import Memories, Memory
    from hcq.errors import FaultReport
    from hcq.stream import Stream

PUSH_BYTES: Final = 1 << 20
_PUSH_START: Final = 4096
"""The first page of the push memory holds the progress slot."""
_NAP_S: Final = 20e-6


_pack = GpfifoEntry.pack


def entry(va: int, words: int) -> int:
    """Return the ring entry of a segment."""
    return _pack(ADDRESS=va, LENGTH=words)[0]


class NvRing:
    """One ring. Not thread-safe: the queue above holds its lock."""

    def __init__(
        self,
        channel: Channel,
        memories: Memories,
        *,
        setup: push.Words,
        refresh: Callable[[NvRing], push.Words],
        fault: Callable[[], FaultReport | None],
    ) -> None:
        self._memories = memories
        self._setup = setup
        self._refresh = refresh
        self._fault = fault
        self.memory: Memory = memories.push(_PUSH_START + PUSH_BYTES, label=f"push buffer of {channel.label}")
        view = self.memory.view
        assert view is not None, "host memory has a view"
        self._progress = view[:8].cast("Q")
        self._words = view[_PUSH_START:].cast("I")
        self._capacity = len(self._words)
        self._va = self.memory.va + _PUSH_START
        self.closed = False
        try:
            self.attach(channel)
        except BaseException:
            memories.free(self.memory)
            raise

    def attach(self, channel: Channel) -> None:
        """Start on a channel: a new one, after a fault, finds the ring empty."""
        self.channel = channel
        self._subchannel = Subchannel.COMPUTE if channel.kind is ChannelKind.COMPUTE else Subchannel.COPY
        self._progress[0] = 0
        self.sequence = 0
        self._head = self._tail = 0
        """Words ever written, and words known to be fetched."""
        self._put = self._taken = 0
        """Entries ever written, and entries known to be fetched."""
        self._in_flight: deque[tuple[int, int, int]] = deque()
        self.code_epoch = self.local_epoch = 0
        self.send(self._setup, ())

    def submit(self, stream: Stream) -> None:
        """Make the words of `stream` visible and ring the bell; see `hcq.driver.Ring`."""
        before = self._refresh(self)
        if before:
            self.send(before, ())
        self.send(stream.words, stream.calls)

    def send(self, words: Sequence[int], calls: Sequence[tuple[int, int, int]] = ()) -> None:
        """Send words as they are, with calls of prebuilt ones between them."""
        count = len(words) + push.SEM_WORDS
        entries = 1 + 2 * len(calls)
        if count > self._capacity // 2 or entries >= ENTRIES:
            raise UsageError(
                f"{len(words)} words and {len(calls)} indirect buffers at once are larger than the ring: "
                f"{self._capacity // 2} words, {ENTRIES} entries; submit it in parts"
            )
        at = self._room(count, entries)
        self.sequence += 1
        end = push.semaphore(self._subchannel, self.memory.va, self.sequence, push.RELEASE)
        self._words[at : at + count] = array("I", (*words, *end))
        self._enter(at, count, calls)
        self._head += count
        self._in_flight.append((self.sequence, self._head, self._put))
        channel = self.channel
        channel.ring(self._put % ENTRIES)

    def _enter(self, at: int, count: int, calls: Sequence[tuple[int, int, int]]) -> None:
        ring, put, start, base = self.channel.entries, self._put, 0, self._va + 4 * at
        for position, va, length in calls:
            if position > start:
                ring[put % ENTRIES] = entry(base + 4 * start, position - start)
                put += 1
            for done in range(0, length, MAX_SEGMENT_WORDS):
                ring[put % ENTRIES] = entry(va + 4 * done, min(length - done, MAX_SEGMENT_WORDS))
                put += 1
            start = position
        ring[put % ENTRIES] = entry(base + 4 * start, count - start)
        self._put = put + 1

    def _room(self, count: int, entries: int) -> int:
        """Return where `count` words go, waiting until they and `entries` ring entries are free."""
        at = self._head % self._capacity
        if at + count > self._capacity:
            self._head += self._capacity - at
            at = 0
        while True:
            self.reclaim()
            if (
                self._head + count - self._tail <= self._capacity
                and self._put + entries - self._taken < ENTRIES
            ):
                return at
            report = self._fault()
            if report is not None:
                raise DeviceFault(report)
            time.sleep(_NAP_S)

    def reclaim(self) -> int:
        """Take back what the GPU has fetched; return the number of the last submission it reached."""
        reached = self._progress[0]
        while self._in_flight and self._in_flight[0][0] <= reached:
            _, self._tail, self._taken = self._in_flight.popleft()
        if not self._in_flight:
            self._tail, self._taken = self._head, self._put
        return reached

    def stuck(self) -> str:
        """Say what the ring is doing; empty when all was fetched."""
        reached = self.reclaim()
        if reached == self.sequence:
            return ""
        got = self.channel.got()
        text = f"{self.channel.label}: fetched {reached} of {self.sequence} submissions, "
        text += f"put index {self._put % ENTRIES}"
        return text + (f", fetched up to {got}" if got is not None else "")

    def close(self) -> None:
        """Free channel and push memory, a kernel that hangs notwithstanding; idempotent."""
        if not self.closed:
            self.closed = True
            self.retire()
            self._memories.free(self.memory)

    def retire(self) -> None:
        """Give the channel up; one that is not done is taken off the run list first."""
        if self.stuck():
            # Freeing ends a hung channel as well; stopping it first only makes that quick (nv.md 6.4).
            with contextlib.suppress(DriverError):
                self.channel.stop()
        self.channel.close()
