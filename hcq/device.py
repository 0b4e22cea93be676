"""Open devices: they allocate memory, own queues, load programs, and notice when the hardware faults.

Every `hcq.open` gives a device of its own, also for the same name: nothing is shared between two of them but
the hardware. All methods may be called from any thread. A device that is dropped without `close` is reported
(`ResourceWarning`); devices still open when the interpreter ends are closed quietly. A forked child cannot
use its parent's devices.

Longer than other files: every method acts on the state of one open device, under its locks.

Not here: opening by name (`registry`), submission (`queue`), what a driver implements (`driver`), fault texts
and recovery (`hcq.faults`).
"""

from __future__ import annotations

import gc
import itertools
import sys
import threading
import warnings
import weakref
from collections import deque
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Protocol, Self

from hcq.errors import DeviceFault, OutOfMemoryError, SignalTimeout, UnsupportedError, UsageError
from hcq.faults.messages import (
    graph_text,
    impossible,
    nearest_pages,
    overshot,
    stuck_text,
    timeout_text,
    with_kernel,
)
from hcq.hardware import BufferSpec, QueueKind
from hcq.hostpool import SIGNALS, STAMPS
from hcq.memory import Buffer, Heap
from hcq.process import OPEN, remember, traced
from hcq.profile import SpanLog
from hcq.program import Program
from hcq.queue import Queue
from hcq.signal import LOST, Point, Signal, Stamp
from hcq.uncopied import refuse_copy

if TYPE_CHECKING:
    from collections.abc import Iterable

    from hcq.driver import DriverDevice
    from hcq.errors import FaultReport
    from hcq.hardware import Allocation, DeviceInfo
    from hcq.memory import Block, Home, Pool
    from hcq.profile import Clock, Span
    from hcq.program import DriverProgram, KernelImage
    from hcq.signal import Refusal
    from hcq.validate.watch import Watch

DEFAULT = BufferSpec()
CLOSE_S = 10.0
"""How long `close` waits for work in flight before it stops the queues."""
_EPOCHS = itertools.count()


class Replayable(Protocol):
    """A compiled graph, as far as its devices need it: an `Executable`."""

    def forget(self) -> None:
        """Drop the references to buffers of idle copies: memory is short."""
        ...

    def recovered(self) -> None:
        """Drop lost replays: a device recovered from a fault."""
        ...


