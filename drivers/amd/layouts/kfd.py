"""KFD: ioctl numbers of /dev/kfd with their structures, memory flags, queue types, apertures, mmap offsets.

The kernel selects the call by its number alone. It extends a shorter structure with zeros and cuts a longer
one. It copies the structure back even if the call fails.

Not here: calls that the driver does not make (`kfd_unused`), events (`events`), context-save areas (`cwsr`),
the render node (`drm`). Next: `drivers.amd.kfd`, the client.
"""

# ruff: noqa: N801 - names are the kernel's own

from __future__ import annotations

import enum
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from hcq.layout import BitStruct, Struct, bits, const, optional, u32, u64

SOURCE = "Linux 6.12 include/uapi/linux/kfd_ioctl.h (KFD 1.17)"
SOURCE_1_11 = "Linux 6.1 include/uapi/linux/kfd_ioctl.h (KFD 1.11)"
SOURCE_DRIVER = "Linux 6.12 drivers/gpu/drm/amd/amdkfd/kfd_priv.h, kfd_chardev.c"

MAJOR: Final = 1
"""The one major version of the interface."""
OLDEST_MINOR: Final = 11
"""The oldest minor version that is supported."""


class Call(enum.IntEnum):
    """Numbers of the ioctls of /dev/kfd."""

    GET_VERSION = 0x01
    CREATE_QUEUE = 0x02
    DESTROY_QUEUE = 0x03
    SET_MEMORY_POLICY = 0x04
    GET_CLOCK_COUNTERS = 0x05
    GET_PROCESS_APERTURES = 0x06
    UPDATE_QUEUE = 0x07
    CREATE_EVENT = 0x08
    DESTROY_EVENT = 0x09
    SET_EVENT = 0x0A
    RESET_EVENT = 0x0B
    WAIT_EVENTS = 0x0C
    SET_SCRATCH_BACKING_VA = 0x11
    GET_TILE_CONFIG = 0x12
    SET_TRAP_HANDLER = 0x13
    GET_PROCESS_APERTURES_NEW = 0x14
    ACQUIRE_VM = 0x15
    ALLOC_MEMORY_OF_GPU = 0x16
    FREE_MEMORY_OF_GPU = 0x17
    MAP_MEMORY_TO_GPU = 0x18
    UNMAP_MEMORY_FROM_GPU = 0x19
    SET_CU_MASK = 0x1A
    GET_QUEUE_WAVE_STATE = 0x1B
    GET_DMABUF_INFO = 0x1C
    IMPORT_DMABUF = 0x1D
    ALLOC_QUEUE_GWS = 0x1E
    SMI_EVENTS = 0x1F
    SVM = 0x20
    SET_XNACK_MODE = 0x21
    CRIU_OP = 0x22
    AVAILABLE_MEMORY = 0x23
    EXPORT_DMABUF = 0x24
    RUNTIME_ENABLE = 0x25
    DBG_TRAP = 0x26


class Direction(enum.IntEnum):
    """Direction of an ioctl's structure, as the process sees it."""

    WRITE = 1
    READ = 2
    BOTH = 3


class Request(BitStruct, source="asm-generic/ioctl.h"):
    """The request word of an ioctl."""

    NR: int = bits(7, 0, doc="a Call")
    _TYPE = const(15, 8, 0x4B)
    BYTES: int = bits(29, 16, doc="bytes of the structure")
    DIRECTION: Direction = bits(31, 30)


_WRITTEN: Final = frozenset(
    {
        Call.SET_MEMORY_POLICY,
        Call.UPDATE_QUEUE,
        Call.DESTROY_EVENT,
        Call.SET_EVENT,
        Call.RESET_EVENT,
        Call.SET_TRAP_HANDLER,
        Call.ACQUIRE_VM,
        Call.FREE_MEMORY_OF_GPU,
        Call.SET_CU_MASK,
    }
)
_READ: Final = frozenset({Call.GET_VERSION, Call.GET_PROCESS_APERTURES})


