"""The ring of one queue: pointers, doorbells, and the dwords that the doorbell covered.

What a doorbell covered is compared with what is fetched later, so a packet written after the doorbell, and
one overwritten before it was taken, are both found. At a random packet's boundary the queue is unmapped and
mapped again: then the write pointer is read from memory, as firmware does.

Not here: packets (`pm4`, `aql`, `sdma`).
"""

from __future__ import annotations

import random
from collections import deque
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Final

from drivers.amd.layouts.aql import PACKET_WORDS, READ_DISPATCH_ID_FIELD_BASE, Queue, Type
from drivers.amd.layouts.kfd import QueueType
from emulator.amd.engines.errors import changed_fault, host_fault

if TYPE_CHECKING:
    from emulator.amd.engines.bus import Bus

_REMAP_CHANCE: Final = 1 / 64
_LAG_CHANCE: Final = 1 / 4


@dataclass(frozen=True, slots=True, kw_only=True)
class RingRules:
    """The unit in which one kind of ring counts."""

    unit: int
    """Bytes that its pointers count as one."""
    behind: int = 0
    """The doorbell is the write pointer less this."""
    kept_free: int = 1
    """Units that a full ring still has free."""
    wraps: bool = False
    """The read pointer is a 32-bit index that restarts at 0 with the ring."""


PM4: Final = RingRules(unit=4, wraps=True)
SDMA: Final = RingRules(unit=1)
AQL: Final = RingRules(unit=64, behind=1, kept_free=0)
RULES: Final = {
    QueueType.COMPUTE: PM4,
    QueueType.COMPUTE_AQL: AQL,
    QueueType.SDMA: SDMA,
    QueueType.SDMA_XGMI: SDMA,
    QueueType.SDMA_BY_ENG_ID: SDMA,
}


