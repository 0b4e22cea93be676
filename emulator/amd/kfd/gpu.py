"""One emulated GPU as the kernel driver sees it: ids, memory objects, its address space, doorbells.

ALLOC_MEMORY_OF_GPU and IMPORT_DMABUF create memory objects (`KfdBuffer`). A process has 1024 doorbells on a
GPU; there are fewer SDMA queues, by engine. Source: Linux kfd_doorbell.c, kfd_device_queue_manager.c
(allocate_doorbell, allocate_sdma_queue).

A refused call raises `CallRefused`, with the errno of Linux.

Not here: the calls (`ioctls_memory`), the pages (`emulator.shared.backing`), stores to doorbells
(`emulator.amd.machine.doorbells`), the engines (`emulator.amd.engines`). Next: `queues`.
"""

from __future__ import annotations

import errno
import hashlib
import itertools
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from drivers.amd.layouts.kfd import (
    DOORBELL_BYTES,
    DOORBELL_SLICE_BYTES,
    GPUVM_BASE,
    GPUVM_RESERVED_TOP,
    SDMA_DOORBELL_MIRROR,
    MemFlags,
    QueueType,
)
from emulator.amd.kfd.refusal import refuse
from emulator.amd.reports import MemoryFault, page_fault
from emulator.shared.backing import PAGE
from emulator.shared.vaspace import VaSpace

if TYPE_CHECKING:
    from emulator.amd.kfd.queues import QueueObject
    from emulator.amd.profiles import GpuProfile
    from emulator.shared.backing import Backing

_RESERVED: Final = range(0x100, 0x200)
"""Doorbells of SDMA, interrupts and video. The same range plus `SDMA_DOORBELL_MIRROR` is reserved, too."""
_SDMA_BASE: Final = 0x100
_SDMA_STRIDE: Final = 0xA
"""Doorbells from one SDMA engine to the next."""
_COUNT: Final = DOORBELL_SLICE_BYTES // DOORBELL_BYTES


class DoorbellIds:
    """The free doorbells and SDMA queues of a process on one GPU."""

    def __init__(self, profile: GpuProfile) -> None:
        self._profile = profile
        reserved = {*_RESERVED, *(one + SDMA_DOORBELL_MIRROR for one in _RESERVED)}
        self._compute = [one for one in range(_COUNT) if one not in reserved]
        engines = profile.sdma_engines + profile.xgmi_engines
        slots = [(e, q) for q in range(profile.queues_per_engine) for e in range(engines)]
        self._sdma = {
            QueueType.SDMA: [one for one in slots if one[0] < profile.sdma_engines],
            QueueType.SDMA_XGMI: [one for one in slots if one[0] >= profile.sdma_engines],
        }
        self._taken: dict[int, tuple[QueueType, tuple[int, int]]] = {}

    def compute(self) -> int:
        """Take the lowest free doorbell of compute queues, and return it. Refuses with ENOSPC if none."""
        if not self._compute:
            refuse(errno.ENOSPC, "no doorbell is left")
        return self._compute.pop(0)

    def sdma(self, kind: QueueType, engine: int | None = None) -> tuple[int, int]:
        """Take a free SDMA queue of `engine`, or if None of any engine of `kind`; return (doorbell, engine).

        Refuses with ENOMEM if there is none.
        """
        pools = [self._sdma[kind]] if engine is None else list(self._sdma.values())
        for pool in pools:
            for slot in pool:
                if engine in (None, slot[0]):
                    pool.remove(slot)
                    at, queue = slot
                    doorbell = (
                        _SDMA_BASE + at * _SDMA_STRIDE + (queue & 1) * SDMA_DOORBELL_MIRROR + (queue >> 1)
                    )
                    owner = QueueType.SDMA if at < self._profile.sdma_engines else QueueType.SDMA_XGMI
                    self._taken[doorbell] = owner, slot
                    return doorbell, at
        what = kind.name if engine is None else f"engine {engine}"
        return refuse(errno.ENOMEM, f"no SDMA queue of {what} is left")

    def give_back(self, doorbell: int) -> None:
        """Return a doorbell of a destroyed queue."""
        if doorbell in self._taken:
            owner, slot = self._taken.pop(doorbell)
            self._sdma[owner].append(slot)
            self._sdma[owner].sort(key=lambda one: (one[1], one[0]))
        else:
            self._compute.append(doorbell)
            self._compute.sort()


