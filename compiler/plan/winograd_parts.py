"""The kernels of a convolution by Winograd's algorithm: which sums are such a convolution, and its parts.

A tile is 2 x 2 neighbouring results. They need 4 x 4 places of the picture and 3 x 3 taps of the filter, and
36 products for each channel. With both transformed to 4 x 4 values, 16 are enough: the transforms add and
subtract, and halve sums of taps. All matrices between the parts are in scratch memory.

Not here: sizes, plans and the decision (`winograd`, the caller).
Source: A. Lavin and S. Gray, "Fast algorithms for convolutional neural networks", arXiv:1509.09308 (2015).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from compiler.dtype import dtypes
from compiler.ir import index as symbolic
from compiler.ir.ops import Ops
from compiler.ir.uop import UOp, uop
from compiler.ir.walk import bound_ranges, ordered, ranges_in
from compiler.nest.loop_nest import starts_of
from compiler.plan.winograd_tiles import (
    APART,
    HALF,
    LEAST_CHANNELS,
    LEAST_TILES,
    PLACES,
    PLANES,
    TAPS,
    TILE,
    add,
    at,
    both_ways,
    is_plain,
    line_of_places,
    matrix,
    mul,
    partner_of,
    planes_to,
    replaced,
    step_of,
    sub,
    window_to,
)
from compiler.rewrite.range_merging import replace_ranges

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_F32 = dtypes.float32
PLANE, FILTER, TILES, CHANNEL = range(4)
"""The numbers of the ranges of the products."""


@dataclass(frozen=True, slots=True)
class Convolution:
    """The roles in a sum over channels and 3 x 3 taps, by the ranges of the kernel."""

    node: UOp
    """The REDUCE."""
    picture: UOp
    """The operand of which rows and columns are places plus taps."""
    weight: UOp
    """The LOAD of the filters."""
    filters: UOp
    channels: UOp
    rows: UOp
    columns: UOp
    down: UOp
    """The taps along rows."""
    across: UOp
    """The taps along columns."""
    others: tuple[UOp, ...]
    """Output ranges of the picture besides rows and columns."""


def convolution_of(ast: UOp) -> Convolution | None:
    """Return the roles of a kernel; None for any other, and where a side of its results is odd."""
    free, nodes = ranges_in(ast), ordered(ast)
    sums = [n for n in nodes if n.op is Ops.REDUCE]
    if len(sums) != 1 or any(n.op in (Ops.VAR, Ops.WITHIN, Ops.INDEXOF) for n in nodes):
        return None
    (node,) = sums
    value = node.src[0]
    if node.arg[0] != "ADD" or value.op is not Ops.MUL or node.dtype is not _F32 or value.dtype is not _F32:
        return None
    bound = sorted(bound_ranges(node, free), key=lambda r: int(r.arg[0]))
    taps = [r for r in bound if r.arg[1] == TAPS]
    channels = [r for r in bound if r not in taps]
    if len(taps) != 2 or len(channels) != 1 or channels[0].arg[1] < LEAST_CHANNELS:
        return None
    outputs = frozenset([r for s in ast.src for r in free[s]])
    for picture, weight in (value.src, value.src[::-1]):
        if weight.op is not Ops.LOAD or len(weight.src) > 2 or not is_plain(weight.src[1]):
            continue
        filters, places = (free[weight] & outputs) - free[picture], (free[picture] & outputs) - free[weight]
        pairs = [partner_of(picture, tap, places) for tap in taps]
        if (
            len(filters) != 1
            or free[weight] & free[picture] & outputs
            or None in pairs
            or pairs[0] is pairs[1]
        ):
            continue
        rows, columns = [r for r in pairs if r is not None]
        down, across = taps
        if step_of(picture, columns) > step_of(picture, rows):
            rows, columns, down, across = columns, rows, across, down
        (f,) = filters
        others = sorted(places - {rows, columns}, key=lambda r: int(r.arg[0]))
        if outputs != {f, rows, columns, *others} or f.arg[1] < LEAST_CHANNELS:
            continue
        if rows.arg[1] % TILE or columns.arg[1] % TILE or columns.arg[1] < TILE * LEAST_TILES:
            continue
        if rows.arg[1] == TILE:  # there are no blocks of rows of tiles
            continue
        return Convolution(node, picture, weight, f, channels[0], rows, columns, down, across, tuple(others))
    return None


class WinogradParts:
    """The kernels of one convolution, for blocks of `block` rows of tiles."""

    def __init__(self, ast: UOp, c: Convolution, block: int) -> None:
        self.ast, self.c, self.block = ast, c, block
        self.high, self.wide = c.rows.arg[1] // TILE, c.columns.arg[1] // TILE
        slot = 1 + max(n.arg for n in ordered(ast) if n.op is Ops.BUFFER)
        number = 1 + max(n.arg[0] for n in ordered(ast) if n.op is Ops.RANGE)
        f, k = c.filters.arg[1], c.channels.arg[1]
        self.tiles = symbolic.loop(number, self.high)
        """The range of rows of tiles, which the blocks divide."""
        ranges = [*c.others, self.tiles]
        self.starts = starts_of(ranges, block)
        self.u = matrix(slot, PLANES, f, k, pad=APART)
        self.p = matrix(slot + 1, k, TILE * block + 2, TILE * self.wide + 2)
        self.v = matrix(slot + 2, PLANES, k, block * self.wide, pad=APART)
        self.m = matrix(slot + 3, PLANES, f, block * self.wide, pad=APART)
        self.bordered = len(c.picture.src) > 2 or c.picture.op is not Ops.LOAD
        self.kept = (self.u, *[self.p] * self.bordered, self.v, self.m)

    def filters(self) -> UOp:
        """Return the kernel that transforms the filters: ranges filter, channel."""
        c = self.c
        f, k = symbolic.loop(0, c.filters.arg[1]), symbolic.loop(1, c.channels.arg[1])

        def line(a: UOp, b: UOp, d: UOp) -> list[UOp]:
            ends = add(a, d)
            return [a, mul(add(ends, b), HALF), mul(sub(ends, b), HALF), d]

        taps = [
            [at(c.weight, {c.filters: f, c.channels: k, c.down: i, c.across: j}) for j in range(TAPS)]
            for i in range(TAPS)
        ]
        return planes_to(self.u, both_ways(taps, line), f, k)

    def window(self) -> UOp:
        """Return the kernel that copies the picture with its border: ranges channel, row, column."""
        c = self.c
        env: dict[UOp, UOp | int] = {r: self.starts[r] for r in c.others}
        env |= {c.rows: self._first(), c.columns: 0}
        return window_to(self.p, c.picture, (c.channels, c.down, c.across), env)

    def pictures(self) -> UOp:
        """Return the kernel that transforms the picture: ranges channel, row of tiles, tile."""
        c = self.c
        k, y, x = (
            symbolic.loop(0, c.channels.arg[1]),
            symbolic.loop(1, self.block),
            symbolic.loop(2, self.wide),
        )

        def place(i: int, j: int) -> UOp:
            if self.bordered:
                return self.p.load(k, symbolic.dot((y,), (TILE,), i), symbolic.dot((x,), (TILE,), j))
            row = symbolic.add(self._first(), symbolic.mul(y, TILE))
            return self._picture(
                {c.channels: k, c.rows: row, c.down: i, c.columns: symbolic.mul(x, TILE), c.across: j}
            )

        places = [[place(i, j) for j in range(PLACES)] for i in range(PLACES)]
        return planes_to(self.v, both_ways(places, line_of_places), k, self._tile(y, x))

    def products(self) -> UOp:
        """Return the kernel of the products: ranges plane, filter, tile, and the sum over channels."""
        c = self.c
        plane, f = symbolic.loop(PLANE, PLANES), symbolic.loop(FILTER, c.filters.arg[1])
        t, k = symbolic.loop(TILES, self.block * self.wide), symbolic.loop(CHANNEL, c.channels.arg[1])
        value = uop(Ops.MUL, _F32, (self.u.load(plane, f, k), self.v.load(plane, k, t)))
        total = uop(Ops.REDUCE, _F32, (value,), ("ADD", (CHANNEL,)))
        return uop(Ops.SINK, dtypes.void, (self.m.store(total, plane, f, t),))

    def results(self) -> UOp:
        """Return the kernel with the sums from the products.

        Ranges filter, row of tiles, row of a tile, tile, column of a tile.
        """
        c = self.c
        f, y, a = symbolic.loop(0, c.filters.arg[1]), symbolic.loop(1, self.block), symbolic.loop(2, TILE)
        x, b = symbolic.loop(3, self.wide), symbolic.loop(4, TILE)

        def line(place: UOp, m: Sequence[UOp]) -> UOp:
            first = uop(Ops.IVALUE, dtypes.bool, (symbolic.lt(place, 1),))
            low, high = add(add(m[0], m[1]), m[2]), sub(sub(m[1], m[2]), m[3])
            return uop(Ops.WHERE, _F32, (first, low, high))

        tile = self._tile(y, x)
        sums = [line(b, [self.m.load(PLACES * i + j, f, tile) for j in range(PLACES)]) for i in range(PLACES)]
        mark = uop(Ops.LOAD, _F32, (uop(Ops.BUFFER, _F32, (), self.m.slot + 1), symbolic.ZERO))
        row = symbolic.dot((self._first(), y, a), (1, TILE, 1))
        column = symbolic.dot((x, b), (TILE, 1))
        env = {r: self.starts[r] for r in c.others} | {c.filters: f, c.rows: row, c.columns: column}
        return replaced(replace_ranges(replaced(self.ast, c.node, mark), env), mark, line(a, sums))

    def _first(self) -> UOp:
        """Return the first row of results of the block."""
        return symbolic.mul(self.starts[self.tiles], TILE)

    def _tile(self, y: UOp, x: UOp) -> UOp:
        return symbolic.dot((y, x), (self.wide, 1))

    def _picture(self, env: Mapping[UOp, UOp | int]) -> UOp:
        return at(self.c.picture, {**{r: self.starts[r] for r in self.c.others}, **env})
