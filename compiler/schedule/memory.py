"""Offsets of the temporaries of one launch in an arena; lifetimes that do not overlap share memory.

Not here: the memory itself (`hcq.memory`). Next: `frontend.evaluation.launch`, the caller.
"""

from __future__ import annotations

from bisect import insort
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Mapping

K = TypeVar("K")

ALIGNMENT = 256
"""Every offset is a multiple of so many bytes."""


def place(lives: Mapping[K, tuple[int, int, int]]) -> tuple[dict[K, int], int]:
    """Return the offset of each temporary in the arena, and the arena's size in bytes.

    `lives` gives (bytes, first use, last use) of each; a use is the number of a kernel. The largest are
    placed first, each at the lowest offset that is free during its lifetime. The caller must make kernels
    that use the same bytes wait for each other.
    """
    placed: list[tuple[int, int, int, int]] = []
    offsets: dict[K, int] = {}
    total = 0
    for key, (size, first, last) in sorted(lives.items(), key=lambda item: -item[1][0]):
        room = (size + ALIGNMENT - 1) // ALIGNMENT * ALIGNMENT
        at = 0
        for begin, end, born, gone in placed:
            if born <= last and first <= gone:
                if at + room <= begin:
                    break
                at = max(at, end)
        insort(placed, (at, at + room, first, last))
        offsets[key] = at
        total = max(total, at + room)
    return offsets, total
