"""RM_CONTROL: the reply to each control (nv.md 1.6, 2.7, 6.2).

The functions in `_ANSWERS` take the `ControlCall`, change its `block`, and raise `RmRefused`.

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
from emulator.nv.reports import RmRefused, wrong
from emulator.nv.rm.controls_channel import CHANNEL_CONTROLS, ControlCall
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

    Answer = Callable[[ControlCall[Any]], None]

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


def control(number: Control, call: ControlCall[Any]) -> None:
    """Execute a control of an object that `check_owner` allows. Raises `RmRefused`."""
    _ANSWERS[number](call)


def check_owner(target: RmObject, number: Control) -> None:
    """Raise `RmRefused` (NOT_SUPPORTED) if the object's class does not have the control (nv.md 1.3)."""
    owner = _OWNERS[number >> 16]
    if type(target) is not owner:
        raise RmRefused(NvStatus.NOT_SUPPORTED, f"{number.name} goes to a {owner.__name__}, not to {target}")


def _build_version(call: ControlCall[Client]) -> None:
    params = layout.NV0000_CTRL_SYSTEM_GET_BUILD_VERSION_PARAMS.from_bytes(call.block)
    texts = (call.machine.version, "rel/emulated", "NVIDIA UNIX Open Kernel Module (emulated)")
    for address, text in zip(
        (params.pDriverVersionBuffer, params.pVersionBuffer, params.pTitleBuffer), texts, strict=True
    ):
        if address == 0 or len(text) >= params.sizeOfStrings:
            raise wrong(f"a buffer of {params.sizeOfStrings} bytes at {address:#x} for {text!r}")
        call.machine.user.write(address, text.encode() + b"\0")
    call.reply(changelistNumber=0, officialChangelistNumber=0)


def _build_version_2(call: ControlCall[Client]) -> None:
    call.reply(
        driverVersionBuffer=call.machine.version,
        versionBuffer="rel/emulated",
        driverBranch=f"r{call.machine.branch}_00",
        titleBuffer="NVIDIA UNIX Open Kernel Module (emulated)",
    )


def _gpu_ids(call: ControlCall[Client]) -> None:
    for name in call.kind.FIELDS:
        fill = 0 if name == "gpuFlags" else 0xFFFF_FFFF
        ids = [gpu.gpu_id for gpu in call.machine.gpus] if name == "gpuIds" else []
        call.reply(**{name: (*ids, *[fill] * (32 - len(ids)))})


def _id_info(call: ControlCall[Client]) -> None:
    params = layout.NV0000_CTRL_GPU_GET_ID_INFO_V2_PARAMS.from_bytes(call.block)
    gpu = next((one for one in call.machine.gpus if one.gpu_id == params.gpuId), None)
    if gpu is None:
        raise wrong(f"there is no GPU {params.gpuId:#x}, only {[hex(i.gpu_id) for i in call.machine.gpus]}")
    call.reply(
        gpuFlags=0,
        deviceInstance=gpu.index,
        subDeviceInstance=0,
        sliStatus=_GPU_SLI_NONE,
        boardId=gpu.gpu_id,
        gpuInstance=gpu.index,
        numaId=0xFFFF_FFFF,
    )


def _class_list(call: ControlCall[RmDevice]) -> None:
    params = layout.NV0080_CTRL_GPU_GET_CLASSLIST_PARAMS.from_bytes(call.block)
    classes = call.target.gpu.profile.classes
    if params.classList:
        if params.numClasses < len(classes):
            raise wrong(f"room for {params.numClasses} classes, there are {len(classes)}")
        call.machine.user.write(params.classList, b"".join(one.to_bytes(4, "little") for one in classes))
    call.reply(numClasses=len(classes))


def _class_list_2(call: ControlCall[RmDevice]) -> None:
    call.reply(numClasses=len(call.target.gpu.profile.classes), classList=call.target.gpu.profile.classes)


def _name(call: ControlCall[Subdevice]) -> None:
    params = layout.NV2080_CTRL_GPU_GET_NAME_STRING_PARAMS.from_bytes(bytes(call.block).ljust(132, b"\0"))
    if params.gpuNameStringFlags:
        raise wrong("only the ASCII name is known (flags 0)")
    call.reply(gpuNameString=call.target.gpu.profile.gpu_name)


def _gid(call: ControlCall[Subdevice]) -> None:
    params = layout.NV2080_CTRL_GPU_GET_GID_INFO_PARAMS.from_bytes(call.block)
    if params.index or params.flags != layout.GID_BINARY_SHA1:
        raise wrong(f"index {params.index}, flags {params.flags}: only the binary SHA1 id is known")
    call.reply(length=layout.GID_BYTES, data=call.target.gpu.uuid)


