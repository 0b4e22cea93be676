"""Device time on the host's time axis, and what to draw on it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from hcq.commands import Copy, Exec, Fill, Timestamp
from hcq.signal import Stamp

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from hcq.commands import Command


@dataclass(frozen=True, slots=True)
class Clock:
    """Ties device ticks to CLOCK_MONOTONIC: at `ticks` the host's clock showed `host_ns`."""

    ticks: int
    host_ns: int
    hz: int

    def to_ns(self, ticks: int) -> int:
        """Return the CLOCK_MONOTONIC nanoseconds of a device time."""
        return self.host_ns + (ticks - self.ticks) * 1_000_000_000 // self.hz


@dataclass(frozen=True, slots=True)
class Span:
    """What ran on a queue, and when."""

    name: str
    queue: str
    """ "compute 0 of cpu:0"."""
    start_ns: int
    """CLOCK_MONOTONIC."""
    end_ns: int


Timed = tuple[str, "Stamp", "Stamp"]
"""A name, and the time records before and after what it names."""


def timed(commands: Sequence[Command]) -> tuple[list[Command], list[Timed]]:
    """Return commands with a time record around each kernel, copy and fill, and what was so timed.

    Each record is written when all before it is done, so commands that could overlap run one after another.
    """
    out: list[Command] = []
    spans: list[Timed] = []
    for command in commands:
        name = _name(command)
        if not name:
            out.append(command)
            continue
        begin, end = Stamp(), Stamp()
        out += (Timestamp(begin), command, Timestamp(end))
        spans.append((name, begin, end))
    return out, spans


def _name(command: Command) -> str:
    """Return what a profile calls a command; empty for one that takes no time of its own."""
    match command:
        case Exec(program=program):
            return program.name
        case Copy(size=int(size)):
            return f"copy {size} bytes"
        case Fill(size=int(size)):
            return f"fill {size} bytes"
        case Copy():
            return "copy"
        case Fill():
            return "fill"
    return ""


def chrome_trace(spans: Iterable[Span]) -> str:
    """Return a trace for chrome://tracing and Perfetto: a process a device, a thread a queue."""
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
