"""Buffers of device-visible memory, and the caching allocator that cuts them from the driver's pages.

Lifetimes are references: whatever is in flight holds the buffers it uses, so a buffer whose last reference is
gone is idle by construction and its memory is at once ready for the next `Device.alloc`. `Buffer.close` is
explicit: the buffer refuses everything from then on, and its memory returns when nothing in flight can still
use it.

Memory from `alloc` has undefined contents; only pages fresh from the driver are zero.

Not here: pages, which the driver allocates (`driver`); signal memory (`signal`); the argument ring
(`kernarg_ring`).
"""

# ruff: noqa: SLF001 - a view and its root are two objects of one class
from __future__ import annotations

import threading
import weakref
from collections import deque
from typing import TYPE_CHECKING, Any, Protocol, Self

from hcq.errors import OutOfMemoryError, UsageError
from hcq.uncopied import refuse_copy

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from contextlib import AbstractContextManager

    from hcq.hardware import Allocation, BufferSpec
    from hcq.signal import Point, Refusal

CHUNK_BYTES = 2 << 20
"""Small buffers are cut from allocations of this size."""
LARGE_BYTES = 1 << 20
"""Buffers from this size on have allocations of their own."""
_SIZES_KEPT = 4096


class PageSource(Protocol):
    """The source of whole pages: a `DriverDevice`."""

    def alloc(self, size: int, spec: BufferSpec) -> Allocation:
        """Allocate at least `size` bytes (page-rounded), zeroed. Raises `OutOfMemoryError`."""
        ...

    def free(self, allocation: Allocation) -> None:
        """Free an allocation that no work uses any more."""
        ...


class Owner(Protocol):
    """The device that owns buffers, as far as they need it: a `Device`."""

    name: str
    closed: bool

    @property
    def watch(self) -> object:
        """The validation layer, or None."""
        ...

    close_epoch: int
    """Grows whenever a buffer or a program is closed."""
    refusal: Refusal | None
    reasons: weakref.WeakKeyDictionary[Buffer, Refusal]
    """Makes the error of buffers that were closed for a reason."""

    def alloc(self, size: int, spec: BufferSpec = ..., *, label: str = "") -> Buffer:
        """Return a buffer of `size` bytes."""
        ...

    def caller(self) -> str:
        """Return the user's file and line when validation is on, else nothing."""
        ...

    def map_peer(self, allocation: Allocation, owner: Any) -> None:
        """Make another device's memory visible here."""
        ...

    def retire_block(
        self, block: Block | None, home: Home, peers: Iterable[Any], after: Point | None
    ) -> None:
        """Return the memory of a closed buffer to its pool when all work in flight is done."""
        ...


class _Closed:
    """What stands in `Buffer.va` of a closed buffer: no number, so packing it fails."""

    def __repr__(self) -> str:
        return "closed"


CLOSED: Any = _Closed()


class Block:
    """A part of an allocation; lives as long as its chunk and serves one buffer after another."""

    __slots__ = ("chunk", "offset", "size", "va")

    def __init__(self, chunk: Chunk, offset: int, size: int) -> None:
        self.chunk = chunk
        self.offset = offset
        self.size = size
        self.va = chunk.allocation.va + offset


class Home(Protocol):
    """Where a block returns to: the list of free ones, perhaps after a check of its guard zone."""

    def append(self, block: Block, /) -> None:
        """Return the block to the free list."""
        ...


class Chunk:
    """One allocation of the driver's."""

    __slots__ = ("allocation", "blocks", "peers", "used")

    def __init__(self, allocation: Allocation) -> None:
        self.allocation = allocation
        self.used = 0
        """Bytes cut off so far."""
        self.blocks = 0
        """Blocks cut so far."""
        self.peers: frozenset[Owner] = frozenset()
        """Other devices that see it."""


def size_class(size: int, align: int) -> int:
    """Round a size up to one of four steps a doubling, at least 256 bytes and a multiple of `align`."""
    step = max(256, align, 1 << max((size - 1).bit_length() - 3, 0))
    return (size + step - 1) // step * step


