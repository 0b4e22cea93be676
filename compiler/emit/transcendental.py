"""Exponentials, logarithms, tanh, and the table of all decomposed functions, as strict arithmetic.

For float32 and float64; sin and cos are in `sincos`.

LLVM calls libm for each element of a vector and has no library on GPUs. Therefore the functions are
decomposed here, once for all targets. NaN, infinities, signed zeros and denormals are correct. The largest
errors, in units of the last place, are asserted by tests/compiler/test_transcendental.py:

    float32  exp 0.9  exp2 0.9  expm1 1.5  log 0.9  log1p 1.2  log2 1.1  sin cos 1.6 (any argument)  tanh 1.5
    float64  exp 1.0  exp2 1.0  expm1 1.5  log 1.0  log1p 1.2  log2 1.5  sin cos 1.6 (any argument)  tanh 1.6

Polynomials are minimax on the relative error of the final function (Remez exchange with at least 40 digits).
The coefficients were rounded one by one from the lowest power, and the others fitted again after each
rounding.

Not here: the operations that use the table (`compiler.emit.isel`), powers (`power`).
"""

# ruff: noqa: D403 - docstrings are formulas

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from compiler.dtype import dtypes
from compiler.emit.floats import Floats
from compiler.emit.sincos import cos, sin

if TYPE_CHECKING:
    from collections.abc import Callable

    from compiler.emit.builder import Builder
    from compiler.emit.linear import Line

EXP_32 = (
    1.0, 1.0, 0.4999999403953552, 0.16666516661643982, 0.04166810214519501, 0.008369192481040955,
    0.0013838892336934805,
)  # fmt: skip
EXP2_32 = (
    1.0, 0.6931471824645996, 0.24022650718688965, 0.055504050105810165, 0.009618151932954788,
    0.0013344398466870189, 0.00015422850265167654, 1.150176740338793e-05,
)  # fmt: skip
LOG_32 = (
    0.3333333134651184, -0.250008225440979, 0.20001260936260223, -0.16623349487781525, 0.14200907945632935,
    -0.13156510889530182, 0.1275128275156021, -0.07621443271636963,
)  # fmt: skip
TANH_32 = (
    -0.33333298563957214, 0.13331936299800873, -0.05378471687436104, 0.02079862728714943,
    -0.005897971801459789,
)  # fmt: skip

EXP_64 = (
    1.0, 1.0, 0.5, 0.16666666666666688, 0.041666666666666824, 0.008333333333313892, 0.0013888888888777863,
    0.00019841269903329744, 2.480158755890886e-05, 2.7557228922694663e-06, 2.755706808118363e-07,
    2.511414519636853e-08, 2.0988471712362343e-09,
)  # fmt: skip
LOG_64 = (
    0.6666666666666734, 0.39999999999416824, 0.28571428741974886, 0.22222198610585936, 0.1818356259195083,
    0.15314090328137897, 0.1479559232784878,
)  # fmt: skip
TANH_64 = (
    -0.33333333333332316, 0.1333333333316893, -0.05396825387616273, 0.021869485976420133,
    -0.00886319452243973, 0.003591719826051102, -0.0014532173203318291, 0.000579138521825476,
    -0.0002103046428734665, 5.102290638055225e-05,
)  # fmt: skip

EXPM1_32 = (
    0.5, 0.1666666567325592, 0.04166635498404503, 0.008333390578627586, 0.0013941051438450813,
    0.0001984595146495849,
)  # fmt: skip
EXPM1_64 = (
    0.5, 0.16666666666666666, 0.04166666666666669, 0.008333333333333312, 0.0013888888888871776,
    0.000198412698413452, 2.4801587350545626e-05, 2.7557319114909763e-06, 2.755725138514482e-07,
    2.5052168735777657e-08, 2.0921779966413294e-09, 1.6059714694252277e-10,
)  # fmt: skip
"""(expm1(r) - r) / r**2 where |r| is at most ln(2) / 2."""

LOG2E = 1.4426950408889634


