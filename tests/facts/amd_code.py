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
XNACK_BITS, SRAMECC_BITS, GENERIC_VERSION_BITS = (8, 9), (10, 11), (24, 31)
XNACK = {"unsupported": 0, "any": 0x100, "off": 0x200, "on": 0x300}
SRAMECC = {"unsupported": 0, "any": 0x400, "off": 0x800, "on": 0xC00}
NOTE_NAME, NOTE_TYPE, NOTE_SECTION = "AMDGPU", 32, ".note"
METADATA = ("amdhsa.version", "amdhsa.target", "amdhsa.kernels")
METADATA_VERSION_V5 = (1, 2)
KERNEL_METADATA = (
    ".name", ".symbol", ".kernarg_segment_size", ".kernarg_segment_align", ".group_segment_fixed_size",
    ".private_segment_fixed_size", ".wavefront_size", ".sgpr_count", ".vgpr_count", ".agpr_count",
    ".sgpr_spill_count", ".vgpr_spill_count", ".max_flat_workgroup_size", ".uses_dynamic_stack",
    ".workgroup_processor_mode", ".uniform_work_group_size", ".args",
)
ARGUMENT_METADATA = (".offset", ".size", ".value_kind", ".address_space", ".access")
VALUE_KINDS = ("by_value", "global_buffer", "dynamic_shared_pointer", "image", "sampler")
HIDDEN_KIND_PREFIX, DESCRIPTOR_SUFFIX = "hidden_", ".kd"

RELOCATIONS = {
    "ABS32_LO": 1, "ABS32_HI": 2, "ABS64": 3, "REL32": 4, "REL64": 5, "ABS32": 6, "GOTPCREL": 7,
    "GOTPCREL32_LO": 8, "GOTPCREL32_HI": 9, "REL32_LO": 10, "REL32_HI": 11, "RELATIVE64": 13, "REL16": 14,
}
RELOCATION_VECTORS: tuple[tuple[str, int, int, int, int], ...] = (
    ("ABS32_LO", 0x7F12_3456_7000, 0x89, 0x7F12_0000_1000, 0x3456_7089),
    ("ABS32_HI", 0x7F12_3456_7000, 0x89, 0x7F12_0000_1000, 0x7F12),
    ("ABS64", 0x7F12_3456_7000, 0x89, 0x7F12_0000_1000, 0x7F12_3456_7089),
    ("REL32", 0x7F12_0000_2000, 4, 0x7F12_0000_1000, 0x1004),
    ("REL32", 0x7F12_0000_1000, 4, 0x7F12_0000_2000, 0xFFFF_F004),
    ("REL64", 0x7F12_0000_2100, 16, 0x7F12_0000_1010, 0x1100),
    ("REL64", 0x7F12_0000_1000, 16, 0x7F12_0000_2010, 0xFFFF_FFFF_FFFF_F000),
    ("ABS32", 0x1234_5000, 0x678, 0x7F12_0000_1000, 0x1234_5678),
    ("REL32_LO", 0x7F12_3456_7000, 4, 0x7F11_0000_1000, 0x3456_6004),
    ("REL32_HI", 0x7F12_3456_7000, 12, 0x7F11_0000_1000, 0x1),
    ("REL16", 0x7F12_0000_1104, 0, 0x7F12_0000_1000, 0x40),
    ("REL16", 0x7F12_0000_1000, 0, 0x7F12_0000_1000, 0xFFFF),
)
"""Worked by hand from the formulas: type, symbol, addend, place, what is stored."""
RELOCATION_BYTES = {
    "ABS32_LO": 4, "ABS32_HI": 4, "ABS64": 8, "REL32": 4, "REL64": 8, "ABS32": 4, "GOTPCREL": 4,
    "GOTPCREL32_LO": 4, "GOTPCREL32_HI": 4, "REL32_LO": 4, "REL32_HI": 4, "RELATIVE64": 8, "REL16": 2,
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
VGPR_ALLOCATION_GRANULE = {
    "gfx9": (8, 8), "gfx10": (16, 8), "gfx11": (16, 8), "gfx11 large": (24, 12), "gfx12": (24, 12),
}
"""Generation -> what hardware hands out for (wave32, wave64); "large" are the parts named below."""
ARCHITECTED_VGPRS_CDNA = 256
TIDIG = {"X": 0, "XY": 1, "XYZ": 2}
ACCUM_OFFSET_UNIT = 4
VGPRS_MAX = {"gfx90a": 512, "gfx942": 512, "gfx950": 512, "gfx10": 256, "gfx11": 256, "gfx12": 256}
SGPRS = {"gfx9": 102, "gfx10": 106, "gfx11": 106, "gfx12": 106}
LARGE_VGPR_PARTS = ("gfx1100", "gfx1101", "gfx1151", "gfx1200", "gfx1201")
LDS_MAX = {"gfx90a": 65536, "gfx942": 65536, "gfx950": 163840, "gfx10": 65536, "gfx11": 65536, "gfx12": 65536}
LDS_GRANULE = {"gfx90a": 512, "gfx942": 512, "gfx950": 1280, "gfx10": 512, "gfx11": 512, "gfx12": 512}
WORKGROUP_MAX = 1024

SCRATCH_WAVE_UNIT = {"gfx9": 1024, "gfx10": 1024, "gfx11": 256, "gfx12": 256}
SCRATCH_LANE_UNIT = {"gfx9": 16, "gfx10": 16, "gfx11": 4, "gfx12": 4}
"""Bytes a lane are a multiple of it, since a wave of 64 counts."""
SCRATCH_WAVES_PER_ENGINE = ("gfx11", "gfx12")
"""WAVES of TMPRING counts a shader engine there, the whole XCC elsewhere."""
ARCHITECTED_FLAT_SCRATCH = (
    "gfx942", "gfx950", "gfx1100", "gfx1101", "gfx1102", "gfx1103", "gfx1150", "gfx1151", "gfx1200",
    "gfx1201",
)
SCRATCH_USER_SGPRS = {"gfx90a": 4 + 2 + 2, "gfx1030": 4 + 2 + 2}
"""Registers that a kernel with scratch asks for: descriptor, kernel arguments, flat scratch."""
SCRATCH_ELEMENT_BYTES = 4
SCRATCH_SWIZZLE_VECTORS = ((0, 0, 64, 0), (4, 0, 64, 256), (5, 3, 64, 269), (4, 1, 32, 132))
"""(offset, lane, lanes of a wave, byte of the wave's memory)."""

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
KERNARG_ALIGNMENTS = {"usual": 8, "packet": 16, "used": 64}
PACKED_WORKITEM_ID_TARGETS = (
    "gfx90a", "gfx942", "gfx950", "gfx1100", "gfx1101", "gfx1102", "gfx1103", "gfx1150", "gfx1151", "gfx1200",
    "gfx1201",
)
SYSTEM_SGPRS = ("TGID_X_EN", "TGID_Y_EN", "TGID_Z_EN", "TG_SIZE_EN")
"""In this order, after the user registers."""

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
