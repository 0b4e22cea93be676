"""Calls of the resource manager and UVM that are refused: what is wrong, and the status or the errno."""

from __future__ import annotations

import errno
from collections.abc import Callable
from typing import Any

import pytest

from drivers.nv.layouts import controls as ctl
from drivers.nv.layouts import rm_classes
from drivers.nv.layouts.controls import Control
from drivers.nv.layouts.rm import Escape
from drivers.nv.layouts.rm_classes import RmClass
from drivers.nv.layouts.status import NvStatus
from drivers.nv.layouts.uvm import NvProcessorUuid, UvmCommand, UvmGpuMappingAttributes
from tests.emulator.nv_machine.client import MIB, Client
from tests.emulator.nv_machine.refusals import invalid, refused

BASE = 0x3_0000_0000
COPY = rm_classes.copy_engine(2)
SUB = rm_classes.NV2080_ALLOC_PARAMETERS
DEVICE = rm_classes.NV0080_ALLOC_PARAMETERS
SPACE = rm_classes.NV_VASPACE_ALLOCATION_PARAMETERS
NOBODY = NvProcessorUuid(uuid=bytes(16))
Call = Callable[[Client], Any]


def memory(**fields: Any) -> Call:
    """Allocate memory with these parameters."""
    return lambda up: up.alloc(
        up.device, RmClass.NV01_MEMORY_LOCAL_USER, up.memory_params(fields.pop("size", 4096), **fields)
    )


def channel(**fields: Any) -> Call:
    """Make a channel of the graphics engine."""
    return lambda up: up.ring(up.group(), **fields)


def space(**fields: Any) -> Call:
    return lambda up: up.alloc(up.device, RmClass.FERMI_VASPACE_A, SPACE(**fields))


def device(**fields: Any) -> Call:
    return lambda up: up.alloc(up.root, RmClass.NV01_DEVICE_0, DEVICE(**fields))


def make_range(up: Client, base: int = BASE, length: int = MIB) -> None:
    up.uvm_call(UvmCommand.UVM_CREATE_EXTERNAL_RANGE, base=base, length=length)


def overlapping(base: int, length: int) -> Call:
    """Make a range beside one of a MiB at BASE."""

    def call(up: Client) -> None:
        make_range(up)
        make_range(up, base, length)

    return call


def mapping(attributes: dict[str, Any] | None = None, *, again: bool = False, **change: Any) -> Call:
    """Map memory into a range of its size, `again` where it is mapped."""

    def call(up: Client) -> None:
        make_range(up)
        handle = up.alloc(up.device, RmClass.NV01_MEMORY_LOCAL_USER, up.memory_params(MIB))
        one = UvmGpuMappingAttributes(**({"gpuUuid": up.uuid, "gpuMappingType": 1} | (attributes or {})))
        fields = {"base": BASE, "length": MIB, "perGpuAttributes": (one,), "gpuAttributesCount": 1}
        fields |= {"rmCtrlFd": up.ctl, "hClient": up.root, "hMemory": handle}
        for more in (change, {})[: 1 + again]:
            up.uvm_call(UvmCommand.UVM_MAP_EXTERNAL_ALLOCATION, **(fields | more))

    return call


def window(base: int, length: int) -> Call:
    """Register a channel of the graphics engine with this window."""

    def call(up: Client) -> None:
        make_range(up)
        ring = up.ring(up.group())
        up.compute_object(ring)
        up.register_channel(ring, base, length)

    return call


def of_copies(cls: int, *engine: int) -> Call:
    """Allocate an engine object under a channel of copies."""

    def call(up: Client) -> None:
        params = [rm_classes.NVB0B5_ALLOCATION_PARAMETERS(version=1, engineType=one) for one in engine]
        up.alloc(up.ring(up.group(COPY)).handle, cls, *params)

    return call


def control(number: int, **fields: Any) -> Call:
    """Issue a control of its object."""
    return lambda up: up.control(up.root if number < 0x800000 else up.subdevice, number, **fields)


