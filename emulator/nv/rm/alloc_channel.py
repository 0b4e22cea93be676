"""Channel groups, subcontexts, channels and the engine objects on them (nv.md 2.2 to 2.4).

Functions that create objects have the parameters of `alloc.AllocationRule.make`, and raise `RmRefused`.
`block` is the structure of parameters, None if the call has none.

Not here: other classes (`alloc`), running a channel (`emulator.nv.engines.channel`), controls
(`controls_channel`). Next: `objects`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from drivers.nv.layouts.gpfifo import GpfifoEntry
from drivers.nv.layouts.rm_classes import (
    COPY_ALLOCATION_VERSION,
    GR_ALLOCATION_VERSION,
    NV_CHANNEL_ALLOC_PARAMS,
    NV_CHANNEL_GROUP_ALLOCATION_PARAMETERS,
    NV_CTXSHARE_ALLOCATION_PARAMETERS,
    NV_GR_ALLOCATION_PARAMETERS,
    NVB0B5_ALLOCATION_PARAMETERS,
    USERD_BYTES,
    ChannelFlags,
    CtxshareFlags,
    EngineType,
)
from drivers.nv.layouts.status import NvStatus
from emulator.nv.engines.channel import ChannelRun
from emulator.nv.engines.engine import Setup
from emulator.nv.reports import RmRefused, wrong
from emulator.nv.rm.objects import (
    ChannelGroup,
    Client,
    Ctxshare,
    EngineObject,
    RmChannel,
    RmMemory,
    RmObject,
    T,
    VaSpaceObject,
    find,
)

if TYPE_CHECKING:
    from emulator.nv.machine.machine import NvMachine

_CHANNEL_FIELDS = (
    "hObjectError",
    "hObjectBuffer",
    "gpFifoOffset",
    "gpFifoEntries",
    "flags",
    "hContextShare",
    "hVASpace",
    "hUserdMemory",
    "userdOffset",
    "engineType",
)
"""The fields of NV_CHANNEL_ALLOC_PARAMS that are used; others must have their defaults."""


def make_group(
    _machine: NvMachine, client: Client, parent: RmObject, cls: int, handle: int, block: bytearray | None
) -> RmObject:
    """Create a channel group (TSG) for one engine."""
    params = NV_CHANNEL_GROUP_ALLOCATION_PARAMETERS.from_bytes(block or b"")
    engines = parent.gpu.engines
    if params.engineType not in engines:
        raise wrong(f"engineType {params.engineType:#x} is not present; there are {engines}")
    if params.hObjectError or params.hObjectEccError or params.bIsCallingContextVgpuPlugin:
        raise wrong(f"only hVASpace and engineType are known: {params}")
    space = _own(client, params.hVASpace, VaSpaceObject, "hVASpace", parent) if params.hVASpace else None
    needs = () if space is None else (space,)
    return ChannelGroup(handle=handle, cls=cls, engine=params.engineType, vaspace=space, needs=needs)


def make_ctxshare(
    _machine: NvMachine, client: Client, parent: RmObject, cls: int, handle: int, block: bytearray | None
) -> RmObject:
    """Create a subcontext; its number is written back to the parameters."""
    assert isinstance(parent, ChannelGroup)
    assert block is not None
    parent.alive()
    params = NV_CTXSHARE_ALLOCATION_PARAMETERS.from_bytes(block)
    if parent.engine != EngineType.GR0:
        raise wrong("subcontexts are for the graphics engine")
    if params.flags not in tuple(CtxshareFlags) or params.subctxId:
        raise RmRefused(NvStatus.INVALID_FLAGS, f"flags or subctxId of {params} are not known")
    space = _own(client, params.hVASpace, VaSpaceObject, "hVASpace", parent)
    number = parent.next_subcontext if params.flags == CtxshareFlags.SUBCONTEXT_ASYNC else 0
    parent.next_subcontext += 1
    NV_CTXSHARE_ALLOCATION_PARAMETERS.store(block, subctxId=number)
    return Ctxshare(handle=handle, cls=cls, vaspace=space, subcontext=number, needs=(space,))


def make_channel(  # noqa: PLR0917 - the signature of all makers
    machine: NvMachine, client: Client, parent: RmObject, cls: int, handle: int, block: bytearray | None
) -> RmObject:
    """Create a GPFIFO channel, which can run once it is scheduled."""
    assert isinstance(parent, ChannelGroup)
    parent.alive()
    params = NV_CHANNEL_ALLOC_PARAMS.from_bytes(block or b"")
    empty = NV_CHANNEL_ALLOC_PARAMS()
    for name in params.FIELDS:
        if name not in _CHANNEL_FIELDS and getattr(params, name) != getattr(empty, name):
            raise wrong(f"{name} = {getattr(params, name)} is not known")
    flags = ChannelFlags.from_int(params.flags)
    if flags.check() or flags.PRIVILEGED_CHANNEL:
        raise RmRefused(NvStatus.INVALID_FLAGS, f"channel flags {params.flags:#x}: {flags}")
    if params.hVASpace:
        raise wrong("hVASpace must be 0 under a channel group")
    if params.engineType not in (0, parent.engine):
        raise wrong(f"engine type {params.engineType:#x} is not the group's {parent.engine:#x}")
    share = _share(client, parent, params)
    space = parent.vaspace if share is None else share.vaspace
    if space is None:
        raise wrong("neither the group nor a context share has an address space")
    setup = Setup(
        cls=cls,
        ring_va=params.gpFifoOffset,
        entries=params.gpFifoEntries,
        userd=_userd(client, parent, params),
        notifier=_notifier(client, params),
        engine=parent.engine,
        subcontext=0 if share is None else share.subcontext,
        space=space.space,
    )
    _check_ring(setup)
    if value := machine.rejections.refuses("channel", params, setup):
        raise RmRefused(NvStatus.NOT_SUPPORTED, f"{params} (quirk {value})")
    if params.hObjectBuffer:
        find(client, params.hObjectBuffer, RmMemory, "hObjectBuffer")
    run = ChannelRun(machine, parent.gpu, f"channel {handle:#x}", setup)
    needs = (space, setup.userd[0], *(() if share is None else (share,)))
    made = RmChannel(
        handle=handle, cls=cls, run=run, group=parent, needs=needs, owned_by_uvm=space.externally_owned
    )
    machine.add_channel(parent.gpu, made)
    run.hold()
    return made


def _share(client: Client, group: ChannelGroup, params: NV_CHANNEL_ALLOC_PARAMS) -> Ctxshare | None:
    """Return the subcontext of a channel, or None. Raises `RmRefused` for one of another group."""
    if not params.hContextShare:
        return None
    share = find(client, params.hContextShare, Ctxshare, "hContextShare")
    if share.parent is not group:
        raise RmRefused(NvStatus.INVALID_OBJECT_PARENT, f"{share} belongs to another group")
    return share


def _own(client: Client, handle: int, kind: type[T], what: str, parent: RmObject) -> T:
    """Return an object as `find`. Raises `RmRefused`, too, if it belongs to another GPU than `parent`."""
    found = find(client, handle, kind, what)
    if found.gpu is not parent.gpu:
        raise RmRefused(NvStatus.INVALID_OBJECT_PARENT, f"{what}: {found} belongs to {found.gpu}")
    return found


def _userd(client: Client, parent: RmObject, params: NV_CHANNEL_ALLOC_PARAMS) -> tuple[RmMemory, int]:
    """Return the memory of a channel's user area, and the offset in it. Raises `RmRefused`."""
    if any(params.hUserdMemory[1:]) or any(params.userdOffset[1:]):
        raise wrong("only the first user area is used")
    memory = _own(client, params.hUserdMemory[0], RmMemory, "hUserdMemory", parent)
    offset = params.userdOffset[0]
    if offset % USERD_BYTES or offset + USERD_BYTES > memory.size:
        raise wrong(f"userdOffset {offset:#x} is not aligned to {USERD_BYTES} or outside the memory")
    return memory, offset


