"""Controls of channels and channel groups.

Scheduling, doorbell tokens, preemption, the channel's faults (nv.md 2.2, 6). The functions in
`CHANNEL_CONTROLS` have the contract that `controls` states.

Not here: other controls (`controls`), creating channels (`alloc_channel`). Next: `controls`, the caller.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from drivers.nv.layouts import controls as layout
from drivers.nv.layouts.controls import Control
from drivers.nv.layouts.debugger import NV906F_CTRL_CMD_RESET_CHANNEL_PARAMS
from drivers.nv.layouts.fault import MmuFaultType, RcCode
from drivers.nv.layouts.rm_classes import EngineType
from drivers.nv.layouts.status import NvStatus
from emulator.nv.reports import ChannelError, FindingKind, RmRefused
from emulator.nv.rm.objects import ChannelGroup, Client, EngineObject, RmChannel, Subdevice, find

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from emulator.nv.machine.machine import NvMachine
    from hcq.layout import Struct

    Answer = Callable[[NvMachine, Client, Any, type[Struct], bytearray], None]


def _schedule(machine: NvMachine, targets: list[RmChannel], kind: type[Struct], block: bytearray) -> bool:
    """Check a call that schedules channels; return bEnable.

    Raises `RmRefused` if one of them is not ready.
    """
    params: Any = kind.from_bytes(block)
    if any(block[1:]) or params.check():
        raise RmRefused(NvStatus.INVALID_ARGUMENT, f"only bEnable is known: {params}")
    for one in targets if params.bEnable else []:
        if one.group.alive().engine == EngineType.GR0:
            if not any(isinstance(child, EngineObject) for child in one.children):
                raise RmRefused(NvStatus.INVALID_STATE, f"{one} has no engine object yet")
            if one.owned_by_uvm and not one.registered and one.has(machine.profile.generation.compute):
                raise RmRefused(
                    NvStatus.INVALID_STATE,
                    f"{one} was not registered by UVM_REGISTER_CHANNEL: its context buffers are not mapped",
                )
    return bool(params.bEnable)


def _schedule_group(
    machine: NvMachine, _client: Client, target: ChannelGroup, kind: type[Struct], block: bytearray
) -> None:
    channels = [child for child in target.children if isinstance(child, RmChannel)]
    if not channels:
        raise RmRefused(NvStatus.INVALID_STATE, f"{target} has no channel to schedule")
    enabled = _schedule(machine, channels, kind, block)
    for one in channels:  # those made later are not scheduled by this call
        one.scheduled = enabled
    machine.scheduler.wake()


def _schedule_channel(
    machine: NvMachine, _client: Client, target: RmChannel, kind: type[Struct], block: bytearray
) -> None:
    target.scheduled = _schedule(machine, [target], kind, block)
    machine.scheduler.wake()


def _preempt(
    machine: NvMachine, _client: Client, _target: ChannelGroup, _kind: type[Struct], block: bytearray
) -> None:
    params = layout.NVA06C_CTRL_PREEMPT_PARAMS.from_bytes(block)
    if params.check() or (params.timeoutUs and not params.bManualTimeout):
        raise RmRefused(NvStatus.INVALID_ARGUMENT, f"a time limit goes with bManualTimeout: {params}")
    machine.scheduler.wake()


def _token(
    machine: NvMachine, _client: Client, target: RmChannel, kind: type[Struct], block: bytearray
) -> None:
    kind.store(block, workSubmitToken=machine.token_of(target))


def _reset(
    machine: NvMachine, _client: Client, target: RmChannel, _kind: type[Struct], block: bytearray
) -> None:
    params = NV906F_CTRL_CMD_RESET_CHANNEL_PARAMS.from_bytes(block)
    if params.subdeviceInstance:
        raise RmRefused(NvStatus.INVALID_ARGUMENT, "there is only subdevice 0")
    machine.stop(
        target.run,
        ChannelError(RcCode.RESET_CHANNEL, FindingKind.ADVICE, "the channel was reset by its owner"),
    )


def _mmu_fault(
    _machine: NvMachine, _client: Client, target: RmChannel, kind: type[Struct], block: bytearray
) -> None:
    if not target.run.faults.mmu:
        raise RmRefused(NvStatus.OBJECT_NOT_FOUND, "there was no MMU fault")
    last = target.run.faults.mmu[-1]
    kind.store(
        block,
        addrHi=last.faultAddress >> 32,
        addrLo=last.faultAddress & 0xFFFF_FFFF,
        faultType=last.faultType,
        faultString=f"FAULT_{MmuFaultType(last.faultType).name}",
        shaderProgramVA=(),
    )


def _disable(
    machine: NvMachine, client: Client, _target: Subdevice, _kind: type[Struct], block: bytearray
) -> None:
    params = layout.NV2080_CTRL_FIFO_DISABLE_CHANNELS_PARAMS.from_bytes(block)
    if params.pRunlistPreemptEvent:
        raise RmRefused(
            NvStatus.INSUFFICIENT_PERMISSIONS, "pRunlistPreemptEvent is for the kernel's own clients"
        )
    if params.check() or params.numChannels > len(params.hChannelList) or params.bRewindGpPut:
        raise RmRefused(NvStatus.INVALID_ARGUMENT, f"not known: {params}")
    channels = []
    for owner, handle in list(zip(params.hClientList, params.hChannelList, strict=True))[
        : params.numChannels
    ]:
        if owner != client.handle:
            raise RmRefused(NvStatus.INVALID_OBJECT_HANDLE, f"client {owner:#x} is not the caller")
        channels.append(find(client, handle, RmChannel, "hChannelList"))
    for one in channels:
        one.disabled = params.bDisable
    machine.scheduler.wake()


CHANNEL_CONTROLS: Final[Mapping[int, Answer]] = {
    Control.NVA06C_CTRL_CMD_GPFIFO_SCHEDULE: _schedule_group,
    Control.NVA06C_CTRL_CMD_PREEMPT: _preempt,
    Control.NVA06F_CTRL_CMD_GPFIFO_SCHEDULE: _schedule_channel,
    Control.NVC36F_CTRL_CMD_GPFIFO_GET_WORK_SUBMIT_TOKEN: _token,
    Control.NV906F_CTRL_CMD_RESET_CHANNEL: _reset,
    Control.NV906F_CTRL_GET_MMU_FAULT_INFO: _mmu_fault,
    Control.NV2080_CTRL_CMD_FIFO_DISABLE_CHANNELS: _disable,
}
"""Control -> the function that executes it."""
