"""Faults that stop queues of the emulated AMD GPU.

As on hardware, a `MemoryFault` evicts every queue of the process on its GPU, and fires MEMORY events. A
`QueueFault` stops one queue with an exception code. The machine makes a `MachineReport` of either.

A kernel's access to memory that is not mapped, or is forbidden, becomes a `MemoryFault`. Every other report
of a kernel becomes a `QueueFault`.

Not here: refusals of ioctls (`emulator.amd.kfd.refusal`), the report (`emulator.shared.machine_report`).
Next: `emulator.amd.machine.machine`, which stops queues with them. Source of the exceptions' numbers:
`drivers.amd.layouts.events`.
"""

from __future__ import annotations

import traceback
from typing import TYPE_CHECKING, Final

from drivers.amd.layouts.events import QueueException
from emulator.ir.report import ReportKind
from emulator.shared.machine_report import FindingKind, MachineReport, QueueError
from emulator.shared.vaspace import AccessKind, Miss

if TYPE_CHECKING:
    from collections.abc import Sequence

    from emulator.ir.report import KernelReport
    from hcq.layout import BitStruct

__all__ = ["FindingKind", "MachineReport", "MemoryFault", "QueueFault", "defect", "page_fault"]


class QueueFault(QueueError):  # noqa: N818 - hardware's word
    """Raised to stop one queue with a queue exception; `exception` is the code that the host gets."""

    def __init__(
        self, kind: FindingKind, message: str, exception: QueueException = QueueException.PACKET_UNSUPPORTED
    ) -> None:
        super().__init__(kind, message)
        self.exception = exception


class MemoryFault(QueueError):  # noqa: N818 - hardware's word
    """Raised for an access that the GPU's page tables refuse; `address` is the device address."""

    def __init__(
        self, va: int, message: str, *, writes: bool = False, not_present: bool = True, executes: bool = False
    ) -> None:
        super().__init__(FindingKind.MMU_FAULT, message, va=va)
        self.address = va
        self.writes = writes
        self.not_present = not_present
        self.executes = executes
        """Whether it is an instruction fetch. The kernel's event does not say so: `NoExecute` is never
        set."""


def page_fault(va: int, access: AccessKind, message: str, miss: Miss) -> MemoryFault:
    """Return the fault of an access that an address space refuses (`emulator.shared.vaspace.PageFault`)."""
    writes = access in (AccessKind.WRITE, AccessKind.ATOMIC)
    return MemoryFault(va, message, writes=writes, not_present=miss is not Miss.READ_ONLY)


def host_path_fault() -> QueueFault:
    """Return the fault of a doorbell without a flush of the host data path before it (quirk `hdp`)."""
    text = "the CPU maps video memory, and nothing flushed the host data path before the doorbell"
    return QueueFault(FindingKind.COHERENCE, text)


def defect(error: Exception) -> QueueFault:
    """Return the fault of a queue that the emulator cannot continue, because of an error of its own."""
    return QueueFault(FindingKind.DEFECT, "".join(traceback.format_exception(error)).rstrip())


def host_fault(message: str) -> QueueFault:
    """Return the error of a bad ring, pointer or doorbell."""
    return QueueFault(FindingKind.HOST, message)


def packet_fault(message: str, exception: QueueException = QueueException.PACKET_UNSUPPORTED) -> QueueFault:
    """Return the error of a packet that is malformed or not legal on its queue."""
    return QueueFault(FindingKind.METHOD, message, exception)


def dispatch_fault(message: str, exception: QueueException) -> QueueFault:
    """Return the error of a launch that is not legal, or does not fit its kernel."""
    return QueueFault(FindingKind.LAUNCH, message, exception)


def register_fault(message: str) -> QueueFault:
    """Return the error of a launch whose registers or arguments do not fit its kernel."""
    return dispatch_fault(message, QueueException.PACKET_DISPATCH_REGISTER_INVALID)


def code_fault(message: str) -> QueueFault:
    """Return the error of a launch whose code or descriptor is not valid."""
    return dispatch_fault(message, QueueException.PACKET_DISPATCH_CODE_INVALID)


def size_fault(message: str) -> QueueFault:
    """Return the error of a launch whose sizes are not valid."""
    return dispatch_fault(message, QueueException.PACKET_DISPATCH_DIM_INVALID)


def changed_fault(message: str) -> QueueFault:
    """Return the error of memory that was changed while in use."""
    return QueueFault(FindingKind.LIFETIME, message)


def stale_fault(message: str) -> QueueFault:
    """Return the error of missing cache maintenance."""
    return QueueFault(FindingKind.COHERENCE, message)


def unsupported(message: str) -> QueueFault:
    """Return the error of a feature that is not emulated, though hardware may support it."""
    return QueueFault(FindingKind.UNSUPPORTED, message)


def check(packet: BitStruct, name: str) -> None:
    """Raise `QueueFault` if a packet has bits, or values of fields, that its layout does not declare."""
    found = packet.check()
    if found:
        raise packet_fault(f"{name}: {'; '.join(map(str, found))}")


_PAGE_FAULTS: Final = (ReportKind.OUT_OF_BOUNDS, ReportKind.FORBIDDEN)
"""Reports that are page faults. FORBIDDEN is an access that the mapping's rights exclude."""
# Kind of a kernel's report -> the queue exception of hardware; WAVE_ABORT for all others.
_CODES: Final = {
    ReportKind.MISALIGNED: QueueException.WAVE_MEMORY_VIOLATION,
    ReportKind.SHARED_OUT_OF_BOUNDS: QueueException.WAVE_APERTURE_VIOLATION,
    ReportKind.LOCAL_OUT_OF_BOUNDS: QueueException.WAVE_APERTURE_VIOLATION,
    ReportKind.TRAP: QueueException.WAVE_TRAP,
    ReportKind.HANG: QueueException.PREEMPTION_ERROR,
    ReportKind.BARRIER_DEADLOCK: QueueException.PREEMPTION_ERROR,
    ReportKind.DIVERGENT_BARRIERS: QueueException.PREEMPTION_ERROR,
}


def kernel_fault(
    fault: KernelReport, findings: Sequence[KernelReport], code: int
) -> QueueFault | MemoryFault:
    """Return the error by which a kernel's fault stops its queue: a `MemoryFault` for a page fault.

    Its text has the fault and the sanitizers' earlier `findings`. `code` is the kernel's device address.
    """
    text = _texts((fault, *findings), code)
    if fault.kind in _PAGE_FAULTS and fault.address is not None:
        return MemoryFault(
            fault.address,
            text,
            writes=fault.access in ("write", "atomic"),
            not_present=fault.kind is ReportKind.OUT_OF_BOUNDS,
        )
    return QueueFault(FindingKind.KERNEL, text, _CODES.get(fault.kind, QueueException.WAVE_ABORT))


def kernel_findings(findings: Sequence[KernelReport], code: int) -> QueueFault:
    """Return the error of a kernel at device address `code` that ended with findings of the sanitizers."""
    return QueueFault(FindingKind.KERNEL, _texts(findings, code), QueueException.WAVE_ABORT)


def _texts(reports: Sequence[KernelReport], code: int) -> str:
    return "\nalso: ".join(f"{one}; pc {code + one.line:#x}" for one in reports)
