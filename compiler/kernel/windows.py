"""Windows: a picture with its border, copied to scratch memory once for all places and taps that read it.

A convolution loads `picture[y + p - 1, x + q - 1]` where both are inside. `y + p` and `x + q` are the sides
of a window: the copy has a place for each of their values, zeros outside the picture, and the register tile
reads it without masks. Of a side with an output range that workgroups divide, a workgroup copies its part.

Not here: which operand is copied so (`contraction`), panels (`stages`, the caller of `fill`).
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Protocol

from compiler.ir import index as symbolic
from compiler.ir.ops import Ops
from compiler.kernel import conversions
from compiler.kernel.plan import Side

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from compiler.ir.uop import UOp
    from compiler.kernel.builder import Builder
    from compiler.kernel.extents import Extents
    from compiler.kernel.indexing import Indexer
    from compiler.kernel.linear import Line
    from compiler.kernel.partials import Partials
    from compiler.kernel.plan import Plan, Stage

PAGE = 1024
"""Elements of a page."""
MOST_UNROLLED = 8
"""Vectors along the last side up to which their copies are written one after the other."""


class Reader(Protocol):
    """The part of `compiler.kernel.accesses.Memory` that a copy uses."""

    def read(self, buffer: UOp, index: UOp, mask: Line | None) -> Line:
        """Return the elements of a buffer at an index; 0 where the mask is false."""
        ...


class Writer(Protocol):
    """The part of `compiler.kernel.linearize.Linearizer` that a copy uses."""

    b: Builder
    index: Indexer
    plan: Plan
    extents: Extents
    partials: Partials

    @property
    def memory(self) -> Reader:
        """The accesses of the kernel."""
        ...


def sides_of(load: UOp, summed: Iterable[UOp]) -> tuple[Side, ...] | None:
    """Return the sides of the window of a LOAD with a mask, outermost first; None where it is no window.

    Each sum of ranges in the mask is a side, and each other summed range in the index. Neighbours along the
    last side are neighbours in memory.
    """
    if load.op is not Ops.LOAD or len(load.src) < 3:
        return None
    terms, _ = symbolic.terms_of(load.src[1])
    sums = sums_of(load.src[2])
    if sums is None or any(atom.op is not Ops.RANGE for atom in terms):
        return None
    masked = [r for one in sums for r in one]
    if len(masked) != len(set(masked)):
        return None
    return sides_from([*sums, *[{r: 1} for r in summed if r in terms and r not in masked]], terms)


def sides_from(sums: Iterable[Mapping[UOp, int]], terms: Mapping[UOp, int]) -> tuple[Side, ...] | None:
    """Return a side for each sum of ranges, outermost first; None where they are none of an index.

    `terms` are those of the index. Neighbours along the last side are neighbours in memory.
    """
    found: list[tuple[int, Side]] = []
    for one in sums:
        unit = next((r for r, c in one.items() if c == 1), None)
        factor = 0 if unit is None else terms.get(unit, 0)
        if unit is None or factor <= 0 or any(terms.get(r, 0) != factor * c for r, c in one.items()):
            return None
        found.append((factor, Side(symbolic.dot(one, one.values()), unit)))
    found.sort(key=lambda item: -item[0])
    if not found or found[-1][0] != 1:
        return None
    return tuple([side for _, side in found])


def sums_of(mask: UOp) -> list[dict[UOp, int]] | None:
    """Return the distinct sums of ranges with positive factors that a mask compares; None with any other."""
    found: list[dict[UOp, int]] = []
    for part in symbolic.parts_of(mask):
        terms, _ = symbolic.terms_of(part.src[0])
        if all(c < 0 for c in terms.values()):
            terms = {atom: -c for atom, c in terms.items()}
        if any(atom.op is not Ops.RANGE or c < 0 for atom, c in terms.items()):
            return None
        if terms not in found:
            found.append(dict(terms))
    return found


def ranges_of(side: Side) -> tuple[UOp, ...]:
    """Return the ranges of which the places of a side are the sum."""
    return tuple(symbolic.atoms_of((side.place,)))


def strides_of(sides: Sequence[Side], lanes: int) -> list[int]:
    """Return the elements of the copy, then those from one place of each side to the next.

    Outermost places are not whole pages apart, so that those beside each other are in other sets of a cache.
    """
    sizes = [side.size for side in sides]
    sizes[-1] = -(-sizes[-1] // lanes) * lanes
    strides = [math.prod(sizes[k:]) for k in range(1, len(sizes) + 1)]
    if len(strides) > 1 and strides[0] % PAGE == 0:
        strides[0] += lanes
    return [sizes[0] * strides[0], *strides]


def index_of(sides: Sequence[Side], lanes: int) -> UOp:
    """Return the index of the current element in the copy, over the ranges of the sides."""
    return symbolic.dot([side.place for side in sides], strides_of(sides, lanes)[1:])


def fill(owner: Writer, stage: Stage, memory: Line, lanes: int) -> None:
    """Write the loops that copy the window at the cursor; the cursor is after them then."""
    _Copy(owner, stage, memory, lanes).write(0, [])


class _Copy:
    """The loops that fill one window: one for each side, the last one by vectors."""

    def __init__(self, owner: Writer, stage: Stage, memory: Line, lanes: int) -> None:
        self.owner = owner
        self.b = owner.b
        self.stage = stage
        self.memory = memory
        self.lanes = lanes
        self.strides = strides_of(stage.window, lanes)[1:]

    def write(self, depth: int, places: list[UOp]) -> None:
        """Write the loops from a side inwards, at the places of the sides outside."""
        b, ix, sides = self.b, self.owner.index, self.stage.window
        if depth == len(sides) - 1:
            self._last(places)
            return
        low, high = self._bounds(sides[depth])
        at = ix.fresh(sides[depth].size)
        if at.op is not Ops.RANGE:
            self.write(depth + 1, [*places, at])
            return
        loop = b.enter_loop(low, high, 1, b.cursor)
        ix.bound[at] = loop.index
        self.write(depth + 1, [*places, at])
        b.leave_loop(loop, [])

    def _bounds(self, side: Side) -> tuple[Line, Line]:
        """Return the first place of a side in the extent of its output range, and that after the last.

        All places where it has no such range or several.
        """
        owner, b = self.owner, self.b
        terms, _ = symbolic.terms_of(side.place)
        axes = [a for a in owner.plan.axes if a.range in terms]
        if len(axes) != 1:
            return b.index(0), b.index(side.size)
        (axis,) = axes
        low, high, _ = owner.extents[axis.range]
        step, block = terms[axis.range], min(axis.block, axis.size)
        first = b.call("smin", b.mul(low, axis.block), b.index(axis.size - block))
        end = b.call("smin", b.mul(high, axis.block), b.index(axis.size))
        taps = side.size - 1 - step * (axis.size - 1)
        return b.mul(first, step), b.add(b.mul(end, step), b.index(1 + taps - step))

    def _last(self, places: list[UOp]) -> None:
        """Write the copies along the last side: few vectors one after the other, more in a loop."""
        b, ix, lanes = self.b, self.owner.index, self.lanes
        lane = ix.fresh(lanes)
        ix.lane_ranges[lane] = lanes
        count = -(-self.stage.window[-1].size // lanes)
        if count <= MOST_UNROLLED:
            for k in range(count):
                self._vector([*places, symbolic.add(symbolic.const(k * lanes), lane)])
            return
        start = ix.fresh(count)
        loop = b.enter_loop(b.index(0), b.index(count), 1, b.cursor)
        ix.bound[start] = loop.index
        self._vector([*places, symbolic.add(symbolic.mul(start, lanes), lane)])
        b.leave_loop(loop, [])

    def _vector(self, places: list[UOp]) -> None:
        """Copy one vector; lanes beyond the last side, and outside the picture, are zeros."""
        owner, b, ix, load = self.owner, self.b, self.owner.index, self.stage.value
        moved: dict[UOp, UOp] = {}
        for side, at in zip(self.stage.window, places, strict=True):
            for r in ranges_of(side):
                piece = owner.partials.pieces.get(r)
                moved[r] = symbolic.ZERO if piece is None else piece.base
            moved[side.unit] = symbolic.add(moved[side.unit], at)
        memo: dict[UOp, UOp] = {}
        inside = symbolic.lt(places[-1], self.stage.window[-1].size)
        shown = inside
        if len(load.src) > 2:
            shown = symbolic.both(symbolic.substitute(load.src[2], moved, memo), inside)
        stored = owner.memory.read(load.src[0], symbolic.substitute(load.src[1], moved, memo), ix.mask(shown))
        register = conversions.register_type(load.dtype)
        value = b.splat(conversions.unpack(b, stored, register), self.lanes)
        dtype = conversions.storage_type(register)
        address = ix.address(self.memory, ix.place(symbolic.dot(places, self.strides)), dtype)
        b.line("store", dtype, self.lanes, (address, conversions.pack(b, value, register)))
