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
from drivers.nv.layouts.gpfifo import GpfifoEntry, Subchannel
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
_LOW: Final = 0xFFFF_FFFF


_ONE_WORD: Final = GpfifoEntry.pack(ADDRESS=0, LENGTH=1)[0]
"""What each word of a segment adds to its ring entry; the address stands in the entry as it is."""


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
        self.retired = False
        """The channel was given up, and there is no new one yet."""
        subchannel = Subchannel.COMPUTE if channel.kind is ChannelKind.COMPUTE else Subchannel.COPY
        self._release = array("I", push.semaphore(subchannel, self.memory.va, 0, push.RELEASE))
        """What ends a submission; its number is filled in."""
        self._progress[0] = 0
        self.sequence = 0
        self._head = self._tail = 0
        """Words ever written, and words known to be fetched."""
        self._put = self._taken = 0
        """Entries ever written, and entries known to be fetched."""
        self._in_flight: deque[tuple[int, int, int]] = deque()
        self.code_epoch = self.local_epoch = 0
        self.stale = True
        """Set by the device: before the next words the GPU must be told of other code or local memory."""
        self.send(self._setup, ())

    def submit(self, stream: Stream) -> None:
        """Make the words of `stream` visible and ring the bell; see `hcq.driver.Ring`."""
        if self.stale:
            self.stale = False
            before = self._refresh(self)
            if before:
                self.send(before, ())
        self.send(stream.words, stream.calls)

    def send(self, words: Sequence[int], calls: Sequence[tuple[int, int, int]] = ()) -> None:
        """Send words as they are, with calls of prebuilt ones between them."""
        count = len(words) + push.SEM_WORDS
        entries = 1 + 2 * len(calls)
        at = self._head % self._capacity
        if (
            at + count > self._capacity
            or self._head + count - self._tail > self._capacity
            or self._put + entries - self._taken >= ENTRIES
        ):
            at = self._room(count, entries)
        self.sequence = sequence = self.sequence + 1
        release, end = self._release, at + count
        release[push.SEM_VALUE], release[push.SEM_VALUE + 1] = sequence & _LOW, sequence >> 32
        self._words[at : end - push.SEM_WORDS] = words if type(words) is array else array("I", words)
        self._words[end - push.SEM_WORDS : end] = release
        ring, put, start, base = self.channel.entries, self._put, 0, self._va + 4 * at
        for position, va, length in calls:
            if position > start:
                ring[put % ENTRIES] = base + 4 * start | (position - start) * _ONE_WORD
                put += 1
            ring[put % ENTRIES] = va | length * _ONE_WORD
            put, start = put + 1, position
        ring[put % ENTRIES] = base + 4 * start | (count - start) * _ONE_WORD
        self._put = put = put + 1
        self._head += count
        self._in_flight.append((sequence, self._head, put))
        self.channel.ring(put % ENTRIES)

    def _room(self, count: int, entries: int) -> int:
        """Return where `count` words go, waiting until they and `entries` ring entries are free."""
        if count > self._capacity or entries >= ENTRIES:
            raise UsageError(
                f"{count} words and {entries} entries at once are larger than the ring: "
                f"{self._capacity} words, {ENTRIES} entries; submit it in parts"
            )
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
        if reached > self.sequence:  # says nothing: `overshot` is the fault
            return reached
        while self._in_flight and self._in_flight[0][0] <= reached:
            _, self._tail, self._taken = self._in_flight.popleft()
        if not self._in_flight:
            self._tail, self._taken = self._head, self._put
        return reached

    def overshot(self) -> str:
        """Say that the GPU claims to have reached a submission that was never sent; else empty."""
        reached = self._progress[0]  # read first: more may be sent meanwhile
        if reached <= self.sequence:
            return ""
        return (
            f"the progress slot of {self.channel.label} holds {reached:#x}, but {self.sequence} submissions "
            f"were sent: the release that ends one went wrong, or something wrote over {self.memory.va:#x}"
        )

    def stuck(self) -> str:
        """Say what the ring is doing; empty when all was fetched."""
        reached = self.reclaim()
        if reached == self.sequence or self.retired:
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
        """Give the channel up; one that is not done is taken off the run list first; idempotent."""
        if self.retired:
            return
        if self.stuck():
            # Freeing ends a hung channel as well; stopping it first only makes that quick (nv.md 6.4).
            with contextlib.suppress(DriverError):
                self.channel.stop()
        self.retired = True
        self.channel.close()
