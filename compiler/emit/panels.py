"""Operands in scratch memory, in packed panels or as windows: the loops that copy them there, and loads.

A panel is one block of the operand's output range, for all values of the summed ranges. The element of panel
p, summed values k and place u in the block is at `(p * K + k) * block + u`, where K is the product of the
sizes of the summed ranges. So the register tile reads operands in order, whatever their layout in memory is,
and an operand that is computed (a cast, a mask, a scale) is computed once for each element.

A window is a picture with its border, copied by vectors for all places and taps that read it.

Not here: which operands are copied (`plan.contraction`), which loads are windows, and their layout
(`nest.windows`). Next: `linearize`, the caller.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from compiler.dtype import HALF, dtypes, register_type, storage_type
from compiler.emit import conversions
from compiler.emit.accesses import FactorSource
from compiler.emit.linear import POINTER
from compiler.ir import index as symbolic
from compiler.ir.ops import Ops
from compiler.nest import windows
from compiler.nest.operand_roles import loads_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from compiler.dtype import DType
    from compiler.emit.accesses import Memory
    from compiler.emit.emitter import Emitter
    from compiler.emit.linear import Line
    from compiler.ir.uop import UOp
    from compiler.nest.loop_nest import Axis, Side, Stage


MOST_UNROLLED = 8
"""Vectors along the last side of a window up to which their copies are written one after the other."""


@dataclass(slots=True)
class FilledPanels:
    """The filled panels of one stage."""

    stage: Stage
    dtype: DType
    """The storage type of the operand's register type."""
    memory: Line
    """The address of the first panel."""
    first: Line
    """The number of the block in the first panel."""
    panel: UOp
    """The range that counts panels, bound to the current one; the constant 0 if there is one panel."""
    index: UOp
    """The index of the current element, over the panel, the summed ranges and the block."""
    token: Line
    """The source of loads that keeps them after the stores of the copy."""


class Panels:
    """The operands of one kernel that are copied to scratch memory, to panels or as windows."""

    def __init__(self, e: Emitter, memory: Memory) -> None:
        self.e = e
        self.b = e.b
        self.memory = memory
        self.panels: dict[UOp, FilledPanels] = {}
        """For each operand its panels; they are read inside the loop in which they were copied."""

    def fill(self, stage: Stage) -> None:
        """Write the copy of all blocks in the extent, or of a window; lines after it read the copy."""
        e, b = self.e, self.b
        axis = e.axes[stage.axis]
        first, _, blocks = e.extents[stage.axis]
        dtype = storage_type(register_type(stage.value.dtype))
        lanes = axis.block if stage.wide else axis.lanes
        if stage.window:
            lanes = max(a.lanes for a in e.plan.axes)
            count, *strides = windows.strides_of(stage.window, lanes)
            panel = symbolic.ZERO
        else:
            strides = self._strides(stage, axis)
            count, panel = blocks * strides[0], e.index.fresh(blocks)
        memory = b.line("scratch", POINTER, 1, (), (dtype, count, len(self.panels)))
        if stage.window:
            _Copy(e, self.memory, stage, memory, lanes).write_window(strides)
            moved = {r: e.partials.place(r) for r in e.partials.pieces}
            index = symbolic.substitute(windows.index_of(stage.window, lanes), moved, {})
        else:
            unit, lane = e.units.get(stage.axis, symbolic.ZERO), e.lanes[stage.axis]
            places = [e.partials.place(r) for r in stage.ranges]
            index = symbolic.dot((panel, *places, unit, lane), (*strides, axis.lanes, 1))
            _Copy(e, self.memory, stage, memory, lanes).write_panels(panel, index)
        token = b.line("token", dtypes.bool, 1)
        self.panels[stage.value] = FilledPanels(stage, dtype, memory, first, panel, index, token)
        e.readers[stage.value] = self.read

    def _strides(self, stage: Stage, axis: Axis) -> list[int]:
        """Return the elements from one panel to the next, then between values of each summed range."""
        strides = [axis.block]
        for r in reversed(stage.ranges):
            strides.insert(0, strides[0] * self.e.partials.cap(r))
        return strides

    def enter(self, r: UOp, number: Line) -> None:
        """Set the current block of an axis, whose panel loads use."""
        for panels in self.panels.values():
            if panels.stage.axis is r and panels.panel.op is Ops.RANGE:
                self.e.index.bound[panels.panel] = self.b.alu("sub", number, panels.first)

    def factor(self, operand: UOp) -> FactorSource | None:
        """Return where a factor is in memory; None where it is computed, masked, or fetched ahead.

        In its panels, if they have the type of its registers, or where it is loaded from without a mask.
        """
        panels = self.panels.get(operand)
        if panels is not None and panels.dtype is register_type(operand.dtype):
            return FactorSource(panels.memory, panels.index, panels.dtype, (panels.token,))
        if operand in self.e.readers:
            return None
        if operand.op is Ops.CAST and operand.dtype is dtypes.float32 and operand.src[0].dtype in HALF:
            return self.factor(operand.src[0])  # its register is float32 already
        return self.memory.plain(operand)

    def read(self, operand: UOp) -> Line:
        """Load the operand at the current position from its panel."""
        panels, ix = self.panels[operand], self.e.index
        place = ix.place(panels.index)
        lanes = place.lanes if place.stride else 1
        address = ix.address(panels.memory, place, panels.dtype)
        stored = self.b.line("load", panels.dtype, lanes, (address, panels.token))
        return conversions.unpack(self.b, stored, register_type(operand.dtype))


