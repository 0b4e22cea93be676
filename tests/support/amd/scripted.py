"""A scripted kernel under the AMD driver: KFD by the rules of Linux 6.12, without running kernels.

Engines execute stores, waits, copies and fills when a doorbell is written (`scripted_engine`), so that waits
end. The machine is a `Script` (`script`). Every call is recorded as a decoded line; every object, descriptor
and mapping is counted; the n-th call can be made to fail (`scripted.host`). For tests, golden streams
and benchmarks.

Not here: memory, events and queues (`scripted_memory`, `scripted_events`, `scripted_queues`).
"""

# ruff: noqa: D102 - methods are those of `drivers.kernel.Kernel`

from __future__ import annotations

import errno
from functools import partial
from typing import TYPE_CHECKING, Any

from drivers.amd.layouts import drm, events, kfd
from drivers.amd.layouts.kfd import Call, MemFlags, Request
from drivers.amd.layouts.topology import KFD_NODE, RENDER_NODE
from drivers.kernel import MAP_FIXED, MAP_SHARED, Mapping, view_at
from drivers.kernel import fail as linux_fail
from hcq.errors import DriverError, OutOfMemoryError
from tests.support.amd.script import APUS, COUNTER_KHZ, FIRST_RENDER_MINOR, Script
from tests.support.amd.scripted_events import EventTable
from tests.support.amd.scripted_memory import GpuMemory
from tests.support.amd.scripted_queues import DoorbellPage, FlushPage, QueueTable
from tests.support.amd.scripted_rules import Gpus, demand, fail
from tests.support.scripted.host import HostCalls

if TYPE_CHECKING:
    from collections.abc import Callable

_RELEASING = ("FREE_MEMORY", "UNMAP_MEMORY", "DESTROY_", "UPDATE_QUEUE")
"""Calls that release something; after a failure it is released with the process's last KFD descriptor."""
_GEOMETRY_SINCE = (1, 17)
"""The interface version since which CREATE_QUEUE carries the geometry of the queue."""
_LANES = 32
"""Lanes of a wave in the reply to DEV_INFO."""


