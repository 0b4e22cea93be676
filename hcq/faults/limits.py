"""Time limits of submissions: a submission that runs for too long is a fault of kind HANG.

Its time begins when a poll finds that the work before it in its queue is done and nothing that it waits for
is left; so a limit is late by a poll, and never early. On an emulated device only seconds count in which the
device could run (`hcq.idle.IdleTime`).

Not here: polls (`polling`), the fault (`hcq.device.Device.faulted`). Next: `hcq.queue.Queue.submit`.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from hcq.errors import FaultKind, FaultReport
from hcq.idle import IdleTime
from hcq.inflight import unmet
from hcq.signal import Point

if TYPE_CHECKING:
    from collections.abc import Sequence


class TimeLimits:
    """The time limits of one queue's submissions, the oldest first. Any thread may call."""

    def __init__(self, *, emulated: bool) -> None:
        self._emulated = emulated
        self._limits: deque[tuple[Point, float, str, Sequence[object]]] = deque()
        self._clock: tuple[Point, IdleTime] | None = None
        """The submission that runs, and the time since it was first seen to."""

    def add(self, point: Point, limit_s: float, label: str, kept: Sequence[object]) -> None:
        """Limit the submission of `point`, which keeps `kept` alive, to `limit_s` seconds."""
        self._limits.append((point, limit_s, label, kept))

    def overdue(self, device: str, queue: str) -> FaultReport | None:
        """Return the fault of a submission that runs for longer than its limit; None: there is none."""
        for point, limit_s, label, kept in tuple(self._limits):
            if point.over():
                self._limits.popleft()
                continue
            if not Point(point.signal, point.value - 1).passed() or any(unmet(kept)):
                return None
            if self._clock is None or self._clock[0] is not point:
                # On hardware every other thread counts as idle, so that the time is the elapsed time.
                self._clock = point, IdleTime() if self._emulated else IdleTime(busy=lambda: False)
            if self._clock[1].read() < limit_s:
                return None
            which = f"submission {point.value} {label and repr(label) + ' '}"
            return _hang(device, queue, f"{which}runs for more than {limit_s} s")
        return None


def _hang(device: str, queue: str, text: str) -> FaultReport:
    """Return the report of a submission that is over its time limit."""
    return FaultReport(
        device=device,
        kind=FaultKind.HANG,
        message=f"{text} on {queue}",
        queue=queue,
        cure="raise the limit of submit(limit_s=), or find the loop that does not end: HCQ_BREADCRUMBS=1 "
        "names the command, an emulated GPU the loop; Device.recover() drops the work",
    )
