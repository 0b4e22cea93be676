"""Write one kernel in the linear form from its AST and plan: open its ranges, write the loops over blocks.

The parts of a chain of kernels are written for one block of rows, one after the other.

Not here: the choice of the plan (`plan.tiling`), values on demand (`emitter`), loops of reductions
(`reductions`), the results of a block (`results`), loads and stores (`accesses`), rows in scratch memory
(`partials`), which blocks a loop runs over (`loop_limits`). Next: `emitter`, the state that the writers
share.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from compiler.dtype import dtypes
from compiler.emit import shared_tiles
from compiler.emit.accesses import Memory
from compiler.emit.emitter import Emitter
from compiler.emit.linear import POINTER
from compiler.emit.panels import Panels
from compiler.emit.reductions import Reductions
from compiler.emit.results import Results
from compiler.ir import index as symbolic
from compiler.ir.ops import Ops
from compiler.ir.walk import bound_ranges
from compiler.nest.loop_nest import Stage, Step, Threads, starts_of

if TYPE_CHECKING:
    from compiler.emit.builder import Builder
    from compiler.emit.linear import Branch, Line
    from compiler.ir.uop import UOp
    from compiler.nest.loop_nest import Axis, LoopNest, Reduction


class Linearizer:
    """Writes one kernel."""

    def __init__(self, ast: UOp, plan: LoopNest, buffers: int, builder: Builder | None = None) -> None:
        self.plan = plan
        self.e = e = Emitter(ast, plan, buffers, builder)
        self.b = e.b
        self.memory = memory = Memory(e)
        self.panels = Panels(e, memory)
        self.transposing: list[Stage] = []
        if plan.threads > 1:
            self.transposing += [s for s in plan.steps if isinstance(s, Stage) and s.across]
        self.reductions = Reductions(e, memory, self.panels)
        self.results = Results(e, memory, self.reductions)
        self.inner_steps = [
            s for s in plan.steps if (s.mechanism == "panels" if isinstance(s, Stage) else s.kind == "loop")
        ]

    def run(self) -> Builder:
        """Write the whole kernel, and return its builder."""
        e, plan = self.e, self.plan
        for axis in plan.every_axis():
            self._open_axis(axis)
        for reduction in plan.reductions.values():
            if reduction.ranges[-1] not in e.axes:
                self._open_reduction(reduction)
        e.extents.divide(plan)
        here = self._limited()
        looped = {s.range for s in plan.steps if isinstance(s, Step) and s.kind == "loop"}
        for axis in plan.axes:
            if axis.range not in looped:
                self._enter(axis.range, e.extents[axis.range].first)
        self._parts("once", {})
        self._nest(0)
        if here is not None:
            self.b.leave_branch(here)
        return self.b

    def _parts(self, when: str, places: dict[UOp, Line]) -> None:
        """Write the parts of a chain whose `Phase.when` is `when`, one after the other, at the cursor.

        `places` are the registers of the block's variables.
        """
        b, plan = self.b, self.plan
        memory = {
            k.slot: b.line("scratch", POINTER, 1, (), (k.dtype, k.count, "kept", k.slot))
            if k.count
            else self.e.index.buffer(k.slot)
            for k in plan.kept
        }
        for phase in plan.phases:
            if phase.when == when:
                cursor = b.cursor
                token = b.line("token", dtypes.bool, 1)
                inner = Linearizer(phase.ast, phase.plan, self.e.index.buffers, b)
                inner.e.index.bound.update(places)
                known = {slot: pointer for slot, (pointer, _) in self.e.index.kept.items()} | memory
                inner.e.index.kept = {slot: (pointer, token) for slot, pointer in known.items()}
                inner.run()
                b.cursor = cursor

    def _chain(self) -> None:
        """Write all parts of a chain for the current block, those of each piece in a loop."""
        b, plan, ix = self.b, self.plan, self.e.index
        b.cursor.floor = b.cursor  # nothing is loaded before the parts that store it
        ranges = [axis.range for axis in plan.axes]
        starts = starts_of(ranges, plan.axes[-1].block)
        places = {starts[r]: ix.materialised(ix.starts[r]) for r in ranges}
        self._parts("before", places)
        if plan.pieces is not None:
            start, size, count = plan.pieces
            loop = b.enter_loop(b.index(0), b.index(count), 1, b.cursor)
            loop.body.floor = loop.body
            places[start] = b.mul(loop.index, size)
            self._parts("each", places)
            b.leave_loop(loop, [])
            self._parts("after", places)

    def _limited(self) -> Branch | None:
        """Write the limits of ranges, and end each axis at its own; return the branch that does any work."""
        b, e, limits = self.b, self.e, self.e.limits
        numbers = dict.fromkeys([limit.number for every in limits.found.values() for limit in every])
        numbers |= dict.fromkeys(limits.before.values())
        limits.write({number: e.value(number) for number in numbers})
        some = e.extents.limit(self.plan.axes, limits)
        return None if some is None else b.enter_branch(some)

    def _open_axis(self, axis: Axis) -> None:
        """Express an output range by block, unit and lane."""
        e, ix = self.e, self.e.index
        r, unit, lane = axis.range, ix.fresh(axis.upcast), ix.fresh(axis.lanes)
        self._register(r, unit, lane)
        if axis.edge == "overlap":
            start = ix.fresh(axis.size - axis.block + 1)
        else:
            start = symbolic.mul(ix.fresh(axis.count), axis.block)
        digits = e.digits[r] = [(self._digit(t), t.stride) for t in axis.threads]
        terms = [(start, 1), *digits]
        if axis.run in (0, axis.upcast):
            terms.append((unit, axis.lanes))
        else:
            terms += [(symbolic.mod(unit, axis.run), axis.lanes), (symbolic.div(unit, axis.run), axis.spread)]
        first = symbolic.dot([x for x, _ in terms], [c for _, c in terms])
        ix.exprs[r] = symbolic.add(first, lane)
        if axis.edge == "masked":  # all lanes of a vector are on one side of the end, if the size allows it
            whole = axis.size % axis.lanes == 0
            ix.guards[r] = symbolic.lt(first if whole else ix.exprs[r], axis.size)
        e.extents.open(axis)
        ix.starts[r] = start

    def _register(self, r: UOp, unit: UOp, lane: UOp) -> None:
        """Record the unit and the lane of a range; either may be the constant 0."""
        if unit.op is Ops.RANGE:
            self.e.units[r] = unit
            self.e.index.unit_ranges.add(unit)
        self.e.lanes[r] = lane
        if lane.op is Ops.RANGE:
            self.e.index.lane_ranges[lane] = lane.arg[1]

    def _digit(self, part: Threads) -> UOp:
        """Return a digit of the thread's number as a range that is bound to its register."""
        ix = self.e.index
        digit = ix.fresh(part.size)
        if digit.op is Ops.RANGE:
            number = ix.divide(self.e.thread(), part.step, signed=False)
            if part.step * part.size < self.plan.threads:
                number = ix.modulo(number, part.size, signed=False)
            ix.bound[digit] = number
        return digit

    def _open_reduction(self, reduction: Reduction) -> None:
        """Express the ranges of a reduction: a loop each, or pieces; the last by round, unit and lane."""
        e, ix = self.e, self.e.index
        cut = {s.range: s.size for s in self.plan.steps if isinstance(s, Step) and s.size < s.range.arg[1]}
        for r in reduction.ranges:
            if r in cut:
                ix.starts[r] = e.partials.open(r, cut[r])
            else:
                ix.exprs[r] = ix.starts[r] = ix.fresh(r.arg[1])
        last = reduction.ranges[-1]
        if last in cut:
            e.lanes[last] = symbolic.ZERO
            e.digits[last] = [(symbolic.ZERO, 1)]
            return
        unit, lane = ix.fresh(reduction.unroll), ix.fresh(reduction.lanes)
        self._register(last, unit, lane)
        digit = self._digit(Threads(reduction.threads, stride=reduction.lanes))
        e.digits[last] = [(digit, reduction.lanes)]
        wide = reduction.threads * reduction.lanes
        start = ix.fresh(max(1, last.arg[1] // (reduction.unroll * wide)))
        ix.starts[last] = start
        ix.exprs[last] = symbolic.dot(
            (start, unit, digit, lane), (reduction.unroll * wide, wide, reduction.lanes, 1)
        )

    def _nest(self, position: int) -> None:
        """Write the loops and copies of `inner_steps` from `position` on, and in all of them the block."""
        if position == len(self.inner_steps):
            self._block()
            return
        b, e, step = self.b, self.e, self.inner_steps[position]
        if isinstance(step, Stage):
            if not self.e.partials.finished:
                self.panels.fill(step)
            self._nest(position + 1)
            return
        r = step.range
        if r in e.partials.pieces:
            self._pieces(r, position)
            return
        saved = e.extents[r]
        first, end, cap = saved
        if step.size >= cap and step.size > 1:
            self._nest(position + 1)
            return
        if cap == 1:
            self._enter(r, first)
            self._nest(position + 1)
            return
        loop = b.enter_loop(first, end, step.size, b.cursor)
        if step.size == 1:
            self._enter(r, loop.index)
        e.extents.narrow(r, loop.index, step.size, limited=r in e.limits)
        self._nest(position + 1)
        b.leave_loop(loop, [])
        e.extents[r] = saved

    def _pieces(self, r: UOp, position: int) -> None:
        """Write the loop over the pieces of a summed range; none where the loops use the finished totals."""
        e, partials = self.e, self.e.partials
        if partials.finished:
            self._nest(position + 1)
            return
        totals = partials.totals
        if totals is None:
            node = next(n for n in e.free if n.op is Ops.REDUCE and r in bound_ranges(n, e.free))
            totals = partials.allocate(node, e.free[node], e.units_of(node), self.plan.axes, e.extents)
        partials.loop(r, totals, lambda: self._nest(position + 1))

    def _enter(self, r: UOp, number: Line) -> None:
        """Set the current block of an axis to a number."""
        self.panels.enter(r, number)
        self.e.partials.enter(r, number)
        self.e.enter_block(r, number)

    def _block(self) -> None:
        """Write the results of one block, or add the sums of the current piece to its totals."""
        if self.plan.phases:
            self._chain()
            return
        partials = self.e.partials
        if partials.totals is not None and not partials.finished:
            partials.add(self.reductions.piece(partials.totals))
            return
        if self.transposing:
            shared_tiles.fill(self.e, self.memory, self.transposing)
        self.results.write()
