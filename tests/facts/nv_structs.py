"""Resource manager structures at branch 580, and what other branches change.

Source: sizes and offsets compiled from the headers of NVIDIA open-gpu-kernel-modules 580.142 (nv-ioctl.h,
nvos.h and the class headers); what differs, from the same headers at the tags 570.211.01, 590.48.01 and
595.45.04.
Offsets are hexadecimal and sizes decimal, as in the table they were typed from.
"""

# fmt: off
Structs = dict[str, tuple[int, tuple[tuple[int, int, str], ...]]]
"""Struct name -> (size, ((offset, size, field), ...)), in bytes; ``name[n]`` marks an array of n elements."""

FRONTEND: Structs = {
    "nv_ioctl_card_info_t": (72, (
        (0x00, 1, "valid"), (0x04, 4, "pci_info.domain"), (0x08, 1, "pci_info.bus"),
        (0x09, 1, "pci_info.slot"), (0x0a, 1, "pci_info.function"), (0x0c, 2, "pci_info.vendor_id"),
        (0x0e, 2, "pci_info.device_id"), (0x10, 4, "gpu_id"), (0x14, 2, "interrupt_line"),
        (0x18, 8, "reg_address"), (0x20, 8, "reg_size"), (0x28, 8, "fb_address"), (0x30, 8, "fb_size"),
        (0x38, 4, "minor_number"), (0x3c, 10, "dev_name[10]"),
    )),
    "nv_ioctl_register_fd_t": (4, (
        (0x00, 4, "ctl_fd"),
    )),
    "nv_ioctl_rm_api_version_t": (72, (
        (0x00, 4, "cmd"), (0x04, 4, "reply"), (0x08, 64, "versionString[64]"),
    )),
    "nv_ioctl_sys_params_t": (8, (
        (0x00, 8, "memblock_size"),
    )),
    "nv_ioctl_alloc_os_event_t": (16, (
        (0x00, 4, "hClient"), (0x04, 4, "hDevice"), (0x08, 4, "fd"), (0x0c, 4, "Status"),
    )),
    "nv_ioctl_free_os_event_t": (16, (
        (0x00, 4, "hClient"), (0x04, 4, "hDevice"), (0x08, 4, "fd"), (0x0c, 4, "Status"),
    )),
    "nv_ioctl_wait_open_complete_t": (8, (
        (0x00, 4, "rc"), (0x04, 4, "adapterStatus"),
    )),
    "nv_ioctl_xfer_t": (16, (
        (0x00, 4, "cmd"), (0x04, 4, "size"), (0x08, 8, "ptr"),
    )),
    "nv_ioctl_nvos02_parameters_with_fd": (56, (
        (0x00, 4, "params.hRoot"), (0x04, 4, "params.hObjectParent"), (0x08, 4, "params.hObjectNew"),
        (0x0c, 4, "params.hClass"), (0x10, 4, "params.flags"), (0x18, 8, "params.pMemory"),
        (0x20, 8, "params.limit"), (0x28, 4, "params.status"), (0x30, 4, "fd"),
    )),
    "nv_ioctl_nvos33_parameters_with_fd": (56, (
        (0x00, 4, "params.hClient"), (0x04, 4, "params.hDevice"), (0x08, 4, "params.hMemory"),
        (0x10, 8, "params.offset"), (0x18, 8, "params.length"), (0x20, 8, "params.pLinearAddress"),
        (0x28, 4, "params.status"), (0x2c, 4, "params.flags"), (0x30, 4, "fd"),
    )),
    "NVOS00_PARAMETERS": (16, (
        (0x00, 4, "hRoot"), (0x04, 4, "hObjectParent"), (0x08, 4, "hObjectOld"), (0x0c, 4, "status"),
    )),
    "NVOS02_PARAMETERS": (48, (
        (0x00, 4, "hRoot"), (0x04, 4, "hObjectParent"), (0x08, 4, "hObjectNew"), (0x0c, 4, "hClass"),
        (0x10, 4, "flags"), (0x18, 8, "pMemory"), (0x20, 8, "limit"), (0x28, 4, "status"),
    )),
    "NVOS21_PARAMETERS": (32, (
        (0x00, 4, "hRoot"), (0x04, 4, "hObjectParent"), (0x08, 4, "hObjectNew"), (0x0c, 4, "hClass"),
        (0x10, 8, "pAllocParms"), (0x18, 4, "paramsSize"), (0x1c, 4, "status"),
    )),
    "NVOS33_PARAMETERS": (48, (
        (0x00, 4, "hClient"), (0x04, 4, "hDevice"), (0x08, 4, "hMemory"), (0x10, 8, "offset"),
        (0x18, 8, "length"), (0x20, 8, "pLinearAddress"), (0x28, 4, "status"), (0x2c, 4, "flags"),
    )),
    "NVOS34_PARAMETERS": (32, (
        (0x00, 4, "hClient"), (0x04, 4, "hDevice"), (0x08, 4, "hMemory"), (0x10, 8, "pLinearAddress"),
        (0x18, 4, "status"), (0x1c, 4, "flags"),
    )),
    "NVOS46_PARAMETERS": (64, (
        (0x00, 4, "hClient"), (0x04, 4, "hDevice"), (0x08, 4, "hDma"), (0x0c, 4, "hMemory"),
        (0x10, 8, "offset"), (0x18, 8, "length"), (0x20, 4, "flags"), (0x24, 4, "flags2"),
        (0x28, 4, "kindOverride"), (0x30, 8, "dmaOffset"), (0x38, 4, "status"),
    )),
    "NVOS47_PARAMETERS": (48, (
        (0x00, 4, "hClient"), (0x04, 4, "hDevice"), (0x08, 4, "hDma"), (0x0c, 4, "hMemory"),
        (0x10, 4, "flags"), (0x18, 8, "dmaOffset"), (0x20, 8, "size"), (0x28, 4, "status"),
    )),
    "NVOS54_PARAMETERS": (32, (
        (0x00, 4, "hClient"), (0x04, 4, "hObject"), (0x08, 4, "cmd"), (0x0c, 4, "flags"), (0x10, 8, "params"),
        (0x18, 4, "paramsSize"), (0x1c, 4, "status"),
    )),
    "NVOS55_PARAMETERS": (28, (
        (0x00, 4, "hClient"), (0x04, 4, "hParent"), (0x08, 4, "hObject"), (0x0c, 4, "hClientSrc"),
        (0x10, 4, "hObjectSrc"), (0x14, 4, "flags"), (0x18, 4, "status"),
    )),
    "NVOS64_PARAMETERS": (48, (
        (0x00, 4, "hRoot"), (0x04, 4, "hObjectParent"), (0x08, 4, "hObjectNew"), (0x0c, 4, "hClass"),
        (0x10, 8, "pAllocParms"), (0x18, 8, "pRightsRequested"), (0x20, 4, "paramsSize"), (0x24, 4, "flags"),
        (0x28, 4, "status"),
    )),
}

