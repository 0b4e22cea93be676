"""Constants, coordinates and conversions from which traced methods are built.

The caller passes shapes and dtypes that fit: only `suited` checks its arguments. Not here: tensors of
constants for users (`frontend.ops.creation`), checks (`frontend.arguments`). Next: `trace`.
"""

from __future__ import annotations

import math
from typing import Any

from compiler.dtype import DType, computing, dtypes
from compiler.ir.ops import Ops
from compiler.ir.scalar import convert as converted
from frontend.arguments.checks import FLOAT, Shape, representable
from frontend.arguments.conversion import scalar_of, shown
from frontend.evaluation.base import T
from frontend.evaluation.expr import RULED, STOP, constant_of, float_dtype, source_expr
from frontend.evaluation.trace import apply, make, method
from hcq.errors import UsageError, UsageTypeError

Number = float
"""An int, a float or a bool."""


def constant(like: T, value: Number, dtype: DType, shape: tuple[int, ...]) -> T:
    """Return a number as a tensor of a shape, on the device of `like`."""
    scalar = make(like, (source_expr(Ops.CONST, value, dtype, like.expr.device), ()))
    return spread(scalar, shape)


def number_like(like: T, value: Number) -> T:
    """Return a number in the dtype and shape of a tensor."""
    return constant(like, value, like.expr.dtype, like.expr.shape)


def suited(value: Number, dtype: DType) -> Number:
    """Return a Python or NumPy number as a constant of a dtype, truncated for integers.

    Raises `UsageError` if it does not fit the dtype, `UsageTypeError` for no number.
    """
    value = scalar_of(value)
    if not isinstance(value, (int, float)):
        raise UsageTypeError(f"wanted a number, saw {shown(value)}")
    if dtype.is_float:
        return float(representable(value))
    if dtype is dtypes.bool:
        return bool(value)
    if (isinstance(value, float) and not math.isfinite(value)) or not dtype.min <= int(value) <= dtype.max:
        raise UsageError(f"{value} does not fit {dtype.name}: {dtype.min}..{dtype.max}")
    return int(value)


def coordinate(like: T, shape: Shape, axis: int, dtype: DType = dtypes.int64) -> T:
    """Return for each element of a shape its coordinate along one axis, on the device of `like`.

    Kernels compute with it in 32 bits where its bounds allow (`compiler.ir.narrowing`).
    """
    return make(like, (source_expr(Ops.IOTA, (shape, axis), dtype, like.expr.device), ()))


def spread(x: T, shape: tuple[int, ...]) -> T:
    """Return x broadcast to a shape, to which it must broadcast."""
    old = x.expr.shape
    if old == shape:
        return x
    return apply(Ops.EXPAND, shape, apply(Ops.RESHAPE, (1,) * (len(shape) - len(old)) + old, x))


def convert(x: T, dtype: DType) -> T:
    """Return x in another dtype, inside a traced method."""
    e = x.expr
    if e.dtype is dtype:
        return x
    value = constant_of(e)
    if value is not None:
        return constant(x, converted(value, dtype), dtype, e.shape)
    return apply(Ops.CAST, dtype, x)


@method
def stopped(self: T) -> T:
    """Return the same value, through which no gradient flows. Unlike `detach` it is no view."""
    return apply(STOP, None, self)


def ruled(rule: str, value: T, *sources: T, about: tuple[Any, ...] = ()) -> T:
    """Return `value` with gradients for `sources` by a rule of `frontend.autograd.rules`.

    The rule is called with the sources and `about`, its hashable settings. An integer value is returned as it
    is: integers have no gradient.
    """
    return apply(RULED, (rule, *about), value, *sources) if value.expr.dtype.is_float else value


def widened(x: T) -> T:
    """Return x in the dtype in which a function computes: 32 bits at least; `FLOAT` for bools and integers.

    Raises `UsageError` for an 8-bit float.
    """
    dtype = computing(x.expr.dtype, "a function of floats")
    found = dtype if dtype.is_float else FLOAT[0]
    return convert(x, found if found.bits >= 32 else dtypes.float32)


def widened_float(x: T) -> T:
    """Return a tensor of 16-bit floats as float32, any other tensor itself."""
    return widened(x) if x.expr.dtype.is_float else x


def narrowed(y: T, like: T) -> T:
    """Return the result of a function in the dtype of its argument; `FLOAT` for an integer argument."""
    return convert(y, float_dtype(like.expr.dtype))
