"""Code objects: ELF words, relocations, kernel descriptor, resource words, hidden arguments, test vectors.

Source: LLVM 19 AMDGPUUsage and objects built with llc-19; ROCr's loader. Field tables are
(offset, size, name).
"""

# fmt: off
Fields = tuple[tuple[int, int, str], ...]
Bits = tuple[int, int]

OSABI, MACHINE = 64, 224
ABI_VERSIONS = {"V4": 2, "V5": 3, "V6": 4}
ELF_TYPES = {"REL": 1, "DYN": 3}
MACH = {
    "gfx90a": 0x3F, "gfx940": 0x40, "gfx942": 0x4C, "gfx950": 0x4F, "gfx1030": 0x36, "gfx1100": 0x41,
    "gfx1101": 0x46, "gfx1102": 0x47, "gfx1103": 0x44, "gfx1150": 0x43, "gfx1151": 0x4A, "gfx1200": 0x48,
    "gfx1201": 0x4E,
}
MACH_BITS: Bits = (0, 7)
XNACK = {"unsupported": 0, "any": 0x100, "off": 0x200, "on": 0x300}
SRAMECC = {"unsupported": 0, "any": 0x400, "off": 0x800, "on": 0xC00}
NOTE_NAME, NOTE_TYPE = "AMDGPU", 32

RELOCATIONS = {
    "ABS32_LO": 1, "ABS32_HI": 2, "ABS64": 3, "REL32": 4, "REL64": 5, "ABS32": 6, "GOTPCREL": 7,
    "GOTPCREL32_LO": 8, "GOTPCREL32_HI": 9, "REL32_LO": 10, "REL32_HI": 11, "RELATIVE64": 13, "REL16": 14,
}
TEXT_ALIGNMENT, DESCRIPTOR_ALIGNMENT, PREFETCH_PADDING = 256, 64, 256
DESCRIPTOR_RELOCATION_OFFSET, DESCRIPTOR_RELOCATION_ADDEND = 16, 16

DESCRIPTOR: Fields = (
    (0, 4, "group_segment_fixed_size"), (4, 4, "private_segment_fixed_size"), (8, 4, "kernarg_size"),
    (12, 4, "reserved0"), (16, 8, "kernel_code_entry_byte_offset"), (24, 20, "reserved1"),
    (44, 4, "compute_pgm_rsrc3"), (48, 4, "compute_pgm_rsrc1"), (52, 4, "compute_pgm_rsrc2"),
    (56, 2, "kernel_code_properties"), (58, 2, "kernarg_preload"), (60, 4, "reserved3"),
)
DESCRIPTOR_BYTES = 64
PROPERTIES = {
    "PRIVATE_SEGMENT_BUFFER": 0, "DISPATCH_PTR": 1, "QUEUE_PTR": 2, "KERNARG_SEGMENT_PTR": 3,
    "DISPATCH_ID": 4, "FLAT_SCRATCH_INIT": 5, "PRIVATE_SEGMENT_SIZE": 6, "WAVEFRONT_SIZE32": 10,
    "USES_DYNAMIC_STACK": 11,
}
"""Property -> bit."""
PRELOAD: dict[str, Bits] = {"LENGTH": (0, 6), "OFFSET": (7, 15)}
PRELOAD_ENTRY_SKIP = 256

RSRC1: dict[str, Bits] = {
    "VGPRS": (0, 5), "SGPRS": (6, 9), "PRIORITY": (10, 11), "FLOAT_ROUND_MODE_32": (12, 13),
    "FLOAT_ROUND_MODE_16_64": (14, 15), "FLOAT_DENORM_MODE_32": (16, 17), "FLOAT_DENORM_MODE_16_64": (18, 19),
    "PRIV": (20, 20), "DX10_CLAMP": (21, 21), "DEBUG_MODE": (22, 22), "IEEE_MODE": (23, 23),
    "BULKY": (24, 24), "CDBG_USER": (25, 25), "FP16_OVFL": (26, 26), "WGP_MODE": (29, 29),
    "MEM_ORDERED": (30, 30), "FWD_PROGRESS": (31, 31),
}
RSRC1_GFX12: dict[str, Bits] = {"WG_RR_EN": (21, 21), "DISABLE_PERF": (23, 23)}
"""What gfx12 has in the place of DX10_CLAMP and IEEE_MODE."""
RSRC2: dict[str, Bits] = {
    "SCRATCH_EN": (0, 0), "USER_SGPR": (1, 5), "TRAP_PRESENT": (6, 6), "TGID_X_EN": (7, 7),
    "TGID_Y_EN": (8, 8), "TGID_Z_EN": (9, 9), "TG_SIZE_EN": (10, 10), "TIDIG_COMP_CNT": (11, 12),
    "EXCP_EN_MSB": (13, 14), "LDS_SIZE": (15, 23), "EXCP_EN": (24, 30),
}
RSRC2_GFX12: dict[str, Bits] = {"DYNAMIC_VGPR": (6, 6), "WGP_TAKEOVER": (31, 31)}
RSRC3: dict[str, dict[str, Bits]] = {
    "gfx90a": {"ACCUM_OFFSET": (0, 5), "TG_SPLIT": (16, 16)},
    "gfx942": {
        "ACCUM_OFFSET": (0, 5), "TRAP_ON_START": (10, 10), "TRAP_ON_END": (11, 11), "TG_SPLIT": (16, 16),
    },
    "gfx10": {"SHARED_VGPR_COUNT": (0, 3)},
    "gfx11": {
        "SHARED_VGPR_COUNT": (0, 3), "INST_PREF_SIZE": (4, 9), "TRAP_ON_START": (10, 10),
        "TRAP_ON_END": (11, 11), "IMAGE_OP": (31, 31),
    },
    "gfx12": {"INST_PREF_SIZE": (4, 11), "GLG_EN": (13, 13), "IMAGE_OP": (31, 31)},
}
INST_PREF_UNIT = 128

