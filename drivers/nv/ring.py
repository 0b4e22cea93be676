"""The ring of one channel: it writes words to push-buffer memory, entries to the ring, and the doorbell.

Each submission ends with a release of its number to the ring's progress slot. From this slot the ring knows,
on every generation, which words and entries the GPU has fetched and the ring may overwrite.

Not here: creating channels (`channel`), the words (`push`, `encode`). Next: `hcq.driver.Ring`, the contract.
"""

from __future__ import annotations

import contextlib
import time
from array import array
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final

from drivers.nv import push
from drivers.nv.channel import ENTRIES, Channel, ChannelKind
from drivers.nv.layouts.gpfifo import GpfifoEntry, Subchannel
from drivers.nv.memory import NvMemories, NvMemory
from hcq.errors import BringUpError, DeviceFault, DriverError, FaultReport, UsageError
from hcq.pushbuffer import PushBuffer

PUSH_BYTES: Final = 1 << 20
"""The default size of a ring's push-buffer memory."""
PUSH_BYTES_PER_ENTRY: Final = PUSH_BYTES // ENTRIES
_PUSH_START: Final = 4096
"""The first page of the push memory holds the progress slot."""
_NAP_S: Final = 20e-6
_ONE_WORD: Final = GpfifoEntry.pack(ADDRESS=0, LENGTH=1)[0]
"""LENGTH 1 in place: a ring entry is its address plus this for each word of its segment."""
_TAIL_WORDS: Final = push.SEM_WORDS
"""Words that the ring adds to a submission: the release of its number."""


