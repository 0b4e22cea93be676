"""The ring of one queue: its pointers, its doorbell, and the dwords that the doorbell made valid.

The dwords are read at the doorbell and again at the fetch, and compared. This finds a packet that was written
after the doorbell, and a packet that was overwritten before its fetch. After random packets the queue is
unmapped and mapped again: then the write pointer is read from memory, as firmware does.

A pointer or a doorbell that is refused raises `QueueFault`.

Not here: packets (`pm4`, `aql`, `sdma`). Next: `engines`, which feeds the ring. Source of the rules:
docs/sources-amd.md, PM4, SDMA and AQL.
"""

from __future__ import annotations

import random
from collections import deque
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Final

from drivers.amd.layouts.aql import PACKET_WORDS, READ_DISPATCH_ID_FIELD_BASE, Queue, Type
from drivers.amd.layouts.kfd import QueueType
from emulator.amd.reports import changed_fault, host_fault

if TYPE_CHECKING:
    from emulator.amd.engines.bus import Bus

_REMAP_CHANCE: Final = 1 / 64
"""Chance after each packet that the queue is unmapped and mapped again."""
_LAG_CHANCE: Final = 1 / 4
"""Chance after each packet that the read pointer in memory is not updated yet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RingRules:
    """How one kind of ring counts."""

    unit: int
    """Bytes in which the read and write pointers count."""
    doorbell_lag: int = 0
    """Units by which the doorbell's value is below the write pointer."""
    kept_free: int = 1
    """Units that stay free in a full ring."""
    wraps: bool = False
    """Whether the read pointer in memory is a 32-bit index that restarts at 0 at the ring's end; else it is a
    64-bit count."""


PM4: Final = RingRules(unit=4, wraps=True)
SDMA: Final = RingRules(unit=1)
AQL: Final = RingRules(unit=64, doorbell_lag=1, kept_free=0)
RULES: Final = {
    QueueType.COMPUTE: PM4,
    QueueType.COMPUTE_AQL: AQL,
    QueueType.SDMA: SDMA,
    QueueType.SDMA_XGMI: SDMA,
    QueueType.SDMA_BY_ENG_ID: SDMA,
}


