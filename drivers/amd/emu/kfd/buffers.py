"""Memory objects of the emulated kernel driver: what ALLOC_MEMORY_OF_GPU and IMPORT_DMABUF make.

Not here: the calls (`ioctls_memory`), the pages (`drivers.emu.backing`), address spaces (`gpu`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from drivers.amd.layouts.kfd import MemFlags

if TYPE_CHECKING:
    from drivers.amd.emu.kfd.gpu import Gpu
    from drivers.emu.backing import Backing

TYPES = (MemFlags.VRAM, MemFlags.GTT, MemFlags.USERPTR, MemFlags.DOORBELL, MemFlags.MMIO_REMAP)
"""Exactly one of them says where memory lies."""


@dataclass(slots=True, eq=False)
class Buffer:
    """A memory object with an address; mapped to any number of GPUs."""

    handle: int
    owner: Gpu
    va: int
    size: int
    flags: MemFlags
    kind: MemFlags
    """The one of `TYPES` that it is."""
    backing: Backing | None
    """Its pages; None for doorbells and registers, which no engine reads."""
    mmap_offset: int = 0
    """Where the render node shows it."""
    mapped: set[Gpu] = field(default_factory=set)
    queues: int = 0
    """Queues that have it in use (ring, pointers, context save)."""
    shown: bool = False
    """Whether the process has mapped it through the render node."""
    lost: bool = False
    """A user pointer whose pages the process has unmapped."""

    @property
    def writable(self) -> bool:
        """Return whether engines may write it."""
        return bool(self.flags & MemFlags.WRITABLE)

    @property
    def executable(self) -> bool:
        """Return whether instructions may be fetched from it."""
        return bool(self.flags & MemFlags.EXECUTABLE)

    @property
    def cpu_visible(self) -> bool:
        """Return whether the CPU may see it: GTT, and VRAM that is PUBLIC or was mapped."""
        public = self.shown or bool(self.flags & MemFlags.PUBLIC)
        return self.kind is MemFlags.GTT or (self.kind is MemFlags.VRAM and public)

    @property
    def cached(self) -> bool:
        """Return whether the GPU's second-level cache holds it (RDNA: neither COHERENT nor UNCACHED)."""
        return not self.flags & (MemFlags.COHERENT | MemFlags.UNCACHED)

    @property
    def end(self) -> int:
        """The first address behind it."""
        return self.va + self.size

    def __str__(self) -> str:
        name = self.kind.name or "memory"
        return f"{name} [{self.va:#x}, {self.end:#x}) of {self.size} bytes (handle {self.handle:#x})"
