"""A PM4 compute queue: one command processor, fed packet by packet from the ring.

Not here: what packets do (`pm4`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from drivers.amd.emu.engines.errors import packet_fault
from drivers.amd.emu.engines.packets import length, stores
from drivers.amd.emu.engines.pm4 import Pm4

if TYPE_CHECKING:
    from collections.abc import Iterator

    from drivers.amd.emu.engines.bus import Bus
    from drivers.amd.emu.engines.flights import Flights
    from drivers.amd.emu.engines.kernels import Kernels
    from drivers.amd.emu.engines.ring import Ring
    from drivers.amd.emu.engines.waits import Promise, Wait


class Pm4Queue:
    """The engine of one queue."""

    def __init__(self, bus: Bus, flights: Flights, kernels: Kernels, ring: Ring) -> None:
        self._bus, self._ring = bus, ring
        self._core = Pm4(bus, flights, kernels, xcc=bus.queue.target_xcc)

    @property
    def at(self) -> str:
        """Which packet is being executed."""
        return self._core.at

    @property
    def active(self) -> bool:
        """Whether anything is left to do."""
        return self._core.active or self._ring.left > 0

    def waits(self) -> list[Wait]:
        """Return what it waits for."""
        return [] if self._core.waiting is None else [self._core.waiting]

    def can_advance(self) -> bool:
        """Return whether `advance` can do something."""
        return self._core.can_advance() if self._core.active else self._ring.left > 0

    def advance(self) -> None:
        """Do one thing: end a wait, or execute a packet."""
        if not self._core.active:
            self._fetch()
        self._core.advance()

    def _fetch(self) -> None:
        place = self._ring.fetched % self._ring.words
        head = self._ring.head(1)[0]
        size = length(head)
        if size > self._ring.left:
            raise packet_fault(
                f"the packet {head:#010x} at dword {place} of the ring has {size} dwords, "
                f"{self._ring.left} are left"
            )
        if self._ring.straddles(size):
            self._bus.lint("a packet goes beyond the ring's end and on at its start: padding is safer")
        self._core.run(self._ring.take(size), f"the ring at {place}")

    def ahead(self) -> Iterator[Promise]:
        """Yield the stores of the packets that it has not reached."""
        yield from self._core.ahead()
        yield from stores(self._bus, self._ring.ahead(), self._core.generation)
