"""Objects of the emulated resource manager (RM): a tree under each client; a node has a handle and a class.

Data only, with lookup and insertion.

Not here: which class goes under which parent, and its parameters (`alloc`); freeing
(`emulator.nv.machine.machine`). Next: `alloc`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

from drivers.nv.layouts.status import NvStatus
from emulator.nv.reports import RmRefused
from emulator.shared.backing import PAGE

if TYPE_CHECKING:
    from collections.abc import Iterator

    from emulator.nv.engines.channel import ChannelRun
    from emulator.nv.machine.gpu import EmulatedGpu
    from emulator.shared.backing import Backing
    from emulator.shared.vaspace import VaSpace


@dataclass(slots=True, eq=False, kw_only=True)
class RmObject:
    """A node of the tree."""

    handle: int
    """Unique in the client."""
    cls: int
    """The number of its class in the resource manager."""
    parent: RmObject | None = None
    """None for a client, and before `insert`."""
    children: list[RmObject] = field(default_factory=list, repr=False)
    needs: tuple[RmObject, ...] = field(default=(), repr=False)
    """Objects besides the parent that it depends on: it is freed before any of them."""
    users: list[RmObject] = field(default_factory=list, repr=False)
    """Objects that depend on it: the inverse of `needs`."""

    @property
    def client(self) -> Client:
        """The client at the root of its tree."""
        top: RmObject = self
        while top.parent is not None:
            top = top.parent
        assert isinstance(top, Client)
        return top

    @property
    def gpu(self) -> EmulatedGpu:
        """The GPU of the device above it; it is none of a client."""
        assert self.parent is not None
        return self.parent.gpu

    @property
    def live(self) -> bool:
        """Whether it has not been freed."""
        return self.client.objects.get(self.handle) is self

    def under(self, top: RmObject) -> bool:
        """Return whether it is `top` or a descendant of it."""
        return self is top or (self.parent is not None and self.parent.under(top))

    def walk(self) -> Iterator[RmObject]:
        """Yield the descendants, newest first, then the object itself: the order of freeing."""
        for child in reversed(tuple(self.children)):
            yield from child.walk()
        yield self

    def __str__(self) -> str:
        return f"{type(self).__name__} {self.handle:#x} (class {self.cls:#x})"


@dataclass(slots=True, eq=False, kw_only=True)
class Client(RmObject):
    """A root of the tree."""

    ctl_fd: int
    """The descriptor of /dev/nvidiactl that created it."""
    objects: dict[int, RmObject] = field(default_factory=dict, repr=False)
    """Handle -> object of its tree, itself included."""


@dataclass(slots=True, eq=False, kw_only=True)
class RmDevice(RmObject):
    """The device object of a client."""

    on: EmulatedGpu
    """The GPU."""
    space: VaSpace | None = None
    """Its own address space; None until an object needs it."""

    @property
    def gpu(self) -> EmulatedGpu:
        """The GPU."""
        return self.on


@dataclass(slots=True, eq=False, kw_only=True)
class Subdevice(RmObject):
    """One GPU of a device."""

    boosted: bool = False
    """Whether PERF_BOOST was called."""
    notifications: dict[int, int] = field(default_factory=dict)
    """Event number -> action."""


@dataclass(slots=True, eq=False, kw_only=True)
class Usermode(RmObject):
    """The page of registers with the doorbell."""

    bar1: bool = False
    """Whether it is mapped through BAR1."""


@dataclass(slots=True, eq=False, kw_only=True)
class VaSpaceObject(RmObject):
    """An address space."""

    space: VaSpace
    externally_owned: bool
    """Whether UVM maps into it, once it is registered."""
    registered: bool = False
    """Whether it is registered with UVM."""


@dataclass(slots=True, eq=False, kw_only=True)
class VirtualMemory(RmObject):
    """A range of an address space into which MAP_MEMORY_DMA maps memory."""

    space: VaSpace
    first: int
    last: int
    """Its first and its last address."""
    externally_owned: bool
    """Whether UVM owns the address space; then nothing can be mapped."""
    mapped: dict[int, RmMemory] = field(default_factory=dict, repr=False)
    """Address -> the memory that is mapped there through this object."""

    def unmap(self, va: int, why: str) -> None:
        """Remove the mapping that starts at `va`; `why` is for reports of later accesses.

        KeyError if there is none.
        """
        del self.mapped[va]
        if va in self.space.backings:  # else it was removed with its address space
            self.space.remove(va, why)


@dataclass(slots=True, eq=False, kw_only=True)
class RmMemory(RmObject):
    """Video memory, system memory or a user's own pages."""

    backing: Backing
    size: int
    """Bytes."""
    page: int = PAGE
    """Bytes of a page of it."""


