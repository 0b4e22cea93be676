"""The caching allocator: it cuts small blocks from the driver's pages and reuses them by size class.

A buffer's block is taken from a `Pool` and returned to that pool's free list. `Heap` has one pool for each
kind of memory, and holds the blocks of closed buffers that work in flight may still touch.

Not here: buffers (`memory`); the pages themselves (`hcq.driver.DriverDevice.alloc`).
"""

from __future__ import annotations

import threading
from collections import deque
from dataclasses import dataclass
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING, Protocol

from hcq.errors import OutOfMemoryError, UsageError, UsageTypeError
from hcq.hardware import Allocation, BufferSpec, BufferTracker, Place
from hcq.locks import NOTHING

if TYPE_CHECKING:
    import weakref
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    from hcq.signal import Point, Signal

CHUNK_BYTES = 2 << 20
"""Size of the allocations that small blocks are cut from."""
LARGE_BYTES = 1 << 20
"""Blocks of at least this size have an allocation of their own."""
_FLAGS = ("host_visible", "coherent", "upload", "executable", "shared")
_SIZES_KEPT = 4096
"""The most requested sizes whose free list is cached."""


class PageSource(Protocol):
    """The source of whole pages: a `DriverDevice`."""

    def alloc(self, size: int, spec: BufferSpec) -> Allocation:
        """Allocate at least `size` bytes (page-rounded). Raises `OutOfMemoryError`."""

    def free(self, allocation: Allocation, *, keep_host: bool = False) -> None:
        """Free an allocation that no work uses any more; see `hcq.driver.DriverDevice.free`."""


class Block:
    """A part of an allocation. It exists as long as its chunk, and serves one buffer at a time."""

    __slots__ = ("chunk", "free", "offset", "ordered", "size", "va", "views")

    def __init__(self, chunk: Chunk, offset: int, size: int, free_list: list[Block]) -> None:
        self.free: Callable[[], object] = partial(free_list.append, self)
        """Returns the block to its free list. A cycle, cut when the chunk is freed."""
        self.views: set[weakref.ref[object]] = set()
        """Host views of the block that still exist; meanwhile it serves no other buffer."""
        self.ordered: Point | None = None
        """The end of earlier buffers, where `take_ordered` gave the block out before they ended."""
        self.chunk = chunk
        self.offset = offset
        self.size = size
        self.va = chunk.allocation.va + offset


class FreeList(Protocol):
    """Receives the blocks of freed buffers: a plain list, or a guard zone that is checked first."""

    def append(self, block: Block, /) -> None:
        """Return the block to the free list."""


class TrackedList:
    """The `FreeList` of a block whose buffer a `BufferTracker` knows: the buffer ends there first."""

    __slots__ = ("_free_list", "_tracker")

    def __init__(self, tracker: BufferTracker, free_list: FreeList) -> None:
        self._tracker = tracker
        self._free_list = free_list

    def append(self, block: Block, /) -> None:
        """Tell the tracker, then return the block to its free list."""
        self._tracker.buffer_dropped(block.va)
        self._free_list.append(block)


def tracked(block: Block, free_list: FreeList, size: int) -> FreeList:
    """Report a new buffer of `size` bytes to the tracker of its memory; return the buffer's free list."""
    tracker = block.chunk.allocation.tracker
    if tracker is None:
        return free_list
    tracker.buffer_taken(block.va, size)
    return TrackedList(tracker, free_list)


class Chunk:
    """One allocation of the driver, from which blocks are cut."""

    __slots__ = ("allocation", "blocks", "cut", "peers", "used", "viewed")

    def __init__(self, allocation: Allocation) -> None:
        self.allocation = allocation
        self.used = 0
        """Bytes that blocks occupy, from the start of the allocation."""
        self.cut = 0
        """Bytes of blocks, without gaps."""
        self.blocks = 0
        """Number of blocks cut."""
        self.peers: frozenset[object] = frozenset()
        """Other devices that can address it."""
        self.viewed: set[Block] = set()
        """Blocks of which the host had views."""


