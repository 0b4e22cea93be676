"""Powers: of floats as C's pow, of integers exactly, by repeated squaring.

Not here: the float power of a kernel (`compiler.codegen.power`), exp and log (`functions`).
"""

from __future__ import annotations

import math
from typing import Final, Protocol

from compiler.dtype import dtypes
from compiler.ir.ops import Ops
from frontend.expr import float_dtype
from frontend.ops.arguments import representable
from frontend.ops.elementwise import agree
from frontend.ops.sources import Number, constant, convert, number_like, ruled
from frontend.tensor_base import T
from frontend.trace import apply, operator
from hcq.errors import UsageError


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
