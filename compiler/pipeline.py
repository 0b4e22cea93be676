"""The steps from a kernel's AST to LLVM IR text: move masks, merge ranges, choose a plan, linearize, render.

`steps` runs all of them, in one order for every target; `planned` is its first half, the passes over the AST.
Chains are planned by `compiler.kernel.phases`, sums of products on a target with shared memory by
`compiler.kernel.device_contraction`, all other kernels by `compiler.kernel.tiling`.

Not here: caches and machine code (`compile`), making the AST (`compiler.schedule`). Next, in this order:
`compiler.kernel.masks`, `compiler.kernel.merge`, `compiler.kernel.tiling`, `compiler.kernel.linearize`,
`compiler.codegen.llvm_ir`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from compiler.codegen.llvm_ir import render
from compiler.ir.ops import Ops
from compiler.ir.walk import ordered
from compiler.kernel import device_contraction, linear, phases, plan_check, tiling
from compiler.kernel.linearize import Linearizer
from compiler.kernel.masks import hoist_masks
from compiler.kernel.merge import merge_masked_ranges, merge_ranges, split_ranges
from compiler.kernel.naming import kernel_name
from compiler.kernel.residues import split_residues

if TYPE_CHECKING:
    from compiler.ir.uop import UOp
    from compiler.kernel.linear import Line
    from compiler.kernel.plan import Plan
    from compiler.targets.base import Target

WORTH_CHANGING = 0.95
"""A kernel with ranges merged or split is used if it takes less than this fraction of the original's time."""


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


def to_lines(ast: UOp, plan: Plan, args: Arguments) -> list[Line]:
    """Return the verified linear form of a kernel under a plan."""
    writer = Linearizer(ast, plan, len(args.access))
    writer.index.variables.update({name: k for k, name in enumerate(args.variables)})
    lines = linear.prune(linear.flatten(writer.run().root))
    linear.verify(lines)
    return lines


def planned(ast: UOp, target: Target) -> tuple[UOp, Plan]:
    """Return a kernel after all passes over its AST, and its plan.

    A chain (`compiler.schedule.chains`) gets the plan of `phases.choose`, which calls this for each part.

    1. `hoist_masks` moves masks that both factors of a product share outside the sum.
    2. `merge_ranges` makes one range of neighbours that are used as one.
    3. On a target with shared memory `device_contraction.choose` plans a sum of products, with one range each
       for rows, columns and sum.
    4. For all other kernels `tiling.choose` plans the kernel as it is, and again after `merge_masked_ranges`
       and after `split_ranges`; one of these is used where its estimated time is below `WORTH_CHANGING` of
       that of the first.
    5. A sum of products that selects remainders of output ranges is also planned in parts (`split_residues`).
    """
    if ast.arg:
        return ast, phases.choose(ast, target, planned)
    ast = merge_ranges(hoist_masks(ast))
    staged = device_contraction.choose(ast, target)
    if staged is not None:
        return staged
    whole, plan = ast, tiling.choose(ast, target)
    for made in (merge_masked_ranges(ast), split_ranges(ast)):
        if made is not None:
            changed = merge_ranges(made)
            other = tiling.choose(changed, target)
            if other.nanoseconds < WORTH_CHANGING * plan.nanoseconds:
                ast, plan = changed, other
    split = split_residues(whole) if target.chains else None
    if split is not None:
        parted = phases.of_parts(*split, target, plan.nanoseconds, planned)
        if parted.nanoseconds < WORTH_CHANGING * plan.nanoseconds:
            return whole, parted
    return ast, plan


@dataclass(frozen=True, slots=True)
class Steps:
    """The results of the steps from an AST to LLVM IR."""

    name: str
    arguments: Arguments
    plan: Plan
    lines: list[Line]
    ir: str


def lower(ast: UOp, target: Target, plan: Plan | None = None) -> tuple[str, Plan]:
    """Return a kernel's IR text and its plan. With a given plan, the AST is not transformed."""
    made = steps(ast, target, plan)
    return made.ir, made.plan


def steps(ast: UOp, target: Target, plan: Plan | None = None) -> Steps:
    """Return the results of all steps. With a given plan, the AST is not transformed.

    `planned`, `plan_check.verify` (plans with threads), `to_lines` (linearize, prune, verify), `render`.
    Raises `CompileError` if the plan or the lines do not pass their check.
    """
    args, name = arguments(ast), kernel_name(ast)
    if plan is None:
        ast, plan = planned(ast, target)
    if plan.threads > 1:
        plan_check.verify(plan, target)
    lines = to_lines(ast, plan, args)
    groups, (threads, _, _) = plan.launch()
    text = render(
        lines, name, len(args.access), len(args.variables), target.dialect, groups=groups, threads=threads
    )
    return Steps(name, args, plan, lines, text)
