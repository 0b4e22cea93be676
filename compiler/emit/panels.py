"""Operands in packed panels in scratch memory: the loops that copy them there, and loads from the panels.

A panel is one block of the operand's output range, for all values of the summed ranges. The element of panel
p, summed values k and place u in the block is at `(p * K + k) * block + u`, where K is the product of the
sizes of the summed ranges. So the register tile reads operands in order, whatever their layout in memory is,
and an operand that is computed (a cast, a mask, a scale) is computed once for each element.

Not here: which operands are copied (`plan.contraction`), the copy of a window (`window_copies`). Next:
`linearize`, the caller.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from compiler.dtype import HALF, dtypes, register_type, storage_type
from compiler.emit import conversions, window_copies
from compiler.emit.accesses import FactorSource
from compiler.emit.linear import POINTER
from compiler.ir import index as symbolic
from compiler.ir.ops import Ops
from compiler.nest import windows
from compiler.nest.kernel_shape import inner_nodes

if TYPE_CHECKING:
    from collections.abc import Callable

    from compiler.dtype import DType
    from compiler.emit.accesses import Memory
    from compiler.emit.emitter import Emitter
    from compiler.emit.linear import Line
    from compiler.ir.uop import UOp
    from compiler.nest.loop_nest import Axis, Stage


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
    """The operands of one kernel that are copied to panels."""

    def __init__(self, e: Emitter, memory: Memory) -> None:
        self.e = e
        self.b = e.b
        self.memory = memory
        self.panels: dict[UOp, FilledPanels] = {}
        """For each operand its panels; they are read inside the loop in which they were copied."""

    def fill(self, stage: Stage) -> None:
        """Write the copy of every block in the axis's extent; lines written after it read the panels."""
        e, b = self.e, self.b
        axis = e.axes[stage.axis]
        first, _, count = e.extents[stage.axis]
        dtype = storage_type(register_type(stage.value.dtype))
        if stage.window:
            self._fill_window(stage, dtype)
            return
        strides = self._strides(stage, axis)
        memory = b.line("scratch", POINTER, 1, (), (dtype, count * strides[0], len(self.panels)))
        panel = e.index.fresh(count)
        unit, lane = e.units.get(stage.axis, symbolic.ZERO), e.lanes[stage.axis]
        places = [e.partials.place(r) for r in stage.ranges]
        index = symbolic.dot((panel, *places, unit, lane), (*strides, axis.lanes, 1))
        _PanelCopy(e, self.memory, stage, panel, index, memory).write()
        token = b.line("token", dtypes.bool, 1)
        self._read(FilledPanels(stage, dtype, memory, first, panel, index, token))

    def _fill_window(self, stage: Stage, dtype: DType) -> None:
        """Write the copy of a window; lines written after it read the window."""
        b = self.b
        lanes = max(a.lanes for a in self.e.plan.axes)
        count = windows.strides_of(stage.window, lanes)[0]
        memory = b.line("scratch", POINTER, 1, (), (dtype, count, len(self.panels)))
        window_copies.fill(self.e, self.memory, stage, memory, lanes)
        partials, token = self.e.partials, b.line("token", dtypes.bool, 1)
        moved = {r: partials.place(r) for r in partials.pieces}
        index = symbolic.substitute(windows.index_of(stage.window, lanes), moved, {})
        self._read(FilledPanels(stage, dtype, memory, b.index(0), symbolic.ZERO, index, token))

    def _read(self, panels: FilledPanels) -> None:
        """Load an operand from its panels from now on."""
        operand = panels.stage.value
        self.panels[operand] = panels
        self.e.readers[operand] = self.read

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


class _PanelCopy:
    """The loops that fill the panels of one stage.

    In the copy the ranges have other parts than in the register tile: each summed range has a loop, the last
    one in steps of `Stage.turn` values, and the block of a `wide` stage is one vector.
    """

    def __init__(  # noqa: PLR0917  # one caller
        self, e: Emitter, accesses: Memory, stage: Stage, panel: UOp, index: UOp, memory: Line
    ) -> None:
        self.e = e
        self.b = e.b
        self.accesses = accesses
        self.stage = stage
        self.panel = panel
        self.index = index
        self.memory = memory
        self.lanes = e.axes[stage.axis].block if stage.wide else e.axes[stage.axis].lanes
        self.order = list(stage.ranges)
        """The loops over summed ranges, outermost first."""
        self.vector: UOp | None = None
        """The counter of the loop over the vectors of a block; None where they are unrolled."""

    def write(self) -> None:
        """Write the loops; the cursor is where it was then."""
        stage, cursor = self.stage, self.b.cursor
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
        masks = [n.src[2] for n in inner_nodes((self.stage.value,)) if n.op is Ops.LOAD and len(n.src) > 2]
        return frozenset([r for mask in masks for r in self.e.free[mask]])

    def _in_rows(self) -> bool:
        """Return whether the operand's loads are adjacent along the blocks."""
        loads = [n for n in inner_nodes((self.stage.value,)) if n.op is Ops.LOAD]
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
        e, b, ix = self.e, self.b, self.e.index
        register = register_type(self.stage.value.dtype)
        dtype = storage_type(register)
        units = [e.units[r] for r in (self.stage.axis, self.stage.ranges[-1]) if r in e.units]
        if units and self._squares(units, dtype):
            return
        for _ in e.positions(units):
            value = b.splat(e.value(self.stage.value), self.lanes)
            address = ix.address(self.memory, ix.place(self.index), dtype)
            b.line("store", dtype, self.lanes, (address, conversions.pack(b, value, register)))

    def _squares(self, units: list[UOp], dtype: DType) -> bool:
        """Write the copy by transposed squares, if the operand is read by them; return whether it is."""
        e, b, ix = self.e, self.b, self.e.index
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

    def _loop(self, end: Line, body: Callable[[Line], None]) -> None:
        """Write a loop from 0 to `end`, without a loop if there is one round."""
        if end.arg == 1:
            body(self.b.index(0))
            return
        loop = self.b.enter_loop(self.b.index(0), end, 1, self.b.cursor)
        body(loop.index)
        self.b.leave_loop(loop, [])
