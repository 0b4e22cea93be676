"""Functions of one or two numbers for few programs: inverse circular, hyperbolic, erfc, lgamma, nextafter.

Integers and bools give float32. The error, gamma and Bessel functions are computed in float64, so that
results of other dtypes are rounded once. asin, acos and atan2 are arctangents; `_arctangent` halves the angle
of its argument twice, so that a short power series suffices. Hyperbolic functions use expm1 and log1p near 0;
where e**x would overflow, they use the square of e**(x / 2).

Arguments of other classes raise `UsageTypeError`; tensors that do not broadcast raise `UsageError`.

Not here: sine, cosine, exponentials and roots (`functions`). Next: `frontend.autograd.rules`, gradient rules.
"""

from __future__ import annotations

import math
from typing import Final, Generic, NamedTuple

from compiler.dtype import dtypes
from compiler.ir.ops import Ops
from frontend.arguments.conversion import converting
from frontend.evaluation.base import T
from frontend.evaluation.constants import Number, constant, convert, narrowed, number_like, ruled, widened
from frontend.evaluation.trace import apply, composite, method, operator
from frontend.ops.arithmetic import div
from frontend.ops.arithmetic import pow as power
from frontend.ops.elementwise import add, agree, clip, eq, gt, lt, mul, ne, neg, sub, where
from frontend.ops.functions import abs as absolute
from frontend.ops.functions import (
    copysign,
    erf,
    exp,
    exp2,
    expm1,
    floor,
    isnan,
    log,
    log1p,
    logaddexp,
    sin,
    sqrt,
)
from frontend.ops.functions import round as rounded
from hcq.errors import UsageError

_TERMS: Final = 40
"""Terms of the continued fraction of erfc: for x of at least 3 they give all digits of float64."""
_MOST: Final = 64
"""The greatest dimension of `mvlgamma`."""
_LANCZOS: Final = (
    0.99999999999980993, 676.5203681218851, -1259.1392167224028, 771.32342877765313, -176.61502916214059,
    12.507343278686905, -0.13857109526572012, 9.9843695780195716e-6, 1.5056327351493116e-7,
)  # fmt: skip
"""Lanczos's approximation of the gamma function with g = 7 and nine terms (P. Godfrey's coefficients)."""
_STIRLING: Final = (1 / 12, -1 / 120, 1 / 252, -1 / 240, 1 / 132, -691 / 32760, 1 / 12)
"""B(2n) / 2n: the asymptotic series of the digamma function."""


def _wide(x: T) -> T:
    return convert(x, dtypes.float64)


@method
def erfc(self: T) -> T:
    """Return 1 - erf(self), exact to the last places also where that is small."""
    x = _wide(self)
    size = absolute(x)
    large = gt(size, 3.0)
    far = where(large, size, 3.0)
    tail = far
    for n in range(_TERMS, 0, -1):
        tail = add(far, div(number_like(x, n / 2), tail))
    rest = div(exp(neg(mul(far, far))), mul(tail, math.sqrt(math.pi)))
    rest = where(lt(x, 0.0), add(neg(rest), 2.0), rest)
    found = where(large, rest, add(neg(erf(where(large, 0.0, x))), 1.0))
    return narrowed(ruled("erfc", found, x), self)


@method
def erfinv(self: T) -> T:
    """Return the x with erf(x) = self, infinite at -1 and 1, NaN beyond.

    Newton's method, started with Winitzki's formula.
    """
    y = _wide(self)
    size = absolute(y)
    inside = lt(size, 1.0)
    safe = where(inside, size, 0.0)
    spread = log1p(neg(mul(safe, safe)))
    a = 0.147
    middle = add(mul(spread, 0.5), 2 / (math.pi * a))
    rest = div(neg(spread), a)
    x = sqrt(div(rest, add(sqrt(add(mul(middle, middle), rest)), middle)))
    small = lt(safe, 0.5)  # there 1 - safe would lose its last digits
    for _ in range(3):
        wrong = where(small, sub(erf(x), safe), sub(add(neg(safe), 1.0), erfc(x)))
        step = div(neg(wrong), mul(exp(neg(mul(x, x))), 2 / math.sqrt(math.pi)))
        x = add(x, step)
    x = copysign(x, y)
    edge = where(eq(size, 1.0), mul(y, math.inf), math.nan)
    return narrowed(ruled("erfinv", where(inside, x, edge), y), self)


