"""Vector operations on floats.

Arithmetic is exact to the bit, except for the payload of NaNs. Reciprocals, roots, exponentials, logarithms and sines
are rounded once from double: within the hardware's bounds, but not always its bits (`accuracy`). In f32 these
functions, except sines and cosines, flush subnormals in every mode. Sources: RDNA3, RDNA4 and CDNA3 ISA documents.

Not here: divisions (`division`), pairs and sums of products (`packed`), integers (`vector_integers`), conversions
(`conversions`). Next: `meanings`, how an operation is defined.
"""

# ruff: noqa: E501 - tables of operations read best one a line

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from emulator.amd.isa.meanings import LANEWISE, MEANINGS, Lanewise, lanewise
from emulator.amd.isa.modes import IEEE
from emulator.ir import numeric
from emulator.ir.ir_text import bits_of, like

if TYPE_CHECKING:
    from collections.abc import Callable

    from emulator.amd.isa.values import IsaTranslator
    from emulator.ir.vector import IrValue

INEXACT: set[str] = set()
"""Names of the operations whose results may differ from hardware's by the documented error."""


def each(
    stem: str,
    count: int,
    compute: Callable[..., IrValue],
    types: tuple[str, ...] = ("f16", "f32", "f64"),
    *,
    accumulates: bool = False,
) -> None:
    """Register v_STEM_TYPE of `count` sources for each type; with `accumulates` the destination is the last source."""
    for type_ in types:
        LANEWISE[f"v_{stem}_{type_}"] = Lanewise(compute, type_, (type_,) * count, accumulates=accumulates)


def least(t: IsaTranslator, a: IrValue, b: IrValue) -> IrValue:
    """Return the minimum; of a number and a NaN the number, unless the NaN is signalling and the mode has IEEE."""
    return _quieted(t, t.c.intrinsic("minimumnum", a, b), a, b)


def most(t: IsaTranslator, a: IrValue, b: IrValue) -> IrValue:
    """Return the maximum; NaNs as in `least`."""
    return _quieted(t, t.c.intrinsic("maximumnum", a, b), a, b)


def _quieted(t: IsaTranslator, chosen: IrValue, a: IrValue, b: IrValue) -> IrValue:
    """Return `chosen`, or a quiet NaN if `a` or `b` is a signalling NaN and the mode has IEEE."""
    c = t.c
    if not t.modes & IEEE:
        return chosen
    quiet = 1 << {16: 9, 32: 22, 64: 51}[bits_of(a.type)]
    for v in (a, b):
        signals = c.op("and", c.fcmp("uno", v, v), c.icmp("eq", c.op("and", c.as_int(v), quiet), 0))
        chosen = c.select(signals, c.fconst(a.type, math.nan), chosen)
    return chosen


def _median(t: IsaTranslator, a: IrValue, b: IrValue, d: IrValue) -> IrValue:
    """Return the median of three; if one is a NaN the minimum."""
    c = t.c
    top = most(t, most(t, a, b), d)
    value = c.select(c.fcmp("oeq", top, b), most(t, a, d), most(t, a, b))
    value = c.select(c.fcmp("oeq", top, a), most(t, b, d), value)
    numbers = c.op("and", c.fcmp("ord", a, b), c.fcmp("ord", d, d))
    return c.select(numbers, value, least(t, least(t, a, b), d))


def fused(t: IsaTranslator, a: IrValue, b: IrValue, d: IrValue) -> IrValue:
    """Multiply and add with one rounding; f16 by way of float32 rounded to odd, because hosts have no f16 fma."""
    if bits_of(a.type) != 16:
        return t.c.intrinsic("fma", a, b, d)
    wide = numeric.fma_odd(t.c, *(t.c.cast("fpext", v, "float") for v in (a, b, d)))
    return t.c.cast("fptrunc", wide, "half")


def _mad(t: IsaTranslator, a: IrValue, b: IrValue, d: IrValue) -> IrValue:
    """gfx9: multiply and add with two roundings. Raises `IsaError` unless the mode flushes f16 subnormals."""
    if t.modes >> 6 & 3:
        raise t.error(
            "wanted a float mode that flushes subnormals of f16: its result for others is not documented"
        )
    return t.c.op("fadd", t.as_result(t.c.op("fmul", a, b)), d)


def _round(name: str) -> Callable[..., IrValue]:
    return lambda t, a: t.c.intrinsic(name, a)


