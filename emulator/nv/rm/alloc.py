"""RM_ALLOC: the parent and the parameters that each class requires (nv.md 2.2 to 2.6).

Functions that create objects have the parameters of `AllocationRule.make`; they check the structure in
`block` and raise `RmRefused` for what the resource manager refuses.

Not here: channels and memory (`alloc_channel`, `alloc_memory`), what the objects do later
(`emulator.nv.engines.channel`, `uvm`, `controls`). Next: `objects`.
"""

from __future__ import annotations

import errno
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from drivers.kernel import fail
from drivers.nv.layouts.chips import USERMODE_WITH_PARAMS
from drivers.nv.layouts.rm_classes import (
    ALLOC_STRUCTS,
    NV0005_ALLOC_PARAMETERS,
    NV0080_ALLOC_PARAMETERS,
    NV83DE_ALLOC_PARAMETERS,
    NV2080_ALLOC_PARAMETERS,
    NV_CHANNEL_ALLOC_PARAMS,
    NV_GR_ALLOCATION_PARAMETERS,
    NV_HOPPER_USERMODE_A_PARAMS,
    NV_VASPACE_ALLOCATION_PARAMETERS,
    NVB0B5_ALLOCATION_PARAMETERS,
    RmClass,
    VaspaceFlags,
)
from drivers.nv.layouts.status import NvStatus
from emulator.nv.profiles import SANDBOX_REFUSES_CLASSES
from emulator.nv.reports import RmRefused, page_fault, wrong
from emulator.nv.rm.alloc_channel import make_channel, make_ctxshare, make_engine, make_group
from emulator.nv.rm.alloc_memory import make_memory, make_virtual
from emulator.nv.rm.objects import (
    ChannelGroup,
    Client,
    Debugger,
    EngineObject,
    RmChannel,
    RmDevice,
    RmEvent,
    RmObject,
    Subdevice,
    Usermode,
    VaSpaceObject,
    find,
    insert,
)
from emulator.shared.vaspace import VaSpace

if TYPE_CHECKING:
    from collections.abc import Callable

    from emulator.nv.machine.machine import NvMachine
    from emulator.nv.profiles import Profile
    from hcq.layout import Struct


@dataclass(frozen=True, slots=True)
class AllocationRule:
    """The rules for the allocation of a class."""

    parent: type[RmObject]
    """The class of its parent."""
    layout: str
    """Name of its parameters' structure; empty if it has none."""
    make: Callable[[NvMachine, Client, RmObject, int, int, bytearray | None], RmObject]
    """Creates the object from the machine, the client, the parent, the class, the handle and the parameters.

    The parameters are None if the caller gave none; the function may change them for the reply.
    """
    required: bool = True
    """Whether the parameters are mandatory."""


def _device(
    machine: NvMachine, client: Client, _parent: RmObject, cls: int, handle: int, block: bytearray | None
) -> RmObject:
    params = NV0080_ALLOC_PARAMETERS.from_bytes(block or bytes(NV0080_ALLOC_PARAMETERS.SIZE))
    if params.deviceId >= len(machine.gpus):
        raise wrong(f"there is no device instance {params.deviceId}, only {len(machine.gpus)} from 0")
    if params.hClientShare not in (0, client.handle):
        raise RmRefused(NvStatus.INVALID_OBJECT_HANDLE, f"hClientShare {params.hClientShare:#x} is no client")
    if params.replace(deviceId=0, hClientShare=0) != NV0080_ALLOC_PARAMETERS():
        raise wrong(f"only deviceId and hClientShare are known: {params}")
    return RmDevice(handle=handle, cls=cls, on=machine.gpus[params.deviceId])


def _subdevice(
    _machine: NvMachine, _client: Client, _parent: RmObject, cls: int, handle: int, block: bytearray | None
) -> RmObject:
    if block is not None and NV2080_ALLOC_PARAMETERS.from_bytes(block).subDeviceId:
        raise wrong("there is only subdevice 0")
    return Subdevice(handle=handle, cls=cls)


