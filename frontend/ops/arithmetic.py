"""Division, remainders and powers.

Not here: sums, products, bits and comparisons (`elementwise`).
"""

from __future__ import annotations

import math
from typing import Any, Final, Literal, Protocol

from compiler.dtype import dtypes
from compiler.ir.ops import Ops
from frontend.arguments.checks import representable
from frontend.arguments.conversion import read
from frontend.evaluation.base import T
from frontend.evaluation.constants import Number, constant, convert, number_like, ruled
from frontend.evaluation.expr import float_dtype
from frontend.evaluation.limits import Divisor, limited
from frontend.evaluation.trace import apply, operator
from frontend.ops.elementwise import agree, rounding_once
from hcq.errors import UsageError


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


def _whole(x: T, exponent: int) -> T:
    """Return an integer tensor to a positive power, modulo 2 to its width.

    Further up, powers repeat with a period of 2**(width - 2).
    """
    bits = x.expr.dtype.bits
    if exponent > 1 << bits:
        exponent = bits + (exponent - bits) % (1 << (bits - 2))
    result: T | None = None
    while exponent:
        if exponent & 1:
            result = x if result is None else apply(Ops.MUL, None, result, x)
        exponent >>= 1
        if exponent:
            x = apply(Ops.MUL, None, x, x)
    assert result is not None  # exponents start at 1
    return result


def _square(x: T) -> T:
    return apply(Ops.MUL, None, x, x)


def _inverse(x: T) -> T:
    return apply(Ops.RECIP, None, x)


def _root(x: T) -> T:
    """Return x ** 0.5, which is no square root for -0.0 and -inf."""
    dtype, shape = x.expr.dtype, x.expr.shape
    low, high, zero = (constant(x, value, dtype, shape) for value in (-math.inf, math.inf, 0.0))
    root = apply(Ops.SQRT, None, apply(Ops.ADD, None, x, zero))
    return apply(Ops.WHERE, None, apply(Ops.EQ, None, x, low), high, root)


class _Power(Protocol):
    def __call__(self, x: T, /) -> T: ...


_CHEAP: Final[dict[float, _Power]] = {
    1.0: lambda x: x,
    2.0: _square,
    3.0: lambda x: apply(Ops.MUL, None, _square(x), x),
    0.5: lambda x: ruled("root_power", _root(x), x, about=(0.5,)),
    -0.5: lambda x: ruled("root_power", _inverse(_root(x)), x, about=(-0.5,)),
    -1.0: _inverse,
}
"""Exponents of floats that are a few operations: also within two units of the last place."""


@operator
def pow(self: T, exponent: T | Number) -> T:
    """Return self ** exponent: of floats as C's pow, of integers exactly, wrapping around.

    Where an integer exponent is negative, 0, or 1 or -1 if the base is; a negative number is refused there.

    Raises `UsageError` for a negative constant exponent of integers.
    """
    if hasattr(exponent, "expr"):
        return _power(*agree("pow", self, exponent))
    dtype = self.expr.dtype
    if isinstance(exponent, int) and not dtype.is_float:
        x = convert(self, dtypes.int32) if dtype is dtypes.bool else self
        if exponent < 0:
            raise UsageError(
                f"{dtype.name} to the power {exponent} is no whole number; make the base a float"
            )
        return _whole(x, exponent) if exponent else number_like(x, 1)
    x = convert(self, float_dtype(dtype))
    cheap = _CHEAP.get(float(representable(exponent)))
    if cheap is not None:
        return cheap(x)
    return apply(Ops.POW, None, x, number_like(x, float(exponent)))


@operator
def rpow(self: T, base: T | Number) -> T:
    """Return base ** self."""
    x, y = agree("pow", self, base)
    if x.expr.dtype.is_float and not hasattr(base, "expr") and base == 2:
        return apply(Ops.EXP2, None, x)
    return _power(y, x)


def _power(x: T, y: T) -> T:
    if x.expr.dtype is dtypes.bool:
        x, y = convert(x, dtypes.int32), convert(y, dtypes.int32)
    return apply(Ops.POW, None, x, y)
