"""The catalogues of planted bugs, by driver.

Next: `bug`, the type of a catalogue.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from tools.mutants.amd.planted.catalog import CATALOG as AMD
from tools.mutants.nv.planted.catalog import CATALOG as NV

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tools.mutants.planted.bug import Catalog

CATALOGS: Final[Mapping[str, Catalog]] = MappingProxyType({one.folder: one for one in (NV, AMD)})
"""Folder in `drivers` -> its bugs."""
