"""Memory of a device: allocation and mapping of video and host memory, and the map of allocations.

A mapping has the same address for the CPU and the GPU.

Not here: sub-allocation (`hcq.memory` requests whole pages), filling with zeros (`push`), free addresses
(`vaspace`), the mapping calls (`space`). Next: `vaspace`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Final, Protocol

from drivers.kernel import MAP_ANONYMOUS, MAP_FIXED, MAP_POPULATE, MAP_SHARED, PAGE, keep_pages, unmap_last
from drivers.nv.layouts.controls import FbInfo
from drivers.nv.layouts.rm_classes import (
    NV_MEMORY_ALLOCATION_PARAMS,
    PITCH_KIND,
    Coherency,
    Location,
    MemAttr,
    MemAttr2,
    MemFlags,
    MemType,
    PageSize,
    Physicality,
    RmClass,
)
from drivers.nv.quirks import NvQuirks
from drivers.nv.rm import Rm
from drivers.nv.topology import Handles, fb_info
from drivers.nv.vaspace import HUGE, NvVaSpace
from drivers.shared.memorymap import MemoryMap

_FLAGS: Final = (
    MemFlags.MAP_NOT_REQUIRED
    | MemFlags.MEMORY_HANDLE_PROVIDED
    | MemFlags.ALIGNMENT_FORCE
    | MemFlags.IGNORE_BANK_PLACEMENT
)
_SMALL_PAGES: Final[Mapping[str, PageSize]] = {
    "4k": PageSize.SIZE_4KB,
    "default": PageSize.DEFAULT,
    "64k": PageSize.BIG,
}
_BIG: Final = 1 << 16


@dataclass(frozen=True, slots=True, kw_only=True)
class NvMemory:
    """A range of device addresses, with the memory mapped there."""

    va: int
    """Device address, which is also the CPU's if `view` is not None."""
    size: int
    """Bytes, rounded up to whole pages."""
    view: memoryview | None
    """The CPU's view of the memory; None if the CPU does not map it."""
    handle: int
    """The RM memory object; 0 for reserved addresses without memory."""
    label: str
    own_object: bool = True
    """Whether the RM object is freed with this mapping; False for an alias."""
    own_range: bool = True
    """Whether the address came from `NvVaSpace`; False for host memory that the caller owns, and for memory
    of other GPUs."""
    of_process: bool = False
    """Whether the memory is pages of this process at the same address, which other GPUs can also map."""


class MappedSpace(Protocol):
    """The owner of an address space, which maps memory for the GPU: `uvm.Uvm` or `space.RmSpace`."""

    def map(self, memory: int, va: int, size: int) -> None:
        """Map an RM object at `va`."""

    def map_peer(self, memory: int, va: int, size: int, *, owner: Rm, uuid: bytes) -> None:
        """Map an RM object of another GPU's client at `va`; see `uvm.Uvm.map_peer`."""

    def unmap(self, va: int, size: int) -> None:
        """Undo `map`."""

    def register_channel(self, channel: int, base: int, length: int) -> None:
        """Map a channel's context buffers into the window [base, base + length)."""

    def unregister_channel(self, channel: int) -> None:
        """Undo `register_channel`."""


