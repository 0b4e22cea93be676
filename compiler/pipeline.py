"""The steps from a kernel's AST to LLVM IR text: move masks, merge ranges, choose a plan, linearize, render.

`steps` runs all of them, in one order for every target; `planned` is its first half, the passes over the AST.
Chains are planned by `compiler.plan.phases`, sums of products on a target with shared memory by
`compiler.plan.device_contraction`, some convolutions by `compiler.plan.winograd`, all other kernels by
`compiler.plan.tiling`.

Not here: caches and machine code (`compile`), making the AST (`compiler.schedule`). Next, in this order:
`compiler.rewrite.mask_hoisting`, `compiler.rewrite.range_merging`, `compiler.plan.tiling`,
`compiler.emit.linearize`, `compiler.text.llvm_ir`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from compiler.emit import linear
from compiler.emit.linearize import Linearizer
from compiler.ir.naming import kernel_name
from compiler.ir.ops import Ops
from compiler.ir.serialize import kernel_key
from compiler.ir.walk import ordered
from compiler.nest import nest_check
from compiler.nest.kernel_shape import analyse
from compiler.plan import contraction, device_contraction, phases, tiling, transposes, winograd
from compiler.plan.choice import SplitChoice, StagedChoice, TurnedChoice, WinogradChoice
from compiler.rewrite.mask_hoisting import hoist_masks
from compiler.rewrite.packed_dot import in_words, operation
from compiler.rewrite.range_merging import merge_masked_ranges, merge_ranges, split_ranges
from compiler.rewrite.residue_classes import split_residues
from compiler.text.llvm_ir import render
from hcq.errors import CompileError

if TYPE_CHECKING:
    from compiler.emit.linear import Line
    from compiler.ir.uop import UOp
    from compiler.nest.loop_nest import LoopNest
    from compiler.plan.choice import Choice, Form
    from compiler.targets.shared.target import Target

WORTH_CHANGING = 0.95
"""A kernel with ranges merged or split is used if it takes less than this fraction of the original's time."""
CHANGED: tuple[Form, ...] = ("merged", "split", "words")
"""The forms of a kernel besides that as it is."""


@dataclass(frozen=True, slots=True)
class Arguments:
    """The arguments of a kernel."""

    access: tuple[str, ...]
    """Access to each buffer slot: "r", "w" or "rw"."""
    variables: tuple[str, ...]
    """Names of the variables, sorted."""


def arguments(ast: UOp) -> Arguments:
    """Return the arguments of a kernel."""
    nodes = ordered(ast)
    reads = {n.src[0].arg for n in nodes if n.op is Ops.LOAD}
    writes = {n.src[0].arg for n in nodes if n.op is Ops.STORE}
    count = ast.arg[0] if ast.arg else 1 + max(n.arg for n in nodes if n.op is Ops.BUFFER)
    access = ["rw" if k in reads and k in writes else "w" if k in writes else "r" for k in range(count)]
    return Arguments(tuple(access), tuple(sorted({n.arg[0] for n in nodes if n.op is Ops.VAR})))


def to_lines(ast: UOp, plan: LoopNest, args: Arguments) -> list[Line]:
    """Return the verified linear form of a kernel under a plan."""
    lines = written(ast, plan, args)
    linear.verify(lines)
    return lines


def written(ast: UOp, plan: LoopNest, args: Arguments) -> list[Line]:
    """Return the linear form of a kernel under a plan, without the check."""
    writer = Linearizer(ast, plan, len(args.access))
    writer.e.index.variables.update({name: k for k, name in enumerate(args.variables)})
    return linear.prune(linear.flatten(writer.run().root))


def prepared(ast: UOp) -> UOp:
    """Return a kernel after the passes that every plan needs: `hoist_masks`, `merge_ranges`."""
    return merge_ranges(hoist_masks(ast))


def changed(ast: UOp, form: Form, target: Target) -> UOp | None:
    """Return a form of a prepared kernel: as it is, or after the pass of another form.

    `merged`: `merge_masked_ranges`; `split`: `split_ranges`; `words`: `in_words`. None where the pass has
    nothing to change.
    """
    if form == "plain":
        return ast
    if form == "words":
        made = in_words(ast, target)
    else:
        made = merge_masked_ranges(ast) if form == "merged" else split_ranges(ast)
    return None if made is None else merge_ranges(made)


def chosen(ast: UOp, target: Target, choice: Choice) -> tuple[UOp, LoopNest] | None:
    """Return a prepared kernel after the passes of a choice, and its plan; None where it has no such plan.

    A tile or panels that do not fit have none. Raises `CompileError` for a range that the kernel lacks.
    """
    if isinstance(choice, StagedChoice):
        return device_contraction.chosen(ast, target, choice)
    if isinstance(choice, TurnedChoice):
        turned = transposes.choose(ast, target)
        return None if turned is None else (ast, turned)
    if isinstance(choice, WinogradChoice):
        fewer = winograd.choose(ast, target)
        return None if fewer is None else (ast, fewer)
    form = changed(ast, choice.form, target)
    if form is None:
        return None
    kernel = analyse(form)
    if isinstance(choice, SplitChoice):
        return form, _named(form, tiling.chosen(kernel, target, choice), choice.form)
    plan = contraction.chosen(kernel, target, choice)
    return None if plan is None else (form, _named(form, plan, choice.form))


