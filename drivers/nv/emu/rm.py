"""The emulated resource manager: RM_ALLOC, RM_FREE, RM_CONTROL, memory mapping, with the checks and statuses of the real one.

Sources: nv.md 1, 2 and 7. What a compute-only sandbox does not pass is refused the way the sandbox refuses
it.
"""

# ruff: noqa: E501, PLR0917 - helpers mirror the functions they write, argument for argument

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any

from drivers.nv.emu import objects as o
from drivers.nv.emu.channel import Channel
from drivers.nv.emu.objects import Refusal
from drivers.nv.emu.rm_controls import Controls
from drivers.nv.layouts.families import USERMODE_WITH_PARAMS
from drivers.nv.layouts.fault import NOTIFIER_ENTRIES, NvNotification
from drivers.nv.layouts.rm_classes import (
    ALLOC_STRUCTS,
    COPY_ALLOCATION_VERSION,
    GR_ALLOCATION_VERSION,
    NV_CHANNEL_ALLOC_PARAMS,
    NV_GR_ALLOCATION_PARAMETERS,
    NV_HOPPER_USERMODE_A_PARAMS,
    NVB0B5_ALLOCATION_PARAMETERS,
    USERD_BYTES,
    EngineType,
    Location,
    MemAttr,
    MemAttr2,
    MemType,
    OsDescriptorFlags,
    RmClass,
    VaspaceFlags,
    copy_engine,
)
from drivers.nv.layouts.status import NvStatus

if TYPE_CHECKING:
    from drivers.nv.emu.gpu import Gpu
    from drivers.nv.emu.profile import Profile

_PAGE = 4096
_HUGE = 2 << 20
_MEM_FLAGS = 0x1 | 0x100 | 0x4000 | 0x8000 | 0x10000
_COPY_ENGINES = 4
"""Copy engines of the emulated GPU; the first shares the graphics run list."""
_PARENTS: dict[int, tuple[int, ...]] = {
    RmClass.NV01_DEVICE_0: (RmClass.NV01_ROOT_CLIENT,), RmClass.NV20_SUBDEVICE_0: (RmClass.NV01_DEVICE_0,),
    RmClass.FERMI_VASPACE_A: (RmClass.NV01_DEVICE_0,), RmClass.NV01_MEMORY_LOCAL_USER: (RmClass.NV01_DEVICE_0,),
    RmClass.NV01_MEMORY_SYSTEM: (RmClass.NV01_DEVICE_0,), RmClass.KEPLER_CHANNEL_GROUP_A: (RmClass.NV01_DEVICE_0,),
    RmClass.FERMI_CONTEXT_SHARE_A: (RmClass.KEPLER_CHANNEL_GROUP_A,), RmClass.GT200_DEBUGGER: (RmClass.NV01_DEVICE_0,),
    RmClass.NV01_EVENT_OS_EVENT: (RmClass.NV20_SUBDEVICE_0,),
}  # fmt: skip
_FILTERED_CLASSES = {0x70, 0xC561, 0xC361}


