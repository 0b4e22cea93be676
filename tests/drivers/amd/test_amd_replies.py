"""Replies of the kernel driver that cannot be: each is an error that names the call."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from drivers.amd.layouts import drm, kfd
from drivers.kernel import MAP_FIXED, view_at
from hcq.errors import BringUpError
from tests.drivers.amd.opened import emulated, opened
from tests.support.hooked import HookedKernel

if TYPE_CHECKING:
    from collections.abc import Callable

    from drivers.kernel import Mapping

INFO = f"{drm.DRM_IOCTL_AMDGPU_INFO:#x}"
ROW = kfd.kfd_process_device_apertures
CLOCKS = kfd.kfd_ioctl_get_clock_counters_args


class Moved(HookedKernel):
    """Maps memory of the GPU elsewhere than it is asked to."""

    def mmap(self, size: int, *, va: int = 0, flags: int | None = None, **rest: int) -> Mapping:
        elsewhere = flags is not None and flags & MAP_FIXED and rest.get("fd", -1) >= 0
        if flags is not None and elsewhere:
            va, flags = 0, flags & ~MAP_FIXED
        return super().mmap(size, va=va, flags=flags, **rest)


def apertures(block: bytearray) -> None:
    asked = kfd.kfd_ioctl_get_process_apertures_new_args.from_bytes(block)
    if asked.kfd_process_device_apertures_ptr:
        view_at(asked.kfd_process_device_apertures_ptr, ROW.SIZE)[ROW.offset_of("gpu_id")] ^= 0x55


def lanes(block: bytearray) -> None:
    asked = drm.drm_amdgpu_info.from_bytes(block)
    at = drm.drm_amdgpu_info_device.offset_of("wave_front_size")
    view_at(asked.return_pointer, asked.return_size)[at] ^= 0x55


@pytest.mark.parametrize(
    ("call", "change", "text"),
    [("GET_PROCESS_APERTURES_NEW", apertures, "GET_PROCESS_APERTURES_NEW"), (INFO, lanes, "lanes")],
)
def test_bring_up_ends_with_replies_that_are_not_of_the_gpu(
    call: str, change: Callable[[bytearray], None], text: str
) -> None:
    kernel = emulated()
    kernel.after[call] = change
    with pytest.raises(BringUpError, match=text):
        opened(kernel)


@pytest.mark.parametrize("name", ["gpu_clock_counter", "system_clock_freq"])
def test_a_clock_of_zero_is_an_error(name: str) -> None:
    kernel = emulated()
    kernel.after["GET_CLOCK_COUNTERS"] = lambda block: CLOCKS.store(block, **{name: 0})
    device = opened(kernel)
    with pytest.raises(BringUpError, match="GET_CLOCK_COUNTERS"):
        device.clock()
    device.close()


def test_memory_that_is_mapped_elsewhere_is_an_error() -> None:
    kernel = Moved(emulated().inner)
    with pytest.raises(BringUpError, match="is mapped at"):
        opened(kernel)
    assert kernel.held() == {}
