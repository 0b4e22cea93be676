"""Controls of the resource manager: numbers, parameters and values.

Not here: the debugger object and the fault queries of a channel (`debugger`). Next: `drivers.nv.topology`, the
queries of a GPU.
"""

# ruff: noqa: N801, N815, E501 - names are the vendor's own; annotations are read at run time

from __future__ import annotations

import enum
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from hcq.layout import Struct, blob, chars, nested, u8, u16, u32, u64

SOURCE = "open-gpu-kernel-modules 580.142, ctrl*.h (nv.md 1.6)"
SOURCE_570 = "open-gpu-kernel-modules 570.211.01, ctrl*.h (nv.md 1.5)"


class Control(enum.IntEnum):
    """Control numbers; the upper half is the class of the object that accepts them."""

    NV0000_CTRL_CMD_SYSTEM_GET_BUILD_VERSION = 0x101
    NV0000_CTRL_CMD_SYSTEM_GET_BUILD_VERSION_V2 = 0x13E
    NV0000_CTRL_CMD_GPU_GET_ATTACHED_IDS = 0x201
    NV0000_CTRL_CMD_GPU_GET_ID_INFO_V2 = 0x205
    NV0000_CTRL_CMD_GPU_GET_PROBED_IDS = 0x214
    NV0080_CTRL_CMD_GPU_GET_CLASSLIST = 0x800201
    NV0080_CTRL_CMD_GPU_GET_CLASSLIST_V2 = 0x800292
    NV2080_CTRL_CMD_GPU_GET_NAME_STRING = 0x20800110
    NV2080_CTRL_CMD_GPU_GET_GID_INFO = 0x2080014A
    NV2080_CTRL_CMD_EVENT_SET_NOTIFICATION = 0x20800301
    NV2080_CTRL_CMD_FIFO_DISABLE_CHANNELS = 0x2080110B
    NV2080_CTRL_CMD_GR_GET_INFO = 0x20801201
    NV2080_CTRL_CMD_GR_GET_CTX_BUFFER_SIZE = 0x20801218
    NV2080_CTRL_CMD_GR_GET_GLOBAL_SM_ORDER = 0x2080121B
    NV2080_CTRL_CMD_GR_GET_GPC_MASK = 0x2080122A
    NV2080_CTRL_CMD_GR_GET_TPC_MASK = 0x2080122B
    NV2080_CTRL_CMD_FB_GET_INFO_V2 = 0x20801303
    NV2080_CTRL_CMD_FB_FLUSH_GPU_CACHE = 0x2080130E
    NV2080_CTRL_CMD_MC_GET_ARCH_INFO = 0x20801701
    NV2080_CTRL_CMD_PERF_BOOST = 0x2080200A
    NV2080_CTRL_CMD_CE_GET_ALL_CAPS = 0x20802A0A
    NV83DE_CTRL_CMD_DEBUG_SET_MODE_MMU_DEBUG = 0x83DE0307
    NV83DE_CTRL_CMD_DEBUG_SET_EXCEPTION_MASK = 0x83DE0309
    NV83DE_CTRL_CMD_DEBUG_READ_ALL_SM_ERROR_STATES = 0x83DE030C
    NV83DE_CTRL_CMD_DEBUG_CLEAR_ALL_SM_ERROR_STATES = 0x83DE0310
    NV83DE_CTRL_CMD_DEBUG_READ_MMU_FAULT_INFO = 0x83DE0328
    NV906F_CTRL_CMD_RESET_CHANNEL = 0x906F0102
    NV906F_CTRL_GET_MMU_FAULT_INFO = 0x906F0106
    NVA06C_CTRL_CMD_GPFIFO_SCHEDULE = 0xA06C0101
    NVA06C_CTRL_CMD_PREEMPT = 0xA06C0105
    NVA06F_CTRL_CMD_GPFIFO_SCHEDULE = 0xA06F0103
    NVC36F_CTRL_CMD_GPFIFO_GET_WORK_SUBMIT_TOKEN = 0xC36F0108


class GrInfo(enum.IntEnum):
    """Indices of NV2080_CTRL_CMD_GR_GET_INFO (nv.md 2.7)."""

    SHADER_PIPE_COUNT = 0x07
    SM_VERSION = 0x0C
    MAX_WARPS_PER_SM = 0x0D
    LITTER_NUM_GPCS = 0x14
    LITTER_NUM_TPC_PER_GPC = 0x17
    LITTER_NUM_SM_PER_TPC = 0x20


class FbInfo(enum.IntEnum):
    """Indices of NV2080_CTRL_CMD_FB_GET_INFO_V2; sizes are in KiB (nv.md 2.7; BAR1: ctrl2080fb.h)."""

    BAR1_SIZE = 0x05
    RAM_SIZE = 0x07
    TOTAL_RAM_SIZE = 0x08
    HEAP_SIZE = 0x09
    HEAP_FREE = 0x16
    L2CACHE_SIZE = 0x1B
    BAR1_AVAIL_SIZE = 0x1D


