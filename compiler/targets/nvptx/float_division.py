"""Division of floats by multiplications, for targets where LLVM's division is a library call.

Quotients are correctly rounded (nearest, ties to even; subnormals, infinities, NaNs and signed zeros as IEEE
754 has them) for every start value within the bound that PTX documents: `rcp.approx.ftz.f32` has an error of
at most one unit of the last place. (tests/compiler/test_division.py tests both ends of the bound and values
beyond it.) Let p be the digits of the format (24, 53), and significands x, y scaled so that 1 <= y < 2 and
1 <= t = x / y < 2: results then have the unit u = 2**(1 - p).

**Rounding by the residual** (float64, and float32 outside the ranges of `divide_float32`). A bias of eight
units places r = (1 - e) / y below 1 / y, so 0 < e < 2**-19.4. q = x r rounds once, below t < 2, by u/2 at
most; a = q + q (e + e**2) is then t (1 - e**3) within u/2 + u/2 and 2 e**3 < u/30 more: |a - t| < 1.04 u.
(float32 leaves out e**2, which is less than u/1000 there.) The residual d = x - a y is exact where it
matters: it is a multiple of u**2/4 and |d| <= 2 |a - t|, so it fits p digits for |a - t| <= u/2 (1 + 2**-p);
further out its rounding cannot change the result of the comparison. t is closer to a neighbour of a exactly
when |d| > y u/2 (never equal: the quotient of two numbers of p digits is no midpoint of p digits), and then
one step towards d's sign is right. When t is 1, a may be the number below 1, which is half a step: the
comparison is an equality, and takes the step.

**Rounding by a multiplication** (float32 in the ranges of `divide_float32`). r is 1/y within (1/2 + h) of its
unit after one Newton step, h < 2**-19; q1 is within half a unit and 2**-22 of t; d = x - q1 y is exact;
q = q1 + d r differs from t by |t - q1| |1 - y r| before its one rounding. With Y = 2**(p-1) y an integer, t
is at least 1/(2Y) of a unit away from every midpoint, so q rounds as t does if |1 - y r| < 1/(Y + 1), which
is Y (Y + 1) (1 + 2h) < 2**2p: true for Y < 2**24 - 63. (This is Markstein's theorem, extended to the error h
of r.) Other y use the first method.

**Subnormal quotients** are rounded once: to 4 m plus the sign of the residual of the correctly rounded m,
which orders it against every coarser midpoint, and from there by integer arithmetic.

Not here: integers (`int_division`), square roots (`sqrt`). Next: `expansion`, the result type; `target`,
the user.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

from compiler.targets.nvptx.expansion import RECIPROCAL, RECIPROCAL_DECLARED, Expansion, number


@dataclass(frozen=True, slots=True)
class Format:
    """A binary floating-point format, with its names in LLVM IR."""

    name: str
    """LLVM's type."""
    suffix: str
    """The format's suffix of intrinsics."""
    word: str
    """The integer type of its bits."""
    digits: int
    """Digits of the significand, with the leading one."""
    bias: int
    """The number that the bits of the exponent of 1.0 hold."""

    @property
    def fraction(self) -> int:
        """The number of bits below the exponent."""
        return self.digits - 1

    @property
    def one(self) -> int:
        """The bits of 1.0."""
        return self.bias << self.fraction

    @property
    def infinity(self) -> int:
        """The bits of infinity, which are all bits of the exponent."""
        return (2 * self.bias + 1) << self.fraction

    @property
    def mask(self) -> int:
        """All fraction bits."""
        return (1 << self.fraction) - 1

    @property
    def sign(self) -> int:
        """The sign bit, as LLVM prints it: negative."""
        return -(1 << int(self.word[1:]) - 1)

    def fma(self, a: str, b: str, c: str) -> str:
        """Return the instruction for a * b + c, rounded once."""
        t = self.name
        return f"call {t} @llvm.fma.{self.suffix}({t} {a}, {t} {b}, {t} {c})"

    @property
    def declared(self) -> str:
        """The declarations of the functions that the IR text calls."""
        t = self.name
        return f"declare {t} @llvm.fma.{self.suffix}({t}, {t}, {t})\n{RECIPROCAL_DECLARED}"