ALLOCATION: Structs = {
    "NV0000_ALLOC_PARAMETERS": (120, (
        (0x00, 4, "hClient"), (0x04, 4, "processID"), (0x08, 100, "processName[100]"),
        (0x70, 8, "pOsPidInfo"),
    )),
    "NV0080_ALLOC_PARAMETERS": (56, (
        (0x00, 4, "deviceId"), (0x04, 4, "hClientShare"), (0x08, 4, "hTargetClient"),
        (0x0c, 4, "hTargetDevice"), (0x10, 4, "flags"), (0x18, 8, "vaSpaceSize"),
        (0x20, 8, "vaStartInternal"), (0x28, 8, "vaLimitInternal"), (0x30, 4, "vaMode"),
    )),
    "NV2080_ALLOC_PARAMETERS": (4, (
        (0x00, 4, "subDeviceId"),
    )),
    "NV_VASPACE_ALLOCATION_PARAMETERS": (56, (
        (0x00, 4, "index"), (0x04, 4, "flags"), (0x08, 8, "vaSize"), (0x10, 8, "vaStartInternal"),
        (0x18, 8, "vaLimitInternal"), (0x20, 4, "bigPageSize"), (0x28, 8, "vaBase"), (0x30, 4, "pasid"),
    )),
    "NV_HOPPER_USERMODE_A_PARAMS": (2, (
        (0x00, 1, "bBar1Mapping"), (0x01, 1, "bPriv"),
    )),
    "NV_CHANNEL_GROUP_ALLOCATION_PARAMETERS": (20, (
        (0x00, 4, "hObjectError"), (0x04, 4, "hObjectEccError"), (0x08, 4, "hVASpace"),
        (0x0c, 4, "engineType"), (0x10, 1, "bIsCallingContextVgpuPlugin"),
    )),
    "NV_CTXSHARE_ALLOCATION_PARAMETERS": (12, (
        (0x00, 4, "hVASpace"), (0x04, 4, "flags"), (0x08, 4, "subctxId"),
    )),
    "NV_MEMORY_DESC_PARAMS": (24, (
        (0x00, 8, "base"), (0x08, 8, "size"), (0x10, 4, "addressSpace"), (0x14, 4, "cacheAttrib"),
    )),
    "NV_CHANNEL_ALLOC_PARAMS": (368, (
        (0x000, 4, "hObjectError"), (0x004, 4, "hObjectBuffer"), (0x008, 8, "gpFifoOffset"),
        (0x010, 4, "gpFifoEntries"), (0x014, 4, "flags"), (0x018, 4, "hContextShare"), (0x01c, 4, "hVASpace"),
        (0x020, 32, "hUserdMemory[8]"), (0x040, 64, "userdOffset[8]"), (0x080, 4, "engineType"),
        (0x084, 4, "cid"), (0x088, 4, "subDeviceId"), (0x08c, 4, "hObjectEccError"),
        (0x090, 8, "instanceMem.base"), (0x098, 8, "instanceMem.size"),
        (0x0a0, 4, "instanceMem.addressSpace"), (0x0a4, 4, "instanceMem.cacheAttrib"),
        (0x0a8, 8, "userdMem.base"), (0x0b0, 8, "userdMem.size"), (0x0b8, 4, "userdMem.addressSpace"),
        (0x0bc, 4, "userdMem.cacheAttrib"), (0x0c0, 8, "ramfcMem.base"), (0x0c8, 8, "ramfcMem.size"),
        (0x0d0, 4, "ramfcMem.addressSpace"), (0x0d4, 4, "ramfcMem.cacheAttrib"),
        (0x0d8, 8, "mthdbufMem.base"), (0x0e0, 8, "mthdbufMem.size"), (0x0e8, 4, "mthdbufMem.addressSpace"),
        (0x0ec, 4, "mthdbufMem.cacheAttrib"), (0x0f0, 4, "hPhysChannelGroup"), (0x0f4, 4, "internalFlags"),
        (0x0f8, 8, "errorNotifierMem.base"), (0x100, 8, "errorNotifierMem.size"),
        (0x108, 4, "errorNotifierMem.addressSpace"), (0x10c, 4, "errorNotifierMem.cacheAttrib"),
        (0x110, 8, "eccErrorNotifierMem.base"), (0x118, 8, "eccErrorNotifierMem.size"),
        (0x120, 4, "eccErrorNotifierMem.addressSpace"), (0x124, 4, "eccErrorNotifierMem.cacheAttrib"),
        (0x128, 4, "ProcessID"), (0x12c, 4, "SubProcessID"), (0x130, 12, "encryptIv[3]"),
        (0x13c, 12, "decryptIv[3]"), (0x148, 32, "hmacNonce[8]"), (0x168, 4, "tpcConfigID"),
    )),
    "NV_GR_ALLOCATION_PARAMETERS": (16, (
        (0x00, 4, "version"), (0x04, 4, "flags"), (0x08, 4, "size"), (0x0c, 4, "caps"),
    )),
    "NVB0B5_ALLOCATION_PARAMETERS": (8, (
        (0x00, 4, "version"), (0x04, 4, "engineType"),
    )),
    "NV_MEMORY_ALLOCATION_PARAMS": (128, (
        (0x00, 4, "owner"), (0x04, 4, "type"), (0x08, 4, "flags"), (0x0c, 4, "width"), (0x10, 4, "height"),
        (0x14, 4, "pitch"), (0x18, 4, "attr"), (0x1c, 4, "attr2"), (0x20, 4, "format"),
        (0x24, 4, "comprCovg"), (0x28, 4, "zcullCovg"), (0x30, 8, "rangeLo"), (0x38, 8, "rangeHi"),
        (0x40, 8, "size"), (0x48, 8, "alignment"), (0x50, 8, "offset"), (0x58, 8, "limit"),
        (0x60, 8, "address"), (0x68, 4, "ctagOffset"), (0x6c, 4, "hVASpace"), (0x70, 4, "internalflags"),
        (0x74, 4, "tag"), (0x78, 4, "numaNode"),
    )),
    "NV_MEMORY_VIRTUAL_ALLOCATION_PARAMS": (24, (
        (0x00, 8, "offset"), (0x08, 8, "limit"), (0x10, 4, "hVASpace"),
    )),
    "NV83DE_ALLOC_PARAMETERS": (12, (
        (0x00, 4, "hDebuggerClient_Obsolete"), (0x04, 4, "hAppClient"), (0x08, 4, "hClass3dObject"),
    )),
    "NV0005_ALLOC_PARAMETERS": (24, (
        (0x00, 4, "hParentClient"), (0x04, 4, "hSrcResource"), (0x08, 4, "hClass"), (0x0c, 4, "notifyIndex"),
        (0x10, 8, "data"),
    )),
}

