"""Arithmetic on Python numbers exactly as kernels do it, for folding constants.

The rules stand in `compiler.ir.ops`. Transcendental functions are left out, except where the result is exact:
a device's rounding is its own.
"""

from __future__ import annotations

import math
import struct
from typing import TYPE_CHECKING, Final

from compiler.dtype import DType, dtypes
from compiler.ir.ops import Ops
from compiler.ir.uop import round_to

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

Number = float
"""bool, int or float."""


def compute(op: str, dtype: DType, values: Sequence[Number], source: DType) -> Number | None:
    """Return op(values), rounded or wrapped to dtype; None when it is not folded.

    `source` is the dtype of the first value.
    """
    if op is Ops.CAST:
        return convert(values[0], dtype)
    if op is Ops.BITCAST:
        return _bitcast(values[0], source, dtype)
    if op is Ops.WHERE:
        return values[1] if values[0] else values[2]
    rule = (_FLOAT if source.is_float else _INT).get(op)
    if rule is None:
        return None
    result = rule(*values)
    return (
        None
        if result is None
        else convert(result, dtype)
        if dtype.is_float or op in _FLOAT_TO_BOOL
        else wrap(result, dtype)
    )


def convert(value: int | float, dtype: DType) -> Number:  # noqa: PYI041 - the two are told apart
    """CAST: float to integer truncates and saturates, integers wrap, floats round."""
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


def _to_float(value: int | float, dtype: DType) -> float:  # noqa: PYI041 - the two are told apart
    """Return a double that rounds to dtype as the number does: long integers are rounded to odd."""
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
    """Reduce a whole number to dtype, as two's complement does."""
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


def _div(a: Number, b: Number) -> Number:
    if b == 0:
        if a == 0 or math.isnan(a):
            return math.nan
        return math.copysign(math.inf, a) * math.copysign(1.0, b)
    return a / b


def _fmod(a: Number, b: Number) -> Number:
    return math.nan if b == 0 or math.isinf(a) else math.fmod(a, b)


def _extreme(choose: Callable[[Number, Number], Number]) -> Callable[[Number, Number], Number]:
    return lambda a, b: math.nan if math.isnan(a) or math.isnan(b) else choose(a, b)


def _whole(rule: Callable[[float], int]) -> Callable[[float], float]:
    """Keep what has no whole part, and the sign of a zero."""
    return lambda x: math.copysign(rule(x), x) if math.isfinite(x) else x


def _exactly(point: float, result: float) -> Callable[[float], float | None]:
    """Fold a transcendental function at the one point where its value is exact."""
    return lambda x: (
        math.copysign(result, x) if x == point and result == 0 == point else result if x == point else None
    )


_FLOAT: Final[dict[str, Callable[..., Number | None]]] = {
    Ops.NEG: lambda x: -x,
    Ops.ABS: abs,
    Ops.RECIP: lambda x: _div(1.0, x),
    Ops.SQRT: lambda x: math.sqrt(x) if x >= 0 else x if x == 0 else math.nan,
    Ops.FLOOR: _whole(math.floor),
    Ops.CEIL: _whole(math.ceil),
    Ops.TRUNC: _whole(math.trunc),
    Ops.ROUND: _whole(round),
    Ops.EXP: _exactly(0, 1),
    Ops.EXP2: _exactly(0, 1),
    Ops.LOG: _exactly(1, 0),
    Ops.LOG2: _exactly(1, 0),
    Ops.EXPM1: _exactly(0, 0),
    Ops.LOG1P: _exactly(0, 0),
    Ops.SIN: _exactly(0, 0),
    Ops.TANH: _exactly(0, 0),
    Ops.COS: _exactly(0, 1),
    Ops.ADD: lambda a, b: a + b,
    Ops.SUB: lambda a, b: a - b,
    Ops.MUL: lambda a, b: a * b,
    Ops.DIV: _div,
    Ops.FMOD: _fmod,
    Ops.MAX: _extreme(max),
    Ops.MIN: _extreme(min),
    Ops.LT: lambda a, b: a < b,
    Ops.EQ: lambda a, b: a == b,
    Ops.NE: lambda a, b: a != b,
}
_FLOAT_TO_BOOL: Final = frozenset((Ops.LT, Ops.EQ, Ops.NE))
_WIDEST: Final = 64


def _pow(a: int, b: int) -> int:
    if b >= 0:
        return pow(a, b, 1 << _WIDEST)
    return a ** (b & 1) if abs(a) == 1 else 0


def _shl(a: int, b: int) -> int:
    return a << b if 0 <= b < _WIDEST else 0


def _shr(a: int, b: int) -> int:
    return a >> b if 0 <= b < _WIDEST else -(a < 0)


_INT: Final[dict[str, Callable[..., Number]]] = {
    Ops.NEG: lambda x: -x,
    Ops.ABS: abs,
    Ops.NOT: lambda x: not x if isinstance(x, bool) else ~x,
    Ops.ADD: lambda a, b: a + b,
    Ops.SUB: lambda a, b: a - b,
    Ops.MUL: lambda a, b: a * b,
    Ops.FLOORDIV: lambda a, b: a // b if b else 0,
    Ops.MOD: lambda a, b: a % b if b else 0,
    Ops.POW: _pow,
    Ops.MAX: max,
    Ops.MIN: min,
    Ops.AND: lambda a, b: a & b,
    Ops.OR: lambda a, b: a | b,
    Ops.XOR: lambda a, b: a ^ b,
    Ops.SHL: _shl,
    Ops.SHR: _shr,
    Ops.LT: lambda a, b: a < b,
    Ops.EQ: lambda a, b: a == b,
    Ops.NE: lambda a, b: a != b,
}
