"""Errors of the kernel driver: call, what is wrong, errno.

Source: Linux 6.12.107 kfd_chardev.c, kfd_process.c, kfd_events.c, kfd_queue.c, amdgpu_amdkfd_gpuvm.c and
kfd_process_queue_manager.c. "geometry" rows hold since 6.12; 6.1 does not check them.
"""

# fmt: off
from errno import (
    EADDRINUSE,
    EAGAIN,
    EBADF,
    EBUSY,
    EEXIST,
    EFAULT,
    EINTR,
    EINVAL,
    ENOMEM,
    ENOSPC,
    ENOTTY,
    EPERM,
    ESRCH,
)

ENOTSUPP = 524
"""The kernel's own number; it is in no header of user space."""

ANY_CALL = {
    "number out of range": ENOTTY, "descriptor of another process, as after fork": EBADF,
    "opened by a 32-bit process": EPERM, "opened during a reset": EAGAIN, "unknown gpu_id": EINVAL,
}

ERRNOS: dict[str, dict[str, int]] = {
    "ACQUIRE_VM": {"another DRM descriptor": EBUSY, "no DRM descriptor of amdgpu": EINVAL},
    "RUNTIME_ENABLE": {"enabled already": EBUSY, "queues exist": EEXIST},
    "SET_XNACK_MODE": {"queues exist": EBUSY, "unsupported": EPERM},
    "GET_PROCESS_APERTURES_NEW": {"more entries than devices": EINVAL},
    "ALLOC_MEMORY_OF_GPU": {
        "size 0": EINVAL, "no type flag": EINVAL, "PUBLIC on a small BAR": EINVAL,
        "overlaps an SVM range": EADDRINUSE, "over the limit": ENOMEM, "doorbell of another size": EINVAL,
        "MMIO remap of another size": EINVAL, "MMIO remap not available": ENOMEM,
    },
    "MAP_MEMORY_TO_GPU": {
        "no devices": EINVAL, "n_success above n_devices": EINVAL, "bad handle": ENOMEM,
        "bad device id": EINVAL, "array of devices not readable": EFAULT,
    },
    "UNMAP_MEMORY_FROM_GPU": {"no devices": EINVAL, "bad handle": ENOMEM},
    "FREE_MEMORY_OF_GPU": {"mapped": EBUSY, "signal page": EPERM, "bad handle": EINVAL},
    "CREATE_QUEUE": {
        "percentage above 100": EINVAL, "priority above 15": EINVAL, "ring size no power of two": EINVAL,
        "pointer not accessible": EFAULT, "before ACQUIRE_VM": ESRCH, "EOP below 4096": EINVAL,
        "too many queues": ENOSPC, "too many queues of the process": ENOMEM,
        "no SDMA queue left": ENOMEM, "unknown type": ENOTSUPP, "unknown gpu_id": EINVAL,
        "SDMA engine above the last": EINVAL,
    },
    "CREATE_QUEUE geometry": {
        "ring is no whole mapping": EINVAL, "pointer page is not a mapping of one page": EINVAL,
        "EOP size not 4096": EINVAL, "EOP buffer of another size": EINVAL,
        "control stack size not equal": EINVAL, "save size below cwsr_size": EINVAL,
        "save size above cwsr_size, from 6.12 to 6.17.8": EINVAL, "save buffer of another size": EINVAL,
        "write pointer not in GTT under MES": EINVAL,
    },
    "UPDATE_QUEUE": {
        "percentage above 100": EINVAL, "priority above 15": EINVAL, "ring size no power of two": EINVAL,
        "ring not accessible": EFAULT, "unknown queue": EFAULT, "ring is no whole mapping": EFAULT,
    },
    "DESTROY_QUEUE": {"unknown queue": EINVAL},
    "SET_CU_MASK": {"no bits": EINVAL, "bits no multiple of 32": EINVAL},
    "CREATE_EVENT": {"second signal page": EINVAL, "signal page too small": EINVAL, "no slot left": ENOSPC},
    "SET_EVENT": {"no signal event": EINVAL},
    "RESET_EVENT": {"no signal event": EINVAL},
    "WAIT_EVENTS": {"unknown event": EINVAL, "interrupted": EINTR},
    "SVM": {"not page-aligned": EINVAL, "size 0": EINVAL},
    "gpu_id file": {"hidden by the device cgroup": EPERM},
    "IPC_IMPORT_HANDLE and other calls out of tree": {"an upstream kernel": ENOTTY},
}
SAME_DESCRIPTOR_AGAIN = 0
"""ACQUIRE_VM with the descriptor that it had before succeeds."""
CLOCKS_OF_AN_UNKNOWN_GPU = 0
"""GET_CLOCK_COUNTERS with an unknown gpu_id succeeds, with this `gpu_clock_counter`."""
