"""Topology: sysfs properties, names of targets, sample nodes, hardware block ids, target table.

Source: Linux 6.12.107 kfd_topology.c and amdgpu_discovery.c; sample nodes from libhsakmt and sysfs dumps.
"""

# fmt: off
PROPERTIES = (
    "cpu_cores_count", "simd_count", "mem_banks_count", "caches_count", "io_links_count", "p2p_links_count",
    "cpu_core_id_base", "simd_id_base", "max_waves_per_simd", "lds_size_in_kb", "gds_size_in_kb", "num_gws",
    "wave_front_size", "array_count", "simd_arrays_per_engine", "cu_per_simd_array", "simd_per_cu",
    "max_slots_scratch_cu", "gfx_target_version", "vendor_id", "device_id", "location_id", "domain",
    "drm_render_minor", "hive_id", "num_sdma_engines", "num_sdma_xgmi_engines", "num_sdma_queues_per_engine",
    "num_cp_queues", "cwsr_size", "ctl_stack_size",
)
"""In the order of printing; the last two only in newer kernels."""
GPU_PROPERTIES = (
    "max_engine_clk_fcompute", "local_mem_size", "fw_version", "capability", "debug_prop", "sdma_fw_version",
    "unique_id", "num_xcc", "max_engine_clk_ccompute",
)
ROOTS = ("/sys/devices/virtual/kfd/kfd/topology", "/sys/class/kfd/kfd/topology")
FILES = {
    "generation_id": "generation_id", "system_properties": "system_properties", "gpu_id": "nodes/{n}/gpu_id",
    "name": "nodes/{n}/name", "properties": "nodes/{n}/properties",
    "mem_bank": "nodes/{n}/mem_banks/{m}/properties", "cache": "nodes/{n}/caches/{m}/properties",
    "io_link": "nodes/{n}/io_links/{m}/properties", "p2p_link": "nodes/{n}/p2p_links/{m}/properties",
}
KFD_NODE, RENDER_NODE_128 = "/dev/kfd", "/dev/dri/renderD128"
CPU_NODE_GPU_ID, GPU_ID_BITS = 0, 16
MEM_BANK_PROPERTIES = ("heap_type", "size_in_bytes", "flags", "width", "mem_clk_max")
CACHE_PROPERTIES = (
    "processor_id_low", "level", "size", "cache_line_size", "cache_lines_per_tag", "association", "latency",
    "type", "sibling_map",
)
"""size is in KiB."""
LINK_PROPERTIES = (
    "type", "version_major", "version_minor", "node_from", "node_to", "weight", "min_latency", "max_latency",
    "min_bandwidth", "max_bandwidth", "recommended_transfer_size", "recommended_sdma_engine_id_mask", "flags",
)
HEAP_TYPES = {0: "system", 1: "FB public", 2: "FB private", 3: "GDS", 4: "LDS", 5: "scratch"}
LINK_TYPES = {2: "PCIe", 11: "XGMI"}
CAPABILITY_DOORBELL_TYPE, CAPABILITY_ASIC_REVISION, CAPABILITY_AQL_DOUBLE_MAP, CAPABILITY_SVM_BIT = (
    (12, 13), (22, 25), 0x4000, 27
)
DOORBELL_TYPE_64_BIT = 2
LOCATION_FUNCTION, LOCATION_DEVICE, LOCATION_BUS = (0, 2), (3, 7), (8, 15)
"""Bits of location_id."""
LOCAL_MEM_SIZE = 0
"""Always; the size of video memory is the sum of the banks of heap types 1 and 2."""
VRAM_HEAPS = (1, 2)
SCRATCH_SLOTS = {"gfx10 and later": (32,), "gfx9": (32, 40)}
WAVES_PER_SIMD = {"gfx90a": 8, "gfx942": 8, "gfx1030": 16, "gfx1100": 16, "gfx1201": 16, "older gfx9": 10}
LDS_KIB = {"gfx950": 160, "others": 64}

TARGETS = {
    90010: "gfx90a", 90402: "gfx942", 90500: "gfx950", 100300: "gfx1030", 110000: "gfx1100",
    110001: "gfx1101", 110002: "gfx1102", 110003: "gfx1103", 110500: "gfx1150", 110501: "gfx1151",
    110502: "gfx1152", 120000: "gfx1200", 120001: "gfx1201",
}
"""gfx_target_version -> name: major, hexadecimal minor, hexadecimal step."""
OLD_REVISIONS = {90400: "gfx940", 90401: "gfx941"}
"""What first revisions of GC 9.4.3 report; 6.12 knows no gfx950."""
TARGET_OF_GC = {
    (9, 4, 2): 90010, (9, 4, 3): 90402, (9, 4, 4): 90402, (11, 0, 0): 110000, (11, 0, 1): 110003,
    (11, 0, 4): 110003, (11, 0, 2): 110002, (11, 0, 3): 110001, (11, 5, 0): 110500, (11, 5, 1): 110501,
    (11, 5, 2): 110502, (12, 0, 0): 120000, (12, 0, 1): 120001,
}
"""GC block version -> gfx_target_version. They are not the same number."""

