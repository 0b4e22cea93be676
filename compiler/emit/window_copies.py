"""Copies of windows: the loops that fill scratch memory with a picture and its border, by vectors.

Not here: which loads are windows, and the copy's layout (`nest.windows`). Next: `panels`, the caller of
`fill`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from compiler.dtype import register_type, storage_type
from compiler.emit import conversions
from compiler.ir import index as symbolic
from compiler.ir.ops import Ops
from compiler.nest.windows import ranges_of, strides_of

if TYPE_CHECKING:
    from compiler.emit.accesses import Memory
    from compiler.emit.emitter import Emitter
    from compiler.emit.linear import Line
    from compiler.ir.uop import UOp
    from compiler.nest.loop_nest import Side, Stage

MOST_UNROLLED = 8
"""Vectors along the last side up to which their copies are written one after the other."""


def fill(e: Emitter, accesses: Memory, stage: Stage, memory: Line, lanes: int) -> None:
    """Write the loops that copy a window at the cursor, to `memory`, in vectors of `lanes` values."""
    _WindowCopy(e, accesses, stage, memory, lanes).write(0, [])


class _WindowCopy:
    """The loops that fill one window: one for each side, the last one by vectors."""

    def __init__(self, e: Emitter, accesses: Memory, stage: Stage, memory: Line, lanes: int) -> None:
        self.e = e
        self.b = e.b
        self.accesses = accesses
        self.stage = stage
        self.memory = memory
        self.lanes = lanes
        self.strides = strides_of(stage.window, lanes)[1:]

    def write(self, depth: int, places: list[UOp]) -> None:
        """Write the loops from side `depth` inwards; `places` are those of the sides outside."""
        b, ix, sides = self.b, self.e.index, self.stage.window
        if depth == len(sides) - 1:
            self._last(places)
            return
        low, high = self._bounds(sides[depth])
        at = ix.fresh(sides[depth].size)
        if at.op is not Ops.RANGE:
            self.write(depth + 1, [*places, at])
            return
        loop = b.enter_loop(low, high, 1, b.cursor)
        ix.bound[at] = loop.index
        self.write(depth + 1, [*places, at])
        b.leave_loop(loop, [])

    def _bounds(self, side: Side) -> tuple[Line, Line]:
        """Return the first place of a side in the extent of its output range, and the place after the last.

        These are all places if the side has no output range, or several.
        """
        e, b = self.e, self.b
        terms, _ = symbolic.terms_of(side.place)
        axes = [a for a in e.plan.axes if a.range in terms]
        if len(axes) != 1:
            return b.index(0), b.index(side.size)
        (axis,) = axes
        low, high, _ = e.extents[axis.range]
        step, block = terms[axis.range], min(axis.block, axis.size)
        first = b.call("smin", b.mul(low, axis.block), b.index(axis.size - block))
        end = b.call("smin", b.mul(high, axis.block), b.index(axis.size))
        taps = side.size - 1 - step * (axis.size - 1)
        return b.mul(first, step), b.add(b.mul(end, step), b.index(1 + taps - step))

    def _last(self, places: list[UOp]) -> None:
        """Write the copies along the last side: few vectors one after the other, many in a loop."""
        b, ix, lanes = self.b, self.e.index, self.lanes
        lane = ix.fresh(lanes)
        ix.lane_ranges[lane] = lanes
        count = -(-self.stage.window[-1].size // lanes)
        if count <= MOST_UNROLLED:
            for k in range(count):
                self._vector([*places, symbolic.add(symbolic.const(k * lanes), lane)])
            return
        start = ix.fresh(count)
        loop = b.enter_loop(b.index(0), b.index(count), 1, b.cursor)
        ix.bound[start] = loop.index
        self._vector([*places, symbolic.add(symbolic.mul(start, lanes), lane)])
        b.leave_loop(loop, [])

    def _vector(self, places: list[UOp]) -> None:
        """Write the copy of one vector; lanes beyond the last side or outside the picture are zeros."""
        e, b, ix, load = self.e, self.b, self.e.index, self.stage.value
        moved: dict[UOp, UOp] = {}
        for side, at in zip(self.stage.window, places, strict=True):
            for r in ranges_of(side):
                moved[r] = e.partials.base(r)
            moved[side.unit] = symbolic.add(moved[side.unit], at)
        memo: dict[UOp, UOp] = {}
        inside = symbolic.lt(places[-1], self.stage.window[-1].size)
        shown = inside
        if len(load.src) > 2:
            shown = symbolic.both(symbolic.substitute(load.src[2], moved, memo), inside)
        stored = self.accesses.read(
            load.src[0], symbolic.substitute(load.src[1], moved, memo), ix.mask(shown)
        )
        register = register_type(load.dtype)
        value = b.splat(conversions.unpack(b, stored, register), self.lanes)
        dtype = storage_type(register)
        address = ix.address(self.memory, ix.place(symbolic.dot(places, self.strides)), dtype)
        b.line("store", dtype, self.lanes, (address, conversions.pack(b, value, register)))
