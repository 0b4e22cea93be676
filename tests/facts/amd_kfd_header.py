"""KFD's structures and constants by the names that the kernel's C header gives them, with the minor of each.

Source: Linux include/uapi/linux/kfd_ioctl.h, versions 1.11 (Debian 12) and 1.17 (6.12). `amd_kfd` has the
same by the short names of the calls. A field is written name@offset/bytes, padding too.
"""

# fmt: off
from dataclasses import dataclass

Fields = tuple[tuple[int, int, str], ...]


@dataclass(frozen=True, slots=True)
class CStruct:
    """One structure of the header."""

    size: int
    fields: Fields
    call: str = ""
    """The ioctl that takes it; the request word is that of `amd_kfd.IOCTLS`."""
    since: int = 1
    """KFD minor that brought it."""


def _c(size: int, text: str, call: str = "", since: int = 1) -> CStruct:
    fields = tuple(
        (int(offset), int(width), name)
        for name, place in (word.split("@") for word in text.split())
        for offset, width in [place.split("/")]
    )
    return CStruct(size, fields, call, since)


STRUCTS: dict[str, CStruct] = {
    "kfd_ioctl_get_version_args": _c(8, "major_version@0/4 minor_version@4/4", "GET_VERSION"),
    "kfd_ioctl_create_queue_args": _c(
        96, "ring_base_address@0/8 write_pointer_address@8/8 read_pointer_address@16/8 doorbell_offset@24/8"
        " ring_size@32/4 gpu_id@36/4 queue_type@40/4 queue_percentage@44/4 queue_priority@48/4 queue_id@52/4"
        " eop_buffer_address@56/8 eop_buffer_size@64/8 ctx_save_restore_address@72/8"
        " ctx_save_restore_size@80/4 ctl_stack_size@84/4 sdma_engine_id@88/4 pad@92/4", "CREATE_QUEUE",
    ),
    "kfd_ioctl_destroy_queue_args": _c(8, "queue_id@0/4 pad@4/4", "DESTROY_QUEUE"),
    "kfd_ioctl_set_memory_policy_args": _c(
        32, "alternate_aperture_base@0/8 alternate_aperture_size@8/8 gpu_id@16/4 default_policy@20/4"
        " alternate_policy@24/4 pad@28/4", "SET_MEMORY_POLICY",
    ),
    "kfd_ioctl_get_clock_counters_args": _c(
        40, "gpu_clock_counter@0/8 cpu_clock_counter@8/8 system_clock_counter@16/8 system_clock_freq@24/8"
        " gpu_id@32/4 pad@36/4", "GET_CLOCK_COUNTERS",
    ),
    "kfd_ioctl_get_process_apertures_args": _c(
        400, "process_apertures@0/392 num_of_nodes@392/4 pad@396/4", "GET_PROCESS_APERTURES",
    ),
    "kfd_ioctl_update_queue_args": _c(
        24, "ring_base_address@0/8 queue_id@8/4 ring_size@12/4 queue_percentage@16/4 queue_priority@20/4",
        "UPDATE_QUEUE",
    ),
    "kfd_ioctl_create_event_args": _c(
        32, "event_page_offset@0/8 event_trigger_data@8/4 event_type@12/4 auto_reset@16/4 node_id@20/4"
        " event_id@24/4 event_slot_index@28/4", "CREATE_EVENT",
    ),
    "kfd_ioctl_destroy_event_args": _c(8, "event_id@0/4 pad@4/4", "DESTROY_EVENT"),
    "kfd_ioctl_set_event_args": _c(8, "event_id@0/4 pad@4/4", "SET_EVENT"),
    "kfd_ioctl_reset_event_args": _c(8, "event_id@0/4 pad@4/4", "RESET_EVENT"),
    "kfd_ioctl_wait_events_args": _c(
        24, "events_ptr@0/8 num_events@8/4 wait_for_all@12/4 timeout@16/4 wait_result@20/4", "WAIT_EVENTS",
    ),
    "kfd_ioctl_set_scratch_backing_va_args": _c(
        16, "va_addr@0/8 gpu_id@8/4 pad@12/4", "SET_SCRATCH_BACKING_VA",
    ),
    "kfd_ioctl_get_tile_config_args": _c(
        40, "tile_config_ptr@0/8 macro_tile_config_ptr@8/8 num_tile_configs@16/4 num_macro_tile_configs@20/4"
        " gpu_id@24/4 gb_addr_config@28/4 num_banks@32/4 num_ranks@36/4", "GET_TILE_CONFIG",
    ),
    "kfd_ioctl_set_trap_handler_args": _c(
        24, "tba_addr@0/8 tma_addr@8/8 gpu_id@16/4 pad@20/4", "SET_TRAP_HANDLER",
    ),
    "kfd_ioctl_get_process_apertures_new_args": _c(
        16, "kfd_process_device_apertures_ptr@0/8 num_of_nodes@8/4 pad@12/4", "GET_PROCESS_APERTURES_NEW",
    ),
    "kfd_ioctl_acquire_vm_args": _c(8, "drm_fd@0/4 gpu_id@4/4", "ACQUIRE_VM"),
    "kfd_ioctl_alloc_memory_of_gpu_args": _c(
        40, "va_addr@0/8 size@8/8 handle@16/8 mmap_offset@24/8 gpu_id@32/4 flags@36/4", "ALLOC_MEMORY_OF_GPU",
    ),
    "kfd_ioctl_free_memory_of_gpu_args": _c(8, "handle@0/8", "FREE_MEMORY_OF_GPU"),
    "kfd_ioctl_map_memory_to_gpu_args": _c(
        24, "handle@0/8 device_ids_array_ptr@8/8 n_devices@16/4 n_success@20/4", "MAP_MEMORY_TO_GPU",
    ),
    "kfd_ioctl_unmap_memory_from_gpu_args": _c(
        24, "handle@0/8 device_ids_array_ptr@8/8 n_devices@16/4 n_success@20/4", "UNMAP_MEMORY_FROM_GPU",
    ),
    "kfd_ioctl_set_cu_mask_args": _c(16, "queue_id@0/4 num_cu_mask@4/4 cu_mask_ptr@8/8", "SET_CU_MASK"),
    "kfd_ioctl_get_queue_wave_state_args": _c(
        24, "ctl_stack_address@0/8 ctl_stack_used_size@8/4 save_area_used_size@12/4 queue_id@16/4 pad@20/4",
        "GET_QUEUE_WAVE_STATE",
    ),
    "kfd_ioctl_get_dmabuf_info_args": _c(
        32, "size@0/8 metadata_ptr@8/8 metadata_size@16/4 gpu_id@20/4 flags@24/4 dmabuf_fd@28/4",
        "GET_DMABUF_INFO",
    ),
    "kfd_ioctl_import_dmabuf_args": _c(
        24, "va_addr@0/8 handle@8/8 gpu_id@16/4 dmabuf_fd@20/4", "IMPORT_DMABUF",
    ),
    "kfd_ioctl_alloc_queue_gws_args": _c(
        16, "queue_id@0/4 num_gws@4/4 first_gws@8/4 pad@12/4", "ALLOC_QUEUE_GWS",
    ),
    "kfd_ioctl_smi_events_args": _c(8, "gpuid@0/4 anon_fd@4/4", "SMI_EVENTS", 3),
    "kfd_ioctl_svm_args": _c(24, "start_addr@0/8 size@8/8 op@16/4 nattr@20/4", "SVM", 5),
    "kfd_ioctl_set_xnack_mode_args": _c(4, "xnack_enabled@0/4", "SET_XNACK_MODE", 5),
    "kfd_ioctl_criu_args": _c(
        56, "devices@0/8 bos@8/8 priv_data@16/8 priv_data_size@24/8 num_devices@32/4 num_bos@36/4"
        " num_objects@40/4 pid@44/4 op@48/4", "CRIU_OP", 7,
    ),
    "kfd_ioctl_get_available_memory_args": _c(16, "available@0/8 gpu_id@8/4 pad@12/4", "AVAILABLE_MEMORY", 9),
    "kfd_ioctl_export_dmabuf_args": _c(16, "handle@0/8 flags@8/4 dmabuf_fd@12/4", "EXPORT_DMABUF", 12),
    "kfd_ioctl_runtime_enable_args": _c(
        16, "r_debug@0/8 mode_mask@8/4 capabilities_mask@12/4", "RUNTIME_ENABLE", 13,
    ),
    "kfd_ioctl_dbg_trap_args": _c(32, "pid@0/4 op@4/4", "DBG_TRAP", 13),
    "kfd_process_device_apertures": _c(
        56, "lds_base@0/8 lds_limit@8/8 scratch_base@16/8 scratch_limit@24/8 gpuvm_base@32/8 gpuvm_limit@40/8"
        " gpu_id@48/4 pad@52/4",
    ),
    "kfd_memory_exception_failure": _c(16, "NotPresent@0/4 ReadOnly@4/4 NoExecute@8/4 imprecise@12/4"),
    "kfd_hsa_memory_exception_data": _c(
        32, "failure.NotPresent@0/4 failure.ReadOnly@4/4 failure.NoExecute@8/4 failure.imprecise@12/4"
        " va@16/8 gpu_id@24/4 ErrorType@28/4",
    ),
    "kfd_hsa_hw_exception_data": _c(16, "reset_type@0/4 reset_cause@4/4 memory_lost@8/4 gpu_id@12/4"),
    "kfd_hsa_signal_event_data": _c(8, "last_event_age@0/8", since=14),
    "kfd_event_data": _c(48, "kfd_event_data_ext@32/8 event_id@40/4 pad@44/4"),
    "kfd_ioctl_svm_attribute": _c(8, "type@0/4 value@4/4", since=5),
    "kfd_context_save_area_header": _c(
        40, "wave_state.control_stack_offset@0/4 wave_state.control_stack_size@4/4"
        " wave_state.wave_state_offset@8/4 wave_state.wave_state_size@12/4 debug_offset@16/4 debug_size@20/4"
        " err_payload_addr@24/8 err_event_id@32/4 reserved1@36/4", since=13,
    ),
}

