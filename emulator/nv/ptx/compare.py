"""Comparison and selection of integers and floating-point values. Source: PTX ISA 9.7.6, 9.7.7.

Not here: minima and maxima (`integers`, `floats`). Next: `core`, how an instruction is defined.
"""

# ruff: noqa: E501 - summaries and tables that name their parameters read best on one line

from __future__ import annotations

from typing import TYPE_CHECKING

from emulator.nv.ptx.core import Modifiers, PtxTranslator, meaning, operands
from emulator.nv.ptx.floats import SMALL, floating, flush_small, flushed, small_halves, sources
from emulator.nv.ptx.integers import INTEGERS, integer, is_signed, join_halves
from emulator.nv.ptx.statements import TYPES, Operand, Pair, PtxInstruction

if TYPE_CHECKING:
    from emulator.ir.vector import IrValue

COMPARE = {
    "eq": "eq",
    "ne": "ne",
    "lt": "lt",
    "le": "le",
    "gt": "gt",
    "ge": "ge",
    "lo": "lt",
    "ls": "le",
    "hi": "gt",
    "hs": "ge",
}
"""PTX's comparison of integers -> LLVM's, without the sign; lo, ls, hi and hs are unsigned."""


def compare_integers(t: PtxTranslator, how: str, type_: str, a: IrValue, b: IrValue) -> IrValue:
    """Compare integers by a key of `COMPARE`. Raises `PtxError` for another word."""
    if how not in COMPARE:
        raise t.error(f".{how} does not compare integers")
    name = COMPARE[how]
    signed = is_signed(type_) and how not in ("lo", "ls", "hi", "hs")
    return t.c.icmp(name if name in ("eq", "ne") else ("s" if signed else "u") + name, a, b)


def combine(t: PtxTranslator, how: str, value: IrValue, other: IrValue) -> IrValue:
    """Combine a comparison with a predicate by and, or, xor; "" leaves it alone."""
    return t.c.op(how, value, other) if how else value


@integer("setp")
def _setp(t: PtxTranslator, i: PtxInstruction, m: Modifiers, type_: str) -> None:
    how, bits = m.need(*COMPARE), TYPES[type_]
    _, x, y, *_ = operands(t, i, 3, 4)
    a, b = t.bits(x, bits), t.bits(y, bits)
    set_predicates(t, i, m, compare_integers(t, how, type_, a, b))


def set_predicates(t: PtxTranslator, i: PtxInstruction, m: Modifiers, value: IrValue) -> None:
    """Write p and q of a setp: the comparison and its opposite, each combined with a third predicate if one is given."""
    how = m.one_of("and", "or", "xor")
    d, *rest = operands(t, i, 4 if how else 3)
    other = t.pred(rest[2]) if how else None
    p, q = (d.first, d.second) if isinstance(d, Pair) else (d, None)
    opposite = t.c.not_(value)
    if other is not None:
        value, opposite = combine(t, how, value, other), combine(t, how, opposite, other)
    t.write(p, value)
    if q is not None:
        t.write(q, opposite)


@meaning("selp")
def _selp(t: PtxTranslator, i: PtxInstruction, m: Modifiers) -> None:
    bits = TYPES[m.type()]
    d, x, y, p = operands(t, i, 4)
    t.write(d, t.c.select(t.pred(p), t.bits(x, bits), t.bits(y, bits)))


@meaning("slct")
def _slct(t: PtxTranslator, i: PtxInstruction, m: Modifiers) -> None:
    by = m.type()
    bits = TYPES[m.type()]
    ftz = m.flag("ftz")
    d, x, y, z = operands(t, i, 4)
    if by == "f32":
        value = t.float(z, "f32")
        if ftz:
            value = flushed(t, value)
        condition = t.c.fcmp("oge", value, t.c.fconst(value.type, 0.0))
    else:
        condition = t.c.icmp("sge", t.bits(z, 32), 0)
    t.write(d, t.c.select(condition, t.bits(x, bits), t.bits(y, bits)))


_FLOATING = {
    "eq": "oeq",
    "ne": "one",
    "lt": "olt",
    "le": "ole",
    "gt": "ogt",
    "ge": "oge",
    "equ": "ueq",
    "neu": "une",
    "ltu": "ult",
    "leu": "ule",
    "gtu": "ugt",
    "geu": "uge",
    "num": "ord",
    "nan": "uno",
}


def compare_floats(t: PtxTranslator, how: str, type_: str, x: Operand, y: Operand, *, ftz: bool) -> list[IrValue]:
    """Compare by a word of PTX's floating-point comparisons; return one vector of i1, or two for packed types.

    Raises `PtxError` for another word.
    """
    if how not in _FLOATING:
        raise t.error(f".{how} does not compare floating-point values")
    if type_ in SMALL:
        pairs = zip(small_halves(t, x, type_), small_halves(t, y, type_), strict=True)
        return [
            t.c.fcmp(_FLOATING[how], *((flush_small(t, v) for v in pair) if ftz else pair)) for pair in pairs
        ]
    return [t.c.fcmp(_FLOATING[how], *sources(t, type_, ftz, x, y))]


@floating("setp")
def _setp_floats(t: PtxTranslator, i: PtxInstruction, m: Modifiers, type_: str) -> None:
    how, ftz = m.need(*_FLOATING), m.flag("ftz")
    d, x, y, *_ = operands(t, i, 3, 4)
    found = compare_floats(t, how, type_, x, y, ftz=ftz)
    if len(found) == 1:
        set_predicates(t, i, m, found[0])
        return
    combined = m.one_of("and", "or", "xor")
    other = t.pred(operands(t, i, 4)[3]) if combined else None
    if not isinstance(d, Pair):
        raise t.error("a packed comparison writes two predicates")
    for target, value in zip((d.first, d.second), found, strict=True):
        t.write(target, value if other is None else combine(t, combined, value, other))


@meaning("set")
def _set(t: PtxTranslator, i: PtxInstruction, m: Modifiers) -> None:
    """Translate set, which compares into a number: all ones or 0 for integers, 1.0 or 0.0 for floats."""
    source, target = m.type(), m.type()
    how, combined, ftz = (
        m.need(*_FLOATING, "lo", "ls", "hi", "hs"),
        m.one_of("and", "or", "xor"),
        m.flag("ftz"),
    )
    d, x, y, *rest = operands(t, i, 4 if combined else 3)
    if source in INTEGERS:
        found = [compare_integers(t, how, source, t.bits(x, TYPES[source]), t.bits(y, TYPES[source]))]
    else:
        found = compare_floats(t, how, source, x, y, ftz=ftz)
    if combined:
        found = [combine(t, combined, value, t.pred(rest[0])) for value in found]
    c = t.c
    if target in ("f16", "bf16", "f16x2", "bf16x2"):
        one = c.const(t.v("i16"), 0x3C00 if target.startswith("f16") else 0x3F80)
        values = [c.select(v, one, c.const(one.type, 0)) for v in found]
    elif target == "f32":
        values = [c.select(v, c.const(t.v("i32"), 0x3F80_0000), c.const(t.v("i32"), 0)) for v in found]
    else:
        width = 16 if len(found) == 2 else TYPES[target]
        values = [c.resize(v, width, signed=True) for v in found]
    t.write(d, values[0] if len(values) == 1 else join_halves(t, *values))