class Device:
    """An open device; made by `hcq.open`, or by `hcq.registry.wrap` around a driver's device.

    It owns its queues (`compute`, `copies`), memory, signals and programs. A context manager: leaving the
    block calls `close`. All methods may be called from any thread. After a fault every method but `recover`
    and `close` raises the same `DeviceFault`.

        with hcq.open("cpu") as device:
            print(device.info.arch, len(device.copies))
    """

    def __init__(
        self, driver: DriverDevice, *, watch: Watch | None = None, trace: str = "", profile: bool = False
    ) -> None:
        self.closed = False
        self._closing = 0
        """The thread that closes it."""
        self._stopped = False
        """Whether `close` got to its end."""
        self._report: FaultReport | None = None
        self._raw: FaultReport | None = None
        """The last fault from the driver: a thread that polled before a recovery may still report it."""
        self._recovery = threading.Lock()
        self.driver = driver
        self.info: DeviceInfo = driver.info
        self.name = f"{self.info.driver}:{self.info.index}"
        self.watch = watch
        """The validation layer, or None."""
        self.trace = trace
        """The file that the spans of all submissions are written to at close; empty: none."""
        self.profile = profile
        """Whether each kernel, copy and fill has a span of its own."""
        self.close_epoch = next(_EPOCHS) << 32
        """Grows whenever a buffer or a program is closed: what was checked before may have to be checked
        again."""
        self.refusal: Refusal | None = None
        self.reasons: weakref.WeakKeyDictionary[Buffer, Refusal] = weakref.WeakKeyDictionary()
        """What makes the error of buffers that were closed for a reason."""
        self._lock = threading.RLock()
        self.heap = Heap(driver, reclaim=self._reclaim, deferred=self._deferred)
        self._executables: weakref.WeakSet[Replayable] = weakref.WeakSet()
        self._dead_programs: deque[tuple[list[Point], DriverProgram]] = deque()
        self.leftovers = False
        """Whether memory or programs wait to be freed: see `free_leftovers`."""
        self.span_log = SpanLog(keep=bool(trace))
        with ExitStack() as undo:
            undo.callback(setattr, self, "_stopped", True)
            undo.callback(setattr, self, "closed", True)
            undo.callback(driver.close)
            undo.callback(SIGNALS.detach, driver)
            SIGNALS.attach(driver)
            undo.callback(STAMPS.detach, driver)
            STAMPS.attach(driver)
            undo.callback(self.heap.close)
            self._default_pool = self.heap.pool(DEFAULT)
            self.computes = tuple(
                self._queue(undo, QueueKind.COMPUTE, i) for i in range(self.info.compute_queues)
            )
            self.copies = tuple(self._queue(undo, QueueKind.COPY, i) for i in range(self.info.copy_queues))
            undo.pop_all()
        self.queues = (*self.computes, *self.copies)
        remember(self)

    def _queue(self, undo: ExitStack, kind: QueueKind, index: int) -> Queue:
        queue = Queue(self, kind, index, watch=self.watch)
        undo.callback(queue.ring.close)
        return queue

    @property
    def compute(self) -> Queue:
        """The first compute queue."""
        return self.computes[0]

    def alloc(self, size: int, spec: BufferSpec = DEFAULT, *, label: str = "") -> Buffer:
        """Return a buffer of `size` bytes that nothing uses; its contents are undefined.

        `spec` is the kind of memory: by default device memory, aligned to 256 bytes, which the host may not
        see. `label` names the buffer in errors. The caller owns it: it is freed with its last reference, or
        by `Buffer.close`.

        Sizes are rounded up and taken from pools, so most calls do not reach the driver. Any thread may call.

        Raises `UsageError` for a size below 1, an alignment that is no power of two up to 2 MiB, and a closed
        device; `UnsupportedError` for memory that the device does not have; `DeviceFault` after a fault;
        `OutOfMemoryError` once pools were emptied and work in flight was waited for: nothing leaks, and the
        next call may succeed.

            host = device.alloc(4096, hcq.BufferSpec(place=hcq.Place.HOST, host_visible=True, coherent=True))
        """
        if self.refusal is not None:
            raise self.refusal()
        pool = self._default_pool if spec is DEFAULT else self.heap.pool(spec)
        if self.watch is not None:
            return self._watched(self.watch, pool, size, label)
        block, home = pool.take(size)
        return Buffer(self, block, home, size, spec, label)

    def _watched(self, watch: Watch, pool: Pool, size: int, label: str) -> Buffer:
        """Return a buffer registered with the validation layer, with a guard zone where it fits."""
        guard = watch.guard_bytes if isinstance(size, int) and size > 0 else 0
        try:
            block, free = pool.take(size + guard if guard else size)
        except OutOfMemoryError:
            if not guard:
                raise
            guard = 0  # what fits without validation fits with it
            block, free = pool.take(size)
        home = watch.guards.plant(block, free, size, label) if guard else free
        buffer = Buffer(self, block, home, size, pool.spec, label)
        watch.allocated(buffer)
        return buffer

    def _deferred(self) -> None:
        self.leftovers = True

    def _reclaim(self, attempt: int) -> bool:
        """Free memory for an allocation that failed, harder each time; False when nothing is left to try."""
        if attempt == 1:
            self.forget_bindings()
            gc.collect()
        elif attempt > 1:
            oldest = [point for queue in self.queues if (point := queue.oldest()) is not None]
            if not oldest:
                return False
            oldest[0].wait()
        self.sweep()
        self.heap.trim()
        return True

    def forget_bindings(self) -> None:
        """Drop the references of idle executables to buffers: memory is short."""
        for executable in self.executables():
            executable.forget()

    def sweep(self) -> None:
        """Retire submissions that are done and free what was closed while they ran."""
        for queue in self.queues:
            queue.sweep()
        self.free_leftovers()

    def free_leftovers(self) -> None:
        """Free memory and programs that were closed while in use and no longer are."""
        self.leftovers = False
        try:
            self.heap.sweep()
            with self._lock:
                for _ in range(len(self._dead_programs)):  # one at a time: finalisers add to it
                    points, loaded = self._dead_programs.popleft()
                    if all(point.over() for point in points):
                        self.driver.unload(loaded)
                    else:
                        self._dead_programs.append((points, loaded))
                        self.leftovers = True
        except BaseException:
            self.leftovers = True
            raise

    def _in_flight(self, devices: Iterable[Device] = ()) -> list[Point]:
        """Return the last points of all queues, of this device and others, that still run."""
        lines = [queue.timeline for device in (self, *devices) for queue in device.queues]
        newest = [Point(line.signal, line.value) for line in lines]  # interrupted ones may be on their way
        return [point for point in newest if not point.passed()]

    def retire_block(
        self, block: Block | None, home: Home, peers: Iterable[Device], after: Point | None
    ) -> None:
        """Return the memory of a closed buffer to its pool when all work in flight is done."""
        for device in (self, *peers):
            device.close_epoch += 1
        if block is None or self.closed:
            return
        points = self._in_flight(peers)
        if after is not None:
            points.append(after)
        self.heap.defer_free(points, block, home)
        if self.watch is not None:
            self.watch.tell()

    def map_peer(self, allocation: Allocation, owner: Device) -> None:
        """Make another device's memory visible here; called by `Buffer.map_to`."""
        if self.refusal is not None:
            raise self.refusal()
        with self._lock:
            self.driver.map_peer(allocation, owner.driver)

    def nearest(self, va: int, *, told: str = "") -> str:
        """Return, as text, what lies nearest to an address; `told` is the driver's text about pages."""
        known = self.watch.nearest(va) if self.watch is not None else ""
        return "; ".join(filter(None, (known, told))) or nearest_pages(self, va)

    def caller(self) -> str:
        """Return the user's file and line when validation is on, else nothing."""
        if self.watch is None:
            return ""
        frame = sys._getframe(1)  # noqa: SLF001 - the documented way to a frame
        while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith("hcq."):
            frame = frame.f_back
        return f"{frame.f_code.co_filename}:{frame.f_lineno}"

    def signal(self, value: int = 0, *, host_set: bool = False, label: str = "") -> Signal:
        """Return a new signal that holds `value`.

        `host_set` allows the host to raise it, not only queues. `label` names it in errors. It is freed with
        its last reference. Raises `UsageError` for a closed device, `OutOfMemoryError` without memory for its
        slot.
        """
        if self.refusal is not None:
            raise self.refusal()
        return Signal(self, value, host_set=host_set, label=label)

    def stamp(self) -> Stamp:
        """Return a record that `CommandBuffer.timestamp` writes the device's time to.

        It reads 0 until then and is freed with its last reference.
        """
        return Stamp()

    def clock(self) -> Clock:
        """Return the relation of the device's clock to the host's CLOCK_MONOTONIC, measured now."""
        if self.refusal is not None:
            raise self.refusal()
        return self.driver.clock()

    def load(self, image: KernelImage) -> Program:
        """Upload a kernel and return the program; it may be launched on every queue of this device.

        The device keeps the code until the program is closed, or dropped, and no launch is in flight. Raises
        `UnsupportedError` for another architecture, `UsageError` for a broken image, `OutOfMemoryError`
        without memory for the code.
        """
        if self.refusal is not None:
            raise self.refusal()
        if image.arch != self.info.arch:
            raise UnsupportedError(
                f"kernel {image.name} is for {image.arch}, {self.name} is {self.info.arch}\n"
                f"hint: compile it for DeviceInfo.arch of the device that loads it"
            )
        image.verify()
        with self._lock:
            return Program(self, image, self.driver.load(image))

    def retire_program(self, loaded: DriverProgram, *, wait: bool) -> None:
        """Unload a program when all that runs now is done; from a finaliser, at the next `sweep`."""
        self.close_epoch += wait
        if not self.closed:
            self._dead_programs.append((self._in_flight() if wait else [], loaded))
            self.leftovers = True
            if wait:
                self.sweep()

    def spans(self) -> list[Span]:
        """Return the spans that were completed since the last call, in order of their start.

        Those of command buffers recorded with `span`; with a trace those of whole submissions; with `profile`
        those of each kernel, copy and fill.
        """
        self.span_log.read(self.clock())
        return self.span_log.take()

    def keep(self, executable: Replayable) -> None:
        """Register an executable, which drops references to buffers when memory is short."""
        self._executables.add(executable)

    def sync(self, *, timeout_s: float | None = None) -> None:
        """Wait until everything submitted so far to any queue is done.

        Raises `SignalTimeout` after `timeout_s` seconds (None: no limit), `DeviceFault` after a fault, and
        with validation `UsageError` for an overrun buffer.
        """
        if self.refusal is not None:
            raise self.refusal()
        for queue in self.queues:
            queue.sync(timeout_s=timeout_s)
        self.sweep()
        if self.watch is not None:
            self.watch.look()

    def wait_slot(self, va: int, value: int, timeout_s: float) -> bool:
        """Sleep until a signal slot is >= `value` or the time is over; see `DriverDevice.wait`."""
        if self.refusal is not None:
            raise self.refusal()
        return self.driver.wait(va, value, timeout_s)

    def woke(self) -> None:
        """Record, for the validation layer, that this thread waits no more."""
        if self.watch is not None:
            self.watch.woke()

    def saw(self, signal: Signal, value: int) -> None:
        """Record, for the validation layer, that the host read a signal's slot at `value`."""
        if self.watch is not None:
            self.watch.saw(signal, value)
            if not self._closing:
                self.watch.tell()

    def raise_overrun(self, signal: Signal) -> None:
        """Raise: a timeline of this device holds a value above the last one submitted.

        The device has faulted, and none of its points counts as reached by such a value.
        """
        if signal in LOST:
            _, lost = LOST[signal]
            raise lost()
        report = impossible(self.name, signal)
        self.faulted(report)
        raise self.refusal() if self.refusal is not None else DeviceFault(report)

    def poll_faults(self, signal: Signal | None = None, value: int = 0, *, timed: bool = True) -> None:
        """Raise when this device, or one that its queues wait for, is faulted or closed.

        With validation on also when nothing can raise the slot of `signal` to `value`, unless the wait is
        `timed`: its thread continues after the timeout and may raise it.
        """
        self._poll_awaited()
        if signal is not None:
            self.poll_lost(signal, value)
            if self.watch is not None and (self._closing or not timed):
                try:
                    self.watch.waiting(signal, value)
                except UsageError:
                    self.poll_lost(signal, value)  # a recovery meanwhile is why nothing can raise it
                    raise

    def poll_room(self, queue: Queue, words: int, *, timed: bool) -> None:
        """Raise when the ring of `queue`, which is full, can never take so many words; see `poll_faults`."""
        if self._closing:
            raise UsageError(f"{self.name} is closed")
        self._poll_awaited()
        if LOST:
            from hcq.faults.recovery import waits_on_lost  # noqa: PLC0415 - only after a fault

            if (reason := waits_on_lost(queue)) is not None:
                raise reason()
        if self.watch is not None and not timed:
            self.watch.stalled(queue, words)

    def _poll_awaited(self) -> None:
        """Raise when this device, or one that its queues wait for, is faulted or closed."""
        from hcq.faults.inflight import awaited  # noqa: PLC0415 - only when a wait takes long

        seen: set[Device] = set()
        todo: list[Device] = [self]
        while todo:
            device = todo.pop()
            if device in seen:
                continue
            seen.add(device)
            device.look()
            if device.refusal is not None:
                raise device.refusal()
            todo += {owner for owner in awaited(device.queues) if isinstance(owner, Device)} - seen

    def poll_lost(self, signal: Signal, value: int) -> None:
        """Raise when the slot of `signal` was to reach `value` by lost work, or behind such work."""
        if LOST:
            from hcq.faults.recovery import check  # noqa: PLC0415 - only after a fault

            check(signal, value)

    def look(self) -> None:
        """Poll for faults: of the driver, and of timelines above their last submitted value."""
        if self.refusal is None and (report := self.driver.fault() or overshot(self)) is not None:
            self.faulted(report)

    def faulted(self, report: FaultReport) -> None:
        """Make a fault sticky: every later call raises the same report, until `recover`."""
        with self._lock:
            if self.refusal is not None or report is self._raw:
                return
            self._raw = report
            if report.va is not None:
                report = replace(report, nearest=self.nearest(report.va, told=report.nearest))
            stuck = stuck_text(self) if not report.stuck_at else report.stuck_at + graph_text(self)
            report = replace(report, stuck_at=stuck)
            if not report.arguments:
                running = [one for queue in self.queues for one in queue.inflight()]
                report = with_kernel(report, [kept for point, kept in running if not point.passed()])
            self._report = report
            self.refuse(partial(DeviceFault, report))

    def recover(self) -> tuple[Buffer, ...]:
        """Recover from a fault: every queue gets a new ring.

        Buffers keep their contents and addresses, programs stay loaded, graphs can be replayed. What is in
        flight, in any queue, is lost: a wait for its points raises the `DeviceFault` that ended it, also in a
        queue of another device, which must then recover as well. References that lost work held are dropped.

        Returns the buffers that lost work would have written: their contents are undefined.

        Raises `UsageError` for a device without a fault, `UnsupportedError` where the driver cannot do it;
        after any error the device is still faulted.
        """
        from hcq.faults.recovery import recover  # noqa: PLC0415 - only after a fault

        if self.closed and self.refusal is not None:  # before the lock: after a fork no thread releases it
            raise self.refusal()
        with self._recovery:
            if self._closing:
                raise UsageError(f"{self.name} is closed")
            return recover(self)

    def resume(self) -> None:
        """Accept calls again: the device recovered."""
        with self._lock:
            self._report = None
            self.span_log.drop_lost()
            self.refuse(None)
        self.sweep()

    def executables(self) -> tuple[Replayable, ...]:
        """Return the executables that run here."""
        return tuple(self._executables)

    def refuse(self, refusal: Refusal | None) -> None:
        """Make every later call raise the error of `refusal`; None: accept calls again."""
        self.refusal = refusal
        for queue in self.queues:
            queue.refusal = refusal

    def stuck_on(self, signal: Signal, value: int, waited_s: float) -> str:
        """Return the text of `SignalTimeout` for a wait that timed out."""
        return timeout_text(self, signal, value, waited_s)

    def close(self, *, timeout_s: float = CLOSE_S) -> None:
        """Wait for work in flight, then release everything; idempotent.

        Work that is not done after `timeout_s` seconds is stopped, and a `ResourceWarning` names it.
        Raises `UsageError`, once everything is released, when validation found an overrun buffer.
        """
        if self._shut(timeout_s) and self.watch is not None and self._report is None:
            self.watch.tell()

    def _shut(self, timeout_s: float) -> bool:
        """Close; return whether this call did it."""
        if self._stopped:
            return False
        me = threading.get_ident()
        try:
            with self._recovery, self._lock:  # a recovery under way finishes first
                if self._closing not in {0, me} or self._stopped:
                    return False
                self._closing = me
            stuck = self._close(timeout_s)
        except BaseException:
            if self._closing == me:
                self._closing = 0  # interrupted: another close continues from here
            raise
        if stuck:
            text = f"{self.name} was closed while work was in flight: {stuck}"
            warnings.warn(text, ResourceWarning, stacklevel=3)
        return True

    def _close(self, timeout_s: float) -> str:
        """Refuse, drain, stop; return what the queues were stuck on."""
        refusal = partial(UsageError, f"{self.name} is closed")
        stuck = ""
        if not self.closed:
            for queue in self.queues:
                with queue.lock:  # a submission in progress finishes first
                    queue.refusal = queue.refusal or refusal
            stuck = self._drain(timeout_s)
            if self.watch is not None and not stuck and self._report is None:
                self.watch.guards.look()
            self.closed = True
        self.refuse(refusal)
        self._stop()
        self._stopped = True
        return stuck

    def _drain(self, timeout_s: float) -> str:
        """Wait for the queues; return what they were stuck on. A faulted device is not waited for.

        Write the trace, of a device that is stuck or faulted too: what it had done is wanted then most.
        """
        stuck = self._stuck(timeout_s)
        if self.trace:
            if self._report is None:
                self.span_log.read(self.clock())
            traced(self.trace, self.span_log.take_kept())
        return stuck

    def _stuck(self, timeout_s: float) -> str:
        if self._report is not None:
            return ""
        try:
            for queue in self.queues:
                queue.end().wait(timeout_s=timeout_s)
        except DeviceFault as error:
            return "" if error.report is self._report else str(error)
        except (SignalTimeout, UsageError) as error:  # UsageError: nothing can end the wait any more
            return str(error)
        return ""

    def _stop(self) -> None:
        OPEN.discard(self)
        if self.watch is not None:
            self.watch.ended(self.queues)
            self.watch.guards.end()
        with ExitStack() as undo:  # in reverse: rings first, the device last
            undo.callback(self.driver.close)
            undo.callback(SIGNALS.detach, self.driver)
            undo.callback(STAMPS.detach, self.driver)
            undo.callback(self.heap.close)
            undo.callback(self._unload_dead)
            for queue in self.queues:
                undo.callback(queue.forget)
                undo.callback(queue.ring.close)

    def _unload_dead(self) -> None:
        while self._dead_programs:
            self.driver.unload(self._dead_programs.popleft()[1])

    def orphan(self, parent: int) -> None:
        """Refuse everything in a forked child: the threads, and the hardware, stayed with the parent."""
        self.closed = self._stopped = True
        text = (
            f"{self.name} was opened by process {parent} and cannot be used in its fork\n"
            f"hint: open it again here, or start processes by spawn"
        )
        self.refuse(partial(UsageError, text))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    __reduce__ = refuse_copy

    def __repr__(self) -> str:
        return f"<Device {self.name} ({self.info.name}, {self.info.arch}){' closed' if self.closed else ''}>"

    def __del__(self) -> None:
        if not getattr(self, "closed", True):
            warnings.warn(f"{self!r} was never closed", ResourceWarning, stacklevel=2, source=self)
            self._shut(CLOSE_S)
