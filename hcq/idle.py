"""Seconds in which no other thread of this process could run: clocks for waits for the process's own work.

The queues of an emulated device are threads of this process. On a loaded machine they get the processor
late, so elapsed time does not say whether they are stuck.

Not here: waits for hardware, which elapsed time limits (`signal`). Next: `closing`, a user.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path

_TASKS = Path("/proc/self/task")
_RUNNABLE = frozenset("RD")
"""States of a thread that runs, waits for a processor, or waits for a disk (proc_pid_stat(5))."""
LOOK_S = 0.05
"""Least elapsed seconds between two readings of the threads' states by `Standstill`."""
STANDSTILL_S = 3.0
"""Seconds of `Standstill` after which a wait assumes that an emulated device will not end it."""
_SPENT_PER_SECOND = 60.0
"""Seconds of the caller's own processor time that count as one second of `Standstill`."""


def others_run() -> bool:
    """Return whether another thread of this process runs or waits for a processor."""
    own = str(threading.get_native_id())
    for task in _TASKS.iterdir():
        if task.name != own:
            try:
                text = (task / "stat").read_text(encoding="utf-8", errors="replace")
            except (FileNotFoundError, ProcessLookupError):  # it has ended since
                continue
            if text.rpartition(")")[2].split()[0] in _RUNNABLE:
                return True
    return False


class IdleTime:
    """A clock that begins at 0; the time between two reads counts if no other thread can run at the second.

    It is at least the processor time that the process has spent since, so that threads which never end do not
    stop it, and at most the elapsed time. Not thread-safe.
    """

    def __init__(
        self,
        *,
        elapsed: Callable[[], float] = time.monotonic,
        spent: Callable[[], float] = time.process_time,
        busy: Callable[[], bool] = others_run,
    ) -> None:
        """The arguments read the elapsed and the processor time, and whether other threads run."""
        self._elapsed, self._spent, self._busy = elapsed, spent, busy
        self._begun = self._last = elapsed()
        self._spent_before = spent()
        self._idle = 0.0

    def read(self) -> float:
        """Return the seconds since the clock was made."""
        now = self._elapsed()
        if not self._busy():
            self._idle += now - self._last
        self._last = now
        return min(now - self._begun, max(self._idle, self._spent() - self._spent_before))


class Standstill:
    """A clock of the seconds since another thread of this process was last seen to work, 0 at first.

    It reads the states of the threads at most every `LOOK_S` seconds. A reading adds no more than `LOOK_S`,
    so that a pause of the whole process does not count. A thread counts as working if it could run at two
    readings in a row: at one reading it may just poll between sleeps. Threads that never end do not stop the
    clock: it shows at least 1 second for each 60 seconds of the caller's own processor time. Not thread-safe.
    """

    def __init__(
        self,
        *,
        elapsed: Callable[[], float] = time.monotonic,
        spent: Callable[[], float] = time.thread_time,
        busy: Callable[[], bool] = others_run,
    ) -> None:
        """The arguments are those of `IdleTime`; `spent` is the processor time of the calling thread."""
        self._elapsed, self._spent, self._busy = elapsed, spent, busy
        self._looked, self._spent_before = elapsed(), spent()
        self._still = 0.0
        self._ran = False
        """Whether another thread could run at the last reading."""

    def __call__(self) -> float:
        """Return the seconds."""
        now = self._elapsed()
        if now - self._looked >= LOOK_S:
            self._looked = now
            before, self._ran = self._ran, self._busy()
            if not self._ran:
                self._still += LOOK_S
            elif before:
                self._still = 0.0
        return max(self._still, (self._spent() - self._spent_before) / _SPENT_PER_SECOND)


def spent_time() -> Callable[[], float]:
    """Return a clock of the seconds of processor time that the calling thread has spent since this call."""
    begun = time.thread_time()
    return lambda: time.thread_time() - begun