SAMPLE_NODES: dict[str, dict[str, int]] = {
    "gfx1100": {
        "simd_count": 192, "simd_per_cu": 2, "array_count": 12, "simd_arrays_per_engine": 2,
        "cu_per_simd_array": 8, "max_waves_per_simd": 16, "max_slots_scratch_cu": 32, "wave_front_size": 32,
        "lds_size_in_kb": 64, "num_sdma_engines": 2, "num_sdma_xgmi_engines": 0,
        "num_sdma_queues_per_engine": 6, "num_cp_queues": 8, "num_xcc": 1,
    },
    "gfx1201": {
        "simd_count": 128, "simd_per_cu": 2, "array_count": 8, "simd_arrays_per_engine": 2,
        "cu_per_simd_array": 8, "max_waves_per_simd": 16, "max_slots_scratch_cu": 32, "wave_front_size": 32,
        "lds_size_in_kb": 64, "num_sdma_engines": 2, "num_sdma_xgmi_engines": 0,
        "num_sdma_queues_per_engine": 6, "num_cp_queues": 4, "num_xcc": 1,
    },
    "gfx942": {
        "simd_count": 1216, "simd_per_cu": 4, "array_count": 32, "simd_arrays_per_engine": 1,
        "cu_per_simd_array": 10, "max_waves_per_simd": 8, "max_slots_scratch_cu": 32, "wave_front_size": 64,
        "lds_size_in_kb": 64, "num_sdma_engines": 2, "num_sdma_xgmi_engines": 14,
        "num_sdma_queues_per_engine": 8, "num_cp_queues": 24, "num_xcc": 8,
    },
}
COMPUTE_UNITS_PER_XCC = {"gfx1100": 96, "gfx1201": 64, "gfx942": 38}

HARDWARE_IDS = {
    "GC": 11, "SDMA0": 42, "SDMA1": 43, "NBIF": 108, "HDP": 41, "MMHUB": 34, "MP1": 1, "OSSSYS": 40,
}

IP_DISCOVERY = "/sys/class/drm/renderD{minor}/device/ip_discovery/die/{die}/{block}/{instance}/"
IP_DISCOVERY_FILES = (
    "hw_id", "num_instance", "major", "minor", "revision", "harvest", "num_base_addresses", "base_addr",
)

QUEUE_OF_TARGET = {
    "gfx942": "AQL", "gfx950": "AQL", "gfx1030": "PM4", "gfx1100": "PM4", "gfx1101": "PM4", "gfx1102": "PM4",
    "gfx1103": "PM4", "gfx1150": "PM4", "gfx1151": "PM4", "gfx1200": "PM4", "gfx1201": "PM4",
}
"""gfx90a takes either; a gfx942 with one XCC (CPX) takes PM4."""
SDMA_VERSIONS = {
    "gfx90a": (4, 4, 0), "gfx942": (4, 4, 2), "gfx950": (4, 4, 4), "gfx1030": (5, 2, 0), "gfx1100": (6, 0),
    "gfx1101": (6, 0), "gfx1102": (6, 0), "gfx1103": (6, 0), "gfx1150": (6, 1), "gfx1151": (6, 1),
    "gfx1200": (7, 0), "gfx1201": (7, 0),
}
WAVES = {
    "gfx90a": (64,), "gfx942": (64,), "gfx950": (64,), "gfx1030": (32, 64), "gfx1100": (32, 64),
    "gfx1101": (32, 64), "gfx1102": (32, 64), "gfx1103": (32, 64), "gfx1150": (32, 64), "gfx1151": (32, 64),
    "gfx1200": (32, 64), "gfx1201": (32, 64),
}
XCCS = {"gfx90a": (1,), "gfx942": (8, 6, 1), "gfx950": (8,)}
"""A gfx942 has 8 (MI300X), 6 (MI300A) or 1 (CPX); every target that is not named has 1."""
MATRIX = {
    "gfx90a": "MFMA", "gfx942": "MFMA", "gfx950": "MFMA", "gfx1030": None, "gfx1100": "WMMA gfx11",
    "gfx1101": "WMMA gfx11", "gfx1102": "WMMA gfx11", "gfx1103": "WMMA gfx11", "gfx1150": "WMMA gfx11",
    "gfx1151": "WMMA gfx11", "gfx1200": "WMMA gfx12", "gfx1201": "WMMA gfx12",
}
TIERS = {
    1: ("gfx1100", "gfx1201", "gfx942"),
    2: ("gfx1102", "gfx1103", "gfx1151", "gfx1200", "gfx1101", "gfx90a"), 3: ("gfx950", "gfx1030"),
}
PARTS = {
    "gfx90a": "MI210/250", "gfx942": "MI300X/A/325", "gfx950": "MI350/355", "gfx1030": "RX 6800/6900",
    "gfx1100": "RX 7000", "gfx1103": "7x40 APU", "gfx1150": "Strix", "gfx1151": "Strix Halo",
    "gfx1200": "RX 9000", "gfx1201": "R9700",
}
APUS = ("gfx1103", "gfx1150", "gfx1151")
"""Targets whose every part shares the host's memory; of gfx942 the MI300A does."""
COMPILE_ONLY = ("gfx90a", "gfx950", "gfx1030")
"""Refused when opened."""
LLVM_19 = {"gfx950": False}
"""Every other target is known to llc-19."""
