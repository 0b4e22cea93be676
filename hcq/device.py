"""Open devices: they allocate memory, own queues, load programs and detect faults.

Every `hcq.open` returns a new device, also for the same name; two of them share only the hardware. All
methods may be called from any thread. Dropping an open device without `close` emits a `ResourceWarning`;
devices that are open when the interpreter ends are closed without one. A forked child cannot use the devices
of its parent.

This file exceeds 400 lines because half of it are the contracts of the public methods.

Not here: opening by name (`registry`), submission (`queue`), what a driver implements (`driver`), what is
freed later (`retired`), the steps of closing (`closing`), polling for faults, their texts and recovery
(`hcq.faults`).
"""

from __future__ import annotations

import ctypes
import itertools
import os
import threading
import time
import warnings
import weakref
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Self

from hcq.closing import CLOSE_S, Once, drain, stop
from hcq.errors import (
    DeviceFault,
    FaultReport,
    FaultWarning,
    UnsupportedError,
    UsageError,
    UsageTypeError,
    refuse_copy,
    user_line,
)
from hcq.faults.messages import detect_fault, overrun_report, timeout_text
from hcq.faults.polling import completed, poll, poll_room
from hcq.faults.refusal import FaultRefusal, note
from hcq.hardware import Allocation, BufferSpec, DeviceInfo, QueueKind
from hcq.heap import Block, Chunk, FreeList, MemoryUse, Pool, tracked
from hcq.hostpool import SIGNALS, STAMPS, file_size, memory_file
from hcq.idle import IdleTime
from hcq.inflight import using
from hcq.locks import NOTHING
from hcq.memory import Buffer
from hcq.outputs import Outputs
from hcq.process import OPEN, open_devices, remember
from hcq.profile import Clock, Span, SpanLog, write_trace
from hcq.program import DriverProgram, KernelImage, Program
from hcq.queue import Queue
from hcq.retired import Replayable, Retired
from hcq.signal import LOST, Point, Refusal, Signal, Stamp, check_timeout

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from hcq.counters import Counters
    from hcq.driver import DriverDevice
    from hcq.validate.validator import Validator

DEFAULT = BufferSpec()
_EPOCHS = itertools.count()
PAGE = 4096
"""Bytes of the memory of a shared signal."""
_LET_RUN_S = 1e-5
"""Seconds that a wait for an emulated device sleeps first; the kernel's timers make at least 60 us of it."""