REFUSED: dict[str, tuple[Call, int]] = {
    "instance 1 of a device": (device(deviceId=1), 0x1F),
    "a mode of addresses": (device(vaMode=1), 0x1F),
    "an unknown client to share with": (device(hClientShare=5), 0x33),
    "a subdevice of the root": (lambda up: up.alloc(up.root, RmClass.NV20_SUBDEVICE_0, SUB()), 0x36),
    "a subdevice of nobody": (lambda up: up.alloc(0x1234, RmClass.NV20_SUBDEVICE_0, SUB()), 0x33),
    "subdevice 1": (lambda up: up.alloc(up.device, RmClass.NV20_SUBDEVICE_0, SUB(subDeviceId=1)), 0x1F),
    "a doorbell page of the device": (lambda up: up.alloc(up.device, 0xC661), 0x36),
    "an unknown flag of a doorbell page": (lambda up: up.alloc(up.subdevice, 0xC661, b"\2\0"), 0x1F),
    "the privileged doorbell": (lambda up: up.alloc(up.subdevice, 0xC661,
        rm_classes.NV_HOPPER_USERMODE_A_PARAMS(bPriv=True)), NvStatus.INSUFFICIENT_PERMISSIONS),
    **{f"class {cls:#x}": (lambda up, cls=cls: up.alloc(up.subdevice, cls), NvStatus.INVALID_CLASS)
        for cls in (0xCEC0, 0xC5C0, 0x1234, RmClass.NV01_MEMORY_VIRTUAL, 0xC561)},
    "a root under a root": (lambda up: up.alloc(up.root, RmClass.NV01_ROOT), 0x36),
    "the handle of another root": (lambda up: up.alloc(0, RmClass.NV01_ROOT, handle=up.root), 0x33),
    "a handle that is taken": (lambda up: up.alloc(up.device, RmClass.NV20_SUBDEVICE_0, SUB(),
        handle=up.device), 0x33),
    "an address space without parameters": (lambda up: up.alloc(up.device, RmClass.FERMI_VASPACE_A), 0x1F),
    "an unknown flag of an address space": (space(flags=0x108), 0x29),
    "an index of an address space": (space(index=1), 0x1F),
    "an address space beyond 57 bits": (space(vaBase=1 << 57, vaSize=1, flags=8), 0x1F),
    "freeing by another parent": (lambda up: up.free(up.subdevice, up.root), 0x36),
    "memory of no bytes": (memory(size=0, limit=0), 0x1F),
    "another limit of memory": (memory(limit=7), 0x1F),
    "a flag of memory": (memory(flags=0x2), 0x29),
    **{f"{name} {value:#x} of memory": (memory(**{name: value}), 0x1F) for name, value in (("attr", 1),
        ("attr", 1 << 25), ("attr", 3 << 23), ("attr2", 1 << 20), ("alignment", 3000), ("hVASpace", 5),
        ("type", 5), ("format", 5))},
    "more memory than there is": (memory(size=1 << 40, limit=(1 << 40) - 1), 0x51),
    **{f"control {number:#x} of the root": (lambda up, number=number: up.control(up.root, number),
        NvStatus.NOT_SUPPORTED) for number in (0x20801228, 0x906F0106, 0x83DE0328, 0x13E, 0x2080130E)},
    "an unknown GPU": (control(Control.NV0000_CTRL_CMD_GPU_GET_ID_INFO_V2, gpuId=7), 0x1F),
    "a UUID as text": (control(Control.NV2080_CTRL_CMD_GPU_GET_GID_INFO, flags=0), 0x1F),
    "a short boost": (control(Control.NV2080_CTRL_CMD_PERF_BOOST, flags=1, duration=1), 0x1F),
    "an unknown GPC": (control(Control.NV2080_CTRL_CMD_GR_GET_TPC_MASK, gpcId=8), 0x1F),
    "a route to GPCs": (control(Control.NV2080_CTRL_CMD_GR_GET_GPC_MASK,
        grRouteInfo=ctl.NV2080_CTRL_GR_ROUTE_INFO(flags=1)), 0x1F),
    "an unknown event": (control(Control.NV2080_CTRL_CMD_EVENT_SET_NOTIFICATION, event=99), 0x1F),
    "an unknown action of an event": (control(Control.NV2080_CTRL_CMD_EVENT_SET_NOTIFICATION, event=37,
        action=3), 0x1F),
    "a name in another form": (control(Control.NV2080_CTRL_CMD_GPU_GET_NAME_STRING, gpuNameStringFlags=1),
        0x1F),
    "an unknown index of memory": (control(Control.NV2080_CTRL_CMD_FB_GET_INFO_V2, fbInfoListSize=1), 0x1F),
    "too many indices of memory": (control(Control.NV2080_CTRL_CMD_FB_GET_INFO_V2, fbInfoListSize=200), 0x1F),
    "too many channels to disable": (control(Control.NV2080_CTRL_CMD_FIFO_DISABLE_CHANNELS, numChannels=65),
        0x1F),
    "a short text for the version": (control(Control.NV0000_CTRL_CMD_SYSTEM_GET_BUILD_VERSION,
        sizeOfStrings=4, pDriverVersionBuffer=1), 0x1F),
    "a range at 0": (overlapping(0, 4096), 0x1E),
    "a range off its alignment": (overlapping(BASE + 1, 4096), 0x1E),
    "a part of a page": (overlapping(BASE, 100), 0x1E),
    "an empty range": (overlapping(BASE, 0), 0x1E),
    "a range beyond all": (overlapping(1 << 56, 4096), 0x1E),
    "ranges that overlap": (overlapping(BASE + MIB - 4096, 8192), 0x68),
    "a mapping of no range": (mapping(base=BASE + 2 * MIB), 0x1E),
    "a mapping beyond its range": (mapping(base=BASE + 4096), 0x1E),
    "a mapping beyond its memory": (mapping(offset=4096), 0x37),
    "an offset off its alignment": (mapping(offset=1), 0x1E),
    "a mapping where there is one": (mapping(again=True), 0x68),
    "attributes of a second GPU": (mapping(gpuAttributesCount=2), 0x1F),
    "a mapping of no memory": (mapping(hMemory=7), 0x33),
    "a mapping of nobody's memory": (mapping(hClient=7), 0x33),
    "an unknown type of mapping": (mapping({"gpuMappingType": 9}), 0x1F),
    "an unknown format": (mapping({"gpuFormatType": 1}), 0x1F),
    "a mapping on an unknown GPU": (mapping({"gpuUuid": NOBODY}), 0x26),
    "a group of no engine": (lambda up: up.group(0), 0x1F),
    "a group of copy engine 9": (lambda up: up.group(rm_classes.copy_engine(9)), 0x1F),
    "a notifier of a group": (lambda up: up.group(1, hObjectError=5), 0x1F),
    "a group of no address space": (lambda up: up.group(1, hVASpace=5), 0x33),
    "a channel under the device": (lambda up: up.ring(up.device), 0x36),
    "100 entries": (channel(gpFifoEntries=100), 0x1F),
    "a ring that is not mapped": (channel(gpFifoOffset=0x1000), 0x1E),
    "an address space of a channel": (channel(hVASpace=1), 0x1F),
    "flag 5 of a channel": (channel(flags=1 << 5), 0x29),
    "flag 20 of a channel": (channel(flags=1 << 20), 0x29),
    **{f"user areas at {places}": (channel(userdOffset=places), 0x1F) for places in ((0x4100,), (256 << 10,),
        (0x4000, 0x200))},
    "no memory of the user area": (channel(hUserdMemory=(5,)), 0x33),
    "no notifier": (channel(hObjectError=5), 0x33),
    "an engine of a channel": (channel(engineType=9), 0x1F),
    "a channel number": (channel(cid=1), 0x1F),
    "a configuration of TPCs": (channel(tpcConfigID=1), 0x1F),
    "no object buffer": (channel(hObjectBuffer=5), 0x33),
    "compute on a copy engine": (of_copies(0xCBC0), 0x22),
    "copies without parameters": (of_copies(0xC8B5), 0x1F),
    "copies of another engine": (of_copies(0xC8B5, COPY + 1), 0x1F),
    "a window off its alignment": (window(0x10_0000_0001, 64 * MIB), 0x1E),
    "no window": (window(0, 0), 0x1E),
    "a small window": (window(0x10_0000_0000, 4096), 0x1E),
    "a window over a range": (window(BASE, 64 * MIB), 0x68),
    "memory of the system without end": (lambda up: up.alloc(up.device, RmClass.NV01_MEMORY_SYSTEM,
        up.memory_params(1 << 63, system=True)), 0x51),
}  # fmt: skip


