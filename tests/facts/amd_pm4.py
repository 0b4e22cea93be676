"""PM4: header, opcodes, packets, cache controls, compute registers, ring protocol.

Source: Linux 6.12.107 (nvd.h, soc15d.h and the gfx_v9 to gfx_v12 drivers), GPUOpen PAL's MEC packet headers
and ROCr. A field is (dword, lowest bit, highest bit); dword 0 is the header.
"""

# fmt: off
Bits = tuple[int, int]
Field = tuple[int, int, int]

HEADER: dict[str, Bits] = {
    "TYPE": (30, 31), "COUNT": (16, 29), "OPCODE": (8, 15), "SHADER_TYPE": (1, 1), "PREDICATE": (0, 0),
}
TYPE_3 = 3
"""COUNT is the number of payload dwords less one, so a packet has COUNT + 2 dwords."""

OPCODES = {
    "NOP": 0x10, "DISPATCH_DIRECT": 0x15, "DISPATCH_INDIRECT": 0x16, "ATOMIC_MEM": 0x1E, "COND_EXEC": 0x22,
    "PRED_EXEC": 0x23, "WRITE_DATA": 0x37, "WAIT_REG_MEM": 0x3C, "INDIRECT_BUFFER": 0x3F, "COPY_DATA": 0x40,
    "EVENT_WRITE": 0x46, "RELEASE_MEM": 0x49, "DMA_DATA": 0x50, "ACQUIRE_MEM": 0x58, "SET_CONFIG_REG": 0x68,
    "SET_SH_REG": 0x76, "SET_UCONFIG_REG": 0x79, "WAIT_REG_MEM64": 0x93, "HDP_FLUSH": 0x95,
    "INVALIDATE_TLBS": 0x98, "AQL_PACKET": 0x99, "SET_SH_REG_INDEX": 0x9B,
}
REGISTER_BASES = {"SET_CONFIG_REG": 0x2000, "SET_SH_REG": 0x2C00, "SET_UCONFIG_REG": 0xC000}
SH_END = 0x3000

HEADERS: dict[str, tuple[str, int, int]] = {
    "RELEASE_MEM": ("RELEASE_MEM", 0xC0064900, 8),
    "ACQUIRE_MEM gfx9": ("ACQUIRE_MEM", 0xC0055800, 7),
    "ACQUIRE_MEM gfx10": ("ACQUIRE_MEM", 0xC0065800, 8),
    "WAIT_REG_MEM": ("WAIT_REG_MEM", 0xC0053C00, 7),
    "DISPATCH_DIRECT": ("DISPATCH_DIRECT", 0xC0031500, 5),
    "INDIRECT_BUFFER": ("INDIRECT_BUFFER", 0xC0023F00, 4),
    "EVENT_WRITE": ("EVENT_WRITE", 0xC0004600, 2),
    "COPY_DATA": ("COPY_DATA", 0xC0044000, 6),
    "ATOMIC_MEM": ("ATOMIC_MEM", 0xC0071E00, 9),
    "PRED_EXEC": ("PRED_EXEC", 0xC0002300, 2),
}
"""Packet -> (opcode name, ready-made header, dwords in all)."""
NOP_ONE_DWORD, NOP_COUNT_ONE_DWORD, TYPE_2_FILLER = 0xFFFF1000, 0x3FFF, 0x80000000

SET_REG: dict[str, Field] = {"REG_OFFSET": (1, 0, 15), "VMID_SHIFT": (1, 23, 27), "INDEX": (1, 28, 31)}

