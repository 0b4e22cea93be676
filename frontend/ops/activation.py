"""Activation functions, elementwise.

Results have the dtype of self if that is a float, else float32, unless a function says otherwise; 16-bit
floats are computed in float32 and rounded once. Gradients at kinks are those of PyTorch.

Arguments of other classes raise `UsageTypeError`, an axis that does not exist `UsageIndexError`, a dtype that
computes nothing (an 8-bit float) `UsageError`.

Not here: softmax, which reduces (`normalization`). Next: `functions`: exp, tanh and others.
"""

from __future__ import annotations

import math
from typing import Final, Literal

from compiler.ir.ops import Ops
from frontend.arguments.checks import axis_of
from frontend.evaluation.base import T
from frontend.evaluation.constants import narrowed, number_like, ruled, widened, widened_float
from frontend.evaluation.trace import apply, composite, method
from frontend.ops.elementwise import add, clip, gt, le, lt, maximum, mul, ne, where
from frontend.ops.functions import MOST, erf, exp, expm1, log1p, tanh
from frontend.ops.functions import abs as absolute
from frontend.ops.movement import reshape
from frontend.ops.splitting import part
from hcq.errors import UsageError


def _select(x: T, negative: T, other: T) -> T:
    """Return `negative` where x < 0, else `other`."""
    return apply(Ops.WHERE, None, apply(Ops.LT, None, x, number_like(x, 0.0)), negative, other)


def _decay(x: T) -> T:
    """Return exp(-|x|), which never overflows."""
    return exp(apply(Ops.NEG, None, absolute(x)))


@method
def relu(self: T) -> T:
    """Return max(self, 0), for integers in their dtype. Its gradient at 0 is 0."""
    return ruled("relu", maximum(self, 0), self)


@method
def relu6(self: T) -> T:
    """Return self limited to 0..6, for integers in their dtype. Its gradient at 0 and at 6 is 0."""
    return hardtanh(self, 0, 6)


@method
def leaky_relu(self: T, slope: float = 0.01) -> T:
    """Return self where positive, else slope * self. Its gradient at 0 is the slope."""
    x = widened(self)
    value = _select(x, mul(x, slope), x)
    return narrowed(ruled("leaky_relu", value, x, about=(slope,)), self)


@method
def elu(self: T, alpha: float = 1.0) -> T:
    """Return self where positive, else alpha * (exp(self) - 1). Its gradient at 0 is alpha."""
    x = widened(self)
    value = _select(x, mul(expm1(apply(Ops.MIN, None, x, number_like(x, 0.0))), alpha), x)
    return narrowed(ruled("elu", value, x, about=(alpha,)), self)


@method
def sigmoid(self: T) -> T:
    """Return 1 / (1 + exp(-self)), without overflow."""
    x = widened(self)
    e = _decay(x)
    value = apply(Ops.DIV, None, _select(x, e, number_like(x, 1.0)), add(e, 1.0))
    return narrowed(ruled("sigmoid", value, x), self)


@method
def logsigmoid(self: T) -> T:
    """Return log(sigmoid(self)), without overflow."""
    x = widened(self)
    value = apply(Ops.SUB, None, apply(Ops.MIN, None, x, number_like(x, 0.0)), log1p(_decay(x)))
    return narrowed(ruled("logsigmoid", value, x), self)


@method
def silu(self: T) -> T:
    """Return self * sigmoid(self)."""
    x = widened(self)
    return narrowed(mul(x, sigmoid(x)), self)


@method
def gelu(self: T, approximate: Literal["none", "tanh"] = "none") -> T:
    """Return self times the standard normal distribution function at self.

    With "tanh", return self / 2 * (1 + tanh(sqrt(2 / pi) * (self + 0.044715 * self**3))). Raises `UsageError`
    for another text.
    """
    x = widened(self)
    if approximate == "none":
        return narrowed(mul(mul(x, 0.5), add(erf(mul(x, math.sqrt(0.5))), 1.0)), self)
    if approximate != "tanh":
        raise UsageError(f'gelu: approximate is "none" or "tanh", saw {approximate!r}')
    cube = mul(mul(x, x), x)
    inner = mul(add(x, mul(cube, 0.044715)), math.sqrt(2 / math.pi))
    return narrowed(mul(mul(x, 0.5), add(tanh(inner), 1.0)), self)


