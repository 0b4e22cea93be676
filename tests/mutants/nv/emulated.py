"""The emulated NVIDIA GPUs as machines for mutants: a `tests.mutants.emulated.Emulated`.

Not here: generating mutants (`doorbells`, `structures`).
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from drivers.nv.driver import NvDriver
from emulator.nv.machine import open_machine
from emulator.simt.library import Sanitizers
from tests.mutants.nv import structures
from tests.mutants.nv.doorbells import Doorbells
from tools.bringup.nv.kernels import image

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from drivers.kernel import Kernel
    from emulator.nv.machine.kernel import NvKernel
    from emulator.shared.machine_report import Report
    from hcq.program import KernelImage
    from tests.mutants.emulated import Call
    from tests.mutants.nv.doorbells import ChannelSubmission
    from tests.mutants.sites import Mutant

_ARCH: Final = {"sm_90": "sm_90a", "sm_120": "sm_120a"}
"""Profile -> the architecture of its kernels, if it differs."""
_POLL_S: Final = 0.001
_DOORBELL_BITS: Final = 32


class NvEmulated:
    """The emulated NVIDIA GPUs, device nv-emu."""

    profiles: Final = ("sm_90", "sm_80", "sm_86", "sm_89", "sm_120")
    drivers: Final = ("580", "570", "590", "595")
    private: Final = False

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
        """Return a new machine with all sanitizers."""
        checks = Sanitizers.all(in_step=False)
        return NvMachine(open_machine(profile, driver=driver, seed=seed, checks=checks))

    @staticmethod
    def equivalence(mutant: Mutant) -> str | None:
        """Return None: what changes no bytes is not divided further (docs/reliability.md)."""
        del mutant
        return None


class NvMachine:
    """One emulated NVIDIA GPU."""

    def __init__(self, kernel: NvKernel) -> None:
        self.kernel = kernel
        self._machine = kernel.machine
        self._doorbells = Doorbells(kernel.machine)

    @property
    def fatal(self) -> Sequence[Report]:
        """The reports that the driver must receive as faults."""
        return self._machine.fatal

    @property
    def refused(self) -> Sequence[str]:
        """The calls that were refused."""
        return list(self._machine.refusals)

    @property
    def busy(self) -> bool:
        """Whether any channel still executes."""
        runs = [channel.run for channel in self._machine.channels]
        return any(run.busy and not run.stuck for run in runs)

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

    def pause(self) -> None:
        """End the scheduler's thread, and wait until launches on other threads end."""
        self._machine.scheduler.close()
        while any(one.in_background for channel in self._machine.channels for one in channel.run.inflight):
            time.sleep(_POLL_S)

    def resume(self) -> None:
        """Start the scheduler again."""
        self._machine.scheduler.resume()

    def close(self) -> None:
        """End the machine."""
        self.kernel.shut()
