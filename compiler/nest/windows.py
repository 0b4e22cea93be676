"""Windows: a picture with its border, copied to scratch memory once for all places and taps that read it.

A convolution loads `picture[y + p - 1, x + q - 1]` where both indices are inside the picture. `y + p` and
`x + q` are the sides of a window: the copy has a place for each of their values, with zeros outside the
picture, and the register tile reads it without masks. If workgroups divide the output range of a side, each
copies its part of the side.

Not here: which operand is copied (`plan.contraction`), panels. Next: `emit.panels`, the loops that copy
a window.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from compiler.ir import index as symbolic
from compiler.ir.ops import Ops
from compiler.nest.loop_nest import Side

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from compiler.ir.uop import UOp

PAGE = 1024
"""Elements of a page."""


def sides_of(load: UOp, summed: Iterable[UOp]) -> tuple[Side, ...] | None:
    """Return the sides of the window of a LOAD with a mask, outermost first; None where it is no window.

    Each sum of ranges in the mask is a side, and so is each range of `summed` that only the index has.
    Neighbours along the last side are neighbours in memory. No window: a value that is no LOAD with a mask,
    an index with a term that is no range, a range in two sums of the mask, or what `sides_from` refuses.
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
    """Return a side for each sum of ranges, outermost first.

    `terms` are the ranges of an index with their factors. None unless each sum has a range of factor 1, the
    index is a sum of positive multiples of the sums, and neighbours along the last side are neighbours in
    memory.
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
    """Return the distinct sums of ranges that a mask compares, all factors positive; None for other masks."""
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
    """Return the ranges of the sum of a side."""
    return tuple(symbolic.atoms_of((side.place,)))


def strides_of(sides: Sequence[Side], lanes: int) -> list[int]:
    """Return the elements of the copy, then for each side the elements from one place to the next.

    The last side is rounded up to vectors of `lanes`. Outermost places are not a multiple of `PAGE` apart, so
    that neighbours are in different sets of a cache.
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
