"""The open `cpu` device: memory, and the threads that execute the packets of its rings.

At close the device's control memory (pool, queues, rings) returns to the driver for reuse and is never
unmapped, because a waiting host thread may still read it for some milliseconds.

Not here: the rings themselves (`ring`), the packets (`layouts`), the memory that threads and host share
(`control`), fault reports (`faults`). Next: `ring`.
"""

from __future__ import annotations

import ctypes
import errno
import os
import threading
import time
from contextlib import ExitStack
from typing import TYPE_CHECKING

from drivers.cpu.control import POLL_NS, Control
from drivers.cpu.encode import CpuEncoder
from drivers.cpu.faults import described, fault_report
from drivers.cpu.program import CpuProgram
from drivers.cpu.ring import CpuRing
from drivers.kernel import MADV_HUGEPAGE, PAGE, unmap_last, view_at
from hcq.driver import Allocation, BufferSpec, DeviceInfo, DriverDevice, QueueKind
from hcq.errors import DriverError, OutOfMemoryError, UnsupportedError, UsageError, size_text
from hcq.hostpool import file_size, memory_file
from hcq.profile import Clock

if TYPE_CHECKING:
    from drivers.cpu.driver import CpuDriver
    from hcq.counters import Counters
    from hcq.errors import FaultReport
    from hcq.program import KernelImage

STOP_LOOK_S = 0.0005
"""Seconds between two checks of `close` for the end of a kernel."""
STOP_LOOKS = 2000
"""The number of checks after which `close` gives up a kernel that does not end.

It is a count and not a time, because on a suspended or busy machine the kernel may have had no CPU time.
"""
HUGE = 4 << 20
"""Allocations of at least this many bytes use huge pages."""
HUGE_PAGE = 2 << 20
"""Size of a huge page in bytes."""


