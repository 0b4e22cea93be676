"""Access to memory of the calling process as a kernel has it: a bad address gives EFAULT, never a crash.

The bytes are copied through a memory file, whose read and write calls check addresses.

Not here: device memory (`memory`, `backing`). Next: `emulator.nv.rm.ioctls`, a user.
"""

from __future__ import annotations

import ctypes
import errno
import os
from pathlib import Path

from drivers.kernel import fail


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