def _ln2(v: Floats) -> tuple[float, float]:
    """Return ln 2 in two words; the product of a small integer and the first is exact."""
    return (
        (0.693145751953125, 1.42860682030941723e-6)
        if v.single()
        else (0.6931471803691238, 1.9082149292705877e-10)
    )


def _halving(v: Floats, x: Line) -> tuple[Line, Line]:
    """x = n ln(2) + r with |r| at most about ln(2) / 2.

    (r, n as a float).
    """
    high, low = _ln2(v)
    n = v.rint(v.mul(x, LOG2E))
    return v.fma(n, -low, v.fma(n, -high, x)), n


def _exp_reduced(v: Floats, x: Line) -> tuple[Line, Line]:
    """Return (mantissa, n) with exp(x) = mantissa * 2**n."""
    r, n = _halving(v, x)
    return v.horner(EXP_32 if v.single() else EXP_64, r), n


def exp(b: Builder, x: Line) -> Line:
    """e**x."""
    v = Floats(b, x.dtype)
    low, high = (-104.5, 89.0) if v.single() else (-746.5, 710.0)
    return v.scaled(*_exp_reduced(v, v.clamped(x, low, high)))


def exp2(b: Builder, x: Line) -> Line:
    """2**x."""
    v = Floats(b, x.dtype)
    low, high = (-151.0, 129.0) if v.single() else (-1076.0, 1025.0)
    y = v.clamped(x, low, high)
    n = v.rint(y)
    r = v.sub(y, n)
    if v.single():
        return v.scaled(v.horner(EXP2_32, r), n)
    ln2 = math.log(2)
    t = v.mul(r, ln2)
    tail = v.fma(r, 2.3190468138462996e-17, v.fma(r, ln2, v.neg(t)))
    p = v.horner(EXP_64, t)
    return v.scaled(v.fma(p, tail, p), n)


def expm1(b: Builder, x: Line) -> Line:
    """e**x - 1 = 2 (2**(n-1) q + (2**(n-1) - 1/2)) with q = e**r - 1; halves, because 2**n may overflow."""
    v = Floats(b, x.dtype)
    low, high, tiny = (-18.0, 89.0, 2.0**-26) if v.single() else (-40.0, 710.0, 2.0**-55)
    r, n = _halving(v, v.clamped(x, low, high))
    q = v.fma(v.mul(r, r), v.horner(EXPM1_32 if v.single() else EXPM1_64, r), r)
    half = v.power_of_two(v.int_op("sub", v.to_int(n), 1))
    y = v.mul(v.fma(half, q, v.sub(half, 0.5)), 2.0)
    return v.where("olt", b.call("fabs", x), tiny, x, y)


def log_split(v: Floats, x: Line) -> tuple[Line, Line]:
    """x = (1 + f) * 2**e with 1 + f in [sqrt(1/2), sqrt(2)).

    (f, e as a float). Denormals are scaled first.
    """
    least, shift = (1.1754943508222875e-38, 23) if v.single() else (2.2250738585072014e-308, 52)
    tiny = v.b.cmp("olt", x, v.f(least))
    bits = v.as_int(v.b.select(tiny, v.mul(x, float(1 << shift)), x))
    above = v.int_op("sub", bits, 0x3F3504F3 if v.single() else 0x3FE6A09E667F3BCD)
    e = v.int_op("ashr", above, v.mantissa)
    m = v.as_float(v.int_op("sub", bits, v.int_op("shl", e, v.mantissa)))
    e = v.int_op("sub", e, v.b.select(tiny, v.i(shift), v.i(0)))
    if not v.single():  # on all targets int32 converts with one instruction
        e = v.b.convert("trunc", e, dtypes.int32)
    return v.sub(m, 1.0), v.b.convert("sitofp", e, v.dtype)


def _log_specials(v: Floats, x: Line, y: Line) -> Line:
    """Return y with the results for +inf, zero, negative numbers and NaN replaced."""
    y = v.where("oeq", x, math.inf, x, y)
    y = v.where("oeq", x, 0.0, -math.inf, y)
    return v.where("ult", x, 0.0, math.nan, y)


