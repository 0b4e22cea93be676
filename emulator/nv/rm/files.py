"""Open files of the emulated kernel: the node of each, its registered client, and its prepared mapping.

MAP_MEMORY prepares a new descriptor: the following mmap of it maps one range of one object (nv.md 1.4).

Not here: the table of open files (`emulator.shared.emulated_kernel`), mmap (`emulator.nv.machine.kernel`),
mappings into the GPU (`uvm_space`, `alloc_memory`). Next: `ioctls`, a user.
"""

from __future__ import annotations

import enum
import errno
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from drivers.kernel import fail
from drivers.nv.layouts.gpfifo import USERMODE_BYTES
from drivers.nv.layouts.rm_classes import RmClass
from drivers.nv.layouts.status import NvStatus
from emulator.nv.profiles import BIG_PAGE, SMALL_BAR1
from emulator.nv.reports import RmRefused, wrong
from emulator.nv.rm.objects import RmDevice, RmMemory, RmObject, Subdevice, Usermode, find
from emulator.shared.backing import PAGE, page_up
from emulator.shared.emulated_kernel import TEXT, FileDescription

if TYPE_CHECKING:
    from drivers.nv.layouts.rm import NVOS33_PARAMETERS, NVOS34_PARAMETERS
    from emulator.nv.machine.gpu import EmulatedGpu
    from emulator.nv.machine.machine import NvMachine
    from emulator.nv.rm.uvm_space import UvmSpace
    from emulator.shared.backing import Backing


class NvNode(enum.Enum):
    """The kinds of device nodes, and read-only text files."""

    CTL = "/dev/nvidiactl"
    GPU = "/dev/nvidia<minor>"
    UVM = "/dev/nvidia-uvm"
    TEXT = TEXT


@dataclass(slots=True, eq=False)
class MapContext:
    """What the one mmap of a descriptor maps: `length` bytes at `offset` of an object."""

    target: RmMemory | Usermode
    backing: Backing | None
    """The pages of the memory; None for the doorbell page."""
    offset: int
    length: int
    used: bool = False
    """Whether it was mapped."""


@dataclass(slots=True, eq=False)
class RmFile(FileDescription):
    """A descriptor."""

    ctl_fd: int | None = None
    """The descriptor of /dev/nvidiactl that REGISTER_FD named; None before that call."""
    context: MapContext | None = None
    """What MAP_MEMORY prepared; None before that call."""
    uvm: UvmSpace | None = None
    """The state of a descriptor of /dev/nvidia-uvm; None for others."""
    gpu: EmulatedGpu | None = None
    """The GPU of a descriptor of its node; None for others."""


class RmFiles(Protocol):
    """The emulated kernel as ioctls use it: an `emulator.nv.machine.kernel.NvKernel`."""

    machine: NvMachine
    """The emulated GPUs."""
    files: dict[int, RmFile]
    """Open files by descriptor."""


_CACHING_MASK = 0x7 << 23
"""The only flags that are known."""


def attach(kernel: RmFiles, target: RmMemory | Usermode, offset: int, length: int, fd: int) -> None:
    """Prepare descriptor `fd` for one mmap of `length` bytes at `offset` of an object.

    Raises `RmRefused` if it is no frontend, of the wrong node, or has a mapping already. In the sandbox the
    first and the last raise `DriverError` (EINVAL) instead.
    """
    file = kernel.files.get(fd)
    if file is None or file.node not in (NvNode.CTL, NvNode.GPU):
        text = f"descriptor {fd} is no frontend"
        if kernel.machine.filtered:
            fail("ioctl", errno.EINVAL, text)
        raise wrong(text)
    local = isinstance(target, Usermode) or target.cls == RmClass.NV01_MEMORY_LOCAL_USER
    wanted = target.gpu.node if local else NvNode.CTL.value
    if file.path != wanted:
        raise wrong(f"{target} is mapped through {wanted}, not {file.path}")
    if file.context is not None:
        text = f"descriptor {fd} has a mapping already: each needs a fresh one"
        if kernel.machine.filtered:
            fail("ioctl", errno.EINVAL, text)
        raise RmRefused(NvStatus.STATE_IN_USE, text)
    backing = target.backing if isinstance(target, RmMemory) else None
    if backing is not None:
        backing.mark_written()
    file.context = MapContext(target, backing, offset, length)


