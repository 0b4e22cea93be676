"""An address space of an emulated GPU: which memory lies where, and what the accesses of engines find there.

Checks every access. A miss is an MMU fault as on hardware, with the nearest allocation named; the vendor
makes its error (`PageFault`). Not here: page tables and permissions to map, which are the kernel driver's.
"""

from __future__ import annotations

import enum
import itertools
import struct
from typing import TYPE_CHECKING, Protocol

from drivers.emu.memory import AddressSpace

if TYPE_CHECKING:
    from drivers.emu.backing import Backing
    from drivers.emu.memory import Mapping


_TAIL = 64
_numbers = itertools.count(1)


class Access(enum.Enum):
    """How an engine accesses memory."""

    READ = enum.auto()
    WRITE = enum.auto()
    ATOMIC = enum.auto()
    PREFETCH = enum.auto()


class Miss(enum.Enum):
    """Why an access is refused."""

    UNMAPPED = enum.auto()
    BEYOND = enum.auto()
    """The address has more bits than the space."""
    READ_ONLY = enum.auto()


class PageFault(Protocol):
    """Makes the error that a vendor's engine stops with."""

    def __call__(self, va: int, access: Access, message: str, miss: Miss) -> Exception:
        """Return the error of an access at `va`."""
        ...


class VaSpace:
    """One GPU address space: mappings of `Backing` pages by device address.

    `va_bits` is how many bits an address has, `fault` makes the error of a bad access.
    """

    def __init__(self, va_bits: int, fault: PageFault) -> None:
        self.number = next(_numbers)
        """Differs from that of every other space of the process, freed ones included."""
        self.va_bits = va_bits
        self._fault = fault
        self.map = AddressSpace()
        self.backings: dict[int, Backing] = {}
        """Start of a mapping -> the pages behind it."""

    def add(self, va: int, size: int, backing: Backing, offset: int, *, writable: bool) -> None:
        """Map pages; the caller has checked that nothing is there."""
        known = None if backing.initialised is None else backing.initialised[offset : offset + size + _TAIL]
        self.map.map(
            va, size, backing.host + offset, label=backing.label, writable=writable, initialised=known
        )
        self.backings[va] = backing.take()

    def remove(self, va: int, why: str) -> None:
        """Unmap what starts at `va`."""
        self.map.unmap(va, freed_at=why)
        self.backings.pop(va).drop()

    def clear(self, why: str) -> None:
        """Unmap everything."""
        for va in tuple(self.backings):
            self.remove(va, why)

    def overlapping(self, va: int, size: int) -> Mapping | None:
        """Return a mapping that shares an address with [va, va + size), or None."""
        return next((m for m in self.map.mappings() if m.va < va + size and va < m.end), None)

    def host(self, va: int, size: int, access: Access, what: str) -> int:
        """Return the host address of [va, va + size) in one mapping, or raise the page fault."""
        mapping = self.map.find(va, size)
        if mapping is None:
            raise self._fault(
                va,
                access,
                f"{what} touches [{va:#x}, {va + size:#x}), which is not mapped; nearest: "
                f"{self.map.nearest(va)}",
                Miss.UNMAPPED if va >> self.va_bits == 0 else Miss.BEYOND,
            )
        if access is not Access.READ and not mapping.writable:
            raise self._fault(va, access, f"{what} writes {mapping}, which is read-only", Miss.READ_ONLY)
        return mapping.host + va - mapping.va

    def read(self, va: int, size: int, what: str) -> bytes:
        """Read bytes for an engine; a range over several mappings is fine."""
        if size == 0:
            return b""
        found = self.map.find(va, size)
        if found is not None:
            return self.map.read(va, size)
        return b"".join(self.map.read(at, length) for at, length in self._pieces(va, size, Access.READ, what))

    def write(self, va: int, data: bytes, what: str, states: bytes = b"") -> None:
        """Write bytes for an engine; nothing is written when any of it is not mapped.

        `states` has a byte for each, not 0 where its source was written; without it all were.
        """
        pieces = list(self._pieces(va, len(data), Access.WRITE, what))
        for at, length in pieces:
            self.map.write(at, data[at - va : at - va + length])
            self.map.mark_initialised(at, length, states[at - va : at - va + length])

    def states(self, va: int, size: int) -> bytes:
        """Return for each byte of a mapped range whether it was written."""
        return b"".join(self.map.states(at, length) for at, length in self.pieces(va, size))

    def pieces(self, va: int, size: int) -> list[tuple[int, int]]:
        """Cut a range that is mapped where allocations meet."""
        return self._pieces(va, size, Access.READ, "an engine")

    def combined(self, mapping: Mapping) -> bool:
        """Whether the CPU's stores to a mapping are write-combined."""
        backing = self.backings.get(mapping.va)
        return backing is not None and backing.combined

    def mapped(self, va: int, size: int) -> int:
        """Return how many bytes of [va, va + size) are mapped without a hole, from its start."""
        at = va
        while at < va + size and (mapping := self.map.find(at)) is not None:
            at = mapping.end
        return min(at - va, size)

    def reach(self, va: int, size: int, access: Access, what: str) -> None:
        """Raise the MMU fault of the first byte of [va, va + size) that cannot be accessed."""
        self._pieces(va, size, access, what)

    def _pieces(self, va: int, size: int, access: Access, what: str) -> list[tuple[int, int]]:
        pieces, at = [], va
        while at < va + size:
            mapping = self.map.find(at)
            end = va + size if mapping is None else min(mapping.end, va + size)
            self.host(at, end - at if mapping else 1, access, what)
            pieces.append((at, end - at))
            at = end
        return pieces

    def word(self, va: int, bits: int, what: str) -> int:
        """Read a semaphore's word."""
        value: int = struct.unpack("<Q" if bits == 64 else "<I", self.read(va, bits // 8, what))[0]
        return value