def _notifier(client: Client, params: NV_CHANNEL_ALLOC_PARAMS) -> RmMemory | None:
    """Return the memory of a channel's error notifier, or None if it has none. Raises `RmRefused`."""
    if not params.hObjectError:
        return None
    return find(client, params.hObjectError, RmMemory, "hObjectError")  # whole pages: its entries have room


def _check_ring(setup: Setup) -> None:
    """Raise `RmRefused` if the ring has a wrong size or is not mapped."""
    if setup.entries < 2 or setup.entries & (setup.entries - 1):
        raise wrong(f"{setup.entries} ring entries: wanted a power of two")
    size = setup.entries * GpfifoEntry.SIZE
    if setup.ring_va % GpfifoEntry.SIZE or setup.space.map.find(setup.ring_va, size) is None:
        raise RmRefused(
            NvStatus.INVALID_ADDRESS, f"the ring at {setup.ring_va:#x} (+{size:#x}) is not mapped"
        )


def make_engine(
    machine: NvMachine, _client: Client, parent: RmObject, cls: int, handle: int, block: bytearray | None
) -> RmObject:
    """Create the object of a compute or copy class, which binds the class to a channel."""
    assert isinstance(parent, RmChannel)
    parent.group.alive()
    graphics = parent.group.engine == EngineType.GR0
    gpu = parent.gpu
    if cls == gpu.profile.generation.compute:
        if not graphics:
            raise RmRefused(
                NvStatus.INVALID_CLASS, "a compute class goes on a channel of the graphics engine"
            )
        if block is not None:
            wanted = NV_GR_ALLOCATION_PARAMETERS(
                version=GR_ALLOCATION_VERSION, size=NV_GR_ALLOCATION_PARAMETERS.SIZE
            )
            _same(block, wanted.to_bytes(), "NV_GR_ALLOCATION_PARAMETERS")
    elif block is None:
        if not graphics:
            raise wrong("without parameters a copy class is the graphics engine's own copy engine")
    else:
        engines = gpu.graphics_engines if graphics else (parent.group.engine,)
        asked = NVB0B5_ALLOCATION_PARAMETERS.from_bytes(block)
        if asked.version != COPY_ALLOCATION_VERSION or asked.engineType not in engines:
            raise wrong(f"{asked}: wanted version {COPY_ALLOCATION_VERSION} and an engine of {engines}")
    if parent.has(cls):
        raise RmRefused(NvStatus.INVALID_STATE, f"the channel has class {cls:#x} already")
    if cls == gpu.profile.generation.compute:
        machine.grids.prepare()
    parent.run.objects.add(cls)
    return EngineObject(handle=handle, cls=cls, engine=parent.group.engine)


def _same(block: bytearray, wanted: bytes, name: str) -> None:
    """Raise `RmRefused` unless a structure has the only contents that are allowed."""
    if bytes(block) != wanted:
        raise wrong(f"{name}: {bytes(block).hex()} is not {wanted.hex()}")
