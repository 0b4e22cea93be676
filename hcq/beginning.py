"""The beginning of a submission: waits for points, and the commands that `Queue.prepend` has left pending.

Not here: encoding and sending them (`queue`), the checks of the validation layer (`hcq.validate`). Next:
`commands`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from hcq.commandbuffer import CommandBuffer
from hcq.commands import Command, Wait, Write, operands
from hcq.errors import UsageError, UsageTypeError
from hcq.params import Word
from hcq.process import OpenDevice, OpenQueue
from hcq.signal import ANY_VALUE, LOST, Point, Signal

MOST_PENDING: Final = 16
"""Commands that `prepend` collects before they get a submission of their own."""


def check_commands(queue: OpenQueue, commands: object) -> None:
    """Raise the error of a queue that refuses work, or of commands that it does not take.

    `UsageTypeError` for another class, `UsageError` for another kind of queue.
    """
    if queue.refusal is not None:
        raise queue.refusal()
    if commands.__class__ is not CommandBuffer:
        raise UsageTypeError(
            f"{queue!r}: wanted a command buffer, seen {commands!r}\nhint: the queue's record() makes one"
        )
    if commands.kind is not queue.kind:
        raise UsageError(f"{commands!r} was given to {queue!r}\nhint: record it with that queue's record()")


def waits_for(
    queue: OpenQueue, after: Sequence[Point], poll_lost: Callable[[Signal, int], None]
) -> list[Wait]:
    """Return a Wait for each point of `after`, except the points of `queue`, whose submissions are in order.

    Points that are reached already are left out too, unless the validation layer checks the queue. Raises
    `UsageError` and `UsageTypeError` for an `after` that is no list of points, and `DeviceFault` for a point
    that was lost to a fault, or whose signal has a value that nothing has submitted.
    """
    waits = []
    try:
        after = list(after)
    except TypeError:  # a point, or an array without an axis
        raise UsageTypeError(f"after= takes a list of points, not {after!r}\nhint: after=[point]") from None
    for point in after:
        if point.__class__ is not Point:
            raise UsageError(f"after= takes points, not {point!r}")
        signal = point.signal
        if signal is not queue.timeline.signal and (queue.watch is not None or not point.passed()):
            waits.append(Wait(signal, point.value - signal.base))
    for wait in waits:
        wait.signal.check_overrun()
    if waits and LOST:
        for point in after:
            poll_lost(point.signal, point.value - point.signal.base)
    return waits


class Prepended:
    """Waits and stores that the next submission of a queue begins with. The queue's lock is held."""

    __slots__ = ("_device", "_epoch", "commands")

    def __init__(self, device: OpenDevice) -> None:
        self._device = device
        self.commands: list[Command] = []
        """The pending commands, with stores to buffers that were closed since `opened` was called."""
        self._epoch = -1
        """`Device.close_epoch` when all their buffers were open."""

    def add(self, waits: Sequence[Wait], stores: Sequence[Command]) -> None:
        """Put waits before the pending commands, and stores after them. All buffers are open.

        A pending wait goes if a new one waits for the same or a later value of its signal.
        """
        newest = {wait.signal: wait.value for wait in waits}
        self.commands = [*waits, *(one for one in self.opened() if not _within(one, newest)), *stores]
        self._epoch = self._device.close_epoch

    def opened(self) -> list[Command]:
        """Return the pending commands, without stores to buffers that were closed meanwhile."""
        if self.commands and self._epoch != self._device.close_epoch:
            self._epoch = self._device.close_epoch
            self.commands = [one for one in self.commands if not any(b.closed for b in operands(one))]
        return self.commands

    def drop_lost_waits(self) -> None:
        """Drop the waits for lost work. The device has stopped: the lock is not needed."""
        self.commands = [one for one in self.commands if one.__class__ is not Wait or one.signal not in LOST]


def _within(command: Command, newest: Mapping[Signal, Word]) -> bool:
    """Return whether a command is a wait that a newer one for the same signal covers."""
    return isinstance(command, Wait) and command.value <= newest.get(command.signal, -1)  # type: ignore[operator]  # numbers


def check_stores(commands: Sequence[Command]) -> None:
    """Raise `UsageError` for commands that `prepend` does not take: all but stores of numbers."""
    if any(command.__class__ is not Write or any(command.open_numbers()) for command in commands):
        raise UsageError(
            f"prepend takes stores of numbers alone, not {commands!r}\n"
            "hint: submit other commands, and stores of parameters"
        )


def check_waits(waits: Sequence[Wait], after: object) -> None:
    """Raise `UsageError` for waits that `prepend` does not take: those for a signal that anything may set."""
    if any(wait.signal.issued == ANY_VALUE for wait in waits):
        raise UsageError(
            f"prepend waits for points of submissions alone, not {after!r}\n"
            "hint: give other points to submit(after=)"
        )
