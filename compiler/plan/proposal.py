"""A proposal: a plan of a kernel that a planner proposes, with its estimated time and its choice.

`KernelForm` is what a proposer takes. A proposer is a function `propose(kernel, target, best)` that yields
proposals; `best` is the fastest proposal so far, so that a proposer can leave out those that cannot be used
beside it. The module of a proposer has a second function, `by_choice(kernel, target, choice)`, if it makes
more than one plan of a kernel. `divided` makes the workgroups of plans of targets without threads.

Not here: the proposers and their comparison (`proposers`), choices as text (`choice`). Next: `proposers`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeAlias

from compiler.nest.kernel_shape import KernelShape, analyse
from compiler.nest.loop_nest import Step
from compiler.nest.operand_roles import Contraction, candidates
from compiler.rewrite.mask_hoisting import hoist_masks
from compiler.rewrite.packed_dot import in_words, operation
from compiler.rewrite.range_merging import merge_masked_ranges, merge_ranges, split_ranges

if TYPE_CHECKING:
    from compiler.ir.uop import UOp
    from compiler.nest.loop_nest import Axis, LoopNest
    from compiler.plan.choice import Choice, Form
    from compiler.targets.shared.target import Target


@dataclass(slots=True, eq=False)
class Proposal:
    """A plan of a kernel, its estimated time, and its choice. What is given as a function is made once."""

    ast: UOp
    """The kernel after the passes of the form that is planned."""
    nanoseconds: float
    """The estimated time of a launch on one core."""
    nest: LoopNest | Callable[[], LoopNest]
    named: Choice | Callable[[], Choice]

    @property
    def plan(self) -> LoopNest:
        """The plan. The parts of a plan with phases are planned at the first use."""
        if callable(self.nest):
            self.nest = self.nest()
        return self.nest

    @property
    def choice(self) -> Choice:
        """The choice from which the planner makes the same plan."""
        if callable(self.named):
            self.named = self.named()
        return self.named


@dataclass(slots=True, eq=False)
class KernelForm:
    """A kernel as it is or after the pass of a form, analysed once."""

    ast: UOp
    form: Form = "plain"
    analysed: KernelShape | None = None
    found: list[Contraction] | None = None

    @property
    def shape(self) -> KernelShape:
        """The analysis of the kernel. A chain (`compiler.schedule.chains`) has none."""
        if self.analysed is None:
            self.analysed = analyse(self.ast)
        return self.analysed

    @property
    def roles(self) -> list[Contraction]:
        """The kernel's choices of rows and columns (`candidates`)."""
        if self.found is None:
            self.found = candidates(self.shape)
        return self.found

    def proposal(self, plan: LoopNest, choice: Choice | Callable[[], Choice]) -> Proposal:
        """Return the proposal of a plan of this form; sums over words get their matrix operation."""
        plan = replace(plan, matrix=operation(self.ast)) if self.form == "words" else plan
        return Proposal(self.ast, plan.nanoseconds, plan, choice)

    def changed(self, form: Form, target: Target) -> KernelForm | None:
        """Return another form of a prepared kernel; None where the pass of the form changes nothing.

        `merged`: `merge_masked_ranges`; `split`: `split_ranges`; `words`: `in_words`.
        """
        if form == "plain":
            return self
        if form == "words":
            made = in_words(self.ast, target)
        else:
            made = merge_masked_ranges(self.ast) if form == "merged" else split_ranges(self.ast)
        return None if made is None else KernelForm(merge_ranges(made), form)


Propose: TypeAlias = Callable[[KernelForm, "Target", Proposal | None], Iterator[Proposal]]


def prepared(ast: UOp) -> KernelForm:
    """Return a kernel after the passes that every plan needs; a chain as it is, its parts are prepared later.

    1. `hoist_masks` moves masks that both factors of a product share outside the sum.
    2. `merge_ranges` makes one range of neighbours that are used as one.
    """
    return KernelForm(ast if ast.arg else merge_ranges(hoist_masks(ast)))


GROUP_NS = 20_000
"""A workgroup takes at least about this long; starting one costs about a hundredth of it."""
GROUPS_PER_CORE = 4
"""Workgroups of each core up to which that holds."""


def divided(axes: Iterable[Axis], wanted: int) -> list[Step]:
    """Return the steps that make about as many workgroups along some axes, the first axes first."""
    groups: list[Step] = []
    for axis in axes:
        size = -(-axis.count // max(1, min(axis.count, wanted)))
        parts = -(-axis.count // size)
        if parts > 1:
            groups.append(Step("group", axis.range, size))
            wanted = -(-wanted // parts)
    return groups
