"""The debugger object and the fault queries of a channel: the error states of SMs, and MMU faults.

Sandboxes allow READ_ALL_SM_ERROR_STATES, and filter READ_MMU_FAULT_INFO and NV906F GET_MMU_FAULT_INFO (nv.md
6.2, 7.2).

Not here: other controls (`controls`), error codes (`fault`). Next: `drivers.nv.faults`, the reader.
"""

# ruff: noqa: N801, N815 - names are the vendor's own; annotations are read at run time

from __future__ import annotations

from typing import Final

from hcq.layout import Struct, chars, nested, u8, u32, u64

SOURCE = "open-gpu-kernel-modules 580.142, ctrl83de.h and ctrl906f.h (nv.md 1.6, 6.2)"

MAX_SMS_PER_READ: Final = 100
"""The most SMs that one READ_ALL_SM_ERROR_STATES returns; `startingSM` selects the first."""


class NV83DE_SM_ERROR_STATE_REGISTERS(Struct, size=48, source=SOURCE):
    """The error state of one SM; nonzero ESR words give the reason of its stop."""

    hwwGlobalEsr: int = u32(0x0)
    hwwWarpEsr: int = u32(0x4)
    hwwWarpEsrPc: int = u32(0x8)
    hwwGlobalEsrReportMask: int = u32(0xC)
    hwwWarpEsrReportMask: int = u32(0x10)
    hwwEsrAddr: int = u64(0x18)
    hwwWarpEsrPc64: int = u64(0x20)
    hwwCgaEsr: int = u32(0x28)
    hwwCgaEsrReportMask: int = u32(0x2C)


class NV83DE_MMU_FAULT_INFO(Struct, size=8, source=SOURCE):
    """Whether an MMU fault is pending, and its raw fault word."""

    valid: bool = u8(0x0)
    faultInfo: int = u32(0x4)


class NV83DE_MMU_FAULT_INFO_ENTRY(Struct, size=16, source=SOURCE):
    """One MMU fault."""

    faultAddress: int = u64(0x0)
    faultType: int = u32(0x8)
    accessType: int = u32(0xC)


class NV906F_CTRL_CMD_RESET_CHANNEL_PARAMS(Struct, size=16, source=SOURCE):
    engineID: int = u32(0x0)
    subdeviceInstance: int = u32(0x4)
    resetReason: int = u32(0x8)
    bIsRcPending: bool = u8(0xC)


class NV906F_CTRL_GET_MMU_FAULT_INFO_PARAMS(Struct, size=104, source=SOURCE):
    addrHi: int = u32(0x0)
    addrLo: int = u32(0x4)
    faultType: int = u32(0x8)
    faultString: str = chars(0xC, 32)
    shaderProgramVA: tuple[int, ...] = u64(0x30, count=7)


class NV83DE_CTRL_DEBUG_READ_ALL_SM_ERROR_STATES_PARAMS(Struct, size=4824, source=SOURCE):
    hTargetChannel: int = u32(0x0)
    numSMsToRead: int = u32(0x4)
    smErrorStateArray: tuple[NV83DE_SM_ERROR_STATE_REGISTERS, ...] = nested(
        0x8, NV83DE_SM_ERROR_STATE_REGISTERS, count=100
    )
    mmuFaultInfo: int = u32(0x12C8)
    mmuFault: NV83DE_MMU_FAULT_INFO = nested(0x12CC, NV83DE_MMU_FAULT_INFO)
    startingSM: int = u32(0x12D4)


class NV83DE_CTRL_DEBUG_CLEAR_ALL_SM_ERROR_STATES_PARAMS(Struct, size=8, source=SOURCE):
    hTargetChannel: int = u32(0x0)
    numSMsToClear: int = u32(0x4)


class NV83DE_CTRL_DEBUG_READ_MMU_FAULT_INFO_PARAMS(Struct, size=72, source=SOURCE):
    mmuFaultInfoList: tuple[NV83DE_MMU_FAULT_INFO_ENTRY, ...] = nested(
        0x0, NV83DE_MMU_FAULT_INFO_ENTRY, count=4
    )
    count: int = u32(0x40)


class NV83DE_CTRL_DEBUG_SET_EXCEPTION_MASK_PARAMS(Struct, size=4, source=SOURCE):
    exceptionMask: int = u32(0x0)


class NV83DE_CTRL_DEBUG_SET_MODE_MMU_DEBUG_PARAMS(Struct, size=4, source=SOURCE):
    action: int = u32(0x0)
