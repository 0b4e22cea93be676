"""Checks of the arguments of objects, events, escapes and controls: one violation in each test."""

from __future__ import annotations

import errno
import struct
from collections.abc import Callable

import pytest

from drivers.nv.layouts import rm, rm_classes
from drivers.nv.layouts.controls import Control
from drivers.nv.layouts.rm import Escape
from drivers.nv.layouts.rm_classes import RmClass
from drivers.nv.layouts.uvm import UvmCommand
from tests.emulator.nv_machine.client import Client, method
from tests.emulator.nv_machine.refusals import invalid, refused

Make = Callable[..., Client]


def test_ampere_doorbells_take_no_parameters(make: Make) -> None:
    client = make("sm_80").nodes().objects()
    refused(0x3A, client.alloc, client.subdevice, 0xC461, b"\0\0")


@pytest.mark.parametrize(
    ("fields", "code"),
    [({"hDebuggerClient_Obsolete": 1}, 0x1F), ({"hAppClient": 5}, 0x33), ({"hClass3dObject": 5}, 0x36)],
)
def test_debuggers_are_validated(up: Client, fields: dict[str, int], code: int) -> None:
    ring = up.compute_channel()
    copy = up.alloc(ring.handle, up.generation.copy[0])
    other = rm_classes.NV83DE_ALLOC_PARAMETERS(hAppClient=up.root, hClass3dObject=copy)
    refused(0x31, up.alloc, up.device, RmClass.GT200_DEBUGGER, other)
    values = {"hAppClient": up.root, "hClass3dObject": up.engine_object} | fields
    refused(code, up.alloc, up.device, RmClass.GT200_DEBUGGER, rm_classes.NV83DE_ALLOC_PARAMETERS(**values))


def test_events_are_validated(up: Client) -> None:
    good = {
        "hParentClient": up.root,
        "hSrcResource": up.subdevice,
        "hClass": 0x79,
        "notifyIndex": 37,
        "data": up.gpu,
    }
    bad = rm_classes.NV0005_ALLOC_PARAMETERS(**(good | {"hClass": 5}))
    refused(0x1F, up.alloc, up.subdevice, 0x79, bad)
    other = up.alloc(up.device, RmClass.NV20_SUBDEVICE_0)
    refused(0x36, up.alloc, other, 0x79, rm_classes.NV0005_ALLOC_PARAMETERS(**good))
    refused(0x57, up.alloc, up.subdevice, 0x79, rm_classes.NV0005_ALLOC_PARAMETERS(**good))
    kind = rm.nv_ioctl_alloc_os_event_t
    for fields, code in (({}, 0), ({}, 0x1A), ({"hClient": 5}, 0x1F), ({"fd": 3}, 0x1F)):
        values = {"hClient": up.root, "hDevice": up.device, "fd": up.gpu} | fields
        assert up.call(up.gpu, Escape.NV_ESC_ALLOC_OS_EVENT, kind, **values).Status == code
    number = Control.NV2080_CTRL_CMD_EVENT_SET_NOTIFICATION
    refused(0x40, up.control, up.subdevice, number, event=37, action=2)
    up.alloc(up.subdevice, 0x79, rm_classes.NV0005_ALLOC_PARAMETERS(**good))
    for action, code in ((2, 0), (2, 0x40), (0, 0), (1, 0)):
        if code:
            refused(code, up.control, up.subdevice, number, event=37, action=action)
        else:
            up.control(up.subdevice, number, event=37, action=action)
    for code in (0, 0x1F):
        values = {"hClient": up.root, "hDevice": up.device, "fd": up.gpu}
        assert up.call(up.gpu, Escape.NV_ESC_FREE_OS_EVENT, kind, **values).Status == code
    up.machine.notify(37, up.machine.gpus[0])
    assert up.kernel.poll([up.gpu], 0) == []


def test_small_notifiers_do_not_exist_and_none_is_allowed(up: Client) -> None:
    group = up.group(rm_classes.copy_engine(2))
    ring = up.ring(group, hObjectError=0)
    up.schedule(ring, group)
    ring.push(method(0, 0x0C, 0))
    while not up.kernel.reports:
        pass
    assert ring.error() == 0


