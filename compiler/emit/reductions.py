"""Write reductions: loops of full rounds of unrolled iterations, then the rest, with carried accumulators.

A long sum is computed in blocks: of n iterations, a value is rounded about sqrt(n) times on average.

A family is the REDUCEs over the same ranges that depend on the same other ranges. One loop nest computes all
of a family, at every unrolled output position. The order of additions depends on the plan alone, so on shapes
and target, never on the number of workers.

Not here: the reduction across threads of a workgroup (`workgroup_reduce`), sums of tiles in shared memory
(`staged_sum`, `online_sum`), large reductions in two kernels (`schedule.scheduler`). Next: `products`.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from compiler.emit import conversions, isel, linear, products, staged_sum
from compiler.emit.accesses import rows_of
from compiler.emit.online_sum import OnlineSum
from compiler.emit.partials import RowScratch
from compiler.emit.workgroup_reduce import Total, over_threads
from compiler.ir import index as symbolic
from compiler.ir.ops import Ops
from compiler.ir.walk import bound_ranges
from compiler.nest import convolution_borders

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from compiler.emit.accesses import Memory
    from compiler.emit.emitter import Emitter
    from compiler.emit.linear import Line, LineBlock
    from compiler.emit.panels import Panels
    from compiler.emit.partials import Totals
    from compiler.ir.uop import UOp


_MANY = 512
"""Rounds from which on a sum is computed in blocks, about as many as a block has rounds."""
_FEW = 16
"""Accumulators up to which a sum without `Reduction.block` is computed in blocks: there are two sets then."""


class Reductions:
    """The REDUCEs of one kernel. A family is written at the first use of a value of one of its nodes."""

    def __init__(self, e: Emitter, memory: Memory, panels: Panels) -> None:
        self.e = e
        self.memory = memory
        self.rows = RowScratch(e) if e.plan.rows else None
        self.panels = panels
        self.families: dict[object, list[UOp]] = {}
        self.units: dict[UOp, list[UOp]] = {}
        """For each REDUCE whose values are a bundle, the units that number them."""
        for node in e.free:
            if node.op is Ops.REDUCE:
                self.families.setdefault(self._family(node), []).append(node)
        e.handlers[Ops.REDUCE] = self.value

    def _family(self, node: UOp) -> object:
        """Return the key of a REDUCE's family: its ranges, and the other ranges on which it depends."""
        return bound_ranges(node, self.e.free), self.e.free[node]

    def value(self, node: UOp) -> Line:
        """Return the current value of a REDUCE, after the loops of its family at all unrolled positions."""
        e = self.e
        if not node.arg[1]:
            return e.value(node.src[0])
        sums, keys = self.bundle(node), e.unit_keys[node]
        if sums is not None:
            order = [self.units[node].index(u) for u in keys]
            points = itertools.product(*[range(u.arg[1]) for u in self.units[node]])
            for point, row in zip(points, rows_of(e.b, sums, linear.count_of(sums)), strict=True):
                e.values[node, *[point[k] for k in order]] = conversions.rounded(e.b, row, node.dtype)
        return e.values[node, *[e.env[u] for u in keys]]

    def bundle(self, node: UOp) -> Line | None:
        """Write the loops of a REDUCE if they are not; return the bundle of its sums before they are rounded.

        None if the sums are single registers.
        """
        e = self.e
        written = e.values.get((node, "sums"))
        if written is not None and written.block.open:
            return written
        found = e.values.get(e.key(node))
        if found is None or not found.block.open:
            self._write(node)
        written = e.values.get((node, "sums"))
        return written if written is not None and written.block.open else None

    def piece(self, totals: Totals) -> list[Line]:
        """Write the loops of the current piece of a sum; return the sum of each unrolled position."""
        cursor = self.e.b.cursor
        loops = ReductionLoops(self.e, self.memory, self.rows, self.panels, [totals.node], totals.units)
        sums = loops.sums(cursor)
        self.e.b.cursor = cursor
        return sums

    def _write(self, node: UOp) -> None:
        """Write the loops of a REDUCE, and record its values."""
        e = self.e
        if e.plan.online is not None:
            OnlineSum(e, self.memory, e.plan.online).run()
            return
        if e.plan.reductions[bound_ranges(node, e.free)].staged:
            staged_sum.write(e, self.memory, node)
            return
        family = self.families[self._family(node)]
        units = e.units_of(node)
        here = {u: e.env[u] for u in units}
        cursor = e.b.cursor
        if e.partials.totals is not None and e.partials.totals.node is node:
            for _, total in zip(e.positions(units), e.partials.finished_values(), strict=True):
                e.finish(node, total)
        else:
            loops = ReductionLoops(e, self.memory, self.rows, self.panels, family, units)
            sums = loops.run(self._home(e.free[node]))
            if sums is not None:
                e.values[node, "sums"] = sums
                self.units[node] = units
        if self.rows is not None:
            self.rows.filled(node)
        e.b.cursor = cursor
        e.env.update(here)

    def _home(self, free: frozenset[UOp]) -> LineBlock:
        """Return the outermost block where these ranges have values, and to which loads may move."""
        b, ix = self.e.b, self.e.index
        home = max((b.cursor.floor, b.held), key=lambda block: block.depth)
        for r in free:
            for atom in symbolic.atoms_of((ix.exprs[r],)):
                line = ix.bound.get(atom)
                if line is not None and line.block.depth > home.depth:
                    home = line.block
        return home


