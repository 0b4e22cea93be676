"""Integer arithmetic, comparison, logic, shifts and bit fields. Source: PTX ISA 9.7.1, 9.7.2, 9.7.7, 9.7.8."""

# ruff: noqa: E501 - summaries and tables that name their parameters read best on one line

from __future__ import annotations

from typing import TYPE_CHECKING

from drivers.emu.vector import Value, bits_of
from drivers.nv.emu.ptx_core import MEANINGS, Modifiers, Translator, meaning, operands
from drivers.nv.emu.ptx_syntax import TYPES, Imm, Instruction, Pair

if TYPE_CHECKING:
    from collections.abc import Callable

CARRY = "%cc"
"""The carry flag, a predicate that add.cc and its kin write."""

INTEGERS = {f"{k}{w}" for k in "bus" for w in (8, 16, 32, 64)}
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

_INTEGER: dict[str, Callable[[Translator, Instruction, Modifiers, str], None]] = {}
FLOATING: dict[str, Callable[[Translator, Instruction, Modifiers, str], None]] = {}
"""The same opcodes on floating-point types; filled by `ptx_float`."""


def integer(
    *opcodes: str,
) -> Callable[
    [Callable[[Translator, Instruction, Modifiers, str], None]],
    Callable[[Translator, Instruction, Modifiers, str], None],
]:
    """Register the meaning of opcodes on integer types; floating-point types go to `FLOATING`."""

    def register(
        function: Callable[[Translator, Instruction, Modifiers, str], None],
    ) -> Callable[[Translator, Instruction, Modifiers, str], None]:
        for opcode in opcodes:
            _INTEGER[opcode] = function
            MEANINGS[opcode] = _dispatch
        return function

    return register


def _dispatch(t: Translator, i: Instruction, m: Modifiers) -> None:
    type_ = m.type()
    table = _INTEGER if type_ in INTEGERS or type_ in ("u16x2", "s16x2", "pred") else FLOATING
    if i.opcode not in table:
        raise t.error(f"{i.opcode} does not work on .{type_}")
    table[i.opcode](t, i, m, type_)


def is_signed(type_: str) -> bool:
    """Whether a type is a signed integer."""
    return type_[0] == "s"


def _halves(t: Translator, value: Value, *, signed: bool) -> list[Value]:
    low = t.c.resize(value, 16)
    high = t.c.resize(t.c.op("lshr", value, 16), 16)
    del signed
    return [low, high]


def join_halves(t: Translator, low: Value, high: Value) -> Value:
    """Pack two 16-bit values into one of 32."""
    c = t.c
    return c.op("or", c.resize(low, 32), c.op("shl", c.resize(high, 32), 16))


def saturated(t: Translator, name: str, a: Value, b: Value) -> Value:
    """Add or subtract signed integers with saturation."""
    return t.c.intrinsic(f"s{name}.sat", a, b)


@integer("add", "sub", "addc", "subc")
def _add(t: Translator, i: Instruction, m: Modifiers, type_: str) -> None:
    d, x, y = operands(t, i, 3)
    bits = TYPES[type_]
    name = "add" if i.opcode.startswith("add") else "sub"
    if type_.endswith("x2"):
        pairs = zip(
            _halves(t, t.bits(x, 32), signed=True), _halves(t, t.bits(y, 32), signed=True), strict=True
        )
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


def _with_carry(t: Translator, name: str, a: Value, b: Value, carry: Value | None) -> tuple[Value, Value]:
    c = t.c
    first = c.op(name, a, b)
    out = c.icmp("ult", first if name == "add" else a, a if name == "add" else b)
    if carry is None:
        return first, out
    step = c.resize(carry, bits_of(a.type))
    second = c.op(name, first, step)
    again = c.icmp("ult", second, step) if name == "add" else c.icmp("ult", first, step)
    return second, c.op("or", out, again)


def _product(t: Translator, a: Value, b: Value, type_: str, part: str) -> Value:
    """Multiply; `part` is lo, hi or wide."""
    c, bits = t.c, TYPES[type_]
    if part == "lo":
        return c.op("mul", a, b)
    kind = is_signed(type_)
    whole = c.op("mul", c.resize(a, 2 * bits, signed=kind), c.resize(b, 2 * bits, signed=kind))
    return whole if part == "wide" else c.resize(c.op("lshr", whole, bits), bits)