FLOAT32 = Format("float", "f32", "i32", 24, 127)
FLOAT64 = Format("double", "f64", "i64", 53, 1023)


def _operand(f: Format, name: str, lifted: int) -> str:
    """Return the text of a magnitude with a leading one: subnormals are multiplied by 2**lifted."""
    w, t = f.word, f.name
    return f"""
  %{name}.low = icmp ult {w} %{name}.mag, {1 << f.fraction}
  %{name}.float = bitcast {w} %{name}.mag to {t}
  %{name}.up = fmul {t} %{name}.float, {number(2.0**lifted)}
  %{name}.upbits = bitcast {t} %{name}.up to {w}
  %{name}.norm = select i1 %{name}.low, {w} %{name}.upbits, {w} %{name}.mag
  %{name}.exp = lshr {w} %{name}.norm, {f.fraction}
  %{name}.lift = select i1 %{name}.low, {w} {lifted}, {w} 0"""


def _start(f: Format, s: str) -> str:
    """Return the text of %r, an approximate reciprocal of %sy, biased downwards, and of %e2, its correction.

    With e = 1 - y r, %e2 is e for float32 and e + e**2 for float64.
    """
    nsy = f"%nsy{s}"
    head = f"  {nsy} = fneg {f.name} %sy{s}"
    if f is FLOAT32:
        return f"""{head}
  %r0{s} = {RECIPROCAL}(float %sy{s})
  %r0bits{s} = bitcast float %r0{s} to i32
  %rbits{s} = add i32 %r0bits{s}, -8
  %r{s} = bitcast i32 %rbits{s} to float
  %e2{s} = {f.fma(nsy, f"%r{s}", "1.0")}"""
    return f"""{head}
  %cut{s} = lshr i64 %sybits{s}, 29
  %narrow{s} = trunc i64 %cut{s} to i32
  %moved{s} = and i32 %narrow{s}, 8388607
  %ybits32{s} = or i32 %moved{s}, 1065353216
  %y32{s} = bitcast i32 %ybits32{s} to float
  %r0{s} = {RECIPROCAL}(float %y32{s})
  %r0bits{s} = bitcast float %r0{s} to i32
  %r0wide{s} = zext i32 %r0bits{s} to i64
  %r0high{s} = shl i64 %r0wide{s}, 29
  %rbits{s} = add i64 %r0high{s}, {(896 << 52) - (8 << 29)}
  %r{s} = bitcast i64 %rbits{s} to double
  %e{s} = {f.fma(nsy, f"%r{s}", "1.0")}
  %e2{s} = {f.fma(f"%e{s}", f"%e{s}", f"%e{s}")}"""


def _significands(f: Format, s: str, x: str, y: str) -> str:
    """Return the text of %qbits: the quotient of the significands of the words x and y, in [1, 2), rounded.

    %below is set if x was doubled to reach that range; %sx is the scaled significand of x, %nsy the negative
    one of y.
    """
    t, w = f.name, f.word
    return f"""
  %xfrac{s} = and {w} {x}, {f.mask}
  %yfrac{s} = and {w} {y}, {f.mask}
  %below{s} = icmp ult {w} %xfrac{s}, %yfrac{s}
  %unit{s} = select i1 %below{s}, {w} {f.one + (1 << f.fraction)}, {w} {f.one}
  %sxbits{s} = or {w} %xfrac{s}, %unit{s}
  %sybits{s} = or {w} %yfrac{s}, {f.one}
  %sx{s} = bitcast {w} %sxbits{s} to {t}
  %sy{s} = bitcast {w} %sybits{s} to {t}
{_start(f, s)}
  %q0{s} = fmul {t} %sx{s}, %r{s}
  %a{s} = {f.fma(f"%q0{s}", f"%e2{s}", f"%q0{s}")}
  %d{s} = {f.fma(f"%nsy{s}", f"%a{s}", f"%sx{s}")}
  %dbits{s} = bitcast {t} %d{s} to {w}
  %dmag{s} = and {w} %dbits{s}, {-f.sign - 1}
  %half{s} = sub {w} %sybits{s}, {f.digits << f.fraction}
  %off{s} = icmp uge {w} %dmag{s}, %half{s}
  %down{s} = icmp slt {w} %dbits{s}, 0
  %step{s} = select i1 %down{s}, {w} -1, {w} 1
  %take{s} = select i1 %off{s}, {w} %step{s}, {w} 0
  %abits{s} = bitcast {t} %a{s} to {w}
  %qbits{s} = add {w} %abits{s}, %take{s}"""