COHER_CNTL_GFX9 = {
    "TC_NC": 3, "TC_WC": 4, "TC_INV_METADATA": 5, "TCL1_VOL": 15, "TC_WB": 18, "TCL1": 22, "TC": 23, "CB": 25,
    "DB": 26, "SH_KCACHE": 27, "KCACHE_VOL": 28, "SH_ICACHE": 29, "KCACHE_WB": 30, "ENGINE": 31,
}
"""Action -> bit of dword 1 of ACQUIRE_MEM."""
ACQUIRE_MEM: dict[str, Field] = {
    "SIZE_LO": (2, 0, 31), "SIZE_HI": (3, 0, 7), "BASE_LO": (4, 0, 31), "BASE_HI": (5, 0, 23),
    "POLL_INTERVAL": (6, 0, 15),
}
ACQUIRE_MEM_POLL_INTERVAL = 10
ACQUIRE_MEM_DWORDS = {"gfx9": 7, "gfx10": 8, "gfx11": 8, "gfx12": 8}
FULL_RANGE = {"SIZE_LO": 0xFFFFFFFF, "SIZE_HI": 0xFF, "BASE_LO": 0, "BASE_HI": 0}
"""All of the 40 bits of size; whether they count 256 or 128 bytes does not matter then."""
GCR_CNTL_DWORD = 7
GCR_CNTL: dict[str, Bits] = {
    "GLI_INV": (0, 1), "GL1_RANGE": (2, 3), "GLM_WB": (4, 4), "GLM_INV": (5, 5), "GLK_WB": (6, 6),
    "GLK_INV": (7, 7), "GLV_INV": (8, 8), "GL1_INV": (9, 9), "GL2_US": (10, 10), "GL2_RANGE": (11, 12),
    "GL2_DISCARD": (13, 13), "GL2_INV": (14, 14), "GL2_WB": (15, 15), "SEQ": (16, 17),
    "RANGE_IS_PA": (18, 18),
}
GCR_CNTL_RESERVED_GFX12 = ("GLM_WB", "GLM_INV", "GL1_INV", "GL1_RANGE")
GCR_CNTL_IGNORED_GFX12 = ("GL1_RANGE",)
GCR_BEFORE_KERNEL = ("GLI_INV", "GLK_INV", "GLV_INV", "GL1_INV", "GLM_INV", "GL2_INV")
GCR_BETWEEN_DISPATCHES = ("GLK_INV", "GLV_INV", "GL1_INV")
GLI_INV_ALL = 1
GCR_SEQUENCES = {"PARALLEL": 0, "FORWARD": 1, "REVERSE": 2}

RELEASE_MEM: dict[str, Field] = {
    "EVENT_TYPE": (1, 0, 5), "EVENT_INDEX": (1, 8, 11), "DST_SEL": (2, 16, 17), "INT_SEL": (2, 24, 26),
    "DATA_SEL": (2, 29, 31), "ADDRESS_LO": (3, 0, 31), "ADDRESS_HI": (4, 0, 31), "DATA_LO": (5, 0, 31),
    "DATA_HI": (6, 0, 31), "INT_CTXID": (7, 0, 31),
}
EVENT_TYPES = {
    "CACHE_FLUSH_AND_INV_TS": 0x14, "BOTTOM_OF_PIPE_TS": 0x28, "CS_DONE": 0x2F, "CS_PARTIAL_FLUSH": 0x07,
}
EVENT_INDEX_END_OF_PIPE, EVENT_INDEX_SHADER_DONE = 5, 6
DST_SEL = {"MEMORY": 0, "L2": 1}
DATA_SEL = {"NONE": 0, "LOW_32": 1, "FULL_64": 2, "GPU_CLOCK": 3, "SYSTEM_CLOCK": 4, "ATOMIC_ADD_32": 7}
INT_SEL = {
    "NONE": 0, "INTERRUPT": 1, "INTERRUPT_AFTER_WRITE": 2, "DATA_AFTER_WRITE": 3, "SEND_CTXID": 4,
}
INT_SEL_CONDITIONAL = (5, 6)
DATA_ALIGNMENT = {"LOW_32": 4, "FULL_64": 8, "GPU_CLOCK": 8, "SYSTEM_CLOCK": 8}
SHADER_DONE_EVENTS = ("CS_DONE",)
"""Events that take index 6; the others take 5."""
RELEASE_CACHE_BITS: dict[str, dict[str, Bits]] = {
    "gfx9": {
        "TCL1_VOL_ACTION": (12, 12), "TC_VOL_ACTION": (13, 13), "TC_WB_ACTION": (15, 15),
        "TCL1_ACTION": (16, 16), "TC_ACTION": (17, 17), "TC_NC_ACTION": (19, 19), "TC_WC_ACTION": (20, 20),
        "TC_MD_ACTION": (21, 21), "CACHE_POLICY": (25, 26), "EXECUTE": (28, 28),
    },
    "gfx11": {
        "GLM_WB": (12, 12), "GLM_INV": (13, 13), "GLV_INV": (14, 14), "GL1_INV": (15, 15), "GL2_US": (16, 16),
        "GL2_RANGE": (17, 18), "GL2_DISCARD": (19, 19), "GL2_INV": (20, 20), "GL2_WB": (21, 21),
        "SEQ": (22, 23), "GLK_WB": (24, 24), "CACHE_POLICY": (25, 26), "PQ_EXE_STATUS": (28, 28),
        "GLK_INV": (30, 30),
    },
    "gfx12": {
        "GLV_INV": (14, 14), "GL2_US": (16, 16), "GL2_RANGE": (17, 18), "GL2_DISCARD": (19, 19),
        "GL2_INV": (20, 20), "GL2_WB": (21, 21), "SEQ": (22, 23), "GLK_WB": (24, 24), "TEMPORAL": (25, 26),
        "PQ_EXE_STATUS": (28, 28),
    },
}
"""Bits of dword 1. gfx10 is gfx11 without GLK_WB and GLK_INV."""
GFX10_LACKS = ("GLK_WB", "GLK_INV")
GLM_INV_FOLLOWS_GLM_WB = ("gfx10", "gfx11")
SYSTEM_RELEASE = {
    "gfx9": ("TC_WB_ACTION", "TC_ACTION"), "gfx10": ("GL2_WB",), "gfx11": ("GL2_WB",), "gfx12": ("GL2_WB",),
}
"""What makes results visible to the system, at least."""
TEMPORAL_HINT_GFX12 = 3
RELEASE_CACHE_POLICIES = {"LRU": 0, "STREAM": 1, "NOA": 2, "BYPASS": 3}
"""The kernel uses BYPASS since gfx10."""

