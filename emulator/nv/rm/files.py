"""Open files of the emulated kernel: the node of each, its registered client, and its prepared mapping.

Not here: the table of open files (`emulator.shared.emulated_kernel`). Next: `ioctls` and `mapping`, the
users.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from emulator.shared.emulated_kernel import TEXT, FileDescription

if TYPE_CHECKING:
    from emulator.nv.machine.machine import NvMachine
    from emulator.nv.rm.objects import RmMemory, Usermode
    from emulator.nv.rm.uvm_space import UvmSpace
    from emulator.shared.backing import Backing


class NvNode(enum.Enum):
    """The device nodes, and read-only text files."""

    CTL = "/dev/nvidiactl"
    GPU = "/dev/nvidia0"
    UVM = "/dev/nvidia-uvm"
    TEXT = TEXT


@dataclass(slots=True, eq=False)
class MapContext:
    """What the one mmap of a descriptor maps: `length` bytes at `offset` of an object."""

    target: RmMemory | Usermode
    backing: Backing | None
    """The pages of the memory; None for the doorbell page."""
    offset: int
    length: int
    used: bool = False
    """Whether it was mapped."""


@dataclass(slots=True, eq=False)
class RmFile(FileDescription):
    """A descriptor."""

    ctl_fd: int | None = None
    """The descriptor of /dev/nvidiactl that REGISTER_FD named; None before that call."""
    context: MapContext | None = None
    """What MAP_MEMORY prepared; None before that call."""
    uvm: UvmSpace | None = None
    """The state of a descriptor of /dev/nvidia-uvm; None for others."""


class RmFiles(Protocol):
    """The emulated kernel as ioctls use it: an `emulator.nv.machine.kernel.NvKernel`."""

    @property
    def machine(self) -> NvMachine:
        """The emulated GPU."""

    @property
    def files(self) -> dict[int, RmFile]:
        """Open files by descriptor."""
