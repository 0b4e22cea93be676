"""KFD: ioctls and their structures, apertures, memory flags, queues, events, mmap offsets.

Source: Linux 6.12.107 drivers/gpu/drm/amd and its uapi header kfd_ioctl.h (KFD 1.17); Debian 12's kfd_ioctl.h
(KFD 1.11) for the older size of CREATE_QUEUE. Field tables are (offset, size, name).
"""

# fmt: off
Fields = tuple[tuple[int, int, str], ...]

TYPE = 0x4b

IOCTLS: dict[str, tuple[int, int, int]] = {
    "GET_VERSION": (0x01, 0x80084B01, 8),
    "CREATE_QUEUE": (0x02, 0xC0604B02, 96),
    "DESTROY_QUEUE": (0x03, 0xC0084B03, 8),
    "SET_MEMORY_POLICY": (0x04, 0x40204B04, 32),
    "GET_CLOCK_COUNTERS": (0x05, 0xC0284B05, 40),
    "GET_PROCESS_APERTURES": (0x06, 0x81904B06, 400),
    "UPDATE_QUEUE": (0x07, 0x40184B07, 24),
    "CREATE_EVENT": (0x08, 0xC0204B08, 32),
    "DESTROY_EVENT": (0x09, 0x40084B09, 8),
    "SET_EVENT": (0x0A, 0x40084B0A, 8),
    "RESET_EVENT": (0x0B, 0x40084B0B, 8),
    "WAIT_EVENTS": (0x0C, 0xC0184B0C, 24),
    "SET_SCRATCH_BACKING_VA": (0x11, 0xC0104B11, 16),
    "GET_TILE_CONFIG": (0x12, 0xC0284B12, 40),
    "SET_TRAP_HANDLER": (0x13, 0x40184B13, 24),
    "GET_PROCESS_APERTURES_NEW": (0x14, 0xC0104B14, 16),
    "ACQUIRE_VM": (0x15, 0x40084B15, 8),
    "ALLOC_MEMORY_OF_GPU": (0x16, 0xC0284B16, 40),
    "FREE_MEMORY_OF_GPU": (0x17, 0x40084B17, 8),
    "MAP_MEMORY_TO_GPU": (0x18, 0xC0184B18, 24),
    "UNMAP_MEMORY_FROM_GPU": (0x19, 0xC0184B19, 24),
    "SET_CU_MASK": (0x1A, 0x40104B1A, 16),
    "GET_QUEUE_WAVE_STATE": (0x1B, 0xC0184B1B, 24),
    "GET_DMABUF_INFO": (0x1C, 0xC0204B1C, 32),
    "IMPORT_DMABUF": (0x1D, 0xC0184B1D, 24),
    "ALLOC_QUEUE_GWS": (0x1E, 0xC0104B1E, 16),
    "SMI_EVENTS": (0x1F, 0xC0084B1F, 8),
    "SVM": (0x20, 0xC0184B20, 24),
    "SET_XNACK_MODE": (0x21, 0xC0044B21, 4),
    "CRIU_OP": (0x22, 0xC0384B22, 56),
    "AVAILABLE_MEMORY": (0x23, 0xC0104B23, 16),
    "EXPORT_DMABUF": (0x24, 0xC0104B24, 16),
    "RUNTIME_ENABLE": (0x25, 0xC0104B25, 16),
    "DBG_TRAP": (0x26, 0xC0204B26, 32),
}
"""Name -> (number, whole request word, bytes)."""

CREATE_QUEUE_1_11 = (0x02, 0xC0584B02, 88)
"""The same request at KFD 1.11: without sdma_engine_id and its padding."""

SVM_ATTRIBUTE_BYTES = 8
OUT_OF_TREE = (0x80, 0x81, 0x83, 0x84, 0x85)

