"""CPU time that the host threads of a launch have spent in its kernel: the measure of a launch's time limit.

Elapsed time would not do: on a loaded machine a kernel that needs one second may take minutes.

Not here: who stops a kernel that has spent too much (`deadline`, `slices`).
"""

from __future__ import annotations

import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


def thread_seconds(thread: int) -> float:
    """Return the CPU time in seconds of a live thread of this process, by its `threading.get_ident`."""
    return time.clock_gettime(time.pthread_getcpuclockid(thread))


class HostTime:
    """The CPU time of each host thread of one launch. Thread-safe.

    `clock` returns the CPU time of a live thread in seconds, by its `threading.get_ident`.
    """

    def __init__(self, clock: Callable[[int], float] = thread_seconds) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._over: dict[int, float] = {}
        """Number of a host thread -> seconds in the parts that have ended."""
        self._begun: dict[int, tuple[int, float]] = {}
        """Number of a host thread that runs -> its thread of this process, and the CPU time when it began."""

    @contextmanager
    def spent(self, number: int) -> Iterator[None]:
        """Count the `with` body, which the current thread runs as the launch's host thread `number`."""
        thread = threading.get_ident()
        with self._lock:
            self._begun[number] = thread, self._clock(thread)
        try:
            yield
        finally:
            with self._lock:
                self._over[number] = self._of(number)
                del self._begun[number]

    @property
    def most(self) -> float:
        """The seconds of the host thread that has spent most."""
        with self._lock:
            return max((self._of(number) for number in {*self._over, *self._begun}), default=0.0)

    def _of(self, number: int) -> float:
        over = self._over.get(number, 0.0)
        if number not in self._begun:
            return over
        thread, began = self._begun[number]
        return over + self._clock(thread) - began
