"""Replies of the kernel driver that cannot be: each is an error that names the call."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from drivers.amd.layouts import drm, kfd
from drivers.amd.layouts.kfd import Call
from drivers.kernel import PAGE, view_at
from hcq.errors import BringUpError
from tests.drivers.amd.opened import opened
from tests.support.amd.scripted import ScriptedKernel

if TYPE_CHECKING:
    from drivers.kernel import Mapping

APERTURES = kfd.request(Call.GET_PROCESS_APERTURES_NEW, kfd.kfd_ioctl_get_process_apertures_new_args.SIZE)
CLOCKS = kfd.request(Call.GET_CLOCK_COUNTERS, kfd.kfd_ioctl_get_clock_counters_args.SIZE)


class Odd(ScriptedKernel):
    """Changes the reply to one call; maps memory elsewhere than asked where `moved` is set."""

    def __init__(self, request: int = 0, at: int = 0, *, moved: bool = False) -> None:
        super().__init__()
        self.request, self.at, self.moved = request, at, moved
        self.told: set[int] = set()
        """Addresses that were told."""

    def ioctl(self, fd: int, request: int, argument: bytearray | int) -> int:
        """Reply as the kernel does, but for one byte."""
        result = super().ioctl(fd, request, argument)
        assert isinstance(argument, bytearray)
        if request != self.request:
            return result
        if request == APERTURES:
            asked = kfd.kfd_ioctl_get_process_apertures_new_args.from_bytes(argument)
            if asked.kfd_process_device_apertures_ptr:
                size = kfd.kfd_process_device_apertures.SIZE
                view_at(asked.kfd_process_device_apertures_ptr, size)[self.at] ^= 0x55
        elif request == drm.DRM_IOCTL_AMDGPU_INFO:
            asked = drm.drm_amdgpu_info.from_bytes(argument)
            view_at(asked.return_pointer, asked.return_size)[self.at] ^= 0x55
        else:
            argument[self.at : self.at + 8] = bytes(8)
        return result

    def mmap(self, size: int, **others: Any) -> Mapping:
        """Map, and tell another address."""
        mapping = super().mmap(size, **others)
        if not self.moved or others.get("fd", -1) < 0:
            return mapping
        self.told.add(mapping.va + PAGE)
        return replace(mapping, va=mapping.va + PAGE)

    def munmap(self, va: int, size: int) -> None:
        """Unmap, but for an address that was told: its range goes with the reservation around it."""
        if va not in self.told:
            super().munmap(va, size)


def field(layout: type[Any], name: str) -> int:
    return int(layout.FIELDS[name].offset)


@pytest.mark.parametrize(
    ("request_", "at", "text"),
    [
        (APERTURES, field(kfd.kfd_process_device_apertures, "gpu_id"), "GET_PROCESS_APERTURES_NEW"),
        (drm.DRM_IOCTL_AMDGPU_INFO, field(drm.drm_amdgpu_info_device, "wave_front_size"), "lanes"),
    ],
)
def test_bring_up_ends_with_replies_that_are_not_of_the_gpu(request_: int, at: int, text: str) -> None:
    with pytest.raises(BringUpError, match=text):
        opened(Odd(request_, at))


@pytest.mark.parametrize("name", ["gpu_clock_counter", "system_clock_freq"])
def test_a_clock_of_zero_is_an_error(name: str) -> None:
    kernel = Odd(CLOCKS, field(kfd.kfd_ioctl_get_clock_counters_args, name))
    device = opened(kernel)
    with pytest.raises(BringUpError, match="GET_CLOCK_COUNTERS"):
        device.clock()
    kernel.request = 0
    device.close()


def test_memory_that_is_mapped_elsewhere_is_an_error() -> None:
    with pytest.raises(BringUpError, match="is mapped at"):
        opened(Odd(moved=True))
