"""SDMA: operations, packets, limits by version.

Source: Linux 6.12.107 (the SDMA packet headers v4 to v7), ROCr and kfdtest. A field is
(dword, lowest bit, highest bit).
"""

# fmt: off
Field = tuple[int, int, int]

OPS = {
    "NOP": 0, "COPY": 1, "WRITE": 2, "INDIRECT": 4, "FENCE": 5, "TRAP": 6, "SEM": 7, "POLL_REGMEM": 8,
    "COND_EXE": 9, "ATOMIC": 10, "CONST_FILL": 11, "PTEPDE": 12, "TIMESTAMP": 13, "SRBM_WRITE": 14,
    "PRE_EXE": 15, "GPUVM_INV": 16, "GCR_REQ": 17, "DUMMY_TRAP": 32,
}
OP: Field = (0, 0, 7)
SUB_OP: Field = (0, 8, 15)
SUB_OPS = {
    "COPY_LINEAR": 0, "WRITE_UNTILED": 0, "TIMESTAMP_SET_LOCAL": 0, "TIMESTAMP_GET_LOCAL": 1,
    "TIMESTAMP_GET_GLOBAL": 2, "GCR_REQ_KERNEL": 0, "GCR_REQ_USER": 1,
}

DWORDS = {
    "COPY_LINEAR": 7, "CONST_FILL": 5, "FENCE": 4, "TRAP": 2, "POLL_REGMEM": 6, "ATOMIC": 8, "TIMESTAMP": 3,
    "GCR_REQ": 5, "INDIRECT": 6, "COND_EXE": 5, "SRBM_WRITE": 3,
}
COPY_LINEAR_DCC_DWORDS, WRITE_UNTILED_FIXED_DWORDS = 8, 4

