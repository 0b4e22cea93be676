"""The only access to the operating system: files, ioctls, mappings and MMIO.

A driver receives a `Kernel` and makes all its system calls through it, so an emulated GPU can replace Linux.
`LinuxKernel` is the implementation for Linux. A failed call raises `DriverError` with the name of the errno,
or `OutOfMemoryError` for ENOMEM; an interrupted call is repeated.

Not here: records of calls (`drivers.kernel_trace`), the ioctls of a vendor (`drivers.nv.rm`,
`drivers.nv.uvm`, `drivers.amd.kfd`). Next: `emulator.nv.machine.kernel`, an emulated kernel with the same
interface.
"""
# ruff: noqa: D102 - the contracts of the methods are in the Protocols

from __future__ import annotations

import contextlib
import ctypes
import errno
import mmap as _mmap
import os
import select
import sys
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn, Protocol, runtime_checkable

from hcq.errors import DriverError, OutOfMemoryError, UnsupportedError
from hcq.hardware import BufferTracker

if TYPE_CHECKING:
    from hcq.counters import Counters

PAGE = _mmap.PAGESIZE
"""Size of a page in bytes."""

PROT_NONE = 0
PROT_READ = _mmap.PROT_READ
PROT_WRITE = _mmap.PROT_WRITE
PROT_EXEC = _mmap.PROT_EXEC

MAP_SHARED = _mmap.MAP_SHARED
MAP_PRIVATE = _mmap.MAP_PRIVATE
MAP_ANONYMOUS = _mmap.MAP_ANONYMOUS
MAP_FIXED = 0x10  # include/uapi/asm-generic/mman-common.h, this and the next three
MAP_NORESERVE = 0x4000
MAP_POPULATE = 0x8000
MAP_FIXED_NOREPLACE = 0x100000
MADV_HUGEPAGE = 14


def view_at(va: int, size: int) -> memoryview:
    """Return a writable view of `size` bytes at host address `va`; the caller keeps the mapping alive."""
    return memoryview((ctypes.c_ubyte * size).from_address(va)).cast("B")


def address_of(memory: bytearray | memoryview) -> int:
    """Return the host address of writable memory; the caller keeps `memory` alive and does not resize it."""
    return ctypes.addressof(ctypes.c_char.from_buffer(memory))


def keep_pages(kernel: Kernel, view: memoryview) -> None:
    """Replace the pages of a mapping, in place, by private pages with the same contents.

    The pages are unmapped when the last view made from `view` is deleted. Stores of other threads during the
    call may be lost.
    """
    va, size, contents = address_of(view), len(view), bytes(view)
    kernel.mmap(size, va=va, flags=MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED)
    view[:] = contents
    unmap_last(LinuxKernel(), view, va)


def unmap_last(kernel: Kernel, view: memoryview, va: int) -> None:
    """Unmap the pages at `va` when `view` and all views made from it are deleted."""
    weakref.finalize(view.obj, kernel.munmap, va, len(view)).atexit = False


@dataclass(frozen=True, slots=True)
class Mapping:
    """A range of this process's address space, which `Kernel.mmap` returned.

    `view` has the bytes; after `munmap` neither `view` nor views made from it may be used.
    """

    va: int
    size: int
    view: memoryview


class Mmio(Protocol):
    """Mapped device registers or doorbells: each access is one load or store of its width.

    Raises `ValueError` for an offset that is negative or not a multiple of the width.
    """

    def read32(self, offset: int) -> int: ...

    def read64(self, offset: int) -> int: ...

    def write32(self, offset: int, value: int) -> None: ...

    def write64(self, offset: int, value: int) -> None: ...

    def close(self) -> None:
        """Unmap the registers; the object must not be used afterwards."""


