"""Values in memory and in registers, and the conversions between dtypes, as lines.

A value's register has the dtype's *register type*: floats of 8 and 16 bits are in float32 registers, an index
is in an int64 register, every other value in its own type. Memory has the *storage type*: uint8 for bool and
8-bit floats, uint16 for bfloat16.

Float to integer saturates, and NaN gives 0; float to bool is `x != 0`; integers wrap; every conversion to a
float rounds once, to nearest even.

8-bit floats are converted by integer operations on the bits, and for subnormal values by one float32
addition: a number plus 2**23 of their spacing has their whole multiple in its last bits, rounded to nearest
even by the addition itself. They are equal on every target, and need no subnormal float32.

Not here: elementwise operations and steps of reductions (`isel`), loads and stores (`accesses`), the values
of the codes of 8-bit floats (`compiler.narrow_floats`).
"""

from __future__ import annotations

import struct
from functools import partial
from typing import TYPE_CHECKING, Final

from compiler.dtype import FLOAT8, HALF, NARROW, dtypes, register_type, storage_type
from compiler.ir.uop import round_to
from compiler.narrow_floats import FORMATS

if TYPE_CHECKING:
    from compiler.dtype import DType
    from compiler.emit.builder import Builder
    from compiler.emit.linear import Line
    from compiler.narrow_floats import Float8


def unpack(b: Builder, stored: Line, dtype: DType) -> Line:
    """Convert a loaded register of the storage type to the register type."""
    if dtype is dtypes.bool:
        return b.cmp("ne", stored, b.const(dtypes.uint8, 0))
    if dtype is dtypes.float16:
        return b.convert("fpext", stored, dtypes.float32)
    if dtype is dtypes.bfloat16:
        wide = b.alu("shl", b.convert("zext", stored, dtypes.uint32), b.const(dtypes.uint32, 16))
        return b.convert("bitcast", wide, dtypes.float32)
    return _decoded8(b, stored, dtype) if dtype in FLOAT8 else stored


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
    return _encoded8(b, value, dtype) if dtype in FLOAT8 else value


def rounded(b: Builder, value: Line, dtype: DType) -> Line:
    """Round a float32 register to a narrow float; return a value of any other dtype unchanged."""
    if dtype in FLOAT8:
        return _rounded8(b, value, dtype)
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


_U: Final = dtypes.uint32
_SIGN, _SIZE = 0x80000000, 0x7FFFFFFF
_INFINITY, _NAN = 0x7F800000, 0x7FE00000
"""Bits of float32. The NaN has the fraction of the code 0x7F of float8_e5m2."""


def _decoded8(b: Builder, stored: Line, dtype: DType) -> Line:
    """Return the float32 value of a uint8 code; NaN codes keep their fraction."""
    row, n = FORMATS[dtype], partial(b.const, _U)
    code = b.convert("zext", stored, _U)
    size = b.alu("and", code, n(0x7F))
    normal = b.alu("add", b.alu("shl", size, n(23 - row.fraction)), n((127 - row.bias) << 23))
    raised = b.convert("bitcast", b.alu("add", normal, n(1 << 23)), dtypes.float32)
    small = b.alu("fsub", raised, b.const(dtypes.float32, row.least_normal))
    kept = b.select(b.cmp("ult", size, n(1 << row.fraction)), b.convert("bitcast", small, _U), normal)
    sign = b.alu("shl", b.alu("and", code, n(0x80)), n(24))
    if row.signed_zero:
        highest = (0x7F >> row.fraction) + 127 - row.bias
        special = b.alu("add", normal, n((255 - highest) << 23))
        kept = b.alu("or", sign, b.select(b.cmp("ugt", size, n(row.top)), special, kept))
    else:
        kept = b.select(b.cmp("eq", code, n(row.nan)), n(_NAN), b.alu("or", sign, kept))
    return b.convert("bitcast", kept, dtypes.float32)


def _rounded8(b: Builder, value: Line, dtype: DType) -> Line:
    """Round a float32 register to an 8-bit float, in float32."""
    row, n = FORMATS[dtype], partial(b.const, _U)
    shift = 23 - row.fraction
    bits = b.convert("bitcast", value, _U)
    size = b.alu("and", bits, n(_SIZE))
    odd = b.alu("and", b.alu("lshr", size, n(shift)), n(1))
    near = b.alu("add", b.alu("add", size, odd), n((1 << (shift - 1)) - 1))
    near = b.alu("and", near, n(0x100000000 - (1 << shift)))
    magic = b.const(dtypes.float32, _magic(row))
    small = b.convert("bitcast", b.alu("fsub", b.alu("fadd", _float(b, size), magic), magic), _U)
    kept = b.select(b.cmp("ult", size, n(_bits(row.least_normal))), small, near)
    beyond = {row.top: _bits(row.most), row.nan: _NAN}.get(row.beyond, _INFINITY)
    kept = b.select(b.cmp("ugt", kept, n(_bits(row.most))), n(beyond), kept)
    if beyond != _NAN:
        kept = b.select(b.cmp("uno", value, value), n(_NAN), kept)
    sign = b.alu("and", bits, n(_SIGN))
    if not row.signed_zero:
        sign = b.select(b.cmp("eq", kept, n(0)), n(0), sign)
    return b.convert("bitcast", b.alu("or", sign, kept), dtypes.float32)


def _encoded8(b: Builder, value: Line, dtype: DType) -> Line:
    """Return the uint8 code of a float32 register with a value of an 8-bit float."""
    row, n = FORMATS[dtype], partial(b.const, _U)
    bits = b.convert("bitcast", value, _U)
    size = b.alu("and", bits, n(_SIZE))
    sign = b.alu("and", b.alu("lshr", bits, n(24)), n(0x80))
    normal = b.alu("sub", b.alu("lshr", size, n(23 - row.fraction)), n((127 - row.bias) << row.fraction))
    raised = b.convert("bitcast", b.alu("fadd", _float(b, size), b.const(dtypes.float32, _magic(row))), _U)
    small = b.alu("sub", raised, n(_bits(_magic(row))))
    code = b.select(b.cmp("ult", size, n(_bits(row.least_normal))), small, normal)
    special = n(row.nan)
    if row.top < row.beyond < row.nan:  # infinity, and NaN with a fraction
        special = b.alu("and", b.alu("lshr", size, n(23 - row.fraction)), n(0x7F))
    other = b.cmp("ugt", size, n(_bits(row.most)))
    if row.signed_zero:
        code = b.alu("or", sign, b.select(other, special, code))
    else:
        sign = b.select(b.cmp("eq", code, n(0)), n(0), sign)
        code = b.select(other, special, b.alu("or", sign, code))
    return b.convert("trunc", code, dtypes.uint8)


def _float(b: Builder, bits: Line) -> Line:
    return b.convert("bitcast", bits, dtypes.float32)


def _magic(row: Float8) -> float:
    """Return the number whose last bit is the least value of the type."""
    return row.least_normal * 2.0 ** (23 - row.fraction)


def _bits(value: float) -> int:
    found: int = struct.unpack("<I", struct.pack("<f", value))[0]
    return found
