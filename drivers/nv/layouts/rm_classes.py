"""Classes of the resource manager: numbers, allocation parameters and flags.

Not here: which class a device uses (`chips`), the methods of engine classes (`host`, `compute`, `dma`). Next:
`drivers.nv.rm`, which allocates objects.
"""

# ruff: noqa: N801, N815 - names are the vendor's own; annotations are read at run time

from __future__ import annotations

import enum
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from hcq.layout import BitStruct, Struct, chars, nested, optional, u8, u32, u64

SOURCE = "open-gpu-kernel-modules 580.142, nvos.h and the class headers (nv.md 1.6, 2)"


class RmClass(enum.IntEnum):
    """Classes that all generations have (nv.md 2.1)."""

    NV01_ROOT = 0x0
    NV01_ROOT_CLIENT = 0x41
    NV01_EVENT_OS_EVENT = 0x79
    NV01_DEVICE_0 = 0x80
    NV20_SUBDEVICE_0 = 0x2080
    NV01_MEMORY_SYSTEM = 0x3E
    NV01_MEMORY_LOCAL_USER = 0x40
    NV01_MEMORY_VIRTUAL = 0x70
    NV01_MEMORY_SYSTEM_OS_DESCRIPTOR = 0x71
    GT200_DEBUGGER = 0x83DE
    FERMI_CONTEXT_SHARE_A = 0x9067
    FERMI_VASPACE_A = 0x90F1
    KEPLER_CHANNEL_GROUP_A = 0xA06C


class EngineType(enum.IntEnum):
    """NV2080 engine types (nv.md 2.2 step 18).

    Copy engines 1 to 8 have the numbers between `COPY0` and `COPY9`, engines above 10 those after `COPY10`.
    """

    NULL = 0
    GR0 = 1
    COPY0 = 0x9
    COPY9 = 0x12
    COPY10 = 0x34


def copy_engine(index: int) -> int:
    """Return the engine type of copy engine `index`, 0 to 19, which is not checked."""
    return EngineType.COPY0 + index if index < 10 else EngineType.COPY10 + index - 10


class MemType(enum.IntEnum):
    """NVOS32_TYPE."""

    IMAGE = 0
    NOTIFIER = 13


class MemFlags(enum.IntFlag):
    """NVOS32_ALLOC_FLAGS."""

    IGNORE_BANK_PLACEMENT = 0x1
    ALIGNMENT_FORCE = 0x100
    MEMORY_HANDLE_PROVIDED = 0x4000
    MAP_NOT_REQUIRED = 0x8000
    PERSISTENT_VIDMEM = 0x10000


class Physicality(enum.IntEnum):
    """NVOS32_ATTR_PHYSICALITY."""

    DEFAULT = 0
    NONCONTIGUOUS = 1
    CONTIGUOUS = 2
    ALLOW_NONCONTIGUOUS = 3


class Location(enum.IntEnum):
    """NVOS32_ATTR_LOCATION."""

    VIDMEM = 0
    PCI = 1


class PageSize(enum.IntEnum):
    """NVOS32_ATTR_PAGE_SIZE."""

    DEFAULT = 0
    SIZE_4KB = 1
    BIG = 2
    HUGE = 3


class Coherency(enum.IntEnum):
    """NVOS32_ATTR_COHERENCY."""

    UNCACHED = 0
    CACHED = 1
    WRITE_COMBINE = 2
    WRITE_THROUGH = 3
    WRITE_BACK = 5


class MemAttr(BitStruct, source="nvos.h (nv.md 2.6)"):
    """NVOS32_ATTR, the `attr` word of NV_MEMORY_ALLOCATION_PARAMS."""

    PAGE_SIZE: PageSize = optional(24, 23)
    LOCATION: Location = optional(26, 25)
    PHYSICALITY: Physicality = optional(28, 27)
    COHERENCY: Coherency = optional(31, 29)


class MemAttr2(BitStruct, source="nvos.h (nv.md 2.6)"):
    """NVOS32_ATTR2, the `attr2` word of NV_MEMORY_ALLOCATION_PARAMS."""

    ZBC: int = optional(1, 0, doc="1: prefer memory without zero-bandwidth clear")
    GPU_CACHEABLE: int = optional(3, 2, doc="1 yes, 2 no")
    PAGE_SIZE_HUGE: int = optional(21, 20, doc="1 is 2 MiB, 2 is 512 MiB")


class OsDescriptorFlags(BitStruct, source="nvos.h (nv.md 2.6)"):
    """NVOS02 flags for an OS descriptor: user pages that the GPU may read and write."""

    PHYSICALITY: int = optional(7, 4, doc="1 is noncontiguous")
    COHERENCY: int = optional(15, 12, doc="1 is cached")
    MAPPING: int = optional(31, 30, doc="1: no kernel mapping")


class VaspaceFlags(enum.IntFlag):
    """NV_VASPACE_ALLOCATION_FLAGS."""

    NONE = 0
    IS_EXTERNALLY_OWNED = 0x8
    ENABLE_PAGE_FAULTING = 0x40


