"""One mutant under one seed: refused, reported, or the bytes of all buffers.

Not here: the verdict over several seeds (`verdicts`), many mutants in one process (`branches`).
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Final

from drivers.emu.machine_report import Kind
from hcq.errors import DeviceFault, HcqError, SignalTimeout
from tools.mutants.devices import DEVICES
from tools.mutants.interpose import Interposer
from tools.mutants.scenario import Scenario
from tools.mutants.verdicts import Outcome, Verdict

if TYPE_CHECKING:
    from collections.abc import Sequence

    from drivers.emu.machine_report import Report
    from tools.mutants.devices import Target
    from tools.mutants.emulated import Machine
    from tools.mutants.sites import Mutant, Place

TIMEOUT_S: Final = 2.0
_UNCHANGED_S: Final = 60.0
"""For the unchanged driver, whose kernels may have to be translated first."""


class Judge:
    """Holds the results of the unchanged driver on the machines of one target."""

    def __init__(self, target: Target, *, seeds: Sequence[int], timeout_s: float = TIMEOUT_S) -> None:
        """Run the unchanged driver under `seeds`: it must do and give the same under each, unreported."""
        self._emulated = DEVICES[target.device]
        self._profile = target.profile or self._emulated.profiles[0]
        self._driver = target.driver or self._emulated.drivers[0]
        self._timeout_s = timeout_s
        self._limit_s = _UNCHANGED_S
        self._kernels = self._emulated.kernels(self._profile)
        self.mutants: list[Mutant] = []
        self.expected: list[bytes] = []
        for seed in seeds:
            self._baseline(seed)

    def machine(self, seed: int) -> Machine:
        """Return a fresh machine with all sanitizers on."""
        return self._emulated.open(self._profile, self._driver, seed)

    def _baseline(self, seed: int) -> None:
        machine = self.machine(seed)
        interposer = Interposer(machine)
        seen = self._play(machine, interposer)
        if not self.expected:
            self.expected, self.mutants = seen, interposer.found
        places = [str(mutant) for mutant in self.mutants] == [str(mutant) for mutant in interposer.found]
        if machine.fatal or seen != self.expected or not places:
            raise HcqError(
                f"the unchanged driver under seed {seed}: reports {machine.fatal[:1]}, same results: "
                f"{seen == self.expected}, same submissions: {places}; mutants need a driver that passes"
            )
        machine.close()

    def _play(self, machine: Machine, interposer: Interposer) -> list[bytes]:
        scenario = Scenario(machine.driver(interposer), self._kernels, limit_s=lambda: self._limit_s)
        try:
            seen = scenario.play()
        except DeviceFault:
            with suppress(DeviceFault):  # the second telling of the same
                scenario.close()
            raise
        scenario.close()
        return seen

    def fresh(self, mutant: Mutant, seed: int) -> Verdict:
        """Check a mutant on a machine of its own, in this process: slow, and the process is left as it is."""

        def choose(place: Place) -> Mutant | None:
            return self.of_mutant(mutant if place == mutant.place else None)

        self._limit_s = _UNCHANGED_S
        machine = self.machine(seed)
        return self.run(machine, Interposer(machine, choose))

    def of_mutant(self, mutant: Mutant | None) -> Mutant | None:
        """Let waits end sooner when a mutant is made now; returns it."""
        if mutant is not None:
            self._limit_s = self._timeout_s
        return mutant

    def run(self, machine: Machine, interposer: Interposer) -> Verdict:
        """Run the scenario and return the outcome; nothing is closed when it raised."""
        try:
            seen = self._play(machine, interposer)
        except HcqError as error:
            return _raised(error, machine)
        except Exception as error:  # noqa: BLE001 - any error of another kind is a verdict on the driver
            return Verdict(Outcome.UNTYPED, f"{type(error).__name__}: {error}")
        if machine.fatal:
            return _reported(machine.fatal)
        return Verdict(Outcome.EQUIVALENT if seen == self.expected else Outcome.WRONG)


def _raised(error: HcqError, machine: Machine) -> Verdict:
    text = str(error).split("\n", 1)[0]
    fatal = machine.fatal
    if fatal:
        return _reported(fatal)
    if isinstance(error, DeviceFault):
        return Verdict(Outcome.REPORTED, text)
    if not isinstance(error, SignalTimeout):
        return Verdict(Outcome.REFUSED, f"{type(error).__name__}: {text}")
    late = error.point.passed() or machine.busy
    return Verdict(Outcome.SLOW if late else Outcome.TIMEOUT, text)


def _reported(fatal: Sequence[Report]) -> Verdict:
    """Return the verdict of the machine's reports: a defect of its own is none on the driver."""
    first = fatal[0]
    return Verdict(Outcome.UNTYPED if first.kind is Kind.DEFECT else Outcome.REPORTED, str(first))
