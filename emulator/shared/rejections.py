"""Emulated GPUs that reject the default value of a driver's quirk, to test the driver's other values.

A *quirk* is a setting of a driver that public sources do not settle, such as a flag of an ioctl that some
firmware may refuse (docs/nv.md, docs/amd.md). By default an emulated GPU accepts every value. A machine that
is opened with rejections refuses the call, ignores the packet, or makes the launch a fault. For that, code of
the emulator asks `Rejections.refuses` at a named place.

Not here: the table of rejections (`tools.bringup`); calls that fail by their name (`surprises`). Next:
`emulator.nv.machine.variants`, which opens a machine with rejections.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


@dataclass(frozen=True, slots=True)
class Rejection:
    """One value of a quirk that the GPU rejects."""

    place: str
    """The name of the place in the emulator's code that asks."""
    meets: Callable[..., Any]
    """Returns whether what the place passes is the rejected value: any object, which counts by its truth."""


class Rejections:
    """What one machine rejects: name of a quirk -> its rejection. Without any it rejects nothing."""

    def __init__(self, rows: Mapping[str, Rejection] | None = None) -> None:
        self._rows = dict(rows or {})

    def refuses(self, place: str, *things: Any) -> str:
        """Return the name of the first quirk that `place` rejects for `things`; "" if there is none."""
        for name, row in self._rows.items():
            if row.place == place and row.meets(*things):
                return name
        return ""
