"""Memory objects: video memory, system memory and a user's own pages (nv.md 2.6).

Also NV01_MEMORY_VIRTUAL, an address space of the resource manager, and the mappings through it (cl0070.h).
Public drivers use it beside UVM or instead of it. A sandbox for compute alone allows neither the class nor
these mappings (nv.md 7.2).

Not here: other classes (`alloc`), mapping into the process (`files`), spaces that UVM owns (`uvm_space`), in
which nothing can be mapped this way. Next: `objects`.
"""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING, Any

from drivers.kernel import fail
from drivers.nv.layouts.rm_classes import (
    NV_MEMORY_ALLOCATION_PARAMS,
    NV_MEMORY_VIRTUAL_ALLOCATION_PARAMS,
    PITCH_KIND,
    Coherency,
    Location,
    MemAttr,
    MemAttr2,
    MemFlags,
    MemType,
    OsDescriptorFlags,
    PageSize,
    RmClass,
)
from drivers.nv.layouts.status import NvStatus
from emulator.nv.reports import RmRefused, page_fault, wrong
from emulator.nv.rm.objects import Client, RmDevice, RmMemory, RmObject, VaSpaceObject, VirtualMemory, find
from emulator.shared.backing import PAGE, Backing, page_up
from emulator.shared.emulated_kernel import first_unwritable
from emulator.shared.vaspace import VaSpace
from hcq.errors import DriverError

if TYPE_CHECKING:
    from collections.abc import Callable

    from drivers.nv.layouts.rm import NVOS47_PARAMETERS
    from emulator.nv.machine.machine import NvMachine
    from emulator.nv.rm.files import RmFile, RmFiles

HUGE = {1: 2 << 20, 2: 512 << 20}
"""PAGE_SIZE_HUGE -> bytes of a page."""
_LARGEST_ALIGNMENT = HUGE[2]
_KNOWN_FLAGS = sum(MemFlags)
_USED = ("owner", "type", "flags", "attr", "attr2", "format", "size", "alignment", "limit", "tag")
"""The fields of NV_MEMORY_ALLOCATION_PARAMS that are used; others must be 0."""