class ScriptedKernel(HostCalls):
    """KFD, scripted; `fail_at` is the number of the call that fails, counted from 0."""

    def __init__(self, script: Script | None = None, *, fail_at: int | None = None) -> None:
        super().__init__(fail_at=fail_at)
        self.script = script or Script()
        self._files = self.script.files()
        self.gpus = Gpus(self.script)
        self._memory = GpuMemory(
            self.gpus, lambda size, va: self.anonymous(size, va=va, prot=3, flags=MAP_FIXED | MAP_SHARED)
        )
        self.event_table = EventTable(self._memory, page_given=self.script.other_library)
        self.hardware = QueueTable(self.gpus, self._memory, self.event_table)
        self.buffers, self.events, self.queues = (
            self._memory.buffers, self.event_table.events, self.hardware.queues,
        )  # fmt: skip
        self.holds, self.report = self._memory.holds, self.event_table.report
        self.page_fault, self.run = self.hardware.page_fault, self.hardware.run
        self.runtime_enabled = self.script.other_library
        self._doorbell_pages = 0
        self.hdp_flushes: list[int] = []
        """What was stored to the flush register of the host data path."""
        self._handlers: dict[int, Callable[[Any, bytearray], None]] = {
            Call.GET_VERSION: self._get_version,
            Call.CREATE_QUEUE: self.hardware.create,
            Call.DESTROY_QUEUE: self.hardware.destroy,
            Call.UPDATE_QUEUE: self.hardware.update,
            Call.GET_CLOCK_COUNTERS: self._clock_counters,
            Call.CREATE_EVENT: self.event_table.create,
            Call.DESTROY_EVENT: self.event_table.destroy,
            Call.SET_EVENT: self.event_table.set,
            Call.WAIT_EVENTS: self._wait_events,
            Call.GET_PROCESS_APERTURES_NEW: self._apertures,
            Call.ACQUIRE_VM: self._acquire_vm,
            Call.ALLOC_MEMORY_OF_GPU: self._memory.alloc,
            Call.FREE_MEMORY_OF_GPU: self._memory.free,
            Call.MAP_MEMORY_TO_GPU: self._memory.map,
            Call.UNMAP_MEMORY_FROM_GPU: self._memory.unmap,
            Call.AVAILABLE_MEMORY: self._available,
            Call.RUNTIME_ENABLE: self._runtime_enable,
        }

    def leaks(self) -> list[str]:
        """Return a line for each descriptor, mapping, buffer, queue, event and doorbell page still held."""
        held = super().leaks()
        held += [
            f"memory {h:#x} at {b.va:#x}+{b.size:#x}"
            for h, b in self.buffers.items()
            if h != self._memory.event_page
        ]
        held += [f"queue {number}" for number in self.queues]
        held += [f"event {number:#x}" for number in self.events]
        return held + [f"{self._doorbell_pages} doorbell pages"] * bool(self._doorbell_pages)

    def open_errno(self, path: str) -> int:
        nodes = [RENDER_NODE.format(minor=FIRST_RENDER_MINOR + i) for i in range(len(self.script.gpus))]
        return self.script.missing.get(path, 0 if path in (KFD_NODE, *nodes) else errno.ENOENT)

    def closed(self, fd: int, path: str) -> None:
        # As in the real kernel, what a failed call did not release goes with the process.
        del fd
        if path == KFD_NODE and not self.is_open(KFD_NODE) and self.failed.startswith(_RELEASING):
            for held in (self.buffers, self.queues, self.events):
                held.clear()

    def read_file(self, path: str) -> bytes:
        content = self._files.get(path, errno.ENOENT)
        if isinstance(content, int):
            raise DriverError("read", content, errno.errorcode[content], arguments=path)
        if self.must_fail(f"read {path}"):
            raise DriverError("read", errno.EIO, "EIO", arguments=path)
        return content

    def list_dir(self, path: str) -> list[str]:
        below = {name[len(path) + 1 :].split("/")[0] for name in self._files if name.startswith(f"{path}/")}
        if not below:
            raise DriverError("listdir", errno.ENOENT, "ENOENT", arguments=path)
        if self.must_fail(f"listdir {path}"):
            raise DriverError("listdir", errno.EIO, "EIO", arguments=path)
        return sorted(below)

    def map_file(self, fd: int, size: int, *, offset: int, va: int, prot: int, flags: int | None) -> Mapping:
        buffer = self.buffers.get(offset >> 12)
        assert buffer is not None, f"mmap of {self._fds[fd]} at {offset:#x}, which ALLOC did not return"
        assert self._fds[fd] == self._render_node(buffer.gpu_id), (
            "memory is mapped through its GPU's render node"
        )
        assert (va, size) == (buffer.va, buffer.size), "memory is mapped whole, at its device address"
        assert buffer.flags & (MemFlags.GTT | MemFlags.PUBLIC), "the host cannot map this memory"
        return self.anonymous(size, va=va, prot=prot, flags=flags)

    def mmio(self, fd: int, size: int, offset: int) -> DoorbellPage | FlushPage:
        where = kfd.MmapOffset.from_int(offset)
        if where.TYPE is kfd.MmapType.MMIO:
            assert size == kfd.MMIO_REMAP_BYTES, "the page is mapped whole"
            return FlushPage(self.hdp_flushes)
        assert self._fds[fd] == KFD_NODE, "doorbells are mapped through /dev/kfd"
        assert where.TYPE is kfd.MmapType.DOORBELL, "only doorbells are scripted"
        assert not where.OFFSET % kfd.DOORBELL_SLICE_BYTES, "the slice is mapped from its start"
        assert size == kfd.DOORBELL_SLICE_BYTES, "the slice is mapped whole"
        if self.must_fail("mmap doorbells"):
            raise OutOfMemoryError("mmap", errno.ENOMEM, "ENOMEM", arguments="doorbells")
        self._doorbell_pages += 1
        return DoorbellPage(partial(self.hardware.ring, where.GPU_ID), self._doorbells_closed)

    def _doorbells_closed(self) -> None:
        self._doorbell_pages -= 1

    def _render_node(self, gpu_id: int) -> str:
        return RENDER_NODE.format(minor=FIRST_RENDER_MINOR + gpu_id - self.script.gpu_id(0))

    def ioctl(self, fd: int, request: int, argument: bytearray | int) -> int:
        assert isinstance(argument, bytearray), "every call carries a structure"
        if self._fds[fd] != KFD_NODE:
            return self._drm(request, argument)
        word = Request.from_int(request)
        assert not word.check(), word.check()
        call = Call(word.NR)
        assert request == kfd.request(call, len(argument)), f"request word of {call.name}"
        layout = _LAYOUTS[call]
        if call is Call.CREATE_QUEUE and len(argument) != layout.SIZE:
            layout = kfd.kfd_ioctl_create_queue_args_1_11
            assert self.script.version < _GEOMETRY_SINCE, "the old structure on a new kernel"
        assert len(argument) == layout.SIZE, f"{call.name} carries {len(argument)} bytes"
        decoded: Any = layout.from_bytes(argument)
        assert not decoded.check(), decoded.check()
        if call is not Call.WAIT_EVENTS:
            self.calls.append(f"{call.name} {decoded!r}")
        if self.must_fail(f"{call.name} {decoded!r}"):
            fail(errno.EIO, "chosen by fail_at")
        if call.name in self.script.refuse:
            linux_fail("ioctl", self.script.refuse[call.name], f"{call.name}, refused by the script")
        self._handlers[call](decoded, argument)
        return 0

    def _drm(self, request: int, argument: bytearray) -> int:
        assert request == drm.DRM_IOCTL_AMDGPU_INFO
        asked = drm.drm_amdgpu_info.from_bytes(argument)
        assert not asked.check(), asked.check()
        assert asked.query is drm.InfoQuery.DEV_INFO
        self.calls.append(f"AMDGPU_INFO {asked!r}")
        if self.must_fail("AMDGPU_INFO"):
            fail(errno.EIO, "chosen by fail_at")
        fused = any(name in APUS for name in self.script.gpus)
        reply = drm.drm_amdgpu_info_device(
            gpu_counter_freq=COUNTER_KHZ,
            ids_flags=drm.IDS_FLAGS_FUSION if fused else 0,
            wave_front_size=_LANES,
        )
        view_at(asked.return_pointer, asked.return_size)[:] = reply.to_bytes()[: asked.return_size]
        return 0

    def _get_version(self, _: Any, block: bytearray) -> None:
        major, minor = self.script.version
        kfd.kfd_ioctl_get_version_args.store(block, major_version=major, minor_version=minor)

    def _acquire_vm(self, asked: kfd.kfd_ioctl_acquire_vm_args, _: bytearray) -> None:
        self.gpus.index(asked.gpu_id)
        demand(self._fds.get(asked.drm_fd) == self._render_node(asked.gpu_id), "not the GPU's render node")
        known = self.gpus.acquired.setdefault(asked.gpu_id, asked.drm_fd)
        demand(known == asked.drm_fd, "acquired through another descriptor", errno.EBUSY)

    def _runtime_enable(self, asked: kfd.kfd_ioctl_runtime_enable_args, __: bytearray) -> None:
        demand(not self.runtime_enabled, "already enabled", errno.EBUSY)
        demand(not self.queues, "queues exist", errno.EEXIST)
        self.runtime_enabled = bool(asked.mode_mask & kfd.RuntimeMode.ENABLE)

    def _apertures(self, asked: kfd.kfd_ioctl_get_process_apertures_new_args, block: bytearray) -> None:
        rows = [
            kfd.kfd_process_device_apertures(
                lds_base=kfd.LDS_APERTURE,
                lds_limit=kfd.LDS_APERTURE + kfd.APERTURE_BYTES - 1,
                scratch_base=kfd.SCRATCH_APERTURE,
                scratch_limit=kfd.SCRATCH_APERTURE + kfd.APERTURE_BYTES - 1,
                gpuvm_base=kfd.GPUVM_BASE,
                gpuvm_limit=(1 << 48) - 1,
                gpu_id=self.script.gpu_id(i),
            )
            for i in range(len(self.script.gpus))
        ]
        demand(asked.num_of_nodes <= len(rows), "more entries than devices")
        for i in range(asked.num_of_nodes):
            size = rows[i].SIZE
            at = asked.kfd_process_device_apertures_ptr + i * size
            view_at(at, size)[:] = rows[i].to_bytes()
        type(asked).store(block, num_of_nodes=len(rows))

    def _clock_counters(self, asked: kfd.kfd_ioctl_get_clock_counters_args, block: bytearray) -> None:
        self.gpus.require(asked.gpu_id)
        type(asked).store(
            block, gpu_clock_counter=next(self.hardware.ticks), system_clock_freq=kfd.SYSTEM_CLOCK_HZ
        )

    def _available(self, asked: kfd.kfd_ioctl_get_available_memory_args, block: bytearray) -> None:
        self.gpus.require(asked.gpu_id)
        type(asked).store(block, available=self.script.vram_free)

    def _wait_events(self, asked: events.kfd_ioctl_wait_events_args, block: bytearray) -> None:
        self.hardware.run()
        self.event_table.wait(asked, block)


