"""Division: the true quotient, rounded ones, and remainders.

An integer divisor of 0 raises `ZeroDivisionError` if it is a constant, or under `HCQ_VALIDATE=1`
(`frontend.primitives.limits`); otherwise the result is 0. PyTorch always raises.

Not here: products and sums (`elementwise`), powers (`powers`).
"""

from __future__ import annotations

from typing import Any, Literal

from compiler.dtype import dtypes
from compiler.ir.ops import Ops
from frontend.ops.elementwise import agree, rounding_once
from frontend.ops.sources import Number, constant, convert, number_like, ruled
from frontend.parameters import read
from frontend.primitives.limits import Divisor, limited
from frontend.tensor_base import T
from frontend.trace import apply, operator


@operator
@rounding_once
def true_div(self: T, other: T | Number) -> T:
    """Return the true quotient, always a float.

    Integers give float32. Division by 0 gives an infinity or NaN.
    """
    x, y = agree("div", self, other, floats=True)
    return apply(Ops.DIV, None, x, y)


def div(self: T, other: T | Number, *, rounding_mode: Literal["trunc", "floor"] | None = None) -> T:
    """Return the quotient: the true one, a float, or rounded towards zero or down, in the promoted dtype."""
    if rounding_mode is None:
        return true_div(self, other)
    rounding: Any = rounding_mode
    if rounding.__class__ is not str or rounding not in {"trunc", "floor"}:
        rounding = read(div, "rounding_mode", rounding, self)
    return floordiv(self, other) if rounding == "floor" else truncdiv(self, other)


@operator
@rounding_once
def rdiv(self: T, other: T | Number) -> T:
    """Return other / self."""
    x, y = agree("div", self, other, floats=True)
    return apply(Ops.DIV, None, y, x)


def _remainder(x: T, y: T) -> tuple[T, T]:
    """Return C's fmod, and whether it is not 0 and differs from y in sign."""
    rest = apply(Ops.FMOD, None, x, y)
    zero = number_like(x, 0.0)
    signs = apply(Ops.XOR, None, apply(Ops.LT, None, rest, zero), apply(Ops.LT, None, y, zero))
    return rest, apply(Ops.AND, None, apply(Ops.NE, None, rest, zero), signs)


def _float_floordiv(x: T, y: T) -> T:
    """Return the quotient of floats rounded down, computed from the exact remainder.

    x - rest is a multiple of y, so its quotient is near a whole number, and rounds to it; the rounded
    quotient of x itself may lie above. Where x is nearer to 0 than y, a zero of the quotient's sign.
    """
    dtype, shape = x.expr.dtype, x.expr.shape
    zero, one, half = (constant(x, value, dtype, shape) for value in (0.0, 1.0, 0.5))
    rest, opposed = _remainder(x, y)
    whole = apply(Ops.DIV, None, apply(Ops.SUB, None, x, rest), y)
    whole = apply(Ops.WHERE, None, opposed, apply(Ops.SUB, None, whole, one), whole)
    down = apply(Ops.FLOOR, None, whole)
    short = apply(Ops.LT, None, half, apply(Ops.SUB, None, whole, down))
    down = apply(Ops.WHERE, None, short, apply(Ops.ADD, None, down, one), down)
    small = apply(Ops.OR, None, apply(Ops.EQ, None, whole, zero), apply(Ops.EQ, None, y, zero))
    return apply(Ops.WHERE, None, small, apply(Ops.TRUNC, None, apply(Ops.DIV, None, x, y)), down)


def _floordiv(x: T, y: T) -> T:
    dtype = x.expr.dtype
    if dtype.is_float:
        wide = dtypes.float32 if dtype.bits == 16 else dtype
        return convert(_float_floordiv(convert(x, wide), convert(y, wide)), dtype)
    if x.expr.dtype is dtypes.bool:
        x, y = convert(x, dtypes.int32), convert(y, dtypes.int32)
    return apply(Ops.FLOORDIV, None, x, limited(y, Divisor("floordiv")))


def _mod(x: T, y: T) -> T:
    if x.expr.dtype.is_float:
        rest, opposed = _remainder(x, y)
        return apply(Ops.WHERE, None, opposed, apply(Ops.ADD, None, rest, y), rest)
    if x.expr.dtype is dtypes.bool:
        x, y = convert(x, dtypes.int32), convert(y, dtypes.int32)
    return apply(Ops.MOD, None, x, limited(y, Divisor("mod")))


@operator
@rounding_once
def floordiv(self: T, other: T | Number) -> T:
    """Return the quotient rounded down, in the promoted dtype.

    An integer divisor 0 raises `UsageZeroDivisionError` if it is a constant, or under `HCQ_VALIDATE=1`;
    otherwise the result is 0.
    """
    x, y = agree("floordiv", self, other)
    return ruled("zero", _floordiv(x, y), x, y)


@operator
@rounding_once
def truncdiv(self: T, other: T | Number) -> T:
    """Return the quotient rounded towards zero, in the promoted dtype.

    An integer divisor 0 raises `UsageZeroDivisionError` if it is a constant, or under `HCQ_VALIDATE=1`;
    otherwise the result is 0.
    """
    x, y = agree("div", self, other)
    if x.expr.dtype.is_float:
        return ruled("zero", apply(Ops.TRUNC, None, apply(Ops.DIV, None, x, y)), x, y)
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
@rounding_once
def rfloordiv(self: T, other: T | Number) -> T:
    """Return other // self."""
    x, y = agree("floordiv", self, other)
    return ruled("zero", _floordiv(y, x), y, x)


@operator
def mod(self: T, other: T | Number) -> T:
    """Return the remainder, with the sign of the divisor.

    The dtype is the promoted one. An integer divisor 0 raises `UsageZeroDivisionError` if it is a constant,
    or under `HCQ_VALIDATE=1`; otherwise the result is 0.
    """
    x, y = agree("mod", self, other)
    return ruled("remainder", _mod(x, y), x, y)


@operator
def rmod(self: T, other: T | Number) -> T:
    """Return other % self."""
    x, y = agree("mod", self, other)
    return ruled("remainder", _mod(y, x), y, x)
