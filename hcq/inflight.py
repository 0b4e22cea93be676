"""Submissions in flight: the objects that each keeps alive, and the commands among them.

A direct submission keeps a list of commands and values, a replay keeps a `Kept`.

Not here: the list of submissions (`queue`). Next: `hcq.faults.recovery` and `hcq.faults.messages`, which read
it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import NamedTuple, Protocol

from hcq.commands import Command, Wait, operands
from hcq.memory import Buffer, Owner
from hcq.params import Param
from hcq.process import OpenQueue
from hcq.signal import Point, Signal


class Recorded(Protocol):
    """An object with commands; implemented by `hcq.replay.slot.Segment`."""

    commands: list[Command]


class Kept(NamedTuple):
    """The objects that a replay in flight keeps alive."""

    given: list[object]
    """The values of `params`. Changed in place, but only while no replay is in flight."""
    segments: Sequence[Recorded]
    params: tuple[Param, ...]
    memories: tuple[Buffer, ...]
    waits: tuple[Wait, ...] = ()
    """The waits of its ring words; only for an executable with several devices."""
    recorded: tuple[Wait, ...] = ()
    """The waits among the commands of `segments`, which are read at each poll."""


def commands_of(inflight: Iterable[Sequence[object]]) -> Iterator[Command]:
    """Yield the commands among the objects that submissions keep."""
    for kept in inflight:
        if isinstance(kept, Kept):
            yield from kept.waits
            for segment in kept.segments:
                yield from segment.commands
        else:
            yield from (one for one in kept if isinstance(one, Command))


def using(device: Owner, queues: Iterable[OpenQueue]) -> list[Point]:
    """Return the points of the work in flight in queues that uses memory of a device."""
    found = []
    for point, kept in [one for queue in queues for one in queue.inflight()]:
        given = (*kept.given, *kept.memories) if isinstance(kept, Kept) else kept
        every = chain(given, *map(operands, commands_of([kept])))
        if any(isinstance(one, Buffer) and one.device is device for one in every):
            found.append(point)
    return found


def unmet(kept: Sequence[object]) -> Iterator[tuple[Signal, int]]:
    """Yield signal and slot value of each wait of a submission that is not over, from what it keeps."""
    for command in (*kept.waits, *kept.recorded) if isinstance(kept, Kept) else kept:
        if isinstance(command, Wait) and isinstance(command.value, int):
            signal, value = command.signal, command.value
            if signal.value - signal.base < value:
                yield signal, value


def awaited(queues: Iterable[OpenQueue]) -> Iterator[object]:
    """Yield the devices of the signals that the work in flight in these queues still waits for."""
    for kept in [kept for queue in queues for _, kept in queue.inflight()]:
        yield from (signal.device for signal, _ in unmet(kept))
