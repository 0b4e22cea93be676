"""Values in scratch memory between loops: the totals of sums in pieces, and rows of values.

A loop over pieces of a summed range (`nest.loop_nest.Step`) contains loops over blocks of output ranges. A
block adds the products of the current piece to its totals, which start as zeros. After the last piece the
loops over blocks run once more, without the copies: they load the totals, compute what follows, and store the
outputs. The total of a block at counters c and unrolled positions u has its lanes at
`(c * units + u) * lanes`.

The loop of a reduction stores the values of a row that the loop of an output loads again.

Not here: which ranges are cut (`plan.contraction`), which rows are kept (`plan.row_reuse`), the sum of one
piece (`reductions`). Next: `linearize` and `reductions`, the callers.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from compiler.dtype import dtypes, register_type, storage_type
from compiler.emit import conversions, isel
from compiler.emit.linear import POINTER
from compiler.ir import index as symbolic
from compiler.ir.ops import Ops
from compiler.ir.walk import bound_ranges
from hcq.errors import CompileError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from compiler.dtype import DType
    from compiler.emit.builder import Builder
    from compiler.emit.emitter import Emitter
    from compiler.emit.indexing import Indexer
    from compiler.emit.linear import Line
    from compiler.emit.loop_limits import Extent, LoopLimits
    from compiler.ir.uop import UOp
    from compiler.nest.loop_nest import Axis, ScratchRow


@dataclass(slots=True)
class Piece:
    """A summed range that is cut into pieces."""

    base: UOp
    """The first value of the current piece: a counter of pieces times their size."""
    place: UOp
    """A range that stands for the place in the piece, as a range of the AST stands for its value."""
    cap: int
    """The size of a piece; the last one may be smaller."""
    count: Line
    """The size of the current piece."""


@dataclass(slots=True)
class Totals:
    """The totals of one sum, of every block of the loops inside the loop over pieces."""

    node: UOp
    """The REDUCE."""
    units: list[UOp]
    points: list[tuple[int, ...]]
    """The unrolled positions of a block."""
    lanes: int
    """Values of each position."""
    kind: DType
    """The type of the totals, that of the REDUCE's registers."""
    memory: Line
    """The address of the totals of the first block."""
    firsts: dict[UOp, Line]
    """For each output range with a loop inside, the number of the first block."""
    strides: dict[UOp, int]
    """For these ranges, the elements from one block to the next."""
    counters: dict[UOp, Line] = field(default_factory=dict)
    """For these ranges, the number of the current block counted from the first."""
    token: Line | None = None
    """The source of loads that keeps them after the last piece; None while pieces are added."""


