"""Address spaces of the resource manager: NV01_MEMORY_VIRTUAL and the mappings through it (cl0070.h).

Public drivers use it beside UVM or instead of it. A sandbox for compute alone allows neither the class nor
these mappings (nv.md 7.2).

Not here: spaces that UVM owns (`uvm_space`), in which nothing can be mapped this way. Next: `alloc` and
`ioctls`, the callers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from drivers.nv.layouts.rm_classes import NV_MEMORY_VIRTUAL_ALLOCATION_PARAMS, RmClass
from drivers.nv.layouts.status import NvStatus
from emulator.nv.reports import RmRefused, page_fault
from emulator.nv.rm.objects import (
    Client,
    RmDevice,
    RmMemory,
    RmObject,
    VaSpaceObject,
    VirtualMemory,
    find,
)
from emulator.shared.backing import PAGE, page_up
from emulator.shared.vaspace import VaSpace

if TYPE_CHECKING:
    from drivers.nv.layouts.rm import NVOS47_PARAMETERS
    from emulator.nv.machine.machine import NvMachine
    from emulator.nv.rm.files import RmFile, RmFiles

_FIRST_VA = 2 << 20
"""The lowest address that is chosen for a mapping."""
_ACCESS_MASK, _READ_ONLY, _ACCESSES = 0x3, 1, 3
_SNOOP = 1 << 4
_OFFSET_FIXED = 1 << 15
_KNOWN = _ACCESS_MASK | 1 << 3 | _SNOOP | 3 << 6 | 0xF << 8 | _OFFSET_FIXED | 3 << 17
"""NVOS46_FLAGS (nvos.h): ACCESS, PAGE_KIND, CACHE_SNOOP, SHADER_ACCESS, PAGE_SIZE, OFFSET_FIXED, caching."""


def make_virtual(  # noqa: PLR0917 - the signature of all makers
    machine: NvMachine, client: Client, parent: RmObject, cls: int, handle: int, block: bytearray | None
) -> RmObject:
    """Create a window into an address space: a given one, or the device's own. The reply has its limit.

    The parameters are those of `alloc.AllocationRule.make`. Raises `RmRefused`.
    """
    assert isinstance(parent, RmDevice)
    assert block is not None
    params = NV_MEMORY_VIRTUAL_ALLOCATION_PARAMS.from_bytes(block)
    bits = machine.profile.space_bits
    last = params.limit or (1 << bits) - 1
    if not params.offset < last < 1 << bits:
        raise RmRefused(
            NvStatus.INVALID_ARGUMENT, f"addresses {params.offset:#x} to {last:#x}: {bits} bits are there"
        )
    NV_MEMORY_VIRTUAL_ALLOCATION_PARAMS.store(block, limit=last)
    needs: tuple[RmObject, ...] = ()
    if params.hVASpace:
        owner = find(client, params.hVASpace, VaSpaceObject, "hVASpace")
        space, needs, external = owner.space, (owner,), owner.externally_owned
    else:
        if parent.space is None:
            parent.space = VaSpace(bits, page_fault)
        space, external = parent.space, False
    return VirtualMemory(
        handle=handle,
        cls=cls,
        space=space,
        first=params.offset,
        last=last,
        externally_owned=external,
        needs=needs,
    )


def map_dma(kernel: RmFiles, file: RmFile, params: Any) -> int:
    """Map memory through a window, by the branch's NVOS46_PARAMETERS; return the device address.

    `file` is the descriptor of the call. Raises `RmRefused` if the addresses are not free, or for what is not
    known.
    """
    window, memory = _objects(kernel, file, params)
    if params.flags & ~_KNOWN or params.flags & _ACCESS_MASK == _ACCESSES:
        raise RmRefused(NvStatus.INVALID_FLAGS, f"mapping flags {params.flags:#x}: {_KNOWN:#x} are known")
    if getattr(params, "flags2", 0) or getattr(params, "kindOverride", 0):
        raise RmRefused(NvStatus.INVALID_FLAGS, "flags2 and kindOverride are not known")
    size = page_up(params.length)
    if not size or params.offset % PAGE or params.offset + params.length > memory.size:
        raise RmRefused(
            NvStatus.INVALID_ARGUMENT,
            f"[{params.offset:#x}, +{params.length:#x}) is not inside {memory} of {memory.size:#x}",
        )
    va = params.dmaOffset if params.flags & _OFFSET_FIXED else _free_address(window, size)
    taken = window.space.overlapping(va, size)
    if va % PAGE or va < window.first or va + size - 1 > window.last or taken is not None:
        raise RmRefused(
            NvStatus.INVALID_ADDRESS,
            f"[{va:#x}, +{size:#x}) is not free in [{window.first:#x}, {window.last:#x}]: "
            f"{taken or 'outside'}",
        )
    window.space.add(
        va, size, memory.backing, params.offset, writable=params.flags & _ACCESS_MASK != _READ_ONLY
    )
    window.mapped[va] = memory
    if memory.cls != RmClass.NV01_MEMORY_LOCAL_USER and not params.flags & _SNOOP:
        kernel.machine.lint(f"{memory} is mapped without CACHE_SNOOP: the GPU may not see the CPU's caches")
    return int(va)


def unmap_dma(kernel: RmFiles, file: RmFile, params: NVOS47_PARAMETERS) -> None:
    """Remove the mapping that starts at an address. Raises `RmRefused` if there is none of that memory."""
    window, memory = _objects(kernel, file, params)
    if window.mapped.get(params.dmaOffset) is not memory:
        raise RmRefused(NvStatus.INVALID_ADDRESS, f"{memory} is not mapped at {params.dmaOffset:#x}")
    window.unmap(params.dmaOffset, "by UNMAP_MEMORY_DMA")


def _objects(kernel: RmFiles, file: RmFile, params: Any) -> tuple[VirtualMemory, RmMemory]:
    """Return the window and the memory that a call names. Raises `RmRefused`."""
    client = kernel.machine.client(params.hClient, file.fd)
    find(client, params.hDevice, RmDevice, "hDevice")
    window = find(client, params.hDma, VirtualMemory, "hDma")
    if window.externally_owned:
        raise RmRefused(NvStatus.INVALID_STATE, f"the address space of {window} is UVM's: it maps there")
    return window, find(client, params.hMemory, RmMemory, "hMemory")


def _free_address(window: VirtualMemory, size: int) -> int:
    """Return the lowest address of `size` free bytes; it may lie beyond the end of the window."""
    at = max(window.first, _FIRST_VA)
    for one in sorted(window.space.map.mappings(), key=lambda mapping: mapping.va):
        if one.va >= at + size:
            break
        at = max(at, page_up(one.end))
    return at
