"""The memory map of an emulated device: live allocations by device address, and recently freed ones.

Generated code checks every access against this map and translates device addresses to host addresses with it.
The last 512 freed allocations and dropped buffers, counted together, are kept: a report of an access to one names it.

A user-mode driver divides an allocation into buffers. If it reports its buffers (`TrackedBuffers`), kernels may access
only their bytes, and a new buffer counts as unwritten memory.

Not here: the bytes (`backing`), the buffers (`hcq.heap`), the device's address space (`vaspace`), the generated checks
(`emulator.ir.addresses`). Next: `vaspace`, the accesses of engines.
"""

# ruff: noqa: E501 - summaries and tables that name their parameters read best on one line

from __future__ import annotations

import bisect
import ctypes
import functools
import mmap
import threading
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from drivers.kernel import MAP_NORESERVE
from emulator.ir.state import MAP_ATOMIC, MAP_ENTRY, MAP_READ, MAP_WRITE
from hcq.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from contextlib import AbstractContextManager

_REMEMBERED = 512
_BUFFER = "buffer"
_FEW_BYTES = 64
"""The most bytes that `store` copies without a library call."""
_MANY_BYTES = 1 << 16
"""The least bytes of whole pages for which `zero` frees the pages, because that costs less than storing zeros."""
_MADV_DONTNEED, _MADV_REMOVE = 4, 9
ORDER_BYTES_PER_DWORD = 8
"""Bytes of the clocks of a dword's last store and last read (`emulator.sanitizers.shadow_global`)."""
RACE_BYTES_PER_DWORD = 32
"""Bytes of a shadow cell: the last writer and reader, their times and instructions (`emulator.sanitizers.shadow_global`)."""


@dataclass(slots=True, eq=False)
class GpuMapping:
    """One allocation: device addresses [va, va + size) are at host address `host`."""

    va: int
    size: int
    host: int
    label: str
    writable: bool = True
    tracked: bool = False
    """Whether uninitialised reads can be reported, because the CPU cannot write the memory."""
    freed_at: str = ""
    """Where it was freed, for reports; "" while it is live."""
    initialised: mmap.mmap | memoryview | None = field(default=None, repr=False)
    """One byte for each byte of memory, nonzero if that byte was written, then 64 bytes of padding; None if not recorded."""
    touched: mmap.mmap | None = field(default=None, repr=False)
    """A shadow cell of `RACE_BYTES_PER_DWORD` for each dword; None until `AddressSpace.snapshot` needs shadows."""
    order: mmap.mmap | None = field(default=None, repr=False)
    """The clocks of the accesses in `touched`, `ORDER_BYTES_PER_DWORD` for each dword; None as `touched`."""

    @property
    def end(self) -> int:
        """The first address after the allocation."""
        return self.va + self.size

    def __str__(self) -> str:
        text = f"{self.label or 'allocation'} [{self.va:#x}, {self.end:#x}) of {self.size} bytes"
        return text + (f", freed {self.freed_at}" if self.freed_at else "")


class Snapshot(NamedTuple):
    """The map of an address space at one time; launches share it until the map changes."""

    entries: bytes
    """Packed `MAP_ENTRY` records, sorted by address."""
    table: ctypes.Array[ctypes.c_char]
    """A copy of `entries` in memory that generated code reads; one zero record if there are no entries."""
    mappings: tuple[GpuMapping, ...]
    """The allocations. The records point to their shadows, so they live as long as this object."""


