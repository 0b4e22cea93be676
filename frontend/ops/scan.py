"""Running sums and products along an axis.

They are reductions over windows, in blocks for a long axis: about 2 * sqrt(n) operations for each element.

Not here: totals (`reduce`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from compiler.dtype import dtypes
from compiler.ir.ops import Ops
from frontend.ops.arguments import axis_of
from frontend.ops.reduce import sum_dtype
from frontend.ops.sources import constant, convert, coordinate, spread
from frontend.trace import apply, method

if TYPE_CHECKING:
    from frontend.tensor_base import T

_BLOCK: Final = 128
_IDENTITY: Final = {Ops.ADD: 0, Ops.MUL: 1}


@method
def cumsum(self: T, axis: int = 0) -> T:
    """Return running sums along an axis. Integers shorter than 32 bits give 32.

    The shape stays. Raises `UsageIndexError` for an axis that does not exist.
    """
    return _along(Ops.ADD, self, axis, "cumsum")


@method
def cumprod(self: T, axis: int = 0) -> T:
    """Return running products along an axis. Integers shorter than 32 bits give 32.

    The shape stays. Raises `UsageIndexError` for an axis that does not exist.
    """
    return _along(Ops.MUL, self, axis, "cumprod")


def _along(op: str, x: T, axis: int, what: str) -> T:
    shape, dtype = x.expr.shape, x.expr.dtype
    wide = dtypes.float32 if dtype.is_float and dtype.bits == 16 else sum_dtype(dtype)
    axis_of(axis, shape or (1,), what)
    if not shape:
        return x if dtype.is_float else convert(x, wide)
    a = axis_of(axis, shape, what)
    order = (*[i for i in range(len(shape)) if i != a], a)
    back = tuple([order.index(i) for i in range(len(shape))])
    y = apply(Ops.PERMUTE, back, _running(op, apply(Ops.PERMUTE, order, convert(x, wide))))
    return convert(y, dtype) if dtype.is_float else y


def _running(op: str, x: T) -> T:
    """Combine each element of the last axis with all before it."""
    shape = x.expr.shape
    n, rank = shape[-1], len(shape)
    if n <= 1:
        return x
    if n <= 4 * _BLOCK:
        windows = apply(Ops.WINDOW, ((rank - 1,), (n,), (1,), (1,)), _led(op, x, n - 1))
        return apply(Ops.REDUCE, (op, (rank,)), windows)
    blocks = -(-n // _BLOCK)
    padded = apply(Ops.PAD, (*[(0, 0)] * (rank - 1), (0, blocks * _BLOCK - n)), x)
    rows = apply(Ops.RESHAPE, (*shape[:-1], blocks, _BLOCK), padded)
    inner = _running(op, rows)
    totals = apply(Ops.CONTIGUOUS, None, apply(Ops.REDUCE, (op, (rank,)), rows))
    before = _running(op, apply(Ops.SHRINK, tuple([(0, m) for m in totals.expr.shape]), _led(op, totals, 1)))
    beside = spread(apply(Ops.RESHAPE, (*shape[:-1], blocks, 1), before), inner.expr.shape)
    flat = apply(Ops.RESHAPE, (*shape[:-1], blocks * _BLOCK), apply(op, None, inner, beside))
    return apply(Ops.SHRINK, (*[(0, m) for m in shape[:-1]], (0, n)), flat)


def _led(op: str, x: T, count: int) -> T:
    """Return x padded before its last axis with neutral elements."""
    padded = apply(Ops.PAD, (*[(0, 0)] * (len(x.expr.shape) - 1), (count, 0)), x)
    if not _IDENTITY[op]:
        return padded
    shape = padded.expr.shape
    place = coordinate(x, shape, len(shape) - 1)
    ahead = apply(Ops.LT, None, place, constant(x, count, place.expr.dtype, shape))
    return apply(Ops.WHERE, None, ahead, constant(x, _IDENTITY[op], x.expr.dtype, shape), padded)