each("add", 2, lambda t, a, b: t.c.op("fadd", a, b))
each("sub", 2, lambda t, a, b: t.c.op("fsub", a, b))
each("subrev", 2, lambda t, a, b: t.c.op("fsub", b, a))
each("mul", 2, lambda t, a, b: t.c.op("fmul", a, b))
each("fma", 3, fused)
each("fmac", 3, fused, accumulates=True)
each("fmaak", 3, fused, ("f16", "f32"))
each("fmamk", 3, fused, ("f16", "f32"))
each("mad", 3, _mad, ("f16",))
each("mac", 3, _mad, ("f16",), accumulates=True)
each("madak", 3, _mad, ("f16",))
each("madmk", 3, _mad, ("f16",))
each("min", 2, least)
each("max", 2, most)
each("min3", 3, lambda t, a, b, d: least(t, least(t, a, b), d), ("f16", "f32"))
each("max3", 3, lambda t, a, b, d: most(t, most(t, a, b), d), ("f16", "f32"))
each("med3", 3, _median, ("f16", "f32"))
each("maxmin", 3, lambda t, a, b, d: least(t, most(t, a, b), d), ("f16", "f32"))
each("minmax", 3, lambda t, a, b, d: most(t, least(t, a, b), d), ("f16", "f32"))
each("minimum", 2, lambda t, a, b: t.c.intrinsic("minimum", a, b))
each("maximum", 2, lambda t, a, b: t.c.intrinsic("maximum", a, b))
for _name, _ir in (("ceil", "ceil"), ("floor", "floor"), ("trunc", "trunc"), ("rndne", "roundeven")):
    each(_name, 1, _round(_ir))


@lanewise("v_mul_dx9_zero_f32", "f32", "f32", "f32")
def _mul_zero(t: IsaTranslator, a: IrValue, b: IrValue) -> IrValue:
    """Multiply; the product with a zero is +0, also of infinity and NaN."""
    c = t.c
    zero = c.fconst(a.type, 0.0)
    either = c.op("or", c.fcmp("oeq", a, zero), c.fcmp("oeq", b, zero))
    return c.select(either, zero, c.op("fmul", a, b))


_FLUSHED = ("rcp", "rcp_iflag", "rsq", "sqrt", "exp", "log")
"""Functions of f32 that flush subnormal sources and results in every mode."""


def _approximate(
    stem: str, compute: Callable[[IsaTranslator, IrValue], IrValue], types: tuple[str, ...] = ("f16", "f32")
) -> None:
    """Register an inexact function for each type; `compute` works on doubles."""
    for type_ in types:

        def inline(t: IsaTranslator, a: IrValue, *, type_: str = type_) -> IrValue:
            if type_ == "f64":
                return compute(t, a)
            flushed = type_ == "f32" and stem in _FLUSHED
            result = t.narrowed(compute(t, t.widened(t.flushed(a) if flushed else a)), type_)
            return t.flushed(result) if flushed else result

        def act(
            t: IsaTranslator, a: IrValue, *, type_: str = type_, inline: Callable[..., IrValue] = inline
        ) -> IrValue:
            return t.called(f"{stem}.{type_}", a.type, inline, a)

        LANEWISE[f"v_{stem}_{type_}"] = Lanewise(act, type_, (type_,))
        INEXACT.add(f"v_{stem}_{type_}")


def _reciprocal(t: IsaTranslator, a: IrValue) -> IrValue:
    return t.c.op("fdiv", t.c.fconst(a.type, 1.0), a)


def exp2(t: IsaTranslator, a: IrValue) -> IrValue:
    """Return 2^a of doubles, also of infinities and NaN."""
    c = t.c
    infinite = c.fcmp("oeq", c.intrinsic("fabs", a), c.fconst(a.type, math.inf))
    ends = c.select(c.fcmp("ogt", a, c.fconst(a.type, 0.0)), a, c.fconst(a.type, 0.0))
    value = c.select(infinite, ends, numeric.exp2(c, c.select(infinite, c.fconst(a.type, 0.0), a)))
    return c.select(c.fcmp("uno", a, a), a, value)


def log2(t: IsaTranslator, a: IrValue) -> IrValue:
    """Return log2 of doubles; -infinity for 0, NaN for negative values."""
    c = t.c
    infinite, zero = c.fconst(a.type, math.inf), c.fconst(a.type, 0.0)
    good = c.op("and", c.fcmp("ogt", a, zero), c.fcmp("olt", a, infinite))
    value = numeric.log2(c, c.select(good, a, c.fconst(a.type, 1.0)))
    value = c.select(c.fcmp("oeq", a, infinite), infinite, value)
    value = c.select(c.fcmp("oeq", a, zero), c.fconst(a.type, -math.inf), value)
    return c.select(c.fcmp("ult", a, zero), c.fconst(a.type, math.nan), value)