WAIT_REG_MEM: dict[str, Field] = {
    "FUNCTION": (1, 0, 2), "MEM_SPACE": (1, 4, 5), "OPERATION": (1, 6, 7), "ENGINE": (1, 8, 8),
    "CACHE_POLICY": (1, 25, 26), "ADDRESS_LO": (2, 0, 31), "ADDRESS_HI": (3, 0, 31), "REFERENCE": (4, 0, 31),
    "MASK": (5, 0, 31), "POLL_INTERVAL": (6, 0, 15), "OPTIMIZE_ACE_OFFLOAD_MODE": (6, 31, 31),
}
FUNCTIONS = {"ALWAYS": 0, "LT": 1, "LE": 2, "EQ": 3, "NE": 4, "GE": 5, "GT": 6}
MEM_SPACES = {"REGISTER": 0, "MEMORY": 1}
WAIT_OPERATIONS = {"WAIT": 0, "WRITE_WAIT_WRITE": 1, "WAIT_PREEMPTABLE": 3}
WAIT_POLL_INTERVAL = 4
WAIT_COMPARE_BITS, WAIT_ADDRESS_ALIGNMENT = 32, 4
WAIT_REG_MEM64_DWORDS = 9
DMA_DATA_DWORDS = 7
DMA_DATA: dict[str, Field] = {
    "SRC_CACHE_POLICY": (1, 13, 14), "DST_SEL": (1, 20, 21), "DST_CACHE_POLICY": (1, 25, 26),
    "SRC_SEL": (1, 29, 30), "CP_SYNC": (1, 31, 31), "SRC_LO": (2, 0, 31), "SRC_HI": (3, 0, 31),
    "DST_LO": (4, 0, 31), "DST_HI": (5, 0, 31), "BYTE_COUNT": (6, 0, 25), "SAS": (6, 26, 26),
    "DAS": (6, 27, 27), "SAIC": (6, 28, 28), "DAIC": (6, 29, 29), "RAW_WAIT": (6, 30, 30),
    "DIS_WC": (6, 31, 31),
}
"""Source: PAL's MEC packet headers of gfx9 to gfx12 and nvd.h; CP_SYNC from nvd.h and soc15d.h alone."""
DMA_DATA_SRC = {"MEMORY": 0, "DATA": 2, "L2": 3}
DMA_DATA_DST = {"MEMORY": 0, "L2": 3}
DMA_DATA_BYTES_MAX = {"gfx9": 0x3FFFFE0, "gfx10": 0x3FFFFE0, "gfx11": 0x7FE0, "gfx12": 0x7FE0}
"""What Mesa's radv_cp_dma.c sends at most, in multiples of 32 bytes."""
WRITE_WAIT_WRITE = {"WRITE_REGISTER": 2, "POLL_REGISTER": 3}
"""Dwords of WAIT_REG_MEM with that operation on registers."""