def _usermode(
    _machine: NvMachine, _client: Client, _parent: RmObject, cls: int, handle: int, block: bytearray | None
) -> RmObject:
    bar1 = False
    if block is not None:
        params = NV_HOPPER_USERMODE_A_PARAMS.from_bytes(block)
        if params.check():
            raise wrong(str(params.check()[0]))
        if params.bPriv:
            raise RmRefused(NvStatus.INSUFFICIENT_PERMISSIONS, "bPriv requests the privileged page")
        bar1 = params.bBar1Mapping
    return Usermode(handle=handle, cls=cls, bar1=bar1)


def _vaspace(
    machine: NvMachine, _client: Client, parent: RmObject, cls: int, handle: int, block: bytearray | None
) -> RmObject:
    layout = machine.structs["NV_VASPACE_ALLOCATION_PARAMETERS"]
    # All branches have the same first fields; later ones append.
    params = NV_VASPACE_ALLOCATION_PARAMETERS.from_bytes(
        bytes(block or bytes(layout.SIZE)).ljust(NV_VASPACE_ALLOCATION_PARAMETERS.SIZE, b"\0")
    )
    known = int(VaspaceFlags.IS_EXTERNALLY_OWNED | VaspaceFlags.ENABLE_PAGE_FAULTING)
    if params.flags & ~known:
        raise RmRefused(NvStatus.INVALID_FLAGS, f"vaspace flags {params.flags:#x}: {known:#x} are known")
    if params.index or params.vaStartInternal or params.vaLimitInternal or params.bigPageSize or params.pasid:
        raise wrong(f"only index GPU_NEW, flags, vaBase, vaSize are known: {params}")
    profile = parent.gpu.profile
    if params.vaBase + params.vaSize > 1 << profile.space_bits:
        raise wrong(f"the address space ends above {profile.space_bits} bits")
    return VaSpaceObject(
        handle=handle,
        cls=cls,
        space=VaSpace(profile.va_bits, page_fault),
        externally_owned=bool(params.flags & VaspaceFlags.IS_EXTERNALLY_OWNED),
    )


def _debugger(
    _machine: NvMachine, client: Client, parent: RmObject, cls: int, handle: int, block: bytearray | None
) -> RmObject:
    params = NV83DE_ALLOC_PARAMETERS.from_bytes(block or b"")
    if params.hDebuggerClient_Obsolete:
        raise wrong("hDebuggerClient_Obsolete must be 0")
    if params.hAppClient != client.handle:
        raise RmRefused(
            NvStatus.INVALID_OBJECT_HANDLE, f"hAppClient {params.hAppClient:#x} is not this client"
        )
    target = client.objects.get(params.hClass3dObject)
    if target is None:
        raise RmRefused(
            NvStatus.INVALID_OBJECT_PARENT, f"hClass3dObject {params.hClass3dObject:#x} is no object"
        )
    if not isinstance(target, EngineObject) or target.cls != parent.gpu.profile.generation.compute:
        raise RmRefused(NvStatus.INVALID_OBJECT, f"hClass3dObject {target} is no compute object")
    return Debugger(handle=handle, cls=cls, target=target)


def _event(  # noqa: PLR0917 - the signature of all makers
    machine: NvMachine, client: Client, parent: RmObject, cls: int, handle: int, block: bytearray | None
) -> RmObject:
    params = NV0005_ALLOC_PARAMETERS.from_bytes(block or b"")
    if params.hParentClient not in (0, client.handle) or params.hClass != RmClass.NV01_EVENT_OS_EVENT:
        raise wrong(f"hParentClient or hClass is wrong: {params}")
    source = find(client, params.hSrcResource, Subdevice, "hSrcResource")
    if source is not parent:
        raise RmRefused(NvStatus.INVALID_OBJECT_PARENT, "the event's source is not its parent")
    fd = params.data & 0xFFFF_FFFF
    if (client.handle, fd) not in machine.os_events:
        raise RmRefused(
            NvStatus.OBJECT_NOT_FOUND, f"descriptor {fd} is no OS event: ALLOC_OS_EVENT comes first"
        )
    return RmEvent(handle=handle, cls=cls, subdevice=source, index=params.notifyIndex & 0xFFFF, fd=fd)