class Pool:
    """The blocks of one device and one kind of memory.

    Taking and returning a cached block need no lock (list operations are atomic); cutting new ones and
    trimming do.
    """

    __slots__ = ("_by_size", "_chunk", "_chunks", "_homes", "_lock", "driver", "reclaim", "spec")

    def __init__(
        self,
        driver: PageSource,
        spec: BufferSpec,
        lock: AbstractContextManager[bool],
        reclaim: Callable[[int], bool],
    ) -> None:
        if spec.align < 1 or spec.align & (spec.align - 1) or spec.align > CHUNK_BYTES:
            raise UsageError(f"alignment {spec.align}: wanted a power of two up to {CHUNK_BYTES}")
        self.driver = driver
        self.spec = spec
        self.reclaim = reclaim
        """reclaim(attempt) frees memory somehow; False when there is nothing left to try."""
        self._lock = lock
        self._homes: dict[int, list[Block]] = {}
        """Free blocks by size class."""
        self._by_size: dict[int, list[Block]] = {}
        """The same lists by requested size."""
        self._chunks: list[Chunk] = []
        self._chunk: Chunk | None = None

    def take(self, size: int) -> tuple[Block, list[Block]]:
        """Return a block of at least `size` bytes and the list that it returns to."""
        home = self._by_size.get(size)
        if home is None:
            home = self._home(size)
        try:
            return home.pop(), home
        except IndexError:
            return self._cut(size_class(size, self.spec.align)), home

    def _home(self, size: int) -> list[Block]:
        if not isinstance(size, int) or size <= 0:
            raise UsageError(f"a buffer has at least one byte, {size!r} were asked for")
        with self._lock:
            if len(self._by_size) >= _SIZES_KEPT:
                self._by_size.clear()
            cls = size_class(size, self.spec.align)
            home = self._homes.get(cls)
            if home is None:
                home = self._homes[cls] = []
            self._by_size[size] = home
            return home

    def _cut(self, size: int) -> Block:
        with self._lock:
            if size >= LARGE_BYTES:
                chunk = self._pages(size)
                chunk.blocks, chunk.used = 1, size
                return Block(chunk, 0, size)
            chunk_ = self._chunk
            align = max(256, self.spec.align)
            if chunk_ is None or (chunk_.used + align - 1) // align * align + size > chunk_.allocation.size:
                chunk_ = self._pages(CHUNK_BYTES)
                self._chunk = chunk_
            offset = (chunk_.used + align - 1) // align * align
            chunk_.used, chunk_.blocks = offset + size, chunk_.blocks + 1
            return Block(chunk_, offset, size)

    def _pages(self, size: int) -> Chunk:
        attempt = 0
        while True:
            try:
                chunk = Chunk(self.driver.alloc(size, self.spec))
            except OutOfMemoryError:
                if not self.reclaim(attempt):
                    raise
                attempt += 1
            else:
                self._chunks.append(chunk)
                return chunk

    def trim(self) -> int:
        """Free allocations of which every block is free, to the driver; return their bytes."""
        with self._lock:
            taken: dict[int, tuple[list[Block], list[Block]]] = {}
            free: dict[Chunk, int] = {}
            for cls, home in self._homes.items():
                blocks: list[Block] = []
                while home:  # others may pop at the same time: what we popped is ours
                    try:
                        blocks.append(home.pop())
                    except IndexError:
                        break
                taken[cls] = (home, blocks)
                for block in blocks:
                    free[block.chunk] = free.get(block.chunk, 0) + 1
            gone = {chunk for chunk, count in free.items() if count == chunk.blocks}
            for home, blocks in taken.values():
                home.extend(block for block in reversed(blocks) if block.chunk not in gone)
            if self._chunk in gone:
                self._chunk = None
            self._chunks = [chunk for chunk in self._chunks if chunk not in gone]
            for chunk in gone:
                self.driver.free(chunk.allocation)
            return sum(chunk.allocation.size for chunk in gone)

    def close(self) -> None:
        """Free everything, also memory of open buffers; the device is idle and refuses them."""
        with self._lock:
            self._chunk = None
            for home in self._homes.values():
                home.clear()
            while self._chunks:
                self.driver.free(self._chunks.pop().allocation)

    def chunks(self) -> list[Allocation]:
        """Return the driver's allocations that the pool holds."""
        return [chunk.allocation for chunk in self._chunks]