STRUCTS: dict[str, Fields] = {
    "GET_VERSION": ((0, 4, "major"), (4, 4, "minor")),
    "CREATE_QUEUE": (
        (0, 8, "ring_base"), (8, 8, "wptr_addr"), (16, 8, "rptr_addr"), (24, 8, "doorbell_offset"),
        (32, 4, "ring_size"), (36, 4, "gpu_id"), (40, 4, "queue_type"), (44, 4, "queue_percentage"),
        (48, 4, "queue_priority"), (52, 4, "queue_id"), (56, 8, "eop_addr"), (64, 8, "eop_size"),
        (72, 8, "ctx_save_addr"), (80, 4, "ctx_save_size"), (84, 4, "ctl_stack_size"),
        (88, 4, "sdma_engine_id"), (92, 4, "pad"),
    ),
    "DESTROY_QUEUE": ((0, 4, "queue_id"), (4, 4, "pad")),
    "SET_MEMORY_POLICY": (
        (0, 8, "alt_base"), (8, 8, "alt_size"), (16, 4, "gpu_id"), (20, 4, "default"), (24, 4, "alternate"),
        (28, 4, "pad"),
    ),
    "GET_CLOCK_COUNTERS": (
        (0, 8, "gpu"), (8, 8, "cpu"), (16, 8, "system"), (24, 8, "system_freq"), (32, 4, "gpu_id"),
    ),
    "UPDATE_QUEUE": (
        (0, 8, "ring_base"), (8, 4, "queue_id"), (12, 4, "ring_size"), (16, 4, "percentage"),
        (20, 4, "priority"),
    ),
    "CREATE_EVENT": (
        (0, 8, "event_page_offset"), (8, 4, "event_trigger_data"), (12, 4, "event_type"), (16, 4,
        "auto_reset"),
        (20, 4, "node_id"), (24, 4, "event_id"), (28, 4, "event_slot_index"),
    ),
    "DESTROY_EVENT": ((0, 4, "event_id"),),
    "SET_EVENT": ((0, 4, "event_id"),),
    "RESET_EVENT": ((0, 4, "event_id"),),
    "WAIT_EVENTS": (
        (0, 8, "events_ptr"), (8, 4, "num_events"), (12, 4, "wait_for_all"), (16, 4, "timeout_ms"),
        (20, 4, "wait_result"),
    ),
    "SET_SCRATCH_BACKING_VA": ((0, 8, "va"), (8, 4, "gpu_id")),
    "SET_TRAP_HANDLER": ((0, 8, "tba"), (8, 8, "tma"), (16, 4, "gpu_id")),
    "GET_PROCESS_APERTURES_NEW": ((0, 8, "ptr"), (8, 4, "num_of_nodes")),
    "ACQUIRE_VM": ((0, 4, "drm_fd"), (4, 4, "gpu_id")),
    "ALLOC_MEMORY_OF_GPU": (
        (0, 8, "va"), (8, 8, "size"), (16, 8, "handle"), (24, 8, "mmap_offset"), (32, 4, "gpu_id"),
        (36, 4, "flags"),
    ),
    "FREE_MEMORY_OF_GPU": ((0, 8, "handle"),),
    "MAP_MEMORY_TO_GPU": ((0, 8, "handle"), (8, 8, "device_ids_ptr"), (16, 4, "n_devices"), (20, 4,
    "n_success")), "UNMAP_MEMORY_FROM_GPU": (
        (0, 8, "handle"), (8, 8, "device_ids_ptr"), (16, 4, "n_devices"), (20, 4, "n_success"),
    ),
    "SET_CU_MASK": ((0, 4, "queue_id"), (4, 4, "num_cu_mask"), (8, 8, "ptr")),
    "GET_DMABUF_INFO": (
        (0, 8, "size"), (8, 8, "metadata_ptr"), (16, 4, "metadata_size"), (20, 4, "gpu_id"), (24, 4, "flags"),
        (28, 4, "dmabuf_fd"),
    ),
    "IMPORT_DMABUF": ((0, 8, "va"), (8, 8, "handle"), (16, 4, "gpu_id"), (20, 4, "dmabuf_fd")),
    "SMI_EVENTS": ((0, 4, "gpu_id"), (4, 4, "anon_fd")),
    "SVM": ((0, 8, "start"), (8, 8, "size"), (16, 4, "op"), (20, 4, "nattr")),
    "SET_XNACK_MODE": ((0, 4, "xnack_enabled"),),
    "AVAILABLE_MEMORY": ((0, 8, "available"), (8, 4, "gpu_id")),
    "EXPORT_DMABUF": ((0, 8, "handle"), (8, 4, "flags"), (12, 4, "dmabuf_fd")),
    "RUNTIME_ENABLE": ((0, 8, "r_debug"), (8, 4, "mode_mask"), (12, 4, "capabilities_mask")),
}
"""A field whose size the source leaves out is a u32."""
SIGNED_FIELDS = {"SET_XNACK_MODE": ("xnack_enabled",)}
XNACK_QUERY = -1
"""Any negative value asks."""
SVM_ATTRIBUTE: Fields = ((0, 4, "type"), (4, 4, "value"))
SVM_ATTRIBUTES_OFFSET = 24
OLD_APERTURES = 7
"""Entries of GET_PROCESS_APERTURES, the deprecated call."""
MEMORY_POLICIES = {"COHERENT": 0, "NONCOHERENT": 1}
SYSTEM_CLOCK_HZ = 1_000_000_000
CLOCKS = {"cpu": "CLOCK_MONOTONIC_RAW", "system": "CLOCK_BOOTTIME"}

