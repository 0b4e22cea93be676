"""The catalogues of planted bugs, by driver.

Next: `bug`, the type of a catalogue.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from tests.mutants.amd.planted.catalog import CATALOG as AMD
from tests.mutants.amd.planted.wire import WIRES as AMD_WIRES
from tests.mutants.nv.planted.catalog import CATALOG as NV
from tests.mutants.nv.planted.wire import WIRES as NV_WIRES

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.mutants.planted.bug import Catalog
    from tests.mutants.planted.wire import Wires

CATALOGS: Final[Mapping[str, Catalog]] = MappingProxyType({one.folder: one for one in (NV, AMD)})
"""Folder in `drivers` -> its bugs."""
WIRES: Final[Mapping[str, Wires]] = MappingProxyType({"nv": NV_WIRES, "amd": AMD_WIRES})
"""Folder in `drivers` -> its bugs on the wire."""
