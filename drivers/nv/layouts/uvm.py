"""The unified memory driver: commands of /dev/nvidia-uvm and their structures.

The request number is the command alone, without direction or size. The status is in `rmStatus`. In an address
space that is registered with UVM, only these commands map memory.

Not here: memory objects (`rm_classes`). Next: `drivers.nv.uvm`, the client.
"""

# ruff: noqa: N801, N815 - names are the vendor's own; annotations are read at run time

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Final

from drivers.nv.layouts.status import NvStatus
from hcq.layout import Struct, blob, i32, nested, u8, u32, u64

SOURCE = "open-gpu-kernel-modules 580.142, uvm_ioctl.h (nv.md 1.2, 1.6)"
SOURCE_590 = "open-gpu-kernel-modules 590.48.01, uvm_ioctl.h (nv.md 1.5)"


class UvmCommand(enum.IntEnum):
    """The ioctl numbers of /dev/nvidia-uvm."""

    UVM_INITIALIZE = 0x30000001
    UVM_DEINITIALIZE = 0x30000002
    UVM_CREATE_RANGE_GROUP = 23
    UVM_DESTROY_RANGE_GROUP = 24
    UVM_REGISTER_GPU_VASPACE = 25
    UVM_UNREGISTER_GPU_VASPACE = 26
    UVM_REGISTER_CHANNEL = 27
    UVM_UNREGISTER_CHANNEL = 28
    UVM_ENABLE_PEER_ACCESS = 29
    UVM_DISABLE_PEER_ACCESS = 30
    UVM_MAP_EXTERNAL_ALLOCATION = 33
    UVM_FREE = 34
    UVM_REGISTER_GPU = 37
    UVM_UNREGISTER_GPU = 38
    UVM_PAGEABLE_MEM_ACCESS = 39
    UVM_UNMAP_EXTERNAL = 66
    UVM_ALLOC_SEMAPHORE_POOL = 68
    UVM_VALIDATE_VA_RANGE = 72
    UVM_CREATE_EXTERNAL_RANGE = 73
    UVM_MAP_EXTERNAL_SPARSE = 74
    UVM_MM_INITIALIZE = 75


class UvmInitFlags(enum.IntFlag):
    """UVM_INITIALIZE flags."""

    NONE = 0
    DISABLE_HMM = 1
    MULTI_PROCESS_SHARING_MODE = 2


class UvmGpuMappingType(enum.IntEnum):
    """The accesses that a mapping allows to a GPU."""

    DEFAULT = 0
    READ_WRITE_ATOMIC = 1
    READ_WRITE = 2
    READ_ONLY = 3


class UvmGpuCachingType(enum.IntEnum):
    """The caching of a mapping by a GPU."""

    DEFAULT = 0
    FORCE_UNCACHED = 1
    FORCE_CACHED = 2


class NvProcessorUuid(Struct, size=16, source=SOURCE):
    """The 16 bytes that identify a GPU to UVM."""

    uuid: bytes = blob(0x0, 16)


class UvmGpuMappingAttributes(Struct, size=36, source=SOURCE):
    """The attributes of a mapping for one GPU."""

    gpuUuid: NvProcessorUuid = nested(0x0, NvProcessorUuid)
    gpuMappingType: UvmGpuMappingType = u32(0x10)
    gpuCachingType: UvmGpuCachingType = u32(0x14)
    gpuFormatType: int = u32(0x18)
    gpuElementBits: int = u32(0x1C)
    gpuCompressionType: int = u32(0x20)


class UVM_INITIALIZE_PARAMS(Struct, size=16, source=SOURCE):
    """UVM_INITIALIZE: must be the first call on the descriptor."""

    flags: UvmInitFlags = u64(0x0)
    rmStatus: NvStatus = u32(0x8)


class UVM_MM_INITIALIZE_PARAMS(Struct, size=8, source=SOURCE):
    """UVM_MM_INITIALIZE: issued on a second descriptor; 0x10006 counts as success."""

    uvmFd: int = i32(0x0)
    rmStatus: NvStatus = u32(0x4)


class UVM_REGISTER_GPU_PARAMS(Struct, size=40, source=SOURCE):
    gpu_uuid: NvProcessorUuid = nested(0x0, NvProcessorUuid)
    numaEnabled: bool = u8(0x10)
    numaNodeId: int = u32(0x14)
    rmCtrlFd: int = i32(0x18)
    hClient: int = u32(0x1C)
    hSmcPartRef: int = u32(0x20)
    rmStatus: NvStatus = u32(0x24)


class UVM_UNREGISTER_GPU_PARAMS(Struct, size=20, source=SOURCE):
    gpu_uuid: NvProcessorUuid = nested(0x0, NvProcessorUuid)
    rmStatus: NvStatus = u32(0x10)


class UVM_REGISTER_GPU_VASPACE_PARAMS(Struct, size=32, source=SOURCE):
    """UVM_REGISTER_GPU_VASPACE: afterwards only UVM maps into this address space."""

    gpuUuid: NvProcessorUuid = nested(0x0, NvProcessorUuid)
    rmCtrlFd: int = i32(0x10)
    hClient: int = u32(0x14)
    hVaSpace: int = u32(0x18)
    rmStatus: NvStatus = u32(0x1C)


