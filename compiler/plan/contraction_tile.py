"""The register tile of one contraction: its size, its axes, and how the operands lie in memory beside it.

Two parts have lines for every position of the tile: the operations after the sum, and the copy of a block to
a panel. A line takes about 5 us to write and 40 us to compile. So a part of `LONG` lines or more is written
as a loop.

Not here: the fastest size for a target (`nest.register_tile`), copies, loops and workgroups (`contraction`,
the caller), the estimate of the time (`contraction_cost`).
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from compiler.dtype import register_type
from compiler.ir import index as symbolic
from compiler.ir.walk import by_number
from compiler.nest.convolution_borders import border_of
from compiler.nest.kernel_shape import inner_nodes, kind_along, weight
from compiler.nest.loop_nest import Axis
from compiler.nest.operand_roles import is_computed, loads_of
from compiler.nest.register_tile import MOST_ROWS, tile
from compiler.plan.in_place_reads import Window, lines_in_place, rows_in_place, window_of, window_of_taps

if TYPE_CHECKING:
    from collections.abc import Mapping

    from compiler.ir.uop import UOp
    from compiler.nest.kernel_shape import KernelShape, Kind
    from compiler.nest.loop_nest import Edge
    from compiler.nest.operand_roles import Contraction
    from compiler.plan.in_place_reads import TapWindow
    from compiler.targets.shared.target import Target
    Kinds = dict[tuple[UOp, UOp, int], Kind]


ACROSS = ("scattered", "strided")
"""The kinds of accesses whose lanes are apart."""
PAGE = 4096
"""Bytes between rows of an operand from which on no prefetcher follows, from page to page."""
FIRST_BYTES = 48 << 10
"""Bytes of a streamed operand that a first-level cache holds, or nearly."""


class RegisterTile:
    """The register tile of one contraction, and how the operands lie beside it."""

    def __init__(
        self,
        kernel: KernelShape,
        c: Contraction,
        target: Target,
        kinds: Kinds,
        size: tuple[int, int] | None,
        *,
        inside: bool = False,
    ) -> None:
        """`size` is the rows and the vectors of columns; None estimates them.

        `inside` leaves out products with the border of a picture, where it has one. `kinds` keeps what is
        known of accesses to the kernel, for all its contractions.
        """
        self.kernel = kernel
        self.c = c
        self.target = target
        self.kinds = kinds
        self.itemsize = register_type(c.node.dtype).itemsize
        m, n, k = c.size
        self.lanes = target.vector_bytes // self.itemsize
        while self.lanes > 2 and self.lanes // 2 >= n:
            self.lanes //= 2
        plain = len(c.family.ranges) == 1 and not is_computed(c.streamed)
        self.first = plain and n * k * self.itemsize <= FIRST_BYTES
        """Whether the streamed operand is a matrix that stays in the first-level cache."""
        self.border = border_of(c, self.lanes, target) if inside else None
        """How products with the border are left out; None where they are not."""
        taps = self._window_of_taps()
        if size is None and self.border is not None:
            self.rows, self.vectors = m, self.border.vectors
        elif size is None:
            near = taps is not None or lines_in_place(c, MOST_ROWS, self.itemsize) is not None
            windowed = window_of(c, MOST_ROWS, 1, self.lanes, target) is not None
            narrow = n <= self.lanes == target.vector_bytes // self.itemsize
            near = near or windowed or (narrow and rows_in_place(c, MOST_ROWS))
            self.rows, self.vectors = tile(m, n, self.lanes, target, near=near, first=self.first)
            if windowed and window_of(c, self.rows, self.vectors, self.lanes, target) is None:
                self.rows, self.vectors = tile(m, n, self.lanes, target)
        else:
            self.rows, self.vectors = size
        self.lines = lines_in_place(c, self.rows, self.itemsize)
        """The lines of the broadcast operand that a tile reads in place, if they are few; else None."""
        self.window = window_of(c, self.rows, self.vectors, self.lanes, target)
        """The window of that operand; None without one that fits."""
        self.taps: TapWindow | None = None
        """The pieces of the window, where it is copied once for all taps."""
        if self.border is not None:
            self.lines = self.window = None
        elif taps is not None and self.window is None and self.lines is None:
            self.taps, self.window = taps, Window(taps.sides, 0)
        self.axes = {
            c.rows: _axis(c.rows, self.rows, 1),
            c.columns: _axis(c.columns, self.vectors, self.lanes),
            **{o: Axis(o) for o in c.others},
        }

    def fits(self) -> bool:
        """Return whether the tile fits the registers, and is not beyond the ranges."""
        m, n, _ = self.c.size
        rows, vectors = self.rows, self.vectors
        if self.border is not None:
            return rows == m and vectors == self.border.vectors
        if rows * vectors + vectors + 1 > self.target.registers:
            return False
        return rows <= m and vectors * self.lanes < n + self.lanes

    def others(self) -> tuple[list[UOp], list[UOp], list[UOp]]:
        """Return the other ranges: of both operands or none, of the streamed one, of the broadcast one."""
        c, free = self.c, self.kernel.free
        streamed = [o for o in c.others if o in free[c.streamed] and o not in free[c.broadcast]]
        broadcast = [o for o in c.others if o in free[c.broadcast] and o not in free[c.streamed]]
        return [o for o in c.others if o not in streamed and o not in broadcast], streamed, broadcast

    def _window_of_taps(self) -> TapWindow | None:
        """Return the window of the broadcast operand for ranges of its own besides rows; None without one."""
        _, streamed, taps = self.others()
        if streamed or not all(o in self.kernel.free[self.c.node] for o in self.kernel.outputs):
            return None
        return window_of_taps(self.c, taps, self.lanes, self.target)

    def order_of_masks(self) -> tuple[UOp, ...]:
        """Return the summed ranges, those of masks outermost, so that masks leave the inner loops."""
        masked = self.kernel.masked_ranges
        return tuple(sorted(self.c.family.ranges, key=lambda r: (r not in masked, r.arg[1], r.arg[0])))

    def order_of_rows(self) -> tuple[UOp, ...] | None:
        """Return the summed ranges as the broadcast operand lies in memory; None where it has no rows.

        Masks then cost more, but only in the copy of the streamed operand.
        """
        order = tuple(by_number(self.c.family.ranges))
        loads = loads_of(self.c.broadcast)
        return order if all(self.kind(n, order[-1], 2) == "row" for n in loads) else None

    def kind(self, load: UOp, r: UOp, lanes: int) -> Kind:
        """Return the kind of a load of `lanes` neighbours along a range."""
        return self.along(load.src[1], r, lanes)

    def along(self, index: UOp, r: UOp, lanes: int) -> Kind:
        """Return the kind of an access to `lanes` neighbours along a range; cached."""
        key = index, r, lanes
        if key not in self.kinds:
            self.kinds[key] = kind_along(index, r, lanes, lanes, aligned=True, free=self.kernel.free)
        return self.kinds[key]

    def columns_in_rows(self) -> bool:
        """Return whether the streamed operand is read in whole unmasked vectors along the columns."""
        return all(
            len(n.src) == 2 and self.kind(n, self.c.columns, self.lanes) in ("row", "same")
            for n in loads_of(self.c.streamed)
        )

    def rows_apart(self, last: UOp) -> bool:
        """Return whether the next value of a summed range reads the streamed operand from another page."""
        return any(
            abs(symbolic.terms_of(n.src[1])[0].get(last, 0)) * n.dtype.itemsize >= PAGE
            for n in loads_of(self.c.streamed)
        )


def run(load: UOp, order: tuple[UOp, ...], pieces: Mapping[UOp, int] | None = None) -> int:
    """Return how many elements of a load are adjacent in memory as the summed ranges run in this order.

    `pieces` are the values of a piece of each range that is cut.
    """
    terms, _ = symbolic.terms_of(load.src[1])
    elements = 1
    for r in reversed(order):
        size = (pieces or {}).get(r, r.arg[1])
        if size > 1 and terms.get(r, 0) != elements:
            break
        elements *= size
    return elements


def _axis(r: UOp, upcast: int, lanes: int) -> Axis:
    size, block = r.arg[1], upcast * lanes
    edge: Edge = "exact" if size % block == 0 else "masked" if size < block else "overlap"
    return Axis(r, upcast, lanes, edge)


LONG = 192
"""Lines of an unrolled part from which on it is a loop."""
_ACCESS = 2.0
"""Lines of a load or store with its address."""


def looped_results(tile: RegisterTile) -> UOp | None:
    """Return the range of a tile over which a loop finishes the results; None where they are short.

    A loop over rows has all vectors of a row in its body. Results that are transposed need all rows at once,
    and have a loop over the vectors.
    """
    kernel, columns = tile.kernel, tile.c.columns
    accesses = (*kernel.stores, *kernel.loads)
    apart = sum([tile.along(a.index, columns, tile.lanes) in ACROSS for a in accesses])
    each = kernel.ops + _ACCESS * (len(accesses) - apart)
    lines = tile.vectors * (tile.rows * each + apart * _transposed(tile.lanes, tile.lanes))
    if lines < LONG:
        return None
    candidates = [columns] if apart else [tile.c.rows, columns]
    return next((r for r in candidates if tile.axes[r].upcast > 1), None)


def is_looped(operand: UOp, vectors: int, lanes: int, turn: int) -> bool:
    """Return whether a loop over its vectors copies a block; `turn` values are copied together."""
    each = sum([weight(n.op) for n in inner_nodes((operand,))]) + 2 * _ACCESS
    lines = each * turn if turn == 1 else _transposed(lanes, turn) + each * turn
    return vectors > 1 and vectors * lines >= LONG


def _transposed(lanes: int, rows: int) -> float:
    """Return the lines of a square of `lanes` vectors that is transposed, and of the accesses to its rows."""
    return lanes * math.log2(max(lanes, 1)) + _ACCESS * rows
