"""Structures of the KFD calls that the driver does not make; the emulated kernel answers most of them.

Not here: the structures of calls that the driver makes, and the numbers of all calls (`kfd`).
"""

# ruff: noqa: N801 - names are the kernel's own

from __future__ import annotations

from typing import Final

from drivers.amd.layouts.kfd import SOURCE, MemFlags, kfd_process_device_apertures
from hcq.layout import Struct, i32, nested, u32, u64


class kfd_ioctl_set_cu_mask_args(Struct, size=16, source=SOURCE):
    """SET_CU_MASK: limits a queue to some compute units."""

    queue_id: int = u32(0)
    num_cu_mask: int = u32(4, doc="bits, a multiple of 32")
    cu_mask_ptr: int = u64(8)


class kfd_ioctl_get_queue_wave_state_args(Struct, size=24, source=SOURCE):
    """GET_QUEUE_WAVE_STATE: copies the control stack of an evicted queue."""

    ctl_stack_address: int = u64(0)
    ctl_stack_used_size: int = u32(8)
    save_area_used_size: int = u32(12)
    queue_id: int = u32(16)


class kfd_ioctl_get_process_apertures_args(Struct, size=400, source=SOURCE):
    """GET_PROCESS_APERTURES: the apertures of at most seven GPUs."""

    process_apertures: tuple[kfd_process_device_apertures, ...] = nested(
        0, kfd_process_device_apertures, count=7
    )
    num_of_nodes: int = u32(392)


class kfd_ioctl_export_dmabuf_args(Struct, size=16, source=SOURCE):
    """EXPORT_DMABUF: makes a dma-buf of an allocation."""

    handle: int = u64(0)
    flags: int = u32(8, doc="O_CLOEXEC and the access mode")
    dmabuf_fd: int = u32(12, doc="from the kernel")


class kfd_ioctl_import_dmabuf_args(Struct, size=24, source=SOURCE):
    """IMPORT_DMABUF: makes an allocation from a dma-buf."""

    va_addr: int = u64(0)
    handle: int = u64(8, doc="from the kernel")
    gpu_id: int = u32(16)
    dmabuf_fd: int = u32(20)


class kfd_ioctl_get_dmabuf_info_args(Struct, size=32, source=SOURCE):
    """GET_DMABUF_INFO: size, flags and metadata of a dma-buf."""

    size: int = u64(0)
    metadata_ptr: int = u64(8)
    metadata_size: int = u32(16)
    gpu_id: int = u32(20)
    flags: MemFlags = u32(24)
    dmabuf_fd: int = u32(28)


class kfd_ioctl_set_memory_policy_args(Struct, size=32, source=SOURCE):
    """SET_MEMORY_POLICY: without effect on gfx9 and later."""

    alternate_aperture_base: int = u64(0)
    alternate_aperture_size: int = u64(8)
    gpu_id: int = u32(16)
    default_policy: int = u32(20)
    alternate_policy: int = u32(24)


class kfd_ioctl_set_scratch_backing_va_args(Struct, size=16, source=SOURCE):
    """SET_SCRATCH_BACKING_VA: without effect on gfx9 and later."""

    va_addr: int = u64(0)
    gpu_id: int = u32(8)


class kfd_ioctl_set_trap_handler_args(Struct, size=24, source=SOURCE):
    """SET_TRAP_HANDLER: the second-level trap handler of a process."""

    tba_addr: int = u64(0)
    tma_addr: int = u64(8)
    gpu_id: int = u32(16)


class kfd_ioctl_set_xnack_mode_args(Struct, size=4, source=SOURCE):
    """SET_XNACK_MODE: 0 or 1 sets the mode; a negative value reads it."""

    xnack_enabled: int = i32(0)


class kfd_ioctl_smi_events_args(Struct, size=8, source=SOURCE):
    """SMI_EVENTS: returns a descriptor from which events are read as lines of text."""

    gpuid: int = u32(0)
    anon_fd: int = u32(4, doc="from the kernel")


class kfd_ioctl_svm_args(Struct, size=24, source=SOURCE):
    """SVM: ranges of shared virtual memory. `nattr` attributes follow the structure."""

    start_addr: int = u64(0)
    size: int = u64(8)
    op: int = u32(16)
    nattr: int = u32(20)


SVM_ATTRIBUTE_BYTES: Final = 8
"""Bytes of each attribute of SVM: a type and a value, both u32."""
