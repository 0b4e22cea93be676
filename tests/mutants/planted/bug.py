"""A planted bug, and the catalogue of a driver's bugs.

Not here: the bugs (a vendor's folder: `tests.mutants.nv.planted.catalog`), planting them (`run`).
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
    """Path relative to the driver's folder."""
    old: str
    new: str
    device: str = ""
    """The emulated device that must identify it; "" for the catalogue's."""
    names: str
    seen: str
    """Where the mistake occurred in other drivers, or why it is likely."""
    parts: tuple[str, ...] = ()
    """The parts of the program that show it; (): all."""
    rung: int = -1
    """The rung of the ladder that shows it, in place of the program."""
    known: bool = False
    """Whether the emulator was developed with this bug; then it is no evidence for the detection of new
    bugs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Catalog:
    """The bugs of one driver."""

    folder: str
    """The driver's folder in `drivers`."""
    device: str
    """The emulated device of bugs that name no other."""
    program: Path
    """The program that runs on each bug: it takes the device's name and parts, and prints the outcome
    as JSON."""
    bugs: Sequence[Bug]

    def device_of(self, bug: Bug) -> str:
        """Return the device on which a bug runs."""
        return bug.device or self.device
