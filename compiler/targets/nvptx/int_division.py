"""Division of 64-bit integers by multiplications, for targets where LLVM's division is a library call.

It is exact for every divisor except zero, which the caller handles, and for any start value within the bound
of PTX's `rcp.approx.ftz.f32`. Operands below 2**32 use the 32-bit instruction. For others, with B = 2**64 / y
and r an integer below B, Newton's step r' = r + floor(r (2**64 - r y) / 2**64) is not below r and stays below
B, and its error f = B - r becomes f' < f**2 / B + 1. The start value lies below B (1 - 2**-21) and less than
B 2**-19 + 1 below B, so after two steps f < 2 for B >= 8; for B < 8 this holds from the start. floor(x r /
2**64) is then the quotient, or one or two less, and two corrections make it exact.

Signed division divides the magnitudes and sets the sign, so it rounds towards zero; the smallest integer
divided by -1 wraps.

Not here: floats (`float_division`). Next: `expansion`, the result type; `target`, the user.
"""

from __future__ import annotations

import functools

from compiler.targets.nvptx.expansion import RECIPROCAL, RECIPROCAL_DECLARED, Expansion, number

_BIASED = number((1 - 2.0**-20) * 2.0**64)


def _high(a: str, b: str, result: str) -> str:
    """Return the text of the upper half of a product."""
    return f"""
  %{result}.a = zext i64 {a} to i128
  %{result}.b = zext i64 {b} to i128
  %{result}.ab = mul i128 %{result}.a, %{result}.b
  %{result}.up = lshr i128 %{result}.ab, 64
  %{result} = trunc i128 %{result}.up to i64"""


def _step(r: str, result: str) -> str:
    """Return the text of a Newton step for the reciprocal of %b."""
    return f"""
  %{result}.rb = mul i64 {r}, %b
  %{result}.miss = sub i64 0, %{result}.rb{_high(r, f"%{result}.miss", f"{result}.more")}
  %{result} = add i64 {r}, %{result}.more"""


def _correction(quotient: str, rest: str, s: str) -> str:
    """Return the text that adds 1 to the quotient if the remainder is not below the divisor."""
    return f"""
  %{s}.holds = icmp uge i64 {rest}, %b
  %{s}.next = add i64 {quotient}, 1
  %{s}.left = sub i64 {rest}, %b
  %{s} = select i1 %{s}.holds, i64 %{s}.next, i64 {quotient}
  %{s}.rest = select i1 %{s}.holds, i64 %{s}.left, i64 {rest}"""


_MAGNITUDES = f"""
  %any = or i64 %a, %b
  %top = lshr i64 %any, 32
  %small = icmp eq i64 %top, 0
  br i1 %small, label %short, label %long
short:
  %a32 = trunc i64 %a to i32
  %b32 = trunc i64 %b to i32
  %q32 = udiv i32 %a32, %b32
  %q.short = zext i32 %q32 to i64
  br label %done
long:
  %bf = uitofp i64 %b to float
  %rf = {RECIPROCAL}(float %bf)
  %rs = fmul float %rf, {_BIASED}
  %r0 = fptoui float %rs to i64{_step("%r0", "r1")}{_step("%r1", "r2")}{_high("%a", "%r2", "q0")}
  %back = mul i64 %q0, %b
  %rest = sub i64 %a, %back{_correction("%q0", "%rest", "q1")}{_correction("%q1", "%q1.rest", "q2")}
  br label %done
done:"""
"""The text of %a / %b: the quotient is %q.short from the block `short`, or %q2 from the block `long`."""

_PHI = "phi i64 [ %q.short, %short ], [ %q2, %long ]"


@functools.cache
def divide_unsigned() -> Expansion:
    """Return the expansion of x / y for unsigned i64."""
    return Expansion(f"""{RECIPROCAL_DECLARED}
  %a = add i64 %x, 0
  %b = add i64 %y, 0{_MAGNITUDES}
  %result = {_PHI}
""")


@functools.cache
def divide_signed() -> Expansion:
    """Return the expansion of x / y for signed i64, rounded towards zero."""
    return Expansion(f"""{RECIPROCAL_DECLARED}
declare i64 @llvm.abs.i64(i64, i1)
  %a = call i64 @llvm.abs.i64(i64 %x, i1 false)
  %b = call i64 @llvm.abs.i64(i64 %y, i1 false){_MAGNITUDES}
  %q = {_PHI}
  %apart = xor i64 %x, %y
  %minus = icmp slt i64 %apart, 0
  %opposite = sub i64 0, %q
  %result = select i1 %minus, i64 %opposite, i64 %q
""")
