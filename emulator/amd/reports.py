"""Faults that stop queues of the emulated AMD GPU.

As on hardware, a `MemoryFault` evicts every queue of the process on its GPU, and fires MEMORY events. A
`QueueFault` stops one queue with an exception code. The machine makes a `MachineReport` of either.

Not here: refusals of ioctls (`emulator.amd.kfd.refusal`), the report (`emulator.shared.machine_report`).
Next: `emulator.amd.engines.errors`, which makes the faults.
"""

from __future__ import annotations

import traceback

from drivers.amd.layouts.events import QueueException
from emulator.shared.machine_report import FindingKind, MachineReport, QueueError
from emulator.shared.vaspace import AccessKind, Miss

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
