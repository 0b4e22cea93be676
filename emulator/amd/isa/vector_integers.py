"""Vector operations on integers and bits, as rows of `LANEWISE`: each lane computes from its own values.

Sources: RDNA3, RDNA4 and CDNA3 ISA documents, chapters of vector instructions. Names are those of gfx11.

Not here: carries and selections by masks (`lanes`), packed 16-bit operations (`packed`), floats
(`vector_floats`). Next: `meanings`, how an operation is defined.
"""

# ruff: noqa: ARG005 - every computation takes the translator; tables of operations read best one a line

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from emulator.amd.isa.instruction import Imm, Reg
from emulator.amd.isa.meanings import LANEWISE, Lanewise, lanewise, meaning
from emulator.ir.vector import IrValue, constant

if TYPE_CHECKING:
    from collections.abc import Callable

    from emulator.amd.isa.values import IsaTranslator


_SIGN = "splat (i32 31)"
"""The amount by which an arithmetic shift copies the sign to all bits."""


def _plain(name: str, op: str, type_: str, *, reverse: bool = False) -> None:
    def compute(t: IsaTranslator, a: IrValue, b: IrValue) -> IrValue:
        return t.c.op(op, b, a) if reverse else t.c.op(op, a, b)

    LANEWISE[name] = Lanewise(compute, type_, (type_, type_))


def _saturating(name: str, op: str, type_: str, *, reverse: bool = False) -> None:
    """Define an addition or subtraction that saturates if its instruction has clamp."""
    sign = "s" if type_[0] == "i" else "u"

    def compute(t: IsaTranslator, a: IrValue, b: IrValue) -> IrValue:
        if reverse:
            a, b = b, a
        return t.c.intrinsic(f"{sign}{op}.sat", a, b) if t.instruction.get("clamp") else t.c.op(op, a, b)

    LANEWISE[name] = Lanewise(compute, type_, (type_, type_), clamps=True)


def _shift(name: str, op: str, type_: str) -> None:
    """Define a shift whose first source is the amount, taken modulo the width."""
    bits = int(type_[1:])

    def compute(t: IsaTranslator, amount: IrValue, a: IrValue) -> IrValue:
        by = t.c.resize(t.c.op("and", amount, bits - 1), bits)
        result = t.c.op(op, a, by)
        if op == "ashr" and by.ref == _SIGN:
            t.known.sign(a, result)
        count = constant(by)
        if op == "shl" and bits == 64 and count is not None:
            t.known.shifted(a, count, result)
        return result

    LANEWISE[name] = Lanewise(compute, type_, ("u16" if bits == 16 else "u32", type_))


def _intrinsic(name: str, function: str, type_: str, count: int = 2) -> None:
    """Define an operation as an LLVM intrinsic of two values, applied to `count` sources in turn."""

    def compute(t: IsaTranslator, *values: IrValue) -> IrValue:
        result = values[0]
        for value in values[1:]:
            result = t.c.intrinsic(function, result, value)
        return result

    LANEWISE[name] = Lanewise(compute, type_, (type_,) * count)


for _size in ("16", "32"):
    for _op, _ir in (("and", "and"), ("or", "or"), ("xor", "xor")):
        _plain(f"v_{_op}_b{_size}", _ir, f"b{_size}")
    for _sign in "iu":
        for _op in ("add", "sub"):
            _saturating(f"v_{_op}_nc_{_sign}{_size}", _op, f"{_sign}{_size}")
        _saturating(f"v_subrev_nc_{_sign}{_size}", "sub", f"{_sign}{_size}", reverse=True)
        for _op in ("min", "max"):
            _intrinsic(f"v_{_op}_{_sign}{_size}", f"{'s' if _sign == 'i' else 'u'}{_op}", f"{_sign}{_size}")
            _intrinsic(
                f"v_{_op}3_{_sign}{_size}", f"{'s' if _sign == 'i' else 'u'}{_op}", f"{_sign}{_size}", 3
            )
