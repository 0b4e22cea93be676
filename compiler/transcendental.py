"""exp.

Exp2, log, log2, sin, cos, tanh as plain arithmetic in the linear form, for float32 and float64, strict.

LLVM has no vector library and calls libm for every single value, and on a GPU it has none at all, so every
function is decomposed here once for all targets. NaN, infinities, signed zeros and denormals come out right;
the largest errors, in units of the last place, are asserted by tests/compiler/test_transcendental.py:

    float32  exp 0.9  exp2 0.9  log 0.9  log2 1.1  sin cos 1.6 (any argument)  tanh 1.5
    float64  exp 1.0  exp2 1.0  log 1.0  log2 1.5  sin cos 1.6 (any argument)  tanh 1.6

Polynomials are minimax on the relative error of the final function (Remez exchange in 40 digits or more); the
coefficients were rounded one by one from the lowest power, the rest fitted again after each, so their
rounding errors are absorbed.
"""

from __future__ import annotations

import functools
import math
from typing import TYPE_CHECKING

from compiler.builder import float_bits
from compiler.dtype import dtypes
from compiler.linear import POINTER

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from compiler.builder import Builder
    from compiler.dtype import DType
    from compiler.linear import Line

EXP_32 = (
    1.0,
    1.0,
    0.4999999403953552,
    0.16666516661643982,
    0.04166810214519501,
    0.008369192481040955,
    0.0013838892336934805,
)
EXP2_32 = (
    1.0, 0.6931471824645996, 0.24022650718688965, 0.055504050105810165, 0.009618151932954788,
    0.0013344398466870189, 0.00015422850265167654, 1.150176740338793e-05,
)  # fmt: skip
LOG_32 = (
    0.3333333134651184, -0.250008225440979, 0.20001260936260223, -0.16623349487781525, 0.14200907945632935,
    -0.13156510889530182, 0.1275128275156021, -0.07621443271636963,
)  # fmt: skip
SIN_32 = (-0.16666655242443085, 0.008332187309861183, -0.00019517895998433232)
COS_32 = (0.04166664555668831, -0.0013887309469282627, 2.4432327336398885e-05)
TANH_32 = (
    -0.33333298563957214,
    0.13331936299800873,
    -0.05378471687436104,
    0.02079862728714943,
    -0.005897971801459789,
)

EXP_64 = (
    1.0, 1.0, 0.5, 0.16666666666666688, 0.041666666666666824, 0.008333333333313892, 0.0013888888888777863,
    0.00019841269903329744, 2.480158755890886e-05, 2.7557228922694663e-06, 2.755706808118363e-07,
    2.511414519636853e-08, 2.0988471712362343e-09,
)  # fmt: skip
LOG_64 = (
    0.6666666666666734, 0.39999999999416824, 0.28571428741974886, 0.22222198610585936, 0.1818356259195083,
    0.15314090328137897, 0.1479559232784878,
)  # fmt: skip
SIN_64 = (
    -0.1666666666666663, 0.00833333333332184, -0.00019841269829358525, 2.755731353851222e-06,
    -2.5050734388872805e-08, 1.589543327561661e-10,
)  # fmt: skip
COS_64 = (
    0.041666666666666595, -0.0013888888888873307, 2.480158728896523e-05, -2.755731420307947e-07,
    2.0875703139551372e-09, -1.1358617002603869e-11,
)  # fmt: skip
TANH_64 = (
    -0.33333333333332316, 0.1333333333316893, -0.05396825387616273, 0.021869485976420133,
    -0.00886319452243973, 0.003591719826051102, -0.0014532173203318291,
    0.000579138521825476, -0.0002103046428734665,
    5.102290638055225e-05,
)  # fmt: skip

LOG2E = 1.4426950408889634


