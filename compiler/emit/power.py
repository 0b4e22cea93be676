"""x**y: of floats within two units of the last place, of integers exactly, modulo 2 to their width.

Floats: y log2|x| is computed in two words, which restores the 8 (float64: 11) bits that its integer part
takes from the fraction; then 2 to that power, and the special values of C's pow. With s = (m - 1) / (m + 1),
where m is the mantissa in [sqrt(1/2), sqrt(2)), log2(m) is 2 / ln(2) (s + s**3/3 + s**5 T(s**2)), all but T
in two words. A constant small integer exponent uses squares and products in two words instead.

Integers: squares and products. Exponents below 64 take six rounds; larger ones, which are rare, a loop over
the remaining bits. A negative exponent gives 0, except for the bases 1 and -1.

Not here: exp, log and their polynomials (`transcendental`). Next: `compiler.emit.isel`, the caller.
"""

# ruff: noqa: D403 - docstrings are formulas

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from compiler.emit.floats import Floats
from compiler.emit.transcendental import EXP2_32, EXP_64, log_split

if TYPE_CHECKING:
    from compiler.dtype import DType
    from compiler.emit.builder import Builder
    from compiler.emit.linear import Line

Pair = tuple["Line", "Line"]
"""A value in two words: their sum."""

TAIL_32 = (0.20000000298023224, 0.14285767078399658, 0.11102330684661865, 0.0956144779920578)
TAIL_64 = (
    0.2, 0.14285714285714282, 0.11111111111114262, 0.09090909089815145, 0.07692307882434839,
    0.06666648127930705, 0.05883412361852342, 0.0522803799034454, 0.05382316285577871,
)  # fmt: skip
"""T: minimax on the absolute error for m in [sqrt(1/2), sqrt(2))."""
THIRD_32, THIRD_64 = (0.3333333432674408, -9.934107758624577e-09), (1 / 3, 1.850371707708594e-17)
FACTOR_32 = (2.885390043258667, 3.851926067000022e-08)
FACTOR_64 = (2.8853900817779268, 4.0710547481862066e-17)
"""2 / ln(2)."""
LN2_LOW = 2.3190468138462996e-17
KNOWN = 64
"""The largest constant integer exponent of floats that is computed by squares and products."""
SHORT = 6
"""Bits of an integer exponent that are handled without a loop."""


def _product(v: Floats, x: Pair, y: Pair) -> Pair:
    high = v.mul(x[0], y[0])
    rest = v.fma(x[0], y[0], v.neg(high))
    return high, v.fma(x[0], y[1], v.fma(x[1], y[0], rest))


def _sum(v: Floats, large: Line, x: Pair) -> Pair:
    """large + x, where |large| is not below |x|, or 0."""
    high = v.add(large, x[0])
    return high, v.add(v.add(v.sub(large, high), x[0]), x[1])


def _log2(v: Floats, x: Line) -> Pair:
    """The logarithm to base 2 of a positive finite number."""
    third, factor = (THIRD_32, FACTOR_32) if v.single() else (THIRD_64, FACTOR_64)
    f, e = log_split(v, x)
    d = v.add(f, 2.0)
    inverse = v.div(1.0, d)
    first = v.mul(f, inverse)
    rest = v.fma(v.neg(first), v.sub(f, v.sub(d, 2.0)), v.fma(v.neg(first), d, f))
    s = first, v.mul(rest, inverse)
    z = _product(v, s, s)
    tail = v.mul(z[0], v.horner(TAIL_32 if v.single() else TAIL_64, z[0]))
    cube = _product(v, z, _sum(v, v.f(third[0]), (tail, v.f(third[1]))))
    high, low = _product(v, s, cube)
    mantissa = _sum(v, first, (high, v.add(low, s[1])))
    return _sum(v, e, _product(v, mantissa, (v.f(factor[0]), v.f(factor[1]))))


def _exp2(v: Floats, x: Pair) -> Line:
    """2 to the power of a number in two words."""
    low, high = (-151.0, 129.0) if v.single() else (-1076.0, 1025.0)
    inside = v.b.cmp("olt", v.b.call("fabs", x[0]), v.f(-low))
    top, more = v.clamped(x[0], low, high), v.b.select(inside, x[1], v.f(0.0))
    n = v.rint(top)
    whole = v.sub(top, n)
    r = v.add(whole, more)
    lost = v.add(v.sub(whole, r), more)
    ln2 = math.log(2)
    if v.single():
        p = v.horner(EXP2_32, r)
        return v.scaled(v.fma(p, v.mul(lost, ln2), p), n)
    t = v.mul(r, ln2)
    tail = v.fma(lost, ln2, v.fma(r, LN2_LOW, v.fma(r, ln2, v.neg(t))))
    p = v.horner(EXP_64, t)
    return v.scaled(v.fma(p, tail, p), n)