def _turn(t: IsaTranslator, a: IrValue, *, cosine: bool) -> IrValue:
    """Return sin or cos of 2 pi a of doubles; whole turns are subtracted exactly. NaN for infinities."""
    c = t.c
    finite = c.fcmp("olt", c.intrinsic("fabs", a), c.fconst(a.type, math.inf))
    safe = c.select(finite, a, c.fconst(a.type, 0.0))
    part = c.op("fsub", safe, c.intrinsic("rint", safe))
    value = numeric.sine(c, c.op("fmul", part, c.fconst(a.type, 2 * math.pi)), cosine=cosine)
    return c.select(finite, value, c.fconst(a.type, math.nan))


_approximate("rcp", _reciprocal, ("f16", "f32", "f64"))
_approximate("rcp_iflag", _reciprocal, ("f32",))
_approximate("rsq", lambda t, a: _reciprocal(t, t.c.intrinsic("sqrt", a)), ("f16", "f32", "f64"))
_approximate("sqrt", lambda t, a: t.c.intrinsic("sqrt", a), ("f16", "f32", "f64"))
_approximate("exp", exp2)
_approximate("log", log2)
_approximate("sin", lambda t, a: _turn(t, a, cosine=False))
_approximate("cos", lambda t, a: _turn(t, a, cosine=True))


def _for_all(t: IsaTranslator) -> None:
    """gfx12, v_s_*: a function of a scalar, with a scalar result; EXEC has no effect."""
    c, i = t.c, t.instruction
    if i.get("clamp") or i.get("omod"):
        raise t.error("output modifier of a scalar result")
    d, x = i.operands
    entry = LANEWISE[t.stem.replace("v_s_", "v_")]
    result = c.as_int(t.as_result(entry.compute(t, t.source(x, entry.result))))
    t.set_scalar(d, c.resize(c.extract(result, 0), 32))


for _name in ("exp", "log", "rcp", "rsq", "sqrt"):
    for _type in ("f16", "f32"):
        MEANINGS[f"v_s_{_name}_{_type}"] = _for_all
        INEXACT.add(f"v_s_{_name}_{_type}")


def _fract(t: IsaTranslator, a: IrValue) -> IrValue:
    """Return a - floor(a), below 1; NaN for infinities."""
    c = t.c
    below = c.as_float(c.op("sub", c.as_int(c.fconst(a.type, 1.0)), 1))
    value = c.intrinsic("minnum", c.op("fsub", a, c.intrinsic("floor", a)), below)
    infinite = c.fcmp("oeq", c.intrinsic("fabs", a), c.fconst(a.type, math.inf))
    value = c.select(infinite, c.fconst(a.type, math.nan), value)
    return c.select(c.fcmp("uno", a, a), a, value)


def _split(t: IsaTranslator, a: IrValue) -> tuple[IrValue, IrValue, IrValue]:
    """Return mantissas in [0.5, 1), exponents as i32, and an i1 each: the value is finite and not zero."""
    c = t.c
    if bits_of(a.type) == 16:  # LLVM does not compile llvm.frexp of vectors of half
        mantissa, exponent, usable = _split(t, c.cast("fpext", a, "float"))
        return c.cast("fptrunc", mantissa, "half"), exponent, usable
    pair = f"{{ {a.type}, {like(a.type, 'i32')} }}"
    finite = c.fcmp("olt", c.intrinsic("fabs", a), c.fconst(a.type, math.inf))
    usable = c.op("and", finite, c.fcmp("une", a, c.fconst(a.type, 0.0)))
    safe = c.select(usable, a, c.fconst(a.type, 1.0))
    both = c.call(f"llvm.frexp.v{t.lanes}f{bits_of(a.type)}.v{t.lanes}i32", pair, safe)
    return (
        c.let(a.type, f"extractvalue {both}, 0"),
        c.let(like(a.type, "i32"), f"extractvalue {both}, 1"),
        usable,
    )


def _mantissa(t: IsaTranslator, a: IrValue) -> IrValue:
    mantissa, _, usable = _split(t, a)
    return t.c.select(usable, mantissa, a)


