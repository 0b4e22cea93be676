"""Controls: parameter structures, command numbers, indices and values.

Source: the control headers (ctrl0000 to ctrlc36f) of NVIDIA open-gpu-kernel-modules 580.142.
"""

# fmt: off
Structs = dict[str, tuple[int, tuple[tuple[int, int, str], ...]]]
"""Struct name -> (size, ((offset, size, field), ...)), in bytes; ``name[n]`` marks an array of n elements."""

STRUCTS: Structs = {
    "NV0000_CTRL_GPU_GET_ATTACHED_IDS_PARAMS": (128, (
        (0x00, 128, "gpuIds[32]"),
    )),
    "NV0000_CTRL_GPU_GET_PROBED_IDS_PARAMS": (384, (
        (0x000, 128, "gpuIds[32]"), (0x080, 128, "excludedGpuIds[32]"), (0x100, 128, "gpuFlags[32]"),
    )),
    "NV0000_CTRL_GPU_GET_ID_INFO_V2_PARAMS": (32, (
        (0x00, 4, "gpuId"), (0x04, 4, "gpuFlags"), (0x08, 4, "deviceInstance"),
        (0x0c, 4, "subDeviceInstance"), (0x10, 4, "sliStatus"), (0x14, 4, "boardId"),
        (0x18, 4, "gpuInstance"), (0x1c, 4, "numaId"),
    )),
    "NV0000_CTRL_SYSTEM_GET_BUILD_VERSION_PARAMS": (40, (
        (0x00, 4, "sizeOfStrings"), (0x08, 8, "pDriverVersionBuffer"), (0x10, 8, "pVersionBuffer"),
        (0x18, 8, "pTitleBuffer"), (0x20, 4, "changelistNumber"), (0x24, 4, "officialChangelistNumber"),
    )),
    "NV0000_CTRL_SYSTEM_GET_BUILD_VERSION_V2_PARAMS": (1032, (
        (0x000, 256, "driverVersionBuffer[256]"), (0x100, 256, "versionBuffer[256]"),
        (0x200, 256, "driverBranch[256]"), (0x300, 256, "titleBuffer[256]"), (0x400, 4, "changelistNumber"),
        (0x404, 4, "officialChangelistNumber"),
    )),
    "NV0080_CTRL_GPU_GET_CLASSLIST_PARAMS": (16, (
        (0x00, 4, "numClasses"), (0x08, 8, "classList"),
    )),
    "NV0080_CTRL_GPU_GET_CLASSLIST_V2_PARAMS": (804, (
        (0x00, 4, "numClasses"), (0x04, 800, "classList[200]"),
    )),
    "NV2080_CTRL_GPU_GET_GID_INFO_PARAMS": (268, (
        (0x00, 4, "index"), (0x04, 4, "flags"), (0x08, 4, "length"), (0x0c, 256, "data[256]"),
    )),
    "NV2080_CTRL_GPU_GET_INFO_V2_PARAMS": (564, (
        (0x00, 4, "gpuInfoListSize"), (0x04, 560, "gpuInfoList[70]"),
    )),
    "NV2080_CTRL_GPU_GET_NAME_STRING_PARAMS": (132, (
        (0x00, 4, "gpuNameStringFlags"), (0x04, 128, "gpuNameString"),
    )),
    "NV2080_CTRL_GR_INFO": (8, (
        (0x00, 4, "index"), (0x04, 4, "data"),
    )),
    "NV2080_CTRL_GR_GET_INFO_PARAMS": (32, (
        (0x00, 4, "grInfoListSize"), (0x08, 8, "grInfoList"), (0x10, 4, "grRouteInfo.flags"),
        (0x18, 8, "grRouteInfo.route"),
    )),
    "NV2080_CTRL_GR_ROUTE_INFO": (16, (
        (0x00, 4, "flags"), (0x08, 8, "route"),
    )),
    "NV2080_CTRL_GR_GET_GPC_MASK_PARAMS": (24, (
        (0x00, 4, "grRouteInfo.flags"), (0x08, 8, "grRouteInfo.route"), (0x10, 4, "gpcMask"),
    )),
    "NV2080_CTRL_GR_GET_TPC_MASK_PARAMS": (24, (
        (0x00, 4, "grRouteInfo.flags"), (0x08, 8, "grRouteInfo.route"), (0x10, 4, "gpcId"),
        (0x14, 4, "tpcMask"),
    )),
    "NV2080_CTRL_GR_GET_GLOBAL_SM_ORDER_PARAMS": (9240, (
        (0x0000, 9216, "globalSmId[512]"), (0x2400, 2, "numSm"), (0x2402, 2, "numTpc"),
        (0x2408, 4, "grRouteInfo.flags"), (0x2410, 8, "grRouteInfo.route"),
    )),
    "NV2080_CTRL_CE_GET_ALL_CAPS_PARAMS": (136, (
        (0x00, 128, "capsTbl[64][2]"), (0x80, 8, "present"),
    )),
    "NV2080_CTRL_FB_GET_INFO_V2_PARAMS": (1028, (
        (0x00, 4, "fbInfoListSize"), (0x04, 1024, "fbInfoList[128]"),
    )),
    "NV2080_CTRL_MC_GET_ARCH_INFO_PARAMS": (16, (
        (0x00, 4, "architecture"), (0x04, 4, "implementation"), (0x08, 4, "revision"),
        (0x0c, 1, "subRevision"),
    )),
    "NV2080_CTRL_PERF_BOOST_PARAMS": (8, (
        (0x00, 4, "flags"), (0x04, 4, "duration"),
    )),
    "NV2080_CTRL_EVENT_SET_NOTIFICATION_PARAMS": (20, (
        (0x00, 4, "event"), (0x04, 4, "action"), (0x08, 1, "bNotifyState"), (0x0c, 4, "info32"),
        (0x10, 2, "info16"),
    )),
    "NV2080_CTRL_FB_FLUSH_GPU_CACHE_PARAMS": (4024, (
        (0x000, 4000, "addressArray[500]"), (0xfa0, 4, "addressArraySize"), (0xfa4, 4, "addressAlign"),
        (0xfa8, 8, "memBlockSizeBytes"), (0xfb0, 4, "flags"),
    )),
    "NV2080_CTRL_FIFO_DISABLE_CHANNELS_PARAMS": (536, (
        (0x000, 1, "bDisable"), (0x004, 4, "numChannels"), (0x008, 1, "bOnlyDisableScheduling"),
        (0x009, 1, "bRewindGpPut"), (0x010, 8, "pRunlistPreemptEvent"), (0x018, 256, "hClientList[64]"),
        (0x118, 256, "hChannelList[64]"),
    )),
    "NVA06C_CTRL_GPFIFO_SCHEDULE_PARAMS": (3, (
        (0x00, 1, "bEnable"), (0x01, 1, "bSkipSubmit"), (0x02, 1, "bSkipEnable"),
    )),
    "NVA06C_CTRL_PREEMPT_PARAMS": (8, (
        (0x00, 1, "bWait"), (0x01, 1, "bManualTimeout"), (0x04, 4, "timeoutUs"),
    )),
    "NVA06F_CTRL_GPFIFO_SCHEDULE_PARAMS": (3, (
        (0x00, 1, "bEnable"), (0x01, 1, "bSkipSubmit"), (0x02, 1, "bSkipEnable"),
    )),
    "NVA06F_CTRL_BIND_PARAMS": (4, (
        (0x00, 4, "engineType"),
    )),
    "NVC36F_CTRL_CMD_GPFIFO_GET_WORK_SUBMIT_TOKEN_PARAMS": (4, (
        (0x00, 4, "workSubmitToken"),
    )),
    "NV906F_CTRL_CMD_RESET_CHANNEL_PARAMS": (16, (
        (0x00, 4, "engineID"), (0x04, 4, "subdeviceInstance"), (0x08, 4, "resetReason"),
        (0x0c, 1, "bIsRcPending"),
    )),
    "NV906F_CTRL_GET_MMU_FAULT_INFO_PARAMS": (104, (
        (0x00, 4, "addrHi"), (0x04, 4, "addrLo"), (0x08, 4, "faultType"), (0x0c, 32, "faultString[32]"),
        (0x30, 56, "shaderProgramVA[7]"),
    )),
    "NV83DE_SM_ERROR_STATE_REGISTERS": (48, (
        (0x00, 4, "hwwGlobalEsr"), (0x04, 4, "hwwWarpEsr"), (0x08, 4, "hwwWarpEsrPc"),
        (0x0c, 4, "hwwGlobalEsrReportMask"), (0x10, 4, "hwwWarpEsrReportMask"), (0x18, 8, "hwwEsrAddr"),
        (0x20, 8, "hwwWarpEsrPc64"), (0x28, 4, "hwwCgaEsr"), (0x2c, 4, "hwwCgaEsrReportMask"),
    )),
    "NV83DE_MMU_FAULT_INFO": (8, (
        (0x00, 1, "valid"), (0x04, 4, "faultInfo"),
    )),
    "NV83DE_CTRL_DEBUG_READ_ALL_SM_ERROR_STATES_PARAMS": (4824, (
        (0x0000, 4, "hTargetChannel"), (0x0004, 4, "numSMsToRead"), (0x0008, 4800, "smErrorStateArray[100]"),
        (0x12c8, 4, "mmuFaultInfo"), (0x12cc, 1, "mmuFault.valid"), (0x12d0, 4, "mmuFault.faultInfo"),
        (0x12d4, 4, "startingSM"),
    )),
    "NV83DE_CTRL_DEBUG_CLEAR_ALL_SM_ERROR_STATES_PARAMS": (8, (
        (0x00, 4, "hTargetChannel"), (0x04, 4, "numSMsToClear"),
    )),
    "NV83DE_CTRL_DEBUG_READ_MMU_FAULT_INFO_PARAMS": (72, (
        (0x00, 64, "mmuFaultInfoList[4]"), (0x40, 4, "count"),
    )),
    "NV83DE_CTRL_DEBUG_SET_EXCEPTION_MASK_PARAMS": (4, (
        (0x00, 4, "exceptionMask"),
    )),
    "NV83DE_CTRL_DEBUG_SET_MODE_MMU_DEBUG_PARAMS": (4, (
        (0x00, 4, "action"),
    )),
}

