"""sin and cos of any argument as plain arithmetic in the linear form, for float32 and float64, strict.

Small arguments are reduced by three words of pi/2. Large ones are reduced, in a branch that rarely runs, by
as many bits of 2/pi as their exponent requires (Payne and Hanek). Not here: other functions, and the text on
the polynomials and the asserted errors (`transcendental`). Next: `transcendental`, whose table lists these
functions.
"""

# ruff: noqa: D403 - docstrings are formulas

from __future__ import annotations

import functools
import math
from typing import TYPE_CHECKING

from compiler.dtype import dtypes
from compiler.emit.floats import Floats
from compiler.emit.linear import POINTER

if TYPE_CHECKING:
    from compiler.emit.builder import Builder
    from compiler.emit.linear import Line

SIN_32 = (-0.16666655242443085, 0.008332187309861183, -0.00019517895998433232)
COS_32 = (0.04166664555668831, -0.0013887309469282627, 2.4432327336398885e-05)
SIN_64 = (
    -0.1666666666666663, 0.00833333333332184, -0.00019841269829358525, 2.755731353851222e-06,
    -2.5050734388872805e-08, 1.589543327561661e-10,
)  # fmt: skip
COS_64 = (
    0.041666666666666595, -0.0013888888888873307, 2.480158728896523e-05, -2.755731420307947e-07,
    2.0875703139551372e-09, -1.1358617002603869e-11,
)  # fmt: skip


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
    else:  # 1 - z/2 rounds: add its error
        half = v.mul(z, 0.5)
        one = v.sub(1.0, half)
        cosine = v.add(one, v.fma(v.mul(z, z), fraction, v.sub(v.sub(1.0, one), half)))
    odd = v.b.cmp("ne", v.int_op("and", q, 1), v.i(0))
    y = v.as_int(v.b.select(odd, cosine, sine))
    return v.as_float(v.int_op("xor", y, v.int_op("shl", v.int_op("and", q, 2), v.bits - 2)))


def _reduce(v: Floats, x: Line) -> tuple[Line, Line]:
    """x = q * pi/2 + r with |r| <= pi/4.

    The result is (r, q). Large arguments are reduced in a branch that rarely runs.
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
    near = r, q

    def inside() -> list[Line]:
        far = (_reduce_far_32 if v.single() else _reduce_far_64)(v, x)
        return [v.b.select(large, x, y) for x, y in zip(far, near, strict=True)]

    r, q = v.b.rarely(large, near, inside)
    return r, q


@functools.cache
def two_over_pi(bits: int) -> int:
    """Return floor(2/pi * 2**bits), by Machin's formula in integers."""
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
    """Return the first bits of 2/pi as `count` integers of `width` bits."""
    bits = two_over_pi(width * count)
    return [(bits >> (width * (count - 1 - k))) & ((1 << width) - 1) for k in range(count)]


def _modulo_4(v: Floats, p: Line) -> Line:
    """p - 4 * rint(p / 4), exact at any size."""
    return v.fma(v.rint(v.mul(p, 0.25)), -4.0, p)


def _reduce_far_32(v: Floats, x: Line) -> tuple[Line, Line]:
    """Reduce by Payne and Hanek's method in float64; return (r, q).

    The product of 24 bits of x and 28 bits of 2/pi is exact, and so is each product modulo 4.
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
    """Reduce by Payne and Hanek's method; return (r, q).

    The exponent of x selects five 53-bit pieces of 2/pi; products and their sum are in two words.
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
    """Return a + b and its rounding error."""
    s = v.add(a, b)
    t = v.sub(s, a)
    return s, v.add(v.sub(a, v.sub(s, t)), v.sub(b, t))


def _lookup(v: Floats, table: Line, index: Line) -> Line:
    """Return elements of a constant table; every index must be inside it."""
    b = v.b
    if index.lanes == 1:
        return b.line("load", v.dtype, 1, (b.offset(table, index, v.dtype),))
    return b.line("gather", v.dtype, index.lanes, (table, index, b.const(dtypes.bool, True, index.lanes)))
