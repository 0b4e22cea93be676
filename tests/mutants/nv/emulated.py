"""An emulated NVIDIA GPU as a machine for mutants: a `tests.mutants.emulated.Machine`.

Not here: generating mutants (`doorbells`, `structures`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from drivers.nv.driver import NvDriver
from tests.mutants.nv import structures
from tests.mutants.nv.doorbells import Doorbells

if TYPE_CHECKING:
    from drivers.kernel import Kernel
    from emulator.nv.machine.kernel import NvKernel
    from tests.mutants.emulated import Call
    from tests.mutants.nv.doorbells import ChannelSubmission

_DOORBELL_BITS: Final = 32


class NvMachine:
    """One emulated NVIDIA GPU."""

    def __init__(self, kernel: NvKernel) -> None:
        self.kernel = kernel
        self._machine = kernel.machine
        self._doorbells = Doorbells(kernel.machine)

    @staticmethod
    def driver(kernel: Kernel) -> NvDriver:
        """Return the driver on a kernel."""
        return NvDriver("nv-emu", lambda _: kernel, emulated=True)

    def call(self, request: int, argument: bytearray) -> Call:
        """Describe an ioctl."""
        return structures.call(self._machine.structs, request, argument)

    def submission(self, page: int, offset: int, value: int, bits: int) -> ChannelSubmission | None:
        """Return the submission of a store; the doorbell page may be mapped at any file offset."""
        del page
        return self._doorbells.submission(offset, value) if bits == _DOORBELL_BITS else None

    def close(self) -> None:
        """End the machine."""
        self.kernel.shut()
