"""PTX's counting, shifting, bit fields, permutations and byte-wise products. Source: PTX ISA 9.7.1, 9.7.8.

Not here: sums, products and logic (`integers`). Next: `core`, how an instruction is defined.
"""

# ruff: noqa: E501 - summaries and tables that name their parameters read best on one line

from __future__ import annotations

from emulator.ir.ir_text import bits_of
from emulator.ir.vector import IrValue
from emulator.nv.ptx.core import Modifiers, PtxTranslator, meaning, operands
from emulator.nv.ptx.integers import integer, is_signed
from emulator.nv.ptx.statements import TYPES, Pair, PtxImm, PtxInstruction


@integer("popc", "clz")
def _count(t: PtxTranslator, i: PtxInstruction, _: Modifiers, type_: str) -> None:
    d, x = operands(t, i, 2)
    a = t.bits(x, TYPES[type_])
    zero = (IrValue("i1", "false"),) if i.opcode == "clz" else ()
    t.write(d, t.c.resize(t.c.intrinsic("ctlz" if zero else "ctpop", a, extra=zero), 32))


@integer("bfind")
def _bfind(t: PtxTranslator, i: PtxInstruction, m: Modifiers, type_: str) -> None:
    d, x = operands(t, i, 2)
    c, bits, a = t.c, TYPES[type_], t.bits(x, TYPES[type_])
    if is_signed(type_):
        a = c.op("xor", a, c.op("ashr", a, bits - 1))
    leading = c.resize(c.intrinsic("ctlz", a, extra=(IrValue("i1", "false"),)), 32)
    found = leading if m.flag("shiftamt") else c.op("sub", c.const(leading.type, bits - 1), leading)
    t.write(d, c.select(c.icmp("eq", a, 0), c.const(found.type, -1), found))


@integer("brev")
def _brev(t: PtxTranslator, i: PtxInstruction, _: Modifiers, type_: str) -> None:
    d, x = operands(t, i, 2)
    t.write(d, t.c.intrinsic("bitreverse", t.bits(x, TYPES[type_])))


def _shifted(t: PtxTranslator, name: str, value: IrValue, amount: IrValue) -> IrValue:
    """Shift by an amount that is clamped to the width, as in PTX; `name` is shl, lshr or ashr."""
    c, bits = t.c, bits_of(value.type)
    narrow = c.intrinsic("umin", amount, c.const(amount.type, bits))
    inside = c.icmp("ult", narrow, bits)
    safe = c.select(inside, narrow, c.const(narrow.type, bits - 1))
    shifted = c.op(name, value, c.resize(safe, bits))
    return shifted if name == "ashr" else c.select(inside, shifted, c.const(value.type, 0))


@integer("shl", "shr")
def _shift(t: PtxTranslator, i: PtxInstruction, _: Modifiers, type_: str) -> None:
    d, x, y = operands(t, i, 3)
    name = "shl" if i.opcode == "shl" else "ashr" if is_signed(type_) else "lshr"
    t.write(d, _shifted(t, name, t.bits(x, TYPES[type_]), t.bits(y, 32)))


@integer("shf")
def _funnel(t: PtxTranslator, i: PtxInstruction, m: Modifiers, _: str) -> None:
    d, x, y, z = operands(t, i, 4)
    left, wraps = m.need("l", "r") == "l", m.need("wrap", "clamp") == "wrap"
    low, high, amount = (t.bits(o, 32) for o in (x, y, z))
    c = t.c
    if wraps:
        t.write(d, c.intrinsic("fshl" if left else "fshr", high, low, amount))
        return
    amount = c.intrinsic("umin", amount, c.const(amount.type, 32))
    whole = c.op("or", c.op("shl", c.resize(high, 64), 32), c.resize(low, 64))
    if left:
        t.write(d, c.resize(c.op("lshr", c.op("shl", whole, c.resize(amount, 64)), 32), 32))
    else:
        t.write(d, c.resize(c.op("lshr", whole, c.resize(amount, 64)), 32))


def _field(t: PtxTranslator, x: IrValue, bits: int) -> IrValue:
    """Return the position or length of a bit field: the low 8 bits of an operand, or for 64-bit fields at most 64.

    The manual does not define values above 255. ptxas folds them this way (`tests.facts.ptx_answers`).
    """
    return t.c.op("and", x, 255) if bits == 32 else t.c.intrinsic("umin", x, t.c.const(x.type, bits))


def _ones(t: PtxTranslator, length: IrValue, bits: int) -> IrValue:
    """Return `length` ones from bit 0, as `bits`-wide integers; a longer length gives all ones."""
    return t.c.not_(_shifted(t, "shl", t.c.const(t.v(f"i{bits}"), -1), length))


