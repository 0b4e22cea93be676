"""Run every plan of the small kernels on a device, and compare the results with those of the estimated plan.

Not here: the kernels (`small`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import hcq
from compiler.plan.choice import brief
from compiler.targets import arch_for, target_of
from frontend.tuning.space import Space
from frontend.tuning.trial import Trial
from tools.search import exhaustive, small

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


@dataclass(slots=True)
class Checked:
    """The result for one kernel."""

    kernel: str
    plans: int = 0
    wrong: list[str] = field(default_factory=list)
    """Plans with other results, and how they differ."""


def check(device: str, names: Sequence[str]) -> Iterator[Checked]:
    """Yield the result for every kernel: all plans of the space, and the moves of the estimated one."""
    with hcq.open(device) as opened:
        for name in names:
            ast = small.ast_of(name)
            space = Space(ast, target_of(arch_for(opened.info)))
            trial, out = Trial(opened, ast), Checked(name)
            wanted = trial.results(trial.load(None))
            every = exhaustive.every(space)
            known = {c.choice for c in every}
            moves = [c for c in space.moves(every[0].choice) if c.choice not in known]
            for candidate in every + moves:
                out.plans += 1
                difference = trial.difference(wanted, trial.results(trial.load(candidate.choice)))
                if difference:
                    out.wrong.append(f"{brief(candidate.choice)}: {difference}")
            trial.close()
            yield out