_RULES: Final[dict[int, AllocationRule]] = {
    RmClass.NV01_DEVICE_0: AllocationRule(Client, "NV0080_ALLOC_PARAMETERS", _device, required=False),
    RmClass.NV20_SUBDEVICE_0: AllocationRule(RmDevice, "NV2080_ALLOC_PARAMETERS", _subdevice, required=False),
    RmClass.FERMI_VASPACE_A: AllocationRule(RmDevice, "NV_VASPACE_ALLOCATION_PARAMETERS", _vaspace),
    RmClass.NV01_MEMORY_LOCAL_USER: AllocationRule(RmDevice, "NV_MEMORY_ALLOCATION_PARAMS", make_memory),
    RmClass.NV01_MEMORY_SYSTEM: AllocationRule(RmDevice, "NV_MEMORY_ALLOCATION_PARAMS", make_memory),
    RmClass.NV01_MEMORY_VIRTUAL: AllocationRule(
        RmDevice, "NV_MEMORY_VIRTUAL_ALLOCATION_PARAMS", make_virtual
    ),
    RmClass.KEPLER_CHANNEL_GROUP_A: AllocationRule(
        RmDevice, "NV_CHANNEL_GROUP_ALLOCATION_PARAMETERS", make_group
    ),
    RmClass.FERMI_CONTEXT_SHARE_A: AllocationRule(
        ChannelGroup, "NV_CTXSHARE_ALLOCATION_PARAMETERS", make_ctxshare
    ),
    RmClass.GT200_DEBUGGER: AllocationRule(RmDevice, "NV83DE_ALLOC_PARAMETERS", _debugger),
    RmClass.NV01_EVENT_OS_EVENT: AllocationRule(Subdevice, "NV0005_ALLOC_PARAMETERS", _event),
}


def _rule(machine: NvMachine, profile: Profile, cls: int) -> AllocationRule:
    """Return the rule of a class. Raises `RmRefused` if the GPU or the sandbox does not have it."""
    row = profile.generation
    if machine.filtered and cls in SANDBOX_REFUSES_CLASSES:
        raise RmRefused(NvStatus.INVALID_CLASS, f"the sandbox does not list class {cls:#x}")
    if cls in profile.channels:
        return AllocationRule(ChannelGroup, NV_CHANNEL_ALLOC_PARAMS.__name__, make_channel)
    if cls in profile.doorbells:
        with_params = cls >= USERMODE_WITH_PARAMS
        return AllocationRule(
            Subdevice, NV_HOPPER_USERMODE_A_PARAMS.__name__ if with_params else "", _usermode, required=False
        )
    if cls == row.compute:
        return AllocationRule(RmChannel, NV_GR_ALLOCATION_PARAMETERS.__name__, make_engine, required=False)
    if cls in row.copy:
        return AllocationRule(RmChannel, NVB0B5_ALLOCATION_PARAMETERS.__name__, make_engine, required=False)
    if cls not in _RULES or cls not in profile.classes:
        raise RmRefused(NvStatus.INVALID_CLASS, f"{profile.gpu_name} has no class {cls:#x}")
    return _RULES[cls]


