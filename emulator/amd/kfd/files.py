"""Open files (/dev/kfd, render nodes, dma-bufs, texts of sysfs), and an ioctl in progress on one.

Not here: the ioctls (`ioctls`, `render`), the texts (`sysfs`). Next: `emulator.amd.machine.kernel`,
which passes itself as `KfdFiles`.
"""

from __future__ import annotations

import enum
import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from emulator.shared.emulated_kernel import TEXT, FileDescription

if TYPE_CHECKING:
    from drivers.amd.layouts.kfd import Call, MemFlags
    from emulator.amd.kfd.gpu import KfdGpu
    from emulator.amd.kfd.process import KfdProcess
    from emulator.shared.backing import Backing
    from emulator.shared.scheduler import TurnLock
    from hcq.layout import Struct


class AmdNode(enum.Enum):
    """The kind of file behind a descriptor."""

    KFD = "/dev/kfd"
    RENDER = "render node"
    DMABUF = "dma-buf"
    TEXT = TEXT


@dataclass(frozen=True, slots=True)
class Shared:
    """The memory that a dma-buf exports."""

    owner: KfdGpu
    backing: Backing
    size: int
    kind: MemFlags
    flags: MemFlags


@dataclass(slots=True, eq=False)
class KfdFile(FileDescription):
    """A descriptor."""

    gpu: KfdGpu | None = None
    """Of a render node."""
    shared: Shared | None = None
    """Of a dma-buf."""
    pid: int = field(default_factory=os.getpid)


class KfdFiles(Protocol):
    """The interface of the emulated kernel to ioctls."""

    @property
    def process(self) -> KfdProcess:
        """The one process that has /dev/kfd open."""

    @property
    def files(self) -> dict[int, KfdFile]:
        """The open files by descriptor."""

    @property
    def lock(self) -> TurnLock:
        """The lock of the machine."""

    def add_file(self, file: KfdFile) -> int:
        """Open a file; return its descriptor."""


@dataclass(frozen=True, slots=True)
class Asked:
    """A call."""

    kernel: KfdFiles
    process: KfdProcess
    file: KfdFile
    call: Call
    layout: type[Struct]
    block: bytearray
    """The structure, of the kernel's size."""

    def answer(self, **values: int) -> None:
        """Write fields of the structure."""
        self.layout.store(self.block, **values)