for _size in ("16", "32", "64"):
    _shift(f"v_lshlrev_b{_size}", "shl", f"b{_size}")
    _shift(f"v_lshrrev_b{_size}", "lshr", f"b{_size}")
    _shift(f"v_ashrrev_i{_size}", "ashr", f"i{_size}")
_plain("v_mul_lo_u32", "mul", "u32")
_plain("v_mul_lo_u16", "mul", "u16")


def _define(name: str, result: str, *sources: str, compute: Callable[..., IrValue]) -> None:
    LANEWISE[name] = Lanewise(compute, result, sources)


def _three(type_: str, **computes: Callable[..., IrValue]) -> None:
    """Define v_NAME_TYPE for each name, with three sources of the result's type."""
    for name, compute in computes.items():
        _define(f"v_{name}_{type_}", type_, type_, type_, type_, compute=compute)


for _name in ("mov_b16", "mov_b32", "mov_b64", "accvgpr_read_b32", "accvgpr_write_b32", "accvgpr_mov_b32"):
    _define(f"v_{_name}", _name[-3:], _name[-3:], compute=lambda t, a: a)
for _type in ("b16", "b32"):
    _define(f"v_not_{_type}", _type, _type, compute=lambda t, a: t.c.not_(a))
_define("v_xnor_b32", "b32", "b32", "b32", compute=lambda t, a, b: t.c.not_(t.c.op("xor", a, b)))
_define("v_bfrev_b32", "b32", "b32", compute=lambda t, a: t.c.intrinsic("bitreverse", a))
_define(
    "v_bcnt_u32_b32", "u32", "b32", "u32", compute=lambda t, a, b: t.c.op("add", t.c.intrinsic("ctpop", a), b)
)
_three(
    "u32",
    add3=lambda t, a, b, d: t.c.op("add", t.c.op("add", a, b), d),
    xad=lambda t, a, b, d: t.c.op("add", t.c.op("xor", a, b), d),
    lshl_add=lambda t, a, b, d: t.c.op("add", _left(t, a, b), d),
    add_lshl=lambda t, a, b, d: _left(t, t.c.op("add", a, b), d),
)
_three(
    "b32",
    or3=lambda t, a, b, d: t.c.op("or", t.c.op("or", a, b), d),
    xor3=lambda t, a, b, d: t.c.op("xor", t.c.op("xor", a, b), d),
    and_or=lambda t, a, b, d: t.c.op("or", t.c.op("and", a, b), d),
    lshl_or=lambda t, a, b, d: t.c.op("or", _left(t, a, b), d),
    bfi=lambda t, a, b, d: t.c.op("or", t.c.op("and", a, b), t.c.op("and", t.c.not_(a), d)),
    alignbit=lambda t, a, b, d: t.c.intrinsic("fshr", a, b, t.c.op("and", d, 31)),
    alignbyte=lambda t, a, b, d: t.c.intrinsic("fshr", a, b, t.c.op("shl", t.c.op("and", d, 3), 3)),
)
_define(
    "v_cvt_pk_u16_u32",
    "b32",
    "u32",
    "u32",
    compute=lambda t, a, b: _two(t, *(t.c.intrinsic("umin", x, t.c.const(x.type, 0xFFFF)) for x in (a, b))),
)
_define(
    "v_pack_b32_f16",
    "b32",
    "f16",
    "f16",
    compute=lambda t, a, b: _two(t, *(t.c.resize(t.c.as_int(x), 32) for x in (a, b))),
)
_define("v_sat_pk_u8_i16", "b16", "b32", compute=lambda t, a: _saturated_bytes(t, a))  # noqa: PLW0108 - defined below


def _left(t: IsaTranslator, a: IrValue, amount: IrValue) -> IrValue:
    return t.c.op("shl", a, t.c.op("and", amount, 31))


def _two(t: IsaTranslator, low: IrValue, high: IrValue) -> IrValue:
    return t.c.op("or", t.c.op("and", low, 0xFFFF), t.c.op("shl", high, 16))


