"""Memory of the scripted KFD: allocation, mapping to GPUs and freeing, by the rules of Linux 6.12.

All memory is host memory at the device address; GPU-private VRAM, too. Not here: mappings for the host
(`scripted`). Next: `scripted_queues`, which uses this memory.
"""

from __future__ import annotations

import errno
import itertools
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from drivers.amd.layouts import kfd
from drivers.amd.layouts.kfd import MemFlags
from drivers.kernel import view_at
from tests.support.amd.scripted_rules import Gpus, demand, fail

if TYPE_CHECKING:
    from collections.abc import Callable

PAGE = 4096
_KINDS = MemFlags.VRAM | MemFlags.GTT | MemFlags.USERPTR | MemFlags.DOORBELL | MemFlags.MMIO_REMAP
_ALL = MemFlags(sum(int(flag) for flag in MemFlags))


@dataclass(slots=True)
class Buffer:
    """Memory that GPUs can map: `size` bytes at device address `va`, allocated on `gpu_id`."""

    gpu_id: int
    va: int
    size: int
    flags: MemFlags
    host: int = 0
    """The host address of a user pointer."""
    mapped: list[int] = field(default_factory=list[int])
    """Ids of the GPUs that map it."""
    users: int = 0
    """Number of queues that use it."""


class GpuMemory:
    """The memory of a process by handle; `back(size, va)` maps host memory behind GPU-private memory."""

    def __init__(self, gpus: Gpus, back: Callable[[int, int], object]) -> None:
        self._gpus, self._script, self._back = gpus, gpus.script, back
        self.buffers: dict[int, Buffer] = {}
        """Handle -> buffer."""
        self.event_page: int | None = None
        """Handle of the event page, which the process never frees."""
        self._next_handle = itertools.count(1)

    def alloc(self, asked: kfd.kfd_ioctl_alloc_memory_of_gpu_args, block: bytearray) -> None:
        """ALLOC_MEMORY_OF_GPU: allocate at the address and of the kind that the caller asks for."""
        self._gpus.require(asked.gpu_id)
        flags, va, size = asked.flags, asked.va_addr, asked.size
        demand(not flags & ~_ALL, f"unknown flags {flags:#x}")
        demand((int(flags & _KINDS)).bit_count() == 1, "exactly one type of memory")
        demand(size > 0 and not size % PAGE and not va % PAGE, "whole pages")
        demand(va >= kfd.GPUVM_BASE and va + size <= 1 << kfd.USER_ADDRESS_BITS, "outside of user addresses")
        for other in self.buffers.values():
            demand(va + size <= other.va or other.va + other.size <= va, f"overlaps {other.va:#x}")
        if flags & MemFlags.PUBLIC:
            demand(self._script.large_bar, "a small BAR")
        if flags & MemFlags.USERPTR:
            demand(
                asked.mmap_offset != 0 and not asked.mmap_offset % PAGE, "the host address of a user pointer"
            )
        if flags & MemFlags.VRAM:
            demand(size <= self._script.vram_free, "over the limit", errno.ENOMEM)
        handle = asked.gpu_id << 32 | next(self._next_handle)
        self.buffers[handle] = Buffer(asked.gpu_id, va, size, flags, asked.mmap_offset)
        if flags & MemFlags.VRAM and not flags & MemFlags.PUBLIC:
            self._back(size, va)
        offset = handle << 12
        if flags & MemFlags.MMIO_REMAP:
            offset = int(kfd.MmapOffset(GPU_ID=asked.gpu_id, TYPE=kfd.MmapType.MMIO))
        type(asked).store(block, handle=handle, mmap_offset=offset)

    def buffer(self, handle: int) -> Buffer:
        """Return the buffer of a handle; ENOMEM, as in KFD, for an unknown one."""
        demand(handle in self.buffers, f"no memory {handle:#x}", errno.ENOMEM)
        return self.buffers[handle]

    def free(self, asked: kfd.kfd_ioctl_free_memory_of_gpu_args, _: bytearray) -> None:
        """FREE_MEMORY_OF_GPU: EBUSY while a GPU maps the memory, EPERM for the event page."""
        buffer = self.buffer(asked.handle)
        demand(asked.handle != self.event_page, "the signal page", errno.EPERM)
        demand(not buffer.mapped, "still mapped", errno.EBUSY)
        del self.buffers[asked.handle]

    def _wanted(self, asked: Any) -> list[int]:
        """Return the ids of the GPUs that a call has not handled yet."""
        demand(asked.n_devices > 0, "no devices")
        demand(asked.n_success <= asked.n_devices, "n_success above n_devices")
        ids = list(view_at(asked.device_ids_array_ptr, 4 * asked.n_devices).cast("I"))
        return ids[asked.n_success :]

    def map(self, asked: kfd.kfd_ioctl_map_memory_to_gpu_args, block: bytearray) -> None:
        """MAP_MEMORY_TO_GPU: map to each listed GPU in turn; `n_success` counts those done."""
        buffer = self.buffer(asked.handle)
        for done, gpu_id in enumerate(self._wanted(asked)):
            type(asked).store(block, n_success=done)
            self._gpus.require(gpu_id)
            foreign = gpu_id != buffer.gpu_id and bool(buffer.flags & MemFlags.VRAM)
            demand(not foreign or self._script.links, "no link to the other GPU")
            if gpu_id not in buffer.mapped:
                buffer.mapped.append(gpu_id)
            type(asked).store(block, n_success=done + 1)

    def unmap(self, asked: kfd.kfd_ioctl_unmap_memory_from_gpu_args, block: bytearray) -> None:
        """UNMAP_MEMORY_FROM_GPU: EBUSY while a queue uses the memory."""
        buffer = self.buffer(asked.handle)
        demand(not buffer.users, "a queue uses it", errno.EBUSY)
        for done, gpu_id in enumerate(self._wanted(asked)):
            self._gpus.require(gpu_id)
            if gpu_id in buffer.mapped:
                buffer.mapped.remove(gpu_id)
            type(asked).store(block, n_success=done + 1)

    def holds(self, gpu_id: int, va: int, size: int) -> bool:
        """Return whether one buffer that a GPU maps contains [va, va + size)."""
        return any(
            gpu_id in b.mapped and b.va <= va and va + size <= b.va + b.size for b in self.buffers.values()
        )

    def exact(self, gpu_id: int, va: int, size: int, what: str) -> Buffer:
        """Return the buffer that a GPU maps and that is exactly [va, va + size); EINVAL if there is none."""
        buffer = next((one for one in self.buffers.values() if one.va == va), None)
        if buffer is None:
            fail(errno.EINVAL, f"{what}: no memory begins at {va:#x}")
        demand(gpu_id in buffer.mapped, f"{what} is not mapped")
        demand(buffer.size == size, f"{what} has {buffer.size} bytes, {size} are wanted")
        return buffer