each("fract", 1, _fract)
each("frexp_mant", 1, _mantissa)


def _frexp_exponents() -> None:
    for type_, to in (("f16", "i16"), ("f32", "i32"), ("f64", "i32")):

        def compute(t: IsaTranslator, a: IrValue, *, to: str = to) -> IrValue:
            _, exponent, usable = _split(t, a)
            return t.c.resize(t.c.select(usable, exponent, t.c.const(exponent.type, 0)), int(to[1:]))

        LANEWISE[f"v_frexp_exp_{to}_{type_}"] = Lanewise(compute, to, (type_,))


_frexp_exponents()


def ldexp(t: IsaTranslator, a: IrValue, exponent: IrValue) -> IrValue:
    """Return a * 2^exponent, rounded once; `exponent` is a signed integer of 16 or 32 bits."""
    c = t.c
    if bits_of(a.type) == 16:  # LLVM 22 compiles llvm.ldexp of vectors of half wrongly for AVX-512 without FP16
        return c.cast("fptrunc", ldexp(t, c.cast("fpext", a, "float"), exponent), "half")
    wide = c.resize(exponent, 32, signed=True)
    return c.call(f"llvm.ldexp.v{t.lanes}f{bits_of(a.type)}.v{t.lanes}i32", a.type, a, wide)


_TWO_OVER_PI_BITS = 1201
_TWO_OVER_PI = int(
    "a2f9836e4e441529fc2757d1f534ddc0db6295993c439041fe5163abdebbc561b7246e3a424dd2e006492eea09d1921c"
    "fe1deb1cb129a73ee88235f52ebb4484e99c7026b45f7e413991d639835339f49c845f8bbdf9283b1ff897ffde05980f"
    "ef2f118b5a0a6d1f6d367ecf27cb09b74f463f669e5fea2d7527bac7ebe5f17b3d0739f78a5292ea6bfb5fb11f8d5d08"
    "56033046fc7b6bab",
    16,
)
"""The first 1216 bits of 2 / pi after the binary point."""


@lanewise("v_trig_preop_f64", "f64", "f64", "i32")
def _trig_preop(t: IsaTranslator, a: IrValue, segment: IrValue) -> IrValue:
    """Return 53 bits of 2 / pi as a double, for the reduction of argument `a`; `segment` counts groups of 53 bits.

    After 1201 bits there are zeros, as in the ISA documents.
    """
    return t.called("trig_preop", a.type, _two_over_pi, a, segment)


def _two_over_pi(t: IsaTranslator, a: IrValue, segment: IrValue) -> IrValue:
    """Return the result of `_trig_preop`."""
    c = t.c
    exponent = c.resize(c.op("and", c.op("lshr", c.as_int(a), 52), 0x7FF), 32)
    zero = c.const(exponent.type, 0)
    beyond = c.intrinsic("smax", c.op("sub", exponent, 1077), zero)
    shift = c.op("add", c.op("mul", c.op("and", segment, 31), 53), beyond)
    word, bit = c.op("lshr", shift, 5), c.resize(c.op("and", shift, 31), 64)
    kept = _TWO_OVER_PI >> 1216 - _TWO_OVER_PI_BITS << 64 * 20 - _TWO_OVER_PI_BITS
    high = low = c.const(bit.type, 0)
    for n in range(_TWO_OVER_PI_BITS // 32 + 1):
        here = c.icmp("eq", word, n)
        high = c.select(here, c.const(bit.type, kept >> 64 * 19 - 32 * n & (1 << 64) - 1), high)
        low = c.select(here, c.const(bit.type, (kept << 64 >> 64 * 19 - 32 * n) & (1 << 64) - 1), low)
    spill = c.op("lshr", c.op("lshr", low, 1), c.op("sub", c.const(bit.type, 63), bit))
    bits = c.op("lshr", c.op("or", c.op("shl", high, bit), spill), 11)
    scale = c.op("sub", c.const(shift.type, -53), shift)
    scale = c.select(c.icmp("uge", exponent, 1968), c.op("add", scale, 128), scale)
    return ldexp(t, c.cast("uitofp", bits, "double"), scale)


LANEWISE["v_ldexp_f16"] = Lanewise(ldexp, "f16", ("f16", "i16"))
LANEWISE["v_ldexp_f32"] = Lanewise(ldexp, "f32", ("f32", "i32"))
LANEWISE["v_ldexp_f64"] = Lanewise(ldexp, "f64", ("f64", "i32"))
