"""RM_ALLOC: the parent and the parameters that each class requires (nv.md 2.2 to 2.6).

Not here: what the objects do once made (`channel`, `uvm`, `controls`).
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
from emulator.nv.reports import Refused, page_fault
from emulator.nv.rm.alloc_channel import make_channel, make_ctxshare, make_engine, make_group
from emulator.nv.rm.alloc_memory import make_memory
from emulator.nv.rm.dma import make_virtual
from emulator.nv.rm.objects import (
    Channel,
    ChannelGroup,
    Client,
    Debugger,
    Device,
    EngineObject,
    Event,
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

    from emulator.nv.machine.machine import Machine
    from hcq.layout import Struct

Maker = "Callable[[Machine, Client, RmObject, int, int, bytearray | None], RmObject]"


@dataclass(frozen=True, slots=True)
class Rule:
    """The rules for the allocation of a class."""

    parent: type[RmObject]
    layout: str
    """Name of its parameters' structure; empty if it has none."""
    make: Callable[[Machine, Client, RmObject, int, int, bytearray | None], RmObject]
    required: bool = True
    """Whether the parameters are mandatory."""


def _device(
    machine: Machine, client: Client, _parent: RmObject, cls: int, handle: int, block: bytearray | None
) -> RmObject:
    params = NV0080_ALLOC_PARAMETERS.from_bytes(block or bytes(NV0080_ALLOC_PARAMETERS.SIZE))
    if params.deviceId != machine.device_instance:
        raise Refused(
            NvStatus.INVALID_ARGUMENT,
            f"there is no device instance {params.deviceId}, only {machine.device_instance}",
        )
    if params.hClientShare not in (0, client.handle):
        raise Refused(NvStatus.INVALID_OBJECT_HANDLE, f"hClientShare {params.hClientShare:#x} is no client")
    if params.replace(deviceId=0, hClientShare=0) != NV0080_ALLOC_PARAMETERS():
        raise Refused(NvStatus.INVALID_ARGUMENT, f"only deviceId and hClientShare are known: {params}")
    return Device(handle=handle, cls=cls)


def _subdevice(
    _machine: Machine, _client: Client, _parent: RmObject, cls: int, handle: int, block: bytearray | None
) -> RmObject:
    if block is not None and NV2080_ALLOC_PARAMETERS.from_bytes(block).subDeviceId:
        raise Refused(NvStatus.INVALID_ARGUMENT, "there is only subdevice 0")
    return Subdevice(handle=handle, cls=cls)


def _usermode(
    _machine: Machine, _client: Client, _parent: RmObject, cls: int, handle: int, block: bytearray | None
) -> RmObject:
    bar1 = False
    if block is not None:
        params = NV_HOPPER_USERMODE_A_PARAMS.from_bytes(block)
        if params.check():
            raise Refused(NvStatus.INVALID_ARGUMENT, str(params.check()[0]))
        if params.bPriv:
            raise Refused(NvStatus.INSUFFICIENT_PERMISSIONS, "bPriv requests the privileged page")
        bar1 = params.bBar1Mapping
    return Usermode(handle=handle, cls=cls, bar1=bar1)


def _vaspace(
    machine: Machine, _client: Client, _parent: RmObject, cls: int, handle: int, block: bytearray | None
) -> RmObject:
    layout = machine.structs["NV_VASPACE_ALLOCATION_PARAMETERS"]
    # All branches have the same first fields; later ones append.
    params = NV_VASPACE_ALLOCATION_PARAMETERS.from_bytes(
        bytes(block or bytes(layout.SIZE)).ljust(NV_VASPACE_ALLOCATION_PARAMETERS.SIZE, b"\0")
    )
    known = int(VaspaceFlags.IS_EXTERNALLY_OWNED | VaspaceFlags.ENABLE_PAGE_FAULTING)
    if params.flags & ~known:
        raise Refused(NvStatus.INVALID_FLAGS, f"vaspace flags {params.flags:#x}: {known:#x} are known")
    if params.index or params.vaStartInternal or params.vaLimitInternal or params.bigPageSize or params.pasid:
        raise Refused(
            NvStatus.INVALID_ARGUMENT, f"only index GPU_NEW, flags, vaBase, vaSize are known: {params}"
        )
    if params.vaBase + params.vaSize > 1 << machine.profile.space_bits:
        raise Refused(
            NvStatus.INVALID_ARGUMENT, f"the address space ends above {machine.profile.space_bits} bits"
        )
    return VaSpaceObject(
        handle=handle,
        cls=cls,
        space=VaSpace(machine.profile.va_bits, page_fault),
        externally_owned=bool(params.flags & VaspaceFlags.IS_EXTERNALLY_OWNED),
    )


