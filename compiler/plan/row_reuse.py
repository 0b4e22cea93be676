"""Find values of a row to keep in scratch memory: a reduction computes them, and outputs need them again.

A softmax computes exp(x - max) for its sum over an axis, and again for each of its results along that axis.
If a second computation costs more than a store and a load, the first loop stores the values to a row on the
stack of the worker thread, and the second loop loads them.

Not here: buffers between kernels (`compiler.schedule.fusion`). Next: `nest.loop_nest.ScratchRow`, the result;
`tiling`, the caller.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from compiler.ir.ops import COSTLY
from compiler.nest.kernel_shape import inner_nodes
from compiler.nest.loop_nest import ScratchRow
from compiler.rewrite.range_merging import replace_ranges

if TYPE_CHECKING:
    from compiler.ir.uop import UOp
    from compiler.nest.kernel_shape import Family, KernelShape
    from compiler.plan.cost import RangeSplit

ROW_BYTES = 64 << 10
"""The largest row. It is on a worker's stack, and should stay in the first cache levels."""


def find_rows(kernel: KernelShape, split: RangeSplit) -> tuple[ScratchRow, ...]:
    """Return the rows whose second computation costs more than memory, for a plan with this split."""
    wanted = {n for n in inner_nodes([s.src[2] for s in kernel.ast.src]) if n.op in COSTLY}
    out: list[ScratchRow] = []
    for family in kernel.families:
        alone = split.vector not in family.free and not any(r in split.upcast for r in family.free)
        if len(family.ranges) == 1 and alone:
            out += _of_family(kernel, family, wanted - {row.twin for row in out})
    return tuple(out)


def _of_family(kernel: KernelShape, family: Family, wanted: set[UOp]) -> list[ScratchRow]:
    (k,) = family.ranges
    outs = [r for r in kernel.outputs if r not in family.free and r.arg[1] == k.arg[1]]
    found: list[ScratchRow] = []
    for filler in family.nodes:
        for node in inner_nodes(filler.src):
            if node.op not in COSTLY or k not in kernel.free[node] or k.arg[1] * 8 > ROW_BYTES:
                continue
            for c in outs:
                twin = replace_ranges(node, {k: c})
                if twin in wanted and all(row.twin is not twin for row in found):
                    found.append(ScratchRow(node, twin, k, c, filler))
    return found