def _named(ast: UOp, plan: LoopNest, form: Form) -> LoopNest:
    """Return the plan of a form of a kernel, with its matrix operation if sums are over words."""
    return replace(plan, matrix=operation(ast)) if form == "words" else plan


def planned_by(ast: UOp, target: Target, choice: Choice) -> tuple[UOp, LoopNest]:
    """Return a kernel after all passes over its AST, and the plan of a choice.

    Raises `CompileError` where the kernel has no such plan.
    """
    found = chosen(prepared(ast), target, choice)
    if found is None:
        raise CompileError(
            f"wanted a choice with a plan on {target.arch}, saw {choice}; try one of compiler.search.space",
            ast=kernel_key(ast),
        )
    return found


def planned(ast: UOp, target: Target) -> tuple[UOp, LoopNest]:
    """Return a kernel after all passes over its AST, and its plan.

    A chain (`compiler.schedule.chains`) gets the plan of `phases.choose`, which calls this for each part.

    1. `hoist_masks` moves masks that both factors of a product share outside the sum.
    2. `merge_ranges` makes one range of neighbours that are used as one.
    3. On a target with shared memory `device_contraction.choose` plans a sum of products, with one range each
       for rows, columns and sum.
    4. There, too, `transposes.choose` plans a kernel that transposes.
    5. For all other kernels `tiling.choose` plans the kernel as it is, and again after `merge_masked_ranges`,
       after `split_ranges` and after `in_words`; one of these is used where its estimated time is below
       `WORTH_CHANGING` of that of the first.
    6. A sum of products that selects remainders of output ranges is also planned in parts (`split_residues`).
    7. A convolution of 3 x 3 taps is also planned with fewer products (`winograd`); that plan is used where
       its estimate is good enough beside the other's (`winograd.is_worth`).
    """
    if ast.arg:
        return ast, phases.choose(ast, target, planned)
    ast = prepared(ast)
    staged = device_contraction.choose(ast, target)
    if staged is not None:
        return staged
    turned = transposes.choose(ast, target)
    if turned is not None:
        return ast, turned
    whole, plan = ast, tiling.choose(ast, target)
    for form in CHANGED:
        made = changed(whole, form, target)
        if made is not None:
            other = tiling.choose(made, target)
            if other.nanoseconds < WORTH_CHANGING * plan.nanoseconds:
                ast, plan = made, _named(made, other, form)
    split = split_residues(whole) if target.chains else None
    if split is not None:
        parted = phases.of_parts(*split, target, plan.nanoseconds, planned)
        if parted.nanoseconds < WORTH_CHANGING * plan.nanoseconds:
            return whole, parted
    fewer = winograd.choose(whole, target, plan)
    return (ast, plan) if fewer is None else (whole, fewer)


@dataclass(frozen=True, slots=True)
class Steps:
    """The results of the steps from an AST to LLVM IR."""

    name: str
    arguments: Arguments
    plan: LoopNest
    lines: list[Line]
    ir: str

    @property
    def dynamic_bytes(self) -> int:
        """The bytes of shared memory that a launch must name."""
        return nest_check.dynamic_bytes(self.plan)


def lower(ast: UOp, target: Target, plan: LoopNest | None = None) -> tuple[str, LoopNest]:
    """Return a kernel's IR text and its plan. With a given plan, the AST is not transformed."""
    made = steps(ast, target, plan)
    return made.ir, made.plan


def steps(
    ast: UOp, target: Target, plan: LoopNest | None = None, choice: Choice | None = None, text: str = ""
) -> Steps:
    """Return the results of all steps. With a given plan, the AST is not transformed.

    `planned`, or `planned_by` with a choice; `nest_check.verify` (plans with threads), `to_lines` (linearize,
    prune, verify), `render`. `text` is that of `kernel_key`, for callers that have it. Raises `CompileError`
    if the plan or the lines do not pass their check.
    """
    args, name = arguments(ast), kernel_name(ast, text)
    if plan is None:
        ast, plan = planned(ast, target) if choice is None else planned_by(ast, target, choice)
    if plan.threads > 1:
        nest_check.verify(plan, target)
    lines = to_lines(ast, plan, args)
    groups, (threads, _, _) = plan.launch()
    ir = render(
        lines, name, len(args.access), len(args.variables), target.dialect, groups=groups, threads=threads
    )
    return Steps(name, args, plan, lines, ir)
