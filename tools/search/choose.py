"""Compare the plan that the cost model chooses with the best plan of an exhaustive search, by CPU time.

Every plan of `Space.every` runs on the cpu device with one thread; the times are of the processor, not of the
clock on the wall, without those of the thread that submits, and the least of several that are taken in turn.
Plans that take more than `KEEP` times the best so far are dropped after each round; the chosen one is always
kept. The process stays on one core: Linux adds the time of a thread on another core to the process only now
and then, and the least of such times is that of the largest error.

Not here: the shapes (`shapes`).
"""

from __future__ import annotations

import contextlib
import os
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import hcq
from compiler.kernel.choice import brief
from compiler.search.space import Space
from compiler.targets import arch_for, target_of
from frontend.tuning.trial import Trial
from hcq.config import override

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from compiler.ir.uop import UOp
    from compiler.search.space import Candidate
    from frontend.tuning.trial import Loaded

LEAST_NS, MOST_LAUNCHES = 300_000, 400
"""The least time of a sample, and its launches at most: a submission alone takes up to 0.1 ms."""
ROUNDS = 6
KEEP = 1.5
LAST = 12
"""Rounds of the chosen plan and the best three, at the end."""
NEAR, FAR, SHARE = 1.1, 1.3, 0.9
"""The aim: within `NEAR` of the best for `SHARE` of the shapes, within `FAR` for all."""


@dataclass(slots=True)
class Timed:
    """One plan and its least time so far."""

    candidate: Candidate
    kernel: Loaded
    ns: float


@dataclass(frozen=True, slots=True)
class Compared:
    """The result for one shape."""

    shape: str
    plans: int
    chosen_ns: float
    best_ns: float
    chosen: str
    best: str

    @property
    def ratio(self) -> float:
        """The time of the chosen plan, with that of the best as 1."""
        return self.chosen_ns / self.best_ns


def compared(device: hcq.Device, shape: str, ast: UOp) -> Compared:
    """Return the comparison for one kernel. The device runs it on one thread."""
    trial = Trial(device, ast, clock=_others_ns)
    timed: list[Timed] = []
    for candidate in Space(ast, target_of(arch_for(device.info))).every():
        kernel = trial.load(candidate.choice)
        timed.append(Timed(candidate, kernel, _sample(trial, kernel)))
    chosen, live = timed[0], timed
    for number in range(ROUNDS + LAST):
        best = min(t.ns for t in live)
        live = [t for t in live if t.ns <= KEEP * best or t is chosen]
        if number >= ROUNDS:
            live = sorted(live, key=lambda t: (t is not chosen, t.ns))[:4]
        for one in live:
            one.ns = min(one.ns, _sample(trial, one.kernel))
    trial.close()
    winner = min(live, key=lambda t: t.ns)
    texts = [brief(t.candidate.choice) for t in (chosen, winner)]
    return Compared(shape, len(timed), chosen.ns, winner.ns, texts[0], texts[1])


def _sample(trial: Trial, kernel: Loaded) -> float:
    """Return the nanoseconds of one launch."""
    return trial.nanoseconds(kernel, least_ns=LEAST_NS, most=MOST_LAUNCHES)


def _others_ns() -> int:
    """Return the processor time of all threads but this one, which encodes the launches, in nanoseconds."""
    return time.process_time_ns() - time.thread_time_ns()


def compare(shapes: Mapping[str, UOp]) -> Iterator[Compared]:
    """Yield the comparison of every shape; the plans are those for all cores of this process."""
    with override(workers=0, beam=0):
        with hcq.open("cpu", validate=False, seed=0) as device:
            target_of(arch_for(device.info))  # is kept, with the number of cores
        with _one_core(), hcq.open("cpu", validate=False, seed=0) as device:
            for name, ast in shapes.items():
                yield compared(device, name, ast)


@contextlib.contextmanager
def _one_core() -> Iterator[None]:
    """Keep this thread and those that it starts on its last core."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {max(before)})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def summary(results: list[Compared]) -> tuple[str, bool]:
    """Return the shares within the aims as text, and whether they are met."""
    near = sum(r.ratio <= NEAR for r in results) / len(results)
    worst = max(results, key=lambda r: r.ratio)
    text = f"{len(results)} shapes: {near:.0%} within {NEAR - 1:.0%} of the best plan, "
    text += f"the farthest {worst.shape} at {worst.ratio:.2f}"
    return text, near >= SHARE and worst.ratio <= FAR
