"""Extents: the blocks of each output range that the code at the cursor computes.

An extent begins as all blocks of a range. Workgroups divide it, a limit that is known at launch ends it
earlier, and inside a loop it is the blocks of one iteration.

Not here: the parts of a range inside a block (`emitter`), limits (`loop_limits`). Next: `linearize`, the
caller, which writes the loops.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from compiler.dtype import dtypes
from compiler.nest.loop_nest import Step

if TYPE_CHECKING:
    from collections.abc import Iterable

    from compiler.emit.builder import Builder
    from compiler.emit.indexing import Indexer
    from compiler.emit.linear import Line
    from compiler.emit.loop_limits import LoopLimits
    from compiler.ir.uop import UOp
    from compiler.nest.loop_nest import Axis, LoopNest


class Extent(NamedTuple):
    """The blocks of one range."""

    first: Line
    """The number of the first block."""
    end: Line
    """The number after that of the last block."""
    most: int
    """The number of blocks at most."""


class Extents(dict["UOp", Extent]):
    """The extent of each output range of one kernel."""

    def __init__(self, b: Builder, index: Indexer) -> None:
        super().__init__()
        self.b = b
        self.index = index

    def open(self, axis: Axis) -> None:
        """Begin with all blocks of an axis."""
        self[axis.range] = Extent(self.b.index(0), self.b.index(axis.count), axis.count)

    def divide(self, plan: LoopNest) -> None:
        """Restrict the extents to those of the workgroup; the last axis varies fastest with its number."""
        every = [s for s in plan.steps if isinstance(s, Step) and s.kind == "group"]
        for dim in sorted({s.dim for s in every}):
            self._divide_along(dim, [s for s in every if s.dim == dim])

    def _divide_along(self, dim: int, groups: list[Step]) -> None:
        """Divide one dimension of the grid among the ranges that share it."""
        b = self.b
        rest = b.line("group", dtypes.int64, 1, (), dim)
        counts = {step.range: self[step.range].most for step in groups}
        for n, step in reversed(list(enumerate(groups))):
            around = [s.size for s in groups[:n] if s.range is step.range]
            number, pieces = rest, -(-(around[-1] if around else counts[step.range]) // step.size)
            if n:
                number = self.index.modulo(rest, pieces, signed=False)
                rest = self.index.divide(rest, pieces, signed=False)
            first, size = b.mul(number, step.size), step.size
            if any(s.range is step.range for s in groups[n + 1 :]):
                inner, _, size = self[step.range]
                first = b.add(first, inner)
            end = b.add(first, b.index(size))
            if counts[step.range] % step.size:
                end = b.call("smin", end, b.index(counts[step.range]))
            self[step.range] = Extent(first, end, size)

    def limit(self, axes: Iterable[Axis], limits: LoopLimits) -> Line | None:
        """End each axis at its limit; return whether all have blocks left, None if no axis has a limit."""
        b = self.b
        some: Line | None = None
        for axis in axes:
            if axis.range in limits:
                first, end, most = self[axis.range]
                end = limits.blocks(axis.range, axis.block, end)
                self[axis.range] = Extent(first, end, most)
                some = b.both(some, b.cmp("slt", first, end))
        return some

    def narrow(self, r: UOp, first: Line, size: int, *, limited: bool) -> None:
        """Restrict a range to the `size` blocks that begin with block `first`, and to its extent.

        `limited` says that `limit` may have ended the extent: then `size` need not divide it.
        """
        b, (_, end, most) = self.b, self[r]
        last = b.add(first, b.index(size))
        if size > 1 and (most % size or limited):
            last = b.call("smin", last, end)
        self[r] = Extent(first, last, size)
