"""Divide the keys of attention of few rows among workgroups: a kernel of the parts, and one that joins them.

With few rows, as in decoding, one kernel of whole rows has too few workgroups for a device, and each would
read all keys. The first kernel has a workgroup for each part of the keys. It stores sums of weighted values,
the largest score and the sum of exponentials of each part. The second scales the parts to the largest score
of all, and adds them. It is the split of a large sum in two steps (`scheduler.split_reductions`), for a sum
whose terms are relative to a maximum. Part p of n has the keys from p * keys // n to (p + 1) * keys // n. All
parts load equally many keys: those of the next part have no weight. Source: T. Dao, D. Haziza, F. Massa and
G. Sizov, "Flash-Decoding for long-context inference" (2023).

Not here: how many parts (`compiler.plan.online_product.parts`). Next: `threaded`, the caller.
"""

from __future__ import annotations

import math
from math import prod
from typing import TYPE_CHECKING

from compiler.dtype import dtypes
from compiler.ir import index as symbolic
from compiler.ir.ops import Ops
from compiler.ir.uop import UOp, const, uop
from compiler.ir.walk import bound_ranges, by_number, ordered, ranges_in, rebuilt
from compiler.plan import online_product
from compiler.rewrite.online_softmax import merged
from compiler.rewrite.range_merging import replace_ranges, replace_value
from compiler.schedule.chains import with_buffers
from compiler.schedule.item import ScheduleItem, TempRef
from compiler.schedule.recomputed import item_of
from compiler.schedule.row_values import sink

if TYPE_CHECKING:
    from collections.abc import Sequence

    from compiler.targets.shared.target import Target

_F32, _LOW = dtypes.float32, const(-math.inf, dtypes.float32)


def split_keys(items: Sequence[ScheduleItem], target: Target) -> list[ScheduleItem]:
    """Return the schedule with two kernels for each chain whose keys are divided.

    The results of the first kernel are nodes of no tensor graph: its `values` are empty.
    """
    temps = 1 + max([ref.n for item in items for ref in item.bufs if isinstance(ref, TempRef)], default=-1)
    out: list[ScheduleItem] = []
    for item in items:
        parts = online_product.parts(item.ast, target) if item.ast.arg else 1
        split = _split(item, parts, temps + len(out) * 3) if parts > 1 else None
        fits = split is not None and online_product.parts(split[0].ast, target)
        out += split if split is not None and fits else (item,)
    return out


def _split(item: ScheduleItem, parts: int, first: int) -> tuple[ScheduleItem, ScheduleItem] | None:
    """Return the two kernels of a chain; their buffers are TempRefs numbered from `first`."""
    found = merged(item.ast)
    if found is None or found.largest is None or found.total is None or found.weighted[0].dtype is not _F32:
        return None
    score, largest, total, (weighted,) = found.score, found.largest, found.total, found.weighted
    assert score is not None
    free = ranges_in(found.ast)
    (key,), (other,) = bound_ranges(weighted, free), bound_ranges(largest, free)
    length = key.arg[1]
    size = -(-length // parts)
    outputs = by_number(free[found.ast.src[0].src[1]])
    (column,) = [r for r in outputs if r not in free[found.scores[0]]]
    rows = [r for r in outputs if r is not column]
    number = 1 + max(n.arg[0] for n in ordered(found.ast) if n.op is Ops.RANGE)
    part, again = (symbolic.loop(number + n, parts) for n in range(2))
    count, sizes = prod([r.arg[1] for r in rows]), [*[r.arg[1] for r in rows], parts]
    refs = (
        TempRef(first, _F32, (count, parts, column.arg[1])),
        *[TempRef(first + n, _F32, (count, parts)) for n in (1, 2)],
    )
    slots = [uop(Ops.BUFFER, _F32, (), len(item.bufs) + n) for n in range(3)]

    def place(at: UOp, *more: UOp) -> UOp:
        each = [*sizes, *[r.arg[1] for r in more]]
        return symbolic.dot((*rows, at, *more), symbolic.strides_of(each))

    def load(n: int, at: UOp, *more: UOp) -> UOp:
        return uop(Ops.LOAD, _F32, (slots[n], place(at, *more)))

    start = symbolic.div(symbolic.mul(part, length), parts)
    end = symbolic.div(symbolic.linear({part: length}, length), parts)
    first_column = symbolic.lt(column, 1)
    stores = [uop(Ops.STORE, dtypes.void, (slots[0], place(part, column), weighted))]
    stores += [
        uop(Ops.STORE, dtypes.void, (slots[n], place(part), value, first_column))
        for n, value in ((1, largest), (2, total))
    ]
    ast = sink(*stores)
    for r, value in ((key, score), (other, largest.src[0])):
        if length % parts:
            inside = symbolic.lt(symbolic.add(r, symbolic.mul(end, -1)), 0)
            masked = uop(Ops.WHERE, _F32, (uop(Ops.IVALUE, dtypes.bool, (inside,)), value, _LOW))
            ast = replace_value(ast, value, masked)
    moved = {r: symbolic.add(start, symbolic.loop(r.arg[0], size)) for r in (key, other)}
    ast = _without(replace_ranges(ast, moved), part)
    buffers = (*item.bufs, *refs)
    each = item_of(with_buffers(ast, buffers), (), merge=True)

    most = uop(Ops.REDUCE, _F32, (load(1, again),), ("MAX", (again.arg[0],)))
    none = uop(Ops.EQ, dtypes.bool, (most, _LOW))  # all scores are -inf: exp(x - 0) is 0
    base = uop(Ops.WHERE, _F32, (none, const(0.0, _F32), most))
    factor = uop(Ops.EXP, _F32, (uop(Ops.SUB, _F32, (load(1, part), base)),))
    ast = found.ast
    for old, value in ((weighted, load(0, part, column)), (total, load(2, part))):
        terms = uop(Ops.MUL, _F32, (factor, value))
        ast = replace_value(ast, old, uop(Ops.REDUCE, _F32, (terms,), ("ADD", (number,))))
    ast = replace_value(ast, largest, most)
    return each, item_of(with_buffers(ast, buffers), item.values)


def _without(ast: UOp, part: UOp) -> UOp:
    """Return a kernel whose sums do not run over a range."""

    def change(node: UOp, src: tuple[UOp, ...]) -> UOp | None:
        if node.op is not Ops.REDUCE:
            return None
        kept = tuple([n for n in node.arg[1] if n != part.arg[0]])
        return uop(Ops.REDUCE, node.dtype, src, (node.arg[0], kept))

    return rebuilt(ordered(ast), change)[ast]
