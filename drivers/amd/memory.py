"""Memory of a device: video memory and system memory of the kernel driver, and the map of allocations.

A range of addresses is reserved in this process, and memory has the same address for the host and all GPUs.
Memory that the host writes is coherent system memory (GTT). An APU has no video memory of its own: its VRAM
is system memory that the GPU caches.

Not here: host memory that is mapped into GPUs (`process`), sub-allocation (`hcq.memory` requests whole
pages). Next: `process`.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from drivers import kernel as kernels
from drivers.amd.kfd import Kfd
from drivers.amd.layouts.kfd import MMIO_REMAP_BYTES, MemFlags, MemKind, MmioRemap
from drivers.amd.refusals import small_bar
from drivers.kernel import Kernel, Mmio
from drivers.shared.memorymap import MemoryMap
from hcq.errors import BringUpError, DriverError, OutOfMemoryError, size_text

HUGE: Final = 1 << 21
"""Bytes: memory of at least this size is aligned to it, so that the kernel uses large page-table entries."""


class AddressSpan:
    """Reservations of free addresses of this process. Thread-safe."""

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel
        self._unfreed: list[tuple[int, int]] = []
        """Ranges of memory that the kernel did not free; new memory there would overlap it."""

    def reserve(self, size: int) -> int:
        """Reserve `size` bytes, whole pages, and return their address. Raises as `Kernel.mmap`."""
        align = HUGE if size >= HUGE else kernels.PAGE
        flags = kernels.MAP_PRIVATE | kernels.MAP_ANONYMOUS | kernels.MAP_NORESERVE
        room = size + align - kernels.PAGE
        start = self._kernel.mmap(room, prot=kernels.PROT_NONE, flags=flags).va
        va = -(-start // align) * align
        for first, end in ((start, va), (va + size, start + room)):
            if first < end:
                self._kernel.munmap(first, end - first)
        return va

    def release(self, va: int, size: int) -> None:
        """Free a range that `reserve` returned, and unmap all host mappings in it."""
        self._kernel.munmap(va, size)

    def freed(self, va: int, size: int, error: type[BaseException] | None, *_: object) -> None:
        """Release a range as a context ends that frees its memory; after an error keep it until `close`."""
        if error is None:
            self.release(va, size)
        else:
            self._unfreed.append((va, size))

    def close(self) -> None:
        """Release the ranges of memory that was not freed."""
        while self._unfreed:
            self.release(*self._unfreed.pop())


_ZEROS: Final = bytes(1 << 20)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class AmdMemory:
    """A range of addresses, with the memory that GPUs map there."""

    va: int
    """Address for the GPUs and the host."""
    size: int
    """Bytes, whole pages."""
    view: memoryview | None
    """The host's view; None if the host does not map the memory."""
    handle: int
    """The handle of KFD."""
    label: str
    video: bool
    """Whether it is video memory: other GPUs then need a link to it."""
    gpus: dict[int, int] = field(default_factory=dict[int, int])
    """gpu_id of each GPU that maps it -> number of `share` calls for that GPU."""


