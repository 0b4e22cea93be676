"""Running sums, products, extremes and logarithms of sums along an axis.

They are reductions over windows. An axis of more than 64 elements is cut into blocks of 16, and the totals of
its blocks are combined in the same way: about 17 operations for each element. A tensor of shape () has one
axis, 0. An axis that does not exist raises `UsageIndexError`, one that is no number `UsageTypeError`.

Not here: totals of an axis (`reductions`). Next: `sorting`.
"""

# ruff: noqa: I001 - lists of names stand in rows

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final, Generic, NamedTuple

from compiler.dtype import DType, dtypes
from compiler.ir.ops import Ops
from frontend.arguments.aliases import accepts_aliases
from frontend.arguments.checks import axis_of, element_type
from frontend.evaluation.base import T, TensorBase
from frontend.evaluation.constants import (
    constant, convert, coordinate, narrowed, number_like, spread, widened,
)  # fmt: skip
from frontend.evaluation.expr import float_dtype
from frontend.evaluation.trace import apply, composite, method
from frontend.ops.elementwise import add, lt
from frontend.ops.functions import logaddexp
from frontend.ops.reductions import accumulator, as_dtype, logsumexp
from frontend.primitives.gather_scatter import TAKE_ALONG_AXIS

_BLOCK: Final = 16
"""Elements of a block. Axes of up to four blocks are not cut."""
_LOG_SUM: Final = "LOG_SUM"
"""The logarithm of a sum of exponentials, as an operation."""
_IDENTITY: Final = {Ops.ADD: 0, Ops.MUL: 1}


def _combined(op: str, x: T, axis: int) -> T:
    """Return the elements of an axis combined by an operation, without the axis."""
    return logsumexp(x, axis) if op is _LOG_SUM else apply(Ops.REDUCE, (op, (axis,)), x)


def _joined(op: str, a: T, b: T) -> T:
    """Return the pairs of elements of two tensors of one shape combined by an operation."""
    return logaddexp(a, b) if op is _LOG_SUM else apply(op, None, a, b)


@method
def cumsum(self: T, axis: int = 0, dtype: DType | str | None = None) -> T:
    """Return running sums along an axis, in the shape of self.

    Floats keep their dtype; 16-bit floats are added in float32. Integers and bools give int64, uint64 stays.
    With `dtype`, self is converted first, and the result has it.
    """
    return _along(Ops.ADD, self, axis, "cumsum", dtype)


@method
def cumprod(self: T, axis: int = 0, dtype: DType | str | None = None) -> T:
    """Return running products along an axis, in the shape of self; `dtype` and errors as of `cumsum`."""
    return _along(Ops.MUL, self, axis, "cumprod", dtype)


class RunningExtreme(NamedTuple, Generic[T]):
    """Running extremes along an axis, and the indices (int64) of the last elements that attain them."""

    values: T
    indices: T


@accepts_aliases
def cummax(self: T, axis: int) -> RunningExtreme[T]:
    """Return (values, indices): the greatest value up to each element of an axis, and its last index.

    From the first NaN on, values are NaN. The gradient of a value goes to the element at its index.
    """
    return _extremes(self, axis, "cummax")


@accepts_aliases
def cummin(self: T, axis: int) -> RunningExtreme[T]:
    """Return (values, indices): the least value up to each element of an axis, and its last index.

    From the first NaN on, values are NaN. The gradient of a value goes to the element at its index.
    """
    return _extremes(self, axis, "cummin")


def _extremes(x: T, axis: int, what: str) -> RunningExtreme[T]:
    places = _places(x, Ops.MAX if what == "cummax" else Ops.MIN, axis, what)
    return RunningExtreme(_at(x, places, axis), places)


@method
def _places(self: T, op: str, axis: int, what: str) -> T:
    shape = self.expr.shape
    a = axis_of(axis, shape or (1,), what)
    if not shape:
        return constant(self, 0, dtypes.int64, ())
    x = convert(self, dtypes.int32) if self.expr.dtype is dtypes.bool else self
    order = (*[i for i in range(len(shape)) if i != a], a)
    row = apply(Ops.PERMUTE, order, x)
    best = _running(op, row)
    place = coordinate(row, row.expr.shape, len(shape) - 1)
    hit = apply(Ops.EQ, None, row, best)
    if row.expr.dtype.is_float:
        hit = apply(Ops.OR, None, hit, apply(Ops.NE, None, row, row))
    none = number_like(place, 0)
    last = _running(Ops.MAX, apply(Ops.WHERE, None, hit, place, none))
    return apply(Ops.PERMUTE, tuple([order.index(i) for i in range(len(shape))]), last)


@composite
def _at(self: T, places: T, axis: int) -> T:
    if not self.expr.shape:
        return self
    return apply(TAKE_ALONG_AXIS, (axis_of(axis, self.expr.shape, "cummax"), False), self, places)