class Heap:
    """The pools of one device by kind of memory, and what was closed while in use. Thread-safe."""

    def __init__(
        self, driver: PageSource, *, reclaim: Callable[[int], bool], deferred: Callable[[], None]
    ) -> None:
        self._driver = driver
        self._reclaim = reclaim
        """See `Pool.reclaim`."""
        self._deferred = deferred
        """Called when a block waits to be freed: `sweep` has something to do."""
        self._lock = threading.RLock()
        self._pools: dict[BufferSpec, Pool] = {}
        self.deferred_frees: deque[tuple[list[Point], Block, Home]] = deque()
        """Memory of closed buffers that work in flight may still touch."""

    def pool(self, spec: BufferSpec) -> Pool:
        """Return the pool of a kind of memory."""
        pool = self._pools.get(spec)
        if pool is None:
            with self._lock:
                pool = self._pools.get(spec)
                if pool is None:
                    pool = self._pools[spec] = Pool(self._driver, spec, self._lock, self._reclaim)
        return pool

    def trim(self) -> None:
        """Free the driver's allocations without a used block."""
        for pool in tuple(self._pools.values()):
            pool.trim()

    def defer_free(self, points: list[Point], block: Block, home: Home) -> None:
        """Return a block to its free list once all points are reached or lost."""
        if all(point.over() for point in points):
            home.append(block)
        else:
            self.deferred_frees.append((points, block, home))
            self._deferred()

    def sweep(self) -> None:
        """Return the blocks whose points are all reached or lost to their free lists."""
        with self._lock:
            for _ in range(len(self.deferred_frees)):  # one at a time: threads add to it without the lock
                self.defer_free(*self.deferred_frees.popleft())

    def close(self) -> None:
        """Free everything to the driver."""
        for pool in self._pools.values():
            pool.close()

    def pages(self) -> list[tuple[int, int]]:
        """Return (address, bytes) of every allocation of the driver."""
        return [(page.va, page.size) for pool in tuple(self._pools.values()) for page in pool.chunks()]