def log(b: Builder, x: Line) -> Line:
    """The natural logarithm."""
    v = Floats(b, x.dtype)
    f, e = log_split(v, x)
    return _log_specials(v, x, _log_sum(v, f, e))


def _log_sum(v: Floats, f: Line, e: Line, more: Line | None = None) -> Line:
    """log(1 + f) + e ln(2) + more."""
    high, low = _ln2(v)

    def tail() -> Line:
        return v.mul(e, low) if more is None else v.fma(e, low, more)

    if v.single():
        z = v.mul(f, f)
        y = v.fma(v.mul(v.horner(LOG_32, f), f), z, tail())
        return v.fma(e, high, v.add(v.fma(z, -0.5, y), f))
    half, s, r = _log_double(v, f)
    inner = v.fma(s, v.add(half, r), tail())
    return v.fma(e, high, v.sub(f, v.sub(half, inner)))


def log1p(b: Builder, x: Line) -> Line:
    """log(1 + x): the logarithm of the rounded sum, with a first-order correction of its rounding error."""
    v = Floats(b, x.dtype)
    u = v.add(x, 1.0)
    back = v.sub(u, x)
    lost = v.add(v.sub(x, v.sub(u, back)), v.sub(1.0, back))
    f, e = log_split(v, u)
    near = b.cmp("oeq", e, v.f(0.0))
    f = b.select(near, x, f)  # exact, without a rounding error
    scale = v.power_of_two(v.to_int(v.neg(v.where("ogt", e, 60.0, 60.0, e))))
    c = b.select(near, v.f(0.0), v.mul(lost, scale))
    c = v.fma(c, v.fma(f, f, v.neg(f)), c)  # divided by 1 + f, approximately
    y = _log_specials(v, u, _log_sum(v, f, e, c))
    return v.where("oeq", x, 0.0, x, y)


def _log_double(v: Floats, f: Line) -> tuple[Line, Line, Line]:
    """(f*f/2, s, R) with log(1 + f) = f - (f*f/2 - s*(f*f/2 + R)) and s = f / (2 + f)."""
    s = v.div(f, v.add(f, 2.0))
    z = v.mul(s, s)
    return v.mul(v.mul(f, f), 0.5), s, v.mul(z, v.horner(LOG_64, z))


def log2(b: Builder, x: Line) -> Line:
    """The logarithm to base 2; exact for powers of two."""
    v = Floats(b, x.dtype)
    f, e = log_split(v, x)
    if v.single():
        z = v.mul(f, f)
        rest = v.fma(z, -0.5, v.mul(v.mul(v.horner(LOG_32, f), f), z))
        factor, factor_low = 1.44269502162933349609375, 1.92596299112661746887e-8
    else:
        half, s, r = _log_double(v, f)
        rest = v.sub(v.mul(s, v.add(half, r)), half)
        factor, factor_low = LOG2E, 2.0355273740931033e-17
    y = v.fma(f, factor_low, v.mul(rest, factor))
    return _log_specials(v, x, v.add(v.fma(f, factor, y), e))


def tanh(b: Builder, x: Line) -> Line:
    """The hyperbolic tangent: an odd polynomial near zero, else 1 - 2 / (e**2|x| + 1)."""
    v = Floats(b, x.dtype)
    border, top = (0.6, 10.0) if v.single() else (0.55, 22.0)
    size = b.call("fabs", x)
    z = v.mul(x, x)
    small = v.fma(v.mul(v.horner(TANH_32 if v.single() else TANH_64, z), z), x, x)
    mantissa, n = _exp_reduced(v, v.mul(v.where("ogt", size, top, top, size), 2.0))
    e = v.mul(mantissa, v.power_of_two(v.to_int(n)))
    big = v.sub(1.0, v.div(2.0, v.add(e, 1.0)))
    return b.call("copysign", v.where("olt", size, border, small, big), x)


DECOMPOSITIONS: dict[str, Callable[[Builder, Line], Line]] = {
    "EXP": exp, "EXP2": exp2, "LOG": log, "LOG2": log2, "EXPM1": expm1, "LOG1P": log1p,
    "SIN": sin, "COS": cos, "TANH": tanh,
}  # fmt: skip
