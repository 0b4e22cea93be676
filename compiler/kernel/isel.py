"""Instruction selection: the lines for each elementwise operation of the kernel AST and each dtype.

A value's register has the dtype's *register type*: float16 and bfloat16 are held in float32 registers and
rounded after every operation that is not exact, index is held in int64, all others in their own type.
Decisions that NumPy leaves open:

- float to integer saturates and NaN gives 0; float to bool is `x != 0`; integers wrap.
- Integer division and remainder by zero give 0; both round towards minus infinity.
- A shift by the width or more gives 0, or the sign for a signed right shift.
- MAX and MIN return NaN when either operand is one; which zero of a +0, -0 pair they return is not fixed.

Not here: what an operation means (`compiler.ir.ops`), the text of a line (`compiler.codegen.llvm_ir`),
functions made of many lines (`compiler.codegen`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from compiler.codegen.power import power
from compiler.codegen.remainder import fmod
from compiler.codegen.transcendental import DECOMPOSITIONS
from compiler.dtype import dtypes
from compiler.ir.ops import ROWS
from hcq.errors import CompileError

if TYPE_CHECKING:
    from collections.abc import Callable

    from compiler.dtype import DType
    from compiler.kernel.builder import Builder
    from compiler.kernel.linear import Line

HALF = (dtypes.float16, dtypes.bfloat16)


def register_type(dtype: DType) -> DType:
    """The dtype of the register that holds such a value."""
    if dtype in HALF:
        return dtypes.float32
    return dtypes.int64 if dtype is dtypes.index else dtype


def storage_type(dtype: DType) -> DType:
    """The dtype that memory operations of such a value have."""
    if dtype is dtypes.bool:
        return dtypes.uint8
    return dtypes.uint16 if dtype is dtypes.bfloat16 else dtype


def unpack(b: Builder, stored: Line, dtype: DType) -> Line:
    """What memory held, as a value's register."""
    if dtype is dtypes.bool:
        return b.cmp("ne", stored, b.const(dtypes.uint8, 0))
    if dtype is dtypes.float16:
        return b.convert("fpext", stored, dtypes.float32)
    if dtype is dtypes.bfloat16:
        wide = b.alu("shl", b.convert("zext", stored, dtypes.uint32), b.const(dtypes.uint32, 16))
        return b.convert("bitcast", wide, dtypes.float32)
    return stored


def pack(b: Builder, value: Line, dtype: DType) -> Line:
    """A value's register as memory holds it; halves are already rounded."""
    if dtype is dtypes.bool:
        return b.convert("zext", value, dtypes.uint8)
    if dtype is dtypes.float16:
        return b.convert("fptrunc", value, dtypes.float16)
    if dtype is dtypes.bfloat16:
        bits = b.alu("lshr", b.convert("bitcast", value, dtypes.uint32), b.const(dtypes.uint32, 16))
        return b.convert("trunc", bits, dtypes.uint16)
    return value


def rounded(b: Builder, value: Line, dtype: DType) -> Line:
    """A float32 register rounded to what a half type can hold; any other value as it is."""
    if dtype is dtypes.float16:
        return b.convert("fpext", b.convert("fptrunc", value, dtypes.float16), dtypes.float32)
    if dtype is not dtypes.bfloat16:
        return value
    u = dtypes.uint32
    bits = b.convert("bitcast", value, u)
    odd = b.alu("and", b.alu("lshr", bits, b.const(u, 16)), b.const(u, 1))
    near = b.alu("add", b.alu("add", bits, odd), b.const(u, 0x7FFF))
    quiet = b.alu("or", bits, b.const(u, 0x400000))
    kept = b.select(b.cmp("uno", value, value), quiet, near)
    return b.convert("bitcast", b.alu("and", kept, b.const(u, 0xFFFF0000)), dtypes.float32)


def zero(b: Builder, dtype: DType, lanes: int = 1) -> Line:
    """The value zero of a register."""
    kind = register_type(dtype)
    return b.const(kind, 0.0 if kind.is_float else False if kind is dtypes.bool else 0, lanes)


def constant(b: Builder, dtype: DType, value: float | bool) -> Line:  # noqa: FBT001  # a bool is one of the values
    """A constant of the dtype; integers wrap, floats round to the dtype."""
    kind = register_type(dtype)
    if kind is dtypes.bool:
        return b.const(kind, bool(value))
    if kind.is_float:
        return b.const(kind, round_constant(float(value), dtype))
    wrapped = int(value) & ((1 << kind.bits) - 1)
    return b.const(
        kind, wrapped - (1 << kind.bits) if kind.kind == "int" and wrapped >> (kind.bits - 1) else wrapped
    )


def round_constant(value: float, dtype: DType) -> float:
    """A Python float rounded to the dtype, ties to even, overflow to infinity."""
    import math  # noqa: PLC0415

    if dtype is dtypes.float64 or value == 0 or math.isinf(value) or math.isnan(value):
        return value
    digits, least = {"float32": (24, -149), "float16": (11, -24), "bfloat16": (8, -133)}[dtype.name]
    top = {"float32": 128, "float16": 16, "bfloat16": 128}[dtype.name]
    exponent = math.frexp(value)[1]
    quantum = max(exponent - digits, least)
    result = math.ldexp(round(math.ldexp(value, -quantum)), quantum)
    return math.copysign(math.inf, value) if abs(result) >= 2.0**top else result