def _saturated_bytes(t: IsaTranslator, a: IrValue) -> IrValue:
    c = t.c
    parts = (c.op("ashr", c.op("shl", a, 16), 16), c.op("ashr", a, 16))
    low, high = (
        c.intrinsic("smin", c.intrinsic("smax", p, c.const(p.type, 0)), c.const(p.type, 255)) for p in parts
    )
    return c.resize(c.op("or", low, c.op("shl", high, 8)), 16)


@lanewise("v_lshl_add_u64", "u64", "u64", "u32", "u64")
def _lshl_add_u64(t: IsaTranslator, a: IrValue, amount: IrValue, b: IrValue) -> IrValue:
    by = t.c.resize(t.c.op("and", amount, 7), 64)
    shifted, count = t.c.op("shl", a, by), constant(by)
    if count:
        t.known.shifted(a, count, shifted)
    return t.known.sum(t.c, shifted, b)


@lanewise("v_bfe_u32", "u32", "u32", "u32", "u32")
def _bfe_u32(t: IsaTranslator, a: IrValue, offset: IrValue, width: IrValue) -> IrValue:
    c = t.c
    width = c.op("and", width, 31)
    mask = c.op("sub", c.op("shl", c.const(a.type, 1), width), 1)
    return c.op("and", c.op("lshr", a, c.op("and", offset, 31)), mask)


@lanewise("v_bfe_i32", "i32", "i32", "u32", "u32")
def _bfe_i32(t: IsaTranslator, a: IrValue, offset: IrValue, width: IrValue) -> IrValue:
    c = t.c
    shifted, width = c.op("ashr", a, c.op("and", offset, 31)), c.op("and", width, 31)
    none = c.icmp("eq", width, 0)
    rest = c.op("and", c.op("sub", c.const(a.type, 32), width), 31)
    return c.select(none, c.const(a.type, 0), c.op("ashr", c.op("shl", shifted, rest), rest))


@lanewise("v_bfm_b32", "b32", "b32", "b32")
def _bfm(t: IsaTranslator, width: IrValue, offset: IrValue) -> IrValue:
    c = t.c
    mask = c.op("sub", c.op("shl", c.const(width.type, 1), c.op("and", width, 31)), 1)
    return c.op("shl", mask, c.op("and", offset, 31))


def _counted(t: IsaTranslator, a: IrValue, count: IrValue) -> IrValue:
    """Return the count; all ones where `a` is 0."""
    return t.c.select(t.c.icmp("eq", a, 0), t.c.const(a.type, -1), count)


@lanewise("v_clz_i32_u32", "i32", "u32")
def _clz(t: IsaTranslator, a: IrValue) -> IrValue:
    return _counted(t, a, t.c.intrinsic("ctlz", a, extra=[_false()]))


@lanewise("v_ctz_i32_b32", "i32", "b32")
def _ctz(t: IsaTranslator, a: IrValue) -> IrValue:
    return _counted(t, a, t.c.intrinsic("cttz", a, extra=[_false()]))


@lanewise("v_cls_i32", "i32", "i32")
def _cls(t: IsaTranslator, a: IrValue) -> IrValue:
    flipped = t.c.op("xor", a, t.c.op("ashr", a, 31))
    return _counted(t, flipped, t.c.intrinsic("ctlz", flipped, extra=[_false()]))


def _false() -> IrValue:
    return IrValue("i1", "false")


def _high(name: str, *, signed: bool) -> None:
    def compute(t: IsaTranslator, a: IrValue, b: IrValue) -> IrValue:
        wide = t.c.op("mul", t.c.resize(a, 64, signed=signed), t.c.resize(b, 64, signed=signed))
        return t.c.resize(t.c.op("lshr", wide, 32), 32)

    LANEWISE[name] = Lanewise(compute, "u32", ("u32", "u32"))


_high("v_mul_hi_u32", signed=False)
_high("v_mul_hi_i32", signed=True)


def _24(t: IsaTranslator, a: IrValue, *, signed: bool) -> IrValue:
    return t.c.op("ashr", t.c.op("shl", a, 8), 8) if signed else t.c.op("and", a, 0xFF_FFFF)