OUT_FIELDS = {
    "CREATE_QUEUE": ("doorbell_offset", "queue_id"), "CREATE_EVENT": ("event_id", "event_slot_index"),
    "WAIT_EVENTS": ("wait_result",), "ALLOC_MEMORY_OF_GPU": ("handle",), "IMPORT_DMABUF": ("handle",),
    "SMI_EVENTS": ("anon_fd",), "EXPORT_DMABUF": ("dmabuf_fd",),
}
INOUT_FIELDS = {
    "GET_PROCESS_APERTURES_NEW": ("num_of_nodes",), "ALLOC_MEMORY_OF_GPU": ("mmap_offset",),
    "MAP_MEMORY_TO_GPU": ("n_success",), "UNMAP_MEMORY_FROM_GPU": ("n_success",),
}

VERSION_GATES = {
    "SVM": (1, 5), "AVAILABLE_MEMORY": (1, 9), "unified CWSR memory": (1, 11), "EXPORT_DMABUF": (1, 12),
    "RUNTIME_ENABLE": (1, 13), "event_age": (1, 14), "GEM_VA on KFD buffers": (1, 15), "CONTIGUOUS": (1, 16),
    "SDMA_BY_ENG_ID": (1, 17),
}
RUNTIME_ENABLE_MODES = {"ENABLE": 1, "TTMP_SAVE": 2}

APERTURE: Fields = (
    (0, 8, "lds_base"), (8, 8, "lds_limit"), (16, 8, "scratch_base"), (24, 8, "scratch_limit"),
    (32, 8, "gpuvm_base"), (40, 8, "gpuvm_limit"), (48, 4, "gpu_id"), (52, 4, "pad"),
)
APERTURE_BYTES = 56
LDS_APERTURE, SCRATCH_APERTURE, APERTURE_SPAN = 1 << 48, 2 << 48, 1 << 32
GPUVM_BASE, GPUVM_RESERVED_TOP = 0x10000, (4 << 20) + (64 << 10)
GPUVM_BITS, USER_VA_CLEAR_BIT, VA_ALIGNMENT, LARGE_VA_ALIGNMENT = 48, 47, 4096, 2 << 20
HANDLE_GPU_ID_SHIFT = 32

ALLOC_FLAGS = {
    "VRAM": 0, "GTT": 1, "USERPTR": 2, "DOORBELL": 3, "MMIO_REMAP": 4, "CONTIGUOUS": 23, "EXT_COHERENT": 24,
    "UNCACHED": 25, "COHERENT": 26, "AQL_QUEUE_MEM": 27, "NO_SUBSTITUTE": 28, "PUBLIC": 29, "EXECUTABLE": 30,
    "WRITABLE": 31,
}
"""Flag -> bit."""
ALLOC_KINDS = {
    "vram": ("VRAM", "WRITABLE", "EXECUTABLE", "NO_SUBSTITUTE"),
    "visible vram": ("VRAM", "WRITABLE", "EXECUTABLE", "NO_SUBSTITUTE", "PUBLIC"),
    "system": ("GTT", "WRITABLE", "EXECUTABLE", "NO_SUBSTITUTE", "COHERENT", "UNCACHED"),
    "user pointer": ("USERPTR", "WRITABLE", "EXECUTABLE", "NO_SUBSTITUTE"),
    "doorbell": ("DOORBELL", "WRITABLE", "COHERENT"),
    "mmio remap": ("MMIO_REMAP", "WRITABLE", "COHERENT"),
}

QUEUE_TYPES = {"COMPUTE": 0, "SDMA": 1, "COMPUTE_AQL": 2, "SDMA_XGMI": 3, "SDMA_BY_ENG_ID": 4}
QUEUE_PERCENTAGE_MAX, QUEUE_PRIORITY_MAX, QUEUE_PRIORITY_DEFAULT, RING_MIN = 100, 15, 7, 1024
QUEUE_PRIORITIES = {-3: 0, -2: 3, -1: 5, 0: 7, 1: 9, 2: 11, 3: 15}
QUEUE_PERCENTAGE_BITS, QUEUE_TARGET_XCC_BITS = (0, 7), (8, 15)
QUEUES_PER_PROCESS, QUEUES_PER_PROCESS_GFX943 = 127, 255
"""255 on 9.4.3, 9.4.4 and 9.5.0."""
EOP_MIN = 4096
RING_ALIGNMENT, POINTER_ALIGNMENT, POINTER_PAGE_BYTES = 256, 8, 4096
MQD_QUEUE_SIZE = {dwords: dwords.bit_length() - 2 for dwords in (256, 1024, 0x40000)}
"""Ring dwords -> queue size field: log2 - 1."""
MQD_EOP_SIZE_MAX = 0xA
MQD_EOP_SIZE = {1024: 9, 2048: 10, 4096: 10}
"""EOP buffer dwords -> size field: log2 - 1, at most 0xA."""
MQD_AQL_SLOT_BASED_WPTR = 2
AQL_XCC_CHUNK = 1
RING_UNIT_BYTES = {"COMPUTE": 4, "SDMA": 1, "COMPUTE_AQL": 64, "SDMA_XGMI": 1, "SDMA_BY_ENG_ID": 1}
ENOTSUPP = 524