@integer("mul", "mul24")
def _mul(t: Translator, i: Instruction, m: Modifiers, type_: str) -> None:
    d, x, y = operands(t, i, 3)
    part = m.need("lo", "hi", "wide")
    a, b = t.bits(x, TYPES[type_]), t.bits(y, TYPES[type_])
    if i.opcode == "mul24":
        t.write(d, _product24(t, a, b, type_, part))
        return
    t.write(d, _product(t, a, b, type_, part))


def _product24(t: Translator, a: Value, b: Value, type_: str, part: str) -> Value:
    c, kind = t.c, is_signed(type_)
    shift = "ashr" if kind else "lshr"
    wide = [c.resize(c.op(shift, c.op("shl", v, 8), 8), 64, signed=kind) for v in (a, b)]
    whole = c.op("mul", *wide)
    return c.resize(c.op("lshr", whole, 16) if part == "hi" else whole, 32)


@integer("mad", "madc", "mad24")
def _mad(t: Translator, i: Instruction, m: Modifiers, type_: str) -> None:
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
def _sad(t: Translator, i: Instruction, _: Modifiers, type_: str) -> None:
    d, x, y, z = operands(t, i, 4)
    a, b, addend = (t.bits(o, TYPES[type_]) for o in (x, y, z))
    c, kind = t.c, "s" if is_signed(type_) else "u"
    distance = c.op("sub", c.intrinsic(f"{kind}max", a, b), c.intrinsic(f"{kind}min", a, b))
    t.write(d, c.op("add", addend, distance))


@integer("div", "rem")
def _div(t: Translator, i: Instruction, _: Modifiers, type_: str) -> None:
    """Divide. By zero the quotient is all ones and the remainder the dividend, as the hardware's routines give."""
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
def _negate(t: Translator, i: Instruction, _: Modifiers, type_: str) -> None:
    d, x = operands(t, i, 2)
    a = t.bits(x, TYPES[type_])
    minus = t.c.op("sub", t.c.const(a.type, 0), a)
    t.write(d, minus if i.opcode == "neg" else t.c.select(t.c.icmp("slt", a, 0), minus, a))


@integer("min", "max")
def _extreme(t: Translator, i: Instruction, m: Modifiers, type_: str) -> None:
    d, x, y = operands(t, i, 3)
    kind = "s" if is_signed(type_) else "u"
    relu = m.flag("relu")

    def pick(a: Value, b: Value) -> Value:
        best = t.c.intrinsic(f"{kind}{i.opcode}", a, b)
        return t.c.intrinsic("smax", best, t.c.const(best.type, 0)) if relu else best

    if type_.endswith("x2"):
        pairs = zip(
            _halves(t, t.bits(x, 32), signed=True), _halves(t, t.bits(y, 32), signed=True), strict=True
        )
        t.write(d, join_halves(t, *(pick(a, b) for a, b in pairs)))
    else:
        t.write(d, pick(t.bits(x, TYPES[type_]), t.bits(y, TYPES[type_])))


@integer("and", "or", "xor", "not", "cnot")
def _logic(t: Translator, i: Instruction, _: Modifiers, type_: str) -> None:
    d, *sources = operands(t, i, 2 if i.opcode in ("not", "cnot") else 3)
    values = [t.pred(o) if type_ == "pred" else t.bits(o, TYPES[type_]) for o in sources]
    if i.opcode == "not":
        t.write(d, t.c.not_(values[0]))
    elif i.opcode == "cnot":
        t.write(d, t.c.resize(t.c.icmp("eq", values[0], 0), TYPES[type_]))
    else:
        t.write(d, t.c.op(i.opcode, *values))


@integer("popc", "clz")
def _count(t: Translator, i: Instruction, _: Modifiers, type_: str) -> None:
    d, x = operands(t, i, 2)
    a = t.bits(x, TYPES[type_])
    zero = (Value("i1", "false"),) if i.opcode == "clz" else ()
    t.write(d, t.c.resize(t.c.intrinsic("ctlz" if zero else "ctpop", a, extra=zero), 32))


