"""Memory of a schedule's temporary buffers: offsets into one arena, shared over time.

Kernels that do not touch each other's buffers form a *wave* and may run at the same time, so lifetimes are
counted in waves: what is read in one wave is not overwritten before the next.
"""

from __future__ import annotations

from bisect import insort
from dataclasses import dataclass
from typing import TYPE_CHECKING

from compiler.item import BufRef, ParamRef, TempRef

if TYPE_CHECKING:
    from collections.abc import Sequence

    from compiler.item import ScheduleItem

ALIGNMENT = 256


@dataclass(frozen=True, slots=True)
class Plan:
    """Where each temporary buffer lies."""

    size: int
    """Bytes of the arena."""
    offsets: dict[int, int]
    """TempRef.n -> byte offset, a multiple of 256."""
    waves: tuple[int, ...]
    """For each item the number of its wave. Between two waves belongs a barrier; inside one, items are
    independent."""


def plan(items: Sequence[ScheduleItem]) -> Plan:
    """Place every temporary buffer of a schedule, the largest first, each at the lowest free offset."""
    numbers = waves(items)
    lives: dict[TempRef, tuple[int, int]] = {}
    for item, wave in zip(items, numbers, strict=True):
        for ref in item.bufs:
            if isinstance(ref, TempRef):
                lives[ref] = (lives.get(ref, (wave, wave))[0], wave)
    placed: list[tuple[int, int, int, int]] = []
    offsets: dict[int, int] = {}
    size = 0
    for ref in sorted(lives, key=lambda r: (-r.nbytes, r.n)):
        first, last = lives[ref]
        need = -(-ref.nbytes // ALIGNMENT) * ALIGNMENT
        offset = 0
        for begin, end, other_first, other_last in placed:
            if other_first <= last and first <= other_last:
                if begin >= offset + need:
                    break
                offset = max(offset, end)
        offsets[ref.n] = offset
        size = max(size, offset + need)
        insort(placed, (offset, offset + need, first, last))
    return Plan(size, offsets, numbers)


def waves(items: Sequence[ScheduleItem]) -> tuple[int, ...]:
    """Return each item's wave.

    An item joins the wave before it unless it touches what that wave writes, or writes what it reads.
    """
    numbers: list[int] = []
    number = 0
    read: set[object] = set()
    written: set[object] = set()
    for item in items:
        writes = {_memory(ref) for ref in item.writes}
        touches = {_memory(ref) for ref in item.bufs}
        if touches & written or writes & read:
            number += 1
            read, written = set(), set()
        read |= touches
        written |= writes
        numbers.append(number)
    return tuple(numbers)


def _memory(ref: BufRef) -> object:
    """Name the memory behind a reference."""
    return ref.slot if isinstance(ref, ParamRef) else ref
