"""Vector operations on floating point. Sources: RDNA3, RDNA4 and CDNA3 ISA documents.

Arithmetic is exact to the bit but for the payload of NaNs. Reciprocals, roots, exponentials, logarithms and
sines are rounded once from double, which is within the hardware's bounds (1 ulp) and not its bits.

Not here: integers (`vector_integers`). Next: `meanings`, how an operation is defined.
"""

# ruff: noqa: E501 - tables of operations read best one a line

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from drivers.amd.emu.isa.meanings import LANEWISE, Lanewise, lanewise, meaning
from drivers.amd.emu.isa.operands import VCC, Reg
from drivers.emu.simt import numeric
from drivers.emu.simt.ir_types import bits_of, like

if TYPE_CHECKING:
    from collections.abc import Callable

    from drivers.amd.emu.isa.values import Translator
    from drivers.emu.simt.vector import Value

INEXACT: set[str] = set()
"""Operations whose result may differ from the hardware's by its documented error."""
_MANTISSA = {16: 10, 32: 23, 64: 52}
_EXPONENT = {16: 5, 32: 8, 64: 11}


def _each(
    stem: str,
    count: int,
    compute: Callable[..., Value],
    types: tuple[str, ...] = ("f16", "f32", "f64"),
    *,
    accumulates: bool = False,
) -> None:
    for type_ in types:
        LANEWISE[f"v_{stem}_{type_}"] = Lanewise(compute, type_, (type_,) * count, accumulates=accumulates)


def _least(t: Translator, a: Value, b: Value) -> Value:
    return t.c.intrinsic("minimumnum", a, b)


def _most(t: Translator, a: Value, b: Value) -> Value:
    return t.c.intrinsic("maximumnum", a, b)


def _median(t: Translator, a: Value, b: Value, d: Value) -> Value:
    return _most(t, _least(t, a, b), _least(t, _most(t, a, b), d))


def _fused(t: Translator, a: Value, b: Value, d: Value) -> Value:
    """Multiply and add with one rounding; of halves through float32 rounded to odd, as hosts have no such instruction."""
    if bits_of(a.type) != 16:
        return t.c.intrinsic("fma", a, b, d)
    wide = numeric.fma_odd(t.c, *(t.c.cast("fpext", v, "float") for v in (a, b, d)))
    return t.c.cast("fptrunc", wide, "half")


def _round(name: str) -> Callable[..., Value]:
    return lambda t, a: t.c.intrinsic(name, a)


_each("add", 2, lambda t, a, b: t.c.op("fadd", a, b))
_each("sub", 2, lambda t, a, b: t.c.op("fsub", a, b))
_each("subrev", 2, lambda t, a, b: t.c.op("fsub", b, a))
_each("mul", 2, lambda t, a, b: t.c.op("fmul", a, b))
_each("fma", 3, _fused)
_each("fmac", 3, _fused, accumulates=True)
_each("fmaak", 3, _fused, ("f16", "f32"))
_each("fmamk", 3, _fused, ("f16", "f32"))
_each("min", 2, _least)
_each("max", 2, _most)
_each("min3", 3, lambda t, a, b, d: _least(t, _least(t, a, b), d), ("f16", "f32"))
_each("max3", 3, lambda t, a, b, d: _most(t, _most(t, a, b), d), ("f16", "f32"))
_each("med3", 3, _median, ("f16", "f32"))
_each("maxmin", 3, lambda t, a, b, d: _least(t, _most(t, a, b), d), ("f16", "f32"))
_each("minmax", 3, lambda t, a, b, d: _most(t, _least(t, a, b), d), ("f16", "f32"))
_each("minimum", 2, lambda t, a, b: t.c.intrinsic("minimum", a, b))
_each("maximum", 2, lambda t, a, b: t.c.intrinsic("maximum", a, b))
for _name, _ir in (("ceil", "ceil"), ("floor", "floor"), ("trunc", "trunc"), ("rndne", "roundeven")):
    _each(_name, 1, _round(_ir))


@lanewise("v_mul_dx9_zero_f32", "f32", "f32", "f32")
def _mul_zero(t: Translator, a: Value, b: Value) -> Value:
    """Zero times anything is zero."""
    c = t.c
    zero = c.fconst(a.type, 0.0)
    either = c.op("or", c.fcmp("oeq", a, zero), c.fcmp("oeq", b, zero))
    return c.select(either, zero, c.op("fmul", a, b))


