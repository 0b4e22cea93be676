"""Deadlock detection: simulates the submissions in flight, and finds the waits that nothing can end.

A wait may be submitted before the submission that raises its signal, so an unmet wait alone is no error. It
is a deadlock when everything that could raise a signal or submit is itself blocked:

- every queue of a validated device is empty, or blocked at a wait that the simulation does not meet;
- every thread of the process is blocked, in `Signal.wait` or for room in a ring, on something the simulation
  does not provide, and without a timeout. Threads of drivers, named "hcq ...", are not counted; any other
  live thread may still submit;
- no queue of an open device without validation has work in flight: which signals that raises is not known.

So a program with an idle thread of its own is never refused; its waits end by their timeouts (ADR 0013).

Not here: the text of the wait graph (`hcq.faults.messages`). Next: `validator`, the caller.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from hcq.faults.messages import called
from hcq.process import open_devices
from hcq.signal import LOST

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from hcq.signal import Point, Signal
    from hcq.validate.hazards import Draft
    from hcq.validate.watch import Line

ANY = 1 << 65
"""Stands for an unknown value of a slot: it meets every wait."""
DRIVER_THREAD = "hcq "
"""Prefix of the names of drivers' threads."""


class HostWait(NamedTuple):
    """A thread that waits until a signal's slot holds at least `value`."""

    signal: Signal
    value: int

    def __str__(self) -> str:
        return f"{called(self.signal)} >= {self.value + self.signal.base}, now {self.signal.value}"


class RoomWait(NamedTuple):
    """A thread that waits for room in a ring."""

    queue: Line
    words: int
    """Ring words of the submission that does not fit."""

    def __str__(self) -> str:
        return f"room in the ring of {self.queue.label}"


@dataclass(slots=True)
class Pending:
    """A submission in flight: its waits and sets, the point that ends it, and its words in the ring."""

    queue: Line
    label: str
    events: list[tuple[bool, Signal, int]]
    """(whether it waits, signal, slot value) in order."""
    point: Point
    words: int


@dataclass(slots=True)
class Outcome:
    """How far the simulation got."""

    reached: dict[Signal, int] = field(default_factory=dict)
    """Slot values that were raised."""
    blocked: dict[Line, tuple[Pending, Signal, int]] = field(default_factory=dict)
    """Queue -> the submission that it is blocked in, and the signal and slot value that this waits for."""


class WaitGraph:
    """The waits and sets in flight on validated devices, and the threads that wait."""

    def __init__(self) -> None:
        self._pending: list[Pending] = []
        self._hosts: dict[int, HostWait | RoomWait] = {}
        """What each waiting thread, by identity, waits for."""

    def commit(self, draft: Draft, point: Point, words: int) -> None:
        """Enter a submission that was sent."""
        events = [*draft.events, (False, point.signal, point.value - point.signal.base)]
        self._pending = [one for one in self._pending if not one.point.passed()]
        self._pending.append(Pending(draft.queue, draft.label, events, point, words))

    def recovered(self, queues: Sequence[Line]) -> None:
        """Drop what was in flight in these queues: after a recovery it is done, or lost."""
        self._pending = [one for one in self._pending if one.queue not in queues]

    def block(self, wait: HostWait | RoomWait) -> None:
        """Note what this thread waits for."""
        self._hosts[threading.get_ident()] = wait

    def unblock(self) -> None:
        """Note that this thread waits no more."""
        self._hosts.pop(threading.get_ident(), None)

    def simulate(self) -> Outcome:
        """Run every queue's waits and sets in order until no queue can advance."""
        out = Outcome()
        lines: dict[Line, list[tuple[Pending, tuple[bool, Signal, int]]]] = {}
        for pending in self._pending:
            lines.setdefault(pending.queue, []).extend((pending, event) for event in pending.events)
        at = dict.fromkeys(lines, 0)
        advanced = True
        while advanced:
            advanced = False
            for queue, line in lines.items():
                while at[queue] < len(line):
                    _, (waits, signal, value) = line[at[queue]]
                    if waits and _slot_value(out, signal) < value:
                        break
                    if not waits:
                        out.reached[signal] = max(_slot_value(out, signal), value)
                    at[queue] += 1
                    advanced = True
        for queue, line in lines.items():
            if at[queue] < len(line):
                pending, (_, signal, value) = line[at[queue]]
                out.blocked[queue] = (pending, signal, value)
        return out

    def ends(self, out: Outcome, wait: HostWait | RoomWait) -> bool:
        """Return whether work in flight ends a thread's wait; True also where that is not known."""
        if isinstance(wait, HostWait):
            return _slot_value(out, wait.signal) >= wait.value
        queue = wait.queue
        if queue not in out.blocked:
            return True
        line = [one for one in self._pending if one.queue is queue]
        behind = line[line.index(out.blocked[queue][0]) + 1 :]
        # A queue blocked at a wait still holds, in its ring, that wait and the end of its submission.
        least = 1 + queue.ending_words + sum(one.words for one in behind)
        return least + wait.words <= queue.ring.words and len(behind) + 2 <= queue.ring.submissions

    def may_progress(self, out: Outcome) -> bool:
        """Return whether a thread, or a queue that is not validated, may still submit or raise a signal."""
        for thread in threading.enumerate():
            if not thread.name.startswith(DRIVER_THREAD):
                wait = self._hosts.get(thread.ident or 0)
                if wait is None or self.ends(out, wait):
                    return True
        return any(
            not queue.timeline.last.passed()
            for device in open_devices()
            if device.watch is None or not device.watch.check
            for queue in device.queues
        )

    def text(self, outcome: Outcome) -> list[str]:
        """Return the wait graph as text: one line for each blocked queue, one for each thread that waits."""
        lines = [
            f"{queue.label}: {pending.label or 'a submission'} waits for {HostWait(signal, value)}; "
            f"{self._raiser(outcome, signal, value)}"
            for queue, (pending, signal, value) in outcome.blocked.items()
        ]
        return [*lines, *self._threads()]

    def _threads(self) -> Iterator[str]:
        for thread in threading.enumerate():
            wait = self._hosts.get(thread.ident or 0)
            if wait is not None and thread is not threading.current_thread():
                yield f"thread {thread.name} waits for {wait}"

    @staticmethod
    def _raiser(outcome: Outcome, signal: Signal, value: int) -> str:
        for pending, _, _ in outcome.blocked.values():
            if any(not waits and one is signal and to >= value for waits, one, to in pending.events):
                who = pending.label or "a submission"
                return f"raised by {who} on {pending.queue.label}, which waits itself"
        if signal in LOST:
            return f"what was to raise it is lost: {LOST[signal][1]()}"
        return "nothing submitted raises it" + (", the host may" if signal.host_set else "")


def _slot_value(out: Outcome, signal: Signal) -> int:
    """Return what a signal's slot holds after the simulation."""
    if getattr(signal.device, "watch", None) is None:
        return ANY  # a device without validation: what raises its signals is not known
    return max(out.reached.get(signal, 0), signal.value - signal.base)
