"""Square roots by multiplications, for targets where LLVM's square root is a library call.

They are correctly rounded (nearest, ties to even) for every start value within the bound that PTX
documents: `rsqrt.approx.ftz.f32` has a relative error of at most 2**-22.9. (tests/compiler/test_division.py
tests both ends of the bound and values beyond it.)

**float64.** The argument is scaled by an even power of two to 1 <= m < 4, so that 1 <= t = sqrt(m) < 2 and
results have the unit u = 2**-52. With y0 = (1 + c) / t, |c| < 2**-21, the product s = m y0 is rounded once;
e = 1 - s y0, and g = s + s e (1/2 + 3/8 e) is t within 5/16 e**3 and half of the rounding of s, then rounded
itself: |g - t| < u + u/100. The residual d = m - g**2 is exact where it matters: it is a multiple of u**2,
and |d| <= 2 |g - t| t fits 53 digits for |g - t| <= u/2 (1 + 2**-53); further out its rounding cannot
change the result of the comparison. t > g + u/2 exactly when d > g u + u**2 / 4, which for multiples of u**2
is d > g u, and t < g - u/2 exactly when -d >= g u; one step then gives the nearest. (t is no midpoint: its
square would have too many digits. g may reach 2 from below, where a step down is u as well; for m = 1 it may
be the number below 1, and the comparison takes the step back.)

**float32.** Arguments below 2**-96 are scaled by 2**80. One step corrects root and inverse together, a
residual step rounds. That the result is the nearest number is not proved but tested, for every
significand and both parities of the exponent, with every start value within twice the bound.

Not here: division (`float_division`). Next: `expansion`, the result type; `target`, the user.
"""

from __future__ import annotations

import functools

from compiler.targets.nvptx.expansion import ROOT, ROOT_DECLARED, Expansion, number
from compiler.targets.nvptx.float_division import FLOAT32, FLOAT64


@functools.cache
def root_float32() -> Expansion:
    """Return the expansion of the square root of x."""
    f = FLOAT32
    return Expansion(f"""{f.declared}
{ROOT_DECLARED}
  %tiny = fcmp olt float %x, {number(2.0**-96)}
  %up = select i1 %tiny, float {number(2.0**80)}, float 1.0
  %m = fmul float %x, %up
  %inverse = {ROOT}(float %m)
  %h0 = fmul float %inverse, 0.5
  %g0 = fmul float %m, %inverse
  %ng0 = fneg float %g0
  %r = {f.fma("%ng0", "%h0", "0.5")}
  %g1 = {f.fma("%g0", "%r", "%g0")}
  %h1 = {f.fma("%h0", "%r", "%h0")}
  %ng1 = fneg float %g1
  %d = {f.fma("%ng1", "%g1", "%m")}
  %g = {f.fma("%d", "%h1", "%g1")}
  %down = select i1 %tiny, float {number(2.0**-40)}, float 1.0
  %root = fmul float %g, %down
  %zero = fcmp oeq float %x, 0.0
  %infinite = fcmp oeq float %x, 0x7FF0000000000000
  %itself = or i1 %zero, %infinite
  %result = select i1 %itself, float %x, float %root
""")


@functools.cache
def root_float64() -> Expansion:
    """Return the expansion of the square root of x."""
    f, sign = FLOAT64, 1 << 63
    return Expansion(f"""{f.declared}
{ROOT_DECLARED}
  %bits = bitcast double %x to i64
  %from = sub i64 %bits, {1 << 52}
  %normal = icmp ult i64 %from, {2046 << 52}
  br i1 %normal, label %done, label %odd
odd:
  %lifted = fmul double %x, {number(2.0**54)}
  %lifted.bits = bitcast double %lifted to i64
  %negative = fcmp olt double %x, 0.0
  %nothing = fcmp oeq double %x, 0.0
  %beyond = fcmp uge double %x, 0x7FF0000000000000
  %special.a = or i1 %negative, %nothing
  %special.b = or i1 %special.a, %beyond
  %value = select i1 %negative, double 0x7FF8000000000000, double %x
  br label %done
done:
  %b = phi i64 [ %bits, %here ], [ %lifted.bits, %odd ]
  %lift = phi i64 [ 0, %here ], [ {27 << 52}, %odd ]
  %special = phi i1 [ false, %here ], [ %special.b, %odd ]
  %other = phi double [ %x, %here ], [ %value, %odd ]
  %parity = xor i64 %b, {1 << 52}
  %low = and i64 %parity, {(1 << 53) - 1}
  %mbits = add i64 %low, {f.one}
  %m = bitcast i64 %mbits to double
  %cut = lshr i64 %low, 29
  %narrow = trunc i64 %cut to i32
  %m32bits = add i32 %narrow, {FLOAT32.one}
  %m32 = bitcast i32 %m32bits to float
  %y32 = {ROOT}(float %m32)
  %y32bits = bitcast float %y32 to i32
  %ywide = zext i32 %y32bits to i64
  %yhigh = shl i64 %ywide, 29
  %ybits = add i64 %yhigh, {896 << 52}
  %y0 = bitcast i64 %ybits to double
  %s = fmul double %m, %y0
  %ns = fneg double %s
  %e = {f.fma("%ns", "%y0", "1.0")}
  %p = {f.fma("%e", "0.375", "0.5")}
  %se = fmul double %s, %e
  %g = {f.fma("%se", "%p", "%s")}
  %ng = fneg double %g
  %d = {f.fma("%ng", "%g", "%m")}
  %gbits = bitcast double %g to i64
  %limit = sub i64 %gbits, {52 << 52}
  %dbits = bitcast double %d to i64
  %dmag = and i64 %dbits, {sign - 1}
  %dsign = lshr i64 %dbits, 63
  %past = add i64 %dmag, %dsign
  %off = icmp ugt i64 %past, %limit
  %down = icmp slt i64 %dbits, 0
  %step = select i1 %down, i64 -1, i64 1
  %take = select i1 %off, i64 %step, i64 0
  %root = add i64 %gbits, %take
  %apart = sub i64 %b, %mbits
  %half = ashr i64 %apart, 1
  %placed = add i64 %root, %half
  %final = sub i64 %placed, %lift
  %ordinary = bitcast i64 %final to double
  %result = select i1 %special, double %other, double %ordinary
""")
