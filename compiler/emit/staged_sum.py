"""Sums of products over tiles in shared memory: the loop over blocks of the sum (`in_blocks`).

With vector loads there is one tile of each operand. For each block all threads of a workgroup copy their
parts of the tiles, wait, and use the tiles. The loads from global memory for a block are before the barrier
at which all threads have used the tiles of the block before.

With asynchronous copies there are rings of n tiles, and copies of later blocks run while a block is used.
Those of the first n - 1 blocks start before the loop. Each round waits for its block and for all threads,
starts the copies to the tiles that the round before has used, and uses its block; so one barrier a round is
enough. Operations that take tiles from shared memory start before these copies and end after them.

Not here: the choice of the tiles (`plan.shared_product`), other reductions (`reductions`, the caller).
Next: `shared_tiles`, the copies; `products`, the operations.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from compiler.dtype import dtypes, register_type
from compiler.emit.products import Products
from compiler.emit.shared_tiles import SharedTile, TileRing, block_start
from compiler.ir.walk import bound_ranges

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from compiler.emit.accesses import Memory
    from compiler.emit.builder import Builder
    from compiler.emit.emitter import Emitter
    from compiler.emit.linear import Line
    from compiler.emit.shared_tiles import Pieces
    from compiler.ir.uop import UOp
    from compiler.nest.loop_nest import Stage

    Load = Callable[[SharedTile | TileRing, Line, Line | None], Pieces]
    Block = Callable[[Line, list[Line], Line, Callable[[], None]], list[Line]]


def write(e: Emitter, memory: Memory, node: UOp) -> None:
    """Write the loop of a REDUCE of staged operands at the cursor; record the sums with `Emitter.finish`."""
    b, op, reduction = e.b, e.plan.matrix, e.plan.reductions[bound_ranges(node, e.free)]
    (k,), size = reduction.ranges, reduction.staged
    blocks = -(-k.arg[1] // size)
    rows, columns = tiles = [tile_of(e, memory, stage, k, size) for stage in e.plan.shared_stages()]
    products = Products(e, rows, columns)

    def load(tile: SharedTile | TileRing, number: Line, slot: Line | None) -> Pieces:
        return tile.load(block_start(e, number, blocks, size), slot)

    def block(_: Line, sums: list[Line], token: Line, later: Callable[[], None]) -> list[Line]:
        if op is None or not op.shared:
            later()
            return products.add(sums, token)
        issued = products.issue(sums)
        later()
        return [b.line("settle", s.dtype, s.lanes, (s,)) for s in issued]

    count = b.index(blocks)
    if blocks > 1 and isinstance(rows, SharedTile):
        count = e.limits.rounds(k, size, count)
    sums = in_blocks(b, tiles, count, least=blocks, load=load, start=products.zeros, block=block)
    units = [e.units.get(reader.axis.range) for reader in (products.rows, products.columns)]
    here = {u: e.env.get(u, 0) for u in units if u is not None}
    for places, total in products.results(sums):
        e.env.update({u: at for u, at in zip(units, places, strict=True) if u is not None})
        e.finish(node, total)
    e.env.update(here)


def tile_of(e: Emitter, memory: Memory, stage: Stage, k: UOp, block: int) -> SharedTile | TileRing:
    """Return the tile or the ring of a stage of a sum, with `block` values of `k` in a tile."""
    if stage.mechanism == "asynchronous copies":
        return TileRing(e, memory, stage, k, block)
    dtype = dtypes.uint32 if stage.layout.pack > 1 else register_type(stage.value.dtype)
    return SharedTile(e, stage, k, block, dtype)


def in_blocks(
    b: Builder, tiles: Sequence[SharedTile | TileRing], count: Line, *, least: int, load: Load,
    start: Callable[[], list[Line]], block: Block
) -> list[Line]:  # fmt: skip
    """Write the loop over `count` blocks of a sum, at least `least`; return the values after it.

    `load(tile, number, slot)` loads a block, or starts its copies to a place of a ring. `start()` returns the
    values before the first block. `block(number, values, token, later)` returns those after a block, whose
    tiles are filled at `token`, and calls `later` once where the copies of a later block may start: all
    threads have used the tiles of the round before.
    """
    rings = [tile for tile in tiles if isinstance(tile, TileRing)]
    if rings:
        return _in_rings(b, rings, count, least, load, start, block)
    words = [tile for tile in tiles if isinstance(tile, SharedTile)]
    for tile in words:  # outside the loop
        tile.memory()
    once = count.op == "const" and count.arg == 1

    def one(number: Line, values: list[Line]) -> list[Line]:
        loaded = [load(tile, number, None) for tile in words]
        if not once:  # other threads still read the tiles of the block before
            b.line("barrier", dtypes.bool, 1)
        for tile, pieces in zip(words, loaded, strict=True):
            tile.store(pieces)
        return block(number, values, b.line("barrier", dtypes.bool, 1), lambda: None)

    return one(b.index(0), start()) if once else b.repeat(b.index(0), count, start(), one)


def _in_rings(  # noqa: PLR0917  # one caller
    b: Builder, rings: Sequence[TileRing], count: Line, least: int, load: Load,
    start: Callable[[], list[Line]], block: Block
) -> list[Line]:  # fmt: skip
    """Write the loop of `in_blocks` with asynchronous copies."""
    depth = rings[0].stage.depth

    def copy(number: Line, slot: Line) -> None:
        for ring in rings:
            load(ring, number, slot)

    ahead = b.enter_loop(b.index(0), b.index(depth - 1), 1, b.cursor)
    branch = b.enter_branch(b.cmp("slt", ahead.index, count)) if least < depth - 1 else None
    copy(ahead.index, ahead.index)
    if branch is not None:
        b.leave_branch(branch)
    b.line("commit", dtypes.bool, 1)
    b.leave_loop(ahead, [])
    values = start()
    loop = b.enter_loop(b.index(0), count, 1, b.cursor)
    carried = [b.carry(loop, value) for value in values]
    slot, free = b.carry(loop, b.index(0)), b.carry(loop, b.index(depth - 1))
    for ring in rings:
        ring.select(slot)
    b.line("wait", dtypes.bool, 1, (), depth - 2)
    if rings[0].stage.layout.panel:  # operations read the tiles themselves
        b.line("publish", dtypes.bool, 1)

    def later() -> None:
        number = b.add(loop.index, b.index(depth - 1))
        branch = b.enter_branch(b.cmp("slt", number, count))
        copy(number, free)
        b.leave_branch(branch)
        b.line("commit", dtypes.bool, 1)

    following = block(loop.index, carried, b.line("barrier", dtypes.bool, 1), later)
    after = b.add(slot, b.index(1))
    after = b.select(b.cmp("eq", after, b.index(depth)), b.index(0), after)
    return b.leave_loop(loop, [*following, after, slot])[: len(values)]