COMMANDS: dict[str, int] = {
    "NV0000_CTRL_CMD_SYSTEM_GET_BUILD_VERSION": 0x101,
    "NV0000_CTRL_CMD_SYSTEM_GET_BUILD_VERSION_V2": 0x13e,
    "NV0000_CTRL_CMD_GPU_GET_ATTACHED_IDS": 0x201,
    "NV0000_CTRL_CMD_GPU_GET_ID_INFO_V2": 0x205,
    "NV0000_CTRL_CMD_GPU_GET_PROBED_IDS": 0x214,
    "NV0080_CTRL_CMD_GPU_GET_CLASSLIST": 0x800201,
    "NV0080_CTRL_CMD_GPU_GET_CLASSLIST_V2": 0x800292,
    "NV2080_CTRL_CMD_GPU_GET_NAME_STRING": 0x20800110,
    "NV2080_CTRL_CMD_GPU_GET_GID_INFO": 0x2080014a,
    "NV2080_CTRL_CMD_EVENT_SET_NOTIFICATION": 0x20800301,
    "NV2080_CTRL_CMD_FIFO_DISABLE_CHANNELS": 0x2080110b,
    "NV2080_CTRL_CMD_GR_GET_INFO": 0x20801201,
    "NV2080_CTRL_CMD_GR_GET_CTX_BUFFER_SIZE": 0x20801218,
    "NV2080_CTRL_CMD_GR_GET_GLOBAL_SM_ORDER": 0x2080121b,
    "NV2080_CTRL_CMD_GR_GET_GPC_MASK": 0x2080122a,
    "NV2080_CTRL_CMD_GR_GET_TPC_MASK": 0x2080122b,
    "NV2080_CTRL_CMD_FB_GET_INFO_V2": 0x20801303,
    "NV2080_CTRL_CMD_FB_FLUSH_GPU_CACHE": 0x2080130e,
    "NV2080_CTRL_CMD_MC_GET_ARCH_INFO": 0x20801701,
    "NV2080_CTRL_CMD_PERF_BOOST": 0x2080200a,
    "NV2080_CTRL_CMD_CE_GET_ALL_CAPS": 0x20802a0a,
    "NV83DE_CTRL_CMD_DEBUG_SET_MODE_MMU_DEBUG": 0x83de0307,
    "NV83DE_CTRL_CMD_DEBUG_SET_EXCEPTION_MASK": 0x83de0309,
    "NV83DE_CTRL_CMD_DEBUG_READ_ALL_SM_ERROR_STATES": 0x83de030c,
    "NV83DE_CTRL_CMD_DEBUG_CLEAR_ALL_SM_ERROR_STATES": 0x83de0310,
    "NV83DE_CTRL_CMD_DEBUG_READ_MMU_FAULT_INFO": 0x83de0328,
    "NV906F_CTRL_CMD_RESET_CHANNEL": 0x906f0102,
    "NV906F_CTRL_GET_MMU_FAULT_INFO": 0x906f0106,
    "NVA06C_CTRL_CMD_GPFIFO_SCHEDULE": 0xa06c0101,
    "NVA06C_CTRL_CMD_PREEMPT": 0xa06c0105,
    "NVA06F_CTRL_CMD_GPFIFO_SCHEDULE": 0xa06f0103,
    "NVC36F_CTRL_CMD_GPFIFO_GET_WORK_SUBMIT_TOKEN": 0xc36f0108,
}
"""NVIDIA's name -> number; the upper half of a number is the class it is for (0 for the root client)."""