class ReductionLoops:
    """The loops of one family of reductions."""

    def __init__(  # noqa: PLR0917  # two callers, side by side
        self, e: Emitter, memory: Memory, rows: RowScratch | None, panels: Panels, family: list[UOp],
        units: list[UOp]
    ) -> None:  # fmt: skip
        self.e = e
        self.b = e.b
        self.memory = memory
        self.family = family
        self.units = units
        self.plan = e.plan.reductions[bound_ranges(family[0], e.free)]
        self.row_stores = [] if rows is None else rows.stores(family)
        """What stores the current values of rows in scratch memory."""
        self.points = list(itertools.product(*[range(u.arg[1]) for u in units]))
        self.per = self.plan.unroll if self.plan.inside is None else 1
        """Accumulators of each output."""
        self.bundled: Callable[[Line], Line] | None = None
        """What adds the products of a round as one line; the accumulators are then one bundle."""
        if len(family) == 1 and not self.row_stores:
            self.bundled = products.bundled(e, panels, family[0], self.plan, units, self.points)

    def sums(self, home: LineBlock) -> list[Line]:
        """Write the loops inside `home`, and return the accumulators of all places."""
        self.b.cursor = home
        totals = self._level(0, self._identities())
        return totals if self.bundled is None else rows_of(self.b, totals[0], len(self.points))

    def run(self, home: LineBlock) -> Line | None:
        """Write the loops inside `home`, and record the results with `Emitter.finish`.

        Results that are one bundle are returned instead; otherwise None is.
        """
        self.b.cursor = home
        totals = self._level(0, self._identities())
        if self.bundled is not None:
            return totals[0]
        per = self.per
        places = list(itertools.product(self.family, self.points))
        sums = (self._unrolled(node, totals[i * per : (i + 1) * per]) for i, (node, _) in enumerate(places))
        for (node, point), total in zip(places, self._across(sums), strict=True):
            self.e.env.update(zip(self.units, point, strict=True))
            self.e.finish(node, total)
        return None

    def _unrolled(self, node: UOp, parts: list[Line]) -> Total:
        """Combine the accumulators of one output's unrolled iterations, as a tree."""
        while len(parts) > 1:
            parts = [
                isel.combine(self.b, node.arg[0], node.dtype, parts[i], parts[i + 1])
                if i + 1 < len(parts)
                else parts[i]
                for i in range(0, len(parts), 2)
            ]
        return Total(node.arg[0], node.dtype, parts[0])

    def _across(self, sums: Iterable[Total]) -> Iterable[Line]:
        """Combine the totals of lanes or threads."""
        plan = self.e.plan
        if self.plan.lanes > 1:
            sums = [total._replace(value=isel.across(self.b, *total)) for total in sums]
        if self.plan.threads > 1:
            return over_threads(self.b, tuple(sums), plan.threads, plan.warp)
        return (total.value for total in sums)

    def _identities(self) -> list[Line]:
        lanes = self.plan.lanes
        if self.bundled is not None:
            (node,) = self.family
            zero = isel.identity(self.b, node.arg[0], node.dtype, self._lanes_of(node))
            return [self.b.line("repeat", zero.dtype, zero.lanes, (zero,), len(self.points))]
        out: list[Line] = []
        for node in self.family:
            wide = lanes if lanes > 1 else self._lanes_of(node)
            out += [isel.identity(self.b, node.arg[0], node.dtype, wide)] * (len(self.points) * self.per)
        return out

    def _lanes_of(self, node: UOp) -> int:
        """Return the lanes of the value if they are along an output range, else 1."""
        ix = self.e.index
        for r in self.e.free[node]:
            for atom in symbolic.atoms_of((ix.exprs[r],)):
                if atom in ix.lane_ranges:
                    return ix.lane_ranges[atom]
        return 1

    def _level(self, depth: int, totals: list[Line]) -> list[Line]:
        """Write the loop over one range, and the others inside it."""
        ranges = self.plan.ranges
        if depth == len(ranges) - 1:
            return self._innermost(totals)
        r, b, ix = ranges[depth], self.b, self.e.index
        if self.plan.inside is None or r not in self.plan.bounded:
            size = self.e.partials.size(r)
            return self._loop(r, b.index(0), size, totals, lambda t: self._level(depth + 1, t))
        low, high, known = convolution_borders.bounds(b, ix, self.plan.inside.src[2], r)
        ix.known.update(known)
        totals = self._loop(r, low, high, totals, lambda t: self._level(depth + 1, t))
        ix.known.difference_update(known)
        return totals

    def _loop(
        self, r: UOp, low: Line, high: Line, totals: list[Line], body: Callable[[list[Line]], list[Line]]
    ) -> list[Line]:
        b = self.b
        if high.arg == 1 and low.arg == 0:
            self.e.index.bind(r, low)
            return body(totals)
        loop = b.enter_loop(low, high, 1, b.cursor)
        self.e.index.bind(r, loop.index)
        carried = [b.carry(loop, t) for t in totals]
        return b.leave_loop(loop, body(carried))

    def _innermost(self, totals: list[Line]) -> list[Line]:
        """Write the full rounds, then the rest in single vectors, of which the last may be masked."""
        plan = self.plan
        r = plan.ranges[-1]
        if r in self.e.partials.pieces:
            size = self.e.partials.size(r)
            return self._loop(r, self.b.index(0), size, totals, lambda t: self._round(t, 1))
        size, step = r.arg[1], plan.unroll * plan.threads * plan.lanes
        rounds = size // step
        if rounds:
            totals = self._rounds(r, rounds, totals)
        if size % step:
            first = rounds * step
            totals = self._from(r, first, totals, lambda t: self._tail(r, first, t))
        return totals

    def _from(
        self, r: UOp, first: int, totals: list[Line], body: Callable[[list[Line]], list[Line]]
    ) -> list[Line]:
        """Write `body`, which begins at the value `first` of r, in a branch if r's limit may be before it."""
        b, limits = self.b, self.e.limits
        if r not in limits or not first:
            return body(totals)
        branch = b.enter_branch(b.cmp("slt", b.index(first), limits.lines[r]))
        return b.leave_branch(branch, list(zip(body(totals), totals, strict=True)))

    def _rounds(self, r: UOp, rounds: int, totals: list[Line]) -> list[Line]:
        """Write the full rounds.

        Many rounds are in blocks, each with a sum of its own, so that a chain has fewer roundings. With many
        accumulators all rounds are in one loop: there are no registers for two sets of them.
        """
        b, unroll, limits = self.b, self.plan.unroll, self.e.limits
        step = unroll * self.plan.threads * self.plan.lanes
        end = limits.rounds(r, step, b.index(rounds))

        def block(low: Line, high: Line, start: list[Line]) -> list[Line]:
            return self._loop(r, low, high, start, lambda t: self._round(t, unroll))

        rounding = any(node.arg[0] == "ADD" and node.dtype.is_float for node in self.family)
        size = self.plan.block or (1 << (rounds.bit_length() + 1) // 2)
        few = len(totals) <= _FEW or self.plan.block
        if not rounding or rounds < _MANY or rounds <= size or not few:
            return block(b.index(0), end, totals)
        whole = rounds // size * size
        last = b.index(whole) if r not in limits else b.call("smin", end, b.index(whole))
        loop = b.enter_loop(b.index(0), last, size, b.cursor)
        carried = [b.carry(loop, t) for t in totals]
        stop = b.add(loop.index, b.index(size))
        stop = stop if r not in limits else b.call("smin", stop, last)
        parts = block(loop.index, stop, self._identities())
        totals = b.leave_loop(loop, self._joined(carried, parts))

        def rest(t: list[Line]) -> list[Line]:
            return self._joined(t, block(b.index(whole), end, self._identities()))

        return self._from(r, whole * step, totals, rest) if rounds > whole else totals

    def _joined(self, totals: list[Line], parts: list[Line]) -> list[Line]:
        """Combine two sets of accumulators, one by one."""
        if self.bundled is not None:
            (total,) = totals
            return [self.b.line("alu_rows", total.dtype, total.lanes, (total, parts[0]), "fadd")]
        each = len(totals) // len(self.family)
        return [
            isel.combine(self.b, node.arg[0], node.dtype, totals[k], parts[k])
            for i, node in enumerate(self.family)
            for k in range(i * each, (i + 1) * each)
        ]

    def _tail(self, r: UOp, first: int, totals: list[Line]) -> list[Line]:
        """Write the rest after the full rounds, one vector (or value) at a time, the last one masked."""
        ix, b, plan = self.e.index, self.b, self.plan
        left = r.arg[1] - first
        wide = plan.threads * plan.lanes
        count = -(-left // wide)
        guarded = left % wide != 0
        with self.e.range_scope([r]):
            counter = ix.fresh(count)
            ix.starts[r] = counter
            ((digit, stride),) = self.e.digits[r]
            start = symbolic.dot((counter, digit), (wide, stride), first)
            ix.exprs[r] = symbolic.add(start, self.e.lanes[r])
            if guarded:
                ix.guards[r] = symbolic.lt(ix.exprs[r] if left % plan.lanes else start, r.arg[1])
            unit = self.e.units.get(r)
            if unit is not None:
                self.e.env[unit] = 0
            end = b.index(count)
            if r in self.e.limits and count > 1:
                after = b.add(self.e.limits.lines[r], b.index(wide - 1 - first))
                rounds = b.alu("sdiv", after, b.index(wide)) if wide > 1 else after
                end = b.call("smax", b.call("smin", rounds, end), b.index(1))
            return self._loop(r, b.index(0), end, totals, lambda t: self._round(t, 1, guarded=guarded))

    def _round(self, totals: list[Line], unroll: int, *, guarded: bool = False) -> list[Line]:
        """Write one round: every accumulator takes one value; with `guarded` only inside the range."""
        e, per = self.e, self.per
        totals = list(totals)
        r = self.plan.ranges[-1]
        if self.bundled is not None:
            return [self.bundled(totals[0])]
        if self.plan.inside is not None:
            self._inside(self.plan.inside, totals)
            return totals
        unit = e.units.get(r)
        mask = e.index.mask(e.index.guards[r]) if guarded else None
        for k in range(unroll):
            if unit is not None:
                e.env[unit] = k
            slot = k
            for node in self.family:
                for point in self.points:
                    e.env.update(zip(self.units, point, strict=True))
                    totals[slot] = self._accumulate(node, totals[slot], mask)
                    slot += per
            for store in self.row_stores:
                store()
        return totals

    def _inside(self, load: UOp, totals: list[Line]) -> None:
        """Write the products of all unrolled values but those for which the mask of the factor is false.

        Products with one element of the factor are written one after the other.
        """
        e, ix = self.e, self.e.index
        (node,), unit = self.family, e.units[self.plan.ranges[-1]]
        found: list[tuple[int, int, int]] = []
        for k, (slot, point) in itertools.product(range(self.plan.unroll), enumerate(self.points)):
            e.env.update(zip((unit, *self.units), (k, *point), strict=True))
            mask = ix.mask(load.src[2])
            if mask is None or mask.op != "const":
                found.append((ix.place(load.src[1]).offset, k, slot))
        for at, (_, k, slot) in enumerate(sorted(found)):
            e.env.update(zip((unit, *self.units), (k, *self.points[slot]), strict=True))
            if at == 0:
                self.memory.fetch(load)
            totals[slot] = self._accumulate(node, totals[slot], None)

    def _masked(self, mask: Line, value: Line) -> Line:
        """Return a factor where the mask is true, else 0."""
        wide = self.b.splat(value, max(value.lanes, mask.lanes))
        zero = 0.0 if value.dtype.is_float else 0
        return self.b.select(mask, wide, self.b.const(value.dtype, zero, wide.lanes))

    def _accumulate(self, node: UOp, total: Line, mask: Line | None) -> Line:
        """Return an accumulator with the current value of a REDUCE's source, where the mask is true."""
        e, b, value = self.e, self.b, node.src[0]
        words = value.op is Ops.DOT
        floats = node.arg[0] == "ADD" and node.dtype.is_float and value.dtype is node.dtype
        if words or (value.op is Ops.MUL and floats):
            x, y = e.value(value.src[0]), e.value(value.src[1])
            if mask is not None:  # a masked load is 0, but the other factor may be NaN
                x, y = self._masked(mask, x), self._masked(mask, y)
            return products.multiply_add(b, value.arg if words else None, x, y, total)
        line = e.value(value)
        if mask is not None:
            line = b.select(
                mask, b.splat(line, total.lanes), isel.identity(b, node.arg[0], node.dtype, total.lanes)
            )
        return isel.combine(b, node.arg[0], node.dtype, total, line)