class NvRing:
    """The ring of one channel; see `hcq.driver.Ring`. Not thread-safe: the queue holds its lock.

    `setup` are the first words on a channel. `refresh` returns words to send before the next submission if
    `stale` is set. `fault` returns the device's fault, or None. `push_bytes` is the size of the push-buffer
    memory. The ring owns the channel and this memory. Raises `OutOfMemoryError` or `DriverError` if there is
    no memory for it, `BringUpError` as `attach`; then the caller still owns the channel.
    """

    def __init__(
        self,
        channel: Channel,
        memories: NvMemories,
        *,
        setup: push.Words,
        refresh: Callable[[NvRing], push.Words],
        fault: Callable[[], FaultReport | None],
        push_bytes: int = PUSH_BYTES,
    ) -> None:
        self._memories = memories
        self._setup = setup
        self._refresh = refresh
        self._fault = fault
        self.stalled: Callable[[int], None] = lambda _until: None
        """This attribute, `words` and `submissions`: see `hcq.driver.Ring`."""
        self.memory: NvMemory = memories.push(
            _PUSH_START + push_bytes, label=f"push buffer of {channel.label}"
        )
        view = self.memory.view
        assert view is not None, "host memory has a view"
        self._progress = view[:8].cast("Q")
        self._words = view[_PUSH_START:].cast("I")
        self._capacity = len(self._words)
        self._entry = self.memory.va + _PUSH_START + channel.entry_level
        """A ring entry of length 0: the address, which an entry holds unshifted, and LEVEL."""
        self.words = self._capacity - _TAIL_WORDS
        self._size = channel.entry_count
        self.submissions = self._size - 1
        self.closed = False
        self.sequence = 0
        """Number of the last submission. A new channel continues the numbers of the old one: a late release
        of the old channel then never frees words that the new channel has not fetched."""
        try:
            self.attach(channel)
        except BaseException:
            memories.free(self.memory)
            raise

    def attach(self, channel: Channel) -> None:
        """Use a channel with an empty ring: the first one, or a new one after a fault.

        Raises `BringUpError` if the progress slot holds a number that was never sent.
        """
        self.channel = channel
        self.retired = False
        """Whether the channel was closed and there is no new one yet."""
        subchannel = Subchannel.COMPUTE if channel.kind is ChannelKind.COMPUTE else Subchannel.COPY
        self._release = array("I", push.semaphore(subchannel, self.memory.va, 0, push.RELEASE))
        """The release that ends a submission; `send` fills in the number."""
        number = 4 * push.SEM_VALUE
        self._number = memoryview(self._release).cast("B")[number : number + 8].cast("L")
        self._entries = channel.entries
        self._progress[0] = self.sequence
        self._head = self._tail = 0
        """Total words written, and total words that the GPU has fetched for certain."""
        self._put = self._taken = 0
        """Total entries written, and total entries that the GPU has fetched for certain."""
        self._head_limit, self._put_limit = self._capacity, self._size - 1
        """Limits of `_head` and `_put`, which the next unfetched data or the end of the buffer sets. Above
        them the ring reads the progress slot again."""
        self._in_flight: deque[tuple[int, int, int]] = deque()
        """For each unfinished submission its number, and `_head` and `_put` after it."""
        self.code_epoch = self.local_epoch = 0
        self.stale = True
        """Set by the device if `refresh` must be called before the next words, after new code or local
        memory."""
        text = self.overshot()
        if text:
            raise BringUpError(text)
        self.send(self._setup, ())

    @property
    def taken(self) -> int:
        """Total entries written; see `hcq.driver.Ring`."""
        return self._put

    def submit(self, pushbuffer: PushBuffer) -> None:
        """Make the words of `pushbuffer` visible and write the doorbell; see `hcq.driver.Ring`."""
        if self.stale:
            self.stale = False
            before = self._refresh(self)
            if before:
                self.send(before, ())
        self.send(pushbuffer.words, pushbuffer.calls)

    def send(self, words: Sequence[int], calls: Sequence[tuple[int, int]] = ()) -> None:
        """Send words, with calls of prebuilt words between them; see `PushBuffer.calls`.

        Blocks while the ring has no space. Raises `UsageError` if the ring can never hold the words,
        `DeviceFault` if the device faults in the meantime; `stalled` may raise its own errors.
        """
        count = len(words) + _TAIL_WORDS
        put = self._put
        if self._head + count > self._head_limit or put + 1 + 2 * len(calls) > self._put_limit:
            self._wait_for_space(count, 1 + 2 * len(calls))
        at, head = self._head % self._capacity, self._head + count
        if words.__class__ is not array:
            words = array("I", words)
        self._number[0] = self.sequence = sequence = self.sequence + 1
        self._words[at : at + count] = words + self._release
        entries, entry0, size, start = self._entries, self._entry, self._size, 0
        for position, entry in calls:
            if position > start:
                entries[put % size] = entry0 + 4 * (at + start) + (position - start) * _ONE_WORD
                put += 1
            entries[put % size] = entry
            put, start = put + 1, position
        entries[put % size] = entry0 + 4 * (at + start) + (count - start) * _ONE_WORD
        self._head, self._put = head, put + 1
        self._in_flight.append((sequence, head, put + 1))
        self.channel.ring_doorbell((put + 1) % size)

    def _wait_for_space(self, count: int, entries: int) -> None:
        """Wait until `count` contiguous words and `entries` ring entries are free. Raises as `send` does."""
        if count > self._capacity or entries >= self._size:
            raise UsageError(
                f"{count} words and {entries} entries at once are larger than the ring: "
                f"{self._capacity} words, {self._size} entries; submit it in parts"
            )
        end = self._head - self._head % self._capacity + self._capacity
        if self._head + count > end:
            self._head, end = end, end + self._capacity
        while True:
            self.reclaim()
            self._head_limit = min(end, self._tail + self._capacity)
            self._put_limit = self._taken + self._size - 1
            if self._head + count <= self._head_limit and self._put + entries <= self._put_limit:
                return
            report = self._fault()
            if report is not None:
                raise DeviceFault(report)
            self.stalled(self._awaited(count, entries))
            time.sleep(_NAP_S)

    def _awaited(self, count: int, entries: int) -> int:
        """Return `_put` after the oldest submission whose completion frees the space."""
        words, slots = self._head + count - self._capacity, self._put + entries - self._size + 1
        return next((put for _, head, put in self._in_flight if head >= words and put >= slots), self._put)

    def unread(self, ending_words: int) -> int:
        """Return 1: a submission's entries are free only when it is complete, all at once."""
        del ending_words
        return 1

    def reclaim(self) -> int:
        """Free the space of completed submissions; return the number in the progress slot.

        It is the number of the last completed submission, unless the slot was overwritten (`overshot`).
        """
        reached = self._progress[0]
        if reached > self.sequence:  # an invalid value, which the device reports as a fault
            return reached
        while self._in_flight and self._in_flight[0][0] <= reached:
            _, self._tail, self._taken = self._in_flight.popleft()
        if not self._in_flight:
            self._tail, self._taken = self._head, self._put
        return reached

    def overshot(self) -> str:
        """Return a message if the progress slot holds a number that was never sent, else ""."""
        reached = self._progress[0]  # read first: `sequence` may grow in the meantime
        if reached <= self.sequence:
            return ""
        return (
            f"the progress slot of {self.channel.label} holds {reached:#x}, but {self.sequence} submissions "
            f"were sent: a release wrote a wrong value, or something overwrote {self.memory.va:#x}"
        )

    def stuck(self) -> str:
        """Return the position of the ring and the kernel's report on it, if any; "" if all is fetched."""
        text = self.position()
        if not text or self._fault() is not None:  # a fault's report contains the kernel's reports
            return text
        mine = f"channel {self.channel.handle:#x}"
        return text + "".join(f"; {known}" for known in self.channel.diagnostics() if mine in known)

    def position(self) -> str:
        """Describe how far the ring is fetched; "" if all is fetched."""
        reached = self.reclaim()
        if reached == self.sequence or self.retired:
            return ""
        got = self.channel.fetched()
        text = f"{self.channel.label}: fetched {reached} of {self.sequence} submissions, "
        text += f"put index {self._put % self._size}"
        return text + (f", fetched up to {got}" if got is not None else "")

    def close(self) -> None:
        """Free channel and push-buffer memory, even if a kernel hangs; idempotent."""
        if not self.closed:
            self.closed = True
            self.retire()
            self._memories.free(self.memory)

    def retire(self) -> None:
        """Close the channel; if it has unfinished work, stop it first; idempotent."""
        if self.retired:
            return
        if self.position():
            # Freeing also ends a hung channel; stopping it first only makes that fast (nv.md 6.4).
            with contextlib.suppress(DriverError):
                self.channel.stop()
        self.retired = True
        self.channel.close()
