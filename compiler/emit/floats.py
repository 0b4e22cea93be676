"""Float arithmetic on registers, with which decomposed functions are written, and the remainder of division.

`fmod` is C's: x - trunc(x / y) y, exact, with the sign of x. A quotient below 2**23 (float64: 2**52) needs
one division. Its integer part q is at most one too large; x - q y is a multiple of the unit of y and below
|y|, so one fma computes it exactly, and adding y back is exact, too. For larger quotients, which are rare, a
loop subtracts multiples of y by powers of two, as many bits per step.

Not here: instruction selection by operation and dtype (`compiler.emit.isel`), other functions
(`transcendental`, `sincos`, `power`).
"""

# ruff: noqa: D403 - docstrings are formulas

from __future__ import annotations

from typing import TYPE_CHECKING

from compiler.dtype import dtypes
from compiler.ir.uop import round_to

if TYPE_CHECKING:
    from collections.abc import Sequence

    from compiler.dtype import DType
    from compiler.emit.builder import Builder
    from compiler.emit.linear import Line


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
        return self.b.const(self.dtype, round_to(x, self.dtype)) if isinstance(x, float) else x

    def i(self, x: Line | int) -> Line:
        """An integer operand."""
        return self.b.const(self.integer, x) if isinstance(x, int) else x

    def add(self, x: Line | float, y: Line | float) -> Line:
        """x + y."""
        return self.b.alu("fadd", self.f(x), self.f(y))

    def sub(self, x: Line | float, y: Line | float) -> Line:
        """x - y."""
        return self.b.alu("fsub", self.f(x), self.f(y))

    def mul(self, x: Line | float, y: Line | float) -> Line:
        """x * y."""
        return self.b.alu("fmul", self.f(x), self.f(y))

    def div(self, x: Line | float, y: Line | float) -> Line:
        """x / y."""
        return self.b.alu("fdiv", self.f(x), self.f(y))

    def fma(self, x: Line | float, y: Line | float, z: Line | float) -> Line:
        """x * y + z, rounded once."""
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
        """`a` where the comparison of x and y is true, else `b`."""
        return self.b.select(self.b.cmp(predicate, self.f(x), self.f(y)), self.f(a), self.f(b))

    def as_int(self, x: Line) -> Line:
        """The bits of a float."""
        return self.b.convert("bitcast", x, self.integer)

    def as_float(self, x: Line) -> Line:
        """The float with these bits."""
        return self.b.convert("bitcast", x, self.dtype)

    def to_int(self, x: Line) -> Line:
        """An integral float as an integer.

        The result is unspecified for NaN and values out of range, but the same on every target.
        """
        raw = self.b.convert("fptosi", x, self.integer)
        return self.b.line("freeze", raw.dtype, raw.lanes, (raw,))

    def rint(self, x: Line) -> Line:
        """x rounded to the nearest integer, ties to even."""
        return self.b.call("rint", x)

    def power_of_two(self, n: Line) -> Line:
        """2**n for an integer n in the exponent's normal range."""
        bias = (1 << (self.bits - self.mantissa - 2)) - 1
        return self.as_float(self.int_op("shl", self.int_op("add", n, bias), self.mantissa))

    def horner(self, coefficients: Sequence[float], x: Line) -> Line:
        """The polynomial of x with these coefficients, lowest power first, by Horner's scheme."""
        total = self.f(coefficients[-1])
        for c in reversed(coefficients[:-1]):
            total = self.fma(total, x, c)
        return total

    def single(self) -> bool:
        """Whether this is float32."""
        return self.dtype is dtypes.float32

    def scaled(self, mantissa: Line, n: Line) -> Line:
        """mantissa * 2**n, with n in two halves so that overflow and denormals round once, at the end."""
        count = self.to_int(n)
        half = self.int_op("ashr", count, 1)
        rest = self.int_op("sub", count, half)
        return self.mul(self.mul(mantissa, self.power_of_two(half)), self.power_of_two(rest))

    def clamped(self, x: Line, low: float, high: float) -> Line:
        """x limited to [low, high]; NaN stays NaN, because ordered comparisons are false for it."""
        capped = self.where("ogt", x, high, high, x)
        return self.where("olt", capped, low, low, capped)


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

    def up(_: Line, carried: list[Line]) -> list[Line]:
        larger = v.mul(carried[0], scale)
        return [v.where("ole", larger, x, larger, carried[0])]

    def down(_: Line, carried: list[Line]) -> list[Line]:
        smaller = v.mul(carried[1], 1 / scale)
        return [_once(v, *carried)[0], v.where("ogt", smaller, y, smaller, y)]

    (part,) = b.repeat(b.index(0), b.index(rounds), [y], up)
    return b.repeat(b.index(0), b.index(rounds + 1), [x, part], down)[0]


def fmod(b: Builder, x: Line, y: Line) -> Line:
    """Return the remainder of float32 or float64 registers; NaN for infinite x and for zero y."""
    v = Floats(b, x.dtype)
    x, y = b.level((x, y))
    dividend, divisor = b.call("fabs", x), b.call("fabs", y)
    rest, quotient = _once(v, dividend, divisor)
    step, rounds = (23, 13) if v.single() else (52, 41)  # 2**277 and 2**2098 are the largest quotients
    far = b.cmp("oge", quotient, v.f(2.0**step))
    near = rest

    def inside() -> list[Line]:
        return [b.select(far, _far(v, dividend, divisor, step, rounds), near)]

    (rest,) = b.rarely(far, [near], inside)
    return b.call("copysign", rest, x)
