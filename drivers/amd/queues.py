"""One hardware queue: its memory, in the sizes that the kernel compares, its id and its doorbell.

Ring, pointer page, end-of-pipe buffer and context-save area are separate allocations with the sizes that
CREATE_QUEUE takes. `destroy` and `create` restart a queue with the same memory.

Not here: the words in the ring (`ring`, `aql_ring`), the sizes of the context-save area (`context`). Next:
`ring`.
"""

from __future__ import annotations

import contextlib
import enum
import errno
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Final

from drivers.amd.context import Geometry, ScratchBacking
from drivers.amd.kfd import Kfd
from drivers.amd.layouts import aql, cwsr
from drivers.amd.layouts.chips import AmdChip
from drivers.amd.layouts.kfd import (
    DOORBELL_SLICE_BYTES,
    LDS_APERTURE,
    MIN_EOP_BYTES,
    SCRATCH_APERTURE,
    MmapOffset,
    QueueType,
)
from drivers.amd.memory import AmdMemories, AmdMemory
from drivers.amd.quirks import AmdQuirks
from drivers.kernel import PAGE, Mmio
from hcq.errors import DriverError

_WRITE_POINTER, _READ_POINTER = 0, 64
"""Offsets of the pointers in the pointer page of PM4 and SDMA queues, in bytes."""
_PAYLOAD, _INACTIVE = 512, 1024
"""Offsets in every pointer page, in bytes: of the mask of exceptions, and of the signal by which the firmware
reports that it stopped an AQL queue."""


class Packets(enum.Enum):
    """The kind of packets in a ring."""

    PM4 = QueueType.COMPUTE
    AQL = QueueType.COMPUTE_AQL
    SDMA = QueueType.SDMA


_LARGE_RING: Final = 16 << 20
RING_BYTES: Final = {Packets.PM4: 1 << 20, Packets.SDMA: 1 << 20, Packets.AQL: 1 << 18}
"""Kind of packets -> default size of a ring in bytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueFacts:
    """Properties of a device that its queues need."""

    gpu_id: int
    target: AmdChip
    geometry: Geometry
    areas: cwsr.Sizes
    mes: bool
    """Whether the firmware MES schedules the queues."""
    event: int
    """The SIGNAL event that a queue's exceptions set."""
    choices: AmdQuirks


class Doorbells:
    """The doorbells of one GPU in this process; they are mapped when the first queue is created."""

    def __init__(self, kfd: Kfd) -> None:
        self._kfd = kfd
        self._pages: dict[int, Mmio] = {}

    def page(self, token: int) -> tuple[Mmio, int]:
        """Return the mapping of a doorbell and its offset there; `token` is the reply of CREATE_QUEUE."""
        where = MmapOffset.from_int(token)
        inside = where.OFFSET % DOORBELL_SLICE_BYTES
        start = int(where.replace(OFFSET=where.OFFSET - inside))
        page = self._pages.get(start)
        if page is None:
            page = self._kfd.kernel.mmio(self._kfd.fd, DOORBELL_SLICE_BYTES, start)
            self._pages[start] = page
        return page, inside

    def close(self) -> None:
        """Unmap all doorbells; idempotent."""
        while self._pages:
            self._pages.popitem()[1].close()


