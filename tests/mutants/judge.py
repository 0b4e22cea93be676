"""The verdict on one mutant under one seed, by comparison with the unchanged driver.

Not here: the verdict over several seeds (`verdicts`), many mutants in one process (`branches`).
"""

from __future__ import annotations

import re
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from emulator.shared.machine_report import Kind
from hcq.errors import DeviceFault, HcqError, SignalTimeout
from tests.mutants.devices import DEVICES
from tests.mutants.interpose import Interposer
from tests.mutants.private import PrivateScenario
from tests.mutants.scenario import Scenario
from tests.mutants.verdicts import Outcome, Verdict

if TYPE_CHECKING:
    from collections.abc import Sequence

    from emulator.shared.machine_report import Report
    from hcq.driver import Driver
    from tests.mutants.devices import Target
    from tests.mutants.emulated import Machine
    from tests.mutants.sites import Mutant, Place

TIMEOUT_S: Final = 2.0
_UNCHANGED_S: Final = 60.0
"""Limit of waits of the unchanged driver, in seconds; its kernels may be translated first."""
_LOOK_S: Final = 0.001
_LIMIT: Final = re.compile(r"\bin \d+(\.\d+)? s\b")
"""A limit of time in an error of the driver, which a loaded host exceeds, too."""


class UnsettledError(HcqError):
    """Queues of the machine did not come to rest within a limit of time; it may have been too short."""


class Judge:
    """Judges mutants of one target by the results of the unchanged driver."""

    def __init__(self, target: Target, *, seeds: Sequence[int], timeout_s: float = TIMEOUT_S) -> None:
        """Run the unchanged driver under each seed.

        `HcqError` unless calls and results are equal, without a report.
        """
        self._emulated = DEVICES[target.device]
        self._profile = target.profile or self._emulated.profiles[0]
        self._driver = target.driver or self._emulated.drivers[0]
        self._timeout_s = timeout_s
        self._limit_s = _UNCHANGED_S
        self._kernels = self._emulated.kernels(self._profile)
        self.mutants: list[Mutant] = []
        self.expected: list[bytes] = []
        self._refused: tuple[str, ...] = ()
        """The refused calls of the unchanged driver."""
        for seed in seeds:
            self._baseline(seed)

    def machine(self, seed: int) -> Machine:
        """Return a new machine with all sanitizers."""
        return self._emulated.open(self._profile, self._driver, seed)

    def _baseline(self, seed: int) -> None:
        machine = self.machine(seed)
        interposer = Interposer(machine)
        seen = self._play(machine, interposer)
        if not self.expected:
            self.expected, self.mutants = seen, interposer.found
            self._refused = tuple(machine.refused)
        places = [str(mutant) for mutant in self.mutants] == [str(mutant) for mutant in interposer.found]
        if machine.fatal or seen != self.expected or not places:
            raise HcqError(
                f"the unchanged driver under seed {seed}: reports {machine.fatal[:1]}, same results: "
                f"{seen == self.expected}, same submissions: {places}; mutants need a driver that passes"
            )
        machine.close()

    def _play(self, machine: Machine, interposer: Interposer) -> list[bytes]:
        scenario = self._scenario(machine, machine.driver(interposer))
        try:
            seen = scenario.play()
        except DeviceFault:
            with suppress(DeviceFault):  # the same fault again
                scenario.close()
            raise
        scenario.close()
        return seen

    def _scenario(self, machine: Machine, driver: Driver) -> Scenario | PrivateScenario:
        def limit_s() -> float:
            return self._limit_s

        if not self._emulated.private:
            return Scenario(driver, self._kernels, limit_s=limit_s)

        def settle() -> None:
            ends = time.monotonic() + self._limit_s
            while machine.busy:
                if time.monotonic() > ends:
                    raise UnsettledError(f"queues still execute after {self._limit_s} s")
                time.sleep(_LOOK_S)

        return PrivateScenario(driver, self._kernels, limit_s=limit_s, settle=settle)

    def fresh(self, mutant: Mutant, seed: int) -> Verdict:
        """Run a mutant on a new machine in this process; a faulted machine stays open."""

        def choose(place: Place) -> Mutant | None:
            return self.of_mutant(mutant if place == mutant.place else None)

        self._limit_s = _UNCHANGED_S
        machine = self.machine(seed)
        return self.run(machine, Interposer(machine, choose))

    def of_mutant(self, mutant: Mutant | None) -> Mutant | None:
        """Return the mutant; if there is one, shorten the limit of waits from now on."""
        if mutant is not None:
            self._limit_s = self._timeout_s
        return mutant

    def run(self, machine: Machine, interposer: Interposer) -> Verdict:
        """Run the scenario and return the verdict; the machine stays open after an error."""
        try:
            seen = self._play(machine, interposer)
        except HcqError as error:
            return _raised(error, machine)
        except Exception as error:  # noqa: BLE001 - any other error is a verdict, too
            return Verdict(Outcome.UNTYPED, f"{type(error).__name__}: {error}")
        if machine.fatal:
            return _reported(machine.fatal)
        if seen != self.expected:
            return Verdict(Outcome.WRONG)
        refused = machine.refused
        if len(refused) > len(self._refused):
            return Verdict(Outcome.REFUSED, f"and called again: {refused[-1]}")
        return Verdict(Outcome.EQUIVALENT)


def reported(machine: Machine) -> Verdict | None:
    """Return the verdict of a machine's reports so far; None without one."""
    fatal = machine.fatal
    return _reported(fatal) if fatal else None


def _raised(error: HcqError, machine: Machine) -> Verdict:
    text = str(error).split("\n", 1)[0]
    fatal = machine.fatal
    if fatal:
        return _reported(fatal)
    if isinstance(error, DeviceFault):
        return Verdict(Outcome.REPORTED, text)
    if isinstance(error, UnsettledError) or (machine.busy and _LIMIT.search(text)):
        return Verdict(Outcome.SLOW, text)
    if not isinstance(error, SignalTimeout):
        return Verdict(Outcome.REFUSED, f"{type(error).__name__}: {text}")
    late = error.point.passed() or machine.busy
    return Verdict(Outcome.SLOW if late else Outcome.TIMEOUT, text)


def _reported(fatal: Sequence[Report]) -> Verdict:
    """Return the verdict of the machine's reports.

    A defect of the machine itself does not count as caught.
    """
    first = fatal[0]
    return Verdict(Outcome.UNTYPED if first.kind is Kind.DEFECT else Outcome.REPORTED, str(first))
