"""Reductions over some axes or all: sums, products, means, variances, norms, indices of extremes.

An axis that does not exist raises `UsageIndexError`, one that is given twice and an unknown dtype
`UsageError`, arguments of other classes `UsageTypeError`.

Not here: values with indices (`extremes`), loops of a kernel (`compiler.emit.reductions`). Next: `scan`.
"""

# ruff: noqa: I001, FBT001, FBT002 - lists of names stand in rows; the field's signatures

from __future__ import annotations

import builtins
import math
from math import prod as product

from compiler.dtype import DType, dtypes
from compiler.ir.ops import Ops
from frontend.arguments.aliases import accepts_aliases
from frontend.arguments.checks import Axes, Shape, axes_of, axis_of, element_type, reduced_axes
from frontend.arguments.conversion import flag
from frontend.evaluation.base import T, TensorBase
from frontend.evaluation.constants import (
    constant, convert, coordinate, narrowed, number_like, ruled, spread, widened,
)  # fmt: skip
from frontend.evaluation.expr import STOP, float_dtype
from frontend.evaluation.trace import apply, method
from frontend.ops.arithmetic import div
from frontend.ops.arithmetic import pow as power
from frontend.ops.elementwise import add, clip, mul, ne, sub, where
from frontend.ops.functions import abs as absolute
from frontend.ops.functions import exp, log, sqrt
from hcq.errors import UsageIndexError, UsageTypeError


def fold(op: str, x: T, axes: Shape, *, keepdim: bool) -> T:
    """Return x combined over ascending axes, which stay with size 1 when `keepdim`."""
    shape = x.expr.shape
    y = apply(Ops.REDUCE, (op, axes), x)
    return (
        apply(Ops.RESHAPE, tuple([1 if i in axes else n for i, n in enumerate(shape)]), y) if keepdim else y
    )


def sum_dtype(dtype: DType) -> DType:
    """Return the dtype of sums and products: int64 of integers and bools, but uint64 of uint64."""
    return dtype if dtype.is_float or dtype is dtypes.uint64 else dtypes.int64


def as_dtype(x: T, dtype: DType | str | None) -> T:
    """Return x in the dtype that a `dtype=` argument names; unchanged for None."""
    found = element_type(dtype)
    return x if found is None else convert(x, found)


def accumulator(dtype: DType, wanted: DType | None) -> DType:
    """Return the dtype in which a sum or product of elements of a dtype is computed, and rounded once.

    It is float32 for 16-bit floats. `wanted` is the dtype of a `dtype=` argument, to which the elements were
    converted; integers of less than 32 bits are then added as int32, whose low bits are the result. If it is
    None, integers are added in the dtype of the result (`sum_dtype`).
    """
    if dtype.is_float:
        return dtypes.float32 if dtype.bits == 16 else dtype
    if wanted is None:
        return sum_dtype(dtype)
    return dtype if dtype.bits >= 32 else dtypes.int32


def _accumulate(op: str, x: T, axes: Shape, dtype: DType | str | None, *, keepdim: bool) -> T:
    """Return a sum or product in the dtype that a `dtype=` argument names; None: in that of `sum`."""
    wanted = element_type(dtype)
    x = x if wanted is None else convert(x, wanted)
    own = x.expr.dtype
    found = fold(op, convert(x, accumulator(own, wanted)), axes, keepdim=keepdim)
    return convert(found, own) if wanted is not None or own.is_float else found


@method
def sum(self: T, axis: Axes = None, keepdim: bool = False, dtype: DType | str | None = None) -> T:
    """Return the sum over axes (all when None or ()). Integers and bools give int64, as in PyTorch.

    `axis` is one axis or several; reduced axes stay with size 1 when `keepdim`. Floats keep their dtype;
    16-bit floats are added in float32 and rounded once. uint64 stays uint64. A sum over no elements is 0.
    With `dtype`, self is converted first, and the result has it: `dtype="int32"` is faster where 32 bits
    suffice.

        Tensor([[1, 2], [3, 4]]).sum(1)      # [3, 7]

    Raises `UsageIndexError` for an axis that does not exist, `UsageError` for one named twice; so do all
    reductions.
    """
    return _accumulate(Ops.ADD, self, reduced_axes(axis, self.expr.shape, "sum"), dtype, keepdim=keepdim)


@method
def prod(self: T, axis: Axes = None, keepdim: bool = False, dtype: DType | str | None = None) -> T:
    """Return the product over axes.

    Integers and bools give int64. Arguments and errors are those of `sum`. A product over no elements is 1.
    """
    axes = axes_of(axis, self.expr.shape, "prod")
    if axis is None or len(axes) < len(self.expr.shape):
        return _accumulate(Ops.MUL, self, axes, dtype, keepdim=keepdim)
    rows = apply(Ops.RESHAPE, (1, *self.expr.shape), self)  # axes that are named have a gradient of their own
    found = _accumulate(Ops.MUL, rows, tuple([a + 1 for a in axes]), dtype, keepdim=keepdim)
    return apply(Ops.RESHAPE, found.expr.shape[1:], found)


