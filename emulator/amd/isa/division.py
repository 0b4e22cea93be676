"""The steps of a division: v_div_scale scales operands, v_div_fmas does the last step, v_div_fixup special cases.

Sources: RDNA3, RDNA4 and CDNA3 ISA documents, pseudo-code of these operations. Not here: reciprocals
(`vector_floats`). Next: `meanings`, how an operation is defined.
"""

# ruff: noqa: E501 - summaries that name their parameters read best on one line

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from emulator.amd.isa.instruction import VCC, Reg
from emulator.amd.isa.meanings import meaning
from emulator.amd.isa.vector_floats import each, ldexp
from emulator.ir import numeric
from emulator.ir.ir_text import bits_of

if TYPE_CHECKING:
    from emulator.amd.isa.values import IsaTranslator
    from emulator.ir.vector import IrValue

# Width of a float -> bits of its mantissa, and of its exponent.
_MANTISSA = {16: 10, 32: 23, 64: 52}
_EXPONENT = {16: 5, 32: 8, 64: 11}


def _exponent(t: IsaTranslator, a: IrValue) -> IrValue:
    """Return the biased exponents of floats, as i32."""
    c, bits = t.c, bits_of(a.type)
    field = c.op("lshr", c.as_int(a), _MANTISSA[bits])
    return c.resize(c.op("and", field, (1 << _EXPONENT[bits]) - 1), 32)


def _subnormal(t: IsaTranslator, a: IrValue) -> IrValue:
    c = t.c
    return c.op("and", c.icmp("eq", _exponent(t, a), 0), c.fcmp("one", a, c.fconst(a.type, 0.0)))


@meaning("v_div_scale_f32", "v_div_scale_f64")
def _div_scale(t: IsaTranslator) -> None:
    """Scale an operand so that the steps neither overflow nor lose bits; the mask has the lanes to scale back."""
    c, type_ = t.c, t.stem[-3:]
    d, flag, *rest = t.instruction.operands
    s0, s1, s2 = (t.source(o, type_, k) for k, o in enumerate(rest))
    pair = f"{{ {s0.type}, {t.lib.mask} }}"
    both = t.called(f"div_scale.{type_}", pair, _scaled, s0, s1, s2)
    t.finish(d, c.let(s0.type, f"extractvalue {both}, 0"))
    t.set_mask(flag, c.mask_lanes(c.let(t.lib.mask, f"extractvalue {both}, 1")))


def _scaled(t: IsaTranslator, s0: IrValue, s1: IrValue, s2: IrValue) -> IrValue:
    """Return a structure: the scaled operand, and an integer mask of the lanes whose quotient is scaled back.

    `s0` is the operand to scale: the denominator `s1`, or the numerator `s2`.
    """
    c = t.c
    wide = bits_of(s0.type) == 64
    shift, apart, tiny = (128, 768, 53) if wide else (64, 96, 23)
    zero, one = c.fconst(s0.type, 0.0), c.fconst(s0.type, 1.0)
    up, down = (ldexp(t, s0, c.const(t.v("i32"), s)) for s in (shift, -shift))
    of_denominator = c.icmp("eq", c.as_int(s0), c.as_int(s1))
    of_numerator = c.icmp("eq", c.as_int(s0), c.as_int(s2))
    either_zero = c.op("or", c.fcmp("oeq", s1, zero), c.fcmp("oeq", s2, zero))
    far = c.icmp("sge", c.op("sub", _exponent(t, s2), _exponent(t, s1)), apart)
    small_denominator = _subnormal(t, s1)
    small_inverse = _subnormal(t, c.op("fdiv", one, s1))
    small_quotient = _subnormal(t, c.op("fdiv", s2, s1))
    tiny_numerator = c.icmp("sle", _exponent(t, s2), tiny)
    value = c.select(tiny_numerator, up, s0)
    value = c.select(small_quotient, c.select(of_numerator, up, s0), value)
    value = c.select(small_inverse, down, value)
    value = c.select(c.op("and", small_inverse, small_quotient), c.select(of_denominator, down, s0), value)
    value = c.select(small_denominator, up, value)
    value = c.select(far, c.select(of_denominator, up, s0), value)
    value = c.select(either_zero, c.fconst(s0.type, math.nan), value)
    scaled = c.op("or", far, c.op("and", small_quotient, c.not_(small_denominator)))
    mask = c.mask_bits(c.op("and", scaled, c.not_(either_zero)))
    pair = f"{{ {s0.type}, {mask.type} }}"
    first = c.let(pair, f"insertvalue {pair} poison, {value}, 0")
    return c.let(pair, f"insertvalue {first}, {mask}, 1")


