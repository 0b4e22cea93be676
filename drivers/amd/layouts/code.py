"""AMDGPU code objects: ELF numbers, relocation types, kernel descriptors, metadata names, hidden arguments.

Not here: the resource words in a descriptor (`registers`). Next: `drivers.amd.code`, the reader.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from hcq.layout import BitStruct, Struct, bits, i64, optional, u16, u32, u64

SOURCE = "LLVM 19 AMDGPUUsage: ELF code object, kernel descriptor, code object V5 metadata"

OSABI_HSA: Final = 64
ABI_V5: Final = 3
ABI_V6: Final = 4
ABI_NAMES: Final[Mapping[int, str]] = MappingProxyType({2: "V4", ABI_V5: "V5", ABI_V6: "V6"})
NOTE_NAME: Final = "AMDGPU"
NOTE_TYPE: Final = 32
NOTE_SECTION: Final = ".note"
DESCRIPTOR_SUFFIX: Final = ".kd"
DESCRIPTOR_ALIGN: Final = 64
"""Bytes, as of all alignments here."""
CODE_ALIGN: Final = 256
PREFETCH_PAD: Final = 4096
"""Bytes after the last instruction that must be mapped, because prefetch reads past the end (ROCr pads a
page).
"""
PREFETCH_UNIT: Final = 128
"""Bytes of an instruction prefetch."""
PRELOAD_ENTRY_SKIP: Final = 256
"""Bytes at the entry that are skipped if the arguments were preloaded."""


class Flags(BitStruct, source=SOURCE):
    """`e_flags`."""

    MACH: int = bits(7, 0)
    XNACK: int = optional(9, 8, doc="`Feature`")
    SRAMECC: int = optional(11, 10, doc="`Feature`")
    GENERIC_VERSION: int = optional(31, 24, doc="V6")


class Feature(enum.IntEnum):
    """The setting of XNACK or SRAMECC that a code object requires."""

    UNSUPPORTED = 0
    ANY = 1
    OFF = 2
    ON = 3


class Relocation(enum.IntEnum):
    """R_AMDGPU types."""

    ABS32_LO = 1
    ABS32_HI = 2
    ABS64 = 3
    REL32 = 4
    REL64 = 5
    ABS32 = 6
    GOTPCREL = 7
    GOTPCREL32_LO = 8
    GOTPCREL32_HI = 9
    REL32_LO = 10
    REL32_HI = 11
    RELATIVE64 = 13
    REL16 = 14


class Properties(BitStruct, word_bits=32, source=SOURCE):
    """kernel_code_properties: which user SGPRs the code expects, in this order."""

    PRIVATE_SEGMENT_BUFFER: bool = optional(0)
    DISPATCH_PTR: bool = optional(1)
    QUEUE_PTR: bool = optional(2)
    KERNARG_SEGMENT_PTR: bool = optional(3)
    DISPATCH_ID: bool = optional(4)
    FLAT_SCRATCH_INIT: bool = optional(5)
    PRIVATE_SEGMENT_SIZE: bool = optional(6)
    WAVEFRONT_SIZE32: bool = optional(10, doc="since gfx10")
    USES_DYNAMIC_STACK: bool = optional(11)


USER_SGPRS: Final = (
    ("PRIVATE_SEGMENT_BUFFER", 4),
    ("DISPATCH_PTR", 2),
    ("QUEUE_PTR", 2),
    ("KERNARG_SEGMENT_PTR", 2),
    ("DISPATCH_ID", 2),
    ("FLAT_SCRATCH_INIT", 2),
    ("PRIVATE_SEGMENT_SIZE", 1),
)
"""(property, number of SGPRs) in the order of the SGPRs; preloaded arguments come before the last one."""


class Preload(BitStruct, source=SOURCE):
    """kernarg_preload."""

    LENGTH: int = optional(6, 0, doc="dwords")
    OFFSET: int = optional(15, 7, doc="dwords")


class Descriptor(Struct, size=64, source=SOURCE):
    """A kernel descriptor, 64-byte aligned; bytes that no field covers are 0."""

    group_segment_fixed_size: int = u32(0, doc="bytes of static LDS")
    private_segment_fixed_size: int = u32(4, doc="bytes of scratch a work-item")
    kernarg_size: int = u32(8)
    kernel_code_entry_byte_offset: int = i64(16, doc="from the descriptor to the code")
    compute_pgm_rsrc3: int = u32(44)
    compute_pgm_rsrc1: int = u32(48)
    compute_pgm_rsrc2: int = u32(52)
    kernel_code_properties: int = u16(56)
    kernarg_preload: int = u16(58)


class HiddenArguments(Struct, size=256, source=SOURCE):
    """The hidden arguments of V5 and V6, which follow the explicit ones."""

    block_count_x: int = u32(0)
    block_count_y: int = u32(4)
    block_count_z: int = u32(8)
    group_size_x: int = u16(12)
    group_size_y: int = u16(14)
    group_size_z: int = u16(16)
    remainder_x: int = u16(18)
    remainder_y: int = u16(20)
    remainder_z: int = u16(22)
    global_offset_x: int = u64(40)
    global_offset_y: int = u64(48)
    global_offset_z: int = u64(56)
    grid_dims: int = u16(64)
    printf_buffer: int = u64(72)
    hostcall_buffer: int = u64(80)
    multigrid_sync_arg: int = u64(88)
    heap_v1: int = u64(96)
    default_queue: int = u64(104)
    completion_action: int = u64(112)
    dynamic_lds_size: int = u32(120)
    private_base: int = u32(192)
    shared_base: int = u32(196)
    queue_ptr: int = u64(200)


HIDDEN_ALIGN: Final = 8
HIDDEN_PREFIX: Final = "hidden_"
"""The start of `.value_kind` of a hidden argument; the rest is a field of `HiddenArguments`."""
