"""Open files of the emulated kernel: the node of each, its registered client, and its prepared mapping.

Next: `ioctls` and `mapping`, which read them.
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
    """The object range that a descriptor's only mmap will map."""

    target: RmMemory | Usermode
    backing: Backing | None
    offset: int
    length: int
    used: bool = False


@dataclass(slots=True, eq=False)
class RmFile(FileDescription):
    """A descriptor."""

    ctl_fd: int | None = None
    """The client's descriptor that REGISTER_FD named."""
    context: MapContext | None = None
    uvm: UvmSpace | None = None


class RmFiles(Protocol):
    """The emulated kernel as ioctls use it: a `emulator.nv.machine.kernel.NvKernel`."""

    @property
    def machine(self) -> NvMachine:
        """The emulated GPU."""

    @property
    def files(self) -> dict[int, RmFile]:
        """Open files by descriptor."""
