"""Count the cache lines that a register tile touches in an operand without panels, and plan its windows.

The rows of a convolution's tile are neighbours in the picture. So a few lines of the picture hold every value
that a block of rows multiplies, for all summed ranges, and panels of the picture would not pay. A picture
with a border is copied once to a window, for which the same count holds.

The gradient of filters sums `picture[n, c, y + p, x + q] * gradient[n, f, y, x]` over n, y and x. The taps p
and q are output ranges. The rows of the register tile are channels c, whose values are far apart in memory.
So the sum is cut into pieces of a few rows of one picture. For each piece, its part of the picture is copied
with the border, the panels of the gradient are filled once, and then the loops over all taps run.

Not here: which operand is broadcast (`nest.operand_roles`), the layout of a copy (`nest.windows`), the plan
(`contraction`, the caller).
"""

from __future__ import annotations

import math
from dataclasses import replace
from math import prod
from typing import TYPE_CHECKING, NamedTuple

from compiler.dtype import register_type
from compiler.ir import index as symbolic
from compiler.ir.ops import Ops
from compiler.ir.walk import by_number
from compiler.nest import windows
from compiler.nest.operand_roles import is_computed, loads_of
from compiler.nest.register_tile import WAYS

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from compiler.ir.uop import UOp
    from compiler.nest.loop_nest import Side
    from compiler.nest.operand_roles import Contraction
    from compiler.targets.shared.target import Target


LINE = 64
"""Bytes of a line of the caches."""
SET_BYTES = 4096
"""Bytes from a line to the next one in the same set of a first-level cache."""


