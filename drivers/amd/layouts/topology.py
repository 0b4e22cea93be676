"""The KFD topology in sysfs: its folders, the names of properties, and the numbers in them.

Not here: /dev/kfd itself (`kfd`). Next: `drivers.amd.topology`, which reads it.
"""

from __future__ import annotations

import enum
from typing import Final

from hcq.layout import BitStruct, bits, optional

SOURCE = "Linux 6.12 drivers/gpu/drm/amd/amdkfd/kfd_topology.c; include/uapi/linux/kfd_sysfs.h"

ROOT: Final = "/sys/devices/virtual/kfd/kfd/topology"
ALIAS: Final = "/sys/class/kfd/kfd/topology"
"""The same folder under another path, for containers that hide the first one."""
RENDER_NODE: Final = "/dev/dri/renderD{minor}"
KFD_NODE: Final = "/dev/kfd"

PROPERTIES: Final = (
    "cpu_cores_count", "simd_count", "mem_banks_count", "caches_count", "io_links_count",
    "p2p_links_count", "cpu_core_id_base", "simd_id_base", "max_waves_per_simd", "lds_size_in_kb",
    "gds_size_in_kb", "num_gws", "wave_front_size", "array_count", "simd_arrays_per_engine",
    "cu_per_simd_array", "simd_per_cu", "max_slots_scratch_cu", "gfx_target_version", "vendor_id",
    "device_id", "location_id", "domain", "drm_render_minor", "hive_id", "num_sdma_engines",
    "num_sdma_xgmi_engines", "num_sdma_queues_per_engine", "num_cp_queues", "cwsr_size", "ctl_stack_size",
)  # fmt: skip
"""The properties of every node, in the order of the file; the last two exist in newer kernels only."""
GPU_PROPERTIES: Final = (
    "max_engine_clk_fcompute",
    "local_mem_size",
    "fw_version",
    "capability",
    "debug_prop",
    "sdma_fw_version",
    "unique_id",
    "num_xcc",
    "max_engine_clk_ccompute",
)
"""The properties that only GPU nodes have, after `PROPERTIES`."""


class HeapType(enum.IntEnum):
    """mem_banks: `heap_type`."""

    SYSTEM = 0
    FB_PUBLIC = 1
    FB_PRIVATE = 2
    GPU_GDS = 3
    GPU_LDS = 4
    GPU_SCRATCH = 5


class LinkType(enum.IntEnum):
    """io_links and p2p_links: `type` of a link of a GPU."""

    PCIEXPRESS = 2
    XGMI = 11


class LinkFlags(enum.IntFlag):
    """io_links and p2p_links: `flags`."""

    ENABLED = 1 << 0
    NON_COHERENT = 1 << 1
    NO_ATOMICS_32_BIT = 1 << 2
    NO_ATOMICS_64_BIT = 1 << 3
    NO_PEER_TO_PEER_DMA = 1 << 4


class DoorbellType(enum.IntEnum):
    """`Capability.DOORBELL_TYPE`."""

    PRE_1_0 = 0
    V1_0 = 1
    V2_0 = 2
    """64-bit doorbells."""


class Capability(BitStruct, source="Linux 6.12 kfd_sysfs.h"):
    """The property `capability`."""

    DOORBELL_TYPE: DoorbellType = optional(13, 12)
    AQL_QUEUE_DOUBLE_MAP: bool = optional(14)
    ASIC_REVISION: int = optional(25, 22)
    SVMAPI_SUPPORTED: bool = optional(27)
    COHERENTHOSTACCESS: bool = optional(28)


class Location(BitStruct, source=SOURCE):
    """The property `location_id`: the GPU's PCI address in its domain."""

    FUNCTION: int = bits(2, 0)
    SLOT: int = bits(7, 3)
    BUS: int = bits(15, 8)


def target_name(gfx_target_version: int) -> str:
    """Return the LLVM name of the property `gfx_target_version`: 90402 is gfx942."""
    major, rest = divmod(gfx_target_version, 10000)
    minor, step = divmod(rest, 100)
    return f"gfx{major}{minor:x}{step:x}"
