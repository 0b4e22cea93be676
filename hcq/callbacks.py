"""Callbacks of points: one thread of the process waits for all of them, and calls each once.

`Point.add_done_callback`, `Point.future` and `await point` register here. The thread starts with the first
callback and ends a while after the last. While the callbacks wait for one signal, the thread sleeps in the
device's own wait; for several signals it reads their slots every 50 us, later every 1 ms. Its cost depends on
the number of signals, not on the number of callbacks. It polls for faults about every 5 ms.

Not here: waits of the calling thread (`hcq.signal`), the errors of a wait (`hcq.faults.polling`). Next:
`hcq.signal.Point`, the public methods.
"""

from __future__ import annotations

import itertools
import os
import sys
import threading
import time
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from hcq.errors import HcqError
from hcq.locks import Condition

if TYPE_CHECKING:
    from collections.abc import Callable

    from hcq.signal import Point, Signal

    Callback: TypeAlias = Callable[[Point, HcqError | None], object]

POLL_S: Final = 0.005
"""Seconds of one sleep in the wait of a device; it polls for faults after each."""
LINGER_S: Final = 0.1
"""Seconds that the thread stays alive without callbacks: a start takes longer than a wake-up."""
_NAPS_S: Final = (50e-6, 50e-6, 100e-6, 200e-6, 500e-6, 1e-3)
"""Seconds between reads of several slots, since the last callback."""
_NAPS_A_POLL: Final = 5
"""Naps between polls for faults."""


class _Entry(NamedTuple):
    """A callback that waits; entries of a signal are ordered by value, then by registration."""

    value: int
    number: int
    point: Point
    callback: Callback


class PointWaiter:
    """The callbacks of this process that wait, and the thread that calls them. Usable from any thread."""

    def __init__(self) -> None:
        self._lock = Condition()
        """Guards the other fields, and wakes the thread while it has no callbacks."""
        self._waiting: dict[Signal, list[_Entry]] = {}
        """Signal -> its entries, a heap."""
        self._thread: threading.Thread | None = None
        self._numbers = itertools.count()

    def add(self, point: Point, callback: Callback) -> None:
        """Call `callback(point, None)` once the point is reached; `callback(point, error)` if it is lost.

        Callbacks of one signal are called in the order of their values. Raises `UsageTypeError` for a point
        whose value is no number.
        """
        point.passed()  # checks the value
        with self._lock:
            entry = _Entry(point.value, next(self._numbers), point, callback)
            heappush(self._waiting.setdefault(point.signal, []), entry)
            self._lock.notify()
            if self._thread is None:
                thread = threading.Thread(target=self._run, name="callbacks of points", daemon=True)
                thread.start()  # it begins with this lock
                self._thread = thread

    def forget(self) -> None:
        """Drop all callbacks: a forked child has no such thread."""
        self._lock, self._waiting, self._thread = Condition(), {}, None

    def _run(self) -> None:
        naps: int | None = 0
        while naps is not None:
            naps = self._serve(naps)

    def _serve(self, naps: int) -> int | None:
        """Call what is reached, or sleep once; return the naps since the last callback, None at the end.

        A method of its own, so that an idle thread keeps no point alive.
        """
        with self._lock:
            if not self._waiting and not self._lock.wait_for(lambda: self._waiting, LINGER_S):
                self._thread = None
                return None
            reached = self._take_reached()
            first = {signal: entries[0] for signal, entries in self._waiting.items()}
        for entry in reached:
            _call(entry, _observed(entry.point))
        if reached:
            return 0
        if len(first) == 1:
            self._poll(*first.popitem(), POLL_S)
            return naps
        time.sleep(_NAPS_S[min(naps, len(_NAPS_S) - 1)])
        if naps % _NAPS_A_POLL == _NAPS_A_POLL - 1:
            for signal, entry in first.items():
                self._poll(signal, entry, 0.0)
        return naps + 1

    def _take_reached(self) -> list[_Entry]:
        """Remove and return the entries whose signals reached their values."""
        reached = []
        for signal in list(self._waiting):
            entries, value = self._waiting[signal], signal.value
            while entries and entries[0].value <= value:
                reached.append(heappop(entries))
            if not entries:
                del self._waiting[signal]
        return reached

    def _poll(self, signal: Signal, entry: _Entry, wait_s: float) -> None:
        """Sleep until the entry's point is reached, `wait_s` at most; fail the signal's entries on a fault.

        `wait_s` 0: it only polls for faults. The validation layer refuses a wait that nothing can end only
        if all callbacks wait for this one signal: otherwise another callback may submit what ends the wait.
        """
        device, value = signal.device, entry.value - signal.base
        try:
            if not wait_s or not device.wait_slot(signal.va, value, wait_s):
                device.poll_faults(signal, value, timed=not wait_s)
        except HcqError as error:
            with self._lock:
                lost = self._take_reached() if signal.value >= entry.value else self._waiting.pop(signal)
            for one in sorted(lost):
                _call(one, _observed(one.point) if one.point.passed() else error)
        finally:
            device.wait_ended()


def _observed(point: Point) -> HcqError | None:
    """Order later submissions after a reached point; return the error if its signal was raised too far."""
    try:
        point.done()
    except HcqError as error:
        return error
    return None


def _call(entry: _Entry, error: HcqError | None) -> None:
    """Call a callback; `threading.excepthook` reports what it raises, and Python an error of that."""
    try:
        try:
            entry.callback(entry.point, error)
        except BaseException:  # noqa: BLE001 - the other callbacks are still to be called
            raised = (*sys.exc_info(), threading.current_thread())
            threading.excepthook(threading.ExceptHookArgs(raised))
    except BaseException:  # noqa: BLE001 - as above: of the program's hook
        sys.__excepthook__(*sys.exc_info())


WAITER: Final = PointWaiter()
"""The callbacks of this process."""
os.register_at_fork(after_in_child=WAITER.forget)