class PacketRing:
    """Positions are dwords since the queue was made, whatever the pointers count in."""

    def __init__(self, bus: Bus, *, remaps: bool = True) -> None:
        """Without `remaps` only the doorbell and UPDATE_QUEUE have the write pointer read."""
        self._bus = bus
        self.remaps = remaps
        self._rng = random.Random(bus.machine.rng.getrandbits(64))  # noqa: S311 - an order, not a secret
        """Its own: how often it is asked depends on when the host rings."""
        self.rules = RULES[bus.queue.kind]
        self.words = bus.queue.ring_bytes // 4
        self.fetched = 0
        """Position of the next dword to take."""
        self.target = 0
        """Position behind the last one that may be taken."""
        self._told = 0
        """Position that the read pointer in memory tells."""
        self._covered: deque[int] = deque()
        """The dwords of [fetched, target), as they were when they became valid."""

    @property
    def left(self) -> int:
        """Dwords that may be taken."""
        return self.target - self.fetched

    @property
    def pointer(self) -> int:
        """The write pointer in memory."""
        return self._bus.load(self._bus.queue.wptr_va, 8, "the fetch of the write pointer")

    def rung(self, value: int) -> None:
        """Take a doorbell."""
        behind, unit = self.rules.behind, self.rules.unit
        pointer = self.pointer
        if pointer != value + behind:
            raise host_fault(
                f"the doorbell took {value:#x} while the write pointer in memory is {pointer:#x}: it is "
                f"stored first, as {value + behind:#x}"
            )
        at = (value + behind) * unit // 4
        if (value + behind) * unit % 4:
            raise host_fault(f"the doorbell took {value:#x}, no multiple of 4 bytes")
        if at < self.target:
            raise host_fault(
                f"the doorbell went back from {self.target * 4 // unit - behind:#x} to {value:#x}"
            )
        self._check_headers(at)
        self.extend(at)

    def _check_headers(self, end: int) -> None:
        """Object to a doorbell ahead of its packets: the packet processor need not look again (facts 3)."""
        if self.rules is not AQL:
            return
        for position in range(self.target, end, PACKET_WORDS):
            if self._memory(position, 1)[0] & 0xFF == Type.INVALID:
                self._bus.doubt(
                    f"the doorbell took {end // PACKET_WORDS - 1:#x} while the header of packet "
                    f"{position // PACKET_WORDS:#x} is INVALID: it is stored before the doorbell"
                )

    def extend(self, at: int) -> None:
        """Let the dwords up to a position be taken."""
        behind = READ_DISPATCH_ID_FIELD_BASE - Queue.offset_of("write_dispatch_id")
        if self.rules is AQL and self._bus.queue.rptr_va - self._bus.queue.wptr_va != behind:
            self._bus.doubt(
                f"the write pointer at {self._bus.queue.wptr_va:#x} is not write_dispatch_id of the "
                f"amd_queue_t whose read_dispatch_id is at {self._bus.queue.rptr_va:#x} (facts 5)"
            )
        free = self.words - self.rules.kept_free * max(self.rules.unit // 4, 1)
        if at - self._told > free:
            raise host_fault(
                f"the ring overflows: {at - self._told} dwords are between read and write pointer, it has "
                f"{self.words}"
            )
        if self._bus.order is not None and at != self.target:
            self._bus.order.covered(self.target)
        self._covered.extend(self._memory(self.target, at - self.target))
        self.target = at

    def remap(self) -> None:
        """Read the write pointer anew, as when the queue is mapped to hardware again."""
        unit = self.rules.unit
        pointer = self.pointer
        if pointer * unit % 4 or pointer * unit // 4 < self.target:
            raise host_fault(
                f"the write pointer in memory went back from {self.target * 4 // unit:#x} to {pointer:#x}"
            )
        self.extend(pointer * unit // 4)

    def maybe_remap(self) -> None:
        """Do so at some boundaries of packets."""
        if self.remaps and self._rng.random() < _REMAP_CHANCE:
            self.remap()

    def _memory(self, at: int, count: int) -> list[int]:
        out: list[int] = []
        while count:
            place = at % self.words
            part = min(count, self.words - place)
            out += self._bus.words(self._bus.queue.ring_va + 4 * place, part, "the fetch of the ring")
            at, count = at + part, count - part
        return out

    def ahead(self) -> tuple[int, ...]:
        """Return the dwords that may be taken, as they were when they became valid."""
        return tuple(self._covered)

    def head(self, count: int) -> tuple[int, ...]:
        """Return the first of them, `count` at most."""
        return tuple(islice(self._covered, count))

    def peek(self, index: int = 0) -> int:
        """Return a dword ahead, as memory has it now."""
        return self._memory(self.fetched + index, 1)[0]

    def straddles(self, count: int) -> bool:
        """Return whether the next `count` dwords go beyond the ring's end."""
        return self.fetched % self.words + count > self.words

    def take(self, count: int, *, checked: bool = True) -> list[int]:
        """Take dwords; those that changed since the doorbell raise, if `checked`."""
        now = self._memory(self.fetched, count)
        before = [self._covered.popleft() for _ in range(count)]
        if self._bus.order is not None:
            self._bus.order.fetched(self.fetched)
        if checked and now != before:
            first = next(i for i in range(count) if now[i] != before[i])
            raise changed_fault(
                f"dword {(self.fetched + first) % self.words} of the ring is {now[first]:#x} and was "
                f"{before[first]:#x} when the doorbell rang: it is written before, and kept until it is taken"
            )
        self.fetched += count
        return now

    def tell(self, *, lazily: bool) -> None:
        """Store the read pointer; `lazily` it may stay behind for a while."""
        if self._told == self.fetched or (lazily and self._rng.random() < _LAG_CHANCE):
            return
        self._told = self.fetched
        va, what = self._bus.queue.rptr_va, "the store of the read pointer"
        unit = self.rules.unit
        if self.rules.wraps != bool(self._bus.machine.other.refuses("read pointer", self._bus.queue.kind)):
            self._bus.store(va, self.fetched % self.words * 4 // unit, 4, what)
        else:
            self._bus.store(va, self.fetched * 4 // unit, 8, what)
