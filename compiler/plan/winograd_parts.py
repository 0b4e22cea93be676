"""The kernels of the parts of Winograd's algorithm, for a convolution and for the gradient of its filters.

A tile is 2 x 2 neighbouring results. They need 4 x 4 places of the picture and 3 x 3 taps of the filter, and
36 products for each channel. With both transformed to 4 x 4 values, 16 are enough: the transforms add and
subtract, and halve sums of taps. The gradient of a filter's taps is a sum over places: of the picture times
the gradient of the results. For a tile of 2 x 2 gradients, 4 x 4 places and 3 x 3 taps, 36 products for each
filter and channel become 16, summed over all tiles before one transform makes taps of them. All matrices
between the parts are in scratch memory.

Not here: which sums these are (`winograd_roles`), sizes, plans and the decision (`winograd`, the caller).
Source: A. Lavin and S. Gray, "Fast algorithms for convolutional neural networks", arXiv:1509.09308 (2015).
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING

from compiler.dtype import dtypes
from compiler.ir import index as symbolic
from compiler.ir.ops import Ops
from compiler.ir.uop import UOp, const, uop
from compiler.ir.walk import ordered
from compiler.nest.loop_nest import starts_of
from compiler.plan.winograd_roles import PLACES, TAPS, TILE
from compiler.rewrite.range_merging import replace_ranges, replace_value

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from compiler.plan.winograd_roles import Roles

    Square = list[list[UOp]]

_F32 = dtypes.float32
PLANES = PLACES * PLACES
APART = 16
"""Unused elements between planes: a line, so that those of one place are not all in one set of the cache."""
_HALF = const(0.5, _F32)
COLUMN = 2
"""The number of the range of columns in the products: tiles, or channels of a gradient."""


@dataclass(frozen=True, slots=True)
class Matrix:
    """A matrix in scratch memory, by its strides."""

    slot: int
    sizes: tuple[int, ...]
    """Its sides, outermost first."""
    strides: tuple[int, ...]
    """Elements between neighbours along each side."""
    count: int

    def load(self, *places: UOp | int) -> UOp:
        """Return the LOAD of an element."""
        return uop(Ops.LOAD, _F32, (self._buffer(), self._at(places)))

    def store(self, value: UOp, *places: UOp | int) -> UOp:
        """Return the STORE of an element."""
        return uop(Ops.STORE, dtypes.void, (self._buffer(), self._at(places), value))

    def flat(self) -> Matrix:
        """Return the matrix, which has no gaps, as one row."""
        return Matrix(self.slot, (self.count,), (1,), self.count)

    def _at(self, places: Sequence[UOp | int]) -> UOp:
        """Return the index of an element."""
        return symbolic.dot([_index(p) for p in places], self.strides)

    def _buffer(self) -> UOp:
        return uop(Ops.BUFFER, _F32, (), self.slot)


def _matrix(slot: int, *sizes: int, pad: int = 0) -> Matrix:
    """Return a row-major matrix whose outermost parts are `pad` elements apart."""
    strides = [prod(sizes[k:]) + pad * (k == 1) for k in range(1, len(sizes) + 1)]
    return Matrix(slot, sizes, tuple(strides), sizes[0] * strides[0])


class Tiles:
    """What both uses have: some rows of tiles of the picture, at places that a block or a piece gives."""

    def __init__(self, ast: UOp, c: Roles, block: int, first: UOp, places: Mapping[UOp, UOp]) -> None:
        """`block` rows of tiles begin at the row of results `first`; `places` are those of `c.others`."""
        self.ast, self.c, self.block, self.first, self.places = ast, c, block, first, places
        self.wide = c.columns.arg[1] // TILE
        self.slot = 1 + max(n.arg for n in ordered(ast) if n.op is Ops.BUFFER)
        """The number of the first matrix between the parts."""

    def window(self, to: Matrix) -> UOp:
        """Return the kernel that copies the picture with its border: ranges channel, row, column."""
        c, sides = self.c, [symbolic.loop(number, size) for number, size in enumerate(to.sizes)]
        known = {c.rows: self.first, c.columns: symbolic.ZERO, c.channels: sides[0]}
        value = self.at(c.picture, {**known, c.down: sides[1], c.across: sides[2]})
        return _sink(to.store(value, *sides))

    def transformed(
        self, to: Matrix, rows: int, side: int, place: Callable[[UOp, UOp, UOp], UOp],
        line: Callable[..., list[UOp]]
    ) -> UOp:  # fmt: skip
        """Return the kernel that transforms tiles: ranges channel (or filter), row of tiles, tile.

        `place` returns the value in one of `rows` rows at a row and a column of the block's places; a tile
        has `side` x `side` of them, and `line` transforms a row or a column.
        """
        k, y, x = symbolic.loop(0, rows), symbolic.loop(1, self.block), symbolic.loop(2, self.wide)
        places = [
            [place(k, symbolic.dot((y,), (TILE,), i), symbolic.dot((x,), (TILE,), j)) for j in range(side)]
            for i in range(side)
        ]
        return _planes_to(to, _both_ways(places, line), k, self.tile(y, x))

    def pictures(self, window: Matrix, to: Matrix) -> UOp:
        """Return the kernel that transforms the picture in a window: ranges channel, row of tiles, tile."""
        return self.transformed(to, self.c.channels.arg[1], PLACES, window.load, _line_of_places)

    def finished(self, slot: int, places: Mapping[UOp, UOp], value: UOp) -> UOp:
        """Return the kernel itself at some places, with a value for its sum; buffer `slot` is not used."""
        mark = uop(Ops.LOAD, _F32, (uop(Ops.BUFFER, _F32, (), slot), symbolic.ZERO))
        marked = replace_value(self.ast, self.c.node, mark)
        return replace_value(self.at(marked, places), mark, value)

    def at(self, value: UOp, places: Mapping[UOp, UOp]) -> UOp:
        """Return a value or a kernel at other places of its ranges."""
        return replace_ranges(value, {**self.places, **places})

    def tile(self, y: UOp, x: UOp) -> UOp:
        """Return the number of a tile."""
        return symbolic.dot((y, x), (self.wide, 1))


class WinogradParts:
    """The kernels of one convolution, for blocks of `block` rows of tiles."""

    def __init__(self, ast: UOp, c: Roles, block: int) -> None:
        self.ast, self.c, self.block = ast, c, block
        self.high = c.rows.arg[1] // TILE
        number = 1 + max(n.arg[0] for n in ordered(ast) if n.op is Ops.RANGE)
        self.tiles = symbolic.loop(number, self.high)
        """The range of rows of tiles, which the blocks divide."""
        starts = starts_of([*c.others, self.tiles], block)
        first = symbolic.mul(starts[self.tiles], TILE)
        self.t = t = Tiles(ast, c, block, first, {r: starts[r] for r in c.others})
        f, k = c.filters.arg[1], c.channels.arg[1]
        self.u = _matrix(t.slot, PLANES, f, k, pad=APART)
        self.p = _matrix(t.slot + 1, k, TILE * block + 2, TILE * t.wide + 2)
        self.v = _matrix(t.slot + 2, PLANES, k, block * t.wide, pad=APART)
        self.m = _matrix(t.slot + 3, PLANES, f, block * t.wide, pad=APART)
        self.bordered = len(c.picture.src) > 2 or c.picture.op is not Ops.LOAD
        self.kept = (self.u, *[self.p] * self.bordered, self.v, self.m)

    def filters(self) -> UOp:
        """Return the kernel that transforms the filters: ranges filter, channel."""
        c = self.c
        f, k = symbolic.loop(0, c.filters.arg[1]), symbolic.loop(1, c.channels.arg[1])

        def line(a: UOp, b: UOp, d: UOp) -> list[UOp]:
            ends = _add(a, d)
            return [a, _mul(_add(ends, b), _HALF), _mul(_sub(ends, b), _HALF), d]

        env = {c.filters: f, c.channels: k}
        taps = [
            [replace_ranges(c.other, {**env, c.down: _index(i), c.across: _index(j)}) for j in range(TAPS)]
            for i in range(TAPS)
        ]
        return _planes_to(self.u, _both_ways(taps, line), f, k)

    def window(self) -> UOp:
        """Return the kernel that copies the picture with its border; see `Tiles.window`."""
        return self.t.window(self.p)

    def pictures(self) -> UOp:
        """Return the kernel that transforms the picture, from its window if it has a border."""
        c, t = self.c, self.t
        if self.bordered:
            return t.pictures(self.p, self.v)

        def place(k: UOp, row: UOp, column: UOp) -> UOp:
            known = {c.rows: t.first, c.columns: symbolic.ZERO, c.channels: k}
            return t.at(c.picture, {**known, c.down: row, c.across: column})

        return t.transformed(self.v, c.channels.arg[1], PLACES, place, _line_of_places)

    def products(self) -> UOp:
        """Return the kernel of the products: ranges plane, filter, tile, and the sum over channels."""
        return _products(self.u, self.v, self.m, self.c.channels.arg[1], lambda s, column: (s, column))

    def results(self) -> UOp:
        """Return the kernel with the sums from the products.

        Ranges filter, row of tiles, row of a tile, tile, column of a tile.
        """
        c, t = self.c, self.t
        f, y, a = symbolic.loop(0, c.filters.arg[1]), symbolic.loop(1, self.block), symbolic.loop(2, TILE)
        x, b = symbolic.loop(3, t.wide), symbolic.loop(4, TILE)

        def line(place: UOp, m: Sequence[UOp]) -> UOp:
            low, high = _add(_add(m[0], m[1]), m[2]), _sub(_sub(m[1], m[2]), m[3])
            return _where(place, 1, low, high)

        tile = t.tile(y, x)
        sums = [line(b, [self.m.load(PLACES * i + j, f, tile) for j in range(PLACES)]) for i in range(PLACES)]
        row, column = symbolic.dot((t.first, y, a), (1, TILE, 1)), symbolic.dot((x, b), (TILE, 1))
        places = {c.filters: f, c.rows: row, c.columns: column}
        return t.finished(self.m.slot + 1, places, line(a, sums))


class GradientParts:
    """The kernels of one gradient, for pieces of `block` rows of tiles and blocks of `filters` filters."""

    def __init__(self, ast: UOp, c: Roles, block: int, filters: int) -> None:
        self.ast, self.c, self.block, self.held = ast, c, block, filters
        count, k = c.rows.arg[1] // TILE // block, c.channels.arg[1]
        self.count = count * prod([int(r.arg[1]) for r in c.others])
        """The number of pieces."""
        self.piece = uop(Ops.VAR, dtypes.index, (), ("#piece", 0, self.count - 1))
        first = symbolic.mul(symbolic.mod(self.piece, count), TILE * block)
        self.t = t = Tiles(ast, c, block, first, {r: symbolic.div(self.piece, count) for r in c.others})
        self.filter = starts_of([c.filters], filters)[c.filters]
        self.p = _matrix(t.slot, k, TILE * block + 2, TILE * t.wide + 2)
        self.v = _matrix(t.slot + 1, PLANES, k, block * t.wide, pad=APART)
        self.u = _matrix(t.slot + 2, PLANES, filters, block * t.wide, pad=APART)
        self.m = _matrix(t.slot + 3, PLANES, filters, k)
        self.total = _matrix(t.slot + 4, PLANES, filters, k)
        self.kept = (self.p, self.v, self.u, self.m, self.total)

    def zeros(self) -> UOp:
        """Return the kernel that clears the totals: one range."""
        return _sink(self.total.flat().store(const(0.0, _F32), symbolic.loop(0, self.total.count)))

    def window(self) -> UOp:
        """Return the kernel that copies the picture with its border; see `Tiles.window`."""
        return self.t.window(self.p)

    def pictures(self) -> UOp:
        """Return the kernel that transforms the picture: ranges channel, row of tiles, tile."""
        return self.t.pictures(self.p, self.v)

    def results(self) -> UOp:
        """Return the kernel that transforms the gradients of results: ranges filter, row of tiles, tile."""
        c, t = self.c, self.t

        def place(f: UOp, row: UOp, column: UOp) -> UOp:
            known = {c.filters: self._filter(f), c.rows: symbolic.add(t.first, row), c.columns: column}
            return t.at(c.other, known)

        def line(a: UOp, b: UOp) -> list[UOp]:
            return [a, _mul(_add(a, b), _HALF), _mul(_sub(a, b), _HALF), b]

        return t.transformed(self.u, self.held, TILE, place, line)

    def products(self) -> UOp:
        """Return the kernel of the products: ranges plane, filter, channel, and the sum over tiles."""
        return _products(self.u, self.v, self.m, self.block * self.t.wide, lambda s, column: (column, s))

    def sums(self) -> UOp:
        """Return the kernel that adds the products to the totals: one range."""
        i, total = symbolic.loop(0, self.total.count), self.total.flat()
        return _sink(total.store(_add(total.load(i), self.m.flat().load(i)), i))

    def taps(self) -> UOp:
        """Return the kernel with the sum from the totals: ranges filter, channel, tap down, tap across."""
        c, t = self.c, self.t
        f, k = symbolic.loop(0, self.held), symbolic.loop(1, c.channels.arg[1])
        down, across = symbolic.loop(2, TAPS), symbolic.loop(3, TAPS)

        def line(tap: UOp, m: Sequence[UOp]) -> UOp:
            ends = _add(m[1], m[2])
            every = _add(m[0], ends), _sub(m[1], m[2]), _sub(ends, m[3])
            return _where(tap, 1, every[0], _where(tap, 2, every[1], every[2]))

        rows = [
            line(across, [self.total.load(PLACES * i + j, f, k) for j in range(PLACES)])
            for i in range(PLACES)
        ]
        places = {c.filters: self._filter(f), c.channels: k, c.down: down, c.across: across}
        return t.finished(self.total.slot + 1, places, line(down, rows))

    def _filter(self, f: UOp) -> UOp:
        return symbolic.add(self.filter, f)


def _products(
    left: Matrix, right: Matrix, to: Matrix, length: int, places: Callable[[UOp, UOp], tuple[UOp, UOp]]
) -> UOp:
    """Return the kernel of the products: ranges plane, row, column, and the sum over `length` values.

    `places` returns the places in the right matrix of a value of the sum and a column.
    """
    sizes = (*to.sizes, length)
    plane, row, column, s = (symbolic.loop(number, size) for number, size in enumerate(sizes))
    value = uop(Ops.MUL, _F32, (left.load(plane, row, s), right.load(plane, *places(s, column))))
    total = uop(Ops.REDUCE, _F32, (value,), ("ADD", (len(to.sizes),)))
    return _sink(to.store(total, plane, row, column))


def _index(place: UOp | int) -> UOp:
    return symbolic.const(place) if isinstance(place, int) else place


def _sink(*stores: UOp) -> UOp:
    return uop(Ops.SINK, dtypes.void, stores)


def _planes_to(to: Matrix, planes: Square, *places: UOp) -> UOp:
    """Return the kernel that stores 4 x 4 values, each to its plane."""
    values = [value for row in planes for value in row]
    return _sink(*[to.store(value, plane, *places) for plane, value in enumerate(values)])


def _both_ways(square: Square, line: Callable[..., list[UOp]]) -> Square:
    """Return the transform of the rows of a square, then of the columns."""
    rows = [line(*row) for row in square]
    columns = [line(*column) for column in zip(*rows, strict=True)]
    return [list(row) for row in zip(*columns, strict=True)]


def _line_of_places(a: UOp, b: UOp, d: UOp, e: UOp) -> list[UOp]:
    """Return the transform of four places of a picture."""
    return [_sub(a, d), _add(b, d), _sub(d, b), _sub(b, e)]


def _where(place: UOp, below: int, x: UOp, y: UOp) -> UOp:
    """Return x for places below a number, else y."""
    return uop(Ops.WHERE, _F32, (uop(Ops.IVALUE, dtypes.bool, (symbolic.lt(place, below),)), x, y))


def _add(x: UOp, y: UOp) -> UOp:
    return uop(Ops.ADD, _F32, (x, y))


def _sub(x: UOp, y: UOp) -> UOp:
    return uop(Ops.SUB, _F32, (x, y))


def _mul(x: UOp, y: UOp) -> UOp:
    return uop(Ops.MUL, _F32, (x, y))