def _whole(v: Floats, x: Line, exponent: int) -> Line:
    """x**exponent, which is not 0, by squares and products.

    The second word is dropped after an overflow, and for a zero, whose sign the sum would lose.
    """
    base = x, v.f(0.0)
    if exponent < 0:  # inverted first: the power may overflow where its inverse is not yet zero
        inverse = v.div(1.0, x)
        base = inverse, v.mul(v.fma(v.neg(inverse), x, 1.0), inverse)
    left, total = abs(exponent), None
    while left:
        if left & 1:
            total = base if total is None else _product(v, total, base)
        left >>= 1
        if left:
            base = _product(v, base, base)
    assert total is not None
    high, low = total
    finite = v.b.cmp("olt", v.b.call("fabs", high), v.f(math.inf))
    two = v.b.alu("and", finite, v.b.cmp("one", low, v.f(0.0)))
    return v.b.select(two, v.add(high, low), high)


def _float(b: Builder, x: Line, y: Line) -> Line:
    """x**y as C's pow defines it."""
    v = Floats(b, x.dtype)
    if y.op == "const" and isinstance(y.arg, float) and y.arg.is_integer() and 0 < abs(y.arg) <= KNOWN:
        return _whole(v, x, int(y.arg))
    size = b.call("fabs", x)
    huge = 2.0**33 if v.single() else 2.0**65  # out of range even times the smallest logarithm
    exponent = v.clamped(y, -huge, huge)
    logarithm = _log2(v, size)
    high = v.mul(exponent, logarithm[0])
    low = v.fma(exponent, logarithm[1], v.fma(exponent, logarithm[0], v.neg(high)))
    result = _exp2(v, (high, low))
    none, rising = b.cmp("oeq", size, v.f(0.0)), b.cmp("ogt", y, v.f(0.0))
    extreme = b.alu("or", none, b.cmp("oeq", size, v.f(math.inf)))
    falls = b.alu("xor", none, rising)  # a negative power of zero is infinite
    result = b.select(extreme, b.select(falls, v.f(math.inf), v.f(0.0)), result)
    half = v.mul(y, 0.5)
    whole = b.cmp("oeq", b.call("floor", y), y)
    odd = b.alu("and", whole, b.cmp("une", b.call("floor", half), half))
    result = b.select(odd, b.call("copysign", result, x), result)
    between = b.alu("and", b.cmp("olt", x, v.f(0.0)), b.cmp("une", b.call("floor", y), y))
    undefined = b.alu("and", between, b.cmp("one", size, v.f(math.inf)))
    result = b.select(undefined, v.f(math.nan), result)
    result = v.where("uno", x, y, math.nan, result)
    one = b.alu("or", b.cmp("oeq", y, v.f(0.0)), b.cmp("oeq", x, v.f(1.0)))
    return b.select(one, v.f(1.0), result)


def _round(b: Builder, total: Line, base: Line, rest: Line) -> tuple[Line, Line, Line]:
    """Return (total, base, rest) after one bit of the exponent."""
    one = b.const(rest.dtype, 1)
    odd = b.cmp("ne", b.alu("and", rest, one), b.const(rest.dtype, 0))
    total = b.select(odd, b.alu("mul", total, base), total)
    return total, b.alu("mul", base, base), b.alu("lshr", rest, one)


def _integer(b: Builder, d: DType, x: Line, y: Line) -> Line:
    """x**y modulo 2 to the width."""
    zero, one = b.const(d, 0), b.const(d, 1)
    x, y = b.level((x, y))
    below = b.cmp("slt", y, zero) if d.kind == "int" else None
    rest = y if below is None else b.select(below, zero, y)
    total, base = b.splat(one, x.lanes), x
    for _ in range(SHORT):
        total, base, rest = _round(b, total, base, rest)
    many, short = b.cmp("ne", rest, zero), (total, base, rest)

    def longer() -> list[Line]:
        ends = b.index(SHORT), b.index(d.bits)
        return b.repeat(*ends, short, lambda _, carried: list(_round(b, *carried)))[:1]

    (total,) = b.rarely(many, [total], longer)
    if below is None:
        return total
    minus = b.const(d, -1)
    odd = b.cmp("ne", b.alu("and", y, one), zero)
    unit = b.alu("or", b.cmp("eq", x, one), b.cmp("eq", x, minus))
    inverse = b.select(unit, b.select(odd, x, one), zero)
    return b.select(below, inverse, total)


def power(b: Builder, d: DType, x: Line, y: Line) -> Line:
    """x**y of registers of one dtype."""
    if not d.is_float:
        return _integer(b, d, x, y)
    x, y = b.level((x, y))
    return _float(b, x, y)
