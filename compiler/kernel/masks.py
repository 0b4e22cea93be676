"""Masked values: padding reads as 0, and a mask that the loads below already apply is not applied again.

Not here: how masks arise (`compiler.ir.movement`). Next: `compiler.schedule.lower`, the caller.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from compiler.dtype import dtypes
from compiler.ir import fold
from compiler.ir import index as symbolic
from compiler.ir.ops import Ops
from compiler.ir.serialize import unknown_under
from compiler.ir.uop import const

if TYPE_CHECKING:
    from compiler.ir.uop import UOp


Known = dict["UOp", "UOp | None"]
"""Node -> the constant that it is where one mask does not hold, or None."""


def where_false(x: UOp, mask: UOp, known: Known) -> UOp | None:
    """Return the constant that x is where `mask` does not hold, or None; `known` belongs to one mask."""
    for node in unknown_under(x, known, _deciding):
        known[node] = _where_false(node, mask, known)
    return known[x]


def _deciding(x: UOp) -> tuple[UOp, ...]:
    """Return the sources that decide whether x is constant: a load's own mask does, whatever its index is."""
    if x.op is Ops.REDUCE:
        return x.src[:1]
    return x.src if x.op in fold.RULES or x.op is Ops.SQRT else ()


def _where_false(x: UOp, mask: UOp, known: Known) -> UOp | None:
    if x.op is Ops.CONST:
        return x
    if x.op is Ops.LOAD:
        return const(0, x.dtype) if len(x.src) == 3 and symbolic.implies(x.src[2], mask) else None
    if x.op is Ops.REDUCE:
        value = known[x.src[0]]
        kept = value is not None and (x.arg[0] in (Ops.MAX, Ops.MIN) or fold.is_constant(value, 0))
        return value if kept else None
    if x.op not in fold.RULES and x.op is not Ops.SQRT:
        return None
    values = [known[s] for s in x.src]
    if None in values:
        return None
    folded = fold.alu(x.op, x.dtype, tuple([v for v in values if v is not None]))
    return folded if folded.op is Ops.CONST else None


def masked(x: UOp, mask: UOp, known: dict[UOp, Known]) -> UOp:
    """Return x where the mask holds, else 0; `known` caches the results for each mask."""
    if mask is symbolic.TRUE:
        return x
    zero = const(0, x.dtype)
    if mask is symbolic.FALSE:
        return zero
    if where_false(x, mask, known.setdefault(mask, {})) is zero:
        return x
    return fold.alu(Ops.WHERE, x.dtype, (fold.number(mask, dtypes.bool), x, zero))
