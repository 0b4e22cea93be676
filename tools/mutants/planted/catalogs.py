"""The catalogues of planted bugs, by the folder of the driver that they edit.

Next: `bug`, what a catalogue is.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from tools.mutants.nv.planted.catalog import CATALOG as NV

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tools.mutants.planted.bug import Catalog

CATALOGS: Final[Mapping[str, Catalog]] = MappingProxyType({one.folder: one for one in (NV,)})
"""Folder below `drivers` -> the bugs."""