@method
def lgamma(self: T) -> T:
    """Return the logarithm of the absolute value of the gamma function; infinity at whole numbers up to 0."""
    x = _wide(self)
    mirrored = lt(x, 0.5)
    z = sub(where(mirrored, add(neg(x), 1.0), x), 1.0)
    total = number_like(x, _LANCZOS[0])
    for i, c in enumerate(_LANCZOS[1:], 1):
        total = add(total, div(number_like(x, c), add(z, float(i))))
    t = add(z, 7.5)
    found = add(sub(mul(add(z, 0.5), log(t)), t), log(mul(total, math.sqrt(2 * math.pi))))
    found = where(gt(z, 1e17), mul(z, sub(log(z), 1.0)), found)
    turn = sin(mul(sub(x, rounded(x)), math.pi))
    sine = absolute(where(mirrored, turn, 1.0))
    apart = absolute(where(mirrored, sub(x, rounded(x)), 1.0))
    near = lt(apart, 1e-10)  # the sine of a subnormal number times pi has few digits
    part = sub(log(where(near, 1.0, sine)), math.log(math.pi))
    both = sub(neg(where(near, log(apart), part)), found)
    whole = where(lt(x, 0.5), eq(x, floor(x)), False)
    result = where(whole, math.inf, where(mirrored, both, found))
    return narrowed(ruled("lgamma", where(eq(absolute(x), math.inf), math.inf, result), x), self)


@method
def digamma(self: T) -> T:
    """Return the derivative of `lgamma`; NaN at negative whole numbers, an infinity at 0."""
    x = _wide(self)
    mirrored = lt(x, 0.0)
    z = where(mirrored, add(neg(x), 1.0), x)
    below = number_like(x, 0.0)
    for _ in range(10):
        small = lt(z, 10.0)
        below = where(small, add(below, div(number_like(x, 1.0), z)), below)
        z = where(small, add(z, 1.0), z)
    r = div(number_like(x, 1.0), mul(z, z))
    series = number_like(x, 0.0)
    for c in reversed(_STIRLING):
        series = mul(add(series, c), r)
    found = sub(sub(sub(log(z), div(number_like(x, 0.5), z)), series), below)
    turn = mul(where(mirrored, sub(x, rounded(x)), 0.5), math.pi)
    cotangent = div(sin(add(turn, math.pi / 2)), sin(turn))
    result = where(mirrored, sub(found, mul(cotangent, math.pi)), found)
    whole = where(mirrored, eq(x, floor(x)), False)
    at_zero = apply(Ops.COPYSIGN, None, number_like(x, math.inf), neg(x))
    return narrowed(ruled("digamma", where(whole, math.nan, where(eq(x, 0.0), at_zero, result)), x), self)


@method
def trigamma(self: T) -> T:
    """Return the derivative of `digamma`; infinity at whole numbers up to 0."""
    x = _wide(self)
    mirrored = lt(x, 0.0)
    z = where(mirrored, add(neg(x), 1.0), x)
    below, one = number_like(x, 0.0), number_like(x, 1.0)
    for _ in range(10):
        small = lt(z, 10.0)
        below = where(small, add(below, div(one, mul(z, z))), below)
        z = where(small, add(z, 1.0), z)
    r = div(one, mul(z, z))
    series = number_like(x, 0.0)
    for n, c in reversed(list(enumerate(_STIRLING, 1))):
        series = mul(add(series, 2 * n * c), r)
    found = add(add(div(add(series, 1.0), z), mul(r, 0.5)), below)
    sine = sin(where(mirrored, mul(sub(x, rounded(x)), math.pi), 1.0))
    return narrowed(
        where(mirrored, sub(div(number_like(x, math.pi**2), mul(sine, sine)), found), found), self
    )


@converting
def mvlgamma(self: T, p: int) -> T:
    """Return the logarithm of the multivariate gamma function of dimension p.

    Raises `UsageError` for a p outside 1..64.
    """
    if not 1 <= p <= _MOST:
        raise UsageError(f"mvlgamma: wanted a dimension of 1 to {_MOST}, saw {p}")
    total = lgamma(self)
    for i in range(1, p):
        each = lgamma(sub(self, i / 2))
        total = add(total, each)
    return add(total, p * (p - 1) / 4 * math.log(math.pi))


@method
def isposinf(self: T) -> T:
    """Return where values are plus infinity."""
    return eq(self, math.inf) if self.expr.dtype.is_float else ne(self, self)


@method
def isneginf(self: T) -> T:
    """Return where values are minus infinity."""
    return eq(self, -math.inf) if self.expr.dtype.is_float else ne(self, self)


