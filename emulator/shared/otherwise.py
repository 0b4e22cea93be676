"""Doubtful values that an emulated GPU takes the other way: what drivers send by default does not work there.

A row names a place of the emulator that asks, and what is not taken there. The places decide what that means:
a call is refused, a packet has no effect, a launch is a fault. Machines have no rows unless they are opened
with some; those of every value are in `tools.bringup`, after the text of the doubts in docs.

Not here: the places; calls that fail by their name (`surprises`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


@dataclass(frozen=True, slots=True)
class Doubt:
    """What is not taken at a place. `meets` gets what the place asks about."""

    place: str
    meets: Callable[..., Any]


class Otherwise:
    """The rows of one machine, by value."""

    def __init__(self, rows: Mapping[str, Doubt] | None = None) -> None:
        self._rows = dict(rows or {})

    def refuses(self, place: str, *things: Any) -> str:
        """Return the value for which the GPU does not take what a place asks about, or ""."""
        for name, row in self._rows.items():
            if row.place == place and row.meets(*things):
                return name
        return ""
