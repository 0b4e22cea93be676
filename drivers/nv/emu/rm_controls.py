"""Controls of the emulated resource manager: what the GPU says of itself, channel scheduling, the debugger's questions."""

# ruff: noqa: ARG005, E501 - summaries and tables that name their parameters read best on one line

from __future__ import annotations

import ctypes
import hashlib
from typing import TYPE_CHECKING, Any

from drivers.nv.emu import objects as o
from drivers.nv.emu.objects import Refusal
from drivers.nv.layouts import debugger
from drivers.nv.layouts.controls import (
    CONTROL_STRUCTS,
    GID_BINARY_SHA1,
    GID_BYTES,
    GRCE_BIT,
    Control,
    FbInfo,
    GrInfo,
)
from drivers.nv.layouts.gpfifo import WorkSubmitToken
from drivers.nv.layouts.rm_classes import EngineType, RmClass
from drivers.nv.layouts.status import NvStatus

if TYPE_CHECKING:
    from collections.abc import Callable

    from drivers.nv.emu.rm import ResourceManager

GPU_ID = 0x100
CONTEXT_BUFFER_BYTES = 0x100_0000
"""What context buffers of a channel need in the emulated GPU."""

C = Control
_FILTERED = {
    C.NV0000_CTRL_CMD_SYSTEM_GET_BUILD_VERSION_V2, C.NV2080_CTRL_CMD_FB_FLUSH_GPU_CACHE, C.NV83DE_CTRL_CMD_DEBUG_READ_MMU_FAULT_INFO,
    C.NV906F_CTRL_GET_MMU_FAULT_INFO,
}  # fmt: skip
"""Controls that a compute-only sandbox does not pass (nv.md 7.2)."""


