"""The errors that stop a queue, by what was wrong, and the hardware's form of a kernel's fault.

A kernel's access of memory is a page fault, all else a queue exception.

Not here: finding a fault (`emulator.ir.report`), what errors do to the machine (`emulator.amd.machine`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from drivers.amd.layouts.events import QueueException
from emulator.amd.reports import FindingKind, MemoryFault, QueueFault
from emulator.ir.report import ReportKind

if TYPE_CHECKING:
    from collections.abc import Sequence

    from emulator.ir.report import KernelReport
    from hcq.layout import BitStruct


def host_fault(message: str) -> QueueFault:
    """Return the error of a bad ring, pointer or doorbell."""
    return QueueFault(FindingKind.HOST, message)


def packet_fault(message: str, exception: QueueException = QueueException.PACKET_UNSUPPORTED) -> QueueFault:
    """Return the error of a bad packet."""
    return QueueFault(FindingKind.METHOD, message, exception)


def dispatch_fault(message: str, exception: QueueException) -> QueueFault:
    """Return the error of a launch that does not fit its kernel."""
    return QueueFault(FindingKind.LAUNCH, message, exception)


def changed_fault(message: str) -> QueueFault:
    """Return the error of memory that was changed while in use."""
    return QueueFault(FindingKind.LIFETIME, message)


def stale_fault(message: str) -> QueueFault:
    """Return the error of missing cache maintenance."""
    return QueueFault(FindingKind.COHERENCE, message)


def unsupported(message: str) -> QueueFault:
    """Return the error of what is not emulated, though hardware may support it."""
    return QueueFault(FindingKind.UNSUPPORTED, message)


def check(packet: BitStruct, name: str) -> None:
    """Raise if a packet has bits, or values of fields, that its layout does not know."""
    found = packet.check()
    if found:
        raise packet_fault(f"{name}: {'; '.join(map(str, found))}")


_PAGE_FAULTS: Final = (ReportKind.OUT_OF_BOUNDS, ReportKind.FORBIDDEN)
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
    """Return the error that a kernel at an address ends its queue with.

    It names what the sanitizers found before the fault, too.
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
    """Return the error of a kernel at an address that ended, with findings of the sanitizers."""
    return QueueFault(FindingKind.KERNEL, _texts(findings, code), QueueException.WAVE_ABORT)


def _texts(reports: Sequence[KernelReport], code: int) -> str:
    return "\nalso: ".join(f"{one}; pc {code + one.line:#x}" for one in reports)
