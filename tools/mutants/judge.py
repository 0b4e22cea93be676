"""One mutant on a fresh machine: refused, reported, equivalent, or survived.

A mutant that changes nothing under one order is run under eight; it is equivalent only when all eight give
what the unchanged driver gives.
"""

from __future__ import annotations

import enum
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from drivers.emu.library import Sanitizers
from drivers.nv.driver import NvDriver
from drivers.nv.emu.machine import open_machine
from hcq.errors import DeviceFault, HcqError, SignalTimeout
from tools.mutants.interpose import Interposer
from tools.mutants.scenario import Scenario, images

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hcq.program import KernelImage
    from tools.mutants.sites import Mutant

SEEDS: Final = tuple(range(1, 9))
TIMEOUT_S: Final = 2.0
_ARCH: Final = {"sm_90": "sm_90a", "sm_120": "sm_120a"}
"""Profile -> the architecture that its kernels are assembled for, where it differs."""


class Outcome(enum.StrEnum):
    """What became of a mutant."""

    REFUSED = enum.auto()
    """The driver raised a typed error."""
    REPORTED = enum.auto()
    """The machine reported, or the device faulted."""
    TIMEOUT = enum.auto()
    """A wait timed out, and said on what; counts as reported."""
    EQUIVALENT = enum.auto()
    """The same bytes under every seed, and no report."""
    WRONG = enum.auto()
    """Survived: other bytes under every seed tried, and no report."""
    SEEDED = enum.auto()
    """Survived: other bytes under some seeds alone, and no report."""
    UNTYPED = enum.auto()
    """Survived: an error that is not the project's own."""
    HUNG = enum.auto()
    """Survived: ran past its time, or took the process down."""


CAUGHT: Final = frozenset({Outcome.REFUSED, Outcome.REPORTED, Outcome.TIMEOUT, Outcome.EQUIVALENT})


@dataclass(frozen=True, slots=True)
class Verdict:
    """An outcome and the words that came with it."""

    outcome: Outcome
    detail: str = ""
    clean: bool = True
    """The process may go on with another mutant."""


class Judge:
    """Runs mutants of one profile; knows what the unchanged driver gives."""

    def __init__(self, profile: str = "sm_90", *, seeds: Sequence[int] = SEEDS) -> None:
        """Run the unchanged driver under `seeds`: it must do and give the same under each, unreported."""
        self.profile = profile
        self._images: dict[str, KernelImage] = images(_ARCH.get(profile, profile))
        self.mutants: list[Mutant] = []
        self.expected: list[bytes] = []
        for seed in seeds:
            self._baseline(seed)

    def _baseline(self, seed: int) -> None:
        machine = open_machine(self.profile, seed=seed, checks=Sanitizers.all())
        interposer = Interposer(machine)
        seen = self._play(interposer)
        if not self.expected:
            self.expected, self.mutants = seen, interposer.found
        places = [str(mutant) for mutant in self.mutants] == [str(mutant) for mutant in interposer.found]
        if machine.reports or seen != self.expected or not places:
            raise HcqError(
                f"the unchanged driver under seed {seed}: reports {machine.reports[:1]}, same results: "
                f"{seen == self.expected}, same submissions: {places}; mutants need a driver that passes"
            )
        machine.shut()

    def _play(self, interposer: Interposer) -> list[bytes]:
        scenario = Scenario(NvDriver("nv-emu", lambda _: interposer), self._images, timeout_s=TIMEOUT_S)
        try:
            seen = scenario.play()
        except DeviceFault:
            with suppress(DeviceFault):  # the second telling of the same
                scenario.close()
            raise
        scenario.close()
        return seen

    def judge(self, mutant: Mutant) -> Verdict:
        """Run a mutant under one seed and, where that shows nothing, under the others."""
        wrong = []
        for seed in SEEDS:
            verdict = self._once(mutant, seed)
            if verdict.outcome not in {Outcome.EQUIVALENT, Outcome.WRONG}:
                return verdict
            if verdict.outcome is Outcome.WRONG:
                wrong.append(seed)
                if len(wrong) == 2 == seed:
                    return verdict
        if not wrong:
            return Verdict(Outcome.EQUIVALENT)
        if len(wrong) == len(SEEDS):
            return Verdict(Outcome.WRONG)
        return Verdict(Outcome.SEEDED, f"seeds {wrong}")

    def _once(self, mutant: Mutant, seed: int) -> Verdict:
        machine = open_machine(self.profile, seed=seed, checks=Sanitizers.all())
        interposer = Interposer(machine, mutant)
        try:
            seen = self._play(interposer)
        except HcqError as error:
            verdict = self._raised(error, [str(one) for one in machine.reports])
            if verdict.clean:
                machine.shut()
            return verdict
        except Exception as error:  # noqa: BLE001 - any error of another kind is a verdict on the driver
            return Verdict(Outcome.UNTYPED, f"{type(error).__name__}: {error}", clean=False)
        if machine.reports:
            return Verdict(Outcome.REPORTED, str(machine.reports[0]))
        if not interposer.made:
            return Verdict(Outcome.UNTYPED, "the place of the mutant was never reached")
        machine.shut()
        return Verdict(Outcome.EQUIVALENT if seen == self.expected else Outcome.WRONG)

    def _raised(self, error: HcqError, reports: list[str]) -> Verdict:
        text = str(error).split("\n", 1)[0]
        timeout = isinstance(error, SignalTimeout)
        if reports or isinstance(error, DeviceFault):
            return Verdict(Outcome.REPORTED, reports[0] if reports else text, clean=not timeout)
        if timeout:
            return Verdict(Outcome.TIMEOUT, text, clean=False)
        return Verdict(Outcome.REFUSED, f"{type(error).__name__}: {text}")
