"""Queues of the scripted KFD: creation by the rules of Linux 6.12, page faults, doorbells, and their engines.

Not here: what an engine does with a packet (`scripted_engine`). Next: `scripted`.
"""

# ruff: noqa: D102 - the methods of `DoorbellPage` are those of `drivers.kernel.Mmio`

from __future__ import annotations

import contextlib
import itertools
from typing import TYPE_CHECKING, Any

from drivers.amd.layouts import cwsr, events, kfd
from drivers.amd.layouts.kfd import MemFlags, QueueType
from drivers.kernel import view_at
from tests.support.amd.scripted_engine import Engine, Stalled
from tests.support.amd.scripted_memory import PAGE
from tests.support.amd.scripted_rules import Gpus, demand
from tests.support.scripted.host import RefusedError

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.support.amd.scripted_events import EventTable
    from tests.support.amd.scripted_memory import GpuMemory


class QueueTable:
    """The queues of a process, each with an engine that runs its packets when a doorbell is written."""

    def __init__(self, gpus: Gpus, memory: GpuMemory, events_: EventTable) -> None:
        self._gpus, self._script = gpus, gpus.script
        self.memory, self.events = memory, events_
        self.queues: dict[int, Engine] = {}
        """Queue id -> engine."""
        self.ignored: set[int] = set()
        """Doorbell offsets whose writes have no effect: benchmarks write the results themselves."""
        self.ticks = itertools.count(1_000_000, 1000)
        """The GPU clock: each reading is 1000 ticks later."""
        self._next_queue = itertools.count(1)
        self._evicted: set[int] = set()

    def create(self, asked: Any, block: bytearray) -> None:
        """CREATE_QUEUE: check the sizes and mappings of its memory, and attach an engine."""
        self._gpus.require(asked.gpu_id)
        gpu_id, kind = asked.gpu_id, asked.queue_type
        demand(asked.queue_percentage & 0xFF <= kfd.MAX_QUEUE_PERCENTAGE, "percentage")
        demand(asked.queue_priority <= kfd.MAX_QUEUE_PRIORITY, "priority")
        demand(kind in set(QueueType), "queue type", kfd.ENOTSUPP)
        demand(asked.ring_size.bit_count() == 1 and asked.ring_size >= kfd.MIN_RING_BYTES, "ring size")
        demand(not asked.ring_base_address % kfd.RING_ALIGN, "ring alignment")
        used = [self.memory.exact(gpu_id, asked.ring_base_address, asked.ring_size, "ring")]
        for pointer, what in ((asked.write_pointer_address, "wptr"), (asked.read_pointer_address, "rptr")):
            demand(not pointer % 8, f"{what} alignment")
            page = self.memory.exact(gpu_id, pointer & -PAGE, PAGE, f"page of {what}")
            demand(bool(page.flags & MemFlags.GTT), f"{what} outside of GTT under MES")
            used.append(page)
        compute = kind in (QueueType.COMPUTE, QueueType.COMPUTE_AQL)
        if kind == QueueType.COMPUTE or asked.eop_buffer_address:
            demand(asked.eop_buffer_size == kfd.MIN_EOP_BYTES, "EOP size")
            used.append(
                self.memory.exact(gpu_id, asked.eop_buffer_address, asked.eop_buffer_size, "EOP buffer")
            )
        if compute:
            areas = self._script.areas(self._gpus.index(gpu_id))
            demand(asked.ctl_stack_size == areas.control_stack, "control stack size not equal")
            demand(asked.ctx_save_restore_size == areas.context, "save size not equal")
            used.append(self.memory.exact(gpu_id, asked.ctx_save_restore_address, areas.total, "save area"))
            self._check_headers(asked.ctx_save_restore_address, areas)
        else:
            demand(not asked.ctx_save_restore_address, "an SDMA queue has no save area")
        number = next(self._next_queue)
        offset = 8 * number
        token = kfd.MmapOffset(
            TYPE=kfd.MmapType.DOORBELL, GPU_ID=gpu_id, OFFSET=(gpu_id & 0xFF) * 8192 + offset
        )
        for buffer in used:
            buffer.users += 1
        self.queues[number] = Engine(
            self,
            number=number,
            gpu_id=gpu_id,
            kind=QueueType(kind),
            ring=(asked.ring_base_address, asked.ring_size),
            write_va=asked.write_pointer_address,
            read_va=asked.read_pointer_address,
            doorbell=offset,
            target=self._script.gpus[self._gpus.index(gpu_id)],
            used=used,
            evicted=gpu_id in self._evicted,
        )
        type(asked).store(block, queue_id=number, doorbell_offset=int(token))

    def _check_headers(self, va: int, areas: cwsr.Sizes) -> None:
        """Check the headers of the context save area, one for each XCC."""
        for xcc in range(areas.xccs):
            layout = cwsr.kfd_context_save_area_header
            header = layout.from_bytes(view_at(va + xcc * areas.context, layout.SIZE))
            demand(header.debug_offset == (areas.xccs - xcc) * areas.context, "debug_offset")
            demand(header.debug_size == areas.debug * areas.xccs, "debug_size")
            demand(header.err_event_id in self.events.events, "err_event_id")

    def _queue(self, number: int) -> Engine:
        """Return a queue by its id; EINVAL for an unknown one."""
        demand(number in self.queues, f"no queue {number}")
        return self.queues[number]

    def destroy(self, asked: kfd.kfd_ioctl_destroy_queue_args, _: bytearray) -> None:
        """DESTROY_QUEUE: release the memory that the queue used."""
        queue = self._queue(asked.queue_id)
        for buffer in queue.used:
            buffer.users -= 1
        del self.queues[asked.queue_id]

    def update(self, asked: kfd.kfd_ioctl_update_queue_args, _: bytearray) -> None:
        """UPDATE_QUEUE: a percentage of 0 stops the queue."""
        queue = self._queue(asked.queue_id)
        demand((asked.ring_base_address, asked.ring_size) == queue.ring, "another ring")
        queue.active = bool(asked.queue_percentage & 0xFF)

    def page_fault(self, gpu_id: int, va: int, *, write: bool = False, mapped: bool = False) -> None:
        """Report a page fault to the events, and stop every queue of the GPU; `mapped` for a fault of rights.

        Under `Script.evict_for_good` queues that are created later do not run, either, as on Linux.
        """
        if self._script.evict_for_good:
            self._evicted.add(gpu_id)
        for queue in self.queues.values():
            queue.evicted = queue.evicted or queue.gpu_id == gpu_id
        failure = events.kfd_memory_exception_failure(NotPresent=not mapped, ReadOnly=write)
        data = events.kfd_hsa_memory_exception_data(failure=failure, va=va & -PAGE, gpu_id=gpu_id)
        self.events.report(events.EventType.MEMORY, data.to_bytes())

    def ring(self, gpu_id: int, offset: int, value: int) -> None:
        """Write `value` to the doorbell at byte `offset` of a GPU's page, and run the queues."""
        if offset in self.ignored:
            return
        queue = next(q for q in self.queues.values() if q.gpu_id == gpu_id and q.doorbell == offset)
        queue.announce(value)
        self.run()

    def run(self) -> None:
        """Run every queue until it is empty or waits."""
        moved = True
        while moved:
            moved = False
            for queue in tuple(self.queues.values()):
                before = queue.done
                with contextlib.suppress(Stalled):
                    queue.run()
                moved = moved or queue.done != before


