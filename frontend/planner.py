"""Memory for what lives inside one launch.

Temporaries share an arena wherever their lifetimes do not overlap.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Mapping

K = TypeVar("K")

ALIGN = 256
"""Bytes."""


def plan(lives: Mapping[K, tuple[int, int, int]]) -> tuple[dict[K, int], int]:
    """Return where each temporary lies in the arena, and the arena's size.

    `lives` gives (bytes, first use, last use) in kernels. Largest first, each at the lowest place that is
    free all its life.
    """
    placed: list[tuple[int, int, int, int]] = []
    offsets: dict[K, int] = {}
    total = 0
    for key, (size, first, last) in sorted(lives.items(), key=lambda item: -item[1][0]):
        room = (size + ALIGN - 1) // ALIGN * ALIGN
        at = 0
        for begin, end, born, gone in sorted(placed):
            if born <= last and first <= gone:
                if at + room <= begin:
                    break
                at = max(at, end)
        placed.append((at, at + room, first, last))
        offsets[key] = at
        total = max(total, at + room)
    return offsets, total
