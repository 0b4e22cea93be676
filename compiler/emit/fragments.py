"""Fragments: the registers of one thread that hold its part of a tile, for one step of a sum.

The rows of A (or columns of B) of a block belong to threads and operations in an order of the reader:
- `VectorFragments`: values or vectors of a tile of words, for multiply-adds of a register tile.
- `WordFragments`: registers by the lane map of a matrix operation, from a tile of words. A thread's part of
  a block is contiguous: the rows (columns) of adjacent operations that lie in one register of one lane are
  neighbours, so that fragments are loaded and results are stored as vectors. `places` gives this order.
- `MatrixFragments`: matrices of 8 x 8 values, from a ring of tiles. Rows (columns) are in natural order.

Not here: tiles (`shared_tiles`), lane maps (`compiler.targets.shared.matrix`). Next:
`products`, the operations on fragments.
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Protocol

from compiler.emit.shared_tiles import TileRing
from compiler.ir import index as symbolic
from compiler.targets.shared.matrix import places

if TYPE_CHECKING:
    from collections.abc import Sequence

    from compiler.dtype import DType
    from compiler.emit.emitter import Emitter
    from compiler.emit.linear import Line
    from compiler.emit.shared_tiles import SharedTile
    from compiler.ir.uop import UOp
    from compiler.nest.loop_nest import Axis
    from compiler.targets.shared.matrix import Digit, LaneMap, MatrixOp

WORDS = 4
"""Words of a register tile's products that are unrolled."""
OPERATION_WORDS = 16
"""Words whose matrix operations are unrolled: the assembler loads their fragments ahead, into registers."""
MATRICES = 4
"""Matrices of one load of fragments."""
SIDE = 8
"""Rows and columns of such a matrix."""


class Fragments(Protocol):
    """A reader of one operand's fragments."""

    axis: Axis
    count: int
    """Operations along the axis."""
    words: int
    """Words of the tile along the sum."""
    step: int
    """Words along the sum that are unrolled."""
    total: DType
    """The type of accumulators."""

    def read(self, start: UOp, at: int, token: Line) -> list[list[Line]]:
        """Load the registers of each operation for the words from `start + at` on, after `token`."""
        ...

    def place(self, at: int) -> tuple[int, int]:
        """Return the operation and the register (or its part of D's) of a value of the thread's part."""
        ...


def of_tiles(
    e: Emitter, rows: SharedTile | TileRing, columns: SharedTile | TileRing
) -> tuple[Fragments, Fragments]:
    """Return the readers of A and B for the plan's operation; without one, of values and vectors."""
    op = e.plan.matrix
    if isinstance(rows, TileRing) and isinstance(columns, TileRing):
        assert op is not None
        lane = matrix_lane(e)
        return MatrixFragments(e, op, rows, lane), MatrixFragments(e, op, columns, lane, columns=True)
    assert not isinstance(rows, TileRing)
    assert not isinstance(columns, TileRing)
    if op is None:
        return VectorFragments(e, rows), VectorFragments(e, columns)
    number = lane_number(e, op)
    right = WordFragments(e, op, columns, op.b, op.d.column, number)
    return WordFragments(e, op, rows, op.a, op.d.row, number), right


class VectorFragments:
    """A thread's values, or vectors, of one row of a tile of words."""

    def __init__(self, e: Emitter, tile: SharedTile) -> None:
        self.e = e
        self.tile = tile
        self.axis = tile.axis
        self.count = tile.axis.upcast
        self.words = tile.words
        self.step = min(tile.words, WORDS)
        self.total = tile.dtype

    def read(self, start: UOp, at: int, token: Line) -> list[list[Line]]:
        """Load the vectors of the word, in the order of the axis's units."""
        b, axis, digits = self.e.b, self.axis, self.e.digits[self.axis.range]
        word = symbolic.add(start, symbolic.const(at))
        base = symbolic.dot([d for d, _ in digits], [c for _, c in digits])
        run = axis.run or axis.upcast
        out: list[Line] = []
        for unit in range(0, axis.upcast, run):
            place = symbolic.add(base, symbolic.const(axis.offset(unit)))
            for vector in self.tile.read(word, place, run * axis.lanes, token):
                out += [vector] if vector.lanes == axis.lanes else b.each(vector)
        return [[x] for x in out]

    def place(self, at: int) -> tuple[int, int]:
        """Return the vector and the lane of a value."""
        return divmod(at, self.axis.lanes)


