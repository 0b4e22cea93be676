"""PTX's integer arithmetic and logic. Source: PTX ISA 9.7.1, 9.7.2, 9.7.8.

Not here: shifts, bit fields, counting and permuting bits (`bits`), comparisons (`compare`). Next: `core`, how an
instruction is defined.
"""

# ruff: noqa: E501 - summaries and tables that name their parameters read best on one line

from __future__ import annotations

from typing import TYPE_CHECKING

from emulator.ir.ir_text import bits_of
from emulator.nv.ptx.core import MEANINGS, Modifiers, PtxTranslator, operands
from emulator.nv.ptx.statements import TYPES, PtxInstruction

if TYPE_CHECKING:
    from collections.abc import Callable

    from emulator.ir.vector import IrValue

    Typed = Callable[[PtxTranslator, PtxInstruction, Modifiers, str], None]
    """The translation of an instruction, by its type."""

CARRY = "%cc"
"""The carry flag: a predicate that add.cc and similar instructions write."""

INTEGERS = {f"{k}{w}" for k in "bus" for w in (8, 16, 32, 64)}
"""The scalar types of integers and bits."""
_INTEGER: dict[str, Typed] = {}
FLOATING: dict[str, Typed] = {}
"""Opcode -> its translation for floating-point types; `floats` fills it."""


def integer(*opcodes: str) -> Callable[[Typed], Typed]:
    """Register the translation of opcodes for integer types; `floats.floating` does it for floating-point types."""

    def register(function: Typed) -> Typed:
        for opcode in opcodes:
            _INTEGER[opcode] = function
            MEANINGS[opcode] = _dispatch
        return function

    return register


def _dispatch(t: PtxTranslator, i: PtxInstruction, m: Modifiers) -> None:
    type_ = m.type()
    table = _INTEGER if type_ in INTEGERS or type_ in ("u16x2", "s16x2", "pred") else FLOATING
    if i.opcode not in table:
        raise t.error(f"{i.opcode} does not work on .{type_}")
    table[i.opcode](t, i, m, type_)


def is_signed(type_: str) -> bool:
    """Return whether a type is a signed integer."""
    return type_[0] == "s"


def _halves(t: PtxTranslator, value: IrValue) -> list[IrValue]:
    return [t.c.resize(value, 16), t.c.resize(t.c.op("lshr", value, 16), 16)]


def join_halves(t: PtxTranslator, low: IrValue, high: IrValue) -> IrValue:
    """Pack two 16-bit values into one of 32."""
    c = t.c
    return c.op("or", c.resize(low, 32), c.op("shl", c.resize(high, 32), 16))


def saturated(t: PtxTranslator, name: str, a: IrValue, b: IrValue) -> IrValue:
    """Add or subtract signed integers with saturation; `name` is add or sub."""
    return t.c.intrinsic(f"s{name}.sat", a, b)


@integer("add", "sub", "addc", "subc")
def _add(t: PtxTranslator, i: PtxInstruction, m: Modifiers, type_: str) -> None:
    d, x, y = operands(t, i, 3)
    bits = TYPES[type_]
    name = "add" if i.opcode.startswith("add") else "sub"
    if type_.endswith("x2"):
        pairs = zip(_halves(t, t.bits(x, 32)), _halves(t, t.bits(y, 32)), strict=True)
        t.write(d, join_halves(t, *(t.c.op(name, a, b) for a, b in pairs)))
        return
    a, b = t.bits(x, bits), t.bits(y, bits)
    if m.flag("sat"):
        if type_ != "s32":
            raise t.error(".sat works on .s32 only")
        t.write(d, saturated(t, name, a, b))
        return
    carry_in = t.wf.read(CARRY) if i.opcode.endswith("c") else None
    result, carry = _with_carry(t, name, a, b, carry_in)
    t.write(d, result)
    if m.flag("cc"):
        t.wf.write(CARRY, carry)


def _with_carry(t: PtxTranslator, name: str, a: IrValue, b: IrValue, carry: IrValue | None) -> tuple[IrValue, IrValue]:
    """Add or subtract as the machine's adder does; return the result and the carry.

    A difference is a + ~b + 1, so its carry is 1 if nothing is borrowed; an `addc` after a `sub.cc` adds that 1.
    """
    c = t.c
    if name == "sub" and carry is None:
        return c.op("sub", a, b), c.icmp("uge", a, b)
    if name == "sub":
        b = c.op("xor", b, (1 << bits_of(a.type)) - 1)
    first = c.op("add", a, b)
    out = c.icmp("ult", first, a)
    if carry is None:
        return first, out
    step = c.resize(carry, bits_of(a.type))
    second = c.op("add", first, step)
    return second, c.op("or", out, c.icmp("ult", second, step))


def _product(t: PtxTranslator, a: IrValue, b: IrValue, type_: str, part: str) -> IrValue:
    """Multiply; `part` is the lower half (lo), the upper half (hi), or all bits of the product (wide)."""
    c, bits = t.c, TYPES[type_]
    if part == "lo":
        return c.op("mul", a, b)
    kind = is_signed(type_)
    whole = c.op("mul", c.resize(a, 2 * bits, signed=kind), c.resize(b, 2 * bits, signed=kind))
    return whole if part == "wide" else c.resize(c.op("lshr", whole, bits), bits)


