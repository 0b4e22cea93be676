"""The steps from a kernel's AST to a text for its target: choose a plan, linearize, verify, render.

`steps` runs all of them, in one order for every target. Its first half, the passes over the AST and the
choice of a plan, is `planned`.

Not here: caches and machine code (`compile`), making the AST (`compiler.schedule`). Next, in this order:
`compiler.rewrite.mask_hoisting`, `compiler.rewrite.range_merging`, `compiler.plan.proposers`,
`compiler.emit.linearize`, `compiler.text`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from compiler.emit import linear
from compiler.emit.linearize import Linearizer
from compiler.ir.naming import kernel_name
from compiler.ir.ops import Ops
from compiler.ir.serialize import kernel_key
from compiler.ir.walk import ordered
from compiler.nest import merge_check, nest_check
from compiler.plan.proposal import prepared
from compiler.plan.proposers import best, chosen
from hcq.errors import CompileError

if TYPE_CHECKING:
    from compiler.emit.linear import Line
    from compiler.ir.uop import UOp
    from compiler.nest.loop_nest import LoopNest
    from compiler.plan.choice import Choice
    from compiler.targets.shared.target import Target


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
    """Return the verified linear form of a kernel under a plan.

    Raises `CompileError` if the verifier finds an error in it.
    """
    lines, slots = written(ast, plan, args), range(len(args.access))
    linear.verify(lines)
    for line in lines:
        if line.op == "argument" and line.arg not in slots:
            text = f"linear form: {line} is argument {line.arg} of {len(slots)}"
            raise CompileError(text, ast=linear.dump(lines))
    return lines


def written(ast: UOp, plan: LoopNest, args: Arguments) -> list[Line]:
    """Return the linear form of a kernel under a plan, without the check."""
    if plan.phases and plan.beside:
        lines: list[Line] = []
        for phase in plan.phases:
            lines.append(linear.part(phase.plan.launch()[0][0]))
            lines += written(phase.ast, phase.plan, args)
        return lines
    writer = Linearizer(ast, plan, len(args.access))
    writer.e.index.variables.update({name: k for k, name in enumerate(args.variables)})
    return linear.prune(linear.flatten(writer.run().root))


def planned(ast: UOp, target: Target) -> tuple[UOp, LoopNest]:
    """Return a kernel after all passes over its AST, and its plan: the best proposal of all proposers.

    Raises `CompileError` for a chain that has no plan on a GPU (`online_product.propose`).
    """
    found = best(prepared(ast), target)
    return found.ast, found.plan


def planned_by(ast: UOp, target: Target, choice: Choice) -> tuple[UOp, LoopNest]:
    """Return a kernel after all passes over its AST, and the plan of a choice.

    Raises `CompileError` where the kernel has no such plan.
    """
    found = chosen(prepared(ast), target, choice)
    if found is None:
        raise CompileError(
            f"wanted a choice with a plan on {target.arch}, saw {choice}; try one of frontend.tuning.space",
            ast=kernel_key(ast),
        )
    return found.ast, found.plan


@dataclass(frozen=True, slots=True)
class Steps:
    """The results of the steps from an AST to the text of the target."""

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
    """Return a kernel's IR text and its plan.

    With a given plan, the AST is not transformed. Raises as `steps`.
    """
    made = steps(ast, target, plan)
    return made.ir, made.plan


def steps(
    ast: UOp, target: Target, plan: LoopNest | None = None, choice: Choice | None = None, text: str = ""
) -> Steps:
    """Return the results of all steps. With a given plan, the AST is not transformed.

    `planned`, or `planned_by` with a choice; `nest_check.verify` (plans with threads), `to_lines` (linearize,
    prune, verify), `Target.render`. `text` is that of `kernel_key`, for callers that have it. Raises
    `CompileError` if the plan or the lines do not pass their check, and as `planned` and `planned_by`.
    """
    args, name, given = arguments(ast), kernel_name(ast, text), ast
    if plan is None:
        ast, plan = planned(ast, target) if choice is None else planned_by(ast, target, choice)
    if plan.threads > 1:
        nest_check.verify(plan, target)
    if plan.phases:
        nest_check.verify_parts(ast, plan)
    if plan.online is not None and given.src[0].op is Ops.SINK:
        merge_check.verify_merged(given, ast, plan.online)
    lines = to_lines(ast, plan, args)
    groups, (threads, _, _) = plan.launch()
    ir = target.render(lines, name, (len(args.access), len(args.variables)), target, groups, threads)
    return Steps(name, args, plan, lines, ir)
