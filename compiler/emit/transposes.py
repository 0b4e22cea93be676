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
    from compiler.emit.accesses import Memory
    from compiler.emit.emitter import Emitter
    from compiler.emit.linear import Line
    from compiler.ir.uop import UOp
    from compiler.nest.loop_nest import Axis


class TransposeTiles:
    """The tiles of a kernel that transposes."""

    def __init__(self, e: Emitter, memory: Memory) -> None:
        self.e = e
        self.b = e.b
        self.memory = memory
        self.stages = {s.value: s for s in e.plan.steps if isinstance(s, TurnedStage)}
        e.readers.update(dict.fromkeys(self.stages, self.read))
        self._token: Line | None = None

    def fill(self) -> None:
        """Write the copies to all tiles and the barrier after them."""
        for stage in self.stages.values():
            self._copy(stage)
        self._token = self.b.line("barrier", dtypes.bool, 1)

    def read(self, node: UOp) -> Line:
        """Return the vector of a LOAD at the current position, from its tile."""
        assert self._token is not None
        b, e, stage = self.b, self.e, self.stages[node]
        rows, columns = self.e.axes[stage.along], self.e.axes[stage.across]
        kind = storage_type(node.dtype)
        unit = e.units.get(rows.range)
        place = symbolic.add(self._thread(rows), symbolic.const(rows.offset(e.env[unit] if unit else 0)))
        values = []
        for n in range(columns.lanes):
            row = symbolic.add(self._thread(columns), symbolic.const(n))
            values.append(b.line("load", kind, 1, (self._address(stage, row, place), self._token)))
        vector = values[0] if len(values) == 1 else b.line("vector", kind, len(values), tuple(values))
        return conversions.unpack(b, vector, node.dtype)

    def _thread(self, axis: Axis) -> UOp:
        """Return the place of the thread in the block of an axis."""
        ((digit, stride),) = self.e.digits[axis.range]
        return symbolic.mul(digit, stride)

    def _address(self, stage: TurnedStage, row: UOp, place: UOp) -> Line:
        """Return the address in a tile of a value: `row` along the stores, `place` along the loads."""
        b, ix = self.b, self.e.index
        rows, columns = self.e.axes[stage.along], self.e.axes[stage.across]
        kind = storage_type(stage.value.dtype)
        tag = list(self.stages).index(stage.value)
        memory = b.line("shared", POINTER, 1, (), (kind, rows.block * columns.block, tag))
        across = columns.threads[0].size
        turned = symbolic.mul(symbolic.mod(symbolic.div(row, stage.lanes), across), stage.lanes)
        at = b.alu("xor", ix.materialised(place), ix.materialised(turned))
        return b.offset(memory, b.add(ix.materialised(symbolic.mul(row, rows.block)), at), kind)

    def _copy(self, stage: TurnedStage) -> None:
        """Load this thread's vectors of a tile, then store them."""
        e, ix, b = self.e, self.e.index, self.b
        rows, columns = e.axes[stage.along], e.axes[stage.across]
        loaded = []
        with e.moved((rows.range, columns.range)) as scope:
            lane, thread = ix.fresh(stage.lanes), ix.fresh(e.plan.threads)
            if lane.op is Ops.RANGE:
                ix.lane_ranges[lane] = stage.lanes
            ix.bound[thread] = e.thread()
            pieces = rows.block // stage.lanes
            place = symbolic.mul(symbolic.mod(thread, pieces), stage.lanes)
            first = symbolic.div(thread, pieces)
            for at in range(0, columns.block, e.plan.threads // pieces):
                row = symbolic.add(first, symbolic.const(at))
                scope.forget()
                scope.open(rows.range, symbolic.add(ix.starts[rows.range], place), lane, rows.size)
                scope.open(
                    columns.range, symbolic.add(ix.starts[columns.range], row), symbolic.ZERO, columns.size
                )
                loaded.append((row, b.splat(self.memory.stored(stage.value), stage.lanes)))
        for row, words in loaded:
            policy = "aligned" if words.lanes > 1 else None
            address = self._address(stage, row, place)
            b.line("store", words.dtype, words.lanes, (address, words), policy)
