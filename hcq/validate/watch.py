"""The interfaces between devices and the validation layer.

Devices and queues call a `Watch`, which `hcq.validate.validator` implements. The layer reads queues through
`ValidatedQueue`, which `hcq.queue` implements. Neither module imports the other.

Next: `validator`, the implementation.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from hcq.commands import Command
    from hcq.driver import Ring
    from hcq.hardware import DeviceInfo
    from hcq.heap import Block, FreeList, Pool
    from hcq.memory import Buffer, Owner
    from hcq.params import Param, Value
    from hcq.signal import Point, Signal, Timeline
    from hcq.validate.guards import Guards

    class ValidatedDevice(Owner, Protocol):
        """The device of a queue."""

        info: DeviceInfo


class ValidatedQueue(Protocol):
    """The part of a queue that validation uses; `hcq.queue.Queue` implements it."""

    number: int
    """Unique among all queues that this process ever had."""
    label: str
    ring: Ring
    timeline: Timeline

    @property
    def device(self) -> ValidatedDevice:
        """The device of the queue."""

    @property
    def ending_words(self) -> int:
        """Number of words that end a direct submission."""


class Watch(Protocol):
    """The validation layer of a device; `hcq.validate.validator.Validator` implements it."""

    check: bool
    """Whether it checks submissions; otherwise it only reorders kernels."""
    guards: Guards

    def check_submission(
        self, queue: ValidatedQueue, label: str, todo: list[Command], values: Mapping[Param, Value] | None
    ) -> list[Command]:
        """Return the commands of a submission, unordered kernels shuffled.

        Raises `UsageError` if it is wrong.
        """

    def reorder(self, commands: list[Command]) -> list[Command]:
        """Return the commands with each sequence of kernels without a barrier between them shuffled."""

    def not_sent(self, queue: ValidatedQueue) -> None:
        """Drop the submission checked last on this queue, which was not sent."""

    def sent(self, queue: ValidatedQueue, point: Point) -> None:
        """Record that the submission checked last on this queue was sent, and lies last in its ring."""

    def drop_in_flight(self, queues: Sequence[ValidatedQueue]) -> None:
        """Drop the work in flight in these queues, whose device recovered or is closed."""

    def check_wait(self, signal: Signal, value: int) -> None:
        """Record that this thread waits for a slot >= `value`. Raises `UsageError` for a deadlock."""

    def check_room(self, queue: ValidatedQueue, until: int) -> None:
        """Record that this thread waits until the queue has read `until` units of its ring (`Ring.taken`).

        Raises `UsageError` for a deadlock.
        """

    def wait_ended(self) -> None:
        """Record that this thread has stopped waiting."""

    def host_observed(self, signal: Signal, value: int) -> None:
        """Order later submissions after the work that raised the slot of `signal` to `value`."""

    def check_overruns(self) -> None:
        """Check all guard zones of the device. Raises `UsageError` if a buffer was overrun."""

    def raise_overruns(self) -> None:
        """Raise `UsageError` if overruns were found that no error has reported yet."""

    def wait_graph(self) -> list[str]:
        """Return one line of text for each queue that cannot continue, with the reason."""

    def take(self, pool: Pool, size: int, label: str) -> tuple[Block, FreeList]:
        """Take the block of a new buffer from a pool, with a guard zone where one fits."""

    def allocated(self, buffer: Buffer) -> None:
        """Record a buffer for fault reports, and the line that drops it."""

    def nearest(self, va: int) -> str:
        """Return a text that names the buffer nearest to `va`; an open one before a freed one."""