def request(call: Call, size: int) -> int:
    """Return the request word for a call with a structure of `size` bytes."""
    way = Direction.WRITE if call in _WRITTEN else Direction.READ if call in _READ else Direction.BOTH
    return Request.pack(NR=call, BYTES=size, DIRECTION=way)[0]


GATES: Final[Mapping[str, tuple[int, int]]] = MappingProxyType(
    {
        "SVM": (1, 5),
        "AVAILABLE_MEMORY": (1, 9),
        "unified CWSR memory": (1, 11),
        "EXPORT_DMABUF": (1, 12),
        "RUNTIME_ENABLE": (1, 13),
        "event_age": (1, 14),
        "GEM_VA on KFD buffers": (1, 15),
        "CONTIGUOUS": (1, 16),
        "SDMA_BY_ENG_ID": (1, 17),
    }
)
"""Feature -> the first (major, minor) of the interface that has it."""


class kfd_ioctl_get_version_args(Struct, size=8, source=SOURCE):
    major_version: int = u32(0)
    minor_version: int = u32(4)


class QueueType(enum.IntEnum):
    """Type of a queue: its packets and its engine."""

    COMPUTE = 0
    SDMA = 1
    COMPUTE_AQL = 2
    SDMA_XGMI = 3
    SDMA_BY_ENG_ID = 4


class QueuePercentage(BitStruct, source=SOURCE_DRIVER):
    """CREATE_QUEUE and UPDATE_QUEUE: `queue_percentage`; 0 takes the queue off the hardware."""

    PERCENT: int = bits(7, 0, doc="at most 100")
    PM4_TARGET_XCC: int = optional(15, 8, doc="the XCC that runs a PM4 queue")


MAX_QUEUE_PERCENTAGE: Final = 100
MAX_QUEUE_PRIORITY: Final = 15
QUEUE_PRIORITY: Final = 7
"""The priority of an ordinary queue."""
QUEUE_PRIORITIES: Final[Mapping[int, int]] = MappingProxyType(
    {-3: 0, -2: 3, -1: 5, 0: QUEUE_PRIORITY, 1: 9, 2: 11, 3: MAX_QUEUE_PRIORITY}
)
"""The runtime's priorities -> the kernel's (libhsakmt, queues.c)."""
MIN_RING_BYTES: Final = 1024
"""The least size of a ring; the kernel rounds a smaller one up."""
RING_ALIGN: Final = 256
"""Alignment of the ring's address in bytes."""
MIN_EOP_BYTES: Final = 4096
"""The least size of an end-of-pipe buffer."""
QUEUES_PER_PROCESS: Final = 127
"""The most queues of a process on one device."""
QUEUES_PER_PROCESS_9_4_3: Final = 255
"""The same on GC 9.4.3 and 9.4.4."""
ENOTSUPP: Final = 524
"""The kernel's own errno for a queue type that it does not know; errno.h has no name for it."""


class kfd_ioctl_create_queue_args_1_11(Struct, size=88, source=SOURCE_1_11):
    """CREATE_QUEUE before KFD 1.17."""

    ring_base_address: int = u64(0)
    write_pointer_address: int = u64(8)
    read_pointer_address: int = u64(16)
    doorbell_offset: int = u64(24, doc="from the kernel: an mmap token and the doorbell's offset")
    ring_size: int = u32(32)
    gpu_id: int = u32(36)
    queue_type: QueueType = u32(40)
    queue_percentage: int = u32(44, doc="a QueuePercentage")
    queue_priority: int = u32(48)
    queue_id: int = u32(52, doc="from the kernel")
    eop_buffer_address: int = u64(56)
    eop_buffer_size: int = u64(64)
    ctx_save_restore_address: int = u64(72)
    ctx_save_restore_size: int = u32(80)
    ctl_stack_size: int = u32(84)


class kfd_ioctl_create_queue_args(kfd_ioctl_create_queue_args_1_11, size=96, source=SOURCE):
    """CREATE_QUEUE since KFD 1.17."""

    sdma_engine_id: int = u32(88)


