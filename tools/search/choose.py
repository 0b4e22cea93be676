"""Compare the plan that the cost model chooses with the best plan of an exhaustive search, by CPU time.

Every plan of `Space.every` runs on the cpu device with one thread; the times are of the processor, not of the
clock on the wall, without those of the thread that submits. A sample is a batch of launches that is encoded
once (`timing`). The process stays on one core: Linux adds the time of a thread on another core to the process
only now and then, and the least of such times is that of the largest error.

The speed of a processor changes by up to a fifth from one millisecond to the next, and other programs take
its caches. The least of a plan's samples is then that of its luckiest moment, and the least over many plans
flatters the best one. So only ratios of two samples that are taken one after the other count, and of these
the median. First every plan is paired with the chosen one, `ROUNDS` times, to select the fastest `LAST`. Then
these, the chosen plan, and the chosen plan compiled and loaded once more are sampled anew, `PAIRS` times in
turn: the result is the largest of the new ratios. The ratio of the chosen plan to itself is the noise.

Not here: the shapes (`shapes`), a sample (`timing`).
"""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING

import hcq
from compiler.plan.choice import brief
from compiler.targets import arch_for, target_of
from frontend.tuning.space import Space
from frontend.tuning.trial import Trial
from hcq.config import override
from tools.search import exhaustive
from tools.search.timing import Batch, others_ns

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from compiler.ir.uop import UOp

ROUNDS = 7
"""Pairs of samples by which the fastest plans are selected."""
KEEP, CERTAIN = 1.5, 3
"""Plans that take more than `KEEP` times the best so far are dropped, from `CERTAIN` pairs on."""
LAST = 3
"""Plans that are compared with the chosen one at the end."""
PAIRS = 31
"""Rounds of that comparison."""
NEAR, FAR, SHARE = 1.1, 1.3, 0.9
"""The aim: within `NEAR` of the best for `SHARE` of the shapes, within `FAR` for all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """The result for one shape."""

    shape: str
    plans: int
    chosen_ns: float
    best_ns: float
    """The median samples of the last comparison."""
    ratio: float
    """The time of the chosen plan, with that of the best as 1."""
    noise: float
    """The time of the chosen plan, with that of the same plan loaded again as 1."""
    chosen: str
    best: str


def compared(device: hcq.Device, shape: str, ast: UOp) -> Compared:
    """Return the comparison for one kernel. The device runs it on one thread."""
    trial = Trial(device, ast, clock=others_ns)
    with contextlib.ExitStack() as owned:
        owned.callback(trial.close)
        candidates = exhaustive.every(Space(ast, target_of(arch_for(device.info))))
        texts = [brief(c.choice) for c in candidates]
        batches = [owned.enter_context(Batch(trial, trial.load(c.choice))) for c in candidates]
        again = owned.enter_context(Batch(trial, trial.load(candidates[0].choice)))
        finalists = [0, *_fastest(batches)]
        itself, chosen, *others = _in_turn([again, *[batches[i] for i in finalists]])
    ratios = [1.0, *[ratio(chosen, other) for other in others]]
    best = max(range(len(ratios)), key=lambda i: ratios[i])
    return Compared(
        shape=shape,
        plans=len(candidates),
        chosen_ns=median(chosen),
        best_ns=median([chosen, *others][best]),
        ratio=ratios[best],
        noise=ratio(chosen, itself),
        chosen=texts[0],
        best=texts[finalists[best]],
    )


def ratio(times: Sequence[float], others: Sequence[float]) -> float:
    """Return the median of the ratios of samples that were taken in turn."""
    return median([a / b for a, b in zip(times, others, strict=True)])


def _fastest(batches: Sequence[Batch]) -> list[int]:
    """Return the numbers of the fastest plans but the first, each sampled beside the first."""
    ratios: list[list[float]] = [[] for _ in batches]
    ratios[0], live = [1.0], list(range(1, len(batches)))
    for pairs in range(1, ROUNDS + 1):
        for number in live:
            before = batches[0].sample()
            ratios[number].append(batches[number].sample() / before)
        if pairs < CERTAIN:
            continue
        limit = KEEP * min([median(ratios[number]) for number in (0, *live)])
        live = [number for number in live if median(ratios[number]) <= limit]
    return sorted(live, key=lambda number: median(ratios[number]))[:LAST]


def _in_turn(batches: Sequence[Batch]) -> list[list[float]]:
    """Return `PAIRS` samples of each batch, taken in turn, each round from another one on."""
    times: list[list[float]] = [[0.0] * PAIRS for _ in batches]
    for pair in range(PAIRS):
        for step in range(len(batches)):
            number = (pair + step) % len(batches)
            times[number][pair] = batches[number].sample()
    return times


def compare(shapes: Mapping[str, UOp]) -> Iterator[Compared]:
    """Yield the comparison of every shape; the plans are those for all cores of this process."""
    with opened() as device:
        for name, ast in shapes.items():
            yield compared(device, name, ast)


@contextlib.contextmanager
def opened() -> Iterator[hcq.Device]:
    """Open the cpu device with one thread, on one core; the target keeps the number of cores."""
    with override(workers=0, beam=0):
        with hcq.open("cpu", validate=False, seed=0) as device:
            target_of(arch_for(device.info))  # is kept, with the number of cores
        with _one_core(), hcq.open("cpu", validate=False, seed=0) as device:
            yield device


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
    apart = sorted([abs(r.noise - 1.0) for r in results])
    text = f"{len(results)} shapes: {near:.0%} within {NEAR - 1:.0%} of the best plan, "
    text += f"the farthest {worst.shape} at {worst.ratio:.2f}; the chosen plan and itself differ by "
    text += f"{apart[len(apart) // 2]:.1%} in the median, {apart[-1]:.1%} at most"
    return text, near >= SHARE and worst.ratio <= FAR
