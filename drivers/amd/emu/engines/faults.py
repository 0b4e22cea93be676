"""The hardware's form of a kernel's fault: a page fault for accesses of memory, else a queue exception.

Not here: finding it (`drivers.emu.report`), what the machine does with it (`drivers.amd.emu.machine`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from drivers.amd.emu.machine.reports import Kind, MemoryFault, QueueFault
from drivers.amd.layouts.events import QueueException
from drivers.emu.report import ReportKind

if TYPE_CHECKING:
    from collections.abc import Sequence

    from drivers.emu.report import Report

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


def kernel_fault(fault: Report, findings: Sequence[Report], code: int) -> QueueFault | MemoryFault:
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
    return QueueFault(Kind.KERNEL, text, _CODES.get(fault.kind, QueueException.WAVE_ABORT))


def kernel_findings(findings: Sequence[Report], code: int) -> QueueFault:
    """Return the error of a kernel at an address that ended, with findings of the sanitizers."""
    return QueueFault(Kind.KERNEL, _texts(findings, code), QueueException.WAVE_ABORT)


def _texts(reports: Sequence[Report], code: int) -> str:
    return "\nalso: ".join(f"{one}; pc {code + one.line:#x}" for one in reports)
