"""CPU time that the host threads of a launch have spent in its kernel: the measure of a launch's time limit.

Elapsed time would not do: on a loaded machine a kernel that needs one second may take minutes.

Not here: who stops a kernel that has spent too much (`deadline`, `slices`).
"""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


def thread_seconds(thread: int) -> float:
    """Return the CPU time in seconds of a live thread of this process, by its `threading.get_ident`."""
    return time.clock_gettime(time.pthread_getcpuclockid(thread))


class HostTime:
    """The CPU time of each host thread of one launch, from the first look at it on (`most`). Thread-safe.

    A launch that nobody looks at reads no clock, which may take longer than a small kernel. `clock` returns
    the CPU time of a live thread in seconds, by its `threading.get_ident`.
    """

    __slots__ = ("_begun", "_clock", "_lock", "_looked_at", "_over")

    def __init__(self, clock: Callable[[int], float] = thread_seconds) -> None:
        self._clock = clock
        self._looked_at = False
        self._lock = threading.Lock()
        """Held while clocks are read and while a thread stops, which may end then."""
        self._over: dict[int, float] = {}
        """Number of a host thread -> seconds in the parts that have ended."""
        self._begun: dict[int, tuple[int, float | None]] = {}
        """Number of a host thread that runs -> its thread of this process, and since which CPU time."""

    def start(self, number: int) -> None:
        """Count from now what the current thread spends, as host thread `number` of the launch."""
        thread = threading.get_ident()
        self._begun[number] = thread, self._clock(thread) if self._looked_at else None

    def stop(self, number: int) -> None:
        """End what `start` began, on the same thread."""
        with self._lock:
            thread, began = self._begun.pop(number)
            if began is not None:
                self._over[number] = self._over.get(number, 0.0) + self._clock(thread) - began

    @property
    def most(self) -> float:
        """The seconds of the host thread that has spent most; 0 at the first look."""
        with self._lock:
            self._looked_at = True
            spent = dict(self._over)
            for number, (thread, began) in list(self._begun.items()):
                now = self._clock(thread)
                if began is None:
                    self._begun[number] = thread, now
                else:
                    spent[number] = spent.get(number, 0.0) + now - began
            return max(spent.values(), default=0.0)