_LAYOUTS: dict[Call, Any] = {
    Call.GET_VERSION: kfd.kfd_ioctl_get_version_args,
    Call.CREATE_QUEUE: kfd.kfd_ioctl_create_queue_args,
    Call.DESTROY_QUEUE: kfd.kfd_ioctl_destroy_queue_args,
    Call.UPDATE_QUEUE: kfd.kfd_ioctl_update_queue_args,
    Call.GET_CLOCK_COUNTERS: kfd.kfd_ioctl_get_clock_counters_args,
    Call.CREATE_EVENT: events.kfd_ioctl_create_event_args,
    Call.DESTROY_EVENT: events.kfd_ioctl_destroy_event_args,
    Call.SET_EVENT: events.kfd_ioctl_set_event_args,
    Call.WAIT_EVENTS: events.kfd_ioctl_wait_events_args,
    Call.GET_PROCESS_APERTURES_NEW: kfd.kfd_ioctl_get_process_apertures_new_args,
    Call.ACQUIRE_VM: kfd.kfd_ioctl_acquire_vm_args,
    Call.ALLOC_MEMORY_OF_GPU: kfd.kfd_ioctl_alloc_memory_of_gpu_args,
    Call.FREE_MEMORY_OF_GPU: kfd.kfd_ioctl_free_memory_of_gpu_args,
    Call.MAP_MEMORY_TO_GPU: kfd.kfd_ioctl_map_memory_to_gpu_args,
    Call.UNMAP_MEMORY_FROM_GPU: kfd.kfd_ioctl_unmap_memory_from_gpu_args,
    Call.AVAILABLE_MEMORY: kfd.kfd_ioctl_get_available_memory_args,
    Call.RUNTIME_ENABLE: kfd.kfd_ioctl_runtime_enable_args,
}