@operator
def logaddexp2(self: T, other: T | Number) -> T:
    """Return log2(2**self + 2**other), without overflow; integers give float32."""
    x, y = agree("logaddexp2", self, other, floats=True)
    a, b = (mul(widened(t), math.log(2)) for t in (x, y))
    return narrowed(mul(logaddexp(a, b), 1 / math.log(2)), x)


@operator
def ldexp(self: T, other: T | Number) -> T:
    """Return self * 2**other, rounded once, also if 2**other is beyond the dtype; integers give float32."""
    x, y = agree("ldexp", self, other, floats=True)
    found, rest, factors = _wide(x), _wide(y), []
    for _ in range(3 if x.expr.dtype is dtypes.float64 else 1):
        factors.append(clip(rest, -1000.0, 1000.0))
        rest = sub(rest, factors[-1])
    for power_of_two in reversed(factors):  # the greatest last, so that only one product is rounded
        found = mul(found, exp2(power_of_two))
    return convert(found, x.expr.dtype)


@operator
def float_power(self: T, other: T | Number) -> T:
    """Return self to the power other, in float64."""
    return power(_wide(self), other if isinstance(other, (int, float)) else _wide(other))


@operator
def nextafter(self: T, other: T | Number) -> T:
    """Return the next number of the dtype from self towards other; self if both are equal.

    Raises `UsageError` for other dtypes than float32 and float64.
    """
    x, y = agree("nextafter", self, other)
    dtype = x.expr.dtype
    if dtype not in {dtypes.float32, dtypes.float64}:
        raise UsageError(f"nextafter: wanted float32 or float64, saw {dtype.name}")
    bits = apply(Ops.BITCAST, dtypes.int32 if dtype is dtypes.float32 else dtypes.int64, x)
    away = eq(gt(y, x), gt(x, 0.0))
    least = apply(Ops.BITCAST, dtype, number_like(bits, 1))
    moved = apply(Ops.BITCAST, dtype, where(away, add(bits, 1), sub(bits, 1)))
    moved = where(eq(x, 0.0), apply(Ops.COPYSIGN, None, least, y), moved)
    return ruled("nextafter", where(eq(x, y), y, where(isnan(x), x, where(isnan(y), y, moved))), x, y)


@method
def angle(self: T) -> T:
    """Return the angle of each number in the complex plane: pi where negative, else 0; NaN stays."""
    x = self if self.expr.dtype.is_float else convert(self, dtypes.float32)
    pi = number_like(x, math.pi)
    return ruled("zero", where(isnan(x), x, where(lt(x, 0.0), pi, 0.0)), x)


@method
def i0(self: T) -> T:
    """Return the modified Bessel function of the first kind of order 0."""
    return narrowed(bessel(_wide(self), 0), self)


def bessel(wide: T, order: int, *, scaled: bool = False) -> T:
    """Return the modified Bessel function of order 0 or 1, if `scaled` times exp(-|x|), of float64."""
    x = absolute(wide)
    near = lt(x, 20.0)
    small = where(near, wide, 0.0)
    square = mul(mul(small, small), 0.25)  # not of x, whose slope at 0 is 0
    low = number_like(x, 1.0)
    for k in range(50, 0, -1):
        low = add(mul(mul(square, 1 / (k * (k + order))), low), 1.0)
    low = mul(mul(low, small), 0.5) if order else low
    far = where(near, 20.0, x)
    r = div(number_like(x, 0.125), far)
    high = number_like(x, 1.0)
    for k in range(18, 0, -1):
        high = add(mul(mul(r, ((2 * k - 1) ** 2 - 4 * order) / k), high), 1.0)
    high = div(high, sqrt(mul(far, 2 * math.pi)))
    high = where(lt(wide, 0.0), neg(high), high) if order else high
    if scaled:
        return where(near, mul(low, exp(neg(absolute(small)))), high)
    half = exp(mul(far, 0.5))  # exp(x) itself overflows before the result does
    found = mul(mul(half, high), half)
    beyond = where(isnan(x), x, where(lt(wide, 0.0), -math.inf, math.inf) if order else math.inf)
    return where(near, low, where(lt(x, 1000.0), found, beyond))


class FloatParts(NamedTuple, Generic[T]):
    """Mantissas m, 0 or 0.5 <= |m| < 1 with the sign of the value, and exponents e: the value is m * 2**e."""

    mantissa: T
    exponent: T


