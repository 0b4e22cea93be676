"""From kernel AST and plan to the linear form.

Values are written on demand: `value(node)` writes the node's lines, and the builder places them in the
outermost loop where their sources exist. So a reduction that depends on few ranges is outside the loops over
the others, which is all that a softmax in one kernel needs. The current unrolled positions are in `env`, not
in the graph: an index is affine, so they add a constant to an address.

Not here: the choice of the plan (`plan.tiling`), loops of reductions (`reductions`), the results of a block
(`results`), loads and stores (`accesses`), rows in scratch memory (`row_scratch`), which blocks a loop runs
over (`block_extents`), operations (`value_lines`, `isel`).
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Final

from compiler.dtype import HALF, dtypes
from compiler.emit import conversions, isel, linear, loop_limits, phases, value_lines
from compiler.emit.accesses import Memory, rows_of
from compiler.emit.block_extents import Extents
from compiler.emit.builder import Builder
from compiler.emit.device_pipeline import PipelinedSum
from compiler.emit.device_sum import StagedSum
from compiler.emit.indexing import Indexer
from compiler.emit.partials import Partials
from compiler.emit.reductions import Reducer
from compiler.emit.results import Results
from compiler.emit.row_scratch import KeptRows
from compiler.emit.stages import Stages
from compiler.emit.transposes import TransposeTiles
from compiler.ir import index as symbolic
from compiler.ir.ops import BINARY, UNARY, Ops
from compiler.ir.walk import bound_ranges, ranges_in
from compiler.nest.loop_nest import Stage, Step, Threads
from hcq.errors import CompileError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from compiler.emit.linear import Branch, Line, LineBlock
    from compiler.emit.tile_products import FactorSource
    from compiler.ir.uop import UOp
    from compiler.nest.loop_nest import Axis, LoopNest, Phase, Reduction


class Linearizer:
    """Writes one kernel."""

    def __init__(self, ast: UOp, plan: LoopNest, buffers: int, builder: Builder | None = None) -> None:
        self.ast = ast
        self.plan = plan
        self.b = builder or Builder()
        self.free = ranges_in(ast)
        self.index = Indexer(self.b, self.value, buffers)
        self.env = self.index.env
        self.extents = Extents(self.b, self.index)
        self.memory = Memory(self)
        self.values: dict[tuple[object, ...], Line] = {}
        self.units: dict[UOp, UOp] = {}
        self.lanes: dict[UOp, UOp] = {}
        self.digits: dict[UOp, list[tuple[UOp, int]]] = {}
        """For each range its thread parts: (the digit of the thread's number, values between neighbours)."""
        self.unit_keys: dict[UOp, tuple[UOp, ...]] = {}
        self.sum_units: dict[UOp, list[UOp]] = {}
        """For each REDUCE whose values are a bundle, the unrolled ranges that number them."""
        self.siblings: dict[object, list[UOp]] = {}
        self.readers: dict[UOp, Callable[[UOp], Line]] = {}
        """For each value that is in memory of the kernel, what loads it."""
        self.rows = KeptRows(self)
        self.stages = Stages(self)
        self.turns = TransposeTiles(self)
        self.limits = loop_limits.LoopLimits(self.b, loop_limits.find(ast, self.free, plan.rows))
        turn = max([s.turn for s in plan.steps if isinstance(s, Stage)], default=1)
        self.partials = Partials(self.b, self.index, self.limits, turn)
        self.inner_steps = [
            s for s in plan.steps if isinstance(s, Stage) or (isinstance(s, Step) and s.kind == "loop")
        ]
        for node in self.free:
            if node.op is Ops.REDUCE:
                self.siblings.setdefault(self._family(node), []).append(node)

    def _family(self, node: UOp) -> object:
        """Return the key of a REDUCE's family: its ranges, and the other ranges on which it depends."""
        return bound_ranges(node, self.free), self.free[node]

    def run(self) -> Builder:
        """Write the whole kernel, and return its builder."""
        for axis in self.plan.axes:
            self._open_axis(axis)
        for reduction in self.plan.reductions.values():
            self._open_reduction(reduction)
        self.extents.divide(self.plan)
        here = self._limited()
        looped = {s.range for s in self.plan.steps if isinstance(s, Step) and s.kind == "loop"}
        for axis in self.plan.axes:
            if axis.range not in looped:
                self._enter(axis.range, self.extents[axis.range].first)
        if self.plan.phases:
            phases.write_once(self.b, self.plan, self._part)
        self._nest(0)
        if here is not None:
            self.b.leave_branch(here)
        return self.b

    def _part(self, phase: Phase, places: dict[UOp, Line], kept: dict[int, tuple[Line, Line]]) -> None:
        """Write one part of a chain at the cursor."""
        inner = Linearizer(phase.ast, phase.plan, self.index.buffers, self.b)
        inner.index.bound.update(places)
        inner.index.kept = kept
        inner.run()

    def _limited(self) -> Branch | None:
        """Write the limits of ranges, and end each axis at its own; return the branch that does any work."""
        b, limits = self.b, self.limits
        numbers = dict.fromkeys([limit.number for every in limits.found.values() for limit in every])
        limits.write({number: self.value(number) for number in numbers})
        some = self.extents.limit(self.plan.axes, limits)
        return None if some is None else b.enter_branch(some)

    def _open_axis(self, axis: Axis) -> None:
        """Express an output range by block, unit and lane."""
        ix = self.index
        r, unit, lane = axis.range, ix.fresh(axis.upcast), ix.fresh(axis.lanes)
        self._register(r, unit, lane)
        if axis.edge == "overlap":
            start = ix.fresh(axis.size - axis.block + 1)
        else:
            start = symbolic.mul(ix.fresh(axis.count), axis.block)
        digits = self.digits[r] = [(self._digit(t), t.stride) for t in axis.threads]
        terms = [(start, 1), *digits]
        if axis.run in (0, axis.upcast):
            terms.append((unit, axis.lanes))
        else:
            terms += [
                (symbolic.mod(unit, axis.run), axis.lanes),
                (symbolic.div(unit, axis.run), axis.spread),
            ]
        first = symbolic.dot([x for x, _ in terms], [c for _, c in terms])
        ix.exprs[r] = symbolic.add(first, lane)
        if axis.edge == "masked":  # all lanes of a vector are on one side of the end, if the size allows it
            whole = axis.size % axis.lanes == 0
            ix.guards[r] = symbolic.lt(first if whole else ix.exprs[r], axis.size)
        self.extents.open(axis)
        ix.starts[r] = start

    def _register(self, r: UOp, unit: UOp, lane: UOp) -> None:
        if unit.op is Ops.RANGE:
            self.units[r] = unit
            self.index.unit_ranges.add(unit)
        self.lanes[r] = lane
        if lane.op is Ops.RANGE:
            self.index.lane_ranges[lane] = lane.arg[1]

    def _digit(self, part: Threads) -> UOp:
        """Return a digit of the thread's number as a range that is bound to its register."""
        ix = self.index
        digit = ix.fresh(part.size)
        if digit.op is Ops.RANGE:
            number = ix.divide(self.b.line("thread", dtypes.int64, 1, (), 0), part.step, signed=False)
            if part.step * part.size < self.plan.threads:
                number = ix.modulo(number, part.size, signed=False)
            ix.bound[digit] = number
        return digit

    def _open_reduction(self, reduction: Reduction) -> None:
        ix = self.index
        cut = {s.range: s.size for s in self.plan.steps if isinstance(s, Step) and s.size < s.range.arg[1]}
        for r in reduction.ranges:
            if r in cut:
                ix.starts[r] = self.partials.open(r, cut[r])
            else:
                ix.exprs[r] = ix.starts[r] = ix.fresh(r.arg[1])
        last = reduction.ranges[-1]
        if last in cut:
            self.lanes[last] = symbolic.ZERO
            self.digits[last] = [(symbolic.ZERO, 1)]
            return
        unit, lane = ix.fresh(reduction.unroll), ix.fresh(reduction.lanes)
        self._register(last, unit, lane)
        digit = self._digit(Threads(reduction.threads, stride=reduction.lanes))
        self.digits[last] = [(digit, reduction.lanes)]
        wide = reduction.threads * reduction.lanes
        start = ix.fresh(max(1, last.arg[1] // (reduction.unroll * wide)))
        ix.starts[last] = start
        ix.exprs[last] = symbolic.dot(
            (start, unit, digit, lane), (reduction.unroll * wide, wide, reduction.lanes, 1)
        )

    def bind(self, r: UOp, value: Line) -> None:
        """Set the register of a range's block counter."""
        start = self.index.starts[r]
        atoms = [a for a in symbolic.atoms_of((start,)) if a.op is Ops.RANGE]
        if atoms:
            self.index.bound[atoms[0]] = value

    def _nest(self, position: int) -> None:
        """Write the loops from `position` inwards, then the stores of a block."""
        if position == len(self.inner_steps):
            self._block()
            return
        b, step = self.b, self.inner_steps[position]
        if isinstance(step, Stage):
            if not self.partials.finished:
                self.stages.fill(step)
            self._nest(position + 1)
            return
        r = step.range
        if r in self.partials.pieces:
            self._pieces(r, position)
            return
        saved = self.extents[r]
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
        self.extents.narrow(r, loop.index, step.size, limited=r in self.limits)
        self._nest(position + 1)
        b.leave_loop(loop, [])
        self.extents[r] = saved

    def _pieces(self, r: UOp, position: int) -> None:
        """Write the loop over the pieces of a summed range; not in the loops that use the finished totals."""
        partials = self.partials
        if partials.finished:
            self._nest(position + 1)
            return
        totals = partials.totals
        if totals is None:
            node = next(n for (n, *_) in self.siblings.values() if r in bound_ranges(n, self.free))
            totals = partials.allocate(
                node, self.free[node], self.units_of(node), self.plan.axes, self.extents
            )
        partials.loop(r, totals, lambda: self._nest(position + 1))

    def _enter(self, r: UOp, number: Line) -> None:
        """Set the current block of an axis to a number."""
        self.stages.enter(r, number)
        self.partials.enter(r, number)
        self.enter_block(r, number)

    def enter_block(self, r: UOp, number: Line) -> None:
        """Bind an axis to its block of that number; the last one may begin earlier."""
        axis = next(a for a in self.plan.axes if a.range is r)
        if axis.edge == "overlap":
            first = self.b.mul(number, axis.block)
            number = self.b.call("smin", first, self.b.index(axis.size - axis.block))
        self.bind(r, number)

    def _block(self) -> None:
        """Write the results of one block, or add the sums of the current piece to its totals."""
        if self.plan.phases:
            phases.write(self.b, self.plan, self.index, self._part)
            return
        totals = self.partials.totals
        if totals is not None and not self.partials.finished:
            cursor = self.b.cursor
            sums = Reducer(self, [totals.node], totals.units).sums(cursor)
            self.b.cursor = cursor
            self.partials.add(sums)
            return
        Results(self).write()

    def positions(self, units: list[UOp]) -> Iterator[None]:
        """Set `env` to every combination of unrolled positions in turn."""
        for point in itertools.product(*[range(u.arg[1]) for u in units]):
            self.env.update(zip(units, point, strict=True))
            yield

    def value(self, node: UOp) -> Line:
        """Return the register of a node at the current position."""
        keys = self.unit_keys.get(node)
        if keys is None:
            keys = self._keys(node)
        env = self.env
        key = (node, *[env[u] for u in keys]) if keys else (node,)
        found = self.values.get(key)
        if found is None or not found.block.open:
            found = self.values[key] = self._compute(node)
        return found

    def stored(self, node: UOp) -> Line:
        """Return the register of a LOAD at the current position, of the type in memory."""
        return self.memory.stored(node)

    def in_memory(self, operand: UOp) -> FactorSource | None:
        """Return where an operand is in memory; None where it is computed, masked, or fetched ahead."""
        if operand in self.readers:
            return self.stages.source(operand)
        if (
            operand.op is Ops.CAST
            and operand.dtype is dtypes.float32
            and operand.src[0].dtype in HALF
        ):
            return self.in_memory(operand.src[0])  # its register is float32 already
        return self.memory.plain(operand)

    def source(self, node: UOp) -> tuple[Line, Line | None]:
        """Return the address of the vector of a LOAD at the current position, and its mask."""
        return self.memory.source(node)

    def _keys(self, node: UOp) -> tuple[UOp, ...]:
        """Find the unrolled ranges that a node depends on, by number; record and return them."""
        units = [self.units[r] for r in self.free[node] if r in self.units]
        if len(units) > 1:
            units.sort(key=lambda u: int(u.arg[0]))
        keys = self.unit_keys[node] = tuple(units)
        return keys

    def _compute(self, node: UOp) -> Line:
        read = self.readers.get(node)
        if read is not None:
            return read(node)
        op, src = node.op, node.src
        if op in BINARY:
            return isel.binary(self.b, op, node.dtype, self.value(src[0]), self.value(src[1]))
        if op in UNARY:
            return isel.unary(self.b, op, node.dtype, self.value(src[0]))
        handler = _HANDLERS.get(op)
        if handler is None:
            raise CompileError(f"{op} is not a value of a kernel")
        return handler(self, node)

    def reduce(self, node: UOp) -> Line:
        """Return the current value of a REDUCE, after the loops of its family at all unrolled positions."""
        if not node.arg[1]:
            return self.value(node.src[0])
        sums, keys = self.summed(node), self.unit_keys[node]
        if sums is not None:
            order = [self.sum_units[node].index(u) for u in keys]
            points = itertools.product(*[range(u.arg[1]) for u in self.sum_units[node]])
            for point, row in zip(points, rows_of(self.b, sums, linear.count_of(sums)), strict=True):
                self.values[node, *[point[k] for k in order]] = conversions.rounded(self.b, row, node.dtype)
        return self.values[node, *[self.env[u] for u in keys]]

    def summed(self, node: UOp) -> Line | None:
        """Write the loops of a REDUCE if they are not; return the bundle of its sums before they are rounded.

        None if the sums are single registers.
        """
        written = self.values.get((node, "sums"))
        if written is not None and written.block.open:
            return written
        keys = self.unit_keys.get(node)
        if keys is None:
            keys = self._keys(node)
        found = self.values.get((node, *[self.env[u] for u in keys]))
        if found is None or not found.block.open:
            self._sum(node)
        written = self.values.get((node, "sums"))
        return written if written is not None and written.block.open else None

    def _sum(self, node: UOp) -> None:
        """Write the loops of a REDUCE, and record its values."""
        if self.plan.reductions[bound_ranges(node, self.free)].staged:
            asynchronous = self.plan.shared_stages()[0].mechanism == "asynchronous copies"
            (PipelinedSum if asynchronous else StagedSum)(self, node).run()
            return
        family = self.siblings[self._family(node)]
        units = self.units_of(node)
        here = {u: self.env[u] for u in units}
        cursor = self.b.cursor
        if self.partials.totals is not None and self.partials.totals.node is node:
            points = itertools.product(*[range(u.arg[1]) for u in units])
            for point, total in zip(points, self.partials.finished_values(), strict=True):
                self.env.update(zip(units, point, strict=True))
                self.finish(node, total)
        else:
            Reducer(self, family, units).run(self._home(self.free[node]))
        self.rows.filled(node)
        self.b.cursor = cursor
        self.env.update(here)

    def units_of(self, node: UOp) -> list[UOp]:
        """Return the unrolled ranges of a REDUCE, by the number of the range that each is a part of.

        The range of the vectors is last: one value of the others at a time is then spread over lanes.
        """
        free = sorted(
            self.free[node], key=lambda r: (self.lanes.get(r) in self.index.lane_ranges, int(r.arg[0]))
        )
        return [self.units[r] for r in free if r in self.units]

    def _home(self, free: frozenset[UOp]) -> LineBlock:
        """Return the outermost block where these ranges have values, and to which loads may move."""
        home = max((self.b.cursor.floor, self.b.held), key=lambda block: block.depth)
        for r in free:
            for atom in symbolic.atoms_of((self.index.exprs[r],)):
                line = self.index.bound.get(atom)
                if line is not None and line.block.depth > home.depth:
                    home = line.block
        return home

    def finish(self, node: UOp, total: Line) -> None:
        """Record a reduction's value at the current position."""
        keys = self.unit_keys.get(node)
        if keys is None:
            keys = self._keys(node)
        self.values[(node, *[self.env[u] for u in keys])] = conversions.rounded(self.b, total, node.dtype)

    def finish_all(self, node: UOp, units: list[UOp], sums: Line) -> None:
        """Record the bundle of a reduction's sums at all positions of `units`, before they are rounded."""
        self.values[node, "sums"] = sums
        self.sum_units[node] = units


_HANDLERS: Final[dict[str, Callable[[Linearizer, UOp], Line]]] = {
    **value_lines.HANDLERS,
    Ops.LOAD: lambda writer, node: writer.memory.load(node),
    Ops.REDUCE: Linearizer.reduce,
}
