"""Store verdicts in a file of lines of JSON, so that a long run can be continued.

Not here: what a verdict means (`verdicts`).
"""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import asdict
from typing import TYPE_CHECKING

from tests.mutants.verdicts import Verdict

if TYPE_CHECKING:
    from pathlib import Path

    from tests.mutants.sites import Mutant


class Kept:
    """The verdicts of one target by mutant and seed; without a path they are not stored."""

    def __init__(self, path: Path | None) -> None:
        """Read the file, if there is one. Raises `ValueError` for a line that `add` did not write."""
        self._path = path
        self._seen: defaultdict[str, dict[int, Verdict]] = defaultdict(dict)
        if path is not None and path.exists():
            for line in path.read_text().splitlines():
                one = json.loads(line)
                self._seen[one["mutant"]][one["seed"]] = Verdict.from_json(json.dumps(one))

    def of(self, mutant: Mutant) -> dict[int, Verdict]:
        """Return the verdicts on a mutant, by seed."""
        return dict(self._seen[_key(mutant)])

    def add(self, mutant: Mutant, seed: int, verdict: Verdict) -> None:
        """Append a verdict."""
        if self._path is not None:
            with self._path.open("a") as file:
                file.write(json.dumps({"mutant": _key(mutant), "seed": seed, **asdict(verdict)}) + "\n")


def _key(mutant: Mutant) -> str:
    """Return a key that is unique among the mutants of a scenario."""
    return json.dumps(
        [mutant.space, mutant.index, mutant.entry, mutant.at, mutant.part, mutant.runs, mutant.operation]
    )