WRITE_DATA: dict[str, Field] = {
    "DST_SEL": (1, 8, 11), "ADDR_INCR_DISABLE": (1, 16, 16), "WR_CONFIRM": (1, 20, 20),
    "CACHE_POLICY": (1, 25, 26), "ADDRESS_LO": (2, 0, 31), "ADDRESS_HI": (3, 0, 31),
}
WRITE_DATA_DST = {"REGISTER": 0, "L2": 2, "MEMORY": 5}

COPY_DATA: dict[str, Field] = {
    "SRC_SEL": (1, 0, 3), "DST_SEL": (1, 8, 11), "COUNT_SEL": (1, 16, 16), "WR_CONFIRM": (1, 20, 20),
    "SRC_LO": (2, 0, 31), "SRC_HI": (3, 0, 31), "DST_LO": (4, 0, 31), "DST_HI": (5, 0, 31),
}
COPY_DATA_SRC = {
    "REGISTER": 0, "MEMORY": 1, "L2": 2, "PERF": 4, "IMMEDIATE": 5, "ATOMIC_RETURN": 6, "GPU_CLOCK": 9,
    "SYSTEM_CLOCK": 10,
}
COPY_DATA_COUNTS = {"32": 0, "64": 1}
COPY_DATA_DST = {"REGISTER": 0, "L2": 2, "PERF": 4, "MEMORY": 5}

INDIRECT_BUFFER: dict[str, Field] = {
    "ADDRESS_LO": (1, 0, 31), "ADDRESS_HI": (2, 0, 31), "SIZE": (3, 0, 19), "CHAIN": (3, 20, 20),
    "OFFLOAD_POLLING": (3, 21, 21), "VALID": (3, 23, 23), "VMID": (3, 24, 27), "CACHE_POLICY": (3, 28, 29),
}

INDIRECT_BUFFER_ALIGNMENT, INDIRECT_BUFFER_DWORDS_MAX = 4, 0xFFFFF

DISPATCH_DIRECT: dict[str, Field] = {
    "DIM_X": (1, 0, 31), "DIM_Y": (2, 0, 31), "DIM_Z": (3, 0, 31), "INITIATOR": (4, 0, 31),
}
DISPATCH_INITIATOR = {
    "COMPUTE_SHADER_EN": 0, "PARTIAL_TG_EN": 1, "FORCE_START_AT_000": 2, "ORDERED_APPEND_ENBL": 3,
    "ORDERED_APPEND_MODE": 4, "USE_THREAD_DIMENSIONS": 5, "ORDER_MODE": 6, "SCALAR_L1_INV_VOL": 10,
    "VECTOR_L1_INV_VOL": 11, "PING_PONG_EN": 12, "TUNNEL_ENABLE": 13, "RESTORE": 14, "CS_W32_EN": 15,
    "AMP_SHADER_EN": 16, "DISABLE_DISP_PREMPT_EN": 17, "INTERLEAVE_2D_EN": 18,
}
INITIATOR_SINCE = {
    "CS_W32_EN": "gfx10", "AMP_SHADER_EN": "gfx11", "DISABLE_DISP_PREMPT_EN": "gfx11",
    "PING_PONG_EN": "gfx12", "INTERLEAVE_2D_EN": "gfx12",
}
INITIATOR_WAVE64, INITIATOR_WAVE32 = 0x5, 0x8005
PRIV_TARGETS = ("gfx1100", "gfx1101", "gfx1102", "gfx1103")
"""Where bit PRIV of RSRC1 is set, a workaround for context saving; GC 11.0.0 to 11.0.3."""
TRAP_PRESENT_BEFORE = "gfx12"

EVENT_WRITE: dict[str, Field] = {"EVENT_TYPE": (1, 0, 5), "EVENT_INDEX": (1, 8, 11)}
CS_PARTIAL_FLUSH_WORD, CS_PARTIAL_FLUSH_INDEX = 0x407, 4