@meaning("v_div_fmas_f32", "v_div_fmas_f64")
def _div_fmas(t: IsaTranslator) -> None:
    """Multiply and add; in the lanes of VCC scale the result: up if the last source is large, down if small."""
    c, type_ = t.c, t.stem[-3:]
    d, *rest = t.instruction.operands
    a, b, e = (t.source(o, type_, k) for k, o in enumerate(rest))
    scale_back = c.mask_bits(t.condition(Reg("s", VCC, t.lanes // 32)))
    t.finish(d, t.called(f"div_fmas.{type_}", a.type, _sum_scaled_back, a, b, e, scale_back))


def _sum_scaled_back(t: IsaTranslator, a: IrValue, b: IrValue, e: IrValue, lanes: IrValue) -> IrValue:
    """Return a * b + e, scaled back in the lanes of an integer mask."""
    c = t.c
    wide = bits_of(a.type) == 64
    value = c.intrinsic("fma", a, b, e)
    shift = 128 if wide else 64
    large = c.icmp("ugt", _exponent(t, e), 1023 if wide else 127)
    ints = t.v("i32")
    amount = c.select(large, c.const(ints, shift), c.const(ints, -shift))
    if not wide:  # rounds once; else a subnormal quotient would be rounded twice
        x, y, z = (c.cast("fpext", v, "double") for v in (a, b, e))
        exact = numeric.odd_sum(c, c.op("fmul", x, y), z)
        scaled = c.cast("fptrunc", ldexp(t, exact, amount), "float")
    else:
        scaled = _scaled_once(t, value, a, b, e, amount)
    return c.select(c.mask_lanes(lanes), scaled, value)


def _scaled_once(  # noqa: PLR0917 - the values of one step
    t: IsaTranslator, value: IrValue, a: IrValue, b: IrValue, e: IrValue, amount: IrValue
) -> IrValue:
    """Return doubles times 2 ** amount, rounded once: they are a * b + e, and a * b is a correction of e.

    A sum that its own rounding put on a tie of subnormal numbers goes to the side on which it was before.
    """
    c = t.c
    scaled = ldexp(t, value, amount)
    rest = c.op("fsub", value, ldexp(t, scaled, c.op("sub", c.const(amount.type, 0), amount)))
    product = c.op("fmul", a, b)
    below = c.intrinsic("fma", a, b, c.let(product.type, f"fneg {product}"))
    lost = c.op("fadd", c.op("fsub", product, c.op("fsub", value, e)), below)
    one, half = (c.fconst(e.type, v) for v in (1.0, math.ldexp(1.0, 128 - 1075)))
    tie = c.fcmp("oeq", c.intrinsic("fabs", rest), half)
    outward = c.fcmp("ogt", c.op("fmul", c.intrinsic("copysign", one, rest), lost), c.fconst(e.type, 0.0))
    step = c.intrinsic("copysign", c.fconst(e.type, math.ldexp(1.0, -1074)), rest)
    return c.select(c.op("and", tie, outward), c.op("fadd", scaled, step), scaled)


def _fixup(t: IsaTranslator, quotient: IrValue, denominator: IrValue, numerator: IrValue) -> IrValue:
    """Return the quotient, with the results of zeros, infinities, NaNs and underflow put in."""
    c, type_ = t.c, quotient.type
    zero, infinite = c.fconst(type_, 0.0), c.fconst(type_, math.inf)
    sign = c.op("xor", c.as_int(denominator), c.as_int(numerator))
    signed = c.icmp("slt", sign, 0)

    def with_sign(value: IrValue) -> IrValue:
        return c.select(signed, c.let(type_, f"fneg {value}"), value)

    zeros = [c.fcmp("oeq", v, zero) for v in (denominator, numerator)]
    endless = [c.fcmp("oeq", c.intrinsic("fabs", v), infinite) for v in (denominator, numerator)]
    # If both operands are finite and the quotient is NaN, the steps overflowed and subtracted infinities.
    lost = c.fcmp("uno", quotient, quotient)
    value = with_sign(c.select(lost, infinite, c.intrinsic("fabs", quotient)))
    below = {32: -150, 64: -1075}.get(bits_of(type_))
    if below is not None:
        apart = c.op("sub", _exponent(t, numerator), _exponent(t, denominator))
        value = c.select(c.icmp("slt", apart, below), with_sign(zero), value)
    value = c.select(c.op("or", endless[0], zeros[1]), with_sign(zero), value)
    value = c.select(c.op("or", zeros[0], endless[1]), with_sign(infinite), value)
    none = c.op("or", c.op("and", *zeros), c.op("and", *endless))
    value = c.select(none, c.fconst(type_, math.nan), value)
    value = c.select(c.fcmp("uno", denominator, denominator), denominator, value)
    return c.select(c.fcmp("uno", numerator, numerator), numerator, value)


each(
    "div_fixup",
    3,
    lambda t, quotient, denominator, numerator: t.called(
        f"div_fixup.{bits_of(quotient.type)}", quotient.type, _fixup, quotient, denominator, numerator
    ),
)