def frexp(self: T) -> FloatParts[T]:
    """Return (mantissa, exponent), whose exponent is int32: self is mantissa * 2**exponent.

    0.5 <= |mantissa| < 1; 0, infinities and NaN are their own mantissas with the exponent 0. Raises
    `UsageError` for integers.
    """
    if not self.expr.dtype.is_float:
        raise UsageError(f"frexp: wanted floats, saw {self.expr.dtype.name}; cast first")
    exponent = _exponent(self)
    return FloatParts(_mantissa(self, exponent), exponent)


@method
def _exponent(self: T) -> T:
    x = _wide(self)
    tiny = lt(absolute(x), 2.0**-1022)
    bits = apply(Ops.BITCAST, dtypes.int64, where(tiny, mul(x, 2.0**54), x))
    shape = bits.expr.shape
    field = apply(Ops.SHR, None, bits, constant(bits, 52, dtypes.int64, shape))
    field = apply(Ops.AND, None, field, constant(bits, 0x7FF, dtypes.int64, shape))
    found = sub(field, where(tiny, 1022 + 54, 1022))
    plain = lt(absolute(x), math.inf)
    return convert(where(plain, where(eq(x, 0.0), 0, found), 0), dtypes.int32)


@composite
def _mantissa(self: T, exponent: T) -> T:
    half = apply(Ops.SHR, None, exponent, constant(exponent, 1, dtypes.int32, exponent.expr.shape))
    rest = sub(half, exponent)
    return convert(mul(mul(_wide(self), exp2(_wide(neg(half)))), exp2(_wide(rest))), self.expr.dtype)


@operator
def gcd(self: T, other: T | Number) -> T:
    """Return the greatest common divisor of integers, 0 of two zeros; floats and bools raise `UsageError`.

    It is positive, unless it is the magnitude of the dtype's least number: that has no positive value, and
    wraps to the least number. Euclid's algorithm, with as many steps as any two numbers of the dtype need.
    """
    x, y = _integers("gcd", self, other)
    a, b = (absolute(t) for t in (x, y))
    zero, one = (number_like(a, n) for n in (0, 1))
    for _ in range(int(a.expr.dtype.bits * 1.45) + 2):  # neighbouring Fibonacci numbers take the most steps
        done = apply(Ops.EQ, None, b, zero)
        rest = apply(Ops.MOD, None, a, apply(Ops.WHERE, None, done, one, b))
        a, b = apply(Ops.WHERE, None, done, a, b), apply(Ops.WHERE, None, done, zero, rest)
    return absolute(a)  # the least number has no positive value


@operator
def lcm(self: T, other: T | Number) -> T:
    """Return the least common multiple of integers, 0 if one is 0; floats and bools raise `UsageError`.

    It is positive if the dtype holds it; else it wraps, and may be negative.
    """
    x, y = _integers("lcm", self, other)
    divisor = gcd(x, y)
    zero, one = (number_like(x, n) for n in (0, 1))
    none = apply(Ops.EQ, None, divisor, zero)
    part = apply(Ops.FLOORDIV, None, absolute(x), apply(Ops.WHERE, None, none, one, divisor))
    if x.expr.dtype.bits < 32:  # C multiplies in 32 bits, and takes the magnitude before it wraps
        part, y = convert(part, dtypes.int32), convert(y, dtypes.int32)
    return convert(absolute(mul(part, absolute(y))), x.expr.dtype)


def _integers(what: str, x: T, y: T | Number) -> tuple[T, T]:
    a, b = agree(what, x, y)
    if not a.expr.dtype.is_int:
        raise UsageError(f"{what}: wanted integers, saw {a.expr.dtype.name}")
    return a, b


_SERIES: Final = {dtypes.float32: 6, dtypes.float64: 13}
"""Terms of the power series of the arctangent up to tan(pi/16)."""


def _signed(size: T, like: T) -> T:
    return apply(Ops.COPYSIGN, None, size, like)


def _half_angle(x: T) -> T:
    """Return tan(a / 2) of x = tan(a), at most 1."""
    return div(x, add(sqrt(add(mul(x, x), 1.0)), 1.0))


def _arctangent(x: T) -> T:
    """Return the arctangent of numbers in 0..1, or NaN."""
    t = _half_angle(_half_angle(x))
    square = mul(t, t)
    terms = _SERIES[x.expr.dtype]
    series = mul(square, 0.0)
    for n in range(terms, 0, -1):
        series = mul(add(series, (-1.0) ** n / (2 * n + 1)), square)
    return mul(add(mul(t, series), t), 4.0)


