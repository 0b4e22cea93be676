"""The emulated AMD GPUs as machines for mutants: a `tests.mutants.emulated.Emulated`.

Not here: what can be changed (`doorbells`, `packets`, `structures`), which changes are none (`equivalent`).
"""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Final

from drivers.amd.driver import AmdDriver
from emulator.amd.engines.engines import AmdEngines
from emulator.amd.engines.run import Run
from emulator.amd.machine import open_machine
from emulator.simt.engine import Settings
from emulator.simt.library import Sanitizers
from hcq.config import config
from tests.mutants.amd import equivalent, structures
from tests.mutants.amd.doorbells import Doorbells
from tests.mutants.amd.images import images

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from drivers.kernel import Kernel
    from emulator.amd.machine.kernel import AmdKernel
    from emulator.shared.machine_report import Report
    from hcq.program import KernelImage
    from tests.mutants.amd.doorbells import QueueSubmission
    from tests.mutants.emulated import Call
    from tests.mutants.sites import Mutant

_LOOK_S: Final = 0.001
_DOORBELL_BITS: Final = 64


class AmdEmulated:
    """amd-emu."""

    profiles: Final = ("gfx1100", "gfx1201", "gfx942")
    drivers: Final = ("6.12", "6.1")
    private: Final = True

    @staticmethod
    def kernels(profile: str) -> Mapping[str, KernelImage]:
        """Return the kernels of the scenario."""
        return images(profile)

    @staticmethod
    def open(profile: str, driver: str, seed: int) -> AmdMachine:
        """Return a fresh machine with all sanitizers on.

        A mutant is made at the doorbell, behind the write pointer: no queue takes the words between the two.
        """
        engines = AmdEngines(Settings(cache=config().cache, checks=Sanitizers.all()), remaps=False)
        return AmdMachine(open_machine(profile, linux=driver, engines=engines, seed=seed, tracks=True))

    @staticmethod
    def equivalence(mutant: Mutant) -> str | None:
        """Return the fact by which a mutant changes nothing; empty without one."""
        return equivalent.fact(mutant)


class AmdMachine:
    """One emulated AMD GPU."""

    def __init__(self, kernel: AmdKernel) -> None:
        self.kernel = kernel
        self._machine = kernel.machine
        self._doorbells = Doorbells(kernel.machine)

    @property
    def fatal(self) -> Sequence[Report]:
        """The reports that a driver must see as faults."""
        return self._machine.fatal

    @property
    def refused(self) -> Sequence[str]:
        """The calls that were refused."""
        return [str(one) for one in self._machine.refusals]

    @property
    def busy(self) -> bool:
        """Whether any queue still executes."""
        return any(
            not run.stuck and not (isinstance(run, Run) and run.halted) for run in self._machine.pending()
        )

    @staticmethod
    def driver(kernel: Kernel) -> AmdDriver:
        """Return the driver on a kernel."""
        return AmdDriver("amd-emu", lambda _: kernel, lasting=False, emulated=True)

    @staticmethod
    def call(request: int, argument: bytearray) -> Call:
        """Return what an ioctl is."""
        return structures.call(request, argument)

    def submission(self, page: int, offset: int, value: int, bits: int) -> QueueSubmission | None:
        """Return what a store submits; the scenario has one GPU, so `page` tells nothing."""
        del page
        return self._doorbells.submission(offset, value) if bits == _DOORBELL_BITS else None

    def pause(self) -> None:
        """End the scheduler's thread, and wait for what launches have on others."""
        self._machine.scheduler.close()
        while any(run.in_background for run in self._machine.runs.values()):
            time.sleep(_LOOK_S)

    def resume(self) -> None:
        """Start the scheduler again; in a forked child the descriptors become its own."""
        for file in self.kernel.files.values():
            file.pid = os.getpid()
        self._machine.scheduler.resume()

    def close(self) -> None:
        """End the machine."""
        self.kernel.shut()
