"""Write the products of two tiles in shared memory: multiply-adds of a register tile, or matrix operations.

With a matrix operation a thread's part of a block is contiguous: the rows (columns) of adjacent operations
that lie in one register of one lane are neighbours, so that fragments are loaded and results are stored as
vectors. `places` gives this order.

Not here: the tiles (`shared_tiles`), descriptions of matrix operations (`compiler.targets.shared.matrix`).
Next: `device_sum`, the caller.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from compiler.dtype import dtypes
from compiler.ir import index as symbolic
from compiler.targets.shared.matrix import places

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from compiler.emit.emitter import Emitter
    from compiler.emit.linear import Line
    from compiler.emit.shared_tiles import SharedTile
    from compiler.ir.uop import UOp
    from compiler.nest.loop_nest import Axis
    from compiler.targets.shared.matrix import Digit, LaneMap

ROUND = 16
"""Words whose matrix operations are unrolled: the assembler loads their fragments ahead, into registers."""


def in_rounds(
    e: Emitter,
    words: int,
    step: int,
    sums: list[Line],
    one: Callable[[UOp, list[Line]], list[Line]],
) -> list[Line]:
    """Return the sums after all `words` words of a block, in rounds of `step` words.

    `one` adds the round that begins at a word. Several rounds are a loop; less than `step` is one round.
    """
    b, steps = e.b, max(1, words // step)
    if steps == 1:
        return one(symbolic.ZERO, sums)
    loop = b.enter_loop(b.index(0), b.index(steps), 1, b.cursor)
    counter = e.index.fresh(steps)
    e.index.bound[counter] = loop.index
    carried = [b.carry(loop, s) for s in sums]
    return b.leave_loop(loop, one(symbolic.mul(counter, step), carried))


class SharedTileProducts:
    """Multiply-adds of a register tile: each thread loads its rows and its columns of the tiles."""

    def __init__(self, e: Emitter, rows: SharedTile, columns: SharedTile) -> None:
        self.e = e
        self.b = e.b
        self.rows = rows
        self.columns = columns
        self.depth = min(rows.words, 4)

    def zeros(self) -> list[Line]:
        """Return the initial sums, of each row and vector of columns."""
        zero = self.b.const(self.rows.dtype, 0.0, self.columns.axis.lanes)
        return [zero] * (self.rows.axis.upcast * self.columns.axis.upcast)

    def add(self, sums: list[Line], token: Line) -> list[Line]:
        """Add the products of one block."""
        return in_rounds(self.e, self.rows.words, self.depth, sums, partial(self._round, token=token))

    def _round(self, first: UOp, sums: list[Line], token: Line) -> list[Line]:
        b = self.b
        for n in range(self.depth):
            word = symbolic.add(first, symbolic.const(n))
            left = self._values(self.rows, word, token)
            right = self._values(self.columns, word, token)
            sums = [
                b.fma(x, y, total)
                for (x, y), total in zip([(x, y) for x in left for y in right], sums, strict=True)
            ]
        return sums

    def _values(self, tile: SharedTile, word: UOp, token: Line) -> list[Line]:
        """Return the vectors of a thread's part of one row of a tile, in the order of its units."""
        b, axis = self.b, tile.axis
        base = symbolic.dot([d for d, _ in self.e.digits[axis.range]],
                            [c for _, c in self.e.digits[axis.range]])  # fmt: skip
        run = axis.run or axis.upcast
        out: list[Line] = []
        for unit in range(0, axis.upcast, run):
            place = symbolic.add(base, symbolic.const(axis.offset(unit)))
            for vector in tile.read(word, place, run * axis.lanes, token):
                if vector.lanes == axis.lanes:
                    out.append(vector)
                else:
                    assert axis.lanes == 1
                    out += [b.line("extract", vector.dtype, 1, (vector,), n) for n in range(vector.lanes)]
        return out

    def results(self, sums: list[Line]) -> Iterator[tuple[tuple[int, int], Line]]:
        """Yield each sum with its units of rows and columns."""
        columns = self.columns.axis.upcast
        for n, total in enumerate(sums):
            yield divmod(n, columns), total


