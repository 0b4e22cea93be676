"""Elementwise functions: exponentials, roots, trigonometry, rounding, and what is composed of them.

A new one needs its row in the table of methods (docs/how-to/add-a-tensor-method.md).

The results of roots, exponentials and circular functions are floats: of integers and bools float32.

Arguments of other classes raise `UsageTypeError`; tensors that do not broadcast raise `UsageError`.

Not here: arithmetic and bits (`elementwise`), activations (`activation`), gradient rules
(`frontend.autograd.elementwise`). Next: `special`, inverse circular, hyperbolic and special functions.
"""

# ruff: noqa: I001 - lists of names stand in rows

from __future__ import annotations

import builtins
import math
from collections.abc import Callable
from typing import Any, Final

from compiler.dtype import computing, dtypes
from compiler.ir.ops import Ops
from frontend.arguments.conversion import converting, number
from frontend.evaluation.base import T
from frontend.evaluation.constants import Number, constant, convert, narrowed, number_like, ruled, widened
from frontend.evaluation.expr import float_dtype
from frontend.evaluation.trace import apply, composite, method, named, operator
from frontend.ops.arithmetic import div, mod, truncdiv
from frontend.ops.casts import cast
from frontend.ops.elementwise import (
    add, agree, clip, eq, gt, in_float32, is_half, lt, maximum, minimum, mul, ne, neg, result_dtype,
    rounding_once, sub, where,
)  # fmt: skip
from frontend.primitives.erf import ERF
from hcq.errors import UsageError


def _of_floats(name: str, op: str, text: str) -> Callable[[T], T]:
    """Return the method of a primitive of floats; integers and bools give float32."""

    def function(self: T) -> T:
        return apply(op, None, convert(self, float_dtype(self.expr.dtype)))

    return method(named(name, text, function))


def _rounding(name: str, op: str, text: str) -> Callable[[T], T]:
    """Return the method that rounds floats by a primitive; integers do not change."""

    def function(self: T) -> T:
        return apply(op, None, self) if self.expr.dtype.is_float else self

    return method(named(name, f"Return the {text}, as a float; integers do not change.", function))


exp = _of_floats("exp", Ops.EXP, "Return e to the power self.")
exp2 = _of_floats("exp2", Ops.EXP2, "Return 2 to the power self.")
log = _of_floats("log", Ops.LOG, "Return the natural logarithm.")
log2 = _of_floats("log2", Ops.LOG2, "Return the logarithm to base 2.")
expm1 = _of_floats("expm1", Ops.EXPM1, "Return exp(self) - 1, exact to the last places also near 0.")
log1p = _of_floats("log1p", Ops.LOG1P, "Return log(1 + self), exact to the last places also near 0.")
sqrt = _of_floats("sqrt", Ops.SQRT, "Return the square root.")
reciprocal = _of_floats("reciprocal", Ops.RECIP, "Return 1 / self.")
sin = _of_floats("sin", Ops.SIN, "Return the sine of radians.")
cos = _of_floats("cos", Ops.COS, "Return the cosine of radians.")
tanh = _of_floats("tanh", Ops.TANH, "Return the hyperbolic tangent.")
erf = _of_floats("erf", ERF, "Return the error function.")


@method
def log10(self: T) -> T:
    """Return the logarithm to base 10."""
    return narrowed(mul(log(widened(self)), 1 / math.log(10)), self)


@method
def rsqrt(self: T) -> T:
    """Return 1 / sqrt(self)."""
    x = widened(self)
    return narrowed(apply(Ops.RECIP, None, apply(Ops.SQRT, None, x)), self)


@method
def tan(self: T) -> T:
    """Return the tangent of radians."""
    x = widened(self)
    return narrowed(div(sin(x), cos(x)), self)


@method
def square(self: T) -> T:
    """Return self * self; bools give int64."""
    return mul(convert(self, dtypes.int64), self) if self.expr.dtype is dtypes.bool else mul(self, self)


@method
def abs(self: T) -> T:
    """Return the absolute value."""
    return self if self.expr.dtype.kind in ("bool", "uint") else apply(Ops.ABS, None, self)


@method
def sign(self: T) -> T:
    """Return -1, 0 or 1 in the same dtype; 0 for NaN, as PyTorch."""
    dtype = self.expr.dtype
    if dtype is dtypes.bool:
        return self
    result = sub(convert(gt(self, 0), dtype), convert(lt(self, 0), dtype))
    return ruled("zero", result, self) if dtype.is_float else result


@operator
def copysign(self: T, other: T | Number) -> T:
    """Return self with the sign of other, also of -0.0, as a float."""
    return apply(Ops.COPYSIGN, None, *agree("copysign", self, other, floats=True))


