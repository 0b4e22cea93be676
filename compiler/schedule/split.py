"""Large reductions to few elements, split in two: partial results first, then their reduction.

In one kernel, workers could share such a reduction only with synchronisation. The split depends on the shape
and the target, not on the number of workers, so this number does not change the rounding of a sum.

Not here: the loops of a reduction inside one kernel (`compiler.emit.reductions`). Next: `scheduler`, the
caller.
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

from compiler.ir import graph
from compiler.ir.ops import Ops
from compiler.ir.serialize import postorder
from compiler.ir.uop import UOp, uop

if TYPE_CHECKING:
    from collections.abc import Sequence

    from compiler.schedule.analysis import FusionLimits


_MOST_PARTS = 256
"""The most partial results of one result."""
_LEAST = 1024
"""The fewest elements of a partial result, unless the reduction has fewer than twice as many."""
_MOST_PARTS_THREADED = 1024
"""The most partial results of one result, if results are too few for the processors of a device."""
_LEAST_THREADED = 256
"""The fewest elements of a partial result in that case."""
_WORTH = 32
"""The fewest elements for which a second kernel pays in that case, as a multiple of `FusionLimits.split`."""


def split_reductions(outputs: Sequence[UOp], limits: FusionLimits) -> list[UOp]:
    """Return the outputs with every large reduction to few elements split in two."""
    order = postorder(outputs)
    cuts = {x: cut for x in order if x.op is Ops.REDUCE and (cut := _cut(x, limits)) is not None}
    if not cuts:
        return list(outputs)
    new: dict[UOp, UOp] = {}
    for x in order:
        src = tuple([new[s] for s in x.src])
        node = x if src == x.src else uop(x.op, x.dtype, src, x.arg)
        cut = cuts.get(x)
        new[x] = node if cut is None else _two_steps(node, *cut)
    return [new[x] for x in outputs]


def _cut(x: UOp, limits: FusionLimits) -> tuple[int, int] | None:
    """Return the axis to cut and the number of parts, or None if the reduction stays whole."""
    shape = x.src[0].shape
    axes = x.arg[1]
    if not shape:
        return None
    length, results = prod([shape[a] for a in axes]), prod(x.shape)
    enough = limits.groups if len(shape) - 1 in axes else limits.outputs
    if results * 2 <= enough and length * results >= limits.split * _WORTH:
        most = min(_MOST_PARTS_THREADED, -(-enough // results), max(1, length // _LEAST_THREADED))
    elif results < limits.few_rows and length >= limits.split:
        most = min(_MOST_PARTS, max(2, length // _LEAST))
    else:
        return None
    parts, axis = max([(_divisor(shape[a], most), -a) for a in axes])
    return (-axis, parts) if parts > 1 else None


def _divisor(n: int, most: int) -> int:
    """Return the largest divisor of n that is at most `most`."""
    return next(d for d in range(min(n, most), 0, -1) if n % d == 0)


def _two_steps(x: UOp, axis: int, parts: int) -> UOp:
    """Return the reduction in two steps: all but the parts of a cut axis, then the parts."""
    source = x.src[0]
    op, axes = x.arg
    shape = source.shape
    cut = graph.reshape(source, (*shape[:axis], parts, shape[axis] // parts, *shape[axis + 1 :]))
    partial = graph.reduce(cut, op, [a + (a >= axis) for a in axes])
    return graph.reduce(graph.contiguous(partial), op, (axis - sum(1 for a in axes if a < axis),))