def _add(b: Builder, d: DType, x: Line, y: Line) -> Line:
    return b.alu("fadd" if d.is_float else "add", x, y)


def _sub(b: Builder, d: DType, x: Line, y: Line) -> Line:
    return b.alu("fsub" if d.is_float else "sub", x, y)


def _mul(b: Builder, d: DType, x: Line, y: Line) -> Line:
    if d is dtypes.bool:
        return b.alu("and", x, y)
    return b.alu("fmul" if d.is_float else "mul", x, y)


def _div(b: Builder, _d: DType, x: Line, y: Line) -> Line:
    return b.alu("fdiv", x, y)


def _pick(predicate: str, integer: str) -> Callable[[Builder, DType, Line, Line], Line]:
    """MAX or MIN: `predicate` is ogt or olt, `integer` max or min."""

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


def _nonzero(b: Builder, x: Line) -> tuple[Line, Line]:
    """(mask of zeros, x with them replaced by one)."""
    none = b.cmp("eq", x, b.const(x.dtype, 0))
    return none, b.select(none, b.const(x.dtype, 1), x)


def _quotient_by_constant(b: Builder, d: DType, x: Line, y: Line) -> Line:
    if d.kind == "uint":
        return b.alu("udiv", x, y)
    assert isinstance(y.arg, int)
    q = b.alu("sdiv", x, y)
    rest = b.alu("sub", x, b.alu("mul", q, y))
    wrong = b.cmp("slt" if y.arg > 0 else "sgt", rest, b.const(d, 0))
    return b.select(wrong, b.alu("sub", q, b.const(d, 1)), q)


def _quotient_by_float(b: Builder, d: DType, x: Line, y: Line) -> Line:
    """Quotient of vectors of integers of up to 32 bits.

    Float64 division cannot round across an integer, and vectors have it.
    """
    to = "sitofp" if d.kind == "int" else "uitofp"
    f64 = dtypes.float64
    whole = b.call("floor", b.alu("fdiv", b.convert(to, x, f64), b.convert(to, y, f64)))
    wide = b.convert("fptosi", whole, dtypes.int64)
    return b.convert("trunc", wide, d)


def _quotient(b: Builder, d: DType, x: Line, y: Line) -> Line:
    """Quotient of integers by a divisor that is not zero."""
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
    minus = b.cmp("eq", y, b.const(d, -1))  # the least integer by -1 would trap
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
    none, safe = _nonzero(b, y)
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


def _bitwise(name: str) -> Callable[[Builder, DType, Line, Line], Line]:
    return lambda b, _d, x, y: b.alu(name, x, y)


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


def _recip(b: Builder, _d: DType, x: Line) -> Line:
    return b.alu("fdiv", b.const(x.dtype, 1.0), x)


def _sqrt(b: Builder, _d: DType, x: Line) -> Line:
    return b.call("sqrt", x)


def _not(b: Builder, d: DType, x: Line) -> Line:
    return b.alu("xor", x, b.const(d, True) if d is dtypes.bool else constant(b, d, -1))


def _transcendental(name: str) -> Callable[[Builder, DType, Line], Line]:
    return lambda b, _d, x: DECOMPOSITIONS[name](b, x)


UNARY: dict[str, Callable[[Builder, DType, Line], Line]] = {
    "NEG": _neg, "ABS": _abs, "NOT": _not, "RECIP": _recip, "SQRT": _sqrt,
    "FLOOR": _rounding("floor"), "CEIL": _rounding("ceil"), "TRUNC": _rounding("trunc"),
    "ROUND": _rounding("roundeven"),
    **{name: _transcendental(name) for name in DECOMPOSITIONS},
}  # fmt: skip

BINARY: dict[str, Callable[[Builder, DType, Line, Line], Line]] = {
    "ADD": _add, "SUB": _sub, "MUL": _mul, "DIV": _div, "FLOORDIV": _floordiv, "MOD": _mod,
    "FMOD": lambda b, _d, x, y: fmod(b, x, y), "POW": power,
    "COPYSIGN": lambda b, _d, x, y: b.call("copysign", x, y),
    "MAX": _pick("ogt", "max"), "MIN": _pick("olt", "min"),
    "LT": _compare("olt", "slt", "ult"), "EQ": _compare("oeq", "eq", "eq"), "NE": _compare("une", "ne", "ne"),
    "AND": _bitwise("and"), "OR": _bitwise("or"), "XOR": _bitwise("xor"),
    "SHL": _shift("shl"), "SHR": _shift("shr"),
}  # fmt: skip


def unary(b: Builder, op: str, dtype: DType, x: Line) -> Line:
    """Apply a unary operation to a value of `dtype`."""
    result = UNARY[op](b, register_type(dtype), x)
    return result if ROWS[op].exact else rounded(b, result, dtype)