floor = _rounding("floor", Ops.FLOOR, "largest whole number not above")
ceil = _rounding("ceil", Ops.CEIL, "smallest whole number not below")
trunc = _rounding("trunc", Ops.TRUNC, "number rounded towards zero")


@method
def round(self: T, decimals: int = 0) -> T:
    """Return the nearest multiple of 10**-decimals, ties to even, as a float; integers do not change.

    Negative `decimals` round to tens, hundreds and so on.
    """
    if not self.expr.dtype.is_float:
        return self
    if not decimals:
        return apply(Ops.ROUND, None, self)
    power = 10.0 ** builtins.abs(decimals)
    up, down = (mul, div) if decimals > 0 else (div, mul)
    return narrowed(down(apply(Ops.ROUND, None, up(widened(self), power)), power), self)


@method
def isnan(self: T) -> T:
    """Return where values are NaN."""
    return ne(self, self)


@method
def isinf(self: T, detect_positive: bool = True, detect_negative: bool = True) -> T:  # noqa: FBT001, FBT002 - the field's names
    """Return, as bool, where values are infinite, of the signs that are to be detected."""
    if not self.expr.dtype.is_float or not (detect_positive or detect_negative):
        return ne(self, self) if not self.expr.dtype.is_float else lt(abs(self), 0.0)
    if detect_positive and detect_negative:
        return eq(abs(self), math.inf)
    return eq(self, math.inf if detect_positive else -math.inf)


@method
def isfinite(self: T) -> T:
    """Return where values are neither infinite nor NaN."""
    return lt(abs(self), math.inf) if self.expr.dtype.is_float else eq(self, self)


@method
def logical_not(self: T) -> T:
    """Return where values are zero."""
    return eq(self, 0)


@operator
def fmod(self: T, other: T | Number) -> T:
    """Return the remainder of the quotient rounded towards zero: it has the sign of self, as in C.

    Bools give int64. An integer divisor 0 raises as in `div`.
    """
    x, y = agree("fmod", self, other)
    if x.expr.dtype.is_float:
        whole = truncdiv(x, y)
        return ruled("fmod", apply(Ops.FMOD, None, x, y), x, y, whole)
    if x.expr.dtype is dtypes.bool:
        x, y = convert(x, dtypes.int64), convert(y, dtypes.int64)
    rest = mod(x, y)  # of floor division: it has the sign of y; |x| would wrap for the least number
    other_sign = apply(Ops.NE, None, lt(x, 0), lt(y, 0))
    return where(apply(Ops.AND, None, other_sign, ne(rest, 0)), sub(rest, y), rest)


@operator
def logaddexp(self: T, other: T | Number) -> T:
    """Return log(exp(self) + exp(other)), without overflow; integers give float32."""
    x, y = agree("logaddexp", self, other, floats=True)
    a, b = widened(x), widened(y)
    high, low = maximum(a, b), minimum(a, b)
    equal = apply(Ops.AND, None, eq(high, low), eq(abs(high), math.inf))
    value = add(high, log1p(exp(where(equal, -math.inf, sub(low, where(equal, 0.0, high))))))
    return narrowed(ruled("logaddexp", where(equal, high, value), a, b), x)


@operator
def hypot(self: T, other: T | Number) -> T:
    """Return sqrt(self² + other²), also where the squares would overflow or vanish; integers give float32.

    If one side is infinite, so is the result, also if the other is NaN, as of C's hypot.
    """
    x, y = agree("hypot", self, other, floats=True)
    found = _hypotenuse(x, y)
    infinite = apply(Ops.OR, None, eq(abs(x), math.inf), eq(abs(y), math.inf))
    return ruled("beside", where(infinite, math.inf, found), found)


def _hypotenuse(x: T, y: T) -> T:
    dtype = x.expr.dtype
    if dtype is not dtypes.float64:
        x, y = convert(x, dtypes.float64), convert(y, dtypes.float64)
        return convert(sqrt(add(mul(x, x), mul(y, y))), dtype)
    size = maximum(abs(x), abs(y))
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
    """Return self * log(other), 0 where self is 0 and other is not NaN; integers give float32."""
    x, y = agree("xlogy", self, other, floats=True)
    return ruled("xlogy", where(eq(x, 0), where(ne(y, y), y, 0.0), mul(x, log(y))), x, y)


def _number_last(first: Any, second: Any, value: Any) -> tuple[Any, Any, Any]:
    """Return the operands in order where a number is given before them, as in older programs."""
    return (second, value, first) if hasattr(value, "expr") else (first, second, value)