@integer("mul", "mul24")
def _mul(t: PtxTranslator, i: PtxInstruction, m: Modifiers, type_: str) -> None:
    d, x, y = operands(t, i, 3)
    part = m.need("lo", "hi", "wide")
    a, b = t.bits(x, TYPES[type_]), t.bits(y, TYPES[type_])
    if i.opcode == "mul24":
        t.write(d, _product24(t, a, b, type_, part))
        return
    t.write(d, _product(t, a, b, type_, part))


def _product24(t: PtxTranslator, a: IrValue, b: IrValue, type_: str, part: str) -> IrValue:
    c, kind = t.c, is_signed(type_)
    shift = "ashr" if kind else "lshr"
    wide = [c.resize(c.op(shift, c.op("shl", v, 8), 8), 64, signed=kind) for v in (a, b)]
    whole = c.op("mul", *wide)
    return c.resize(c.op("lshr", whole, 16) if part == "hi" else whole, 32)


@integer("mad", "madc", "mad24")
def _mad(t: PtxTranslator, i: PtxInstruction, m: Modifiers, type_: str) -> None:
    d, x, y, z = operands(t, i, 4)
    part = m.need("lo", "hi", "wide")
    a, b = t.bits(x, TYPES[type_]), t.bits(y, TYPES[type_])
    product = _product24(t, a, b, type_, part) if i.opcode == "mad24" else _product(t, a, b, type_, part)
    addend = t.bits(z, bits_of(product.type))
    if m.flag("sat"):
        if type_ != "s32" or part != "hi":
            raise t.error(".sat works on .hi.s32 only")
        t.write(d, saturated(t, "add", product, addend))
        return
    result, carry = _with_carry(t, "add", product, addend, t.wf.read(CARRY) if i.opcode == "madc" else None)
    t.write(d, result)
    if m.flag("cc"):
        t.wf.write(CARRY, carry)


@integer("sad")
def _sad(t: PtxTranslator, i: PtxInstruction, _: Modifiers, type_: str) -> None:
    d, x, y, z = operands(t, i, 4)
    a, b, addend = (t.bits(o, TYPES[type_]) for o in (x, y, z))
    c, kind = t.c, "s" if is_signed(type_) else "u"
    distance = c.op("sub", c.intrinsic(f"{kind}max", a, b), c.intrinsic(f"{kind}min", a, b))
    t.write(d, c.op("add", addend, distance))


@integer("div", "rem")
def _div(t: PtxTranslator, i: PtxInstruction, _: Modifiers, type_: str) -> None:
    """Divide. For divisor 0 the quotient is all ones and the remainder the dividend, as in the hardware's routines."""
    d, x, y = operands(t, i, 3)
    a, b = t.bits(x, TYPES[type_]), t.bits(y, TYPES[type_])
    c, kind = t.c, "s" if is_signed(type_) else "u"
    zero = c.icmp("eq", b, 0)
    safe = c.select(zero, c.const(b.type, 1), b)
    minus = c.icmp("eq", b, -1) if kind == "s" else None
    if minus is not None:
        safe = c.select(minus, c.const(b.type, 1), safe)
    result = c.op(f"{kind}{i.opcode}", a, safe)
    if i.opcode == "div":
        if minus is not None:
            result = c.select(minus, c.op("sub", c.const(a.type, 0), a), result)
        result = c.select(zero, c.const(a.type, -1), result)
    else:
        result = c.select(zero, a, result)
    t.write(d, result)


@integer("abs", "neg")
def _negate(t: PtxTranslator, i: PtxInstruction, _: Modifiers, type_: str) -> None:
    d, x = operands(t, i, 2)
    a = t.bits(x, TYPES[type_])
    minus = t.c.op("sub", t.c.const(a.type, 0), a)
    t.write(d, minus if i.opcode == "neg" else t.c.select(t.c.icmp("slt", a, 0), minus, a))


@integer("min", "max")
def _extreme(t: PtxTranslator, i: PtxInstruction, m: Modifiers, type_: str) -> None:
    d, x, y = operands(t, i, 3)
    kind = "s" if is_signed(type_) else "u"
    relu = m.flag("relu")

    def pick(a: IrValue, b: IrValue) -> IrValue:
        best = t.c.intrinsic(f"{kind}{i.opcode}", a, b)
        return t.c.intrinsic("smax", best, t.c.const(best.type, 0)) if relu else best

    if type_.endswith("x2"):
        pairs = zip(_halves(t, t.bits(x, 32)), _halves(t, t.bits(y, 32)), strict=True)
        t.write(d, join_halves(t, *(pick(a, b) for a, b in pairs)))
    else:
        t.write(d, pick(t.bits(x, TYPES[type_]), t.bits(y, TYPES[type_])))


@integer("and", "or", "xor", "not", "cnot")
def _logic(t: PtxTranslator, i: PtxInstruction, _: Modifiers, type_: str) -> None:
    d, *sources = operands(t, i, 2 if i.opcode in ("not", "cnot") else 3)
    values = [t.pred(o) if type_ == "pred" else t.bits(o, TYPES[type_]) for o in sources]
    if i.opcode == "not":
        t.write(d, t.c.not_(values[0]))
    elif i.opcode == "cnot":
        t.write(d, t.c.resize(t.c.icmp("eq", values[0], 0), TYPES[type_]))
    else:
        t.write(d, t.c.op(i.opcode, *values))
