"""Back-pressure: how long a submission waits for space in the ring of its queue, and when it gives up.

Not here: the wait itself, in which a ring calls `Ring.stalled` (`hcq.driver`); the texts of errors
(`hcq.faults.messages`). Next: `queue`, the user.
"""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable

from hcq.errors import HcqError
from hcq.signal import POLL_S, Timeline


class Backpressure:
    """The timeout and the checks of a submission that waits for ring space. The queue's lock is held.

    A submission is identified by the value that its timeline issued for it.
    """

    __slots__ = ("_since", "_timeline", "_timeout")

    def __init__(self, timeline: Timeline) -> None:
        self._timeline = timeline
        self._timeout = -1, 0.0
        """(timeline value, seconds that its submission may wait)."""
        self._since = -1, 0.0, 0.0
        """(timeline value that waits, time when it began to, time of the next check), monotonic seconds."""

    def allow(self, value: int, timeout_s: float) -> None:
        """Set the timeout of the submission with a timeline value, in seconds."""
        self._timeout = value, timeout_s

    def reset(self) -> None:
        """Drop the timeout of a submission that was not sent; the next one gets the same value."""
        self._timeout = -1, 0.0

    def limit(self) -> float | None:
        """Return how many seconds the current submission may wait; None: no limit."""
        value, seconds = self._timeout
        return seconds if value == self._timeline.value else None

    def stalled(self, check: Callable[[bool], None], timed_out: Callable[[float], HcqError]) -> None:
        """Check the current submission while it waits; a ring calls this every few milliseconds.

        Raises the error of `timed_out(seconds waited)` after the timeout. At most every `POLL_S` seconds it
        calls `check(whether there is a timeout)`, which raises when no space can become free.
        """
        now = time.monotonic()
        value = self._timeline.value
        if self._since[0] != value:
            self._since = value, now, now
        _, start, next_check = self._since
        timeout_s = self.limit()
        if timeout_s is not None and now - start >= timeout_s:
            raise timed_out(now - start)
        if now < next_check:
            return
        self._since = value, start, now + POLL_S
        check(timeout_s is not None)


def stall_callback(check: Callable[[int], None]) -> Callable[[int], None]:
    """Return a queue's method as the callback of its ring; weakly, as a driver may outlive its device."""
    ref = weakref.WeakMethod(check)

    def stalled(until: int) -> None:
        found = ref()
        if found is not None:
            found(until)

    return stalled