class Floats:
    """Arithmetic on registers of one float dtype and its integer twin; Python numbers become constants."""

    __slots__ = ("b", "bits", "dtype", "integer", "mantissa")

    def __init__(self, b: Builder, dtype: DType) -> None:
        self.b = b
        self.dtype = dtype
        self.integer = dtypes.int32 if dtype is dtypes.float32 else dtypes.int64
        self.mantissa = 23 if dtype is dtypes.float32 else 52
        self.bits = dtype.bits

    def f(self, x: Line | float) -> Line:
        """A float operand."""
        return self.b.const(self.dtype, float_bits(x, self.dtype)) if isinstance(x, float) else x

    def i(self, x: Line | int) -> Line:
        """An integer operand."""
        return self.b.const(self.integer, x) if isinstance(x, int) else x

    def add(self, x: Line | float, y: Line | float) -> Line:
        """X + y."""
        return self.b.alu("fadd", self.f(x), self.f(y))

    def sub(self, x: Line | float, y: Line | float) -> Line:
        """X - y."""
        return self.b.alu("fsub", self.f(x), self.f(y))

    def mul(self, x: Line | float, y: Line | float) -> Line:
        """X * y."""
        return self.b.alu("fmul", self.f(x), self.f(y))

    def div(self, x: Line | float, y: Line | float) -> Line:
        """X / y."""
        return self.b.alu("fdiv", self.f(x), self.f(y))

    def fma(self, x: Line | float, y: Line | float, z: Line | float) -> Line:
        """X * y + z, rounded once."""
        return self.b.fma(self.f(x), self.f(y), self.f(z))

    def neg(self, x: Line) -> Line:
        """-x."""
        return self.b.line("fneg", x.dtype, x.lanes, (x,))

    def int_op(self, name: str, x: Line | int, y: Line | int) -> Line:
        """An integer instruction."""
        return self.b.alu(name, self.i(x), self.i(y))

    def where(
        self, predicate: str, x: Line | float, y: Line | float, a: Line | float, b: Line | float
    ) -> Line:
        """`a` where the comparison of x and y holds, else `b`."""
        return self.b.select(self.b.cmp(predicate, self.f(x), self.f(y)), self.f(a), self.f(b))

    def as_int(self, x: Line) -> Line:
        """The bits of a float."""
        return self.b.convert("bitcast", x, self.integer)

    def as_float(self, x: Line) -> Line:
        """The float with these bits."""
        return self.b.convert("bitcast", x, self.dtype)

    def to_int(self, x: Line) -> Line:
        """An integral float as an integer.

        Anything at all for NaN and what is too large, but the same everywhere.
        """
        raw = self.b.convert("fptosi", x, self.integer)
        return self.b.line("freeze", raw.dtype, raw.lanes, (raw,))

    def rint(self, x: Line) -> Line:
        """To the nearest integer, ties to even."""
        return self.b.call("rint", x)

    def power_of_two(self, n: Line) -> Line:
        """2**n for an integer n in the exponent's normal range."""
        bias = (1 << (self.bits - self.mantissa - 2)) - 1
        return self.as_float(self.int_op("shl", self.int_op("add", n, bias), self.mantissa))

    def horner(self, coefficients: Sequence[float], x: Line) -> Line:
        """The polynomial, lowest power first."""
        total = self.f(coefficients[-1])
        for c in reversed(coefficients[:-1]):
            total = self.fma(total, x, c)
        return total

    def single(self) -> bool:
        """Whether this is float32."""
        return self.dtype is dtypes.float32

    def scaled(self, mantissa: Line, n: Line) -> Line:
        """Mantissa * 2**n with n applied in two halves: overflow and denormals round once, at the end."""
        count = self.to_int(n)
        half = self.int_op("ashr", count, 1)
        rest = self.int_op("sub", count, half)
        return self.mul(self.mul(mantissa, self.power_of_two(half)), self.power_of_two(rest))

    def clamped(self, x: Line, low: float, high: float) -> Line:
        """X in [low, high]; NaN stays, because ordered comparisons are false for it."""
        capped = self.where("ogt", x, high, high, x)
        return self.where("olt", capped, low, low, capped)


def _ln2(v: Floats) -> tuple[float, float]:
    """Ln 2 in two words; a small integer times the first is exact."""
    return (
        (0.693145751953125, 1.42860682030941723e-6)
        if v.single()
        else (0.6931471803691238, 1.9082149292705877e-10)
    )


def _exp_reduced(v: Floats, x: Line) -> tuple[Line, Line]:
    """exp(x) as (mantissa, n) with exp(x) = mantissa * 2**n."""
    high, low = _ln2(v)
    n = v.rint(v.mul(x, LOG2E))
    r = v.fma(n, -low, v.fma(n, -high, x))
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


def _log_split(v: Floats, x: Line) -> tuple[Line, Line]:
    """X = (1 + f) * 2**e with 1 + f in [sqrt(1/2), sqrt(2)).

    (f, e as a float). Denormals are scaled first.
    """
    least, shift = (1.1754943508222875e-38, 23) if v.single() else (2.2250738585072014e-308, 52)
    tiny = v.b.cmp("olt", x, v.f(least))
    bits = v.as_int(v.b.select(tiny, v.mul(x, float(1 << shift)), x))
    above = v.int_op("sub", bits, 0x3F3504F3 if v.single() else 0x3FE6A09E667F3BCD)
    e = v.int_op("ashr", above, v.mantissa)
    m = v.as_float(v.int_op("sub", bits, v.int_op("shl", e, v.mantissa)))
    e = v.int_op("sub", e, v.b.select(tiny, v.i(shift), v.i(0)))
    if not v.single():  # narrow integers convert with one instruction everywhere
        e = v.b.convert("trunc", e, dtypes.int32)
    return v.sub(m, 1.0), v.b.convert("sitofp", e, v.dtype)


