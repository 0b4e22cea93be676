"""Errors of the emulated NVIDIA GPU: refusals of ioctls, and what stops channels.

A `Refused` becomes the status word of the ioctl in progress. A `ChannelError` stops the channel as on
hardware: it is posted in the error notifier, and its siblings in the channel group are stopped too. It leaves
a `Report`.

Not here: findings about kernels (`drivers.emu.report`), the neutral report (`drivers.emu.machine_report`).
"""

from __future__ import annotations

import traceback
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from drivers.emu.machine_report import Kind, QueueError, Report
from drivers.emu.vaspace import Access, Miss
from drivers.nv.layouts.fault import MmuAccess, MmuFaultType, RcCode

if TYPE_CHECKING:
    from drivers.nv.layouts.status import NvStatus


__all__ = ["ChannelError", "Kind", "Refused", "Report"]

_ACCESSES: Final = MappingProxyType(
    {
        Access.READ: MmuAccess.READ,
        Access.WRITE: MmuAccess.WRITE,
        Access.ATOMIC: MmuAccess.ATOMIC_STRONG,
        Access.PREFETCH: MmuAccess.PREFETCH,
    }
)
_MISSES: Final = MappingProxyType(
    {Miss.UNMAPPED: MmuFaultType.PTE, Miss.BEYOND: MmuFaultType.VA_LIMIT, Miss.READ_ONLY: MmuFaultType.RO}
)


class Refused(Exception):  # noqa: N818 - an answer, not a failure of the emulator
    """The resource manager or UVM answers with this status."""

    def __init__(self, status: NvStatus | int, reason: str) -> None:
        super().__init__(f"{reason} (status {int(status):#x})")
        self.status = int(status)
        self.reason = reason


class ChannelError(QueueError):
    """A channel is stopped by robust-channel error `rc`."""

    def __init__(
        self,
        rc: RcCode | int,
        kind: Kind,
        message: str,
        *,
        va: int | None = None,
        fault: MmuFaultType = MmuFaultType.PTE,
        access: MmuAccess = MmuAccess.READ,
        esr: int = 0,
        pc: int = 0,
        sm: int | None = None,
    ) -> None:
        super().__init__(kind, message, va=va)
        self.rc = int(rc)
        self.fault = fault
        self.access = access
        self.esr = esr
        self.pc = pc
        """Device address of the instruction of the warp that faulted."""
        self.sm = sm
        """Where that warp ran; None is no SM's error."""


def host_error(message: str) -> ChannelError:
    """Return the error of a malformed ring, header or host method."""
    return ChannelError(RcCode.PBDMA_ERROR, Kind.HOST, message)


def defect(error: Exception) -> ChannelError:
    """Return the error of a channel that the emulator cannot continue, for a limit of its own."""
    text = "".join(traceback.format_exception(error)).rstrip()
    return ChannelError(RcCode.GR_EXCEPTION, Kind.DEFECT, text)


def launch_error(message: str, kind: Kind = Kind.LAUNCH) -> ChannelError:
    """Return the error of a bad launch."""
    return ChannelError(RcCode.GR_EXCEPTION, kind, message)


def mmu_fault(
    va: int, access: MmuAccess, message: str, fault: MmuFaultType = MmuFaultType.PTE
) -> ChannelError:
    """Return the error of an access that the MMU refuses."""
    return ChannelError(RcCode.MMU_FAULT, Kind.MMU_FAULT, message, va=va, fault=fault, access=access)


def page_fault(va: int, access: Access, message: str, miss: Miss) -> ChannelError:
    """Return the error of an access that an address space refuses (`drivers.emu.vaspace.PageFault`)."""
    return mmu_fault(va, _ACCESSES[access], message, _MISSES[miss])
