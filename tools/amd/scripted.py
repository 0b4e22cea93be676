"""A kernel that plays KFD from a script: it answers by the strict rules of Linux 6.12 and refuses the rest.

No emulation: kernels do not run. Doorbells make `scripted_bell` carry out stores, waits and copies, so that
what waits goes on. What is played stands in a `Script`. Every call is noted as a decoded line, every object,
descriptor and mapping is counted, and the n-th call can be made to fail. For tests, golden streams and
benchmarks.

No emulation: nothing is computed. Not here: doorbells (`scripted_bell`).
"""

# ruff: noqa: D102 - methods are those of `drivers.kernel.Kernel` and `Mmio`

from __future__ import annotations

import contextlib
import errno
import itertools
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from drivers.amd.layouts import cwsr, drm, events, kfd
from drivers.amd.layouts.kfd import Call, MemFlags, QueueType, Request
from drivers.amd.layouts.topology import KFD_NODE, RENDER_NODE
from drivers.kernel import LinuxKernel, Mapping, view_at
from hcq.errors import DriverError, OutOfMemoryError
from tools.amd.script import APUS, COUNTER_KHZ, FIRST_RENDER_MINOR, Script
from tools.amd.scripted_bell import Engine, Stalled

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_PAGE = 4096
_KINDS = MemFlags.VRAM | MemFlags.GTT | MemFlags.USERPTR | MemFlags.DOORBELL | MemFlags.MMIO_REMAP
_ALL = MemFlags(sum(int(flag) for flag in MemFlags))
_GIVING_BACK = ("FREE_MEMORY", "UNMAP_MEMORY", "DESTROY_", "UPDATE_QUEUE")
_GEOMETRY_SINCE = (1, 17)


def fail(number: int, why: str) -> None:
    """Raise the error of an errno, with the rule that was broken as its hint."""
    kind = OutOfMemoryError if number == errno.ENOMEM else DriverError
    name = errno.errorcode.get(number, f"errno {number}")
    raise kind("ioctl", number, name, hint=f"scripted kernel: {why}")


def demand(true: bool, why: str, number: int = errno.EINVAL) -> None:  # noqa: FBT001 - an assertion
    """Fail unless a rule is kept."""
    if not true:
        fail(number, why)


@dataclass(slots=True)
class Buffer:
    """Memory that a GPU may map."""

    gpu_id: int
    va: int
    size: int
    flags: MemFlags
    host: int = 0
    mapped: list[int] = field(default_factory=list[int])
    users: int = 0
    """Queues that use it."""


@dataclass(slots=True)
class Event:
    """An event of the process."""

    kind: int
    fired: bool = False
    payload: bytes = b""


