"""The frontend of the resource manager: escape numbers and their structures.

Nodes: /dev/nvidiactl and /dev/nvidiaN. An ioctl returns 0 even if the resource manager refused the call: the
caller must check the status word.

Not here: the parameters of RM_ALLOC (`rm_classes`) and of RM_CONTROL (`controls`, `debugger`). Next:
`drivers.nv.rm`, the client.
"""

# ruff: noqa: N801, N815 - names are the vendor's own; annotations are read at run time

from __future__ import annotations

import enum
from typing import Final

from drivers.nv.layouts.status import NvStatus
from hcq.layout import BitStruct, Struct, bits, chars, const, i32, nested, optional, u8, u16, u32, u64

SOURCE = "open-gpu-kernel-modules 580.142, nvos.h and nv-ioctl.h (nv.md 1.2, 1.6)"


class Escape(enum.IntEnum):
    """The ioctl numbers of the frontend; the request word contains the size of the structure."""

    NV_ESC_RM_ALLOC_MEMORY = 0x27
    NV_ESC_RM_FREE = 0x29
    NV_ESC_RM_CONTROL = 0x2A
    NV_ESC_RM_ALLOC = 0x2B
    NV_ESC_RM_DUP_OBJECT = 0x34
    NV_ESC_RM_SHARE = 0x35
    NV_ESC_RM_IDLE_CHANNELS = 0x41
    NV_ESC_RM_VID_HEAP_CONTROL = 0x4A
    NV_ESC_RM_MAP_MEMORY = 0x4E
    NV_ESC_RM_UNMAP_MEMORY = 0x4F
    NV_ESC_RM_ALLOC_CONTEXT_DMA2 = 0x54
    NV_ESC_RM_MAP_MEMORY_DMA = 0x57
    NV_ESC_RM_UNMAP_MEMORY_DMA = 0x58
    NV_ESC_RM_UPDATE_DEVICE_MAPPING_INFO = 0x5E
    NV_ESC_CARD_INFO = 200
    NV_ESC_REGISTER_FD = 201
    NV_ESC_ALLOC_OS_EVENT = 206
    NV_ESC_FREE_OS_EVENT = 207
    NV_ESC_STATUS_CODE = 209
    NV_ESC_CHECK_VERSION_STR = 210
    NV_ESC_IOCTL_XFER_CMD = 211
    NV_ESC_ATTACH_GPUS_TO_FD = 212
    NV_ESC_SYS_PARAMS = 214
    NV_ESC_EXPORT_TO_DMABUF_FD = 217
    NV_ESC_WAIT_OPEN_COMPLETE = 218


class Request(BitStruct, source="nv-ioctl-numbers.h (nv.md 1.2)"):
    """The request word of a frontend ioctl."""

    NR: int = bits(7, 0, doc="an Escape")
    _TYPE = const(15, 8, 0x46)
    SIZE_: int = bits(29, 16, doc="bytes of the structure, exact")
    _DIRECTION = const(31, 30, 3)


def request(escape: int, size: int) -> int:
    """Return the request word for an escape with a structure of `size` bytes."""
    return Request.pack(NR=escape, SIZE_=size)[0]


CARD_INFO_RECORDS: Final = 64
"""Number of records in NV_ESC_CARD_INFO; the kernel driver accepts 32 and 64."""

VERSION_QUERY: Final = 0x32
"""NV_ESC_CHECK_VERSION_STR: the command that only queries the string ('2')."""
VERSION_RECOGNISED: Final = 1
"""NV_ESC_CHECK_VERSION_STR: the reply if the versions match."""


class nv_pci_info_t(Struct, size=12, source=SOURCE):
    """The PCI address and ids of a GPU."""

    domain: int = u32(0x0)
    bus: int = u8(0x4)
    slot: int = u8(0x5)
    function: int = u8(0x6)
    vendor_id: int = u16(0x8)
    device_id: int = u16(0xA)


