"""The pages behind an emulated memory object: a file in memory that the emulator and the driver both map.

Needs nothing of a vendor. Not here: where the GPU sees them (`vaspace`), which of the kernel driver's objects
owns them.
"""

from __future__ import annotations

import os
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from drivers.emu.memory import fresh_shadow
from drivers.kernel import MAP_NORESERVE, MAP_SHARED, LinuxKernel, Mapping, view_at

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    from drivers.emu.vaspace import VaSpace

PAGE = 4096


def page_up(size: int) -> int:
    """Round up to whole pages."""
    return -(-size // PAGE) * PAGE


@dataclass(slots=True, eq=False)
class Backing:
    """Pages with a count of users, freed when the last drops them. The caller holds the machine's lock."""

    size: int
    host: int
    """Where they lie in this process, for the emulator."""
    label: str
    fd: int = -1
    """The file; -1 for a user's own pages."""
    combined: bool = False
    """Whether the CPU's stores to it are write-combined: seen by others after a fence."""
    users: int = 1
    on_release: Callable[[], None] | None = field(default=None, repr=False)
    initialised: memoryview | None = field(default=None, repr=False)
    """A byte for each of its bytes, not 0 once written; None where uninitialised reads are not checked."""
    _linux: LinuxKernel | None = field(default=None, repr=False)

    @classmethod
    def new(
        cls, linux: LinuxKernel, size: int, label: str, on_release: Callable[[], None] | None = None
    ) -> Backing:
        """Make zeroed pages."""
        fd = os.memfd_create(label, os.MFD_CLOEXEC)
        with ExitStack() as undo:
            undo.callback(os.close, fd)
            os.ftruncate(fd, page_up(size))
            mapping = linux.mmap(page_up(size), fd=fd, flags=MAP_SHARED | MAP_NORESERVE)
            undo.pop_all()
        return cls(size, mapping.va, label, fd, on_release=on_release, _linux=linux)

    @classmethod
    def pinned(cls, address: int, size: int, label: str) -> Backing:
        """Use a process's own pages."""
        return cls(size, address, label)

    def track(self) -> None:
        """Record from now on which bytes were written; none was."""
        self.initialised = memoryview(fresh_shadow(self.size))

    def show(self) -> None:
        """The CPU may write it from now on, unseen: all of it counts as written."""
        if self.initialised is not None:
            self.initialised[:] = b"\1" * len(self.initialised)

    @property
    def view(self) -> memoryview:
        """The bytes."""
        return view_at(self.host, self.size)

    def take(self) -> Backing:
        """Add a user."""
        self.users += 1
        return self

    def drop(self) -> None:
        """Remove a user; the last one frees the pages."""
        self.users -= 1
        if self.users:
            return
        if self.fd >= 0 and self._linux is not None:
            self._linux.munmap(self.host, page_up(self.size))
            os.close(self.fd)
        if self.on_release is not None:
            self.on_release()


class HeldPages:
    """The pages of an address space, kept while a kernel that runs on its own may touch them."""

    def __init__(self, lock: AbstractContextManager[object]) -> None:
        """`lock` guards the counts of users."""
        self._lock = lock
        self._held: dict[int, Backing] = {}

    def hold(self, space: VaSpace) -> None:
        """Keep all that is mapped now."""
        for backing in space.backings.values():
            if id(backing) not in self._held:
                self._held[id(backing)] = backing.take()

    def drop(self) -> None:
        """Release them."""
        with self._lock:
            while self._held:
                self._held.popitem()[1].drop()


@dataclass(slots=True, eq=False)
class CpuMapping:
    """Where the driver mapped a part of a memory object."""

    backing: Backing
    offset: int
    mapping: Mapping
