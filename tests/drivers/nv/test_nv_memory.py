"""Device addresses and BAR1: ranges are disjoint and released, and a small BAR1 keeps room for buffers."""

from __future__ import annotations

import errno
import itertools
from typing import TYPE_CHECKING

import pytest

import hcq
from drivers.kernel import MAP_ANONYMOUS, MAP_FIXED_NOREPLACE, MAP_PRIVATE, LinuxKernel
from drivers.nv.layouts.controls import FbInfo
from drivers.nv.topology import fb_info
from drivers.nv.vaspace import FIRST, HUGE, LAST, LOCAL_WINDOW, SHARED_WINDOW, NvVaSpace
from hcq.errors import DriverError, OutOfMemoryError
from hcq.kernarg_ring import ARGUMENTS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from drivers.nv.device import NvDevice
    from hcq.device import Device


class EmptyHost:
    """A kernel of a process that uses no addresses."""

    def __init__(self) -> None:
        self.taken: list[tuple[int, int]] = []
        self.asked = 0

    def mmap(self, size: int, *, va: int, flags: int, **_: object) -> None:
        assert flags & MAP_FIXED_NOREPLACE
        self.asked += 1
        if any(va < end and start < va + size for start, end in self.taken):
            raise DriverError("mmap", errno.EEXIST, "EEXIST")
        self.taken.append((va, va + size))

    def munmap(self, va: int, size: int) -> None:
        self.taken.remove((va, va + size))


# In this process other tests' devices may hold addresses, too.


def test_ranges_are_disjoint_aligned_and_reusable():
    space = NvVaSpace(LinuxKernel())
    sizes = (4096, HUGE, 3 * HUGE, 4096)
    taken = [space.reserve(size) for size in sizes]
    assert all(va % HUGE == 0 and FIRST <= va < LAST for va in taken)
    assert len(set(taken)) == 4
    for va in taken:
        space.release(va)
    assert [space.reserve(size) for size in sizes] == taken
    space.close()


def test_released_ranges_are_merged():
    host = EmptyHost()
    space = NvVaSpace(host)  # type: ignore[arg-type]  # all of a kernel that it uses
    taken = [space.reserve(size) for size in (4096, HUGE, 3 * HUGE, 4096)]
    for va in (taken[2], taken[0], taken[3], taken[1]):
        space.release(va)
    assert host.taken == []
    assert space.reserve(LAST - FIRST) == taken[0] == FIRST
    with pytest.raises(OutOfMemoryError):
        space.reserve(4096)
    space.close()
    assert host.taken == []


def test_a_range_that_the_host_uses_is_passed_over():
    host = EmptyHost()
    space = NvVaSpace(host)  # type: ignore[arg-type]  # all of a kernel that it uses
    host.mmap(4096, va=FIRST + 8192, flags=MAP_FIXED_NOREPLACE)
    assert space.reserve(HUGE) == FIRST + HUGE


def test_address_ranges_used_by_the_host_are_skipped_once():
    host = EmptyHost()
    space = NvVaSpace(host)  # type: ignore[arg-type]  # all of a kernel that it uses
    host.mmap(64 << 30, va=FIRST, flags=MAP_FIXED_NOREPLACE)
    host.asked = 0
    taken = [space.reserve(HUGE) for _ in range(10)]
    assert host.asked <= 30
    assert taken[0] >= FIRST + (64 << 30)
    assert [b - a for a, b in itertools.pairwise(taken)] == [HUGE] * 9


def test_a_skipped_hole_is_used_when_nothing_else_is_free():
    host = EmptyHost()
    space = NvVaSpace(host)  # type: ignore[arg-type]  # all of a kernel that it uses
    host.mmap(HUGE, va=FIRST, flags=MAP_FIXED_NOREPLACE)
    host.mmap(30 * HUGE, va=FIRST + 2 * HUGE, flags=MAP_FIXED_NOREPLACE)
    first = space.reserve(HUGE)
    second = space.reserve(HUGE)
    assert (first, second) == (FIRST + HUGE, FIRST + 33 * HUGE)
    rest = space.reserve(LAST - second - HUGE)
    assert rest == second + HUGE
    assert space.reserve(HUGE) == FIRST + 32 * HUGE
    with pytest.raises(OutOfMemoryError):
        space.reserve(40 * HUGE)


def test_ranges_freed_below_a_skip_are_reused():
    host = EmptyHost()
    space = NvVaSpace(host)  # type: ignore[arg-type]  # all of a kernel that it uses
    low = space.reserve(HUGE)
    host.mmap(8 * HUGE, va=low + HUGE, flags=MAP_FIXED_NOREPLACE)
    high = space.reserve(HUGE)
    assert high > low + 8 * HUGE
    space.release(low)
    assert space.reserve(HUGE) == low


def test_a_range_that_this_process_uses_is_passed_over():
    kernel = LinuxKernel()
    space = NvVaSpace(kernel)
    probe = space.reserve(HUGE)
    space.release(probe)
    kernel.mmap(4096, va=probe, flags=MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE)
    assert space.reserve(HUGE) >= probe + HUGE
    kernel.munmap(probe, 4096)
    space.close()


def test_windows_of_the_compute_engine_are_never_handed_out():
    assert SHARED_WINDOW % (1 << 32) == 0
    assert SHARED_WINDOW + (1 << 32) <= FIRST
    assert LOCAL_WINDOW + (1 << 24) <= FIRST
    assert LAST <= 1 << 40


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
