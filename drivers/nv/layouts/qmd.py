"""Launch descriptors by version, and constants that all versions share.

V03 is Ampere's and Ada's, V04 Hopper's, V05 Blackwell's (nv.md 4.1). Each version has a whole layout, not a
diff of the version before: of V04's 134 fields only 4 have the bits of V03, and only 16 keep them in V05.

Not here: filling a descriptor, values of fields (`qmd_values`). Next: `drivers.nv.qmd`, which fills one in.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from drivers.nv.layouts.qmd_v03 import QmdV03
from drivers.nv.layouts.qmd_v04 import QmdV04
from drivers.nv.layouts.qmd_v05 import QmdV05
from hcq.layout import BitStruct

QMDS: Final[Mapping[str, type[BitStruct]]] = MappingProxyType({"V03": QmdV03, "V04": QmdV04, "V05": QmdV05})
"""Version -> layout."""

ALIASES: Final[Mapping[str, Mapping[str, tuple[str, ...]]]] = MappingProxyType(
    {
        "V05": {
            "DEPENDENT_QMD_ENABLE": ("DEPENDENT_QMD0_ENABLE", "DEPENDENT_QMD1_ENABLE"),
            "DEPENDENT_QMD_ACTION": ("DEPENDENT_QMD0_ACTION", "DEPENDENT_QMD1_ACTION"),
            "DEPENDENT_QMD_PREFETCH": ("DEPENDENT_QMD0_PREFETCH", "DEPENDENT_QMD1_PREFETCH"),
            "DEPENDENT_QMD_POINTER": ("DEPENDENT_QMD0_POINTER", "DEPENDENT_QMD1_POINTER"),
        },
    }
)
"""Version -> name of an array in the vendor's header -> the fields of its elements in the layout here."""

ALIGNMENT: Final = 256
"""Alignment of a descriptor, and unit of its address in SEND_PCAS_A, in bytes."""
CONSTANT_BANKS: Final = 8
"""The number of constant banks of a descriptor."""
GROUP_ID_TINYGRAD: Final = 0x3F
GROUP_ID_NVK: Final = 0x1F
"""The group ids other than 0 that working drivers use (nv.md 4.2)."""
GROUP_IDS: Final[Mapping[str, int]] = MappingProxyType({"V03": 0, "V04": 0, "V05": GROUP_ID_TINYGRAD})
"""Version -> the group id that a public driver uses: 0 up to Hopper; on Blackwell none is known to use 0."""
TYPE_GRID_CTA: Final = 2
"""QMD_TYPE of a grid without clusters."""
TYPE_GRID_GPC_CGA: Final = 3
"""QMD_TYPE of a grid in clusters of workgroups (nv.md 4.3)."""
PREFETCH_UNIT: Final = 256
"""The unit of the code prefetch in bytes."""
PREFETCH_MAX: Final = 0x1FF
"""The most units of the code prefetch."""
MAX_REGISTERS: Final = 255
"""The most registers of a thread."""

REGISTER_FILE: Final = 65536
"""Registers of an SM; each of its four partitions has a quarter."""
REGISTER_UNIT: Final = 256
"""The unit in which registers are allocated to a warp."""
WARP: Final = 32
"""Threads of a warp."""


def sm_config(kib: int) -> int:
    """Return the code of a carve-out: KiB / 4 + 1 (nv.md 4.2)."""
    return kib // 4 + 1


def sass_version(sm_version: int) -> int:
    """Return the descriptor's SASS byte for GR SM_VERSION: 0x900 -> 0x90 (nv.md 2.7)."""
    return ((sm_version & 0xF00) >> 4) | (sm_version & 0xF)
