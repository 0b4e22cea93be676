"""Classes of outcomes of a mutant, and which of them count as caught.

A mutant is the driver, or a kernel, with one word or call changed. It runs under several seeds, which choose
the emulated machine's order of execution; each run has a verdict, and `overall` combines them.

Not here: running a mutant (`judge`, `branches`). Next: docs/reliability.md, the table of classes.
"""

from __future__ import annotations

import enum
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


class Outcome(enum.StrEnum):
    """The class of a run, or of all runs, of one mutant."""

    REFUSED = enum.auto()
    """The driver raised a typed error, or called again after a refused call, with the right results."""
    REPORTED = enum.auto()
    """The emulated machine reported an error, or the device faulted."""
    TIMEOUT = enum.auto()
    """A wait timed out on an idle machine, and the error names it; counts as reported."""
    EQUIVALENT = enum.auto()
    """No report, and the results of the unchanged program under every seed; nothing to detect."""
    WRONG = enum.auto()
    """Survived: no report, and wrong results under every seed tried."""
    SEEDED = enum.auto()
    """Survived: no report, and wrong results under some seeds only."""
    UNTYPED = enum.auto()
    """Survived: an error that is not the project's own."""
    HUNG = enum.auto()
    """Survived: it exceeded its time limit, or ended its process."""
    SLOW = enum.auto()
    """No verdict: a wait timed out while the machine still executed."""


CAUGHT: Final = frozenset({Outcome.REFUSED, Outcome.REPORTED, Outcome.TIMEOUT, Outcome.EQUIVALENT})
"""Outcomes that count as detected; mutants with others survived or have no verdict."""
QUIET: Final = frozenset({Outcome.EQUIVALENT, Outcome.WRONG})
"""Outcomes of one seed without a report or error; further seeds are run."""
SEEDS: Final = tuple(range(1, 9))
"""The seeds of each mutant, in the order in which they are tried."""
FEW_SEEDS: Final = SEEDS[:2]
"""Those of a mutant that a fact makes equivalent."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """An outcome, and the text of the error or report that decided it."""

    outcome: Outcome
    detail: str = ""

    @classmethod
    def from_json(cls, line: bytes | str) -> Verdict:
        """Return the verdict that a child process wrote as a JSON object."""
        fields = json.loads(line)
        return cls(Outcome(fields["outcome"]), fields["detail"])


def overall(seen: Mapping[int, Verdict], seeds: Sequence[int] = SEEDS) -> Verdict | None:
    """Return the verdict over the seeds run so far, by seed; None while more seeds must run.

    One report or error decides; so do wrong results under the first two seeds. A mutant is EQUIVALENT only
    when every one of `seeds` gave the right results, and SEEDED when some did.
    """
    decisive = next((one for one in seen.values() if one.outcome not in QUIET), None)
    if decisive is not None:
        return decisive
    wrong = [seed for seed, one in seen.items() if one.outcome is Outcome.WRONG]
    if set(SEEDS[:2]) <= set(wrong):
        return Verdict(Outcome.WRONG)
    if wrong:
        seeds = SEEDS
    if not set(seeds) <= set(seen):
        return None
    return Verdict(Outcome.SEEDED, f"seeds {wrong}") if wrong else Verdict(Outcome.EQUIVALENT)