class AmdMemories:
    """The allocator of memory of one GPU. A call that raises leaves nothing allocated.

    Not thread-safe: the caller holds the device's lock. Allocations raise `OutOfMemoryError` if memory or
    addresses are exhausted, `BringUpError` if the host maps memory at another address, `DriverError` for
    other refusals.
    """

    def __init__(
        self,
        kfd: Kfd,
        space: AddressSpan,
        *,
        gpu_id: int,
        drm_fd: int,
        name: str,
        visible_bytes: int,
        apu: bool,
        uncached: bool = True,
    ) -> None:
        """Make an allocator that maps memory by the render node `drm_fd`, which stays the caller's.

        `visible_bytes` is the video memory that the host can map; `apu`: it is the system's. `uncached`:
        system memory has the flag UNCACHED (`AmdQuirks.system_uncached`).
        """
        self._kfd, self._space = kfd, space
        self.gpu_id = gpu_id
        self._drm_fd = drm_fd
        self._name = name
        self._visible_bytes = visible_bytes
        self._apu = apu
        self._uncached = uncached
        self._registers: Mmio | None = None
        self._undo = contextlib.ExitStack()
        """Frees the page of `_registers`."""
        self.map: MemoryMap[AmdMemory] = MemoryMap()
        """All memory that this allocator has allocated."""

    def sibling(self) -> AmdMemories:
        """Return another allocator for the same GPU, whose memory `close` of this one does not free."""
        return AmdMemories(
            self._kfd,
            self._space,
            gpu_id=self.gpu_id,
            drm_fd=self._drm_fd,
            name=self._name,
            visible_bytes=self._visible_bytes,
            apu=self._apu,
            uncached=self._uncached,
        )

    def vram(self, size: int, *, label: str, host_visible: bool = False) -> AmdMemory:
        """Allocate video memory of at least `size` bytes; its contents are undefined.

        The kernel clears memory when a process frees it, not when it allocates it. Raises `UnsupportedError`
        for `host_visible` memory if the PCI window is smaller than the video memory.
        """
        if not host_visible:
            return self._alloc(size, MemKind.VRAM, label, video=True)
        if not self._visible_bytes and not self._apu:
            raise small_bar(self._name)
        return self._alloc(size, MemKind.VISIBLE_VRAM, label, video=True)

    def system(self, size: int, *, label: str, zeroed: bool = True) -> AmdMemory:
        """Allocate coherent system memory of at least `size` bytes, which the host maps.

        Its contents are undefined unless `zeroed`.
        """
        memory = self._alloc(size, MemKind.SYSTEM, label, video=False)
        view = memory.view
        assert view is not None, "system memory is mapped"
        if zeroed:
            for start in range(0, memory.size, len(_ZEROS)):
                end = min(start + len(_ZEROS), memory.size)
                view[start:end] = _ZEROS[: end - start]
        return memory

    def _alloc(self, size: int, kind: MemKind, label: str, *, video: bool) -> AmdMemory:
        size = -(-size // kernels.PAGE) * kernels.PAGE
        kfd = self._kfd
        with contextlib.ExitStack() as stack:
            va = self._space.reserve(size)
            stack.callback(self._space.release, va, size)
            try:
                flags = MemFlags(kind) if self._uncached else MemFlags(kind) & ~MemFlags.UNCACHED
                handle, offset = kfd.alloc(self.gpu_id, va, size, flags)
            except OutOfMemoryError as error:
                raise self._no_room(error, size, video=video) from None
            stack.callback(kfd.free, handle)
            view = None
            if kind is not MemKind.VRAM:
                fixed = kernels.MAP_SHARED | kernels.MAP_FIXED
                mapping = kfd.kernel.mmap(size, fd=self._drm_fd, offset=offset, va=va, flags=fixed)
                if mapping.va != va:
                    kfd.kernel.munmap(mapping.va, size)
                    raise BringUpError(
                        f"{label} at {va:#x} is mapped at {mapping.va:#x} of the host, wanted the same"
                    )
                view = mapping.view
            kfd.map(handle, (self.gpu_id,))
            stack.pop_all()
        memory = AmdMemory(va=va, size=size, view=view, handle=handle, label=label, video=video)
        memory.gpus[self.gpu_id] = 1
        self.map.add(memory)
        return memory

    def _no_room(self, error: OutOfMemoryError, size: int, *, video: bool) -> OutOfMemoryError:
        """Return the error with the number of free bytes, and a hint."""
        text = f"{size_text(size)} of {'video' if video else 'system'} memory of {self._name} were asked for"
        if video and not self._apu:
            with contextlib.suppress(DriverError):  # the error is that of the allocation
                text += f", {size_text(self._kfd.available(self.gpu_id))} are free"
            cure = "close buffers, or see /sys/class/drm/card*/device/mem_info_vram_used for who holds memory"
        else:
            cure = (
                "GPUs may use a part of the system's memory: close buffers, or raise the limit (module "
                "options amdgpu.gttsize and ttm.pages_limit)"
            )
            if video:
                text += "; it is an APU: its video memory is system memory"
        return OutOfMemoryError(
            error.call, error.status, error.status_name, arguments=error.arguments, hint=f"{text}; {cure}"
        )

    def share(self, memory: AmdMemory, gpu_id: int) -> None:
        """Map memory into another GPU; calls are counted, and each needs an `unshare`."""
        if gpu_id not in memory.gpus:
            self._kfd.map(memory.handle, (gpu_id,))
        memory.gpus[gpu_id] = memory.gpus.get(gpu_id, 0) + 1

    def unshare(self, memory: AmdMemory, gpu_id: int) -> None:
        """Undo one `share`; do nothing for memory that was freed."""
        if gpu_id not in memory.gpus:
            return
        memory.gpus[gpu_id] -= 1
        if not memory.gpus[gpu_id]:
            del memory.gpus[gpu_id]
            self._kfd.unmap(memory.handle, (gpu_id,))

    def free(self, memory: AmdMemory, *, keep_host: bool = False) -> None:
        """Unmap memory from all GPUs and free it. `keep_host`: see `hcq.driver.DriverDevice.free`."""
        with contextlib.ExitStack() as stack:
            if keep_host and memory.view is not None:
                kernels.keep_pages(self._kfd.kernel, memory.view)  # the range is released with the pages
            else:
                stack.push(partial(self._space.freed, memory.va, memory.size))
            stack.callback(self._kfd.free, memory.handle)
            self.map.remove(memory)
            gpus = tuple(memory.gpus)
            memory.gpus.clear()
            self._kfd.unmap(memory.handle, gpus)

    def flush_host_path(self) -> None:
        """Order the host's stores and flush those to video memory, by register HDP_MEM_FLUSH_CNTL (HIP)."""
        if self._registers is None:
            self._registers = self._map_registers()
        self._kfd.kernel.fence()
        self._registers.write32(MmioRemap.HDP_MEM_FLUSH_CNTL, 1)
        self._registers.read32(MmioRemap.HDP_MEM_FLUSH_CNTL)  # the store has arrived when the load returns

    def _map_registers(self) -> Mmio:
        kfd, size = self._kfd, MMIO_REMAP_BYTES
        with contextlib.ExitStack() as stack:
            va = self._space.reserve(size)
            stack.callback(self._space.release, va, size)
            handle, offset = kfd.alloc(self.gpu_id, va, size, MemFlags(MemKind.MMIO_REMAP))
            stack.callback(kfd.free, handle)
            page = kfd.kernel.mmio(kfd.fd, size, offset)
            stack.callback(page.close)
            self._undo = stack.pop_all()
        return page

    def close(self) -> None:
        """Free all memory of `map`, the highest address first."""
        with contextlib.ExitStack() as stack:
            stack.enter_context(self._undo)
            for memory in self.map.live():
                stack.callback(self.free, memory)