CWSR_VGPR_BYTES = {
    0x80000: ("gfx908", "gfx90a", "gfx940", "gfx941", "gfx942", "gfx950"),
    0x60000: ("gfx1100", "gfx1101", "gfx1151", "gfx1200", "gfx1201"),
    0x40000: ("gfx1030", "gfx1102", "gfx1103", "gfx1150"),
}
CWSR_SGPR_BYTES, CWSR_LDS_BYTES, CWSR_HW_BYTES = 0x4000, 0x10000, 0x1000
CWSR_VGPR_BYTES_BEFORE = {"gfx1151": 0x40000}
"""Kernels that compare the size and do not print it: they want this number exactly (from 6.12 to 6.17.8)."""
CWSR_LDS_BYTES_GFX950 = 160 << 10
CWSR_WAVES_PER_CU_GFX9, CWSR_WAVES_PER_ARRAY_GFX9, CWSR_WAVES_PER_CU_GFX10 = 40, 512, 32
CWSR_WAVE_BYTES_GFX9, CWSR_WAVE_BYTES_GFX10, CWSR_CTL_CAP_GFX10, CWSR_DEBUG_WAVE_BYTES = 8, 12, 0x7000, 32
CWSR_CTL_HEADER_BYTES, CWSR_CTL_TAIL_BYTES, CWSR_ALIGNMENT, CWSR_DEBUG_ALIGNMENT = 40, 8, 4096, 64

CWSR_VECTORS: dict[str, dict[str, int]] = {
    "gfx1201": {
        "cu": 64, "num_xcc": 1, "ctl_stack": 28672, "wg_data": 30670848, "cwsr_size": 30699520,
        "debug": 65536, "total": 30765056,
    },
    "gfx1100": {
        "cu": 96, "num_xcc": 1, "ctl_stack": 40960, "wg_data": 46006272, "cwsr_size": 46047232,
        "debug": 98304, "total": 46145536,
    },
    "gfx942": {
        "cu": 38, "num_xcc": 8, "ctl_stack": 12288, "wg_data": 23191552, "cwsr_size": 23203840,
        "debug": 48640, "total": 186019840,
    },
}
CONTEXT_SAVE_HEADER: Fields = (
    (0, 4, "ctl_stack_offset"), (4, 4, "ctl_stack_size"), (8, 4, "wave_state_offset"), (12, 4,
    "wave_state_size"),
    (16, 4, "debug_offset"), (20, 4, "debug_size"), (24, 8, "err_payload_addr"), (32, 4, "err_event_id"),
    (36, 4, "reserved"),
)
CONTEXT_SAVE_HEADER_BYTES = 40

EVENT_TYPES = {
    "SIGNAL": 0, "NODECHANGE": 1, "DEVICESTATECHANGE": 2, "HW_EXCEPTION": 3, "SYSTEM": 4, "DEBUG": 5,
    "PROFILE": 6, "QUEUE": 7, "MEMORY": 8,
}
EVENT_SLOTS, EVENT_SLOT_BYTES, EVENT_PAGE_BYTES = 4096, 8, 32768
SIGNAL_EVENT_IDS, OTHER_EVENT_IDS = range(1, 4096), 0x40000000
UNSIGNALLED = 0xffff_ffff_ffff_ffff
WAIT_RESULTS = {"COMPLETE": 0, "TIMEOUT": 1, "FAIL": 2}
WAIT_FOREVER = 0xffffffff
EVENT_DATA: Fields = ((0, 32, "union"), (32, 8, "ext_ptr"), (40, 4, "event_id"), (44, 4, "pad"))
EVENT_DATA_BYTES = 48
MEMORY_FAULT: Fields = (
    (0, 4, "not_present"), (4, 4, "read_only"), (8, 4, "no_execute"), (12, 4, "imprecise"), (16, 8, "va"),
    (24, 4, "gpu_id"), (28, 4, "error_type"),
)
MEMORY_ERROR_TYPES = {0: "none", 1: "SRAM ECC", 2: "poison", 3: "hang"}
HW_EXCEPTION: Fields = ((0, 4, "reset_type"), (4, 4, "reset_cause"), (8, 4, "memory_lost"), (12, 4, "gpu_id"))
RESET_TYPES = {0: "whole GPU", 1: "per engine"}
RESET_CAUSES = {0: "hang", 1: "ECC"}
SIGNAL_EVENT: Fields = ((0, 8, "last_event_age"),)
FIRST_EVENT_AGE, EVENT_AGE_IGNORED = 1, 0
WAIT_POLL = 0
INTERRUPT_CONTEXT_BITS = {"end of pipe": 32, "sdma trap": 28, "s_sendmsg": 24}

