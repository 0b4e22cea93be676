"""The seam between devices and the validation layer: what each needs of the other.

Devices and queues use a `Watch`; the layer uses queues as `Line`s. `hcq.validate.validator` implements the
first, `hcq.queue` the second, and neither imports the other.

Next: `validator`, the implementation.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from hcq.commands import Command
    from hcq.driver import Ring
    from hcq.hardware import DeviceInfo
    from hcq.memory import Buffer, Owner
    from hcq.params import Param, Value
    from hcq.signal import Point, Signal, Timeline
    from hcq.validate.guards import Guards

    class DeviceOfLine(Owner, Protocol):
        """The device of a queue."""

        info: DeviceInfo


class Line(Protocol):
    """A queue, as far as validation needs it: a `Queue`."""

    number: int
    """Distinguishes it from all other queues of this process, also those that are gone."""
    label: str
    ring: Ring
    timeline: Timeline

    @property
    def device(self) -> DeviceOfLine:
        """The device of the queue."""
        ...

    @property
    def ending_words(self) -> int:
        """How many words end a direct submission."""
        ...


class Watch(Protocol):
    """The validation layer of one device, as far as the device needs it: a `Validator`."""

    check: bool
    """Whether it checks; it may also reorder kernels only."""
    guards: Guards
    guard_bytes: int
    """Bytes that a buffer's block has beyond the requested size."""

    def submission(
        self, queue: Line, label: str, todo: list[Command], values: Mapping[Param, Value] | None
    ) -> list[Command]:
        """Refuse what is wrong with a submission; return its commands, reordered where they may be."""
        ...

    def reorder(self, commands: list[Command]) -> list[Command]:
        """Return the commands with every run of neighbours that may overlap in another order."""
        ...

    def refused(self, queue: Line) -> None:
        """Drop the submission that was checked last on this queue: it was not sent."""
        ...

    def sent(self, queue: Line, point: Point, words: int) -> None:
        """Enter the submission that was checked last on this queue: so many words, which end at `point`."""
        ...

    def ended(self, queues: Sequence[Line]) -> None:
        """Drop what was in flight in the rings of a device: it recovered, or is closed."""
        ...

    def waiting(self, signal: Signal, value: int) -> None:
        """Note that this thread waits for a signal's slot; raise `UsageError` when nothing can raise it."""
        ...

    def stalled(self, queue: Line, words: int) -> None:
        """Note that this thread waits for room in a ring; raise `UsageError` when none can come."""
        ...

    def woke(self) -> None:
        """Note that this thread waits no more."""
        ...

    def saw(self, signal: Signal, value: int) -> None:
        """Order what is submitted from now on after what raised `signal` to `value`: the host saw it."""
        ...

    def look(self) -> None:
        """Raise `UsageError` when a buffer of the device was overrun."""
        ...

    def tell(self) -> None:
        """Raise `UsageError` with the overruns that were found and not reported yet."""
        ...

    def wait_graph(self) -> list[str]:
        """Return, as text, which queues cannot continue, and why."""
        ...

    def allocated(self, buffer: Buffer) -> None:
        """Record a buffer, and where it is dropped, for fault reports."""
        ...

    def nearest(self, va: int) -> str:
        """Return, as text, which buffer, alive or freed, is nearest to an address; alive ones first."""
        ...
