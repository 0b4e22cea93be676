"""Write sums of products over tiles in shared memory: the loop over blocks of the sum.

For each block all threads of a workgroup copy a tile of each operand to shared memory, wait, and add the
products of their register tile. The loads from global memory for a block stand before the barrier at which
all threads have used the tiles of the block before.

Not here: the choice of the tiles (`plan.device_contraction`), other reductions (`reductions`). Next:
`shared_tiles`, the copies, and `device_tile_products`, the products.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from compiler.dtype import dtypes, register_type
from compiler.emit.device_tile_products import MatrixProducts, SharedTileProducts
from compiler.emit.shared_tiles import SharedTile
from compiler.ir import index as symbolic
from compiler.ir.ops import Ops
from compiler.ir.walk import bound_ranges

if TYPE_CHECKING:
    from compiler.emit.emitter import Emitter
    from compiler.emit.linear import Line
    from compiler.ir.uop import UOp
    from compiler.nest.loop_nest import Stage


class StagedSum:
    """The loop of one REDUCE whose operands are staged in shared memory."""

    def __init__(self, e: Emitter, node: UOp) -> None:
        self.e = e
        self.b = e.b
        self.node = node
        self.plan = e.plan
        self.reduction = e.plan.reductions[bound_ranges(node, e.free)]
        (self.k,) = self.reduction.ranges
        self.rows, self.columns = [self._tile(s) for s in e.plan.shared_stages()]
        for tile in (self.rows, self.columns):  # outside the loop
            tile.memory()

    def _tile(self, stage: Stage) -> SharedTile:
        """Return the tile of an operand."""
        dtype = dtypes.uint32 if stage.layout.pack > 1 else register_type(stage.value.dtype)
        return SharedTile(self.e, stage, self.k, self.reduction.staged, dtype)

    def run(self) -> None:
        """Write the loop at the cursor, and record the sums with `Emitter.finish`."""
        b = self.b
        size, block = self.k.arg[1], self.reduction.staged
        inner: SharedTileProducts | MatrixProducts = (
            SharedTileProducts(self.e, self.rows, self.columns)
            if self.plan.matrix is None
            else MatrixProducts(self.e, self.rows, self.columns)
        )
        sums = inner.zeros()
        if size <= block:
            sums = self._block(b.index(0), inner, sums, again=False)
        else:
            count = self.e.limits.rounds(self.k, block, b.index(-(-size // block)))
            loop = b.enter_loop(b.index(0), count, 1, b.cursor)
            carried = [b.carry(loop, s) for s in sums]
            sums = b.leave_loop(loop, self._block(loop.index, inner, carried, again=True))
        units = [self.e.units.get(r) for r in (self.rows.axis.range, self.columns.axis.range)]
        here = {u: self.e.env.get(u, 0) for u in units if u is not None}
        for (row, column), total in inner.results(sums):
            for unit, at in zip(units, (row, column), strict=True):
                if unit is not None:
                    self.e.env[unit] = at
            self.e.finish(self.node, total)
        self.e.env.update(here)

    def _start(self, number: Line) -> UOp:
        """Return the first value of a block of the sum as an index."""
        counter = self.e.index.fresh(-(-self.k.arg[1] // self.reduction.staged))
        if counter.op is Ops.RANGE:
            self.e.index.bound[counter] = number
        return symbolic.mul(counter, self.reduction.staged)

    def _block(
        self, number: Line, inner: SharedTileProducts | MatrixProducts, sums: list[Line], *, again: bool
    ) -> list[Line]:
        """Write the copies and the products of one block of the sum."""
        b = self.b
        loaded = [tile.load(self._start(number), self.e.value) for tile in (self.rows, self.columns)]
        if again:  # other threads still read the tiles of the block before
            b.line("barrier", dtypes.bool, 1)
        for tile, words in zip((self.rows, self.columns), loaded, strict=True):
            tile.store(words)
        return inner.add(sums, b.line("barrier", dtypes.bool, 1))
