"""Operators on quantised values: integers with a scale and a zero point.

Next: `table`. Raises `UsageError` for scales that do not fit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from compiler.dtype import dtypes
from frontend.onnx.elementwise import to_type
from frontend.onnx.initialisers import NARROW, TYPES
from frontend.onnx.layers import conv
from frontend.onnx.values import axis_in
from hcq.errors import UsageError

if TYPE_CHECKING:
    from frontend.tensor import Tensor


def _along(v: Tensor, x: Tensor, axis: int, block: int) -> Tensor:
    """Return scales or zero points in a shape that broadcasts to x."""
    if len(v.shape) == 0 or (len(v.shape) == 1 and v.shape[0] == 1 and not block):
        return v.reshape(())
    axis = axis_in(axis, len(x.shape))
    if block:
        return v.repeat_interleave(block, axis).narrow(axis, 0, x.shape[axis])
    if len(v.shape) != 1:
        raise UsageError(f"wanted one scale for each of axis {axis}, saw the shape {v.shape}")
    return v.reshape(*[-1 if a == axis else 1 for a in range(len(x.shape))])


def _limits(number: int) -> tuple[int, int]:
    bits, signed = NARROW.get(number, (TYPES[number].bits, TYPES[number].kind == "int"))
    return (-(1 << bits - 1), (1 << bits - 1) - 1) if signed else (0, (1 << bits) - 1)


_NUMBERS = {dtypes.uint8: 2, dtypes.int8: 3, dtypes.uint16: 4, dtypes.int16: 5, dtypes.float8_e4m3fn: 17,
            dtypes.float8_e4m3fnuz: 18, dtypes.float8_e5m2: 19, dtypes.float8_e5m2fnuz: 20}  # fmt: skip


def quantize(
    x: Tensor, scale: Tensor, zero: Tensor | None = None,
    *, axis: int = 1, block_size: int = 0, output_dtype: int = 0, precision: int = 0,  # noqa: ARG001 - float32
    saturate: int = 1, _types: Any = (),
) -> Any:  # fmt: skip
    """QuantizeLinear."""
    known = _types[2] if len(_types) > 2 and _types[2] in {*NARROW, 17, 18, 19, 20} else None
    number = output_dtype or known or (2 if zero is None else _NUMBERS[zero.dtype])
    wide = x.cast("float32")
    y = wide / _along(scale.cast("float32"), x, axis, block_size)
    if TYPES[number].is_float:
        return to_type(y, number, saturate=saturate)
    y = y.round()
    if zero is not None:
        y = y + _along(zero.cast("float32"), x, axis, block_size)
    return y.clamp(*_limits(number)).cast("int32").cast(TYPES[number])


def dequantize(
    x: Tensor, scale: Tensor, zero: Tensor | None = None,
    *, axis: int = 1, block_size: int = 0, output_dtype: int = 0,
) -> Tensor:  # fmt: skip
    """DequantizeLinear."""
    y = x.cast("float32")
    if zero is not None:
        y = y - _along(zero.cast("float32"), x, axis, block_size)
    y = y * _along(scale.cast("float32"), x, axis, block_size)
    return y.cast(TYPES[output_dtype] if output_dtype else scale.dtype)


def dynamic_quantize(x: Tensor) -> Any:
    """DynamicQuantizeLinear: values, scale (1 / 255 if all are 0) and zero point as uint8."""
    low, high = x.amin().minimum(0), x.amax().maximum(0)
    scale = (high == low).where(1.0, high - low) / 255
    zero = (-low / scale).round().clamp(0, 255)
    y = ((x / scale).round() + zero).clamp(0, 255)
    return y.cast("uint8"), scale, zero.cast("uint8")


def _shifted(x: Tensor, zero: Tensor | None, axis: int) -> Tensor:
    """Return x minus its zero point in int32; zero points may be those of an axis."""
    wide = x.cast("int32")
    if zero is None:
        return wide
    zero = zero.cast("int32")
    if len(zero.shape) == 1 and zero.shape[0] > 1:
        zero = zero.reshape(*[-1 if a == axis else 1 for a in range(len(x.shape))])
    elif len(zero.shape) < 2:
        zero = zero.reshape(())
    return wide - zero


def matmul_integer(
    a: Tensor, b: Tensor, a_zero: Tensor | None = None, b_zero: Tensor | None = None
) -> Tensor:
    """MatMulInteger: a product in int32."""
    left = _shifted(a, a_zero, len(a.shape) - 2)
    return (left @ _shifted(b, b_zero, len(b.shape) - 1)).cast("int32")


def conv_integer(
    x: Tensor, w: Tensor, x_zero: Tensor | None = None, w_zero: Tensor | None = None, **settings: Any
) -> Tensor:
    """ConvInteger: a convolution in int32."""
    return conv(_shifted(x, x_zero, 1), _shifted(w, w_zero, 0), **settings).cast("int32")


def _rounded(y: Tensor, zero: Tensor) -> Tensor:
    """Return values rounded, with a zero point, in its dtype."""
    whole = y.round() + zero.cast("float32")
    return whole.clamp(*_limits(_NUMBERS[zero.dtype])).cast("int32").cast(zero.dtype)


def qlinear_matmul(  # noqa: PLR0917 - the operator's inputs
    a: Tensor, a_scale: Tensor, a_zero: Tensor, b: Tensor, b_scale: Tensor, b_zero: Tensor,
    y_scale: Tensor, y_zero: Tensor,
) -> Tensor:  # fmt: skip
    """QLinearMatMul."""
    y = matmul_integer(a, b, a_zero, b_zero).cast("float32")
    factor = a_scale.cast("float32") * b_scale.cast("float32") / y_scale.cast("float32")
    return _rounded(y * factor, y_zero)


def qlinear_conv(  # noqa: PLR0917 - the operator's inputs
    x: Tensor, x_scale: Tensor, x_zero: Tensor, w: Tensor, w_scale: Tensor, w_zero: Tensor,
    y_scale: Tensor, y_zero: Tensor, b: Tensor | None = None, **settings: Any,
) -> Tensor:  # fmt: skip
    """QLinearConv."""
    y = conv_integer(x, w, x_zero, w_zero, **settings)
    shape = (1, -1, *(1,) * (len(x.shape) - 2))
    y = (y if b is None else y + b.reshape(*shape)).cast("float32")
    y = y * (x_scale.reshape(()) * w_scale.reshape(-1) / y_scale.reshape(())).reshape(*shape)
    return _rounded(y, y_zero)