VGPR_ENCODE_GRANULE = {"gfx9": (8, 8), "gfx10": (8, 4), "gfx11": (8, 4), "gfx12": (8, 4)}
"""Generation -> granule for (wave32, wave64); gfx9 has wave64 only."""
VGPRS_MAX = {"gfx90a": 512, "gfx942": 512, "gfx950": 512, "gfx10": 256, "gfx11": 256, "gfx12": 256}
SGPRS = {"gfx9": 102, "gfx10": 106, "gfx11": 106, "gfx12": 106}
LARGE_VGPR_PARTS = ("gfx1100", "gfx1101", "gfx1151", "gfx1200", "gfx1201")
LDS_MAX = {"gfx90a": 65536, "gfx942": 65536, "gfx950": 163840, "gfx10": 65536, "gfx11": 65536, "gfx12": 65536}
LDS_GRANULE = {"gfx90a": 512, "gfx942": 512, "gfx950": 1280, "gfx10": 512, "gfx11": 512, "gfx12": 512}
WORKGROUP_MAX = 1024

USER_SGPR_ORDER = (
    ("PRIVATE_SEGMENT_BUFFER", 4), ("DISPATCH_PTR", 2), ("QUEUE_PTR", 2), ("KERNARG_SEGMENT_PTR", 2),
    ("DISPATCH_ID", 2), ("FLAT_SCRATCH_INIT", 2), ("PRIVATE_SEGMENT_SIZE", 1),
)
"""Preloaded arguments stand between FLAT_SCRATCH_INIT and PRIVATE_SEGMENT_SIZE."""
USER_SGPRS_MAX = 16
PADDED_USER_SGPR_TARGETS = ("gfx1100", "gfx1101", "gfx1102", "gfx1103")
PACKED_WORKITEM_ID: dict[str, Bits] = {"x": (0, 9), "y": (10, 19), "z": (20, 29)}
GFX12_TTMP9_IS_X, GFX12_TTMP7_Y, GFX12_TTMP7_Z = True, (0, 15), (16, 31)
SCRATCH_DESCRIPTOR_WAVE32_GFX10 = {"word 1": 1 << 31, "word 2": 0xFFFFFFFF, "word 3": 0x20C14000}

HIDDEN_ARGUMENTS: Fields = (
    (0, 4, "block_count_x"), (4, 4, "block_count_y"), (8, 4, "block_count_z"), (12, 2, "group_size_x"),
    (14, 2, "group_size_y"), (16, 2, "group_size_z"), (18, 2, "remainder_x"), (20, 2, "remainder_y"),
    (22, 2, "remainder_z"), (40, 8, "global_offset_x"), (48, 8, "global_offset_y"), (56, 8,
    "global_offset_z"), (64, 2, "grid_dims"), (72, 8, "printf_buffer"), (80, 8, "hostcall_buffer"), (88, 8,
    "multigrid_sync_arg"), (96, 8, "heap_v1"), (104, 8, "default_queue"), (112, 8, "completion_action"),
    (120, 4, "dynamic_lds_size"), (192, 4, "private_base"), (196, 4, "shared_base"), (200, 8, "queue_ptr"),
)
HIDDEN_BYTES, HIDDEN_ALIGNMENT = 256, 8

DESCRIPTOR_VECTORS: dict[str, dict[str, tuple[int, int, int]]] = {
    "gfx90a": {"A": (0x00AF0040, 0x138C, 0x0009), "B": (0x00AF0040, 0x1391, 0x0029)},
    "gfx942": {"A": (0x00AF0080, 0x1384, 0x0008), "B": (0x00AF0040, 0x1385, 0x0008)},
    "gfx1030": {"A": (0x60AF0040, 0x138C, 0x0409), "B": (0x60AF0040, 0x1391, 0x0429)},
    "gfx1100": {"A": (0x60AF0080, 0x139A, 0x0408), "B": (0x60AF0000, 0x139B, 0x0408)},
    "gfx1151": {"A": (0x60AF0040, 0x1384, 0x0408), "B": (0x60AF0000, 0x1385, 0x0408)},
    "gfx1200": {"A": (0x600F0040, 0x1384, 0x0408), "B": (0x600F0000, 0x1385, 0x0408)},
    "gfx1201": {"A": (0x600F0040, 0x1384, 0x0408), "B": (0x600F0000, 0x1385, 0x0408)},
}
"""rsrc1, rsrc2, properties of kernel A (LDS 1200, kernarg 280) and kernel B (private 260, kernarg 272)."""
RSRC3_VECTORS = {"gfx90a": (1, 0), "gfx942": (1, 0), "gfx1030": (0, 0)}
E_FLAGS_VECTORS = {"gfx90a": 0x53F, "gfx942": 0x54C}
VECTOR_SEGMENTS = {"A": {"group": 1200, "private": 0, "kernarg": 280}, "B": {"private": 260, "kernarg": 272}}
SECOND_KERNEL_TEXT_OFFSET = 0x100
