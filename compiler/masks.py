"""Values where a mask does not hold: padding reads as 0, and often the loads have seen to that already."""

from __future__ import annotations

from typing import TYPE_CHECKING

from compiler import fold
from compiler import symbolic as sy
from compiler.dtype import dtypes
from compiler.ops import Ops
from compiler.uop import const

if TYPE_CHECKING:
    from compiler.uop import UOp


def where_false(x: UOp, mask: UOp, memo: dict[UOp, UOp | None]) -> UOp | None:
    """Return the constant that x is where `mask` does not hold, or None; `memo` belongs to one mask."""
    if x in memo:
        return memo[x]
    found: UOp | None = None
    if x.op is Ops.CONST:
        found = x
    elif x.op is Ops.LOAD:
        if len(x.src) == 3 and sy.implies(x.src[2], mask):
            found = const(0, x.dtype)
    elif x.op is Ops.REDUCE:
        value = where_false(x.src[0], mask, memo)
        if value is not None and (x.arg[0] in (Ops.MAX, Ops.MIN) or fold.is_constant(value, 0)):
            found = value
    elif x.op in fold.RULES or x.op is Ops.SQRT:
        values = [where_false(s, mask, memo) for s in x.src]
        if None not in values:
            folded = fold.alu(x.op, x.dtype, tuple([v for v in values if v is not None]))
            found = folded if folded.op is Ops.CONST else None
    memo[x] = found
    return found


def masked(x: UOp, mask: UOp) -> UOp:
    """Return x where the mask holds, else 0."""
    if mask is sy.TRUE:
        return x
    zero = const(0, x.dtype)
    if mask is sy.FALSE or where_false(x, mask, {}) is zero:
        return zero if mask is sy.FALSE else x
    return fold.alu(Ops.WHERE, x.dtype, (fold.number(mask, dtypes.bool), x, zero))
