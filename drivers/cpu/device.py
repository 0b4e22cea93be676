"""The open `cpu` device: memory, and the threads that execute the packets of its rings.

Not here: the rings themselves (`ring`), the packets (`layouts`).

The device's control memory (pool, queues, rings) goes back to its driver at close and is used again, never
unmapped: a host thread that waits may still read it for some milliseconds.
"""

from __future__ import annotations

import ctypes
import errno
import os
import threading
import time
from contextlib import ExitStack
from typing import TYPE_CHECKING

from drivers.cpu.encode import CpuEncoder
from drivers.cpu.layouts import (
    LAYOUTS,
    PACKET,
    WAITERS,
    Fault,
    Op,
    Packet,
    Pool,
    Queue,
    Slot,
    Timespec,
    decode,
)
from drivers.cpu.program import CpuProgram
from drivers.cpu.ring import RING_BYTES, CpuRing
from drivers.cpu.threads import IMPORTS
from drivers.kernel import MADV_HUGEPAGE, PAGE, view_at
from hcq.driver import Allocation, DeviceInfo, QueueKind
from hcq.errors import (
    DriverError,
    FaultKind,
    FaultReport,
    OutOfMemoryError,
    UnsupportedError,
    UsageError,
    size_text,
)
from hcq.profile import Clock

if TYPE_CHECKING:
    from drivers.cpu.driver import CpuDriver
    from hcq.driver import BufferSpec, DriverDevice
    from hcq.program import KernelImage

SPINS = 200
"""Pauses before a thread sleeps, about 5 us: longer spins hurt as soon as cores are short."""
LONG_SPINS = 1200
"""The same for a processor that was rung within `OFTEN_NS` after its queue ran empty, about 30 us."""
OFTEN_NS = 40_000
MOVE_NS = 1_000_000
"""A processor that shares the host's core moves away from it at most so often."""
GRAIN_NS = 4000
"""A dispatch of less work than this is not worth a second thread."""
PEEK_NS = 200_000
"""How long a wait for a signal that a foreign device raises sleeps between two looks."""
POLL_NS = 5_000_000
"""How long a host thread sleeps in native code before Python checks faults and signals."""
STOP_LOOK_S = 0.0005
STOP_LOOKS = 2000
"""So often `close` looks, so far apart, before it gives up a kernel that does not end. A count, no time: a
machine that stood still, or has much else to do, may have given the kernel none of that."""
HUGE = 4 << 20
"""Bytes from which an allocation is made of huge pages."""
HUGE_PAGE = 2 << 20
CONTROL_QUEUES = 4096
"""Where the queues begin in the control memory."""
CORES_BYTES = 128
"""A set of 1,024 cores, as Linux's own cpu_set_t."""
CONTROL_CORES = 3072
"""Where the set of cores lies, then one for each queue."""
CONTROL_TIMES = 2048
"""Where its timespecs lie."""


