"""The table of proposers, and the one comparison of their proposals: which plan a kernel gets.

A row names a planner, the targets that it plans for, and how much faster than the best proposal of the rows
before its own must be. That margin is there because estimates are uncertain. For each form of a kernel the
planners of products and of splits are compared first, and the better proposal is that of the form.

Not here: the plans (`contraction`, `shared_product`, `online_product`, `phases`, `tiling`, `transposes`,
`winograd`), other choices than the estimated ones (`frontend.tuning.space`). Next: `compiler.pipeline`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Literal

from compiler.nest.loop_nest import Stage
from compiler.plan import contraction, online_product, phases, shared_product, tiling, transposes, winograd
from compiler.plan.choice import (
    OnlineChoice,
    PartsChoice,
    ProductChoice,
    SplitChoice,
    StagedChoice,
    TurnedChoice,
    WinogradChoice,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from compiler.plan.choice import Choice, Form
    from compiler.plan.proposal import KernelForm, Proposal, Propose
    from compiler.targets.shared.target import Target

FORMS: tuple[Form, ...] = ("plain", "merged", "split", "words")
"""The forms of a kernel that are planned, in this order (`KernelForm.changed`)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposer:
    """A row: a planner, and when its proposal is used."""

    propose: Propose
    worth: float = 1.0
    """A proposal replaces the best so far if it takes less than this fraction of its time."""
    worth_beside_window: float = 0.0
    """The same where the best so far copies a picture once for all taps (`nest.windows`); 0: `worth`."""
    sums: bool = False
    """Whether it has plans only of kernels with sums."""
    on: Literal["host", "gpu", "all"] = "all"
    """Targets with vectors, those with threads, or both."""
    certain: bool = False
    """Whether its proposal, if it has one, is used without a look at the rows after it."""

    def most_ns(self, best: Proposal) -> float:
        """Return the time below which a proposal replaces the best so far."""
        worth = self.worth
        if self.worth_beside_window and any(isinstance(s, Stage) and s.window for s in best.plan.steps):
            worth = self.worth_beside_window
        return worth * best.nanoseconds


def _chain(kernel: KernelForm, target: Target, _best: Proposal | None) -> Iterator[Proposal]:
    if kernel.ast.arg:
        yield from phases.propose_chain(kernel, target, best)


def _of_form(form: Form, kernel: KernelForm, target: Target, _best: Proposal | None) -> Iterator[Proposal]:
    """Yield the best proposal of the planners of every kernel for one of its forms."""
    changed = kernel.changed(form, target)
    found = None if changed is None else fastest(OF_EVERY_FORM, changed, target)
    if found is not None:
        yield found


def _residues(kernel: KernelForm, target: Target, found: Proposal | None) -> Iterator[Proposal]:
    whole = found or fastest(OF_KERNEL, kernel, target)
    assert whole is not None, "every kernel has a split"
    yield from phases.propose_residues(kernel, target, whole.nanoseconds, best)


OF_EVERY_FORM = (
    Proposer(propose=contraction.propose, on="host", sums=True),
    Proposer(propose=tiling.propose, worth=0.85),
)
"""Planners of a form: products, and splits of ranges, of which every kernel has one."""
CERTAIN = (
    Proposer(propose=_chain, on="host", certain=True),
    Proposer(propose=online_product.propose, on="gpu", certain=True),
    Proposer(propose=shared_product.propose, on="gpu", sums=True, certain=True),
    Proposer(propose=transposes.propose, on="gpu", certain=True),
)
"""Planners of special kernels, which have no better plan."""
OF_KERNEL = (*CERTAIN, *[Proposer(propose=partial(_of_form, form), worth=0.95) for form in FORMS])
"""Those, and the best of the planners of each form."""
IN_PARTS = (
    Proposer(propose=_residues, on="host", sums=True, worth=0.95),
    Proposer(propose=winograd.propose, on="host", sums=True, worth=0.92),
    # The estimates of sums leave out what repeated copies of panels take beyond the caches. Of 33 random
    # gradients, with up to 1.21 of the sum's estimate, all were faster, by 1.2 to 5.7.
    Proposer(propose=winograd.propose_taps, on="host", sums=True, worth=1.2, worth_beside_window=1.0),
)
"""Planners that divide a kernel into parts."""


def best(kernel: KernelForm, target: Target) -> Proposal:
    """Return the proposal that is used: that of the plan with the least estimated time, by the table.

    Raises `CompileError` as `online_product.propose`.
    """
    found = fastest((*OF_KERNEL, *IN_PARTS), kernel, target)
    assert found is not None, "every kernel has a split"
    return found


def fastest(rows: tuple[Proposer, ...], kernel: KernelForm, target: Target) -> Proposal | None:
    """Return the best proposal of some rows; None without any."""
    found: Proposal | None = None
    other = "gpu" if target.threads == 1 else "host"
    for row in rows:
        if row.on == other or (row.sums and not kernel.shape.families):
            continue
        for one in row.propose(kernel, target, found):
            if found is None or one.nanoseconds < row.most_ns(found):
                found = one
        if row.certain and found is not None:
            break
    return found


def every(kernel: KernelForm, target: Target) -> list[Proposal]:
    """Return the best proposal of every row, for every form of a kernel; of a chain its one proposal."""
    if kernel.ast.arg:
        return [best(kernel, target)]
    work = [(row, kernel) for row in CERTAIN]
    for form in FORMS:
        changed = kernel.changed(form, target)
        work += [] if changed is None else [(row, changed) for row in OF_EVERY_FORM]
    work += [(row, kernel) for row in IN_PARTS]
    found = [fastest((row,), one, target) for row, one in work]
    return [one for one in found if one is not None]


def chosen(kernel: KernelForm, target: Target, choice: Choice) -> Proposal | None:
    """Return the plan of a choice for a prepared kernel; None where the kernel has no such plan.

    A tile or panels that do not fit have none. Raises `CompileError` for a range that the kernel lacks.
    """
    if isinstance(choice, StagedChoice):
        return shared_product.by_choice(kernel, target, choice)
    if isinstance(choice, OnlineChoice):
        return online_product.by_choice(kernel, target, choice)
    if isinstance(choice, SplitChoice | ProductChoice):
        form = kernel.changed(choice.form, target)
        if form is None:
            return None
        if isinstance(choice, SplitChoice):
            return tiling.by_choice(form, target, choice)
        return contraction.by_choice(form, target, choice)
    proposed = (p for row in _ONE_PLAN[type(choice)] for p in row(kernel, target, None))
    return next(proposed, None)


_ONE_PLAN: dict[type[Choice], tuple[Propose, ...]] = {
    TurnedChoice: (transposes.propose,),
    PartsChoice: (_chain, _residues),
    WinogradChoice: (winograd.propose, winograd.propose_taps),
}
