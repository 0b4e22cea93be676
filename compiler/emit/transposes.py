"""Write kernels that transpose through shared memory: the copies to tiles, and the reads from them.

Not here: the plan (`plan.transposes`). Next: `nest.loop_nest.TurnedStage`, a tile of the plan.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from compiler.dtype import dtypes, storage_type
from compiler.emit import conversions
from compiler.emit.linear import POINTER
from compiler.ir import index as symbolic
from compiler.ir.ops import Ops
from compiler.nest.loop_nest import TurnedStage

if TYPE_CHECKING:
    from compiler.emit.device_tile import StagedSumWriter
    from compiler.emit.linear import Line
    from compiler.ir.uop import UOp
    from compiler.nest.loop_nest import Axis


class TransposeTiles:
    """The tiles of a kernel that transposes."""

    def __init__(self, owner: StagedSumWriter) -> None:
        self.owner = owner
        self.b = owner.b
        self.stages = {s.value: s for s in owner.plan.steps if isinstance(s, TurnedStage)}
        owner.readers.update(dict.fromkeys(self.stages, self.read))
        self._token: Line | None = None

    def fill(self) -> None:
        """Write the copies to all tiles and the barrier after them, if there are tiles."""
        for stage in self.stages.values():
            self._copy(stage)
        if self.stages:
            self._token = self.b.line("barrier", dtypes.bool, 1)

    def read(self, node: UOp) -> Line:
        """Return the vector of a LOAD at the current position, from its tile."""
        assert self._token is not None
        b, owner, stage = self.b, self.owner, self.stages[node]
        rows, columns = self._axis(stage.along), self._axis(stage.across)
        kind = storage_type(node.dtype)
        unit = owner.units.get(rows.range)
        place = symbolic.add(self._thread(rows), symbolic.const(rows.offset(owner.env[unit] if unit else 0)))
        values = []
        for n in range(columns.lanes):
            row = symbolic.add(self._thread(columns), symbolic.const(n))
            values.append(b.line("load", kind, 1, (self._address(stage, row, place), self._token)))
        vector = values[0] if len(values) == 1 else b.line("vector", kind, len(values), tuple(values))
        return conversions.unpack(b, vector, node.dtype)

    def _axis(self, r: UOp) -> Axis:
        return next(a for a in self.owner.plan.axes if a.range is r)

    def _thread(self, axis: Axis) -> UOp:
        """Return the place of the thread in the block of an axis."""
        ((digit, stride),) = self.owner.digits[axis.range]
        return symbolic.mul(digit, stride)

    def _address(self, stage: TurnedStage, row: UOp, place: UOp) -> Line:
        """Return the address in a tile of a value: `row` along the stores, `place` along the loads."""
        b, ix = self.b, self.owner.index
        rows, columns = self._axis(stage.along), self._axis(stage.across)
        kind = storage_type(stage.value.dtype)
        tag = list(self.stages).index(stage.value)
        memory = b.line("shared", POINTER, 1, (), (kind, rows.block * columns.block, tag))
        across = columns.threads[0].size
        turned = symbolic.mul(symbolic.mod(symbolic.div(row, stage.lanes), across), stage.lanes)
        at = b.alu("xor", ix.materialised(place), ix.materialised(turned))
        return b.offset(memory, b.add(ix.materialised(symbolic.mul(row, rows.block)), at), kind)

    def _copy(self, stage: TurnedStage) -> None:
        """Load this thread's vectors of a tile, then store them."""
        owner, ix, b = self.owner, self.owner.index, self.b
        rows, columns = self._axis(stage.along), self._axis(stage.across)
        saved = ix.exprs, ix.memo, ix.guards
        ix.exprs, ix.guards = dict(ix.exprs), dict(ix.guards)
        lane, thread = ix.fresh(stage.lanes), ix.fresh(owner.plan.threads)
        if lane.op is Ops.RANGE:
            ix.lane_ranges[lane] = stage.lanes
        ix.bound[thread] = b.line("thread", dtypes.int64, 1, (), 0)
        pieces = rows.block // stage.lanes
        place = symbolic.mul(symbolic.mod(thread, pieces), stage.lanes)
        first = symbolic.div(thread, pieces)
        loaded = []
        for at in range(0, columns.block, owner.plan.threads // pieces):
            row = symbolic.add(first, symbolic.const(at))
            ix.memo = {}
            for axis, inside, vector in ((rows, place, lane), (columns, row, symbolic.ZERO)):
                start = symbolic.add(ix.starts[axis.range], inside)
                ix.exprs[axis.range] = symbolic.add(start, vector)
                ix.guards.pop(axis.range, None)
                guard = symbolic.lt(start, axis.size)
                if guard is not symbolic.TRUE:
                    ix.guards[axis.range] = guard
            loaded.append((row, b.splat(owner.stored(stage.value), stage.lanes)))
        ix.exprs, ix.memo, ix.guards = saved
        for row, words in loaded:
            policy = "aligned" if words.lanes > 1 else None
            address = self._address(stage, row, place)
            b.line("store", words.dtype, words.lanes, (address, words), policy)
