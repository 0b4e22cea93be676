"""The ioctls of memory: allocate, free, map, unmap, share.

Each function takes the call in progress and its decoded structure, and refuses with the errno of Linux
(`CallRefused`); what Linux has and this emulator lacks raises `NotEmulated`. Source: docs/sources-amd.md, KFD
ioctls.

Not here: dispatch by number (`ioctls`). Next: `gpu`, the memory objects and address spaces.
"""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING, Final

from drivers.amd.layouts.kfd import (
    DOORBELL_SLICE_BYTES,
    MMIO_REMAP_BYTES,
    MemFlags,
    MmapOffset,
    MmapType,
    kfd_ioctl_alloc_memory_of_gpu_args,
    kfd_ioctl_free_memory_of_gpu_args,
    kfd_ioctl_get_available_memory_args,
    kfd_ioctl_map_memory_to_gpu_args,
    kfd_ioctl_unmap_memory_from_gpu_args,
)
from emulator.amd.kfd.gpu import TYPES, KfdBuffer
from emulator.amd.kfd.process import AmdNode, KfdFile, Shared
from emulator.amd.kfd.refusal import NotEmulated, refuse
from emulator.shared.backing import PAGE, Backing, page_up
from emulator.shared.emulated_kernel import first_unwritable

if TYPE_CHECKING:
    from drivers.amd.layouts.kfd_unused import (
        kfd_ioctl_export_dmabuf_args,
        kfd_ioctl_get_dmabuf_info_args,
        kfd_ioctl_import_dmabuf_args,
    )
    from emulator.amd.kfd.gpu import KfdGpu
    from emulator.amd.kfd.process import Asked, KfdProcess

_KNOWN: Final = sum(MemFlags)
_AVAILABLE_UNIT: Final = 2 << 20
"""Free video memory is counted in whole units of these bytes."""
_MOST_DEVICES: Final = 1024
"""The longest array of GPUs in one call."""
_EXPORT_FLAGS: Final = os.O_CLOEXEC | os.O_ACCMODE


def available(ask: Asked, args: kfd_ioctl_get_available_memory_args) -> None:
    """Run AVAILABLE_MEMORY. Answers the free bytes of video memory."""
    gpu = ask.process.gpu(args.gpu_id)
    ask.answer(available=_left(ask.process, gpu))


def _left(process: KfdProcess, gpu: KfdGpu) -> int:
    """Return the free bytes of video memory; of an APU those of the system memory that it may take."""
    share = gpu.profile.host_share(process.kernel, process.host_bytes)
    if share:
        return max(0, share - process.host_used) // PAGE * PAGE
    return (gpu.profile.vram_bytes - gpu.vram_used) // _AVAILABLE_UNIT * _AVAILABLE_UNIT


def allocate(ask: Asked, args: kfd_ioctl_alloc_memory_of_gpu_args) -> None:
    """Run ALLOC_MEMORY_OF_GPU. Answers a handle and the mmap offset; the memory is mapped to no GPU yet."""
    flags = int(args.flags)
    if not args.size:
        refuse(errno.EINVAL, "an allocation of 0 bytes")
    known = _KNOWN if ask.process.kernel.has("CONTIGUOUS") else _KNOWN & ~MemFlags.CONTIGUOUS
    if flags & ~known:
        refuse(errno.EINVAL, f"flags {flags:#x} have unknown bits {flags & ~known:#x}")
    kinds = [kind for kind in TYPES if flags & kind]
    if len(kinds) != 1:
        refuse(errno.EINVAL, f"flags {flags:#x} name {len(kinds)} kinds of memory, wanted one")
    gpu = ask.process.gpu(args.gpu_id)
    if MemFlags.VRAM in kinds and flags & MemFlags.PUBLIC and not gpu.profile.large_bar:
        refuse(errno.EINVAL, f"{gpu.name} has a small BAR: video memory cannot be PUBLIC")
    if flags & MemFlags.AQL_QUEUE_MEM:
        raise NotEmulated(errno.EINVAL, "AQL_QUEUE_MEM, which is for gfx7 and gfx8 only")
    ask.process.bound(args.gpu_id)
    if value := ask.process.hardware.rejections.refuses("memory", flags):
        refuse(errno.EINVAL, f"this machine takes no memory with flags {flags:#x} (quirk {value})")
    kind, size = kinds[0], page_up(args.size)
    place(ask.process, gpu, args.va_addr, size)
    backing = _pages(ask.process, gpu, kind, args)
    buffer = KfdBuffer(gpu.new_handle(), gpu, args.va_addr, size, MemFlags(flags), kind, backing)
    gpu.handles[buffer.handle & 0xFFFF_FFFF] = buffer
    if kind is MemFlags.MMIO_REMAP:
        buffer.mmap_offset = int(MmapOffset(GPU_ID=gpu.gpu_id, TYPE=MmapType.MMIO))
    else:
        buffer.mmap_offset = gpu.new_offset(buffer)
    if backing is not None:
        backing.label = f"{kind.name} handle {buffer.handle:#x}"
    ask.answer(handle=buffer.handle, mmap_offset=buffer.mmap_offset)


