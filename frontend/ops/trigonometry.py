"""Inverse circular and hyperbolic functions, made of roots, exponentials and logarithms.

`_arctangent` halves its argument's angle twice, so that a short power series suffices; asin, acos and atan2
are arctangents. Hyperbolic functions use expm1 and log1p near 0, and half of the exponent where e**x would
overflow.

Not here: sine, cosine, exponentials (`functions`), gradient rules (`frontend.autograd.rules`).
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from compiler.dtype import dtypes
from compiler.ir.ops import Ops
from frontend.ops.comparison import gt, lt
from frontend.ops.division import div
from frontend.ops.elementwise import add, agree, mul, neg, sub, where
from frontend.ops.functions import abs as absolute
from frontend.ops.functions import exp, expm1, log, log1p, sqrt
from frontend.ops.method_row import MethodRow
from frontend.ops.sources import Number, constant, convert, narrowed, ruled, widened
from frontend.trace import apply, method, operator

if TYPE_CHECKING:
    from frontend.tensor_base import T

_TERMS: Final = {dtypes.float32: 6, dtypes.float64: 13}
"""Terms of the power series of the arctangent up to tan(pi/16)."""


def _signed(size: T, like: T) -> T:
    return apply(Ops.COPYSIGN, None, size, like)


def _half_angle(x: T) -> T:
    """Return tan(a / 2) of x = tan(a), at most 1."""
    return div(x, add(sqrt(add(mul(x, x), 1.0)), 1.0))


def _arctangent(x: T) -> T:
    """Return the arctangent of numbers in 0..1, or NaN."""
    t = _half_angle(_half_angle(x))
    square = mul(t, t)
    terms = _TERMS[x.expr.dtype]
    series = mul(square, 0.0)
    for n in range(terms, 0, -1):
        series = mul(add(series, (-1.0) ** n / (2 * n + 1)), square)
    return mul(add(mul(t, series), t), 4.0)


def _of_any_size(x: T) -> T:
    """Return the arctangent of numbers that are not negative."""
    large = gt(x, 1.0)
    found = _arctangent(where(large, div(_number(x, 1.0), x), x))
    return where(large, sub(_number(x, math.pi / 2), found), found)


def _number(like: T, value: float) -> T:
    return constant(like, value, like.expr.dtype, like.expr.shape)


@method
def atan(self: T) -> T:
    """Return the angle in -pi/2..pi/2 whose tangent is self."""
    x = widened(self)
    return narrowed(ruled("atan", _signed(_of_any_size(absolute(x)), x), x), self)


@method
def asin(self: T) -> T:
    """Return the angle in -pi/2..pi/2 whose sine is self; NaN outside -1..1."""
    x = widened(self)
    size = absolute(x)
    cosine = sqrt(mul(add(neg(size), 1.0), add(size, 1.0)))
    half = _arctangent(div(size, add(cosine, 1.0)))
    return narrowed(ruled("asin", _signed(mul(half, 2.0), x), x), self)


@method
def acos(self: T) -> T:
    """Return the angle in 0..pi whose cosine is self; NaN outside -1..1."""
    x = widened(self)
    half = _of_any_size(sqrt(div(add(neg(x), 1.0), add(x, 1.0))))
    return narrowed(ruled("acos", mul(half, 2.0), x), self)


@operator
def atan2(self: T, other: T | Number) -> T:
    """Return the angle in -pi..pi of the point (other, self), as a float."""
    y, x = agree("atan2", self, other, floats=True)
    dtype = y.expr.dtype
    y, x = widened(y), widened(x)
    rise, run = absolute(y), absolute(x)
    high, low = apply(Ops.MAX, None, rise, run), apply(Ops.MIN, None, rise, run)
    both = apply(Ops.EQ, None, rise, run)
    share = where(both, where(gt(high, 0.0), 1.0, low), div(low, where(gt(high, 0.0), high, 1.0)))
    small = _arctangent(share)
    steep = gt(rise, run)
    quarter = where(steep, sub(_number(small, math.pi / 2), small), small)
    left = lt(_signed(_number(x, 1.0), x), 0.0)
    angle = where(left, sub(_number(small, math.pi), quarter), quarter)
    undefined = apply(Ops.OR, None, apply(Ops.NE, None, x, x), apply(Ops.NE, None, y, y))
    value = where(undefined, math.nan, _signed(angle, y))
    return convert(ruled("atan2", value, y, x), dtype)


@method
def sinh(self: T) -> T:
    """Return the hyperbolic sine."""
    x = widened(self)
    size = absolute(x)
    e = expm1(apply(Ops.MIN, None, size, _number(x, 30.0)))
    near = mul(add(e, div(e, add(e, 1.0))), 0.5)
    half = exp(mul(size, 0.5))
    return narrowed(
        ruled("sinh", _signed(where(gt(size, 20.0), mul(mul(half, 0.5), half), near), x), x), self
    )


@method
def cosh(self: T) -> T:
    """Return the hyperbolic cosine."""
    x = widened(self)
    size = absolute(x)
    e = exp(apply(Ops.MIN, None, size, _number(x, 30.0)))
    half = exp(mul(size, 0.5))
    value = where(gt(size, 20.0), mul(mul(half, 0.5), half), mul(add(e, div(_number(x, 1.0), e)), 0.5))
    return narrowed(ruled("cosh", value, x), self)


@method
def asinh(self: T) -> T:
    """Return the inverse of the hyperbolic sine."""
    x = widened(self)
    size = absolute(x)
    square = mul(size, size)
    near = log1p(add(size, div(square, add(sqrt(add(square, 1.0)), 1.0))))
    value = where(gt(size, 1e8), add(log(size), math.log(2)), near)
    return narrowed(ruled("asinh", _signed(value, x), x), self)


@method
def acosh(self: T) -> T:
    """Return the inverse of the hyperbolic cosine that is not negative; NaN below 1."""
    x = widened(self)
    above = sub(x, 1.0)
    near = log1p(add(above, sqrt(mul(above, add(above, 2.0)))))
    value = where(gt(x, 1e8), add(log(x), math.log(2)), where(lt(above, 0.0), math.nan, near))
    return narrowed(ruled("acosh", value, x), self)


@method
def atanh(self: T) -> T:
    """Return the inverse of the hyperbolic tangent; NaN outside -1..1."""
    x = widened(self)
    size = absolute(x)
    value = mul(log1p(div(mul(size, 2.0), add(neg(size), 1.0))), 0.5)
    return narrowed(ruled("atanh", _signed(value, x), x), self)


_INNER: Final = (-0.9, 0.9)

ROWS: Final = (
    MethodRow(atan, "np.arctan(x)"),
    MethodRow(asin, "np.arcsin(x)", domain=_INNER),
    MethodRow(acos, "np.arccos(x)", domain=_INNER),
    MethodRow(atan2, "np.arctan2(x, y)"),
    MethodRow(sinh, "np.sinh(x)"),
    MethodRow(cosh, "np.cosh(x)"),
    MethodRow(asinh, "np.arcsinh(x)"),
    MethodRow(acosh, "np.arccosh(x)", domain=(1.1, 3.0)),
    MethodRow(atanh, "np.arctanh(x)", domain=_INNER),
)
