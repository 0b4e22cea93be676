"""MMIO pages of one GPU in a process: the doorbells, and the registers that flush the host data path (HDP).

Both implement `drivers.kernel.Mmio`. Source: docs/sources-amd.md, KFD ioctls. Not here: the effect of a
doorbell (`machine`). Next: `machine`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from drivers.amd.layouts.kfd import DOORBELL_BYTES, DOORBELL_SLICE_BYTES, MmioRemap
from emulator.amd.reports import FindingKind, QueueFault
from hcq.errors import UsageError

if TYPE_CHECKING:
    from emulator.amd.kfd.gpu import KfdGpu
    from emulator.amd.machine.machine import AmdMachine


class DoorbellSlice:
    """The doorbells of a process on one GPU; a doorbell takes one aligned store of 64 bits.

    Offsets are in bytes. All accesses raise `UsageError` for an offset outside, `ValueError` after `close`.
    """

    def __init__(self, machine: AmdMachine, gpu: KfdGpu) -> None:
        self._machine, self._gpu = machine, gpu
        self._closed = False

    def _check(self, offset: int, size: int) -> None:
        if self._closed:
            raise ValueError(f"the doorbells of {self._gpu.name} are unmapped")
        if not 0 <= offset <= DOORBELL_SLICE_BYTES - size:
            raise UsageError(f"doorbell offset {offset:#x} is outside of {DOORBELL_SLICE_BYTES} bytes")

    def read32(self, offset: int) -> int:
        """Return 0, and report the read: doorbells are only written."""
        return self.read64(offset // DOORBELL_BYTES * DOORBELL_BYTES)

    def read64(self, offset: int) -> int:
        """Return 0, and report the read: doorbells are only written."""
        self._check(offset, DOORBELL_BYTES)
        self._machine.lint(f"a doorbell of {self._gpu.name} was read: doorbells are only written")
        return 0

    def write32(self, offset: int, value: int) -> None:
        """Stop the queue of the doorbell: a doorbell takes 64 bits at once."""
        self._check(offset, 4)
        self._bad(offset, f"a store of 32 bits ({value:#x}) to a doorbell of 64 bits, at offset {offset:#x}")

    def write64(self, offset: int, value: int) -> None:
        """Ring a doorbell. An unaligned store stops its queue; one that belongs to no queue is a finding."""
        self._check(offset, DOORBELL_BYTES)
        if offset % DOORBELL_BYTES:
            self._bad(offset, f"a store of {value:#x} to offset {offset:#x} of the doorbells is not aligned")
            return
        machine = self._machine
        with machine.lock:
            queue = machine.queue_of(self._gpu, offset // DOORBELL_BYTES)
            if queue is None:
                machine.find(
                    FindingKind.HOST, f"doorbell {offset:#x} of {self._gpu.name} belongs to no queue"
                )
                return
            machine.rung(queue, value)

    def _bad(self, offset: int, message: str) -> None:
        machine = self._machine
        with machine.lock:
            queue = machine.queue_of(self._gpu, offset // DOORBELL_BYTES)
            if queue is None:
                machine.find(FindingKind.HOST, f"{message}, which belongs to no queue of {self._gpu.name}")
            else:
                machine.stop(queue, QueueFault(FindingKind.HOST, message))

    def close(self) -> None:
        """Unmap the page."""
        self._closed = True


class HdpFlush:
    """The MMIO remap page: a store to a register flushes CPU writes to video memory.

    All accesses raise `ValueError` for an offset that is no register.
    """

    def __init__(self, machine: AmdMachine, gpu: KfdGpu) -> None:
        self._machine, self._gpu = machine, gpu

    def read32(self, offset: int) -> int:
        """Return 0. On hardware the read completes after earlier stores have arrived."""
        self._find(offset)
        return 0

    def read64(self, offset: int) -> int:
        """Raise: the registers have 32 bits."""
        raise ValueError(f"a load of 64 bits at {offset:#x}: the registers of the remap page have 32 bits")

    def write32(self, offset: int, value: int) -> None:
        """Count a flush. Values other than 0 and 1 are reported."""
        self._find(offset)
        self._machine.hdp_flushes += 1
        if value not in (0, 1):
            self._machine.lint(f"{value:#x} was stored to an HDP flush register of {self._gpu.name}")

    def write64(self, offset: int, value: int) -> None:
        """Raise: the registers have 32 bits."""
        raise ValueError(f"a store of 64 bits ({value:#x}) at {offset:#x}: the registers have 32 bits")

    @staticmethod
    def _find(offset: int) -> MmioRemap:
        if offset not in set(MmioRemap):
            raise ValueError(f"offset {offset:#x} of the remap page is no register")
        return MmioRemap(offset)

    def close(self) -> None:
        """Unmap the page, which has no state."""
