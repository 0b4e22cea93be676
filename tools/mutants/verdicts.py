"""Classes of outcomes of a mutant, and which of them count as noticed.

Not here: running a mutant (`judge`, `branches`). Next: docs/reliability.md, the table of classes.
"""

from __future__ import annotations

import enum
import json
from dataclasses import dataclass
from typing import Final


class Outcome(enum.StrEnum):
    """What became of a mutant."""

    REFUSED = enum.auto()
    """The driver raised a typed error."""
    REPORTED = enum.auto()
    """The machine reported, or the device faulted."""
    TIMEOUT = enum.auto()
    """A wait timed out on an idle machine, and the error names it; counts as reported."""
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
    SLOW = enum.auto()
    """No verdict: a wait timed out on a machine that was still at work."""


CAUGHT: Final = frozenset({Outcome.REFUSED, Outcome.REPORTED, Outcome.TIMEOUT, Outcome.EQUIVALENT})
QUIET: Final = frozenset({Outcome.EQUIVALENT, Outcome.WRONG})
"""One seed gave only other bytes: the others are run, too."""
SEEDS: Final = tuple(range(1, 9))


@dataclass(frozen=True, slots=True)
class Verdict:
    """An outcome and the words that came with it."""

    outcome: Outcome
    detail: str = ""

    @classmethod
    def from_json(cls, line: bytes | str) -> Verdict:
        """Return the verdict that was written."""
        told = json.loads(line)
        return cls(Outcome(told["outcome"]), told["detail"])


def overall(seen: dict[int, Verdict]) -> Verdict | None:
    """Return what the verdicts by seed come to, or None while other seeds must run.

    One loud seed is enough; other bytes under the first two are enough; equivalent is what is the same under
    all.
    """
    loud = next((one for one in seen.values() if one.outcome not in QUIET), None)
    if loud is not None:
        return loud
    wrong = [seed for seed, one in seen.items() if one.outcome is Outcome.WRONG]
    if set(SEEDS[:2]) <= set(wrong):
        return Verdict(Outcome.WRONG)
    if len(seen) < len(SEEDS):
        return None
    return Verdict(Outcome.SEEDED, f"seeds {wrong}") if wrong else Verdict(Outcome.EQUIVALENT)