def _log_specials(v: Floats, x: Line, y: Line) -> Line:
    """The results of +inf, zero, negative numbers and NaN."""
    y = v.where("oeq", x, math.inf, x, y)
    y = v.where("oeq", x, 0.0, -math.inf, y)
    return v.where("ult", x, 0.0, math.nan, y)


def log(b: Builder, x: Line) -> Line:
    """The natural logarithm."""
    v = Floats(b, x.dtype)
    f, e = _log_split(v, x)
    high, low = _ln2(v)
    if v.single():
        z = v.mul(f, f)
        y = v.fma(v.mul(v.horner(LOG_32, f), f), z, v.mul(e, low))
        y = v.fma(e, high, v.add(v.fma(z, -0.5, y), f))
    else:
        half, s, r = _log_double(v, f)
        inner = v.fma(s, v.add(half, r), v.mul(e, low))
        y = v.fma(e, high, v.sub(f, v.sub(half, inner)))
    return _log_specials(v, x, y)


def _log_double(v: Floats, f: Line) -> tuple[Line, Line, Line]:
    """(f*f/2, s, R) with log(1 + f) = f - (f*f/2 - s*(f*f/2 + R)) and s = f / (2 + f)."""
    s = v.div(f, v.add(f, 2.0))
    z = v.mul(s, s)
    return v.mul(v.mul(f, f), 0.5), s, v.mul(z, v.horner(LOG_64, z))


def log2(b: Builder, x: Line) -> Line:
    """The logarithm to base 2; exact for powers of two."""
    v = Floats(b, x.dtype)
    f, e = _log_split(v, x)
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


def sin(b: Builder, x: Line) -> Line:
    """The sine of any argument."""
    v = Floats(b, x.dtype)
    return v.where("oeq", x, 0.0, x, _circle(v, x, quarter=0))


def cos(b: Builder, x: Line) -> Line:
    """The cosine of any argument."""
    return _circle(Floats(b, x.dtype), x, quarter=1)


def _circle(v: Floats, x: Line, *, quarter: int) -> Line:
    r, q = _reduce(v, x)
    if quarter:
        q = v.int_op("add", q, quarter)
    z = v.mul(r, r)
    sine = v.fma(v.mul(v.horner(SIN_32 if v.single() else SIN_64, z), z), r, r)
    fraction = v.horner(COS_32 if v.single() else COS_64, z)
    if v.single():
        cosine = v.fma(fraction, v.mul(z, z), v.fma(z, -0.5, 1.0))
    else:  # 1 - z/2 rounds: give back what it lost
        half = v.mul(z, 0.5)
        one = v.sub(1.0, half)
        cosine = v.add(one, v.fma(v.mul(z, z), fraction, v.sub(v.sub(1.0, one), half)))
    odd = v.b.cmp("ne", v.int_op("and", q, 1), v.i(0))
    y = v.as_int(v.b.select(odd, cosine, sine))
    return v.as_float(v.int_op("xor", y, v.int_op("shl", v.int_op("and", q, 2), v.bits - 2)))


def _reduce(v: Floats, x: Line) -> tuple[Line, Line]:
    """X = q * pi/2 + r with |r| <= pi/4.

    (r, q). Small arguments by three words of pi/2, any others in a branch that rarely runs.
    """
    words = (1.57079637050628662109375, -4.37113900018624283e-8, -1.7151245100058819e-15)
    limit = 1e5
    if not v.single():
        words, limit = (1.5707963267948966, 6.123233995736766e-17, -1.4973849048591833e-33), 1e6
    n = v.rint(v.mul(x, 2 / math.pi))
    r = x
    for word in words:
        r = v.fma(n, -word, r)
    q = v.to_int(n)
    large = v.b.cmp("ogt", v.b.call("fabs", x), v.f(limit))
    runs = v.b.line("any", dtypes.bool, 1, (large,)) if x.lanes > 1 else large
    saved = v.b.cursor
    v.b.cursor = runs.block
    branch = v.b.enter_branch(runs, cold=True)
    far_r, far_q = (_reduce_far_32 if v.single() else _reduce_far_64)(v, x)
    mixed = v.b.select(large, far_r, r), v.b.select(large, far_q, q)
    r, q = v.b.leave_branch(branch, [(mixed[0], r), (mixed[1], q)])
    v.b.cursor = saved
    return r, q


