"""Objects of the emulated resource manager: clients, devices, memory, address spaces, channels, engine objects.

A refusal is a `Refusal` with the status that the real resource manager gives and a reason in words; the
reason goes to the emulated kernel's list of complaints, where tests read it.
"""

# ruff: noqa: E501 - summaries and tables that name their parameters read best on one line

from __future__ import annotations

import ctypes
import mmap
import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from drivers.emu.memory import AddressSpace
from drivers.nv.layouts.status import NvStatus

if TYPE_CHECKING:
    from drivers.nv.emu.channel import Channel


class Refusal(Exception):  # noqa: N818 - a status, not a failure of the emulator
    """The resource manager or UVM says no."""

    def __init__(self, status: NvStatus, reason: str) -> None:
        super().__init__(f"{status.name}: {reason}")
        self.status = status
        self.reason = reason


@dataclass(slots=True, eq=False)
class RmObject:
    """Anything with a handle."""

    handle: int
    cls: int
    parent: RmObject | None
    client: int
    children: list[RmObject] = field(default_factory=list)

    def ancestor(self, cls: int) -> RmObject | None:
        """Return this object or the nearest one above it that has a class."""
        here: RmObject | None = self
        while here is not None and here.cls != cls:
            here = here.parent
        return here

    def release(self) -> None:
        """Give back what it owns."""


@dataclass(slots=True, eq=False)
class Memory(RmObject):
    """Video or system memory, or a description of the caller's own pages."""

    size: int = 0
    host: int = 0
    kind: str = "vidmem"
    fd: int = -1
    _map: mmap.mmap | None = None
    mappings: list[tuple[AddressSpace, int]] = field(default_factory=list)
    """Where it is mapped: address spaces and addresses."""

    def back(self) -> None:
        """Make pages for it: a file in memory, so that the caller can map them too."""
        self.fd = os.memfd_create(f"nv-emu-{self.kind}")
        os.ftruncate(self.fd, self.size)
        self._map = mmap.mmap(self.fd, self.size, flags=mmap.MAP_SHARED)
        self.host = ctypes.addressof(ctypes.c_char.from_buffer(self._map))

    def release(self) -> None:
        """Unmap it everywhere and give the pages back when nobody maps them any more."""
        for space, va in self.mappings:
            if space.find(va) is not None:
                space.unmap(va, freed_at="when its memory object was freed")
        self.mappings.clear()
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1


@dataclass(slots=True, eq=False)
class VaSpace(RmObject):
    """A GPU address space."""

    space: AddressSpace = field(default_factory=AddressSpace)
    external: bool = False
    registered: bool = False
    """UVM owns it now."""


@dataclass(slots=True, eq=False)
class Group(RmObject):
    """A channel group (TSG): channels that share a run list slot."""

    engine: int = 0
    vaspace: VaSpace | None = None
    scheduled: bool = False


@dataclass(slots=True, eq=False)
class ContextShare(RmObject):
    """A subcontext of a channel group."""

    vaspace: VaSpace | None = None
    number: int = 0


@dataclass(slots=True, eq=False)
class ChannelObject(RmObject):
    """A GPFIFO channel as the resource manager knows it; `channel` is the running part."""

    channel: Channel | None = None
    registered: bool = False
    """UVM has mapped its context buffers."""

    def release(self) -> None:
        """Stop it."""
        if self.channel is not None:
            self.channel.close()


@dataclass(slots=True, eq=False)
class Debugger(RmObject):
    """A debugger object: looks at the compute object's channel."""

    target: RmObject | None = None


class Handles:
    """All objects by client and handle."""

    def __init__(self) -> None:
        self._clients: dict[int, dict[int, RmObject]] = {}
        self._next = 0xC1D0_0001

    def new_client(self, handle: int) -> RmObject:
        """Add a client; handle 0 lets the resource manager choose."""
        if handle == 0:
            handle = self._next
            self._next += 1
        if handle in self._clients:
            raise Refusal(NvStatus.INVALID_OBJECT_HANDLE, f"client {handle:#x} exists")
        root = RmObject(handle, 0x41, None, handle)
        self._clients[handle] = {handle: root}
        return root

    def get(self, client: int, handle: int) -> RmObject:
        """Return an object or refuse."""
        if client not in self._clients:
            raise Refusal(NvStatus.INVALID_OBJECT_HANDLE, f"{client:#x} is no client")
        found = self._clients[client].get(handle)
        if found is None:
            raise Refusal(NvStatus.INVALID_OBJECT_HANDLE, f"client {client:#x} has no object {handle:#x}")
        return found

    def find(self, client: int, handle: int, kind: type[RmObject]) -> RmObject:
        """Return an object of a kind or refuse."""
        found = self.get(client, handle)
        if not isinstance(found, kind):
            raise Refusal(
                NvStatus.INVALID_OBJECT_HANDLE,
                f"object {handle:#x} is of class {found.cls:#x}, wanted {kind.__name__}",
            )
        return found

    def add(self, item: RmObject) -> RmObject:
        """Add an object below its parent; handle 0 lets the resource manager choose."""
        objects = self._clients[item.client]
        if item.handle == 0:
            item.handle = self._next
            self._next += 1
        if item.handle in objects:
            raise Refusal(NvStatus.INVALID_OBJECT_HANDLE, f"handle {item.handle:#x} is in use")
        objects[item.handle] = item
        if item.parent is not None:
            item.parent.children.append(item)
        return item

    def free(self, client: int, handle: int) -> None:
        """Free an object and all below it, the youngest first."""
        item = self.get(client, handle)
        for child in list(reversed(item.children)):
            self.free(client, child.handle)
        item.release()
        if item.parent is not None:
            item.parent.children.remove(item)
            del self._clients[client][handle]
        else:
            del self._clients[client]

    def clients(self) -> list[int]:
        """Return the handles of all clients."""
        return list(self._clients)
