"""Which sums Winograd's algorithm computes: a convolution of 3 x 3 taps, or the gradient of such filters.

The roles of a kernel's ranges and operands are found from the places that go with taps.

Not here: the kernels of the parts (`winograd_parts`), sizes, plans and the decision (`winograd`, the caller).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from compiler.dtype import dtypes
from compiler.ir import index as symbolic
from compiler.ir.ops import Ops
from compiler.ir.walk import bound_ranges, by_number, ordered, ranges_in
from compiler.nest.kernel_shape import inner_nodes

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from compiler.ir.uop import UOp

TAPS, TILE, PLACES = 3, 2, 4
"""Taps, results and places of a tile along each side."""
LEAST_CHANNELS, LEAST_TILES = 16, 4
"""Channels and filters, and tiles of a row, from which on the transforms may pay."""


@dataclass(frozen=True, slots=True)
class Roles:
    """The roles in a sum of products of a picture and another operand, by the ranges of the kernel."""

    node: UOp
    """The REDUCE."""
    picture: UOp
    """The operand of which rows and columns are places plus taps."""
    other: UOp
    """The LOAD of the filters; of a gradient, the operand that is the gradient of the results."""
    filters: UOp
    channels: UOp
    rows: UOp
    columns: UOp
    down: UOp
    """The taps along rows."""
    across: UOp
    """The taps along columns."""
    others: tuple[UOp, ...]
    """Ranges of the picture besides rows, columns, channels and taps: of a gradient none, or its pictures."""


def convolution_of(ast: UOp) -> Roles | None:
    """Return the roles of a sum over channels and taps; None for others, and where a side is odd or short.

    Short are fewer channels or filters than `LEAST_CHANNELS`, and rows of fewer tiles than `LEAST_TILES`.
    """
    node = _sum_of(ast)
    if node is None:
        return None
    free = ranges_in(ast)
    bound = by_number(bound_ranges(node, free))
    taps = [r for r in bound if r.arg[1] == TAPS]
    outputs = frozenset([r for s in ast.src for r in free[s]])
    for picture, weight in (node.src[0].src, node.src[0].src[::-1]):
        if weight.op is not Ops.LOAD or len(weight.src) > 2 or not _is_plain(weight.src[1]):
            continue
        filters, places = (free[weight] & outputs) - free[picture], (free[picture] & outputs) - free[weight]
        channels = [r for r in bound if r not in taps]
        c = _roles(node, (picture, weight), filters, channels, taps, places)
        if c is None or free[weight] & free[picture] & outputs:
            continue
        whole = outputs == {c.filters, c.rows, c.columns, *c.others}
        if whole and c.rows.arg[1] > TILE:  # else there are no blocks of rows of tiles
            return c
    return None


def gradient_of(ast: UOp) -> Roles | None:
    """Return the roles of a sum over pictures and places; None as `convolution_of` says."""
    node = _sum_of(ast)
    if node is None:
        return None
    free = ranges_in(ast)
    bound, outputs = bound_ranges(node, free), frozenset([r for s in ast.src for r in free[s]])
    for picture, results in (node.src[0].src, node.src[0].src[::-1]):
        own, theirs = (free[picture] - free[results]) & outputs, (free[results] - free[picture]) & outputs
        taps = by_number([r for r in own if r.arg[1] == TAPS])
        channels = [r for r in own if r not in taps]
        if outputs != own | theirs or not all(_is_plain(x) for x in _indices_of(results)):
            continue
        c = _roles(node, (picture, results), theirs, channels, taps, bound)
        if c is not None and len(c.others) <= 1 and bound <= free[picture] & free[results]:
            return c
    return None


def _sum_of(ast: UOp) -> UOp | None:
    """Return the one REDUCE of a kernel if it adds products of float32; None for any other kernel."""
    nodes = ordered(ast)
    sums = [n for n in nodes if n.op is Ops.REDUCE]
    if len(sums) != 1 or any(n.op in (Ops.VAR, Ops.WITHIN, Ops.INDEXOF) for n in nodes):
        return None
    node, value = sums[0], sums[0].src[0]
    floats = node.dtype is dtypes.float32 and value.dtype is dtypes.float32
    return node if node.arg[0] == "ADD" and value.op is Ops.MUL and floats else None


def _roles(  # noqa: PLR0917  # two callers, side by side
    node: UOp, operands: tuple[UOp, UOp], filters: Collection[UOp], channels: Collection[UOp],
    taps: Sequence[UOp], places: Collection[UOp]
) -> Roles | None:  # fmt: skip
    """Return the roles with each tap beside its place; None unless the transforms may pay."""
    picture, other = operands
    if len(filters) != 1 or len(channels) != 1 or len(taps) != 2:
        return None
    (f,), (k,), (down, across) = filters, channels, taps
    rows, columns = _partner_of(picture, down, places), _partner_of(picture, across, places)
    if rows is None or columns is None or rows is columns:
        return None
    if _step_of(picture, columns) > _step_of(picture, rows):
        rows, columns, down, across = columns, rows, across, down
    if rows.arg[1] % TILE or columns.arg[1] % TILE or columns.arg[1] < TILE * LEAST_TILES:
        return None
    if min(f.arg[1], k.arg[1]) < LEAST_CHANNELS:
        return None
    others = tuple(by_number([r for r in places if r is not rows and r is not columns]))
    return Roles(node, picture, other, f, k, rows, columns, down, across, others)


def _is_plain(index: UOp) -> bool:
    """Return whether an index is a sum of ranges."""
    return all(atom.op is Ops.RANGE for atom in symbolic.terms_of(index)[0])


def _indices_of(value: UOp) -> list[UOp]:
    """Return the indices of the loads in a value, and those that its masks compare."""
    found: list[UOp] = []
    for n in inner_nodes((value,)):
        if n.op is Ops.LOAD:
            found += [n.src[1], *[part.src[0] for mask in n.src[2:] for part in symbolic.parts_of(mask)]]
        elif n.op is Ops.IVALUE:
            parts = symbolic.parts_of(n.src[0]) if symbolic.is_mask(n.src[0]) else ()
            found += [part.src[0] for part in parts] or [n.src[0]]
    return found


def _partner_of(picture: UOp, tap: UOp, places: Collection[UOp]) -> UOp | None:
    """Return the range that occurs only in sums with a tap, as `place + tap`; None without one."""
    every = [symbolic.terms_of(index)[0] for index in _indices_of(picture)]
    if any(atom.op is not Ops.RANGE for terms in every for atom in terms):
        return None
    for r in by_number(places):
        beside = all(terms.get(r, 0) == terms.get(tap, 0) for terms in every)
        if beside and any(r in terms for terms in every):
            return r
    return None


def _step_of(picture: UOp, r: UOp) -> int:
    """Return the largest distance between elements of neighbours along a range."""
    return max(abs(symbolic.terms_of(index)[0].get(r, 0)) for index in _indices_of(picture))