PACKETS: dict[str, dict[str, Field]] = {
    "NOP": {"COUNT": (0, 16, 29)},
    "COPY_LINEAR": {
        "TMZ": (0, 18, 18), "DCC": (0, 19, 19), "BACKWARDS": (0, 25, 25), "BROADCAST": (0, 27, 27),
        "COUNT_MINUS_ONE": (1, 0, 29), "PARAMETER": (2, 0, 31), "SRC_LO": (3, 0, 31), "SRC_HI": (4, 0, 31),
        "DST_LO": (5, 0, 31), "DST_HI": (6, 0, 31),
    },
    "CONST_FILL": {
        "FILL_SIZE": (0, 30, 31), "DST_LO": (1, 0, 31), "DST_HI": (2, 0, 31), "DATA": (3, 0, 31),
        "COUNT": (4, 0, 29),
    },
    "WRITE_UNTILED": {"DST_LO": (1, 0, 31), "DST_HI": (2, 0, 31), "COUNT_MINUS_ONE": (3, 0, 19)},
    "FENCE": {
        "MTYPE": (0, 16, 18), "SYS": (0, 20, 20), "SNOOP": (0, 22, 22), "ADDRESS_LO": (1, 0, 31),
        "ADDRESS_HI": (2, 0, 31), "DATA": (3, 0, 31),
    },
    "TRAP": {"INT_CONTEXT": (1, 0, 27)},
    "POLL_REGMEM": {
        "HDP_FLUSH": (0, 26, 26), "FUNCTION": (0, 28, 30), "MEM_POLL": (0, 31, 31), "ADDRESS_LO": (1, 0, 31),
        "ADDRESS_HI": (2, 0, 31), "REFERENCE": (3, 0, 31), "MASK": (4, 0, 31), "INTERVAL": (5, 0, 15),
        "RETRY": (5, 16, 27),
    },
    "ATOMIC": {
        "LOOP": (0, 16, 16), "OPERATION": (0, 25, 31), "ADDRESS_LO": (1, 0, 31), "ADDRESS_HI": (2, 0, 31),
        "SRC_LO": (3, 0, 31), "SRC_HI": (4, 0, 31), "CMP_LO": (5, 0, 31), "CMP_HI": (6, 0, 31),
        "LOOP_INTERVAL": (7, 0, 12),
    },
    "TIMESTAMP": {"ADDRESS_LO": (1, 0, 31), "ADDRESS_HI": (2, 0, 31)},
    "GCR_REQ": {
        "BASE_LO": (1, 7, 31), "BASE_HI": (2, 0, 15), "GCR_CONTROL_LO": (2, 16, 31),
        "GCR_CONTROL_HI": (3, 0, 2), "LIMIT_LO": (3, 7, 31), "LIMIT_HI": (4, 0, 15),
    },
    "INDIRECT": {
        "VMID": (0, 16, 19), "BASE_LO": (1, 0, 31), "BASE_HI": (2, 0, 31), "SIZE": (3, 0, 19),
        "CSA_LO": (4, 0, 31), "CSA_HI": (5, 0, 31),
    },
}
COPY_BIT_19 = {"CPV": (5, 2), "DCC": (7, 0)}
"""What bit 19 of COPY_LINEAR means since that version; it stays clear."""
OPS_SINCE_V5 = ("GPUVM_INV", "GCR_REQ", "DUMMY_TRAP")
PRIVILEGED_OPS = ("PTEPDE", "SRBM_WRITE")
FENCE_FIELDS_SINCE_V5 = ("MTYPE", "SYS", "SNOOP")
COPY_FIELDS_SINCE_V5 = ("DCC", "BACKWARDS")
ALIGNMENTS = {"WRITE_UNTILED": 4, "FENCE": 4, "TIMESTAMP field": 8}
HDP_FLUSH_FUNCTION = 3
FILL_SIZE_DWORD = 2
FILL_VECTORS = {1: 0, 2: 4, 256: 1020}
"""Dwords to fill -> COUNT with that size: (n - 1) * 4."""
FENCE_MTYPE_UC = 3
"""On v5 to v7; v4 has no such field."""
POLL_RETRY_FOREVER = 0xFFF
POLL_INTERVAL = 4
"""Customary: the kernel sends 4 or 10."""
FUNCTIONS = {"ALWAYS": 0, "LT": 1, "LE": 2, "EQ": 3, "NE": 4, "GE": 5, "GT": 6}
USER_HDP_FLUSH = (0x8, 0x0, 0x80000000, 0x0, 0x0, 0x0)
ATOMIC_ADD_64, ATOMIC_ADD_32, ATOMIC_CMPSWAP_32, ATOMIC_CMPSWAP_64 = 47, 15, 8, 40
TIMESTAMP_ALIGNMENT, INDIRECT_BASE_ALIGNMENT = 32, 32
INDIRECT_START_DWORD_MOD_8, INDIRECT_END_DWORD_MOD_8 = 2, 0
"""An INDIRECT packet begins at (write pointer in dwords) & 7 == 2, so that it ends at a multiple of 8."""

COPY_COUNT_BITS = {(4, 4, 0): 22, (4, 4, 2): 22, (5, 0): 22, (5, 2): 30, (6, 0): 30, (7, 0): 30}
FILL_COUNT_BITS = {(4, 4, 0): 22, (4, 4, 2): 22, (5, 0): 22, (5, 2): 22, (6, 0): 30, (7, 0): 30}
COPY_SPLIT_V4, COPY_SPLIT_V5_2, COPY_SPLIT_EVERYWHERE = (4 << 20) - 256, (1 << 30) - 4096, 0x400000
COPY_BYTES_MAX = {
    "kernel, every version": 0x400000, "ROCr v4.4.2": 0x3FFFFF, "ROCr gfx90a and v5.2 on": 0x3FFFFFFF,
    "tinygrad v6 on": 0x40000000,
}
"""Bytes a packet that a driver sends; sources disagree."""
COPY_COUNT_BITS_GFX90A = (22, 30)
"""Older headers and ROCr disagree."""