PRED_EXEC: dict[str, Field] = {"EXEC_COUNT": (1, 0, 13), "DEVICE_SELECT": (1, 24, 31)}

ATOMIC_MEM: dict[str, Field] = {
    "ATOMIC": (1, 0, 6), "COMMAND": (1, 8, 11), "CACHE_POLICY": (1, 25, 26), "ADDRESS_LO": (2, 0, 31),
    "ADDRESS_HI": (3, 0, 31), "SRC_LO": (4, 0, 31), "SRC_HI": (5, 0, 31), "CMP_LO": (6, 0, 31),
    "CMP_HI": (7, 0, 31), "LOOP_INTERVAL": (8, 0, 12),
}
ATOMIC_COMMANDS = {"SINGLE_PASS": 0, "LOOP": 1, "WAIT_FOR_CONFIRM": 2, "SEND_AND_CONTINUE": 3}
TC_OPS = {
    "SWAP": 7, "CMPSWAP": 8, "ADD": 15, "SUB": 16, "SMIN": 17, "UMIN": 18, "SMAX": 19, "UMAX": 20, "AND": 21,
    "OR": 22, "XOR": 23, "INC": 24, "DEC": 25,
}
TC_OP_64, TC_OP_NO_RETURN, TC_OP_ADD_64 = 32, 64, 47