OTHER: Structs = {
    "NvNotification": (16, (
        (0x00, 8, "timeStamp.nanoseconds[2]"), (0x08, 4, "info32"), (0x0c, 2, "info16"), (0x0e, 2, "status"),
    )),
    "HopperAControlGPFifo": (512, (
        (0x40, 4, "Put"), (0x44, 4, "Get"), (0x48, 4, "Reference"), (0x4c, 4, "PutHi"),
        (0x58, 4, "TopLevelGet"), (0x5c, 4, "TopLevelGetHi"), (0x60, 4, "GetHi"), (0x88, 4, "GPGet"),
        (0x8c, 4, "GPPut"),
    )),
    "BlackwellAControlGPFifo": (512, (
        (0x8c, 4, "GPPut"),
    )),
}

GLOBAL_SM_ORDER_ENTRY = (
    "gpcId", "localTpcId", "localSmId", "globalTpcId", "virtualGpcId", "migratableTpcId", "ugpuId",
    "physicalCpcId", "virtualTpcId",
)
"""The nine u16 of one 18-byte entry of globalSmId; branch 570 has the first six in 12 bytes."""

GR_GET_CTX_BUFFER_SIZE = ((0x0, 4, "hChannel"), (0x8, 8, "totalBufferSize"))
"""Parameters of control 0x20801218."""

