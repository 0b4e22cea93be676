"""The base class of the vendors' emulated kernels (open files, texts), and access to memory of the caller.

`UserMemory` copies the bytes through a memory file, whose read and write calls check addresses: a bad address
gives EFAULT, never a crash.

Not here: device nodes, ioctls and mappings (`emulator.nv.machine.kernel`, `emulator.amd.machine.kernel`).
Next: `emulator.nv.machine.kernel`.
"""

from __future__ import annotations

import ctypes
import errno
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Generic, Protocol, TypeVar

from drivers.kernel import fail
from emulator.shared.memory import TrackedBuffers

if TYPE_CHECKING:
    from emulator.shared.machine_report import MachineReport
    from emulator.shared.memory import AddressSpace
    from emulator.shared.scheduler import TurnLock
    from emulator.shared.surprises import Surprises


def first_unwritable(address: int, size: int) -> int | None:
    """Return the first address in [address, address + size) that this process cannot write, or None."""
    at = address
    with Path("/proc/self/maps").open(encoding="utf-8") as maps:
        for line in maps:
            span, rights = line.split(maxsplit=2)[:2]
            start, end = (int(part, 16) for part in span.split("-"))
            if end <= at:
                continue
            if start > at or rights[:2] != "rw":
                return at
            at = end
            if at >= address + size:
                return None
    return at


class UserMemory:
    """Copies from and to addresses given by the caller of an ioctl, as copy_from_user and copy_to_user do.

    Not thread-safe: all copies go through one file.
    """

    def __init__(self) -> None:
        self._fd = -1
        libc = ctypes.CDLL(None, use_errno=True)
        self._pwrite, self._pread = libc.pwrite, libc.pread
        for call in (self._pwrite, self._pread):
            call.restype = ctypes.c_ssize_t
            call.argtypes = (ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int64)

    def _file(self) -> int:
        if self._fd < 0:
            self._fd = os.memfd_create("emulated-user-memory", os.MFD_CLOEXEC)
        return self._fd

    def read(self, address: int, size: int) -> bytes:
        """Copy `size` bytes from `address`. Raises `DriverError` (EFAULT) if they cannot all be read."""
        if size == 0:
            return b""
        done = self._pwrite(self._file(), address, size, 0)
        if done != size:
            fail("ioctl", errno.EFAULT, f"{size} bytes at {address:#x} cannot be read")
        return os.pread(self._file(), size, 0)

    def write(self, address: int, data: bytes | bytearray) -> None:
        """Copy `data` to `address`. Raises `DriverError` (EFAULT) if it cannot all be written."""
        if not data:
            return
        os.pwrite(self._file(), data, 0)
        if self._pread(self._file(), address, len(data), 0) != len(data):
            fail("ioctl", errno.EFAULT, f"{len(data)} bytes at {address:#x} cannot be written")

    def close(self) -> None:
        """Close the file; the next copy opens a new one."""
        if self._fd >= 0:
            os.close(self._fd)
        self._fd = -1


_FIRST_FD: Final = 1 << 20
TEXT: Final = "text"
"""The value of the `node` of a read-only text file."""


@dataclass(slots=True, eq=False)
class FileDescription:
    """An open file."""

    fd: int
    node: Any
    """A member of the vendor's enumeration of nodes."""
    path: str
    content: bytes = b""
    """The bytes of a text file; empty for other nodes."""
    at: int = 0
    """The number of bytes of `content` that were read."""


class Emulated(Protocol):
    """An emulated machine as its kernel uses it."""

    lock: TurnLock
    surprises: Surprises
    reports: list[MachineReport]

    def maps(self) -> list[AddressSpace]:
        """Return the memory maps of all address spaces. The caller holds the lock."""

    def new_texts(self) -> tuple[str, ...]:
        """Return the texts of the fault reports since the last call, the oldest first."""

    def close(self) -> None:
        """End the machine's threads and free its memory."""


M = TypeVar("M", bound=Emulated)
F = TypeVar("F", bound=FileDescription)


class OpenFileTable(Generic[M, F]):
    """The calls of a `drivers.kernel.Kernel` that do not depend on the vendor.

    A subclass defines `close`; here it raises `NotImplementedError`. Refused calls raise `DriverError`.
    """

    def __init__(self, machine: M, *, tracks: bool) -> None:
        """Begin without open files. `tracks`: kernels' accesses are checked against the driver's buffers."""
        self.machine = machine
        self.files: dict[int, F] = {}
        self._next = _FIRST_FD
        self.tracker = TrackedBuffers(machine.lock, machine.maps) if tracks else None
        """Gets the driver's buffers in memory of the GPUs; None if accesses are not checked against
        buffers."""

    @property
    def reports(self) -> list[MachineReport]:
        """The findings of the emulated GPUs, the oldest first."""
        return self.machine.reports

    def add_file(self, file: F) -> int:
        """Add an open file; return its new descriptor."""
        with self.machine.lock:
            file.fd = self._next
            self._next += 1
            self.files[file.fd] = file
            return file.fd

    def _file(self, call: str, fd: int) -> F:
        file = self.files.get(fd)
        if file is None:
            fail(call, errno.EBADF, f"fd {fd} is not open")
        return file

    def close(self, fd: int) -> None:
        """Close a descriptor; the machine ends with the last one. Each vendor defines it."""
        raise NotImplementedError

    def read(self, fd: int, size: int) -> bytes:
        """Read the next bytes of a text file, at most `size`; none at its end.

        Raises `DriverError`: EBADF for an unknown descriptor, EINVAL for a file that is no text.
        """
        file = self._file("read", fd)
        if file.node.value != TEXT:
            fail("read", errno.EINVAL, f"{file.path} cannot be read")
        data = file.content[file.at : file.at + size]
        file.at += len(data)
        return data

    def read_file(self, path: str) -> bytes:
        """Return the whole content of a text file. Raises `DriverError` if there is none at the path."""
        return self.machine.surprises.file(path, lambda: self._text(path))

    def _text(self, path: str) -> bytes:
        raise NotImplementedError

    def diagnostics(self) -> tuple[str, ...]:
        """Return the texts of the fault reports since the last call, the oldest first.

        Empty on a machine with a table of surprises: it reports faults through the driver's interface only.
        """
        return () if self.machine.surprises.table else self.machine.new_texts()

    def shut(self) -> None:
        """Close every descriptor, stop the emulated GPUs' threads and free their memory."""
        for fd in tuple(self.files):
            self.close(fd)
        self.machine.close()
