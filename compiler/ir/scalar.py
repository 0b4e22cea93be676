"""Arithmetic on Python numbers with the results of kernels, for constant folding.

`compiler.ir.ops` defines the rules; its row of an operation has the computation. Here results are rounded or
wrapped to the dtype.

Not here: the rules that need no constants (`fold`). Next: `fold`, which calls these functions.
"""

from __future__ import annotations

import math
import struct
from typing import TYPE_CHECKING, Final

from compiler.dtype import DType, dtypes
from compiler.ir.ops import ROWS, Ops
from compiler.ir.uop import round_to

if TYPE_CHECKING:
    from collections.abc import Sequence

Number = float
"""bool, int or float."""


def compute(op: str, dtype: DType, values: Sequence[Number], source: DType) -> Number | None:
    """Return op(values), rounded or wrapped to dtype; `source` is the dtype of the first value.

    Return None if the operation is not folded: it has no rule, its rule gives None, the device may round it
    differently, or the result or an operand of BITCAST is a NaN or has no code.
    """
    if op is Ops.CAST:
        return convert(values[0], dtype)
    if op is Ops.BITCAST:
        return _bitcast(values[0], source, dtype)
    if op is Ops.WHERE:
        return values[1] if values[0] else values[2]
    if op is Ops.WITHIN:
        return values[1]
    row = ROWS[op]
    rule = row.floats if source.is_float else row.whole
    result = None if rule is None else rule(*values)
    if result is None:
        return None
    return convert(result, dtype) if dtype.is_float or row.predicate else wrap(result, dtype)


def convert(value: int | float, dtype: DType) -> Number:  # noqa: PYI041 - the two are distinguished
    """Cast a number: float to integer truncates and saturates (NaN: 0), integers wrap, floats round."""
    if dtype.is_float:
        return round_to(_to_float(value, dtype), dtype)
    if dtype is dtypes.bool:
        return value != 0
    if isinstance(value, float):
        if math.isnan(value):
            return 0
        if math.isinf(value):
            return dtype.max if value > 0 else dtype.min
        return min(max(math.trunc(value), dtype.min), dtype.max)
    return wrap(value, dtype)


_DOUBLE: Final = 53


def _to_float(value: int | float, dtype: DType) -> float:  # noqa: PYI041 - the two are distinguished
    """Return a float64 that rounds to dtype as the exact number does.

    An integer of more than 53 bits is rounded to odd, so that the second rounding is right.
    """
    if isinstance(value, float) or dtype is dtypes.float64:
        return float(value)
    extra = abs(value).bit_length() - _DOUBLE
    if extra <= 0:
        return float(value)
    kept = abs(value) >> extra
    if kept << extra != abs(value):
        kept |= 1
    return math.copysign(math.ldexp(kept, extra), value)


def wrap(value: Number, dtype: DType) -> int:
    """Return a number wrapped to an integer dtype, in two's complement; for bool whether it is not 0."""
    if dtype is dtypes.bool:
        return bool(value)
    low = int(value) & ((1 << dtype.bits) - 1)
    return low - (1 << dtype.bits) if dtype.kind == "int" and low > dtype.max else low


_CODES: Final = {
    dtypes.int8: "b", dtypes.int16: "h", dtypes.int32: "i", dtypes.int64: "q", dtypes.uint8: "B",
    dtypes.uint16: "H", dtypes.uint32: "I", dtypes.uint64: "Q", dtypes.float16: "e",
    dtypes.float32: "f", dtypes.float64: "d",
}  # fmt: skip


def _bitcast(value: Number, source: DType, dtype: DType) -> Number | None:
    if source not in _CODES or dtype not in _CODES or (isinstance(value, float) and math.isnan(value)):
        return None
    result: Number = struct.unpack("<" + _CODES[dtype], struct.pack("<" + _CODES[source], value))[0]
    return None if isinstance(result, float) and math.isnan(result) else result
