"""Gradient rules of elementwise primitives.

A rule is called as `RULES[op](g, result, x)`, for two operands (g, result, x, y), with the gradient g of the
result. It returns the gradient of the operand, or a tuple of two. Rules consist of methods and primitives, so
they can be differentiated themselves. Values at kinks are those of PyTorch.

Not here: primitives that move or combine elements (`primitives`), functions made of others (`rules`).
"""

from __future__ import annotations

import math
from typing import Any, Final

from compiler.ir.ops import Ops
from frontend.evaluation.base import T
from frontend.evaluation.constants import number_like
from frontend.evaluation.trace import apply
from frontend.ops.arithmetic import div, true_div
from frontend.ops.elementwise import eq, gt, lt, mul, neg, where
from frontend.ops.functions import cos, exp, sin
from frontend.primitives.erf import ERF

_LN2: Final = math.log(2)


def _step(g: T, _result: T, _x: T) -> T:
    return number_like(g, 0.0)


def _slope_of_abs(g: T, _result: T, x: T) -> T:
    """Return g times the sign of x: NaN for an infinite g where x is 0 or NaN, which have the sign 0."""
    return mul(g, where(gt(x, 0.0), 1.0, where(lt(x, 0.0), number_like(g, -1.0), 0.0)))


def _slopes_of_copysign(g: T, result: T, x: T, _y: T) -> tuple[T, T]:
    """Return g where x has the sign of the result, -g where it has the other one, 0 at 0; and zeros for y."""
    zero = number_like(g, 0.0)
    return mul(g, where(eq(x, 0.0), zero, div(result, x))), zero


def _slopes_of_maximum(g: T, _result: T, x: T, y: T) -> tuple[T, T]:
    """Return g for the greater operand, 0 for the other; g / 2 for equal ones; g for both if one is NaN."""
    tie, half = apply(Ops.EQ, None, x, y), mul(g, 0.5)

    def share(low: T, high: T) -> T:
        return where(tie, half, where(apply(Ops.LT, None, low, high), 0.0, g))

    return share(x, y), share(y, x)


def _slopes_of_remainder(g: T, result: T, x: T, y: T) -> tuple[T, T]:
    """Return g, and -g times the truncated quotient x / y, for FMOD, which is C's fmod."""
    taken = apply(Ops.ROUND, None, apply(Ops.DIV, None, apply(Ops.SUB, None, x, result), y))
    return g, neg(mul(g, taken))


def _slopes_of_power(g: T, result: T, x: T, y: T) -> tuple[T, T]:
    """Return g y x^(y-1), 0 where y is 0; and g x^y ln x, 0 where x is 0 and y is not negative."""
    zero, one = (number_like(g, value) for value in (0.0, 1.0))
    slope = mul(g, mul(y, apply(Ops.POW, None, x, apply(Ops.SUB, None, y, one))))
    positive = apply(Ops.OR, None, apply(Ops.LT, None, zero, y), apply(Ops.EQ, None, y, zero))
    flat = apply(Ops.AND, None, apply(Ops.EQ, None, x, zero), positive)
    growth = mul(g, mul(result, apply(Ops.LOG, None, x)))
    return (
        apply(Ops.WHERE, None, apply(Ops.EQ, None, y, zero), zero, slope),
        apply(Ops.WHERE, None, flat, zero, growth),
    )


RULES: Final[dict[str, Any]] = {
    Ops.EXP: lambda g, y, _: g * y,
    Ops.EXP2: lambda g, y, _: g * y * _LN2,
    Ops.LOG: lambda g, _, x: g / x,
    Ops.LOG2: lambda g, _, x: g / (x * _LN2),
    Ops.EXPM1: lambda g, y, _: g * (y + 1.0),
    Ops.LOG1P: lambda g, _, x: g / (x + 1.0),
    Ops.SQRT: lambda g, y, _: g / (y * 2.0),
    Ops.RECIP: lambda g, y, _: -(g * (y * y)),
    Ops.SIN: lambda g, _, x: g * cos(x),
    Ops.COS: lambda g, _, x: -(g * sin(x)),
    Ops.TANH: lambda g, y, _: g * (1.0 - y * y),
    ERF: lambda g, _, x: mul(g, mul(exp(-(x * x)), 2 / math.sqrt(math.pi))),
    Ops.ABS: _slope_of_abs,
    Ops.COPYSIGN: _slopes_of_copysign,
    Ops.FLOOR: _step,
    Ops.CEIL: _step,
    Ops.TRUNC: _step,
    Ops.ROUND: _step,
    Ops.ADD: lambda g, *_: (g, g),
    Ops.SUB: lambda g, *_: (g, -g),
    Ops.MUL: lambda g, _, x, y: (g * y, g * x),
    Ops.MAX: _slopes_of_maximum,
    Ops.MIN: lambda g, result, x, y: _slopes_of_maximum(g, result, y, x),
    Ops.NEG: lambda g, *_: -g,
    Ops.DIV: lambda g, q, _, y: (true_div(g, y), neg(true_div(mul(g, q), y))),
    Ops.FMOD: _slopes_of_remainder,
    Ops.POW: _slopes_of_power,
}
"""Operation -> its rule."""
