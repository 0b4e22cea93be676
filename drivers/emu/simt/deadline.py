"""The time limit of a launch.

Next: `launch`, which stops a kernel at its deadline; `host_time`, the time that counts.
"""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from collections.abc import Callable


class Deadline:
    """A context manager that calls `stop` when `spent()` exceeds `limit_s` seconds.

    One thread of the process checks all deadlines, every 0.25 s. It asks for the time spent of those that it
    has `met` before. `passed` says whether `stop` was called.
    """

    _lock = threading.Condition()
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
            cls._process, cls._lock, cls._watched, cls._watcher = os.getpid(), threading.Condition(), [], None

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
