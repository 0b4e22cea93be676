"""Elementwise functions of two or three tensors that are made of others: fmod, logaddexp, logical operations.

Not here: sums, products and selections (`elementwise`), functions of one tensor (`functions`).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final

from compiler.dtype import dtypes
from compiler.ir.ops import Ops
from frontend.ops.casts import cast
from frontend.ops.division import div, mod, truncdiv
from frontend.ops.elementwise import (
    add,
    agree,
    clip,
    eq,
    gt,
    in_float32,
    is_half,
    lt,
    maximum,
    minimum,
    mul,
    ne,
    neg,
    result_dtype,
    rounding_once,
    sub,
    where,
)
from frontend.ops.functions import abs as absolute
from frontend.ops.functions import exp, log, log1p, sin, sqrt, trunc
from frontend.ops.sources import Number, constant, convert, narrowed, number_like, ruled, widened
from frontend.parameters import number
from frontend.tensor_base import T
from frontend.trace import apply, composite, method, named, operator


@operator
def fmod(self: T, other: T | Number) -> T:
    """Return the remainder of the quotient rounded towards zero: it has the sign of self, as in C.

    An integer divisor 0 raises as in `div`.
    """
    x, y = agree("fmod", self, other)
    if x.expr.dtype.is_float:
        whole = truncdiv(x, y)
        return ruled("fmod", apply(Ops.FMOD, None, x, y), x, y, whole)
    if x.expr.dtype is dtypes.bool:
        x, y = convert(x, dtypes.int32), convert(y, dtypes.int32)
    rest = mod(x, y)  # of floor division: it has the sign of y; |x| would wrap for the least number
    other_sign = apply(Ops.NE, None, lt(x, 0), lt(y, 0))
    return where(apply(Ops.AND, None, other_sign, ne(rest, 0)), sub(rest, y), rest)


@operator
def logaddexp(self: T, other: T | Number) -> T:
    """Return log(exp(self) + exp(other)), without overflow; integers give float32."""
    x, y = agree("logaddexp", self, other, floats=True)
    a, b = widened(x), widened(y)
    high, low = maximum(a, b), minimum(a, b)
    equal = apply(Ops.AND, None, eq(high, low), eq(absolute(high), math.inf))
    value = add(high, log1p(exp(where(equal, -math.inf, sub(low, where(equal, 0.0, high))))))
    return narrowed(ruled("logaddexp", where(equal, high, value), a, b), x)


@operator
def hypot(self: T, other: T | Number) -> T:
    """Return sqrt(self² + other²), also where the squares would overflow or vanish; integers give float32.

    It is infinite beside an infinity, also for NaN, as C's hypot.
    """
    x, y = agree("hypot", self, other, floats=True)
    found = _hypotenuse(x, y)
    infinite = apply(Ops.OR, None, eq(absolute(x), math.inf), eq(absolute(y), math.inf))
    return ruled("beside", where(infinite, math.inf, found), found)


def _hypotenuse(x: T, y: T) -> T:
    dtype = x.expr.dtype
    if dtype is not dtypes.float64:
        x, y = convert(x, dtypes.float64), convert(y, dtypes.float64)
        return convert(sqrt(add(mul(x, x), mul(y, y))), dtype)
    size = maximum(absolute(x), absolute(y))
    small, one, large = (constant(x, n, dtype, x.expr.shape) for n in (2.0**-600, 1.0, 2.0**600))
    scale = where(gt(size, 2.0**500), small, where(lt(size, 2.0**-500), large, one))
    x, y = mul(x, scale), mul(y, scale)
    return div(sqrt(add(mul(x, x), mul(y, y))), scale)


def _logical(name: str, op: str, how_many: str) -> Callable[[T, T | Number], T]:
    def function(self: T, other: T | Number) -> T:
        x, y = agree(name, self, other)
        return apply(op, None, ne(x, 0), ne(y, 0))

    return operator(named(name, f"Return whether {how_many} not zero, as bool.", function))


logical_and = _logical("logical_and", Ops.AND, "both are")
logical_or = _logical("logical_or", Ops.OR, "one is")
logical_xor = _logical("logical_xor", Ops.XOR, "exactly one is")


@operator
@rounding_once
def xlogy(self: T, other: T | Number) -> T:
    """Return self * log(other), 0 where self is 0; integers give float32."""
    x, y = agree("xlogy", self, other, floats=True)
    return ruled("xlogy", where(eq(x, 0), where(ne(y, y), y, 0.0), mul(x, log(y))), x, y)


@composite
@in_float32
def addcmul(self: T, first: T, second: T, value: float = 1) -> T:
    """Return self + value * first * second; of sixteen-bit floats rounded once."""
    return add(self, mul(mul(first, second), value))


@composite
@in_float32
def addcdiv(self: T, first: T, second: T, value: float = 1) -> T:
    """Return self + value * first / second; of sixteen-bit floats rounded once."""
    return add(self, mul(div(first, second), value))


@method
def frac(self: T) -> T:
    """Return the part after the point, with the sign of self."""
    return sub(self, trunc(self))


@method
def deg2rad(self: T) -> T:
    """Return degrees as radians."""
    return narrowed(mul(widened(self), math.pi / 180), self)


@method
def rad2deg(self: T) -> T:
    """Return radians as degrees."""
    return narrowed(mul(widened(self), 180 / math.pi), self)


@method
def sinc(self: T) -> T:
    """Return sin(pi self) / (pi self), 1 at 0."""
    x = mul(widened(self), math.pi)
    near = lt(absolute(x), 0.01)
    square = mul(x, x)
    series = add(mul(square, add(mul(square, 1 / 120), -1 / 6)), 1.0)  # has the derivatives at 0, too
    return narrowed(where(near, series, div(sin(x), where(near, 1.0, x))), self)


@method
def signbit(self: T) -> T:
    """Return whether values have a minus sign, also -0.0, as bool."""
    if not self.expr.dtype.is_float:
        return lt(self, 0)
    one = number_like(self, 1.0)
    return lt(apply(Ops.COPYSIGN, None, one, self), 0.0)


_MOST: Final = {
    dtypes.float64: (2 - 2.0**-52) * 2.0**1023,
    dtypes.float32: (2 - 2.0**-23) * 2.0**127,
    dtypes.bfloat16: (2 - 2.0**-7) * 2.0**127,
    dtypes.float16: 65504.0,
}
"""The greatest finite number of each float dtype."""


@method
def nan_to_num(self: T, nan: float = 0.0, posinf: float | None = None, neginf: float | None = None) -> T:
    """Return self with NaN and infinities replaced: by 0, and the greatest and least finite numbers."""
    dtype = self.expr.dtype
    if not dtype.is_float:
        return self
    most = _MOST[dtype]
    x = where(ne(self, self), nan, self)
    x = where(eq(self, math.inf), most if posinf is None else posinf, x)
    return where(eq(self, -math.inf), -most if neginf is None else neginf, x)


@method
def logit(self: T, eps: float | None = None) -> T:
    """Return log(self / (1 - self)); with `eps`, of self limited to eps..1 - eps."""
    x = widened(self)
    outside = apply(Ops.OR, None, lt(x, 0.0), gt(x, 1.0))
    x = mul(x, where(outside, math.nan, 1.0)) if eps is None else clip(x, eps, 1 - eps)
    return narrowed(sub(log(x), log1p(neg(x))), self)


@operator
def heaviside(self: T, other: T | Number) -> T:
    """Return 0 where self is negative, 1 where positive, other where it is 0."""
    x, y = agree("heaviside", self, other)
    return where(eq(x, 0), y, convert(gt(x, 0), x.expr.dtype))


def plus(self: T, other: T | Number, *, alpha: float = 1) -> T:
    """Return the sum self + alpha * other, broadcast and promoted; of two bools, their disjunction.

    Dtypes promote as in PyTorch. Raises `UsageError` for shapes that do not broadcast.
    """
    return _with_alpha(add, self, other, alpha)


def minus(self: T, other: T | Number, *, alpha: float = 1) -> T:
    """Return the difference self - alpha * other; two bools raise `UsageError`: use `^` to compare them."""
    return _with_alpha(sub, self, other, alpha)


def _with_alpha(fn: Callable[[T, T | Number], T], x: T, other: T | Number, alpha: float) -> T:
    """Return fn(x, alpha * other); of sixteen-bit floats rounded once."""
    if number(alpha, "alpha") == 1:
        return fn(x, other)
    y = x.operand(other)
    if y.__class__ is not x.__class__:
        return fn(x, y * alpha)
    dtype = result_dtype(x, y)
    if not is_half(dtype):
        return fn(x, mul(y, alpha))
    found: T = cast(fn(cast(x, dtypes.float32), mul(cast(y, dtypes.float32), alpha)), dtype)
    return found