BRANCH_SIZES: dict[str, dict[int, int]] = {
    "NVOS46_PARAMETERS": {570: 56, 580: 64, 590: 64, 595: 64},
    "NV_VASPACE_ALLOCATION_PARAMETERS": {570: 48, 580: 56, 590: 56, 595: 56},
    "NVA06C_CTRL_GPFIFO_SCHEDULE_PARAMS": {570: 2, 580: 3, 590: 3, 595: 3},
    "NVA06F_CTRL_GPFIFO_SCHEDULE_PARAMS": {570: 2, 580: 3, 590: 3, 595: 3},
    "UVM_UNREGISTER_CHANNEL_PARAMS": {570: 28, 580: 28, 590: 12, 595: 12},
    "UVM_FREE_PARAMS": {570: 24, 580: 24, 590: 16, 595: 16},
    "NV0000_CTRL_GPU_GET_PROBED_IDS_PARAMS": {570: 256, 580: 384, 590: 384, 595: 384},
    "NV0080_CTRL_GPU_GET_CLASSLIST_V2_PARAMS": {570: 404, 580: 804, 590: 804, 595: 804},
    "NV2080_CTRL_GPU_GET_INFO_V2_PARAMS": {570: 524, 580: 564, 590: 564, 595: 564},
    "NV2080_CTRL_FB_GET_INFO_V2_PARAMS": {570: 460, 580: 1028, 590: 1028, 595: 1028},
    "NV2080_CTRL_GR_GET_GLOBAL_SM_ORDER_PARAMS": {570: 6168, 580: 9240, 590: 9240, 595: 9240},
    "NV2080_CTRL_GPU_GET_NAME_STRING_PARAMS": {570: 132, 580: 132, 590: 132, 595: 68},
    "NV_CHANNEL_ALLOC_PARAMS": {570: 368, 580: 368, 590: 368, 595: 368},
}
"""The only structures whose size depends on the branch, and the channel parameters, whose size does not."""

