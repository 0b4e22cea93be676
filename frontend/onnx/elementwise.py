"""Operators on each element: arithmetic, comparisons, activations, conversions.

Next: `table`. Raises `UsageError` as the methods of `Tensor`.
"""

from __future__ import annotations

import math
from functools import reduce
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from compiler.dtype import dtypes
from frontend.onnx.initialisers import NARROW, TYPES, element_type
from frontend.onnx.values import as_tensor, cast, dtype_of, is_host
from frontend.tensor import Tensor
from hcq.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

_MOST: Final = float(np.finfo(np.float32).max)
_UNSIGNED: Final = {8: dtypes.uint8, 16: dtypes.uint16, 32: dtypes.uint32, 64: dtypes.uint64}


def method(name: str, host: Callable[..., Any] | None = None) -> Callable[[Any], Any]:
    """Return an operator of one input: a method of `Tensor`, and a function of arrays."""

    def unary(x: Any, /) -> Any:
        return host(x) if host is not None and is_host(x) else getattr(x, name)()

    return unary


def binary(name: str, host: Callable[..., Any]) -> Callable[[Any, Any], Any]:
    """Return an operator of two inputs that broadcast."""

    def two(a: Any, b: Any, /) -> Any:
        return host(a, b) if is_host(a) else getattr(a, name)(b)

    return two


def variadic(name: str, host: Callable[..., Any]) -> Callable[..., Any]:
    """Return an operator of one or more inputs, which are joined from the left."""

    def each(x: Any, *others: Any) -> Any:
        return reduce(lambda a, b: host(a, b) if is_host(a) else getattr(a, name)(b), others, x)

    return each


def divide(a: Any, b: Any) -> Any:
    """Div: integers are truncated."""
    if is_host(a):
        if a.dtype.kind == "f":
            return np.divide(a, b)
        rest = np.fmod(a, b)
        return np.floor_divide(a - rest, b)
    return a.div(b) if a.dtype.is_float else a.div(b, rounding_mode="trunc").cast(a.dtype)


def modulo(a: Any, b: Any, *, fmod: int = 0) -> Any:
    """Mod: the rest has the sign of the divisor, with `fmod` that of the dividend."""
    if is_host(a):
        return np.fmod(a, b) if fmod else np.mod(a, b)
    return a.fmod(b) if fmod else a.mod(b)


def power(a: Any, b: Any) -> Any:
    """Pow: the result has the dtype of the base."""
    if is_host(a):
        return np.power(a.astype(np.float64), b).astype(a.dtype)
    wide = a if a.dtype.is_float or not b.dtype.is_float else a.cast("float32")
    if not wide.dtype.is_float:
        wide, b = a.cast("float64"), b.cast("float64")
        return wide.pow(b).round().cast(a.dtype)
    return wide.pow(b.cast(wide.dtype)).cast(a.dtype)


def bit_shift(a: Any, b: Any, *, direction: str) -> Any:
    """BitShift."""
    if direction not in {"LEFT", "RIGHT"}:
        raise UsageError(f"wanted the direction LEFT or RIGHT, saw {direction!r}")
    found = a.bitwise_left_shift(b) if direction == "LEFT" else a.bitwise_right_shift(b)
    return found.cast(a.dtype)


def clip_fixed(x: Tensor, *, min: float = -_MOST, max: float = _MOST) -> Tensor:
    """Clip before opset 11, by default to the finite numbers of float32."""
    return x.clamp(min, max)


def clip(x: Any, low: Any = None, high: Any = None) -> Any:
    """Clip."""
    if is_host(x):
        x = x if low is None else np.maximum(x, low)
        return x if high is None else np.minimum(x, high)
    x = x if low is None else x.maximum(low)
    return x if high is None else x.minimum(high)


def is_inf(x: Tensor, *, detect_negative: int = 1, detect_positive: int = 1) -> Tensor:
    """IsInf."""
    if not (detect_negative or detect_positive):
        return Tensor.full(x.shape, fill_value=False, dtype="bool", device=x.device)
    x = x if x.dtype.computes else x.cast("float32")
    if detect_negative and detect_positive:
        return x.isinf()
    return x.isposinf() if detect_positive else x.isneginf()


def to_type(x: Any, number: int, *, saturate: int = 1) -> Any:
    """Return a value as the element type of a number of the file."""
    dtype = element_type(number, "Cast")
    if number == 23:
        return _to_e2m1(as_tensor(x))
    if number in NARROW:
        bits, signed = NARROW[number]
        whole = (
            as_tensor(x).cast("float32").cast("int32") if dtype_of(x).is_float else as_tensor(x).cast("int32")
        )
        whole = whole.bitwise_and((1 << bits) - 1)
        if signed:
            whole = (whole >= 1 << (bits - 1)).where(whole - (1 << bits), whole)
        return whole.cast(dtype)
    if dtype.is_float and not dtype.computes:
        x = as_tensor(x).cast("float32")
        most = _LARGEST[number]
        if saturate:
            x = x.isnan().where(x, x.clamp(-most, most))
        elif number == 17:  # the largest value is followed by NaN
            x = (x.abs() > most + 16).where(math.nan, x)
        return x.cast(dtype)
    if not dtype_of(x).computes:
        x = as_tensor(x).cast("float32")
    if dtype.is_int and dtype_of(x).is_float:
        if is_host(x):
            return cast(np.trunc(x), dtype)
        return x.cast(dtype)
    return cast(x, dtype)


_LARGEST: Final = {17: 448.0, 18: 240.0, 19: 57344.0, 20: 57344.0}
"""Number of a type of 8-bit floats -> its largest value."""


def _to_e2m1(x: Tensor) -> Tensor:
    """Return values rounded to the nearest 4-bit float, ties to even, at most 6, as float8_e4m3fn."""
    x = x.cast("float32")
    size = x.abs()
    step = (size < 2).where(0.5, (size < 4).where(1.0, 2.0))
    found = ((size / step).round() * step).clamp(0, 6)
    found = x.isnan().where(0.0, (x < 0).where(-found, found))
    return found.cast("float8_e4m3fn")


def cast_to(x: Any, *, to: int, saturate: int = 1, round_mode: str = "up") -> Any:
    """Cast."""
    if round_mode != "up":
        raise UsageError(f"wanted the round_mode up, saw {round_mode!r}")
    return to_type(x, to, saturate=saturate)


_NUMBERS: Final = {dtype: number for number, dtype in reversed(TYPES.items()) if number not in NARROW}


def cast_like(x: Any, like: Any, *, saturate: int = 1, round_mode: str = "up", _types: Any) -> Any:
    """CastLike."""
    known = _types[1] if _types[1] in NARROW else _NUMBERS[dtype_of(like)]
    return cast_to(x, to=known, saturate=saturate, round_mode=round_mode)


def bit_cast(x: Tensor, *, to: int) -> Tensor:
    """BitCast."""
    if to in NARROW:
        raise UsageError(f"wanted a type of whole bytes, saw {to}")
    x = x.cast("uint8") if x.dtype.kind == "bool" else x
    return x.bitcast(element_type(to, "BitCast"))