class CpuDevice:
    """An open device; made by `CpuDriver.open`."""

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
        # All take and return u64. ctypes makes an argument of `c_void_p` in half the time of `c_uint64`.
        number, word = ctypes.c_uint64, ctypes.c_void_p
        # PYFUNCTYPE keeps the interpreter's lock: right for calls that return at once
        self.native_ring = ctypes.PYFUNCTYPE(None, word, word)(address["ring"])
        self._native_wake = ctypes.PYFUNCTYPE(None, word, word)(address["wake_signal"])
        self._native_stop = ctypes.PYFUNCTYPE(number, word)(address["stop_all"])
        self._native_wait = ctypes.CFUNCTYPE(number, *[word] * 5)(address["wait_signal"])
        self.native_space = ctypes.CFUNCTYPE(number, *[word] * 3)(address["wait_space"])
        self._memory = driver.take_control()
        self.pool = Pool(self._memory.va)
        self.poll_va = self._memory.va + CONTROL_TIMES + Timespec.SIZE
        self._rings = self._lay_out(workers)
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

    def _lay_out(self, workers: int) -> dict[tuple[QueueKind, int], CpuRing]:
        """Fill the control memory in; other threads may still read the constants of its last user."""
        va, pool = self._memory.va, self.pool
        queues = self.info.compute_queues + self.info.copy_queues
        for name in IMPORTS:
            setattr(pool, name, self._driver.libc.address[name])
        pool.waiters = self._driver.waiters
        pool.workers, pool.spins, pool.grain_ns = workers, SPINS, GRAIN_NS
        pool.long_spins, pool.often_ns = LONG_SPINS, OFTEN_NS
        pool.move_ns = MOVE_NS
        self._set_cores(pool)
        pool.queues = va + CONTROL_QUEUES
        pool.queues_end = pool.queues + queues * Queue.SIZE
        pool.copy_group = self._driver.code.address["copy_group"]
        pool.peek = va + CONTROL_TIMES
        for at, ns in ((pool.peek, PEEK_NS), (self.poll_va, POLL_NS)):
            Timespec(at).ns = ns
        self._clear(queues)
        rings = {}
        kinds = [(QueueKind.COMPUTE, i) for i in range(self.info.compute_queues)]
        kinds += [(QueueKind.COPY, i) for i in range(self.info.copy_queues)]
        for i, (kind, index) in enumerate(kinds):
            start = CONTROL_QUEUES + PAGE + i * RING_BYTES
            view = self._memory.view[start : start + RING_BYTES]
            queue = Queue(pool.queues + i * Queue.SIZE)
            rings[kind, index] = CpuRing(self, f"{kind.value} queue {index}", queue, view)
        return rings

    def _clear(self, queues: int) -> None:
        """Put pool and queues into the state in which threads start."""
        va, pool = self._memory.va, self.pool
        for name in ("halt", "stop", "left", "fault", "fault_queue", "fault_packet", "fault_op", "sleepers"):
            setattr(pool, name, 0)
        pool.host_cpu = pool.device_cpu = 0xFFFF_FFFF
        self._memory.view[CONTROL_QUEUES : CONTROL_QUEUES + queues * Queue.SIZE] = bytes(queues * Queue.SIZE)
        for i in range(queues):
            queue = Queue(pool.queues + i * Queue.SIZE)
            start = CONTROL_QUEUES + PAGE + i * RING_BYTES
            queue.pool, queue.ring, queue.mask = va, va + start, RING_BYTES - 1
            queue.other_cores = va + CONTROL_CORES + (i + 1) * CORES_BYTES

    def _set_cores(self, pool: Pool) -> None:
        """Note which cores this process may use."""
        cores = os.sched_getaffinity(0)
        pool.cores, pool.cores_bytes = self._memory.va + CONTROL_CORES, 0
        if len(cores) > 1 and max(cores) < 8 * CORES_BYTES:
            self._memory.view[CONTROL_CORES : CONTROL_CORES + CORES_BYTES] = sum(
                1 << core for core in cores
            ).to_bytes(CORES_BYTES, "little")
            pool.cores_bytes = CORES_BYTES

    def _start(self, function: str, argument: int, name: str) -> None:
        entry = self._driver.code.address[function]
        self._threads.append(self._driver.libc.start(entry, argument, name))

    def require_open(self) -> None:
        """Raise `UsageError` when the device is closed, or belongs to the parent of this process."""
        if self._state != "open":
            raise UsageError(f"cpu:{self.info.index} is closed")
        if os.getpid() != self._process:
            raise UsageError(
                f"cpu:{self.info.index} was opened by process {self._process}; its threads "
                "are not in this fork\nhint: open it again here, or start processes by spawn"
            )

    def alloc(self, size: int, spec: BufferSpec) -> Allocation:
        """Map zeroed pages; of `spec` only the alignment counts, all memory here is the host's."""
        self.require_open()
        align = max(spec.align, HUGE_PAGE if size >= HUGE else PAGE)
        size = (size + PAGE - 1) & -PAGE
        if self._allocated + size > self.info.vram_bytes:
            raise OutOfMemoryError(
                "alloc",
                errno.ENOMEM,
                "ENOMEM",
                arguments=f"{size_text(size)}; {size_text(self._allocated)} are allocated",
                hint=f"this process may use {size_text(self.info.vram_bytes)}",
            )
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

    def _advise_huge(self, va: int, size: int) -> None:
        try:
            self._kernel.madvise(va, size, MADV_HUGEPAGE)
        except DriverError as error:
            if error.status_name != "EINVAL":  # what a kernel without transparent huge pages answers
                raise

    def free(self, allocation: Allocation) -> None:
        """Unmap pages; leaked when a kernel that did not end may still use them."""
        self._allocated -= allocation.size
        if self._state != "leaked":
            self._kernel.munmap(allocation.va, allocation.size)

    def map_host(self, va: int, size: int) -> None:
        """Nothing to do: all host memory is visible."""

    def unmap_host(self, va: int, size: int) -> None:
        """Nothing to do."""

    def map_peer(self, allocation: Allocation, owner: DriverDevice) -> None:
        """Accept memory that the host sees at the same address."""
        self.require_open()
        host = allocation.host
        if host is None or ctypes.addressof(ctypes.c_ubyte.from_buffer(host)) != allocation.va:
            raise UnsupportedError(
                f"memory of {owner.info.driver}:{owner.info.index} at {allocation.va:#x} is not visible to "
                "the cpu at that address\nhint: allocate it with host_visible=True, or copy it"
            )

    def ring(self, kind: QueueKind, index: int) -> CpuRing:
        """Return one of the rings."""
        self.require_open()
        if (kind, index) not in self._rings:
            raise UsageError(f"the cpu has no {kind.value} queue {index}")
        return self._rings[kind, index]

    def encoder(self, kind: QueueKind, index: int) -> CpuEncoder:
        """Return an encoder; queues of a kind are alike."""
        del index
        return CpuEncoder(kind, self._driver.foreign)

    def load(self, image: KernelImage) -> CpuProgram:
        """Link a kernel into this process."""
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
        """A tick is a nanosecond of CLOCK_MONOTONIC."""
        return Clock(ticks=0, host_ns=0, hz=1_000_000_000)

    def wait(self, va: int, value: int, timeout_s: float) -> bool:
        """Sleep in native code, at most some milliseconds, until the u64 at `va` is >= `value`."""
        if value > 0xFFFF_FFFF_FFFF_FFFF:
            raise UsageError(f"a signal has 64 bits, {value:#x} cannot be reached")
        ns = int(timeout_s * 1e9)
        if ns >= POLL_NS:
            return bool(self._native_wait(self.pool.va, va, value, self.poll_va, 1))
        short = (ctypes.c_int64 * 2)(0, max(ns, 1))
        return bool(self._native_wait(self.pool.va, va, value, ctypes.addressof(short), 1))

    def signal_written(self, va: int) -> None:
        """Wake the queues and host threads that wait for a signal."""
        self._native_wake(self.pool.va, va)

    def fault(self) -> FaultReport | None:
        """Return what the processor refused, if anything."""
        if self._report is None and self.pool.fault_packet:
            self._report = self._read_fault()
        return self._report

    def _read_fault(self) -> FaultReport:
        pool = self.pool
        words = view_at(pool.fault_packet, PACKET).cast("Q")
        label = next(ring.label for ring in self._rings.values() if ring.queue.va == pool.fault_queue)
        reasons = {
            Fault.UNKNOWN_OP: f"unknown op {pool.fault_op:#x}",
            Fault.NESTED_INDIRECT: "an INDIRECT among the packets of another",
            Fault.BAD_WIDTH: "a WRITE that is neither 4 nor 8 bytes wide",
        }
        return FaultReport(
            device=f"cpu:{self.info.index}",
            kind=FaultKind.BAD_PACKET,
            message=f"the packet at {pool.fault_packet:#x} is {reasons[Fault(pool.fault)]}",
            queue=label,
            raw=tuple(decode(words.tolist())),
        )

    def describe(self, op: int, first: int, second: int) -> str:
        """Return what a packet in execution does; empty for none."""
        if op in {Op.NOP, Op.BARRIER}:
            return ""
        if op == Op.EXEC:
            name = self._names.get(first, "unknown")
            return f"runs kernel {name} at {first:#x}, arguments at {second:#x}"
        if op == Op.WAIT:
            return f"waits for the signal at {first:#x} to reach {second}, it is {Slot(first).value}"
        packet = LAYOUTS[Op(op)].__name__ if op in LAYOUTS else Packet.__name__
        return f"executes {packet} {op:#x} ({first:#x}, {second:#x})"

    def stop(self) -> None:
        """Stop all threads between two workgroups; give up on a kernel that does not end, and leak.

        After this nothing touches memory of the device, unless it is leaked.
        """
        with self._lock:
            if self._state != "open":
                return
            if os.getpid() != self._process:
                self._state = "stopped"  # the threads are the parent's
                return
            self._state = "stopped" if self._end_threads() else "leaked"

    def _end_threads(self) -> bool:
        """Have all threads return and join them; False when a kernel does not end."""
        self.pool.halt = 1  # before `stop`, which cuts dispatches short: nothing behind one may run
        for _ in range(STOP_LOOKS):
            if self._native_stop(self.pool.va) >= len(self._threads):
                break
            time.sleep(STOP_LOOK_S)
        else:
            return False
        while self._threads:  # taken out first: a thread may be joined once, also when this is interrupted
            self._driver.libc.join(self._threads.pop())
        return True

    def recover(self) -> None:
        """Stop all threads, empty the rings, and start new threads; see `hcq.driver.DriverDevice.recover`.

        Raises `DriverError` when a kernel does not end: recover again later, or close.
        """
        with self._lock:
            self.require_open()
            if not self._end_threads():
                stuck = "; ".join(f"{ring.label} {ring.stuck()}" for ring in self._rings.values())
                hint = "recover again once the kernel has ended; close() gives its memory up"
                raise DriverError("recover", errno.EBUSY, "EBUSY", arguments=stuck, hint=hint)
            self._clear(len(self._rings))
            for ring in self._rings.values():
                ring.restart()
            self._start_all()
            self._report = None

    def close(self) -> None:
        """Stop, and give the control memory back."""
        self.stop()
        with self._lock:
            memory, leaked = self._memory, self._state == "leaked"
            if self._state != "closed":
                self._state = "leaked" if leaked else "closed"
                if not leaked:
                    self._driver.give_control(memory)


def control_bytes(queues: int) -> int:
    """Return the size of the control memory."""
    return CONTROL_QUEUES + PAGE + queues * RING_BYTES


assert Pool.SIZE <= CONTROL_TIMES  # the timespecs lie behind the pool
assert CONTROL_CORES + 4 * CORES_BYTES <= CONTROL_QUEUES  # one set of cores for the device and each queue
assert WAITERS * 8 <= PAGE  # the counters of a process are one page
