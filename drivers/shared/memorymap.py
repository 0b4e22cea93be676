"""The live and the recently freed mappings of a device, for the text of fault reports.

Not here: allocating and mapping memory (`drivers.nv.memory`, `drivers.amd.memory`). Next:
`drivers.nv.faults`, which describes faulting addresses.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from typing import Final, Generic, Protocol, TypeVar

_REMEMBERED: Final = 64
"""The most freed ranges that are kept; the oldest is dropped first."""


class AddressRange(Protocol):
    """A range of device addresses."""

    @property
    def va(self) -> int:
        """The first address."""

    @property
    def size(self) -> int:
        """The size in bytes."""

    @property
    def label(self) -> str:
        """The use of the memory, for messages."""


M = TypeVar("M", bound=AddressRange)


class MemoryMap(Generic[M]):
    """The live mappings by address, and the mappings that were freed last.

    `in` tests whether a mapping is live, by identity. Not thread-safe: the caller holds the device's lock.
    """

    def __init__(self) -> None:
        self._live: dict[int, M] = {}
        self._freed: deque[M] = deque(maxlen=_REMEMBERED)

    def add(self, memory: M) -> None:
        """Record a live mapping. Its range must not overlap another."""
        self._live[memory.va] = memory

    def remove(self, memory: M) -> None:
        """Move a live mapping to the freed ones. Raises `KeyError` if no live mapping has its address."""
        del self._live[memory.va]
        self._freed.append(memory)

    def __contains__(self, memory: M) -> bool:
        return self._live.get(memory.va) is memory

    def live(self) -> list[M]:
        """Return the live mappings, sorted by address."""
        return [self._live[va] for va in sorted(self._live)]

    def nearest(self, va: int) -> str:
        """Describe the live mapping that holds `va`, else a freed one that held it, else the nearest one.

        "nothing is mapped" if there is none.
        """
        starts = sorted(self._live)
        index = bisect_right(starts, va) - 1
        around = [self._live[starts[i]] for i in (index, index + 1) if 0 <= i < len(starts)]
        freed = next((m for m in reversed(self._freed) if m.va <= va < m.va + m.size), None)
        if freed is not None and not any(m.va <= va < m.va + m.size for m in around):
            return f"{_range(freed)} {freed.label}, which was freed"
        if not around:
            return "nothing is mapped"
        best = min(
            around,
            key=lambda m: 0 if m.va <= va < m.va + m.size else min(abs(va - m.va), abs(va - m.va - m.size)),
        )
        return f"{_range(best)} {best.label}, {_relation(best, va)}"


def _range(memory: AddressRange) -> str:
    return f"[{memory.va:#x}, {memory.va + memory.size:#x})"


def _relation(memory: AddressRange, va: int) -> str:
    if va < memory.va:
        return f"{memory.va - va} bytes above the address"
    if va >= memory.va + memory.size:
        return f"{va - memory.va - memory.size} bytes below the address"
    return f"which holds the address at offset {va - memory.va:#x}"