def lines_of(index: UOp, rows: UOp, block: int, summed: Iterable[UOp], itemsize: int) -> int | None:
    """Return the lines that `block` neighbours along `rows` touch as the summed ranges run.

    None where neighbours are at one place or further apart than a line, and where the index has more than
    sums of ranges.
    """
    terms, _ = symbolic.terms_of(index)
    if any(atom.op is not Ops.RANGE for atom in terms):
        return None
    step = abs(terms.get(rows, 0))
    if not 0 < step * itemsize <= LINE:
        return None
    span, apart = step * (block - 1), 1
    for r in summed:
        distance = abs(terms.get(r, 0))
        if distance * itemsize <= LINE:
            span += distance * (r.arg[1] - 1)
        else:
            apart *= r.arg[1]
    return apart * (2 + span * itemsize // LINE)


def most_in_place(c: Contraction) -> int:
    """Return how many rows of the broadcast operand a first-level cache holds side by side.

    Rows whose distance is a multiple of `SET_BYTES` share one set of it, others are spread over several.
    """
    most = WAYS * SET_BYTES // LINE
    for load in loads_of(c.broadcast):
        terms, _ = symbolic.terms_of(load.src[1])
        distance = abs(terms.get(c.rows, 0)) * load.dtype.itemsize
        most = min(most, WAYS * SET_BYTES // max(LINE, math.gcd(distance, SET_BYTES)))
    return most


def rows_in_place(c: Contraction, rows: int) -> bool:
    """Return whether the broadcast operand is a matrix of which so many rows are read in place.

    They are adjacent along the sum, and a first-level cache holds them side by side.
    """
    loads = loads_of(c.broadcast)
    if len(c.family.ranges) > 1 or is_computed(c.broadcast) or any(len(n.src) > 2 for n in loads):
        return False
    (r,) = c.family.ranges
    along = [symbolic.terms_of(n.src[1])[0].get(r, 0) for n in loads]
    return all(step == 1 for step in along) and most_in_place(c) >= rows


class Window(NamedTuple):
    """The window of a broadcast operand."""

    sides: tuple[Side, ...]
    lines: int
    """The lines of it that a tile touches."""
    cut: tuple[UOp, int] | None = None
    """An output range of a side, and how many of its values are used before the next places are copied."""


def lines_in_place(c: Contraction, rows: int, itemsize: int) -> int | None:
    """Return the lines of the broadcast operand that a tile touches, if at most one for each product.

    None also where the operand is computed, has masks or several loads, and where `lines_of` has none.
    """
    loads = loads_of(c.broadcast)
    if len(loads) != 1 or len(loads[0].src) > 2 or is_computed(c.broadcast):
        return None
    m, _, products = c.size
    lines = lines_of(loads[0].src[1], c.rows, min(rows, m), c.family.ranges, itemsize)
    if lines is not None and len(c.family.ranges) == 1 and lines <= 2 * products:
        return min(lines, products)  # rows of a matrix side by side: few blocks are in two lines
    return lines if lines is not None and lines <= products else None


def window_of(c: Contraction, rows: int, vectors: int, lanes: int, target: Target) -> Window | None:
    """Return the window of the broadcast operand for a tile of `vectors` of `lanes` columns.

    A window of more than half of the second-level cache is cut: places are copied when the values of an
    output range need them. None where the operand has no window, where no cut makes it small enough, where a
    panel of columns does not fit beside it, or where a tile touches more lines than it has products.
    """
    sides = windows.sides_of(c.broadcast, c.family.ranges)
    if sides is None:
        return None
    m, _, products = c.size
    itemsize = register_type(c.node.dtype).itemsize
    most = target.l2_bytes // itemsize
    elements = windows.strides_of(sides, lanes)[0]
    if min(elements, most // 2) + products * vectors * lanes > most * 3 // 4:
        return None
    lines = lines_of(windows.index_of(sides, lanes), c.rows, min(rows, m), c.family.ranges, itemsize)
    if lines is None or lines > products:
        return None
    if elements <= most // 2:
        return Window(sides, lines)
    cut = _cut(sides, c, elements, most // 2)
    return None if cut is None else Window(sides, lines, cut)


def _cut(sides: Sequence[Side], c: Contraction, elements: int, most: int) -> tuple[UOp, int] | None:
    """Return the range and its most values for which at most `most` elements are copied; None without any."""
    for side in sides[:-1]:
        terms, _ = symbolic.terms_of(side.place)
        outputs = [r for r in terms if r not in c.family.ranges]
        if len(outputs) != 1 or outputs[0] is c.rows:
            continue
        (r,) = outputs
        taps = side.size - terms[r] * (r.arg[1] - 1)
        values = (most * side.size // elements - taps) // terms[r] + 1
        parts = -(-r.arg[1] // max(1, values))
        if terms[r] * values >= taps:
            return r, -(-r.arg[1] // parts)
    return None


def share(sides: Sequence[Side], c: Contraction, lanes: int) -> float:
    """Return the elements of a window for each product of the results that read it."""
    ranges = [r for side in sides for r in windows.ranges_of(side)]
    outputs = [int(r.arg[1]) for r in ranges if r not in c.family.ranges]
    return windows.strides_of(sides, lanes)[0] / (math.prod(outputs) * c.size[2])


LEAST_PIECE = 48
"""Products of a piece at least, so that loading and storing totals between pieces takes little."""
SHARE = 0.75
"""The part of the second-level cache that the copy of a piece and the panels beside it take at most."""
MOST_APART = 8
"""The largest stride or dilation."""
TOTAL_BYTES = 2 << 20
"""Bytes of totals between the pieces at most."""


class TapWindow(NamedTuple):
    """The window of a broadcast operand, of which a piece is copied at a time."""

    sides: tuple[Side, ...]
    order: tuple[UOp, ...]
    """The summed ranges, outermost first: those that are whole pieces, then places of the sides."""
    pieces: dict[UOp, int]
    """The values of a piece of each summed range that is cut."""


def window_of_taps(c: Contraction, taps: Collection[UOp], lanes: int, target: Target) -> TapWindow | None:
    """Return the window of the broadcast operand for `taps`, the output ranges of it besides the rows.

    None where the operand is no such picture, where the totals between pieces have more than `TOTAL_BYTES`,
    and where no piece of `LEAST_PIECE` products fits `SHARE` of the second-level cache.
    """
    load, summed = c.broadcast, c.family.ranges
    if load.op is not Ops.LOAD or not taps:
        return None
    terms, _ = symbolic.terms_of(load.src[1])
    if any(atom.op is not Ops.RANGE or factor <= 0 for atom, factor in terms.items()):
        return None
    sums = windows.sums_of(load.src[2]) if len(load.src) > 2 else []
    if sums is None:
        return None
    free_taps, free_sums = ([r for r in s if all(r not in one for one in sums)] for s in (taps, summed))
    sums += _pairs(terms, free_taps, by_number(free_sums))
    if not _is_picture(sums, c, taps):
        return None
    sides = windows.sides_from([*sums, {c.rows: 1}], terms)
    if sides is None or c.rows in windows.ranges_of(sides[-1]):
        return None
    taps_of_all = prod([int(r.arg[1]) for r in taps])
    m, n, _ = c.size
    itemsize = register_type(c.node.dtype).itemsize
    if taps_of_all * m * n * itemsize > TOTAL_BYTES:
        return None
    return _of_a_piece(c, sides, lanes, int(SHARE * target.l2_bytes) // itemsize)


def _of_a_piece(c: Contraction, sides: tuple[Side, ...], lanes: int, most: int) -> TapWindow | None:
    """Return the window of the largest piece that takes, with its panels, at most so many elements."""
    places = [r for side in sides for r in windows.ranges_of(side) if r in c.family.ranges]
    pictures = by_number([r for r in c.family.ranges if r not in places])
    down, *others = places
    across = prod([int(r.arg[1]) for r in others])
    columns = -(-c.size[1] // lanes) * lanes
    for size in range(down.arg[1], 0, -1):
        held = tuple([_held(side, down, size) for side in sides])
        if down.arg[1] % size or windows.strides_of(held, lanes)[0] + size * across * columns > most:
            continue
        if size * across < LEAST_PIECE:
            return None
        pieces = dict.fromkeys(pictures, 1) | ({down: size} if size < down.arg[1] else {})
        return TapWindow(held, (*pictures, *places), pieces)
    return None


def _is_picture(sums: list[dict[UOp, int]], c: Contraction, taps: Collection[UOp]) -> bool:
    """Return whether each sum has one summed range, and each tap is in one of them, with no more values."""
    every = [r for one in sums for r in one]
    if len(every) != len(set(every)) or not all(tap in every for tap in taps):
        return False
    if any(r not in taps and r not in c.family.ranges for r in every):
        return False
    for one in sums:
        places = [r for r in one if r in c.family.ranges]
        if len(places) != 1 or any(r.arg[1] > places[0].arg[1] for r in one):
            return False
        if max(one.values()) > MOST_APART:
            return False
    return True


def _pairs(terms: Mapping[UOp, int], taps: Collection[UOp], summed: Collection[UOp]) -> list[dict[UOp, int]]:
    """Return for each tap its sum with a summed range: that whose distance is nearest to its own.

    A tap may have none. Any choice is right; only the likely one has few places.
    """
    found: list[dict[UOp, int]] = []
    left = [r for r in summed if r in terms]
    for tap in taps:
        each = [
            (max(terms[r], terms[tap]) // min(terms[r], terms[tap]), k)
            for k, r in enumerate(left)
            if max(terms[r], terms[tap]) % min(terms[r], terms[tap]) == 0
        ]
        if each:
            place = left.pop(min(each)[1])
            unit = min(terms[place], terms[tap])
            found.append({place: terms[place] // unit, tap: terms[tap] // unit})
    return found


def _held(side: Side, y: UOp, size: int) -> Side:
    """Return a side for `size` values of a range, if it is one of its ranges."""
    terms, _ = symbolic.terms_of(side.place)
    left = y.arg[1] - size
    return replace(side, held=side.place.vmax + 1 - terms[y] * left) if y in terms and left else side
