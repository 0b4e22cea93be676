"""Descriptors, host mappings and the log of the scripted kernel.

Anonymous memory is really mapped, so that drivers can use it. Not here: which files exist and what an ioctl
replies (`scripted`).
"""

# ruff: noqa: D102 - methods are those of `drivers.kernel.Kernel`

from __future__ import annotations

import errno
import itertools
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

from drivers.kernel import MAP_ANONYMOUS, MAP_SHARED, LinuxKernel, Mapping
from hcq.errors import DriverError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hcq.counters import Counters


class RefusedError(AssertionError):
    """The driver made a call that is not scripted or that breaks a rule of the real kernel."""


class HostCalls(ABC):
    """Descriptors and host mappings of a scripted kernel, with a log. Not thread-safe."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        """A decoded line for each call, in order."""
        self.told: tuple[str, ...] = ()
        """What `diagnostics` reports next, once."""
        self._linux = LinuxKernel()
        self._fds: dict[int, str] = {}
        self._next_fd = itertools.count(100)
        self._maps: dict[int, int] = {}
        """Host address -> bytes of each anonymous mapping."""

    @abstractmethod
    def open_errno(self, path: str) -> int:
        """Return the errno of opening a file, or 0 if it exists."""

    @abstractmethod
    def map_file(self, fd: int, size: int, *, offset: int, va: int, prot: int, flags: int | None) -> Mapping:
        """Map device memory, as `Kernel.mmap` with a descriptor."""

    @abstractmethod
    def closed(self, fd: int) -> None:
        """Release what the kernel releases together with a descriptor."""

    def leaks(self) -> list[str]:
        """Return a line for each descriptor and anonymous mapping that is still held."""
        return [f"fd {fd} of {path}" for fd, path in self._fds.items()] + [
            f"mapping {va:#x}+{size:#x}" for va, size in self._maps.items()
        ]

    def open(self, path: str, flags: int = 2) -> int:
        del flags
        number = self.open_errno(path)
        if number:
            raise DriverError("open", number, errno.errorcode[number], arguments=path)
        fd = next(self._next_fd)
        self._fds[fd] = path
        self.calls.append(f"open {path}")
        return fd

    def close(self, fd: int) -> None:
        path = self._fds.pop(fd)
        self.calls.append(f"close {path}")
        self.closed(fd)

    def read(self, fd: int, size: int) -> bytes:
        raise RefusedError(f"read {fd} {size}")

    def poll(self, fds: Sequence[int], timeout_s: float) -> list[int]:
        raise RefusedError(f"poll {fds} {timeout_s}")

    def mmap(
        self,
        size: int,
        *,
        fd: int = -1,
        offset: int = 0,
        va: int = 0,
        prot: int = 3,
        flags: int | None = None,
    ) -> Mapping:
        if fd >= 0:
            return self.map_file(fd, size, offset=offset, va=va, prot=prot, flags=flags)
        if offset:
            raise RefusedError(f"mmap of anonymous memory at offset {offset:#x}")
        mapping = self._linux.mmap(size, va=va, prot=prot, flags=flags)
        self._maps[mapping.va] = size
        self.calls.append(f"mmap memory {size:#x} at {va:#x} prot {prot}")
        return mapping

    def anonymous(self, size: int, *, va: int, prot: int, flags: int | None) -> Mapping:
        """Map host memory in place of device memory; `munmap` of it is not part of `leaks`."""
        return self._linux.mmap(size, va=va, prot=prot, flags=MAP_ANONYMOUS | (flags or MAP_SHARED))

    def munmap(self, va: int, size: int) -> None:
        """Unmap a range that lies in one anonymous mapping; `RefusedError` for any other range."""
        start = next((s for s, length in self._maps.items() if s <= va and va + size <= s + length), None)
        if start is None:
            raise RefusedError(f"munmap {va:#x} {size:#x}, which is not mapped")
        end = start + self._maps.pop(start)
        for first, last in ((start, va), (va + size, end)):
            if first < last:
                self._maps[first] = last - first
        self._linux.munmap(va, size)
        self.calls.append(f"munmap {va:#x} {size:#x}")

    def mprotect(self, va: int, size: int, prot: int) -> None:
        raise RefusedError(f"mprotect {va:#x} {size:#x} {prot}")

    def madvise(self, va: int, size: int, advice: int) -> None:
        raise RefusedError(f"madvise {va:#x} {size:#x} {advice}")

    def fence(self) -> None:
        self._linux.fence()

    def diagnostics(self) -> tuple[str, ...]:
        told, self.told = self.told, ()
        return told

    def refusal(self) -> str:
        return ""

    def count_kernels(self, into: Counters | None, gpu: int) -> Counters | None:
        return self._linux.count_kernels(into, gpu)