@functools.cache
def two_over_pi(bits: int) -> int:
    """floor(2/pi * 2**bits), by Machin's formula in integers."""
    one = 1 << (bits + 64)

    def arctan_inverse(n: int) -> int:
        term = total = one // n
        k = 1
        while term:
            term //= -n * n
            k += 2
            total += term // k
        return total

    pi = 4 * (4 * arctan_inverse(5) - arctan_inverse(239))
    return (2 * one << bits) // pi


def chunks(width: int, count: int) -> list[int]:
    """The first bits of 2/pi in integers of `width` bits."""
    bits = two_over_pi(width * count)
    return [(bits >> (width * (count - 1 - k))) & ((1 << width) - 1) for k in range(count)]


def _modulo_4(v: Floats, p: Line) -> Line:
    """P - 4 * rint(p / 4), exact at any size."""
    return v.fma(v.rint(v.mul(p, 0.25)), -4.0, p)


def _reduce_far_32(v: Floats, x: Line) -> tuple[Line, Line]:
    """Payne and Hanek in float64.

    24 bits of x times 28 bits of 2/pi is exact, and so is each product modulo 4.
    """
    d = Floats(v.b, dtypes.float64)
    wide = v.b.convert("fpext", x, dtypes.float64)
    parts = [_modulo_4(d, d.mul(wide, c * 2.0 ** (-28 * (k + 1)))) for k, c in enumerate(chunks(28, 7))]
    n = d.rint(functools.reduce(d.add, parts))
    rest = functools.reduce(d.add, parts, d.neg(n))  # leading parts cancel exactly
    r = v.b.convert("fptrunc", d.mul(rest, math.pi / 2), dtypes.float32)
    narrow = v.b.convert("fptosi", n, dtypes.int32)
    return r, v.b.line("freeze", narrow.dtype, narrow.lanes, (narrow,))


def _reduce_far_64(v: Floats, x: Line) -> tuple[Line, Line]:
    """Payne and Hanek.

    Five 53-bit pieces of 2/pi from where x's exponent says, products in two words, summed in two words.
    """
    b = v.b
    exponent = v.int_op("sub", v.int_op("and", v.int_op("lshr", v.as_int(x), 52), 2047), 1023)
    steps = b.convert("sitofp", b.convert("trunc", v.int_op("sub", exponent, 55), dtypes.int32), v.dtype)
    first = b.convert(
        "fptosi", v.where("olt", steps, 0.0, 0.0, b.call("floor", v.mul(steps, 1 / 53))), dtypes.int32
    )
    first = b.convert("sext", b.line("freeze", first.dtype, first.lanes, (first,)), dtypes.int64)
    scaled = v.as_float(v.int_op("sub", v.as_int(x), v.int_op("shl", v.int_op("mul", first, 53), 52)))
    table = b.line("table", POINTER, 1, (), (v.dtype, tuple([float(c) * 2.0**-53 for c in chunks(53, 26)])))
    parts: list[Line] = []
    for k in range(5):
        chunk = _lookup(v, table, v.int_op("add", first, k) if k else first)
        piece = v.mul(chunk, 2.0 ** (-53 * k))
        product = v.mul(scaled, piece)
        parts += [_modulo_4(v, product), _modulo_4(v, v.fma(scaled, piece, v.neg(product)))]
    n = v.rint(functools.reduce(v.add, parts))
    total, error = v.neg(n), v.f(0.0)
    for part in parts:
        total, lost = _two_sum(v, total, part)
        error = v.add(error, lost)
    r = v.add(total, error)
    tail = v.sub(error, v.sub(r, total))
    high = v.mul(r, math.pi / 2)
    low = v.fma(r, math.pi / 2, v.neg(high))
    low = v.fma(tail, math.pi / 2, v.fma(r, 6.123233995736766e-17, low))
    return v.add(v.add(high, low), v.mul(x, 0.0)), v.to_int(n)  # infinity times zero is NaN


def _two_sum(v: Floats, a: Line, b: Line) -> tuple[Line, Line]:
    """A + b and what its rounding lost."""
    s = v.add(a, b)
    t = v.sub(s, a)
    return s, v.add(v.sub(a, v.sub(s, t)), v.sub(b, t))


def _lookup(v: Floats, table: Line, index: Line) -> Line:
    """Elements of a constant table; every index is inside it."""
    b = v.b
    if index.lanes == 1:
        return b.line("load", v.dtype, 1, (b.offset(table, index, v.dtype),))
    return b.line("gather", v.dtype, index.lanes, (table, index, b.const(dtypes.bool, True, index.lanes)))


DECOMPOSITIONS: dict[str, Callable[[Builder, Line], Line]] = {
    "EXP": exp, "EXP2": exp2, "LOG": log, "LOG2": log2, "SIN": sin, "COS": cos, "TANH": tanh,
}  # fmt: skip
