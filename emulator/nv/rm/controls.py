"""RM_CONTROL: the reply to each control (nv.md 1.6, 2.7, 6.2).

The functions in `_ANSWERS` have the parameters of `control`, except the number: they change `block`, whose
structure is `kind` in the driver's branch, and raise `RmRefused`.

Not here: the check of the parameters' size and of the sandbox's list (`ioctls`), controls of channels
(`controls_channel`). Next: `controls_channel`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from drivers.nv.layouts import controls as layout
from drivers.nv.layouts.controls import Control, FbInfo, GrInfo
from drivers.nv.layouts.debugger import MAX_SMS_PER_READ
from drivers.nv.layouts.rm_classes import EngineType
from drivers.nv.layouts.status import NvStatus
from emulator.nv.profiles import MAX_WARPS_PER_SM, SMS_PER_TPC
from emulator.nv.reports import RmRefused
from emulator.nv.rm.controls_channel import CHANNEL_CONTROLS
from emulator.nv.rm.objects import (
    ChannelGroup,
    Client,
    Debugger,
    RmChannel,
    RmDevice,
    RmEvent,
    RmObject,
    Subdevice,
    find,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from emulator.nv.machine.machine import NvMachine
    from hcq.layout import Struct

    Answer = Callable[[NvMachine, Client, Any, type[Struct], bytearray], None]

_WRONG = NvStatus.INVALID_ARGUMENT
_OWNERS: Final[dict[int, type[RmObject]]] = {
    0x0000: Client,
    0x0080: RmDevice,
    0x2080: Subdevice,
    0x83DE: Debugger,
    0x906F: RmChannel,
    0xA06C: ChannelGroup,
    0xA06F: RmChannel,
    0xC36F: RmChannel,
}
"""Upper half of a control's number, which is a class -> the objects that have the control."""
_L2_KIB = 51200
"""The size of the second-level cache in the reply to a query, the same for all GPUs."""
_GPU_SLI_NONE = 0
_BOOSTS = (layout.PERF_BOOST_TO_MAX_CUDA, layout.PERF_BOOST_TO_MAX_CUDA_PRIORITY_HIGH)
"""The flags of PERF_BOOST that are known."""


def control(  # noqa: PLR0917 - the parts of a control
    machine: NvMachine,
    client: Client,
    target: RmObject,
    number: Control,
    kind: type[Struct],
    block: bytearray,
) -> None:
    """Execute a control of an object; `block` has its parameters and receives the reply.

    `kind` is their structure, and `target` is an object that `check_owner` allows. Raises `RmRefused`.
    """
    _ANSWERS[number](machine, client, target, kind, block)


def check_owner(target: RmObject, number: Control) -> None:
    """Raise `RmRefused` (NOT_SUPPORTED) if the object's class does not have the control (nv.md 1.3)."""
    owner = _OWNERS[number >> 16]
    if type(target) is not owner:
        raise RmRefused(NvStatus.NOT_SUPPORTED, f"{number.name} goes to a {owner.__name__}, not to {target}")


def _build_version(
    machine: NvMachine, _client: Client, _target: Client, kind: type[Struct], block: bytearray
) -> None:
    params = layout.NV0000_CTRL_SYSTEM_GET_BUILD_VERSION_PARAMS.from_bytes(block)
    texts = (machine.version, "rel/emulated", "NVIDIA UNIX Open Kernel Module (emulated)")
    for address, text in zip(
        (params.pDriverVersionBuffer, params.pVersionBuffer, params.pTitleBuffer), texts, strict=True
    ):
        if address == 0 or len(text) >= params.sizeOfStrings:
            raise RmRefused(_WRONG, f"a buffer of {params.sizeOfStrings} bytes at {address:#x} for {text!r}")
        machine.user.write(address, text.encode() + b"\0")
    kind.store(block, changelistNumber=0, officialChangelistNumber=0)