def place(process: KfdProcess, gpu: KfdGpu, va: int, size: int) -> None:
    """Refuse with EINVAL unless memory of a GPU may lie at [va, va + size). `size` is a multiple of the page.

    The range is aligned to pages, inside the GPU's span, and overlaps no memory of the GPU or mapped to it.
    """
    if va % PAGE:
        refuse(errno.EINVAL, f"[{va:#x}, +{size:#x}) is not aligned to pages of {PAGE} bytes")
    if not gpu.inside(va, size):
        first, end = gpu.span()
        refuse(errno.EINVAL, f"[{va:#x}, +{size:#x}) is not inside [{first:#x}, {end:#x}) of {gpu.name}")
    for owner in process.gpus:
        for other in owner.handles.values():
            shares = other.owner is gpu or gpu in other.mapped
            if shares and other.va < va + size and va < other.end:
                refuse(errno.EINVAL, f"[{va:#x}, +{size:#x}) overlaps {other}")


def _pages(
    process: KfdProcess, gpu: KfdGpu, kind: MemFlags, args: kfd_ioctl_alloc_memory_of_gpu_args
) -> Backing | None:
    """Allocate or pin the pages of new memory; None for doorbells and registers, which have none."""
    size = page_up(args.size)
    match kind:
        case MemFlags.DOORBELL:
            if args.size != DOORBELL_SLICE_BYTES:
                refuse(errno.EINVAL, f"a doorbell of {args.size} bytes, wanted {DOORBELL_SLICE_BYTES}")
            return None
        case MemFlags.MMIO_REMAP:
            if args.size != MMIO_REMAP_BYTES:
                refuse(errno.EINVAL, f"MMIO remap of {args.size} bytes, wanted {MMIO_REMAP_BYTES}")
            return None
        case MemFlags.USERPTR:
            return _user_pages(process, args.mmap_offset, size, writes=bool(args.flags & MemFlags.WRITABLE))
        case MemFlags.VRAM:
            left = _left(process, gpu)
            if size > left:
                refuse(errno.ENOMEM, f"{size} bytes of video memory, {left} are left of {gpu.name}")
            own = not gpu.profile.host_share(process.kernel, process.host_bytes)
            give_back = (lambda: _return_vram(gpu, size)) if own else (lambda: _return_host(process, size))
            backing = Backing.new(process.linux, size, "VRAM", give_back)
            if process.tracks:
                backing.track()
            if own:
                gpu.vram_used += size
            else:
                process.host_used += size
        case _:
            if process.host_used + size > process.host_bytes:
                refuse(errno.ENOMEM, f"{size} bytes of system memory, over the limit of {process.host_bytes}")
            backing = Backing.new(process.linux, size, "GTT", lambda: _return_host(process, size))
            process.host_used += size
    return backing


def _return_vram(gpu: KfdGpu, size: int) -> None:
    gpu.vram_used -= size


def _return_host(process: KfdProcess, size: int) -> None:
    process.host_used -= size


def _user_pages(process: KfdProcess, address: int, size: int, *, writes: bool) -> Backing:
    """Pin the caller's pages. Raises if one cannot be read, or written if `writes`."""
    if not address or address % PAGE:
        refuse(errno.EINVAL, f"the user pointer {address:#x} is zero or not aligned to {PAGE} bytes")
    if writes:
        bad = first_unwritable(address, size)
        if bad is not None:
            refuse(errno.EFAULT, f"user memory [{address:#x}, +{size:#x}) cannot be written at {bad:#x}")
    else:
        for at in range(address, address + size, PAGE):
            process.user.read(at, 1)
    return Backing.pinned(address, size, "USERPTR")


def free(ask: Asked, args: kfd_ioctl_free_memory_of_gpu_args) -> None:
    """Run FREE_MEMORY_OF_GPU. Refuses the signal page, and memory that is mapped."""
    handle = args.handle
    process = ask.process
    process.gpu(handle >> 32)
    if process.events.page_handle == handle:
        refuse(errno.EPERM, f"handle {handle:#x} is the signal page: it stays until the process ends")
    buffer = process.buffer(handle, errno.EINVAL)
    if buffer.mapped:
        where = ", ".join(sorted(gpu.name for gpu in buffer.mapped))
        refuse(errno.EBUSY, f"{buffer} is mapped to {where}")
    process.drop(buffer)


def map_to_gpus(ask: Asked, args: kfd_ioctl_map_memory_to_gpu_args) -> None:
    """Run MAP_MEMORY_TO_GPU. n_success counts the GPUs done, also when the call fails at a later one."""
    ids = _device_ids(ask, args.device_ids_array_ptr, args.n_devices, args.n_success)
    ask.process.bound(args.handle >> 32)
    buffer = ask.process.buffer(args.handle, errno.ENOMEM)
    for at in range(args.n_success, args.n_devices):
        gpu, space = ask.process.bound(ids[at])
        if gpu not in buffer.mapped:
            if buffer.kind is not MemFlags.GTT and buffer.kind is not MemFlags.USERPTR:
                _check_peer(gpu, buffer)
            other = next((b for b in space.buffers.values() if b.va < buffer.end and buffer.va < b.end), None)
            if other is not None:
                refuse(errno.EINVAL, f"{buffer} overlaps {other} in the address space of {gpu.name}")
            space.attach(buffer)
            buffer.mapped.add(gpu)
        ask.answer(n_success=at + 1)