class _Copy:
    """The loops that copy one stage, at the cursor, in vectors of `lanes` values.

    In the copy to panels the ranges have other parts than in the register tile: each summed range has a loop,
    the last one in steps of `Stage.turn` values, and the block of a `wide` stage is one vector. The copy of a
    window has a loop for each side, the last one by vectors.
    """

    def __init__(self, e: Emitter, accesses: Memory, stage: Stage, memory: Line, lanes: int) -> None:
        self.e = e
        self.b = e.b
        self.accesses = accesses
        self.stage = stage
        self.memory = memory
        self.lanes = lanes
        self.register = register_type(stage.value.dtype)
        self.order = list(stage.ranges)
        """The loops over summed ranges, outermost first."""
        self.vector: UOp | None = None
        """The counter of the loop over the vectors of a block; None where they are unrolled."""

    def write_panels(self, panel: UOp, index: UOp) -> None:
        """Write the loops that fill panels; the cursor is where it was then.

        `panel` counts panels, `index` is the index of the current element; see `FilledPanels`.
        """
        stage, cursor = self.stage, self.b.cursor
        self.panel, self.index = panel, index
        with self.e.range_scope((stage.axis, *stage.ranges)):
            if stage.wide:
                self.e.index.lane_ranges[self._replaced_unit()] = self.lanes
            elif stage.looped:
                self.vector = self._replaced_unit()
            self._open_ranges()
            masked = self._masked()
            if stage.axis in masked:  # the masks of a panel are computed once, outside the other ranges
                self.order.sort(key=lambda r: r not in masked)
            if stage.axis in masked or not self._in_rows():  # few lines at once, each used up
                self._panels(lambda: self._vectors(lambda: self._summed(0, self._values)))
            else:  # outermost the order of the source's rows
                self._summed(0, lambda: self._panels(lambda: self._vectors(self._values)))
        self.b.cursor = cursor

    def _masked(self) -> frozenset[UOp]:
        """Return the ranges on which masks of the operand's loads depend."""
        masks = [n.src[2] for n in loads_of(self.stage.value) if len(n.src) > 2]
        return frozenset([r for mask in masks for r in self.e.free[mask]])

    def _in_rows(self) -> bool:
        """Return whether the operand's loads are adjacent along the blocks."""
        loads = loads_of(self.stage.value)
        strides = [symbolic.terms_of(n.src[1])[0].get(self.stage.axis, 0) for n in loads]
        return all(stride in (-1, 0, 1) for stride in strides)

    def _replaced_unit(self) -> UOp:
        """Replace the unrolled positions of a block by a new range, and return the range."""
        ix, r = self.e.index, self.stage.axis
        unit = self.e.units.pop(r)
        place = ix.fresh(unit.arg[1])
        ix.exprs[r] = symbolic.substitute(ix.exprs[r], {unit: place}, {})
        self.index = symbolic.substitute(self.index, {unit: place}, {})
        if r in ix.guards:
            ix.guards[r] = symbolic.substitute(ix.guards[r], {unit: place}, {})
        return place

    def _open_ranges(self) -> None:
        """Give each summed range a counter, and the last one a unit, the values that are copied together."""
        ix, units, partials = self.e.index, self.e.units, self.e.partials
        *outer, last = self.stage.ranges
        for r in outer:
            ix.starts[r] = ix.fresh(partials.cap(r))
            partials.count(r, ix.starts[r])
        turn, size = self.stage.turn, partials.cap(last)
        if self.stage.flat:
            size, self.order = math.prod([partials.cap(r) for r in self.stage.ranges]), [last]
            for r in outer:
                partials.count(r, symbolic.ZERO)
        start, unit = ix.fresh(size - turn + 1), ix.fresh(turn)
        units.pop(last, None)
        if unit.op is Ops.RANGE:
            units[last] = unit
            ix.unit_ranges.add(unit)
        ix.starts[last] = start
        partials.count(last, symbolic.add(start, unit))

    def _panels(self, inside: Callable[[], None]) -> None:
        """Write a loop over the panels, one block each."""
        first, end, count = self.e.extents[self.stage.axis]

        def one(number: Line) -> None:
            if self.panel.op is Ops.RANGE:
                self.e.index.bound[self.panel] = number
            self.e.enter_block(self.stage.axis, self.b.add(first, number))
            inside()

        self._loop(self.b.index(1) if count == 1 else self.b.alu("sub", end, first), one)

    def _summed(self, depth: int, inside: Callable[[], None]) -> None:
        """Write loops over the summed ranges from `depth` inwards; a short last step begins earlier."""
        b, e = self.b, self.e
        if depth == len(self.order):
            inside()
            return
        r = self.order[depth]
        turn = self.stage.turn if r is self.stage.ranges[-1] else 1
        size = e.partials.size(r)
        if self.stage.flat:
            size = b.index(math.prod([e.partials.cap(r) for r in self.stage.ranges]))

        def one(number: Line) -> None:
            at = b.mul(number, turn)
            whole = isinstance(size.arg, int) and size.arg % turn == 0
            e.index.bind(r, at if whole else b.call("smin", at, b.add(size, b.index(-turn))))
            self._summed(depth + 1, inside)

        if turn > 1:
            size_up = b.add(size, b.index(turn - 1))
            self._loop(e.index.divide(size_up, turn, signed=False), one)
        else:
            self._loop(size, one)

    def _vectors(self, inside: Callable[[], None]) -> None:
        """Write a loop over the vectors of a block, if they are not unrolled."""
        vector = self.vector
        if vector is None:
            inside()
            return

        def one(number: Line) -> None:
            self.e.index.bound[vector] = number
            inside()

        self._loop(self.b.index(vector.arg[1]), one)

    def _values(self) -> None:
        """Write the copy of the unrolled values of a block, for `turn` values of the last summed range."""
        e = self.e
        units = [e.units[r] for r in (self.stage.axis, self.stage.ranges[-1]) if r in e.units]
        if units and self._squares(units):
            return
        for _ in e.positions(units):
            self._store(self.index, e.value(self.stage.value))

    def _squares(self, units: list[UOp]) -> bool:
        """Write the copy by transposed squares, if the operand is read by them; return whether it is."""
        e, b, ix = self.e, self.b, self.e.index
        dtype = storage_type(self.register)
        *outer, last = units
        for unit in units:
            e.env[unit] = 0
        p = ix.parts(ix.split(self.index))
        if p.computed or p.stride != 1 or p.lanes != self.lanes:
            return False
        step = dict(p.units).get(last, 0)
        for _ in e.positions(outer):
            e.env[last] = 0
            found = self.accesses.square(self.stage.value)
            if found is None or found[0] is not last or found[1].dtype is not dtype:
                return False
            place, square = ix.place(self.index), found[1]
            places = tuple([place.offset + step * k for k in range(last.arg[1])])
            first = b.offset(self.memory, place.base, dtype)
            b.line("store_rows", dtype, self.lanes, (first, square), places)
        return True

    def _store(self, index: UOp, value: Line) -> None:
        """Store a vector of the copy, a register of the operand, at an index."""
        b, ix, dtype = self.b, self.e.index, storage_type(self.register)
        value = b.splat(value, self.lanes)
        address = ix.address(self.memory, ix.place(index), dtype)
        b.line("store", dtype, self.lanes, (address, conversions.pack(b, value, self.register)))

    def _loop(self, end: Line, body: Callable[[Line], None]) -> None:
        """Write a loop from 0 to `end`, without a loop if there is one round."""
        if end.arg == 1:
            body(self.b.index(0))
            return
        loop = self.b.enter_loop(self.b.index(0), end, 1, self.b.cursor)
        body(loop.index)
        self.b.leave_loop(loop, [])

    def write_window(self, strides: Sequence[int], places: Sequence[UOp] = ()) -> None:
        """Write the loops that copy a window; `strides` are those of its sides.

        `places` are those of the sides whose loops are open.
        """
        b, ix, sides = self.b, self.e.index, self.stage.window
        if len(places) == len(sides) - 1:
            self._last_side(strides, places)
            return
        side = sides[len(places)]
        low, high = self._bounds(side)
        at = ix.fresh(side.size)
        if at.op is not Ops.RANGE:
            self.write_window(strides, [*places, at])
            return
        loop = b.enter_loop(low, high, 1, b.cursor)
        ix.bound[at] = loop.index
        self.write_window(strides, [*places, at])
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

    def _last_side(self, strides: Sequence[int], places: Sequence[UOp]) -> None:
        """Write the copies along the last side: few vectors one after the other, many in a loop."""
        b, ix, lanes = self.b, self.e.index, self.lanes
        lane = ix.fresh(lanes)
        ix.lane_ranges[lane] = lanes
        count = -(-self.stage.window[-1].size // lanes)
        if count <= MOST_UNROLLED:
            for k in range(count):
                self._vector(strides, [*places, symbolic.add(symbolic.const(k * lanes), lane)])
            return
        start = ix.fresh(count)
        loop = b.enter_loop(b.index(0), b.index(count), 1, b.cursor)
        ix.bound[start] = loop.index
        self._vector(strides, [*places, symbolic.add(symbolic.mul(start, lanes), lane)])
        b.leave_loop(loop, [])

    def _vector(self, strides: Sequence[int], places: Sequence[UOp]) -> None:
        """Write the copy of one vector; lanes beyond the last side or outside the picture are zeros."""
        e, ix, load = self.e, self.e.index, self.stage.value
        moved: dict[UOp, UOp] = {}
        for side, at in zip(self.stage.window, places, strict=True):
            for r in windows.ranges_of(side):
                moved[r] = e.partials.base(r)
            moved[side.unit] = symbolic.add(moved[side.unit], at)
        memo: dict[UOp, UOp] = {}
        shown = symbolic.lt(places[-1], self.stage.window[-1].size)
        if len(load.src) > 2:
            shown = symbolic.both(symbolic.substitute(load.src[2], moved, memo), shown)
        index = symbolic.substitute(load.src[1], moved, memo)
        stored = self.accesses.read(load.src[0], index, ix.mask(shown))
        self._store(symbolic.dot(places, strides), conversions.unpack(self.b, stored, self.register))