def _build_version_2(
    machine: NvMachine, _client: Client, _target: Client, kind: type[Struct], block: bytearray
) -> None:
    kind.store(
        block,
        driverVersionBuffer=machine.version,
        versionBuffer="rel/emulated",
        driverBranch=f"r{machine.branch}_00",
        titleBuffer="NVIDIA UNIX Open Kernel Module (emulated)",
    )


def _gpu_ids(
    machine: NvMachine, _client: Client, _target: Client, kind: type[Struct], block: bytearray
) -> None:
    for name in kind.FIELDS:
        fill = 0 if name == "gpuFlags" else 0xFFFF_FFFF
        first = machine.gpu_id if name == "gpuIds" else fill
        kind.store(block, **{name: (first, *[fill] * 31)})


def _id_info(
    machine: NvMachine, _client: Client, _target: Client, kind: type[Struct], block: bytearray
) -> None:
    params = layout.NV0000_CTRL_GPU_GET_ID_INFO_V2_PARAMS.from_bytes(block)
    if params.gpuId != machine.gpu_id:
        raise RmRefused(_WRONG, f"there is no GPU {params.gpuId:#x}, only {machine.gpu_id:#x}")
    kind.store(
        block,
        gpuFlags=0,
        deviceInstance=machine.device_instance,
        subDeviceInstance=0,
        sliStatus=_GPU_SLI_NONE,
        boardId=machine.gpu_id,
        gpuInstance=0,
        numaId=0xFFFF_FFFF,
    )


def _class_list(
    machine: NvMachine, _client: Client, _target: RmDevice, kind: type[Struct], block: bytearray
) -> None:
    params = layout.NV0080_CTRL_GPU_GET_CLASSLIST_PARAMS.from_bytes(block)
    classes = machine.profile.classes
    if params.classList:
        if params.numClasses < len(classes):
            raise RmRefused(_WRONG, f"room for {params.numClasses} classes, there are {len(classes)}")
        machine.user.write(params.classList, b"".join(one.to_bytes(4, "little") for one in classes))
    kind.store(block, numClasses=len(classes))


def _class_list_2(
    machine: NvMachine, _client: Client, _target: RmDevice, kind: type[Struct], block: bytearray
) -> None:
    kind.store(block, numClasses=len(machine.profile.classes), classList=machine.profile.classes)


def _name(
    machine: NvMachine, _client: Client, _target: Subdevice, kind: type[Struct], block: bytearray
) -> None:
    params = layout.NV2080_CTRL_GPU_GET_NAME_STRING_PARAMS.from_bytes(bytes(block).ljust(132, b"\0"))
    if params.gpuNameStringFlags:
        raise RmRefused(_WRONG, "only the ASCII name is known (flags 0)")
    kind.store(block, gpuNameString=machine.profile.gpu_name)


def _gid(
    machine: NvMachine, _client: Client, _target: Subdevice, kind: type[Struct], block: bytearray
) -> None:
    params = layout.NV2080_CTRL_GPU_GET_GID_INFO_PARAMS.from_bytes(block)
    if params.index or params.flags != layout.GID_BINARY_SHA1:
        raise RmRefused(
            _WRONG, f"index {params.index}, flags {params.flags}: only the binary SHA1 id is known"
        )
    kind.store(block, length=layout.GID_BYTES, data=machine.uuid)


def _set_notification(
    _machine: NvMachine, _client: Client, target: Subdevice, _kind: type[Struct], block: bytearray
) -> None:
    params = layout.NV2080_CTRL_EVENT_SET_NOTIFICATION_PARAMS.from_bytes(block)
    if params.event not in (layout.EVENT_RC_ERROR, layout.EVENT_FIFO_MTHD, layout.EVENT_GR_DEBUG_INTR):
        raise RmRefused(_WRONG, f"event {params.event} is not known")
    if params.action > layout.EVENT_ACTION_REPEAT:
        raise RmRefused(_WRONG, f"action {params.action} is not known")
    if not any(isinstance(child, RmEvent) for child in target.children):
        raise RmRefused(NvStatus.INVALID_STATE, f"{target} has no event: the event object comes first")
    if params.action and target.notifications.get(params.event):
        raise RmRefused(NvStatus.INVALID_STATE, f"event {params.event} is on already: it is disabled first")
    target.notifications[params.event] = params.action


