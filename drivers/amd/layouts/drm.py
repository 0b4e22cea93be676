"""The render node: ioctl numbers, and AMDGPU_INFO, which returns the frequency of the GPU's clock counter.

Not here: /dev/kfd (`kfd`). Next: `drivers.amd.topology`, the user.
"""

# ruff: noqa: N801 - names are the kernel's own

from __future__ import annotations

import enum
from typing import Final

from hcq.layout import Struct, blob, u32, u64

SOURCE = "Linux 6.12 include/uapi/drm/amdgpu_drm.h"

DRM_IOCTL_AMDGPU_INFO: Final = 0x40206445
DRM_IOCTL_AMDGPU_GEM_CREATE: Final = 0xC0206440
DRM_IOCTL_AMDGPU_GEM_MMAP: Final = 0xC0086441
DRM_IOCTL_AMDGPU_GEM_VA: Final = 0x40286448


class InfoQuery(enum.IntEnum):
    """AMDGPU_INFO: `query`."""

    HW_IP_INFO = 0x02
    TIMESTAMP = 0x05
    VRAM_USAGE = 0x10
    READ_MMR_REG = 0x15
    DEV_INFO = 0x16


class drm_amdgpu_info(Struct, size=32, source=SOURCE):
    """DRM_IOCTL_AMDGPU_INFO."""

    return_pointer: int = u64(0)
    return_size: int = u32(8, doc="bytes; the kernel writes at most so many")
    query: InfoQuery = u32(12)
    parameters: bytes = blob(16, 16, doc="a union, by the query")


class drm_amdgpu_info_device(Struct, size=440, source=SOURCE):
    """The reply to DEV_INFO; only fields that are used are named."""

    device_id: int = u32(0)
    chip_rev: int = u32(4)
    external_rev: int = u32(8)
    pci_rev: int = u32(12)
    family: int = u32(16)
    num_shader_engines: int = u32(20)
    num_shader_arrays_per_engine: int = u32(24)
    gpu_counter_freq: int = u32(28, doc="kHz")
    max_engine_clock: int = u64(32, doc="kHz")
    cu_active_number: int = u32(48)
    cu_ao_mask: int = u32(52)
    cu_bitmap: bytes = blob(56, 64)
    ids_flags: int = u64(136)
    virtual_address_offset: int = u64(144)
    virtual_address_max: int = u64(152)
    gart_page_size: int = u32(168)
    wave_front_size: int = u32(240)


IDS_FLAGS_FUSION: Final = 1
"""Bit of `ids_flags`: the GPU is part of an APU, and its memory is the system's."""