class CtxshareFlags(enum.IntEnum):
    """NV_CTXSHARE_ALLOCATION_FLAGS."""

    SUBCONTEXT_SYNC = 0
    SUBCONTEXT_ASYNC = 1


class ChannelFlags(BitStruct, source="nvos.h (nv.md 2.4)"):
    """NVOS04 flags of a channel."""

    GROUP_CHANNEL_RUNQUEUE: bool = optional(4, doc="1: the second run queue")
    PRIVILEGED_CHANNEL: bool = optional(5)
    DELAY_CHANNEL_SCHEDULING: bool = optional(6)
    GROUP_CHANNEL_THREAD: int = optional(29, 28)


USERD_BYTES: Final = 512
"""Size and alignment of a channel's user area."""
GR_ALLOCATION_VERSION: Final = 2
COPY_ALLOCATION_VERSION: Final = 1
PITCH_KIND: Final = 6
"""`format` of pitch-linear memory."""


class NV_MEMORY_DESC_PARAMS(Struct, size=24, source=SOURCE):
    """A memory range that RM fills in itself."""

    base: int = u64(0x0)
    size: int = u64(0x8)
    addressSpace: int = u32(0x10)
    cacheAttrib: int = u32(0x14)


class NV0000_ALLOC_PARAMETERS(Struct, size=120, source=SOURCE):
    """ROOT client; the parameters may be absent."""

    hClient: int = u32(0x0)
    processID: int = u32(0x4)
    processName: str = chars(0x8, 100)
    pOsPidInfo: int = u64(0x70)


class NV0080_ALLOC_PARAMETERS(Struct, size=56, source=SOURCE):
    """DEVICE, under the root."""

    deviceId: int = u32(0x0)
    hClientShare: int = u32(0x4)
    hTargetClient: int = u32(0x8)
    hTargetDevice: int = u32(0xC)
    flags: int = u32(0x10)
    vaSpaceSize: int = u64(0x18)
    vaStartInternal: int = u64(0x20)
    vaLimitInternal: int = u64(0x28)
    vaMode: int = u32(0x30)


class NV2080_ALLOC_PARAMETERS(Struct, size=4, source=SOURCE):
    """SUBDEVICE, under the device."""

    subDeviceId: int = u32(0x0)


class NV_VASPACE_ALLOCATION_PARAMETERS_570(
    Struct, size=48, source="open-gpu-kernel-modules 570.211.01 (nv.md 1.5)"
):
    """VASPACE of branch 570, which has no pasid."""

    index: int = u32(0x0)
    flags: int = u32(0x4)
    vaSize: int = u64(0x8)
    vaStartInternal: int = u64(0x10)
    vaLimitInternal: int = u64(0x18)
    bigPageSize: int = u32(0x20)
    vaBase: int = u64(0x28)


class NV_VASPACE_ALLOCATION_PARAMETERS(NV_VASPACE_ALLOCATION_PARAMETERS_570, size=56, source=SOURCE):
    """VASPACE, under the device, since branch 580."""

    pasid: int = u32(0x30)


class NV_HOPPER_USERMODE_A_PARAMS(Struct, size=2, source=SOURCE):
    """Doorbell page of Hopper and later, under the subdevice; older classes have no parameters."""

    bBar1Mapping: bool = u8(0x0)
    bPriv: bool = u8(0x1)


class NV_CHANNEL_GROUP_ALLOCATION_PARAMETERS(Struct, size=20, source=SOURCE):
    """CHANNEL_GROUP, under the device."""

    hObjectError: int = u32(0x0)
    hObjectEccError: int = u32(0x4)
    hVASpace: int = u32(0x8)
    engineType: int = u32(0xC)
    bIsCallingContextVgpuPlugin: bool = u8(0x10)


class NV_CTXSHARE_ALLOCATION_PARAMETERS(Struct, size=12, source=SOURCE):
    """CTXSHARE, under a channel group; `subctxId` is returned."""

    hVASpace: int = u32(0x0)
    flags: int = u32(0x4)
    subctxId: int = u32(0x8)


class NV_CHANNEL_ALLOC_PARAMS(Struct, size=368, source=SOURCE):
    """GPFIFO channel, under a channel group."""

    hObjectError: int = u32(0x0)
    hObjectBuffer: int = u32(0x4)
    gpFifoOffset: int = u64(0x8)
    gpFifoEntries: int = u32(0x10)
    flags: int = u32(0x14)
    hContextShare: int = u32(0x18)
    hVASpace: int = u32(0x1C)
    hUserdMemory: tuple[int, ...] = u32(0x20, count=8)
    userdOffset: tuple[int, ...] = u64(0x40, count=8)
    engineType: int = u32(0x80)
    cid: int = u32(0x84)
    subDeviceId: int = u32(0x88)
    hObjectEccError: int = u32(0x8C)
    instanceMem: NV_MEMORY_DESC_PARAMS = nested(0x90, NV_MEMORY_DESC_PARAMS)
    userdMem: NV_MEMORY_DESC_PARAMS = nested(0xA8, NV_MEMORY_DESC_PARAMS)
    ramfcMem: NV_MEMORY_DESC_PARAMS = nested(0xC0, NV_MEMORY_DESC_PARAMS)
    mthdbufMem: NV_MEMORY_DESC_PARAMS = nested(0xD8, NV_MEMORY_DESC_PARAMS)
    hPhysChannelGroup: int = u32(0xF0)
    internalFlags: int = u32(0xF4)
    errorNotifierMem: NV_MEMORY_DESC_PARAMS = nested(0xF8, NV_MEMORY_DESC_PARAMS)
    eccErrorNotifierMem: NV_MEMORY_DESC_PARAMS = nested(0x110, NV_MEMORY_DESC_PARAMS)
    ProcessID: int = u32(0x128)
    SubProcessID: int = u32(0x12C)
    encryptIv: tuple[int, ...] = u32(0x130, count=3)
    decryptIv: tuple[int, ...] = u32(0x13C, count=3)
    hmacNonce: tuple[int, ...] = u32(0x148, count=8)
    tpcConfigID: int = u32(0x168)


