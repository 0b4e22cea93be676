"""The steps of closing a device: wait for its work in flight, then stop its rings and free everything.

`Once` ensures that one thread closes a device; after an interrupt a second call can complete the work.

Not here: the order of the steps (`device`); the end of the process (`process`). Next: `retired`, which holds
the memory and the programs.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack, suppress
from typing import TypeVar

from hcq.driver import DriverDevice
from hcq.errors import DeviceFault, FaultReport, SignalTimeout, UsageError
from hcq.hostpool import SIGNALS, STAMPS
from hcq.process import OpenQueue
from hcq.retired import Retired
from hcq.signal import Point

CLOSE_S = 10.0
"""Seconds that `close` waits for work in flight before it stops the queues."""
_SLICE_S = 0.05
"""The most seconds of one wait, after which the clock is read."""

T = TypeVar("T")


class Once:
    """Work that one thread does, to its end and once; after an exception the next call begins it again.

    Two locks, the outer one taken first, guard the decision which thread does the work. They are not held
    during the work.
    """

    def __init__(self, outer: AbstractContextManager[object], inner: AbstractContextManager[object]) -> None:
        self._outer, self._inner = outer, inner
        self._thread = 0
        """Identity of the thread that does it, or has done it; 0: none."""
        self.done = False
        """Whether it is complete. Set it to refuse the work."""

    @property
    def begun(self) -> bool:
        """Whether a thread does it, or has done it."""
        return bool(self._thread)

    def run(self, work: Callable[[], T]) -> T | None:
        """Call `work` and return its result; None where it is complete, or another thread does it."""
        if self.done:
            return None
        me = threading.get_ident()
        try:
            with self._outer, self._inner:  # no ExitStack: an interrupt inside it may leave a lock held
                if self._thread not in {0, me} or self.done:
                    return None
                self._thread = me
            result = work()
            self.done = True
        except BaseException:
            if self._thread == me and not self.done:
                self._thread = 0
            raise
        return result


def drain(
    queues: Sequence[OpenQueue],
    others: Callable[[], Sequence[Point]],
    fault: Callable[[], FaultReport | None],
    timeout_s: float | None,
    clock: Callable[[], float],
) -> str:
    """Wait for the queues of a device, each `timeout_s` seconds of `clock` at most (None: no limit).

    Then wait for the points that `others` returns, of other devices that use its memory. `fault` returns the
    report of the device's own fault, which ends the wait: its work in flight is lost. Returns the operations
    that the queues were stuck on, as text; empty when they completed or were lost.
    """
    if fault() is not None:
        return ""
    try:
        for queue in queues:
            _wait(queue.end(), timeout_s, clock)
        for point in others():
            with suppress(DeviceFault):  # a device with a fault uses no memory any more
                _wait(point, timeout_s, clock)
    except DeviceFault as error:
        return "" if error.report is fault() else str(error)
    except (SignalTimeout, UsageError) as error:  # UsageError: a deadlock
        return str(error)
    return ""


def _wait(point: Point, timeout_s: float | None, clock: Callable[[], float]) -> None:
    """Wait for a point.

    Raises `SignalTimeout` after `timeout_s` seconds of a clock, and the other errors of `Point.wait`.
    """
    if timeout_s is None:
        point.wait()
        return
    begun = clock()
    while True:
        left = timeout_s - (clock() - begun)
        try:
            point.wait(timeout_s=max(0.0, min(left, _SLICE_S)))
        except SignalTimeout as error:
            waited = clock() - begun
            if waited < timeout_s:
                continue
            signal = point.signal
            text = signal.device.stuck_on(signal, point.value, waited)
            raise SignalTimeout(text, point=point, seen=error.seen, waited_s=waited) from None
        else:
            return


def stop(driver: DriverDevice, queues: Sequence[OpenQueue], retired: Retired) -> None:
    """Stop the rings, free all memory and programs, and close the driver's device.

    The device refuses all calls by now. If a step raises, the later steps are still done, and the last error
    is raised.
    """
    with ExitStack() as undo:  # in reverse: rings first, the device last
        undo.callback(driver.close)
        undo.callback(SIGNALS.detach, driver)
        undo.callback(STAMPS.detach, driver)
        undo.callback(retired.close)
        for queue in queues:
            undo.callback(queue.forget)
            undo.callback(queue.ring.close)
