"""The steps of closing a device: wait for its work in flight, then stop its rings and free everything.

Not here: who closes, and what two threads or an interrupt do to it (`Device.close`); the end of the process
(`process`). Next: `retired`, which holds the memory and the programs.
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Protocol

from hcq.errors import DeviceFault, SignalTimeout, UsageError
from hcq.hostpool import SIGNALS, STAMPS

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from hcq.driver import DriverDevice, Ring
    from hcq.errors import FaultReport
    from hcq.retired import Retired
    from hcq.signal import Point

CLOSE_S = 10.0
"""Seconds that `close` waits for work in flight before it stops the queues."""


class ClosedQueue(Protocol):
    """The part of a queue that closing uses; `hcq.queue.Queue` implements it."""

    ring: Ring

    def end(self) -> Point:
        """Return the point at which all submissions so far are complete."""
        ...

    def forget(self) -> None:
        """Drop the records of work in flight."""
        ...


def drain(queues: Sequence[ClosedQueue], fault: Callable[[], FaultReport | None], timeout_s: float) -> str:
    """Wait for the queues of a device, each `timeout_s` seconds at most.

    `fault` returns the report of the device's own fault, which ends the wait: its work in flight is lost.
    Returns the operations that the queues were stuck on, as text; empty when they completed or were lost.
    """
    if fault() is not None:
        return ""
    try:
        for queue in queues:
            queue.end().wait(timeout_s=timeout_s)
    except DeviceFault as error:
        return "" if error.report is fault() else str(error)
    except (SignalTimeout, UsageError) as error:  # UsageError: a deadlock
        return str(error)
    return ""


def stop(driver: DriverDevice, queues: Sequence[ClosedQueue], retired: Retired) -> None:
    """Stop the rings, free all memory and programs, and close the driver's device.

    The device refuses all calls by now. An error of one step does not keep the next ones from being done.
    """
    with ExitStack() as undo:  # in reverse: rings first, the device last
        undo.callback(driver.close)
        undo.callback(SIGNALS.detach, driver)
        undo.callback(STAMPS.detach, driver)
        undo.callback(retired.close)
        for queue in queues:
            undo.callback(queue.forget)
            undo.callback(queue.ring.close)
