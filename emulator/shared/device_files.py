"""System calls for a driver that does not use `drivers.kernel`: device files lead to an emulated kernel.

`DeviceFiles` has the calls that such a driver makes of the operating system, with descriptors, addresses and
errnos as libc has them. Paths of GPUs and what is opened there go to the emulated kernel, everything else to
Linux. It changes no argument and no reply: what the driver sends is what the emulated kernel and GPU see.

Not here: the kernels (`emulator.nv.machine.kernel`, `emulator.amd.machine.kernel`); how a driver is
made to call this. Next: docs/how-to/test-your-driver.md.
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
    """A kernel that knows which of its mappings are registers."""

    def maps_registers(self, fd: int, offset: int) -> bool:
        """Return whether what a descriptor shows at an offset is registers, which `mmio` maps."""


@dataclass(frozen=True, slots=True)
class Registers:
    """Registers or doorbells at an address of this process. `at` is the offset of that address in `mmio`."""

    mmio: Mmio
    at: int
    left: int
    """Bytes from the address to the end of the page of registers."""


class DeviceFiles:
    """The system calls of a process, of which those on files of GPUs go to an emulated kernel.

    Every method raises `OSError` with the errno that Linux would give and the emulated kernel's reason as its
    text. Thread-safe as the kernel is. `close_all` ends the emulated machine.
    """

    def __init__(self, kernel: EmulatedFiles) -> None:
        """`kernel` is what `emulator.devices.NV.make_kernel("sm_86+native")`, say, returns."""
        self.kernel = kernel
        self._linux = LinuxKernel()
        self._fds: set[int] = set()
        self._pages: dict[int, tuple[int, Mmio]] = {}

    @staticmethod
    def emulated(path: str) -> bool:
        """Return whether a path leads to the emulated kernel."""
        return path.startswith(ROOTS)

    def open(self, path: str, flags: int = os.O_RDWR) -> int:
        """Open a file and return its descriptor; those of emulated files are no descriptors of Linux."""
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

        A page of registers becomes memory without access: loads and stores go through `registers`.
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
        """Unmap memory, or a page of registers."""
        with _errno():
            page = self._pages.pop(va, None)
            if page is None:
                self.kernel.munmap(va, size)
                return
            page[1].close()
            self._linux.munmap(va, size)

    def registers(self, address: int) -> Registers | None:
        """Return the registers that were mapped at an address; None if it is memory.

        The driver's loads and stores there are `read32`, `write64` and so on of them, each of the width that
        the driver uses: that is how the emulated GPU sees a doorbell.
        """
        for start, (size, mmio) in self._pages.items():
            if start <= address < start + size:
                return Registers(mmio, address - start, start + size - address)
        return None

    def fence(self) -> None:
        """Execute the driver's store fence; the check of write-combined memory must see it."""
        self.kernel.fence()

    def close_all(self) -> None:
        """Close every emulated file, with which the emulated machine ends."""
        for fd in tuple(self._fds):
            self.close(fd)

    def _of(self, fd: int) -> Kernel:
        return self.kernel if fd in self._fds else self._linux


@contextmanager
def _errno() -> Iterator[None]:
    """Raise refusals as `OSError` with an errno, which is what drivers expect of the standard library."""
    try:
        yield
    except DriverError as error:
        raise OSError(error.status, str(error)) from error