class HwQueue:
    """A hardware queue. It owns its memory and its id, which `close` frees.

    `label` names it in errors. `ring_bytes` is the size of the ring; None: the default of its kind
    (`RING_BYTES`, `AmdQuirks.ring_bytes`). Raises `OutOfMemoryError` or `DriverError` if the kernel refuses
    memory or the queue, and `BringUpError` as `AmdMemories` and `Kfd.create_queue`; then nothing is left
    allocated.
    """

    def __init__(
        self,
        kfd: Kfd,
        memories: AmdMemories,
        doorbells: Doorbells,
        facts: QueueFacts,
        packets: Packets,
        *,
        label: str,
        ring_bytes: int | None = None,
    ) -> None:
        self.packets = packets
        self.label = label
        self._kfd, self._doorbells, self._facts = kfd, doorbells, facts
        self.created = False
        self.level = 0
        """The priority, a key of `layouts.kfd.QUEUE_PRIORITIES`."""
        self._undo = contextlib.ExitStack()
        with contextlib.ExitStack() as stack:

            def system(size: int, what: str, *, zeroed: bool = True) -> AmdMemory:
                memory = memories.system(size, label=f"{what} of {label}", zeroed=zeroed)
                stack.callback(memories.free, memory)
                return memory

            large = facts.choices.ring_bytes == "large"
            size = ring_bytes or (_LARGE_RING if large else RING_BYTES[packets])
            self.ring = system(size, "ring", zeroed=False)
            self.pointers = system(PAGE, "pointer page")
            self.area = self.eop = None
            if packets is not Packets.SDMA:
                self.area = system(facts.areas.total, "context-save area", zeroed=False)
                if packets is Packets.PM4 or facts.choices.aql_eop:
                    self.eop = memories.vram(MIN_EOP_BYTES, label=f"end-of-pipe buffer of {label}")
                    stack.callback(memories.free, self.eop)
            view = self.pointers.view
            assert view is not None, "system memory is mapped"
            shared = aql.Queue if packets is Packets.AQL else None
            write = shared.offset_of("write_dispatch_id") if shared else _WRITE_POINTER
            read = shared.offset_of("read_dispatch_id") if shared else _READ_POINTER
            self.write_va, self.read_va = self.pointers.va + write, self.pointers.va + read
            # "L", also 8 bytes: CPython stores to it in two thirds of the time.
            self.write_pointer = view[write : write + 8].cast("L")
            self.read_pointer = view[read : read + 8].cast("L")
            self.exceptions = view[_PAYLOAD : _PAYLOAD + 8].cast("Q")
            """One u64: mask of the queue's exceptions (`layouts.events.exceptions`); 0: none."""
            inactive = _INACTIVE + aql.Signal.offset_of("value")
            self.inactive = view[inactive : inactive + 8].cast("Q")
            """One u64: bits of the reason for which the firmware stopped an AQL queue
            (`layouts.aql.Inactive`); 0: the queue runs."""
            stack.callback(self.destroy)
            self.create()
            self._undo = stack.pop_all()

    def create(self) -> None:
        """Create the queue with an empty ring, in the memory that it has. Raises as the constructor does."""
        facts, view = self._facts, self.pointers.view
        assert view is not None, "system memory is mapped"
        view[:PAGE] = bytes(PAGE)
        if self.packets is Packets.AQL:
            self._fill_ring_with_invalid()
            aql.Queue.store(view, **self._aql_fields())
            aql.Signal.store(view, _INACTIVE, kind=aql.SignalKind.USER)
        if self.area is not None:
            self._write_headers(self.area)
        queue, token = self._kfd.create_queue(
            facts.gpu_id,
            self.packets.value,
            ring=(self.ring.va, self.ring.size),
            write_pointer=self.write_va,
            read_pointer=self.read_va,
            eop=(self.eop.va, self.eop.size) if self.eop else (0, 0),
            context=(self.area.va, facts.areas.context) if self.area else (0, 0),
            control_stack=facts.areas.control_stack if self.area else 0,
            mes=facts.mes,
            level=self.level,
        )
        self.number, self.created = queue, True
        """`number`: the queue's id in KFD."""
        page, offset = self._doorbells.page(token)
        self.ring_doorbell: Callable[[int], None] = partial(page.write64, offset)
        """Stores a value to the doorbell, all 8 bytes in one store."""

    def _write_headers(self, area: AmdMemory) -> None:
        """Write the header of each XCC's area, which states where debugger memory and exceptions go."""
        sizes, layout, view = self._facts.areas, cwsr.kfd_context_save_area_header, area.view
        assert view is not None, "system memory is mapped"
        for xcc in range(sizes.xccs):
            header = layout(
                debug_offset=(sizes.xccs - xcc) * sizes.context,
                debug_size=sizes.debug * sizes.xccs,
                err_payload_addr=self.pointers.va + _PAYLOAD,
                err_event_id=self._facts.event,
            )
            at = xcc * sizes.context
            view[at : at + layout.SIZE] = header.to_bytes()

    def _fill_ring_with_invalid(self) -> None:
        view = self.ring.view
        assert view is not None, "system memory is mapped"
        empty = int(aql.Header(TYPE=aql.Type.INVALID)).to_bytes(aql.PACKET_BYTES, "little")
        view[: self.ring.size] = empty * (self.ring.size // aql.PACKET_BYTES)

    def _aql_fields(self) -> dict[str, int]:
        facts = self._facts
        units = facts.geometry.compute_units * facts.geometry.xccs
        return {
            "base": self.ring.va,
            "size": self.ring.size // aql.PACKET_BYTES,
            "group_segment_aperture_base_hi": LDS_APERTURE >> 32,
            "private_segment_aperture_base_hi": SCRATCH_APERTURE >> 32,
            "max_cu_id": units - 1,
            "max_wave_id": facts.geometry.scratch_slots - 1,
            "read_dispatch_id_field_base_byte_offset": aql.READ_DISPATCH_ID_FIELD_BASE,
            "queue_properties": int(aql.QueueProperties(IS_PTR64=True)),
            "queue_inactive_signal": self.pointers.va + _INACTIVE,
        }

    def set_scratch(self, backing: ScratchBacking) -> None:
        """Set the scratch memory of an AQL queue, which is inactive during the change.

        For other queues do nothing: their launches contain the address.
        """
        if self.packets is not Packets.AQL:
            return
        facts, view = self._facts, self.pointers.view
        assert view is not None, "system memory is mapped"
        generation = facts.target.generation
        descriptor = aql.ScratchDescriptor(
            BASE=backing.va,
            SWIZZLE=aql.SWIZZLE[generation],
            BYTES=backing.xcc_bytes,
            FORMAT=aql.FORMAT[generation],
        )
        ring = self.ring.va, self.ring.size
        self._kfd.update_queue(self.number, ring=ring, active=False, mes=facts.mes, level=self.level)
        aql.Queue.store(
            view,
            compute_tmpring_size=backing.tmpring,
            scratch_resource_descriptor=tuple(descriptor.to_words()),
            scratch_backing_memory_location=backing.va,
            scratch_backing_memory_byte_size=backing.xcc_bytes if facts.choices.aql_scratch == "xcc" else 0,
            scratch_wave64_lane_byte_size=backing.lane_bytes,
        )
        self._kfd.update_queue(self.number, ring=ring, active=True, mes=facts.mes, level=self.level)

    def set_priority(self, level: int) -> None:
        """Set the priority of the queue, now and when it is created again."""
        ring = self.ring.va, self.ring.size
        self._kfd.update_queue(self.number, ring=ring, active=True, mes=self._facts.mes, level=level)
        self.level = level

    def destroy(self) -> None:
        """Destroy the queue, even if kernels run; its memory is kept. Idempotent.

        Raises `DriverError` if the kernel refuses it or its preemption times out.
        """
        if not self.created:
            return
        try:
            self._kfd.destroy_queue(self.number, mes=self._facts.mes)
        except DriverError as error:
            # If the preemption times out, the kernel removes the queue anyway (kfd_process_queue_manager.c).
            self.created = error.status != errno.ETIME
            raise
        self.created = False

    def close(self) -> None:
        """Destroy the queue and free its memory; idempotent."""
        self._undo.close()