def _small_products() -> None:
    """Define products, high halves and multiply-adds of 24-bit and 16-bit values."""
    for sign in "iu":
        signed = sign == "i"

        def low(t: IsaTranslator, a: IrValue, b: IrValue, *, signed: bool = signed) -> IrValue:
            return t.c.op("mul", _24(t, a, signed=signed), _24(t, b, signed=signed))

        def high(t: IsaTranslator, a: IrValue, b: IrValue, *, signed: bool = signed) -> IrValue:
            c = t.c
            wide = [c.resize(_24(t, x, signed=signed), 64, signed=signed) for x in (a, b)]
            return c.resize(c.op("lshr", c.op("mul", *wide), 32), 32)

        def mad(t: IsaTranslator, a: IrValue, b: IrValue, d: IrValue, *, signed: bool = signed) -> IrValue:
            return t.c.op("add", t.c.op("mul", _24(t, a, signed=signed), _24(t, b, signed=signed)), d)

        def mad16(t: IsaTranslator, a: IrValue, b: IrValue, d: IrValue, *, signed: bool = signed) -> IrValue:
            return t.c.op(
                "add", t.c.op("mul", t.c.resize(a, 32, signed=signed), t.c.resize(b, 32, signed=signed)), d
            )

        def mad_narrow(t: IsaTranslator, a: IrValue, b: IrValue, d: IrValue) -> IrValue:
            return t.c.op("add", t.c.op("mul", a, b), d)

        word = f"{sign}32"
        LANEWISE[f"v_mul_{word}_{sign}24"] = Lanewise(low, word, (word, word))
        LANEWISE[f"v_mul_hi_{word}_{sign}24"] = Lanewise(high, word, (word, word))
        LANEWISE[f"v_mad_{word}_{sign}24"] = Lanewise(mad, word, (word, word, word))
        LANEWISE[f"v_mad_{word}_{sign}16"] = Lanewise(mad16, word, (f"{sign}16", f"{sign}16", word))
        LANEWISE[f"v_mad_{sign}16"] = Lanewise(mad_narrow, f"{sign}16", (f"{sign}16",) * 3)


_small_products()


def _medians() -> None:
    """Define med3, maxmin and minmax."""
    for sign in "iu":
        for size in ("16", "32"):

            def compute(t: IsaTranslator, a: IrValue, b: IrValue, d: IrValue, *, sign: str = sign) -> IrValue:
                s = "s" if sign == "i" else "u"
                low, high = t.c.intrinsic(f"{s}min", a, b), t.c.intrinsic(f"{s}max", a, b)
                return t.c.intrinsic(f"{s}max", low, t.c.intrinsic(f"{s}min", high, d))

            LANEWISE[f"v_med3_{sign}{size}"] = Lanewise(compute, f"{sign}{size}", (f"{sign}{size}",) * 3)

        def maxmin(t: IsaTranslator, a: IrValue, b: IrValue, d: IrValue, *, sign: str = sign) -> IrValue:
            s = "s" if sign == "i" else "u"
            return t.c.intrinsic(f"{s}min", t.c.intrinsic(f"{s}max", a, b), d)

        def minmax(t: IsaTranslator, a: IrValue, b: IrValue, d: IrValue, *, sign: str = sign) -> IrValue:
            s = "s" if sign == "i" else "u"
            return t.c.intrinsic(f"{s}max", t.c.intrinsic(f"{s}min", a, b), d)

        LANEWISE[f"v_maxmin_{sign}32"] = Lanewise(maxmin, f"{sign}32", (f"{sign}32",) * 3)
        LANEWISE[f"v_minmax_{sign}32"] = Lanewise(minmax, f"{sign}32", (f"{sign}32",) * 3)


_medians()


@lanewise("v_perm_b32", "b32", "b32", "b32", "b32")
def _perm(t: IsaTranslator, a: IrValue, b: IrValue, select: IrValue) -> IrValue:
    """Each byte of the selector picks a byte of {a, b} (0-7), a sign (8-11), zero (12) or ones (above)."""
    return t.called("perm", a.type, _picked_bytes, a, b, select)