def _encoded(f: Format) -> str:
    """Return the text of %mag: the quotient with its exponent, rounded by its residual if it is subnormal."""
    t, w, fraction = f.name, f.word, f.fraction
    return f"""
  %less = zext i1 %below to {w}
  %exp0 = sub {w} %x.exp, %y.exp
  %exp1 = add {w} %exp0, %y.lift
  %exp2 = sub {w} %exp1, %x.lift
  %exp = sub {w} %exp2, %less
  %place = shl {w} %exp, {fraction}
  %ordinary = add {w} %qbits, %place
  %q = bitcast {w} %qbits to {t}
  %rest = {f.fma("%nsy", "%q", "%sx")}
  %over = fcmp ogt {t} %rest, 0.0
  %under = fcmp olt {t} %rest, 0.0
  %upper = zext i1 %over to {w}
  %lower = sext i1 %under to {w}
  %cutfrac = and {w} %qbits, {f.mask}
  %whole = or {w} %cutfrac, {1 << fraction}
  %fine = shl {w} %whole, 2
  %fine1 = add {w} %fine, %upper
  %fine2 = add {w} %fine1, %lower
  %far = sub {w} {3 - f.bias}, %exp
  %far1 = call {w} @llvm.smax.{w}({w} %far, {w} 3)
  %drop = call {w} @llvm.smin.{w}({w} %far1, {w} {f.digits + 3})
  %kept = lshr {w} %fine2, %drop
  %even = and {w} %kept, 1
  %last = sub {w} %drop, 1
  %halfway = shl {w} 1, %last
  %fine3 = add {w} %fine2, %halfway
  %fine4 = add {w} %fine3, %even
  %fine5 = sub {w} %fine4, 1
  %subnormal = lshr {w} %fine5, %drop
  %small = icmp sle {w} %exp, {-f.bias}
  %large = icmp sgt {w} %exp, {f.bias}
  %finite = select i1 %small, {w} %subnormal, {w} %ordinary
  %mag = select i1 %large, {w} {f.infinity}, {w} %finite"""


def _special(f: Format) -> str:
    """Return the text of %slow: %mag with its sign, or the result for zeros, infinities and NaNs."""
    t, w, infinity = f.name, f.word, f.infinity
    quiet = 1 << f.fraction - 1
    return f"""
  %x.nan = icmp ugt {w} %x.mag, {infinity}
  %y.nan = icmp ugt {w} %y.mag, {infinity}
  %x.inf = icmp eq {w} %x.mag, {infinity}
  %y.inf = icmp eq {w} %y.mag, {infinity}
  %x.zero = icmp eq {w} %x.mag, 0
  %y.zero = icmp eq {w} %y.mag, 0
  %zero = or i1 %x.zero, %y.inf
  %infinite = or i1 %x.inf, %y.zero
  %nan0 = or i1 %x.nan, %y.nan
  %nan1 = and i1 %zero, %infinite
  %nan = or i1 %nan0, %nan1
  %mag1 = select i1 %zero, {w} 0, {w} %mag
  %mag2 = select i1 %infinite, {w} {infinity}, {w} %mag1
  %mag3 = select i1 %nan, {w} {infinity | quiet}, {w} %mag2
  %differ = xor {w} %bx, %by
  %minus = and {w} %differ, {f.sign}
  %signed = or {w} %mag3, %minus
  %slow = bitcast {w} %signed to {t}"""