class PacketRing:
    """The ring of one queue.

    A position counts dwords since the ring was created, whatever the pointers count.
    """

    def __init__(self, bus: Bus, *, remaps: bool = True) -> None:
        """Without `remaps` the write pointer is read at a doorbell and at UPDATE_QUEUE only."""
        self._bus = bus
        self.remaps = remaps
        self._rng = random.Random(bus.machine.rng.getrandbits(64))  # noqa: S311 - an order, not a secret
        """A generator of its own: the number of draws depends on when the host rings the doorbell."""
        self.rules = RULES[bus.queue.kind]
        self.words = bus.queue.ring_bytes // 4
        """Dwords of the ring."""
        self.fetched = 0
        """Position of the next dword to fetch."""
        self.target = 0
        """Position after the last valid dword."""
        self._published = 0
        """Position that the read pointer in memory holds."""
        self._covered: deque[int] = deque()
        """The dwords of [fetched, target), as they were when they became valid."""

    @property
    def left(self) -> int:
        """Valid dwords that are not fetched yet."""
        return self.target - self.fetched

    @property
    def pointer(self) -> int:
        """The write pointer in memory, in units of the ring. Raises `MemoryFault` if it is not mapped."""
        return self._bus.load(self._bus.queue.wptr_va, 8, "the fetch of the write pointer")

    def rung(self, value: int) -> None:
        """Handle a store of `value` to the doorbell.

        Raises `QueueFault` if it differs from the write pointer in memory, is not a multiple of 4 bytes, goes
        backwards, or overflows the ring.
        """
        lag, unit = self.rules.doorbell_lag, self.rules.unit
        pointer = self.pointer
        if pointer != value + lag:
            raise host_fault(
                f"the doorbell took {value:#x} while the write pointer in memory is {pointer:#x}: it is "
                f"stored first, as {value + lag:#x}"
            )
        at = (value + lag) * unit // 4
        if (value + lag) * unit % 4:
            raise host_fault(f"the doorbell took {value:#x}, no multiple of 4 bytes")
        if at < self.target:
            raise host_fault(f"the doorbell went back from {self.target * 4 // unit - lag:#x} to {value:#x}")
        self._check_headers(at)
        self.extend(at)

    def _check_headers(self, end: int) -> None:
        """Report AQL packets that are INVALID at their doorbell: they need not be read a second time."""
        if self.rules is not AQL:
            return
        for position in range(self.target, end, PACKET_WORDS):
            if self._memory(position, 1)[0] & 0xFF == Type.INVALID:
                self._bus.report_unverified(
                    f"the doorbell took {end // PACKET_WORDS - 1:#x} while the header of packet "
                    f"{position // PACKET_WORDS:#x} is INVALID: it is stored before the doorbell"
                )

    def extend(self, at: int) -> None:
        """Make the dwords up to position `at` valid. Raises `QueueFault` if they overflow the ring."""
        distance = READ_DISPATCH_ID_FIELD_BASE - Queue.offset_of("write_dispatch_id")
        if self.rules is AQL and self._bus.queue.rptr_va - self._bus.queue.wptr_va != distance:
            self._bus.report_unverified(
                f"the write pointer at {self._bus.queue.wptr_va:#x} is not write_dispatch_id of the "
                f"amd_queue_t whose read_dispatch_id is at {self._bus.queue.rptr_va:#x}"
            )
        free = self.words - self.rules.kept_free * max(self.rules.unit // 4, 1)
        if at - self._published > free:
            raise host_fault(
                f"the ring overflows: {at - self._published} dwords are between read and write pointer, it "
                f"has {self.words}"
            )
        if self._bus.order is not None and at != self.target:
            self._bus.order.on_doorbell(self.target)
        self._covered.extend(self._memory(self.target, at - self.target))
        self.target = at

    def remap(self) -> None:
        """Read the write pointer from memory, as firmware does when it maps the queue to hardware.

        Raises `QueueFault` if the pointer is not a multiple of 4 bytes, went backwards, or overflows the
        ring.
        """
        unit = self.rules.unit
        pointer = self.pointer
        if pointer * unit % 4 or pointer * unit // 4 < self.target:
            raise host_fault(
                f"the write pointer in memory went back from {self.target * 4 // unit:#x} to {pointer:#x}"
            )
        self.extend(pointer * unit // 4)

    def maybe_remap(self) -> None:
        """Remap the queue at random, if the ring remaps. Call it between two packets."""
        if self.remaps and self._rng.random() < _REMAP_CHANCE:
            self.remap()

    def _memory(self, at: int, count: int) -> list[int]:
        """Return `count` dwords from position `at` on, as memory has them now."""
        out: list[int] = []
        while count:
            place = at % self.words
            part = min(count, self.words - place)
            out += self._bus.words(self._bus.queue.ring_va + 4 * place, part, "the fetch of the ring")
            at, count = at + part, count - part
        return out

    def ahead(self) -> tuple[int, ...]:
        """Return the valid dwords that are not fetched yet, as they were when they became valid."""
        return tuple(self._covered)

    def head(self, count: int) -> tuple[int, ...]:
        """Return the first dwords of `ahead`, at most `count`."""
        return tuple(islice(self._covered, count))

    def peek(self, index: int = 0) -> int:
        """Return the dword `index` after the next to fetch, as memory has it now."""
        return self._memory(self.fetched + index, 1)[0]

    def straddles(self, count: int) -> bool:
        """Return whether the next `count` dwords go beyond the ring's end."""
        return self.fetched % self.words + count > self.words

    def take(self, count: int, *, checked: bool = True) -> list[int]:
        """Fetch `count` dwords, at most `left`.

        Raises `QueueFault` if one changed since the doorbell, unless `checked` is false.
        """
        now = self._memory(self.fetched, count)
        before = [self._covered.popleft() for _ in range(count)]
        if self._bus.order is not None:
            self._bus.order.on_fetch(self.fetched)
        if checked and now != before:
            first = next(i for i in range(count) if now[i] != before[i])
            raise changed_fault(
                f"dword {(self.fetched + first) % self.words} of the ring is {now[first]:#x} and was "
                f"{before[first]:#x} when the doorbell rang: it is written before, and kept until it is taken"
            )
        self.fetched += count
        return now

    def tell(self, *, lazily: bool) -> None:
        """Store the read pointer to memory; if `lazily`, a random part of the calls stores nothing."""
        if self._published == self.fetched or (lazily and self._rng.random() < _LAG_CHANCE):
            return
        self._published = self.fetched
        va, what = self._bus.queue.rptr_va, "the store of the read pointer"
        unit = self.rules.unit
        inverted = self._bus.machine.rejections.refuses("read pointer", self._bus.queue.kind)
        if self.rules.wraps != bool(inverted):
            self._bus.store(va, self.fetched % self.words * 4 // unit, 4, what)
        else:
            self._bus.store(va, self.fetched * 4 // unit, 8, what)
