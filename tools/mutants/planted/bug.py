"""A planted bug, and the catalogue of a driver's.

Not here: the bugs (a vendor's folder: `tools.mutants.nv.planted.catalog`), planting them (`run`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Bug:
    """One edit of the driver's source."""

    name: str
    file: str
    """Path below the driver's folder."""
    old: str
    new: str
    device: str = ""
    """The emulated device that must name it; empty: the catalogue's."""
    names: str
    seen: str
    """Where drivers went wrong in this way, or what in the driver invites it."""
    known: bool = False
    """It was among the bugs that taught the emulator: no evidence of what it finds of new ones."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Catalog:
    """The bugs of one driver."""

    folder: str
    """The driver's folder below `drivers`."""
    device: str
    """The emulated device that runs those that do not name another."""
    program: Path
    """The program that each bug must be named in: takes the device's name, prints the outcome as JSON."""
    bugs: Sequence[Bug]

    def device_of(self, bug: Bug) -> str:
        """Return the device that a bug runs on."""
        return bug.device or self.device