GR_INFO_INDICES = {
    "SHADER_PIPE_COUNT": 0x07, "SM_VERSION": 0x0c, "MAX_WARPS_PER_SM": 0x0d, "LITTER_NUM_GPCS": 0x14,
    "LITTER_NUM_TPC_PER_GPC": 0x17, "LITTER_NUM_SM_PER_TPC": 0x20,
}
GR_INFO_H200 = {
    "SM_VERSION": 0x900, "MAX_WARPS_PER_SM": 64, "LITTER_NUM_GPCS": 8, "LITTER_NUM_TPC_PER_GPC": 9,
    "LITTER_NUM_SM_PER_TPC": 2,
}
H200_SMS, H200_TPCS, GH100_TPCS = 132, 66, 72
FB_INFO_INDICES = {"RAM_SIZE": 7, "TOTAL_RAM": 8, "HEAP_SIZE": 9, "HEAP_FREE": 0x16, "L2CACHE_SIZE": 0x1b}
PERF_BOOST_FLAGS = {"minimal": 0x12, "with CUDA_PRIORITY_HIGH": 0x52}
PERF_BOOST_FOREVER = 0xffffffff
GID_FLAGS_BINARY = 2
EVENTS = {"RC_ERROR": 37, "FIFO_EVENT_MTHD": 35, "GR_DEBUG_INTR": 8}
EVENT_ACTION_REPEAT = 2
SM_ERROR_ENTRY_STRIDE, SM_ERROR_ENTRIES = 48, 100
SASS_VERSIONS = {0x802: 0x82, 0x806: 0x86, 0x900: 0x90, 0xa00: 0xa0, 0xa04: 0xa4, 0xc00: 0xc0}
"""SM_VERSION -> the byte in the QMD: (v & 0xf00) >> 4 | v & 0xf."""
