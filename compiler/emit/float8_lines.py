"""Conversions of 8-bit floats on registers: a code to float32, float32 rounded, a rounded float32 to a code.

Integer operations on the bits, and for subnormal values one float32 addition: a number plus 2**23 of their
spacing has their whole multiple in its last bits, rounded to nearest even by the addition itself. They are
equal on every target, and need no subnormal float32.

Not here: the values of the codes (`compiler.narrow_floats`), other dtypes (`conversions`).
"""

from __future__ import annotations

import struct
from functools import partial
from typing import TYPE_CHECKING, Final

from compiler.dtype import dtypes
from compiler.narrow_floats import FORMATS

if TYPE_CHECKING:
    from compiler.dtype import DType
    from compiler.emit.builder import Builder
    from compiler.emit.linear import Line
    from compiler.narrow_floats import Float8

_U: Final = dtypes.uint32
_SIGN, _SIZE = 0x80000000, 0x7FFFFFFF
_INFINITY, _NAN = 0x7F800000, 0x7FE00000
"""Bits of float32. The NaN has the fraction of the code 0x7F of float8_e5m2."""


def decoded(b: Builder, stored: Line, dtype: DType) -> Line:
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


def rounded(b: Builder, value: Line, dtype: DType) -> Line:
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


def encoded(b: Builder, value: Line, dtype: DType) -> Line:
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
