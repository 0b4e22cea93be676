"""Host time of launches and replays on the NVIDIA driver, on the emulated kernel: Python time alone.

The case "nv". The GPU's results are written outside the measured time, so each submission
finds the previous one completed and retires it. No hardware is used.

Not here: AMD's case (`amd`).
"""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any

from drivers.kernel import view_at
from drivers.nv.driver import NvDriver
from emulator.nv.machine import open_machine
from hcq.device import Device
from hcq.driver import QueueKind
from tests.support.host_time.finished import KERNELS, FinishedDevice
from tests.support.nv.golden import sample

if TYPE_CHECKING:
    from tools.bench.rows import Bench


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


def nv(bench: Bench) -> None:
    """Measure one launch, and replays of 256 kernels with every input changed and with none changed."""
    with FinishedNv() as gpu:
        info = gpu.device.info
        device = f"{info.driver}:{info.index} {info.name}"
        cases = {
            "record + args + encode + ring, one kernel": gpu.launcher(),
            f"{KERNELS} kernels replayed, every input changed": gpu.replayer(changed=True),
            f"{KERNELS} kernels replayed, nothing changed": gpu.replayer(changed=False),
        }
        for case, run in cases.items():
            bench.measure(case, run, before=gpu.finish, samples=2000, device=device)


CASES = {"nv": nv}