class ScriptedKernel:
    """See the module. `fail_at` makes that call (counted from 0) fail."""

    def __init__(self, script: Script | None = None, *, fail_at: int | None = None) -> None:
        self.script = script or Script()
        self.calls: list[str] = []
        self.fail_at = fail_at
        self.failed = ""
        self.count = 0
        self._linux = LinuxKernel()
        self.fence = self._linux.fence
        self._files = self.script.files()
        self._fds: dict[int, str] = {}
        self._next_fd = itertools.count(100)
        self._maps: dict[int, int] = {}
        self._acquired: dict[int, int] = {}
        self.buffers: dict[int, Buffer] = {}
        self._next_handle = itertools.count(1)
        self.queues: dict[int, Engine] = {}
        self._next_queue = itertools.count(1)
        self.events: dict[int, Event] = {}
        self._next_signal = itertools.count(1)
        self._next_other = itertools.count(events.FIRST_OTHER_EVENT)
        self._page: int | None = None
        self._page_given = self.script.other_library
        self._runtime = self.script.other_library
        self._evicted: set[int] = set()
        self._bells = 0
        self.ticks = itertools.count(1_000_000, 1000)
        self._answers: dict[int, Callable[[Any, bytearray], None]] = {
            Call.GET_VERSION: self._get_version,
            Call.CREATE_QUEUE: self._create_queue,
            Call.DESTROY_QUEUE: self._destroy_queue,
            Call.UPDATE_QUEUE: self._update_queue,
            Call.GET_CLOCK_COUNTERS: self._clock_counters,
            Call.CREATE_EVENT: self._create_event,
            Call.DESTROY_EVENT: self._destroy_event,
            Call.SET_EVENT: self._set_event,
            Call.WAIT_EVENTS: self._wait_events,
            Call.GET_PROCESS_APERTURES_NEW: self._apertures,
            Call.ACQUIRE_VM: self._acquire_vm,
            Call.ALLOC_MEMORY_OF_GPU: self._alloc,
            Call.FREE_MEMORY_OF_GPU: self._free,
            Call.MAP_MEMORY_TO_GPU: self._map,
            Call.UNMAP_MEMORY_FROM_GPU: self._unmap,
            Call.AVAILABLE_MEMORY: self._available,
            Call.RUNTIME_ENABLE: self._runtime_enable,
        }

    # --- bookkeeping

    def leaks(self) -> list[str]:
        """Return what is still held: descriptors, memory, queues, events, mappings."""
        held = [f"fd {fd} of {path}" for fd, path in self._fds.items()]
        held += [
            f"memory {h:#x} at {b.va:#x}+{b.size:#x}" for h, b in self.buffers.items() if h != self._page
        ]
        held += [f"queue {number}" for number in self.queues]
        held += [f"event {number:#x}" for number in self.events]
        held += [f"mapping {va:#x}+{size:#x}" for va, size in self._maps.items()]
        return held + [f"{self._bells} doorbell pages"] * bool(self._bells)

    def _due(self, what: str) -> bool:
        """Count a call that may fail; say whether it is the one that must."""
        self.count += 1
        if self.fail_at is not None and self.count - 1 == self.fail_at:
            self.failed = what
            return True
        return False

    # --- files

    def open(self, path: str, flags: int = 2) -> int:
        del flags
        renders = [RENDER_NODE.format(minor=FIRST_RENDER_MINOR + i) for i in range(len(self.script.gpus))]
        number = self.script.missing.get(path, 0 if path in (KFD_NODE, *renders) else errno.ENOENT)
        if number or self._due(f"open {path}"):
            number = number or errno.EIO
            raise DriverError("open", number, errno.errorcode[number], arguments=path)
        fd = next(self._next_fd)
        self._fds[fd] = path
        self.calls.append(f"open {path}")
        return fd

    def close(self, fd: int) -> None:
        path = self._fds.pop(fd)
        self.calls.append(f"close {path}")
        # What could not be given back goes with the process, as in the real kernel.
        if path == KFD_NODE and KFD_NODE not in self._fds.values() and self.failed.startswith(_GIVING_BACK):
            for held in (self.buffers, self.queues, self.events):
                held.clear()

    def read(self, fd: int, size: int) -> bytes:
        raise AssertionError(f"read {fd} {size}")

    def read_file(self, path: str) -> bytes:
        content = self._files.get(path, errno.ENOENT)
        if isinstance(content, int):
            raise DriverError("read", content, errno.errorcode[content], arguments=path)
        if self._due(f"read {path}"):
            raise DriverError("read", errno.EIO, "EIO", arguments=path)
        return content

    def list_dir(self, path: str) -> list[str]:
        below = {name[len(path) + 1 :].split("/")[0] for name in self._files if name.startswith(f"{path}/")}
        if not below:
            raise DriverError("listdir", errno.ENOENT, "ENOENT", arguments=path)
        if self._due(f"listdir {path}"):
            raise DriverError("listdir", errno.EIO, "EIO", arguments=path)
        return sorted(below)

    # --- memory of the host

    def mmap(
        self,
        size: int,
        *,
        fd: int = -1,
        offset: int = 0,
        va: int = 0,
        prot: int = 3,
        flags: int | None = None,
    ) -> Mapping:
        if self._due(f"mmap {size:#x}"):
            raise OutOfMemoryError("mmap", errno.ENOMEM, "ENOMEM", arguments=f"{size:#x} bytes")
        if fd >= 0:
            buffer = self.buffers.get(offset >> 12)
            assert buffer is not None, f"mmap of {self._fds[fd]} at {offset:#x}: not what ALLOC returned"
            assert self._fds[fd] == self._render(buffer.gpu_id), (
                "memory is mapped through its own render node"
            )
            assert (va, size) == (buffer.va, buffer.size), "memory is mapped whole, at its device address"
            assert buffer.flags & (MemFlags.GTT | MemFlags.PUBLIC), "the host cannot map this memory"
            return self._linux.mmap(size, va=va, prot=prot, flags=0x20 | (flags or 1))
        mapping = self._linux.mmap(size, va=va, prot=prot, flags=flags)
        self._maps[mapping.va] = size
        return mapping

    def munmap(self, va: int, size: int) -> None:
        start = next(s for s, length in self._maps.items() if s <= va and va + size <= s + length)
        end = start + self._maps.pop(start)
        for first, last in ((start, va), (va + size, end)):
            if first < last:
                self._maps[first] = last - first
        self._linux.munmap(va, size)

    def mprotect(self, va: int, size: int, prot: int) -> None:
        raise AssertionError(f"mprotect {va:#x} {size:#x} {prot}")

    def madvise(self, va: int, size: int, advice: int) -> None:
        raise AssertionError(f"madvise {va:#x} {size:#x} {advice}")

    def mmio(self, fd: int, size: int, offset: int) -> Doorbell:
        where = kfd.MmapOffset.from_int(offset)
        assert self._fds[fd] == KFD_NODE, "doorbells are mapped through /dev/kfd"
        assert where.TYPE is kfd.MmapType.DOORBELL, "only doorbells are played"
        assert not where.OFFSET % kfd.DOORBELL_SLICE_BYTES, "the slice is mapped from its start"
        assert size == kfd.DOORBELL_SLICE_BYTES, "the slice is mapped whole"
        if self._due("mmap doorbells"):
            raise OutOfMemoryError("mmap", errno.ENOMEM, "ENOMEM", arguments="doorbells")
        self._bells += 1
        return Doorbell(self, where.GPU_ID)

    def close_bell(self) -> None:
        """Count a doorbell page that was unmapped."""
        self._bells -= 1

    def poll(self, fds: Sequence[int], timeout_s: float) -> list[int]:
        raise AssertionError(f"poll {fds} {timeout_s}")

    def diagnostics(self) -> tuple[str, ...]:
        return ()

    def _render(self, gpu_id: int) -> str:
        return RENDER_NODE.format(minor=FIRST_RENDER_MINOR + gpu_id - self.script.gpu_id(0))

    # --- ioctls

    def ioctl(self, fd: int, request: int, argument: bytearray | int) -> int:
        assert isinstance(argument, bytearray), "all calls carry a structure"
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
        if self._due(f"{call.name} {decoded!r}"):
            fail(errno.EIO, "this call was to fail")
        if call.name in self.script.refuse:
            fail(self.script.refuse[call.name], f"{call.name} is refused by the script")
        self._answers[call](decoded, argument)
        return 0

    def _drm(self, request: int, argument: bytearray) -> int:
        assert request == drm.DRM_IOCTL_AMDGPU_INFO
        asked = drm.drm_amdgpu_info.from_bytes(argument)
        assert not asked.check(), asked.check()
        assert asked.query is drm.InfoQuery.DEV_INFO
        self.calls.append(f"AMDGPU_INFO {asked!r}")
        if self._due("AMDGPU_INFO"):
            fail(errno.EIO, "this call was to fail")
        fused = any(name in APUS for name in self.script.gpus)
        answer = drm.drm_amdgpu_info_device(
            gpu_counter_freq=COUNTER_KHZ, ids_flags=drm.IDS_FLAGS_FUSION if fused else 0
        )
        view_at(asked.return_pointer, asked.return_size)[:] = answer.to_bytes()[: asked.return_size]
        return 0

    def _index(self, gpu_id: int) -> int:
        index = gpu_id - self.script.gpu_id(0)
        demand(0 <= index < len(self.script.gpus), f"gpu_id {gpu_id} is unknown")
        return index

    def _ready(self, gpu_id: int) -> None:
        self._index(gpu_id)
        demand(gpu_id in self._acquired, f"GPU {gpu_id} was not acquired")

    def _get_version(self, _: Any, block: bytearray) -> None:
        major, minor = self.script.version
        kfd.kfd_ioctl_get_version_args.store(block, major_version=major, minor_version=minor)

    def _acquire_vm(self, asked: kfd.kfd_ioctl_acquire_vm_args, _: bytearray) -> None:
        self._index(asked.gpu_id)
        demand(self._fds.get(asked.drm_fd) == self._render(asked.gpu_id), "not the GPU's render node")
        known = self._acquired.setdefault(asked.gpu_id, asked.drm_fd)
        demand(known == asked.drm_fd, "tied to another descriptor", errno.EBUSY)

    def _runtime_enable(self, _: Any, __: bytearray) -> None:
        demand(not self._runtime, "enabled already", errno.EBUSY)
        demand(not self.queues, "queues exist", errno.EEXIST)
        self._runtime = True

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
        self._ready(asked.gpu_id)
        type(asked).store(block, gpu_clock_counter=next(self.ticks), system_clock_freq=kfd.SYSTEM_CLOCK_HZ)

    def _available(self, asked: kfd.kfd_ioctl_get_available_memory_args, block: bytearray) -> None:
        self._ready(asked.gpu_id)
        type(asked).store(block, available=self.script.vram_free)

    # --- memory of GPUs

    def _alloc(self, asked: kfd.kfd_ioctl_alloc_memory_of_gpu_args, block: bytearray) -> None:
        self._ready(asked.gpu_id)
        flags, va, size = asked.flags, asked.va_addr, asked.size
        demand(not flags & ~_ALL, f"unknown flags {flags:#x}")
        demand((int(flags & _KINDS)).bit_count() == 1, "exactly one type of memory")
        demand(size > 0 and not size % _PAGE and not va % _PAGE, "whole pages")
        demand(va >= kfd.GPUVM_BASE and va + size <= 1 << kfd.USER_ADDRESS_BITS, "outside of user addresses")
        for other in self.buffers.values():
            demand(va + size <= other.va or other.va + other.size <= va, f"overlaps {other.va:#x}")
        if flags & MemFlags.PUBLIC:
            demand(self.script.large_bar, "a small BAR")
        if flags & MemFlags.USERPTR:
            demand(
                asked.mmap_offset != 0 and not asked.mmap_offset % _PAGE, "the host address of a user pointer"
            )
        if flags & MemFlags.VRAM:
            demand(size <= self.script.vram_free, "over the limit", errno.ENOMEM)
        handle = asked.gpu_id << 32 | next(self._next_handle)
        self.buffers[handle] = Buffer(asked.gpu_id, va, size, flags, asked.mmap_offset)
        if flags & MemFlags.VRAM and not flags & MemFlags.PUBLIC:
            # What only the GPU sees: played by memory of the host at the same place.
            self._linux.mmap(size, va=va, flags=0x10 | 0x20 | 1)
        type(asked).store(block, handle=handle, mmap_offset=handle << 12)

    def _buffer(self, handle: int) -> Buffer:
        demand(handle in self.buffers, f"no memory {handle:#x}", errno.ENOMEM)
        return self.buffers[handle]

    def _free(self, asked: kfd.kfd_ioctl_free_memory_of_gpu_args, _: bytearray) -> None:
        buffer = self._buffer(asked.handle)
        demand(asked.handle != self._page, "the signal page", errno.EPERM)
        demand(not buffer.mapped, "still mapped", errno.EBUSY)
        del self.buffers[asked.handle]

    def _gpus(self, asked: Any) -> list[int]:
        demand(asked.n_devices > 0, "no devices")
        demand(asked.n_success <= asked.n_devices, "n_success above n_devices")
        ids = list(view_at(asked.device_ids_array_ptr, 4 * asked.n_devices).cast("I"))
        return ids[asked.n_success :]

    def _map(self, asked: kfd.kfd_ioctl_map_memory_to_gpu_args, block: bytearray) -> None:
        buffer = self._buffer(asked.handle)
        for done, gpu_id in enumerate(self._gpus(asked)):
            type(asked).store(block, n_success=done)
            self._ready(gpu_id)
            foreign = gpu_id != buffer.gpu_id and bool(buffer.flags & MemFlags.VRAM)
            demand(not foreign or self.script.links, "no way to the other GPU's memory")
            if gpu_id not in buffer.mapped:
                buffer.mapped.append(gpu_id)
            type(asked).store(block, n_success=done + 1)

    def _unmap(self, asked: kfd.kfd_ioctl_unmap_memory_from_gpu_args, block: bytearray) -> None:
        buffer = self._buffer(asked.handle)
        demand(not buffer.users, "a queue uses it", errno.EBUSY)
        for done, gpu_id in enumerate(self._gpus(asked)):
            self._ready(gpu_id)
            if gpu_id in buffer.mapped:
                buffer.mapped.remove(gpu_id)
            type(asked).store(block, n_success=done + 1)

    def holds(self, gpu_id: int, va: int, size: int) -> bool:
        """Return whether a GPU maps [va, va + size)."""
        return any(
            gpu_id in b.mapped and b.va <= va and va + size <= b.va + b.size for b in self.buffers.values()
        )

    # --- queues

    def _exact(self, gpu_id: int, va: int, size: int, what: str) -> Buffer:
        """Return the mapping that is exactly [va, va + size)."""
        for buffer in self.buffers.values():
            if buffer.va == va:
                demand(gpu_id in buffer.mapped, f"{what} is not mapped")
                demand(buffer.size == size, f"{what} has {buffer.size} bytes, {size} are wanted")
                return buffer
        fail(errno.EINVAL, f"{what}: nothing begins at {va:#x}")
        raise AssertionError

    def _create_queue(self, asked: Any, block: bytearray) -> None:
        self._ready(asked.gpu_id)
        gpu_id, kind = asked.gpu_id, asked.queue_type
        demand(asked.queue_percentage & 0xFF <= kfd.MAX_QUEUE_PERCENTAGE, "percentage")
        demand(asked.queue_priority <= kfd.MAX_QUEUE_PRIORITY, "priority")
        demand(kind in set(QueueType), "queue type", kfd.ENOTSUPP)
        demand(asked.ring_size.bit_count() == 1 and asked.ring_size >= kfd.MIN_RING_BYTES, "ring size")
        demand(not asked.ring_base_address % kfd.RING_ALIGN, "ring alignment")
        used = [self._exact(gpu_id, asked.ring_base_address, asked.ring_size, "ring")]
        for pointer, what in ((asked.write_pointer_address, "wptr"), (asked.read_pointer_address, "rptr")):
            demand(not pointer % 8, f"{what} alignment")
            page = self._exact(gpu_id, pointer & -_PAGE, _PAGE, f"page of {what}")
            demand(bool(page.flags & MemFlags.GTT), f"{what} outside of GTT under MES")
            used.append(page)
        compute = kind in (QueueType.COMPUTE, QueueType.COMPUTE_AQL)
        if kind == QueueType.COMPUTE or asked.eop_buffer_address:
            demand(asked.eop_buffer_size == kfd.MIN_EOP_BYTES, "EOP size")
            used.append(self._exact(gpu_id, asked.eop_buffer_address, asked.eop_buffer_size, "EOP buffer"))
        if compute:
            areas = self.script.areas(self._index(gpu_id))
            demand(asked.ctl_stack_size == areas.control_stack, "control stack size not equal")
            demand(asked.ctx_save_restore_size == areas.context, "save size not equal")
            used.append(self._exact(gpu_id, asked.ctx_save_restore_address, areas.total, "save area"))
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
            target=self.script.gpus[self._index(gpu_id)],
            used=used,
            evicted=gpu_id in self._evicted,
        )
        type(asked).store(block, queue_id=number, doorbell_offset=int(token))

    def _check_headers(self, va: int, areas: cwsr.Sizes) -> None:
        for xcc in range(areas.xccs):
            layout = cwsr.kfd_context_save_area_header
            header = layout.from_bytes(view_at(va + xcc * areas.context, layout.SIZE))
            demand(header.debug_offset == (areas.xccs - xcc) * areas.context, "debug_offset")
            demand(header.debug_size == areas.debug * areas.xccs, "debug_size")
            demand(header.err_event_id in self.events, "err_event_id")

    def _queue(self, number: int) -> Engine:
        demand(number in self.queues, f"no queue {number}")
        return self.queues[number]

    def _destroy_queue(self, asked: kfd.kfd_ioctl_destroy_queue_args, _: bytearray) -> None:
        queue = self._queue(asked.queue_id)
        for buffer in queue.used:
            buffer.users -= 1
        del self.queues[asked.queue_id]

    def _update_queue(self, asked: kfd.kfd_ioctl_update_queue_args, _: bytearray) -> None:
        queue = self._queue(asked.queue_id)
        demand((asked.ring_base_address, asked.ring_size) == queue.ring, "another ring")
        queue.active = bool(asked.queue_percentage & 0xFF)

    # --- events

    def _create_event(self, asked: events.kfd_ioctl_create_event_args, block: bytearray) -> None:
        if asked.event_page_offset:
            demand(not self._page_given, "a second signal page")
            page = self._buffer(asked.event_page_offset)
            demand(page.size >= events.EVENT_PAGE_BYTES, "signal page too small")
            demand(bool(page.flags & MemFlags.GTT), "the signal page lies in GTT")
            self._page, self._page_given = asked.event_page_offset, True
            view_at(page.va, page.size)[:] = b"\xff" * page.size
        demand(self._page_given, "no signal page yet")
        signal = asked.event_type == events.EventType.SIGNAL
        number = next(self._next_signal if signal else self._next_other)
        self.events[number] = Event(asked.event_type)
        slot = number if signal else 0
        type(asked).store(block, event_id=number, event_trigger_data=slot, event_slot_index=slot)

    def _event(self, number: int) -> Event:
        demand(number in self.events, f"no event {number:#x}")
        return self.events[number]

    def _destroy_event(self, asked: events.kfd_ioctl_destroy_event_args, _: bytearray) -> None:
        self._event(asked.event_id)
        del self.events[asked.event_id]

    def _set_event(self, asked: events.kfd_ioctl_set_event_args, _: bytearray) -> None:
        event = self._event(asked.event_id)
        demand(event.kind == events.EventType.SIGNAL, "no signal event")
        event.fired = True

    def _wait_events(self, asked: events.kfd_ioctl_wait_events_args, block: bytearray) -> None:
        self.run()
        layout = events.kfd_event_data
        data = view_at(asked.events_ptr, asked.num_events * layout.SIZE)
        waited = [
            self._event(layout.from_bytes(data, i * layout.SIZE).event_id) for i in range(asked.num_events)
        ]
        fired = False
        for index, event in enumerate(waited):
            if event.fired:
                event.fired, fired = False, True
                payload = event.payload.ljust(32, b"\0")
                layout.store(data, index * layout.SIZE, payload=payload)
        result = events.WaitResult.COMPLETE if fired else events.WaitResult.TIMEOUT
        type(asked).store(block, wait_result=result)

    def interrupt(self, number: int) -> None:
        """Play an interrupt of a GPU that carries an event's id; the slot was written before."""
        page = self.buffers[self._page] if self._page is not None else None
        assert page is not None, "an interrupt before there is a signal page"
        slot = view_at(page.va + number * events.EVENT_SLOT_BYTES, events.EVENT_SLOT_BYTES).cast("Q")
        if slot[0] != events.UNSIGNALLED:
            slot[0] = events.UNSIGNALLED
            self._event(number).fired = True

    def report(self, kind: events.EventType, payload: bytes) -> None:
        """Set all events of a kind, with what they tell."""
        for event in self.events.values():
            if event.kind == kind:
                event.fired, event.payload = True, payload

    def page_fault(self, gpu_id: int, va: int, *, write: bool = False, mapped: bool = False) -> None:
        """Play a page fault: every queue of the GPU leaves the hardware for good."""
        if self.script.evict_for_good:
            self._evicted.add(gpu_id)
        for queue in self.queues.values():
            queue.evicted = queue.evicted or queue.gpu_id == gpu_id
        failure = events.kfd_memory_exception_failure(NotPresent=not mapped, ReadOnly=write)
        data = events.kfd_hsa_memory_exception_data(failure=failure, va=va & -_PAGE, gpu_id=gpu_id)
        self.report(events.EventType.MEMORY, data.to_bytes())

    # --- engines

    def ring(self, gpu_id: int, offset: int, value: int) -> None:
        """Take a doorbell."""
        queue = next(q for q in self.queues.values() if q.gpu_id == gpu_id and q.doorbell == offset)
        queue.rung(value)
        self.run()

    def run(self) -> None:
        """Let every queue run until it is empty or waits."""
        moved = True
        while moved:
            moved = False
            for queue in tuple(self.queues.values()):
                before = queue.done
                with contextlib.suppress(Stalled):
                    queue.run()
                moved = moved or queue.done != before


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


class Doorbell:
    """The doorbells of a GPU: 8 bytes at once, to be written only."""

    def __init__(self, kernel: ScriptedKernel, gpu_id: int) -> None:
        self._kernel, self._gpu_id = kernel, gpu_id

    def read32(self, offset: int) -> int:
        raise AssertionError(f"a doorbell is read at {offset:#x}")

    def read64(self, offset: int) -> int:
        raise AssertionError(f"a doorbell is read at {offset:#x}")

    def write32(self, offset: int, value: int) -> None:
        raise AssertionError(f"4 bytes of a doorbell, {value:#x} at {offset:#x}")

    def write64(self, offset: int, value: int) -> None:
        assert not offset % 8, f"a doorbell at {offset:#x}"
        self._kernel.ring(self._gpu_id, offset, value)

    def close(self) -> None:
        self._kernel.close_bell()
