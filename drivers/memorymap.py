"""What memory a device maps, and what it mapped: how fault reports find what lies nearest to an address.

Not here: allocating and mapping, which the drivers do (`drivers.nv.memory`).
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from typing import Final, Generic, Protocol, TypeVar

_REMEMBERED: Final = 64
"""Freed ranges kept for fault reports."""


class Range(Protocol):
    """A range of device addresses."""

    @property
    def va(self) -> int:
        """The first address."""
        ...

    @property
    def size(self) -> int:
        """Bytes."""
        ...

    @property
    def label(self) -> str:
        """What it is, in words."""
        ...


M = TypeVar("M", bound=Range)


class MemoryMap(Generic[M]):
    """What lies where, and what lay there. Not thread-safe: the device holds its lock."""

    def __init__(self) -> None:
        self._live: dict[int, M] = {}
        self._freed: deque[M] = deque(maxlen=_REMEMBERED)

    def add(self, memory: M) -> None:
        """Note a mapping."""
        self._live[memory.va] = memory

    def remove(self, memory: M) -> None:
        """Note that a mapping is gone."""
        del self._live[memory.va]
        self._freed.append(memory)

    def __contains__(self, memory: M) -> bool:
        return self._live.get(memory.va) is memory

    def live(self) -> list[M]:
        """Return all mappings, by address."""
        return [self._live[va] for va in sorted(self._live)]

    def nearest(self, va: int) -> str:
        """Return in words what lies nearest to `va`."""
        starts = sorted(self._live)
        index = bisect_right(starts, va) - 1
        around = [self._live[starts[i]] for i in (index, index + 1) if 0 <= i < len(starts)]
        gone = next((m for m in reversed(self._freed) if m.va <= va < m.va + m.size), None)
        if gone is not None and not any(m.va <= va < m.va + m.size for m in around):
            return f"{_range(gone)} {gone.label}, which was freed"
        if not around:
            return "nothing is mapped"
        best = min(
            around,
            key=lambda m: 0 if m.va <= va < m.va + m.size else min(abs(va - m.va), abs(va - m.va - m.size)),
        )
        return f"{_range(best)} {best.label}, {_relation(best, va)}"


def _range(memory: Range) -> str:
    return f"[{memory.va:#x}, {memory.va + memory.size:#x})"


def _relation(memory: Range, va: int) -> str:
    if va < memory.va:
        return f"{memory.va - va} bytes above the address"
    if va >= memory.va + memory.size:
        return f"{va - memory.va - memory.size} bytes below the address"
    return f"which holds the address at offset {va - memory.va:#x}"