def _route(block: bytearray, at: int) -> None:
    """Raise `RmRefused` if the route at offset `at` is not zero."""
    if any(block[at : at + layout.NV2080_CTRL_GR_ROUTE_INFO.SIZE]):
        raise RmRefused(_WRONG, "a route is for MIG only")


def _gr_info(
    machine: NvMachine, _client: Client, _target: Subdevice, kind: type[Struct], block: bytearray
) -> None:
    params = layout.NV2080_CTRL_GR_GET_INFO_PARAMS.from_bytes(block)
    _route(block, kind.offset_of("grRouteInfo"))
    one = machine.profile
    known = {
        GrInfo.SHADER_PIPE_COUNT: one.gpcs,
        GrInfo.SM_VERSION: one.generation.sm_version,
        GrInfo.MAX_WARPS_PER_SM: MAX_WARPS_PER_SM,
        GrInfo.LITTER_NUM_GPCS: one.gpcs,
        GrInfo.LITTER_NUM_TPC_PER_GPC: one.tpcs_per_gpc,
        GrInfo.LITTER_NUM_SM_PER_TPC: SMS_PER_TPC,
    }
    entry = layout.NV2080_CTRL_GR_INFO
    for i in range(params.grInfoListSize):
        at = params.grInfoList + i * entry.SIZE
        index = entry.from_bytes(machine.user.read(at, entry.SIZE)).index
        if index not in known:
            raise RmRefused(_WRONG, f"GR information {index:#x} is not known")
        machine.user.write(at, entry(index=index, data=known[GrInfo(index)]).to_bytes())


def _context_size(
    machine: NvMachine, client: Client, _target: Subdevice, kind: type[Struct], block: bytearray
) -> None:
    params = layout.NV2080_CTRL_GR_GET_CTX_BUFFER_SIZE_PARAMS.from_bytes(block)
    channel = find(client, params.hChannel, RmChannel, "hChannel")
    if channel.group.engine != EngineType.GR0:
        raise RmRefused(_WRONG, "only channels of the graphics engine have context buffers")
    kind.store(block, totalBufferSize=machine.profile.context_bytes)


def _sm_order(
    machine: NvMachine, _client: Client, _target: Subdevice, kind: type[Struct], block: bytearray
) -> None:
    _route(block, kind.offset_of("grRouteInfo"))
    entries = []
    if kind is layout.NV2080_CTRL_GR_GET_GLOBAL_SM_ORDER_PARAMS:
        tpc = 0  # logical numbers: those of the units in use, without gaps (ctrl2080gr.h)
        for gpc, mask in enumerate(filter(None, machine.profile.tpc_masks)):
            for local in range(mask.bit_count()):
                entries += [
                    layout.NV2080_CTRL_GR_GLOBAL_SM_ID(
                        gpcId=gpc,
                        localTpcId=local,
                        localSmId=sm,
                        globalTpcId=tpc,
                        virtualGpcId=gpc,
                        migratableTpcId=tpc,
                        virtualTpcId=tpc,
                    )
                    for sm in range(SMS_PER_TPC)
                ]
                tpc += 1
        kind.store(block, globalSmId=tuple(entries))
    kind.store(block, numSm=machine.profile.sms, numTpc=machine.profile.tpcs)


def _gpc_mask(
    machine: NvMachine, _client: Client, _target: Subdevice, kind: type[Struct], block: bytearray
) -> None:
    _route(block, kind.offset_of("grRouteInfo"))
    kind.store(block, gpcMask=machine.profile.gpc_mask)


def _tpc_mask(
    machine: NvMachine, _client: Client, _target: Subdevice, kind: type[Struct], block: bytearray
) -> None:
    _route(block, kind.offset_of("grRouteInfo"))
    gpc = layout.NV2080_CTRL_GR_GET_TPC_MASK_PARAMS.from_bytes(block).gpcId
    masks = machine.profile.tpc_masks
    if gpc >= len(masks):
        raise RmRefused(_WRONG, f"there is no GPC {gpc}")
    kind.store(block, tpcMask=masks[gpc])


