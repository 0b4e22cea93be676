"""Propose a plan of a chain of kernels: blocks of rows, for each of which all parts run, one after the other.

The matrices between the parts are in scratch memory, as many rows as half of the second-level cache holds.
With the shared ranges fixed, a part is an ordinary kernel over the rows of a block, with an ordinary plan.

Not here: which kernels are a chain (`compiler.schedule.chains`). Next: `proposers`, the caller;
`emit.linearize`, which writes the parts.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod
from typing import TYPE_CHECKING, Literal

from compiler.dtype import dtypes, storage_type
from compiler.ir import index as symbolic
from compiler.ir.ops import Ops
from compiler.ir.uop import UOp, uop
from compiler.ir.walk import by_number, ordered, rebuilt, slots_between
from compiler.nest.loop_nest import Axis, KeptMatrix, LoopNest, Phase, Step, starts_of
from compiler.plan.choice import PartsChoice
from compiler.plan.proposal import GROUP_NS, GROUPS_PER_CORE, Proposal, divided, prepared
from compiler.rewrite import online_softmax
from compiler.rewrite.range_merging import replace_ranges
from compiler.rewrite.residue_classes import split_residues

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from compiler.dtype import DType
    from compiler.emit.linear import Line
    from compiler.nest.loop_nest import Edge
    from compiler.plan.proposal import KernelForm
    from compiler.targets.shared.target import Target

    When = Literal["before", "each", "after", "beside"]
    Best = Callable[[KernelForm, Target], Proposal]
    Places = dict[UOp, Line]
    Buffers = dict[int, tuple[Line, Line]]

LEAST_ROWS = 32
"""Rows of a block at least, where a matrix has as many: each block copies the operands of products."""

LONG_ROWS = 64
"""Rows of a block from which on whole rows are kept; with fewer, rows are cut into pieces where possible."""


def propose_chain(kernel: KernelForm, target: Target, best: Best) -> Iterator[Proposal]:
    """Yield the plan of a chain; none for any other kernel. `best` plans a part."""
    if kernel.ast.arg:
        plan = (_of_chain if kernel.ast.arg[1] else _of_kernels)(kernel.ast, target, best)
        yield Proposal(kernel.ast, plan.nanoseconds, plan, PartsChoice())


def propose_residues(
    kernel: KernelForm, target: Target, nanoseconds: float, best: Best
) -> Iterator[Proposal]:
    """Yield the plan with a part for each remainder of output ranges (`split_residues`); none without any.

    None also on a target without plans of chains. `best` plans a part. The number of workgroups follows from
    an estimate of the whole time.
    """
    found = split_residues(kernel.ast) if target.chains else None
    if found is not None:
        plan = _of_parts(*found, target, nanoseconds, best)
        yield Proposal(kernel.ast, plan.nanoseconds, plan, PartsChoice())


def _of_chain(ast: UOp, target: Target, best: Best) -> LoopNest:
    """Return the plan of a chain."""
    externals, shared = ast.arg
    ranges = by_number(
        {n for n in ordered(ast.src[-1]) if n.op is Ops.RANGE and n.arg[0] < shared})
    rows = ranges[-1]
    matrices = _matrices(ast, rows)
    nbytes = sum([width * dtype.itemsize for width, dtype in matrices.values()])
    most = max(LEAST_ROWS, target.l2_bytes // 2 // nbytes)
    stored = min(matrices) < externals  # then there are no pieces, and blocks do not change the rounding
    if stored:
        most = min(most, max(LEAST_ROWS, _rows(ranges) // max(1, GROUPS_PER_CORE * target.cores)))
    block = -(-rows.arg[1] // -(-rows.arg[1] // most))
    parts = [_of_block(part, ranges, block, externals) for part in ast.src]
    cut = None
    if block < min(LONG_ROWS, rows.arg[1]) and not stored:
        long = -(-rows.arg[1] // -(-rows.arg[1] // LONG_ROWS))
        longer = [_of_block(part, ranges, long, externals) for part in ast.src]
        first = 1 + max(matrices)
        cut = online_softmax.in_pieces(longer, symbolic.loop(rows.arg[0], long), first)
        block = block if cut is None else long
    alone = replace(target, cores=0)  # the workgroups are those of the chain
    if cut is None:
        phases = tuple([_phase(part, alone, best) for part in parts])
        kept = tuple([
            KeptMatrix(slot, dtype, width * block if slot >= externals else 0)
            for slot, (width, dtype) in matrices.items()
        ])
        pieces = None
    else:
        phases = (
            *[_phase(part, alone, best) for part in cut.before],
            *[_phase(part, alone, best, "each") for part in cut.each],
            *[_phase(part, alone, best, "after") for part in cut.after],
        )
        kept = tuple([KeptMatrix(slot, dtypes.float32, count) for slot, count in cut.kept.items()])
        pieces = cut.start, cut.size, cut.count
    edge: Edge = "exact" if rows.arg[1] % block == 0 else "overlap"
    axes = (*[Axis(r) for r in ranges[:-1]], Axis(rows, block, 1, edge))
    once = sum([p.plan.nanoseconds * (pieces[2] if pieces and p.when == "each" else 1) for p in phases])
    total = once * prod([a.count for a in axes])
    steps = steps_of(axes, _groups(total, target))
    return LoopNest(axes, steps, nanoseconds=total, phases=phases, kept=kept, pieces=pieces)


def _of_kernels(ast: UOp, target: Target, best: Best) -> LoopNest:
    """Return the plan of kernels beside each other (`compiler.schedule.operands`): each has its own plan."""
    phases = tuple([_phase(part, target, best, "beside") for part in ast.src])
    return LoopNest((), (), nanoseconds=sum([p.plan.nanoseconds for p in phases]), phases=phases)


def _of_parts(
    parts: Sequence[UOp], left: Sequence[UOp], target: Target, nanoseconds: float, best: Best
) -> LoopNest:
    """Return a plan that runs kernels one after the other; all have the output ranges `left`.

    The first of these that is long enough, or the longest, is divided among workgroups; `nanoseconds` is an
    estimate of the whole time.
    """
    wanted = max(1, _groups(nanoseconds, target))
    rows = max(left, key=lambda r: (min(wanted, int(r.arg[1])), -int(r.arg[0])))
    block = -(-rows.arg[1] // wanted)
    alone = replace(target, cores=0)
    phases = tuple([_phase(_of_block(part, [rows], block), alone, best) for part in parts])
    axes = (Axis(rows, block, 1, "exact" if rows.arg[1] % block == 0 else "overlap"),)
    total = sum([p.plan.nanoseconds for p in phases]) * axes[0].count
    return LoopNest(axes, steps_of(axes, _groups(total, target)), nanoseconds=total, phases=phases)


def _phase(part: UOp, target: Target, best: Best, when: When = "before") -> Phase:
    """Return a part with its plan."""
    made = best(prepared(part), target)
    return Phase(made.ast, made.plan, when)


def _matrices(ast: UOp, rows: UOp) -> dict[int, tuple[int, DType]]:
    """Return the elements of a row, and the stored type, of each matrix between the parts, by slot."""
    found, between = {}, slots_between(ast.src)
    for part in ast.src:
        for store in part.src:
            if store.src[0].arg in between:
                width = symbolic.terms_of(store.src[1])[0][rows]
                found[store.src[0].arg] = width, storage_type(store.src[0].dtype)
    return found


def _rows(ranges: Sequence[UOp]) -> int:
    return prod([int(r.arg[1]) for r in ranges])


def _groups(nanoseconds: float, target: Target) -> int:
    """Return the wanted workgroups."""
    return int(min(nanoseconds / GROUP_NS, GROUPS_PER_CORE * target.cores))


def steps_of(axes: tuple[Axis, ...], wanted: int) -> tuple[Step, ...]:
    """Return about as many workgroups along the shared ranges, outermost first, and the loops over blocks."""
    return (*divided(axes, wanted), *[Step("loop", axis.range) for axis in axes])


def _of_block(part: UOp, ranges: list[UOp], block: int, externals: int | None = None) -> UOp:
    """Return a part for the rows of one block; matrices between parts, if any, begin at the block."""
    starts = starts_of(ranges, block)
    rows = ranges[-1]
    env = starts | {rows: symbolic.add(starts[rows], symbolic.loop(rows.arg[0], block))}
    made = replace_ranges(part, env)

    def change(n: UOp, src: tuple[UOp, ...]) -> UOp | None:
        if externals is None or n.op not in (Ops.LOAD, Ops.STORE) or n.src[0].arg < externals:
            return None
        terms, _ = symbolic.terms_of(n.src[1])
        within = {a: c for a, c in terms.items() if a not in starts.values()}
        return uop(n.op, n.dtype, (src[0], symbolic.linear(within, 0), *src[2:]), n.arg)

    return rebuilt(ordered(made), change)[made]
