"""One ioctl in progress: who asks, and the structure that answers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from drivers.amd.emu.kfd.files import OpenFile
    from drivers.amd.emu.kfd.process import Process
    from drivers.amd.emu.machine.kernel import EmulatedKernel
    from drivers.amd.layouts.kfd import Call
    from hcq.layout import Struct


@dataclass(frozen=True, slots=True)
class Asked:
    """A call."""

    kernel: EmulatedKernel
    process: Process
    file: OpenFile
    call: Call
    layout: type[Struct]
    block: bytearray
    """The structure, of the kernel's size."""

    def answer(self, **values: int) -> None:
        """Write fields of the structure."""
        self.layout.store(self.block, **values)