def _fb_info(
    machine: NvMachine, _client: Client, _target: Subdevice, kind: type[Struct], block: bytearray
) -> None:
    layout_: Any = kind  # the list is longer since 580, its entries are the same
    params = layout_.from_bytes(block)
    total = machine.profile.vram_bytes >> 10
    known = {
        FbInfo.RAM_SIZE: total,
        FbInfo.TOTAL_RAM_SIZE: total,
        FbInfo.HEAP_SIZE: total,
        FbInfo.HEAP_FREE: (machine.profile.vram_bytes - machine.vram_used) >> 10,
        FbInfo.L2CACHE_SIZE: _L2_KIB << 10,
    }
    if params.fbInfoListSize > len(params.fbInfoList):
        raise RmRefused(_WRONG, f"{params.fbInfoListSize} questions, room is for {len(params.fbInfoList)}")
    out = []
    for one in params.fbInfoList[: params.fbInfoListSize]:
        if one.index not in known:
            raise RmRefused(_WRONG, f"FB information {one.index:#x} is not known")
        out.append(one.replace(data=known[FbInfo(one.index)]))
    kind.store(block, fbInfoList=tuple(out))


def _flush_cache(
    _machine: NvMachine, _client: Client, _target: Subdevice, kind: type[Struct], block: bytearray
) -> None:
    params: Any = kind.from_bytes(block)
    if params.addressArraySize > len(params.addressArray):
        raise RmRefused(
            _WRONG, f"{params.addressArraySize} addresses, room is for {len(params.addressArray)}"
        )


def _arch_info(
    machine: NvMachine, _client: Client, _target: Subdevice, kind: type[Struct], block: bytearray
) -> None:
    kind.store(
        block,
        architecture=machine.profile.generation.architecture,
        implementation=0,
        revision=0xA1,
        subRevision=0,
    )


def _boost(
    _machine: NvMachine, _client: Client, target: Subdevice, _kind: type[Struct], block: bytearray
) -> None:
    params = layout.NV2080_CTRL_PERF_BOOST_PARAMS.from_bytes(block)
    if params.flags not in _BOOSTS or params.duration == 0:
        raise RmRefused(_WRONG, f"PERF_BOOST flags {params.flags:#x}, duration {params.duration}")
    target.boosted = True


def _copy_caps(
    machine: NvMachine, _client: Client, _target: Subdevice, kind: type[Struct], block: bytearray
) -> None:
    one = machine.profile
    caps = tuple(
        bytes((layout.GRCE_BIT if i < one.graphics_copy_engines else 0, 0)) for i in range(one.copy_engines)
    )
    kind.store(block, capsTbl=caps, present=(1 << one.copy_engines) - 1)


def _sm_states(
    _machine: NvMachine, client: Client, target: Debugger, kind: type[Struct], block: bytearray
) -> None:
    params: Any = kind.from_bytes(block)
    faults = _target_channel(client, target, params.hTargetChannel).run.faults
    first, count = params.startingSM, params.numSMsToRead
    if not 0 < count <= MAX_SMS_PER_READ:
        raise RmRefused(_WRONG, f"{count} SMs at once: wanted 1 to {MAX_SMS_PER_READ}")
    states = tuple(faults.sm(first + i) for i in range(count))
    kind.store(block, smErrorStateArray=states, mmuFault=faults.mmu_word)


def _clear_states(
    _machine: NvMachine, client: Client, target: Debugger, kind: type[Struct], block: bytearray
) -> None:
    params: Any = kind.from_bytes(block)
    channel = _target_channel(client, target, params.hTargetChannel)
    channel.run.faults.clear(params.numSMsToClear)