GID_BINARY_SHA1: Final = 2
"""`flags` of GPU_GET_GID_INFO that request the 16 bytes which identify a GPU to UVM."""
GID_BYTES: Final = 16
CE_SHARED_BIT: Final = 2
"""Bit of the first capability byte of a copy engine that shares its physical engines with another one."""
GRCE_BIT: Final = 1
"""Bit of the first capability byte of a copy engine that shares the graphics run list."""
PERF_BOOST_TO_MAX_CUDA: Final = 0x12
PERF_BOOST_TO_MAX_CUDA_PRIORITY_HIGH: Final = 0x52
PERF_BOOST_FOREVER: Final = 0xFFFF_FFFF
EVENT_RC_ERROR: Final = 37
EVENT_FIFO_MTHD: Final = 35
EVENT_GR_DEBUG_INTR: Final = 8
EVENT_ACTION_REPEAT: Final = 2


class NV2080_CTRL_GR_GET_CTX_BUFFER_SIZE_PARAMS(Struct, size=16, source="nv.md 1.6"):
    hChannel: int = u32(0x0)
    totalBufferSize: int = u64(0x8)


class NV2080_CTRL_GR_ROUTE_INFO(Struct, size=16, source=SOURCE):
    """The selection of a graphics engine; all zeros outside MIG mode."""

    flags: int = u32(0x0)
    route: int = u64(0x8)


class NV2080_CTRL_GR_INFO(Struct, size=8, source=SOURCE):
    """One query of the graphics engine: index, and the value in the reply."""

    index: int = u32(0x0)
    data: int = u32(0x4)


class NV2080_CTRL_GPU_INFO(NV2080_CTRL_GR_INFO):
    """One query of the GPU."""


class NV2080_CTRL_FB_INFO(NV2080_CTRL_GR_INFO):
    """One query of the video memory."""


class NV2080_CTRL_GR_GLOBAL_SM_ID_570(Struct, size=12, source=SOURCE_570):
    """The position of one SM, in the shorter record of branch 570."""

    gpcId: int = u16(0x0)
    localTpcId: int = u16(0x2)
    localSmId: int = u16(0x4)
    globalTpcId: int = u16(0x6)
    virtualGpcId: int = u16(0x8)
    migratableTpcId: int = u16(0xA)


class NV2080_CTRL_GR_GLOBAL_SM_ID(NV2080_CTRL_GR_GLOBAL_SM_ID_570, size=18, source=SOURCE):
    """The position of one SM."""

    ugpuId: int = u16(0xC)
    physicalCpcId: int = u16(0xE)
    virtualTpcId: int = u16(0x10)


class NV0000_CTRL_GPU_GET_ATTACHED_IDS_PARAMS(Struct, size=128, source=SOURCE):
    gpuIds: tuple[int, ...] = u32(0x0, count=32)


class NV0000_CTRL_GPU_GET_PROBED_IDS_PARAMS(Struct, size=384, source=SOURCE):
    gpuIds: tuple[int, ...] = u32(0x0, count=32)
    excludedGpuIds: tuple[int, ...] = u32(0x80, count=32)
    gpuFlags: tuple[int, ...] = u32(0x100, count=32)


class NV0000_CTRL_GPU_GET_ID_INFO_V2_PARAMS(Struct, size=32, source=SOURCE):
    gpuId: int = u32(0x0)
    gpuFlags: int = u32(0x4)
    deviceInstance: int = u32(0x8)
    subDeviceInstance: int = u32(0xC)
    sliStatus: int = u32(0x10)
    boardId: int = u32(0x14)
    gpuInstance: int = u32(0x18)
    numaId: int = u32(0x1C)


class NV0000_CTRL_SYSTEM_GET_BUILD_VERSION_PARAMS(Struct, size=40, source=SOURCE):
    sizeOfStrings: int = u32(0x0)
    pDriverVersionBuffer: int = u64(0x8)
    pVersionBuffer: int = u64(0x10)
    pTitleBuffer: int = u64(0x18)
    changelistNumber: int = u32(0x20)
    officialChangelistNumber: int = u32(0x24)


class NV0000_CTRL_SYSTEM_GET_BUILD_VERSION_V2_PARAMS(Struct, size=1032, source=SOURCE):
    driverVersionBuffer: str = chars(0x0, 256)
    versionBuffer: str = chars(0x100, 256)
    driverBranch: str = chars(0x200, 256)
    titleBuffer: str = chars(0x300, 256)
    changelistNumber: int = u32(0x400)
    officialChangelistNumber: int = u32(0x404)