@method
def logcumsumexp(self: T, axis: int) -> T:
    """Return log(cumsum(exp(self))) along an axis, without overflow.

    About 17 exponentials are computed for each element. Integers and bools give float32.
    """
    shape = self.expr.shape
    a = axis_of(axis, shape or (1,), "logcumsumexp")
    if not shape:
        return convert(self, float_dtype(self.expr.dtype))
    return narrowed(_with_last(lambda t: _running(_LOG_SUM, t), widened(self), a), self)


def _along(op: str, x: T, axis: int, what: str, dtype: DType | str | None) -> T:
    wanted = element_type(dtype)
    x = as_dtype(x, wanted)
    shape, own = x.expr.shape, x.expr.dtype
    axis_of(axis, shape or (1,), what)
    row = convert(x, accumulator(own, wanted))
    y = _with_last(lambda t: _running(op, t), row, axis_of(axis, shape, what)) if shape else row
    return convert(y, own) if wanted is not None or own.is_float else y


def _with_last(fn: Callable[[T], T], x: T, axis: int) -> T:
    """Return a function of the last axis applied to another one."""
    rank = len(x.expr.shape)
    order = (*[i for i in range(rank) if i != axis], axis)
    back = tuple([order.index(i) for i in range(rank)])
    return apply(Ops.PERMUTE, back, fn(apply(Ops.PERMUTE, order, x)))


def _running(op: str, x: T) -> T:
    """Return each element of the last axis combined with all elements before it."""
    shape = x.expr.shape
    n, rank = shape[-1], len(shape)
    if n <= (op is not _LOG_SUM):  # of one element, the logarithm has the gradient of several
        return x
    if n <= 4 * _BLOCK:
        windows = apply(Ops.WINDOW, ((rank - 1,), (n,), (1,), (1,)), _led(op, x, n - 1))
        return _combined(op, windows, rank)
    blocks = -(-n // _BLOCK)
    inner = _inside(op, x, blocks)
    most = (blocks - 1) * _BLOCK  # the last block, which may be shorter, is in front of no other
    front = apply(Ops.SHRINK, (*[(0, m) for m in shape[:-1]], (0, most)), x)
    rows = apply(Ops.RESHAPE, (*shape[:-1], blocks - 1, _BLOCK), front)
    totals = apply(Ops.CONTIGUOUS, None, _combined(op, rows, rank))
    before = _running(op, _led(op, totals, 1))
    beside = spread(apply(Ops.RESHAPE, (*shape[:-1], blocks, 1), before), inner.expr.shape)
    whole = apply(Ops.CONTIGUOUS, None, _joined(op, inner, beside))
    flat = apply(Ops.RESHAPE, (*shape[:-1], blocks * _BLOCK), whole)
    return apply(Ops.SHRINK, (*[(0, m) for m in shape[:-1]], (0, n)), flat)


def product_before(x: T) -> T:
    """Return for each element of the last axis the product of those before it; 1 for the first."""
    shape = x.expr.shape
    moved = apply(Ops.SHRINK, tuple([(0, n) for n in shape]), _led(Ops.MUL, x, 1))
    return _running(Ops.MUL, moved)


def _inside(op: str, x: T, blocks: int) -> T:
    """Return each element of the last axis combined with those before it in its block: (..., blocks, _BLOCK).

    Each element has a window of the last _BLOCK elements of the whole axis, in which those before its block
    are replaced by the neutral element. So neighbours have neighbouring windows in memory, and no index needs
    a division.
    """
    *outer, n = x.expr.shape
    rank = len(outer)
    padded = apply(Ops.PAD, (*[(0, 0)] * rank, (_BLOCK - 1, blocks * _BLOCK - n)), x)
    windows = apply(Ops.WINDOW, ((rank,), (_BLOCK,), (1,), (1,)), padded)
    wide = (*outer, blocks, _BLOCK, _BLOCK)
    each = apply(Ops.RESHAPE, wide, windows)
    place = add(coordinate(x, wide, rank + 1), coordinate(x, wide, rank + 2))
    neutral = constant(x, _identity(op, x), x.expr.dtype, wide)
    kept = apply(Ops.WHERE, None, lt(place, _BLOCK - 1), neutral, each)
    return _combined(op, kept, rank + 2)


def _identity(op: str, x: TensorBase) -> float:
    """Return the neutral element of an operation."""
    if op in _IDENTITY:
        return _IDENTITY[op]
    dtype = x.expr.dtype
    low = op is not Ops.MIN
    if dtype.is_float:
        return -math.inf if low else math.inf
    return dtype.min if low else dtype.max


def _led(op: str, x: T, count: int) -> T:
    """Return x with `count` neutral elements at the start of its last axis."""
    padded = apply(Ops.PAD, (*[(0, 0)] * (len(x.expr.shape) - 1), (count, 0)), x)
    if not _identity(op, x):
        return padded
    shape = padded.expr.shape
    place = coordinate(x, shape, len(shape) - 1)
    ahead = apply(Ops.LT, None, place, constant(x, count, place.expr.dtype, shape))
    return apply(Ops.WHERE, None, ahead, constant(x, _identity(op, x), x.expr.dtype, shape), padded)
