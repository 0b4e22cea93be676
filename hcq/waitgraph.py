"""Which waits can still be met: the submissions in flight are played forward, as far as signals let them."""

from __future__ import annotations

import weakref
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from hcq.commands import SetSignal
from hcq.signal import LOST

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from hcq.commands import CommandBuffer
    from hcq.hazards import Draft
    from hcq.queue import Queue
    from hcq.signal import Point, Signal

ANY = 1 << 64
"""More than any slot holds."""
Event = tuple[bool, "Signal", int]


@dataclass(slots=True)
class Pending:
    """A submission in flight: its waits and sets, and the point that ends it."""

    queue: Queue
    label: str
    events: list[Event]
    point: Point | None


@dataclass(slots=True)
class Outcome:
    """How far the queues come."""

    reached: dict[Signal, int] = field(default_factory=dict)
    blocked: dict[Queue, tuple[Pending, Signal, int]] = field(default_factory=dict)


class WaitGraph:
    """The waits and sets in flight on validated devices, and what is recorded but not submitted."""

    def __init__(self) -> None:
        self._pending: list[Pending] = []
        self._recorded: weakref.WeakSet[CommandBuffer] = weakref.WeakSet()

    def recorded(self, commands: CommandBuffer) -> None:
        """Count what a command buffer sets as possible as long as it exists."""
        self._recorded.add(commands)

    def commit(self, draft: Draft, point: Point) -> None:
        """Enter a submission that was sent."""
        if draft.source is not None:
            self._recorded.discard(draft.source)
        events = [*draft.events, (False, point.signal, point.value - point.signal.base)]
        self._pending = [one for one in self._pending if one.point is not None and not one.point.passed()]
        self._pending.append(Pending(draft.queue, draft.label, events, point))

    def recovered(self, queues: Sequence[Queue]) -> None:
        """Forget what was in flight in these queues: it is done, or lost."""
        self._pending = [one for one in self._pending if one.queue not in queues]

    def play(self, more: Pending | None = None, *, without: CommandBuffer | None = None) -> Outcome:
        """Play everything in flight, and one submission more that was recorded in `without`, forward."""
        out = Outcome(self._possible(without))
        lines: dict[Queue, list[tuple[Pending, Event]]] = {}
        for pending in [*self._pending, *([more] if more else [])]:
            lines.setdefault(pending.queue, []).extend((pending, event) for event in pending.events)
        at = dict.fromkeys(lines, 0)
        moved = True
        while moved:
            moved = False
            for queue, line in lines.items():
                while at[queue] < len(line):
                    _, (waits, signal, value) = line[at[queue]]
                    if waits and self._value(out, signal) < value:
                        break
                    if not waits:
                        out.reached[signal] = max(self._value(out, signal), value)
                    at[queue] += 1
                    moved = True
        for queue, line in lines.items():
            if at[queue] < len(line):
                pending, (_, signal, value) = line[at[queue]]
                out.blocked[queue] = (pending, signal, value)
        return out

    def _possible(self, without: CommandBuffer | None) -> dict[Signal, int]:
        """Return what command buffers that were not submitted may set."""
        out: dict[Signal, int] = {}
        for commands in self._recorded.difference([without] if without else []):
            for command in commands:
                if isinstance(command, SetSignal):
                    value = command.value if isinstance(command.value, int) else ANY
                    out[command.signal] = max(out.get(command.signal, 0), value)
        return out

    @staticmethod
    def _value(out: Outcome, signal: Signal) -> int:
        if signal.host_set or getattr(signal.device, "watch", None) is None:
            return ANY
        return max(out.reached.get(signal, 0), signal.value - signal.base)

    def text(self, outcome: Outcome) -> list[str]:
        """Return the wait graph in words, a line a queue that cannot go on."""
        return [
            f"{queue.label}: {pending.label or 'a submission'} waits for {name(signal)} "
            f">= {value + signal.base}, now {signal.value}; "
            f"{self._raiser(outcome.blocked.values(), signal, value)}"
            for queue, (pending, signal, value) in outcome.blocked.items()
        ]

    @staticmethod
    def _raiser(blocked: Iterable[tuple[Pending, Signal, int]], signal: Signal, value: int) -> str:
        for pending, _, _ in blocked:
            if any(not waits and one is signal and to >= value for waits, one, to in pending.events):
                who = pending.label or "a submission"
                return f"raised by {who} on {pending.queue.label}, which waits itself"
        if signal in LOST:
            return f"what was to raise it is lost: {LOST[signal][1]()}"
        return "nothing recorded or submitted raises it, and the host may not (host_set=False)"


def name(signal: Signal) -> str:
    """Return what to call a signal."""
    return signal.label or f"the signal at {signal.va:#x}"