BRANCH_FIELDS: dict[str, dict[int, tuple[tuple[int, int, str], ...]]] = {
    "NVOS46_PARAMETERS": {570: (
        (0x00, 4, "hClient"), (0x04, 4, "hDevice"), (0x08, 4, "hDma"), (0x0c, 4, "hMemory"),
        (0x10, 8, "offset"), (0x18, 8, "length"), (0x20, 4, "flags"),
        (0x28, 8, "dmaOffset"), (0x30, 4, "status"),
    )},
    "NV_VASPACE_ALLOCATION_PARAMETERS": {570: (
        (0x00, 4, "index"), (0x04, 4, "flags"), (0x08, 8, "vaSize"), (0x10, 8, "vaStartInternal"),
        (0x18, 8, "vaLimitInternal"), (0x20, 4, "bigPageSize"), (0x28, 8, "vaBase"),
    )},
    "NVA06C_CTRL_GPFIFO_SCHEDULE_PARAMS": {570: ((0x0, 1, "bEnable"), (0x1, 1, "bSkipSubmit"))},
    "NVA06F_CTRL_GPFIFO_SCHEDULE_PARAMS": {570: ((0x0, 1, "bEnable"), (0x1, 1, "bSkipSubmit"))},
    "UVM_UNREGISTER_CHANNEL_PARAMS": {
        590: ((0x0, 4, "hClient"), (0x4, 4, "hChannel"), (0x8, 4, "rmStatus")),
        595: ((0x0, 4, "hClient"), (0x4, 4, "hChannel"), (0x8, 4, "rmStatus")),
    },
    "UVM_FREE_PARAMS": {
        590: ((0x0, 8, "base"), (0x8, 4, "rmStatus")),
        595: ((0x0, 8, "base"), (0x8, 4, "rmStatus")),
    },
    "NV0080_CTRL_GPU_GET_CLASSLIST_V2_PARAMS": {570: ((0x0, 4, "numClasses"), (0x4, 400, "classList[100]"))},
}
"""Field tables of the variants whose difference is spelled out field by field."""

CHANNEL_FIELDS = {
    "hObjectError": 0x0, "hObjectBuffer": 0x4, "gpFifoOffset": 0x8, "gpFifoEntries": 0x10, "flags": 0x14,
    "hContextShare": 0x18, "hVASpace": 0x1c, "hUserdMemory": 0x20, "userdOffset": 0x40, "engineType": 0x80,
    "tpcConfigID": 0x168,
}
"""Offsets in NV_CHANNEL_ALLOC_PARAMS as the prose on channels gives them (a second witness of the table)."""

USERD_GP_GET, USERD_GP_PUT, USERD_SIZE = 0x88, 0x8c, 512
ERROR_NOTIFIER_ENTRIES, ERROR_NOTIFIER_BYTES = 3, 48
CARD_INFO_RECORD_BYTES, CARD_INFO_BUFFER_BYTES = 72, 4608
