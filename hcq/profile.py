"""Device time on the host's time axis, spans of commands, and their Chrome trace.

Not here: when a device traces (`device`), the clock itself (`hcq.driver.DriverDevice.clock`). Next:
docs/profiling.md.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

from hcq.commands import Command, Timestamp
from hcq.errors import UsageTypeError
from hcq.signal import Stamp


@dataclass(frozen=True, slots=True)
class Clock:
    """The relation of a device clock of `hz` ticks a second to the host: at `ticks` it was `host_ns`.

    `host_ns` is CLOCK_MONOTONIC in nanoseconds.
    """

    ticks: int
    host_ns: int
    hz: int

    def to_ns(self, ticks: int) -> int:
        """Return the CLOCK_MONOTONIC nanoseconds of a device time in ticks.

        Raises `UsageTypeError` for ticks that are no int.
        """
        if not isinstance(ticks, int):
            raise UsageTypeError(f"wanted ticks as an int, seen {ticks!r}")
        return self.host_ns + (ticks - self.ticks) * 1_000_000_000 // self.hz


_READINGS: Final = 4
"""Readings of a device clock, of which `tie` uses the fastest."""


def tie(read: Callable[[], int], hz: int, *, host_ns: Callable[[], int] = time.monotonic_ns) -> Clock:
    """Return the relation of a device clock of `hz` ticks a second to the host's CLOCK_MONOTONIC.

    `read` returns the device time in ticks. It is called several times, each between two readings of the host
    clock; the fastest one counts, with the middle of its interval as the host time. `host_ns` returns
    CLOCK_MONOTONIC in nanoseconds. Raises the errors of `read`.
    """
    readings: list[tuple[int, int, int]] = []
    for _ in range(_READINGS):
        before = host_ns()
        ticks = read()
        after = host_ns()
        readings.append((after - before, ticks, (before + after) // 2))
    _, ticks, middle = min(readings)
    return Clock(ticks=ticks, host_ns=middle, hz=hz)


@dataclass(frozen=True, slots=True)
class Span:
    """The execution of a command or submission on a queue; times are CLOCK_MONOTONIC nanoseconds."""

    name: str
    queue: str
    """`Queue.label`, such as "compute 0 of cpu:0"."""
    start_ns: int
    end_ns: int


Timed = tuple[str, "Stamp", "Stamp"]
"""A span to be measured: its name, and the time records at its start and end."""


def timed(commands: Sequence[Command], *, each: bool, whole: str = "") -> tuple[list[Command], list[Timed]]:
    """Return the commands with time records among them, and the spans that the records measure.

    `each`: records around every command that its class declares `timed`; such commands then run one after
    another, as a record is written when all commands before it are done. `whole`: the name of a span around
    all commands; empty: none.
    """
    out: list[Command] = []
    spans: list[Timed] = []
    for command in commands if each else ():
        name = command.span_name()
        if not name:
            out.append(command)
            continue
        begin, end = Stamp(), Stamp()
        out += (Timestamp(begin), command, Timestamp(end))
        spans.append((name, begin, end))
    if not each:
        out += commands
    if whole:
        begin, end = Stamp(), Stamp()
        spans.append((whole, begin, end))
        out = [Timestamp(begin), *out, Timestamp(end)]
    return out, spans


class ClockedDevice(Protocol):
    """The part of a device that span logs use; `hcq.device.Device` implements it."""

    def clock(self) -> Clock:
        """Return the relation of the device clock to the host's, measured now."""


class TimedQueue(Protocol):
    """The part of a queue that span logs use; `hcq.queue.Queue` implements it."""

    label: str

    @property
    def device(self) -> ClockedDevice:
        """The device of the queue."""


PENDING = 4096
"""Submissions with unread time records that a log collects before it reads the written ones by itself."""


class SpanLog:
    """The spans of the submissions of one device. Thread-safe.

    `keep`: completed spans are also kept for `take_kept`, which the trace uses, independent of `take`.
    """

    def __init__(self, *, keep: bool) -> None:
        self.pending: list[tuple[TimedQueue, list[Timed]]] = []
        """Submissions with unread time records. Changed in place only, as other threads append to it."""
        self._most = PENDING
        """Length of `pending` at which `expect` reads."""
        self._keep = keep
        self._done: list[Span] = []
        """Completed spans that `take` has not returned yet."""
        self._kept: list[Span] = []

    def expect(self, queue: TimedQueue, spans: list[Timed]) -> None:
        """Register the spans of a submission to `queue`. A full log reads the clock, which may raise."""
        self.pending.append((queue, spans))
        if len(self.pending) >= self._most:
            self.read(queue.device.clock())
            self._most = max(PENDING, 2 * len(self.pending))

    def read(self, clock: Clock) -> None:
        """Convert the time records that are written into spans."""
        pending = self.pending[:]
        del self.pending[: len(pending)]
        done: list[Span] = []
        for queue, spans in pending:
            left = [span for span in spans if not span[2].ticks]
            if left:
                self.pending.append((queue, left))
            done += [
                Span(name, queue.label, clock.to_ns(begin.ticks), clock.to_ns(end.ticks))
                for name, begin, end in spans
                if end.ticks
            ]
        self._done += done
        if self._keep:
            self._kept += done

    def take(self) -> list[Span]:
        """Return the spans completed since the last call, ordered by start time."""
        out, self._done = sorted(self._done, key=lambda span: (span.start_ns, -span.end_ns)), []
        return out

    def take_kept(self) -> list[Span]:
        """Return the completed spans that are not in a trace yet."""
        out, self._kept = self._kept, []
        return out

    def drop_lost(self) -> None:
        """Drop the spans whose work a fault ended."""
        self.pending[:] = [
            (queue, written)
            for queue, spans in self.pending
            if (written := [span for span in spans if span[2].ticks])
        ]


def chrome_trace(spans: Iterable[Span]) -> str:
    """Return a trace for chrome://tracing and Perfetto as JSON: one process a device, one thread a queue."""
    import json  # noqa: PLC0415 - only here

    events: list[dict[str, object]] = []
    rows: dict[str, tuple[int, int]] = {}
    devices: dict[str, int] = {}
    for span in sorted(spans, key=lambda span: (span.start_ns, -span.end_ns)):
        if span.queue not in rows:
            queue, _, device = span.queue.rpartition(" of ")
            pid = devices.setdefault(device, len(devices))
            rows[span.queue] = (pid, len(rows))
            names = (("process_name", device or "host"), ("thread_name", queue or device))
            events += [
                {"name": kind, "ph": "M", "pid": pid, "tid": rows[span.queue][1], "args": {"name": name}}
                for kind, name in names
            ]
        pid, tid = rows[span.queue]
        start, length = span.start_ns / 1000, (span.end_ns - span.start_ns) / 1000
        events.append({"name": span.name, "ph": "X", "pid": pid, "tid": tid, "ts": start, "dur": length})
    return json.dumps({"traceEvents": events, "displayTimeUnit": "ns"})


_traces: dict[str, list[Span]] = {}
"""The spans traced so far, by file, of all devices of the process."""


def write_trace(path: str, spans: list[Span]) -> None:
    """Add spans to the Chrome trace of this process at `path`, and write it. Raises `OSError`."""
    _traces.setdefault(path, []).extend(spans)
    Path(path).write_text(chrome_trace(_traces[path]))