def _debugger(
    machine: Machine, client: Client, _parent: RmObject, cls: int, handle: int, block: bytearray | None
) -> RmObject:
    params = NV83DE_ALLOC_PARAMETERS.from_bytes(block or b"")
    if params.hDebuggerClient_Obsolete:
        raise Refused(NvStatus.INVALID_ARGUMENT, "hDebuggerClient_Obsolete must be 0")
    if params.hAppClient != client.handle:
        raise Refused(NvStatus.INVALID_OBJECT_HANDLE, f"hAppClient {params.hAppClient:#x} is not this client")
    target = client.objects.get(params.hClass3dObject)
    if target is None:
        raise Refused(
            NvStatus.INVALID_OBJECT_PARENT, f"hClass3dObject {params.hClass3dObject:#x} is no object"
        )
    if not isinstance(target, EngineObject) or target.cls != machine.profile.generation.compute:
        raise Refused(NvStatus.INVALID_OBJECT, f"hClass3dObject {target} is no compute object")
    return Debugger(handle=handle, cls=cls, target=target)


def _event(  # noqa: PLR0917 - the signature of all makers
    machine: Machine, client: Client, parent: RmObject, cls: int, handle: int, block: bytearray | None
) -> RmObject:
    params = NV0005_ALLOC_PARAMETERS.from_bytes(block or b"")
    if params.hParentClient not in (0, client.handle) or params.hClass != RmClass.NV01_EVENT_OS_EVENT:
        raise Refused(NvStatus.INVALID_ARGUMENT, f"hParentClient or hClass is wrong: {params}")
    source = find(client, params.hSrcResource, Subdevice, "hSrcResource")
    if source is not parent:
        raise Refused(NvStatus.INVALID_OBJECT_PARENT, "the event's source is not its parent")
    fd = params.data & 0xFFFF_FFFF
    if (client.handle, fd) not in machine.os_events:
        raise Refused(
            NvStatus.OBJECT_NOT_FOUND, f"descriptor {fd} is no OS event: ALLOC_OS_EVENT comes first"
        )
    return Event(handle=handle, cls=cls, subdevice=source, index=params.notifyIndex & 0xFFFF, fd=fd)


_RULES: Final[dict[int, Rule]] = {
    RmClass.NV01_DEVICE_0: Rule(Client, "NV0080_ALLOC_PARAMETERS", _device, required=False),
    RmClass.NV20_SUBDEVICE_0: Rule(Device, "NV2080_ALLOC_PARAMETERS", _subdevice, required=False),
    RmClass.FERMI_VASPACE_A: Rule(Device, "NV_VASPACE_ALLOCATION_PARAMETERS", _vaspace),
    RmClass.NV01_MEMORY_LOCAL_USER: Rule(Device, "NV_MEMORY_ALLOCATION_PARAMS", make_memory),
    RmClass.NV01_MEMORY_SYSTEM: Rule(Device, "NV_MEMORY_ALLOCATION_PARAMS", make_memory),
    RmClass.NV01_MEMORY_VIRTUAL: Rule(Device, "NV_MEMORY_VIRTUAL_ALLOCATION_PARAMS", make_virtual),
    RmClass.KEPLER_CHANNEL_GROUP_A: Rule(Device, "NV_CHANNEL_GROUP_ALLOCATION_PARAMETERS", make_group),
    RmClass.FERMI_CONTEXT_SHARE_A: Rule(ChannelGroup, "NV_CTXSHARE_ALLOCATION_PARAMETERS", make_ctxshare),
    RmClass.GT200_DEBUGGER: Rule(Device, "NV83DE_ALLOC_PARAMETERS", _debugger),
    RmClass.NV01_EVENT_OS_EVENT: Rule(Subdevice, "NV0005_ALLOC_PARAMETERS", _event),
}


