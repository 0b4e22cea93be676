"""Rows in scratch memory: a reduction's loop stores values that the loop of an output loads again.

Not here: which values are kept (`plan.row_reuse`). Next: `reductions`, the caller.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from compiler.dtype import dtypes, register_type, storage_type
from compiler.emit import conversions
from compiler.emit.linear import POINTER
from compiler.ir.walk import bound_ranges

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from compiler.emit.emitter import Emitter
    from compiler.emit.linear import Line
    from compiler.ir.uop import UOp
    from compiler.nest.loop_nest import ScratchRow


class RowScratch:
    """The rows of one kernel's plan: each is filled by the loop of a REDUCE, and loaded for an output."""

    def __init__(self, e: Emitter) -> None:
        self.e = e
        self.b = e.b
        self.rows = e.plan.rows
        self.twins = {row.twin: row for row in self.rows}
        """For a value over an output range its row."""
        e.readers.update(dict.fromkeys(self.twins, self.load))
        self.tokens: dict[ScratchRow, Line] = {}
        """For a filled row, the source that keeps its loads after the stores."""

    def _memory(self, row: ScratchRow) -> Line:
        """Return the address of a row, with room for a last vector beyond its end."""
        kind = storage_type(register_type(row.source.dtype))
        count = row.inner.arg[1] + self.e.plan.widest()
        return self.b.line("scratch", POINTER, 1, (), (kind, count, self.rows.index(row)))

    def stores(self, family: Sequence[UOp]) -> list[Callable[[], None]]:
        """Return for each row that a family of REDUCEs fills what stores its current value."""
        return [partial(self._store, row) for row in self.rows if row.filler in family]

    def _store(self, row: ScratchRow) -> None:
        """Store the row's value at the current position of the reduction that runs over it."""
        b, ix, value = self.b, self.e.index, self.e.value(row.source)
        kind = storage_type(value.dtype)
        address = ix.address(self._memory(row), ix.place(row.inner), kind)
        b.line("store", kind, value.lanes, (address, conversions.pack(b, value, value.dtype)))

    def filled(self, node: UOp) -> None:
        """Keep the loads of the rows that a reduction has filled after its stores."""
        for row in self.rows:
            if row.inner in bound_ranges(node, self.e.free):
                self.tokens[row] = self.b.line("token", dtypes.bool, 1)

    def load(self, twin: UOp) -> Line:
        """Load a value at the current output position from its row."""
        b, ix, row = self.b, self.e.index, self.twins[twin]
        self.e.value(row.filler)
        kind = storage_type(register_type(row.source.dtype))
        place = ix.place(row.outer)
        lanes = place.lanes if place.stride else 1
        stored = b.line("load", kind, lanes, (ix.address(self._memory(row), place, kind), self.tokens[row]))
        return conversions.unpack(b, stored, register_type(row.source.dtype))
