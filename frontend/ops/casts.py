"""Conversion of dtypes: by value (`cast`, `float`, ...) and by bits (`bitcast`).

Not here: promotion of operands (`elementwise`), the result of a cast for values that do not fit
(`compiler.ir.ops`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from compiler.dtype import DType, dtypes
from compiler.ir.ops import Ops
from frontend.ops.arguments import element_type, tensor
from frontend.ops.sources import convert
from frontend.trace import apply, method
from hcq.errors import UsageError

if TYPE_CHECKING:
    from frontend.tensor_base import T, TensorBase


def cast(self: T, dtype: DType | str) -> T:
    """Return the values in another dtype, given by itself or by name; self when it has that dtype.

    Floats to integers truncate and saturate, NaN gives 0; anything to bool is `!= 0`.

        Tensor([1.7, -1.7]).cast("int32")      # [1, -1]

    Raises `UsageError` for a name without a dtype.
    """
    return self if self.expr.dtype is dtype else _cast(self, _wanted(dtype, "cast"))


def _cast(x: T, dtype: DType) -> T:
    return x if x.expr.dtype is dtype else _converted(x, dtype)


@method
def _converted(self: T, dtype: DType) -> T:
    return convert(self, dtype)


def bitcast(self: T, dtype: DType | str) -> T:
    """Return the same bits as another dtype of the same size, given by itself or by name.

    That is self when it has the dtype.

    Raises `UsageError` for a dtype of another size.
    """
    wanted = _wanted(dtype, "bitcast")
    return self if self.expr.dtype is wanted else _bits(self, wanted)


@method
def _bits(self: T, dtype: DType) -> T:
    return apply(Ops.BITCAST, dtype, self)


def _wanted(dtype: DType | str, what: str) -> DType:
    found = element_type(dtype)
    if found is None:
        raise UsageError(f"{what}: wanted a dtype such as dtypes.float32, or its name, saw None")
    return found


def float(self: T) -> T:
    """Return the values as float32."""
    return cast(self, dtypes.float32)


def double(self: T) -> T:
    """Return the values as float64."""
    return cast(self, dtypes.float64)


def half(self: T) -> T:
    """Return the values as float16."""
    return cast(self, dtypes.float16)


def bfloat16(self: T) -> T:
    """Return the values as bfloat16."""
    return cast(self, dtypes.bfloat16)


def int(self: T) -> T:
    """Return the values as int32, truncated."""
    return cast(self, dtypes.int32)


def long(self: T) -> T:
    """Return the values as int64, truncated."""
    return cast(self, dtypes.int64)


def bool(self: T) -> T:
    """Return where values are not zero."""
    return cast(self, dtypes.bool)


def short(self: T) -> T:
    """Return the values as int16, truncated."""
    return cast(self, dtypes.int16)


def char(self: T) -> T:
    """Return the values as int8, truncated."""
    return cast(self, dtypes.int8)


def byte(self: T) -> T:
    """Return the values as uint8, truncated."""
    return cast(self, dtypes.uint8)


def type_as(self: T, other: TensorBase) -> T:
    """Return the values in the dtype of another tensor."""
    tensor(other, "type_as", self)
    return cast(self, other.expr.dtype)


def type(self: T, dtype: DType | str | None = None) -> T | str:
    """Return the values in another dtype; without one, the name of the dtype."""
    return self.expr.dtype.name if dtype is None else cast(self, dtype)
