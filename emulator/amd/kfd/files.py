"""Open files: /dev/kfd, render nodes, dma-bufs and texts of sysfs; and `Asked`, an ioctl in progress.

Not here: the ioctls (`ioctls`), the texts of a GPU (`sysfs`). Next: `emulator.amd.machine.kernel`,
which implements `KfdFiles`.
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
    """The kind of an open file."""

    KFD = "/dev/kfd"
    RENDER = "render node"
    DMABUF = "dma-buf"
    TEXT = TEXT


@dataclass(frozen=True, slots=True)
class Shared:
    """The memory that a dma-buf exports; the descriptor holds a reference to `backing`."""

    owner: KfdGpu
    backing: Backing
    size: int
    kind: MemFlags
    flags: MemFlags


@dataclass(slots=True, eq=False)
class KfdFile(FileDescription):
    """An open file."""

    gpu: KfdGpu | None = None
    """The GPU of a render node; None for other files."""
    shared: Shared | None = None
    """The memory of a dma-buf; None for other files."""
    pid: int = field(default_factory=os.getpid)
    """The process that opened it."""


class KfdFiles(Protocol):
    """The interface of the emulated kernel to ioctls."""

    @property
    def process(self) -> KfdProcess:
        """The state of the process that has /dev/kfd open."""

    @property
    def files(self) -> dict[int, KfdFile]:
        """The open files by descriptor."""

    @property
    def lock(self) -> TurnLock:
        """The lock of the machine."""

    def add_file(self, file: KfdFile) -> int:
        """Give a file a descriptor, and return it."""


@dataclass(frozen=True, slots=True)
class Asked:
    """An ioctl of /dev/kfd in progress."""

    kernel: KfdFiles
    process: KfdProcess
    file: KfdFile
    call: Call
    layout: type[Struct]
    """The call's structure."""
    block: bytearray
    """The bytes of the structure, of the kernel's size; copied back to the caller afterwards."""

    def answer(self, **values: int) -> None:
        """Write fields of the structure, by name."""
        self.layout.store(self.block, **values)