class NV0080_CTRL_GPU_GET_CLASSLIST_PARAMS(Struct, size=16, source=SOURCE):
    numClasses: int = u32(0x0)
    classList: int = u64(0x8)


class NV0080_CTRL_GPU_GET_CLASSLIST_V2_PARAMS(Struct, size=804, source=SOURCE):
    numClasses: int = u32(0x0)
    classList: tuple[int, ...] = u32(0x4, count=200)


class NV2080_CTRL_GPU_GET_GID_INFO_PARAMS(Struct, size=268, source=SOURCE):
    index: int = u32(0x0)
    flags: int = u32(0x4)
    length: int = u32(0x8)
    data: bytes = blob(0xC, 256)


class NV2080_CTRL_GPU_GET_INFO_V2_PARAMS(Struct, size=564, source=SOURCE):
    gpuInfoListSize: int = u32(0x0)
    gpuInfoList: tuple[NV2080_CTRL_GPU_INFO, ...] = nested(0x4, NV2080_CTRL_GPU_INFO, count=70)


class NV2080_CTRL_GPU_GET_NAME_STRING_PARAMS(Struct, size=132, source=SOURCE):
    gpuNameStringFlags: int = u32(0x0)
    gpuNameString: str = chars(0x4, 128)


class NV2080_CTRL_GR_GET_INFO_PARAMS(Struct, size=32, source=SOURCE):
    grInfoListSize: int = u32(0x0)
    grInfoList: int = u64(0x8)
    grRouteInfo: NV2080_CTRL_GR_ROUTE_INFO = nested(0x10, NV2080_CTRL_GR_ROUTE_INFO)


class NV2080_CTRL_GR_GET_GPC_MASK_PARAMS(Struct, size=24, source=SOURCE):
    grRouteInfo: NV2080_CTRL_GR_ROUTE_INFO = nested(0x0, NV2080_CTRL_GR_ROUTE_INFO)
    gpcMask: int = u32(0x10)


class NV2080_CTRL_GR_GET_TPC_MASK_PARAMS(Struct, size=24, source=SOURCE):
    grRouteInfo: NV2080_CTRL_GR_ROUTE_INFO = nested(0x0, NV2080_CTRL_GR_ROUTE_INFO)
    gpcId: int = u32(0x10)
    tpcMask: int = u32(0x14)


class NV2080_CTRL_GR_GET_GLOBAL_SM_ORDER_PARAMS(Struct, size=9240, source=SOURCE):
    globalSmId: tuple[NV2080_CTRL_GR_GLOBAL_SM_ID, ...] = nested(0x0, NV2080_CTRL_GR_GLOBAL_SM_ID, count=512)
    numSm: int = u16(0x2400)
    numTpc: int = u16(0x2402)
    grRouteInfo: NV2080_CTRL_GR_ROUTE_INFO = nested(0x2408, NV2080_CTRL_GR_ROUTE_INFO)


class NV2080_CTRL_CE_GET_ALL_CAPS_PARAMS(Struct, size=136, source=SOURCE):
    capsTbl: tuple[bytes, ...] = blob(0x0, 2, count=64)
    present: int = u64(0x80)


class NV2080_CTRL_FB_GET_INFO_V2_PARAMS(Struct, size=1028, source=SOURCE):
    fbInfoListSize: int = u32(0x0)
    fbInfoList: tuple[NV2080_CTRL_FB_INFO, ...] = nested(0x4, NV2080_CTRL_FB_INFO, count=128)


class NV2080_CTRL_MC_GET_ARCH_INFO_PARAMS(Struct, size=16, source=SOURCE):
    architecture: int = u32(0x0)
    implementation: int = u32(0x4)
    revision: int = u32(0x8)
    subRevision: int = u8(0xC)


class NV2080_CTRL_PERF_BOOST_PARAMS(Struct, size=8, source=SOURCE):
    flags: int = u32(0x0)
    duration: int = u32(0x4)


class NV2080_CTRL_EVENT_SET_NOTIFICATION_PARAMS(Struct, size=20, source=SOURCE):
    event: int = u32(0x0)
    action: int = u32(0x4)
    bNotifyState: bool = u8(0x8)
    info32: int = u32(0xC)
    info16: int = u16(0x10)


class NV2080_CTRL_FB_FLUSH_GPU_CACHE_PARAMS(Struct, size=4024, source=SOURCE):
    addressArray: tuple[int, ...] = u64(0x0, count=500)
    addressArraySize: int = u32(0xFA0)
    addressAlign: int = u32(0xFA4)
    memBlockSizeBytes: int = u64(0xFA8)
    flags: int = u32(0xFB0)