def make_memory(
    machine: NvMachine, _client: Client, parent: RmObject, cls: int, handle: int, block: bytearray | None
) -> RmObject:
    """Create video memory or system memory (class 0x40 or 0x3e); the reply has its final size.

    The parameters are those of `alloc.AllocationRule.make`. Raises `RmRefused`.
    """
    layout = NV_MEMORY_ALLOCATION_PARAMS
    block = bytearray(layout.SIZE) if block is None else block
    params = layout.from_bytes(block)
    local = cls == RmClass.NV01_MEMORY_LOCAL_USER
    page = _check(params, local=local)
    size = -(-params.size // page) * page
    gpu = parent.gpu
    free = gpu.profile.vram_bytes - gpu.vram_used
    if local and size > free:
        raise RmRefused(NvStatus.NO_MEMORY, f"{size:#x} bytes of video memory: {free:#x} are free")

    def gone() -> None:
        if local:
            gpu.vram_used -= size

    backing = _pages(machine, size, f"{'video' if local else 'system'} memory {handle:#x}", gone)
    attr = MemAttr.from_int(params.attr)
    backing.combined = local or attr.COHERENCY is Coherency.WRITE_COMBINE
    if local:
        gpu.vram_used += size
        if machine.tracks:
            backing.track()
    layout.store(block, size=size, limit=size - 1)
    return RmMemory(handle=handle, cls=cls, backing=backing, size=size, page=page)


def _pages(machine: NvMachine, size: int, label: str, gone: Callable[[], None] | None = None) -> Backing:
    """Return new pages; `gone` is called when they are freed.

    Raises `RmRefused` if the system has none left.
    """
    try:
        return Backing.new(machine.linux, size, label, gone)
    except (OSError, OverflowError, DriverError) as error:
        raise RmRefused(NvStatus.NO_MEMORY, f"{size:#x} bytes for {label}: {error}") from error


def _check(params: NV_MEMORY_ALLOCATION_PARAMS, *, local: bool) -> int:
    """Check the parameters of video memory (`local`) or system memory; return the page size in bytes.

    Raises `RmRefused`.
    """
    wrong = NvStatus.INVALID_ARGUMENT
    for name in params.FIELDS:
        value = getattr(params, name)
        if value and name not in _USED:
            raise RmRefused(wrong, f"{name} = {value:#x} is not known for this allocation")
    attr, attr2 = MemAttr.from_int(params.attr), MemAttr2.from_int(params.attr2)
    for violation in (*attr.check(), *attr2.check()):
        raise RmRefused(wrong, str(violation))
    if params.flags & ~_KNOWN_FLAGS:
        raise RmRefused(NvStatus.INVALID_FLAGS, f"flags {params.flags:#x}: {_KNOWN_FLAGS:#x} are known")
    if params.type not in tuple(MemType) or params.format not in (0, PITCH_KIND):
        raise RmRefused(wrong, f"type {params.type} or format {params.format} is not known")
    if (Location.VIDMEM if local else Location.PCI) != attr.LOCATION:
        raise RmRefused(wrong, f"attr has location {attr.LOCATION!r}, the class another")
    huge = attr.PAGE_SIZE == PageSize.HUGE
    if attr2.PAGE_SIZE_HUGE not in (HUGE if huge else (0,)) or (huge and not local):
        raise RmRefused(wrong, f"page sizes of attr and attr2 do not match: {attr}, {attr2}")
    page = HUGE[attr2.PAGE_SIZE_HUGE] if huge else PAGE
    if params.size == 0 or params.limit not in (0, params.size - 1):
        raise RmRefused(wrong, f"size {params.size:#x} or limit {params.limit:#x} is wrong")
    if params.alignment & (params.alignment - 1) or params.alignment > _LARGEST_ALIGNMENT:
        raise RmRefused(wrong, f"alignment {params.alignment:#x} is no power of two up to 512 MiB")
    return page


def make_descriptor(machine: NvMachine, handle: int, flags: int, address: int, limit: int) -> RmMemory:
    """Create a memory object (class 0x71) of the pages [address, address + limit], and pin them.

    Raises `RmRefused`, or in the sandbox `DriverError` (EFAULT) for pages that are missing or not writable.
    """
    parts = OsDescriptorFlags.from_int(flags)
    if parts.check() or (parts.PHYSICALITY, parts.COHERENCY, parts.MAPPING) != (1, 1, 1):
        raise RmRefused(
            NvStatus.INVALID_FLAGS, f"flags {flags:#x}: wanted noncontiguous, cached and no mapping: {parts}"
        )
    size = limit + 1
    what = f"a descriptor of [{address:#x}, +{size:#x})"
    if address == 0 or address % PAGE or size % PAGE:
        raise RmRefused(NvStatus.INVALID_ADDRESS, f"{what}, limit {limit:#x}, is not made of whole pages")
    hole = first_unwritable(address, size)
    if hole is not None:
        text = f"{what}: page {hole:#x} is missing or not writable"
        if machine.filtered:  # the sandbox pins the pages itself
            machine.note(text)
            fail("ioctl", errno.EFAULT, text)
        raise RmRefused(NvStatus.INVALID_ADDRESS, text)
    backing = Backing.pinned(address, size, f"user pages {handle:#x}")
    machine.pin(backing)
    return RmMemory(handle=handle, cls=RmClass.NV01_MEMORY_SYSTEM_OS_DESCRIPTOR, backing=backing, size=size)


def make_system(machine: NvMachine, handle: int, flags: int, limit: int) -> RmMemory:
    """Create system memory (class 0x3e) of `limit` + 1 bytes by the older call, RM_ALLOC_MEMORY.

    Raises `RmRefused`.
    """
    violations = OsDescriptorFlags.from_int(flags).check()
    if violations:
        raise RmRefused(NvStatus.INVALID_FLAGS, f"flags {flags:#x}: {violations[0]}")
    size = page_up(limit + 1)
    backing = _pages(machine, size, f"system memory {handle:#x}")
    return RmMemory(handle=handle, cls=RmClass.NV01_MEMORY_SYSTEM, backing=backing, size=size)


_FIRST_VA = 2 << 20
"""The lowest address that is chosen for a mapping."""
_ACCESS_MASK, _READ_ONLY, _ACCESSES = 0x3, 1, 3
_SNOOP = 1 << 4
_OFFSET_FIXED = 1 << 15
_KNOWN = _ACCESS_MASK | 1 << 3 | _SNOOP | 3 << 6 | 0xF << 8 | _OFFSET_FIXED | 3 << 17
"""NVOS46_FLAGS (nvos.h): ACCESS, PAGE_KIND, CACHE_SNOOP, SHADER_ACCESS, PAGE_SIZE, OFFSET_FIXED, caching."""


def make_virtual(
    _machine: NvMachine, client: Client, parent: RmObject, cls: int, handle: int, block: bytearray | None
) -> RmObject:
    """Create a window into an address space: a given one, or the device's own. The reply has its limit.

    The parameters are those of `alloc.AllocationRule.make`. Raises `RmRefused`.
    """
    assert isinstance(parent, RmDevice)
    assert block is not None
    params = NV_MEMORY_VIRTUAL_ALLOCATION_PARAMS.from_bytes(block)
    bits = parent.gpu.profile.space_bits
    last = params.limit or (1 << bits) - 1
    if not params.offset < last < 1 << bits:
        raise wrong(f"addresses {params.offset:#x} to {last:#x}: {bits} bits are there")
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
        raise wrong(f"[{params.offset:#x}, +{params.length:#x}) is not inside {memory} of {memory.size:#x}")
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
