"""Open files of the emulated kernel: which node each is, what it is tied to, what it may map once.

Next: `ioctls` and `mapping`, which read them.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from drivers.emu.backing import Backing
    from drivers.nv.emu.machine.machine import Machine
    from drivers.nv.emu.rm.objects import Memory, Usermode
    from drivers.nv.emu.rm.uvm_space import Uvm


class Node(enum.Enum):
    """The device nodes, and files that are only read."""

    CTL = "/dev/nvidiactl"
    GPU = "/dev/nvidia0"
    UVM = "/dev/nvidia-uvm"
    TEXT = "text"


@dataclass(slots=True, eq=False)
class MapContext:
    """What a descriptor's one mmap will show."""

    target: Memory | Usermode
    backing: Backing | None
    offset: int
    length: int
    used: bool = False


@dataclass(slots=True, eq=False)
class OpenFile:
    """A descriptor."""

    fd: int
    node: Node
    path: str
    ctl_fd: int | None = None
    """The client's descriptor that REGISTER_FD named."""
    context: MapContext | None = None
    uvm: Uvm | None = None
    content: bytes = b""
    at: int = 0


class OpenFiles(Protocol):
    """The emulated kernel as ioctls see it: a `drivers.nv.emu.machine.kernel.EmulatedKernel`."""

    @property
    def machine(self) -> Machine:
        """The GPU behind it."""
        ...

    @property
    def files(self) -> dict[int, OpenFile]:
        """What is open, by descriptor."""
        ...