class AddressSpace:
    """The allocations of one emulated device address space. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._starts: list[int] = []
        self._mappings: list[GpuMapping] = []
        self._index = self._starts, self._mappings
        """Both lists. A change of the map replaces them, so that `find` needs no lock."""
        self._freed: deque[GpuMapping] = deque(maxlen=_REMEMBERED)
        self._table: tuple[bool, Snapshot] | None = None
        self._buffers: dict[int, dict[int, int]] = {}
        """Start of an allocation of which kernels may access only buffers -> start of a buffer -> its bytes."""
        self._dropped: deque[int] = deque()
        """Starts of buffers to be dropped at the next use of `_buffers`; finalizers append here."""
        self.version = 0
        """Incremented with every change of the map."""

    def map(
        self,
        va: int,
        size: int,
        host: int | None = None,
        *,
        label: str = "",
        writable: bool = True,
        tracked: bool = False,
        initialised: memoryview | None = None,
    ) -> GpuMapping:
        """Map [va, va + size) to host address `host`, by default the same address.

        `initialised` is shared by all mappings of the same memory; None lets a `tracked` mapping get its own. Raises
        `UsageError` for a size below 1, and for an overlap with a live allocation.
        """
        if size <= 0:
            raise UsageError(f"cannot map {size} bytes at {va:#x}")
        mapping = GpuMapping(va, size, va if host is None else host, label, writable, tracked)
        mapping.initialised = initialised
        with self._lock:
            at = bisect.bisect_right(self._starts, va)
            for other in self._mappings[max(at - 1, 0) : at + 1]:
                if other.va < mapping.end and va < other.end:
                    raise UsageError(f"cannot map {mapping}: it overlaps {other}")
            self._replace(at, at, [mapping])
            self._table = None
            self.version += 1
        return mapping

    def unmap(self, va: int, *, freed_at: str = "") -> GpuMapping:
        """Unmap the allocation that starts at `va`. Raises `UsageError` if none does. `freed_at` says where, for reports."""
        with self._lock:
            at = bisect.bisect_left(self._starts, va)
            if at == len(self._starts) or self._starts[at] != va:
                raise UsageError(f"nothing is mapped at {va:#x}; nearest: {self._nearest(va)}")
            mapping = self._mappings[at]
            self._replace(at, at + 1, [])
            self._buffers.pop(va, None)
            mapping.freed_at = freed_at or "earlier"
            self._freed.append(mapping)
            self._table = None
            self.version += 1
        return mapping

    def _replace(self, first: int, end: int, mappings: list[GpuMapping]) -> None:
        """Put `mappings` in the place of those from `first` up to `end`. The caller holds the lock."""
        self._starts = self._starts[:first] + [one.va for one in mappings] + self._starts[end:]
        self._mappings = self._mappings[:first] + mappings + self._mappings[end:]
        self._index = self._starts, self._mappings

    def take_buffer(
        self, va: int, size: int, earlier: Callable[[int, int], dict[int, int]] | None = None
    ) -> None:
        """Add a buffer [va, va + size): from now on, kernels may access only the buffers of its allocation.

        Its bytes count as not written. Does nothing unless one allocation holds all of it. If it is the first buffer of
        its allocation here, `earlier` returns those that were taken before the allocation [start, end) was mapped.
        """
        mapping = self.find(va, size)
        if mapping is None:
            return
        if mapping.initialised is not None:
            zero(_address(mapping.initialised) + va - mapping.va, size, _MADV_DONTNEED)
        with self._lock:
            self._drop_buffers()
            if earlier is not None and mapping.va not in self._buffers:
                self._buffers[mapping.va] = earlier(mapping.va, mapping.end)
            self._buffers.setdefault(mapping.va, {})[va] = size
            self._table = None
            self.version += 1

    def drop_buffer(self, va: int) -> None:
        """Drop the buffer at `va`: kernels may not access it. Takes no lock, so that finalizers may call it."""
        self._dropped.append(va)

    def _drop_buffers(self) -> None:
        while self._dropped:
            va = self._dropped.popleft()
            at = bisect.bisect_right(self._starts, va) - 1
            size = self._buffers.get(self._starts[at], {}).pop(va, None) if at >= 0 else None
            if size is not None:
                self._freed.append(GpuMapping(va, size, va, _BUFFER, freed_at="earlier"))
                self._table = None
                self.version += 1

    def find(self, va: int, size: int = 1) -> GpuMapping | None:
        """Return the allocation that holds all of [va, va + size), or None."""
        starts, mappings = self._index
        at = bisect.bisect_right(starts, va) - 1
        if at >= 0:
            mapping = mappings[at]
            if va + size <= mapping.va + mapping.size:
                return mapping
        return None

    def host(self, va: int, size: int) -> int:
        """Return the host address of [va, va + size). Raises `UsageError` unless one allocation holds all of it."""
        mapping = self.find(va, size)
        if mapping is None:
            raise UsageError(f"[{va:#x}, {va + size:#x}) is not mapped; nearest: {self.nearest(va)}")
        return mapping.host + va - mapping.va

    def read(self, va: int, size: int) -> bytes:
        """Copy `size` bytes from device memory. Raises `UsageError` as `host` does."""
        mapping = self.find(va, size)
        host = self.host(va, size) if mapping is None else mapping.host + va - mapping.va
        return ctypes.string_at(host, size)

    def write(self, va: int, data: bytes | bytearray | memoryview) -> None:
        """Copy bytes into device memory. Raises `UsageError` as `host` does."""
        raw = bytes(data)
        store(self.host(va, len(raw)), raw)

    def nearest(self, va: int) -> str:
        """Describe the live allocation or buffer nearest to an address, and the last freed one that held the address."""
        with self._lock:
            self._drop_buffers()
            return self._nearest(va)

    def mappings(self) -> list[GpuMapping]:
        """Return the live allocations, sorted by address."""
        with self._lock:
            return list(self._mappings)

    def _nearest(self, va: int) -> str:
        """Return what `nearest` does; the caller holds the lock."""
        found = ""
        if self._mappings:
            at = bisect.bisect_right(self._starts, va)
            near = min(
                (part for one in self._mappings[max(at - 1, 0) : at + 1] for part in self._parts(one)),
                key=lambda m: max(m.va - va, va - m.end + 1, 0),
            )
            gap = (
                f"{va - near.end + 1} bytes past the last byte of"
                if va >= near.end
                else f"{near.va - va} bytes before"
            )
            found = f"inside {near}" if near.va <= va < near.end else f"{gap} {near}"
        for old in reversed(self._freed):
            if old.va <= va < old.end:
                return f"inside {old}" + (f", and {found}" if found else "")
        return found or "no memory is mapped"

    def table(self, *, shadows: bool = False) -> bytes:
        """Return the map as packed `MAP_ENTRY` records, sorted by address, for generated code."""
        return self.snapshot(shadows=shadows).entries

    def snapshot(self, *, shadows: bool = False) -> Snapshot:
        """Return the map as it is now. The caller keeps the result while generated code uses it.

        `shadows`: allocate the shadows of all allocations, and let the records point to them.
        """
        with self._lock:
            self._drop_buffers()
            if self._table is None or self._table[0] != shadows:
                raw = b"".join(self._entries(m, shadows) for m in self._mappings)
                table = ctypes.create_string_buffer(raw or bytes(MAP_ENTRY.size))
                self._table = shadows, Snapshot(raw, table, tuple(self._mappings))
            return self._table[1]

    def clear_accesses(self) -> None:
        """Clear the access records of all allocations, because they describe one launch at a time."""
        for mapping in self.mappings():
            for shadow in (mapping.touched, mapping.order):
                if shadow is not None:  # reads as zeros; the cost depends on resident pages only
                    shadow.madvise(_MADV_DONTNEED)

    @staticmethod
    def touched_pages(mapping: GpuMapping) -> bytes:
        """Return one byte for each page of an allocation's `touched`; the low bit is set if the page is resident.

        Empty if the allocation has no `touched`. Raises `OSError` if the kernel refuses.
        """
        memory = mapping.touched
        if memory is None:
            return b""
        pages = ctypes.create_string_buffer(-(-len(memory) // mmap.PAGESIZE))
        if _libc().mincore(ctypes.c_void_p(_address(memory)), ctypes.c_size_t(len(memory)), pages):
            raise OSError(ctypes.get_errno(), "mincore of the shadow of an allocation")
        return pages.raw

    def mark_initialised(self, va: int, size: int, states: bytes = b"") -> None:
        """Mark [va, va + size) as written by something other than a kernel.

        `states` has one byte for each byte of the range, nonzero if it was written; empty means all. Bytes are never
        unmarked. Does nothing if no allocation holds the range, or its writes are not recorded.
        """
        mapping = self.find(va, size)
        if mapping is not None and mapping.initialised is not None:
            at = va - mapping.va
            shadow = mapping.initialised
            if states:
                old = int.from_bytes(shadow[at : at + size], "little")
                shadow[at : at + size] = (old | int.from_bytes(states, "little")).to_bytes(size, "little")
            else:
                ctypes.memset(_address(shadow) + at, 1, size)

    def states(self, va: int, size: int) -> bytes:
        """Return one byte for each byte of [va, va + size), nonzero if that byte was written.

        All are nonzero if no allocation holds the range, or its writes are not recorded.
        """
        mapping = self.find(va, size)
        if mapping is None or mapping.initialised is None:
            return b"\1" * size
        at = va - mapping.va
        return bytes(mapping.initialised[at : at + size])

    def _parts(self, mapping: GpuMapping) -> list[GpuMapping]:
        """Return the buffers in an allocation, sorted by address; the allocation itself if it has no buffers."""
        buffers = sorted(self._buffers.get(mapping.va, {}).items())
        return [GpuMapping(va, size, mapping.host + va - mapping.va, _BUFFER) for va, size in buffers] or [
            mapping
        ]

    def _entries(self, mapping: GpuMapping, shadows: bool) -> bytes:  # noqa: FBT001 - private, one caller
        """Return the records of a mapping for generated code, one for each buffer in it.

        With `shadows` they have shadow memory, allocated at the first call.
        """
        if shadows and mapping.tracked and mapping.initialised is None:
            mapping.initialised = fresh_shadow(mapping.size)
        if shadows and mapping.touched is None:
            mapping.touched = _pages((mapping.size + 3) // 4 * RACE_BYTES_PER_DWORD + 64)
            mapping.order = _pages((mapping.size + 3) // 4 * ORDER_BYTES_PER_DWORD + 64)
        flags = MAP_READ | (MAP_WRITE | MAP_ATOMIC if mapping.writable else 0)
        written = _address(mapping.initialised) if shadows else 0
        touched = _address(mapping.touched) if shadows else 0
        order = _address(mapping.order) if shadows else 0
        buffers = self._buffers.get(mapping.va, {mapping.va: mapping.size})
        return b"".join(
            bytes(MAP_ENTRY.pack(
                start=va, size=size, delta=(mapping.host - mapping.va) % 2**64, flags=flags,
                initialised=written and written + va - mapping.va,
                touched=touched and touched + (va - mapping.va) // 4 * RACE_BYTES_PER_DWORD,
                order=order and order + (va - mapping.va) // 4 * ORDER_BYTES_PER_DWORD,
            ))
            for va, size in sorted(buffers.items())
        )  # fmt: skip


def store(host: int, data: bytes) -> None:
    """Copy bytes to a host address. A few bytes, such as a semaphore's, are copied without a library call."""
    if len(data) > _FEW_BYTES:
        ctypes.memmove(host, data, len(data))
    else:
        (ctypes.c_char * len(data)).from_address(host).raw = data