class nv_ioctl_card_info_t(Struct, size=72, source=SOURCE):
    """One GPU in the reply of NV_ESC_CARD_INFO; `valid` is set if the record is used."""

    valid: bool = u8(0x0)
    pci_info: nv_pci_info_t = nested(0x4, nv_pci_info_t)
    gpu_id: int = u32(0x10)
    interrupt_line: int = u16(0x14)
    reg_address: int = u64(0x18)
    reg_size: int = u64(0x20)
    fb_address: int = u64(0x28)
    fb_size: int = u64(0x30)
    minor_number: int = u32(0x38)
    dev_name: str = chars(0x3C, 10)


class nv_ioctl_register_fd_t(Struct, size=4, source=SOURCE):
    """NV_ESC_REGISTER_FD: registers a /dev/nvidiaN descriptor with the RM client of `ctl_fd`."""

    ctl_fd: int = i32(0x0)


class nv_ioctl_rm_api_version_t(Struct, size=72, source=SOURCE):
    """NV_ESC_CHECK_VERSION_STR: queries or compares the version of the kernel module."""

    cmd: int = u32(0x0)
    reply: int = u32(0x4)
    versionString: str = chars(0x8, 64)


class nv_ioctl_sys_params_t(Struct, size=8, source=SOURCE):
    """NV_ESC_SYS_PARAMS: the memory block size."""

    memblock_size: int = u64(0x0)


class nv_ioctl_alloc_os_event_t(Struct, size=16, source=SOURCE):
    """NV_ESC_ALLOC_OS_EVENT: a descriptor that events wake."""

    hClient: int = u32(0x0)
    hDevice: int = u32(0x4)
    fd: int = i32(0x8)
    Status: NvStatus = u32(0xC)


class nv_ioctl_free_os_event_t(nv_ioctl_alloc_os_event_t):
    """NV_ESC_FREE_OS_EVENT."""


class nv_ioctl_wait_open_complete_t(Struct, size=8, source=SOURCE):
    """NV_ESC_WAIT_OPEN_COMPLETE: the result of a non-blocking open."""

    rc: int = u32(0x0)
    adapterStatus: NvStatus = u32(0x4)


class nv_ioctl_xfer_t(Struct, size=16, source=SOURCE):
    """NV_ESC_IOCTL_XFER_CMD: carries a structure too large for the request word."""

    cmd: int = u32(0x0)
    size: int = u32(0x4)
    ptr: int = u64(0x8)


class NVOS00_PARAMETERS(Struct, size=16, source=SOURCE):
    """NV_ESC_RM_FREE: frees an object and all its children."""

    hRoot: int = u32(0x0)
    hObjectParent: int = u32(0x4)
    hObjectOld: int = u32(0x8)
    status: NvStatus = u32(0xC)


class NVOS02_PARAMETERS(Struct, size=48, source=SOURCE):
    """The parameters of NV_ESC_RM_ALLOC_MEMORY, without the descriptor."""

    hRoot: int = u32(0x0)
    hObjectParent: int = u32(0x4)
    hObjectNew: int = u32(0x8)
    hClass: int = u32(0xC)
    flags: int = u32(0x10)
    pMemory: int = u64(0x18)
    limit: int = u64(0x20)
    status: NvStatus = u32(0x28)


class NVOS21_PARAMETERS(Struct, size=32, source=SOURCE):
    """NV_ESC_RM_ALLOC, the short form."""

    hRoot: int = u32(0x0)
    hObjectParent: int = u32(0x4)
    hObjectNew: int = u32(0x8)
    hClass: int = u32(0xC)
    pAllocParms: int = u64(0x10)
    paramsSize: int = u32(0x18)
    status: NvStatus = u32(0x1C)


class NVOS33_PARAMETERS(Struct, size=48, source=SOURCE):
    """The parameters of NV_ESC_RM_MAP_MEMORY, without the descriptor; `pLinearAddress` is a cookie."""

    hClient: int = u32(0x0)
    hDevice: int = u32(0x4)
    hMemory: int = u32(0x8)
    offset: int = u64(0x10)
    length: int = u64(0x18)
    pLinearAddress: int = u64(0x20)
    status: NvStatus = u32(0x28)
    flags: int = u32(0x2C)


class NVOS34_PARAMETERS(Struct, size=32, source=SOURCE):
    """NV_ESC_RM_UNMAP_MEMORY."""

    hClient: int = u32(0x0)
    hDevice: int = u32(0x4)
    hMemory: int = u32(0x8)
    pLinearAddress: int = u64(0x10)
    status: NvStatus = u32(0x18)
    flags: int = u32(0x1C)


