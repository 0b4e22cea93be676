"""Frontend escapes: ioctl numbers of /dev/nvidiactl and /dev/nvidia0, and how a request word is made.

Source: nv-ioctl-numbers.h, nv-ioctl.h and nv_escape.h of NVIDIA open-gpu-kernel-modules 580.142.
"""

# fmt: off
Escape = tuple[int, str | None, int | None]
"""(number, structure or None where none is described, size in bytes or None where the caller chooses)."""

ESCAPES: dict[str, Escape] = {
    "NV_ESC_RM_ALLOC_MEMORY": (0x27, "nv_ioctl_nvos02_parameters_with_fd", 56),
    "NV_ESC_RM_FREE": (0x29, "NVOS00_PARAMETERS", 16),
    "NV_ESC_RM_CONTROL": (0x2a, "NVOS54_PARAMETERS", 32),
    "NV_ESC_RM_ALLOC": (0x2b, "NVOS64_PARAMETERS", 48),
    "NV_ESC_RM_DUP_OBJECT": (0x34, "NVOS55_PARAMETERS", 28),
    "NV_ESC_RM_SHARE": (0x35, None, None),
    "NV_ESC_RM_IDLE_CHANNELS": (0x41, None, None),
    "NV_ESC_RM_VID_HEAP_CONTROL": (0x4a, None, None),
    "NV_ESC_RM_MAP_MEMORY": (0x4e, "nv_ioctl_nvos33_parameters_with_fd", 56),
    "NV_ESC_RM_UNMAP_MEMORY": (0x4f, "NVOS34_PARAMETERS", 32),
    "NV_ESC_RM_ALLOC_CONTEXT_DMA2": (0x54, None, None),
    "NV_ESC_RM_MAP_MEMORY_DMA": (0x57, "NVOS46_PARAMETERS", 64),
    "NV_ESC_RM_UNMAP_MEMORY_DMA": (0x58, "NVOS47_PARAMETERS", 48),
    "NV_ESC_RM_UPDATE_DEVICE_MAPPING_INFO": (0x5e, None, None),
    "NV_ESC_CARD_INFO": (200, "nv_ioctl_card_info_t", None),
    "NV_ESC_REGISTER_FD": (201, "nv_ioctl_register_fd_t", 4),
    "NV_ESC_ALLOC_OS_EVENT": (206, "nv_ioctl_alloc_os_event_t", 16),
    "NV_ESC_FREE_OS_EVENT": (207, "nv_ioctl_free_os_event_t", 16),
    "NV_ESC_STATUS_CODE": (209, None, None),
    "NV_ESC_CHECK_VERSION_STR": (210, "nv_ioctl_rm_api_version_t", 72),
    "NV_ESC_IOCTL_XFER_CMD": (211, "nv_ioctl_xfer_t", 16),
    "NV_ESC_ATTACH_GPUS_TO_FD": (212, None, None),
    "NV_ESC_SYS_PARAMS": (214, "nv_ioctl_sys_params_t", 8),
    "NV_ESC_EXPORT_TO_DMABUF_FD": (217, None, None),
    "NV_ESC_WAIT_OPEN_COMPLETE": (218, "nv_ioctl_wait_open_complete_t", 8),
}

ALLOC_FORMS = {32: "NVOS21_PARAMETERS", 48: "NVOS64_PARAMETERS"}
"""NV_ESC_RM_ALLOC takes two structures, told apart by their size."""

MAGIC = 0x46
DIRECTION_SHIFT, SIZE_SHIFT, MAGIC_SHIFT, DIRECTION = 30, 16, 8, 3
LARGEST_DIRECT_SIZE = 16383

REQUESTS = {
    ("NV_ESC_RM_FREE", 16): 0xc0104629,
    ("NV_ESC_RM_CONTROL", 32): 0xc020462a,
    ("NV_ESC_RM_ALLOC", 48): 0xc030462b,
    ("NV_ESC_RM_ALLOC", 32): 0xc020462b,
    ("NV_ESC_RM_MAP_MEMORY", 56): 0xc038464e,
    ("NV_ESC_CARD_INFO", 4608): 0xd20046c8,
    ("NV_ESC_REGISTER_FD", 4): 0xc00446c9,
    ("NV_ESC_CHECK_VERSION_STR", 72): 0xc04846d2,
    ("NV_ESC_IOCTL_XFER_CMD", 16): 0xc01046d3,
}
"""Request words worked out by hand from 3 << 30 | size << 16 | 0x46 << 8 | number."""

VERSION_QUERY, VERSION_RELAXED, VERSION_STRICT, VERSION_RECOGNISED = 0x32, 0x31, 0, 1

MAJOR, CONTROL_MINOR, GPU0_MINOR = 195, 255, 0