class NV_GR_ALLOCATION_PARAMETERS(Struct, size=16, source=SOURCE):
    """Compute engine object, under a channel."""

    version: int = u32(0x0)
    flags: int = u32(0x4)
    size: int = u32(0x8)
    caps: int = u32(0xC)


class NVB0B5_ALLOCATION_PARAMETERS(Struct, size=8, source=SOURCE):
    """Copy engine object, under a channel."""

    version: int = u32(0x0)
    engineType: int = u32(0x4)


class NV_MEMORY_ALLOCATION_PARAMS(Struct, size=128, source=SOURCE):
    """MEMORY_LOCAL_USER and MEMORY_SYSTEM, under the device."""

    owner: int = u32(0x0)
    type: int = u32(0x4)
    flags: int = u32(0x8)
    width: int = u32(0xC)
    height: int = u32(0x10)
    pitch: int = u32(0x14)
    attr: int = u32(0x18)
    attr2: int = u32(0x1C)
    format: int = u32(0x20)
    comprCovg: int = u32(0x24)
    zcullCovg: int = u32(0x28)
    rangeLo: int = u64(0x30)
    rangeHi: int = u64(0x38)
    size: int = u64(0x40)
    alignment: int = u64(0x48)
    offset: int = u64(0x50)
    limit: int = u64(0x58)
    address: int = u64(0x60)
    ctagOffset: int = u32(0x68)
    hVASpace: int = u32(0x6C)
    internalflags: int = u32(0x70)
    tag: int = u32(0x74)
    numaNode: int = u32(0x78)


class NV_MEMORY_VIRTUAL_ALLOCATION_PARAMS(Struct, size=24, source=SOURCE):
    """MEMORY_VIRTUAL, under the device: the address space that NV_ESC_RM_MAP_MEMORY_DMA maps into."""

    offset: int = u64(0x0)
    limit: int = u64(0x8)
    hVASpace: int = u32(0x10)


class NV83DE_ALLOC_PARAMETERS(Struct, size=12, source=SOURCE):
    """DEBUGGER, under the device."""

    hDebuggerClient_Obsolete: int = u32(0x0)
    hAppClient: int = u32(0x4)
    hClass3dObject: int = u32(0x8)


class NV0005_ALLOC_PARAMETERS(Struct, size=24, source=SOURCE):
    """OS_EVENT, under the subdevice."""

    hParentClient: int = u32(0x0)
    hSrcResource: int = u32(0x4)
    hClass: int = u32(0x8)
    notifyIndex: int = u32(0xC)
    data: int = u64(0x10)


ALLOC_STRUCTS: Final[Mapping[int, type[Struct]]] = MappingProxyType(
    {
        RmClass.NV01_ROOT: NV0000_ALLOC_PARAMETERS,
        RmClass.NV01_ROOT_CLIENT: NV0000_ALLOC_PARAMETERS,
        RmClass.NV01_DEVICE_0: NV0080_ALLOC_PARAMETERS,
        RmClass.NV20_SUBDEVICE_0: NV2080_ALLOC_PARAMETERS,
        RmClass.FERMI_VASPACE_A: NV_VASPACE_ALLOCATION_PARAMETERS,
        RmClass.KEPLER_CHANNEL_GROUP_A: NV_CHANNEL_GROUP_ALLOCATION_PARAMETERS,
        RmClass.FERMI_CONTEXT_SHARE_A: NV_CTXSHARE_ALLOCATION_PARAMETERS,
        RmClass.NV01_MEMORY_LOCAL_USER: NV_MEMORY_ALLOCATION_PARAMS,
        RmClass.NV01_MEMORY_SYSTEM: NV_MEMORY_ALLOCATION_PARAMS,
        RmClass.NV01_MEMORY_VIRTUAL: NV_MEMORY_VIRTUAL_ALLOCATION_PARAMS,
        RmClass.GT200_DEBUGGER: NV83DE_ALLOC_PARAMETERS,
        RmClass.NV01_EVENT_OS_EVENT: NV0005_ALLOC_PARAMETERS,
    }
)
"""Class -> its allocation parameters at branch 580; the engine classes are in `chips`."""