# ---- what is computed in double and rounded once


def _approximate(
    stem: str, compute: Callable[[Translator, Value], Value], types: tuple[str, ...] = ("f16", "f32")
) -> None:
    for type_ in types:

        def act(t: Translator, a: Value, *, type_: str = type_) -> Value:
            return t.narrowed(compute(t, t.widened(a)), type_) if type_ != "f64" else compute(t, a)

        LANEWISE[f"v_{stem}_{type_}"] = Lanewise(act, type_, (type_,))
        INEXACT.add(f"v_{stem}_{type_}")


def _reciprocal(t: Translator, a: Value) -> Value:
    return t.c.op("fdiv", t.c.fconst(a.type, 1.0), a)


def exp2(t: Translator, a: Value) -> Value:
    """Return 2^a of doubles."""
    c = t.c
    infinite = c.fcmp("oeq", c.intrinsic("fabs", a), c.fconst(a.type, math.inf))
    ends = c.select(c.fcmp("ogt", a, c.fconst(a.type, 0.0)), a, c.fconst(a.type, 0.0))
    value = c.select(infinite, ends, numeric.exp2(c, c.select(infinite, c.fconst(a.type, 0.0), a)))
    return c.select(c.fcmp("uno", a, a), a, value)


def log2(t: Translator, a: Value) -> Value:
    """Return log2 of doubles."""
    c = t.c
    infinite, zero = c.fconst(a.type, math.inf), c.fconst(a.type, 0.0)
    good = c.op("and", c.fcmp("ogt", a, zero), c.fcmp("olt", a, infinite))
    value = numeric.log2(c, c.select(good, a, c.fconst(a.type, 1.0)))
    value = c.select(c.fcmp("oeq", a, infinite), infinite, value)
    value = c.select(c.fcmp("oeq", a, zero), c.fconst(a.type, -math.inf), value)
    return c.select(c.fcmp("ult", a, zero), c.fconst(a.type, math.nan), value)


def _turn(t: Translator, a: Value, *, cosine: bool) -> Value:
    """Return sin or cos of 2 pi a: whole turns are taken off exactly first."""
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


# ---- parts of a number


def _fract(t: Translator, a: Value) -> Value:
    """A - floor(a), below one."""
    c = t.c
    below = c.as_float(c.op("sub", c.as_int(c.fconst(a.type, 1.0)), 1))
    value = c.intrinsic("minnum", c.op("fsub", a, c.intrinsic("floor", a)), below)
    infinite = c.fcmp("oeq", c.intrinsic("fabs", a), c.fconst(a.type, math.inf))
    value = c.select(infinite, c.fconst(a.type, math.nan), value)
    return c.select(c.fcmp("uno", a, a), a, value)


def _split(t: Translator, a: Value) -> tuple[Value, Value, Value]:
    """Return mantissas in [0.5, 1), exponents as i32, and which values have both (finite, not zero)."""
    c = t.c
    pair = f"{{ {a.type}, {like(a.type, 'i32')} }}"
    name = {16: "f16", 32: "f32", 64: "f64"}[bits_of(a.type)]
    finite = c.fcmp("olt", c.intrinsic("fabs", a), c.fconst(a.type, math.inf))
    usable = c.op("and", finite, c.fcmp("une", a, c.fconst(a.type, 0.0)))
    safe = c.select(usable, a, c.fconst(a.type, 1.0))
    both = c.call(f"llvm.frexp.v{t.lanes}{name}.v{t.lanes}i32", pair, safe)
    return (
        c.let(a.type, f"extractvalue {both}, 0"),
        c.let(like(a.type, "i32"), f"extractvalue {both}, 1"),
        usable,
    )


def _mantissa(t: Translator, a: Value) -> Value:
    mantissa, _, usable = _split(t, a)
    return t.c.select(usable, mantissa, a)


_each("fract", 1, _fract)
_each("frexp_mant", 1, _mantissa)


def _frexp_exponents() -> None:
    for type_, to in (("f16", "i16"), ("f32", "i32"), ("f64", "i32")):

        def compute(t: Translator, a: Value, *, to: str = to) -> Value:
            _, exponent, usable = _split(t, a)
            return t.c.resize(t.c.select(usable, exponent, t.c.const(exponent.type, 0)), int(to[1:]))

        LANEWISE[f"v_frexp_exp_{to}_{type_}"] = Lanewise(compute, to, (type_,))


