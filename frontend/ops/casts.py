"""The same values, or the same bits, in another dtype."""

from __future__ import annotations

from typing import TYPE_CHECKING

from compiler.dtype import DType, dtypes
from compiler.ops import Ops
from frontend.lazy import apply, method
from frontend.ops.sources import convert
from hcq.errors import UsageError

if TYPE_CHECKING:
    from frontend.tensor import Tensor


@method
def cast(self: Tensor, dtype: DType) -> Tensor:
    """Return the values in another dtype.

    Floats to integers truncate and saturate, NaN gives 0; anything to bool is `!= 0`.
    """
    if dtype.__class__ is not DType:
        raise UsageError(f"cast: wanted a dtype such as dtypes.float32, saw {dtype!r}")
    return convert(self, dtype)


@method
def bitcast(self: Tensor, dtype: DType) -> Tensor:
    """Return the same bits as another dtype of the same size."""
    return self if self.expr.dtype is dtype else apply(Ops.BITCAST, dtype, self)


def float(self: Tensor) -> Tensor:
    """Return the values as float32."""
    return cast(self, dtypes.float32)


def double(self: Tensor) -> Tensor:
    """Return the values as float64."""
    return cast(self, dtypes.float64)


def half(self: Tensor) -> Tensor:
    """Return the values as float16."""
    return cast(self, dtypes.float16)


def bfloat16(self: Tensor) -> Tensor:
    """Return the values as bfloat16."""
    return cast(self, dtypes.bfloat16)


def int(self: Tensor) -> Tensor:
    """Return the values as int32, truncated."""
    return cast(self, dtypes.int32)


def long(self: Tensor) -> Tensor:
    """Return the values as int64, truncated."""
    return cast(self, dtypes.int64)


def bool(self: Tensor) -> Tensor:
    """Return where values are not zero."""
    return cast(self, dtypes.bool)
