"""The structures of the ioctls of /dev/kfd and of the render node.

Memory that only the kernel writes (apertures, the reply of AMDGPU_INFO) is not a block.

Not here: mutants (`tests.mutants.calls`).
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from drivers.amd.layouts import drm, events, kfd, kfd_unused
from drivers.kernel import view_at
from hcq.layout import Struct, u32
from tests.mutants.emulated import Block, Call

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

LAYOUTS: Final[Mapping[kfd.Call, type[Struct]]] = MappingProxyType(
    {
        kfd.Call.GET_VERSION: kfd.kfd_ioctl_get_version_args,
        kfd.Call.CREATE_QUEUE: kfd.kfd_ioctl_create_queue_args,
        kfd.Call.DESTROY_QUEUE: kfd.kfd_ioctl_destroy_queue_args,
        kfd.Call.SET_MEMORY_POLICY: kfd_unused.kfd_ioctl_set_memory_policy_args,
        kfd.Call.GET_CLOCK_COUNTERS: kfd.kfd_ioctl_get_clock_counters_args,
        kfd.Call.GET_PROCESS_APERTURES: kfd_unused.kfd_ioctl_get_process_apertures_args,
        kfd.Call.UPDATE_QUEUE: kfd.kfd_ioctl_update_queue_args,
        kfd.Call.CREATE_EVENT: events.kfd_ioctl_create_event_args,
        kfd.Call.DESTROY_EVENT: events.kfd_ioctl_destroy_event_args,
        kfd.Call.SET_EVENT: events.kfd_ioctl_set_event_args,
        kfd.Call.RESET_EVENT: events.kfd_ioctl_reset_event_args,
        kfd.Call.WAIT_EVENTS: events.kfd_ioctl_wait_events_args,
        kfd.Call.SET_SCRATCH_BACKING_VA: kfd_unused.kfd_ioctl_set_scratch_backing_va_args,
        kfd.Call.SET_TRAP_HANDLER: kfd_unused.kfd_ioctl_set_trap_handler_args,
        kfd.Call.GET_PROCESS_APERTURES_NEW: kfd.kfd_ioctl_get_process_apertures_new_args,
        kfd.Call.ACQUIRE_VM: kfd.kfd_ioctl_acquire_vm_args,
        kfd.Call.ALLOC_MEMORY_OF_GPU: kfd.kfd_ioctl_alloc_memory_of_gpu_args,
        kfd.Call.FREE_MEMORY_OF_GPU: kfd.kfd_ioctl_free_memory_of_gpu_args,
        kfd.Call.MAP_MEMORY_TO_GPU: kfd.kfd_ioctl_map_memory_to_gpu_args,
        kfd.Call.UNMAP_MEMORY_FROM_GPU: kfd.kfd_ioctl_unmap_memory_from_gpu_args,
        kfd.Call.SET_CU_MASK: kfd_unused.kfd_ioctl_set_cu_mask_args,
        kfd.Call.GET_QUEUE_WAVE_STATE: kfd_unused.kfd_ioctl_get_queue_wave_state_args,
        kfd.Call.GET_DMABUF_INFO: kfd_unused.kfd_ioctl_get_dmabuf_info_args,
        kfd.Call.IMPORT_DMABUF: kfd_unused.kfd_ioctl_import_dmabuf_args,
        kfd.Call.SMI_EVENTS: kfd_unused.kfd_ioctl_smi_events_args,
        kfd.Call.SVM: kfd_unused.kfd_ioctl_svm_args,
        kfd.Call.SET_XNACK_MODE: kfd_unused.kfd_ioctl_set_xnack_mode_args,
        kfd.Call.AVAILABLE_MEMORY: kfd.kfd_ioctl_get_available_memory_args,
        kfd.Call.EXPORT_DMABUF: kfd_unused.kfd_ioctl_export_dmabuf_args,
        kfd.Call.RUNTIME_ENABLE: kfd.kfd_ioctl_runtime_enable_args,
    }
)
"""Call -> the structure of the newest interface."""


class DeviceId(Struct, size=4, source=kfd.SOURCE):
    """An element of the array at `device_ids_array_ptr`."""

    gpu_id: int = u32(0)


def call(request: int, argument: bytearray) -> Call:
    """Describe an ioctl of /dev/kfd or of the render node."""
    if request == drm.DRM_IOCTL_AMDGPU_INFO:
        query = drm.InfoQuery(drm.drm_amdgpu_info.from_bytes(argument).query)
        return Call(f"AMDGPU_INFO {query.name}", drm.drm_amdgpu_info)
    number = kfd.Call(kfd.Request.from_int(request).NR)
    layout = LAYOUTS.get(number)
    if number is kfd.Call.CREATE_QUEUE and len(argument) == kfd.kfd_ioctl_create_queue_args_1_11.SIZE:
        layout = kfd.kfd_ioctl_create_queue_args_1_11
    timed = number is kfd.Call.WAIT_EVENTS
    name = number.name
    if number is kfd.Call.GET_PROCESS_APERTURES_NEW and layout is not None:
        asked = kfd.kfd_ioctl_get_process_apertures_new_args.from_bytes(argument)
        name += "" if asked.num_of_nodes else " of a count"
    if number is kfd.Call.CREATE_QUEUE:
        oldest = kfd.kfd_ioctl_create_queue_args_1_11  # the newer structure begins with it
        name += f" of {kfd.QueueType(int(oldest.from_bytes(argument).queue_type)).name}"
    return Call(name, layout, tuple(_blocks(number, argument)), timed=timed)


def _blocks(number: kfd.Call, argument: bytearray) -> Iterator[Block]:
    """Yield the elements of the array that a call points to."""
    if number in {kfd.Call.MAP_MEMORY_TO_GPU, kfd.Call.UNMAP_MEMORY_FROM_GPU}:
        memory = kfd.kfd_ioctl_map_memory_to_gpu_args.from_bytes(argument)  # both calls have this layout
        yield from _array(DeviceId, memory.device_ids_array_ptr, memory.n_devices)
    elif number is kfd.Call.WAIT_EVENTS:
        waited = events.kfd_ioctl_wait_events_args.from_bytes(argument)
        yield from _array(events.kfd_event_data, waited.events_ptr, waited.num_events)


def _array(layout: type[Struct], va: int, count: int) -> Iterator[Block]:
    for number in range(count):
        yield Block(layout, view_at(va + number * layout.SIZE, layout.SIZE))
