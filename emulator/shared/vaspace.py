"""An address space of an emulated GPU: the mapped memory, and checked accesses of engines to it.

A bad access raises the vendor's MMU fault (`PageFault`), whose message names the nearest allocation.

Not here: the rules of mapping, which belong to the emulated kernel driver (`emulator.nv.rm.uvm_space`). Next:
`memory`, the map for generated code.
"""

from __future__ import annotations

import ctypes
import enum
import itertools
from typing import TYPE_CHECKING, Protocol

from emulator.shared.memory import AddressSpace, store, zero

if TYPE_CHECKING:
    from emulator.shared.backing import Backing
    from emulator.shared.memory import GpuMapping


_TAIL = 64
"""Bytes of padding after a shadow of `Backing.initialised`."""
_numbers = itertools.count(1)


class AccessKind(enum.Enum):
    """How an engine accesses memory."""

    READ = enum.auto()
    WRITE = enum.auto()
    ATOMIC = enum.auto()
    PREFETCH = enum.auto()


class Miss(enum.Enum):
    """The reason why an access faults."""

    UNMAPPED = enum.auto()
    BEYOND = enum.auto()
    """The address has more bits than the address space."""
    READ_ONLY = enum.auto()


class PageFault(Protocol):
    """A factory of the error with which a vendor's engine stops."""

    def __call__(self, va: int, access: AccessKind, message: str, miss: Miss) -> Exception:
        """Return the error for an access at `va`."""


class VaSpace:
    """One GPU address space: mappings of `Backing` pages, by device address.

    `va_bits` is the width of an address in bits; `fault` creates the error for a bad access. Methods that
    take `what` use it as the subject of the error's message.
    """

    def __init__(self, va_bits: int, fault: PageFault) -> None:
        self.number = next(_numbers)
        """Unique in the process; the number of a freed space is not used again."""
        self.va_bits = va_bits
        self._fault = fault
        self.map = AddressSpace()
        self.backings: dict[int, Backing] = {}
        """Start of a mapping -> the pages behind it."""

    def add(
        self, va: int, size: int, backing: Backing, offset: int, *, writable: bool, note: str = ""
    ) -> None:
        """Map `size` bytes of `backing` from `offset` at `va`; `note` follows its name in reports.

        Raises `UsageError` if the range overlaps a mapping.
        """
        known = None if backing.initialised is None else backing.initialised[offset : offset + size + _TAIL]
        self.map.map(
            va, size, backing.host + offset, label=backing.label + note, writable=writable, initialised=known
        )
        self.backings[va] = backing.take()

    def remove(self, va: int, why: str) -> None:
        """Unmap the mapping that starts at `va`, else raise `UsageError`; `why` is kept for reports."""
        self.map.unmap(va, freed_at=why)
        self.backings.pop(va).drop()

    def clear(self, why: str) -> None:
        """Unmap everything."""
        for va in tuple(self.backings):
            self.remove(va, why)

    def overlapping(self, va: int, size: int) -> GpuMapping | None:
        """Return a mapping that shares an address with [va, va + size), or None."""
        return next((m for m in self.map.mappings() if m.va < va + size and va < m.end), None)

    def host(self, va: int, size: int, access: AccessKind, what: str) -> int:
        """Return the host address of [va, va + size).

        Raises the page fault unless one mapping holds all of it and permits the access.
        """
        mapping = self.map.find(va, size)
        if mapping is None:
            raise self._fault(
                va,
                access,
                f"{what} touches [{va:#x}, {va + size:#x}), which is not mapped; nearest: "
                f"{self.map.nearest(va)}",
                Miss.UNMAPPED if va >> self.va_bits == 0 else Miss.BEYOND,
            )
        if access is not AccessKind.READ and not mapping.writable:
            raise self._fault(va, access, f"{what} writes {mapping}, which is read-only", Miss.READ_ONLY)
        return mapping.host + va - mapping.va

    def read(self, va: int, size: int, what: str) -> bytes:
        """Read bytes for an engine; the range may span several mappings. Raises the page fault."""
        if size == 0:
            return b""
        found = self.map.find(va, size)
        if found is not None:
            return ctypes.string_at(found.host + va - found.va, size)
        return b"".join(
            self.map.read(at, length) for at, length in self._pieces(va, size, AccessKind.READ, what)
        )

    def write(self, va: int, data: bytes, what: str, states: bytes = b"") -> None:
        """Write bytes for an engine; the range may span mappings. Raises the page fault before any write.

        `states` has one byte for each byte of `data`, nonzero if it is initialised; empty means all are.
        """
        found = self.map.find(va, len(data))
        if found is not None and found.writable and found.initialised is None:
            store(found.host + va - found.va, data)
            return
        pieces = list(self._pieces(va, len(data), AccessKind.WRITE, what))
        for at, length in pieces:
            self.map.write(at, data[at - va : at - va + length])
            self.map.mark_initialised(at, length, states[at - va : at - va + length])

    def zero(self, va: int, size: int, what: str) -> None:
        """Write zeros for an engine, as `write` does. Untouched pages stay without host memory."""
        for at, length in list(self._pieces(va, size, AccessKind.WRITE, what)):
            zero(self.map.host(at, length), length)
            self.map.mark_initialised(at, length)

    def states(self, va: int, size: int) -> bytes:
        """Return one byte for each byte of a range, nonzero if it was written. Raises the page fault."""
        return b"".join(self.map.states(at, length) for at, length in self.pieces(va, size))

    def pieces(self, va: int, size: int, what: str = "an engine") -> list[tuple[int, int]]:
        """Split a range at the boundaries of mappings: (va, size) of each piece. Raises the page fault."""
        return self._pieces(va, size, AccessKind.READ, what)

    def combined(self, mapping: GpuMapping) -> bool:
        """Return whether stores of the CPU to a mapping are write-combined."""
        backing = self.backings.get(mapping.va)
        return backing is not None and backing.combined

    def mapped(self, va: int, size: int) -> int:
        """Return how many bytes from `va` on are mapped without a hole, at most `size`."""
        at = va
        while at < va + size and (mapping := self.map.find(at)) is not None:
            at = mapping.end
        return min(at - va, size)

    def check_range(self, va: int, size: int, access: AccessKind, what: str) -> None:
        """Raise the page fault of the first piece of [va, va + size) that cannot be accessed, if any."""
        self._pieces(va, size, access, what)

    def _pieces(self, va: int, size: int, access: AccessKind, what: str) -> list[tuple[int, int]]:
        pieces, at = [], va
        while at < va + size:
            mapping = self.map.find(at)
            end = va + size if mapping is None else min(mapping.end, va + size)
            self.host(at, end - at if mapping else 1, access, what)
            pieces.append((at, end - at))
            at = end
        return pieces

    def word(self, va: int, bits: int, what: str) -> int:
        """Read the word of a semaphore, of 32 or 64 bits, by one load. Raises the page fault."""
        found = self.map.find(va, bits // 8)
        if found is not None:
            return read_word(found.host + va - found.va, bits)
        return int.from_bytes(self.read(va, bits // 8, what), "little")


def read_word(host: int, bits: int) -> int:
    """Read a word of 32 or 64 bits at a host address, by one load."""
    kind = ctypes.c_uint64 if bits == 64 else ctypes.c_uint32
    return kind.from_address(host).value
