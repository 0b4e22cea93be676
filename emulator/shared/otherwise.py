"""Emulated GPUs on which a driver's default choice does not work, to test its other choices.

A *doubt* is a value that public sources leave open, such as a flag of an ioctl that some firmware may refuse
(docs/nv.md and docs/amd.md list them). By default the emulated GPU accepts every choice. A machine opened
with rows (`Doubt`) rejects what the rows describe. Code of the emulator asks `Otherwise.refuses` at a named
place, and on a match refuses the call, ignores the packet, or makes the launch a fault.

Not here: the rows (`tools.bringup`); calls that fail by their name (`surprises`). Next:
`emulator.nv.machine.variants`, how a machine with rows is opened.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


@dataclass(frozen=True, slots=True)
class Doubt:
    """One choice of a driver that the GPU rejects."""

    place: str
    """The name with which code of the emulator asks."""
    meets: Callable[..., Any]
    """Returns, from the values that the place passes, whether this is the rejected choice."""


class Otherwise:
    """The rows of one machine, by the name of the doubtful value."""

    def __init__(self, rows: Mapping[str, Doubt] | None = None) -> None:
        self._rows = dict(rows or {})

    def refuses(self, place: str, *things: Any) -> str:
        """Return the name of the first row of `place` that rejects `things`; "" if none does."""
        for name, row in self._rows.items():
            if row.place == place and row.meets(*things):
                return name
        return ""
