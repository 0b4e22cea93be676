"""An emulated AMD GPU as a machine for mutants: a `tests.mutants.emulated.Machine`.

Not here: what can be changed (`doorbells`, `packets`, `structures`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from drivers.amd.driver import AmdDriver
from tests.mutants.amd import structures
from tests.mutants.amd.doorbells import Doorbells

if TYPE_CHECKING:
    from drivers.kernel import Kernel
    from emulator.amd.machine.kernel import AmdKernel
    from tests.mutants.amd.doorbells import QueueSubmission
    from tests.mutants.emulated import Call

_DOORBELL_BITS: Final = 64


class AmdMachine:
    """One emulated AMD GPU."""

    def __init__(self, kernel: AmdKernel) -> None:
        self.kernel = kernel
        self._machine = kernel.machine
        self._doorbells = Doorbells(kernel.machine)

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

    def close(self) -> None:
        """End the machine."""
        self.kernel.shut()