class Kernel(Protocol):
    """The calls of the operating system that drivers use.

    Calls raise `DriverError`, or `OutOfMemoryError` for ENOMEM.
    """

    def open(self, path: str, flags: int = os.O_RDWR) -> int:
        """Open a file, with close-on-exec, and return its descriptor."""

    def close(self, fd: int) -> None: ...

    def read(self, fd: int, size: int) -> bytes:
        """Read at most `size` bytes from a descriptor."""

    def read_file(self, path: str) -> bytes:
        """Return the whole content of a small file (sysfs, procfs)."""

    def list_dir(self, path: str) -> list[str]:
        """Return the sorted names in a directory."""

    def ioctl(self, fd: int, request: int, argument: bytearray | int) -> int:
        """Call ioctl with the address of a bytearray, which the call may change, or with a number.

        Return its result, which is not negative.
        """

    def mmap(
        self,
        size: int,
        *,
        fd: int = -1,
        offset: int = 0,
        va: int = 0,
        prot: int = PROT_READ | PROT_WRITE,
        flags: int | None = None,
    ) -> Mapping:
        """Map a file, or anonymous memory if `fd` is -1; the caller unmaps it.

        `flags` None is MAP_SHARED for a file and MAP_PRIVATE | MAP_ANONYMOUS for memory. `va` 0 lets the
        kernel choose the address. With MAP_FIXED or MAP_FIXED_NOREPLACE the mapping lies at `va`, or the call
        raises; MAP_FIXED replaces earlier mappings there.
        """

    def munmap(self, va: int, size: int) -> None: ...

    def mprotect(self, va: int, size: int, prot: int) -> None: ...

    def madvise(self, va: int, size: int, advice: int) -> None: ...

    def mmio(self, fd: int, size: int, offset: int) -> Mmio:
        """Map registers or a doorbell page of a device file; the caller closes the result."""

    def poll(self, fds: Sequence[int], timeout_s: float) -> list[int]:
        """Sleep until one of `fds` is readable or in error, or `timeout_s` is over.

        Return the descriptors that are readable or in error; empty after the time.
        """

    def fence(self) -> None:
        """Order all earlier stores before all later ones, also stores to write-combined memory.

        Raises `UnsupportedError` for an architecture without a known fence.
        """

    def diagnostics(self) -> tuple[str, ...]:
        """Return the kernel's own reports on faults since the last call, the oldest first, as plain text.

        Only emulated kernels have reports: Linux returns none. A driver adds them to the error that it raises
        for a fault or for work that does not finish.
        """

    def refusal(self) -> str:
        """Return the kernel's reason for refusing the latest call, once; "" if it gives none, as Linux."""

    def count_kernels(self, into: Counters | None, gpu: int) -> Counters | None:
        """Count `into` these counters what GPU kernels execute on an emulated GPU; None: stop counting.

        `gpu` is the vendor's number of the GPU (`AmdGpu.gpu_id`; the index for NVIDIA). Return the counters
        that were set before, or None. Raises `UnsupportedError` for real GPUs.
        """


@runtime_checkable
class TrackingKernel(Protocol):
    """A kernel whose emulated GPUs can check accesses of GPU kernels against buffers."""

    @property
    def tracker(self) -> BufferTracker | None:
        """The object to call for each new and freed buffer; None: the GPUs check whole allocations."""


def tracker_of(kernel: Kernel) -> BufferTracker | None:
    """Return the tracker of buffers on a kernel's GPUs; None for real GPUs and if it does not track."""
    return kernel.tracker if isinstance(kernel, TrackingKernel) else None


_FILTERED = (
    "a filter of system calls (seccomp, a container's profile) or the device cgroup forbids it: run the "
    "container with --security-opt seccomp=unconfined, and with the GPU's nodes (--device)"
)
_HINTS = {
    **{(call, number): _FILTERED for call in ("ioctl", "mmap") for number in (errno.EPERM, errno.EACCES)},
    ("ioctl", errno.ENOSYS): _FILTERED,
    ("ioctl", errno.EBADF): ("a process forked from the one that opened the device: open it here, or spawn"),
    ("ioctl", errno.ENODEV): (
        "the GPU was removed, or did not come back from a suspend: `dmesg` says why; start a new process"
    ),
    ("ioctl", errno.ENOMEM): "no memory is left for the call: close buffers, or raise the container's limit",
    ("ioctl", errno.EFAULT): "memory is not mapped, or only to be read: use that of `device.alloc`",
    ("mmap", errno.EAGAIN): "too much memory is locked: raise the limit (ulimit -l)",
    ("mmap", errno.ENOMEM): (
        "no addresses or no memory: close buffers, or raise the limits (ulimit -v, vm.max_map_count, the "
        "container's)"
    ),
}
"""(call, errno) -> hint."""


