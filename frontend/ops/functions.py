"""Elementwise functions of one tensor: exponentials, roots, trigonometry, rounding, tests of finiteness.

A new one needs its row in the table of methods (docs/how-to/add-a-tensor-method.md).

Not here: arithmetic and bits (`elementwise`), activations (`activation`), gradient rules
(`frontend.autograd.rules`).
"""

from __future__ import annotations

import builtins
import math
from collections.abc import Callable

from compiler.dtype import dtypes
from compiler.ir.ops import Ops
from frontend.expr import float_dtype
from frontend.ops.division import div
from frontend.ops.elementwise import agree, eq, gt, lt, mul, ne, sub, where
from frontend.ops.sources import Number, convert, narrowed, ruled, widened
from frontend.primitives.erf import ERF
from frontend.tensor_base import T
from frontend.trace import apply, method, named, operator


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
    """Return self * self; of bools as int32."""
    return mul(convert(self, dtypes.int32), self) if self.expr.dtype is dtypes.bool else mul(self, self)


@method
def abs(self: T) -> T:
    """Return the absolute value."""
    return self if self.expr.dtype.kind in ("bool", "uint") else apply(Ops.ABS, None, self)


@method
def sign(self: T) -> T:
    """Return -1, 0 or 1 in the same dtype; NaN stays NaN."""
    dtype = self.expr.dtype
    if dtype is dtypes.bool:
        return self
    result = sub(convert(gt(self, 0), dtype), convert(lt(self, 0), dtype))
    return ruled("zero", where(ne(self, self), self, result), self) if dtype.is_float else result


@operator
def copysign(self: T, other: T | Number) -> T:
    """Return self with the sign of other, also of -0.0, as a float."""
    return apply(Ops.COPYSIGN, None, *agree("copysign", self, other, floats=True))


floor = _rounding("floor", Ops.FLOOR, "largest whole number not above")
ceil = _rounding("ceil", Ops.CEIL, "smallest whole number not below")
trunc = _rounding("trunc", Ops.TRUNC, "number rounded towards zero")


@method
def round(self: T, decimals: int = 0) -> T:
    """Return the nearest multiple of 10**-decimals, ties to even, as a float; integers do not change."""
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
    """Return where values are plus or minus infinity, or one of them."""
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
