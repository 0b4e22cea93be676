"""Convolutions with a border, without the products of the border.

A padded convolution loads `picture[y + p - 1, x + q - 1]` where both indices are inside the picture, else 0.
A register tile has all places x of a row, so that for each unrolled tap q the places inside are known: the
products of the other places are left out. It has one row y, and the loop over p runs only over the taps that
are inside. So no product has a factor from outside the picture, and the picture is read in place, without
masks.

A product with the 0 of the border would be NaN if the other factor were infinite or NaN; the result without
that product is not.

Not here: convolutions whose products with the border are computed (`plan.in_place_reads`). Next:
`plan.contraction_tile`, the caller; `emit.reductions`, which writes the loops.
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, NamedTuple

from compiler.ir import index as symbolic
from compiler.ir.ops import Ops
from compiler.ir.walk import by_number
from compiler.nest.register_tile import LATENCY, ROUND_CYCLES, SECOND_LEVEL_BYTES

if TYPE_CHECKING:
    from compiler.emit.builder import Builder
    from compiler.emit.indexing import Indexer
    from compiler.emit.linear import Line
    from compiler.ir.uop import UOp
    from compiler.nest.operand_roles import Contraction
    from compiler.targets.shared.target import Target

MOST_PLACES = 28
"""Rows of a register tile at most."""
MOST_VECTORS = 6
MOST_PRODUCTS = 192
"""Multiply-adds of vectors that are unrolled at most."""
PANEL_SHARE = 0.75
"""The part of the second-level cache that a panel of columns takes at most."""


class Border(NamedTuple):
    """The taps of a convolution whose products with the border are left out."""

    order: tuple[UOp, ...]
    """The summed ranges, outermost first; the last one is that of the unrolled taps."""
    bounded: tuple[UOp, ...]
    """The summed ranges whose loops run only over the taps inside."""
    vectors: int
    """Vectors of the register tile, whose rows are all places of the output range of rows."""
    ahead: int
    """Elements from a picture to the next one; 0 for one picture."""
    cycles: float
    """Estimated cycles of one tile, for the average place along the other output ranges."""


def is_padded(c: Contraction) -> bool:
    """Return whether the broadcast operand has a mask, and few enough rows for one tile."""
    return c.broadcast.op is Ops.LOAD and len(c.broadcast.src) > 2 and c.rows.arg[1] <= MOST_PLACES


def border_of(c: Contraction, lanes: int, target: Target) -> Border | None:
    """Return how the products of a convolution with its border are left out.

    None with more than `MOST_PLACES` rows, for a broadcast operand that is no picture with a border, if some
    place of another output range has no tap inside, and if no tile fits the limits above and the cache.
    """
    if not is_padded(c):
        return None
    m, n, k = c.size
    pairs = _pairs_of(c.broadcast.src[2], c)
    if pairs is None or c.rows not in pairs:
        return None
    (tap, across), shares = pairs.pop(c.rows), []
    for r, (_, inside) in pairs.items():
        if not all(inside):
            return None
        shares.append(sum(inside) / int(r.arg[1]))
    bounded = [other for other, _ in pairs.values()]
    if tap in bounded or len(bounded) != len(set(bounded)):
        return None
    products, taps, wide = sum(across), int(tap.arg[1]), -(-n // lanes)
    found = []
    for vectors in range(1, min(MOST_VECTORS, wide, (target.registers - 2) // (m + 1)) + 1):
        near = k * vectors * lanes * 4 <= PANEL_SHARE * target.l2_bytes
        if near and 0 < products * vectors <= MOST_PRODUCTS:
            each = _cycles(products, taps, m, vectors, target)
            found.append((-(-wide // vectors) * each, each, vectors))
    if not found:
        return None
    _, each, vectors = min(found)
    others = by_number([r for r in c.family.ranges if r is not tap])
    rounds = prod(shares) * prod([int(r.arg[1]) for r in others if r not in bounded])
    terms, _ = symbolic.terms_of(c.broadcast.src[1])
    ahead = max([terms.get(r, 0) for r in c.others if r not in pairs], default=0)
    return Border((*others, tap), tuple(bounded), vectors, ahead, rounds * each)


def _cycles(products: int, taps: int, places: int, vectors: int, target: Target) -> float:
    """Return the cycles of the unrolled taps of a tile: multiply-adds, loads, or the latency of a chain."""
    return ROUND_CYCLES + max(
        products * vectors / target.fma_per_cycle,
        taps * vectors * target.vector_bytes / SECOND_LEVEL_BYTES,
        (taps * vectors + places) / target.loads_per_cycle,
        LATENCY * taps,
    )


def _pairs_of(mask: UOp, c: Contraction) -> dict[UOp, tuple[UOp, list[int]]] | None:
    """Return for each output range of a mask its range of taps, and how many taps are inside at each place.

    None unless each part of the mask has one summed range and one output range, not the columns, and an
    output range always the same summed range.
    """
    parts: dict[UOp, list[UOp]] = {}
    taps: dict[UOp, UOp] = {}
    for part in symbolic.parts_of(mask):
        terms, _ = symbolic.terms_of(part.src[0])
        if len(terms) != 2 or any(atom.op is not Ops.RANGE for atom in terms):
            return None
        summed = [r for r in terms if r in c.family.ranges]
        outputs = [r for r in terms if r not in c.family.ranges]
        if (
            len(summed) != 1
            or outputs[0] is c.columns
            or taps.setdefault(outputs[0], summed[0]) is not summed[0]
        ):
            return None
        parts.setdefault(outputs[0], []).append(part)
    found: dict[UOp, tuple[UOp, list[int]]] = {}
    for r, every in parts.items():
        tap, lines = taps[r], [_line(part, r, taps[r]) for part in every]
        inside = [
            sum([all(at * y + step * p < end for at, step, end in lines) for p in range(tap.arg[1])])
            for y in range(r.arg[1])
        ]
        found[r] = tap, inside
    return found


def _line(part: UOp, place: UOp, tap: UOp) -> tuple[int, int, int]:
    """Return a part of a mask as (a, b, c): it is true where a * place + b * tap < c."""
    terms, constant = symbolic.terms_of(part.src[0])
    return terms[place], terms[tap], int(part.arg) - constant


def bounds(b: Builder, ix: Indexer, mask: UOp, r: UOp) -> tuple[Line, Line, list[UOp]]:
    """Return the first value of r where a mask may be true, the value after the last, and parts of the mask.

    The parts are those that depend on r, a summed range; they are true between the two values.
    """
    low, high = b.index(0), b.index(r.arg[1])
    known = []
    for part in symbolic.parts_of(mask):
        terms, constant = symbolic.terms_of(part.src[0])
        if r not in terms:
            continue
        factor = terms.pop(r)
        rest = ix.line(symbolic.linear(terms, constant))
        room = b.alu("sub", b.index(part.arg - 1), rest)  # factor * r <= room
        if factor > 0:
            end = b.add(ix.divide(room, factor, signed=True), b.index(1))
            high = b.call("smin", high, end)
        else:
            first = b.alu("sub", b.index(0), ix.divide(room, -factor, signed=True))
            low = b.call("smax", low, first)
        known.append(part)
    return low, high, known
