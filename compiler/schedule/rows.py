"""Rows: kernels that work on the same rows, one after the other, become one chain.

A kernel joins the chain that stores a matrix which it loads, if both work on rows of that matrix: a layer
norm joins its sums of rows, a function of rows the product before it, a product the softmax whose weights it
multiplies. A matrix that other kernels load too stays in memory, as a result of the chain. So this joins
kernels of training steps, where gradients need the matrices between.

The proof is that of `chains`: it refuses every chain that loads what it did not store in the same row.

Not here: the chain of some kernels (`chains.joined`). Next: `scheduler`, the caller, on a host.
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

from compiler.ir.ops import Ops
from compiler.ir.walk import ordered, ranges_in
from compiler.schedule.chains import factors, is_product, joined
from compiler.schedule.item import TempRef

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from compiler.ir.uop import UOp
    from compiler.schedule.item import BufRef, ScheduleItem

MOST_PARTS = 8
"""The most parts of a chain."""
NEAR = 16
"""The most kernels between the parts of a chain."""


def join_rows(items: Sequence[ScheduleItem], least: int) -> list[ScheduleItem]:
    """Return the schedule with kernels that work on the same rows as one, where they have `least` rows.

    A chain takes the place of its last part; what depends on one of its results runs after it.
    """
    readers: dict[BufRef, int] = {}
    for item in items:
        for ref in dict.fromkeys(item.bufs):
            readers[ref] = readers.get(ref, 0) + (ref not in item.writes)
    done: list[_Chain] = []
    for item in items:
        done.append(_Chain([item], item))
        at: int | None = len(done) - 1
        while at is not None:
            at = _grown(done, at, readers, least)
    return [chain.item for chain in done]


def _grown(done: list[_Chain], last: int, readers: dict[BufRef, int], least: int) -> int | None:
    """Join a chain with one before it, in place, and return the place of both; None if none can be joined."""
    if all(may_be_part(part) for part in done[last].parts):
        for at in range(last - 1, max(-1, last - 1 - NEAR), -1):
            found = _joined(done[at : last + 1], readers, least)
            if found is not None:
                done[at : last + 1], place = found
                return at + place
    return None


class _Chain:
    """Some items that are one, or a single item."""

    __slots__ = ("item", "parts")

    def __init__(self, parts: list[ScheduleItem], item: ScheduleItem) -> None:
        self.parts = parts
        self.item = item


def may_be_part(item: ScheduleItem) -> bool:
    """Return whether an item may be a part of a chain: no chain, no variables, and nothing in place."""
    if item.ast.arg:
        return False
    nodes = ordered(item.ast)
    loads = {n.src[0].arg for n in nodes if n.op is Ops.LOAD}
    return loads.isdisjoint(item.stores) and not any(n.op in (Ops.VAR, Ops.INDEXOF) for n in nodes)


def _joined(
    chains: Sequence[_Chain], readers: dict[BufRef, int], least: int
) -> tuple[list[_Chain], int] | None:
    """Return the chains in an order in which the first and the last are one, and the place of this one.

    None if they cannot be one.
    """
    first, *between, last = chains
    parts = [*first.parts, *last.parts]
    if set(first.item.writes).isdisjoint(last.item.bufs):
        return None
    if len(parts) > MOST_PARTS or not all(may_be_part(part) for part in first.parts):
        return None
    after = [first]
    for chain in between:
        if any(depends(chain.item, other.item) for other in after):
            after.append(chain)
    if any(depends(last.item, other.item) for other in after[1:]):
        return None
    inside: dict[BufRef, int] = {}
    for part in parts:
        for ref in part.bufs:
            inside[ref] = inside.get(ref, 0) + (ref not in part.writes)
    stored = {ref for part in parts for ref in part.writes}
    outside = {ref for ref in stored if not isinstance(ref, TempRef) or readers[ref] > inside[ref]}
    one = joined(parts, None, outside)
    if one is None or not _fits(one.ast, least):
        return None
    before = [chain for chain in between if chain not in after]
    return [*before, _Chain(parts, one), *after[1:]], len(before)


def depends(item: ScheduleItem, other: ScheduleItem) -> bool:
    """Return whether an item cannot run before another one that comes first."""
    stored, mine = set(other.writes), set(item.writes)
    return not (stored.isdisjoint(item.bufs) and mine.isdisjoint(other.bufs)) or bool(
        _places(mine) & _places(other.bufs) or _places(stored) & _places(item.bufs)
    )


def _places(refs: Iterable[BufRef]) -> set[int]:
    """Return the parameters among some buffers: one buffer may have several shapes."""
    return {ref.n for ref in refs if ref.kind == "in"}


def _fits(chain: UOp, least: int) -> bool:
    """Return whether a chain has enough rows, and no product with a factor that all its rows share.

    Such a factor would be copied for each block of rows.
    """
    shared = chain.arg[1]
    found: dict[int, int] = {}
    for part in chain.src:
        free = ranges_in(part)
        rows = {r for r in free if r.op is Ops.RANGE and r.arg[0] < shared}
        found |= {r.arg[0]: int(r.arg[1]) for r in rows}
        if is_product(part) and any(free[x].isdisjoint(rows) for x in factors(part)):
            return False
    return prod(found.values()) >= least
