"""The ioctls of a render node: AMDGPU_INFO. All others are refused with their name.

Source: Linux amdgpu_kms.c (amdgpu_info_ioctl), docs/sources-amd.md.

Not here: the ioctls of /dev/kfd (`ioctls`), mmap of the node (`emulator.amd.machine.kernel`). Next: `ioctls`.
"""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING

from drivers.amd.layouts import drm
from drivers.amd.layouts.kfd import GPUVM_BASE, GPUVM_RESERVED_TOP
from emulator.amd.kfd.gpu import VA_BITS
from emulator.amd.kfd.refusal import NotEmulated, refuse
from emulator.shared.backing import PAGE

if TYPE_CHECKING:
    from emulator.amd.kfd.files import KfdFile, KfdFiles
    from emulator.amd.kfd.gpu import KfdGpu

_NAMES = {
    drm.DRM_IOCTL_AMDGPU_GEM_CREATE: "GEM_CREATE",
    drm.DRM_IOCTL_AMDGPU_GEM_MMAP: "GEM_MMAP",
    drm.DRM_IOCTL_AMDGPU_GEM_VA: "GEM_VA",
}


def ioctl(kernel: KfdFiles, file: KfdFile, request: int, block: bytearray) -> None:
    """Run one ioctl of a render node; `block` is the caller's structure.

    The answer goes to its return_pointer. Raises `CallRefused` with the errno of Linux, and `NotEmulated` for
    a request or query that is not emulated.
    """
    if request != drm.DRM_IOCTL_AMDGPU_INFO:
        known = _NAMES.get(request)
        if known is not None:
            raise NotEmulated(errno.EOPNOTSUPP, f"AMDGPU {known} is not emulated; hardware may support it")
        refuse(errno.ENOTTY, f"render nodes have no ioctl {request:#x}")
    if len(block) < drm.drm_amdgpu_info.SIZE:
        refuse(errno.EFAULT, f"AMDGPU_INFO takes {drm.drm_amdgpu_info.SIZE} bytes, not {len(block)}")
    assert file.gpu is not None
    args = drm.drm_amdgpu_info.from_bytes(block)
    if not args.return_size or not args.return_pointer:
        refuse(errno.EINVAL, "AMDGPU_INFO without room for an answer")
    answer = _answer(kernel, file.gpu, int(args.query))
    kernel.process.user.write(args.return_pointer, answer[: args.return_size])


def _answer(kernel: KfdFiles, gpu: KfdGpu, query: int) -> bytes:
    """Return the whole answer to a query of AMDGPU_INFO; the caller cuts it to its return_size."""
    match query:
        case drm.InfoQuery.DEV_INFO:
            return _device(gpu)
        case drm.InfoQuery.TIMESTAMP:
            return kernel.process.hardware.clock(gpu).to_bytes(8, "little")
        case drm.InfoQuery.VRAM_USAGE:
            return gpu.vram_used.to_bytes(8, "little")
        case _ if query in frozenset(drm.InfoQuery):
            name = drm.InfoQuery(query).name
            raise NotEmulated(errno.EOPNOTSUPP, f"AMDGPU_INFO {name} is not emulated")
        case _:
            return refuse(errno.EINVAL, f"AMDGPU_INFO has no query {query:#x}")


def _device(gpu: KfdGpu) -> bytes:
    """Return drm_amdgpu_info_device of a GPU; fields that no profile states are 0."""
    profile = gpu.profile
    return drm.drm_amdgpu_info_device.pack(
        device_id=profile.device_id,
        chip_rev=profile.revision,
        external_rev=profile.revision + 1,
        family=profile.family,
        num_shader_engines=profile.array_count // profile.arrays_per_engine,
        num_shader_arrays_per_engine=profile.arrays_per_engine,
        gpu_counter_freq=profile.counter_khz,
        max_engine_clock=profile.clock_mhz * 1000,
        cu_active_number=profile.units,
        virtual_address_offset=GPUVM_BASE,
        virtual_address_max=(1 << VA_BITS) - GPUVM_RESERVED_TOP,
        gart_page_size=PAGE,
        wave_front_size=profile.wave_size,
    )