def _picked_bytes(t: IsaTranslator, a: IrValue, b: IrValue, select: IrValue) -> IrValue:
    """Return the result of `_perm`."""
    c = t.c
    both = c.op("or", c.op("shl", c.resize(a, 64), 32), c.resize(b, 64))
    result = c.const(a.type, 0)
    for k in range(4):
        pick = c.op("and", c.op("lshr", select, 8 * k) if k else select, 0xFF)
        place = c.op("shl", c.op("and", pick, 7), 3)
        byte = c.op("and", c.resize(c.op("lshr", both, c.resize(place, 64)), 32), 0xFF)
        for code, bit in ((8, 15), (9, 31), (10, 47), (11, 63)):
            sign = c.icmp("slt", c.op("shl", both, 63 - bit), 0)
            filled = c.select(sign, c.const(a.type, 0xFF), c.const(a.type, 0))
            byte = c.select(c.icmp("eq", pick, code), filled, byte)
        byte = c.select(c.icmp("eq", pick, 12), c.const(a.type, 0), byte)
        byte = c.select(c.icmp("ugt", pick, 12), c.const(a.type, 0xFF), byte)
        result = c.op("or", result, c.op("shl", byte, 8 * k) if k else byte)
    return result


@lanewise("v_sad_u8", "u32", "u32", "u32", "u32")
def _sad_u8(t: IsaTranslator, a: IrValue, b: IrValue, total: IrValue) -> IrValue:
    c = t.c
    for k in range(4):
        x, y = (c.op("and", c.op("lshr", v, 8 * k) if k else v, 0xFF) for v in (a, b))
        total = c.op("add", total, c.intrinsic("abs", c.op("sub", x, y), extra=[_false()]))
    return total


@lanewise("v_sad_u32", "u32", "u32", "u32", "u32")
def _sad_u32(t: IsaTranslator, a: IrValue, b: IrValue, total: IrValue) -> IrValue:
    c = t.c
    return c.op("add", c.op("sub", c.intrinsic("umax", a, b), c.intrinsic("umin", a, b)), total)


@lanewise("v_lerp_u8", "u32", "u32", "u32", "u32")
def _lerp_u8(t: IsaTranslator, a: IrValue, b: IrValue, d: IrValue) -> IrValue:
    c = t.c
    result = c.const(a.type, 0)
    for k in range(4):
        x, y, z = (
            c.op("and", c.op("lshr", v, 8 * k) if k else v, m) for v, m in ((a, 255), (b, 255), (d, 1))
        )
        byte = c.op("lshr", c.op("add", c.op("add", x, y), z), 1)
        result = c.op("or", result, c.op("shl", byte, 8 * k) if k else byte)
    return result


@meaning("v_swap_b32")
def _swap(t: IsaTranslator) -> None:
    first, second = t.instruction.operands
    a, b = t.raw(first), t.raw(second)
    t.write(first, b)
    t.write(second, a)


@meaning("v_nop")
def _nop(t: IsaTranslator) -> None:
    del t


@meaning("v_bitop3_b32", "v_bitop3_b16")
def _bitop3(t: IsaTranslator) -> None:
    """Write any function of three bits; bit 4a + 2b + c of its table is the result for a, b and c.

    The table lies in the fields of source and output modifiers (gfx950; VOP3Instructions.td of LLVM).
    """
    d, *operands = t.instruction.operands
    table, sources = t.instruction.get("omod") << 6, []
    for n, operand in enumerate(operands):
        assert isinstance(operand, (Reg, Imm))
        table |= operand.neg << n | operand.abs << 3 + n
        sources.append(t.source(replace(operand, neg=False, abs=False), t.stem[-3:], n))
    both = [(t.c.op("xor", value, -1), value) for value in sources]
    result = t.c.const(sources[0].type, 0)
    for row in range(8):
        if table >> row & 1:
            a, b, c = (pair[row >> 2 - n & 1] for n, pair in enumerate(both))
            result = t.c.op("or", result, t.c.op("and", a, t.c.op("and", b, c)))
    t.write(d, result)
