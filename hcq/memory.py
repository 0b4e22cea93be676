"""Buffers: ranges of device-visible memory, and their views.

Lifetime follows references. Work in flight references the buffers that it uses, so a buffer without
references is idle, and its memory can be reused immediately. `Buffer.close` ends a lifetime explicitly: later
uses raise, and the memory returns to the heap when no work in flight can access it any more.

The contents of a new buffer are undefined: its memory may have been used before.

Not here: the allocator (`heap`); signal memory (`signal`); the argument ring (`kernarg_ring`).
"""

# ruff: noqa: SLF001 - a view and its root are two objects of one class
from __future__ import annotations

import ctypes
import weakref
from collections.abc import Callable, Iterable
from functools import partial
from types import NoneType
from typing import Any, Protocol, Self

from hcq.errors import UsageError, UsageTypeError, refuse_copy
from hcq.hardware import Allocation, BufferSpec, DeviceInfo
from hcq.heap import Block, Chunk, FreeList
from hcq.locks import DROP, NOTHING
from hcq.signal import Point, Refusal


class Owner(Protocol):
    """The part of a device that buffers use; `hcq.device.Device` implements it."""

    name: str
    closed: bool

    @property
    def info(self) -> DeviceInfo:
        """The device's properties."""

    @property
    def watch(self) -> Any:
        """The validation layer (`hcq.validate.validator.Validator`), or None."""

    close_epoch: int
    """Grows whenever a buffer or a program is closed."""
    refusal: Refusal | None
    reasons: weakref.WeakKeyDictionary[Buffer, Refusal]
    """Error factory of each buffer that was closed with `reason=`."""

    def alloc(self, size: int, spec: BufferSpec = ..., *, label: str = "") -> Buffer:
        """Return a buffer of `size` bytes."""

    def caller(self) -> str:
        """Return "file:line" of the caller outside hcq when validation is on, else an empty text."""

    def map_peer(self, allocation: Allocation, owner: Any) -> None:
        """Map another device's allocation into this device's address space."""

    def export(self, allocation: Allocation) -> int:
        """Return a descriptor of an allocation for other processes."""

    def retire_block(
        self,
        block: Block | None,
        free_list: FreeList,
        peers: Iterable[Any],
        *,
        after: Point | None = None,
        at: Point | None = None,
    ) -> None:
        """Return the memory of a closed buffer to its pool once the work now in flight is done."""


class _Closed:
    """The value of `Buffer.va` of a closed buffer. It is no number, so that packing it into a word raises."""

    def __repr__(self) -> str:
        return "closed"


CLOSED: Any = _Closed()


class _Held:
    """The reference of a host view to its buffer. It ends with the last view of the same call of `host`."""

    __slots__ = ("__weakref__", "_buffer")

    def __init__(self, buffer: Buffer) -> None:
        self._buffer = buffer


