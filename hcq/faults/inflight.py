"""Submissions in flight: the objects that each keeps alive, and how to find the commands among them.

A direct submission keeps a list of commands and values, a replay keeps a `Kept`. Not here: the list itself
(`hcq.queue`, `hcq.replay.executable`). Next: `recovery` and `messages`, which read it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

from hcq.commands import Command, Wait

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from hcq.memory import Buffer
    from hcq.params import Param
    from hcq.signal import Point


class Recorded(Protocol):
    """What holds commands: a `Segment`."""

    commands: list[Command]


class BusyQueue(Protocol):
    """A queue with work in flight: a `Queue`."""

    def inflight(self) -> Sequence[tuple[Point, Sequence[object]]]:
        """Return (point, what it keeps) of every submission not known to be done."""
        ...


class Kept(NamedTuple):
    """What a replay in flight keeps. A direct submission keeps a list: commands, and values beside them."""

    given: list[object]
    """The values of `params`; changed in place, and only when no replay is in flight."""
    segments: Sequence[Recorded]
    params: tuple[Param, ...]
    memories: tuple[Buffer, ...]
    waits: tuple[Wait, ...] = ()
    """What its ring words wait for; given only where several devices take part."""


def commands_of(inflight: Iterable[Sequence[object]]) -> Iterator[Command]:
    """Yield the commands among what submissions keep."""
    for kept in inflight:
        if isinstance(kept, Kept):
            yield from kept.waits
            for segment in kept.segments:
                yield from segment.commands
        else:
            yield from (one for one in kept if isinstance(one, Command))


def awaited(queues: Iterable[BusyQueue]) -> Iterator[object]:
    """Yield the owners of the signals that the work in flight in some queues still waits for."""
    for command in commands_of(kept for queue in queues for _, kept in queue.inflight()):
        if isinstance(command, Wait) and isinstance(command.value, int):
            signal = command.signal
            if signal.value - signal.base < command.value:
                yield signal.device
