"""The catalogues of planted bugs, by driver.

Next: `wire`, the type of a catalogue.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from tests.mutants.amd.planted.wire import WIRES as AMD_WIRES
from tests.mutants.nv.planted.wire import WIRES as NV_WIRES

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.mutants.planted.wire import Wires

WIRES: Final[Mapping[str, Wires]] = MappingProxyType({"nv": NV_WIRES, "amd": AMD_WIRES})
"""Folder in `drivers` -> its bugs on the wire."""