class NV2080_CTRL_FIFO_DISABLE_CHANNELS_PARAMS(Struct, size=536, source=SOURCE):
    bDisable: bool = u8(0x0)
    numChannels: int = u32(0x4)
    bOnlyDisableScheduling: bool = u8(0x8)
    bRewindGpPut: bool = u8(0x9)
    pRunlistPreemptEvent: int = u64(0x10)
    hClientList: tuple[int, ...] = u32(0x18, count=64)
    hChannelList: tuple[int, ...] = u32(0x118, count=64)


class NVA06C_CTRL_GPFIFO_SCHEDULE_PARAMS(Struct, size=3, source=SOURCE):
    bEnable: bool = u8(0x0)
    bSkipSubmit: bool = u8(0x1)
    bSkipEnable: bool = u8(0x2)


class NVA06C_CTRL_PREEMPT_PARAMS(Struct, size=8, source=SOURCE):
    bWait: bool = u8(0x0)
    bManualTimeout: bool = u8(0x1)
    timeoutUs: int = u32(0x4)


class NVA06F_CTRL_GPFIFO_SCHEDULE_PARAMS(NVA06C_CTRL_GPFIFO_SCHEDULE_PARAMS):
    """The same fields."""


class NVA06F_CTRL_BIND_PARAMS(Struct, size=4, source=SOURCE):
    engineType: int = u32(0x0)


class NVC36F_CTRL_CMD_GPFIFO_GET_WORK_SUBMIT_TOKEN_PARAMS(Struct, size=4, source=SOURCE):
    workSubmitToken: int = u32(0x0)


class NV2080_CTRL_GR_GET_GLOBAL_SM_ORDER_PARAMS_570(Struct, size=6168, source=SOURCE_570):
    globalSmId: tuple[NV2080_CTRL_GR_GLOBAL_SM_ID_570, ...] = nested(
        0x0, NV2080_CTRL_GR_GLOBAL_SM_ID_570, count=512
    )
    numSm: int = u16(0x1800)
    numTpc: int = u16(0x1802)
    grRouteInfo: NV2080_CTRL_GR_ROUTE_INFO = nested(0x1808, NV2080_CTRL_GR_ROUTE_INFO)


class NV0000_CTRL_GPU_GET_PROBED_IDS_PARAMS_570(Struct, size=256, source=SOURCE_570):
    gpuIds: tuple[int, ...] = u32(0x0, count=32)
    excludedGpuIds: tuple[int, ...] = u32(0x80, count=32)


class NV0080_CTRL_GPU_GET_CLASSLIST_V2_PARAMS_570(Struct, size=404, source=SOURCE_570):
    numClasses: int = u32(0x0)
    classList: tuple[int, ...] = u32(0x4, count=100)


class NV2080_CTRL_GPU_GET_INFO_V2_PARAMS_570(Struct, size=524, source=SOURCE_570):
    gpuInfoListSize: int = u32(0x0)
    gpuInfoList: tuple[NV2080_CTRL_GPU_INFO, ...] = nested(0x4, NV2080_CTRL_GPU_INFO, count=65)


class NV2080_CTRL_FB_GET_INFO_V2_PARAMS_570(Struct, size=460, source=SOURCE_570):
    fbInfoListSize: int = u32(0x0)
    fbInfoList: tuple[NV2080_CTRL_FB_INFO, ...] = nested(0x4, NV2080_CTRL_FB_INFO, count=57)


class NVA06C_CTRL_GPFIFO_SCHEDULE_PARAMS_570(Struct, size=2, source=SOURCE_570):
    bEnable: bool = u8(0x0)
    bSkipSubmit: bool = u8(0x1)


class NVA06F_CTRL_GPFIFO_SCHEDULE_PARAMS_570(NVA06C_CTRL_GPFIFO_SCHEDULE_PARAMS_570):
    """The same fields."""


class NV2080_CTRL_GPU_GET_NAME_STRING_PARAMS_595(
    Struct, size=68, source="open-gpu-kernel-modules 595.45.04 (nv.md 1.5)"
):
    gpuNameStringFlags: int = u32(0x0)
    gpuNameString: str = chars(0x4, 64)


_CMD_IN_STRUCT: Final = (
    Control.NV906F_CTRL_CMD_RESET_CHANNEL,
    Control.NVC36F_CTRL_CMD_GPFIFO_GET_WORK_SUBMIT_TOKEN,
)
"""The controls whose structure keeps "CMD" in its name."""
CONTROL_STRUCTS: Final[Mapping[int, str]] = MappingProxyType(
    {
        control: f"{control.name if control in _CMD_IN_STRUCT else control.name.replace('_CMD_', '_')}_PARAMS"
        for control in Control
    }
)
"""Control -> the name of its parameters in `branches.STRUCTS`."""
