"""A GPU whose BAR1 has 256 MiB: arguments and rings leave half of it to buffers that have no other place."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import pytest

import hcq
from drivers.nv.layouts.controls import FbInfo
from drivers.nv.topology import fb_info
from hcq.errors import OutOfMemoryError
from hcq.kernarg_ring import ARGUMENTS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from drivers.nv.device import NvDevice
    from hcq.device import Device

MIB = 1 << 20
SMALL = 256 * MIB
VISIBLE = hcq.BufferSpec(host_visible=True)
HOST = hcq.BufferSpec(place=hcq.Place.HOST, host_visible=True, coherent=True)


@pytest.fixture
def device() -> Iterator[Device]:
    with hcq.open("nv-emu:sm_86+bar256") as opened:
        yield opened


def driver_of(device: Device) -> NvDevice:
    driver: NvDevice = device.driver  # type: ignore[assignment]  # the device is open as nv
    return driver


def free(device: Device) -> int:
    driver = driver_of(device)
    return fb_info(driver.rm, driver.handles.subdevice, (FbInfo.BAR1_AVAIL_SIZE,))[0] << 10


def test_arguments_keep_half_of_bar1_free_and_go_on_in_host_memory(device: Device) -> None:
    assert driver_of(device).gpu.small_bar1 == SMALL
    buffers, rooms = [], [free(device)]
    for _ in range(20):
        buffers.append(device.alloc(16 * MIB, ARGUMENTS))
        rooms.append(free(device))
    taken = [before - after for before, after in itertools.pairwise(rooms)]
    assert taken == sorted(taken, reverse=True)
    chunk = taken[0]
    assert chunk >= 16 * MIB
    assert {*taken} == {0, chunk}
    assert SMALL // 2 <= rooms[-1] < SMALL // 2 + chunk
    out, queue = device.alloc(8, HOST), device.copies[0]
    for number, buffer in enumerate(buffers):  # the CPU and the copy engine see both kinds alike
        buffer.host()[:8] = bytes([number + 1]) * 8
        queue.submit(queue.record().copy(out, buffer.view(0, 8))).wait()
        assert bytes(out.host()) == bytes([number + 1]) * 8


def test_rings_and_launches_work_where_buffers_have_taken_bar1(device: Device) -> None:
    held: list[hcq.Buffer] = []
    with pytest.raises(OutOfMemoryError, match="BAR1 is full or too small"):
        held.extend(device.alloc(16 * MIB, VISIBLE) for _ in range(SMALL // (16 * MIB) + 1))
    assert sum(buffer.size for buffer in held) >= SMALL // 4 * 3
    room = free(device)
    source, out = device.alloc(4096, HOST), device.alloc(4096, HOST)
    source.host()[:] = bytes(range(256)) * 16
    for queue in (*device.copies, *device.computes):
        out.host()[:] = bytes(4096)
        queue.submit(queue.record().copy(out, source)).wait()
        assert bytes(out.host()) == bytes(range(256)) * 16
    assert free(device) == room


def test_a_bar1_that_maps_all_video_memory_is_not_asked_for_its_room() -> None:
    with hcq.open("nv-emu:sm_86") as device:
        driver = driver_of(device)
        assert driver.gpu.small_bar1 == 0
        before = free(device)
        buffer = device.alloc(16 * MIB, ARGUMENTS)
        assert before - free(device) >= buffer.size
