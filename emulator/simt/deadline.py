"""The time limit of a launch, measured in the CPU time that its host threads spend in its kernel.

Elapsed time is not used: on a loaded machine a kernel that needs one second of CPU time may take minutes.

Not here: stopping a kernel (`running`). Next: `launch`, which uses `Deadline`; `slices`, which uses
`HostTime` alone.
"""

from __future__ import annotations

import os
import threading
import time
from typing import TYPE_CHECKING, Self

from hcq.locks import Condition

if TYPE_CHECKING:
    from collections.abc import Callable


def thread_seconds(thread: int) -> float:
    """Return the CPU time in seconds of a live thread of this process, given its `threading.get_ident`."""
    return time.clock_gettime(time.pthread_getcpuclockid(thread))


class HostTime:
    """The CPU time of each host thread of one launch, counted from the first read of `most` on. Thread-safe.

    Before that read no clock is read, because that may take longer than a small kernel. `clock` returns the
    CPU time of a live thread in seconds, given its `threading.get_ident`.
    """

    __slots__ = ("_begun", "_clock", "_lock", "_looked_at", "_over")

    def __init__(self, clock: Callable[[int], float] = thread_seconds) -> None:
        self._clock = clock
        self._looked_at = False
        self._lock = threading.Lock()
        """Held while clocks are read, so that a thread whose clock is read cannot end."""
        self._over: dict[int, float] = {}
        """Number of a host thread -> seconds between its past pairs of `start` and `stop`."""
        self._begun: dict[int, tuple[int, float | None]] = {}
        """Number of a running host thread -> its `threading.get_ident`, and its CPU time at `start`.

        The time is None if `most` was not read before.
        """

    def start(self, number: int) -> None:
        """Count the CPU time of the current thread from now on as that of host thread `number`."""
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
        """The seconds of the host thread that has spent most; 0 at the first read."""
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


class Deadline:
    """A context manager that calls `stop` when `spent()` exceeds `limit_s` seconds.

    One thread of the process checks all deadlines every 0.25 s. Its first check of a deadline only sets
    `met`; later ones call `spent`. `passed` is whether `stop` was called.
    """

    _lock = Condition()
    _watched: list[Deadline] = []  # noqa: RUF012 - shared on purpose
    _watcher: threading.Thread | None = None
    _process = os.getpid()

    def __init__(self, stop: Callable[[], None], limit_s: float, spent: Callable[[], float]) -> None:
        self.stop = stop
        self.limit_s = limit_s
        self.spent = spent
        self.passed = False
        self.met = False

    def __enter__(self) -> Self:
        self._begin()
        with self._lock:
            first = not self._watched
            self._watched.append(self)
            if Deadline._watcher is None:
                name = "hcq emu-deadlines"
                Deadline._watcher = threading.Thread(target=self._watch, name=name, daemon=True)
                Deadline._watcher.start()
            elif first:
                self._lock.notify()
        return self

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._watched.remove(self)

    @classmethod
    def _begin(cls) -> None:
        """Reset the shared state in a forked child, which does not have the parent's thread."""
        if cls._process != os.getpid():
            cls._process, cls._lock, cls._watched, cls._watcher = os.getpid(), Condition(), [], None

    @classmethod
    def _watch(cls) -> None:
        with cls._lock:
            while True:
                for one in cls._watched:
                    if one.met and not one.passed and one.spent() > one.limit_s:
                        one.passed = True
                        one.stop()
                    one.met = True
                cls._lock.wait(0.25 if cls._watched else None)
