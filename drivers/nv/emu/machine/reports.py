"""What goes wrong on the emulated GPU: refusals of ioctls, errors of channels, and the record that is kept.

A `Refused` becomes the status word of the ioctl in progress. A `ChannelError` stops the channel as on
hardware: it is posted in the error notifier, and its siblings in the channel group are stopped too. Both
leave a `Report`.
"""

from __future__ import annotations

import enum
import traceback
from dataclasses import dataclass
from typing import TYPE_CHECKING

from drivers.nv.layouts.fault import MmuAccess, MmuFaultType, RcCode

if TYPE_CHECKING:
    from drivers.nv.layouts.status import NvStatus


class Kind(enum.Enum):
    """What sort of thing was found."""

    MMU_FAULT = "mmu fault"
    HOST = "host"
    """A bad ring entry, header, host method or subchannel."""
    METHOD = "method"
    """A bad method or data of an engine class."""
    LAUNCH = "launch"
    """A launch descriptor, constant bank or image that does not fit its kernel."""
    KERNEL = "kernel"
    """A kernel did something wrong."""
    RACE = "race"
    """Work of two queues, or unbarriered work of one, met in memory."""
    LIFETIME = "lifetime"
    """Memory or an object was changed or freed while in use."""
    COHERENCE = "coherence"
    """A cache invalidate, flush or fence is missing."""
    DEADLOCK = "deadlock"
    UNSUPPORTED = "unsupported"
    """The emulator does not know it; hardware may."""
    DEFECT = "defect of the emulator"
    """The emulator failed at what it should know; nothing is said about the driver."""
    ADVICE = "advice"
    """Works, but facts advise otherwise; stops nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """One thing the emulated GPU objected to."""

    kind: Kind
    message: str
    channel: str = ""
    rc: int = 0
    """The code posted in the error notifier; 0 when no channel was stopped."""
    va: int | None = None
    at: str = ""
    """The ring entry and method that were being run."""

    @property
    def fatal(self) -> bool:
        """Whether a driver must see it as a fault."""
        return self.kind is not Kind.ADVICE

    def __str__(self) -> str:
        where = f" on {self.channel}" if self.channel else ""
        code = f" (Xid {self.rc})" if self.rc else ""
        return f"{self.kind.value}{where}{code}: {self.message}" + (f"; at {self.at}" if self.at else "")


class Refused(Exception):  # noqa: N818 - an answer, not a failure of the emulator
    """The resource manager or UVM answers with this status."""

    def __init__(self, status: NvStatus | int, reason: str) -> None:
        super().__init__(f"{reason} (status {int(status):#x})")
        self.status = int(status)
        self.reason = reason


class ChannelError(Exception):
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
        super().__init__(message)
        self.rc = int(rc)
        self.kind = kind
        self.message = message
        self.va = va
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
    """Return what stops a channel that the emulator cannot go on with, for a reason of its own."""
    text = "".join(traceback.format_exception(error)).rstrip()
    return ChannelError(RcCode.GR_EXCEPTION, Kind.DEFECT, text)


def launch_error(message: str, kind: Kind = Kind.LAUNCH) -> ChannelError:
    """Return the error of a bad launch."""
    return ChannelError(RcCode.GR_EXCEPTION, kind, message)


def mmu_fault(
    va: int, access: MmuAccess, message: str, fault: MmuFaultType = MmuFaultType.PTE
) -> ChannelError:
    """Return the error of an access to a page that is not there."""
    return ChannelError(RcCode.MMU_FAULT, Kind.MMU_FAULT, message, va=va, fault=fault, access=access)
