"""Sums over the rows of a matrix that exceeds the caches, in vectors along its columns: in pieces.

A row times a matrix, a sum of columns: a vector of results needs one vector of every row. A block of columns
that runs through all rows reads a few lines of each, far apart in memory, which no prefetcher follows. In
pieces of a few rows, the blocks read these rows side by side, and their totals are in scratch memory.

Not here: sums of several rows at once (`contraction`), the loops (`emit.partials`). Next: `tiling`, the
caller.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod
from typing import TYPE_CHECKING

from compiler.dtype import register_type
from compiler.nest.loop_nest import Reduction, Step

if TYPE_CHECKING:
    from compiler.ir.uop import UOp
    from compiler.nest.kernel_shape import KernelShape
    from compiler.nest.loop_nest import LoopNest, Stage
    from compiler.plan.cost import Model, RangeSplit
    from compiler.targets.shared.target import Target

ROWS = 8
"""Rows of a piece at least: streams that a prefetcher follows side by side."""
PIECES = 512
"""Pieces at most, so that few totals are added one after the other."""
VECTORS = (16, 8)
"""Vectors of a block, at most half of the registers: the most with which there are enough blocks."""
LEAST_BLOCKS = 4
"""Blocks of columns from which on pieces pay."""
RUN = 32
"""Blocks of columns of a workgroup at least, unless cores would be idle."""
TOTAL_BYTES = 16 << 10
"""Bytes of the totals between pieces: they stay in the first-level cache."""


def split_of(kernel: KernelShape, model: Model, split: RangeSplit) -> RangeSplit | None:
    """Return the split of such a sum, in place of one with vectors along the columns; None for others.

    None also on targets with threads, in place, and where the matrix fits the second-level cache.
    """
    v = split.vector
    if model.threaded or kernel.in_place or v is None or len(kernel.families) != 1:
        return None
    (family,) = kernel.families
    if len(family.nodes) != 1 or len(family.ranges) != 1 or split.upcast.keys() - {v}:
        return None
    (r,) = family.ranges
    if family.nodes[0].arg[0] != "ADD" or not set(kernel.outputs) <= family.free:
        return None
    vectors = next((n for n in VECTORS if _divides(v, n * split.lanes, n, model.target)), 0)
    if r.arg[1] < ROWS * ROWS or not vectors:
        return None
    whole = [x for x in family.loads if {v, r} <= x.free]
    far = [x for x in whole if x.itemsize * prod([k.arg[1] for k in x.free]) > model.target.l2_bytes]
    if not far or any(model.kind(x, v, split, split.lanes, aligned=True) != "row" for x in far):
        return None
    return replace(split, upcast={v: vectors})


def _divides(v: UOp, block: int, vectors: int, target: Target) -> bool:
    """Return whether enough whole blocks cover the range, and totals at most half of the registers."""
    size = int(v.arg[1])
    return vectors <= target.registers // 2 and size % block == 0 and size >= LEAST_BLOCKS * block


def in_pieces(kernel: KernelShape, plan: LoopNest, split: RangeSplit, cores: int) -> LoopNest:
    """Return the plan of a split of `split_of` with the loop over pieces outside that over columns.

    The plan itself where the loop over columns is not the last one. Workgroups have long parts of the rows.
    """
    (family,), v = kernel.families, split.vector
    (r,), size = family.ranges, register_type(family.nodes[0].dtype).itemsize
    axis = next(a for a in plan.axes if a.range is v)
    *steps, last = plan.steps
    if not isinstance(last, Step) or last.range is not v:
        return plan
    blocks = axis.count
    outer: list[Step | Stage] = []
    for step in steps:
        if isinstance(step, Step) and step.kind == "group" and step.range is v:
            blocks = max(step.size, min(RUN, -(-axis.count // cores)))
            if blocks < axis.count:
                outer.append(replace(step, size=blocks))
        else:
            outer.append(step)
    held = max(1, TOTAL_BYTES // (axis.block * size))
    chunk = [Step("loop", v, held)] if held < blocks else []
    pieces = Step("loop", r, max(ROWS, -(-r.arg[1] // PIECES)))
    return replace(plan, steps=(*outer, *chunk, pieces, last), reductions={family.ranges: Reduction((r,))})