TYPES = (MemFlags.VRAM, MemFlags.GTT, MemFlags.USERPTR, MemFlags.DOORBELL, MemFlags.MMIO_REMAP)
"""The flags that say where memory lies; an allocation has exactly one of them."""


@dataclass(slots=True, eq=False)
class KfdBuffer:
    """A memory object with a device address, mapped to any number of GPUs."""

    handle: int
    """The owner's gpu_id in the high half, a number in the low half."""
    owner: KfdGpu
    va: int
    size: int
    """Bytes, a multiple of the page."""
    flags: MemFlags
    kind: MemFlags
    """The flag of `TYPES` that is set."""
    backing: Backing | None
    """Its pages; None for doorbells and registers, which no engine reads."""
    mmap_offset: int = 0
    """The offset at which mmap of the render node gives its pages."""
    mapped: set[KfdGpu] = field(default_factory=set)
    """The GPUs whose address space has it."""
    shown: bool = False
    """Whether the process has mapped it through the render node."""
    lost: bool = False
    """A user pointer whose pages the process has unmapped."""

    @property
    def writable(self) -> bool:
        """Whether engines may write it."""
        return bool(self.flags & MemFlags.WRITABLE)

    @property
    def executable(self) -> bool:
        """Whether instructions may be fetched from it."""
        return bool(self.flags & MemFlags.EXECUTABLE)

    @property
    def cpu_visible(self) -> bool:
        """Whether the CPU may see it: GTT, and VRAM that is PUBLIC or was mapped through the render node."""
        public = self.shown or bool(self.flags & MemFlags.PUBLIC)
        return self.kind is MemFlags.GTT or (self.kind is MemFlags.VRAM and public)

    @property
    def cached(self) -> bool:
        """Whether the L2 of an RDNA GPU caches it: it is neither COHERENT nor UNCACHED."""
        return not self.flags & (MemFlags.COHERENT | MemFlags.UNCACHED)

    @property
    def end(self) -> int:
        """The first address after it."""
        return self.va + self.size

    def __str__(self) -> str:
        name = self.kind.name or "memory"
        return f"{name} [{self.va:#x}, {self.end:#x}) of {self.size} bytes (handle {self.handle:#x})"


VA_BITS: Final = 48
"""Bits of a device address."""
USER_END: Final = 1 << 47
"""The first device address above the user's half."""
FIRST_MMAP_OFFSET: Final = 1 << 32
"""The mmap offsets of memory are above this."""