def _any_operands(f: Format) -> str:
    """Return the block `cold`, which computes %slow, the quotient of any operands, without a branch."""
    w, lifted = f.word, f.digits + f.digits % 2
    operands = _operand(f, "x", lifted) + _operand(f, "y", lifted)
    quotient = _significands(f, "", "%x.norm", "%y.norm") + _encoded(f)
    return f"""
cold:
  %x.mag = and {w} %bx, {-f.sign - 1}
  %y.mag = and {w} %by, {-f.sign - 1}{operands}{quotient}{_special(f)}
  br label %done"""


def _declared(f: Format) -> str:
    w = f.word
    return f"""{f.declared}
declare {w} @llvm.smax.{w}({w}, {w})
declare {w} @llvm.smin.{w}({w}, {w})
"""


@functools.cache
def divide_float32() -> Expansion:
    """Return the expansion of x / y; ordinary operands take eight multiplications and no scaling.

    Operands are ordinary if y and 1/y are normal, the significand of y is not among the last 64, |x| is at
    least 2**-101 or x is +0, and the quotient is from 2**-125 to 2**126.
    """
    f, e = FLOAT32, 1 << 23
    return Expansion(f"""{_declared(f)}
  %bx = bitcast float %x to i32
  %by = bitcast float %y to i32
  %ex = and i32 %bx, {f.infinity}
  %ey = and i32 %by, {f.infinity}
  %x.off = sub i32 %ex, {26 * e}
  %x.in = icmp ult i32 %x.off, {229 * e}
  %y.off = sub i32 %ey, {e}
  %y.in = icmp ult i32 %y.off, {252 * e}
  %gap = sub i32 %ex, %ey
  %gap.off = add i32 %gap, {124 * e}
  %gap.in = icmp ult i32 %gap.off, {250 * e}
  %sized = and i1 %x.in, %gap.in
  %none = icmp eq i32 %bx, 0
  %x.fit = or i1 %sized, %none
  %y.frac = and i32 %by, {f.mask}
  %y.inside = icmp ult i32 %y.frac, {f.mask - 63}
  %y.fit = and i1 %y.in, %y.inside
  %fit = and i1 %x.fit, %y.fit
  br i1 %fit, label %quick, label %cold
quick:
  %ny = fneg float %y
  %s0 = {RECIPROCAL}(float %y)
  %s1 = {f.fma("%ny", "%s0", "1.0")}
  %s = {f.fma("%s0", "%s1", "%s0")}
  %p0 = fmul float %x, %s
  %g0 = {f.fma("%ny", "%p0", "%x")}
  %p1 = {f.fma("%g0", "%s", "%p0")}
  %g1 = {f.fma("%ny", "%p1", "%x")}
  %p = {f.fma("%g1", "%s", "%p1")}
  br label %done{_any_operands(f)}
done:
  %result = phi float [ %p, %quick ], [ %slow, %cold ]
""")


@functools.cache
def divide_float64() -> Expansion:
    """Return the expansion of x / y; operands and quotients of ordinary size take five multiplications."""
    f, e = FLOAT64, 1 << 52
    return Expansion(f"""{_declared(f)}
  %bx = bitcast double %x to i64
  %by = bitcast double %y to i64
  %ex = and i64 %bx, {f.infinity}
  %ey = and i64 %by, {f.infinity}
  %x.off = sub i64 %ex, {e}
  %x.in = icmp ult i64 %x.off, {2046 * e}
  %y.off = sub i64 %ey, {e}
  %y.in = icmp ult i64 %y.off, {2046 * e}
  %gap = sub i64 %ex, %ey
  %gap.off = add i64 %gap, {1021 * e}
  %gap.in = icmp ult i64 %gap.off, {2044 * e}
  %both = and i1 %x.in, %y.in
  %fit = and i1 %both, %gap.in
  br i1 %fit, label %quick, label %cold
quick:{_significands(f, ".q", "%bx", "%by")}
  %own = select i1 %below.q, i64 {-e}, i64 0
  %lift = add i64 %gap, %own
  %magnitude = add i64 %qbits.q, %lift
  %apart = xor i64 %bx, %by
  %negative = and i64 %apart, {f.sign}
  %pbits = or i64 %magnitude, %negative
  %p = bitcast i64 %pbits to double
  br label %done{_any_operands(f)}
done:
  %result = phi double [ %p, %quick ], [ %slow, %cold ]
""")