class NvMemories:
    """The allocator of a device's memory. A call that raises leaves nothing allocated.

    `uvm` maps memory for the GPU, `space` has the free addresses, `small_bar1` is `NvGpu.small_bar1`.
    Not thread-safe: the caller holds the device's lock. Allocations raise `OutOfMemoryError` if memory or
    addresses are exhausted, `DriverError` for other refusals.
    """

    def __init__(
        self,
        rm: Rm,
        uvm: MappedSpace,
        handles: Handles,
        space: NvVaSpace,
        choices: NvQuirks,
        *,
        small_bar1: int = 0,
    ) -> None:
        self._rm, self._uvm, self._handles, self._space = rm, uvm, handles, space
        self._small_bar1 = small_bar1
        self._format = PITCH_KIND if choices.pitch_kind else 0
        self._choices = choices
        self.map: MemoryMap[NvMemory] = MemoryMap()
        """The ranges that are mapped for the GPU or reserved as windows."""

    def vram(
        self, size: int, *, label: str, host_visible: bool = False, contiguous: bool = False
    ) -> NvMemory:
        """Allocate and map video memory of at least `size` bytes; its contents are undefined."""
        huge = size >= HUGE
        large = PageSize.HUGE if self._choices.huge_pages else PageSize.DEFAULT
        page_size = large if huge else _SMALL_PAGES[self._choices.small_pages]
        page = HUGE if huge else (_BIG if page_size is PageSize.BIG else PAGE)
        size = -(-size // page) * page
        physicality = Physicality.CONTIGUOUS if contiguous else Physicality.ALLOW_NONCONTIGUOUS
        with contextlib.ExitStack() as stack:
            va = self._space.reserve(size)  # raises for sizes that no field of the parameters holds
            stack.callback(self._space.release, va)
            params = NV_MEMORY_ALLOCATION_PARAMS(
                owner=self._rm.root,
                type=MemType.IMAGE,
                flags=_FLAGS | (MemFlags.PERSISTENT_VIDMEM if self._choices.persistent_vidmem else 0),
                attr=int(MemAttr(PHYSICALITY=physicality, LOCATION=Location.VIDMEM, PAGE_SIZE=page_size)),
                attr2=int(MemAttr2(ZBC=1, GPU_CACHEABLE=1, PAGE_SIZE_HUGE=int(page_size is PageSize.HUGE))),
                format=self._format,
                size=size,
                alignment=page,
                limit=size - 1,
            )
            hint = (
                f"{size >> 20} MiB of video memory were asked for; "
                "close buffers, or check with nvidia-smi which process uses it"
            )
            handle = self._rm.alloc(self._handles.device, RmClass.NV01_MEMORY_LOCAL_USER, params, hint=hint)
            stack.callback(self._rm.free, handle)
            view = self._view(handle, va, size, on_gpu=True) if host_visible else None
            self._uvm.map(handle, va, size)
            stack.pop_all()
        return self._record(NvMemory(va=va, size=size, view=view, handle=handle, label=label))

    def spares_bar1(self, size: int) -> bool:
        """Whether BAR1 has room for `size` bytes that could also be in host memory.

        Where BAR1 cannot map all video memory, half of it is kept for buffers that have no other place. The
        kernel driver is asked each time: other processes use the same BAR1.
        """
        if not self._small_bar1:
            return True
        free = fb_info(self._rm, self._handles.subdevice, (FbInfo.BAR1_AVAIL_SIZE,))[0] << 10
        return free - size >= self._small_bar1 // 2

    def host(self, size: int, *, label: str) -> NvMemory:
        """Allocate zeroed, pinned, coherent host memory of at least `size` bytes, and map it for the GPU."""
        if self._choices.host_memory == "system":
            return self.mapped_system(size, label=label)
        size = -(-size // PAGE) * PAGE
        with contextlib.ExitStack() as stack:
            va = self._space.reserve(size)
            stack.callback(self._space.release, va)
            # Shared and not private: a fork must not copy pages that are pinned for the device.
            flags = MAP_SHARED | MAP_ANONYMOUS | MAP_FIXED | MAP_POPULATE
            mapping = self._rm.kernel.mmap(size, va=va, flags=flags)
            handle = self._rm.alloc_os_descriptor(self._handles.device, va, size)
            stack.callback(self._rm.free, handle)
            self._uvm.map(handle, va, size)
            stack.pop_all()
        return self._record(
            NvMemory(va=va, size=size, view=mapping.view, handle=handle, label=label, of_process=True)
        )

    def map_host(self, va: int, size: int, *, label: str) -> NvMemory:
        """Map whole pages [va, va + size) of this process for the GPU, at the same address.

        The caller owns the pages, and keeps them mapped until the result is freed.
        """
        handle = self._rm.alloc_os_descriptor(self._handles.device, va, size)
        try:
            self._uvm.map(handle, va, size)
        except BaseException:
            self._rm.free(handle)
            raise
        return self._record(
            NvMemory(va=va, size=size, view=None, handle=handle, label=label, own_range=False)
        )

    def map_peer(self, memory: NvMemory, owner: Rm, uuid: bytes, *, label: str) -> NvMemory:
        """Map the memory of another GPU (`uuid`, with the client `owner`) at the same address.

        Memory of the process is mapped as `map_host` does. Video memory needs a link between the GPUs: raises
        `DriverError` without a link, `UnsupportedError` for an address space of the resource manager.
        """
        if memory.of_process:
            return self.map_host(memory.va, memory.size, label=label)
        self._uvm.map_peer(memory.handle, memory.va, memory.size, owner=owner, uuid=uuid)
        return self._record(replace(memory, view=None, label=label, own_object=False, own_range=False))

    def alias(self, memory: NvMemory) -> NvMemory:
        """Map memory from `map_host` a second time, at a low address. Free the alias before the memory."""
        va = self._space.reserve(memory.size)
        try:
            self._uvm.map(memory.handle, va, memory.size)
        except BaseException:
            self._space.release(va)
            raise
        label = f"{memory.label}, seen by the host engine"
        return self._record(replace(memory, va=va, label=label, own_object=False, own_range=True))

    def push(self, size: int, *, label: str) -> NvMemory:
        """Allocate zeroed memory for push-buffer words."""
        if not (self._choices.push_in_vram and self.spares_bar1(size)):
            return self.host(size, label=label)
        memory = self.vram(size, label=label, host_visible=True)
        assert memory.view is not None, "it was requested as visible"
        memory.view[:] = bytes(memory.size)
        return memory

    def mapped_system(self, size: int, *, label: str) -> NvMemory:
        """Allocate zeroed system memory of the resource manager, and map it for the CPU and the GPU."""
        memory = self.system(size, label=label)
        assert memory.view is not None, "system memory has a view"
        memory.view[:] = bytes(memory.size)
        try:
            self._uvm.map(memory.handle, memory.va, memory.size)
        except BaseException:
            self.free(memory)
            raise
        return self._record(memory)

    def notifier(self, size: int) -> NvMemory:
        """Allocate memory for error notifiers: the resource manager writes it, this process reads it."""
        return self.system(size, label="error notifier")

    def system(self, size: int, *, label: str) -> NvMemory:
        """Allocate system memory of the resource manager and map it for the CPU, not for the GPU.

        Its contents are undefined. `close` does not free it: the caller does.
        """
        size = -(-size // PAGE) * PAGE
        params = NV_MEMORY_ALLOCATION_PARAMS(
            owner=self._rm.root,
            type=MemType.NOTIFIER,
            flags=_FLAGS,
            attr=int(
                MemAttr(
                    LOCATION=Location.PCI,
                    PHYSICALITY=Physicality.ALLOW_NONCONTIGUOUS,
                    PAGE_SIZE=PageSize.SIZE_4KB,
                    COHERENCY=Coherency.CACHED if self._choices.system_cached else Coherency.UNCACHED,
                )
            ),
            attr2=int(MemAttr2(GPU_CACHEABLE=2)),
            format=self._format,
            size=size,
            alignment=PAGE,
            limit=size - 1,
        )
        with contextlib.ExitStack() as stack:
            va = self._space.reserve(size)
            stack.callback(self._space.release, va)
            handle = self._rm.alloc(self._handles.device, RmClass.NV01_MEMORY_SYSTEM, params)
            stack.callback(self._rm.free, handle)
            view = self._view(handle, va, size, on_gpu=False)
            stack.pop_all()
        return NvMemory(va=va, size=size, view=view, handle=handle, label=label)

    def window(self, size: int, *, label: str) -> NvMemory:
        """Reserve addresses without memory, for context buffers of the kernel driver."""
        va = self._space.reserve(size)
        return self._record(NvMemory(va=va, size=size, view=None, handle=0, label=label))

    def free(self, memory: NvMemory, *, keep_host: bool = False) -> None:
        """Unmap and free memory. `keep_host`: see `hcq.driver.DriverDevice.free`."""
        with contextlib.ExitStack() as stack:
            if keep_host and memory.own_range and memory.view is not None:
                if memory.of_process:  # pages of this process, pinned until the object is freed
                    unmap_last(self._rm.kernel, memory.view, memory.va)
                else:
                    keep_pages(self._rm.kernel, memory.view)
                self._space.keep(memory.va)
            elif memory.own_range:
                stack.push(partial(self._space.freed, memory.va))
            if memory.handle and memory.own_object:
                stack.callback(self._rm.free, memory.handle)
            if memory in self.map:
                self.map.remove(memory)
                if memory.handle:
                    stack.callback(self._uvm.unmap, memory.va, memory.size)

    def close(self) -> None:
        """Free all memory of `map`, in reverse order of addresses."""
        for memory in reversed(self.map.live()):
            self.free(memory)

    def _view(self, handle: int, va: int, size: int, *, on_gpu: bool) -> memoryview:
        flags = MAP_SHARED | MAP_FIXED
        return self._rm.map_memory(self._handles.device, handle, size, va=va, on_gpu=on_gpu, flags=flags).view

    def _record(self, memory: NvMemory) -> NvMemory:
        self.map.add(memory)
        return memory