def fail(call: str, number: int, arguments: str = "", hint: str = "") -> NoReturn:
    """Raise `OutOfMemoryError` or `DriverError` for the errno `number` of `call`.

    `hint` "" selects the usual hint of the errno.
    """
    kind = OutOfMemoryError if number == errno.ENOMEM else DriverError
    name = errno.errorcode.get(number, "unknown errno")
    hint = hint or _HINTS.get((call, number)) or os.strerror(number)
    raise kind(call, number, name, arguments=arguments, hint=hint)


_FENCES = {
    "x86_64": bytes.fromhex("0faef8c3"),  # sfence; ret
    "aarch64": bytes.fromhex("9f3e03d5c0035fd6"),  # dsb st; ret
}


class LinuxMmio:
    """Registers mapped into this process. An offset outside them, or misaligned, raises `ValueError`."""

    __slots__ = ("_kernel", "_mapping", "_words32", "_words64")

    def __init__(self, kernel: LinuxKernel, mapping: Mapping) -> None:
        self._kernel = kernel
        self._mapping = mapping
        self._words32 = mapping.view.cast("I")
        self._words64 = mapping.view[: mapping.size & ~7].cast("Q")

    def read32(self, offset: int) -> int:
        return self._words32[_index(offset, 4)]

    def read64(self, offset: int) -> int:
        return self._words64[_index(offset, 8)]

    def write32(self, offset: int, value: int) -> None:
        self._words32[_index(offset, 4)] = value

    def write64(self, offset: int, value: int) -> None:
        self._words64[_index(offset, 8)] = value

    def close(self) -> None:
        """Unmap the registers."""
        self._words32.release()
        self._words64.release()
        self._kernel.munmap(self._mapping.va, self._mapping.size)


def _index(offset: int, size: int) -> int:
    if offset < 0 or offset % size:
        raise ValueError(f"register offset {offset:#x} is negative or not a multiple of {size}")
    return offset // size


