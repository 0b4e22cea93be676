"""The open device: memory, its two queues, waiting and recovery. Not here: the queues (`engine`)."""

from __future__ import annotations

import ctypes
import errno
import mmap
import threading
from typing import TYPE_CHECKING, NoReturn

from hcq import Clock, OutOfMemoryError, QueueKind, UnsupportedError, UsageError
from hcq.driver import Allocation
from hcq_dma.engine import POLL_S, Engine, read64
from hcq_dma.packets import DmaEncoder

if TYPE_CHECKING:
    from hcq import BufferSpec, Counters, DeviceInfo, KernelImage
    from hcq.driver import DriverDevice, DriverProgram
    from hcq.errors import FaultReport

PAGE = 4096


class DmaDevice:
    """See `hcq.driver.DriverDevice`."""

    def __init__(self, info: DeviceInfo) -> None:
        self.info = info
        self._changed = threading.Condition()
        self._engines: dict[tuple[QueueKind, int], Engine] = {}
        self._allocated = 0

    def alloc(self, size: int, spec: BufferSpec) -> Allocation:
        """Map zeroed pages of the host, aligned by `spec`. Raises `OutOfMemoryError`."""
        size = (size + PAGE - 1) & -PAGE
        if self._allocated + size > self.info.vram_bytes:
            what = f"{size} bytes; {self._allocated} of {self.info.vram_bytes} are allocated"
            raise OutOfMemoryError("alloc", errno.ENOMEM, "ENOMEM", arguments=what)
        memory = mmap.mmap(-1, size + spec.align)
        start = ctypes.addressof(ctypes.c_char.from_buffer(memory))
        skip = -start % spec.align
        self._allocated += size
        return Allocation(start + skip, size, memoryview(memory)[skip : skip + size], memory)

    def free(self, allocation: Allocation, *, keep_host: bool = False) -> None:
        """Count the bytes as free; the pages are unmapped with their last view."""
        del keep_host
        self._allocated -= allocation.size

    def map_host(self, va: int, size: int) -> None:
        """Do nothing: all memory of the process is visible."""

    def unmap_host(self, va: int, size: int) -> None:
        """Do nothing, as `map_host`."""

    def map_peer(self, allocation: Allocation, owner: DriverDevice) -> None:
        """Accept memory that has the same address on the host; else raise `UnsupportedError`."""
        host = allocation.host
        if host is None or ctypes.addressof(ctypes.c_ubyte.from_buffer(host)) != allocation.va:
            raise UnsupportedError(f"memory of {owner.info.driver} at {allocation.va:#x} is not the host's")

    def export(self, allocation: Allocation) -> int:
        """Refuse: no other process can use the memory."""
        raise UnsupportedError(
            f"{allocation} cannot be shared between processes\nhint: share memory of a cpu device"
        )

    def adopt(self, fd: int) -> Allocation:
        """Refuse, as `export`."""
        raise UnsupportedError(f"descriptor {fd} cannot be imported")

    def ring(self, kind: QueueKind, index: int) -> Engine:
        """Start the engine of a queue. Raises `UsageError` for an unknown queue."""
        if index:
            raise UsageError(f"dma-emu has one {kind.value} queue, number 0, and not {index}")
        return self._engines.setdefault((kind, index), Engine(f"dma {kind.value}", self._changed))

    def set_priority(self, kind: QueueKind, index: int, level: int) -> None:
        """Refuse: the engines of all queues are threads alike."""
        raise UnsupportedError(
            f"{kind.value} queue {index} has no priorities, seen {level}\nhint: leave it at 0"
        )

    def encoder(self, kind: QueueKind, index: int) -> DmaEncoder:
        """Return an encoder; all queues take the same packets."""
        del kind, index
        return DmaEncoder()

    def load(self, image: KernelImage) -> NoReturn:
        """Raise `UnsupportedError`: the device runs no kernels."""
        raise UnsupportedError(f"kernel {image.name}: dma-emu runs no kernels\nhint: open cpu for kernels")

    def unload(self, program: DriverProgram) -> None:
        """Do nothing: `load` never returns a program."""

    def clock(self) -> Clock:
        """Return the clock: a tick is a nanosecond of CLOCK_MONOTONIC."""
        return Clock(ticks=0, host_ns=0, hz=1_000_000_000)

    def wait(self, va: int, value: int, timeout_s: float) -> bool:
        """Sleep until the slot reaches the value, some signal was set, or a few milliseconds passed."""
        with self._changed:
            if read64(va) < value:
                self._changed.wait(min(max(timeout_s, 0.0), 5 * POLL_S))
        return read64(va) >= value

    def signal_written(self, va: int) -> None:
        """Wake the engines and waiters."""
        del va
        with self._changed:
            self._changed.notify_all()

    def fault(self) -> FaultReport | None:
        """Return None: no packet that the encoder makes can fail."""
        return None

    def count(self, into: Counters | None) -> Counters | None:
        """Refuse: there are no kernels."""
        del into
        raise UnsupportedError("this device runs no kernels, so it counts none")

    def recover(self) -> None:
        """Stop all engines, and restart them empty."""
        for engine in self._engines.values():
            engine.restart()

    def close(self) -> None:
        """Stop the engines; idempotent."""
        for engine in self._engines.values():
            engine.close()
