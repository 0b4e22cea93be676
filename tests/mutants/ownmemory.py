"""Private copies of shared memory for forked children, at the same addresses.

The parent takes a `Snapshot`; a child calls `own`. It copies memory files, maps the copies at the same
addresses and duplicates them to the same descriptors; shared anonymous pages become private pages.

Next: `branches`, which forks.
"""

from __future__ import annotations

import ctypes
import errno
import os
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from drivers.kernel import (
    MAP_ANONYMOUS,
    MAP_FIXED,
    MAP_NORESERVE,
    MAP_PRIVATE,
    MAP_SHARED,
    PAGE,
    PROT_READ,
    PROT_WRITE,
    LinuxKernel,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

Pages = list[tuple[int, bytes]]
"""(offset, content) of the pages that are not all zero."""

_MEMORY_FILE: Final = "/memfd:"
_NO_FILE: Final = "/dev/zero (deleted)"
"""The name of shared anonymous memory in /proc/self/maps."""
_ZEROS: Final = bytes(PAGE)


@dataclass(frozen=True, slots=True)
class _Range:
    """A shared mapping of this process."""

    va: int
    size: int
    prot: int
    offset: int
    inode: int
    name: str


@dataclass(frozen=True, slots=True)
class _File:
    """A memory file: its descriptors, its size and its non-zero pages."""

    fds: list[int]
    size: int
    pages: Pages


class Snapshot:
    """A copy of all shared memory of this process."""

    def __init__(self) -> None:
        self._linux = LinuxKernel()
        self._ranges = tuple(_shared())
        self._files = {inode: _read(fds) for inode, fds in _descriptors().items()}
        self._anonymous = {
            one.va: _used(ctypes.string_at(one.va, one.size))
            for one in self._ranges
            if one.name == _NO_FILE and one.prot & PROT_READ
        }

    def own(self) -> None:
        """Replace all shared memory by private copies; call it in a forked child."""
        copies = {}
        for inode, file in self._files.items():
            copies[inode] = copy = os.memfd_create("copy", os.MFD_CLOEXEC)
            os.ftruncate(copy, file.size)
            for at, page in file.pages:
                os.pwrite(copy, page, at)
        for one in self._ranges:
            if one.name == _NO_FILE:
                flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED
                self._linux.mmap(one.size, va=one.va, prot=one.prot, flags=flags)
                for at, page in self._anonymous.get(one.va, ()):
                    ctypes.memmove(one.va + at, page, len(page))
            else:
                fd, flags = copies[one.inode], MAP_SHARED | MAP_NORESERVE | MAP_FIXED
                self._linux.mmap(one.size, fd=fd, offset=one.offset, va=one.va, prot=one.prot, flags=flags)
        for inode, file in self._files.items():
            for fd in file.fds:
                os.dup2(copies[inode], fd, inheritable=False)
            os.close(copies[inode])


def _descriptors() -> Mapping[int, list[int]]:
    """Return the descriptors of memory files, by inode."""
    found = defaultdict(list)
    for name in os.listdir("/proc/self/fd"):  # noqa: PTH208 - only names
        try:
            if os.readlink(f"/proc/self/fd/{name}").startswith(_MEMORY_FILE):  # noqa: PTH115 - `Path.readlink` would fail for deleted files
                found[os.fstat(int(name)).st_ino].append(int(name))
        except FileNotFoundError:  # the descriptor of the listing itself
            continue
    return found


def _shared() -> Iterator[_Range]:
    for line in Path("/proc/self/maps").read_text().splitlines():
        place, rights, offset, _, inode, *name = line.split(None, 5)
        label = name[0] if name else ""
        if rights[3] != "s" or not label.startswith((_MEMORY_FILE, _NO_FILE)):
            continue
        first, end = (int(part, 16) for part in place.split("-"))
        prot = (PROT_READ if rights[0] == "r" else 0) | (PROT_WRITE if rights[1] == "w" else 0)
        yield _Range(first, end - first, prot, int(offset, 16), int(inode), label)


def _read(fds: list[int]) -> _File:
    """Read a memory file, without its holes."""
    size, at, pages = os.fstat(fds[0]).st_size, 0, []
    while at < size:
        try:
            at = os.lseek(fds[0], at, os.SEEK_DATA)
        except OSError as error:
            if error.errno == errno.ENXIO:  # a hole up to the end
                break
            raise
        end = os.lseek(fds[0], at, os.SEEK_HOLE)
        pages += [(at + offset, page) for offset, page in _used(os.pread(fds[0], end - at, at))]
        at = end
    return _File(fds, size, pages)


def _used(data: bytes) -> Pages:
    pages = ((at, data[at : at + PAGE]) for at in range(0, len(data), PAGE))
    return [(at, page) for at, page in pages if page != _ZEROS[: len(page)]]