def size_class(size: int, align: int) -> int:
    """Return `size` in bytes, rounded up to its size class.

    There are four classes for each power of two; each is a multiple of 256 bytes and of `align`.
    """
    step = max(256, align, 1 << max((size - 1).bit_length() - 3, 0))
    return (size + step - 1) // step * step


@dataclass(frozen=True, slots=True)
class MemoryUse:
    """The memory that a device's pools have from its driver, in bytes."""

    reserved: int
    """All of it: the sum of the four below."""
    used: int
    """Of open buffers, rounded up to their size classes."""
    deferred: int
    """Of closed buffers that work in flight may still use."""
    cached: int
    """Of free blocks, which serve the next buffers of their size class."""
    uncut: int
    """Never used so far, and lost to alignment."""
    allocations: int
    """Number of the driver's allocations."""
    owners: tuple[tuple[str, int, int], ...] = ()
    """(label, bytes, number of buffers) of open buffers, the largest first."""


class Pool:
    """The blocks of one device and one kind of memory.

    Thread-safe. Taking and returning a cached block use atomic list operations and no lock; cutting new
    blocks and trimming hold the lock. Raises `UsageError` for an alignment that is no power of two up to
    `CHUNK_BYTES`, `UsageTypeError` for another class of place or flag.
    """

    __slots__ = (
        "_by_size",
        "_chunk",
        "_chunks",
        "_free_lists",
        "_lock",
        "_short",
        "driver",
        "reclaim",
        "spec",
    )

    def __init__(
        self,
        driver: PageSource,
        spec: BufferSpec,
        lock: AbstractContextManager[bool],
        reclaim: Callable[[int], bool],
        short: Callable[[OutOfMemoryError], OutOfMemoryError],
    ) -> None:
        align = spec.align
        if not isinstance(align, int) or not 0 < align <= CHUNK_BYTES or align & (align - 1):
            raise UsageError(f"alignment {align!r}: wanted a power of two up to {CHUNK_BYTES}")
        if not isinstance(spec.place, Place):
            raise UsageTypeError(f"wanted a place of memory, hcq.Place.VRAM or HOST, seen {spec.place!r}")
        for flag in _FLAGS:
            if not isinstance(seen := getattr(spec, flag), bool):
                raise UsageTypeError(f"kind of memory, {flag}: wanted True or False, seen {seen!r}")
        self.driver = driver
        self.spec = spec
        self.reclaim = reclaim
        """The function that frees memory after a failed allocation; False: nothing is left to free.

        Its argument is the number of calls before, for this allocation: 0, 1, 2, ...
        """
        self._lock, self._short = lock, short
        self._free_lists: dict[int, list[Block]] = {}
        """Free blocks by size class."""
        self._by_size: dict[int, list[Block]] = {}
        """The same lists by requested size."""
        self._chunks: list[Chunk] = []
        self._chunk: Chunk | None = None
        """The chunk that small blocks are cut from; None: the next block needs a new one."""

    def take(self, size: int) -> tuple[Block, list[Block]]:
        """Return a block of at least `size` bytes, and the free list that it returns to.

        Raises `UsageError` for a size that is not a positive int, `OutOfMemoryError` when `reclaim` cannot
        free enough, `UnsupportedError` for a kind of memory that the device does not have.
        """
        free_list = self._by_size.get(size) if size.__class__ is int else None  # 16.0 and True equal an int
        if free_list is None:
            free_list = self.free_list(size)
        try:
            return free_list.pop(), free_list
        except IndexError:
            return self._cut(size_class(size, self.spec.align), free_list), free_list

    def free_list(self, size: int) -> list[Block]:
        """Return the free list of a size. Raises `UsageError` for a size that is not a positive int."""
        if size.__class__ is not int or size <= 0:
            raise UsageError(f"wanted a size in bytes, an int of at least 1, seen {size!r}")
        with self._lock:
            if len(self._by_size) >= _SIZES_KEPT:
                self._by_size.clear()
            cls = size_class(size, self.spec.align)
            free_list = self._free_lists.get(cls)
            if free_list is None:
                free_list = self._free_lists[cls] = []
            self._by_size[size] = free_list
            return free_list

    def _cut(self, size: int, free_list: list[Block]) -> Block:
        with self._lock:
            if size >= LARGE_BYTES or self.spec.shared:
                chunk = self._pages(size)
                chunk.blocks, chunk.used, chunk.cut = 1, size, size
                return Block(chunk, 0, size, free_list)
            chunk_ = self._chunk
            align = max(256, self.spec.align)
            if chunk_ is None or (chunk_.used + align - 1) // align * align + size > chunk_.allocation.size:
                chunk_ = self._pages(CHUNK_BYTES)
                self._chunk = chunk_
            offset = (chunk_.used + align - 1) // align * align
            chunk_.used, chunk_.blocks, chunk_.cut = offset + size, chunk_.blocks + 1, chunk_.cut + size
            return Block(chunk_, offset, size, free_list)

    def _pages(self, size: int) -> Chunk:
        attempt = 0
        while True:
            try:
                chunk = Chunk(self.driver.alloc(size, self.spec))
            except OutOfMemoryError as error:
                if not self.reclaim(attempt):
                    raise self._short(error) from None
                attempt += 1
            else:
                self._chunks.append(chunk)
                return chunk

    def trim(self) -> int:
        """Return allocations without a used block to the driver; return the number of bytes freed."""
        with self._lock:
            taken: dict[int, tuple[list[Block], list[Block]]] = {}
            free: dict[Chunk, int] = {}
            for cls, free_list in self._free_lists.items():
                blocks: list[Block] = []
                while free_list:  # other threads may pop at the same time
                    try:
                        blocks.append(free_list.pop())
                    except IndexError:
                        break
                taken[cls] = (free_list, blocks)
                for block in blocks:
                    free[block.chunk] = free.get(block.chunk, 0) + 1
            unused = {chunk for chunk, count in free.items() if count == chunk.blocks}
            for free_list, blocks in taken.values():
                for block in reversed(blocks):
                    if block.chunk in unused:
                        block.free = NOTHING
                    else:
                        free_list.append(block)
            if self._chunk in unused:
                self._chunk = None
            self._chunks = [chunk for chunk in self._chunks if chunk not in unused]
            for chunk in unused:
                self.driver.free(chunk.allocation)
            return sum(chunk.allocation.size for chunk in unused)

    def close(self) -> None:
        """Return all memory to the driver, including that of open buffers.

        The device must be idle and closed. Memory of which the host has views stays mapped until they end.
        """
        with self._lock:
            self._chunk = None
            for free_list in self._free_lists.values():
                for block in free_list:
                    block.free = NOTHING
                free_list.clear()
            while self._chunks:
                chunk = self._chunks.pop()
                if any(block.views for block in chunk.viewed):
                    self.driver.free(chunk.allocation, keep_host=True)
                else:
                    self.driver.free(chunk.allocation)

    def sizes(self) -> tuple[int, int, int, int]:
        """Return (allocations, their bytes, bytes of all blocks, bytes of free blocks)."""
        with self._lock:
            free = sum(block.size for blocks in self._free_lists.values() for block in tuple(blocks))
            chunks = self._chunks
            return len(chunks), sum(c.allocation.size for c in chunks), sum(c.cut for c in chunks), free

    def chunks(self) -> list[Allocation]:
        """Return the driver allocations that the pool holds."""
        return [chunk.allocation for chunk in self._chunks]


