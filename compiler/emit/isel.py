"""Instruction selection: the lines for each elementwise operation of the kernel AST and each dtype.

Values are in registers of their register type (`conversions`); a result in a half type is rounded after every
operation that is not exact. Decisions that NumPy leaves open:

- Integer division and remainder by zero give 0; both round towards minus infinity.
- A shift by the width or more gives 0, or the sign for a signed right shift.
- MAX and MIN return NaN when either operand is one; which zero of a +0, -0 pair they return is not fixed.

Not here: what an operation means (`compiler.ir.ops`), the text of a line (`compiler.text.llvm_ir`),
functions made of many lines (`transcendental`), conversions between dtypes (`conversions`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from compiler.dtype import HALF, dtypes, register_type
from compiler.emit.conversions import constant, rounded
from compiler.emit.floats import fmod
from compiler.emit.power import power
from compiler.emit.transcendental import DECOMPOSITIONS
from compiler.ir.ops import ROWS
from hcq.errors import CompileError

if TYPE_CHECKING:
    from collections.abc import Callable

    from compiler.dtype import DType
    from compiler.emit.builder import Builder
    from compiler.emit.linear import Line

_WORDS = 8
"""Lanes from which on sums of products of halves have their own form."""


def _arithmetic(floats: str, whole: str, bools: str = "") -> Callable[[Builder, DType, Line, Line], Line]:
    """Return an operation with an instruction for floats, one for integers, and perhaps one for bools."""

    def operation(b: Builder, d: DType, x: Line, y: Line) -> Line:
        return b.alu(floats if d.is_float else bools if bools and d is dtypes.bool else whole, x, y)

    return operation


def _add(b: Builder, d: DType, x: Line, y: Line) -> Line:
    """Add. The sum of the products of both halves of two words has the form that LLVM finds PMADDWD in.

    low(v) * low(w) + high(v) * high(w), each half with its sign -> products of vectors of int16.
    """
    if d.is_float or not x.lanes == y.lanes >= _WORDS or not x.arg == y.arg == "mul":
        return b.alu("fadd" if d.is_float else "add", x, y)
    low, high = [_half_of(s) for s in x.src], [_half_of(s) for s in y.src]
    if any(s is None or s[1] or (s[0], 16) != t for s, t in zip(low, high, strict=True)):
        return b.alu("add", x, y)
    pairs = [b.line("convert", dtypes.int16, 2 * x.lanes, (s[0],), "bitcast") for s in low if s]
    parts = [[b.shuffle(p, p, range(n, 2 * x.lanes, 2)) for p in pairs] for n in (0, 1)]
    return b.alu("add", *[b.alu("mul", *[b.convert("sext", p, d) for p in both]) for both in parts])


def _half_of(x: Line) -> tuple[Line, int] | None:
    """Return the 32-bit word of which a value is the half from bit 0 or 16 on, extended by its sign."""
    if (x.op, x.arg) != ("convert", "sext") or (x.src[0].op, x.src[0].arg) != ("convert", "trunc"):
        return None
    word = x.src[0].src[0]
    if (x.src[0].dtype.bits, word.dtype.bits) != (16, 32):
        return None
    upper = word.op == "alu" and word.arg == "lshr" and (word.src[1].op, word.src[1].arg) == ("const", 16)
    return (word.src[0], 16) if upper else (word, 0)


def _pick(predicate: str, integer: str) -> Callable[[Builder, DType, Line, Line], Line]:
    """Return MAX or MIN: `predicate` is ogt or olt, `integer` max or min."""

    def operation(b: Builder, d: DType, x: Line, y: Line) -> Line:
        if d is dtypes.bool:
            return b.alu("or" if integer == "max" else "and", x, y)
        if not d.is_float:
            return b.call(("s" if d.kind == "int" else "u") + integer, x, y)
        if y.op == "const" and y.arg == y.arg:  # not NaN: one comparison does
            return b.select(b.cmp(predicate, y, x), y, x)
        larger = b.select(b.cmp(predicate, x, y), x, y)  # y when either is NaN
        return b.select(b.cmp("uno", x, x), x, larger)

    return operation


def _quotient_by_constant(b: Builder, d: DType, x: Line, y: Line) -> Line:
    if d.kind == "uint":
        return b.alu("udiv", x, y)
    assert isinstance(y.arg, int)
    q = b.alu("sdiv", x, y)
    rest = b.alu("sub", x, b.alu("mul", q, y))
    wrong = b.cmp("slt" if y.arg > 0 else "sgt", rest, b.const(d, 0))
    return b.select(wrong, b.alu("sub", q, b.const(d, 1)), q)


def _quotient_by_float(b: Builder, d: DType, x: Line, y: Line) -> Line:
    """Divide integers of up to 32 bits in float64, whose division vectors have.

    The quotient's floor is exact, because float64 division does not round such a quotient up to an integer.
    """
    to = "sitofp" if d.kind == "int" else "uitofp"
    f64 = dtypes.float64
    whole = b.call("floor", b.alu("fdiv", b.convert(to, x, f64), b.convert(to, y, f64)))
    wide = b.convert("fptosi", whole, dtypes.int64)
    return b.convert("trunc", wide, d)


def _quotient(b: Builder, d: DType, x: Line, y: Line) -> Line:
    """Divide integers by a divisor that is not zero, rounding towards minus infinity."""
    if d.bits > 32:
        return _quotient_by_integer(b, d, x, y)
    if max(x.lanes, y.lanes) > 1:
        return _quotient_by_float(b, d, x, y)
    wide = dtypes.int32 if d.kind == "int" else dtypes.uint32
    if wide is d:
        return _quotient_by_integer(b, d, x, y)
    extend = "sext" if d.kind == "int" else "zext"
    q = _quotient_by_integer(b, wide, b.convert(extend, x, wide), b.convert(extend, y, wide))
    return b.convert("trunc", q, d)


def _quotient_by_integer(b: Builder, d: DType, x: Line, y: Line) -> Line:
    if d.kind == "uint":
        return b.alu("udiv", x, y)
    minus = b.cmp("eq", y, b.const(d, -1))  # the smallest integer divided by -1 would trap
    safe = b.select(minus, b.const(d, 1), y)
    q = b.alu("sdiv", x, safe)
    rest = b.alu("sub", x, b.alu("mul", q, safe))
    some = b.cmp("ne", rest, b.const(d, 0))
    apart = b.cmp("slt", b.alu("xor", rest, safe), b.const(d, 0))
    q = b.select(b.alu("and", some, apart), b.alu("sub", q, b.const(d, 1)), q)
    return b.select(minus, b.alu("sub", b.const(d, 0), x), q)


def _floordiv(b: Builder, d: DType, x: Line, y: Line) -> Line:
    if d.is_float:
        return b.call("floor", b.alu("fdiv", x, y))
    if y.op == "const":
        if y.arg in (0, -1):
            return b.const(d, 0) if y.arg == 0 else b.alu("sub", b.const(d, 0), x)
        return _quotient_by_constant(b, d, x, y)
    none = b.cmp("eq", y, b.const(y.dtype, 0))
    safe = b.select(none, b.const(y.dtype, 1), y)
    return b.select(none, b.const(d, 0), _quotient(b, d, x, safe))


def _mod(b: Builder, d: DType, x: Line, y: Line) -> Line:
    if d.is_float:
        raise CompileError(f"MOD has no meaning for {d.name}; it takes integers")
    if y.op == "const" and y.arg == 0:
        return b.const(d, 0)
    q = _floordiv(b, d, x, y)
    rest = b.alu("sub", x, b.alu("mul", q, y))
    if y.op == "const":
        return rest
    return b.select(b.cmp("eq", y, b.const(d, 0)), b.const(d, 0), rest)


def _shift(name: str) -> Callable[[Builder, DType, Line, Line], Line]:
    def operation(b: Builder, d: DType, x: Line, y: Line) -> Line:
        code = name if name == "shl" else ("ashr" if d.kind == "int" else "lshr")
        top = b.const(d, d.bits - 1)
        if code == "ashr":
            return b.alu(code, x, b.call("umin", y, top))
        if y.op == "const" and isinstance(y.arg, int) and 0 <= y.arg < d.bits:
            return b.alu(code, x, y)
        shifted = b.alu(code, x, b.call("umin", y, top))
        return b.select(b.cmp("ugt", y, top), b.const(d, 0), shifted)

    return operation


def _compare(floats: str, signed: str, unsigned: str) -> Callable[[Builder, DType, Line, Line], Line]:
    def operation(b: Builder, _d: DType, x: Line, y: Line) -> Line:
        kind = x.dtype
        return b.cmp(floats if kind.is_float else signed if kind.kind == "int" else unsigned, x, y)

    return operation


def _neg(b: Builder, d: DType, x: Line) -> Line:
    if d.is_float:
        return b.line("fneg", x.dtype, x.lanes, (x,))
    return b.alu("sub", b.const(d, 0), x)


def _abs(b: Builder, d: DType, x: Line) -> Line:
    if d.is_float:
        return b.call("fabs", x)
    return x if d.kind != "int" else b.call("smax", x, b.alu("sub", b.const(d, 0), x))


def _rounding(name: str) -> Callable[[Builder, DType, Line], Line]:
    return lambda b, d, x: b.call(name, x) if d.is_float else x


def _not(b: Builder, d: DType, x: Line) -> Line:
    return b.alu("xor", x, b.const(d, True) if d is dtypes.bool else constant(b, d, -1))


def _transcendental(name: str) -> Callable[[Builder, DType, Line], Line]:
    return lambda b, _d, x: DECOMPOSITIONS[name](b, x)


UNARY: dict[str, Callable[[Builder, DType, Line], Line]] = {
    "NEG": _neg, "ABS": _abs, "NOT": _not,
    "RECIP": lambda b, _d, x: b.alu("fdiv", b.const(x.dtype, 1.0), x),
    "SQRT": lambda b, _d, x: b.call("sqrt", x),
    "FLOOR": _rounding("floor"), "CEIL": _rounding("ceil"), "TRUNC": _rounding("trunc"),
    "ROUND": _rounding("roundeven"),
    **{name: _transcendental(name) for name in DECOMPOSITIONS},
}  # fmt: skip

BINARY: dict[str, Callable[[Builder, DType, Line, Line], Line]] = {
    "ADD": _add, "SUB": _arithmetic("fsub", "sub"),
    "MUL": _arithmetic("fmul", "mul", "and"), "DIV": _arithmetic("fdiv", "fdiv"),
    "FLOORDIV": _floordiv, "MOD": _mod,
    "FMOD": lambda b, _d, x, y: fmod(b, x, y), "POW": power,
    "COPYSIGN": lambda b, _d, x, y: b.call("copysign", x, y),
    "MAX": _pick("ogt", "max"), "MIN": _pick("olt", "min"),
    "LT": _compare("olt", "slt", "ult"), "EQ": _compare("oeq", "eq", "eq"), "NE": _compare("une", "ne", "ne"),
    **{op: _arithmetic(op.lower(), op.lower()) for op in ("AND", "OR", "XOR")},
    "SHL": _shift("shl"), "SHR": _shift("shr"),
}  # fmt: skip


def unary(b: Builder, op: str, dtype: DType, x: Line) -> Line:
    """Apply a unary operation to a value of `dtype`."""
    result = UNARY[op](b, register_type(dtype), x)
    return result if ROWS[op].exact else rounded(b, result, dtype)


def binary(b: Builder, op: str, dtype: DType, x: Line, y: Line) -> Line:
    """Apply a binary operation to two values of one dtype; `dtype` is the result's."""
    result = BINARY[op](b, register_type(dtype), x, y)
    return rounded(b, result, dtype) if dtype in HALF and not ROWS[op].exact else result


