"""Deferred frees: memory and programs that were closed while work in flight might use them.

Not here: the blocks and their pools (`heap`), the buffers and programs themselves (`memory`, `program`).
Next: `device`, the owner.
"""

from __future__ import annotations

import gc
import itertools
import weakref
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from typing import Protocol, TypeVar

from hcq.driver import DriverDevice
from hcq.errors import OutOfMemoryError, size_text
from hcq.heap import Heap
from hcq.memory import Buffer
from hcq.process import OpenQueue
from hcq.program import DeferredUnloads
from hcq.signal import Point

A = TypeVar("A")
T = TypeVar("T")
OWNERS_SHOWN = 5
"""The most labels of buffers that an error names."""


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
        self.heap = Heap(driver, reclaim=self._reclaim, deferred=self._deferred, short=self._short)
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

    def reclaimed(self, allocate: Callable[[A], T], argument: A) -> T:
        """Return `allocate(argument)`, called again as long as memory can be freed; see `Pool.reclaim`.

        Raises `OutOfMemoryError` with the use of memory when nothing is left to free, and as `Point.wait`.
        """
        for attempt in itertools.count():
            try:
                return allocate(argument)
            except OutOfMemoryError as error:
                if not self._reclaim(attempt):
                    raise self._short(error) from None
        raise AssertionError("endless")

    def owners(self) -> tuple[tuple[str, int, int], ...]:
        """Return (label, bytes, number) of the open buffers of the device's memory, the largest first.

        It looks through all objects of the process: milliseconds, and more for many objects.
        """
        sizes: dict[str, int] = {}
        counts: dict[str, int] = {}
        for one in gc.get_objects():
            if one.__class__ is not Buffer or one.root is not None or one.closed:
                continue
            if one.device.retired is self:  # type: ignore[attr-defined]  # of a buffer that `Device.alloc` made
                label = one.label or "without a label"
                sizes[label] = sizes.get(label, 0) + one.size
                counts[label] = counts.get(label, 0) + 1
        rows = [(label, size, counts[label]) for label, size in sizes.items()]
        return tuple(sorted(rows, key=lambda row: (-row[1], row[0])))

    def _short(self, error: OutOfMemoryError) -> OutOfMemoryError:
        """Return the error of an allocation that failed, with the use of memory and its largest owners."""
        use = self.heap.use(self.owners()[:OWNERS_SHOWN])
        owners = ", ".join(f"{label} {size_text(size)} in {n}" for label, size, n in use.owners)
        parts = ("used", use.used), ("in flight", use.deferred), ("free", use.cached)
        known = ", ".join(f"{size_text(size)} {name}" for name, size in parts)
        text = f"{error.arguments}; buffers: {known}; largest: {owners or 'none'}"
        return OutOfMemoryError(
            error.call, error.status, error.status_name, arguments=text.removeprefix("; "), hint=error.hint,
            reason=error.reason,
        )  # fmt: skip

    def close(self) -> None:
        """Unload all programs and free all memory; the device runs nothing any more."""
        try:
            self.unloads.close()
        finally:
            self.heap.close()
