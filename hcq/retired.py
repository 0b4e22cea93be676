"""Deferred frees: memory and programs that were closed while work in flight might use them.

Not here: the blocks and their pools (`heap`), the buffers and programs themselves (`memory`, `program`).
Next: `device`, the owner.
"""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterable
from contextlib import AbstractContextManager
from typing import Protocol

from hcq.driver import DriverDevice
from hcq.heap import Heap
from hcq.process import OpenQueue
from hcq.program import DeferredUnloads
from hcq.signal import Point


class Replayable(Protocol):
    """The part of a compiled graph that devices use; `hcq.replay.executable.Executable` implements it."""

    def forget(self) -> None:
        """Drop the references of idle replay slots to buffers, because memory is short."""

    def recovered(self) -> None:
        """Drop the replays that a fault ended, after the device has recovered."""


class Retired:
    """The deferred frees of one device: it owns the device's heap, and its programs that are closed.

    Thread-safe. `lock` is the device's, held while programs are unloaded.
    """

    def __init__(self, driver: DriverDevice, lock: AbstractContextManager[bool]) -> None:
        self.heap = Heap(driver, reclaim=self._reclaim, deferred=self._deferred)
        self.queues: tuple[OpenQueue, ...] = ()
        """The queues of the device; none yet while it opens, when memory may be short already."""
        self.deferred = False
        """Whether closed memory waits for work in flight."""
        self.executables: weakref.WeakSet[Replayable] = weakref.WeakSet()
        """The compiled graphs that use the device."""
        self._lock = lock
        self.unloads = DeferredUnloads(driver.unload)

    @property
    def pending(self) -> bool:
        """Whether memory or programs wait to be freed by `free`."""
        return self.deferred or bool(self.unloads.waiting)

    def _deferred(self) -> None:
        self.deferred = True

    def in_flight(self, queues: Iterable[OpenQueue] = ()) -> list[Point]:
        """Return the last point of each queue, of this device and `queues`, that has work in flight."""
        lines = [queue.timeline for queue in (*self.queues, *queues)]
        newest = [Point(line.signal, line.value) for line in lines]  # includes interrupted submissions
        return [point for point in newest if not point.passed()]

    def sweep(self) -> None:
        """Retire completed submissions, and free what was closed while they ran."""
        for queue in self.queues:
            queue.sweep()
        self.free()

    def free(self) -> None:
        """Free closed memory and programs that no work in flight uses any more."""
        self.deferred = False
        try:
            self.heap.sweep()
            with self._lock:
                self.unloads.sweep()
        except BaseException:
            self.deferred = True
            raise

    def _reclaim(self, attempt: int) -> bool:
        """Free memory after a failed allocation; False when nothing is left to free.

        Attempt 0 retires completed work, 1 also drops the bindings of idle executables, later ones each wait
        for one submission.
        """
        if attempt == 1:
            for executable in tuple(self.executables):
                executable.forget()
            gc.collect()
        elif attempt > 1:
            oldest = [point for queue in self.queues if (point := queue.oldest()) is not None]
            if not oldest:
                return False
            oldest[0].wait()
        self.sweep()
        self.heap.trim()
        return True

    def close(self) -> None:
        """Unload all programs and free all memory; the device runs nothing any more."""
        try:
            self.unloads.close()
        finally:
            self.heap.close()