@method
def quick_gelu(self: T) -> T:
    """Return self * sigmoid(1.702 * self)."""
    x = widened(self)
    return narrowed(mul(x, sigmoid(mul(x, 1.702))), self)


@method
def softplus(self: T, beta: float = 1.0, threshold: float = 20.0) -> T:
    """Return log(1 + exp(beta * self)) / beta, without overflow. Raises `UsageError` for a beta of 0.

    Where beta * self is above the threshold it is self. A threshold of 20 or more is ignored, as the function
    then differs from self by less than the digits of float32.
    """
    if beta == 0:
        raise UsageError("softplus: wanted a beta other than 0, by which the result is divided")
    if threshold < 20.0:
        return where(gt(mul(widened_float(self), beta), threshold), self, softplus(self, beta))
    if beta != 1:
        return narrowed(mul(softplus(mul(widened(self), beta)), 1 / beta), self)
    x = widened(self)
    value = add(apply(Ops.MAX, None, x, number_like(x, 0.0)), log1p(_decay(x)))
    return narrowed(ruled("softplus", value, x), self)


@method
def softsign(self: T) -> T:
    """Return self / (1 + |self|)."""
    x = widened(self)
    return narrowed(apply(Ops.DIV, None, x, add(absolute(x), 1.0)), self)


@method
def mish(self: T) -> T:
    """Return self * tanh(softplus(self))."""
    x = widened(self)
    return narrowed(mul(x, gate(x)), self)


@method
def gate(self: T) -> T:
    """Return tanh(softplus(self)) of float32 or float64, with full relative precision also near 0."""
    whole, rest = _gate_parts(self)
    return ruled("gate", apply(Ops.DIV, None, whole, apply(Ops.ADD, None, whole, rest)), self, about=(False,))


@method
def gate_rest(self: T) -> T:
    """Return 1 - tanh(softplus(self)) of float32 or float64, with full relative precision also near 0."""
    whole, rest = _gate_parts(self)
    return ruled("gate", apply(Ops.DIV, None, rest, apply(Ops.ADD, None, whole, rest)), self, about=(True,))


def _gate_parts(x: T) -> tuple[T, T]:
    """Return a and b with tanh(log(u)) = (u² - 1) / (u² + 1) = a / (a + b), where u = 1 + exp(x)."""
    e = _decay(x)
    whole = _select(x, mul(e, add(e, 2.0)), add(mul(e, 2.0), 1.0))
    return whole, _select(x, number_like(x, 2.0), mul(mul(e, e), 2.0))


@method
def hardsigmoid(self: T) -> T:
    """Return self / 6 + 1/2, limited to 0..1. Its gradient at -3 and at 3 is 0."""
    x = widened(self)
    value = clip(add(mul(x, 1 / 6), 0.5), 0.0, 1.0)
    return narrowed(ruled("hardsigmoid", value, x), self)


@method
def hardswish(self: T) -> T:
    """Return self * relu6(self + 3) / 6. Its gradient at -3 is 0, at 3 it is 1."""
    x = widened(self)
    value = mul(mul(x, clip(add(x, 3.0), 0, 6)), 1 / 6)
    return narrowed(ruled("hardswish", value, x), self)


@method
def hardtanh(self: T, low: float = -1.0, high: float = 1.0) -> T:
    """Return self limited to low..high. Its gradient on both bounds is 0.

    Integers keep their dtype, and the bounds are truncated. Raises `UsageError` for low above high.
    """
    if low > high:
        raise UsageError(f"hardtanh: wanted low <= high, saw {low} and {high}")
    if self.expr.dtype.kind in {"int", "uint"}:
        low, high = (max(int(n), self.expr.dtype.min) for n in (low, high))
    return ruled("hardtanh", clip(self, low, high), self, about=(low, high))