class MatrixProducts:
    """Matrix operations of a warp on fragments of the tiles."""

    def __init__(self, e: Emitter, rows: SharedTile, columns: SharedTile) -> None:
        assert e.plan.matrix is not None
        self.op = e.plan.matrix
        self.e = e
        self.b = e.b
        self.rows = rows
        self.columns = columns
        _, mine, _ = places(self.op.d.row, 1)
        self.high = rows.axis.upcast * rows.axis.lanes // mine
        _, mine, _ = places(self.op.d.column, 1)
        self.wide = columns.axis.upcast * columns.axis.lanes // mine
        self.row_strides, _, _ = places(self.op.d.row, self.high)
        self.column_strides, _, _ = places(self.op.d.column, self.wide)
        self.lane = e.index.fresh(self.op.lanes)
        thread = e.thread()
        e.index.bound[self.lane] = (
            e.index.modulo(thread, self.op.lanes, signed=False) if e.plan.threads > self.op.lanes else thread
        )
        self.parts = (
            self._parts(columns.axis, self.op.b, self.op.d.column),
            self._parts(rows.axis, self.op.a, self.op.d.row),
        )
        """The reads of B, and of A."""

    def zeros(self) -> list[Line]:
        """Return the initial accumulators of each operation."""
        return [self.b.const(dtypes.float32, 0.0, self.op.d.registers)] * (self.high * self.wide)

    def add(self, sums: list[Line], token: Line) -> list[Line]:
        """Add the products of one block, in rounds of `ROUND` words."""
        return in_rounds(self.e, self.rows.words, ROUND, sums, partial(self._round, token=token))

    def _round(self, start: UOp, sums: list[Line], token: Line) -> list[Line]:
        op, b = self.op, self.b
        for at in range(0, min(self.rows.words, ROUND), op.depth):
            first = symbolic.add(start, symbolic.const(at))
            left = self._fragments(self.rows, op.a.registers, first, token)
            right = self._fragments(self.columns, op.b.registers, first, token)
            pairs = [(x, y) for x in left for y in right]
            sums = [
                b.line("matrix", dtypes.float32, op.d.registers, (*x, *y, total), op)
                for (x, y), total in zip(pairs, sums, strict=True)
            ]
        return sums

    def _fragments(self, tile: SharedTile, registers: int, first: UOp, token: Line) -> list[list[Line]]:
        """Return the words of A (B) of each adjacent operation."""
        adjacent = self.high if tile is self.rows else self.wide
        words: dict[int, list[Line]] = {}
        for relative, place, together in self.parts[tile is self.rows]:
            word = symbolic.add(relative, first)
            values = self._single(tile.read(word, place, adjacent * len(together), token))
            for n, register in enumerate(together):
                words[register] = values[n * adjacent : (n + 1) * adjacent]
        return [[words[register][n] for register in range(registers)] for n in range(adjacent)]

    def _parts(self, axis: Axis, lanes: LaneMap, digits: Sequence[Digit]) -> list[tuple[UOp, UOp, list[int]]]:
        """Return (word of the first step, place, registers) of each read of an operand.

        Registers whose places are neighbours are read together.
        """
        a = axis is self.rows.axis
        strides, adjacent = (self.row_strides, self.high) if a else (self.column_strides, self.wide)
        base = self._warp(axis)
        groups: dict[UOp, list[tuple[UOp, int]]] = {}
        for register in range(lanes.registers):
            row, word = (self._coordinate(of, register) for of in (lanes.row, lanes.column))
            place = base
            for digit in digits:
                part = symbolic.mod(symbolic.div(row, digit.weight), digit.size)
                place = symbolic.add(place, symbolic.mul(part, strides[digit]))
            groups.setdefault(word, []).append((place, register))
        out: list[tuple[UOp, UOp, list[int]]] = []
        for word, members in groups.items():
            apart = [symbolic.add(at, symbolic.mul(members[0][0], -1)) for at, _ in members]
            if apart == [symbolic.const(n * adjacent) for n in range(len(members))]:
                out.append((word, members[0][0], [register for _, register in members]))
            else:
                out += [(word, place, [register]) for place, register in members]
        return out

    def _single(self, vectors: list[Line]) -> list[Line]:
        """Return the values of vectors one by one."""
        out: list[Line] = []
        for v in vectors:
            out += (
                [v] if v.lanes == 1 else [self.b.line("extract", v.dtype, 1, (v,), n) for n in range(v.lanes)]
            )
        return out

    def _coordinate(self, digits: Sequence[Digit], register: int) -> UOp:
        """Return a coordinate of a lane map as an index over the lane."""
        total = symbolic.ZERO
        for d in digits:
            if d.of == "register":
                part = symbolic.const(register // d.step % d.size)
            else:
                part = symbolic.mod(symbolic.div(self.lane, d.step), d.size)
            total = symbolic.add(total, symbolic.mul(part, d.weight))
        return total

    def _warp(self, axis: Axis) -> UOp:
        """Return the first place of the warp in the block of an axis: its digits of whole warps."""
        total = symbolic.ZERO
        for (digit, stride), part in zip(self.e.digits[axis.range], axis.threads, strict=True):
            if part.step >= self.op.lanes:
                total = symbolic.add(total, symbolic.mul(digit, stride))
        return total

    def results(self, sums: list[Line]) -> Iterator[tuple[tuple[int, int], Line]]:
        """Yield the sums of each row and vector of columns, with their units."""
        b, op = self.b, self.op
        lanes, units = self.columns.axis.lanes, self.columns.axis.upcast
        for row in range(self.rows.axis.upcast):
            high, row_register = self._of(op.d.row, self.row_strides, self.high, row)
            for unit in range(units):
                sources = []
                for at in range(unit * lanes, unit * lanes + lanes):
                    wide, register = self._of(op.d.column, self.column_strides, self.wide, at)
                    sources.append((sums[high * self.wide + wide], row_register + register))
                if lanes == 1:
                    ((source, at),) = sources
                    yield (row, unit), b.line("extract", source.dtype, 1, (source,), at)
                else:
                    yield (row, unit), self._vector(sources)

    def _vector(self, sources: list[tuple[Line, int]]) -> Line:
        """Return the vector of one lane of each source; their number is a power of two from 2 on."""
        if len(sources) == 2:
            (x, low), (y, high) = sources
            return self.b.shuffle(x, y, (low, x.lanes + high))
        half = len(sources) // 2
        return self.b.shuffle(self._vector(sources[:half]), self._vector(sources[half:]), range(len(sources)))

    @staticmethod
    def _of(digits: Sequence[Digit], strides: dict[Digit, int], adjacent: int, at: int) -> tuple[int, int]:
        """Return the operation, and the register's part, of a value in a thread's part of the block."""
        register = sum(at // strides[d] % d.size * d.step for d in digits if d.of == "register")
        return at % adjacent, register
