"""The pages behind an emulated memory object: a memory file that both the emulator and the driver map.

Not here: the device addresses of the pages (`vaspace`); the kernel objects that own the pages
(`emulator.nv.rm.objects`, `emulator.amd.kfd.process`). Next: `vaspace`, which maps pages at device addresses.
"""

from __future__ import annotations

import os
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from drivers.kernel import MAP_NORESERVE, MAP_SHARED, LinuxKernel, Mapping, view_at
from emulator.shared.memory import fresh_shadow

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    from emulator.shared.vaspace import VaSpace

PAGE = 4096


def page_up(size: int) -> int:
    """Round up to whole pages."""
    return -(-size // PAGE) * PAGE


@dataclass(slots=True, eq=False)
class Backing:
    """Pages with a reference count, which starts at 1. The last `drop` frees them.

    Not thread-safe: the caller holds the machine's lock.
    """

    size: int
    """Bytes, not rounded to whole pages."""
    host: int
    """The address at which the emulator maps them in this process."""
    label: str
    fd: int = -1
    """The memory file; -1 for pages of the user's own process memory."""
    combined: bool = False
    """Whether stores of the CPU are write-combined: they become visible to the device at a fence."""
    users: int = 1
    on_release: Callable[[], None] | None = field(default=None, repr=False)
    """Called after the last reference is dropped."""
    initialised: memoryview | None = field(default=None, repr=False)
    """One byte for each byte of memory, nonzero once that byte was written; None if uninitialised reads are
    not checked."""
    _linux: LinuxKernel | None = field(default=None, repr=False)

    @classmethod
    def new(
        cls, linux: LinuxKernel, size: int, label: str, on_release: Callable[[], None] | None = None
    ) -> Backing:
        """Allocate zeroed pages for `size` bytes. `on_release` is called when they are freed."""
        fd = os.memfd_create(label, os.MFD_CLOEXEC)
        with ExitStack() as undo:
            undo.callback(os.close, fd)
            os.ftruncate(fd, page_up(size))
            mapping = linux.mmap(page_up(size), fd=fd, flags=MAP_SHARED | MAP_NORESERVE)
            undo.pop_all()
        return cls(size, mapping.va, label, fd, on_release=on_release, _linux=linux)

    @classmethod
    def pinned(cls, address: int, size: int, label: str) -> Backing:
        """Wrap existing pages of this process. The caller keeps them mapped; `drop` does not unmap them."""
        return cls(size, address, label)

    def track(self) -> None:
        """Start to record which bytes are written; none counts as written yet."""
        self.initialised = memoryview(fresh_shadow(self.size))

    def mark_written(self) -> None:
        """Mark all bytes as written, if `track` was called: the CPU can now write them unobserved."""
        if self.initialised is not None:
            self.initialised[:] = b"\1" * len(self.initialised)

    @property
    def view(self) -> memoryview:
        """The bytes, without a copy; not valid after the last `drop`."""
        return view_at(self.host, self.size)

    def take(self) -> Backing:
        """Add a reference and return the pages."""
        self.users += 1
        return self

    def drop(self) -> None:
        """Remove a reference. The last one frees pages that `new` made, and calls `on_release`."""
        self.users -= 1
        if self.users:
            return
        if self.fd >= 0 and self._linux is not None:
            self._linux.munmap(self.host, page_up(self.size))
            os.close(self.fd)
        if self.on_release is not None:
            self.on_release()


class HeldPages:
    """References to the pages of an address space, held while a kernel on other threads may access them."""

    def __init__(self, lock: AbstractContextManager[object]) -> None:
        """Create an empty set; `lock` guards the reference counts."""
        self._lock = lock
        self._held: dict[int, Backing] = {}

    def hold(self, space: VaSpace) -> None:
        """Add a reference to each backing that is mapped in `space` now. The caller holds the lock."""
        for backing in space.backings.values():
            if id(backing) not in self._held:
                self._held[id(backing)] = backing.take()

    def drop(self) -> None:
        """Remove all references."""
        with self._lock:
            while self._held:
                self._held.popitem()[1].drop()


@dataclass(slots=True, eq=False)
class CpuMapping:
    """A mapping of a part of a memory object into the driver's address space; `offset` is in bytes."""

    backing: Backing
    offset: int
    mapping: Mapping