@integer("bfind")
def _bfind(t: Translator, i: Instruction, m: Modifiers, type_: str) -> None:
    d, x = operands(t, i, 2)
    c, bits, a = t.c, TYPES[type_], t.bits(x, TYPES[type_])
    if is_signed(type_):
        a = c.op("xor", a, c.op("ashr", a, bits - 1))
    leading = c.resize(c.intrinsic("ctlz", a, extra=(Value("i1", "false"),)), 32)
    found = leading if m.flag("shiftamt") else c.op("sub", c.const(leading.type, bits - 1), leading)
    t.write(d, c.select(c.icmp("eq", a, 0), c.const(found.type, -1), found))


@integer("brev")
def _brev(t: Translator, i: Instruction, _: Modifiers, type_: str) -> None:
    d, x = operands(t, i, 2)
    t.write(d, t.c.intrinsic("bitreverse", t.bits(x, TYPES[type_])))


def _shifted(t: Translator, name: str, value: Value, amount: Value) -> Value:
    """Shift by an amount that may exceed the width: PTX clamps it."""
    c, bits = t.c, bits_of(value.type)
    narrow = c.intrinsic("umin", amount, c.const(amount.type, bits))
    inside = c.icmp("ult", narrow, bits)
    safe = c.select(inside, narrow, c.const(narrow.type, bits - 1))
    shifted = c.op(name, value, c.resize(safe, bits))
    return shifted if name == "ashr" else c.select(inside, shifted, c.const(value.type, 0))


@integer("shl", "shr")
def _shift(t: Translator, i: Instruction, _: Modifiers, type_: str) -> None:
    d, x, y = operands(t, i, 3)
    name = "shl" if i.opcode == "shl" else "ashr" if is_signed(type_) else "lshr"
    t.write(d, _shifted(t, name, t.bits(x, TYPES[type_]), t.bits(y, 32)))


@integer("shf")
def _funnel(t: Translator, i: Instruction, m: Modifiers, _: str) -> None:
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


def _field(t: Translator, x: Value) -> Value:
    """Positions and lengths of bit fields are the low 8 bits of their operands."""
    return t.c.op("and", x, 255)


def _ones(t: Translator, length: Value, bits: int) -> Value:
    """Return `length` ones from bit 0, as `bits`-wide integers; a longer length gives all ones."""
    return t.c.not_(_shifted(t, "shl", t.c.const(t.v(f"i{bits}"), -1), length))


@integer("bfe")
def _bfe(t: Translator, i: Instruction, _: Modifiers, type_: str) -> None:
    d, x, y, z = operands(t, i, 4)
    c, bits = t.c, TYPES[type_]
    a, position, length = t.bits(x, bits), _field(t, t.bits(y, 32)), _field(t, t.bits(z, 32))
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
def _bfi(t: Translator, i: Instruction, _: Modifiers, type_: str) -> None:
    d, x, base, y, z = operands(t, i, 5)
    c, bits = t.c, TYPES[type_]
    a, b = t.bits(x, bits), t.bits(base, bits)
    position, length = _field(t, t.bits(y, 32)), _field(t, t.bits(z, 32))
    where = _shifted(t, "shl", _ones(t, length, bits), position)
    t.write(d, c.op("or", c.op("and", _shifted(t, "shl", a, position), where), c.op("and", b, c.not_(where))))


@meaning("bmsk")
def _bmsk(t: Translator, i: Instruction, m: Modifiers) -> None:
    mode = m.need("clamp", "wrap")
    m.type()
    d, x, y = operands(t, i, 3)
    position, length = t.bits(x, 32), t.bits(y, 32)
    if mode == "wrap":
        position, length = t.c.op("and", position, 31), t.c.op("and", length, 31)
    t.write(d, _shifted(t, "shl", _ones(t, length, 32), position))


@meaning("szext")
def _szext(t: Translator, i: Instruction, m: Modifiers) -> None:
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
def _fns(t: Translator, i: Instruction, m: Modifiers) -> None:
    """Find the n-th set bit from a base: walk away from it, up for a positive offset, down for a negative one."""
    m.need("b32")
    d, x, y, z = operands(t, i, 4)
    c, mask, base, offset = t.c, t.bits(x, 32), t.bits(y, 32), t.bits(z, 32)
    up, here = c.icmp("sgt", offset, 0), c.icmp("eq", offset, 0)
    wanted = c.intrinsic("abs", offset, extra=(Value("i1", "false"),))
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
def _lop3(t: Translator, i: Instruction, m: Modifiers) -> None:
    m.need("b32")
    if m.one_of("or", "and"):
        raise t.error("lop3 with a predicate is not supported")
    d, x, y, z, table = operands(t, i, 5)
    a, b, w = (t.bits(o, 32) for o in (x, y, z))
    if not isinstance(table, Imm):
        raise t.error("lop3 needs a constant table")
    c, result = t.c, t.c.const(a.type, 0)
    for row in range(8):
        if table.value >> row & 1:
            terms = [v if row >> n & 1 else c.not_(v) for n, v in ((2, a), (1, b), (0, w))]
            result = c.op("or", result, c.op("and", c.op("and", terms[0], terms[1]), terms[2]))
    t.write(d, result)