@method
def max(self: T, axis: Axes = None, keepdim: bool = False) -> T:
    """Return the greatest value over axes; NaN if one of the values is NaN.

    If several elements are greatest, the gradient along one axis goes to the first of them; over several axes
    or all, each gets an equal share. Raises `UsageIndexError` for an axis without elements.
    """
    return _extreme(Ops.MAX, self, axis, "max", keepdim=keepdim)


@method
def min(self: T, axis: Axes = None, keepdim: bool = False) -> T:
    """Return the least value over axes; NaN if one of the values is NaN.

    Gradients and errors are those of `max`.
    """
    return _extreme(Ops.MIN, self, axis, "min", keepdim=keepdim)


def _extreme(op: str, x: T, axis: Axes, what: str, *, keepdim: bool) -> T:
    axes = _filled(x, axis, what)
    value = fold(op, x, axes, keepdim=keepdim)
    if axis is None:
        return ruled("every_extreme", value, x) if axes else value
    return ruled("first_extreme", value, x, about=(axes, False)) if axes and isinstance(axis, int) else value


def _filled(x: TensorBase, axis: Axes, what: str) -> Shape:
    axes = axes_of(axis, x.expr.shape, what)
    if builtins.any(x.expr.shape[a] == 0 for a in axes):
        raise UsageIndexError(
            f"{what} of the shape {x.expr.shape} over axes {axes}: there is no element to choose"
        )
    return axes


@method
def any(self: T, axis: Axes = None, keepdim: bool = False) -> T:
    """Return whether some value over axes is not zero; over no elements it is False.

    The result is bool, of uint8 it is uint8, as PyTorch's. The axes () are none, as there.
    """
    return _truth(Ops.MAX, self, axis, "any", keepdim=keepdim)


@method
def all(self: T, axis: Axes = None, keepdim: bool = False) -> T:
    """Return whether every value over axes is not zero; over no elements it is True. The dtype is `any`'s."""
    return _truth(Ops.MIN, self, axis, "all", keepdim=keepdim)


def _truth(op: str, x: T, axis: Axes, what: str, *, keepdim: bool) -> T:
    found = fold(op, convert(x, dtypes.bool), axes_of(axis, x.expr.shape, what), keepdim=keepdim)
    return convert(found, dtypes.uint8) if x.expr.dtype is dtypes.uint8 else found


def _count(x: TensorBase, axes: Shape) -> int:
    return product([x.expr.shape[a] for a in axes])


def total_of_mean(dtype: DType) -> DType:
    """Return the dtype in which elements are added up for a mean.

    Integers of 32 bits are added as int64, so that large ones of both signs cancel exactly. Integers of 64
    bits are added as float64, which rounds numbers above 2**53.
    """
    if dtype.is_int and dtype.bits >= 32:
        return dtypes.int64 if dtype.bits == 32 else dtypes.float64
    return accumulator(float_dtype(dtype), None)


@method
def mean(self: T, axis: Axes = None, keepdim: bool = False, dtype: DType | str | None = None) -> T:
    """Return the mean over axes, as a float.

    Integers and bools give float32, rounded after the sum; floats keep their dtype. With `dtype`, self is
    converted first. The mean of no elements is NaN.
    """
    self = as_dtype(self, dtype)
    axes = reduced_axes(axis, self.expr.shape, "mean")
    dtype = float_dtype(self.expr.dtype)
    total = fold(Ops.ADD, convert(self, total_of_mean(self.expr.dtype)), axes, keepdim=keepdim)
    wide = total.expr.dtype if total.expr.dtype.is_float else dtypes.float64
    total = convert(total, wide)
    count = constant(self, float(_count(self, axes)), wide, total.expr.shape)
    return convert(apply(Ops.DIV, None, total, count), dtype)


@method
def var(
    self: T,
    axis: Axes | bool = None,
    *others: object,
    keepdim: bool = False,
    correction: float | None = 1,
    unbiased: bool | None = None,
) -> T:
    """Return the variance over axes: squared distances from the mean, divided by count - correction.

    Integers and bools give float32; floats keep their dtype. If count - correction is 0 or below, the sum of
    squares is divided by 0: the result is infinite, or NaN for equal numbers. `unbiased` True means a
    correction of 1, False of 0. It may be given by position, after the axis or instead of it, and keepdim
    after it. Raises `UsageTypeError` for `unbiased` twice.
    """
    axis, keepdim, correction = spread_arguments("var", axis, others, keepdim, correction, unbiased)
    axes = reduced_axes(axis, self.expr.shape, "var")
    x = widened(self)
    return narrowed(_variance(x, mean(x, axes, keepdim=True), axis, keepdim, correction), self)