class ResourceManager:
    """One emulated kernel module's view of its clients and of one GPU."""

    def __init__(self, profile: Profile, gpu: Gpu) -> None:
        self.profile = profile
        self.gpu = gpu
        self.handles = o.Handles()
        self.controls = Controls(self)

    # ---- allocation

    def alloc(self, root: int, parent: int, new: int, cls: int, address: int, size: int) -> int:
        """RM_ALLOC: returns the new object's handle."""
        if cls in (RmClass.NV01_ROOT, RmClass.NV01_ROOT_CLIENT):
            if root != parent or parent != new:
                raise Refusal(
                    NvStatus.INVALID_OBJECT_PARENT, "a root client has itself as root, parent and handle"
                )
            return self.handles.new_client(new).handle
        above = self.handles.get(root, parent)
        layout = self._layout(cls)
        values = self._read(cls, layout, address, size)
        made = self._make(root, above, new, cls, values)
        if layout is not None and values is not None and isinstance(made, o.ContextShare):
            ctypes.memmove(address, values.replace(subctxId=made.number).to_bytes(), layout.SIZE)
        return self.handles.add(made).handle

    def _layout(self, cls: int) -> Any:
        """Return the parameters of a class at this branch, or None for those that take none."""
        if cls not in self.profile.classes or (self.profile.filtered and cls in _FILTERED_CLASSES):
            raise Refusal(NvStatus.INVALID_CLASS, f"class {cls:#x} is not on this GPU or not let through")
        row = self.profile.generation
        if cls in row.gpfifo:
            return NV_CHANNEL_ALLOC_PARAMS
        if cls == row.compute:
            return NV_GR_ALLOCATION_PARAMETERS
        if cls in row.copy:
            return NVB0B5_ALLOCATION_PARAMETERS
        if cls in row.usermode:
            return NV_HOPPER_USERMODE_A_PARAMS if cls >= USERMODE_WITH_PARAMS else None
        if cls == RmClass.NV01_MEMORY_SYSTEM_OS_DESCRIPTOR:
            raise Refusal(NvStatus.INVALID_CLASS, "OS descriptors are made by NV_ESC_RM_ALLOC_MEMORY")
        return self.profile.layout(ALLOC_STRUCTS[cls].__name__)

    def _read(self, cls: int, layout: Any, address: int, size: int) -> Any:
        if layout is None:
            if address or size:
                raise Refusal(NvStatus.INVALID_PARAM_STRUCT, f"class {cls:#x} takes no parameters")
            return None
        if address == 0:
            return None
        if size not in (0, layout.SIZE):
            raise Refusal(
                NvStatus.INVALID_PARAM_STRUCT,
                f"{layout.__name__} is {layout.SIZE} bytes here, paramsSize is {size}",
            )
        values = layout.from_bytes(ctypes.string_at(address, layout.SIZE))
        for violation in values.check():
            raise Refusal(NvStatus.INVALID_ARGUMENT, str(violation))
        return values

    def _make(self, client: int, parent: o.RmObject, handle: int, cls: int, values: Any) -> o.RmObject:
        row = self.profile.generation
        wanted = _PARENTS.get(cls)
        if wanted is not None and parent.cls not in wanted:
            raise Refusal(NvStatus.INVALID_OBJECT_PARENT, f"class {cls:#x} under class {parent.cls:#x}")
        if values is None and cls not in (row.compute, *row.copy, *row.usermode, RmClass.NV20_SUBDEVICE_0):
            raise Refusal(NvStatus.INVALID_ARGUMENT, f"class {cls:#x} needs parameters")
        if cls in (RmClass.NV01_MEMORY_LOCAL_USER, RmClass.NV01_MEMORY_SYSTEM):
            return self._memory(client, parent, handle, cls, values)
        if cls == RmClass.FERMI_VASPACE_A:
            return self._vaspace(client, parent, handle, values)
        if cls == RmClass.KEPLER_CHANNEL_GROUP_A:
            return self._group(client, parent, handle, values)
        if cls == RmClass.FERMI_CONTEXT_SHARE_A:
            vaspace = self.handles.find(client, values.hVASpace, o.VaSpace)
            assert isinstance(vaspace, o.VaSpace)
            return o.ContextShare(
                handle, cls, parent, client, vaspace=vaspace, number=1 if values.flags == 1 else 0
            )
        if cls in row.gpfifo:
            return self._channel(client, parent, handle, cls, values)
        if cls == row.compute or cls in row.copy:
            return self._engine(client, parent, handle, cls, values)
        if cls in row.usermode:
            return self._usermode(client, parent, handle, cls, values)
        if cls == RmClass.NV01_DEVICE_0 and values.deviceId != 0:
            raise Refusal(NvStatus.INVALID_ARGUMENT, f"there is no device {values.deviceId}")
        if cls == RmClass.NV20_SUBDEVICE_0 and values is not None and values.subDeviceId != 0:
            raise Refusal(NvStatus.INVALID_ARGUMENT, f"there is no subdevice {values.subDeviceId}")
        if cls == RmClass.GT200_DEBUGGER:
            target = self.handles.get(client, values.hClass3dObject)
            if target.cls != row.compute:
                raise Refusal(NvStatus.INVALID_OBJECT, "a debugger looks at a compute object")
            return o.Debugger(handle, cls, parent, client, target=target)
        return o.RmObject(handle, cls, parent, client)

    def _memory(self, client: int, parent: o.RmObject, handle: int, cls: int, values: Any) -> o.RmObject:
        attr, attr2 = MemAttr.from_int(values.attr), MemAttr2.from_int(values.attr2)
        for violation in (*attr.check(), *attr2.check()):
            raise Refusal(NvStatus.INVALID_ARGUMENT, str(violation))
        if values.flags & ~_MEM_FLAGS:
            raise Refusal(NvStatus.INVALID_FLAGS, f"memory flags {values.flags:#x}")
        system = cls == RmClass.NV01_MEMORY_SYSTEM
        if system != (attr.LOCATION == Location.PCI) or values.type not in (MemType.IMAGE, MemType.NOTIFIER):
            raise Refusal(
                NvStatus.INVALID_ARGUMENT, f"location {attr.LOCATION!r}, type {values.type} in class {cls:#x}"
            )
        unit = _HUGE if attr2.PAGE_SIZE_HUGE == 1 else _PAGE
        if (
            values.size == 0
            or values.size % unit
            or (values.alignment and values.alignment & (values.alignment - 1))
        ):
            raise Refusal(
                NvStatus.INVALID_ARGUMENT,
                f"size {values.size:#x}, alignment {values.alignment:#x}, page {unit:#x}",
            )
        memory = o.Memory(
            handle, cls, parent, client, size=values.size, kind="sysmem" if system else "vidmem"
        )
        if not system:
            self.gpu.take_vram(values.size)
        memory.back()
        return memory

    def alloc_os_descriptor(self, values: Any) -> int:
        """NV_ESC_RM_ALLOC_MEMORY: describe the caller's own pages."""
        if values.hClass != RmClass.NV01_MEMORY_SYSTEM_OS_DESCRIPTOR:
            raise Refusal(NvStatus.INVALID_CLASS, f"class {values.hClass:#x} is not made this way here")
        flags = OsDescriptorFlags.from_int(values.flags)
        for violation in flags.check():
            raise Refusal(NvStatus.INVALID_FLAGS, str(violation))
        if (
            values.pMemory == 0
            or values.pMemory % _PAGE
            or (values.limit + 1) % _PAGE
            or flags.PHYSICALITY != 1
        ):
            raise Refusal(
                NvStatus.INVALID_ARGUMENT, f"pages at {values.pMemory:#x}, limit {values.limit:#x}, {flags!r}"
            )
        parent = self.handles.get(values.hRoot, values.hObjectParent)
        if parent.cls != RmClass.NV01_DEVICE_0:
            raise Refusal(NvStatus.INVALID_OBJECT_PARENT, "memory lies under a device")
        memory = o.Memory(
            values.hObjectNew,
            values.hClass,
            parent,
            values.hRoot,
            size=values.limit + 1,
            host=values.pMemory,
            kind="user pages",
        )
        return self.handles.add(memory).handle

    def _vaspace(self, client: int, parent: o.RmObject, handle: int, values: Any) -> o.RmObject:
        known = VaspaceFlags.IS_EXTERNALLY_OWNED | VaspaceFlags.ENABLE_PAGE_FAULTING
        if values.index != 0 or values.flags & ~known:
            raise Refusal(NvStatus.INVALID_ARGUMENT, f"index {values.index}, flags {values.flags:#x}")
        return o.VaSpace(
            handle,
            RmClass.FERMI_VASPACE_A,
            parent,
            client,
            external=bool(values.flags & VaspaceFlags.IS_EXTERNALLY_OWNED),
        )

    def engine_types(self) -> set[int]:
        """Return the engine types that channels can have."""
        return {EngineType.GR0, *(copy_engine(i) for i in range(_COPY_ENGINES))}

    def _group(self, client: int, parent: o.RmObject, handle: int, values: Any) -> o.RmObject:
        if values.engineType not in self.engine_types():
            raise Refusal(NvStatus.INVALID_ARGUMENT, f"no engine of type {values.engineType:#x}")
        vaspace = self.handles.find(client, values.hVASpace, o.VaSpace) if values.hVASpace else None
        assert vaspace is None or isinstance(vaspace, o.VaSpace)
        return o.Group(
            handle, RmClass.KEPLER_CHANNEL_GROUP_A, parent, client, engine=values.engineType, vaspace=vaspace
        )

    def _channel(self, client: int, parent: o.RmObject, handle: int, cls: int, values: Any) -> o.RmObject:
        if not isinstance(parent, o.Group):
            raise Refusal(NvStatus.INVALID_OBJECT_PARENT, "a channel lies under a channel group")
        if values.hVASpace:
            raise Refusal(NvStatus.INVALID_ARGUMENT, "hVASpace must be 0 under a channel group")
        vaspace = parent.vaspace
        if values.hContextShare:
            share = self.handles.find(client, values.hContextShare, o.ContextShare)
            assert isinstance(share, o.ContextShare)
            if share.parent is not parent:
                raise Refusal(NvStatus.INVALID_OBJECT_PARENT, "the context share belongs to another group")
            vaspace = share.vaspace
        if vaspace is None:
            raise Refusal(
                NvStatus.INVALID_ARGUMENT, "neither the group nor a context share names an address space"
            )
        if values.engineType not in (0, parent.engine):
            raise Refusal(
                NvStatus.INVALID_ARGUMENT,
                f"engine type {values.engineType:#x} in a group of {parent.engine:#x}",
            )
        entries = values.gpFifoEntries
        if entries < 2 or entries & (entries - 1):
            raise Refusal(NvStatus.INVALID_ARGUMENT, f"{entries} ring entries")
        if vaspace.space.find(values.gpFifoOffset, 8 * entries) is None:
            raise Refusal(NvStatus.INVALID_ADDRESS, f"the ring at {values.gpFifoOffset:#x} is not mapped")
        userd = self.handles.find(client, values.hUserdMemory[0], o.Memory)
        assert isinstance(userd, o.Memory)
        at = values.userdOffset[0]
        if at % USERD_BYTES or at + USERD_BYTES > userd.size:
            raise Refusal(NvStatus.INVALID_ARGUMENT, f"user area at {at:#x} of {userd.size:#x} bytes")
        notifier = self.handles.find(client, values.hObjectError, o.Memory) if values.hObjectError else None
        assert notifier is None or isinstance(notifier, o.Memory)
        if notifier is not None and notifier.size < NOTIFIER_ENTRIES * NvNotification.SIZE:
            raise Refusal(NvStatus.INVALID_ARGUMENT, f"a notifier of {notifier.size} bytes")
        for name in ("cid", "subDeviceId", "hPhysChannelGroup", "internalFlags", "tpcConfigID"):
            if getattr(values, name):
                raise Refusal(NvStatus.INVALID_ARGUMENT, f"{name} must be 0")
        channel = Channel(
            self.gpu,
            vaspace.space,
            ring=values.gpFifoOffset,
            entries=entries,
            userd=userd.host + at,
            notifier=notifier.host if notifier else 0,
            engine=parent.engine,
            cls=cls,
        )
        self.gpu.add(channel)
        return o.ChannelObject(handle, cls, parent, client, channel=channel)

    def _engine(self, client: int, parent: o.RmObject, handle: int, cls: int, values: Any) -> o.RmObject:
        if not isinstance(parent, o.ChannelObject) or parent.channel is None:
            raise Refusal(NvStatus.INVALID_OBJECT_PARENT, "an engine object lies under a channel")
        graphics = parent.channel.engine == EngineType.GR0
        if cls == self.profile.generation.compute:
            if not graphics:
                raise Refusal(NvStatus.INVALID_CLASS, "a compute object on a copy channel")
            if values is not None and (values.version, values.size) != (GR_ALLOCATION_VERSION, values.SIZE):
                raise Refusal(NvStatus.INVALID_ARGUMENT, f"{values!r}")
        elif values is None and not graphics:
            raise Refusal(
                NvStatus.INVALID_ARGUMENT, "a copy object without parameters takes the graphics copy engine"
            )
        elif values is not None and (
            values.version != COPY_ALLOCATION_VERSION or values.engineType != parent.channel.engine
        ):
            raise Refusal(
                NvStatus.INVALID_ARGUMENT, f"{values!r} on a channel of engine {parent.channel.engine:#x}"
            )
        parent.channel.classes.add(cls)
        return o.RmObject(handle, cls, parent, client)

    def _usermode(self, client: int, parent: o.RmObject, handle: int, cls: int, values: Any) -> o.RmObject:
        if parent.cls != RmClass.NV20_SUBDEVICE_0:
            raise Refusal(NvStatus.INVALID_OBJECT_PARENT, "the doorbell page lies under the subdevice")
        if values is not None and values.bPriv:
            raise Refusal(
                NvStatus.INSUFFICIENT_PERMISSIONS, "a privileged doorbell page needs the kernel's rights"
            )
        return o.RmObject(handle, cls, parent, client)

    # ---- the rest

    def free(self, root: int, parent: int, old: int) -> None:
        """RM_FREE: free an object and everything below it."""
        item = self.handles.get(root, old)
        above = item.parent.handle if item.parent else old
        if parent not in (above, 0) and old != root:
            raise Refusal(NvStatus.INVALID_OBJECT_PARENT, f"{old:#x} lies under {above:#x}, not {parent:#x}")
        for memory in _memories(item):
            self.gpu.give_vram(memory.size)
        self.handles.free(root, old)

    def control(self, client: int, handle: int, cmd: int, flags: int, address: int, size: int) -> None:
        """RM_CONTROL: answer in place."""
        if flags:
            raise Refusal(NvStatus.INVALID_FLAGS, f"control flags {flags:#x}")
        self.controls.run(self.handles.get(client, handle), cmd, address, size)

    def mappable(self, client: int, device: int, handle: int, offset: int, length: int) -> o.RmObject:
        """RM_MAP_MEMORY: return what would be mapped, or refuse."""
        above = self.handles.get(client, device)
        item = self.handles.get(client, handle)
        if item.cls in self.profile.generation.usermode:
            if above is not item.parent:
                raise Refusal(
                    NvStatus.INVALID_OBJECT_PARENT, "the doorbell page is mapped through its subdevice"
                )
            return item
        if not isinstance(item, o.Memory) or item.fd < 0:
            raise Refusal(
                NvStatus.INVALID_OBJECT, f"object {handle:#x} of class {item.cls:#x} cannot be mapped"
            )
        if above.cls not in (RmClass.NV01_DEVICE_0, RmClass.NV20_SUBDEVICE_0):
            raise Refusal(NvStatus.INVALID_OBJECT_PARENT, "memory is mapped through a device or subdevice")
        if length == 0 or offset % _PAGE or offset + length > item.size:
            raise Refusal(
                NvStatus.INVALID_ARGUMENT, f"[{offset:#x}, {offset + length:#x}) of {item.size:#x} bytes"
            )
        return item


def _memories(item: o.RmObject) -> list[o.Memory]:
    found = [item] if isinstance(item, o.Memory) and item.kind == "vidmem" else []
    for child in item.children:
        found += _memories(child)
    return found
