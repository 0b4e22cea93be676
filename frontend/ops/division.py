"""Division: the true quotient, rounded ones, and remainders."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from compiler.dtype import dtypes
from compiler.ops import Ops
from frontend.lazy import apply, operator
from frontend.ops.elementwise import agree
from frontend.ops.sources import Number, constant, convert
from hcq.errors import UsageError

if TYPE_CHECKING:
    from frontend.tensor import Tensor


@operator
def true_div(self: Tensor, other: Tensor | Number) -> Tensor:
    """Return the true quotient, always a float."""
    x, y = agree("div", self, other, floats=True)
    return apply(Ops.DIV, None, x, y)


def div(
    self: Tensor, other: Tensor | Number, *, rounding_mode: Literal["trunc", "floor"] | None = None
) -> Tensor:
    """Return the quotient: the true one, a float, or rounded towards zero or down, in the promoted dtype."""
    if rounding_mode is None:
        return true_div(self, other)
    if rounding_mode == "floor":
        return floordiv(self, other)
    if rounding_mode != "trunc":
        raise UsageError(f'div: rounding_mode is None, "trunc" or "floor", saw {rounding_mode!r}')
    return truncdiv(self, other)


@operator
def rdiv(self: Tensor, other: Tensor | Number) -> Tensor:
    """Return other / self."""
    x, y = agree("div", self, other, floats=True)
    return apply(Ops.DIV, None, y, x)


def _floordiv(x: Tensor, y: Tensor) -> Tensor:
    if x.expr.dtype.is_float:
        return apply(Ops.FLOOR, None, apply(Ops.DIV, None, x, y))
    if x.expr.dtype is dtypes.bool:
        x, y = convert(x, dtypes.int32), convert(y, dtypes.int32)
    return apply(Ops.FLOORDIV, None, x, y)


def _mod(x: Tensor, y: Tensor) -> Tensor:
    if x.expr.dtype.is_float:
        return apply(Ops.SUB, None, x, apply(Ops.MUL, None, _floordiv(x, y), y))
    if x.expr.dtype is dtypes.bool:
        x, y = convert(x, dtypes.int32), convert(y, dtypes.int32)
    return apply(Ops.MOD, None, x, y)


@operator
def floordiv(self: Tensor, other: Tensor | Number) -> Tensor:
    """Return the quotient rounded down, in the promoted dtype. Integers by zero give 0."""
    return _floordiv(*agree("floordiv", self, other))


@operator
def truncdiv(self: Tensor, other: Tensor | Number) -> Tensor:
    """Return the quotient rounded towards zero, in the promoted dtype. Integers by zero give 0."""
    x, y = agree("div", self, other)
    if x.expr.dtype.is_float:
        return apply(Ops.TRUNC, None, apply(Ops.DIV, None, x, y))
    down = _floordiv(x, y)
    dtype, shape = down.expr.dtype, down.expr.shape
    if dtype.kind == "uint":
        return down
    zero = constant(down, 0, dtype, shape)
    above = apply(Ops.ADD, None, down, constant(down, 1, dtype, shape))
    inexact = apply(Ops.NE, None, _mod(x, y), zero)
    below = apply(Ops.AND, None, inexact, apply(Ops.LT, None, down, zero))
    return apply(Ops.WHERE, None, below, above, down)


@operator
def rfloordiv(self: Tensor, other: Tensor | Number) -> Tensor:
    """Return other // self."""
    x, y = agree("floordiv", self, other)
    return _floordiv(y, x)


@operator
def mod(self: Tensor, other: Tensor | Number) -> Tensor:
    """Return the remainder, with the sign of the divisor. Integers by zero give 0."""
    return _mod(*agree("mod", self, other))


@operator
def rmod(self: Tensor, other: Tensor | Number) -> Tensor:
    """Return other % self."""
    x, y = agree("mod", self, other)
    return _mod(y, x)
