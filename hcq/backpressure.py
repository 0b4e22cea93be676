"""Back-pressure: how long a submission waits for space in the ring of its queue, and when it gives up.

Not here: the wait itself, in which a ring calls `Ring.stalled` (`hcq.driver`); the check whether space can
become free (`hcq.faults.polling`). Next: `queue`, the user.
"""

from __future__ import annotations

import time
import weakref
from typing import TYPE_CHECKING

from hcq.errors import SignalTimeout
from hcq.faults.messages import room_text
from hcq.signal import POLL_S

if TYPE_CHECKING:
    from hcq.queue import Queue


class Backpressure:
    """The timeout and the checks of a submission that waits for ring space. The queue's lock is held.

    A submission is identified by the value that its timeline issued for it.
    """

    __slots__ = ("_queue", "_since", "_timeout")

    def __init__(self, queue: Queue) -> None:
        self._queue = weakref.ref(queue)
        """Weak, as the ring refers to `stalled`: a driver may outlive its device."""
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

    def limit(self, queue: Queue) -> float | None:
        """Return how many seconds the current submission may wait; None: no limit."""
        value, seconds = self._timeout
        return seconds if value == queue.timeline.value else None

    def stalled(self, until: int) -> None:
        """Check the current submission while it waits; the `Ring.stalled` of the queue's ring.

        Raises `SignalTimeout` after the timeout. At most every `POLL_S` seconds it calls `Device.poll_room`,
        which raises when no space can become free.
        """
        queue = self._queue()
        if queue is None:
            return
        now = time.monotonic()
        value = queue.timeline.value
        if self._since[0] != value:
            self._since = value, now, now
        _, start, next_check = self._since
        timeout_s = self.limit(queue)
        if timeout_s is not None and now - start >= timeout_s:
            raise _timeout(queue, now - start)
        if now < next_check:
            return
        self._since = value, start, now + POLL_S
        queue.device.poll_room(queue, until, timed=timeout_s is not None)


def _timeout(queue: Queue, waited_s: float) -> SignalTimeout:
    """Return the error of a submission for which the ring had no space in time."""
    point = queue.inflight()[0][0]
    text = f"{queue.label} had no room for a submission for {waited_s:.1f} s"
    return SignalTimeout(text + room_text(queue), point=point, seen=point.signal.value, waited_s=waited_s)
