"""Write sums of products over rings of tiles: copies of later blocks run while a block is multiplied.

With n places in the ring, the copies of the first n - 1 blocks start before the loop. Each round waits for
its block and for all threads, starts the copies to the place that the round before has used, and adds the
products of its block; so one barrier a round is enough. Operations that take tiles from shared memory start
before these copies and end after them.

Not here: the choice of the tiles (`plan.device_contraction`), sums with one tile (`device_sum`). Next:
`tile_rings`, the copies, and `compiler.targets.shared.matrix`, the lane maps.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from compiler.dtype import dtypes
from compiler.emit.tile_rings import TileRing
from compiler.ir import index as symbolic
from compiler.ir.walk import bound_ranges
from compiler.targets.shared.matrix import SharedOperand, SharedProducts

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from compiler.emit.accesses import Memory
    from compiler.emit.emitter import Emitter
    from compiler.emit.linear import Line
    from compiler.ir.uop import UOp
    from compiler.nest.loop_nest import Axis
    from compiler.targets.shared.matrix import Digit, LaneMap

MATRICES = 4
"""Matrices of one load of fragments."""
SIDE = 8
"""Rows and columns of such a matrix."""


class PipelinedSum:
    """The loop of one REDUCE whose operands are copied asynchronously."""

    def __init__(self, e: Emitter, memory: Memory, node: UOp) -> None:
        self.e = e
        self.b = e.b
        self.node = node
        self.reduction = e.plan.reductions[bound_ranges(node, e.free)]
        (self.k,) = self.reduction.ranges
        stages = e.plan.shared_stages()
        self.depth = stages[0].depth
        self.rows, self.columns = [TileRing(e, memory, s, self.k, self.reduction.staged) for s in stages]
        assert e.plan.matrix is not None
        self.shared = e.plan.matrix.shared
        self.products = _Products(e, self.rows, self.columns)

    def run(self) -> None:
        """Write the loop at the cursor, and record the sums with `Emitter.finish`."""
        b, e = self.b, self.e
        blocks = -(-self.k.arg[1] // self.reduction.staged)
        ahead = b.enter_loop(b.index(0), b.index(self.depth - 1), 1, b.cursor)
        if blocks < self.depth - 1:
            branch = b.enter_branch(b.cmp("slt", ahead.index, b.index(blocks)))
            self._copy(ahead.index, ahead.index)
            b.leave_branch(branch)
        else:
            self._copy(ahead.index, ahead.index)
        b.line("commit", dtypes.bool, 1)
        b.leave_loop(ahead, [])
        sums = self.products.zeros()
        loop = b.enter_loop(b.index(0), b.index(blocks), 1, b.cursor)
        carried = [b.carry(loop, s) for s in sums]
        slot, free = b.carry(loop, b.index(0)), b.carry(loop, b.index(self.depth - 1))
        b.line("wait", dtypes.bool, 1, (), self.depth - 2)
        if self.shared:
            b.line("publish", dtypes.bool, 1)
        token = b.line("barrier", dtypes.bool, 1)
        added = self.products.issue(carried, slot) if self.shared else carried
        later = b.add(loop.index, b.index(self.depth - 1))
        branch = b.enter_branch(b.cmp("slt", later, b.index(blocks)))
        self._copy(later, free)
        b.leave_branch(branch)
        b.line("commit", dtypes.bool, 1)
        if self.shared:
            added = [b.line("settle", dtypes.float32, s.lanes, (s,)) for s in added]
        else:
            added = self.products.add(carried, slot, token)
        after = b.add(slot, b.index(1))
        after = b.select(b.cmp("eq", after, b.index(self.depth)), b.index(0), after)
        sums = b.leave_loop(loop, [*added, after, slot])[: len(sums)]
        units = [e.units.get(r) for r in (self.rows.axis.range, self.columns.axis.range)]
        here = {u: e.env.get(u, 0) for u in units if u is not None}
        for (row, column), total in self.products.results(sums):
            for unit, at in zip(units, (row, column), strict=True):
                if unit is not None:
                    e.env[unit] = at
            e.finish(self.node, total)
        e.env.update(here)

    def _copy(self, number: Line, slot: Line) -> None:
        """Start the copies of a block of the sum to a place of the rings."""
        self.rows.copy(number, slot)
        self.columns.copy(number, slot)


class _Products:
    """Matrix operations of a warp on fragments of the tiles; rows and columns are in their natural order."""

    def __init__(self, e: Emitter, rows: TileRing, columns: TileRing) -> None:
        assert e.plan.matrix is not None
        self.op = e.plan.matrix
        self.e = e
        self.b = e.b
        self.rows = rows
        self.columns = columns
        m, n, _ = self.op.shape
        self.high = rows.axis.upcast * rows.axis.lanes * _lanes(self.op.d.row) // m
        self.wide = columns.axis.upcast * columns.axis.lanes * _lanes(self.op.d.column) // n
        index = e.index
        thread = e.thread()
        self.row, self.low, self.top = index.fresh(SIDE), index.fresh(2), index.fresh(2)
        index.bound[self.row] = index.modulo(thread, SIDE, signed=False)
        index.bound[self.low] = index.modulo(index.divide(thread, SIDE, signed=False), 2, signed=False)
        index.bound[self.top] = index.modulo(index.divide(thread, 2 * SIDE, signed=False), 2, signed=False)

    def zeros(self) -> list[Line]:
        """Return the initial accumulators of each operation."""
        return [self.b.const(dtypes.float32, 0.0, self.op.d.registers)] * (self.high * self.wide)

    def add(self, sums: list[Line], slot: Line, token: Line) -> list[Line]:
        """Add the products of the block in a place of the rings."""
        op, b, k = self.op, self.b, self.op.shape[2]
        for first in range(0, self.rows.block, k):
            left = self._operands(self.rows, op.a, op.shape[0], self.high, slot, first, token)
            right = self._operands(self.columns, op.b, op.shape[1], self.wide, slot, first, token)
            sums = [
                b.line("matrix", dtypes.float32, op.d.registers, (*x, *y, total), op)
                for (x, y), total in zip([(x, y) for x in left for y in right], sums, strict=True)
            ]
        return sums

    def issue(self, sums: list[Line], slot: Line) -> list[Line]:
        """Start the products of the block in a place of the rings: an operation for each step of k."""
        (total,) = sums
        addresses: list[Line] = []
        operands: list[SharedOperand] = []
        for ring in (self.rows, self.columns):
            place, tile = self._warp(ring.axis), ring.place(slot)
            row, along = (place, symbolic.ZERO) if ring.along_sum else (symbolic.ZERO, place)
            addresses.append(ring.address(tile, row, along))
            operands.append(SharedOperand(not ring.along_sum, 2 * ring.pitch * ring.outer))
        a, b = operands
        what = SharedProducts(self.op, a, b, self.rows.block // self.op.shape[2])
        return [self.b.line("issue", dtypes.float32, total.lanes, (*addresses, total), what)]

    def _operands(  # noqa: PLR0917  # two callers, side by side
        self, ring: TileRing, lanes: LaneMap, size: int, count: int, slot: Line, first: int, token: Line
    ) -> list[list[Line]]:
        """Return the words of A (B) of `count` operations, each of `size` rows (columns)."""
        tile, base = ring.place(slot), self._warp(ring.axis)
        together = MATRICES // lanes.registers
        corners = [
            (n * size + _register(lanes.row, r), 2 * _register(lanes.column, r))
            for n in range(together)
            for r in range(lanes.registers)
        ]
        place, summed = (
            symbolic.dot((self.low, self.top), (corners[1][axis], corners[2][axis])) for axis in (0, 1)
        )
        if ring.along_sum:
            place = symbolic.add(place, self.row)
        else:
            summed = symbolic.add(summed, self.row)
        place = symbolic.add(place, base)
        words: list[list[Line]] = []
        for n in range(0, count, together):
            loaded = ring.fragments(tile, (place, n * size), (summed, first), token)
            single = [self.b.line("extract", loaded.dtype, 1, (loaded,), r) for r in range(MATRICES)]
            words += [single[at : at + lanes.registers] for at in range(0, MATRICES, lanes.registers)]
        return words

    def _warp(self, axis: Axis) -> UOp:
        """Return the first place of the warp in the block of an axis: its digits of whole warps."""
        total = symbolic.ZERO
        for (digit, stride), part in zip(self.e.digits[axis.range], axis.threads, strict=True):
            if part.step >= self.op.lanes:
                total = symbolic.add(total, symbolic.mul(digit, stride))
        return total

    def results(self, sums: list[Line]) -> Iterator[tuple[tuple[int, int], Line]]:
        """Yield the vectors of columns of each row, with their units."""
        op, lanes = self.op, self.columns.axis.lanes
        for row in range(self.rows.axis.upcast):
            high, upper = _unit(op.d.row, row)
            for column in range(self.columns.axis.upcast):
                wide, left = _unit(op.d.column, column * lanes)
                source, first = sums[high * self.wide + wide], upper + left
                if lanes == 1:
                    yield (row, column), self.b.line("extract", source.dtype, 1, (source,), first)
                else:
                    yield (row, column), self.b.shuffle(source, source, range(first, first + lanes))


def _lanes(digits: Sequence[Digit]) -> int:
    """Return the values of a coordinate that lie in different lanes."""
    total = 1
    for digit in digits:
        total *= digit.size if digit.of == "lane" else 1
    return total


def _register(digits: Sequence[Digit], register: int) -> int:
    """Return the part of a coordinate that the number of a register gives."""
    return sum(register // d.step % d.size * d.weight for d in digits if d.of == "register")


def _unit(digits: Sequence[Digit], at: int) -> tuple[int, int]:
    """Return the operation, and the register's part, of the value `at` of a thread along a coordinate."""
    register = 0
    for digit in sorted([d for d in digits if d.of == "register"], key=lambda d: d.weight):
        register += at % digit.size * digit.step
        at //= digit.size
    return at, register