@integer("bfe")
def _bfe(t: PtxTranslator, i: PtxInstruction, _: Modifiers, type_: str) -> None:
    d, x, y, z = operands(t, i, 4)
    c, bits = t.c, TYPES[type_]
    a = t.bits(x, bits)
    position, length = (_field(t, t.bits(o, 32), bits) for o in (y, z))
    field = c.op("and", _shifted(t, "lshr", a, position), _ones(t, length, bits))
    if is_signed(type_):
        last = c.op("sub", c.op("add", position, length), 1)
        last = c.intrinsic("umin", last, c.const(last.type, bits - 1))
        sign = c.icmp("ne", c.op("and", _shifted(t, "lshr", a, last), 1), 0)
        sign = c.op("and", sign, c.icmp("ne", length, 0))
        top = c.op(
            "sub",
            c.intrinsic("umin", c.op("add", position, length), c.const(last.type, bits)),
            c.intrinsic("umin", position, c.const(last.type, bits)),
        )
        kept = c.intrinsic("umin", length, top)
        field = c.select(
            sign, c.op("or", c.op("and", field, _ones(t, kept, bits)), c.not_(_ones(t, kept, bits))), field
        )
    t.write(d, field)


@integer("bfi")
def _bfi(t: PtxTranslator, i: PtxInstruction, _: Modifiers, type_: str) -> None:
    d, x, base, y, z = operands(t, i, 5)
    c, bits = t.c, TYPES[type_]
    a, b = t.bits(x, bits), t.bits(base, bits)
    position, length = (_field(t, t.bits(o, 32), bits) for o in (y, z))
    where = _shifted(t, "shl", _ones(t, length, bits), position)
    t.write(d, c.op("or", c.op("and", _shifted(t, "shl", a, position), where), c.op("and", b, c.not_(where))))


@meaning("bmsk")
def _bmsk(t: PtxTranslator, i: PtxInstruction, m: Modifiers) -> None:
    mode = m.need("clamp", "wrap")
    m.type()
    d, x, y = operands(t, i, 3)
    position, length = t.bits(x, 32), t.bits(y, 32)
    if mode == "wrap":
        position, length = t.c.op("and", position, 31), t.c.op("and", length, 31)
    t.write(d, _shifted(t, "shl", _ones(t, length, 32), position))


@meaning("szext")
def _szext(t: PtxTranslator, i: PtxInstruction, m: Modifiers) -> None:
    mode, type_ = m.need("clamp", "wrap"), m.type()
    d, x, y = operands(t, i, 3)
    c, a, count = t.c, t.bits(x, 32), t.bits(y, 32)
    if mode == "wrap":
        count = c.op("and", count, 31)
    ones = _ones(t, count, 32)
    low = c.op("and", a, ones)
    if is_signed(type_):
        sign = _shifted(t, "lshr", a, c.op("sub", c.intrinsic("umax", count, c.const(count.type, 1)), 1))
        negative = c.op("and", c.icmp("ne", c.op("and", sign, 1), 0), c.icmp("ne", count, 0))
        low = c.select(negative, c.op("or", low, c.not_(ones)), low)
    t.write(d, low)


@meaning("fns")
def _fns(t: PtxTranslator, i: PtxInstruction, m: Modifiers) -> None:
    """Translate fns: the n-th set bit from a base, upwards for a positive offset, downwards for a negative one."""
    m.need("b32")
    d, x, y, z = operands(t, i, 4)
    c, mask, base, offset = t.c, t.bits(x, 32), t.bits(y, 32), t.bits(z, 32)
    up, here = c.icmp("sgt", offset, 0), c.icmp("eq", offset, 0)
    wanted = c.intrinsic("abs", offset, extra=(IrValue("i1", "false"),))
    found, seen = c.const(mask.type, -1), c.const(mask.type, 0)
    for step in range(32):
        at = c.select(up, c.op("add", base, step), c.op("sub", base, step))
        inside = c.icmp("ult", at, 32)
        bit = c.op("and", c.op("lshr", mask, c.op("and", at, 31)), 1)
        seen = c.op("add", seen, c.select(inside, bit, c.const(bit.type, 0)))
        hit = c.op("and", c.op("and", inside, c.icmp("ne", bit, 0)), c.icmp("eq", seen, wanted))
        found = c.select(hit, at, found)
    bit = c.icmp("ne", c.op("and", c.op("lshr", mask, c.op("and", base, 31)), 1), 0)
    t.write(d, c.select(here, c.select(bit, base, c.const(base.type, -1)), found))


