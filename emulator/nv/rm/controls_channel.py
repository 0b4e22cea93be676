"""Controls of channels and channel groups.

Scheduling, doorbell tokens, preemption, the channel's faults (nv.md 2.2, 6). The functions in
`CHANNEL_CONTROLS` have the contract that `controls` states.

Not here: other controls (`controls`), creating channels (`alloc_channel`). Next: `controls`, the caller.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from drivers.nv.layouts import controls as layout
from drivers.nv.layouts.controls import Control
from drivers.nv.layouts.debugger import NV906F_CTRL_CMD_RESET_CHANNEL_PARAMS
from drivers.nv.layouts.fault import MmuFaultType, RcCode
from drivers.nv.layouts.rm_classes import EngineType
from drivers.nv.layouts.status import NvStatus
from emulator.nv.reports import ChannelError, FindingKind, RmRefused, wrong
from emulator.nv.rm.objects import ChannelGroup, Client, EngineObject, RmChannel, RmObject, Subdevice, find

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from emulator.nv.machine.machine import NvMachine
    from hcq.layout import Struct

T = TypeVar("T", bound=RmObject)


@dataclass(frozen=True, slots=True)
class ControlCall(Generic[T]):
    """A control in progress."""

    machine: NvMachine
    client: Client
    target: T
    """The object that the control goes to."""
    kind: type[Struct]
    """The structure of the parameters in the driver's branch."""
    block: bytearray
    """The parameters, which receive the reply."""

    def reply(self, **values: object) -> None:
        """Store fields of the reply."""
        self.kind.store(self.block, **values)


def _schedule(call: ControlCall[Any], targets: list[RmChannel]) -> bool:
    """Check a call that schedules channels; return bEnable.

    Raises `RmRefused` if one of them is not ready.
    """
    params: Any = call.kind.from_bytes(call.block)
    if any(call.block[1:]) or params.check():
        raise wrong(f"only bEnable is known: {params}")
    compute = call.target.gpu.profile.generation.compute
    for one in targets if params.bEnable else []:
        if one.group.alive().engine == EngineType.GR0:
            if not any(isinstance(child, EngineObject) for child in one.children):
                raise RmRefused(NvStatus.INVALID_STATE, f"{one} has no engine object yet")
            if one.owned_by_uvm and not one.registered and one.has(compute):
                raise RmRefused(
                    NvStatus.INVALID_STATE,
                    f"{one} was not registered by UVM_REGISTER_CHANNEL: its context buffers are not mapped",
                )
    return bool(params.bEnable)


def _schedule_group(call: ControlCall[ChannelGroup]) -> None:
    channels = [child for child in call.target.children if isinstance(child, RmChannel)]
    if not channels:
        raise RmRefused(NvStatus.INVALID_STATE, f"{call.target} has no channel to schedule")
    enabled = _schedule(call, channels)
    for one in channels:  # those made later are not scheduled by this call
        one.scheduled = enabled
    call.machine.scheduler.wake()


def _schedule_channel(call: ControlCall[RmChannel]) -> None:
    call.target.scheduled = _schedule(call, [call.target])
    call.machine.scheduler.wake()


def _preempt(call: ControlCall[ChannelGroup]) -> None:
    params = layout.NVA06C_CTRL_PREEMPT_PARAMS.from_bytes(call.block)
    if params.check() or (params.timeoutUs and not params.bManualTimeout):
        raise wrong(f"a time limit goes with bManualTimeout: {params}")
    call.machine.scheduler.wake()


def _token(call: ControlCall[RmChannel]) -> None:
    call.reply(workSubmitToken=call.target.gpu.token_of(call.target))


def _reset(call: ControlCall[RmChannel]) -> None:
    params = NV906F_CTRL_CMD_RESET_CHANNEL_PARAMS.from_bytes(call.block)
    if params.subdeviceInstance:
        raise wrong("there is only subdevice 0")
    call.machine.stop(
        call.target.run,
        ChannelError(RcCode.RESET_CHANNEL, FindingKind.ADVICE, "the channel was reset by its owner"),
    )


def _mmu_fault(call: ControlCall[RmChannel]) -> None:
    if not call.target.run.faults.mmu:
        raise RmRefused(NvStatus.OBJECT_NOT_FOUND, "there was no MMU fault")
    last = call.target.run.faults.mmu[-1]
    call.reply(
        addrHi=last.faultAddress >> 32,
        addrLo=last.faultAddress & 0xFFFF_FFFF,
        faultType=last.faultType,
        faultString=f"FAULT_{MmuFaultType(last.faultType).name}",
        shaderProgramVA=(),
    )


def _disable(call: ControlCall[Subdevice]) -> None:
    params = layout.NV2080_CTRL_FIFO_DISABLE_CHANNELS_PARAMS.from_bytes(call.block)
    if params.pRunlistPreemptEvent:
        raise RmRefused(
            NvStatus.INSUFFICIENT_PERMISSIONS, "pRunlistPreemptEvent is for the kernel's own clients"
        )
    if params.check() or params.numChannels > len(params.hChannelList) or params.bRewindGpPut:
        raise wrong(f"not known: {params}")
    channels = []
    for owner, handle in list(zip(params.hClientList, params.hChannelList, strict=True))[
        : params.numChannels
    ]:
        if owner != call.client.handle:
            raise RmRefused(NvStatus.INVALID_OBJECT_HANDLE, f"client {owner:#x} is not the caller")
        channels.append(find(call.client, handle, RmChannel, "hChannelList"))
    for one in channels:
        one.disabled = params.bDisable
    call.machine.scheduler.wake()


CHANNEL_CONTROLS: Final[Mapping[int, Callable[[ControlCall[Any]], None]]] = {
    Control.NVA06C_CTRL_CMD_GPFIFO_SCHEDULE: _schedule_group,
    Control.NVA06C_CTRL_CMD_PREEMPT: _preempt,
    Control.NVA06F_CTRL_CMD_GPFIFO_SCHEDULE: _schedule_channel,
    Control.NVC36F_CTRL_CMD_GPFIFO_GET_WORK_SUBMIT_TOKEN: _token,
    Control.NV906F_CTRL_CMD_RESET_CHANNEL: _reset,
    Control.NV906F_CTRL_GET_MMU_FAULT_INFO: _mmu_fault,
    Control.NV2080_CTRL_CMD_FIFO_DISABLE_CHANNELS: _disable,
}
"""Control -> the function that executes it."""