class Heap:
    """The pools of one device, one for each kind of memory, and the deferred frees. Thread-safe."""

    def __init__(
        self,
        driver: PageSource,
        *,
        reclaim: Callable[[int], bool],
        deferred: Callable[[], None],
        short: Callable[[OutOfMemoryError], OutOfMemoryError],
    ) -> None:
        self._driver = driver
        self._reclaim = reclaim
        """See `Pool.reclaim`."""
        self._short = short
        """Returns the error of a failed allocation, with what `hcq` knows."""
        self._deferred = deferred
        """Called when a free was deferred, so that the owner calls `sweep` later."""
        self._lock = threading.RLock()
        self._pools: dict[BufferSpec, Pool] = {}
        self.deferred_frees: deque[tuple[list[Point], Block, FreeList]] = deque()
        """(points, block, its free list) of closed buffers that work in flight may still access."""
        self._adopted: dict[Block, Allocation] = {}
        self._dropped: list[Block] = []
        """Adopted blocks without a buffer, which `sweep` frees."""

    def pool(self, spec: BufferSpec) -> Pool:
        """Return the pool of a kind of memory.

        Raises `UsageError` for an alignment that it cannot have, `UsageTypeError` for another class.
        """
        try:
            pool = self._pools.get(spec)
        except TypeError:  # unhashable, so no BufferSpec, or one of objects that are none of its fields
            raise UsageTypeError(f"wanted a kind of memory, an hcq.BufferSpec, seen {spec!r}") from None
        if pool is None:
            if not isinstance(spec, BufferSpec):
                raise UsageTypeError(f"wanted a kind of memory, an hcq.BufferSpec, seen {spec!r}")
            with self._lock:
                pool = self._pools.get(spec)
                if pool is None:
                    pool = self._pools[spec] = Pool(
                        self._driver, spec, self._lock, self._reclaim, self._short
                    )
        return pool

    def trim(self) -> int:
        """Return every allocation without a used block to the driver; return the number of bytes freed."""
        return sum(pool.trim() for pool in tuple(self._pools.values()))

    def use(self, owners: tuple[tuple[str, int, int], ...] = ()) -> MemoryUse:
        """Return the use of the memory, with the owners given."""
        with self._lock:
            found = [pool.sizes() for pool in tuple(self._pools.values())]
            deferred = sum(block.size for _, block, _ in tuple(self.deferred_frees))
        count, reserved, cut, cached = (sum(one[i] for one in found) for i in range(4))
        used = cut - cached - deferred
        return MemoryUse(reserved, used, deferred, cached, reserved - cut, count, owners)

    def defer_free(self, points: list[Point], block: Block, free_list: FreeList) -> None:
        """Return a block to its free list: now, or at a later `sweep`.

        It returns when all points are reached or lost, and the host has no view of it.
        """
        if block.ordered is not None and block.ordered.over():
            block.ordered = None
        if not block.views and block.ordered is None and all(point.over() for point in points):
            free_list.append(block)
        else:
            self.deferred_frees.append((points, block, free_list))
            self._deferred()

    def adopt(self, allocation: Allocation) -> tuple[Block, list[Block]]:
        """Return memory that was imported as a block, and where it returns to; the heap frees it then."""
        with self._lock:
            chunk = Chunk(allocation)
            block = Block(chunk, 0, allocation.size, self._dropped)
            self._adopted[block] = allocation
        self._deferred()
        return block, self._dropped

    def _free_adopted(self, blocks: list[Block]) -> None:
        for block in blocks:
            block.free = NOTHING
            kept = any(one.views for one in block.chunk.viewed)
            self._driver.free(self._adopted.pop(block), **({"keep_host": True} if kept else {}))

    def take_ordered(self, pool: Pool, size: int, signal: Signal) -> tuple[Block, FreeList] | None:
        """Return a closed block of the size class that only work of `signal`, a timeline, uses; or None."""
        with self._lock:
            free_list = pool.free_list(size)
            for entry in tuple(self.deferred_frees):
                points, block, home = entry
                ends = points if block.ordered is None else [*points, block.ordered]
                if home is free_list and not block.views and all(one.signal is signal for one in ends):
                    self.deferred_frees.remove(entry)
                    block.ordered = max(ends, key=attrgetter("value"), default=None)
                    return block, home
        return None

    def sweep(self) -> None:
        """Return the blocks whose points are all reached or lost to their free lists."""
        with self._lock:
            for _ in range(len(self.deferred_frees)):  # other threads append meanwhile
                self.defer_free(*self.deferred_frees.popleft())
            if self._adopted:
                self._free_adopted([self._dropped.pop() for _ in range(len(self._dropped))])
                self._deferred()  # the others are dropped later

    def close(self) -> None:
        """Return all memory to the driver; see `Pool.close`."""
        for pool in self._pools.values():
            pool.close()
        with self._lock:
            self._free_adopted(list(self._adopted))

    def pages(self) -> list[tuple[int, int]]:
        """Return (device address, bytes) of every driver allocation."""
        return [(page.va, page.size) for pool in tuple(self._pools.values()) for page in pool.chunks()]
