"""The emulated devices whose drivers are mutated, and the target of a run.

Only this module, `corpus` and `planted.catalogs` import a vendor's folder.

Next: `emulated`, the interface of an entry.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from tests.mutants.amd.emulated import AmdEmulated
from tests.mutants.nv.emulated import NvEmulated

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.mutants.emulated import Emulated

DEVICES: Final[Mapping[str, Emulated]] = MappingProxyType({"nv-emu": NvEmulated(), "amd-emu": AmdEmulated()})
"""Name of the device -> its vendor's part."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """The emulated device, GPU and driver version of a run."""

    device: str = next(iter(DEVICES))
    profile: str = ""
    """The emulated GPU; "" for the device's first."""
    driver: str = ""
    """The version of the kernel driver; "" for the device's first."""