SVM_OPS = {"SET": 0, "GET": 1}
SVM_ATTRIBUTES = {
    "PREFERRED_LOC": 0, "PREFETCH_LOC": 1, "ACCESS": 2, "ACCESS_IN_PLACE": 3, "NO_ACCESS": 4, "SET_FLAGS": 5,
    "CLR_FLAGS": 6, "GRANULARITY": 7,
}
SVM_FLAGS = {
    "HOST_ACCESS": 1, "COHERENT": 2, "HIVE_LOCAL": 4, "GPU_RO": 8, "GPU_EXEC": 0x10, "READ_MOSTLY": 0x20,
    "ALWAYS_MAPPED": 0x40, "EXT_COHERENT": 0x80,
}
SMI_EVENTS = {
    "VMFAULT": 1, "THERMAL_THROTTLE": 2, "GPU_PRE_RESET": 3, "GPU_POST_RESET": 4, "MIGRATE_START": 5,
    "MIGRATE_END": 6, "PAGE_FAULT_START": 7, "PAGE_FAULT_END": 8, "QUEUE_EVICTION": 9, "QUEUE_RESTORE": 10,
    "UNMAP": 11, "ALL_PROCESS": 64,
}
"""Event -> number; its bit of the 8-byte mask is number - 1."""
SMI_MASK_BYTES, SMI_LINE_BYTES_MAX = 8, 96

MMAP_TYPES = {"DOORBELL": 3, "EVENTS": 2, "RESERVED_MEM": 1, "MMIO": 0}
MMAP_TYPE_BITS, MMAP_GPU_ID_BITS, MMAP_OFFSET_BITS = (62, 63), (46, 61), (0, 45)
DOORBELL_BYTES, DOORBELL_SLICE_BYTES, DOORBELL_OFFSET_MASK, SDMA_DOORBELL_MIRROR = 8, 8192, 0x1FFF, 512
DOORBELLS_PER_SLICE = 1024
SDMA_DOORBELL_VECTORS = ((0, 0), (1, 512), (2, 1), (3, 513))
"""(queue of the engine, id above the engine's base): (q & 1) * 512 + (q >> 1)."""
MMIO_REMAP_BYTES = 4096
MMIO_REMAP = {"HDP memory flush": 0, "HDP register flush": 4}
"""Byte offsets in the MMIO remap page."""

DRM_CALLS = {"INFO": 0x40206445, "GEM_CREATE": 0xC0206440, "GEM_MMAP": 0xC0086441, "GEM_VA": 0x40286448}
DRM_INFO: Fields = ((0, 8, "return_pointer"), (8, 4, "return_size"), (12, 4, "query"), (16, 16, "union"))
DRM_INFO_QUERIES = {
    "HW_IP_INFO": 0x02, "TIMESTAMP": 0x05, "VRAM_USAGE": 0x10, "READ_MMR_REG": 0x15, "DEV_INFO": 0x16,
}
DEV_INFO: Fields = (
    (0, 4, "device_id"), (4, 4, "chip_rev"), (8, 4, "external_rev"), (12, 4, "pci_rev"), (16, 4, "family"),
    (20, 4, "num_shader_engines"), (24, 4, "num_shader_arrays_per_engine"), (28, 4, "gpu_counter_freq"),
    (32, 8, "max_engine_clock"), (48, 4, "cu_active_number"), (52, 4, "cu_ao_mask"), (56, 64, "cu_bitmap"),
    (136, 8, "ids_flags"), (144, 8, "virtual_address_offset"), (152, 8, "virtual_address_max"),
    (168, 4, "gart_page_size"), (240, 4, "wave_front_size"),
)
DEV_INFO_BYTES = 440
IDS_FLAGS_FUSION = 1
