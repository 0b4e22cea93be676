"""Open devices: they allocate memory, own queues, load programs, and notice when the hardware faults.

Every `hcq.open` gives a device of its own, also for the same name: nothing is shared between two of them but
the hardware. All methods may be called from any thread. A device that is dropped without `close` is reported
(`ResourceWarning`); devices still open when the interpreter ends are closed quietly. A forked child cannot
use its parent's devices.
"""

from __future__ import annotations

import atexit
import gc
import itertools
import os
import sys
import threading
import warnings
import weakref
from contextlib import ExitStack, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Self

from hcq.driver import BufferSpec, QueueKind
from hcq.errors import DeviceFault, HcqError, SignalTimeout, UnsupportedError, UsageError
from hcq.hostpool import SIGNALS, STAMPS
from hcq.memory import Buffer, Pool
from hcq.program import Program
from hcq.queue import Queue
from hcq.signal import Signal, Stamp

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from hcq.driver import Allocation, DeviceInfo, DriverDevice, DriverProgram
    from hcq.errors import FaultReport
    from hcq.graph import Executable
    from hcq.memory import Block
    from hcq.profile import Clock, Span
    from hcq.program import KernelImage
    from hcq.signal import Point
    from hcq.validate import Watch

DEFAULT = BufferSpec()
CLOSE_S = 10.0
"""How long `close` waits for work in flight before it stops the queues."""
EXIT_S = 1.0
"""The same at the end of the interpreter."""
_EPOCHS = itertools.count()


