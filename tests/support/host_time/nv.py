"""NVIDIA's driver on an emulated GPU that executes nothing."""

from __future__ import annotations

import operator
from typing import Any

from drivers.kernel import view_at
from drivers.nv.driver import NvDriver
from emulator.nv.machine import open_machine
from hcq.device import Device
from hcq.driver import QueueKind
from tests.support.host_time.finished import FinishedDevice
from tests.support.nv.golden import sample


class FinishedNv(FinishedDevice):
    """NVIDIA's driver on the emulated kernel, whose engines hear no doorbell."""

    def __init__(self) -> None:
        kernel = open_machine("sm_90")
        driver = NvDriver("nv", lambda _: kernel, emulated=True).open(0, None)
        device = Device(driver)
        super().__init__(device, device.load(sample("sm_90a", 90)))
        self._ring = driver.ring(QueueKind.COMPUTE, 0)
        self.device.compute.submit(self.device.compute.record()).wait()
        channel: Any = self._ring.channel
        # A doorbell that nothing hears, at no cost of Python, behind the fences of a real kernel.
        channel._fence = kernel.machine.linux.fence  # noqa: SLF001 - what the driver calls on Linux
        channel._write = operator.is_  # noqa: SLF001 - the same

    def take(self) -> None:
        """Write the ring's progress."""
        view_at(self._ring.memory.va, 8).cast("Q")[0] = self._ring.sequence
