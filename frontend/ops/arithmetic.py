"""Division, remainders and powers.

Operands broadcast, promote and raise as in `elementwise.add`. An integer divided by 0 raises
`UsageZeroDivisionError` if the divisor is a Python number or a constant, or under `HCQ_VALIDATE=1`; otherwise
the quotient and the remainder are 0.

Not here: the limits of divisors (`frontend.evaluation.limits`). Next: `elementwise`.
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
    """Return the true quotient, a float; integers give float32. Division by 0 gives an infinity or NaN."""
    x, y = agree("div", self, other, floats=True)
    return apply(Ops.DIV, None, x, y)


def div(self: T, other: T | Number, *, rounding_mode: Literal["trunc", "floor"] | None = None) -> T:
    """Return the true quotient, a float, or the quotient rounded towards zero ("trunc") or down ("floor").

    A rounded quotient has the promoted dtype. Raises `UsageError` for another `rounding_mode`.
    """
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
    """Return C's fmod of x and y, and whether it is not 0 and has another sign than y."""
    rest = apply(Ops.FMOD, None, x, y)
    zero = number_like(x, 0.0)
    signs = apply(Ops.XOR, None, apply(Ops.LT, None, rest, zero), apply(Ops.LT, None, y, zero))
    return rest, apply(Ops.AND, None, apply(Ops.NE, None, rest, zero), signs)


def _float_floordiv(x: T, y: T) -> T:
    """Return the quotient of floats rounded down, computed from the exact remainder.

    x - rest is a multiple of y, so its quotient is near a whole number and rounds to that number; the rounded
    quotient of x itself could be one too large. A quotient of 0 has the sign of x / y.
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
        x, y = convert(x, dtypes.int64), convert(y, dtypes.int64)
    return apply(Ops.FLOORDIV, None, x, limited(y, Divisor("floordiv")))


def _mod(x: T, y: T) -> T:
    if x.expr.dtype.is_float:
        rest, opposed = _remainder(x, y)
        return apply(Ops.WHERE, None, opposed, apply(Ops.ADD, None, rest, y), rest)
    if x.expr.dtype is dtypes.bool:
        x, y = convert(x, dtypes.int64), convert(y, dtypes.int64)
    return apply(Ops.MOD, None, x, limited(y, Divisor("mod")))


@operator
@rounding_once
def floordiv(self: T, other: T | Number) -> T:
    """Return the quotient rounded down, in the promoted dtype.

    An integer divisor of 0 raises `UsageZeroDivisionError` if it is a constant, or under `HCQ_VALIDATE=1`;
    otherwise the result is 0.
    """
    x, y = agree("floordiv", self, other)
    return ruled("zero", _floordiv(x, y), x, y)


@operator
@rounding_once
def truncdiv(self: T, other: T | Number) -> T:
    """Return the quotient rounded towards zero, in the promoted dtype. Raises as `floordiv`."""
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
    """Return the remainder, with the sign of the divisor, in the promoted dtype. Raises as `floordiv`."""
    x, y = agree("mod", self, other)
    return ruled("remainder", _mod(x, y), x, y)


@operator
def rmod(self: T, other: T | Number) -> T:
    """Return other % self."""
    x, y = agree("mod", self, other)
    return ruled("remainder", _mod(y, x), y, x)


def _whole(x: T, exponent: int) -> T:
    """Return an integer tensor to a power >= 1, wrapped around to its width in bits.

    An exponent above 2**width is reduced: powers repeat with a period of 2**(width - 2).
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
    """Return x ** 0.5 as C's pow: 0.0 for -0.0 and infinity for -inf, unlike a square root."""
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
"""Exponent of floats -> a few operations in place of POW, with results within two units of the last place."""


@operator
def pow(self: T, exponent: T | Number) -> T:
    """Return self ** exponent: for floats as C's pow, for integers exactly, wrapped around.

    Integers to a negative integer of a tensor give 0, but for the bases 1 and -1. Raises `UsageError` for
    integers to a negative Python int.
    """
    if hasattr(exponent, "expr"):
        return _power(*agree("pow", self, exponent))
    dtype = self.expr.dtype
    if isinstance(exponent, int) and not dtype.is_float:
        x = convert(self, dtypes.int64) if dtype is dtypes.bool else self
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
    """Return base ** self, as `pow`."""
    x, y = agree("pow", self, base)
    if x.expr.dtype.is_float and not hasattr(base, "expr") and base == 2:
        return apply(Ops.EXP2, None, x)
    return _power(y, x)


def _power(x: T, y: T) -> T:
    if x.expr.dtype is dtypes.bool:
        x, y = convert(x, dtypes.int64), convert(y, dtypes.int64)
    return apply(Ops.POW, None, x, y)
