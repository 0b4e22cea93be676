"""The kernels of the gradient of 3 x 3 filters by Winograd's algorithm: which sums are one, and its parts.

The gradient of a filter's taps is a sum over places: of the picture times the gradient of the results. For a
tile of 2 x 2 gradients, 4 x 4 places and 3 x 3 taps, 36 products for each filter and channel become 16. They
are summed over all tiles before one transform makes taps of them.

Not here: sizes, plans and the decision (`winograd`, the caller); results of convolutions (`winograd_parts`).
Source: A. Lavin and S. Gray, "Fast algorithms for convolutional neural networks", arXiv:1509.09308 (2015).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from compiler.dtype import dtypes
from compiler.ir import index as symbolic
from compiler.ir.ops import Ops
from compiler.ir.uop import UOp, const, uop
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
    indices_of,
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
PLANE, FILTER, CHANNEL, TILES = range(4)
"""The numbers of the ranges of the products."""


@dataclass(frozen=True, slots=True)
class FilterGradient:
    """The roles in a sum over pictures and places, by the ranges of the kernel."""

    node: UOp
    """The REDUCE."""
    picture: UOp
    """The operand of which rows and columns are places plus taps."""
    results: UOp
    """The operand that is the gradient of the results."""
    filters: UOp
    channels: UOp
    rows: UOp
    columns: UOp
    down: UOp
    """The taps along rows."""
    across: UOp
    """The taps along columns."""
    pictures: UOp | None
    """The summed range of pictures; None for one picture."""


def gradient_of(ast: UOp) -> FilterGradient | None:
    """Return the roles of a kernel; None for any other, and where a side of the results is odd."""
    free, nodes = ranges_in(ast), ordered(ast)
    sums = [n for n in nodes if n.op is Ops.REDUCE]
    if len(sums) != 1 or any(n.op in (Ops.VAR, Ops.WITHIN, Ops.INDEXOF) for n in nodes):
        return None
    (node,) = sums
    value = node.src[0]
    if node.arg[0] != "ADD" or value.op is not Ops.MUL or node.dtype is not _F32 or value.dtype is not _F32:
        return None
    bound = bound_ranges(node, free)
    outputs = frozenset([r for s in ast.src for r in free[s]])
    for picture, results in (value.src, value.src[::-1]):
        own, theirs = (free[picture] - free[results]) & outputs, (free[results] - free[picture]) & outputs
        taps = sorted([r for r in own if r.arg[1] == TAPS], key=lambda r: int(r.arg[0]))
        channels = [r for r in own if r not in taps]
        if len(taps) != 2 or len(channels) != 1 or len(theirs) != 1 or outputs != own | theirs:
            continue
        pairs = [partner_of(picture, tap, bound) for tap in taps]
        if None in pairs or pairs[0] is pairs[1] or not all(is_plain(x) for x in indices_of(results)):
            continue
        rows, columns = [r for r in pairs if r is not None]
        down, across = taps
        if step_of(picture, columns) > step_of(picture, rows):
            rows, columns, down, across = columns, rows, across, down
        (f,), (c,), others = theirs, channels, bound - {rows, columns}
        even = rows.arg[1] % TILE == columns.arg[1] % TILE == 0
        if len(others) > 1 or not even or columns.arg[1] < TILE * LEAST_TILES:
            continue
        if min(f.arg[1], c.arg[1]) >= LEAST_CHANNELS and bound <= free[picture] & free[results]:
            return FilterGradient(
                node, picture, results, f, c, rows, columns, down, across, next(iter(others), None)
            )
    return None


class GradientParts:
    """The kernels of one gradient, for pieces of `block` rows of tiles and blocks of `filters` filters."""

    def __init__(self, ast: UOp, c: FilterGradient, block: int, filters: int) -> None:
        self.ast, self.c, self.block, self.held = ast, c, block, filters
        self.high, self.wide = c.rows.arg[1] // TILE, c.columns.arg[1] // TILE
        slot = 1 + max(n.arg for n in ordered(ast) if n.op is Ops.BUFFER)
        count, k, tiles = self.high // block, c.channels.arg[1], block * self.wide
        self.count = count * (1 if c.pictures is None else int(c.pictures.arg[1]))
        """The number of pieces."""
        self.piece = uop(Ops.VAR, dtypes.index, (), ("#piece", 0, self.count - 1))
        self.first = symbolic.mul(symbolic.mod(self.piece, count), TILE * block)
        """The first row of results of the piece."""
        self.place = {} if c.pictures is None else {c.pictures: symbolic.div(self.piece, count)}
        self.filter = starts_of([c.filters], filters)[c.filters]
        self.p = matrix(slot, k, TILE * block + 2, TILE * self.wide + 2)
        self.v = matrix(slot + 1, PLANES, k, tiles, pad=APART)
        self.u = matrix(slot + 2, PLANES, filters, tiles, pad=APART)
        self.m = matrix(slot + 3, PLANES, filters, k)
        self.total = matrix(slot + 4, PLANES, filters, k)
        self.kept = (self.p, self.v, self.u, self.m, self.total)

    def zeros(self) -> UOp:
        """Return the kernel that clears the totals: one range."""
        i = symbolic.loop(0, self.total.count)
        return uop(Ops.SINK, dtypes.void, (self._flat(self.total.slot, i, const(0.0, _F32)),))

    def window(self) -> UOp:
        """Return the kernel that copies the picture with its border: ranges channel, row, column."""
        c = self.c
        env: dict[UOp, UOp | int] = {**self.place, c.rows: self.first, c.columns: 0}
        return window_to(self.p, c.picture, (c.channels, c.down, c.across), env)

    def pictures(self) -> UOp:
        """Return the kernel that transforms the picture: ranges channel, row of tiles, tile."""
        k = symbolic.loop(0, self.c.channels.arg[1])
        y, x = symbolic.loop(1, self.block), symbolic.loop(2, self.wide)
        places = [
            [
                self.p.load(k, symbolic.dot((y,), (TILE,), i), symbolic.dot((x,), (TILE,), j))
                for j in range(PLACES)
            ]
            for i in range(PLACES)
        ]
        return planes_to(self.v, both_ways(places, line_of_places), k, symbolic.dot((y, x), (self.wide, 1)))

    def results(self) -> UOp:
        """Return the kernel that transforms the gradients of results: ranges filter, row of tiles, tile."""
        c = self.c
        f = symbolic.loop(0, self.held)
        y, x = symbolic.loop(1, self.block), symbolic.loop(2, self.wide)

        def place(i: int, j: int) -> UOp:
            row, column = symbolic.dot((self.first, y), (1, TILE), i), symbolic.dot((x,), (TILE,), j)
            return self._at(c.results, {c.filters: self._filter(f), c.rows: row, c.columns: column})

        def line(a: UOp, b: UOp) -> list[UOp]:
            return [a, mul(add(a, b), HALF), mul(sub(a, b), HALF), b]

        places = [[place(i, j) for j in range(TILE)] for i in range(TILE)]
        return planes_to(self.u, both_ways(places, line), f, symbolic.dot((y, x), (self.wide, 1)))

    def products(self) -> UOp:
        """Return the kernel of the products: ranges plane, filter, channel, and the sum over tiles."""
        plane, f = symbolic.loop(PLANE, PLANES), symbolic.loop(FILTER, self.held)
        k, t = symbolic.loop(CHANNEL, self.c.channels.arg[1]), symbolic.loop(TILES, self.block * self.wide)
        value = uop(Ops.MUL, _F32, (self.u.load(plane, f, t), self.v.load(plane, k, t)))
        total = uop(Ops.REDUCE, _F32, (value,), ("ADD", (TILES,)))
        return uop(Ops.SINK, dtypes.void, (self.m.store(total, plane, f, k),))

    def sums(self) -> UOp:
        """Return the kernel that adds the products to the totals: one range."""
        i = symbolic.loop(0, self.total.count)
        old, new = [uop(Ops.LOAD, _F32, (uop(Ops.BUFFER, _F32, (), m.slot), i)) for m in (self.total, self.m)]
        return uop(Ops.SINK, dtypes.void, (self._flat(self.total.slot, i, add(old, new)),))

    def taps(self) -> UOp:
        """Return the kernel with the sum from the totals: ranges filter, channel, tap down, tap across."""
        c = self.c
        f, k = symbolic.loop(0, self.held), symbolic.loop(1, c.channels.arg[1])
        down, across = symbolic.loop(2, TAPS), symbolic.loop(3, TAPS)

        def line(tap: UOp, m: Sequence[UOp]) -> UOp:
            ends = add(m[1], m[2])
            every = add(m[0], ends), sub(m[1], m[2]), sub(ends, m[3])
            return _where(tap, 1, every[0], _where(tap, 2, every[1], every[2]))

        rows = [
            line(across, [self.total.load(PLACES * i + j, f, k) for j in range(PLACES)])
            for i in range(PLACES)
        ]
        mark = uop(Ops.LOAD, _F32, (uop(Ops.BUFFER, _F32, (), self.total.slot + 1), symbolic.ZERO))
        env = {c.filters: self._filter(f), c.channels: k, c.down: down, c.across: across}
        return replaced(replace_ranges(replaced(self.ast, c.node, mark), env), mark, line(down, rows))

    def _filter(self, f: UOp) -> UOp:
        return symbolic.add(self.filter, f)

    def _at(self, value: UOp, env: Mapping[UOp, UOp | int]) -> UOp:
        return at(value, {**self.place, **env})

    @staticmethod
    def _flat(slot: int, i: UOp, value: UOp) -> UOp:
        return uop(Ops.STORE, dtypes.void, (uop(Ops.BUFFER, _F32, (), slot), i, value))


def _where(tap: UOp, below: int, x: UOp, y: UOp) -> UOp:
    """Return x for taps below a number, else y."""
    return uop(Ops.WHERE, _F32, (uop(Ops.IVALUE, dtypes.bool, (symbolic.lt(tap, below),)), x, y))