class Buffer:
    """A range of device-visible memory; made by `Device.alloc`.

    `size` is in bytes; `va` is the device address, a plain attribute that hot paths read; in a closed buffer
    it is no number. `spec` is the kind of memory, `label` names it in errors. `view` returns a buffer that
    shares the memory.

    Lifetime: dropping the last reference frees it. Work in flight holds references, so such a buffer is idle.
    `close`, and the end of a `with` block, refuse every later use at once, and free the memory when all work
    in flight is done. Memory returns to the device's pools, and to the driver when memory is short.

    Threads: all methods may be called from any thread. Access to the contents is not ordered: the caller
    waits for the point of the work that writes before it reads, and orders submissions by `after=`.

    `view`, `host` and `map_to` raise `UsageError` for a closed buffer or device, or the error that was given
    to `close`.

        with device.alloc(4096, label="weights") as weights:
            device.compute.submit(device.compute.record().fill(weights, 0)).wait()
    """

    __slots__ = (
        "__weakref__",
        "_block",
        "_home",
        "_views",
        "device",
        "label",
        "offset",
        "root",
        "size",
        "spec",
        "va",
        "where",
    )

    va: int

    def __init__(  # noqa: PLR0917 - positional: one is made an operation
        self, device: Owner, block: Block, home: Home, size: int, spec: BufferSpec, label: str
    ) -> None:
        self._home = home
        self._block: Block | None = block  # after `_home`: from here on `__del__` gives it back
        self.device = device
        self.va = block.va
        self.size = size
        self.spec = spec
        self.label = label
        self.root: Buffer | None = None
        """What this is a view of."""
        self.offset = 0
        """Bytes from the start of the root buffer."""
        self._views: set[weakref.ref[Buffer]] | None = None
        self.where = ""
        """Where the buffer was closed, when validation is on."""

    def view(self, offset: int, size: int | None = None) -> Buffer:
        """Return a buffer that shares `size` bytes from byte `offset`, or all the rest.

        It keeps the memory alive; closing this buffer closes its views. Raises `UsageError` for bytes
        outside.
        """
        self.live()
        size = self.size - offset if size is None else size
        if offset < 0 or size < 0 or offset + size > self.size:
            raise UsageError(f"bytes {offset} to {offset + size} lie outside {self!r}")
        root = self.root or self
        part = Buffer.__new__(Buffer)
        part._home = self._home
        part._block = None
        part.device, part.spec, part.label, part.where = self.device, self.spec, self.label, ""
        part.va, part.size, part.root, part.offset = self.va + offset, size, root, self.offset + offset
        part._views = None
        if root._views is None:
            root._views = set()
        root._views.add(weakref.ref(part, root._views.discard))
        return part

    @property
    def chunk(self) -> Chunk:
        """The driver's allocation that the buffer lies in."""
        self.live()
        block = (self.root or self)._block
        assert block is not None  # live() saw to it
        return block.chunk

    def host(self) -> memoryview:
        """Return the bytes as the CPU sees them, a writable view. Use it only while the buffer lives.

        Raises `UsageError` for memory that the host cannot see.
        """
        allocation = self.chunk.allocation
        if allocation.host is None:
            spec = "hcq.BufferSpec(place=hcq.Place.HOST, host_visible=True, coherent=True)"
            raise UsageError(
                f"{self!r} is not visible to the host\n"
                f"hint: copy it to memory that is: device.alloc({self.size}, {spec})"
            )
        start = self.va - allocation.va
        return allocation.host[start : start + self.size]

    def map_to(self, peer: Owner) -> None:
        """Make the memory visible to another device at the same address, until it is freed.

        Raises `UnsupportedError` where the two devices cannot share memory.
        """
        if not self.visible_to(peer):
            chunk = self.chunk
            peer.map_peer(chunk.allocation, self.device)
            chunk.peers |= {peer}

    def visible_to(self, device: Owner) -> bool:
        """Return whether queues of `device` can use the address."""
        return device is self.device or device in self.chunk.peers

    def unseen_by(self, device: Owner) -> str:
        """Return, as text, that a device cannot use it, and why when both have one name."""
        if device.name != self.device.name:
            return f"which {device.name} cannot see\nhint: Buffer.map_to makes it visible there"
        return (
            f"which belongs to another opened {device.name}: each hcq.open gives a device of its own\n"
            "hint: use one device, or Buffer.map_to"
        )

    def live(self) -> None:
        """Raise when the buffer, or its device, is closed: `UsageError`, or what `close` was given."""
        if self.device.closed:
            reason = self.device.refusal() if self.device.refusal else "its device is closed"
            raise UsageError(f"{self!r} cannot be used: {reason}")
        if self.va is CLOSED:
            if (given := self.device.reasons.get(self)) is not None:
                raise given()
            where = f"; closed at {self.where}" if self.where else ""
            raise UsageError(f"{self!r} was used after it was closed{where}")

    @property
    def closed(self) -> bool:
        """Whether the buffer, or the buffer it is a view of, was closed."""
        return self.va is CLOSED

    @property
    def lost(self) -> bool:
        """Whether it was closed with `reason=`: a fault took its contents, and each use raises that error."""
        return self in self.device.reasons

    def close(self, *, after: Point | None = None, reason: Refusal | None = None) -> None:
        """Refuse every later use; free the memory when nothing uses it, and not before `after`.

        A later use raises the error of `reason`, else a `UsageError`. Closing a view only ends that
        view. Closing twice is fine.
        """
        if self.closed:
            return
        device, root = self.device, self.root or self
        assert root._block is not None  # not closed
        peers = root._block.chunk.peers
        views = [view() for view in tuple(self._views or ())]
        where = device.caller()
        for part in (self, *views):
            if part is not None:
                part.va, part.where = CLOSED, where
                if reason is not None:
                    device.reasons[part] = reason
        block, self._block = self._block, None
        device.retire_block(block, self._home, peers, after)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    __reduce__ = refuse_copy

    def __repr__(self) -> str:
        label = f" {self.label!r}" if self.label else ""
        at = "closed" if self.closed else f"at {self.va:#x}"
        of = f", a view from byte {self.offset}" if self.root else ""
        return f"<Buffer{label} of {self.size} bytes {at} on {self.device.name}{of}>"

    def __del__(self) -> None:
        try:
            block = self._block
        except AttributeError:  # interrupted before it was made
            return
        if block is not None:
            self._home.append(block)