class LinuxKernel:
    """The Linux kernel on which this process runs. Calls raise `DriverError` or `OutOfMemoryError` as `fail`.

    `fence` raises `UnsupportedError` on a machine without a known fence, and `count_kernels` always.
    """

    def __init__(self) -> None:
        libc = ctypes.CDLL(None, use_errno=True)
        void, size, int_ = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int
        self._mmap = _prototype(libc.mmap, void, void, size, int_, int_, int_, ctypes.c_int64)
        self._munmap = _prototype(libc.munmap, int_, void, size)
        self._mprotect = _prototype(libc.mprotect, int_, void, size, int_)
        self._madvise = _prototype(libc.madvise, int_, void, size, int_)
        self._ioctl = _prototype(libc.ioctl, int_, int_, ctypes.c_ulong, void)
        self._fence: Callable[[], object] | None = None

    def open(self, path: str, flags: int = os.O_RDWR) -> int:
        with _os_errors("open", path):
            return os.open(path, flags | os.O_CLOEXEC)

    def close(self, fd: int) -> None:
        with _os_errors("close", str(fd)):
            os.close(fd)

    def read(self, fd: int, size: int) -> bytes:
        with _os_errors("read", f"fd {fd}, {size} bytes"):
            return os.read(fd, size)

    def read_file(self, path: str) -> bytes:
        with _os_errors("read", path):
            return Path(path).read_bytes()

    def list_dir(self, path: str) -> list[str]:
        with _os_errors("listdir", path):
            return sorted(os.listdir(path))  # noqa: PTH208 - names are wanted, not paths

    def ioctl(self, fd: int, request: int, argument: bytearray | int) -> int:
        address = argument if isinstance(argument, int) else address_of(argument)
        while (result := self._ioctl(fd, request, address)) < 0:
            number = ctypes.get_errno()
            if number not in (errno.EINTR, errno.EAGAIN):
                fail("ioctl", number, f"fd {fd}, request {request:#x}, argument {address:#x}")
        return result

    def mmap(
        self,
        size: int,
        *,
        fd: int = -1,
        offset: int = 0,
        va: int = 0,
        prot: int = PROT_READ | PROT_WRITE,
        flags: int | None = None,
    ) -> Mapping:
        if flags is None:
            flags = MAP_PRIVATE | MAP_ANONYMOUS if fd < 0 else MAP_SHARED
        where = f"va {va:#x}, {size:#x} bytes, prot {prot:#x}, flags {flags:#x}, fd {fd}, offset {offset:#x}"
        if size > sys.maxsize:  # ctypes would pass only the low 64 bits
            fail("mmap", errno.ENOMEM, where)
        got = self._mmap(va or None, size, prot, flags, fd, offset) or 0
        if got in (-1, 2**64 - 1):
            fail("mmap", ctypes.get_errno(), where)
        if flags & MAP_FIXED_NOREPLACE and got != va:  # kernels before 4.17 take the address as a hint
            self.munmap(got, size)
            fail("mmap", errno.EEXIST, where)
        return Mapping(got, size, view_at(got, size))

    def munmap(self, va: int, size: int) -> None:
        if self._munmap(va, size):
            fail("munmap", ctypes.get_errno(), f"va {va:#x}, {size:#x} bytes")

    def mprotect(self, va: int, size: int, prot: int) -> None:
        if self._mprotect(va, size, prot):
            fail("mprotect", ctypes.get_errno(), f"va {va:#x}, {size:#x} bytes, prot {prot:#x}")

    def madvise(self, va: int, size: int, advice: int) -> None:
        if self._madvise(va, size, advice):
            fail("madvise", ctypes.get_errno(), f"va {va:#x}, {size:#x} bytes, advice {advice}")

    def mmio(self, fd: int, size: int, offset: int) -> LinuxMmio:
        return LinuxMmio(self, self.mmap(size, fd=fd, offset=offset))

    def poll(self, fds: Sequence[int], timeout_s: float) -> list[int]:
        poller = select.poll()
        for fd in fds:
            poller.register(fd, select.POLLIN | select.POLLPRI)
        with _os_errors("poll", f"fds {list(fds)}"):
            return [fd for fd, _ in poller.poll(max(0.0, timeout_s) * 1000)]

    def fence(self) -> None:
        if self._fence is None:
            self._fence = self._make_fence()
        self._fence()

    def diagnostics(self) -> tuple[str, ...]:
        return ()

    def refusal(self) -> str:
        return ""

    def count_kernels(self, into: Counters | None, gpu: int) -> Counters | None:
        del into, gpu
        raise UnsupportedError(
            "a real GPU does not count\nhint: nv-emu and amd-emu count what the same kernel executes"
        )

    def _make_fence(self) -> Callable[[], object]:
        machine = os.uname().machine
        code = _FENCES.get(machine)
        if code is None:
            raise UnsupportedError(f"no store fence is known for {machine}; there are: {', '.join(_FENCES)}")
        page = self.mmap(PAGE)
        page.view[: len(code)] = code
        self.mprotect(page.va, PAGE, PROT_READ | PROT_EXEC)
        return ctypes.PYFUNCTYPE(None)(page.va)


def _prototype(function: Callable[..., int], result: type, *arguments: type) -> Callable[..., int]:
    function.restype = result  # type: ignore[attr-defined]  # a ctypes function, whose class typeshed does not name
    function.argtypes = arguments  # type: ignore[attr-defined]  # the same
    return function


class _os_errors(contextlib.AbstractContextManager[None]):  # noqa: N801 - used like a function
    """Turn an OSError of the standard library into a DriverError that names call and arguments."""

    def __init__(self, call: str, arguments: str) -> None:
        self._call, self._arguments = call, arguments

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, OSError) and not isinstance(error, DriverError):
            fail(self._call, error.errno or 0, self._arguments)