def _rule(machine: Machine, cls: int) -> Rule:
    row = machine.profile.generation
    if machine.filtered and cls in SANDBOX_REFUSES_CLASSES:
        raise Refused(NvStatus.INVALID_CLASS, f"the sandbox does not list class {cls:#x}")
    if cls in machine.profile.channels:
        return Rule(ChannelGroup, NV_CHANNEL_ALLOC_PARAMS.__name__, make_channel)
    if cls in machine.profile.doorbells:
        with_params = cls >= USERMODE_WITH_PARAMS
        return Rule(
            Subdevice, NV_HOPPER_USERMODE_A_PARAMS.__name__ if with_params else "", _usermode, required=False
        )
    if cls == row.compute:
        return Rule(Channel, NV_GR_ALLOCATION_PARAMETERS.__name__, make_engine, required=False)
    if cls in row.copy:
        return Rule(Channel, NVB0B5_ALLOCATION_PARAMETERS.__name__, make_engine, required=False)
    if cls not in _RULES or cls not in machine.profile.classes:
        raise Refused(NvStatus.INVALID_CLASS, f"{machine.profile.gpu_name} has no class {cls:#x}")
    return _RULES[cls]


def allocate(  # noqa: PLR0917 - the fields of the call
    machine: Machine, ctl_fd: int, root: int, parent: int, new: int, cls: int, address: int, size: int
) -> int:
    """Make an object and return its handle; `address` and `size` are its parameters in.

    the caller's memory.
    """
    if cls in (RmClass.NV01_ROOT, RmClass.NV01_ROOT_CLIENT):
        return _root(machine, ctl_fd, (root, parent, new), cls, address, size)
    client = machine.client(root, ctl_fd)
    rule = _rule(machine, cls)
    above = client.objects.get(parent)
    if above is None:
        raise Refused(NvStatus.INVALID_OBJECT_HANDLE, f"class {cls:#x}: there is no parent {parent:#x}")
    if type(above) is not rule.parent:
        raise Refused(
            NvStatus.INVALID_OBJECT_PARENT, f"class {cls:#x} goes under {rule.parent.__name__}, not {above}"
        )
    if new in client.objects:
        raise Refused(NvStatus.INVALID_OBJECT_HANDLE, f"handle {new:#x} is taken by {client.objects[new]}")
    block = _params(machine, rule, cls, address, size)
    if value := machine.other.refuses("object", machine.profile, cls, block, above):
        raise Refused(NvStatus.NOT_SUPPORTED, f"class {cls:#x} with these parameters (doubt {value})")
    made = rule.make(machine, client, above, cls, new or machine.new_handle(client), block)
    insert(client, made, above)
    with ExitStack() as undo:
        undo.callback(machine.free, client, made)
        if block is not None:
            machine.user.write(address, block)
        undo.pop_all()
    return made.handle


def _root(  # noqa: PLR0917 - the fields of the call
    machine: Machine, ctl_fd: int, handles: tuple[int, int, int], cls: int, address: int, size: int
) -> int:
    if handles[0] or handles[1]:
        raise Refused(NvStatus.INVALID_OBJECT_PARENT, "a root has neither root nor parent: hand over zeros")
    if handles[2] in machine.clients:
        raise Refused(NvStatus.INVALID_OBJECT_HANDLE, f"client {handles[2]:#x} exists")
    layout = ALLOC_STRUCTS[cls]
    if address and size not in (0, layout.SIZE):
        _wrong_size(machine, cls, layout, size)
    handle = handles[2] or machine.new_client_handle()
    client = Client(handle=handle, cls=cls, ctl_fd=ctl_fd)
    client.objects[handle] = client
    machine.clients[handle] = client
    return handle


def _wrong_size(machine: Machine, cls: int, layout: type[Struct], size: int) -> None:
    text = f"parameters of class {cls:#x}: {size} bytes, {layout.__name__} of this branch has {layout.SIZE}"
    machine.note(text)
    if machine.filtered:
        fail("ioctl", errno.EINVAL, text)
    raise Refused(NvStatus.INVALID_PARAM_STRUCT, text)


def _params(machine: Machine, rule: Rule, cls: int, address: int, size: int) -> bytearray | None:
    if not rule.layout:
        if address or size:
            raise Refused(NvStatus.INVALID_PARAM_STRUCT, f"class {cls:#x} takes no parameters")
        return None
    layout = machine.structs[rule.layout]
    if size not in (0, layout.SIZE):
        _wrong_size(machine, cls, layout, size)
    if not address:
        if rule.required:
            raise Refused(NvStatus.INVALID_ARGUMENT, f"class {cls:#x} needs {rule.layout}")
        return None
    return bytearray(machine.user.read(address, layout.SIZE))