def _target_channel(client: Client, target: Debugger, handle: int) -> RmChannel:
    """Return the channel of a debugger's object; `handle`, unless 0, must be its own. Raises `RmRefused`."""
    channel = target.target.parent
    assert isinstance(channel, RmChannel)
    if not target.target.live:
        raise RmRefused(NvStatus.INVALID_OBJECT, f"the compute object of {target} was freed")
    if handle and find(client, handle, RmChannel, "hTargetChannel") is not channel:
        raise RmRefused(_WRONG, f"channel {handle:#x} is not the debugger's")
    return channel


def _mmu_faults(
    _machine: NvMachine, client: Client, target: Debugger, kind: type[Struct], block: bytearray
) -> None:
    faults = _target_channel(client, target, 0).run.faults.mmu
    kind.store(block, mmuFaultInfoList=tuple(faults), count=len(faults))


def _exception_mask(
    _machine: NvMachine, _client: Client, target: Debugger, kind: type[Struct], block: bytearray
) -> None:
    params: Any = kind.from_bytes(block)
    target.exception_mask = params.exceptionMask


def _mmu_debug(
    _machine: NvMachine, _client: Client, target: Debugger, kind: type[Struct], block: bytearray
) -> None:
    params: Any = kind.from_bytes(block)
    if params.action not in (1, 2):
        raise RmRefused(_WRONG, f"MMU debug mode {params.action}: 1 enables, 2 disables")
    target.mmu_debug = params.action


_ANSWERS: Final[dict[int, Answer]] = {
    Control.NV0000_CTRL_CMD_SYSTEM_GET_BUILD_VERSION: _build_version,
    Control.NV0000_CTRL_CMD_SYSTEM_GET_BUILD_VERSION_V2: _build_version_2,
    Control.NV0000_CTRL_CMD_GPU_GET_ATTACHED_IDS: _gpu_ids,
    Control.NV0000_CTRL_CMD_GPU_GET_PROBED_IDS: _gpu_ids,
    Control.NV0000_CTRL_CMD_GPU_GET_ID_INFO_V2: _id_info,
    Control.NV0080_CTRL_CMD_GPU_GET_CLASSLIST: _class_list,
    Control.NV0080_CTRL_CMD_GPU_GET_CLASSLIST_V2: _class_list_2,
    Control.NV2080_CTRL_CMD_GPU_GET_NAME_STRING: _name,
    Control.NV2080_CTRL_CMD_GPU_GET_GID_INFO: _gid,
    Control.NV2080_CTRL_CMD_EVENT_SET_NOTIFICATION: _set_notification,
    Control.NV2080_CTRL_CMD_GR_GET_INFO: _gr_info,
    Control.NV2080_CTRL_CMD_GR_GET_CTX_BUFFER_SIZE: _context_size,
    Control.NV2080_CTRL_CMD_GR_GET_GLOBAL_SM_ORDER: _sm_order,
    Control.NV2080_CTRL_CMD_GR_GET_GPC_MASK: _gpc_mask,
    Control.NV2080_CTRL_CMD_GR_GET_TPC_MASK: _tpc_mask,
    Control.NV2080_CTRL_CMD_FB_GET_INFO_V2: _fb_info,
    Control.NV2080_CTRL_CMD_FB_FLUSH_GPU_CACHE: _flush_cache,
    Control.NV2080_CTRL_CMD_MC_GET_ARCH_INFO: _arch_info,
    Control.NV2080_CTRL_CMD_PERF_BOOST: _boost,
    Control.NV2080_CTRL_CMD_CE_GET_ALL_CAPS: _copy_caps,
    Control.NV83DE_CTRL_CMD_DEBUG_READ_ALL_SM_ERROR_STATES: _sm_states,
    Control.NV83DE_CTRL_CMD_DEBUG_CLEAR_ALL_SM_ERROR_STATES: _clear_states,
    Control.NV83DE_CTRL_CMD_DEBUG_READ_MMU_FAULT_INFO: _mmu_faults,
    Control.NV83DE_CTRL_CMD_DEBUG_SET_EXCEPTION_MASK: _exception_mask,
    Control.NV83DE_CTRL_CMD_DEBUG_SET_MODE_MMU_DEBUG: _mmu_debug,
    **CHANNEL_CONTROLS,
}