class Controls:
    """Answers RM_CONTROL."""

    def __init__(self, manager: ResourceManager) -> None:
        self._rm = manager
        self._profile = manager.profile
        self._table: dict[int, Callable[[o.RmObject, Any], dict[str, Any]]] = {
            C.NV0000_CTRL_CMD_SYSTEM_GET_BUILD_VERSION: self._build_version,
            C.NV0000_CTRL_CMD_SYSTEM_GET_BUILD_VERSION_V2: self._build_version_v2,
            C.NV0000_CTRL_CMD_GPU_GET_ATTACHED_IDS: self._ids,
            C.NV0000_CTRL_CMD_GPU_GET_PROBED_IDS: self._ids,
            C.NV0000_CTRL_CMD_GPU_GET_ID_INFO_V2: self._id_info,
            C.NV0080_CTRL_CMD_GPU_GET_CLASSLIST: self._class_list,
            C.NV0080_CTRL_CMD_GPU_GET_CLASSLIST_V2: self._class_list_v2,
            C.NV2080_CTRL_CMD_GPU_GET_NAME_STRING: lambda _, v: {"gpuNameString": self._profile.name},
            C.NV2080_CTRL_CMD_GPU_GET_GID_INFO: self._gid,
            C.NV2080_CTRL_CMD_EVENT_SET_NOTIFICATION: lambda _, v: {},
            C.NV2080_CTRL_CMD_FIFO_DISABLE_CHANNELS: self._disable,
            C.NV2080_CTRL_CMD_GR_GET_INFO: self._gr_info,
            C.NV2080_CTRL_CMD_GR_GET_CTX_BUFFER_SIZE: self._context_size,
            C.NV2080_CTRL_CMD_GR_GET_GLOBAL_SM_ORDER: self._sm_order,
            C.NV2080_CTRL_CMD_GR_GET_GPC_MASK: lambda _, v: {"gpcMask": (1 << self._profile.gpcs) - 1},
            C.NV2080_CTRL_CMD_GR_GET_TPC_MASK: self._tpc_mask,
            C.NV2080_CTRL_CMD_FB_GET_INFO_V2: self._fb_info,
            C.NV2080_CTRL_CMD_FB_FLUSH_GPU_CACHE: lambda _, v: {},
            C.NV2080_CTRL_CMD_MC_GET_ARCH_INFO: lambda _, v: {
                "architecture": self._profile.generation.architecture
            },
            C.NV2080_CTRL_CMD_PERF_BOOST: lambda _, v: {},
            C.NV2080_CTRL_CMD_CE_GET_ALL_CAPS: self._copy_engines,
            C.NV83DE_CTRL_CMD_DEBUG_SET_MODE_MMU_DEBUG: lambda _, v: {},
            C.NV83DE_CTRL_CMD_DEBUG_SET_EXCEPTION_MASK: lambda _, v: {},
            C.NV83DE_CTRL_CMD_DEBUG_READ_ALL_SM_ERROR_STATES: self._sm_errors,
            C.NV83DE_CTRL_CMD_DEBUG_CLEAR_ALL_SM_ERROR_STATES: self._clear_sm_errors,
            C.NV83DE_CTRL_CMD_DEBUG_READ_MMU_FAULT_INFO: self._mmu_faults,
            C.NV906F_CTRL_CMD_RESET_CHANNEL: self._reset,
            C.NVA06C_CTRL_CMD_GPFIFO_SCHEDULE: self._schedule,
            C.NVA06C_CTRL_CMD_PREEMPT: self._preempt,
            C.NVA06F_CTRL_CMD_GPFIFO_SCHEDULE: self._schedule,
            C.NVC36F_CTRL_CMD_GPFIFO_GET_WORK_SUBMIT_TOKEN: self._token,
        }

    def run(self, item: o.RmObject, cmd: int, address: int, size: int) -> None:
        """Check a control's object and parameters, run it, write the answer."""
        if cmd not in self._table or (self._profile.filtered and cmd in _FILTERED):
            raise Refusal(NvStatus.NOT_SUPPORTED, f"control {cmd:#x} is unknown or not let through")
        if not self._fits(item, cmd):
            raise Refusal(NvStatus.INVALID_OBJECT, f"control {cmd:#x} on an object of class {item.cls:#x}")
        layout = self._profile.layout(CONTROL_STRUCTS[cmd])
        if size != layout.SIZE:
            raise Refusal(
                NvStatus.INVALID_PARAM_STRUCT,
                f"{layout.__name__} is {layout.SIZE} bytes here, paramsSize is {size}",
            )
        values = layout.from_bytes(ctypes.string_at(address, size))
        for violation in values.check():
            raise Refusal(NvStatus.INVALID_ARGUMENT, str(violation))
        answer = self._table[cmd](item, values)
        if answer:
            ctypes.memmove(address, values.replace(**answer).to_bytes(), size)

    def _fits(self, item: o.RmObject, cmd: int) -> bool:
        family = cmd >> 16
        row = self._profile.generation
        return {
            0: item.cls == RmClass.NV01_ROOT_CLIENT, 0x80: item.cls == RmClass.NV01_DEVICE_0, 0x2080: item.cls == RmClass.NV20_SUBDEVICE_0,
            0x83DE: item.cls == RmClass.GT200_DEBUGGER, 0xA06C: item.cls == RmClass.KEPLER_CHANNEL_GROUP_A,
            0x906F: item.cls in row.gpfifo, 0xA06F: item.cls in row.gpfifo, 0xC36F: item.cls in row.gpfifo,
        }.get(family, False)  # fmt: skip

    # ---- what the machine is

    def _build_version(self, _: o.RmObject, values: Any) -> dict[str, Any]:
        text = self._profile.version.encode() + b"\0"
        if values.sizeOfStrings < len(text):
            raise Refusal(NvStatus.INVALID_ARGUMENT, f"strings of {values.sizeOfStrings} bytes")
        for pointer in (values.pDriverVersionBuffer, values.pVersionBuffer, values.pTitleBuffer):
            if pointer == 0:
                raise Refusal(NvStatus.INVALID_ARGUMENT, "a string buffer is missing")
            ctypes.memmove(pointer, text, len(text))
        return {}

    def _build_version_v2(self, _: o.RmObject, __: Any) -> dict[str, Any]:
        return {"driverVersionBuffer": self._profile.version, "versionBuffer": self._profile.version}

    def _ids(self, _: o.RmObject, __: Any) -> dict[str, Any]:
        return {"gpuIds": (GPU_ID, *[0xFFFF_FFFF] * 31)}

    def _id_info(self, _: o.RmObject, values: Any) -> dict[str, Any]:
        if values.gpuId != GPU_ID:
            raise Refusal(NvStatus.INVALID_ARGUMENT, f"no GPU {values.gpuId:#x}")
        return {"deviceInstance": 0, "subDeviceInstance": 0, "gpuInstance": 0, "boardId": 0x100}

    def _class_list(self, _: o.RmObject, values: Any) -> dict[str, Any]:
        classes = self._profile.classes
        if values.classList:
            if values.numClasses < len(classes):
                raise Refusal(
                    NvStatus.INVALID_ARGUMENT, f"room for {values.numClasses} of {len(classes)} classes"
                )
            raw = b"".join(c.to_bytes(4, "little") for c in classes)
            ctypes.memmove(values.classList, raw, len(raw))
        return {"numClasses": len(classes)}

    def _class_list_v2(self, _: o.RmObject, values: Any) -> dict[str, Any]:
        classes = self._profile.classes
        room = type(values).FIELDS["classList"].count
        return {"numClasses": len(classes), "classList": (*classes, *[0] * (room - len(classes)))}

    def gid(self) -> bytes:
        """Return the 16 bytes that name the GPU to UVM."""
        return hashlib.sha1(self._profile.name.encode(), usedforsecurity=False).digest()[:GID_BYTES]

    def _gid(self, _: o.RmObject, values: Any) -> dict[str, Any]:
        if values.index != 0 or values.flags != GID_BINARY_SHA1:
            raise Refusal(NvStatus.INVALID_ARGUMENT, f"index {values.index}, flags {values.flags:#x}")
        return {"length": GID_BYTES, "data": self.gid()}

    def _gr_info(self, _: o.RmObject, values: Any) -> dict[str, Any]:
        row, profile = self._profile.generation, self._profile
        known = {
            GrInfo.SHADER_PIPE_COUNT: profile.gpcs, GrInfo.SM_VERSION: row.sm_version, GrInfo.MAX_WARPS_PER_SM: 64,
            GrInfo.LITTER_NUM_GPCS: profile.gpcs, GrInfo.LITTER_NUM_TPC_PER_GPC: profile.tpcs_per_gpc + 1,
            GrInfo.LITTER_NUM_SM_PER_TPC: 2,
        }  # fmt: skip
        if values.grRouteInfo.flags or values.grRouteInfo.route:
            raise Refusal(NvStatus.INVALID_ARGUMENT, "a route outside MIG")
        layout = self._profile.layout("NV2080_CTRL_GR_INFO")
        for i in range(values.grInfoListSize):
            at = values.grInfoList + i * layout.SIZE
            entry = layout.from_bytes(ctypes.string_at(at, layout.SIZE))
            if entry.index not in known:
                raise Refusal(NvStatus.INVALID_ARGUMENT, f"graphics information {entry.index:#x}")
            ctypes.memmove(at, entry.replace(data=known[entry.index]).to_bytes(), layout.SIZE)
        return {}

    def _context_size(self, item: o.RmObject, values: Any) -> dict[str, Any]:
        self._rm.handles.find(item.client, values.hChannel, o.ChannelObject)
        return {"totalBufferSize": CONTEXT_BUFFER_BYTES}

    def _sm_order(self, _: o.RmObject, __: Any) -> dict[str, Any]:
        tpcs = self._profile.gpcs * self._profile.tpcs_per_gpc
        return {"numSm": 2 * tpcs, "numTpc": tpcs}

    def _tpc_mask(self, _: o.RmObject, values: Any) -> dict[str, Any]:
        if values.gpcId >= self._profile.gpcs:
            raise Refusal(NvStatus.INVALID_ARGUMENT, f"no GPC {values.gpcId}")
        return {"tpcMask": (1 << self._profile.tpcs_per_gpc) - 1}

    def _fb_info(self, _: o.RmObject, values: Any) -> dict[str, Any]:
        total = self._profile.vram_bytes // 1024
        known = {
            FbInfo.RAM_SIZE: total,
            FbInfo.TOTAL_RAM_SIZE: total,
            FbInfo.HEAP_SIZE: total,
            FbInfo.HEAP_FREE: self._rm.gpu.vram_free // 1024,
            FbInfo.L2CACHE_SIZE: 50 * 1024,
        }
        entries = list(values.fbInfoList)
        if values.fbInfoListSize > len(entries):
            raise Refusal(NvStatus.INVALID_ARGUMENT, f"{values.fbInfoListSize} questions")
        for i in range(values.fbInfoListSize):
            if entries[i].index not in known:
                raise Refusal(NvStatus.INVALID_ARGUMENT, f"memory information {entries[i].index:#x}")
            entries[i] = entries[i].replace(data=known[entries[i].index])
        return {"fbInfoList": tuple(entries)}

    def _copy_engines(self, _: o.RmObject, __: Any) -> dict[str, Any]:
        count = len(self._rm.engine_types()) - 1
        caps = tuple(bytes([GRCE_BIT if i == 0 else 0, 0]) if i < count else b"\0\0" for i in range(64))
        return {"present": (1 << count) - 1, "capsTbl": caps}

    # ---- channels

    def _channels(self, item: o.RmObject) -> list[o.ChannelObject]:
        group = item if isinstance(item, o.Group) else item.parent
        assert group is not None
        return [child for child in group.children if isinstance(child, o.ChannelObject)]

    def _schedule(self, item: o.RmObject, values: Any) -> dict[str, Any]:
        wanted = [item] if isinstance(item, o.ChannelObject) else self._channels(item)
        for channel in wanted:
            assert isinstance(channel, o.ChannelObject)
            assert channel.channel is not None
            if values.bEnable and channel.channel.engine == EngineType.GR0 and not channel.registered:
                raise Refusal(
                    NvStatus.INVALID_STATE,
                    "a graphics channel is scheduled before UVM mapped its context buffers",
                )
            channel.channel.scheduled = bool(values.bEnable)
        self._rm.gpu.wake()
        return {}

    def _preempt(self, item: o.RmObject, _: Any) -> dict[str, Any]:
        for channel in self._channels(item):
            assert channel.channel is not None
            channel.channel.preempt()
        return {}

    def _disable(self, item: o.RmObject, values: Any) -> dict[str, Any]:
        for client, handle in list(zip(values.hClientList, values.hChannelList, strict=True))[
            : values.numChannels
        ]:
            channel = self._rm.handles.find(client, handle, o.ChannelObject)
            assert isinstance(channel, o.ChannelObject)
            assert channel.channel is not None
            channel.channel.scheduled = not values.bDisable
        del item
        return {}

    def _reset(self, item: o.RmObject, _: Any) -> dict[str, Any]:
        assert isinstance(item, o.ChannelObject)
        assert item.channel is not None
        item.channel.close()
        return {}

    def _token(self, item: o.RmObject, _: Any) -> dict[str, Any]:
        assert isinstance(item, o.ChannelObject)
        assert item.channel is not None
        return {
            "workSubmitToken": int(WorkSubmitToken(CHANNEL=item.channel.number, RUNLIST=item.channel.runlist))
        }

    # ---- the debugger

    def _target(self, item: o.RmObject, handle: int) -> o.ChannelObject:
        channel = self._rm.handles.find(item.client, handle, o.ChannelObject)
        assert isinstance(channel, o.ChannelObject)
        assert isinstance(item, o.Debugger)
        if item.target is None or item.target.parent is not channel:
            raise Refusal(NvStatus.INVALID_OBJECT_HANDLE, "the debugger looks at another channel")
        return channel

    def _sm_errors(self, item: o.RmObject, values: Any) -> dict[str, Any]:
        channel = self._target(item, values.hTargetChannel).channel
        sms = 2 * self._profile.gpcs * self._profile.tpcs_per_gpc
        if values.numSMsToRead > debugger.MAX_SMS_PER_READ or values.startingSM + values.numSMsToRead > sms:
            raise Refusal(
                NvStatus.INVALID_ARGUMENT, f"SMs from {values.startingSM}, {values.numSMsToRead} of {sms}"
            )
        assert channel is not None
        states = list(values.smErrorStateArray)
        blank = debugger.NV83DE_SM_ERROR_STATE_REGISTERS()
        for i in range(values.numSMsToRead):
            states[i] = blank
            if values.startingSM + i == 0 and channel.warp_error:
                states[i] = blank.replace(
                    hwwWarpEsr=channel.warp_error,
                    hwwWarpEsrPc64=channel.warp_pc,
                    hwwEsrAddr=channel.fault_address,
                )
        valid = channel.mmu_fault
        return {
            "smErrorStateArray": tuple(states),
            "mmuFault": debugger.NV83DE_MMU_FAULT_INFO(valid=valid, faultInfo=1 if valid else 0),
        }

    def _clear_sm_errors(self, item: o.RmObject, values: Any) -> dict[str, Any]:
        channel = self._target(item, values.hTargetChannel).channel
        assert channel is not None
        channel.warp_error, channel.mmu_fault = 0, False
        return {}

    def _mmu_faults(self, item: o.RmObject, values: Any) -> dict[str, Any]:
        assert isinstance(item, o.Debugger)
        channel = item.target.parent if item.target else None
        assert isinstance(channel, o.ChannelObject)
        assert channel.channel is not None
        if not channel.channel.mmu_fault:
            return {"count": 0}
        first = debugger.NV83DE_MMU_FAULT_INFO_ENTRY(
            faultAddress=channel.channel.fault_address, faultType=2, accessType=channel.channel.fault_access
        )
        return {"count": 1, "mmuFaultInfoList": (first, *values.mmuFaultInfoList[1:])}
