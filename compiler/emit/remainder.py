"""The remainder of float division as in C's fmod: x - trunc(x / y) y, exact, with the sign of x.

A quotient below 2**23 (float64: 2**52) needs one division. Its integer part q is at most one too large; x - q
y is a multiple of the unit of y and below |y|, so one fma computes it exactly, and adding y back is exact,
too. For larger quotients, which are rare, a loop subtracts multiples of y by powers of two, as many bits per
step.

Not here: remainders of integers (`compiler.emit.isel`, which also calls this module).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from compiler.dtype import dtypes
from compiler.emit.floats import Floats

if TYPE_CHECKING:
    from compiler.emit.builder import Builder
    from compiler.emit.linear import Line


def _once(v: Floats, x: Line, y: Line) -> tuple[Line, Line]:
    """Return x modulo y for positive x and y with a small quotient.

    The result is (remainder, rounded quotient).
    """
    b = v.b
    quotient = v.div(x, y)
    rest = v.fma(v.neg(b.call("trunc", quotient)), y, x)
    rest = v.where("olt", rest, 0.0, v.add(rest, y), rest)
    return v.where("olt", quotient, 1.0, x, rest), quotient


def _far(v: Floats, x: Line, y: Line, step: int, rounds: int) -> Line:
    """Return x modulo y for any quotient: reduce by y 2**(k step), from the largest below x down."""
    b = v.b
    scale = 2.0**step
    up = b.enter_loop(b.index(0), b.index(rounds), 1, b.cursor)
    part = b.carry(up, y)
    larger = v.mul(part, scale)
    (part,) = b.leave_loop(up, [v.where("ole", larger, x, larger, part)])
    down = b.enter_loop(b.index(0), b.index(rounds + 1), 1, b.cursor)
    rest, unit = b.carry(down, x), b.carry(down, part)
    smaller = v.mul(unit, 1 / scale)
    return b.leave_loop(down, [_once(v, rest, unit)[0], v.where("ogt", smaller, y, smaller, y)])[0]


def fmod(b: Builder, x: Line, y: Line) -> Line:
    """Return the remainder of float32 or float64 registers; NaN for infinite x and for zero y."""
    v = Floats(b, x.dtype)
    x, y = b.level((x, y))
    dividend, divisor = b.call("fabs", x), b.call("fabs", y)
    rest, quotient = _once(v, dividend, divisor)
    step, rounds = (23, 13) if v.single() else (52, 41)  # 2**277 and 2**2098 are the largest quotients
    far = b.cmp("oge", quotient, v.f(2.0**step))
    runs = b.line("any", dtypes.bool, 1, (far,)) if far.lanes > 1 else far
    saved = b.cursor
    b.cursor = runs.block
    branch = b.enter_branch(runs, cold=True)
    inside = b.select(far, _far(v, dividend, divisor, step, rounds), rest)
    (rest,) = b.leave_branch(branch, [(inside, rest)])
    b.cursor = saved
    return b.call("copysign", rest, x)
