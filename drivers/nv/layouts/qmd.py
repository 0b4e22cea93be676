"""Launch descriptors by version, and constants that all versions share.

V03 is Ampere's and Ada's, V04 Hopper's, V05 Blackwell's (nv.md 4.1). Each is written whole, not as a diff of
the one before: of V04's 134 fields only 4 lie where V03 has them, and only 16 stay there in V05.

Not here: filling a descriptor (`drivers.nv.qmd`), values of fields (`qmd_values`).
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from drivers.nv.layouts.qmd_v03 import QmdV03
from drivers.nv.layouts.qmd_v04 import QmdV04
from drivers.nv.layouts.qmd_v05 import QmdV05

if TYPE_CHECKING:
    from collections.abc import Mapping

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
"""Version -> alternative names of the same bits in the header, one for each index."""

ALIGNMENT: Final = 256
"""Alignment of a descriptor, and unit of its address in SEND_PCAS_A, in bytes."""
CONSTANT_BANKS: Final = 8
GROUP_ID_TINYGRAD: Final = 0x3F
GROUP_ID_NVK: Final = 0x1F
"""The group ids other than 0 that working drivers use (nv.md 4.2)."""
GROUP_IDS: Final[Mapping[str, int]] = MappingProxyType({"V03": 0, "V04": 0, "V05": GROUP_ID_TINYGRAD})
"""Version -> a group id that is known to work: 0 up to Hopper; since then no driver is known to use 0."""
TYPE_GRID_CTA: Final = 2
TYPE_GRID_GPC_CGA: Final = 3
"""QMD_TYPE of a grid in clusters of workgroups (nv.md 4.3)."""
CLUSTER_LIMIT: Final[Mapping[str, int]] = MappingProxyType({"sm_90": 8, "sm_100": 8, "sm_120": 8})
"""The workgroups of a cluster that every GPU of an architecture can place: 8, the portable size of the CUDA
C++ programming guide. An architecture without an entry has no clusters."""
PREFETCH_UNIT: Final = 256
"""The unit of the code prefetch in bytes."""
PREFETCH_MAX: Final = 0x1FF
MAX_REGISTERS: Final = 255

CARVEOUTS_KIB: Final[Mapping[str, tuple[int, ...]]] = MappingProxyType(
    {
        "sm_80": (0, 8, 16, 32, 64, 100, 132, 164),
        "sm_86": (0, 8, 16, 32, 64, 100),
        "sm_87": (0, 8, 16, 32, 64, 100, 132, 164),
        "sm_89": (0, 8, 16, 32, 64, 100),
        "sm_90": (0, 8, 16, 32, 64, 100, 132, 164, 196, 228),
        "sm_100": (0, 8, 16, 32, 64, 100, 132, 164, 196, 228),
        "sm_120": (0, 8, 16, 32, 64, 100),
    }
)
"""Shared-memory carve-outs of an SM, in KiB (nv.md 4.2)."""

GROUPS_PER_SM: Final[Mapping[str, int]] = MappingProxyType(
    {"sm_80": 32, "sm_86": 16, "sm_87": 16, "sm_89": 24, "sm_90": 32, "sm_100": 32, "sm_120": 24}
)
"""The most workgroups that an SM runs at once (CUDA C programming guide, compute capabilities)."""
REGISTER_FILE: Final = 65536
"""Registers of an SM; each of its four partitions has a quarter."""
REGISTER_UNIT: Final = 256
"""The unit in which registers are allocated to a warp."""
WARP: Final = 32


def sm_config(kib: int) -> int:
    """Return the code of a carve-out: KiB / 4 + 1 (nv.md 4.2)."""
    return kib // 4 + 1


def sass_version(sm_version: int) -> int:
    """Return the descriptor's SASS byte for GR SM_VERSION: 0x900 -> 0x90 (nv.md 2.7)."""
    return ((sm_version & 0xF00) >> 4) | (sm_version & 0xF)
