"""Sets of disjoint byte ranges; each range has a note that names its last access.

Next: `hazards`, the user.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


class Intervals:
    """Disjoint ranges in order; ranges that overlap or touch become one."""

    __slots__ = ("_begins", "_ends", "_notes")

    def __init__(self) -> None:
        self._begins: list[int] = []
        self._ends: list[int] = []
        self._notes: list[str] = []

    def add(self, begin: int, end: int, note: str) -> None:
        """Add bytes [begin, end) with a note.

        Ranges that it overlaps or touches are merged and get the note.
        """
        if begin >= end:
            return
        first, last = bisect_left(self._ends, begin), bisect_right(self._begins, end)
        if first < last:
            begin, end = min(begin, self._begins[first]), max(end, self._ends[last - 1])
        self._begins[first:last] = [begin]
        self._ends[first:last] = [end]
        self._notes[first:last] = [note]

    def find(self, begin: int, end: int) -> str | None:
        """Return the note of a range that overlaps bytes [begin, end), or None."""
        i = bisect_right(self._ends, begin)
        return self._notes[i] if i < len(self._ends) and self._begins[i] < end else None

    def __iter__(self) -> Iterator[tuple[int, int, str]]:
        return iter(zip(self._begins, self._ends, self._notes, strict=True))