def _set_notification(call: ControlCall[Subdevice]) -> None:
    params = layout.NV2080_CTRL_EVENT_SET_NOTIFICATION_PARAMS.from_bytes(call.block)
    if params.event not in (layout.EVENT_RC_ERROR, layout.EVENT_FIFO_MTHD, layout.EVENT_GR_DEBUG_INTR):
        raise wrong(f"event {params.event} is not known")
    if params.action > layout.EVENT_ACTION_REPEAT:
        raise wrong(f"action {params.action} is not known")
    if not any(isinstance(child, RmEvent) for child in call.target.children):
        raise RmRefused(NvStatus.INVALID_STATE, f"{call.target} has no event: the event object comes first")
    if params.action and call.target.notifications.get(params.event):
        raise RmRefused(NvStatus.INVALID_STATE, f"event {params.event} is on already: it is disabled first")
    call.target.notifications[params.event] = params.action


def _route(block: bytearray, at: int) -> None:
    """Raise `RmRefused` if the route at offset `at` is not zero."""
    if any(block[at : at + layout.NV2080_CTRL_GR_ROUTE_INFO.SIZE]):
        raise wrong("a route is for MIG only")


def _gr_info(call: ControlCall[Subdevice]) -> None:
    params = layout.NV2080_CTRL_GR_GET_INFO_PARAMS.from_bytes(call.block)
    _route(call.block, call.kind.offset_of("grRouteInfo"))
    one = call.target.gpu.profile
    known = {
        GrInfo.SHADER_PIPE_COUNT: one.gpcs,
        GrInfo.SM_VERSION: one.chip.sm_versions[0],
        GrInfo.MAX_WARPS_PER_SM: MAX_WARPS_PER_SM,
        GrInfo.LITTER_NUM_GPCS: one.gpcs,
        GrInfo.LITTER_NUM_TPC_PER_GPC: one.tpcs_per_gpc,
        GrInfo.LITTER_NUM_SM_PER_TPC: SMS_PER_TPC,
    }
    entry = layout.NV2080_CTRL_GR_INFO
    for i in range(params.grInfoListSize):
        at = params.grInfoList + i * entry.SIZE
        index = entry.from_bytes(call.machine.user.read(at, entry.SIZE)).index
        if index not in known:
            raise wrong(f"GR information {index:#x} is not known")
        call.machine.user.write(at, entry(index=index, data=known[GrInfo(index)]).to_bytes())


def _context_size(call: ControlCall[Subdevice]) -> None:
    params = layout.NV2080_CTRL_GR_GET_CTX_BUFFER_SIZE_PARAMS.from_bytes(call.block)
    channel = find(call.client, params.hChannel, RmChannel, "hChannel")
    if channel.group.engine != EngineType.GR0:
        raise wrong("only channels of the graphics engine have context buffers")
    call.reply(totalBufferSize=call.target.gpu.profile.context_bytes)


def _sm_order(call: ControlCall[Subdevice]) -> None:
    _route(call.block, call.kind.offset_of("grRouteInfo"))
    entries = []
    if call.kind is layout.NV2080_CTRL_GR_GET_GLOBAL_SM_ORDER_PARAMS:
        tpc = 0  # logical numbers: those of the units in use, without gaps (ctrl2080gr.h)
        for gpc, mask in enumerate(filter(None, call.target.gpu.profile.tpc_masks)):
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
        call.reply(globalSmId=tuple(entries))
    call.reply(numSm=call.target.gpu.profile.sms, numTpc=call.target.gpu.profile.tpcs)


def _gpc_mask(call: ControlCall[Subdevice]) -> None:
    _route(call.block, call.kind.offset_of("grRouteInfo"))
    call.reply(gpcMask=call.target.gpu.profile.gpc_mask)


def _tpc_mask(call: ControlCall[Subdevice]) -> None:
    _route(call.block, call.kind.offset_of("grRouteInfo"))
    gpc = layout.NV2080_CTRL_GR_GET_TPC_MASK_PARAMS.from_bytes(call.block).gpcId
    masks = call.target.gpu.profile.tpc_masks
    if gpc >= len(masks):
        raise wrong(f"there is no GPC {gpc}")
    call.reply(tpcMask=masks[gpc])