class MapDmaFlags(BitStruct, source="nvos.h"):
    """NVOS46 flags."""

    CACHE_SNOOP: bool = optional(4, doc="system memory is read through the CPU's caches")
    PAGE_SIZE: int = optional(11, 8, doc="1 is 4 KiB; with a larger page RM aligns the address down to it")
    DMA_OFFSET_FIXED: bool = optional(15, doc="dmaOffset is the requested address")


class NVOS46_PARAMETERS_570(Struct, size=56, source="open-gpu-kernel-modules 570.211.01, nvos.h (nv.md 1.5)"):
    """NV_ESC_RM_MAP_MEMORY_DMA of branch 570."""

    hClient: int = u32(0x0)
    hDevice: int = u32(0x4)
    hDma: int = u32(0x8)
    hMemory: int = u32(0xC)
    offset: int = u64(0x10)
    length: int = u64(0x18)
    flags: int = u32(0x20)
    dmaOffset: int = u64(0x28)
    status: NvStatus = u32(0x30)


class NVOS46_PARAMETERS(NVOS46_PARAMETERS_570, size=64, source=SOURCE):
    """NV_ESC_RM_MAP_MEMORY_DMA: maps memory into an address space that the resource manager owns."""

    flags2: int = u32(0x24)
    kindOverride: int = u32(0x28)
    dmaOffset: int = u64(0x30)
    status: NvStatus = u32(0x38)


class NVOS47_PARAMETERS(Struct, size=48, source=SOURCE):
    """NV_ESC_RM_UNMAP_MEMORY_DMA."""

    hClient: int = u32(0x0)
    hDevice: int = u32(0x4)
    hDma: int = u32(0x8)
    hMemory: int = u32(0xC)
    flags: int = u32(0x10)
    dmaOffset: int = u64(0x18)
    size: int = u64(0x20)
    status: NvStatus = u32(0x28)


class NVOS54_PARAMETERS(Struct, size=32, source=SOURCE):
    """NV_ESC_RM_CONTROL: `paramsSize` must be exact."""

    hClient: int = u32(0x0)
    hObject: int = u32(0x4)
    cmd: int = u32(0x8)
    flags: int = u32(0xC)
    params: int = u64(0x10)
    paramsSize: int = u32(0x18)
    status: NvStatus = u32(0x1C)


class NVOS55_PARAMETERS(Struct, size=28, source=SOURCE):
    """NV_ESC_RM_DUP_OBJECT."""

    hClient: int = u32(0x0)
    hParent: int = u32(0x4)
    hObject: int = u32(0x8)
    hClientSrc: int = u32(0xC)
    hObjectSrc: int = u32(0x10)
    flags: int = u32(0x14)
    status: NvStatus = u32(0x18)


class NVOS64_PARAMETERS(Struct, size=48, source=SOURCE):
    """NV_ESC_RM_ALLOC, the long form, which this driver uses."""

    hRoot: int = u32(0x0)
    hObjectParent: int = u32(0x4)
    hObjectNew: int = u32(0x8)
    hClass: int = u32(0xC)
    pAllocParms: int = u64(0x10)
    pRightsRequested: int = u64(0x18)
    paramsSize: int = u32(0x20)
    flags: int = u32(0x24)
    status: NvStatus = u32(0x28)


class nv_ioctl_nvos02_parameters_with_fd(Struct, size=56, source=SOURCE):
    """NV_ESC_RM_ALLOC_MEMORY: OS-descriptor and system memory, issued on /dev/nvidiaN."""

    params: NVOS02_PARAMETERS = nested(0x0, NVOS02_PARAMETERS)
    fd: int = i32(0x30)


class nv_ioctl_nvos33_parameters_with_fd(Struct, size=56, source=SOURCE):
    """NV_ESC_RM_MAP_MEMORY: prepares `fd`, a newly opened descriptor, for one mmap."""

    params: NVOS33_PARAMETERS = nested(0x0, NVOS33_PARAMETERS)
    fd: int = i32(0x30)
