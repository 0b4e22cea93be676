"""Events of a device, for which threads sleep: interrupts of its queues, and faults that the kernel reports.

Each device has three events: SIGNAL, which its queues raise, and MEMORY and HW_EXCEPTION, which the kernel
raises for faults of any GPU of the process. A wait for an event consumes its report, so `Events` keeps the
report. No wait relies on an interrupt alone: it has a time limit, and its caller reads memory again.

Not here: the text of fault reports (`faults`), the ioctls (`kfd`). Next: `device`, the user.
"""

from __future__ import annotations

import contextlib
import threading
from typing import Final

from drivers.amd.layouts.events import (
    EventType,
    kfd_event_data,
    kfd_hsa_hw_exception_data,
    kfd_hsa_memory_exception_data,
)
from drivers.amd.memory import AmdMemories
from drivers.amd.process import AmdProcess
from hcq.errors import DriverError

_ENTRY: Final = kfd_event_data.SIZE
Report = kfd_hsa_memory_exception_data | kfd_hsa_hw_exception_data
"""A report of the kernel: a memory fault, or a reset."""


class Events:
    """The events of one device. Thread-safe. It owns them; `close` destroys them.

    Raises `DriverError` or `OutOfMemoryError` if the kernel refuses an event; methods raise `DriverError`.
    """

    def __init__(self, process: AmdProcess, memories: AmdMemories) -> None:
        self._process = process
        self._gpu_id = memories.gpu_id
        self._lock = threading.Lock()
        self._sleepers = 0
        self._reports: list[Report] = []
        with contextlib.ExitStack() as stack:
            numbers = []
            for kind in (EventType.SIGNAL, EventType.MEMORY, EventType.HW_EXCEPTION):
                event = process.create_event(kind, memories)
                stack.callback(process.destroy_event, event)
                numbers.append(event)
            self._undo = stack.pop_all()
        self.signal, self._memory, self._exception = numbers
        """`signal`: the id of the event that queues raise."""
        self.slot_va = process.slot(self.signal)
        """Device address of the slot to which queues store the id before they interrupt."""
        self._polled = self._block((self._memory, self._exception))

    def close(self) -> None:
        """Destroy the events; idempotent."""
        self._undo.close()

    def sleep(self, timeout_ms: int) -> None:
        """Sleep until a queue of an open device raises its event, a fault is reported, or the time is over.

        May also return early, as after another device was closed.
        """
        others = tuple(event for event in tuple(self._process.events) if event != self.signal)
        data = bytearray(self._block((self._memory, self._exception, self.signal, *others)))
        with self._lock:
            self._sleepers += 1
        try:
            self._process.kfd.wait_events(data, timeout_ms)
        except DriverError:
            if self._process.events.issuperset((self.signal, *others)):
                raise
            return  # another device was closed, which destroyed its event
        finally:
            with self._lock:
                self._sleepers -= 1
        self._record(data)

    @property
    def reported(self) -> bool:
        """Whether a fault or a reset was reported since the last `forget`."""
        return bool(self._reports)

    def wake(self) -> None:
        """Wake the threads in `sleep`, because the host changed memory."""
        if self._sleepers:
            self._process.kfd.set_event(self.signal)

    def poll(self) -> list[Report]:
        """Ask the kernel; return the reports about this GPU since the last `forget`, the oldest first."""
        data = bytearray(self._polled)
        self._process.kfd.wait_events(data, 0)
        self._record(data)
        return self._reports

    def forget(self) -> None:
        """Drop the reports, because the device has recovered."""
        self.poll()
        with self._lock:
            self._reports = []

    @staticmethod
    def _block(numbers: tuple[int, ...]) -> bytes:
        return b"".join(kfd_event_data.pack(event_id=number) for number in numbers)

    def _record(self, data: bytearray) -> None:
        """Store the reports of the first two entries that fired; an entry that fired names a GPU."""
        memory = kfd_hsa_memory_exception_data.from_bytes(data)
        exception = kfd_hsa_hw_exception_data.from_bytes(data, _ENTRY)
        if memory.gpu_id or exception.gpu_id:
            found = [report for report in (memory, exception) if report.gpu_id == self._gpu_id]
            with self._lock:
                self._reports = [*self._reports, *found]