@method
def celu(self: T, alpha: float = 1.0) -> T:
    """Return self where positive, else alpha * (exp(self / alpha) - 1); alpha 0 raises `UsageError`."""
    if alpha == 0:
        raise UsageError("celu: wanted an alpha other than 0, by which the values are divided")
    x = widened(self)
    low = apply(Ops.MIN, None, x, number_like(x, 0.0))
    value = _select(x, mul(expm1(mul(low, 1 / alpha)), alpha), x)
    return narrowed(ruled("celu", value, x, about=(alpha,)), self)


_SELU: Final = (1.0507009873554804934193349852946, 1.6732632423543772848170429916717)
"""Scale and alpha of selu (Klambauer and others, 2017)."""


@method
def selu(self: T) -> T:
    """Return elu with the alpha 1.67326, times 1.0507: it keeps mean 0 and variance 1 over layers."""
    scale, alpha = _SELU
    return narrowed(mul(elu(widened(self), alpha), scale), self)


@method
def hardshrink(self: T, lambd: float = 0.5) -> T:
    """Return self, or 0 where self is within -lambd..lambd; the dtype is that of self."""
    outside = apply(Ops.OR, None, gt(self, lambd), lt(self, -lambd))
    return where(apply(Ops.OR, None, outside, ne(self, self)), self, 0)


@method
def softshrink(self: T, lambd: float = 0.5) -> T:
    """Return self moved towards 0 by lambd, or 0 where self is within -lambd..lambd.

    Raises `UsageError` for a negative lambd, and one that the dtype cannot hold.
    """
    if not 0 <= lambd <= MOST.get(self.expr.dtype, math.inf):
        raise UsageError(f"softshrink: wanted a finite lambd of {self.expr.dtype}, saw {lambd}")
    x = widened(self)
    below = where(lt(x, -lambd), add(x, lambd), where(ne(x, x), x, 0.0))
    return narrowed(where(gt(x, lambd), add(x, -lambd), below), self)


@method
def tanhshrink(self: T) -> T:
    """Return self - tanh(self)."""
    x = widened(self)
    return narrowed(apply(Ops.SUB, None, x, tanh(x)), self)


@method
def threshold(self: T, threshold: float, value: float) -> T:
    """Return self, or `value` where self is at most a threshold; for integers the value is truncated."""
    return where(le(widened_float(self), threshold), int(value) if self.expr.dtype.is_int else value, self)


@method
def glu(self: T, axis: int = -1) -> T:
    """Return the first half of an axis times the sigmoid of the second half.

    Raises `UsageError` for an axis of odd size.
    """
    shape = self.expr.shape
    a = axis_of(axis, shape, "glu") if shape else None
    if a is None or shape[a] % 2:
        raise UsageError(f"glu: wanted an axis of even size, saw the shape {shape}")
    half = shape[a] // 2
    x = widened(self)
    return narrowed(mul(part(x, a, 0, half), sigmoid(part(x, a, half, shape[a]))), self)


@composite
def prelu(self: T, weight: T) -> T:
    """Return self where positive, else weight * self.

    One weight, or a vector of one for each channel (axis 1). Raises `UsageError` for another number of
    weights.
    """
    shape = self.expr.shape
    if not shape and weight.expr.shape == (1,):
        weight = reshape(weight, ())
    elif len(weight.expr.shape) == 1 and weight.expr.shape[0] > 1:
        count = weight.expr.shape[0]
        if len(shape) < 2 or shape[1] != count:
            raise UsageError(f"prelu: {count} weights for the shape {shape}: wanted axis 1 of that size")
        weight = reshape(weight, (1, -1, *(1,) * (len(shape) - 2)))
    return where(gt(self, 0), self, mul(self, weight))