def spread_arguments(  # noqa: PLR0917 - internal
    what: str,
    axis: Axes | bool,
    others: tuple[object, ...],
    keepdim: bool,
    correction: float | None,
    unbiased: bool | None,
) -> tuple[Axes, bool, float]:
    """Return axis, keepdim and correction of PyTorch's forms (axis, unbiased, keepdim) and (unbiased)."""
    if isinstance(axis, bool):
        axis, others = None, (axis, *others)
    given = [flag(v, f"{what}, {name}") for v, name in zip(others, ("unbiased", "keepdim"), strict=False)]
    if len(others) > 2 or (given and unbiased is not None):
        raise UsageTypeError(
            f"{what}: wanted an axis, unbiased and keepdim, saw {len(others) + 1} arguments"
            f"{' and unbiased=' if unbiased is not None else ''}"
        )
    keepdim, unbiased = given[1] if len(given) > 1 else keepdim, given[0] if given else unbiased
    unbiased = None if unbiased is None else flag(unbiased, f"{what}, unbiased")
    return axis, keepdim, (1 if correction is None else correction) if unbiased is None else int(unbiased)


def _variance(x: T, center: T, axis: Axes, keepdim: bool, correction: float) -> T:
    axes, distance = reduced_axes(axis, x.expr.shape, "var"), sub(x, center)
    total = sum(mul(distance, distance), axes, keepdim=keepdim)
    count = _count(x, axes) - correction
    value = div(total, float(builtins.max(count, 0)))
    every = not x.expr.shape or axis is None or axis == ()
    return ruled("variance", value, x, about=(axes, None if every and count <= 0 else count))


@method
def std(
    self: T,
    axis: Axes | bool = None,
    *others: object,
    keepdim: bool = False,
    correction: float | None = 1,
    unbiased: bool | None = None,
) -> T:
    """Return the square root of the variance; arguments and dtypes are those of `var`.

    For equal numbers it is 0, and so is its gradient: the mean is corrected by the mean of the distances from
    it, which makes it exact for them.
    """
    axis, keepdim, correction = spread_arguments("std", axis, others, keepdim, correction, unbiased)
    axes = reduced_axes(axis, self.expr.shape, "std")
    x = widened(self)
    near = mean(x, axes, keepdim=True)
    rest = mean(sub(x, near), axes, keepdim=True)
    finite = apply(Ops.LT, None, absolute(rest), number_like(rest, math.inf))
    center = add(near, where(finite, rest, 0.0))
    squared = _variance(x, center, axis, keepdim, correction)
    return narrowed(ruled("root", sqrt(squared), squared), self)


@accepts_aliases
def var_mean(
    self: T,
    axis: Axes | bool = None,
    *others: object,
    keepdim: bool = False,
    correction: float | None = 1,
    unbiased: bool | None = None,
) -> tuple[T, T]:
    """Return the variance and the mean, as `var` and `mean` return them, with the arguments of `var`."""
    axis, keepdim, correction = spread_arguments("var_mean", axis, others, keepdim, correction, unbiased)
    return var(self, axis, keepdim=keepdim, correction=correction), mean(self, axis, keepdim)


@accepts_aliases
def std_mean(
    self: T,
    axis: Axes | bool = None,
    *others: object,
    keepdim: bool = False,
    correction: float | None = 1,
    unbiased: bool | None = None,
) -> tuple[T, T]:
    """Return the deviation and the mean, as `std` and `mean` return them, with the arguments of `var`."""
    axis, keepdim, correction = spread_arguments("std_mean", axis, others, keepdim, correction, unbiased)
    return std(self, axis, keepdim=keepdim, correction=correction), mean(self, axis, keepdim)


@method
def nansum(self: T, axis: Axes = None, keepdim: bool = False, dtype: DType | str | None = None) -> T:
    """Return the sum over axes of the values that are not NaN; dtypes as of `sum`."""
    return sum(ruled("numbers", where(ne(self, self), 0, self), self), axis, keepdim, dtype)


@method
def nanmean(self: T, axis: Axes = None, keepdim: bool = False, dtype: DType | str | None = None) -> T:
    """Return the mean over axes of the values that are not NaN, as a float; NaN if there are none."""
    self = as_dtype(self, dtype)
    there = convert(apply(Ops.EQ, None, self, self), float_dtype(self.expr.dtype))
    return div(nansum(self, axis, keepdim), sum(there, axis, keepdim))