def test_flags_of_calls_must_be_zero(up: Client) -> None:
    alloc, control = rm.NVOS64_PARAMETERS, rm.NVOS54_PARAMETERS
    assert up.call(up.ctl, Escape.NV_ESC_RM_ALLOC, alloc, hClass=0x41, flags=1).status == 0x29
    fields = {"hClient": up.root, "hObject": up.root, "cmd": 0x201, "flags": 1}
    assert up.call(up.ctl, Escape.NV_ESC_RM_CONTROL, control, **fields).status == 0x29


def test_small_escapes(up: Client) -> None:
    block = bytearray(8)
    up.escape(up.ctl, Escape.NV_ESC_SYS_PARAMS, block)
    assert any(block)
    up.escape(up.gpu, Escape.NV_ESC_WAIT_OPEN_COMPLETE, bytearray(8))
    ids = bytearray(struct.pack("<I", up.machine.gpus[0].gpu_id))
    up.escape(up.ctl, Escape.NV_ESC_ATTACH_GPUS_TO_FD, ids)
    kind = rm.nv_ioctl_rm_api_version_t
    for cmd, text, reply in ((0, "580.1", 0), (0x31, "580.159.03", 1)):
        fields = {"cmd": cmd, "versionString": text}
        assert up.call(up.ctl, Escape.NV_ESC_CHECK_VERSION_STR, kind, **fields).reply == reply
    invalid(
        errno.EINVAL, up.escape, up.ctl, Escape.NV_ESC_CHECK_VERSION_STR, bytearray(kind(cmd=9).to_bytes())
    )


def test_a_bare_machine_accepts_calls_that_the_sandbox_refuses(make: Make) -> None:
    up = make(filtered=False).up()
    memory = up.memory(4096)
    fd = up.map_fd(up.device, memory.handle, 4096, "/dev/nvidia0")
    refused(0x63, up.map_fd, up.device, memory.handle, 4096, "", fd=fd)
    refused(0x1F, up.map_fd, up.device, memory.handle, 4096, "", fd=up.uvm_fd)
    group = up.group(rm_classes.copy_engine(2))
    ring = up.ring(group)
    fields = {"gpuUuid": up.uuid, "rmCtrlFd": 99, "hClient": up.root, "hChannel": ring.handle}
    refused(0x1F, up.uvm_call, UvmCommand.UVM_REGISTER_CHANNEL, **fields)
    number = Control.NV906F_CTRL_GET_MMU_FAULT_INFO
    refused(0x57, up.control, ring.handle, number)
    up.control(up.subdevice, Control.NV2080_CTRL_CMD_FB_FLUSH_GPU_CACHE)


def test_channel_controls_validate_their_arguments(up: Client) -> None:
    ring = up.copy_channel()
    number = Control.NV2080_CTRL_CMD_GR_GET_CTX_BUFFER_SIZE
    refused(0x1F, up.control, up.subdevice, number, hChannel=ring.handle)
    refused(0x1F, up.control, ring.handle, Control.NV906F_CTRL_CMD_RESET_CHANNEL, subdeviceInstance=1)
    up.control(ring.handle, Control.NVA06F_CTRL_CMD_GPFIFO_SCHEDULE, bEnable=True)
    compute = up.compute_channel()
    debugger = up.debugger()
    read = Control.NV83DE_CTRL_CMD_DEBUG_READ_ALL_SM_ERROR_STATES
    for fields in ({"numSMsToRead": 101}, {"numSMsToRead": 0}):
        refused(0x1F, up.control, debugger, read, **fields)
    refused(0x1F, up.control, debugger, read, numSMsToRead=1, hTargetChannel=ring.handle)
    up.control(debugger, read, numSMsToRead=1, hTargetChannel=compute.handle)
    more = up.control(debugger, read, numSMsToRead=100, startingSM=100)  # than there are: the rest is zero
    assert not any(state.hwwWarpEsr for state in more.smErrorStateArray)
    clear = Control.NV83DE_CTRL_CMD_DEBUG_CLEAR_ALL_SM_ERROR_STATES
    up.control(debugger, clear, numSMsToClear=0xFFFF_FFFF)
    refused(0x1F, up.control, debugger, Control.NV83DE_CTRL_CMD_DEBUG_SET_MODE_MMU_DEBUG, action=3)
    up.control(debugger, Control.NV83DE_CTRL_CMD_DEBUG_SET_MODE_MMU_DEBUG, action=1)
    up.control(debugger, Control.NV83DE_CTRL_CMD_DEBUG_SET_EXCEPTION_MASK, exceptionMask=7)