class Buffer:
    """A range of device-visible memory; made by `Device.alloc`.

    `size` is in bytes; `va` is the device address, or an object that is no number once the buffer or its
    device is closed; `spec` is the kind of memory; `label` names the buffer in errors. `view` returns a
    buffer that shares the memory.

    Lifetime: the memory is freed with the last reference. Work in flight holds references. `close`, or the
    end of a `with` block, makes every later use raise, and frees the memory when the work in flight is done.
    Freed memory returns to the device's pools, and to the driver when memory is short.

    Threads: all methods may be called from any thread. Access to the contents is not ordered: wait for the
    point of the work that writes before reading, and order submissions by `after=`.

    `view`, `host` and `map_to` raise `UsageError` for a closed buffer or device, or the error that was passed
    to `close`.

        with device.alloc(4096, label="weights") as weights:
            device.compute.submit(device.compute.record().fill(weights, 0)).wait()
    """

    __slots__ = (
        "__weakref__",
        "_block",
        "_drop",
        "_free_list",
        "_views",
        "address",
        "device",
        "label",
        "offset",
        "root",
        "size",
        "spec",
        "where",
    )

    address: int
    """`va` without the test whether the device is closed, for hot paths."""

    def __init__(  # noqa: PLR0917 - positional: one is made an operation
        self, device: Owner, block: Block, free_list: FreeList, size: int, spec: BufferSpec, label: str
    ) -> None:
        self._free_list = free_list
        self._block: Block | None = block
        self._drop: Callable[[], object]  # from here on the block is returned
        self._drop = block.free if isinstance(free_list, list) else partial(free_list.append, block)
        if block.ordered is not None:  # also a buffer that no work has used keeps what was before it
            self._drop = partial(device.retire_block, block, free_list, (), at=block.ordered)
        self.device = device
        self.address = block.va
        self.size = size
        self.spec = spec
        self.label = label
        self.root: Buffer | None = None
        """The buffer that this is a view of; None for a buffer with memory of its own."""
        self.offset = 0
        """Bytes from the start of the root buffer."""
        self._views: set[weakref.ref[Buffer]] | None = None
        self.where = ""
        """"file:line" that closed the buffer, when validation was on."""

    def view(self, offset: int, size: int | None = None) -> Buffer:
        """Return a buffer that shares `size` bytes from byte `offset` on; `size` None: up to the end.

        The view keeps the memory alive. Closing the root buffer closes all its views. Raises `UsageError` for
        a range outside this buffer, `UsageTypeError` for numbers that are no ints.
        """
        self.live()
        if not isinstance(offset, int) or not isinstance(size, (int, NoneType)):
            raise UsageTypeError(f"view of {self!r}: wanted bytes as ints, seen {offset!r} and {size!r}")
        size = self.size - offset if size is None else size
        if offset < 0 or size < 0 or offset + size > self.size:
            raise UsageError(f"bytes {offset} to {offset + size} lie outside {self!r}")
        root = self.root or self
        part = Buffer.__new__(Buffer)
        part._free_list = self._free_list
        part._block, part._drop = None, NOTHING
        part.device, part.spec, part.label, part.where = self.device, self.spec, self.label, ""
        part.address, part.size, part.root, part.offset = self.va + offset, size, root, self.offset + offset
        part._views = None
        if root._views is None:
            root._views = set()
        root._views.add(weakref.ref(part, root._views.discard))
        return part

    @property
    def chunk(self) -> Chunk:
        """The driver allocation that contains the buffer. Raises as `live` does."""
        self.live()
        block = (self.root or self)._block
        assert block is not None  # an open buffer has one
        return block.chunk

    def host(self) -> memoryview:
        """Return a writable view of the bytes in the host's address space.

        The view, and arrays made from it, hold the memory: it serves no other buffer before they end. After
        the buffer or its device is closed they still have its bytes, which the device no longer sees. Raises
        `UsageError` for memory that is not mapped for the host.
        """
        memory = self.borrow()
        exporter = (ctypes.c_ubyte * self.size).from_buffer(memory)
        root = self.root or self
        held = _Held(root)
        exporter.held = held  # type: ignore[attr-defined]  # objects of ctypes have attributes
        block = root._block
        if block is None:  # another thread closed it
            self.live()
            raise UsageError(f"{self!r} was used after it was closed")
        block.chunk.viewed.add(block)
        block.views.add(weakref.ref(held, block.views.discard))
        return memoryview(exporter).cast("B")

    def borrow(self) -> memoryview:
        """Return the bytes as `host` does, for a caller that keeps the buffer open while it uses them."""
        allocation = self.chunk.allocation
        if allocation.host is None:
            spec = "hcq.BufferSpec(place=hcq.Place.HOST, host_visible=True, coherent=True)"
            raise UsageError(
                f"{self!r} is not visible to the host\n"
                f"hint: copy it to memory that is: device.alloc({self.size}, {spec})"
            )
        if allocation.tracker is not None:
            allocation.tracker.buffer_exposed(self.va, self.size)
        if self.device.watch is not None:
            self.device.watch.viewed(self)
        start = self.address - allocation.va
        return allocation.host[start : start + self.size]

    @property
    def in_view(self) -> bool:
        """Whether a view that `host` returned may still be used."""
        block = (self.root or self)._block
        return block is not None and bool(block.views)

    def export(self) -> int:
        """Return a descriptor of the memory, for `Device.import_buffer` of another process.

        The caller passes it on (`socket.send_fds`, inheritance) and closes it. The other process has all
        bytes of the allocation, which is rounded up to pages. The memory exists as long as a process has a
        buffer or a descriptor of it. Raises `UsageError` for a buffer of another kind than
        `BufferSpec(shared=True)` and for a view, `UnsupportedError` where the driver cannot share memory.
        """
        allocation = self.chunk.allocation
        if not self.spec.shared or self.root is not None:
            raise UsageError(
                f"{self!r} shares its pages with other buffers\n"
                "hint: export a whole buffer of device.alloc(size, hcq.BufferSpec(shared=True))"
            )
        return self.device.export(allocation)

    def count_as_written(self) -> None:
        """Count all bytes as written, on a device that reports reads of unwritten memory.

        For memory of which kernels load bytes whose values they discard, for example beyond a symbolic size.
        The contents stay as they are; other devices do nothing. Raises as `live` does.
        """
        tracker = self.chunk.allocation.tracker
        if tracker is not None:
            tracker.buffer_exposed(self.va, self.size)

    def map_to(self, peer: Owner) -> None:
        """Map the memory into another device's address space at the same address, until it is freed.

        Raises `UnsupportedError` when the two devices cannot share memory, `UsageTypeError` for a `peer` that
        is no open device.
        """
        try:
            map_peer = peer.map_peer
        except AttributeError:
            raise UsageTypeError(f"map {self!r}: wanted an hcq.Device, seen {peer!r}") from None
        if not self.visible_to(peer):
            chunk = self.chunk
            map_peer(chunk.allocation, self.device)
            chunk.peers |= {peer}

    def visible_to(self, device: Owner) -> bool:
        """Return whether `device` can access the memory: its owner, or a device it was mapped to.

        For a device that is not the owner it raises as `live` does; `UsageTypeError` for an object that is no
        device.
        """
        if device is self.device:
            return True
        if not hasattr(device, "map_peer"):
            raise UsageTypeError(f"{self!r}: wanted an hcq.Device, seen {device!r}")
        return device in self.chunk.peers

    def unseen_by(self, device: Owner) -> str:
        """Return the part of an error that says why `device` cannot access the buffer, with a hint."""
        if device.name != self.device.name:
            return f"which {device.name} cannot see\nhint: Buffer.map_to makes it visible there"
        return (
            f"which belongs to another opened {device.name}: each hcq.open gives a device of its own\n"
            "hint: use one device, or Buffer.map_to"
        )

    def live(self) -> None:
        """Raise `UsageError` if the device or the buffer is closed, or the error of `close(reason=)`."""
        if self.device.closed:
            reason = self.device.refusal() if self.device.refusal else "its device is closed"
            raise UsageError(f"{self!r} cannot be used: {reason}")
        if self.address is CLOSED:
            if (given := self.device.reasons.get(self)) is not None:
                raise given()
            where = f"; closed at {self.where}" if self.where else ""
            raise UsageError(f"{self!r} was used after it was closed{where}")

    @property
    def va(self) -> int:
        """The device address; no number once the buffer or its device is closed."""
        return CLOSED if self.device.closed else self.address

    @property
    def closed(self) -> bool:
        """Whether the buffer or its root was closed."""
        return self.address is CLOSED

    @property
    def lost(self) -> bool:
        """Whether it was closed with `reason=`: a fault lost its contents, and each use raises that error."""
        return self in self.device.reasons

    def close(
        self, *, after: Point | None = None, at: Point | None = None, reason: Refusal | None = None
    ) -> None:
        """Make every later use raise; free the memory once the work in flight is done and `after` is reached.

        `at` frees it when that point is reached, whatever else is in flight: the caller has ordered all work
        that uses the buffer before it; with validation, other work raises `UsageError`, and nothing is
        closed. `Device.alloc(queue=)` may reuse the memory even before the point.

        Later uses raise the error that `reason` makes, by default a `UsageError`. Closing a view closes only
        that view; closing a root closes its views too. Idempotent. Raises `UsageTypeError` for another class
        of `after`, `at` or `reason`, and closes nothing.
        """
        if self.closed:
            return
        for name, point in (("after", after), ("at", at)):
            if point is not None and not hasattr(point, "over"):
                raise UsageTypeError(f"close {self!r}, {name}: wanted a Point, seen {point!r}")
        if at is not None and self.device.watch is not None:
            self.device.watch.check_end(self, at)
        if reason is not None and not callable(reason):
            raise UsageTypeError(f"close {self!r}, reason: wanted a function, seen {reason!r}")
        device, root = self.device, self.root or self
        assert root._block is not None  # not closed
        peers = root._block.chunk.peers
        views = [view() for view in tuple(self._views or ())]
        where = device.caller()
        for part in (self, *views):
            if part is not None:
                part.address, part.where = CLOSED, where
                if reason is not None:
                    device.reasons[part] = reason
        self._drop = NOTHING
        block, self._block = self._block, None
        device.retire_block(block, self._free_list, peers, after=after, at=at)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    __reduce__ = refuse_copy

    def __repr__(self) -> str:
        label = f" {self.label!r}" if self.label else ""
        at = "closed" if self.va is CLOSED else f"at {self.va:#x}"
        of = f", a view from byte {self.offset}" if self.root else ""
        return f"<Buffer{label} of {self.size} bytes {at} on {self.device.name}{of}>"

    __del__ = DROP
