"""Compute registers: their offsets from the base of the SH registers, and their fields.

Offsets are in dwords, as SET_SH_REG takes them. The resource words RSRC1 to RSRC3 are also in kernel
descriptors.

Not here: the packets that set registers (`pm4`). Next: `drivers.amd.launch`, which sets them.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from hcq.layout import BitStruct, bits, optional, removed

SOURCE = "Linux 6.12 asic_reg/gc: gc_9_4_3, gc_11_0_0 and gc_12_0_0 offset.h and sh_mask.h"
DESCRIPTOR_SOURCE = "LLVM AMDGPUUsage, compute_pgm_rsrc1 to 3; Linux 6.12 asic_reg/gc sh_mask.h"

SH_BASE: Final = 0x2C00
SH_END: Final = 0x3000
"""The SH registers are in [SH_BASE, SH_END), in dwords."""
CONFIG_BASE: Final = 0x2000
UCONFIG_BASE: Final = 0xC000
USER_DATA_COUNT: Final = 16
"""The number of registers USER_DATA: user SGPRs that a PM4 dispatch can set."""
PROGRAM_SHIFT: Final = 8
"""Registers hold addresses of code and scratch shifted right by this number of bits."""
PROGRAM_ALIGN: Final = 1 << PROGRAM_SHIFT


class ShRegister(enum.IntEnum):
    """Registers that have the same offset on every generation."""

    COMPUTE_DISPATCH_INITIATOR = 0x200
    COMPUTE_DIM_X = 0x201
    COMPUTE_DIM_Y = 0x202
    COMPUTE_DIM_Z = 0x203
    COMPUTE_START_X = 0x204
    COMPUTE_START_Y = 0x205
    COMPUTE_START_Z = 0x206
    COMPUTE_NUM_THREAD_X = 0x207
    COMPUTE_NUM_THREAD_Y = 0x208
    COMPUTE_NUM_THREAD_Z = 0x209
    COMPUTE_PIPELINESTAT_ENABLE = 0x20A
    COMPUTE_PERFCOUNT_ENABLE = 0x20B
    COMPUTE_PGM_LO = 0x20C
    COMPUTE_PGM_HI = 0x20D
    COMPUTE_DISPATCH_PKT_ADDR_LO = 0x20E
    COMPUTE_DISPATCH_PKT_ADDR_HI = 0x20F
    COMPUTE_DISPATCH_SCRATCH_BASE_LO = 0x210
    COMPUTE_DISPATCH_SCRATCH_BASE_HI = 0x211
    COMPUTE_PGM_RSRC1 = 0x212
    COMPUTE_PGM_RSRC2 = 0x213
    COMPUTE_VMID = 0x214
    COMPUTE_RESOURCE_LIMITS = 0x215
    COMPUTE_STATIC_THREAD_MGMT_SE0 = 0x216
    COMPUTE_STATIC_THREAD_MGMT_SE1 = 0x217
    COMPUTE_TMPRING_SIZE = 0x218
    COMPUTE_STATIC_THREAD_MGMT_SE2 = 0x219
    COMPUTE_STATIC_THREAD_MGMT_SE3 = 0x21A
    COMPUTE_RESTART_X = 0x21B
    COMPUTE_RESTART_Y = 0x21C
    COMPUTE_RESTART_Z = 0x21D
    COMPUTE_THREAD_TRACE_ENABLE = 0x21E
    COMPUTE_MISC_RESERVED = 0x21F
    COMPUTE_DISPATCH_ID = 0x220
    COMPUTE_THREADGROUP_ID = 0x221
    COMPUTE_USER_DATA_0 = 0x240
    COMPUTE_USER_DATA_1 = 0x241
    COMPUTE_USER_DATA_2 = 0x242
    COMPUTE_USER_DATA_3 = 0x243
    COMPUTE_USER_DATA_4 = 0x244
    COMPUTE_USER_DATA_5 = 0x245
    COMPUTE_USER_DATA_6 = 0x246
    COMPUTE_USER_DATA_7 = 0x247
    COMPUTE_USER_DATA_8 = 0x248
    COMPUTE_USER_DATA_9 = 0x249
    COMPUTE_USER_DATA_10 = 0x24A
    COMPUTE_USER_DATA_11 = 0x24B
    COMPUTE_USER_DATA_12 = 0x24C
    COMPUTE_USER_DATA_13 = 0x24D
    COMPUTE_USER_DATA_14 = 0x24E
    COMPUTE_USER_DATA_15 = 0x24F


class ShRegisterGfx9(enum.IntEnum):
    """Registers that only gfx9 has at these offsets; gfx90a and gfx942 differ at 0x225 to 0x228."""

    COMPUTE_RELAUNCH = 0x222
    COMPUTE_WAVE_RESTORE_ADDR_LO = 0x223
    COMPUTE_WAVE_RESTORE_ADDR_HI = 0x224
    COMPUTE_SHADER_CHKSUM = 0x22C
    COMPUTE_PGM_RSRC3 = 0x22D


class ShRegisterGfx10(enum.IntEnum):
    """Registers of gfx10."""

    COMPUTE_REQ_CTRL = 0x222
    COMPUTE_USER_ACCUM_0 = 0x224
    COMPUTE_USER_ACCUM_1 = 0x225
    COMPUTE_USER_ACCUM_2 = 0x226
    COMPUTE_USER_ACCUM_3 = 0x227
    COMPUTE_PGM_RSRC3 = 0x228
    COMPUTE_SHADER_CHKSUM = 0x22A


class ShRegisterGfx11(enum.IntEnum):
    """Registers of gfx11 and gfx12."""

    COMPUTE_REQ_CTRL = 0x222
    COMPUTE_USER_ACCUM_0 = 0x224
    COMPUTE_USER_ACCUM_1 = 0x225
    COMPUTE_USER_ACCUM_2 = 0x226
    COMPUTE_USER_ACCUM_3 = 0x227
    COMPUTE_PGM_RSRC3 = 0x228
    COMPUTE_SHADER_CHKSUM = 0x22A
    COMPUTE_STATIC_THREAD_MGMT_SE4 = 0x22B
    COMPUTE_STATIC_THREAD_MGMT_SE5 = 0x22C
    COMPUTE_STATIC_THREAD_MGMT_SE6 = 0x22D
    COMPUTE_STATIC_THREAD_MGMT_SE7 = 0x22E
    COMPUTE_DISPATCH_INTERLEAVE = 0x22F
    COMPUTE_RELAUNCH = 0x230


OWN_REGISTERS: Final[Mapping[int, type[enum.IntEnum]]] = MappingProxyType(
    {9: ShRegisterGfx9, 10: ShRegisterGfx10, 11: ShRegisterGfx11, 12: ShRegisterGfx11}
)
"""Generation -> its registers that are not in `ShRegister`."""


class ResourceLimits(BitStruct, source=SOURCE):
    """COMPUTE_RESOURCE_LIMITS; 0: no limits."""

    WAVES_PER_SH: int = optional(9, 0)
    TG_PER_CU: int = optional(15, 12)
    LOCK_THRESHOLD: int = optional(21, 16)
    SIMD_DEST_CNTL: bool = optional(22)
    FORCE_SIMD_DIST: bool = optional(23)
    CU_GROUP_COUNT: int = optional(26, 24)


class NumThread(BitStruct, source=SOURCE):
    """COMPUTE_NUM_THREAD_X, Y and Z up to gfx11."""

    FULL: int = bits(15, 0, doc="work-items of a workgroup along the axis")
    PARTIAL: int = optional(31, 16, doc="work-items of the last group")


class NumThreadGfx12(BitStruct, source=SOURCE):
    """COMPUTE_NUM_THREAD_X, Y and Z of gfx12."""

    FULL: int = bits(12, 0)
    INTERLEAVE_BITS: int = optional(15, 13)
    PARTIAL: int = optional(31, 16, doc="work-items of the last group")


class TmpringSize(BitStruct, source=SOURCE):
    """COMPUTE_TMPRING_SIZE up to gfx10: WAVESIZE in units of 1 KiB, WAVES of the XCC."""

    WAVES: int = bits(11, 0)
    WAVESIZE: int = bits(24, 12)


class TmpringSizeGfx11(TmpringSize, source=SOURCE):
    """COMPUTE_TMPRING_SIZE of gfx11: WAVESIZE in units of 256 bytes, WAVES of a shader engine."""

    WAVESIZE: int = bits(26, 12)


class TmpringSizeGfx12(TmpringSize, source=SOURCE):
    """COMPUTE_TMPRING_SIZE of gfx12."""

    WAVESIZE: int = bits(29, 12)


TMPRING: Final[Mapping[int, type[TmpringSize]]] = MappingProxyType(
    {9: TmpringSize, 10: TmpringSize, 11: TmpringSizeGfx11, 12: TmpringSizeGfx12}
)
"""Generation -> layout of COMPUTE_TMPRING_SIZE."""


class Initiator(BitStruct, source=SOURCE):
    """COMPUTE_DISPATCH_INITIATOR, the last dword of a dispatch packet."""

    COMPUTE_SHADER_EN: bool = bits(0)
    PARTIAL_TG_EN: bool = optional(1)
    FORCE_START_AT_000: bool = optional(2)
    ORDERED_APPEND_ENBL: bool = optional(3)
    ORDERED_APPEND_MODE: bool = optional(4)
    USE_THREAD_DIMENSIONS: bool = optional(5, doc="dimensions count work-items; 0: workgroups")
    ORDER_MODE: bool = optional(6)
    SCALAR_L1_INV_VOL: bool = optional(10)
    VECTOR_L1_INV_VOL: bool = optional(11)
    PING_PONG_EN: bool = optional(12, doc="gfx12")
    TUNNEL_ENABLE: bool = optional(13)
    RESTORE: bool = optional(14)
    CS_W32_EN: bool = optional(15, doc="waves of 32 lanes, since gfx10")
    AMP_SHADER_EN: bool = optional(16, doc="since gfx11")
    DISABLE_DISP_PREMPT_EN: bool = optional(17, doc="since gfx11")
    INTERLEAVE_2D_EN: bool = optional(18, doc="gfx12")


class Rsrc1(BitStruct, source=DESCRIPTOR_SOURCE):
    """COMPUTE_PGM_RSRC1 up to gfx11."""

    VGPRS: int = optional(5, 0, doc="vector registers in granules, less one")
    SGPRS: int = optional(9, 6, doc="scalar registers in granules; 0 since gfx10")
    PRIORITY: int = optional(11, 10)
    FLOAT_ROUND_MODE_32: int = optional(13, 12)
    FLOAT_ROUND_MODE_16_64: int = optional(15, 14)
    FLOAT_DENORM_MODE_32: int = optional(17, 16)
    FLOAT_DENORM_MODE_16_64: int = optional(19, 18)
    PRIV: bool = optional(20)
    DX10_CLAMP: bool = optional(21)
    DEBUG_MODE: bool = optional(22)
    IEEE_MODE: bool = optional(23)
    BULKY: bool = optional(24)
    CDBG_USER: bool = optional(25)
    FP16_OVFL: bool = optional(26)
    WGP_MODE: bool = optional(29, doc="since gfx10")
    MEM_ORDERED: bool = optional(30, doc="since gfx10")
    FWD_PROGRESS: bool = optional(31, doc="since gfx10")


class Rsrc1Gfx12(Rsrc1, source=DESCRIPTOR_SOURCE):
    """COMPUTE_PGM_RSRC1 of gfx12."""

    DX10_CLAMP = removed()
    IEEE_MODE = removed()
    WG_RR_EN: bool = optional(21)
    DISABLE_PERF: bool = optional(23)


class Rsrc2(BitStruct, source=DESCRIPTOR_SOURCE):
    """COMPUTE_PGM_RSRC2 up to gfx11."""

    SCRATCH_EN: bool = optional(0)
    USER_SGPR: int = optional(5, 1, doc="user SGPRs")
    TRAP_PRESENT: bool = optional(6)
    TGID_X_EN: bool = optional(7)
    TGID_Y_EN: bool = optional(8)
    TGID_Z_EN: bool = optional(9)
    TG_SIZE_EN: bool = optional(10)
    TIDIG_COMP_CNT: int = optional(12, 11, doc="work-item ids: 0 x, 1 x and y, 2 all")
    EXCP_EN_MSB: int = optional(14, 13)
    LDS_SIZE: int = optional(23, 15, doc="LDS in granules; set by the packet processor or the driver")
    EXCP_EN: int = optional(30, 24)


class Rsrc2Gfx12(Rsrc2, source=DESCRIPTOR_SOURCE):
    """COMPUTE_PGM_RSRC2 of gfx12."""

    TRAP_PRESENT = removed()
    DYNAMIC_VGPR: bool = optional(6)
    WGP_TAKEOVER: bool = optional(31)


class Rsrc3Gfx90a(BitStruct, source=DESCRIPTOR_SOURCE):
    """COMPUTE_PGM_RSRC3 of gfx90a."""

    ACCUM_OFFSET: int = optional(5, 0, doc="first accumulation register, divided by 4, less one")
    TG_SPLIT: bool = optional(16)


class Rsrc3Gfx942(Rsrc3Gfx90a, source=DESCRIPTOR_SOURCE):
    """COMPUTE_PGM_RSRC3 of gfx942."""

    TRAP_ON_START: bool = optional(10)
    TRAP_ON_END: bool = optional(11)


class Rsrc3Gfx10(BitStruct, source=DESCRIPTOR_SOURCE):
    """COMPUTE_PGM_RSRC3 of gfx10."""

    SHARED_VGPR_COUNT: int = optional(3, 0)


class Rsrc3Gfx11(Rsrc3Gfx10, source=DESCRIPTOR_SOURCE):
    """COMPUTE_PGM_RSRC3 of gfx11."""

    INST_PREF_SIZE: int = optional(9, 4, doc="code to prefetch, in units of 128 bytes")
    TRAP_ON_START: bool = optional(10)
    TRAP_ON_END: bool = optional(11)
    IMAGE_OP: bool = optional(31)


class Rsrc3Gfx12(BitStruct, source=DESCRIPTOR_SOURCE):
    """COMPUTE_PGM_RSRC3 of gfx12."""

    INST_PREF_SIZE: int = optional(11, 4)
    GLG_EN: bool = optional(13)
    IMAGE_OP: bool = optional(31)


RSRC1: Final[Mapping[int, type[Rsrc1]]] = MappingProxyType({9: Rsrc1, 10: Rsrc1, 11: Rsrc1, 12: Rsrc1Gfx12})
"""Generation -> layout of COMPUTE_PGM_RSRC1. `RSRC2` and `RSRC3` are alike; gfx90a has `Rsrc3Gfx90a`."""
RSRC2: Final[Mapping[int, type[Rsrc2]]] = MappingProxyType({9: Rsrc2, 10: Rsrc2, 11: Rsrc2, 12: Rsrc2Gfx12})
RSRC3: Final[Mapping[int, type[BitStruct]]] = MappingProxyType(
    {9: Rsrc3Gfx942, 10: Rsrc3Gfx10, 11: Rsrc3Gfx11, 12: Rsrc3Gfx12}
)
NUM_THREAD: Final[Mapping[int, type[BitStruct]]] = MappingProxyType(
    {9: NumThread, 10: NumThread, 11: NumThread, 12: NumThreadGfx12}
)
"""Generation -> layout of COMPUTE_NUM_THREAD_X, Y and Z."""

FIELDS: Final[Mapping[str, Mapping[int, type[BitStruct]]]] = MappingProxyType(
    {
        "COMPUTE_PGM_RSRC1": RSRC1,
        "COMPUTE_PGM_RSRC2": RSRC2,
        "COMPUTE_PGM_RSRC3": RSRC3,
        "COMPUTE_TMPRING_SIZE": TMPRING,
        "COMPUTE_NUM_THREAD_X": NUM_THREAD,
        "COMPUTE_NUM_THREAD_Y": NUM_THREAD,
        "COMPUTE_NUM_THREAD_Z": NUM_THREAD,
        "COMPUTE_RESOURCE_LIMITS": MappingProxyType(dict.fromkeys((9, 10, 11, 12), ResourceLimits)),
        "COMPUTE_DISPATCH_INITIATOR": MappingProxyType(dict.fromkeys((9, 10, 11, 12), Initiator)),
    }
)
"""Register -> generation -> layout, for the registers that have fields."""


def register_names(generation: int) -> Mapping[int, str]:
    """Return offset -> name of all compute registers of a generation."""
    return {int(one): one.name for kind in (ShRegister, OWN_REGISTERS[generation]) for one in kind}


def register(generation: int, name: str) -> int:
    """Return the offset of a register whose offset depends on the generation; `KeyError` if it has none."""
    return int(OWN_REGISTERS[generation][name])