def identity(b: Builder, op: str, dtype: DType, lanes: int) -> Line:
    """Return the initial value of a reduction."""
    kind = register_type(dtype)
    if op in ("ADD", "MUL"):
        one = op == "MUL"
        return b.const(
            kind, float(one) if kind.is_float else bool(one) if kind is dtypes.bool else int(one), lanes
        )
    if kind.is_float:
        return b.const(kind, float("-inf") if op == "MAX" else float("inf"), lanes)
    low, high = (False, True) if kind is dtypes.bool else (kind.min, kind.max)
    return b.const(kind, low if op == "MAX" else high, lanes)


def combine(b: Builder, op: str, dtype: DType, total: Line, value: Line) -> Line:
    """Write one step of a reduction, in the register type; half types are rounded once, at the end."""
    if dtype is dtypes.bool and op == "ADD":
        return b.alu("or", total, value)
    return BINARY[op](b, register_type(dtype), total, value)


def across(b: Builder, op: str, dtype: DType, total: Line) -> Line:
    """Reduce the lanes of a register, a power of two, as a tree over halves."""
    if total.op == "const":
        return b.const(total.dtype, total.arg) if isinstance(total.arg, int | float) else total
    width = total.lanes
    while width > 2:
        width //= 2
        low = b.shuffle(total, total, range(width))
        high = b.shuffle(total, total, range(width, 2 * width))
        total = combine(b, op, dtype, low, high)
    first, second = [b.line("extract", total.dtype, 1, (total,), lane) for lane in range(2)]
    return combine(b, op, dtype, first, second)
