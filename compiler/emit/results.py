"""The results of one block: the values of all its unrolled positions, then their stores.

The operations after a sum of products are written once for each position of the register tile. If there are
many (`LoopNest.looped`), the sums of the block are stored to scratch memory instead; a loop over one of the
block's ranges loads them, does the operations, and stores the results.

Not here: the loops over blocks (`linearize`, the caller), the sums (`reductions`), loads and stores
(`accesses`).
"""

from __future__ import annotations

import itertools
import math
from typing import TYPE_CHECKING, NamedTuple

from compiler.dtype import dtypes, register_type
from compiler.emit import conversions
from compiler.emit.linear import POINTER
from compiler.ir import index as symbolic
from compiler.ir.ops import BINARY, UNARY, Ops
from compiler.ir.walk import ordered
from compiler.nest.kernel_shape import inner_nodes

if TYPE_CHECKING:
    from compiler.dtype import DType
    from compiler.emit.accesses import Memory
    from compiler.emit.emitter import Emitter
    from compiler.emit.linear import Line
    from compiler.emit.reductions import Reductions
    from compiler.ir.uop import UOp

DEEP = 150
"""Nodes of a kernel from which on plain values outside reductions are written before their users, because a
long chain of users would be a deep recursion."""


class _Sums(NamedTuple):
    """The values of one REDUCE at all positions of the block, in scratch memory."""

    memory: Line
    at: UOp
    """The index of the value at the current position."""
    kind: DType
    rounded: bool
    """Whether they are rounded to the REDUCE's dtype."""


class Results:
    """Writes the results of the current block of one kernel."""

    def __init__(self, e: Emitter, memory: Memory, reductions: Reductions) -> None:
        self.e = e
        self.b = e.b
        self.memory = memory
        self.reductions = reductions
        self.sums: dict[UOp, _Sums] = {}
        """For each REDUCE that the loop loads, its values."""
        self.token: tuple[Line, ...] = ()
        """The source that keeps the loads of the sums after their stores; empty before that."""

    def write(self) -> None:
        """Write all results at the cursor."""
        looped = self.e.plan.looped
        if looped is None:
            self._unrolled()
        else:
            self._looped(looped)

    def _unrolled(self) -> None:
        """Write all stores of the unrolled positions, after all values, whose loads a store may overwrite."""
        e = self.e
        units = [e.units[a.range] for a in e.plan.axes if a.range in e.units]
        stores = e.ast.src
        deep: list[UOp] = []
        if len(e.free) > DEEP:
            outputs = {a.range for a in e.plan.axes}
            deep = [n for n in ordered(e.ast) if _plain(n) and e.free[n] <= outputs]
        results: list[tuple[UOp, Line]] = []
        replaced = self._replaced()
        for _ in e.positions(units if replaced else []):
            for node in replaced:
                e.value(node)
        for _ in e.positions(units):
            for node in deep:
                e.value(node)
            results += [(store, e.value(store.src[2])) for store in stores]
        turned = [self.memory.across(store) for store in stores]
        values = [value for _, value in results]
        if len(stores) == 1 and turned == [None] and self.memory.store_all(stores[0], units, values):
            return
        found = dict(zip(itertools.product(*[range(u.arg[1]) for u in units], stores), results, strict=True))
        for _ in e.positions(units):
            for store, unit in zip(stores, turned, strict=True):
                here = [e.env[u] for u in units]
                if unit is None:
                    self.memory.store(store, found[(*here, store)][1])
                elif e.env[unit] == 0:
                    at = units.index(unit)
                    rows = [found[(*here[:at], k, *here[at + 1 :], store)][1] for k in range(unit.arg[1])]
                    self.memory.store_across(store, unit, rows)

    def _replaced(self) -> list[UOp]:
        """Return the loads of buffers that the kernel writes, if all threads of a workgroup sum one value.

        All threads load, and one stores. A load after the last barrier of the sum could follow that store, so
        these loads are written before the sum. Empty for other kernels.
        """
        e, stores = self.e, self.e.ast.src
        if e.plan.threads == 1 or any(a.threads for a in e.plan.axes):
            return []
        written = {s.src[0].arg for s in stores}
        return [n for n in inner_nodes(stores) if n.op is Ops.LOAD and n.src[0].arg in written]

    def _looped(self, r: UOp) -> None:
        """Write the results in a loop over the unrolled positions of one range."""
        e, b, ix = self.e, self.b, self.e.index
        unit = e.units[r]
        place = ix.fresh(unit.arg[1])
        for node in inner_nodes(e.ast.src):
            if node.op is Ops.REDUCE and node.arg[1] and r in e.free[node]:
                self.sums[node] = self._keep(node, {unit: place})
        self.token = (b.line("token", dtypes.bool, 1),)
        loop = b.enter_loop(b.index(0), b.index(unit.arg[1]), 1, b.cursor)
        ix.bound[place] = loop.index
        with e.range_scope([r]):
            for of in (ix.exprs, ix.guards):
                if r in of:
                    of[r] = symbolic.substitute(of[r], {unit: place}, {})
            del e.units[r]
            e.readers.update(dict.fromkeys(self.sums, self._load))
            self._unrolled()
        b.leave_loop(loop, [])

    def _keep(self, node: UOp, moved: dict[UOp, UOp]) -> _Sums:
        """Store the values of a REDUCE to scratch memory; in their index, units are `moved` to loops.

        The totals of a sum in pieces are in scratch memory already.
        """
        e, b, ix = self.e, self.b, self.e.index
        units = e.units_of(node)
        lanes = [e.lanes[x] for x in e.free[node] if e.lanes.get(x) in ix.lane_ranges]
        width = max([ix.lane_ranges[lane] for lane in lanes], default=1)
        sizes = [int(u.arg[1]) for u in units]
        strides = [math.prod(sizes[k:]) * width for k in range(1, len(sizes) + 1)]
        index = symbolic.dot((*units, *lanes), (*strides, *[1 for _ in lanes]))
        moving = symbolic.substitute(index, moved, {})
        kind = register_type(node.dtype)
        totals = e.partials.totals
        if totals is not None and totals.node is node:
            return _Sums(e.partials.block(totals), moving, kind, rounded=False)
        count = math.prod(sizes) * width
        memory = b.line("scratch", POINTER, 1, (), (kind, count, "results", len(self.sums)))
        e.env.update(dict.fromkeys(units, 0))
        bundle = self.reductions.bundle(node)
        if bundle is not None and bundle.lanes == width and kind is node.dtype:
            b.line("store_rows", kind, width, (memory, bundle), tuple(range(0, count, width)))
            return _Sums(memory, moving, kind, rounded=True)
        for _ in e.positions(units):
            value = b.splat(e.value(node), width)
            b.line("store", kind, width, (ix.address(memory, ix.place(index), kind), value))
        return _Sums(memory, moving, kind, rounded=True)

    def _load(self, node: UOp) -> Line:
        """Load the value of a REDUCE at the current position."""
        ix, sums = self.e.index, self.sums[node]
        place = ix.place(sums.at)
        lanes = place.lanes if place.stride else 1
        address = ix.address(sums.memory, place, sums.kind)
        value = self.b.line("load", sums.kind, lanes, (address, *self.token))
        return value if sums.rounded else conversions.rounded(self.b, value, node.dtype)


def _plain(node: UOp) -> bool:
    """Return whether a node can be written before its users, to keep the recursion shallow."""
    return node.op in UNARY or node.op in BINARY or node.op in (Ops.WHERE, Ops.CAST)