class CpuDevice:
    """An open device, created by `CpuDriver.open`.

    See `hcq.driver.DriverDevice` for the methods' contracts. `alloc`, `map_peer`, `ring`, `load` and
    `recover` raise `UsageError` if the device is closed, and in a forked child.
    """

    def __init__(self, driver: CpuDriver, info: DeviceInfo, workers: int) -> None:
        self.info = info
        self._driver = driver
        self._kernel = driver.kernel
        self._lock = threading.Lock()
        self._process = os.getpid()
        self._state = "open"
        self._allocated = 0
        self._report: FaultReport | None = None
        self._names: dict[int, str] = {}
        address = driver.code.address
        # All functions take and return u64. ctypes converts c_void_p arguments in half the time of c_uint64.
        number, word = ctypes.c_uint64, ctypes.c_void_p
        # PYFUNCTYPE keeps the interpreter lock, for calls that return immediately.
        self.native_ring = ctypes.PYFUNCTYPE(None, word, word)(address["ring"])
        self._native_wake = ctypes.PYFUNCTYPE(None, word, word)(address["wake_signal"])
        self._native_stop = ctypes.PYFUNCTYPE(number, word)(address["stop_all"])
        self._native_wait = ctypes.CFUNCTYPE(number, *[word] * 5)(address["wait_host"])
        self.native_space = ctypes.CFUNCTYPE(number, *[word] * 3)(address["wait_space"])
        kinds = [(QueueKind.COMPUTE, i) for i in range(info.compute_queues)]
        kinds += [(QueueKind.COPY, i) for i in range(info.copy_queues)]
        self._control = control = Control(
            driver.take_control(),
            len(kinds),
            workers=workers,
            code=address,
            imports=driver.libc.address,
            waiters=driver.waiters,
        )
        self.pool, self.poll_va = control.pool, control.poll_va
        self._rings = {
            (kind, index): CpuRing(self, f"{kind.value} queue {index}", control.queues[i], control.ring(i))
            for i, (kind, index) in enumerate(kinds)
        }
        self._threads: list[int] = []
        with ExitStack() as undo:
            undo.callback(self.close)
            self._start_all()
            undo.pop_all()

    def _start_all(self) -> None:
        for label, ring in self._rings.items():
            self._start("processor", ring.queue.va, f"hcq {label[0].value} {label[1]}")
        for i in range(self.pool.workers):
            self._start("worker", self.pool.va, f"hcq worker {i}")

    def _start(self, function: str, argument: int, name: str) -> None:
        entry = self._driver.code.address[function]
        self._threads.append(self._driver.libc.start(entry, argument, name))

    def require_open(self) -> None:
        """Raise `UsageError` if the device is closed, or was opened before a fork of this process."""
        if self._state != "open":
            raise UsageError(f"cpu:{self.info.index} is closed")
        if os.getpid() != self._process:
            raise UsageError(
                f"cpu:{self.info.index} was opened by process {self._process}; its threads "
                "are not in this fork\nhint: open it again here, or start processes by spawn"
            )

    def alloc(self, size: int, spec: BufferSpec) -> Allocation:
        """Map zeroed pages of host memory; only the alignment of `spec` has an effect.

        Raises `OutOfMemoryError` if the total would exceed the memory that this process may use, and as
        `Kernel.mmap`.
        """
        self.require_open()
        if spec.shared:
            size = (size + PAGE - 1) & -PAGE
            self._check_room(size)
            fd = memory_file(size)
            try:
                return self._adopted(fd, size)
            except BaseException:
                os.close(fd)
                raise
        align = max(spec.align, HUGE_PAGE if size >= HUGE else PAGE)
        size = (size + PAGE - 1) & -PAGE
        self._check_room(size)
        slack = align - PAGE
        mapping = self._kernel.mmap(size + slack)
        va = (mapping.va + align - 1) & -align
        for start, end in ((mapping.va, va), (va + size, mapping.va + size + slack)):
            if end > start:
                self._kernel.munmap(start, end - start)
        if size >= HUGE:
            self._advise_huge(va, size)
        self._allocated += size
        return Allocation(va, size, view_at(va, size))

    def _check_room(self, size: int) -> None:
        """Raise `OutOfMemoryError` if `size` bytes more are beyond the memory that this process may use."""
        if self._allocated + size > self.info.vram_bytes:
            raise OutOfMemoryError(
                "alloc",
                errno.ENOMEM,
                "ENOMEM",
                arguments=f"{size_text(size)}; {size_text(self._allocated)} are allocated",
                hint=f"this process may use {size_text(self.info.vram_bytes)}",
            )

    def export(self, allocation: Allocation) -> int:
        """Return a descriptor of memory that was allocated with `BufferSpec.shared`, or adopted."""
        assert isinstance(allocation.handle, int), "shared memory has a descriptor"
        return os.dup(allocation.handle)

    def adopt(self, fd: int) -> Allocation:
        """Map shared memory of another process; see `hcq.driver.DriverDevice.adopt`."""
        self.require_open()
        size = file_size(fd)
        self._check_room(size)
        own = os.dup(fd)
        try:
            return self._adopted(own, size)
        except BaseException:
            os.close(own)
            raise

    def _adopted(self, fd: int, size: int) -> Allocation:
        """Map a memory file, which the allocation then owns."""
        mapping = self._kernel.mmap(size, fd=fd)
        self._allocated += size
        return Allocation(mapping.va, size, mapping.view, fd)

    def _advise_huge(self, va: int, size: int) -> None:
        try:
            self._kernel.madvise(va, size, MADV_HUGEPAGE)
        except DriverError as error:
            if error.status_name != "EINVAL":  # a kernel without transparent huge pages returns EINVAL
                raise

    def free(self, allocation: Allocation, *, keep_host: bool = False) -> None:
        """Unmap an allocation, or leak it if a kernel that did not end may still use it."""
        self._allocated -= allocation.size
        if isinstance(allocation.handle, int):
            os.close(allocation.handle)
        if self._state == "leaked":
            return
        if keep_host and allocation.host is not None:
            unmap_last(self._kernel, allocation.host, allocation.va)
        else:
            self._kernel.munmap(allocation.va, allocation.size)

    def map_host(self, va: int, size: int) -> None:
        """Do nothing: all host memory is visible to the device."""

    def unmap_host(self, va: int, size: int) -> None:
        """Do nothing."""

    def map_peer(self, allocation: Allocation, owner: DriverDevice) -> None:
        """Raise `UnsupportedError` unless the host maps `allocation` at its device address."""
        self.require_open()
        host = allocation.host
        if host is None or ctypes.addressof(ctypes.c_ubyte.from_buffer(host)) != allocation.va:
            raise UnsupportedError(
                f"memory of {owner.info.driver}:{owner.info.index} at {allocation.va:#x} is not visible to "
                "the cpu at that address\nhint: allocate it with host_visible=True, or copy it"
            )

    def ring(self, kind: QueueKind, index: int) -> CpuRing:
        """Return the ring of a queue.

        Raises `UsageError` if there is no such queue or the device is closed.
        """
        self.require_open()
        if (kind, index) not in self._rings:
            raise UsageError(f"the cpu has no {kind.value} queue {index}")
        return self._rings[kind, index]

    def set_priority(self, kind: QueueKind, index: int, level: int) -> None:
        """Raise `UnsupportedError`: all queues share the workers and the threads that wait."""
        del index, level
        raise UnsupportedError(
            f"{kind.value} queues of cpu:{self.info.index} have no priorities: all share its workers\n"
            "hint: set the priority of the process (nice)"
        )

    def encoder(self, kind: QueueKind, index: int) -> CpuEncoder:
        """Return an encoder for a kind of queue; `index` has no effect."""
        del index
        return CpuEncoder(kind, self._driver.foreign)

    def load(self, image: KernelImage) -> CpuProgram:
        """Link a kernel into this process.

        Raises `UnsupportedError` if it is for another architecture, and as `CpuProgram` does.
        """
        self.require_open()
        if image.arch != self.info.arch:
            raise UnsupportedError(f"kernel {image.name} is for {image.arch}, this host is {self.info.arch}")
        program = CpuProgram(self._kernel, self._driver.libc, image)
        self._names[program.entry] = image.name
        return program

    def unload(self, program: object) -> None:
        """Unmap a kernel's code."""
        assert isinstance(program, CpuProgram)  # made by `load`
        self._names.pop(program.entry, None)
        if self._state != "leaked":
            program.code.close()

    def clock(self) -> Clock:
        """Return the clock: a tick is one nanosecond of CLOCK_MONOTONIC."""
        return Clock(ticks=0, host_ns=0, hz=1_000_000_000)

    def wait(self, va: int, value: int, timeout_s: float) -> bool:
        """Sleep in native code until the u64 at `va` is at least `value`; return whether it is.

        Returns False after `timeout_s` or `POLL_NS`, whichever is shorter: the caller repeats it. Raises
        `UsageError` for a value above 64 bits.
        """
        if value > 0xFFFF_FFFF_FFFF_FFFF:
            raise UsageError(f"a signal has 64 bits, {value:#x} cannot be reached")
        ns = int(timeout_s * 1e9)
        if ns >= POLL_NS:
            return bool(self._native_wait(self.pool.va, va, value, self.poll_va, POLL_NS))
        short = (ctypes.c_int64 * 2)(0, max(ns, 1))
        return bool(self._native_wait(self.pool.va, va, value, ctypes.addressof(short), 0))

    def signal_written(self, va: int) -> None:
        """Wake the queues and host threads that wait for the signal at `va`, after the host stored to it."""
        self._native_wake(self.pool.va, va)

    def fault(self) -> FaultReport | None:
        """Return the report of the packet that the processor refused; None if it refused none."""
        if self._report is None and self.pool.fault_packet:
            label = next(r.label for r in self._rings.values() if r.queue.va == self.pool.fault_queue)
            self._report = fault_report(f"cpu:{self.info.index}", self.pool, label)
        return self._report

    def describe(self, op: int, first: int, second: int) -> str:
        """Describe a packet in execution from its op and first operands; see `faults.described`."""
        return described(op, first, second, self._names)

    def stop(self) -> None:
        """Stop all threads between two workgroups. If a kernel does not end, leak the device's memory.

        Afterwards nothing accesses memory of the device, unless it is leaked.
        """
        with self._lock:
            if self._state != "open":
                return
            if os.getpid() != self._process:
                self._state = "stopped"  # the threads are the parent's
                return
            self._state = "stopped" if self._end_threads() else "leaked"

    def _end_threads(self) -> bool:
        """Stop and join all threads; return False if a kernel does not end."""
        self.pool.halt = 1  # before `stop`, which aborts dispatches: no later packet may run
        for _ in range(STOP_LOOKS):
            if self._native_stop(self.pool.va) >= len(self._threads):
                break
            time.sleep(STOP_LOOK_S)
        else:
            return False
        while self._threads:  # removed before the join: a thread must not be joined twice after an interrupt
            self._driver.libc.join(self._threads.pop())
        return True

    def count(self, into: Counters | None) -> Counters | None:
        """Raise `UnsupportedError` always: the host's processors are not emulated."""
        del into
        raise UnsupportedError(f"{self.info.name} counts no instructions\nhint: count on nv-emu or amd-emu")

    def recover(self) -> None:
        """Stop all threads, empty the rings and start new threads; see `hcq.driver.DriverDevice.recover`.

        Raises `DriverError` if a kernel does not end; the caller may recover again later, or close. Raises
        `UsageError` if the device is closed.
        """
        with self._lock:
            self.require_open()
            if not self._end_threads():
                stuck = "; ".join(f"{ring.label} {ring.stuck()}" for ring in self._rings.values())
                hint = "recover again once the kernel has ended; close() gives its memory up"
                raise DriverError("recover", errno.EBUSY, "EBUSY", arguments=stuck, hint=hint)
            self._control.clear()
            for ring in self._rings.values():
                ring.restart()
            self._start_all()
            self._report = None

    def close(self) -> None:
        """Stop the device, and return its control memory to the driver unless it is leaked."""
        self.stop()
        with self._lock:
            leaked = self._state == "leaked"
            if self._state != "closed":
                self._state = "leaked" if leaked else "closed"
                if not leaked:
                    self._driver.give_control(self._control.memory)
