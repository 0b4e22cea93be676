"""The emulated devices whose drivers are mutated, by name, and which of them a run is of.

Beside this module, `corpus` and `planted.catalogs` alone name a vendor's folder.

Next: `emulated`, what an entry is.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from tools.mutants.nv.emulated import NvEmulated

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tools.mutants.emulated import Emulated

DEVICES: Final[Mapping[str, Emulated]] = MappingProxyType({"nv-emu": NvEmulated()})
"""Name of the device -> its vendor's part."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """What is driven."""

    device: str = next(iter(DEVICES))
    profile: str = ""
    """The emulated GPU; empty: the device's first."""
    driver: str = ""
    """The version of the kernel's driver; empty: the device's first."""