def zero(host: int, size: int, advice: int = _MADV_REMOVE) -> None:
    """Set bytes at a host address to zero. Many whole pages are freed instead: they then read as zeros.

    `advice` is the argument of madvise that frees them; the default is right for a memory file. If the kernel
    refuses it, zeros are stored.
    """
    first, end = -(-host // mmap.PAGESIZE) * mmap.PAGESIZE, (host + size) // mmap.PAGESIZE * mmap.PAGESIZE
    whole = end - first
    if whole < _MANY_BYTES or _libc().madvise(ctypes.c_void_p(first), ctypes.c_size_t(whole), advice):
        ctypes.memset(host, 0, size)
        return
    ctypes.memset(host, 0, first - host)
    ctypes.memset(end, 0, host + size - end)


@functools.cache
def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def fresh_shadow(size: int) -> mmap.mmap:
    """Return a `GpuMapping.initialised` for `size` bytes that were never written."""
    return _pages(size + 64)


def _pages(size: int) -> mmap.mmap:
    """Return zeroed private pages; a forked child gets its own copy."""
    return mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | MAP_NORESERVE)


def _address(memory: mmap.mmap | memoryview | None) -> int:
    return 0 if memory is None else ctypes.addressof(ctypes.c_char.from_buffer(memory))


class TrackedBuffers:
    """A `hcq.hardware.BufferTracker` for all GPUs of an emulated machine. Thread-safe.

    `spaces` returns the machine's address spaces, and is called under `lock`.
    """

    def __init__(
        self, lock: AbstractContextManager[object], spaces: Callable[[], Iterable[AddressSpace]]
    ) -> None:
        self._lock = lock
        self._spaces = spaces
        self._taken: dict[int, list[tuple[int, list[AddressSpace]]]] = {}
        """Start of a buffer -> its bytes, and the address spaces that may have it.

        An earlier buffer at the address, whose device was closed, may be dropped after a later one was taken.
        """

    def _maps(self) -> list[AddressSpace]:
        with self._lock:
            return list(self._spaces())

    def buffer_taken(self, va: int, size: int) -> None:
        """Add a buffer [va, va + size): from now on, kernels may access only the buffers of its allocation."""
        maps = self._maps()
        self._taken.setdefault(va, []).append((size, maps))
        for one in maps:
            one.take_buffer(va, size, functools.partial(self._earlier, one))

    def _earlier(self, space: AddressSpace, start: int, end: int) -> dict[int, int]:
        """Return start -> size of the buffers in [start, end), which `space` has from now on."""
        found = {}
        for va, rows in list(self._taken.items()):
            for size, maps in rows[-1:] if start <= va < end else ():
                found[va] = size
                if space not in maps:
                    maps.append(space)
        return found

    def buffer_exposed(self, va: int, size: int) -> None:
        """Mark [va, va + size) as written, because the CPU can write it unobserved."""
        for one in self._maps():
            one.mark_initialised(va, size)

    def buffer_dropped(self, va: int) -> None:
        """Drop the buffer at `va`: kernels may not access it. Takes no lock, so that finalizers may call it."""
        rows = self._taken.get(va)
        if rows is None:
            return
        if len(rows) == 1:
            del self._taken[va]
        _, maps = rows.pop(0)
        if not rows:
            for one in maps:
                one.drop_buffer(va)
