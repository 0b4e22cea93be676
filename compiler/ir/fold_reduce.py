"""REDUCE nodes of kernels, and reductions that need no loop.

A range on which the value does not depend needs no loop: a sum over it is a multiplication, a product a
power.

Not here: the rules of elementwise operations (`fold`), the loops (`compiler.emit.reductions`). Next:
`compiler.schedule.lower`, the caller.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from compiler.dtype import DType, dtypes
from compiler.ir.fold import alu
from compiler.ir.ops import Ops
from compiler.ir.uop import UOp, const, uop

if TYPE_CHECKING:
    from collections.abc import Sequence


def identity(op: str, dtype: DType) -> UOp:
    """Return the result of a reduction by ADD, MUL, MAX or MIN over no elements."""
    if op is Ops.ADD:
        return const(0, dtype)
    if op is Ops.MUL:
        return const(1, dtype)
    if dtype.is_float:
        return const(-math.inf if op is Ops.MAX else math.inf, dtype)
    return const(dtype.min if op is Ops.MAX else dtype.max, dtype)


def combine(op: str, value: UOp, ranges: Sequence[UOp], used: int) -> UOp:
    """Return the reduction of value over ranges; bit n of `used` is set if value depends on range n.

    Other ranges are left out of the REDUCE. For them ADD multiplies the result by the product of their sizes,
    and MUL raises it to that power; MAX and MIN keep it.
    """
    kept = tuple([r.arg[0] for r in ranges if used >> r.arg[0] & 1])
    times = math.prod([r.arg[1] for r in ranges if not used >> r.arg[0] & 1])
    if kept:
        value = uop(Ops.REDUCE, value.dtype, (value,), (op, kept))
    if times == 1 or op is Ops.MAX or op is Ops.MIN:
        return value
    return _times(value, times) if op is Ops.ADD else _power(value, times)


def _times(value: UOp, times: int) -> UOp:
    """Return value * times; a count that is not exact in a narrow float is multiplied in float32."""
    dtype = value.dtype
    if dtype.is_int:
        wrapped = times & ((1 << dtype.bits) - 1)
        return alu(Ops.MUL, dtype, (value, const(wrapped - (1 << dtype.bits) * (wrapped > dtype.max), dtype)))
    factor = const(times, dtype)
    if factor.arg == times or dtype in (dtypes.float32, dtypes.float64):
        return alu(Ops.MUL, dtype, (value, factor))
    wide = alu(Ops.CAST, dtypes.float32, (value,))
    return alu(Ops.CAST, dtype, (alu(Ops.MUL, dtypes.float32, (wide, const(times, dtypes.float32))),))


def _power(value: UOp, times: int) -> UOp:
    """Return value ** times, by squaring."""
    result: UOp | None = None
    while times:
        if times & 1:
            result = value if result is None else alu(Ops.MUL, value.dtype, (result, value))
        times >>= 1
        if times:
            value = alu(Ops.MUL, value.dtype, (value, value))
    return value if result is None else result
