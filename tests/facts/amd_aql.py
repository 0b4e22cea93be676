"""AQL: packet header, packets, signals, queue structure.

Source: the HSA packet formats in ROCr's headers and Linux 6.12.107. Field tables are (offset, size, name).
"""

# fmt: off
Fields = tuple[tuple[int, int, str], ...]
Bits = tuple[int, int]

PACKET_BYTES = 64
HEADER: dict[str, Bits] = {
    "TYPE": (0, 7), "BARRIER": (8, 8), "ACQUIRE_SCOPE": (9, 10), "RELEASE_SCOPE": (11, 12),
}
SCOPES = {"NONE": 0, "AGENT": 1, "SYSTEM": 2}
TYPES = {
    "VENDOR_SPECIFIC": 0, "INVALID": 1, "KERNEL_DISPATCH": 2, "BARRIER_AND": 3, "AGENT_DISPATCH": 4,
    "BARRIER_OR": 5,
}
SETUP_DIMENSIONS: Bits = (0, 1)
ALIGNMENTS = {"kernel_object": 64, "kernarg_address": 16, "completion_signal": 64}
HEADER_WORDS = {
    "dispatch: barrier, acquire and release of the system": 0x1502, "barrier-and, likewise": 0x1503,
    "vendor: barrier, acquire and release of the system": 0x1500, "invalid": 0x0001,
}
VENDOR_FIRST_DWORD = 0x11500
"""Such a header with format 1 in the upper half: the first dword of a packet of PM4."""

KERNEL_DISPATCH: Fields = (
    (0, 2, "header"), (2, 2, "setup"), (4, 2, "workgroup_size_x"), (6, 2, "workgroup_size_y"),
    (8, 2, "workgroup_size_z"), (12, 4, "grid_size_x"), (16, 4, "grid_size_y"), (20, 4, "grid_size_z"),
    (24, 4, "private_segment_size"), (28, 4, "group_segment_size"), (32, 8, "kernel_object"),
    (40, 8, "kernarg_address"), (48, 8, "reserved"), (56, 8, "completion_signal"),
)
BARRIER: Fields = (
    (0, 2, "header"), (2, 6, "reserved"), (8, 40, "dep_signal[5]"), (48, 8, "reserved2"), (56, 8,
    "completion_signal"),
)
PM4_IB: Fields = (
    (0, 2, "header"), (2, 2, "ven_hdr"), (4, 16, "ib_jump_cmd[4]"), (20, 4, "dw_cnt_remain"), (24, 32,
    "reserved[8]"),
    (56, 8, "completion_signal"),
)
PM4_IB_FORMAT, PM4_IB_DW_CNT_REMAIN = 1, 10
BARRIER_VALUE: Fields = (
    (0, 4, "header"), (8, 8, "signal"), (16, 8, "value"), (24, 8, "mask"), (32, 4, "cond"), (56, 8,
    "completion_signal"),
)
BARRIER_VALUE_FORMAT = 2
BARRIER_VALUE_CONDITIONS = {"EQ": 0, "NE": 1, "LT": 2, "GTE": 3}

SIGNAL: Fields = (
    (0, 8, "kind"), (8, 8, "value"), (16, 8, "event_mailbox_ptr"), (24, 4, "event_id"), (32, 8, "start_ts"),
    (40, 8, "end_ts"), (48, 8, "queue_ptr"),
)
SIGNAL_BYTES, SIGNAL_ALIGNMENT = 64, 64
COMPLETION_STEP = -1
SIGNAL_KINDS = {"USER": 1, "DOORBELL": -1}

QUEUE: Fields = (
    (0, 4, "type"), (4, 4, "features"), (8, 8, "base"), (16, 8, "doorbell_signal"), (24, 4, "size"), (32, 8,
    "id"),
    (40, 4, "caps"), (56, 8, "write_dispatch_id"), (64, 4, "group_segment_aperture_base_hi"),
    (68, 4, "private_segment_aperture_base_hi"), (72, 4, "max_cu_id"), (76, 4, "max_wave_id"),
    (128, 8, "read_dispatch_id"), (136, 4, "read_dispatch_id_field_base_byte_offset"),
    (140, 4, "compute_tmpring_size"), (144, 16, "scratch_resource_descriptor[4]"),
    (160, 8, "scratch_backing_memory_location"), (168, 8, "scratch_backing_memory_byte_size"),
    (176, 4, "scratch_wave64_lane_byte_size"), (180, 4, "queue_properties"), (192, 8,
    "queue_inactive_signal"),
)
"""Sizes follow from the neighbours; the source gives offsets only."""
QUEUE_BYTES, QUEUE_V2_BYTES, READ_DISPATCH_ID_FIELD_BASE = 256, 2304, 128
QUEUE_PROPERTIES = {"ENABLE_TRAP_HANDLER": 0, "IS_PTR64": 1, "ENABLE_PROFILING": 3, "USE_SCRATCH_ONCE": 4}
"""Property -> bit."""
LDS_APERTURE_HI, SCRATCH_APERTURE_HI = 0x10000, 0x20000
RING_PACKETS_MIN, RING_PACKETS_MAX = 64, 131072

INACTIVE_ERRORS = {
    0x1: "insufficient scratch (wave64)", 0x2: "bad dimensions", 0x4: "group segment", 0x8: "bad code",
    0x20: "format", 0x40: "work-group too large", 0x80: "VGPRs", 0x100: "vendor packet",
    0x200: "scratch reclaim", 0x400: "insufficient scratch (wave32)", 0x20000000: "memory violation",
    0x40000000: "illegal instruction", 0x80000000: "trap",
}

SCRATCH_DESCRIPTOR: dict[str, tuple[int, int, int]] = {
    "BASE_LO": (0, 0, 31), "BASE_HI": (1, 0, 15), "NUM_RECORDS": (2, 0, 31),
}
"""Field -> (word, lowest bit, highest bit); the records are the bytes of one XCC."""
SCRATCH_DESCRIPTOR_WORD_3 = {
    "gfx9": 0x00EA4FAC, "gfx10": 0x21814FAC, "gfx11": 0x20814FAC, "gfx12": 0x20814FAC,
}
SCRATCH_DESCRIPTOR_SWIZZLE = {"gfx9": 1 << 31, "gfx10": 1 << 31, "gfx11": 0x40000000, "gfx12": 0x40000000}
"""Bits of word 1 beside base[47:32]."""
MULTI_XCC_SETUP, ONCE_MASK = 3, 0b1
"""Dimensions of every dispatch; the XCC mask of what happens once, as signals and time stamps."""