class UVM_UNREGISTER_GPU_VASPACE_PARAMS(Struct, size=20, source=SOURCE):
    gpuUuid: NvProcessorUuid = nested(0x0, NvProcessorUuid)
    rmStatus: NvStatus = u32(0x10)


class UVM_REGISTER_CHANNEL_PARAMS(Struct, size=56, source=SOURCE):
    """UVM_REGISTER_CHANNEL: maps the context buffers of a channel into [base, base + length)."""

    gpuUuid: NvProcessorUuid = nested(0x0, NvProcessorUuid)
    rmCtrlFd: int = i32(0x10)
    hClient: int = u32(0x14)
    hChannel: int = u32(0x18)
    base: int = u64(0x20)
    length: int = u64(0x28)
    rmStatus: NvStatus = u32(0x30)


class UVM_UNREGISTER_CHANNEL_PARAMS(Struct, size=28, source=SOURCE):
    """UVM_UNREGISTER_CHANNEL up to branch 580."""

    gpuUuid: NvProcessorUuid = nested(0x0, NvProcessorUuid)
    hClient: int = u32(0x10)
    hChannel: int = u32(0x14)
    rmStatus: NvStatus = u32(0x18)


class UVM_CREATE_EXTERNAL_RANGE_PARAMS(Struct, size=24, source=SOURCE):
    base: int = u64(0x0)
    length: int = u64(0x8)
    rmStatus: NvStatus = u32(0x10)


class UVM_MAP_EXTERNAL_ALLOCATION_PARAMS(Struct, size=9264, source=SOURCE):
    """UVM_MAP_EXTERNAL_ALLOCATION: maps RM memory into a range."""

    base: int = u64(0x0)
    length: int = u64(0x8)
    offset: int = u64(0x10)
    perGpuAttributes: tuple[UvmGpuMappingAttributes, ...] = nested(0x18, UvmGpuMappingAttributes, count=256)
    gpuAttributesCount: int = u64(0x2418)
    rmCtrlFd: int = i32(0x2420)
    hClient: int = u32(0x2424)
    hMemory: int = u32(0x2428)
    rmStatus: NvStatus = u32(0x242C)


class UVM_UNMAP_EXTERNAL_PARAMS(Struct, size=40, source=SOURCE):
    base: int = u64(0x0)
    length: int = u64(0x8)
    gpuUuid: NvProcessorUuid = nested(0x10, NvProcessorUuid)
    rmStatus: NvStatus = u32(0x20)


class UVM_FREE_PARAMS(UVM_CREATE_EXTERNAL_RANGE_PARAMS):
    """UVM_FREE up to branch 580: unmaps and frees a range."""


class UVM_VALIDATE_VA_RANGE_PARAMS(UVM_CREATE_EXTERNAL_RANGE_PARAMS):
    """The same fields."""


class UVM_PAGEABLE_MEM_ACCESS_PARAMS(Struct, size=8, source=SOURCE):
    """UVM_PAGEABLE_MEM_ACCESS: whether HMM or ATS is usable."""

    pageableMemAccess: bool = u8(0x0)
    rmStatus: NvStatus = u32(0x4)


class UVM_ENABLE_PEER_ACCESS_PARAMS(Struct, size=36, source=SOURCE):
    """UVM_ENABLE_PEER_ACCESS and UVM_DISABLE_PEER_ACCESS."""

    gpuUuidA: NvProcessorUuid = nested(0x0, NvProcessorUuid)
    gpuUuidB: NvProcessorUuid = nested(0x10, NvProcessorUuid)
    rmStatus: NvStatus = u32(0x20)


class UVM_ALLOC_SEMAPHORE_POOL_PARAMS(Struct, size=9248, source=SOURCE):
    base: int = u64(0x0)
    length: int = u64(0x8)
    perGpuAttributes: tuple[UvmGpuMappingAttributes, ...] = nested(0x10, UvmGpuMappingAttributes, count=256)
    gpuAttributesCount: int = u64(0x2410)
    rmStatus: NvStatus = u32(0x2418)


class UVM_UNREGISTER_CHANNEL_PARAMS_590(Struct, size=12, source=SOURCE_590):
    """UVM_UNREGISTER_CHANNEL since branch 590, without the uuid."""

    hClient: int = u32(0x0)
    hChannel: int = u32(0x4)
    rmStatus: NvStatus = u32(0x8)


class UVM_FREE_PARAMS_590(Struct, size=16, source=SOURCE_590):
    """UVM_FREE since branch 590, without the length."""

    base: int = u64(0x0)
    rmStatus: NvStatus = u32(0x8)


COMMAND_STRUCTS: Final[Mapping[int, type[Struct]]] = {
    **{one: globals()[f"{one.name}_PARAMS"] for one in UvmCommand if f"{one.name}_PARAMS" in globals()},
    UvmCommand.UVM_DISABLE_PEER_ACCESS: UVM_ENABLE_PEER_ACCESS_PARAMS,
}
"""Command -> its structure at branch 580."""
