"""Prefetch the next row of a kernel that reads each row several times, such as a softmax.

A softmax reads a row from memory for its maximum; later loops find the row in the caches. While they compute
exponentials, the memory would be idle: a hardware prefetcher cannot predict the next row. So of the loops
that read the row again, the one with the most arithmetic also prefetches the same elements of the next row.

Not here: the instructions (`emit.accesses`). Next: `tiling`, the caller; `nest.loop_nest.Ahead`, the result.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from compiler.ir import index as symbolic
from compiler.ir.ops import Ops
from compiler.nest.kernel_shape import PROBE, inner_nodes, weight
from compiler.nest.loop_nest import Ahead, Step

if TYPE_CHECKING:
    from collections.abc import Sequence

    from compiler.ir.uop import UOp
    from compiler.nest.kernel_shape import KernelAccess, KernelShape
    from compiler.nest.loop_nest import Axis, LoopNest, ScratchRow
    from compiler.plan.cost import Model, RangeSplit

LEAST_BYTES = 2048
"""Bytes that are fetched ahead at least: shorter rows are fetched several rows ahead. It takes longer to read
so many from the first caches than one line from memory."""
CACHE_PART = 4
"""A row and the one after it take at most this part of the second-level cache."""


def find_ahead(kernel: KernelShape, model: Model, split: RangeSplit, plan: LoopNest) -> tuple[Ahead, ...]:
    """Return the loads with which another row is fetched: one for each row that is read again.

    `plan` has the split's axes and steps, and the rows that the kernel keeps in scratch memory.
    """
    if model.threaded or kernel.in_place or not any(_far(x, model) for f in kernel.families for x in f.loads):
        return ()
    outer = _rows(split, plan)
    if outer is None:
        return ()
    found: dict[object, list[tuple[float, UOp, KernelAccess]]] = {}
    for along, loads, work in _loops(kernel, model, split, plan.rows):
        for load in loads:
            if along is not outer.range and _is_row(load, along, outer.range, model):
                row = symbolic.substitute(load.index, {along: symbolic.loop(PROBE, along.arg[1])}, {})
                found.setdefault((load.node.src[0].arg, row), []).append((work, along, load))
    again = [max(uses[1:], key=lambda use: use[0]) for uses in found.values() if len(uses) > 1]
    return tuple([_ahead(along, load, outer) for _, along, load in again])


def _loops(
    kernel: KernelShape, model: Model, split: RangeSplit, rows: Sequence[ScratchRow]
) -> list[tuple[UOp, list[KernelAccess], float]]:
    """Return (range of the vectors, loads, operations of a value) of the loops over rows, in order."""
    loops: list[tuple[UOp, list[KernelAccess], float]] = []
    for family in kernel.families:
        along = model.inner(family, split).vector
        if along is not None and len(family.ranges) == 1:
            loops.append((along, family.loads, family.ops + family.fused))
    v = split.vector
    if v is not None:
        inside = inner_nodes([s.src[2] for s in kernel.ast.src], frozenset([row.twin for row in rows]))
        work = sum([weight(n.op) for n in inside if v in kernel.free[n]])
        loops.append((v, [x for x in kernel.loads if x.node in inside], work))
    return loops


def _rows(split: RangeSplit, plan: LoopNest) -> Axis | None:
    """Return the axis of the innermost loop around the row, one block after the other; None without."""
    axis = {a.range: a for a in plan.axes}
    loops = [s for s in plan.steps if isinstance(s, Step) and s.kind == "loop"]
    last = [s for s in loops if s.range is not split.vector and axis[s.range].count > 1][-1:]
    return axis[last[0].range] if last and last[0].size == 1 and axis[last[0].range].edge == "exact" else None


def _far(load: KernelAccess, model: Model) -> bool:
    """Return whether an operand exceeds the last cache."""
    nbytes = load.itemsize
    for r in load.free:
        nbytes *= r.arg[1]
    return 0 < model.target.last_level_bytes < nbytes


def _is_row(load: KernelAccess, along: UOp, outer: UOp, model: Model) -> bool:
    """Return whether a load reads a row of adjacent elements of a matrix that exceeds the last cache."""
    terms, _ = symbolic.terms_of(load.index)
    if load.masked or not {along, outer} <= load.free or any(a.op is not Ops.RANGE for a in terms):
        return False
    row = max(int(along.arg[1]) * load.itemsize, LEAST_BYTES)
    if not _far(load, model) or row * CACHE_PART > model.target.l2_bytes:
        return False
    return terms.get(along) == 1 and terms.get(outer, 0) > 0


def _ahead(along: UOp, load: KernelAccess, outer: Axis) -> Ahead:
    terms, _ = symbolic.terms_of(load.index)
    row = int(along.arg[1]) * load.itemsize * outer.block
    return Ahead(load.node, terms[outer.range] * outer.block * -(-LEAST_BYTES // row))