class GpuSpace(VaSpace):
    """The address space of the process on one GPU: buffers by address, with their rights."""

    def __init__(self) -> None:
        super().__init__(VA_BITS, page_fault)
        self.buffers: dict[int, KfdBuffer] = {}
        """First address -> buffer."""

    def attach(self, buffer: KfdBuffer) -> None:
        """Map a buffer at its address; the caller has checked that nothing is mapped there."""
        if buffer.backing is not None and not buffer.lost:
            self.add(buffer.va, buffer.size, buffer.backing, 0, writable=buffer.writable)
        self.buffers[buffer.va] = buffer

    def detach(self, buffer: KfdBuffer, why: str) -> None:
        """Unmap a buffer; `why` is quoted by faults on the address afterwards."""
        if buffer.va in self.backings:
            self.remove(buffer.va, why)
        self.buffers.pop(buffer.va, None)

    def lose(self, buffer: KfdBuffer, why: str) -> None:
        """Remove a buffer's pages; the buffer itself stays mapped. `why` as for `detach`."""
        if buffer.va in self.backings:
            self.remove(buffer.va, why)

    def buffer_at(self, va: int) -> KfdBuffer | None:
        """Return the mapped buffer that contains an address; None if there is none."""
        return next((b for b in self.buffers.values() if b.va <= va < b.end), None)

    def fetch(self, va: int, size: int, what: str) -> bytes:
        """Read instructions. Raises `MemoryFault` for memory that is not mapped or not EXECUTABLE."""
        self.executable(va, size, what)
        return self.read(va, size, what)

    def executable(self, va: int, size: int, what: str) -> None:
        """Raise `MemoryFault` for the first piece of [va, va + size) that is not mapped or not EXECUTABLE."""
        for at, _ in self.pieces(va, size, what):
            buffer = self.buffer_at(at)
            if buffer is None or not buffer.executable:
                raise MemoryFault(
                    at,
                    f"{what} fetches instructions from {buffer}, which is not EXECUTABLE",
                    not_present=False,
                    executes=True,
                )


class KfdGpu:
    """One emulated GPU."""

    def __init__(
        self, profile: GpuProfile, index: int, *, minor: int, masked: bool = False, peers: bool = True
    ) -> None:
        """`minor` is the number of its render node. With `peers` it takes part in peer-to-peer access."""
        self.profile = profile
        self.index = index
        self.minor = minor
        self.masked = masked
        """Whether the device cgroup hides it: its `gpu_id` cannot be read, nor its node opened."""
        self.node = index + 1
        seed = hashlib.sha256(f"hcq emulated {profile.name} {index}".encode()).digest()
        self.gpu_id = int.from_bytes(seed[:2], "little") & 0x7FF0 | 0x8000 | index + 1
        self.unique_id = int.from_bytes(seed[2:10], "little")
        self._peers = peers
        self.vram_used = 0
        self._offsets = itertools.count(1)
        self.begin()

    def begin(self) -> None:
        """Reset the state that belongs to a process."""
        self.space: GpuSpace | None = None
        """The address space; None before ACQUIRE_VM."""
        self.drm_fd: int | None = None
        """The render node's descriptor that ACQUIRE_VM named; None before."""
        self.handles: dict[int, KfdBuffer] = {}
        """Low half of a handle -> buffer."""
        self.offsets: dict[int, KfdBuffer] = {}
        """Offset in the render node -> buffer."""
        self.queues: list[QueueObject] = []
        self.doorbells = DoorbellIds(self.profile)
        self.evicted = ""
        """Why its queues were evicted, after which they never run again; "" if they were not."""
        self.scratch_va = 0
        self.trap_handler = (0, 0)

    @property
    def name(self) -> str:
        """The GPU's name in reports."""
        return f"{self.profile.name}:{self.index}"

    def reaches(self, other: KfdGpu) -> bool:
        """Return whether this GPU can access the video memory of another GPU."""
        return self is other or (self._peers and other._peers and other.profile.large_bar)

    def new_offset(self, buffer: KfdBuffer) -> int:
        """Give a buffer a new mmap offset of the render node, and return the offset."""
        offset = FIRST_MMAP_OFFSET + next(self._offsets) * (1 << 40)
        self.offsets[offset] = buffer
        return offset

    def new_handle(self) -> int:
        """Return a new handle: the gpu_id in the high half, the lowest free number in the low half."""
        number = next(n for n in itertools.count() if n not in self.handles)
        return self.gpu_id << 32 | number

    def span(self) -> tuple[int, int]:
        """Return (first, end): the device addresses that memory may have are in [first, end)."""
        return GPUVM_BASE, min(USER_END, (1 << VA_BITS) - GPUVM_RESERVED_TOP)

    def inside(self, va: int, size: int) -> bool:
        """Return whether [va, va + size) lies in `span` and begins with a page."""
        first, end = self.span()
        return va % PAGE == 0 and first <= va and va + size <= end
