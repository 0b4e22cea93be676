"""One ioctl in progress: the process and file that it came from, and its structure.

Not here: the ioctls themselves (`drivers.amd.emu.kfd.ioctls`).
Next: `drivers.amd.emu.machine.kernel`, which passes itself as `OpenFiles`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from drivers.amd.emu.kfd.files import OpenFile
    from drivers.amd.emu.kfd.process import Process
    from drivers.amd.layouts.kfd import Call
    from drivers.emu.turnlock import TurnLock
    from hcq.layout import Struct


class OpenFiles(Protocol):
    """What an ioctl reaches of the emulated kernel."""

    @property
    def process(self) -> Process:
        """The one process that has /dev/kfd open."""

    @property
    def files(self) -> dict[int, OpenFile]:
        """The open files by descriptor."""

    @property
    def lock(self) -> TurnLock:
        """What guards the machine."""

    def add_file(self, file: OpenFile) -> int:
        """Open a file; return its descriptor."""


@dataclass(frozen=True, slots=True)
class Asked:
    """A call."""

    kernel: OpenFiles
    process: Process
    file: OpenFile
    call: Call
    layout: type[Struct]
    block: bytearray
    """The structure, of the kernel's size."""

    def answer(self, **values: int) -> None:
        """Write fields of the structure."""
        self.layout.store(self.block, **values)
