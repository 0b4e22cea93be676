"""The description of a GPU by its render node: the frequency of its counter, whether it is an APU.

Not here: the ioctl's layout (`drivers.amd.layouts.drm`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from drivers.amd.layouts.drm import (
    DRM_IOCTL_AMDGPU_INFO,
    InfoQuery,
    drm_amdgpu_info,
    drm_amdgpu_info_device,
)
from drivers.amd.refusals import BringUpError
from drivers.kernel import address_of
from hcq.errors import DriverError

if TYPE_CHECKING:
    from drivers.kernel import Kernel


_WAVES: Final = frozenset({32, 64})


def ask(kernel: Kernel, fd: int) -> drm_amdgpu_info_device:
    """Return the reply to DEV_INFO. Raises `DriverError`, `BringUpError` for a reply that cannot be."""
    answer = bytearray(drm_amdgpu_info_device.SIZE)
    block = bytearray(
        drm_amdgpu_info(
            return_pointer=address_of(answer), return_size=len(answer), query=InfoQuery.DEV_INFO
        ).to_bytes()
    )
    try:
        kernel.ioctl(fd, DRM_IOCTL_AMDGPU_INFO, block)
    except DriverError as error:
        raise type(error)(
            "AMDGPU_INFO DEV_INFO",
            error.status,
            error.status_name,
            arguments=error.arguments,
            hint=error.hint,
        ) from None
    info = drm_amdgpu_info_device.from_bytes(answer)
    if info.wave_front_size not in _WAVES:
        raise BringUpError(
            f"DEV_INFO: wanted waves of 32 or 64 lanes, saw {info.wave_front_size}; try a newer kernel"
        )
    if not info.gpu_counter_freq:
        raise BringUpError("DEV_INFO: wanted a frequency of the GPU's counter, saw 0; try a newer kernel")
    return info