def _check_peer(gpu: KfdGpu, buffer: KfdBuffer) -> None:
    if not gpu.reaches(buffer.owner):
        refuse(
            errno.EINVAL, f"{gpu.name} has no peer-to-peer access to {buffer.owner.name}, where {buffer} lies"
        )


def _device_ids(ask: Asked, pointer: int, count: int, done: int) -> tuple[int, ...]:
    """Return the gpu_ids of a call's array; `done` is the n_success that the caller gave."""
    if not count:
        refuse(errno.EINVAL, "n_devices is 0")
    if done > count:
        refuse(errno.EINVAL, f"n_success {done} is above n_devices {count}")
    if count > _MOST_DEVICES:
        refuse(errno.ENOMEM, f"an array of {count} devices")
    if done == count:
        ask.process.hardware.lint(
            f"{ask.call.name}: n_success is n_devices ({count}), so the call does nothing"
        )
    return tuple(memoryview(ask.process.user.read(pointer, 4 * count)).cast("I"))


def unmap_from_gpus(ask: Asked, args: kfd_ioctl_unmap_memory_from_gpu_args) -> None:
    """Run UNMAP_MEMORY_FROM_GPU. Refuses memory that a queue holds. n_success as for MAP_MEMORY_TO_GPU."""
    ids = _device_ids(ask, args.device_ids_array_ptr, args.n_devices, args.n_success)
    ask.process.gpu(args.handle >> 32)
    buffer = ask.process.buffer(args.handle, errno.ENOMEM)
    for at in range(args.n_success, args.n_devices):
        gpu = ask.process.gpu(ids[at])
        if gpu not in buffer.mapped:
            refuse(errno.EINVAL, f"{buffer} is not mapped to {gpu.name}")
        if ask.process.kernel.geometry and any(buffer in queue.buffers for queue in gpu.queues):
            users = ", ".join(queue.name for queue in gpu.queues if buffer in queue.buffers)
            refuse(errno.EBUSY, f"{buffer} is in use by {users}")
        ask.process.unmap(gpu, buffer, "with UNMAP_MEMORY_FROM_GPU")
        ask.answer(n_success=at + 1)


def export(ask: Asked, args: kfd_ioctl_export_dmabuf_args) -> None:
    """Run EXPORT_DMABUF. Answers a descriptor, which holds the pages until it is closed."""
    if args.flags & ~_EXPORT_FLAGS:
        refuse(errno.EINVAL, f"flags {args.flags:#x} of EXPORT_DMABUF: O_CLOEXEC and the access mode")
    buffer = ask.process.buffer(args.handle, errno.EINVAL)
    if buffer.backing is None or buffer.kind not in (MemFlags.VRAM, MemFlags.GTT):
        refuse(errno.EINVAL, f"{buffer} cannot be exported: VRAM and GTT can")
    shared = Shared(buffer.owner, buffer.backing.take(), buffer.size, buffer.kind, buffer.flags)
    fd = ask.kernel.add_file(KfdFile(0, AmdNode.DMABUF, f"dma-buf of {buffer}", shared=shared))
    ask.answer(dmabuf_fd=fd)


def _shared(ask: Asked, fd: int) -> Shared:
    file = ask.kernel.files.get(fd)
    if file is None or file.shared is None:
        refuse(errno.EINVAL, f"descriptor {fd} is no dma-buf of amdgpu")
    return file.shared


def describe(ask: Asked, args: kfd_ioctl_get_dmabuf_info_args) -> None:
    """Run GET_DMABUF_INFO. The emulated memory has no metadata."""
    shared = _shared(ask, args.dmabuf_fd)
    flags = shared.kind | shared.flags & MemFlags.PUBLIC
    ask.answer(size=shared.size, metadata_size=0, gpu_id=shared.owner.gpu_id, flags=int(flags))


def import_(ask: Asked, args: kfd_ioctl_import_dmabuf_args) -> None:
    """Run IMPORT_DMABUF. Answers a handle of new memory with the same pages, mapped to no GPU yet."""
    shared = _shared(ask, args.dmabuf_fd)
    gpu, _ = ask.process.bound(args.gpu_id)
    if gpu is not shared.owner and not gpu.reaches(shared.owner):
        refuse(errno.EINVAL, f"{gpu.name} has no peer-to-peer access to {shared.owner.name}")
    place(ask.process, gpu, args.va_addr, shared.size)
    flags = shared.kind | MemFlags.WRITABLE | MemFlags.EXECUTABLE | shared.flags & MemFlags.PUBLIC
    buffer = KfdBuffer(
        gpu.new_handle(), gpu, args.va_addr, shared.size, flags, shared.kind, shared.backing.take()
    )
    gpu.handles[buffer.handle & 0xFFFF_FFFF] = buffer
    buffer.mmap_offset = gpu.new_offset(buffer)
    ask.answer(handle=buffer.handle)