def map_memory(kernel: RmFiles, file: RmFile, params: NVOS33_PARAMETERS, fd: int) -> int:
    """Execute MAP_MEMORY: prepare descriptor `fd` for mmap; return the key for `unmap_memory`.

    `file` is the descriptor of the call. Raises `RmRefused`, and `DriverError` as `attach`. The status is
    NO_MEMORY where BAR1 has no room: dmaAllocMapping_GM107 returns that of the heap of its addresses (kernel
    logs of open-gpu-kernel-modules issues 1140 and 1187).
    """
    machine = kernel.machine
    client = machine.client(params.hClient, file.fd)
    above = find(client, params.hDevice, RmObject, "hDevice")
    target = find(client, params.hMemory, RmObject, "hMemory")
    if not isinstance(target, (RmMemory, Usermode)):
        raise RmRefused(NvStatus.INVALID_OBJECT, f"{target} cannot be mapped")
    right = (RmDevice, Subdevice) if isinstance(target, Usermode) else (RmDevice,)
    if not isinstance(above, right) or not target.under(above):
        names = " or ".join(one.__name__ for one in right)
        raise RmRefused(NvStatus.INVALID_OBJECT_PARENT, f"hDevice {above} is not the {names} of {target}")
    if isinstance(target, RmMemory) and target.cls == RmClass.NV01_MEMORY_SYSTEM_OS_DESCRIPTOR:
        raise RmRefused(NvStatus.NOT_SUPPORTED, "user pages need no mapping: their owner has them")
    if params.flags & ~_CACHING_MASK:
        raise RmRefused(NvStatus.INVALID_FLAGS, f"mapping flags {params.flags:#x}")
    size = USERMODE_BYTES if isinstance(target, Usermode) else target.size
    if params.length == 0 or params.offset % PAGE or params.offset + params.length > size:
        raise wrong(f"[{params.offset:#x}, +{params.length:#x}) is not inside {target} of {size:#x} bytes")
    if value := machine.rejections.refuses("mapping", target, above):
        raise RmRefused(NvStatus.NOT_SUPPORTED, f"{target} is not mapped through {above} (quirk {value})")
    window = _window(target, params.offset, params.length)
    free = target.gpu.bar1_free
    if window > free:
        text = f"{target} needs {window:#x} bytes of BAR1: {free:#x} are free"
        raise RmRefused(NvStatus.NO_MEMORY, text)
    attach(kernel, target, params.offset, params.length, fd)
    return machine.new_cookie(target, above, window)


def _window(target: RmMemory | Usermode, offset: int, length: int) -> int:
    """Return how many bytes of BAR1 a mapping of `length` bytes at `offset` takes: whole pages.

    They are those of the memory, or of 64 KiB where BAR1 is small (kern_bus.c, Force64KBMapping). Each
    mapping takes its own; newer branches let those of one range share it (mapping_reuse.c).
    """
    if isinstance(target, Usermode):
        return BIG_PAGE if target.bar1 else 0
    if target.cls != RmClass.NV01_MEMORY_LOCAL_USER:
        return 0
    page = BIG_PAGE if target.gpu.bar1_bytes <= SMALL_BAR1 else max(target.page, BIG_PAGE)
    return -(-(offset + length) // page) * page - offset // page * page


def unmap_memory(kernel: RmFiles, file: RmFile, params: NVOS34_PARAMETERS) -> None:
    """Execute UNMAP_MEMORY: forget a key. The mmap itself remains. Raises `RmRefused` for another key."""
    client = kernel.machine.client(params.hClient, file.fd)
    above = find(client, params.hDevice, RmObject, "hDevice")
    target = find(client, params.hMemory, RmObject, "hMemory")
    if params.flags & ~_CACHING_MASK:
        raise RmRefused(NvStatus.INVALID_FLAGS, f"unmapping flags {params.flags:#x}")
    cookies = {} if target is client else target.gpu.cookies
    found = cookies.get(params.pLinearAddress)
    if found is None or found[:2] != (target, above):
        raise wrong(f"{params.pLinearAddress:#x} is no mapping of {target} through {above}")
    del cookies[params.pLinearAddress]


def use_context(file: RmFile, size: int, offset: int) -> MapContext:
    """Return what MAP_MEMORY prepared for a descriptor, once, for an mmap of `size` bytes at `offset`.

    Raises `DriverError` (EINVAL) if nothing was prepared, it is used or freed, or the range is another.
    """
    context = file.context
    if context is None:
        fail(
            "mmap",
            errno.EINVAL,
            f"descriptor {file.fd} ({file.path}) has nothing to map: MAP_MEMORY comes first",
        )
    if not context.target.live:
        fail("mmap", errno.EINVAL, f"{context.target}, which descriptor {file.fd} was to map, was freed")
    if context.used:
        fail("mmap", errno.EINVAL, f"descriptor {file.fd} was mapped already: each has one mapping")
    if offset or size != page_up(context.length):
        fail(
            "mmap",
            errno.EINVAL,
            f"[{offset:#x}, +{size:#x}) of descriptor {file.fd}: wanted offset 0 and "
            f"{page_up(context.length):#x} bytes",
        )
    context.used = True
    return context