@pytest.mark.parametrize("what", REFUSED)
def test_a_wrong_call_is_refused_with_its_status(up: Client, what: str) -> None:
    call, code = REFUSED[what]
    refused(code, call, up)


INVALID: dict[str, Call] = {
    "a read of a node": lambda up: up.kernel.read(up.ctl, 4),
    "parameters of a root": lambda up: up.alloc(0, RmClass.NV01_ROOT, bytes(8)),
    "NV_ESC_RM_SHARE": lambda up: up.escape(up.ctl, Escape.NV_ESC_RM_SHARE, bytearray(32)),
    "NV_ESC_RM_ALLOC on a GPU": lambda up: up.escape(up.gpu, Escape.NV_ESC_RM_ALLOC, bytearray(48)),
    "NV_ESC_REGISTER_FD on the control node": lambda up: up.escape(up.ctl, Escape.NV_ESC_REGISTER_FD,
        bytearray(4)),
    "a GPU to attach that is not there": lambda up: up.escape(up.ctl, Escape.NV_ESC_ATTACH_GPUS_TO_FD,
        bytearray((9, 0, 0, 0))),
    "a mapping of UVM elsewhere": lambda up: up.kernel.mmap(4096, fd=up.uvm_fd, va=0x2_0F00_0000, offset=0),
    "a mapping that was not prepared": lambda up: up.kernel.mmap(4096, fd=up.kernel.open("/dev/nvidia0")),
}  # fmt: skip


@pytest.mark.parametrize("what", INVALID)
def test_a_wrong_call_is_refused_with_an_errno(up: Client, what: str) -> None:
    invalid(errno.EINVAL, INVALID[what], up)