def allocate(  # noqa: PLR0917 - the fields of the call
    machine: NvMachine, ctl_fd: int, root: int, parent: int, new: int, cls: int, address: int, size: int
) -> int:
    """Create an object and return its handle.

    `ctl_fd` is the descriptor of the call, `root` and `parent` are handles, and `new` is the handle of the
    object, 0 to choose one. `cls` is its class. `address` and `size` are those of its parameters in the
    caller's memory, to which the reply is written; 0 if there are none. Raises `RmRefused`, and `DriverError`
    where the sandbox checks the size.
    """
    if cls in (RmClass.NV01_ROOT, RmClass.NV01_ROOT_CLIENT):
        return _root(machine, ctl_fd, (root, parent, new), cls, address, size)
    client = machine.client(root, ctl_fd)
    above = client.objects.get(parent)
    gpu = machine.gpus[0] if above is None or above is client else above.gpu
    rule = _rule(machine, gpu.profile, cls)
    if above is None:
        raise RmRefused(NvStatus.INVALID_OBJECT_HANDLE, f"class {cls:#x}: there is no parent {parent:#x}")
    if type(above) is not rule.parent:
        raise RmRefused(
            NvStatus.INVALID_OBJECT_PARENT, f"class {cls:#x} goes under {rule.parent.__name__}, not {above}"
        )
    if new in client.objects:
        raise RmRefused(NvStatus.INVALID_OBJECT_HANDLE, f"handle {new:#x} is taken by {client.objects[new]}")
    block = _params(machine, rule, cls, address, size)
    if value := machine.rejections.refuses("object", gpu.profile, cls, block, above):
        raise RmRefused(NvStatus.NOT_SUPPORTED, f"class {cls:#x} with these parameters (quirk {value})")
    made = rule.make(machine, client, above, cls, new or machine.new_handle(client), block)
    insert(client, made, above)
    with ExitStack() as undo:
        undo.callback(machine.free, client, made)
        if block is not None:
            machine.user.write(address, block)
        undo.pop_all()
    return made.handle


def _root(  # noqa: PLR0917 - the fields of the call
    machine: NvMachine, ctl_fd: int, handles: tuple[int, int, int], cls: int, address: int, size: int
) -> int:
    """Create a client and return its handle; `handles` are `root`, `parent` and `new` of `allocate`."""
    if handles[0] or handles[1]:
        raise RmRefused(NvStatus.INVALID_OBJECT_PARENT, "a root has neither root nor parent: both must be 0")
    if handles[2] in machine.clients:
        raise RmRefused(NvStatus.INVALID_OBJECT_HANDLE, f"client {handles[2]:#x} exists")
    layout = ALLOC_STRUCTS[cls]
    if address and size not in (0, layout.SIZE):
        _wrong_size(machine, cls, layout, size)
    handle = handles[2] or machine.new_client_handle()
    client = Client(handle=handle, cls=cls, ctl_fd=ctl_fd)
    client.objects[handle] = client
    machine.clients[handle] = client
    return handle


def _wrong_size(machine: NvMachine, cls: int, layout: type[Struct], size: int) -> None:
    """Refuse parameters of a wrong size: with EINVAL in the sandbox, else with a status."""
    text = f"parameters of class {cls:#x}: {size} bytes, {layout.__name__} of this branch has {layout.SIZE}"
    machine.note(text)
    if machine.filtered:
        fail("ioctl", errno.EINVAL, text)
    raise RmRefused(NvStatus.INVALID_PARAM_STRUCT, text)


def _params(machine: NvMachine, rule: AllocationRule, cls: int, address: int, size: int) -> bytearray | None:
    """Return a copy of an object's parameters, or None if the caller gave none. Raises `RmRefused`."""
    if not rule.layout:
        if address or size:
            raise RmRefused(NvStatus.INVALID_PARAM_STRUCT, f"class {cls:#x} takes no parameters")
        return None
    layout = machine.structs[rule.layout]
    if size not in (0, layout.SIZE):
        _wrong_size(machine, cls, layout, size)
    if not address:
        if rule.required:
            raise wrong(f"class {cls:#x} needs {rule.layout}")
        return None
    return bytearray(machine.user.read(address, layout.SIZE))