class kfd_ioctl_destroy_queue_args(Struct, size=8, source=SOURCE):
    """DESTROY_QUEUE: preempts the queue; a wave that cannot be preempted may lead to a reset of the GPU."""

    queue_id: int = u32(0)


class kfd_ioctl_update_queue_args(Struct, size=24, source=SOURCE):
    """UPDATE_QUEUE: a percentage of 0 or a ring at 0 makes the queue inactive."""

    ring_base_address: int = u64(0)
    queue_id: int = u32(8)
    ring_size: int = u32(12)
    queue_percentage: int = u32(16, doc="a QueuePercentage")
    queue_priority: int = u32(20)


class kfd_process_device_apertures(Struct, size=56, source=SOURCE):
    """One GPU in the answer of GET_PROCESS_APERTURES_NEW."""

    lds_base: int = u64(0)
    lds_limit: int = u64(8)
    scratch_base: int = u64(16)
    scratch_limit: int = u64(24)
    gpuvm_base: int = u64(32)
    gpuvm_limit: int = u64(40)
    gpu_id: int = u32(48)


LDS_APERTURE: Final = 1 << 48
"""First flat address that accesses LDS, on gfx9 and later (kfd_flat_memory.c)."""
SCRATCH_APERTURE: Final = 2 << 48
"""First flat address that accesses scratch, on gfx9 and later (kfd_flat_memory.c)."""
APERTURE_BYTES: Final = 1 << 32
"""Size of both apertures."""
GPUVM_BASE: Final = 0x10000
"""`gpuvm_base`: the lowest address of user memory."""
GPUVM_RESERVED_TOP: Final = (4 << 20) + (64 << 10)
"""Bytes at the top of the GPU's addresses that the kernel keeps for itself (amdgpu_vm.h)."""
USER_ADDRESS_BITS: Final = 47
"""Addresses of a process lie below 2 to this power."""


class kfd_ioctl_get_process_apertures_new_args(Struct, size=16, source=SOURCE):
    """GET_PROCESS_APERTURES_NEW: with `num_of_nodes` 0 the kernel returns only the number of nodes."""

    kfd_process_device_apertures_ptr: int = u64(0)
    num_of_nodes: int = u32(8)


class kfd_ioctl_acquire_vm_args(Struct, size=8, source=SOURCE):
    """ACQUIRE_VM: binds the process to a GPU; must be the first call for this GPU."""

    drm_fd: int = u32(0)
    gpu_id: int = u32(4)


class kfd_ioctl_runtime_enable_args(Struct, size=16, source=SOURCE):
    """RUNTIME_ENABLE: once for a process, before its first queue."""

    r_debug: int = u64(0)
    mode_mask: int = u32(8, doc="a RuntimeMode")
    capabilities_mask: int = u32(12)


class RuntimeMode(enum.IntFlag):
    """RUNTIME_ENABLE: `mode_mask`."""

    ENABLE = 1
    TTMP_SAVE = 2


class kfd_ioctl_get_clock_counters_args(Struct, size=40, source=SOURCE):
    """GET_CLOCK_COUNTERS: GPU ticks, and the host's clocks at the same time."""

    gpu_clock_counter: int = u64(0)
    cpu_clock_counter: int = u64(8, doc="CLOCK_MONOTONIC_RAW, ns")
    system_clock_counter: int = u64(16, doc="CLOCK_BOOTTIME, ns")
    system_clock_freq: int = u64(24)
    gpu_id: int = u32(32)


SYSTEM_CLOCK_HZ: Final = 1_000_000_000
"""`system_clock_freq`: the host's counters are in nanoseconds."""


class MemFlags(enum.IntFlag):
    """Flags of ALLOC_MEMORY_OF_GPU: exactly one of the first five, the kind; the others are properties."""

    VRAM = 1 << 0
    GTT = 1 << 1
    USERPTR = 1 << 2
    DOORBELL = 1 << 3
    MMIO_REMAP = 1 << 4
    CONTIGUOUS = 1 << 23
    EXT_COHERENT = 1 << 24
    UNCACHED = 1 << 25
    COHERENT = 1 << 26
    AQL_QUEUE_MEM = 1 << 27
    NO_SUBSTITUTE = 1 << 28
    PUBLIC = 1 << 29
    EXECUTABLE = 1 << 30
    WRITABLE = 1 << 31