_frexp_exponents()


def ldexp(t: Translator, a: Value, exponent: Value) -> Value:
    """Return a * 2^exponent."""
    c = t.c
    wide = c.resize(exponent, 32, signed=True)
    name = {16: "f16", 32: "f32", 64: "f64"}[bits_of(a.type)]
    return c.call(f"llvm.ldexp.v{t.lanes}{name}.v{t.lanes}i32", a.type, a, wide)


LANEWISE["v_ldexp_f16"] = Lanewise(ldexp, "f16", ("f16", "i16"))
LANEWISE["v_ldexp_f32"] = Lanewise(ldexp, "f32", ("f32", "i32"))
LANEWISE["v_ldexp_f64"] = Lanewise(ldexp, "f64", ("f64", "i32"))


# ---- division in steps


def _exponent(t: Translator, a: Value) -> Value:
    """Return the biased exponent field as i32."""
    c, bits = t.c, bits_of(a.type)
    field = c.op("lshr", c.as_int(a), _MANTISSA[bits])
    return c.resize(c.op("and", field, (1 << _EXPONENT[bits]) - 1), 32)


def _subnormal(t: Translator, a: Value) -> Value:
    c = t.c
    return c.op("and", c.icmp("eq", _exponent(t, a), 0), c.fcmp("one", a, c.fconst(a.type, 0.0)))


@meaning("v_div_scale_f32", "v_div_scale_f64")
def _div_scale(t: Translator) -> None:
    """Scale an operand of a division so that its steps neither overflow nor lose bits; the mask says whose result is scaled back."""
    c, type_ = t.c, t.stem[-3:]
    d, flag, *rest = t.instruction.operands
    s0, s1, s2 = (t.source(o, type_, k) for k, o in enumerate(rest))
    wide = type_ == "f64"
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
    t.write(d, value)
    t.set_mask(flag, c.op("and", scaled, c.not_(either_zero)))


