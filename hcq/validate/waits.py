"""Deadlock detection: it simulates the submissions in flight, and finds waits that nothing can end.

A wait may be submitted before the submission that raises its signal, so an unsatisfied wait alone is no
error. It is a deadlock when everything that could raise a signal or submit is blocked:

- every queue of a validated device is empty, or blocked at a wait that the simulation does not satisfy;
- every thread of the process is blocked without a timeout, in `Signal.wait` or for ring space, on something
  that the simulation does not provide. Threads of drivers, named "hcq ...", are not counted; any other live
  thread may still submit;
- no queue of an open device without validation has work in flight, as the signals that it raises are unknown.

A program with an idle thread of its own is therefore never refused; its waits end by their timeouts (ADR 13).

Not here: the text of the wait graph (`hcq.faults.messages`). Next: `validator`, the caller.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from hcq.faults.messages import signal_name
from hcq.process import OpenQueue, open_devices
from hcq.signal import LOST, Point, Signal
from hcq.validate.hazards import Draft, checked

ANY = 1 << 65
"""The assumed value of a slot whose value is unknown; it satisfies every wait."""
DRIVER_THREAD = "hcq "
"""Prefix of the thread names that drivers use."""


class HostWait(NamedTuple):
    """The wait of a thread until the slot of a signal is >= `value`."""

    signal: Signal
    value: int

    def __str__(self) -> str:
        return f"{signal_name(self.signal)} >= {self.value + self.signal.base}, now {self.signal.value}"


class RoomWait(NamedTuple):
    """The wait of a thread for space in a ring."""

    queue: OpenQueue
    until: int
    """The units of the ring that must have been read before there is space; counted as `Ring.taken`."""

    def __str__(self) -> str:
        return f"room in the ring of {self.queue.label}"


@dataclass(slots=True)
class Pending:
    """A submission in flight."""

    queue: OpenQueue
    label: str
    events: list[tuple[bool, Signal, int]]
    """(whether it waits, signal, slot value) in order."""
    point: Point
    """The point at its end."""
    end: int
    """`Ring.taken` after it."""


@dataclass(slots=True)
class Outcome:
    """The state in which no simulated queue can advance."""

    reached: dict[Signal, int] = field(default_factory=dict)
    """The slot values that signals reached."""
    blocked: dict[OpenQueue, tuple[Pending, Signal, int]] = field(default_factory=dict)
    """Queue -> (submission that blocks it, signal that this waits for, slot value)."""


class WaitGraph:
    """The waits and signal stores in flight on validated devices, and the threads that wait."""

    def __init__(self) -> None:
        self._pending: list[Pending] = []
        self._hosts: dict[int, HostWait | RoomWait] = {}
        """The wait of each blocked thread, by thread identity."""

    def commit(self, draft: Draft, point: Point) -> None:
        """Enter a submission that was sent, ends at `point`, and lies last in its ring."""
        events = [*draft.events, (False, point.signal, point.value - point.signal.base)]
        self._pending = [one for one in self._pending if not one.point.passed()]
        self._pending.append(Pending(draft.queue, draft.label, events, point, draft.queue.ring.taken))

    def drop_in_flight(self, queues: Sequence[OpenQueue]) -> None:
        """Drop the work in flight in these queues, which is complete or lost."""
        self._pending = [one for one in self._pending if one.queue not in queues]

    def block(self, wait: HostWait | RoomWait) -> None:
        """Record the wait of this thread."""
        self._hosts[threading.get_ident()] = wait

    def unblock(self) -> None:
        """Record that this thread has stopped waiting."""
        self._hosts.pop(threading.get_ident(), None)

    def simulate(self) -> Outcome:
        """Execute the waits and stores of all queues until no queue can advance; return the state then."""
        out = Outcome()
        lines: dict[OpenQueue, list[tuple[Pending, tuple[bool, Signal, int]]]] = {}
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
        """Return whether the work in flight ends the wait of a thread; True if that is unknown."""
        if isinstance(wait, HostWait):
            return _slot_value(out, wait.signal) >= wait.value
        queue = wait.queue
        if queue not in out.blocked:
            return True
        # A queue blocked at a wait never reads the end of that submission, nor later ones.
        at, _, _ = out.blocked[queue]
        return wait.until <= at.end - queue.ring.unread(queue.ending_words)

    def may_progress(self, out: Outcome) -> bool:
        """Return whether some thread, or a queue without validation, may still submit or raise a signal."""
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
        """Return the wait graph: one line of text for each blocked queue and each blocked thread."""
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
                return f"raised by {who} on {pending.queue.label}, which is waiting too"
        if signal in LOST:
            return f"the work that would raise it is lost: {LOST[signal][1]()}"
        return "nothing submitted raises it" + (", the host may" if signal.host_set else "")


def _slot_value(out: Outcome, signal: Signal) -> int:
    """Return the value of a signal's slot after the simulation."""
    if not checked(signal):
        return ANY  # its device has no validation: the work that raises it is unknown
    return max(out.reached.get(signal, 0), signal.value - signal.base)
