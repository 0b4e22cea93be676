"""Errors of the emulated NVIDIA GPU: refusals of ioctls, and errors that stop channels.

`RmRefused` becomes the status word of the current ioctl. `ChannelError` stops the channel as on hardware:
it is written to the error notifier, and the other channels of the group are stopped, too. It creates a
`MachineReport`.

Not here: findings about kernels (`emulator.ir.report`), the neutral report
(`emulator.shared.machine_report`). Next: `emulator.nv.machine.machine`, which stops a channel with them.
"""

from __future__ import annotations

import traceback
from types import MappingProxyType
from typing import Final

from drivers.nv.layouts.fault import MmuAccess, MmuFaultType, RcCode
from drivers.nv.layouts.status import NvStatus
from emulator.shared.machine_report import FindingKind, MachineReport, QueueError
from emulator.shared.vaspace import AccessKind, Miss

__all__ = ["ChannelError", "FindingKind", "MachineReport", "RmRefused"]

_ACCESSES: Final = MappingProxyType(
    {
        AccessKind.READ: MmuAccess.READ,
        AccessKind.WRITE: MmuAccess.WRITE,
        AccessKind.ATOMIC: MmuAccess.ATOMIC_STRONG,
        AccessKind.PREFETCH: MmuAccess.PREFETCH,
    }
)
_MISSES: Final = MappingProxyType(
    {Miss.UNMAPPED: MmuFaultType.PTE, Miss.BEYOND: MmuFaultType.VA_LIMIT, Miss.READ_ONLY: MmuFaultType.RO}
)


class RmRefused(Exception):  # noqa: N818 - a reply, not a failure of the emulator
    """The resource manager or UVM refuses a call with a status; `NvKernel.refusal` tells the reason."""

    def __init__(self, status: NvStatus | int, reason: str) -> None:
        super().__init__(f"{reason} (status {int(status):#x})")
        self.status = int(status)
        self.reason = reason


def wrong(reason: str) -> RmRefused:
    """Return the refusal of a call with an argument that is not valid (INVALID_ARGUMENT)."""
    return RmRefused(NvStatus.INVALID_ARGUMENT, reason)


class ChannelError(QueueError):
    """An error that stops a channel with robust-channel code `rc`."""

    def __init__(
        self,
        rc: RcCode | int,
        kind: FindingKind,
        message: str,
        *,
        va: int | None = None,
        fault: MmuFaultType = MmuFaultType.PTE,
        access: MmuAccess = MmuAccess.READ,
        esr: int = 0,
        pc: int = 0,
        sm: int | None = None,
    ) -> None:
        """The error has a code, a kind of finding and a message.

        `va` is the faulting address, if there is one.

        `fault` and `access` describe the fault of the MMU, if `rc` is `RcCode.MMU_FAULT`.
        """
        super().__init__(kind, message, va=va)
        self.rc = int(rc)
        self.fault = fault
        self.access = access
        self.esr = esr
        """The exception word of the faulting warp; 0 if no warp faulted."""
        self.pc = pc
        """Device address of the faulting instruction; 0 if no warp faulted."""
        self.sm = sm
        """The SM of the faulting warp; None if no SM faulted."""


def host_error(message: str) -> ChannelError:
    """Return the error of a malformed ring, header or host method."""
    return ChannelError(RcCode.PBDMA_ERROR, FindingKind.HOST, message)


def defect(error: Exception) -> ChannelError:
    """Return the error for a channel that cannot continue because the emulator failed with `error`."""
    text = "".join(traceback.format_exception(error)).rstrip()
    return ChannelError(RcCode.GR_EXCEPTION, FindingKind.DEFECT, text)


def launch_error(message: str, kind: FindingKind = FindingKind.LAUNCH) -> ChannelError:
    """Return the error for an invalid launch."""
    return ChannelError(RcCode.GR_EXCEPTION, kind, message)


def mmu_fault(
    va: int, access: MmuAccess, message: str, fault: MmuFaultType = MmuFaultType.PTE
) -> ChannelError:
    """Return the error for an access at address `va` that the MMU refuses."""
    return ChannelError(RcCode.MMU_FAULT, FindingKind.MMU_FAULT, message, va=va, fault=fault, access=access)


def page_fault(va: int, access: AccessKind, message: str, miss: Miss) -> ChannelError:
    """Return the error for an access that an address space refuses (`emulator.shared.vaspace.PageFault`)."""
    return mmu_fault(va, _ACCESSES[access], message, _MISSES[miss])