@dataclass(slots=True, eq=False, kw_only=True)
class ChannelGroup(RmObject):
    """A TSG: channels that are scheduled together."""

    engine: int
    """The engine of its channels, an `EngineType`."""
    vaspace: VaSpaceObject | None
    """The address space of channels without a subcontext; None if each needs one."""
    next_subcontext: int = 1
    """The number of the next asynchronous subcontext."""
    dead: bool = False
    """Whether an error stopped it. It is never reset, only freed and allocated anew (nv.md 6.4)."""

    def alive(self) -> ChannelGroup:
        """Return the group; raise `RmRefused` (INVALID_STATE) if an error has stopped it."""
        if self.dead:
            raise RmRefused(
                NvStatus.INVALID_STATE, f"{self} was stopped by an error: free it and make another"
            )
        return self


@dataclass(slots=True, eq=False, kw_only=True)
class Ctxshare(RmObject):
    """A subcontext of a channel group, with its own address space."""

    vaspace: VaSpaceObject
    subcontext: int
    """Its number in the group; 0 is the synchronous one."""


@dataclass(slots=True, eq=False, kw_only=True)
class RmChannel(RmObject):
    """A channel: a GPFIFO ring and its state, which `run` executes."""

    run: ChannelRun
    group: ChannelGroup
    registered: bool = False
    """Whether UVM registered it and mapped its context buffers."""
    scheduled: bool = False
    owned_by_uvm: bool = True
    """Whether UVM owns its address space, so that its context buffers need registration."""
    disabled: bool = False
    """Whether FIFO_DISABLE_CHANNELS stopped it; its work waits until it is enabled."""

    @property
    def runs(self) -> bool:
        """Whether it executes work: scheduled and not disabled."""
        return self.scheduled and not self.disabled

    def has(self, cls: int) -> bool:
        """Return whether an engine object of that class is under it."""
        return any(isinstance(child, EngineObject) and child.cls == cls for child in self.children)


@dataclass(slots=True, eq=False, kw_only=True)
class EngineObject(RmObject):
    """A compute or copy class bound to a channel."""

    engine: int


@dataclass(slots=True, eq=False, kw_only=True)
class Debugger(RmObject):
    """A session of a debugger (GT200_DEBUGGER), through which exceptions of SMs are read."""

    target: EngineObject
    """The compute object of the channel that it observes."""
    exception_mask: int = 0
    """As DEBUG_SET_EXCEPTION_MASK stored it; it has no effect."""
    mmu_debug: int = 0
    """The mode of DEBUG_SET_MODE_MMU_DEBUG, 0 before that call; it has no effect."""


@dataclass(slots=True, eq=False, kw_only=True)
class RmEvent(RmObject):
    """An event: it makes descriptor `fd` readable when the subdevice raises notification `index`."""

    subdevice: Subdevice
    index: int
    fd: int


T = TypeVar("T", bound=RmObject)


def find(client: Client, handle: int, kind: type[T], what: str) -> T:
    """Return the client's object with that handle; `what` names the handle in messages.

    Raises `RmRefused` if there is none, or if it is not a `kind`.
    """
    found = client.objects.get(handle)
    if found is None:
        raise RmRefused(NvStatus.INVALID_OBJECT_HANDLE, f"{what}: there is no object {handle:#x}")
    if not isinstance(found, kind):
        raise RmRefused(NvStatus.INVALID_OBJECT_HANDLE, f"{what}: {found} is no {kind.__name__}")
    return found


def insert(client: Client, new: RmObject, parent: RmObject) -> None:
    """Add an object to the tree under `parent`, to the client's handles, and to the users of its `needs`."""
    new.parent = parent
    parent.children.append(new)
    for one in new.needs:
        one.users.append(new)
    client.objects[new.handle] = new