class Device:
    """An open device; made by `hcq.open`, or around a driver's device by hand."""

    def __init__(self, driver: DriverDevice, *, watch: Watch | None = None, trace: str = "") -> None:
        self.closed = False
        self.driver = driver
        self.info: DeviceInfo = driver.info
        self.name = f"{self.info.driver}:{self.info.index}"
        self.watch = watch
        """The validation layer, or None."""
        self.trace = trace
        """The file that the spans of all submissions are written to at close; empty: none."""
        self.closes = next(_EPOCHS) << 32
        """Grows whenever a buffer or a program is closed: what was checked before may have to be checked
        again."""
        self.refusal: Callable[[], HcqError] | None = None
        self._lock = threading.RLock()
        self._pools: dict[BufferSpec, Pool] = {}
        self._executables: weakref.WeakSet[Executable] = weakref.WeakSet()
        self._graves: list[tuple[list[Point], Block, list[Block]]] = []
        self._dead_programs: list[tuple[list[Point], DriverProgram]] = []
        self._pending_spans: list[tuple[Queue, Point | None, list[tuple[str, Stamp, Stamp]]]] = []
        self._spans: list[Span] = []
        with ExitStack() as undo:
            undo.callback(setattr, self, "closed", True)
            undo.callback(driver.close)
            SIGNALS.attach(driver)
            undo.callback(SIGNALS.detach, driver)
            STAMPS.attach(driver)
            undo.callback(STAMPS.detach, driver)
            undo.callback(self._close_pools)
            self._default_pool = self._pool(DEFAULT)
            self.computes = tuple(
                self._queue(undo, QueueKind.COMPUTE, i) for i in range(self.info.compute_queues)
            )
            self.copies = tuple(self._queue(undo, QueueKind.COPY, i) for i in range(self.info.copy_queues))
            undo.pop_all()
        self.queues = (*self.computes, *self.copies)
        _remember(self)

    def _queue(self, undo: ExitStack, kind: QueueKind, index: int) -> Queue:
        queue = Queue(self, kind, index, watch=self.watch)
        undo.callback(queue.ring.close)
        return queue

    @property
    def compute(self) -> Queue:
        """The first compute queue."""
        return self.computes[0]

    # -- memory -------------------------------------------------------------------------------------------------------

    def alloc(self, size: int, spec: BufferSpec = DEFAULT, *, label: str = "") -> Buffer:
        """Return a buffer of `size` bytes that nothing uses; what it holds is undefined.

        When the driver is out of memory, caches are emptied and work in flight is waited for before
        `OutOfMemoryError` is raised; nothing leaks and the next call may succeed.
        """
        if self.refusal is not None:
            raise self.refusal()
        pool = self._default_pool if spec is DEFAULT else self._pool(spec)
        block, home = pool.take(size)
        buffer = Buffer(self, block, home, size, spec, label)
        if self.watch is not None:
            self.watch.allocated(buffer)
        return buffer

    def _pool(self, spec: BufferSpec) -> Pool:
        pool = self._pools.get(spec)
        if pool is None:
            with self._lock:
                pool = self._pools.get(spec)
                if pool is None:
                    pool = self._pools[spec] = Pool(self.driver, spec, self._lock, self._reclaim)
        return pool

    def _reclaim(self, attempt: int) -> bool:
        """Free memory for an allocation that failed, harder with every attempt; False when nothing is left to
        try.
        """
        if attempt == 1:
            for executable in tuple(self._executables):
                executable.forget()
            gc.collect()
        elif attempt > 1:
            oldest = [point for queue in self.queues if (point := queue.oldest()) is not None]
            if not oldest:
                return False
            oldest[0].wait()
        self.sweep()
        for pool in self._pools.values():
            pool.trim()
        return True

    def sweep(self) -> None:
        """Retire submissions that are done and free what was closed while they ran."""
        for queue in self.queues:
            queue.sweep()
        with self._lock:
            graves, self._graves = self._graves, []
            for grave in graves:
                points, block, home = grave
                if all(point.passed() for point in points):
                    home.append(block)
                else:
                    self._graves.append(grave)
            programs, self._dead_programs = self._dead_programs, []
            for entry in programs:
                if all(point.passed() for point in entry[0]):
                    self.driver.unload(entry[1])
                else:
                    self._dead_programs.append(entry)

    def _in_flight(self, devices: Iterable[Device] = ()) -> list[Point]:
        """Return the last points of all queues, of this device and others, that still run."""
        last = [queue.timeline.last for device in (self, *devices) for queue in device.queues]
        return [point for point in last if not point.passed()]

    def retire_block(
        self, block: Block | None, home: list[Block], peers: Iterable[Device], after: Point | None
    ) -> None:
        """Take the memory of a closed buffer back when all that runs now is done."""
        for device in (self, *peers):
            device.closes += 1
        if block is None or self.closed:
            return
        points = self._in_flight(peers)
        if after is not None:
            points.append(after)
        if points:
            self._graves.append((points, block, home))
        else:
            home.append(block)

    def map_peer(self, allocation: Allocation, owner: Device) -> None:
        """Make another device's memory visible here; `Buffer.map_to` is the way to say it."""
        if self.refusal is not None:
            raise self.refusal()
        with self._lock:
            self.driver.map_peer(allocation, owner.driver)

    def nearest(self, va: int) -> str:
        """Say in words what lies nearest to an address; for fault reports."""
        if self.watch is not None and (text := self.watch.nearest(va)):
            return text
        best: tuple[int, str] | None = None
        for pool in tuple(self._pools.values()):
            for allocation in pool.chunks():
                end = allocation.va + allocation.size
                away = max(allocation.va - va, va - end + 1, 0)
                where = f"{away} bytes from" if away else "inside"
                text = f"{where} pages {allocation.va:#x} to {end:#x} (HCQ_VALIDATE=1 names the buffer)"
                if best is None or away < best[0]:
                    best = (away, text)
        return best[1] if best else ""

    def caller(self) -> str:
        """Return the user's file and line when validation is on, else nothing."""
        if self.watch is None:
            return ""
        frame = sys._getframe(1)  # noqa: SLF001 - the documented way to a frame
        while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith("hcq."):
            frame = frame.f_back
        return f"{frame.f_code.co_filename}:{frame.f_lineno}"

    # -- signals, programs, time ---------------------------------------------------------------------------------------

    def signal(self, value: int = 0, *, host_set: bool = False, label: str = "") -> Signal:
        """Return a new signal; `host_set` allows the host, not only queues, to raise it."""
        if self.refusal is not None:
            raise self.refusal()
        return Signal(self, value, host_set=host_set, label=label)

    def stamp(self) -> Stamp:
        """Return a record that `CommandBuffer.timestamp` writes the device's time to."""
        return Stamp()

    def clock(self) -> Clock:
        """Return the device's clock tied to the host's, as of now."""
        if self.refusal is not None:
            raise self.refusal()
        return self.driver.clock()

    def load(self, image: KernelImage) -> Program:
        """Upload a kernel. Raises `UnsupportedError` for another architecture, `UsageError` for a broken
        image.
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
        self.closes += wait
        if not self.closed:
            self._dead_programs.append((self._in_flight() if wait else [], loaded))
            if wait:
                self.sweep()

    def expect_spans(self, queue: Queue, spans: list[tuple[str, Stamp, Stamp]]) -> None:
        """Read these time records once they are written."""
        self._pending_spans.append((queue, None, spans))

    def spans(self) -> list[Span]:
        """Return the spans that were completed since the last call, in order of their start."""
        from hcq.profile import Span  # noqa: PLC0415 - only here

        clock = self.clock()
        pending, self._pending_spans = self._pending_spans, []
        for queue, point, spans in pending:
            left = [span for span in spans if not span[2].ticks]
            if left:
                self._pending_spans.append((queue, point, left))
            self._spans += [
                Span(name, queue.label, clock.to_ns(begin.ticks), clock.to_ns(end.ticks))
                for name, begin, end in spans
                if end.ticks
            ]
        out, self._spans = sorted(self._spans, key=lambda span: (span.start_ns, -span.end_ns)), []
        return out

    def keep(self, executable: Executable) -> None:
        """Remember an executable, to have it let go of buffers when memory is short."""
        self._executables.add(executable)

    # -- waiting and faults ---------------------------------------------------------------------------------------------

    def sync(self, *, timeout_s: float | None = None) -> None:
        """Wait until everything submitted so far to any queue is done."""
        if self.refusal is not None:
            raise self.refusal()
        for queue in self.queues:
            queue.sync(timeout_s=timeout_s)
        self.sweep()

    def wait_slot(self, va: int, value: int, timeout_s: float) -> bool:
        """Sleep until a signal slot is >= `value` or the time is over; see `DriverDevice.wait`."""
        if self.refusal is not None:
            raise self.refusal()
        return self.driver.wait(va, value, timeout_s)

    def saw(self, signal: Signal, value: int) -> None:
        """Note, for the validation layer, that the host saw a signal's slot at `value`."""
        if self.watch is not None:
            self.watch.saw(signal, value)

    def poll_faults(self, signal: Signal | None = None, value: int = 0) -> None:
        """Raise when this device, or one that its queues wait for, is faulted or closed.

        With validation on also when nothing can raise the slot of `signal` to `value`.
        """
        seen: set[Device] = set()
        todo: list[Device] = [self]
        while todo:
            device = todo.pop()
            if device in seen:
                continue
            seen.add(device)
            if device.refusal is None and (report := device.driver.fault()) is not None:
                device.faulted(report)
            if device.refusal is not None:
                raise device.refusal()
            if len(_OPEN) > 1:
                todo += device.waits_for()
        if signal is not None and self.watch is not None:
            self.watch.waiting(signal, value)

    def waits_for(self) -> set[Device]:
        """Return the other devices whose signals the work in flight waits for."""
        from hcq.commands import Wait  # noqa: PLC0415 - only when several devices are open

        out: set[Device] = set()
        for queue in self.queues:
            for _, kept in queue.inflight():
                for command in kept:
                    if isinstance(command, Wait) and isinstance(command.signal.device, Device):
                        out.add(command.signal.device)
        return out - {self}

    def faulted(self, report: FaultReport) -> None:
        """Make a fault sticky: every later call raises the same report."""
        with self._lock:
            if self.refusal is not None:
                return
            if report.va is not None and not report.nearest:
                report = replace(report, nearest=self.nearest(report.va))
            if not report.stuck_at:
                report = replace(report, stuck_at=self._stuck())
            self._refuse(lambda: DeviceFault(report))

    def _refuse(self, refusal: Callable[[], HcqError]) -> None:
        self.refusal = refusal
        for queue in self.queues:
            queue.refusal = refusal

    def _stuck(self) -> str:
        lines = [(queue, queue.ring.stuck()) for queue in self.queues]
        return "; ".join(f"{queue.label}: {text}" for queue, text in lines if text)

    def stuck_on(self, signal: Signal, value: int, waited_s: float) -> str:
        """Say what a wait that timed out was about: the text of `SignalTimeout`."""
        name = signal.label or f"signal at {signal.va:#x}"
        text = f"{name} stuck at {signal.value} of {value} after {waited_s:.1f} s"
        for queue in self.queues:
            doing = queue.ring.stuck()
            if doing:
                last = queue.timeline.last
                text += f"; {queue.label} at {last.signal.value} of {last.value}: {doing}"
        if not self._stuck():
            text += f"; all queues of {self.name} are idle: nothing that was submitted raises it"
        if self.watch is not None:
            text += "".join(f"\n  {line}" for line in self.watch.wait_graph())
        return text

    # -- the end --------------------------------------------------------------------------------------------------------

    def close(self, *, timeout_s: float = CLOSE_S) -> None:
        """Wait for work in flight, then give everything back; idempotent.

        Work that is not done after `timeout_s` seconds is stopped, and a `ResourceWarning` says what it was.
        """
        with self._lock:
            if self.closed:
                return
            stuck = self._drain(timeout_s)
            self.closed = True
            self._refuse(lambda: UsageError(f"{self.name} is closed"))
        self._stop()
        if stuck:
            warnings.warn(
                f"{self.name} was closed while work was in flight: {stuck}", ResourceWarning, stacklevel=2
            )

    def _drain(self, timeout_s: float) -> str:
        """Wait for the queues; return what they were stuck on. A faulted device is not waited for."""
        if isinstance(self.refusal() if self.refusal else None, DeviceFault):
            return ""
        try:
            for queue in self.queues:
                queue.timeline.last.wait(timeout_s=timeout_s)
            if self.trace:
                self._write_trace()
        except SignalTimeout as error:
            return str(error)
        except DeviceFault:
            return ""
        return ""

    def _write_trace(self) -> None:
        from pathlib import Path  # noqa: PLC0415 - only when tracing

        from hcq.profile import write_chrome_trace  # noqa: PLC0415 - only when tracing

        write_chrome_trace(Path(self.trace), self.spans())

    def _stop(self) -> None:
        _OPEN.discard(self)
        with ExitStack() as undo:  # in reverse: rings first, the device last
            undo.callback(self.driver.close)
            undo.callback(SIGNALS.detach, self.driver)
            undo.callback(STAMPS.detach, self.driver)
            undo.callback(self._close_pools)
            for _, loaded in self._dead_programs:
                undo.callback(self.driver.unload, loaded)
            for queue in self.queues:
                undo.callback(queue.forget)
                undo.callback(queue.ring.close)

    def _close_pools(self) -> None:
        for pool in self._pools.values():
            pool.close()

    def orphan(self) -> None:
        """Refuse everything in a forked child: the queues' threads, and the hardware, stayed with the parent."""
        self.closed = True
        parent, child = os.getppid(), os.getpid()
        text = (
            f"{self.name} was opened by process {parent} and cannot be used in its fork {child}\n"
            f"hint: open it again here, or start processes by spawn"
        )
        self._refuse(lambda: UsageError(text))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Device {self.name} ({self.info.name}, {self.info.arch}){' closed' if self.closed else ''}>"

    def __del__(self) -> None:
        if not getattr(self, "closed", True):
            warnings.warn(f"{self!r} was never closed", ResourceWarning, stacklevel=2, source=self)
            self.close()


_OPEN: weakref.WeakSet[Device] = weakref.WeakSet()
"""The open devices of this process: what a fork must orphan and the end of the interpreter must close."""
_hooked: list[bool] = []


def _remember(device: Device) -> None:
    if not _hooked:
        _hooked.append(True)
        atexit.register(_close_all)
        os.register_at_fork(after_in_child=_orphan_all)
    _OPEN.add(device)


def _close_all() -> None:
    for device in tuple(_OPEN):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ResourceWarning)
            with suppress(HcqError):  # the interpreter ends: nobody is left to tell
                device.close(timeout_s=EXIT_S)


def _orphan_all() -> None:
    for device in tuple(_OPEN):
        device.orphan()
    _OPEN.clear()
    SIGNALS.forget()
    STAMPS.forget()