def _fb_info(call: ControlCall[Subdevice]) -> None:
    layout_: Any = call.kind  # the list is longer since 580, its entries are the same
    params = layout_.from_bytes(call.block)
    total = call.target.gpu.profile.vram_bytes >> 10
    known = {
        FbInfo.BAR1_SIZE: call.target.gpu.bar1_bytes >> 10,
        FbInfo.BAR1_AVAIL_SIZE: call.target.gpu.bar1_free >> 10,
        FbInfo.RAM_SIZE: total,
        FbInfo.TOTAL_RAM_SIZE: total,
        FbInfo.HEAP_SIZE: total,
        FbInfo.HEAP_FREE: (call.target.gpu.profile.vram_bytes - call.target.gpu.vram_used) >> 10,
        FbInfo.L2CACHE_SIZE: _L2_KIB << 10,
    }
    if params.fbInfoListSize > len(params.fbInfoList):
        raise wrong(f"{params.fbInfoListSize} questions, room is for {len(params.fbInfoList)}")
    out = []
    for one in params.fbInfoList[: params.fbInfoListSize]:
        if one.index not in known:
            raise wrong(f"FB information {one.index:#x} is not known")
        out.append(one.replace(data=known[FbInfo(one.index)]))
    call.reply(fbInfoList=tuple(out))


def _flush_cache(call: ControlCall[Subdevice]) -> None:
    params: Any = call.kind.from_bytes(call.block)
    if params.addressArraySize > len(params.addressArray):
        raise wrong(f"{params.addressArraySize} addresses, room is for {len(params.addressArray)}")


def _arch_info(call: ControlCall[Subdevice]) -> None:
    call.reply(
        architecture=call.target.gpu.profile.generation.architecture,
        implementation=0,
        revision=0xA1,
        subRevision=0,
    )


def _boost(call: ControlCall[Subdevice]) -> None:
    params = layout.NV2080_CTRL_PERF_BOOST_PARAMS.from_bytes(call.block)
    if params.flags not in _BOOSTS or params.duration == 0:
        raise wrong(f"PERF_BOOST flags {params.flags:#x}, duration {params.duration}")
    call.target.boosted = True


def _copy_caps(call: ControlCall[Subdevice]) -> None:
    one = call.target.gpu.profile
    caps = tuple(
        bytes((layout.GRCE_BIT if i < one.graphics_copy_engines else 0, 0)) for i in range(one.copy_engines)
    )
    call.reply(capsTbl=caps, present=(1 << one.copy_engines) - 1)


def _sm_states(call: ControlCall[Debugger]) -> None:
    params: Any = call.kind.from_bytes(call.block)
    faults = _target_channel(call.client, call.target, params.hTargetChannel).run.faults
    first, count = params.startingSM, params.numSMsToRead
    if not 0 < count <= MAX_SMS_PER_READ:
        raise wrong(f"{count} SMs at once: wanted 1 to {MAX_SMS_PER_READ}")
    states = tuple(faults.sm(first + i) for i in range(count))
    call.reply(smErrorStateArray=states, mmuFault=faults.mmu_word)


def _clear_states(call: ControlCall[Debugger]) -> None:
    params: Any = call.kind.from_bytes(call.block)
    channel = _target_channel(call.client, call.target, params.hTargetChannel)
    channel.run.faults.clear(params.numSMsToClear)


def _target_channel(client: Client, target: Debugger, handle: int) -> RmChannel:
    """Return the channel of a debugger's object; `handle`, unless 0, must be its own. Raises `RmRefused`."""
    channel = target.target.parent
    assert isinstance(channel, RmChannel)
    if not target.target.live:
        raise RmRefused(NvStatus.INVALID_OBJECT, f"the compute object of {target} was freed")
    if handle and find(client, handle, RmChannel, "hTargetChannel") is not channel:
        raise wrong(f"channel {handle:#x} is not the debugger's")
    return channel


def _mmu_faults(call: ControlCall[Debugger]) -> None:
    faults = _target_channel(call.client, call.target, 0).run.faults.mmu
    call.reply(mmuFaultInfoList=tuple(faults), count=len(faults))


def _exception_mask(call: ControlCall[Debugger]) -> None:
    params: Any = call.kind.from_bytes(call.block)
    call.target.exception_mask = params.exceptionMask


def _mmu_debug(call: ControlCall[Debugger]) -> None:
    params: Any = call.kind.from_bytes(call.block)
    if params.action not in (1, 2):
        raise wrong(f"MMU debug mode {params.action}: 1 enables, 2 disables")
    call.target.mmu_debug = params.action


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