@meaning("prmt")
def _prmt(t: Translator, i: Instruction, m: Modifiers) -> None:
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


def _permute_choice(t: Translator, mode: str, selector: Value, place: int) -> tuple[Value, Value | None]:
    """Return which byte goes to a place, and whether its sign is copied."""
    c = t.c
    if not mode:
        nibble = c.op("lshr", selector, 4 * place)
        return c.op("and", nibble, 7), c.icmp("ne", c.op("and", nibble, 8), 0)
    low = c.op("and", selector, 3)

    def table(rows: tuple[int, int, int, int]) -> Value:
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
def _dot(t: Translator, i: Instruction, m: Modifiers) -> None:
    b_type, a_type = m.type(), m.type()
    half = m.need("lo", "hi") if i.opcode == "dp2a" else ""
    d, x, y, z = operands(t, i, 4)
    c, a, b, total = t.c, t.bits(x, 32), t.bits(y, 32), t.bits(z, 32)

    def part(value: Value, at: int, bits: int, type_: str) -> Value:
        return c.resize(c.resize(c.op("lshr", value, at), bits), 32, signed=is_signed(type_))

    for k in range(4 if i.opcode == "dp4a" else 2):
        left = part(a, 8 * k, 8, a_type) if i.opcode == "dp4a" else part(a, 16 * k, 16, a_type)
        right = part(b, 8 * k + (16 if half == "hi" else 0), 8, b_type)
        total = c.op("add", total, c.op("mul", left, right))
    t.write(d, total)


# ---- comparison and selection


def compare_integers(t: Translator, how: str, type_: str, a: Value, b: Value) -> Value:
    """Compare as PTX's integer operators do."""
    if how not in COMPARE:
        raise t.error(f".{how} does not compare integers")
    name = COMPARE[how]
    signed = is_signed(type_) and how not in ("lo", "ls", "hi", "hs")
    return t.c.icmp(name if name in ("eq", "ne") else ("s" if signed else "u") + name, a, b)


def combine(t: Translator, how: str, value: Value, other: Value) -> Value:
    """Combine a comparison with a predicate."""
    return t.c.op(how, value, other) if how else value


@integer("setp")
def _setp(t: Translator, i: Instruction, m: Modifiers, type_: str) -> None:
    first, *_ = i.operands
    bits = TYPES[type_]
    how = m.need(*COMPARE)
    a, b = t.bits(i.operands[1], bits), t.bits(i.operands[2], bits)
    set_predicates(t, i, m, compare_integers(t, how, type_, a, b))
    del first


def set_predicates(t: Translator, i: Instruction, m: Modifiers, value: Value) -> None:
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
def _selp(t: Translator, i: Instruction, m: Modifiers) -> None:
    bits = TYPES[m.type()]
    d, x, y, p = operands(t, i, 4)
    t.write(d, t.c.select(t.pred(p), t.bits(x, bits), t.bits(y, bits)))


@meaning("slct")
def _slct(t: Translator, i: Instruction, m: Modifiers) -> None:
    by = m.type()
    bits = TYPES[m.type()]
    ftz = m.flag("ftz")
    d, x, y, z = operands(t, i, 4)
    if by == "f32":
        value = t.float(z, "f32")
        if ftz:
            from drivers.nv.emu.ptx_float import flushed  # noqa: PLC0415 - the float half imports this one

            value = flushed(t, value)
        condition = t.c.fcmp("oge", value, t.c.fconst(value.type, 0.0))
    else:
        condition = t.c.icmp("sge", t.bits(z, 32), 0)
    t.write(d, t.c.select(condition, t.bits(x, bits), t.bits(y, bits)))
