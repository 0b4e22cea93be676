"""Unified memory driver: commands, parameter structures, values.

Source: uvm_ioctl.h and uvm_linux_ioctl.h of NVIDIA open-gpu-kernel-modules 580.142;
the shorter forms from 590.48.01 and 595.45.04.
"""

# fmt: off
Structs = dict[str, tuple[int, tuple[tuple[int, int, str], ...]]]
"""Struct name -> (size, ((offset, size, field), ...)), in bytes; ``name[n]`` marks an array of n elements."""

STRUCTS: Structs = {
    "UVM_INITIALIZE_PARAMS": (16, (
        (0x00, 8, "flags"), (0x08, 4, "rmStatus"),
    )),
    "UVM_MM_INITIALIZE_PARAMS": (8, (
        (0x00, 4, "uvmFd"), (0x04, 4, "rmStatus"),
    )),
    "UVM_REGISTER_GPU_PARAMS": (40, (
        (0x00, 16, "gpu_uuid.uuid[16]"), (0x10, 1, "numaEnabled"), (0x14, 4, "numaNodeId"),
        (0x18, 4, "rmCtrlFd"), (0x1c, 4, "hClient"), (0x20, 4, "hSmcPartRef"), (0x24, 4, "rmStatus"),
    )),
    "UVM_UNREGISTER_GPU_PARAMS": (20, (
        (0x00, 16, "gpu_uuid.uuid[16]"), (0x10, 4, "rmStatus"),
    )),
    "UVM_REGISTER_GPU_VASPACE_PARAMS": (32, (
        (0x00, 16, "gpuUuid.uuid[16]"), (0x10, 4, "rmCtrlFd"), (0x14, 4, "hClient"), (0x18, 4, "hVaSpace"),
        (0x1c, 4, "rmStatus"),
    )),
    "UVM_UNREGISTER_GPU_VASPACE_PARAMS": (20, (
        (0x00, 16, "gpuUuid.uuid[16]"), (0x10, 4, "rmStatus"),
    )),
    "UVM_REGISTER_CHANNEL_PARAMS": (56, (
        (0x00, 16, "gpuUuid.uuid[16]"), (0x10, 4, "rmCtrlFd"), (0x14, 4, "hClient"), (0x18, 4, "hChannel"),
        (0x20, 8, "base"), (0x28, 8, "length"), (0x30, 4, "rmStatus"),
    )),
    "UVM_UNREGISTER_CHANNEL_PARAMS": (28, (
        (0x00, 16, "gpuUuid.uuid[16]"), (0x10, 4, "hClient"), (0x14, 4, "hChannel"), (0x18, 4, "rmStatus"),
    )),
    "UVM_CREATE_EXTERNAL_RANGE_PARAMS": (24, (
        (0x00, 8, "base"), (0x08, 8, "length"), (0x10, 4, "rmStatus"),
    )),
    "UVM_MAP_EXTERNAL_ALLOCATION_PARAMS": (9264, (
        (0x0000, 8, "base"), (0x0008, 8, "length"), (0x0010, 8, "offset"),
        (0x0018, 9216, "perGpuAttributes[256]"), (0x2418, 8, "gpuAttributesCount"), (0x2420, 4, "rmCtrlFd"),
        (0x2424, 4, "hClient"), (0x2428, 4, "hMemory"), (0x242c, 4, "rmStatus"),
    )),
    "UvmGpuMappingAttributes": (36, (
        (0x00, 16, "gpuUuid.uuid[16]"), (0x10, 4, "gpuMappingType"), (0x14, 4, "gpuCachingType"),
        (0x18, 4, "gpuFormatType"), (0x1c, 4, "gpuElementBits"), (0x20, 4, "gpuCompressionType"),
    )),
    "UVM_UNMAP_EXTERNAL_PARAMS": (40, (
        (0x00, 8, "base"), (0x08, 8, "length"), (0x10, 16, "gpuUuid.uuid[16]"), (0x20, 4, "rmStatus"),
    )),
    "UVM_FREE_PARAMS": (24, (
        (0x00, 8, "base"), (0x08, 8, "length"), (0x10, 4, "rmStatus"),
    )),
    "UVM_VALIDATE_VA_RANGE_PARAMS": (24, (
        (0x00, 8, "base"), (0x08, 8, "length"), (0x10, 4, "rmStatus"),
    )),
    "UVM_PAGEABLE_MEM_ACCESS_PARAMS": (8, (
        (0x00, 1, "pageableMemAccess"), (0x04, 4, "rmStatus"),
    )),
    "UVM_ENABLE_PEER_ACCESS_PARAMS": (36, (
        (0x00, 16, "gpuUuidA.uuid[16]"), (0x10, 16, "gpuUuidB.uuid[16]"), (0x20, 4, "rmStatus"),
    )),
    "UVM_ALLOC_SEMAPHORE_POOL_PARAMS": (9248, (
        (0x0000, 8, "base"), (0x0008, 8, "length"), (0x0010, 9216, "perGpuAttributes[256]"),
        (0x2410, 8, "gpuAttributesCount"), (0x2418, 4, "rmStatus"),
    )),
}

