"""Memory objects: video memory, system memory and a user's own pages (nv.md 2.6).

Not here: other classes (`alloc`), mapping memory (`mapping`, `uvm_space`, `dma`). Next: `objects`.
"""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING

from drivers.kernel import fail
from drivers.nv.layouts.rm_classes import (
    NV_MEMORY_ALLOCATION_PARAMS,
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
from emulator.nv.reports import RmRefused
from emulator.nv.rm.objects import Client, RmMemory, RmObject
from emulator.shared.backing import PAGE, Backing, page_up
from emulator.shared.user_memory import first_unwritable
from hcq.errors import DriverError

if TYPE_CHECKING:
    from collections.abc import Callable

    from emulator.nv.machine.machine import NvMachine

HUGE = {1: 2 << 20, 2: 512 << 20}
"""PAGE_SIZE_HUGE -> bytes of a page."""
_LARGEST_ALIGNMENT = HUGE[2]
_KNOWN_FLAGS = sum(MemFlags)
_USED = ("owner", "type", "flags", "attr", "attr2", "format", "size", "alignment", "limit", "tag")
"""The fields of NV_MEMORY_ALLOCATION_PARAMS that are used; others must be 0."""


def make_memory(
    machine: NvMachine, _client: Client, _parent: RmObject, cls: int, handle: int, block: bytearray | None
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
    free = machine.profile.vram_bytes - machine.vram_used
    if local and size > free:
        raise RmRefused(NvStatus.NO_MEMORY, f"{size:#x} bytes of video memory: {free:#x} are free")

    def gone() -> None:
        if local:
            machine.vram_used -= size

    backing = _pages(machine, size, f"{'video' if local else 'system'} memory {handle:#x}", gone)
    attr = MemAttr.from_int(params.attr)
    backing.combined = local or attr.COHERENCY is Coherency.WRITE_COMBINE
    if local:
        machine.vram_used += size
        if machine.tracks:
            backing.track()
    layout.store(block, size=size, limit=size - 1)
    return RmMemory(handle=handle, cls=cls, backing=backing, size=size)


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
