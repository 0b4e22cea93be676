"""What the machine needs of its engines, as Protocols: `Engines` makes a `QueueRun` for each queue.

The machine decides which queues run, and handles faults. A run reads its ring and executes it. Not here: what
the engines need of the machine (`emulator.amd.engines.bus`), the order of steps
(`emulator.shared.scheduler`). Next: `machine`.
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
    """The execution of one queue; all methods are called with the machine's lock held."""

    @property
    def queue(self) -> QueueObject:
        """The kernel driver's object."""

    @property
    def busy(self) -> bool:
        """Whether the queue has packets or work in flight left."""

    @property
    def unfinished(self) -> bool:
        """Whether packets with an effect or work are left: `busy` without NOPs that end the ring."""

    @property
    def in_background(self) -> bool:
        """Whether a kernel of the queue runs on a thread of its own now."""

    @property
    def at(self) -> str:
        """The packet or work that is being executed, for reports; "" if there is none."""

    def standing(self) -> str:
        """Return, for reports, the current packet and its wait with the value that the word has."""

    def rung(self, value: int) -> None:
        """Handle a store to the queue's doorbell. Raises `QueueFault` or `MemoryFault`."""

    def changed(self) -> None:
        """Handle a new ring or reactivation: read the write pointer. Raises `QueueFault` or `MemoryFault`."""

    def memory_gone(self, buffer: KfdBuffer) -> None:
        """Handle the unmapping of a buffer, before it happens; may raise a `QueueFault`."""

    def stopped(self, error: QueueFault | MemoryFault) -> None:
        """Abandon all work: an error stopped the queue, which never runs again."""

    def close(self) -> None:
        """Release everything: the queue is destroyed."""


class Engines(Protocol):
    """Creates runs, and finds runs that wait without end."""

    def make(self, machine: AmdMachine, queue: QueueObject) -> QueueRun:
        """Return the run of a new queue."""

    def close(self) -> None:
        """Release the state of a machine that closes. The engines may be used again."""

    def endless_waits(self, stuck: Sequence[QueueRun]) -> Mapping[QueueRun, str]:
        """Return the runs that wait without end, with the reason of each; changes nothing."""
