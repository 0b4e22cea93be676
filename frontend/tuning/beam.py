"""The beam search: from the estimated plans, along moves, to the fastest plan that a measurement finds.

`search` keeps the `width` fastest candidates, measures the moves of each that it has not measured, and
repeats until a round brings no gain or the limit of measurements is reached. It is deterministic apart from
the times.

Not here: the candidates (`space`), the measurement (`trial`), the store of results (`compiler.winners`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from compiler.winners import Found

if TYPE_CHECKING:
    from collections.abc import Callable

    from compiler.plan.choice import Choice
    from compiler.plan.proposal import Proposal
    from frontend.tuning.space import Space

GAIN = 0.02
"""The part of the time that a round must save for another round, and a winner against the estimated plan."""
CONFIRMED = 3
"""Candidates that are measured again at the end, as of many samples some are too small by chance; the larger
time counts."""
TRIES = 24
"""Measurements for each place of the beam."""
PROMISING = 3.0
"""Moves estimated to take more than this many times the estimate of the plan that they start at are left
out."""


def search(space: Space, width: int, measure: Callable[[Proposal], float | None]) -> Found:
    """Return the fastest choice that was found with a beam of `width` candidates.

    `measure` returns the time of a candidate relative to that of the estimated plan, None for a failure.
    """
    first, *fresh = space.starts()
    times: dict[Choice, float] = {first.choice: 1.0}
    known = {first.choice}
    tries = failed = 0
    frontier, moved = [first], False
    while tries < TRIES * width:
        before = times[frontier[0].choice]
        for candidate in fresh[: TRIES * width - tries]:
            tries += 1
            known.add(candidate.choice)
            time = measure(candidate)
            if time is None:
                failed += 1
            else:
                times[candidate.choice] = time
                frontier.append(candidate)
        frontier = sorted(frontier, key=lambda c: times[c.choice])[:width]
        if moved and times[frontier[0].choice] > before * (1 - GAIN):
            break
        fresh, moved = _moves(space, frontier, known), True
        if not fresh:
            break
    for candidate in frontier[:CONFIRMED]:
        if candidate is not first:
            again = measure(candidate)
            times[candidate.choice] = 1.0 if again is None else max(again, times[candidate.choice])
    best = min(frontier[:CONFIRMED], key=lambda c: times[c.choice]).choice
    if times[best] > 1 - GAIN:
        return Found(None, 1.0, tries, failed)
    return Found(best, times[best], tries, failed)


def _moves(space: Space, frontier: list[Proposal], known: set[Choice]) -> list[Proposal]:
    """Return the unknown moves of all candidates, the likely fastest first."""
    out: dict[Choice, Proposal] = {}
    for origin in frontier:
        for move in space.moves(origin.choice):
            if move.choice not in known and move.plan.nanoseconds <= PROMISING * origin.plan.nanoseconds:
                out.setdefault(move.choice, move)
    return sorted(out.values(), key=lambda c: c.plan.nanoseconds)
