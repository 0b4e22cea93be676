"""Write kernels that transpose through shared memory: copies to tiles, and loads across them.

Not here: the plan (`plan.transposes`), the tiles and their copies (`shared_tiles`). Next: `linearize`, the
caller.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from compiler.dtype import dtypes, storage_type
from compiler.emit import conversions
from compiler.emit.shared_tiles import SharedTile
from compiler.ir import index as symbolic

if TYPE_CHECKING:
    from collections.abc import Sequence

    from compiler.emit.accesses import Memory
    from compiler.emit.emitter import Emitter
    from compiler.emit.linear import Line
    from compiler.ir.uop import UOp
    from compiler.nest.loop_nest import Axis, Stage


def fill(e: Emitter, memory: Memory, stages: Sequence[Stage]) -> None:
    """Write the copies to the tiles at the cursor; from then on their operands are loaded from them."""
    tiles = []
    for stage in stages:
        assert stage.across is not None
        kind = storage_type(stage.value.dtype)
        tile = SharedTile(e, stage, stage.across, e.axes[stage.across].block, kind)
        tile.store(tile.load(e.index.starts[stage.across], memory.stored))
        tiles.append(tile)
    token = e.b.line("barrier", dtypes.bool, 1)
    for tile in tiles:
        e.readers[tile.stage.value] = partial(_read, e, tile, token)


def _read(e: Emitter, tile: SharedTile, token: Line, node: UOp) -> Line:
    """Return the vector of a LOAD at the current position, along the results: a value of each of its rows."""
    b, rows, columns = e.b, tile.axis, e.axes[tile.k]
    unit = e.units.get(rows.range)
    place = symbolic.add(_thread(e, rows), symbolic.const(rows.offset(e.env[unit] if unit else 0)))
    values = []
    for n in range(columns.lanes):
        row = symbolic.add(_thread(e, columns), symbolic.const(n))
        values += tile.read(row, place, 1, token)
    vector = values[0] if len(values) == 1 else b.line("vector", tile.dtype, len(values), tuple(values))
    return conversions.unpack(b, vector, node.dtype)


def _thread(e: Emitter, axis: Axis) -> UOp:
    """Return the place of the thread in the block of an axis."""
    ((digit, stride),) = e.digits[axis.range]
    return symbolic.mul(digit, stride)