class DoorbellPage:
    """The doorbells of a GPU: write-only, 8 bytes at once. `ring` takes offset and value."""

    def __init__(self, ring: Callable[[int, int], None], closed: Callable[[], None]) -> None:
        self._ring, self.close = ring, closed

    def read32(self, offset: int) -> int:
        raise RefusedError(f"a doorbell is read at {offset:#x}")

    def read64(self, offset: int) -> int:
        raise RefusedError(f"a doorbell is read at {offset:#x}")

    def write32(self, offset: int, value: int) -> None:
        raise RefusedError(f"a 4-byte write of {value:#x} to the doorbell at {offset:#x}")

    def write64(self, offset: int, value: int) -> None:
        if offset % 8:
            raise RefusedError(f"a doorbell at {offset:#x}, which is not aligned to 8 bytes")
        self._ring(offset, value)


class FlushPage:
    """The page of the flush registers of the host data path; `flushes` gets what is stored."""

    def __init__(self, flushes: list[int]) -> None:
        self._flushes = flushes

    def read32(self, offset: int) -> int:
        del offset
        return 0

    def read64(self, offset: int) -> int:
        raise RefusedError(f"a load of 64 bits at {offset:#x} of the flush registers")

    def write32(self, offset: int, value: int) -> None:
        assert offset == kfd.MmioRemap.HDP_MEM_FLUSH_CNTL, offset
        self._flushes.append(value)

    def write64(self, offset: int, value: int) -> None:
        raise RefusedError(f"a store of 64 bits ({value:#x}) at {offset:#x} of the flush registers")

    def close(self) -> None:
        """Do nothing."""