@composite
@in_float32
def addcmul(self: T, first: T, second: T, value: Any = 1) -> T:
    """Return self + value * first * second; 16-bit floats are rounded once. `value` may be the first."""
    first, second, value = _number_last(first, second, value)
    dtype = result_dtype(self, first, second)  # a product of uint8 beside a float does not wrap
    return add(self, mul(mul(convert(first, dtype), second), value))


@composite
@in_float32
def addcdiv(self: T, first: T, second: T, value: Any = 1) -> T:
    """Return self + value * first / second; 16-bit floats are rounded once. `value` may be the first.

    Raises `UsageError` for a quotient of integers, as PyTorch.
    """
    first, second, value = _number_last(first, second, value)
    if not result_dtype(first, second).is_float:
        raise UsageError("addcdiv: wanted a quotient of floats, saw integers\nhint: add and div divide them")
    return add(self, mul(div(first, second), value))


@method
def frac(self: T) -> T:
    """Return the fractional part, with the sign of self. Raises `UsageError` for bools."""
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
    near = lt(abs(x), 0.01)
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


MOST: Final = {
    dtypes.float64: (2 - 2.0**-52) * 2.0**1023,
    dtypes.float32: (2 - 2.0**-23) * 2.0**127,
    dtypes.bfloat16: (2 - 2.0**-7) * 2.0**127,
    dtypes.float16: 65504.0,
}
"""The greatest finite number of each float dtype."""


@method
def nan_to_num(self: T, nan: float = 0.0, posinf: float | None = None, neginf: float | None = None) -> T:
    """Return self with NaN replaced by `nan`, infinity by `posinf`, negative infinity by `neginf`.

    None is the greatest, or the least, finite number of the dtype. Integers and bools do not change.
    """
    dtype = self.expr.dtype
    if not dtype.is_float:
        return self
    most = MOST[computing(dtype, "nan_to_num")]
    x = where(ne(self, self), nan, self)
    x = where(eq(self, math.inf), most if posinf is None else posinf, x)
    return where(eq(self, -math.inf), -most if neginf is None else neginf, x)


@method
def logit(self: T, eps: float | None = None) -> T:
    """Return log(self / (1 - self)), NaN outside 0..1; with `eps`, self is first limited to eps..1 - eps."""
    x = widened(self)
    low, high, beyond = (0.0, 1.0, math.nan) if eps is None or eps < 0 else (eps, 1 - eps, 0.0)
    limits = (math.nan, math.nan) if beyond else (low, high)
    inner = where(lt(x, low), limits[0], where(gt(x, high), limits[1], x))
    value = sub(log(inner), log1p(neg(inner)))
    return narrowed(ruled("logit", value, x, about=(low, high, beyond)), self)


@operator
def heaviside(self: T, other: T | Number) -> T:
    """Return 0 where self is negative or NaN, 1 where it is positive, other where it is 0."""
    x, y = agree("heaviside", self, other)
    return where(eq(x, 0), y, convert(gt(x, 0), x.expr.dtype))


def plus(self: T, other: T | Number, second: T | None = None, *, alpha: float = 1) -> T:
    """Return the sum self + alpha * other, broadcast and promoted; of two bools, whether one is true.

    Dtypes promote as in PyTorch. With `second`, `other` is the alpha of it, as in older programs. Raises
    `UsageError` for shapes that do not broadcast.
    """
    if second is not None:
        other, alpha = second, number(other, "add, alpha")
    return _with_alpha(add, self, other, alpha)


def minus(self: T, other: T | Number, *, alpha: float = 1) -> T:
    """Return the difference self - alpha * other. Two bools raise `UsageError`: use `^` to compare them."""
    return _with_alpha(sub, self, other, alpha)


def _with_alpha(fn: Callable[[T, T | Number], T], x: T, other: T | Number, alpha: float) -> T:
    """Return fn(x, alpha * other); 16-bit floats are rounded once."""
    if number(alpha, "alpha") == 1:
        return fn(x, other)
    y = x.operand(other)
    if y.__class__ is not x.__class__:
        return fn(x, y * alpha)
    dtype = result_dtype(x, y)
    if not is_half(dtype):
        return fn(x, mul(convert(y, dtype), alpha))
    return cast(fn(cast(x, dtypes.float32), mul(cast(y, dtypes.float32), alpha)), dtype)


@converting
def clamp_min(self: T, low: T | Number) -> T:
    """Return the greater of each value and `low`; dtypes and errors as `clip`."""
    return clip(self, low, None)


@converting
def clamp_max(self: T, high: T | Number) -> T:
    """Return the lesser of each value and `high`; dtypes and errors as `clip`."""
    return clip(self, None, high)


def conj(self: T) -> T:
    """Return self: no tensor is complex."""
    return self


@method
def isreal(self: T) -> T:
    """Return True for every element: no tensor is complex."""
    return constant(self, True, dtypes.bool, self.expr.shape)
