"""Parts of a contraction that are written as loops, because unrolled they would be many lines to compile.

Two parts have lines for every position of the register tile: the operations after the sum, and the copy of a
block to a panel. A line takes about 5 us to write and 40 us to compile. So a part of `LONG` lines or more
becomes a loop over one range of the tile; its body has the positions of the other range side by side.

Not here: the plan (`contraction`, the caller). Next: `emit.results`, `emit.panels`, which write the loops.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from compiler.nest.kernel_shape import inner_nodes, weight
from compiler.plan.contraction_cost import ACROSS

if TYPE_CHECKING:
    from compiler.ir.uop import UOp
    from compiler.plan.contraction_tile import RegisterTile

LONG = 192
"""Lines of an unrolled part from which on it is a loop."""
_ACCESS = 2.0
"""Lines of a load or store with its address."""


def looped_results(tile: RegisterTile) -> UOp | None:
    """Return the range of a tile over which a loop finishes the results; None where they are short.

    A loop over rows has all vectors of a row in its body. Results that are transposed need all rows at once,
    and have a loop over the vectors.
    """
    kernel, columns = tile.kernel, tile.c.columns
    accesses = (*kernel.stores, *kernel.loads)
    apart = sum([tile.along(a.index, columns, tile.lanes) in ACROSS for a in accesses])
    each = kernel.ops + _ACCESS * (len(accesses) - apart)
    lines = tile.vectors * (tile.rows * each + apart * _transposed(tile.lanes, tile.lanes))
    if lines < LONG:
        return None
    candidates = [columns] if apart else [tile.c.rows, columns]
    return next((r for r in candidates if tile.axes[r].upcast > 1), None)


def is_looped(operand: UOp, vectors: int, lanes: int, turn: int) -> bool:
    """Return whether a loop over its vectors copies a block; `turn` values are copied together."""
    each = sum([weight(n.op) for n in inner_nodes((operand,))]) + 2 * _ACCESS
    lines = each * turn if turn == 1 else _transposed(lanes, turn) + each * turn
    return vectors > 1 and vectors * lines >= LONG


def _transposed(lanes: int, rows: int) -> float:
    """Return the lines of a square of `lanes` vectors that is transposed, and of the accesses to its rows."""
    return lanes * math.log2(max(lanes, 1)) + _ACCESS * rows