@method
def logsumexp(self: T, axis: Axes = None, keepdim: bool = False) -> T:
    """Return log(sum(exp(self))) over axes, without overflow.

    Integers and bools give float32; floats keep their dtype. `axis` and `keepdim` as in `sum`.
    """
    axes = reduced_axes(axis, self.expr.shape, "logsumexp")
    x = widened(self)
    top = detached(fold(Ops.MAX, x, axes, keepdim=True))
    finite = where(apply(Ops.EQ, None, apply(Ops.ABS, None, top), number_like(top, math.inf)), 0.0, top)
    wide = add(log(sum(exp(sub(x, finite)), axes, keepdim=True)), finite)
    result = narrowed(wide, self)
    return (
        result
        if keepdim
        else apply(Ops.RESHAPE, tuple([n for i, n in enumerate(result.expr.shape) if i not in axes]), result)
    )


def detached(x: T) -> T:
    """Return x without gradient, for a maximum that is subtracted inside an exponential and cancels out."""
    return apply(STOP, None, x)


def _arg(op: str, x: T, axis: int | None, *, keepdim: bool) -> T:
    """Return the first index i of the extreme value: n - i is greatest there."""
    what = "argmax" if op is Ops.MAX else "argmin"
    if axis is None:
        flat = apply(Ops.RESHAPE, (product(x.expr.shape),), x)
        found = _arg(op, flat, 0, keepdim=False)
        return apply(Ops.RESHAPE, (1,) * len(x.expr.shape), found) if keepdim else found
    shape = x.expr.shape
    a = axis_of(axis, shape or (1,), what)
    if not shape:
        return constant(x, 0, dtypes.int64, ())
    _filled(x, (a,), what)
    best = spread(fold(op, x, (a,), keepdim=True), shape)
    place = coordinate(x, shape, a)
    n = constant(x, shape[a], place.expr.dtype, shape)
    hit = apply(Ops.EQ, None, x, best)
    if x.expr.dtype.is_float:
        hit = apply(Ops.OR, None, hit, apply(Ops.NE, None, x, x))
    score = apply(
        Ops.WHERE, None, hit, apply(Ops.SUB, None, n, place), constant(x, 0, place.expr.dtype, shape)
    )
    top = fold(Ops.MAX, score, (a,), keepdim=keepdim)
    return apply(Ops.SUB, None, constant(x, shape[a], place.expr.dtype, top.expr.shape), top)


@method
def argmax(self: T, axis: int | None = None, keepdim: bool = False) -> T:
    """Return the index (int64) of the greatest value along an axis (None: of the flattened tensor).

    Of equal values it is the first; a NaN counts as greatest. The axis stays with size 1 when `keepdim`.
    Raises `UsageIndexError` for an axis without elements.
    """
    return _arg(Ops.MAX, self, axis, keepdim=keepdim)


@method
def argmin(self: T, axis: int | None = None, keepdim: bool = False) -> T:
    """Return the index (int64) of the least value along an axis (None: of the flattened tensor).

    Of equal values it is the first; a NaN counts as least. The axis stays with size 1 when `keepdim`. Raises
    `UsageIndexError` for an axis without elements.
    """
    return _arg(Ops.MIN, self, axis, keepdim=keepdim)


@method
def power_norm(self: T, p: float, axis: Axes = None, *, keepdim: bool = False) -> T:
    """Return the p-norm over axes, of all elements when None: `norm` without the norms of matrices."""
    axes = reduced_axes(axis, self.expr.shape, "norm")
    found = p_norm(widened(self), p, axes)
    kept = tuple([n for i, n in enumerate(found.expr.shape) if i not in axes])
    return narrowed(found if keepdim else apply(Ops.RESHAPE, kept, found), self)


@method
def normalize(self: T, p: float = 2.0, axis: int = 1, eps: float = 1e-12) -> T:
    """Return self divided by the greater of its p-norm along an axis and eps; integers give float32.

    For p = 0 the norm is the number of non-zero elements, for infinity the greatest absolute value.
    """
    x = widened(self)
    return narrowed(div(x, clip(p_norm(x, p, axis), eps)), self)


def p_norm(x: T, p: float, axis: Axes) -> T:
    """Return the p-norm over axes, which stay with size 1."""
    if p == 0:
        return ruled("norm", sum(convert(ne(x, 0), x.expr.dtype), axis, keepdim=True), x, about=(p,))
    if math.isinf(p):
        size = (max if p > 0 else min)(absolute(x), axis, keepdim=True)
        return ruled("norm", size, x, about=(p,))
    size = power(sum(power(absolute(x), p), axis, keepdim=True), 1 / p)
    return ruled("norm", size, x, about=(p,))


@method
def count_nonzero(self: T, axis: Axes = None) -> T:
    """Return the number (int64) of non-zero values over axes."""
    return sum(ne(self, 0), axis)
