"""Functions of one number: exponentials, roots, trigonometry, rounding, and what is finite."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from compiler.dtype import dtypes
from compiler.ir.ops import Ops
from frontend.expr import float_dtype
from frontend.ops.comparison import eq, gt, lt, ne
from frontend.ops.division import div
from frontend.ops.elementwise import mul, sub, where
from frontend.ops.sources import convert, ruled
from frontend.primitives.erf import ERF
from frontend.trace import apply, method

if TYPE_CHECKING:
    from frontend.tensor import Tensor


def _function(op: str, x: Tensor) -> Tensor:
    return apply(op, None, convert(x, float_dtype(x.expr.dtype)))


@method
def exp(self: Tensor) -> Tensor:
    """Return e to the power self."""
    return _function(Ops.EXP, self)


@method
def exp2(self: Tensor) -> Tensor:
    """Return 2 to the power self."""
    return _function(Ops.EXP2, self)


@method
def log(self: Tensor) -> Tensor:
    """Return the natural logarithm."""
    return _function(Ops.LOG, self)


@method
def log2(self: Tensor) -> Tensor:
    """Return the logarithm to base 2."""
    return _function(Ops.LOG2, self)


@method
def expm1(self: Tensor) -> Tensor:
    """Return exp(self) - 1, exact to the last places also near 0."""
    return _function(Ops.EXPM1, self)


@method
def log1p(self: Tensor) -> Tensor:
    """Return log(1 + self), exact to the last places also near 0."""
    return _function(Ops.LOG1P, self)


@method
def log10(self: Tensor) -> Tensor:
    """Return the logarithm to base 10."""
    return mul(log(self), 1 / math.log(10))


@method
def sqrt(self: Tensor) -> Tensor:
    """Return the square root."""
    return _function(Ops.SQRT, self)


@method
def rsqrt(self: Tensor) -> Tensor:
    """Return 1 / sqrt(self)."""
    return apply(Ops.RECIP, None, _function(Ops.SQRT, self))


@method
def reciprocal(self: Tensor) -> Tensor:
    """Return 1 / self."""
    return _function(Ops.RECIP, self)


@method
def sin(self: Tensor) -> Tensor:
    """Return the sine of radians."""
    return _function(Ops.SIN, self)


@method
def cos(self: Tensor) -> Tensor:
    """Return the cosine of radians."""
    return _function(Ops.COS, self)


@method
def tan(self: Tensor) -> Tensor:
    """Return the tangent of radians."""
    return div(sin(self), cos(self))


@method
def tanh(self: Tensor) -> Tensor:
    """Return the hyperbolic tangent."""
    return _function(Ops.TANH, self)


@method
def erf(self: Tensor) -> Tensor:
    """Return the error function."""
    return _function(ERF, self)


@method
def square(self: Tensor) -> Tensor:
    """Return self * self."""
    return mul(self, self)


@method
def abs(self: Tensor) -> Tensor:
    """Return the absolute value."""
    return self if self.expr.dtype.kind in ("bool", "uint") else apply(Ops.ABS, None, self)


@method
def sign(self: Tensor) -> Tensor:
    """Return -1, 0 or 1 in the same dtype; NaN stays NaN."""
    dtype = self.expr.dtype
    if dtype is dtypes.bool:
        return self
    result = sub(convert(gt(self, 0), dtype), convert(lt(self, 0), dtype))
    return ruled("zero", where(ne(self, self), self, result), self) if dtype.is_float else result


def _rounding(op: str, x: Tensor) -> Tensor:
    return apply(op, None, x) if x.expr.dtype.is_float else x


@method
def floor(self: Tensor) -> Tensor:
    """Return the whole number below, as a float; integers stay."""
    return _rounding(Ops.FLOOR, self)


@method
def ceil(self: Tensor) -> Tensor:
    """Return the whole number above, as a float; integers stay."""
    return _rounding(Ops.CEIL, self)


@method
def trunc(self: Tensor) -> Tensor:
    """Return the whole number towards zero, as a float; integers stay."""
    return _rounding(Ops.TRUNC, self)


@method
def round(self: Tensor) -> Tensor:
    """Return the nearest whole number, ties to even, as a float; integers stay."""
    return _rounding(Ops.ROUND, self)


@method
def isnan(self: Tensor) -> Tensor:
    """Return where values are NaN."""
    return ne(self, self)


@method
def isinf(self: Tensor) -> Tensor:
    """Return where values are plus or minus infinity."""
    return eq(abs(self), math.inf) if self.expr.dtype.is_float else ne(self, self)


@method
def isfinite(self: Tensor) -> Tensor:
    """Return where values are neither infinite nor NaN."""
    return lt(abs(self), math.inf) if self.expr.dtype.is_float else eq(self, self)


@method
def logical_not(self: Tensor) -> Tensor:
    """Return where values are zero."""
    return eq(self, 0)