Command = tuple[int, int, int | None]
"""(request number, parameter bytes, offset of rmStatus or None)."""

COMMANDS: dict[str, Command] = {
    "UVM_INITIALIZE": (0x30000001, 16, 0x8),
    "UVM_DEINITIALIZE": (0x30000002, 0, None),
    "UVM_CREATE_RANGE_GROUP": (23, 16, 0x8),
    "UVM_DESTROY_RANGE_GROUP": (24, 16, 0x8),
    "UVM_REGISTER_GPU_VASPACE": (25, 32, 0x1c),
    "UVM_UNREGISTER_GPU_VASPACE": (26, 20, 0x10),
    "UVM_REGISTER_CHANNEL": (27, 56, 0x30),
    "UVM_UNREGISTER_CHANNEL": (28, 28, 0x18),
    "UVM_ENABLE_PEER_ACCESS": (29, 36, 0x20),
    "UVM_DISABLE_PEER_ACCESS": (30, 36, 0x20),
    "UVM_MAP_EXTERNAL_ALLOCATION": (33, 9264, 0x242c),
    "UVM_FREE": (34, 24, 0x10),
    "UVM_REGISTER_GPU": (37, 40, 0x24),
    "UVM_UNREGISTER_GPU": (38, 20, 0x10),
    "UVM_PAGEABLE_MEM_ACCESS": (39, 8, 0x4),
    "UVM_UNMAP_EXTERNAL": (66, 40, 0x20),
    "UVM_ALLOC_SEMAPHORE_POOL": (68, 9248, 0x2418),
    "UVM_VALIDATE_VA_RANGE": (72, 24, 0x10),
    "UVM_CREATE_EXTERNAL_RANGE": (73, 24, 0x10),
    "UVM_MM_INITIALIZE": (75, 8, 0x4),
}
"""Branch 580. UVM_MAP_EXTERNAL_SPARSE is number 74; its parameters are not described."""

COMMANDS_590: dict[str, Command] = {"UVM_UNREGISTER_CHANNEL": (28, 12, 0x8), "UVM_FREE": (34, 16, 0x8)}
"""What 590 and 595 changed."""

MAP_EXTERNAL_SPARSE = 74
INITIALIZE_FLAGS = {"DISABLE_HMM": 0x1, "MULTI_PROCESS_SHARING_MODE": 0x2}
MAPPING_TYPES = {0: "default", 1: "read-write-atomic", 2: "read-write", 3: "read-only"}
CACHING_TYPES = {0: "default", 1: "force uncached", 2: "force cached"}
MM_INITIALIZE_ACCEPTED = (0x0, 0x10006)
"""Status words of UVM_MM_INITIALIZE that mean success."""