def binary(b: Builder, op: str, dtype: DType, x: Line, y: Line) -> Line:
    """Apply a binary operation to two values of one dtype; `dtype` is the result's."""
    result = BINARY[op](b, register_type(dtype), x, y)
    return result if ROWS[op].exact else rounded(b, result, dtype)


def cast(b: Builder, x: Line, source: DType, target: DType) -> Line:
    """The value converted to another dtype."""
    if source is target:
        return x
    kind = register_type(target)
    if target is dtypes.bool:
        return b.cmp("une" if x.dtype.is_float else "ne", x, zero(b, source))
    if x.dtype.is_float and kind.is_float:
        return _float_to_float(b, x, source, target)
    if x.dtype.is_float:
        return _float_to_int(b, x, kind)
    if kind.is_float:
        return _int_to_float(b, x, target)
    if kind.bits == x.dtype.bits:
        return b.convert("bitcast", x, kind) if kind is not x.dtype else x
    return b.convert(
        "trunc" if kind.bits < x.dtype.bits else "sext" if x.dtype.kind == "int" else "zext", x, kind
    )


def _float_to_float(b: Builder, x: Line, source: DType, target: DType) -> Line:
    if target is dtypes.float64:
        return b.convert("fpext", x, dtypes.float64)
    if source is dtypes.float64:
        return (
            b.convert("fptrunc", x, dtypes.float32)
            if target is dtypes.float32
            else rounded(b, _to_odd(b, x), target)
        )
    return rounded(b, x, target)


def _to_odd(b: Builder, x: Line) -> Line:
    """float64 to float32 rounded to odd, so that rounding once more to a half type is right."""
    near = b.convert("fptrunc", x, dtypes.float32)
    back = b.convert("fpext", near, dtypes.float64)
    bits = b.convert("bitcast", near, dtypes.uint32)
    beyond = b.cmp("ogt", b.call("fabs", back), b.call("fabs", x))
    towards_zero = b.select(beyond, b.alu("sub", bits, b.const(dtypes.uint32, 1)), bits)
    odd = b.alu("or", towards_zero, b.const(dtypes.uint32, 1))
    inexact = b.cmp("one", back, x)
    return b.convert("bitcast", b.select(inexact, odd, bits), dtypes.float32)


def _float_to_int(b: Builder, x: Line, kind: DType) -> Line:
    signed = kind.kind == "int"
    if kind.bits >= 32:
        return b.line("saturate", kind, x.lanes, (x,), "fptosi" if signed else "fptoui")
    wide = b.line("saturate", dtypes.int32, x.lanes, (x,), "fptosi")
    wide = b.call(
        "smin", b.call("smax", wide, b.const(dtypes.int32, kind.min)), b.const(dtypes.int32, kind.max)
    )
    return b.convert("trunc", wide, kind)


def _int_to_float(b: Builder, x: Line, target: DType) -> Line:
    name = "sitofp" if x.dtype.kind == "int" else "uitofp"
    kind = register_type(target)
    if target in HALF and x.dtype.bits == 32:
        return rounded(b, _to_odd(b, b.convert(name, x, dtypes.float64)), target)
    if target in HALF and x.dtype.bits == 64:
        return rounded(b, _to_odd(b, b.convert(name, _shortened(b, x), dtypes.float64)), target)
    return rounded(b, b.convert(name, x, kind), target)


def _shortened(b: Builder, x: Line) -> Line:
    """A 64-bit integer that float64 holds: beyond 2**53 rounded to odd at its bit 11."""
    kind = x.dtype

    def number(value: int) -> Line:
        return b.const(kind, value)

    lost = b.cmp("ne", b.alu("and", x, number(0x7FF)), number(0))
    kept = b.alu("shl", b.alu("lshr", x, number(11)), number(11))
    odd = b.select(lost, b.alu("or", kept, number(0x800)), kept)
    if kind.kind == "uint":
        return b.select(b.cmp("ult", x, number(1 << 53)), x, odd)
    short = b.cmp("ult", b.alu("add", x, number(1 << 53)), number(1 << 54))
    return b.select(short, x, odd)


def bitcast(b: Builder, x: Line, source: DType, target: DType) -> Line:
    """The same bits read as another dtype of equal size."""
    raw = pack(b, x, source) if source in HALF else x
    if target in HALF:
        stored = storage_type(target)
        return unpack(b, b.convert("bitcast", raw, stored) if raw.dtype is not stored else raw, target)
    kind = register_type(target)
    return raw if raw.dtype is kind else b.convert("bitcast", raw, kind)


def identity(b: Builder, op: str, dtype: DType, lanes: int) -> Line:
    """The value that a reduction starts from."""
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
    """One step of a reduction, in the register type: half types are rounded once, at the end."""
    if dtype is dtypes.bool and op == "ADD":
        return b.alu("or", total, value)
    return BINARY[op](b, register_type(dtype), total, value)


def across(b: Builder, op: str, dtype: DType, total: Line) -> Line:
    """The reduction of a register's own lanes, as a tree over halves."""
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
