"""CONV, a primitive of the frontend: a convolution with its own gradient rule.

CONV src=(x, weight) arg=(strides, dilations, groups): x is (batch, groups * channels, *spatial), already
padded; weight is (groups * outputs, channels, *kernel). `lower` expresses it as windows, products and a sum
for the compiler. It is one primitive because the gradient of a convolution is a convolution
(`frontend.autograd.primitives`). The gradient of windows alone would be a sum over shifted copies of an array
as large as all windows.

Not here: padding and arguments of the methods. Next: `frontend.ops.convolutions`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from compiler.ir import graph
from compiler.ir.ops import Ops
from hcq.errors import UsageError

if TYPE_CHECKING:
    from compiler.ir.uop import UOp


def lower(x: UOp, weight: UOp, strides: tuple[int, ...], dilations: tuple[int, ...], groups: int) -> UOp:
    """Return the convolution as windows of x, times the weight, summed over channels and window.

    The result is (batch, groups * outputs, *positions). Raises `UsageError` for shapes that do not fit.
    """
    rank = len(strides)
    if len(x.shape) != rank + 2 or len(weight.shape) != rank + 2:
        raise UsageError(
            f"CONV of {x.shape} with {weight.shape}: wanted {rank} spatial axes after two others in both"
        )
    batch, channels = x.shape[:2]
    outputs, inner, *kernel = weight.shape
    if channels != inner * groups or outputs % groups:
        raise UsageError(
            f"CONV of {x.shape} with {weight.shape} in {groups} groups: wanted {inner * groups} input "
            f"channels, and outputs that are a multiple of the groups"
        )
    windows = graph.window(x, tuple(range(2, rank + 2)), tuple(kernel), strides, dilations)
    places = windows.shape[2 : rank + 2]
    each = outputs // groups
    whole = (batch, groups, each, inner, *places, *kernel)
    a = graph.expand(graph.reshape(windows, (batch, groups, 1, inner, *places, *kernel)), whole)
    b = graph.expand(graph.reshape(weight, (1, groups, each, inner, *(1,) * rank, *kernel)), whole)
    axes = (3, *range(4 + rank, 4 + 2 * rank))
    return graph.reshape(graph.reduce(graph.binary(Ops.MUL, a, b), Ops.ADD, axes), (batch, outputs, *places))