@meaning("v_div_fmas_f32", "v_div_fmas_f64")
def _div_fmas(t: Translator) -> None:
    """Multiply and add; in the lanes of VCC scale the quotient back: up where it is large, down where it is small."""
    c, type_ = t.c, t.stem[-3:]
    d, *rest = t.instruction.operands
    a, b, e = (t.source(o, type_, k) for k, o in enumerate(rest))
    value = c.intrinsic("fma", a, b, e)
    shift = 128 if type_ == "f64" else 64
    large = c.icmp("ugt", _exponent(t, e), 1023 if type_ == "f64" else 127)
    ints = t.v("i32")
    amount = c.select(large, c.const(ints, shift), c.const(ints, -shift))
    if type_ == "f32":  # rounded once: a subnormal quotient would else be rounded twice
        x, y, z = (c.cast("fpext", v, "double") for v in (a, b, e))
        exact = numeric.odd_sum(c, c.op("fmul", x, y), z)
        scaled = c.cast("fptrunc", ldexp(t, exact, amount), "float")
    else:
        scaled = ldexp(t, value, amount)
    t.finish(d, c.select(t.condition(Reg("s", VCC, t.lanes // 32)), scaled, value))


def _fixup(t: Translator, quotient: Value, denominator: Value, numerator: Value) -> Value:
    """Put the special cases of a division right."""
    c, type_ = t.c, quotient.type
    zero, infinite = c.fconst(type_, 0.0), c.fconst(type_, math.inf)
    sign = c.op("xor", c.as_int(denominator), c.as_int(numerator))
    signed = c.icmp("slt", sign, 0)

    def with_sign(value: Value) -> Value:
        return c.select(signed, c.let(type_, f"fneg {value}"), value)

    zeros = [c.fcmp("oeq", v, zero) for v in (denominator, numerator)]
    endless = [c.fcmp("oeq", c.intrinsic("fabs", v), infinite) for v in (denominator, numerator)]
    # Of finite operands a quotient that is no number overflowed on the way: the steps subtract infinities.
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


_each("div_fixup", 3, _fixup)


# ---- packed and mixed


def _packed_float(stem: str, count: int, compute: Callable[..., Value]) -> None:
    PACKED[f"v_pk_{stem}_f16"] = (compute, "f16", count)


PACKED: dict[str, tuple[Callable[..., Value], str, int]] = {}
"""Operations on both halves of a register: what to compute, the type of a half, how many sources."""
for _stem, _ir in (("add", "fadd"), ("mul", "fmul")):
    _packed_float(_stem, 2, lambda t, a, b, _ir=_ir: t.c.op(_ir, a, b))
_packed_float("fma", 3, _fused)
_packed_float("min", 2, _least)
_packed_float("max", 2, _most)
for _sign, _of in (("i", "s"), ("u", "u")):
    for _stem, _ir in (("min", f"{_of}min"), ("max", f"{_of}max")):
        PACKED[f"v_pk_{_stem}_{_sign}16"] = (
            lambda t, a, b, _ir=_ir: t.c.intrinsic(_ir, a, b),
            f"{_sign}16",
            2,
        )
    for _stem in ("add", "sub"):
        PACKED[f"v_pk_{_stem}_{_sign}16"] = (
            lambda t, a, b, _s=_stem, _o=_of: t.c.intrinsic(f"{_o}{_s}.sat", a, b) if t.instruction.get("clamp") else t.c.op(_s, a, b),
            f"{_sign}16", 2,
        )  # fmt: skip
    PACKED[f"v_pk_mad_{_sign}16"] = (
        lambda t, a, b, d: t.c.op("add", t.c.op("mul", a, b), d),
        f"{_sign}16",
        3,
    )
PACKED["v_pk_mul_lo_u16"] = (lambda t, a, b: t.c.op("mul", a, b), "u16", 2)
for _stem, _ir, _type in (("lshlrev", "shl", "b16"), ("lshrrev", "lshr", "b16"), ("ashrrev", "ashr", "i16")):
    PACKED[f"v_pk_{_stem}_{_type}"] = (
        lambda t, a, b, _ir=_ir: t.c.op(_ir, b, t.c.op("and", a, 15)),
        _type,
        2,
    )


def run_packed(t: Translator) -> None:
    """Write the code of an operation on halves: op_sel says which half of a source goes where."""
    c, i = t.c, t.instruction
    compute, type_, count = PACKED[t.stem]
    d, *rest = i.operands
    if len(rest) != count:
        raise t.error(f"{len(rest)} sources where {count} are known")
    halves = []
    for place, signs in ((0, "neg"), (1, "neg_hi")):
        select = i.get("op_sel" if place == 0 else "op_sel_hi")
        values = []
        for number, operand in enumerate(rest):
            whole = t.raw(operand)
            half = c.resize(c.op("lshr", whole, 16) if select >> number & 1 else whole, 16)
            if type_[0] == "f":
                half = c.as_float(half)
            if i.get(signs) >> number & 1:
                if type_[0] != "f":
                    raise t.error("sign of an integer operand")
                half = c.let(half.type, f"fneg {half}")
            values.append(half)
        value = compute(t, *values)
        if type_[0] == "f":
            if i.get("clamp"):
                value = _most(t, _least(t, value, c.fconst(value.type, 1.0)), c.fconst(value.type, 0.0))
            value = c.as_int(value)
        halves.append(c.resize(value, 32))
    t.write(d, c.op("or", halves[0], c.op("shl", halves[1], 16)))


@meaning("v_pk_fma_f32", "v_pk_mul_f32", "v_pk_add_f32", "v_pk_mov_b32")
def _packed_pairs(t: Translator) -> None:
    """gfx9: the same operation on two registers."""
    c, i = t.c, t.instruction
    d, *rest = i.operands
    if not isinstance(d, Reg) or i.get("clamp"):
        raise t.error("clamp of a packed pair is not supported")
    results = []
    for place, signs in ((0, "neg"), (1, "neg_hi")):
        select = i.get("op_sel" if place == 0 else "op_sel_hi")
        values = []
        for number, operand in enumerate(rest):
            whole = t.raw(operand, 64) if isinstance(operand, Reg) else c.resize(t.raw(operand), 64)
            if not isinstance(operand, Reg):
                whole = c.op("or", whole, c.op("shl", whole, 32))
            part = c.resize(c.op("lshr", whole, 32) if select >> number & 1 else whole, 32)
            if t.stem.endswith("f32"):
                part = c.as_float(part)
                if i.get(signs) >> number & 1:
                    part = c.let(part.type, f"fneg {part}")
            values.append(part)
        if t.stem == "v_pk_mov_b32":
            value = values[place]
        elif "fma" in t.stem:
            value = c.intrinsic("fma", *values)
        else:
            value = c.op("fmul" if "mul" in t.stem else "fadd", *values)
        results.append(c.as_int(value) if t.stem.endswith("f32") else value)
    t.write(d, c.op("or", c.resize(results[0], 64), c.op("shl", c.resize(results[1], 64), 32)))


@meaning("v_fma_mix_f32", "v_fma_mixlo_f16", "v_fma_mixhi_f16")
def _mix(t: Translator) -> None:
    """Multiply and add; each source is an f32 or a half that is widened, the result an f32 or one half."""
    c, i = t.c, t.instruction
    d, *rest = i.operands
    values = []
    for number, operand in enumerate(rest):
        small = i.get("op_sel_hi") >> number & 1
        whole = t.raw(operand, 32)
        if small:
            from_half = t.raw(operand, 16) if not isinstance(operand, Reg) else c.resize(
                c.op("lshr", whole, 16) if i.get("op_sel") >> number & 1 else whole, 16
            )  # fmt: skip
            value = c.cast("fpext", c.as_float(from_half), "float")
        else:
            value = c.as_float(whole)
        if i.get("abs") >> number & 1:
            value = c.intrinsic("fabs", value)
        if i.get("neg") >> number & 1:
            value = c.let(value.type, f"fneg {value}")
        values.append(value)
    if t.stem == "v_fma_mix_f32":
        t.finish(d, c.intrinsic("fma", *values))
        return
    wide = numeric.odd_float(
        c,
        numeric.odd_sum(
            c,
            c.op("fmul", *(c.cast("fpext", v, "double") for v in values[:2])),
            c.cast("fpext", values[2], "double"),
        ),
    )
    value = c.cast("fptrunc", wide, "half")
    if i.get("clamp"):
        value = _most(t, _least(t, value, c.fconst(value.type, 1.0)), c.fconst(value.type, 0.0))
    bits = c.resize(c.as_int(value), 32)
    old = t.raw(d)
    if t.stem.endswith("hi_f16"):
        t.write(d, c.op("or", c.op("and", old, 0xFFFF), c.op("shl", bits, 16)))
    else:
        t.write(d, c.op("or", c.op("and", old, 0xFFFF_0000), bits))


def _dot_halves(t: Translator, a: Value, b: Value, addend: Value) -> Value:
    """Sum of the products of both halves in f32."""
    c = t.c
    total = addend
    for shift in (0, 16):
        x, y = (
            c.cast("fpext", c.as_float(c.resize(c.op("lshr", v, shift) if shift else v, 16)), "float")
            for v in (a, b)
        )
        total = c.intrinsic("fma", x, y, total)
    return total


LANEWISE["v_dot2_f32_f16"] = Lanewise(_dot_halves, "f32", ("b32", "b32", "f32"))
LANEWISE["v_dot2acc_f32_f16"] = Lanewise(_dot_halves, "f32", ("b32", "b32", "f32"), accumulates=True)
INEXACT |= {"v_dot2_f32_f16", "v_dot2acc_f32_f16"}


@lanewise("v_dot4_u32_u8", "u32", "u32", "u32", "u32")
def _dot4_u8(t: Translator, a: Value, b: Value, total: Value) -> Value:
    c = t.c
    for k in range(4):
        x, y = (c.op("and", c.op("lshr", v, 8 * k) if k else v, 0xFF) for v in (a, b))
        total = c.op("add", total, c.op("mul", x, y))
    return total


@meaning("v_dot4_i32_iu8", "v_dot4_i32_i8")
def _dot4_i8(t: Translator) -> None:
    c, i = t.c, t.instruction
    if i.get("clamp"):
        raise t.error("clamp is not supported")
    d, x, y, z = i.operands
    signed = (True, True) if t.stem.endswith("_i8") else (bool(i.get("neg") & 1), bool(i.get("neg") & 2))
    a, b, total = t.raw(x), t.raw(y), t.raw(z)
    for k in range(4):
        parts = [
            c.resize(c.resize(c.op("lshr", v, 8 * k) if k else v, 8), 32, signed=s)
            for v, s in ((a, signed[0]), (b, signed[1]))
        ]
        total = c.op("add", total, c.op("mul", *parts))
    t.write(d, total)
