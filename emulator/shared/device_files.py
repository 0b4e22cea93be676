"""System calls for a driver that does not use `drivers.kernel`: device files lead to an emulated kernel.

`DeviceFiles` has the system calls that such a driver makes, with descriptors, addresses and errnos as in
libc. Calls on paths of GPUs and on files opened there go to the emulated kernel, as do `mmap` of anonymous
memory, `munmap` of all memory, and `fence`; calls on other files go to Linux. Arguments and replies pass
unchanged.

Not here: the kernels (`emulator.nv.machine.kernel`, `emulator.amd.machine.kernel`). Next:
docs/how-to/test-your-driver.md, how to make a driver call this module.
"""

from __future__ import annotations

import os
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from drivers.kernel import (
    MAP_ANONYMOUS,
    MAP_FIXED,
    MAP_FIXED_NOREPLACE,
    MAP_NORESERVE,
    MAP_PRIVATE,
    MAP_SHARED,
    PROT_NONE,
    Kernel,
    LinuxKernel,
)
from hcq.errors import DriverError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from drivers.kernel import Mmio

ROOTS = (
    "/dev/kfd",
    "/dev/dri",
    "/dev/nvidia",
    "/sys/class/drm",
    "/sys/class/kfd",
    "/sys/devices/virtual/kfd",
    "/sys/module/amdgpu",
    "/proc/driver/nvidia",
    "/proc/devices",
)
"""Beginnings of the paths that lead to the emulated kernel."""


class EmulatedFiles(Kernel, Protocol):
    """A kernel that can say which of its mappings are registers."""

    def maps_registers(self, fd: int, offset: int) -> bool:
        """Return whether the page at byte `offset` of a descriptor holds registers, which `mmio` maps."""


@dataclass(frozen=True, slots=True)
class Registers:
    """Registers or doorbells at an address of this process."""

    mmio: Mmio
    at: int
    """The byte offset of the address in `mmio`."""
    left: int
    """Bytes from the address to the end of the mapping."""


class DeviceFiles:
    """The system calls of a process; those on files of GPUs go to an emulated kernel.

    A refused call raises `OSError` with the errno that Linux would give; its text is the emulated kernel's
    reason. `close_all` ends the emulated machine. Thread-safe as the kernel is, except that no thread may map
    or unmap registers while another calls `registers`.
    """

    def __init__(self, kernel: EmulatedFiles) -> None:
        """Use a kernel, such as the result of `emulator.devices.NV.make_kernel("sm_86+native")`."""
        self.kernel = kernel
        self._linux = LinuxKernel()
        self._fds: set[int] = set()
        self._pages: dict[int, tuple[int, Mmio]] = {}

    @staticmethod
    def emulated(path: str) -> bool:
        """Return whether a path leads to the emulated kernel."""
        return path.startswith(ROOTS)

    def open(self, path: str, flags: int = os.O_RDWR) -> int:
        """Open a file and return its descriptor. Linux does not know the descriptors of emulated files."""
        with _errno():
            if not self.emulated(path):
                return self._linux.open(path, flags)
            fd = self.kernel.open(path, flags)
            self._fds.add(fd)
            return fd

    def close(self, fd: int) -> None:
        """Close a descriptor."""
        with _errno():
            self._of(fd).close(fd)
            self._fds.discard(fd)

    def read(self, fd: int, size: int) -> bytes:
        """Read at most `size` bytes."""
        with _errno():
            return self._of(fd).read(fd, size)

    def read_file(self, path: str) -> bytes:
        """Return the whole content of a file."""
        with _errno():
            return (self.kernel if self.emulated(path) else self._linux).read_file(path)

    def list_dir(self, path: str) -> list[str]:
        """Return the sorted names in a folder."""
        with _errno():
            return (self.kernel if self.emulated(path) else self._linux).list_dir(path)

    def ioctl(self, fd: int, request: int, address: int) -> int:
        """Call ioctl with the address of its argument, which is changed in place."""
        with _errno():
            return self._of(fd).ioctl(fd, request, address)

    def mmap(self, va: int, size: int, prot: int, flags: int, fd: int, offset: int) -> int:  # noqa: PLR0917 - mmap(2)
        """Map memory or a file, anonymous memory if `fd` is -1; return the address.

        `flags` 0 means MAP_SHARED. For registers it returns an inaccessible range: the driver's loads and
        stores go through `registers`.
        """
        with _errno():
            if fd in self._fds and self.kernel.maps_registers(fd, offset):
                mmio = self.kernel.mmio(fd, size, offset)
                kept = flags & (MAP_FIXED | MAP_FIXED_NOREPLACE) | MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE
                at = self._linux.mmap(size, va=va, prot=PROT_NONE, flags=kept).va
                self._pages[at] = (size, mmio)
                return at
            of = self._of(fd) if fd >= 0 else self.kernel
            return of.mmap(size, fd=fd, offset=offset, va=va, prot=prot, flags=flags or MAP_SHARED).va

    def munmap(self, va: int, size: int) -> None:
        """Unmap memory, or registers, whose `va` and `size` must be those of their `mmap`."""
        with _errno():
            page = self._pages.pop(va, None)
            if page is None:
                self.kernel.munmap(va, size)
                return
            page[1].close()
            self._linux.munmap(va, size)

    def registers(self, address: int) -> Registers | None:
        """Return the registers that were mapped at an address; None if it is memory.

        A load or store of the driver there must become a call of `mmio.read32`, `mmio.write64` or another of
        the same width: these calls show a doorbell to the emulated GPU.
        """
        for start, (size, mmio) in self._pages.items():
            if start <= address < start + size:
                return Registers(mmio, address - start, start + size - address)
        return None

    def fence(self) -> None:
        """Execute the driver's store fence, which the check of write-combined memory needs (`combining`)."""
        self.kernel.fence()

    def close_all(self) -> None:
        """Close every emulated file. The emulated machine ends with the last one."""
        for fd in tuple(self._fds):
            self.close(fd)

    def _of(self, fd: int) -> Kernel:
        return self.kernel if fd in self._fds else self._linux


@contextmanager
def _errno() -> Iterator[None]:
    """Raise a `DriverError` as the `OSError` with its errno that a driver expects of the standard library."""
    try:
        yield
    except DriverError as error:
        raise OSError(error.status, str(error)) from error
