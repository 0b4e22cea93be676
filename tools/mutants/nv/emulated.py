"""The emulated NVIDIA GPUs as machines for mutants: a `tools.mutants.emulated.Emulated`.

Not here: what can be changed (`bells`, `structures`).
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from drivers.emu.simt.library import Sanitizers
from drivers.nv.driver import NvDriver
from drivers.nv.emu.machine import open_machine
from tools.bringup.nv.kernels import image
from tools.mutants.nv import structures
from tools.mutants.nv.bells import Bells

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from drivers.emu.machine_report import Report
    from drivers.kernel import Kernel
    from drivers.nv.emu.machine.kernel import EmulatedKernel
    from hcq.program import KernelImage
    from tools.mutants.emulated import Call
    from tools.mutants.nv.bells import Rung

_ARCH: Final = {"sm_90": "sm_90a", "sm_120": "sm_120a"}
"""Profile -> the architecture that its kernels are assembled for, where it differs."""
_LOOK_S: Final = 0.001
_BELL_BITS: Final = 32


class NvEmulated:
    """nv-emu."""

    profiles: Final = ("sm_90", "sm_80", "sm_120")
    drivers: Final = ("580", "570", "590", "595")

    @staticmethod
    def kernels(profile: str) -> Mapping[str, KernelImage]:
        """Return the kernels of the scenario."""
        arch = _ARCH.get(profile, profile)
        return {
            "grid": image("grid", arch),
            "count": image("count", arch),
            "shared": image("shared", arch, shared_bytes=4096),
        }

    @staticmethod
    def open(profile: str, driver: str, seed: int) -> NvMachine:
        """Return a fresh machine with all sanitizers on."""
        return NvMachine(open_machine(profile, driver=driver, seed=seed, checks=Sanitizers.all()))


class NvMachine:
    """One emulated NVIDIA GPU."""

    def __init__(self, kernel: EmulatedKernel) -> None:
        self.kernel = kernel
        self._machine = kernel.machine
        self._bells = Bells(kernel.machine)

    @property
    def fatal(self) -> Sequence[Report]:
        """The reports that a driver must see as faults."""
        return self._machine.fatal

    @property
    def busy(self) -> bool:
        """Whether any channel still executes."""
        runs = [channel.run for channel in self._machine.channels]
        return any(run.busy and not run.stuck for run in runs)

    @staticmethod
    def driver(kernel: Kernel) -> NvDriver:
        """Return the driver on a kernel."""
        return NvDriver("nv-emu", lambda _: kernel)

    def call(self, request: int, argument: bytearray) -> Call:
        """Return what an ioctl is."""
        return structures.call(self._machine.structs, request, argument)

    def rung(self, page: int, offset: int, value: int, bits: int) -> Rung | None:
        """Return what a store submits; the doorbell page may be mapped at any file offset."""
        del page
        return self._bells.rung(offset, value) if bits == _BELL_BITS else None

    def stand_still(self) -> None:
        """End the scheduler's thread, and wait for what launches have on others."""
        self._machine.scheduler.close()
        while any(one.away for channel in self._machine.channels for one in channel.run.inflight):
            time.sleep(_LOOK_S)

    def resume(self) -> None:
        """Start the scheduler again."""
        self._machine.scheduler.resume()

    def close(self) -> None:
        """End the machine."""
        self.kernel.shut()
