"""Sums of products over tiles in shared memory: the loop over blocks of the sum.

With vector loads there is one tile of each operand. For each block all threads of a workgroup copy both
tiles, wait, and add the products of their part of the tiles. The loads from global memory for a block are
before the barrier at which all threads have used the tiles of the block before.

With asynchronous copies there are rings of tiles (`shared_tiles.in_rings`): copies of later blocks run while
a block is multiplied. Operations that take tiles from shared memory start before these copies and end after
them.

Not here: the choice of the tiles (`plan.shared_product`), other reductions (`reductions`, the caller).
Next: `shared_tiles`, the copies; `products`, the operations.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from compiler.dtype import dtypes, register_type
from compiler.emit.products import Products
from compiler.emit.shared_tiles import SharedTile, TileRing, block_start, in_rings
from compiler.ir.walk import bound_ranges

if TYPE_CHECKING:
    from collections.abc import Callable

    from compiler.emit.accesses import Memory
    from compiler.emit.emitter import Emitter
    from compiler.emit.linear import Line
    from compiler.ir.uop import UOp
    from compiler.nest.loop_nest import Mechanism, Stage


class StagedSum:
    """The loop of one REDUCE whose operands are staged in shared memory."""

    def __init__(self, e: Emitter, memory: Memory, node: UOp) -> None:
        self.e = e
        self.b = e.b
        self.memory = memory
        self.node = node
        reduction = e.plan.reductions[bound_ranges(node, e.free)]
        (self.k,) = reduction.ranges
        self.block = reduction.staged
        self.blocks = -(-self.k.arg[1] // self.block)

    def run(self) -> None:
        """Write the loop at the cursor, and record the sums with `Emitter.finish`."""
        e, stages = self.e, self.e.plan.shared_stages()
        products, sums = _LOOPS[stages[0].mechanism](self, *stages)
        units = [e.units.get(reader.axis.range) for reader in (products.rows, products.columns)]
        here = {u: e.env.get(u, 0) for u in units if u is not None}
        for places, total in products.results(sums):
            e.env.update({u: at for u, at in zip(units, places, strict=True) if u is not None})
            e.finish(self.node, total)
        e.env.update(here)

    def in_tiles(self, *stages: Stage) -> tuple[Products, list[Line]]:
        """Write the sum with one tile of each operand; return the products and their sums."""
        b = self.b
        rows, columns = tiles = [self._tile(stage) for stage in stages]
        for tile in tiles:  # outside the loop
            tile.memory()
        products = Products(self.e, rows, columns)

        def block(number: Line, sums: list[Line], *, again: bool) -> list[Line]:
            loaded = [tile.load(self._start(number), self.e.value) for tile in tiles]
            if again:  # other threads still read the tiles of the block before
                b.line("barrier", dtypes.bool, 1)
            for tile, words in zip(tiles, loaded, strict=True):
                tile.store(words)
            return products.add(sums, b.line("barrier", dtypes.bool, 1))

        if self.blocks == 1:
            return products, block(b.index(0), products.zeros(), again=False)
        sums = products.zeros()
        count = self.e.limits.rounds(self.k, self.block, b.index(self.blocks))
        loop = b.enter_loop(b.index(0), count, 1, b.cursor)
        carried = [b.carry(loop, s) for s in sums]
        return products, b.leave_loop(loop, block(loop.index, carried, again=True))

    def _tile(self, stage: Stage) -> SharedTile:
        """Return the tile of an operand."""
        dtype = dtypes.uint32 if stage.layout.pack > 1 else register_type(stage.value.dtype)
        return SharedTile(self.e, stage, self.k, self.block, dtype)

    def _start(self, number: Line) -> UOp:
        """Return the first value of a block of the sum as an index."""
        return block_start(self.e, number, self.blocks, self.block)

    def in_rings(self, *stages: Stage) -> tuple[Products, list[Line]]:
        """Write the sum with a ring of tiles of each operand; return the products and their sums."""
        b, op = self.b, self.e.plan.matrix
        assert op is not None
        rows, columns = rings = [TileRing(self.e, self.memory, s, self.k, self.block) for s in stages]
        products = Products(self.e, rows, columns)

        def copy(number: Line, slot: Line) -> None:
            for ring in rings:
                ring.copy(self._start(number), slot)

        def block(_: Line, sums: list[Line], token: Line, later: Callable[[], None]) -> list[Line]:
            if not op.shared:
                later()
                return products.add(sums, token)
            issued = products.issue(sums)
            later()
            return [b.line("settle", s.dtype, s.lanes, (s,)) for s in issued]

        least, start = self.blocks, products.zeros
        sums = in_rings(b, rings, b.index(least), least=least, copy=copy, start=start, block=block)
        return products, sums


_LOOPS: Final[dict[Mechanism, Callable[..., tuple[Products, list[Line]]]]] = {
    "vector loads": StagedSum.in_tiles,
    "asynchronous copies": StagedSum.in_rings,
}
"""For the mechanism of a sum's stages what writes the loop over blocks."""
