"""Activation functions: elementwise, each one structure."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Literal

from frontend.lazy import method
from frontend.ops.comparison import lt
from frontend.ops.division import div
from frontend.ops.elementwise import add, clip, maximum, minimum, mul, neg, sub, where
from frontend.ops.functions import abs as absolute
from frontend.ops.functions import erf, exp, log, reciprocal, tanh
from hcq.errors import UsageError

if TYPE_CHECKING:
    from frontend.tensor import Tensor


@method
def relu(self: Tensor) -> Tensor:
    """Return max(self, 0)."""
    return maximum(self, 0)


@method
def relu6(self: Tensor) -> Tensor:
    """Return self limited to 0..6."""
    return clip(self, 0, 6)


@method
def leaky_relu(self: Tensor, slope: float = 0.01) -> Tensor:
    """Return self where positive, else slope * self."""
    return where(lt(self, 0), mul(self, slope), self)


@method
def elu(self: Tensor, alpha: float = 1.0) -> Tensor:
    """Return self where positive, else alpha * (exp(self) - 1)."""
    return where(lt(self, 0), mul(sub(exp(minimum(self, 0)), 1.0), alpha), self)


@method
def sigmoid(self: Tensor) -> Tensor:
    """Return 1 / (1 + exp(-self))."""
    return reciprocal(add(exp(neg(self)), 1.0))


@method
def logsigmoid(self: Tensor) -> Tensor:
    """Return log(sigmoid(self)), without overflow."""
    return neg(softplus(neg(self)))


@method
def silu(self: Tensor) -> Tensor:
    """Return self * sigmoid(self)."""
    return mul(self, sigmoid(self))


@method
def gelu(self: Tensor, approximate: Literal["none", "tanh"] = "none") -> Tensor:
    """Return self times the normal distribution function at self; "tanh" is the usual approximation."""
    if approximate == "none":
        return mul(mul(self, 0.5), add(erf(mul(self, math.sqrt(0.5))), 1.0))
    if approximate != "tanh":
        raise UsageError(f'gelu: approximate is "none" or "tanh", saw {approximate!r}')
    cube = mul(mul(self, self), self)
    inner = mul(add(self, mul(cube, 0.044715)), math.sqrt(2 / math.pi))
    return mul(mul(self, 0.5), add(tanh(inner), 1.0))


@method
def quick_gelu(self: Tensor) -> Tensor:
    """Return self * sigmoid(1.702 * self)."""
    return mul(self, sigmoid(mul(self, 1.702)))


@method
def softplus(self: Tensor) -> Tensor:
    """Return log(1 + exp(self)), without overflow."""
    return add(maximum(self, 0.0), log(add(exp(neg(absolute(self))), 1.0)))


@method
def softsign(self: Tensor) -> Tensor:
    """Return self / (1 + |self|)."""
    return div(self, add(absolute(self), 1.0))


@method
def mish(self: Tensor) -> Tensor:
    """Return self * tanh(softplus(self))."""
    return mul(self, tanh(softplus(self)))


@method
def hardsigmoid(self: Tensor) -> Tensor:
    """Return self / 6 + 1/2, limited to 0..1."""
    return clip(add(mul(self, 1 / 6), 0.5), 0.0, 1.0)


@method
def hardswish(self: Tensor) -> Tensor:
    """Return self * relu6(self + 3) / 6."""
    return mul(mul(self, relu6(add(self, 3.0))), 1 / 6)


@method
def hardtanh(self: Tensor, low: float = -1.0, high: float = 1.0) -> Tensor:
    """Return self limited to low..high."""
    return clip(self, low, high)
