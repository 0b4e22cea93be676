"""Plan the window of a picture in a gradient of filters: a piece of the picture is copied once for all taps.

The gradient sums `picture[n, c, y + p, x + q] * gradient[n, f, y, x]` over n, y and x. The taps p and q are
output ranges. The rows of the register tile are channels c, whose values are far apart in memory. So the sum
is cut into pieces of a few rows of one picture. For each piece, its part of the picture is copied with the
border, the panels of the gradient are filled once, and then the loops over all taps run.

Not here: windows of convolutions, whose rows are neighbours in a picture (`in_place_reads`), the copy
(`nest.windows`), the plan (`contraction`, the caller).
"""

from __future__ import annotations

from dataclasses import replace
from math import prod
from typing import TYPE_CHECKING, NamedTuple

from compiler.dtype import register_type
from compiler.ir import index as symbolic
from compiler.ir.ops import Ops
from compiler.ir.walk import by_number
from compiler.nest import windows

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from compiler.ir.uop import UOp
    from compiler.nest.loop_nest import Side
    from compiler.nest.operand_roles import Contraction
    from compiler.targets.shared.target import Target

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

    None where the operand is no such picture, and where no piece of it fits half of the second-level cache.
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
    sums += _pairs(terms, [r for r in taps if all(r not in one for one in sums)], _others(summed, sums))
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


def _others(summed: Collection[UOp], sums: Collection[Mapping[UOp, int]]) -> list[UOp]:
    """Return the summed ranges that are in no sum, by number."""
    return by_number([r for r in summed if all(r not in one for one in sums)])


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