_USABLE: Final = MemFlags.WRITABLE | MemFlags.EXECUTABLE | MemFlags.NO_SUBSTITUTE


class MemKind(enum.IntFlag):
    """The flags of each kind of memory that the driver allocates (libhsakmt, fmm.c)."""

    VRAM = MemFlags.VRAM | _USABLE
    VISIBLE_VRAM = MemFlags.VRAM | _USABLE | MemFlags.PUBLIC
    SYSTEM = MemFlags.GTT | _USABLE | MemFlags.COHERENT | MemFlags.UNCACHED
    USER_POINTER = MemFlags.USERPTR | _USABLE | MemFlags.COHERENT | MemFlags.UNCACHED
    DOORBELL = MemFlags.DOORBELL | MemFlags.WRITABLE | MemFlags.COHERENT
    MMIO_REMAP = MemFlags.MMIO_REMAP | MemFlags.WRITABLE | MemFlags.COHERENT


class kfd_ioctl_alloc_memory_of_gpu_args(Struct, size=40, source=SOURCE):
    va_addr: int = u64(0)
    size: int = u64(8)
    handle: int = u64(16, doc="from the kernel")
    mmap_offset: int = u64(24, doc="in: the host address of USERPTR; from the kernel: an offset for mmap")
    gpu_id: int = u32(32)
    flags: MemFlags = u32(36)


class kfd_ioctl_free_memory_of_gpu_args(Struct, size=8, source=SOURCE):
    """FREE_MEMORY_OF_GPU: no GPU may map the memory."""

    handle: int = u64(0)


class kfd_ioctl_map_memory_to_gpu_args(Struct, size=24, source=SOURCE):
    """MAP_MEMORY_TO_GPU; on error `n_success` is the number of GPUs that map the memory."""

    handle: int = u64(0)
    device_ids_array_ptr: int = u64(8)
    n_devices: int = u32(16)
    n_success: int = u32(20, doc="index of the first GPU; from the kernel: GPUs done")


class kfd_ioctl_unmap_memory_from_gpu_args(kfd_ioctl_map_memory_to_gpu_args, size=24, source=SOURCE):
    """UNMAP_MEMORY_FROM_GPU, with the fields of MAP_MEMORY_TO_GPU."""


class kfd_ioctl_get_available_memory_args(Struct, size=16, source=SOURCE):
    """AVAILABLE_MEMORY: bytes of video memory that can still be allocated."""

    available: int = u64(0)
    gpu_id: int = u32(8)


class MmapType(enum.IntEnum):
    """The kind of page that an mmap of /dev/kfd maps."""

    MMIO = 0
    RESERVED_MEM = 1
    EVENTS = 2
    DOORBELL = 3


class MmapOffset(BitStruct, word_bits=64, source=SOURCE_DRIVER):
    """The offset of an mmap of /dev/kfd; CREATE_QUEUE returns one with the doorbell's offset in it."""

    OFFSET: int = optional(45, 0)
    GPU_ID: int = bits(61, 46)
    TYPE: MmapType = bits(63, 62)


DOORBELL_BYTES: Final = 8
DOORBELL_SLICE_BYTES: Final = 8192
"""Size of the doorbells of one GPU in a process, which are mapped as a whole."""
SDMA_DOORBELL_MIRROR: Final = 512
"""Distance between two doorbells of one SDMA engine, in doorbells."""
MMIO_REMAP_BYTES: Final = 4096
"""Size of the page of remapped registers."""


class MmioRemap(enum.IntEnum):
    """Byte offsets in the MMIO remap page."""

    HDP_MEM_FLUSH_CNTL = 0
    HDP_REG_FLUSH_CNTL = 4
