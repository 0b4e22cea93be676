"""A small user of the emulated /dev/kfd: the calls of docs/sources-amd.md, one method each.

It is built from the layouts alone, so that the emulated kernel is tested without the driver.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from drivers.amd.layouts import events as ev
from drivers.amd.layouts import kfd
from drivers.amd.layouts.kfd import Call, MemFlags, MemKind, MmapOffset, MmapType, QueueType
from drivers.kernel import MAP_FIXED, MAP_NORESERVE, MAP_SHARED, PROT_NONE, address_of
from emulator.amd.machine import open_machine
from hcq.errors import DriverError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from drivers.amd.layouts.events import EventType
    from drivers.kernel import Mapping
    from emulator.amd.kfd.gpu import KfdGpu
    from emulator.amd.machine.runs import Engines
    from hcq.layout import Struct

PAGE = 4096


@dataclass(frozen=True, slots=True)
class Memory:
    """What `Caller.memory` allocated."""

    handle: int
    va: int
    size: int
    mmap_offset: int


class Caller:
    """One process in front of emulated GPUs; every GPU has its address space, if not asked otherwise."""

    def __init__(
        self,
        *gpus: str,
        linux: str = "6.12",
        acquire: bool = True,
        engines: Engines | None = None,
        **machine: Any,
    ) -> None:
        self.kernel = open_machine(*(gpus or ("gfx1100",)), linux=linux, engines=engines, **machine)
        self.machine = self.kernel.machine
        self.gpus: Sequence[KfdGpu] = self.machine.gpus
        self.id = self.gpus[0].gpu_id
        self.fd = self.kernel.open("/dev/kfd")
        self.renders: list[int] = []
        for gpu in self.gpus if acquire else ():
            render = self.kernel.open(f"/dev/dri/renderD{gpu.minor}")
            self.renders.append(render)
            self.call(Call.ACQUIRE_VM, kfd.kfd_ioctl_acquire_vm_args, drm_fd=render, gpu_id=gpu.gpu_id)
        self._reserved: list[Mapping] = []

    def close(self) -> None:
        """End the process."""
        self.kernel.shut()
        for one in self._reserved:
            self.machine.linux.munmap(one.va, one.size)

    def call(self, call: Call, layout: type[Struct], **values: Any) -> Any:
        """Run an ioctl; returns the structure."""
        block = bytearray(layout.pack(**values))
        self.kernel.ioctl(self.fd, kfd.request(call, layout.SIZE), block)
        return layout.from_bytes(block)

    def refused(self, call: Call, layout: type[Struct], **values: Any) -> int:
        """Return the errno that a call is refused with."""
        with pytest.raises(DriverError) as caught:
            self.call(call, layout, **values)
        assert self.machine.refusals
        return caught.value.status

    def reserve(self, size: int) -> int:
        """Return an address of unused addresses."""
        got = self.machine.linux.mmap(size, prot=PROT_NONE, flags=0x22 | MAP_NORESERVE)
        self._reserved.append(got)
        return got.va

    def allocate(self, size: int, flags: int = MemKind.SYSTEM, gpu: int = 0, **other: int) -> dict[str, int]:
        """Return the arguments of an allocation."""
        va = other.pop("va_addr", 0) or self.reserve(max(size, PAGE))
        return {"va_addr": va, "size": size, "gpu_id": self.gpus[gpu].gpu_id, "flags": flags, **other}

    def memory(
        self, size: int, flags: int = MemKind.SYSTEM, *, gpu: int = 0, to: Sequence[int] = (0,), **other: int
    ) -> Memory:
        """Allocate memory and map it to GPUs."""
        args = self.call(
            Call.ALLOC_MEMORY_OF_GPU,
            kfd.kfd_ioctl_alloc_memory_of_gpu_args,
            **self.allocate(size, flags, gpu, **other),
        )
        made = Memory(args.handle, args.va_addr, size, args.mmap_offset)
        if to:
            assert self.map(made, to).n_success == len(to)
        return made

    def ids(self, gpus: Sequence[int]) -> bytearray:
        """Return an array of ids of GPUs."""
        return bytearray(b"".join(self.gpus[at].gpu_id.to_bytes(4, "little") for at in gpus))

    def map(self, memory: Memory, gpus: Sequence[int] = (0,)) -> Any:
        """Map memory to GPUs."""
        ids = self.ids(gpus)
        return self.call(
            Call.MAP_MEMORY_TO_GPU, kfd.kfd_ioctl_map_memory_to_gpu_args,
            handle=memory.handle, device_ids_array_ptr=address_of(ids), n_devices=len(gpus),
        )  # fmt: skip

    def unmap(self, memory: Memory, gpus: Sequence[int] = (0,)) -> Any:
        """Unmap memory from GPUs."""
        ids = self.ids(gpus)
        return self.call(
            Call.UNMAP_MEMORY_FROM_GPU, kfd.kfd_ioctl_unmap_memory_from_gpu_args,
            handle=memory.handle, device_ids_array_ptr=address_of(ids), n_devices=len(gpus),
        )  # fmt: skip

    def free(self, memory: Memory) -> None:
        """Free memory."""
        self.call(Call.FREE_MEMORY_OF_GPU, kfd.kfd_ioctl_free_memory_of_gpu_args, handle=memory.handle)

    def see(self, memory: Memory, gpu: int = 0) -> memoryview:
        """Map memory for the CPU at its own address; returns the bytes."""
        got = self.kernel.mmap(
            memory.size,
            fd=self.renders[gpu],
            offset=memory.mmap_offset,
            va=memory.va,
            flags=MAP_SHARED | MAP_FIXED,
        )
        return got.view

    def event(self, kind: EventType = ev.EventType.SIGNAL, *, page: int = 0, auto_reset: bool = False) -> Any:
        """Create an event."""
        return self.call(
            Call.CREATE_EVENT, ev.kfd_ioctl_create_event_args,
            event_type=kind, event_page_offset=page, auto_reset=auto_reset,
        )  # fmt: skip

    def wait(
        self, *events: tuple[int, int], every: bool = False, timeout: int = 0
    ) -> tuple[int, list[bytes]]:
        """Wait for (event, age); returns the result and the payloads."""
        raw = bytearray().join(
            ev.kfd_event_data.pack(event_id=number, payload=age.to_bytes(8, "little"))
            for number, age in events
        )
        done = self.call(
            Call.WAIT_EVENTS, ev.kfd_ioctl_wait_events_args,
            events_ptr=address_of(raw) if raw else 0, num_events=len(events), wait_for_all=every,
            timeout=timeout,
        )  # fmt: skip
        size = ev.kfd_event_data.SIZE
        return done.wait_result, [
            ev.kfd_event_data.from_bytes(raw, at * size).payload for at in range(len(events))
        ]

    def queue_args(
        self, kind: QueueType = QueueType.COMPUTE, *, ring: int = 0x4000, gpu: int = 0
    ) -> dict[str, int]:
        """Return legal arguments of CREATE_QUEUE, with all their memory."""
        profile = self.gpus[gpu].profile
        area = profile.save_area(self.machine.kernel_profile)
        pointers = self.memory(PAGE, gpu=gpu, to=(gpu,))
        args = {
            "ring_base_address": self.memory(ring, gpu=gpu, to=(gpu,)).va, "ring_size": ring,
            "write_pointer_address": pointers.va, "read_pointer_address": pointers.va + 8,
            "gpu_id": self.gpus[gpu].gpu_id, "queue_type": int(kind),
            "queue_percentage": 100, "queue_priority": kfd.QUEUE_PRIORITY,
        }  # fmt: skip
        if kind in (QueueType.COMPUTE, QueueType.COMPUTE_AQL):
            args |= {
                "eop_buffer_address": self.memory(PAGE, gpu=gpu, to=(gpu,)).va, "eop_buffer_size": PAGE,
                "ctx_save_restore_address": self.memory(area.total, gpu=gpu, to=(gpu,)).va,
                "ctx_save_restore_size": area.context, "ctl_stack_size": area.control_stack,
            }  # fmt: skip
        return args

    def queue(self, kind: QueueType = QueueType.COMPUTE, *, gpu: int = 0, **other: int) -> Any:
        """Create a queue."""
        args = self.queue_args(kind, gpu=gpu) | other
        return self.call(Call.CREATE_QUEUE, kfd.kfd_ioctl_create_queue_args, **args)

    def doorbells(self, gpu: int = 0) -> Any:
        """Map the doorbells of a GPU."""
        token = int(MmapOffset(TYPE=MmapType.DOORBELL, GPU_ID=self.gpus[gpu].gpu_id))
        return self.kernel.mmio(self.fd, kfd.DOORBELL_SLICE_BYTES, token)


VRAM = int(MemKind.VRAM)
VISIBLE = int(MemKind.VISIBLE_VRAM)
SYSTEM = int(MemKind.SYSTEM)
USER = int(MemKind.USER_POINTER)
PLACES = (MemFlags.VRAM, MemFlags.GTT, MemFlags.USERPTR, MemFlags.DOORBELL, MemFlags.MMIO_REMAP)