class Device:
    """An open device; made by `hcq.open`, or by `hcq.registry.wrap` around a driver's device.

    It owns its queues (`compute`, `computes`, `copies`), memory, signals and programs. As a context manager
    it calls `close` at the end of the block. All methods may be called from any thread. After a fault every
    method that uses the device, except `recover` and `close`, raises the same `DeviceFault`; after `close`,
    and in a forked child, it raises `UsageError`.

        with hcq.open("cpu") as device:
            print(device.info.arch, len(device.copies))
    """

    def __init__(
        self, driver: DriverDevice, *, watch: Validator | None = None, trace: str = "", profile: bool = False,
        counters: str = "", emulated: bool = False,
        on_fault: Callable[[Device, FaultReport], None] | None = None,
    ) -> None:  # fmt: skip
        self.closed = self.inherited = False
        self.emulated = emulated
        """Whether threads of this process do the work (`hcq.driver.Driver.emulated`)."""
        self.report: FaultReport | None = None
        """The fault of the device, until it recovers; None: no fault."""
        self._raw: FaultReport | None = None
        """The last report from the driver, to ignore one that a thread polled before a recovery."""
        self._unmet: FaultReport | None = None
        """The fault that no call had raised when the device closed."""
        self._recovery, self._on_fault = threading.Lock(), on_fault
        self.driver = driver
        self.info: DeviceInfo = driver.info
        self.name = f"{self.info.driver}:{self.info.index}"
        self.watch = watch
        """The validation layer, or None."""
        self.trace = trace
        """The file that receives the spans of all submissions when the device closes; empty: none."""
        self.counters: tuple[Counters, str] | None = None
        """(counts of its kernels, `HCQ_COUNTERS`: where `close` reports them); None: they are not counted."""
        self.profile = profile
        """Whether each kernel, copy and fill has a span of its own."""
        self.close_epoch = next(_EPOCHS) << 32
        """Grows whenever a buffer or program is closed; a check made under an older value is repeated."""
        self.refusal: Refusal | None = None
        """Error factory of every call on a closed, faulted or inherited device; None: calls are served."""
        self.reasons: weakref.WeakKeyDictionary[Buffer, Refusal] = weakref.WeakKeyDictionary()
        """Error factory of each buffer that was closed with `reason=`."""
        self._lock = threading.RLock()
        self._shutdown = Once(self._recovery, self._lock)  # a concurrent recovery finishes first
        self.retired = Retired(driver, self._lock)
        """The memory and programs that are freed when no work in flight uses them any more."""
        self.heap = self.retired.heap
        """The pools of its memory."""
        self.outputs = Outputs()
        """Memory in which kernels leave text, printed when a wait ends and the device is idle."""
        self.span_log = SpanLog(keep=bool(trace))
        self.queues: tuple[Queue, ...] = ()
        """All queues; none yet while the device opens, when memory may be short already."""
        with ExitStack() as undo:
            undo.callback(setattr, self._shutdown, "done", True)
            undo.callback(setattr, self, "closed", True)
            undo.callback(driver.close)
            undo.callback(SIGNALS.detach, driver)
            SIGNALS.attach(driver)
            undo.callback(STAMPS.detach, driver)
            STAMPS.attach(driver)
            undo.callback(self.retired.close)
            if watch is not None:
                undo.callback(watch.guards.close)  # before its memory returns: buffers may be dropped later
            self._default_pool = self.heap.pool(DEFAULT)
            self.computes = tuple(
                self._queue(undo, QueueKind.COMPUTE, i) for i in range(self.info.compute_queues)
            )
            self.copies = tuple(self._queue(undo, QueueKind.COPY, i) for i in range(self.info.copy_queues))
            undo.pop_all()
        self.queues = (*self.computes, *self.copies)
        self.retired.queues = self.queues
        if counters:
            from hcq.counters import begin  # noqa: PLC0415 - loaded on demand

            self.counters = begin(self, counters)
        remember(self)

    @property
    def closing(self) -> bool:
        """Whether `close` has begun."""
        return self._shutdown.begun

    def _queue(self, undo: ExitStack, kind: QueueKind, index: int) -> Queue:
        queue = Queue(self, kind, index, watch=self.watch)
        undo.callback(queue.ring.close)
        return queue

    @property
    def compute(self) -> Queue:
        """The first compute queue."""
        return self.computes[0]

    def alloc(
        self, size: int, spec: BufferSpec = DEFAULT, *, label: str = "", queue: Queue | None = None
    ) -> Buffer:
        """Return a new buffer of `size` bytes with undefined contents.

        `spec` is the kind of memory; by default device memory aligned to 256 bytes, which need not be visible
        to the host. `label` names the buffer in errors. `queue` may get memory at once that was closed with
        `Buffer.close(at=)` at a point of that queue: only its later submissions may use the buffer, and what
        waits for them. With validation it is not reused before the point.

        The caller owns the buffer: its memory is freed with the last reference, or by `Buffer.close`.

        Most calls reuse memory of the device's pools and do not reach the driver. Any thread may call.

        Raises `UsageError` for a size that is no int of at least 1, an alignment that is not a power of two
        up to 2 MiB, and a closed device; `UsageTypeError` for another class of `spec` or of its fields;
        `UnsupportedError` for a kind of memory that the device does not have; `DeviceFault` after a fault;
        `OutOfMemoryError` when memory is still short after unused pool memory was returned and work in flight
        was waited for. Nothing is allocated then, and a later call may succeed.

            host = device.alloc(4096, hcq.BufferSpec(place=hcq.Place.HOST, host_visible=True, coherent=True))
        """
        if self.refusal is not None:
            raise self.refusal()
        pool = self._default_pool if spec is DEFAULT else self.heap.pool(spec)
        if self.watch is not None:
            return self._validated(self.watch, pool, size, label)
        block: Block
        free_list: FreeList
        if queue is not None and queue.__class__ is not Queue:
            raise UsageTypeError(f"memory of {size!r} bytes, queue: wanted a queue, seen {queue!r}")
        if queue is not None and (found := self.heap.take_ordered(pool, size, queue.timeline.signal)):
            block, free_list = found
        else:
            block, free_list = pool.take(size)
        if block.chunk.allocation.tracker is not None:
            return Buffer(self, block, tracked(block, free_list, size), size, spec, label)
        return Buffer(self, block, free_list, size, spec, label)

    def _validated(self, watch: Validator, pool: Pool, size: int, label: str) -> Buffer:
        """Return a buffer that the validation layer knows."""
        block, free_list = watch.take(pool, size, label)
        free_list = tracked(block, free_list, size)
        buffer = Buffer(self, block, free_list, size, pool.spec, label)
        watch.allocated(buffer)
        return buffer

    def memory(self) -> MemoryUse:
        """Return how much memory the pools have, for what, and the labels of the largest buffers.

        It looks through all objects of the process: not for hot paths.
        """
        return self.heap.use(self.retired.owners())

    def trim(self) -> int:
        """Return memory that no buffer uses to the driver; return the number of bytes.

        Frees what was closed and is done first; waits for nothing. Raises `UsageError` for a closed device,
        `DeviceFault` after a fault.
        """
        if self.refusal is not None:
            raise self.refusal()
        self.sweep()
        return self.heap.trim()

    def sweep(self) -> None:
        """Retire completed submissions, and free memory and programs that were closed while they ran."""
        self.retired.sweep()

    def retire_block(
        self,
        block: Block | None,
        free_list: FreeList,
        peers: Iterable[Device],
        *,
        after: Point | None = None,
        at: Point | None = None,
    ) -> None:
        """Return the memory of a closed buffer to its pool once the work now in flight is done.

        `peers` are other devices that can access it; `after` must be reached too. `at`: only that point must
        be. `block` None: a view.
        """
        for device in (self, *peers):
            device.close_epoch += 1
        if block is None or self.closed:
            return
        queues = (queue for peer in peers for queue in peer.queues)
        points = self.retired.in_flight(queues) if at is None else [at]
        if after is not None:
            points.append(after)
        self.heap.defer_free(points, block, free_list)
        if self.watch is not None:
            self.watch.raise_overruns()

    def map_peer(self, allocation: Allocation, owner: Device) -> None:
        """Map another device's memory into this device; `Buffer.map_to` calls it.

        Raises `UnsupportedError` when the devices cannot share memory.
        """
        if self.refusal is not None:
            raise self.refusal()
        with self._lock:
            self.driver.map_peer(allocation, owner.driver)

    def export(self, allocation: Allocation) -> int:
        """Return a descriptor of an allocation; `Buffer.export` calls it."""
        if self.refusal is not None:
            raise self.refusal()
        return self.driver.export(allocation)

    @property
    def peers(self) -> tuple[Device, ...]:
        """The other open devices whose device memory this one can access, tried with 4 KiB of each.

        Both see such memory at one address once `Buffer.map_to` has mapped it. Raises as `alloc`.
        """
        found = []
        for other in open_devices():
            if other is not self and isinstance(other, Device) and other.refusal is None:
                with other.alloc(4096, label="seen by a peer?") as probe:
                    try:
                        probe.map_to(self)
                    except UnsupportedError:
                        continue
                found.append(other)
        return tuple(sorted(found, key=lambda device: (device.info.driver, device.info.index)))

    def caller(self) -> str:
        """Return "file:line" of the caller outside hcq when validation is on, else an empty text."""
        return "" if self.watch is None else user_line()

    def signal(
        self, value: int = 0, *, host_set: bool = False, label: str = "", shared: bool = False
    ) -> Signal:
        """Return a new signal with the value `value`.

        `host_set` allows the host to set it; otherwise only queues do. `label` names it in errors. `shared`:
        other processes may use it too (`Signal.export`), and set it like the host; it starts at 0. It is
        freed with its last reference; a shared page and its descriptor when one is shared next.

        Raises `UsageError` for a closed device and a value that 64 bits cannot hold, `DeviceFault` after a
        fault, `OutOfMemoryError` when there is no memory for its slot, `OSError` when Linux gives no file for
        a shared one.
        """
        if self.refusal is not None:
            raise self.refusal()
        if not shared:
            signal = Signal(self, value, host_set=host_set, label=label)
            signal.limit(self.info.limits.get("signal_bits", 64))
            return signal
        if value:
            raise UsageError(f"signal {label!r}: a shared one starts at 0, seen {value!r}")
        return self._shared_signal(memory_file(PAGE), label)

    def import_signal(self, fd: int, *, label: str = "") -> Signal:
        """Return the signal of another process that `Signal.export` gave; `fd` stays the caller's.

        A process that ends raises nothing any more: wait with a timeout for what only it sets. Raises
        `UsageError` for another descriptor, else as `signal` does.
        """
        if self.refusal is not None:
            raise self.refusal()
        file_size(fd)
        return self._shared_signal(os.dup(fd), label)

    def _shared_signal(self, fd: int, label: str) -> Signal:
        """Return a signal that owns the descriptor of its memory."""
        try:
            return Signal(self, host_set=True, label=label, file=fd)
        except BaseException:
            os.close(fd)
            raise

    def import_buffer(self, fd: int, *, label: str = "") -> Buffer:
        """Return a buffer with the memory of another process that `Buffer.export` gave.

        `fd` stays the caller's. The memory exists as long as a process has it; it is unmapped here with the
        last reference. Access is ordered by a shared signal. Raises `UsageError` for another descriptor,
        `UnsupportedError` for a device that cannot import it, `OutOfMemoryError`.
        """
        if self.refusal is not None:
            raise self.refusal()
        allocation = self.driver.adopt(fd)
        block, free_list = self.heap.adopt(allocation)
        spec = replace(DEFAULT, shared=True, host_visible=allocation.host is not None)
        buffer = Buffer(self, block, free_list, allocation.size, spec, label)
        if self.watch is not None:
            self.watch.allocated(buffer)
        return buffer

    def host_buffer(self, memory: memoryview, *, label: str = "") -> Buffer:
        """Return a buffer over writable host memory of the caller, without a copy.

        `memory` is dense in C order and not empty. The buffer keeps it until its last reference, and frees
        nothing itself. The caller orders other uses of the memory by points. Raises `UnsupportedError` for a
        device whose memory is not the host's, `UsageError` for memory that is read-only, empty or not dense,
        and for a closed device, `DeviceFault` after a fault.
        """
        if self.refusal is not None:
            raise self.refusal()
        if not self.info.host_addressable:
            raise UnsupportedError(
                f"{self.name} cannot use memory of the host in place\nhint: copy it to Device.alloc's memory"
            )
        if memory.__class__ is not memoryview:
            raise UsageTypeError(f"wanted memory of the host, seen {memory!r}\nhint: memoryview(it)")
        if memory.readonly or not memory.c_contiguous or not memory.nbytes:
            kind = "read-only" if memory.readonly else "dense" if memory.c_contiguous else "strided"
            raise UsageError(f"wanted writable dense memory, seen {memory.nbytes} bytes of {kind} memory")
        flat = memory.cast("B")
        va = ctypes.addressof(ctypes.c_ubyte.from_buffer(flat))
        block = Block(Chunk(Allocation(va, flat.nbytes, flat)), 0, flat.nbytes, [])
        block.free = NOTHING
        buffer = Buffer(self, block, [], flat.nbytes, DEFAULT, label)
        if self.watch is not None:
            self.watch.allocated(buffer)
        return buffer

    def stamp(self) -> Stamp:
        """Return a new time record, for `CommandBuffer.timestamp`.

        Its `ticks` are 0 until the command has run. It is freed with its last reference.
        """
        return Stamp()

    def clock(self) -> Clock:
        """Return the relation of the device clock to the host's CLOCK_MONOTONIC, measured now.

        Raises `UsageError` for a closed device, `DeviceFault` after a fault.
        """
        if self.refusal is not None:
            raise self.refusal()
        return self.driver.clock()

    def load(self, image: KernelImage) -> Program:
        """Upload a kernel and return the program, which every compute queue of this device can launch.

        The code stays loaded until the program is closed or dropped and no launch of it is in flight. Raises
        `UnsupportedError` for another architecture, `UsageError` for a malformed image or a closed device,
        `UsageTypeError` for another class, `OutOfMemoryError` when there is no memory for the code,
        `DeviceFault` after a fault.
        """
        if self.refusal is not None:
            raise self.refusal()
        if not isinstance(image, KernelImage):
            raise UsageTypeError(
                f"wanted an hcq.KernelImage, seen {type(image).__name__}\n"
                "hint: docs/kernel-by-hand.md makes one; interop.load takes PTX, cubins and code objects"
            )
        if isinstance(image.arch, str) and image.arch != self.info.arch:
            raise UnsupportedError(
                f"kernel {image.name} is for {image.arch}, {self.name} is {self.info.arch}\n"
                f"hint: compile it for DeviceInfo.arch of the device that loads it"
            )
        image.verify()
        with self._lock:
            return Program(self, image, self.retired.reclaimed(self.driver.load, image))

    def retire_program(self, loaded: DriverProgram) -> None:
        """Unload a program once the work now in flight is done."""
        self.close_epoch += 1
        if not self.closed:
            self.retired.unloads.waiting.append((self.retired.in_flight(), loaded))
            self.sweep()

    def dropping(self, loaded: DriverProgram) -> Callable[[], object]:
        """Return the function that unloads a program at the next `sweep`, for its finalizer."""
        return partial(self.retired.unloads.waiting.append, ([], loaded))

    def spans(self) -> list[Span]:
        """Return the spans that completed since the last call, ordered by start time.

        There are spans for `CommandBuffer.span`; with a trace also for whole submissions; with `profile` also
        for each kernel, copy and fill. Raises as `clock` does.
        """
        self.span_log.read(self.clock())
        return self.span_log.take()

    def keep(self, executable: Replayable) -> None:
        """Register an executable, to be called when memory is short and after a recovery."""
        self.retired.executables.add(executable)

    def sync(self, *, timeout_s: float | None = None) -> None:
        """Wait until all submissions so far, to every queue, are complete.

        `timeout_s` applies to each queue, in seconds; None: no limit. Raises `SignalTimeout` after it,
        `DeviceFault` after a fault, `UsageError` for a closed device and, with validation, for an overrun
        buffer; `UsageTypeError` for a timeout that is no number.
        """
        check_timeout(timeout_s)
        if self.refusal is not None:
            raise self.refusal()
        for queue in self.queues:
            queue.sync(timeout_s=timeout_s)
        if self.outputs:
            self.flush_outputs()
        self.sweep()
        if self.watch is not None:
            self.watch.check_overruns()

    def wait_slot(self, va: int, value: int, timeout_s: float) -> bool:
        """Sleep until the slot at `va` is >= `value`, or `timeout_s` seconds; see `DriverDevice.wait`."""
        if self.refusal is not None:
            raise self.refusal()
        if self.emulated:  # drivers spin before they sleep, which holds up the threads that do the work
            time.sleep(min(_LET_RUN_S, timeout_s))
        return self.driver.wait(va, value, timeout_s)

    def wait_ended(self) -> None:
        """Record for the validation layer that this thread has stopped waiting."""
        if self.watch is not None:
            self.watch.wait_ended()

    def host_observed(self, signal: Signal, value: int) -> None:
        """Record that the host observed the slot of `signal` at `value`; print what kernels left."""
        if self.outputs:
            self.flush_outputs()
        if self.watch is not None:
            self.watch.host_observed(signal, value)
            if not self.closing:
                self.watch.raise_overruns()

    def host_sets(self, signal: Signal, value: int) -> None:
        """Record for the validation layer that the host sets a signal to `value` next.

        Raises `UsageError` in a forked child, and as `Signal.check` does.
        """
        if self.inherited and self.refusal is not None:
            raise self.refusal()
        signal.check(value)
        if self.watch is not None:
            self.watch.host_sets(signal, value)

    def flush_outputs(self) -> None:
        """Print what kernels left in memory (`printf`), if no work is in flight.

        Waits, `sync` and `close` call it. Does nothing while another thread submits.
        """
        locks = [queue.lock for queue in self.queues]
        self.outputs.flush(locks, lambda: self.report is not None or not self.retired.in_flight())

    def raise_overrun(self, signal: Signal) -> None:
        """Mark the device as faulted and raise: `signal`, a timeline, exceeds the last submitted value.

        No point counts as reached by such a value.
        """
        if signal in LOST:
            _, lost = LOST[signal]
            raise lost()
        report = overrun_report(self.name, signal)
        self.faulted(report)
        raise self.refusal() if self.refusal is not None else DeviceFault(report)

    def poll_faults(self, signal: Signal | None = None, value: int = 0, *, timed: bool = True) -> None:
        """Raise when this device, or a device that its queues wait for, is faulted or closed.

        The error is `DeviceFault` or `UsageError`. With validation also raises `UsageError` when nothing can
        raise the slot of `signal` to `value`, except for a `timed` wait: its thread continues after the
        timeout, and may raise the signal.
        """
        poll(self, signal, value, timed=timed)

    def poll_room(self, queue: Queue, until: int, *, timed: bool) -> None:
        """Raise when `queue` will never have read `until` units of its full ring; see `poll_faults`."""
        poll_room(queue, until, timed=timed)

    def poll_driver(self) -> None:
        """Query the driver for a fault; check the queues' timelines, and the time limits of submissions."""
        if self.refusal is None and (report := self.driver.fault() or detect_fault(self)) is not None:
            self.faulted(report)
            self.flush_outputs()

    def faulted(self, report: FaultReport) -> None:
        """Make a fault sticky: every later call raises `DeviceFault` with this report, until `recover`."""
        with self._lock:
            if self.refusal is not None or report is self._raw:
                return
            self._raw = report
            self.report = report = completed(self, report)
            if self._on_fault is not None:
                self._on_fault(self, report)
            refusal = FaultRefusal(report)
            self.refuse(refusal)
        if self.watch is not None:
            self.watch.faulted(self, report)
        refusal.collected = note(report)

    def recover(self) -> tuple[Buffer, ...]:
        """Recover from a fault: every queue gets a new, empty ring.

        Buffers keep their contents and addresses, programs stay loaded, graphs can be replayed. Work in
        flight is lost in every queue: waits for its points raise the `DeviceFault` that ended it. A queue of
        another device that waits for such a point can never continue; that device must recover as well.
        References held by lost work are dropped.

        Returns the buffers that lost work would have written; their contents are undefined.

        Raises `UsageError` for a device without a fault or a closed one, `UnsupportedError` when the driver
        cannot recover. After any error the device is still faulted.
        """
        from hcq.faults.recovery import recover  # noqa: PLC0415 - only after a fault

        if self.closed and self.refusal is not None:  # before the lock: in a forked child nobody releases it
            raise self.refusal()
        with self._recovery:
            if self.closing:
                raise UsageError(f"{self.name} is closed")
            return recover(self)

    def resume(self) -> None:
        """Accept calls again after a recovery."""
        with self._lock:
            self.report = None
            self.span_log.drop_lost()
            self.refuse(None)
        self.sweep()

    def refuse(self, refusal: Refusal | None) -> None:
        """Make every later call raise the error of `refusal`; None: accept calls again."""
        self.refusal = refusal
        for queue in self.queues:
            queue.refusal = refusal

    def stuck_on(self, signal: Signal, value: int, waited_s: float) -> str:
        """Return the message of `SignalTimeout` for a wait that lasted `waited_s` seconds."""
        return timeout_text(self, signal, value, waited_s)

    def close(self, *, timeout_s: float = CLOSE_S) -> None:
        """Wait for work in flight, then release all resources. Idempotent.

        Work of other devices that uses memory of this one is waited for, too. Each queue is waited for at
        most `timeout_s` seconds; then it is stopped, and a `ResourceWarning` names the work. For an emulated
        device these are seconds of `hcq.idle.IdleTime`: a loaded machine takes longer, and loses no work. A
        trace or counts that cannot be written are a `UserWarning`. Raises `DeviceFault` for a fault that no
        call has raised, and `UsageError` when validation found an overrun buffer; all is released by then.
        Raises `UsageTypeError` for a timeout that is no number, and closes nothing.
        """
        check_timeout(timeout_s)
        if not self._shut(timeout_s):
            return
        if self._unmet is not None:
            raise DeviceFault(self._unmet)
        if self.watch is not None and self.report is None:
            self.watch.raise_overruns()

    def _shut(self, timeout_s: float) -> bool:
        """Close the device; return whether this call closed it."""
        found = self._shutdown.run(lambda: self._close(timeout_s))
        if found is None:
            return False
        stuck, unwritten = found
        if unwritten:
            warnings.warn(f"{self.name}: {unwritten}", stacklevel=3)
        if stuck:
            text = f"{self.name} was closed while work was in flight: {stuck}"
            warnings.warn(text, ResourceWarning, stacklevel=3)
        return True

    def _close(self, timeout_s: float) -> tuple[str, str]:
        """Refuse submissions, drain and stop the queues.

        Returns the operations that they were stuck on, and which reports could not be written, as texts.
        """
        refusal = partial(UsageError, f"{self.name} is closed")
        stuck = unwritten = ""
        if not self.closed:
            met = isinstance(self.refusal, FaultRefusal) and self.refusal.raised
            unsent = [text for queue in self.queues if (text := queue.shut(refusal, timeout_s))]
            clock = IdleTime().read if self.emulated else time.monotonic
            others = [queue for one in open_devices() if one is not self for queue in one.queues]
            stuck = drain(self.queues, lambda: using(self, others), lambda: self.report, timeout_s, clock)
            stuck = unsent[0] if stuck and unsent else stuck
            if not met and isinstance(self.refusal, FaultRefusal) and not self.refusal.collected:
                self._unmet = self.report
            unwritten = self._write_reports()
            if self.outputs:
                self.flush_outputs()
            if self.watch is not None and not stuck and self.report is None:
                self.watch.guards.check_all()
            self.closed = True
        self.refuse(refusal)
        OPEN.discard(self)
        if self.watch is not None:
            self.watch.drop_in_flight(self.queues)
            self.watch.guards.close()
        stop(self.driver, self.queues, self.retired)
        return stuck, unwritten

    def _write_reports(self) -> str:
        """Write the trace and the counted kernels, where they were asked for; return why that failed."""
        try:
            if self.trace:
                if self.report is None:
                    self.span_log.read(self.clock())
                write_trace(self.trace, self.span_log.take_kept())
            if self.counters is not None:
                from hcq.counters import write_counts  # noqa: PLC0415 - loaded on demand

                write_counts(*self.counters)
        except OSError as error:  # the device is closed all the same
            return f"a trace or counts could not be written: {error}"
        return ""

    def orphan(self, parent: int) -> None:
        """Make every call in a forked child raise: the threads and the hardware belong to the parent."""
        self.closed = self.inherited = self._shutdown.done = True
        text = (
            f"{self.name} was opened by process {parent} and cannot be used in its fork\n"
            f"hint: open it again here, or start processes by spawn"
        )
        self.refuse(partial(UsageError, text))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        """Close the device. A fault that no call has raised is added to an error that leaves the block."""
        try:
            self.close()
        except DeviceFault as fault:
            if not isinstance(error, (Exception, KeyboardInterrupt)):
                raise
            error.add_note(str(fault))

    __reduce__ = refuse_copy

    def __repr__(self) -> str:
        return f"<Device {self.name} ({self.info.name}, {self.info.arch}){' closed' if self.closed else ''}>"

    def __del__(self) -> None:
        if not getattr(self, "closed", True):
            warnings.warn(f"{self!r} was never closed", ResourceWarning, stacklevel=2, source=self)
            self._shut(CLOSE_S)
            if self._unmet is not None:
                warnings.warn(str(self._unmet), FaultWarning, stacklevel=2)
