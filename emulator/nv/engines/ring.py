"""The entries of a channel's ring in memory: reading and decoding (docs/facts/nv.md 3.1).

Not here: fences before the doorbell (`emulator.nv.engines.combining`). Next: `channel`, which executes
entries.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, NamedTuple

from drivers.kernel import view_at
from drivers.nv.layouts.gpfifo import GpfifoEntry

if TYPE_CHECKING:
    from emulator.nv.engines.engine import Setup


class RingEntry(NamedTuple):
    """A decoded entry."""

    address: int
    """Device address of the segment."""
    size: int
    """Bytes of the segment; 0 for a control entry, whose other fields mean nothing."""
    wrong: str
    """The broken rule; "" if the entry is valid."""


@functools.lru_cache(maxsize=1024)
def decode_entry(raw: int) -> RingEntry:
    """Decode an entry. Results are cached, because rings repeat their entries."""
    entry = GpfifoEntry.from_int(raw)
    violations = entry.check()
    wrong = str(violations[0]) if violations else "conditional fetch is not known" if entry.FETCH else ""
    return RingEntry(entry.ADDRESS, 4 * entry.LENGTH, wrong)


class RingEntries:
    """The reader of one ring's entries.

    It searches for their memory only after a change of the address space.
    """

    __slots__ = ("_setup", "_version", "_words")

    def __init__(self, setup: Setup) -> None:
        self._setup = setup
        self._version = -1
        """The version of the map of allocations for which `_words` holds."""
        self._words: memoryview | None = None
        """The ring as u64 elements; None if no single allocation holds all of it."""

    def read(self, slot: int) -> int:
        """Return the contents of a slot. Raises the page fault if it is not mapped."""
        memory = self._setup.space.map
        if memory.version != self._version:
            version = memory.version  # before the search: a change meanwhile is seen at the next read
            va, size = self._setup.ring_va, self._setup.entries * GpfifoEntry.SIZE
            found = memory.find(va, size)
            self._words = None if found is None else view_at(found.host + va - found.va, size).cast("Q")
            self._version = version
        if self._words is not None:
            return self._words[slot]
        va = self._setup.ring_va + slot * GpfifoEntry.SIZE
        raw = self._setup.space.read(va, GpfifoEntry.SIZE, f"ring entry {slot}")
        return int.from_bytes(raw, "little")