class WordFragments:
    """The registers of matrix operations from a tile of words."""

    def __init__(  # noqa: PLR0917  # one caller
        self, e: Emitter, op: MatrixOp, tile: SharedTile, lanes: LaneMap, digits: Sequence[Digit], lane: UOp
    ) -> None:
        """`digits` are those of D's coordinate along the axis; `lane` is bound to the lane of the warp."""
        self.e = e
        self.tile = tile
        self.axis = tile.axis
        self.digits = digits
        self.lane = lane
        self.registers = lanes.registers
        self.words = tile.words
        self.step = min(tile.words, OPERATION_WORDS)
        self.total = op.total
        _, mine, _ = places(digits, 1)
        self.count = tile.axis.upcast * tile.axis.lanes // mine
        self.strides, _, _ = places(digits, self.count)
        self.parts = self._parts(lanes, warp_place(e, tile.axis, op))

    def _parts(self, lanes: LaneMap, base: UOp) -> list[tuple[UOp, UOp, list[int]]]:
        """Return (word of the first step, place, registers) of each read.

        Registers whose places are neighbours are read together.
        """
        groups: dict[UOp, list[tuple[UOp, int]]] = {}
        for register in range(lanes.registers):
            row, word = (self._coordinate(of, register) for of in (lanes.row, lanes.column))
            place = base
            for digit in self.digits:
                part = symbolic.mod(symbolic.div(row, digit.weight), digit.size)
                place = symbolic.add(place, symbolic.mul(part, self.strides[digit]))
            groups.setdefault(word, []).append((place, register))
        out: list[tuple[UOp, UOp, list[int]]] = []
        for word, members in groups.items():
            apart = [symbolic.add(at, symbolic.mul(members[0][0], -1)) for at, _ in members]
            if apart == [symbolic.const(n * self.count) for n in range(len(members))]:
                out.append((word, members[0][0], [register for _, register in members]))
            else:
                out += [(word, place, [register]) for place, register in members]
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

    def read(self, start: UOp, at: int, token: Line) -> list[list[Line]]:
        """Load the registers of each adjacent operation."""
        first = symbolic.add(start, symbolic.const(at))
        found: dict[int, list[Line]] = {}
        for relative, place, together in self.parts:
            word = symbolic.add(relative, first)
            vectors = self.tile.read(word, place, self.count * len(together), token)
            values = [x for v in vectors for x in self.e.b.each(v)]
            for n, register in enumerate(together):
                found[register] = values[n * self.count : (n + 1) * self.count]
        return [[found[register][n] for register in range(self.registers)] for n in range(self.count)]

    def place(self, at: int) -> tuple[int, int]:
        """Return the operation, and the part of D's register, of a value."""
        register = sum(at // self.strides[d] % d.size * d.step for d in self.digits if d.of == "register")
        return at % self.count, register


class MatrixFragments:
    """The registers of matrix operations from a ring of tiles, in matrices of which lanes address rows."""

    def __init__(
        self, e: Emitter, op: MatrixOp, ring: TileRing, lane: tuple[UOp, UOp, UOp], *, columns: bool = False
    ) -> None:
        """The ring has rows of A, or `columns` of B; `lane` are (row in a matrix, low digit, high digit)."""
        self.e = e
        self.ring = ring
        self.axis = ring.axis
        self.lanes, self.digits = (op.b, op.d.column) if columns else (op.a, op.d.row)
        self.size = op.shape[columns]
        self.lane = lane
        mine = prod([digit.size for digit in self.digits if digit.of == "lane"])
        self.count = ring.axis.upcast * ring.axis.lanes * mine // self.size
        self.words = self.step = ring.block // 2
        self.total = op.total
        self.base = warp_place(e, ring.axis, op)

    def read(self, start: UOp, at: int, token: Line) -> list[list[Line]]:
        """Load the registers of each operation."""
        ring, b, lanes = self.ring, self.e.b, self.lanes
        row, *digits = self.lane
        together = MATRICES // lanes.registers
        corners = [
            (n * self.size + _register(lanes.row, r), 2 * _register(lanes.column, r))
            for n in range(together)
            for r in range(lanes.registers)
        ]
        place, summed = (symbolic.dot(digits, (corners[1][axis], corners[2][axis])) for axis in (0, 1))
        if ring.along_sum:
            place = symbolic.add(place, row)
        else:
            summed = symbolic.add(summed, row)
        place, summed = symbolic.add(place, self.base), symbolic.add(summed, symbolic.mul(start, 2))
        words: list[list[Line]] = []
        for n in range(0, self.count, together):
            single = b.each(ring.fragments((place, n * self.size), (summed, 2 * at), token))
            words += [single[k : k + lanes.registers] for k in range(0, MATRICES, lanes.registers)]
        return words

    def place(self, at: int) -> tuple[int, int]:
        """Return the operation, and the part of D's register, of a value."""
        register = 0
        for digit in sorted([d for d in self.digits if d.of == "register"], key=lambda d: d.weight):
            register += at % digit.size * digit.step
            at //= digit.size
        return at, register


def lane_number(e: Emitter, op: MatrixOp) -> UOp:
    """Return a range bound to the thread's number among the lanes of an operation."""
    number, thread = e.index.fresh(op.lanes), e.thread()
    more = e.plan.threads > op.lanes
    e.index.bound[number] = e.index.modulo(thread, op.lanes, signed=False) if more else thread
    return number


def matrix_lane(e: Emitter) -> tuple[UOp, UOp, UOp]:
    """Return ranges bound to the lane's row in a matrix, and to two digits of the number of its matrix."""
    ix, thread = e.index, e.thread()
    row, low, high = ix.fresh(SIDE), ix.fresh(2), ix.fresh(2)
    ix.bound[row] = ix.modulo(thread, SIDE, signed=False)
    ix.bound[low] = ix.modulo(ix.divide(thread, SIDE, signed=False), 2, signed=False)
    ix.bound[high] = ix.modulo(ix.divide(thread, 2 * SIDE, signed=False), 2, signed=False)
    return row, low, high


def _register(digits: Sequence[Digit], register: int) -> int:
    """Return the part of a coordinate that the number of a register gives."""
    return sum(register // d.step % d.size * d.weight for d in digits if d.of == "register")


def warp_place(e: Emitter, axis: Axis, op: MatrixOp) -> UOp:
    """Return the first place of the warp in the block of an axis: its digits of whole warps."""
    total = symbolic.ZERO
    for (digit, stride), part in zip(e.digits[axis.range], axis.threads, strict=True):
        if part.step >= op.lanes:
            total = symbolic.add(total, symbolic.mul(digit, stride))
    return total
