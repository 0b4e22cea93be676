"""Count the lines of the cache that a register tile reads in place: neighbours along rows, and their sums.

The rows of a convolution are places beside each other in the picture, and the summed ranges go around them:
a few lines of the picture hold all that a tile multiplies. Such an operand needs no panels.

Not here: which operand is broadcast (`roles`), the plan (`contraction`, the caller).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from compiler.ir import index as symbolic
from compiler.ir.ops import Ops

if TYPE_CHECKING:
    from collections.abc import Iterable

    from compiler.ir.uop import UOp

LINE = 64
"""Bytes of a line of the caches."""


def lines_of(index: UOp, rows: UOp, block: int, summed: Iterable[UOp], itemsize: int) -> int | None:
    """Return the lines that `block` neighbours along `rows` touch as the summed ranges run.

    None where neighbours are not within a line of each other, or the index has more than sums of ranges.
    """
    terms, _ = symbolic.terms_of(index)
    if any(atom.op is not Ops.RANGE for atom in terms):
        return None
    step = abs(terms.get(rows, 0))
    if not 0 < step * itemsize <= LINE:
        return None
    span, apart = step * (block - 1), 1
    for r in summed:
        distance = abs(terms.get(r, 0))
        if distance * itemsize <= LINE:
            span += distance * (r.arg[1] - 1)
        else:
            apart *= r.arg[1]
    return apart * (2 + span * itemsize // LINE)