class Partials:
    """The pieces of one kernel's summed ranges, and the totals between them."""

    def __init__(self, b: Builder, index: Indexer, limits: LoopLimits, turn: int) -> None:
        self.b = b
        self.index = index
        self.limits = limits
        self.turn = turn
        """Values of a summed range that panels are copied by; `size` is not below it."""
        self.pieces: dict[UOp, Piece] = {}
        self.totals: Totals | None = None
        """None outside the loops over pieces and the loops over blocks after them."""

    @property
    def finished(self) -> bool:
        """Whether all pieces are added, and the loops over blocks use the totals."""
        return self.totals is not None and self.totals.token is not None

    def open(self, r: UOp, size: int) -> UOp:
        """Cut a summed range into pieces; return the range that counts values in a piece."""
        ix = self.index
        base, counter = symbolic.mul(ix.fresh(-(-r.arg[1] // size)), size), ix.fresh(size)
        self.pieces[r] = Piece(base, ix.fresh(size), size, self.b.index(size))
        self.count(r, counter)
        return counter

    def count(self, r: UOp, expression: UOp) -> None:
        """Set the index of a range in the current piece, or its value itself if it is not cut."""
        piece, ix = self.pieces.get(r), self.index
        if piece is not None:
            if piece.place.op is Ops.RANGE:
                ix.exprs[piece.place] = expression
            expression = symbolic.add(piece.base, expression)
        ix.exprs[r] = expression

    def place(self, r: UOp) -> UOp:
        """Return the range that counts the values of r in a piece: r itself if it is not cut."""
        piece = self.pieces.get(r)
        return r if piece is None else piece.place

    def base(self, r: UOp) -> UOp:
        """Return the first value of r in the current piece: 0 if it is not cut."""
        piece = self.pieces.get(r)
        return symbolic.ZERO if piece is None else piece.base

    def cap(self, r: UOp) -> int:
        """Return the size of a piece of r: the size of r if it is not cut."""
        piece = self.pieces.get(r)
        return int(r.arg[1]) if piece is None else piece.cap

    def size(self, r: UOp) -> Line:
        """Return the number of values of r in the current piece, up to r's limit rounded up by `turn`."""
        piece, b = self.pieces.get(r), self.b
        if piece is not None:
            return piece.count
        size: int = r.arg[1]
        rounds = self.limits.rounds(r, self.turn, b.index(-(-size // self.turn)))
        whole = b.index(size)
        return whole if r not in self.limits else b.call("smin", b.mul(rounds, self.turn), whole)

    def loop(self, r: UOp, totals: Totals, inside: Callable[[], None]) -> None:
        """Write the loop over the pieces of r, with `inside` in it.

        After the outermost of such loops `inside` is written once more: the loops that use the totals.
        """
        outermost = self.totals is None
        self.totals = totals
        b, piece = self.b, self.pieces[r]
        (counter,) = symbolic.atoms_of((piece.base,))
        count = self.limits.rounds(r, piece.cap, b.index(-(-r.arg[1] // piece.cap)))
        loop = b.enter_loop(b.index(0), count, 1, b.cursor)
        self.index.bound[counter] = loop.index
        whole = piece.count
        if r.arg[1] % piece.cap:
            left = b.alu("sub", b.index(r.arg[1]), b.mul(loop.index, piece.cap))
            piece.count = b.call("smin", left, b.index(piece.cap))
        if r in self.limits:
            left = b.alu("sub", self.limits.lines[r], b.mul(loop.index, piece.cap))
            piece.count = b.call("smin", piece.count, b.call("smax", left, b.index(self.turn)))
        inside()
        b.leave_loop(loop, [])
        piece.count = whole
        if outermost:
            totals.token = b.line("token", dtypes.bool, 1)
            totals.counters = {}
            inside()
            self.totals = None

    def allocate(
        self, node: UOp, free: frozenset[UOp], units: list[UOp], axes: Iterable[Axis],
        extents: Mapping[UOp, Extent]
    ) -> Totals:  # fmt: skip
        """Reserve memory for the totals of a REDUCE in all blocks of the extents, and set it to zeros.

        `free` are the ranges on which it depends, `units` its unrolled ranges. Raises `CompileError` if a
        loop inside runs over a range on which the REDUCE does not depend.
        """
        b = self.b
        points = list(itertools.product(*[range(u.arg[1]) for u in units]))
        lanes = max([a.lanes for a in axes], default=1)
        total = len(points) * lanes
        firsts: dict[UOp, Line] = {}
        strides: dict[UOp, int] = {}
        for axis in axes:
            first, _, count = extents[axis.range]
            if count > 1:
                if axis.range not in free:
                    raise CompileError(
                        f"wanted inside the loop over pieces of a sum only ranges on which the sum depends, "
                        f"saw r{axis.range.arg[0]}; try the loop over it outside"
                    )
                firsts[axis.range], strides[axis.range] = first, total
                total *= count
        kind = register_type(node.dtype)
        memory = b.line("scratch", POINTER, 1, (), (kind, total, "totals"))
        zero = isel.identity(b, node.arg[0], node.dtype, lanes)
        loop = b.enter_loop(b.index(0), b.index(total), lanes, b.cursor)
        b.line("store", kind, lanes, (b.offset(memory, loop.index, kind), zero))
        b.leave_loop(loop, [])
        return Totals(node, units, points, lanes, kind, memory, firsts, strides)

    def enter(self, r: UOp, number: Line) -> None:
        """Set the current block of an output range; the totals of that block are used from then on."""
        totals = self.totals
        if totals is not None and r in totals.firsts:
            totals.counters[r] = self.b.alu("sub", number, totals.firsts[r])

    def block(self, totals: Totals) -> Line:
        """Return the address of the totals of the current block."""
        b, at = self.b, self.b.index(0)
        for r, counter in sorted(totals.counters.items(), key=lambda item: item[1].block.depth):
            at = b.add(at, b.mul(counter, totals.strides[r]))
        return b.offset(totals.memory, at, totals.kind)

    def _addresses(self, totals: Totals) -> list[Line]:
        """Return the address of each unrolled position's total in the current block."""
        b, base = self.b, self.block(totals)
        return [b.offset(base, b.index(k * totals.lanes), totals.kind) for k in range(len(totals.points))]

    def add(self, sums: list[Line]) -> None:
        """Add the sums of the current piece, one for each position, to those of the block."""
        totals, b = self.totals, self.b
        assert totals is not None
        node = totals.node
        token = b.line("token", dtypes.bool, 1)
        for address, value in zip(self._addresses(totals), sums, strict=True):
            before = b.line("load", totals.kind, totals.lanes, (address, token))
            after = isel.combine(b, node.arg[0], node.dtype, before, b.splat(value, totals.lanes))
            b.line("store", totals.kind, totals.lanes, (address, after))

    def finished_values(self) -> list[Line]:
        """Return the totals of the current block, one for each unrolled position."""
        totals = self.totals
        assert totals is not None
        assert totals.token is not None
        return [
            self.b.line("load", totals.kind, totals.lanes, (address, totals.token))
            for address in self._addresses(totals)
        ]


class RowScratch:
    """The rows of one kernel's plan: each is filled by the loop of a REDUCE, and loaded for an output."""

    def __init__(self, e: Emitter) -> None:
        self.e = e
        self.b = e.b
        self.rows = e.plan.rows
        self.twins = {row.twin: row for row in self.rows}
        """For a value over an output range its row."""
        e.readers.update(dict.fromkeys(self.twins, self.load))
        self.tokens: dict[ScratchRow, Line] = {}
        """For a filled row, the source that keeps its loads after the stores."""

    def _memory(self, row: ScratchRow) -> Line:
        """Return the address of a row, with room for a last vector beyond its end."""
        kind = storage_type(register_type(row.source.dtype))
        count = row.inner.arg[1] + self.e.plan.widest()
        return self.b.line("scratch", POINTER, 1, (), (kind, count, self.rows.index(row)))

    def stores(self, family: Sequence[UOp]) -> list[Callable[[], None]]:
        """Return for each row that a family of REDUCEs fills a function that stores its current value."""
        return [partial(self._store, row) for row in self.rows if row.filler in family]

    def _store(self, row: ScratchRow) -> None:
        """Store the row's value at the current position of the reduction that runs over it."""
        b, ix, value = self.b, self.e.index, self.e.value(row.source)
        kind, place = storage_type(value.dtype), ix.place(row.inner)
        if value.lanes == 1 and place.stride:
            value = b.splat(value, place.lanes)  # it is the same over a vector, as of r // 64
        address = ix.address(self._memory(row), place, kind)
        b.line("store", kind, value.lanes, (address, conversions.pack(b, value, value.dtype)))

    def filled(self, node: UOp) -> None:
        """Keep the loads of the rows that a reduction has filled after its stores."""
        for row in self.rows:
            if row.inner in bound_ranges(node, self.e.free):
                self.tokens[row] = self.b.line("token", dtypes.bool, 1)

    def load(self, twin: UOp) -> Line:
        """Load a value at the current output position from its row."""
        b, ix, row = self.b, self.e.index, self.twins[twin]
        self.e.value(row.filler)
        kind = storage_type(register_type(row.source.dtype))
        place = ix.place(row.outer)
        lanes = place.lanes if place.stride else 1
        stored = b.line("load", kind, lanes, (ix.address(self._memory(row), place, kind), self.tokens[row]))
        return conversions.unpack(b, stored, register_type(row.source.dtype))
