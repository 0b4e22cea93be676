"""The driver's calls are all on the list of a filtering sandbox (nv.md 7.2), which is repeated here."""

from __future__ import annotations

import contextlib

import pytest

from drivers.nv.layouts.chips import GENERATIONS
from drivers.nv.layouts.controls import Control
from drivers.nv.layouts.rm import NVOS02_PARAMETERS, NVOS54_PARAMETERS, NVOS64_PARAMETERS, Escape, Request
from hcq.device import Device
from hcq.errors import DeviceFault
from tests.limits import HANG_S
from tests.support.nv.golden import sample
from tests.support.nv.recorded import RecordedKernel, driver_of

ESCAPES = {200, 201, 210, 214, 212, 206, 207, 0x27, 0x2B, 0x29, 0x2A, 0x34, 0x35, 0x4A, 0x4E, 0x4F, 0x5E, 218}
"""CARD_INFO, REGISTER_FD, CHECK_VERSION_STR, SYS_PARAMS, ATTACH_GPUS, OS events, RM_ALLOC_MEMORY, RM_ALLOC,
FREE, CONTROL, DUP, SHARE, VID_HEAP, MAP and UNMAP_MEMORY, UPDATE_DEVICE_MAPPING_INFO, WAIT_OPEN_COMPLETE."""
CLASSES = {
    0x0, 0x41, 0x80, 0x2080, 0x90F1, 0x9067, 0xA06C, 0xC46F, 0xC56F, 0xC86F, 0xC96F, 0xCA6F,
    0xC5C0, 0xC6C0, 0xC7C0, 0xC9C0, 0xCBC0, 0xCDC0, 0xCEC0, 0xC5B5, 0xC6B5, 0xC7B5, 0xC8B5, 0xC9B5, 0xCAB5,
    0x3E, 0x40, 0x83DE, 0x79, 0xC461, 0xC661, 0xC761,
}  # fmt: skip
CONTROLS = {
    0x2080014A, 0x201, 0x214, 0x205, 0x800201, 0x800292, 0x20801201, 0x2080122A, 0x2080122B, 0x2080121B,
    0x20801218, 0x20801303, 0x20801701, 0x20802A0A, 0x2080200A, 0x20800110, 0xA06C0101, 0xA06F0103,
    0xA06C0105, 0xC36F0108, 0x906F0102, 0x2080110B, 0x83DE030C, 0x83DE0310, 0x83DE0309, 0x83DE0307,
    0x20800301, 0x101,
}  # fmt: skip
UVM = {
    0x30000001, 0x30000002, 75, 37, 38, 25, 26, 27, 28, 73, 33, 66, 34, 72, 68, 29, 30, 23, 24, 39,
}  # fmt: skip
NOT_LISTED = {Control.NV906F_CTRL_GET_MMU_FAULT_INFO}
"""Issued only for a fault report, if the allowed source, the SM's registers, has no fault address."""
OTHERS = ("570", "590", "595")


class Asked(RecordedKernel):
    """A kernel that records the numbers of all calls."""

    def __init__(self, *chips: str, driver: str) -> None:
        super().__init__(*chips, driver=driver)
        self.escapes: set[int] = set()
        self.classes: set[int] = set()
        self.controls: set[int] = set()
        self.uvm: set[int] = set()

    def ioctl(self, fd: int, request: int, argument: bytearray | int) -> int:
        assert isinstance(argument, bytearray)
        if self.inner.files[fd].uvm is not None:
            self.uvm.add(request)
            return super().ioctl(fd, request, argument)
        number = Request.from_int(request).NR
        self.escapes.add(number)
        if number == Escape.NV_ESC_RM_ALLOC:
            self.classes.add(NVOS64_PARAMETERS.from_bytes(argument).hClass)
        elif number == Escape.NV_ESC_RM_CONTROL:
            self.controls.add(NVOS54_PARAMETERS.from_bytes(argument).cmd)
        elif number == Escape.NV_ESC_RM_ALLOC_MEMORY:
            # OS descriptors come this way alone.
            assert NVOS02_PARAMETERS.from_bytes(argument[: NVOS02_PARAMETERS.SIZE]).hClass == 0x71
        return super().ioctl(fd, request, argument)


def use(device: Device) -> None:
    """Use every kind of queue, memory and a kernel with local memory; then cause a fault and recover."""
    sm = device.info.arch.removeprefix("sm_").rstrip("a")
    program = device.load(sample(device.info.arch, int(sm), stack=64))
    out, x = device.alloc(4 << 20), device.alloc(64)
    for queue in device.computes:
        args = program.args(out, x, 1)
        commands = queue.record().exec(program, args, groups=(1, 1, 1), threads=(1, 1, 1)).fill(x)
        queue.submit(commands).wait(timeout_s=HANG_S)
    for queue in device.copies:
        queue.submit(queue.record().copy(out, x, 64)).wait(timeout_s=HANG_S)


@pytest.mark.sampled(11)
@pytest.mark.parametrize(
    ("chip", "driver"),
    [
        *((f"sm_{row.chips[0].sm}", "580") for row in GENERATIONS.values()),
        *(("sm_90", branch) for branch in OTHERS),
    ],
)
def test_every_name_in_use_is_on_the_list(chip: str, driver: str):
    kernel = Asked(chip, driver=driver)
    made = driver_of(kernel).open(0, None)
    with contextlib.closing(Device(made)) as device:
        use(device)
        assert kernel.controls <= CONTROLS
        kernel.post_error(13)
        with pytest.raises(DeviceFault):
            device.poll_faults()
        made.recover()
    assert kernel.escapes <= ESCAPES
    assert kernel.classes <= CLASSES
    assert kernel.controls <= CONTROLS | NOT_LISTED
    assert kernel.uvm <= UVM
    assert kernel.held() == {}


def test_every_queue_is_a_channel_in_a_group_of_its_own_and_copies_leave_the_graphics_run_list():
    kernel = RecordedKernel()
    with contextlib.closing(Device(driver_of(kernel).open(0, None))) as device:
        channels = [queue.ring.channel for queue in device.queues]  # type: ignore[attr-defined]  # an NvRing
        assert len({channel.token for channel in channels}) == len({c.group for c in channels}) == 4
        # The GPU's engines 0 and 1 share the graphics run list: types 9 and 10.
        assert [channel.engine for channel in channels] == [1, 1, 11, 12]