@meaning("lop3")
def _lop3(t: PtxTranslator, i: PtxInstruction, m: Modifiers) -> None:
    """Translate lop3, any function of three bits. With .or or .and, a predicate gets whether any bit of the result is set."""
    m.need("b32")
    how = m.one_of("or", "and")
    d, x, y, z, table, *other = operands(t, i, 6 if how else 5)
    target, flag = (d.first, d.second) if isinstance(d, Pair) else (d, None)
    if bool(how) != (flag is not None):
        raise t.error("a predicate is written with .or or .and, and only then")
    a, b, w = (t.bits(o, 32) for o in (x, y, z))
    if not isinstance(table, PtxImm):
        raise t.error("lop3 needs a constant table")
    c, result = t.c, t.c.const(a.type, 0)
    for row in range(8):
        if table.value >> row & 1:
            terms = [v if row >> n & 1 else c.not_(v) for n, v in ((2, a), (1, b), (0, w))]
            result = c.op("or", result, c.op("and", c.op("and", terms[0], terms[1]), terms[2]))
    if flag is not None:
        t.write(flag, c.op(how, c.icmp("ne", result, 0), t.pred(other[0])))
    t.write(target, result)


@meaning("prmt")
def _prmt(t: PtxTranslator, i: PtxInstruction, m: Modifiers) -> None:
    m.need("b32")
    mode = m.one_of("f4e", "b4e", "rc8", "ecl", "ecr", "rc16")
    d, x, y, z = operands(t, i, 4)
    c, selector = t.c, t.bits(z, 32)
    whole = c.op("or", c.resize(t.bits(x, 32), 64), c.op("shl", c.resize(t.bits(y, 32), 64), 32))
    result = c.const(selector.type, 0)
    for place in range(4):
        pick, sign = _permute_choice(t, mode, selector, place)
        byte = c.resize(c.op("and", c.op("lshr", whole, c.resize(c.op("shl", pick, 3), 64)), 255), 32)
        if sign is not None:
            copied = c.select(
                c.icmp("ne", c.op("and", byte, 128), 0), c.const(byte.type, 255), c.const(byte.type, 0)
            )
            byte = c.select(sign, copied, byte)
        result = c.op("or", result, c.op("shl", byte, 8 * place))
    t.write(d, result)


def _permute_choice(t: PtxTranslator, mode: str, selector: IrValue, place: int) -> tuple[IrValue, IrValue | None]:
    """Return the number of the source byte of a position, and whether its sign fills the byte; None: never."""
    c = t.c
    if not mode:
        nibble = c.op("lshr", selector, 4 * place)
        return c.op("and", nibble, 7), c.icmp("ne", c.op("and", nibble, 8), 0)
    low = c.op("and", selector, 3)

    def table(rows: tuple[int, int, int, int]) -> IrValue:
        value = c.const(low.type, rows[0])
        for index in (1, 2, 3):
            value = c.select(c.icmp("eq", low, index), c.const(low.type, rows[index]), value)
        return value

    rows = {
        "f4e": [(0, 1, 2, 3), (1, 2, 3, 4), (2, 3, 4, 5), (3, 4, 5, 6)],
        "b4e": [(0, 1, 2, 3), (7, 0, 1, 2), (6, 7, 0, 1), (5, 6, 7, 0)],
        "rc8": [(0, 1, 2, 3)] * 4,
        "ecl": [(0, 1, 2, 3), (1, 1, 2, 3), (2, 2, 2, 3), (3, 3, 3, 3)],
        "ecr": [(0, 0, 0, 0), (0, 1, 1, 1), (0, 1, 2, 2), (0, 1, 2, 3)],
        "rc16": [(0, 2, 0, 2), (1, 3, 1, 3), (0, 2, 0, 2), (1, 3, 1, 3)],
    }
    return table(rows[mode][place]), None


@meaning("dp4a", "dp2a")
def _dot(t: PtxTranslator, i: PtxInstruction, m: Modifiers) -> None:
    b_type, a_type = m.type(), m.type()
    half = m.need("lo", "hi") if i.opcode == "dp2a" else ""
    d, x, y, z = operands(t, i, 4)
    c, a, b, total = t.c, t.bits(x, 32), t.bits(y, 32), t.bits(z, 32)

    def part(value: IrValue, at: int, bits: int, type_: str) -> IrValue:
        return c.resize(c.resize(c.op("lshr", value, at), bits), 32, signed=is_signed(type_))

    for k in range(4 if i.opcode == "dp4a" else 2):
        left = part(a, 8 * k, 8, a_type) if i.opcode == "dp4a" else part(a, 16 * k, 16, a_type)
        right = part(b, 8 * k + (16 if half == "hi" else 0), 8, b_type)
        total = c.op("add", total, c.op("mul", left, right))
    t.write(d, total)
