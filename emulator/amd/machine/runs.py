"""The interfaces between the machine and its engines: `Engines` makes a `QueueRun` for each queue.

The machine decides which queues run and what faults do; a run reads its ring and executes it. Not here: the
order of steps (`emulator.shared.scheduler`), packets (the engines).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from emulator.shared.scheduler import ScheduledQueue

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from emulator.amd.kfd.gpu import KfdBuffer
    from emulator.amd.kfd.queues import QueueObject
    from emulator.amd.machine.machine import AmdMachine
    from emulator.amd.reports import MemoryFault, QueueFault


class QueueRun(ScheduledQueue, Protocol):
    """One queue being executed; all methods are called with the machine's lock held."""

    @property
    def queue(self) -> QueueObject:
        """The kernel driver's object."""

    @property
    def busy(self) -> bool:
        """Whether work is left."""

    @property
    def in_background(self) -> bool:
        """Whether a kernel of it runs on a thread of its own now."""

    @property
    def at(self) -> str:
        """Which packet is being executed, for reports; empty where none is."""

    def standing(self) -> str:
        """Return the packet at which it stands and, if it waits, for what and what is seen."""

    def rung(self, value: int) -> None:
        """Take a store to the queue's doorbell."""

    def changed(self) -> None:
        """Handle a new ring or reactivation: read the write pointer again."""

    def memory_gone(self, buffer: KfdBuffer) -> None:
        """Handle the unmapping of a buffer, before it happens; may raise a `QueueFault`."""

    def stopped(self, error: QueueFault | MemoryFault) -> None:
        """Give up all work: the queue never runs again."""

    def close(self) -> None:
        """Release what it holds: the queue is destroyed."""


class Engines(Protocol):
    """Makes and judges runs."""

    def make(self, machine: AmdMachine, queue: QueueObject) -> QueueRun:
        """Return what executes a new queue."""

    def close(self) -> None:
        """Release what belongs to a closing machine; it may be used again."""

    def endless_waits(self, stuck: Sequence[QueueRun]) -> Mapping[QueueRun, str]:
        """Return which runs wait for what can never come, and why; changes nothing."""
