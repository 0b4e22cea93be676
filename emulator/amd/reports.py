"""Faults that stop queues of the emulated AMD GPU, and its findings.

A `MemoryFault` evicts every queue of the process on its GPU and fires MEMORY events, a `QueueFault` stops one
queue with an exception code, as on hardware. Both leave a `MachineReport`.

Not here: refusals of ioctls (`emulator.amd.kfd.refusal`), the neutral report
(`emulator.shared.machine_report`).
"""

from __future__ import annotations

import traceback

from drivers.amd.layouts.events import QueueException
from emulator.shared.machine_report import FindingKind, MachineReport, QueueError
from emulator.shared.vaspace import AccessKind, Miss

__all__ = ["FindingKind", "MachineReport", "MemoryFault", "QueueFault", "defect", "page_fault"]


class QueueFault(QueueError):  # noqa: N818 - hardware's word
    """A queue is stopped by a queue exception."""

    def __init__(
        self, kind: FindingKind, message: str, exception: QueueException = QueueException.PACKET_UNSUPPORTED
    ) -> None:
        super().__init__(kind, message)
        self.exception = exception


class MemoryFault(QueueError):  # noqa: N818 - hardware's word
    """An access that the GPU's page tables refuse."""

    def __init__(
        self, va: int, message: str, *, writes: bool = False, not_present: bool = True, executes: bool = False
    ) -> None:
        super().__init__(FindingKind.MMU_FAULT, message, va=va)
        self.address = va
        self.writes = writes
        self.not_present = not_present
        self.executes = executes
        """An instruction fetch; the kernel's event does not tell (`NoExecute` is never set)."""


def page_fault(va: int, access: AccessKind, message: str, miss: Miss) -> MemoryFault:
    """Return the error of an access that an address space refuses (`emulator.shared.vaspace.PageFault`)."""
    writes = access in (AccessKind.WRITE, AccessKind.ATOMIC)
    return MemoryFault(va, message, writes=writes, not_present=miss is not Miss.READ_ONLY)


def host_path_fault() -> QueueFault:
    """Return the fault of a doorbell before which nothing flushed the host data path (doubt `hdp`)."""
    text = "the CPU maps video memory, and nothing flushed the host data path before the doorbell"
    return QueueFault(FindingKind.COHERENCE, text)


def defect(error: Exception) -> QueueFault:
    """Return the error of a queue that the emulator cannot continue, for a limit of its own."""
    return QueueFault(FindingKind.DEFECT, "".join(traceback.format_exception(error)).rstrip())