SH_REGISTERS: dict[str, int] = {
    "COMPUTE_DISPATCH_INITIATOR": 0x200, "COMPUTE_DIM_X": 0x201, "COMPUTE_DIM_Y": 0x202,
    "COMPUTE_DIM_Z": 0x203, "COMPUTE_START_X": 0x204, "COMPUTE_START_Y": 0x205, "COMPUTE_START_Z": 0x206,
    "COMPUTE_NUM_THREAD_X": 0x207, "COMPUTE_NUM_THREAD_Y": 0x208, "COMPUTE_NUM_THREAD_Z": 0x209,
    "COMPUTE_PIPELINESTAT_ENABLE": 0x20A, "COMPUTE_PERFCOUNT_ENABLE": 0x20B, "COMPUTE_PGM_LO": 0x20C,
    "COMPUTE_PGM_HI": 0x20D, "COMPUTE_DISPATCH_PKT_ADDR_LO": 0x20E, "COMPUTE_DISPATCH_PKT_ADDR_HI": 0x20F,
    "COMPUTE_DISPATCH_SCRATCH_BASE_LO": 0x210, "COMPUTE_DISPATCH_SCRATCH_BASE_HI": 0x211,
    "COMPUTE_PGM_RSRC1": 0x212, "COMPUTE_PGM_RSRC2": 0x213, "COMPUTE_VMID": 0x214,
    "COMPUTE_RESOURCE_LIMITS": 0x215, "COMPUTE_STATIC_THREAD_MGMT_SE0": 0x216,
    "COMPUTE_STATIC_THREAD_MGMT_SE1": 0x217, "COMPUTE_TMPRING_SIZE": 0x218,
    "COMPUTE_STATIC_THREAD_MGMT_SE2": 0x219, "COMPUTE_STATIC_THREAD_MGMT_SE3": 0x21A,
    "COMPUTE_RESTART_X": 0x21B, "COMPUTE_RESTART_Y": 0x21C, "COMPUTE_RESTART_Z": 0x21D,
    "COMPUTE_THREAD_TRACE_ENABLE": 0x21E, "COMPUTE_MISC_RESERVED": 0x21F, "COMPUTE_DISPATCH_ID": 0x220,
    "COMPUTE_THREADGROUP_ID": 0x221, "COMPUTE_USER_DATA_0": 0x240, "COMPUTE_USER_DATA_15": 0x24F,
}
"""Dword offset from the SH base, on every generation."""
SH_REGISTERS_GFX9 = {
    "COMPUTE_RELAUNCH": 0x222, "COMPUTE_WAVE_RESTORE_ADDR_LO": 0x223, "COMPUTE_WAVE_RESTORE_ADDR_HI": 0x224,
    "COMPUTE_SHADER_CHKSUM": 0x22C, "COMPUTE_PGM_RSRC3": 0x22D,
}
SH_REGISTERS_GFX10 = {
    "COMPUTE_REQ_CTRL": 0x222, "COMPUTE_USER_ACCUM_0": 0x224, "COMPUTE_USER_ACCUM_1": 0x225,
    "COMPUTE_USER_ACCUM_2": 0x226, "COMPUTE_USER_ACCUM_3": 0x227, "COMPUTE_PGM_RSRC3": 0x228,
    "COMPUTE_SHADER_CHKSUM": 0x22A,
}
SH_REGISTERS_GFX11 = {
    **SH_REGISTERS_GFX10, "COMPUTE_STATIC_THREAD_MGMT_SE4": 0x22B, "COMPUTE_STATIC_THREAD_MGMT_SE5": 0x22C,
    "COMPUTE_STATIC_THREAD_MGMT_SE6": 0x22D, "COMPUTE_STATIC_THREAD_MGMT_SE7": 0x22E,
    "COMPUTE_DISPATCH_INTERLEAVE": 0x22F, "COMPUTE_RELAUNCH": 0x230,
}
TG_CHUNK_SIZE_GFX942, THREAD_MGMT_SE4_GFX90A, THREAD_MGMT_SE8_GFX12 = 0x227, 0x225, 0x223
SH_REGISTERS_GFX90A = {
    "COMPUTE_STATIC_THREAD_MGMT_SE4": 0x225, "COMPUTE_STATIC_THREAD_MGMT_SE5": 0x226,
    "COMPUTE_STATIC_THREAD_MGMT_SE6": 0x227, "COMPUTE_STATIC_THREAD_MGMT_SE7": 0x228,
}
USER_DATA_REGISTERS = 16
NEVER_WRITTEN = ("COMPUTE_VMID",)
SCRATCH_BASE_SINCE = ("gfx940", "gfx11")
DISPATCH_ORDER = (
    "ACQUIRE_MEM", "COMPUTE_PGM_LO", "COMPUTE_PGM_RSRC1", "COMPUTE_PGM_RSRC3", "COMPUTE_TMPRING_SIZE",
    "COMPUTE_DISPATCH_SCRATCH_BASE_LO", "COMPUTE_RESTART_X", "COMPUTE_USER_DATA_0",
    "COMPUTE_RESOURCE_LIMITS", "COMPUTE_START_X", "DISPATCH_DIRECT",
)
"""The order that tinygrad sends; a register stands for the run that begins with it."""
START_RUN_VALUES = 8
"""START_X to PERFCOUNT_ENABLE in one packet: start 0 0 0, the three sizes, two zeros."""
PGM_SHIFT, SCRATCH_SHIFT, PGM_HI_BITS = 8, 8, 8
RESOURCE_LIMITS: dict[str, Bits] = {
    "WAVES_PER_SH": (0, 9), "TG_PER_CU": (12, 15), "LOCK_THRESHOLD": (16, 21), "SIMD_DEST_CNTL": (22, 22),
    "FORCE_SIMD_DIST": (23, 23), "CU_GROUP_COUNT": (24, 26),
}
TMPRING_WAVES: Bits = (0, 11)
TMPRING_WAVESIZE: dict[str, tuple[Bits, int]] = {
    "gfx9": ((12, 24), 1024), "gfx10": ((12, 24), 1024), "gfx11": ((12, 26), 256), "gfx12": ((12, 29), 256),
}
"""Generation -> (bits, bytes a unit)."""
NUM_THREAD: dict[str, Bits] = {"FULL": (0, 15), "PARTIAL": (16, 31)}
NUM_THREAD_GFX12: dict[str, Bits] = {"FULL": (0, 12), "INTERLEAVE_BITS": (13, 15), "PARTIAL": (16, 31)}
GC_SEGMENT_0 = {"gfx9": 0x2000, "navi": 0x1260}
GRBM_GFX_INDEX_SEGMENT_1, GRBM_GFX_INDEX = 0x2200, 0x200
"""From segment 1 of the GC block (0xA000), and from the UCONFIG base."""
GC_SEGMENT_1 = 0xA000

GRBM_GFX_INDEX_ABSOLUTE = 0xC200
HDP_FLUSH_REQ, HDP_FLUSH_DONE = 0x106, 0x107
"""Dword offsets from segment 2 of the BIF block (NBIO 7.9 and 4.3, NBIF 6.3.1)."""
