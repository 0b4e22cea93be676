"""Values in memory and in registers, and the conversions between dtypes, as lines.

A value's register has the dtype's *register type*: floats of 8 and 16 bits are in float32 registers, an index
is in an int64 register, every other value in its own type. Memory has the *storage type*: uint8 for bool and
8-bit floats, uint16 for bfloat16.

Float to integer saturates, and NaN gives 0; float to bool is `x != 0`; integers wrap; every conversion to a
float rounds once, to nearest even.

Not here: elementwise operations and steps of reductions (`isel`), loads and stores (`accesses`), the bits of
8-bit floats (`float8_lines`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from compiler.dtype import FLOAT8, HALF, NARROW, dtypes, register_type, storage_type
from compiler.emit import float8_lines
from compiler.ir.uop import round_to

if TYPE_CHECKING:
    from compiler.dtype import DType
    from compiler.emit.builder import Builder
    from compiler.emit.linear import Line



def unpack(b: Builder, stored: Line, dtype: DType) -> Line:
    """Convert a loaded register of the storage type to the register type."""
    if dtype is dtypes.bool:
        return b.cmp("ne", stored, b.const(dtypes.uint8, 0))
    if dtype is dtypes.float16:
        return b.convert("fpext", stored, dtypes.float32)
    if dtype is dtypes.bfloat16:
        wide = b.alu("shl", b.convert("zext", stored, dtypes.uint32), b.const(dtypes.uint32, 16))
        return b.convert("bitcast", wide, dtypes.float32)
    return float8_lines.decoded(b, stored, dtype) if dtype in FLOAT8 else stored


def pack(b: Builder, value: Line, dtype: DType) -> Line:
    """Convert a register to the storage type; values of narrow floats must be rounded already."""
    if dtype is dtypes.bool:
        return b.convert("zext", value, dtypes.uint8)
    if dtype is dtypes.float16:
        if value.op == "convert" and value.src[0].dtype is dtypes.float16:  # as it was loaded
            return value.src[0]
        return b.convert("fptrunc", value, dtypes.float16)
    if dtype is dtypes.bfloat16:
        bits = b.alu("lshr", b.convert("bitcast", value, dtypes.uint32), b.const(dtypes.uint32, 16))
        return b.convert("trunc", bits, dtypes.uint16)
    return float8_lines.encoded(b, value, dtype) if dtype in FLOAT8 else value


def rounded(b: Builder, value: Line, dtype: DType) -> Line:
    """Round a float32 register to a narrow float; return a value of any other dtype unchanged."""
    if dtype in FLOAT8:
        return float8_lines.rounded(b, value, dtype)
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
    """Return the constant zero."""
    kind = register_type(dtype)
    return b.const(kind, 0.0 if kind.is_float else False if kind is dtypes.bool else 0, lanes)


def constant(b: Builder, dtype: DType, value: float | bool) -> Line:  # noqa: FBT001  # a bool is one of the values
    """Return a constant of the dtype; integers wrap, floats round to the dtype."""
    kind = register_type(dtype)
    if kind is dtypes.bool:
        return b.const(kind, bool(value))
    if kind.is_float:
        made = b.const(kind, round_to(float(value), dtype))
        return made if dtype.computes else rounded(b, made, dtype)  # a NaN has one code
    wrapped = int(value) & ((1 << kind.bits) - 1)
    return b.const(
        kind, wrapped - (1 << kind.bits) if kind.kind == "int" and wrapped >> (kind.bits - 1) else wrapped
    )


def cast(b: Builder, x: Line, source: DType, target: DType) -> Line:
    """Convert a value to another dtype."""
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
    """Round float64 to odd in float32, so that a second rounding to a half type gives the nearest value."""
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
    """Round a 64-bit integer beyond 2**53 to odd at bit 11, so that float64 can represent it."""
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
    """Return the same bits as a value of another dtype of equal size."""
    raw = pack(b, x, source) if source in NARROW else x
    if target in NARROW:
        stored = storage_type(target)
        return unpack(b, b.convert("bitcast", raw, stored) if raw.dtype is not stored else raw, target)
    kind = register_type(target)
    return raw if raw.dtype is kind else b.convert("bitcast", raw, kind)
