"""Object classes, architecture ids and engine types.

Source: the class lists of NVIDIA open-gpu-kernel-modules 580.142 and its class headers. From 570.86.15 to
595.45.04 BLACKWELL_USERMODE_A (c761) stands in the lists of GB20x alone; B100, B200 and B300 list
HOPPER_USERMODE_A.
"""

# fmt: off
CLASSES: dict[str, int] = {
    "NV01_ROOT": 0x0, "NV01_ROOT_CLIENT": 0x41, "NV01_DEVICE_0": 0x80, "NV20_SUBDEVICE_0": 0x2080,
    "FERMI_VASPACE_A": 0x90f1, "NV01_MEMORY_LOCAL_USER": 0x40, "NV01_MEMORY_SYSTEM": 0x3e,
    "NV01_MEMORY_SYSTEM_OS_DESCRIPTOR": 0x71, "NV01_MEMORY_VIRTUAL": 0x70, "KEPLER_CHANNEL_GROUP_A": 0xa06c,
    "FERMI_CONTEXT_SHARE_A": 0x9067, "GT200_DEBUGGER": 0x83de, "NV01_EVENT_OS_EVENT": 0x79,
}
"""Classes every generation has."""

BY_ROLE: dict[str, dict[str, tuple[int, ...]]] = {
    "TU10x": {"gpfifo": (0xc46f,), "usermode": (0xc461,), "compute": (0xc5c0,), "copy": (0xc5b5,)},
    "GA100": {"gpfifo": (0xc56f,), "usermode": (0xc561, 0xc461), "compute": (0xc6c0,), "copy": (0xc6b5,)},
    "GA10x": {
        "gpfifo": (0xc56f,), "usermode": (0xc561, 0xc461), "compute": (0xc7c0,), "copy": (0xc7b5, 0xc6b5),
    },
    "AD10x": {"gpfifo": (0xc56f,), "usermode": (0xc561, 0xc461), "compute": (0xc9c0,), "copy": (0xc7b5,)},
    "GH100": {
        "gpfifo": (0xc86f, 0xc56f), "usermode": (0xc661, 0xc561, 0xc461, 0xc361), "compute": (0xcbc0,),
        "copy": (0xc8b5,),
    },
    "GB100": {"gpfifo": (0xc96f,), "usermode": (0xc661,), "compute": (0xcdc0,), "copy": (0xc9b5,)},
    "GB20x": {
        "gpfifo": (0xca6f, 0xc96f, 0xc86f, 0xc56f), "usermode": (0xc761, 0xc661, 0xc561, 0xc461, 0xc361),
        "compute": (0xcec0,), "copy": (0xcab5,),
    },
}
"""Chip -> role -> classes, the preferred one first."""

QMD_VERSIONS = {0xc6c0: 3, 0xc7c0: 3, 0xc9c0: 3, 0xcbc0: 4, 0xcdc0: 5, 0xcec0: 5}
"""Compute class -> major version of the launch descriptor it takes."""

MC_ARCHITECTURE = {
    "TU10x": 0x160, "GA100": 0x170, "GA10x": 0x170, "AD10x": 0x190, "GH100": 0x180, "GB100": 0x1a0,
    "GB20x": 0x1b0,
}
SM_VERSION = {
    "TU10x": 0x705, "GA100": 0x802, "GA10x": 0x806, "AD10x": 0x809, "GH100": 0x900, "GB100": 0xa00,
    "GB20x": 0xc00,
}

ARCHITECTURES = {
    0x802: 80, 0x806: 86, 0x807: 87, 0x809: 89, 0x900: 90, 0xa00: 100, 0xa03: 103, 0xa04: 120, 0xc00: 120,
    0xc01: 121,
}
"""GR SM_VERSION, as ctrl2080gr.h lists them, -> compile target: 8.2 is GA100, which runs sm_80 (8.0 is not in
the list), 10.4 is what 12.0 was called first (a remark there; tinygrad has it run sm_120)."""

ENGINE_GR0 = 1
COPY_ENGINES = {0: 0x9, 1: 0xa, 2: 0xb, 3: 0xc, 4: 0xd, 5: 0xe, 6: 0xf, 7: 0x10, 8: 0x11, 9: 0x12, 10: 0x34}
"""Copy engine index -> NV2080 engine type."""

USERMODE = {"TIME_0": 0x80, "TIME_1": 0x84, "NOTIFY_CHANNEL_PENDING": 0x90}
USERMODE_BYTES = 0x10000
TIME_0_LOW_BIT, TIME_0_HIGH_BIT, TIME_1_HIGH_BIT = 5, 31, 28
TOKEN_RUNLIST, TOKEN_CHANNEL = (16, 22), (0, 11)
"""Bits of a Hopper work submit token."""
TOKEN_RUNLIST_DOORBELL = (30, 30)
"""Of tokens of GB20x (open-gpu-kernel-modules 595.45.04, gb202/dev_vm.h): 1 enables."""

MEMORY_FLAGS = {
    "IGNORE_BANK_PLACEMENT": 0x1, "ALIGNMENT_FORCE": 0x100, "MEMORY_HANDLE_PROVIDED": 0x4000,
    "MAP_NOT_REQUIRED": 0x8000, "PERSISTENT_VIDMEM": 0x10000,
}
MEMORY_TYPES = {"IMAGE": 0, "NOTIFIER": 13}
MEMORY_ATTR: dict[str, tuple[int, int, dict[str, int]]] = {
    "PAGE_SIZE": (23, 24, {"default": 0, "4K": 1, "big": 2, "huge": 3}),
    "LOCATION": (25, 26, {"vidmem": 0, "pci": 1}),
    "PHYSICALITY": (27, 28, {"noncontiguous": 1, "contiguous": 2, "allow noncontiguous": 3}),
    "COHERENCY": (
        29, 31, {"uncached": 0, "cached": 1, "write combine": 2, "write through": 3, "write back": 5},
    ),
}
"""Field of attr -> (lowest bit, highest bit, values)."""
MEMORY_ATTR2: dict[str, tuple[int, int, dict[str, int]]] = {
    "ZBC": (0, 1, {"prefer no": 1}),
    "GPU_CACHEABLE": (2, 3, {"yes": 1, "no": 2}),
    "PAGE_SIZE_HUGE": (20, 21, {"2M": 1, "512M": 2}),
}
FORMAT_GENERIC_KIND = 6
OS_DESCRIPTOR_FLAGS = {"PHYSICALITY": (4, 1), "COHERENCY": (12, 1), "MAPPING": (30, 1)}
"""Field of NVOS02 flags -> (lowest bit, value): noncontiguous, cached, no map."""
MAP_DMA_FLAGS = {"CACHE_SNOOP": (4, 4, 1), "PAGE_SIZE": (8, 11, 1), "DMA_OFFSET_FIXED": (15, 15, 1)}
"""Field of NVOS46 flags -> (lowest bit, highest bit, value): enable, 4KB, true (nvos.h)."""
VASPACE_FLAGS = {"ENABLE_PAGE_FAULTING": 0x40, "EXTERNALLY_OWNED": 0x8}
CHANNEL_FLAG_BITS = {"GROUP_CHANNEL_RUNQUEUE": 4, "PRIVILEGED": 5, "DELAY_SCHEDULING": 6}
GR_OBJECT_PARAMETERS = (2, 0, 16, 0)
"""version, flags, size, caps of NV_GR_ALLOCATION_PARAMETERS for a compute object."""