def _of_any_size(x: T) -> T:
    """Return the arctangent of numbers from 0 on, or NaN."""
    large = gt(x, 1.0)
    found = _arctangent(where(large, div(number_like(x, 1.0), x), x))
    return where(large, sub(number_like(x, math.pi / 2), found), found)


@method
def atan(self: T) -> T:
    """Return the angle in -pi/2..pi/2 whose tangent is self."""
    x = widened(self)
    return narrowed(ruled("atan", _signed(_of_any_size(absolute(x)), x), x), self)


@method
def asin(self: T) -> T:
    """Return the angle in -pi/2..pi/2 whose sine is self; NaN outside -1..1."""
    x = widened(self)
    size = absolute(x)
    cosine = sqrt(mul(add(neg(size), 1.0), add(size, 1.0)))
    half = _arctangent(div(size, add(cosine, 1.0)))
    return narrowed(ruled("asin", _signed(mul(half, 2.0), x), x), self)


@method
def acos(self: T) -> T:
    """Return the angle in 0..pi whose cosine is self; NaN outside -1..1."""
    x = widened(self)
    half = _of_any_size(sqrt(div(add(neg(x), 1.0), add(x, 1.0))))
    return narrowed(ruled("acos", mul(half, 2.0), x), self)


@operator
def atan2(self: T, other: T | Number) -> T:
    """Return the angle in -pi..pi of the point (x, y) = (other, self), as a float."""
    y, x = agree("atan2", self, other, floats=True)
    dtype = y.expr.dtype
    y, x = widened(y), widened(x)
    rise, run = absolute(y), absolute(x)
    high, low = apply(Ops.MAX, None, rise, run), apply(Ops.MIN, None, rise, run)
    both = apply(Ops.EQ, None, rise, run)
    share = where(both, where(gt(high, 0.0), 1.0, low), div(low, where(gt(high, 0.0), high, 1.0)))
    small = _arctangent(share)
    steep = gt(rise, run)
    quarter = where(steep, sub(number_like(small, math.pi / 2), small), small)
    left = lt(_signed(number_like(x, 1.0), x), 0.0)
    angle = where(left, sub(number_like(small, math.pi), quarter), quarter)
    undefined = apply(Ops.OR, None, apply(Ops.NE, None, x, x), apply(Ops.NE, None, y, y))
    value = where(undefined, math.nan, _signed(angle, y))
    return convert(ruled("atan2", value, y, x), dtype)


@method
def sinh(self: T) -> T:
    """Return the hyperbolic sine."""
    x = widened(self)
    size = absolute(x)
    e = expm1(apply(Ops.MIN, None, size, number_like(x, 30.0)))
    near = mul(add(e, div(e, add(e, 1.0))), 0.5)
    half = exp(mul(size, 0.5))
    return narrowed(
        ruled("sinh", _signed(where(gt(size, 20.0), mul(mul(half, 0.5), half), near), x), x), self
    )


@method
def cosh(self: T) -> T:
    """Return the hyperbolic cosine."""
    x = widened(self)
    size = absolute(x)
    e = exp(apply(Ops.MIN, None, size, number_like(x, 30.0)))
    half = exp(mul(size, 0.5))
    value = where(gt(size, 20.0), mul(mul(half, 0.5), half), mul(add(e, div(number_like(x, 1.0), e)), 0.5))
    return narrowed(ruled("cosh", value, x), self)


@method
def asinh(self: T) -> T:
    """Return the inverse hyperbolic sine."""
    x = widened(self)
    size = absolute(x)
    square = mul(size, size)
    near = log1p(add(size, div(square, add(sqrt(add(square, 1.0)), 1.0))))
    value = where(gt(size, 1e8), add(log(size), math.log(2)), near)
    return narrowed(ruled("asinh", _signed(value, x), x), self)


@method
def acosh(self: T) -> T:
    """Return the inverse hyperbolic cosine, at least 0; NaN for numbers below 1."""
    x = widened(self)
    above = sub(x, 1.0)
    near = log1p(add(above, sqrt(mul(above, add(above, 2.0)))))
    value = where(gt(x, 1e8), add(log(x), math.log(2)), where(lt(above, 0.0), math.nan, near))
    return narrowed(ruled("acosh", value, x), self)


@method
def atanh(self: T) -> T:
    """Return the inverse hyperbolic tangent, infinite at -1 and 1; NaN outside."""
    x = widened(self)
    size = absolute(x)
    value = mul(log1p(div(mul(size, 2.0), add(neg(size), 1.0))), 0.5)
    return narrowed(ruled("atanh", _signed(value, x), x), self)
