"""Write asynchronous copies to a ring of tiles in shared memory, and loads of fragments from the tiles.

The rows of a tile are rows of global memory (`nest.loop_nest.Stage`): values along the sum, or along the
operand's axis. Pieces of 16 bytes are permuted within rows, so that copies and loads of fragments have no
bank conflicts.

Not here: the choice of the tiles (`plan.shared_product`), tiles of words (`shared_tiles`). Next:
`staged_sum`, the caller.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from compiler.dtype import dtypes
from compiler.emit.linear import POINTER
from compiler.ir import index as symbolic
from compiler.ir.ops import Ops
from compiler.targets.shared.matrix import PIECE, SharedOperand

if TYPE_CHECKING:
    from compiler.emit.accesses import Memory
    from compiler.emit.emitter import Emitter
    from compiler.emit.linear import Line
    from compiler.ir.uop import UOp
    from compiler.nest.loop_nest import Stage

BYTES = 16
"""Bytes of one copy of a thread."""


class TileRing:
    """The tiles of one operand: `stage.depth` places in memory, used one after the other."""

    def __init__(self, e: Emitter, memory: Memory, stage: Stage, k: UOp, block: int) -> None:
        self.e = e
        self.b = e.b
        self.accesses = memory
        self.stage = stage
        self.k = k
        self.block = block
        self.axis = e.axes[stage.axis]
        self.along_sum = stage.along == "sum"
        self.inner, self.outer = (block, self.axis.block) if self.along_sum else (self.axis.block, block)
        self.pitch = stage.layout.panel or self.inner
        """Values from one row to the next."""
        tag = e.plan.shared_stages().index(stage)
        count = stage.depth * self.inner * self.outer
        self.memory = self.b.line("dynamic", POINTER, 1, (), (dtypes.uint16, count, tag))
        self.places: dict[tuple[UOp, UOp], tuple[UOp, UOp, UOp]] = {}
        """For (row, along): the place in the row, the number that permutes it, and the start of the row."""
        self.slot: Line | None = None
        """The place in the ring of the tile that is read; None while no tile is."""

    def select(self, slot: Line) -> None:
        """Read the tile in a place of the ring from now on."""
        self.slot = slot

    def operand(self, first: UOp) -> tuple[Line, SharedOperand]:
        """Return the address of the rows (columns) from `first` on in the selected tile, and their layout."""
        row, along = (first, symbolic.ZERO) if self.along_sum else (symbolic.ZERO, first)
        layout = SharedOperand(not self.along_sum, 2 * self.pitch * self.outer)
        return self.address(self.tile(), row, along), layout

    def tile(self) -> Line:
        """Return the address of the tile that is read."""
        assert self.slot is not None
        return self._tile(self.slot)

    def _tile(self, slot: Line) -> Line:
        """Return the address of the tile in a place of the ring."""
        return self.b.offset(self.memory, self.b.mul(slot, self.inner * self.outer), dtypes.uint16)

    def address(self, tile: Line, row: UOp, along: UOp) -> Line:
        """Return the address in a tile of the piece of row `row` that begins at the place `along`."""
        b, ix = self.b, self.e.index
        found = self.places.get((row, along))
        if found is None:
            found = self.places[row, along] = self._split(row, along)
        place, turned, first = found
        at = ix.materialised(place)
        if self.stage.layout.swizzle is not None:
            at = b.alu("xor", at, ix.materialised(turned))
        return b.offset(tile, b.add(ix.materialised(first), at), dtypes.uint16)

    def _split(self, row: UOp, along: UOp) -> tuple[UOp, UOp, UOp]:
        """Return the place in the row, the number that permutes it, and the start of the row."""
        swizzle, turned = self.stage.layout.swizzle, symbolic.ZERO
        if swizzle is not None:
            turned = symbolic.mul(symbolic.mod(symbolic.div(row, swizzle.run), swizzle.count), swizzle.width)
        panel = symbolic.div(along, self.pitch)
        first = symbolic.dot((row, panel), (self.pitch, self.pitch * self.outer))
        return symbolic.mod(along, self.pitch), turned, first

    def copy(self, begin: UOp, slot: Line) -> None:
        """Start this thread's copies to a place of the ring; the tile begins at the value `begin` of `k`."""
        e, ix, b = self.e, self.e.index, self.b
        r, k = self.axis.range, self.k
        with e.range_scope((r, k)) as scope:
            for moved in (r, k):
                ix.guards.pop(moved, None)
            lane, thread = ix.fresh(PIECE), ix.fresh(e.plan.threads)
            ix.lane_ranges[lane] = PIECE
            ix.bound[thread] = e.thread()
            pieces = self.inner // PIECE
            along = symbolic.mul(symbolic.mod(thread, pieces), PIECE)
            first = symbolic.div(thread, pieces)
            tile = self._tile(slot)
            step = e.plan.threads // pieces
            unit = ix.fresh(self.outer // step)
            if unit.op is Ops.RANGE:
                ix.unit_ranges.add(unit)
            row = symbolic.dot((first, unit), (1, step))
            summed, place = (along, row) if self.along_sum else (row, along)
            zero = symbolic.ZERO
            start = symbolic.add(begin, summed)
            scope.open(k, start, lane if self.along_sum else zero, k.arg[1])
            start = symbolic.add(ix.starts[r], place)
            scope.open(r, start, zero if self.along_sum else lane, self.axis.size)
            for piece in range(self.outer // step):
                if unit.op is Ops.RANGE:
                    ix.env[unit] = piece
                origin, mask = self.accesses.source(self.stage.value)
                to = self.address(tile, row, along)
                size = () if mask is None else (b.select(mask, b.index(BYTES), b.index(0)),)
                b.line("copy", dtypes.bool, 1, (to, origin, *size))

    def fragments(self, place: tuple[UOp, int], summed: tuple[UOp, int], token: Line) -> Line:
        """Load the four matrices of which each lane addresses the row at (place, sum) in the tile.

        Both are (index of the lane, constant); constants along rows are added to the address.
        """
        (row, far), (along, near) = (place, summed) if self.along_sum else (summed, place)
        base = self.address(self.tile(), row, symbolic.add(along, symbolic.const(near)))
        address = self.b.offset(base, self.b.index(far * self.pitch), dtypes.uint16)
        return self.b.line("fragments", dtypes.uint32, 4, (address, token), not self.along_sum)