SIZES_BEFORE: dict[tuple[str, int], int] = {("kfd_ioctl_create_queue_args", 17): 88}
"""(structure, minor that grew it) -> bytes before."""
FIELDS_SINCE: dict[tuple[str, str], int] = {
    ("kfd_ioctl_create_queue_args", "sdma_engine_id"): 17, ("kfd_ioctl_create_queue_args", "pad"): 17,
}
FIELDS_UNTIL: dict[tuple[str, str], int] = {("kfd_ioctl_set_memory_policy_args", "pad"): 18}
"""(structure, field) -> minor that named it otherwise: misc_process_flag there."""
NEWEST_MINOR = 17
"""Of these tables; a newer header may add calls."""
DEPRECATED_CALLS = {
    "DBG_REGISTER_DEPRECATED": 0x0D, "DBG_UNREGISTER_DEPRECATED": 0x0E, "DBG_ADDRESS_WATCH_DEPRECATED": 0x0F,
    "DBG_WAVE_CONTROL_DEPRECATED": 0x10,
}
"""Calls that the kernel refuses."""

CONSTANTS: dict[str, tuple[int, int]] = {
    "KFD_IOCTL_MAJOR_VERSION": (1, 1),
    "KFD_IOC_QUEUE_TYPE_COMPUTE": (0, 1), "KFD_IOC_QUEUE_TYPE_SDMA": (1, 1),
    "KFD_IOC_QUEUE_TYPE_COMPUTE_AQL": (2, 1), "KFD_IOC_QUEUE_TYPE_SDMA_XGMI": (3, 1),
    "KFD_IOC_QUEUE_TYPE_SDMA_BY_ENG_ID": (4, 17),
    "KFD_MAX_QUEUE_PERCENTAGE": (100, 1), "KFD_MAX_QUEUE_PRIORITY": (15, 1),
    "KFD_IOC_CACHE_POLICY_COHERENT": (0, 1), "KFD_IOC_CACHE_POLICY_NONCOHERENT": (1, 1),
    "NUM_OF_SUPPORTED_GPUS": (7, 1),
    "KFD_IOC_EVENT_SIGNAL": (0, 1), "KFD_IOC_EVENT_NODECHANGE": (1, 1),
    "KFD_IOC_EVENT_DEVICESTATECHANGE": (2, 1), "KFD_IOC_EVENT_HW_EXCEPTION": (3, 1),
    "KFD_IOC_EVENT_SYSTEM_EVENT": (4, 1), "KFD_IOC_EVENT_DEBUG_EVENT": (5, 1),
    "KFD_IOC_EVENT_PROFILE_EVENT": (6, 1), "KFD_IOC_EVENT_QUEUE_EVENT": (7, 1),
    "KFD_IOC_EVENT_MEMORY": (8, 1),
    "KFD_IOC_WAIT_RESULT_COMPLETE": (0, 1), "KFD_IOC_WAIT_RESULT_TIMEOUT": (1, 1),
    "KFD_IOC_WAIT_RESULT_FAIL": (2, 1), "KFD_SIGNAL_EVENT_LIMIT": (4096, 1),
    "KFD_HW_EXCEPTION_WHOLE_GPU_RESET": (0, 1), "KFD_HW_EXCEPTION_PER_ENGINE_RESET": (1, 1),
    "KFD_HW_EXCEPTION_GPU_HANG": (0, 1), "KFD_HW_EXCEPTION_ECC": (1, 1),
    "KFD_MEM_ERR_NO_RAS": (0, 1), "KFD_MEM_ERR_SRAM_ECC": (1, 1), "KFD_MEM_ERR_POISON_CONSUMED": (2, 1),
    "KFD_MEM_ERR_GPU_HANG": (3, 1),
    "KFD_IOC_ALLOC_MEM_FLAGS_VRAM": (1 << 0, 1), "KFD_IOC_ALLOC_MEM_FLAGS_GTT": (1 << 1, 1),
    "KFD_IOC_ALLOC_MEM_FLAGS_USERPTR": (1 << 2, 1), "KFD_IOC_ALLOC_MEM_FLAGS_DOORBELL": (1 << 3, 1),
    "KFD_IOC_ALLOC_MEM_FLAGS_MMIO_REMAP": (1 << 4, 1), "KFD_IOC_ALLOC_MEM_FLAGS_WRITABLE": (1 << 31, 1),
    "KFD_IOC_ALLOC_MEM_FLAGS_EXECUTABLE": (1 << 30, 1), "KFD_IOC_ALLOC_MEM_FLAGS_PUBLIC": (1 << 29, 1),
    "KFD_IOC_ALLOC_MEM_FLAGS_NO_SUBSTITUTE": (1 << 28, 1),
    "KFD_IOC_ALLOC_MEM_FLAGS_AQL_QUEUE_MEM": (1 << 27, 1), "KFD_IOC_ALLOC_MEM_FLAGS_COHERENT": (1 << 26, 1),
    "KFD_IOC_ALLOC_MEM_FLAGS_UNCACHED": (1 << 25, 1), "KFD_IOC_ALLOC_MEM_FLAGS_EXT_COHERENT": (1 << 24, 13),
    "KFD_IOC_ALLOC_MEM_FLAGS_CONTIGUOUS": (1 << 23, 16),
    "KFD_SMI_EVENT_VMFAULT": (1, 3), "KFD_SMI_EVENT_THERMAL_THROTTLE": (2, 3),
    "KFD_SMI_EVENT_GPU_PRE_RESET": (3, 3), "KFD_SMI_EVENT_GPU_POST_RESET": (4, 3),
    "KFD_SMI_EVENT_MIGRATE_START": (5, 10), "KFD_SMI_EVENT_MIGRATE_END": (6, 10),
    "KFD_SMI_EVENT_PAGE_FAULT_START": (7, 10), "KFD_SMI_EVENT_PAGE_FAULT_END": (8, 10),
    "KFD_SMI_EVENT_QUEUE_EVICTION": (9, 10), "KFD_SMI_EVENT_QUEUE_RESTORE": (10, 10),
    "KFD_SMI_EVENT_UNMAP_FROM_GPU": (11, 10), "KFD_SMI_EVENT_ALL_PROCESS": (64, 10),
    "KFD_SMI_EVENT_MSG_SIZE": (96, 3),
    "KFD_MMIO_REMAP_HDP_MEM_FLUSH_CNTL": (0, 1), "KFD_MMIO_REMAP_HDP_REG_FLUSH_CNTL": (4, 1),
    "KFD_IOCTL_SVM_FLAG_HOST_ACCESS": (1, 5), "KFD_IOCTL_SVM_FLAG_COHERENT": (2, 5),
    "KFD_IOCTL_SVM_FLAG_HIVE_LOCAL": (4, 5), "KFD_IOCTL_SVM_FLAG_GPU_RO": (8, 5),
    "KFD_IOCTL_SVM_FLAG_GPU_EXEC": (0x10, 5), "KFD_IOCTL_SVM_FLAG_GPU_READ_MOSTLY": (0x20, 5),
    "KFD_IOCTL_SVM_FLAG_GPU_ALWAYS_MAPPED": (0x40, 11), "KFD_IOCTL_SVM_FLAG_EXT_COHERENT": (0x80, 13),
    "KFD_IOCTL_SVM_OP_SET_ATTR": (0, 5), "KFD_IOCTL_SVM_OP_GET_ATTR": (1, 5),
    "KFD_IOCTL_SVM_ATTR_PREFERRED_LOC": (0, 5), "KFD_IOCTL_SVM_ATTR_PREFETCH_LOC": (1, 5),
    "KFD_IOCTL_SVM_ATTR_ACCESS": (2, 5), "KFD_IOCTL_SVM_ATTR_ACCESS_IN_PLACE": (3, 5),
    "KFD_IOCTL_SVM_ATTR_NO_ACCESS": (4, 5), "KFD_IOCTL_SVM_ATTR_SET_FLAGS": (5, 5),
    "KFD_IOCTL_SVM_ATTR_CLR_FLAGS": (6, 5), "KFD_IOCTL_SVM_ATTR_GRANULARITY": (7, 5),
    "KFD_RUNTIME_ENABLE_MODE_ENABLE_MASK": (1, 13), "KFD_RUNTIME_ENABLE_MODE_TTMP_SAVE_MASK": (2, 13),
    "EC_QUEUE_WAVE_ABORT": (1, 13), "EC_QUEUE_WAVE_TRAP": (2, 13), "EC_QUEUE_WAVE_MATH_ERROR": (3, 13),
    "EC_QUEUE_WAVE_ILLEGAL_INSTRUCTION": (4, 13), "EC_QUEUE_WAVE_MEMORY_VIOLATION": (5, 13),
    "EC_QUEUE_WAVE_APERTURE_VIOLATION": (6, 13), "EC_QUEUE_PACKET_DISPATCH_DIM_INVALID": (16, 13),
    "EC_QUEUE_PACKET_DISPATCH_GROUP_SEGMENT_SIZE_INVALID": (17, 13),
    "EC_QUEUE_PACKET_DISPATCH_CODE_INVALID": (18, 13), "EC_QUEUE_PACKET_RESERVED": (19, 13),
    "EC_QUEUE_PACKET_UNSUPPORTED": (20, 13), "EC_QUEUE_PACKET_DISPATCH_WORK_GROUP_SIZE_INVALID": (21, 13),
    "EC_QUEUE_PACKET_DISPATCH_REGISTER_INVALID": (22, 13), "EC_QUEUE_PACKET_VENDOR_UNSUPPORTED": (23, 13),
    "EC_QUEUE_PREEMPTION_ERROR": (30, 13), "EC_QUEUE_NEW": (31, 13), "EC_DEVICE_QUEUE_DELETE": (32, 13),
    "EC_DEVICE_MEMORY_VIOLATION": (33, 13), "EC_DEVICE_RAS_ERROR": (34, 13), "EC_DEVICE_FATAL_HALT": (35, 13),
    "EC_DEVICE_NEW": (36, 13), "EC_PROCESS_RUNTIME": (48, 13), "EC_PROCESS_DEVICE_REMOVE": (49, 13),
}
"""Name -> (value, minor since which the header has it at the latest)."""
