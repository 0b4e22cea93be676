"""Open files of the emulated kernel: /dev/kfd, render nodes, dma-bufs, texts of sysfs.

Not here: their ioctls (`ioctls`, `render`), the texts (`sysfs`).
"""

from __future__ import annotations

import enum
import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from drivers.amd.emu.kfd.gpu import Gpu
    from drivers.amd.layouts.kfd import MemFlags
    from drivers.emu.backing import Backing


class Node(enum.Enum):
    """What a descriptor stands for."""

    KFD = "/dev/kfd"
    RENDER = "render node"
    DMABUF = "dma-buf"
    TEXT = "text"


@dataclass(frozen=True, slots=True)
class Shared:
    """What a dma-buf holds."""

    owner: Gpu
    backing: Backing
    size: int
    kind: MemFlags
    flags: MemFlags


@dataclass(slots=True, eq=False)
class OpenFile:
    """A descriptor."""

    fd: int
    node: Node
    path: str
    gpu: Gpu | None = None
    """Of a render node."""
    shared: Shared | None = None
    """Of a dma-buf."""
    content: bytes = b""
    at: int = 0
    pid: int = field(default_factory=os.getpid)
