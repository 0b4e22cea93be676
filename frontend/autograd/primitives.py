"""Gradient rules of primitives that move, combine, reduce, select or convert elements.

Every rule is called as `rule(g, out, *sources)`, with the gradient g of `out`, in its shape and dtype. It
returns the gradient of the source, or a tuple with one for each source; None: no gradient flows. Rules
consist of methods and primitives, so they can be differentiated themselves.

Not here: elementwise primitives (`elementwise`), functions with a rule of their own (`rules`).
"""

# ruff: noqa: PLR0917 - internal

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final

from compiler.ir.ops import Ops
from frontend.evaluation.base import TensorBase
from frontend.evaluation.constants import convert, number_like, spread
from frontend.evaluation.expr import CONV, INPUT, PLACE, SEGMENT, STOP, VERSION
from frontend.evaluation.trace import apply
from frontend.evaluation.views import beside
from frontend.ops.gather_scatter import placed
from frontend.ops.indexing import interleaved
from frontend.ops.reductions import fold
from frontend.ops.scan import product_before
from frontend.ops.sorting import inverse
from frontend.primitives.gather_scatter import SEGMENT_SUM, TAKE_ALONG_AXIS

_FEW_PLACES: Final = 16
"""The largest window whose gradients are summed position by position."""

Gradients = tuple["TensorBase | None", ...]


def _mul(a: TensorBase, b: TensorBase) -> TensorBase:
    return apply(Ops.MUL, None, a, b)


def _select(g: TensorBase, _out: TensorBase, c: TensorBase, *_sides: TensorBase) -> Gradients:
    """Return g for the first side where c is true, g for the second where c is false, and 0 elsewhere."""
    zero = number_like(g, 0.0)
    return None, apply(Ops.WHERE, None, c, g, zero), apply(Ops.WHERE, None, c, zero, g)


def _permute(g: TensorBase, out: TensorBase, _x: TensorBase) -> TensorBase:
    order = out.expr.arg
    return apply(Ops.PERMUTE, tuple([order.index(i) for i in range(len(order))]), g)


def _expand(g: TensorBase, out: TensorBase, x: TensorBase) -> TensorBase:
    """Return the sum of g over the repeated axes."""
    sizes = enumerate(zip(x.expr.shape, out.expr.shape, strict=True))
    return fold(Ops.ADD, g, tuple([i for i, (n, m) in sizes if n != m]), keepdim=True)


def _pad(g: TensorBase, out: TensorBase, x: TensorBase) -> TensorBase:
    inside = zip(out.expr.arg, x.expr.shape, strict=True)
    return apply(Ops.SHRINK, tuple([(low, low + n) for (low, _), n in inside]), g)


def _shrink(g: TensorBase, out: TensorBase, x: TensorBase) -> TensorBase:
    cut = zip(out.expr.arg, x.expr.shape, strict=True)
    return apply(Ops.PAD, tuple([(begin, n - end) for (begin, end), n in cut]), g)


def window(g: TensorBase, out: TensorBase, x: TensorBase) -> TensorBase:
    """Windows: the gradient of an element is the sum over the windows that contain it.

    Axes are processed one at a time, the last first. Windows that do not overlap need no sum. Windows of up
    to `_FEW_PLACES` elements are summed as one shifted copy for each position inside the window, larger ones
    along diagonals.
    """
    axes, sizes, strides, dilations = out.expr.arg
    shape = x.expr.shape
    for axis, size, stride, dilation in reversed(list(zip(axes, sizes, strides, dilations, strict=True))):
        if stride >= size and dilation == 1:
            g = _side_by_side(g, axis, size, stride, shape[axis])
        else:
            added = _overlapping if size <= _FEW_PLACES else _along_diagonals
            g = added(g, axis, size, stride, dilation, shape[axis])
    return g


def _side_by_side(g: TensorBase, axis: int, size: int, stride: int, n: int) -> TensorBase:
    """Merge the last axis (positions in a window) into `axis` (windows) of size n, with 0 in the gaps."""
    rank = len(g.expr.shape) - 1
    g = apply(Ops.PERMUTE, (*range(axis + 1), rank, *range(axis + 1, rank)), g)
    g = apply(Ops.PAD, tuple([(0, stride - size) if i == axis + 1 else (0, 0) for i in range(rank + 1)]), g)
    shape = g.expr.shape
    count = shape[axis] * stride
    g = apply(Ops.RESHAPE, (*shape[:axis], count, *shape[axis + 2 :]), g)
    if count > n:
        g = apply(Ops.SHRINK, tuple([(0, n if i == axis else m) for i, m in enumerate(g.expr.shape)]), g)
    return apply(Ops.PAD, tuple([(0, n - min(n, count)) if i == axis else (0, 0) for i in range(rank)]), g)


def _overlapping(g: TensorBase, axis: int, size: int, stride: int, dilation: int, n: int) -> TensorBase:
    """Sum one copy of g for each position inside a window, shifted to the elements that it was read from."""
    total: TensorBase | None = None
    shape = g.expr.shape
    for place in range(size):
        one = apply(Ops.SHRINK, (*[(0, m) for m in shape[:-1]], (place, place + 1)), g)
        shifted = interleaved(apply(Ops.RESHAPE, shape[:-1], one), axis, stride, place * dilation, n)
        total = shifted if total is None else apply(Ops.ADD, None, total, shifted)
    assert total is not None  # a window has at least one place
    return total


def _along_diagonals(g: TensorBase, axis: int, size: int, stride: int, dilation: int, n: int) -> TensorBase:
    """Sum g[i - w * dilation, w] over w: elements evenly spaced in the flattened pair of axes."""
    reach = (size - 1) * dilation
    g = interleaved(g, axis, stride, reach, n + reach)
    rank = len(g.expr.shape)
    order = (*[i for i in range(rank) if i != axis and i != rank - 1], axis, rank - 1)
    g = apply(Ops.PERMUTE, order, g)
    before = g.expr.shape[:-2]
    length = (n + reach) * size
    flat = apply(Ops.RESHAPE, (*before, length), g)
    flat = apply(Ops.SHRINK, (*[(0, m) for m in before], (size - 1, length)), flat)
    diagonals = apply(Ops.WINDOW, ((rank - 2,), (size,), (size,), (dilation * size - 1,)), flat)
    total = apply(Ops.REDUCE, (Ops.ADD, (rank - 1,)), diagonals)
    return apply(Ops.PERMUTE, tuple([order.index(i) for i in range(rank - 1)]), total)


def reduction(g: TensorBase, out: TensorBase, x: TensorBase) -> TensorBase:
    """Reductions.

    Each term of a sum gets g. The elements that equal a maximum or minimum share g evenly. Each factor of a
    product gets g times the product of the others.
    """
    op, axes = out.expr.arg
    shape = x.expr.shape
    kept = tuple([1 if i in axes else n for i, n in enumerate(shape)])
    wide = spread(apply(Ops.RESHAPE, kept, g), shape)
    if op is Ops.ADD:
        return wide
    result = spread(apply(Ops.RESHAPE, kept, out), shape)
    if op is Ops.MUL:
        return _mul(wide, beside(_product_of_both_sides(x, axes), _product_of_rest(x, axes)))
    hit = convert(apply(Ops.EQ, None, x, result), x.expr.dtype)
    count = spread(fold(Ops.ADD, hit, axes, keepdim=True), shape)
    return apply(Ops.DIV, None, _mul(wide, hit), count)


def _product_of_both_sides(x: TensorBase, axes: tuple[int, ...]) -> TensorBase:
    """Return for each element the product of those before it over the axes times that of those after it.

    Its derivatives are valid at zeros.
    """
    shape, rank = x.expr.shape, len(x.expr.shape)
    order = (*[i for i in range(rank) if i not in axes], *axes)
    moved = apply(Ops.PERMUTE, order, x)
    row = apply(
        Ops.RESHAPE, (*[shape[i] for i in order[: -len(axes)]], math.prod([shape[a] for a in axes])), moved
    )
    last = (len(row.expr.shape) - 1,)
    behind = apply(Ops.FLIP, last, product_before(apply(Ops.FLIP, last, row)))
    both = apply(Ops.RESHAPE, moved.expr.shape, _mul(product_before(row), behind))
    return apply(Ops.PERMUTE, tuple([order.index(i) for i in range(rank)]), both)


def _product_of_rest(x: TensorBase, axes: tuple[int, ...]) -> TensorBase:
    """Return for each element the product of the other elements over the axes, without derivatives at zeros.

    The product of all elements is divided by each element. Zeros and NaN count as 1 in it and infinities as
    their sign; the result becomes 0, infinite or NaN where another element is. As in PyTorch, an element that
    is infinite or NaN gets NaN where x has no zero, and all get 0 in a product of all that has two zeros.
    """
    shape = x.expr.shape
    zero, one, infinite = number_like(x, 0.0), number_like(x, 1.0), number_like(x, math.inf)
    is_zero = apply(Ops.EQ, None, x, zero)
    is_infinite = apply(Ops.EQ, None, apply(Ops.ABS, None, x), infinite)
    is_undefined = apply(Ops.NE, None, x, x)
    sign = apply(Ops.WHERE, None, apply(Ops.LT, None, x, zero), apply(Ops.NEG, None, one), one)
    safe = apply(Ops.WHERE, None, is_infinite, sign, x)
    safe = apply(Ops.WHERE, None, apply(Ops.OR, None, is_zero, is_undefined), one, safe)
    product = spread(fold(Ops.MUL, safe, axes, keepdim=True), shape)
    without = apply(Ops.DIV, None, product, safe)

    def others(hit: TensorBase, factor: TensorBase) -> TensorBase:
        """Return the factor where another element is hit, else 1."""
        count = convert(hit, x.expr.dtype)
        every = spread(fold(Ops.ADD, count, axes, keepdim=True), shape)
        alone = apply(Ops.EQ, None, every, count)
        return apply(Ops.WHERE, None, alone, one, factor)

    factors = _mul(others(is_zero, zero), others(is_infinite, infinite))
    found = _mul(without, _mul(factors, others(is_undefined, number_like(x, math.nan))))
    zeros = spread(
        fold(Ops.ADD, convert(is_zero, x.expr.dtype), tuple(range(len(shape))), keepdim=True), shape
    )
    odd = apply(
        Ops.AND, None, apply(Ops.OR, None, is_infinite, is_undefined), apply(Ops.EQ, None, zeros, zero)
    )
    found = apply(Ops.WHERE, None, odd, number_like(x, math.nan), found)
    several = apply(Ops.LT, None, one, zeros)
    return apply(Ops.WHERE, None, several, zero, found) if len(axes) == len(shape) else found


def gather(g: TensorBase, out: TensorBase, x: TensorBase, indices: TensorBase) -> Gradients:
    """Gather: each element of x gets the sum of g over the places where it was read."""
    axis = out.expr.arg
    shape, count = x.expr.shape, math.prod(indices.expr.shape)
    before, after = shape[:axis], shape[axis + 1 :]
    values = apply(Ops.RESHAPE, (*before, count, *after), g)
    index = apply(Ops.RESHAPE, ((1,) * len(before)) + (count,) + (1,) * len(after), indices)
    return placed(values, index, axis, shape[axis]), None


def take_along_axis(g: TensorBase, out: TensorBase, x: TensorBase, index: TensorBase) -> Gradients:
    """Elements along an axis: the sum of g over the places where each was read; for permutations, one g."""
    axis, permutes = out.expr.arg
    if permutes:
        return apply(TAKE_ALONG_AXIS, (axis, True), g, inverse(index, axis)), None
    return placed(g, index, axis, x.expr.shape[axis]), None


def _segment_sum(g: TensorBase, out: TensorBase, *sources: TensorBase) -> Gradients:
    """Return for each added value the g of the sum that it was added to; None for the index."""
    return apply(TAKE_ALONG_AXIS, (out.expr.arg[0], False), g, sources[1]), *(None,) * (len(sources) - 1)


def _first(g: TensorBase, _out: TensorBase, *sources: TensorBase) -> Gradients:
    """Return g for the first source, which has the values."""
    return (g, *(None,) * (len(sources) - 1))


def convolution(g: TensorBase, out: TensorBase, x: TensorBase, weight: TensorBase) -> Gradients:
    """Convolution: of g with the flipped weight for x; products of windows of x with g for the weight."""
    return _for_input(g, out, x, weight), _for_weight(g, out, x, weight)


def _for_input(g: TensorBase, out: TensorBase, x: TensorBase, weight: TensorBase) -> TensorBase:
    strides, dilations, groups = out.expr.arg
    outputs, inner, *kernel = weight.expr.shape
    rank, each = len(kernel), outputs // groups
    w = apply(Ops.RESHAPE, (groups, each, inner, *kernel), weight)
    w = apply(Ops.PERMUTE, (0, 2, 1, *range(3, 3 + rank)), w)
    w = apply(Ops.RESHAPE, (groups * inner, each, *kernel), w)
    w = apply(Ops.FLIP, tuple([i + 2 for i, k in enumerate(kernel) if k > 1]), w)
    for i in range(rank):
        reach = (kernel[i] - 1) * dilations[i]
        # the window that starts at the first element of x ends `reach` further on
        g = interleaved(g, 2 + i, strides[i], reach, x.expr.shape[2 + i] + reach)
    return apply(CONV, ((1,) * rank, dilations, groups), g, w)


def _for_weight(g: TensorBase, out: TensorBase, x: TensorBase, weight: TensorBase) -> TensorBase:
    strides, dilations, groups = out.expr.arg
    outputs, inner, *kernel = weight.expr.shape
    rank, each = len(kernel), outputs // groups
    batch, _, *places = g.expr.shape
    windows = apply(Ops.WINDOW, (tuple(range(2, 2 + rank)), tuple(kernel), strides, dilations), x)
    whole = (batch, groups, each, inner, *places, *kernel)
    a = apply(Ops.EXPAND, whole, apply(Ops.RESHAPE, (batch, groups, 1, inner, *places, *kernel), windows))
    b = apply(Ops.EXPAND, whole, apply(Ops.RESHAPE, (batch, groups, each, 1, *places, *(1,) * rank), g))
    total = apply(Ops.REDUCE, (Ops.ADD, (0, *range(4, 4 + rank))), _mul(a, b))
    return apply(Ops.RESHAPE, weight.expr.shape, total)


RULES: Final[dict[str, Callable[..., Any]]] = {
    Ops.CAST: lambda g, _, x: convert(g, x.expr.dtype),
    Ops.WHERE: _select,
    Ops.WITHIN: lambda g, _, c, __: (None, apply(Ops.WHERE, None, c, g, number_like(g, 0.0))),
    Ops.RESHAPE: lambda g, _, x: apply(Ops.RESHAPE, x.expr.shape, g),
    Ops.PERMUTE: _permute,
    Ops.EXPAND: _expand,
    Ops.PAD: _pad,
    Ops.SHRINK: _shrink,
    Ops.FLIP: lambda g, out, _: apply(Ops.FLIP, out.expr.arg, g),
    Ops.WINDOW: window,
    Ops.REDUCE: reduction,
    Ops.GATHER: gather,
    **dict.fromkeys((Ops.CONTIGUOUS, PLACE), lambda g, *_: g),
    STOP: lambda _g, _, *sources: (None,) * len(sources),
    **dict.fromkeys((INPUT, SEGMENT, VERSION, Ops.AFTER), _first),
    CONV: convolution,
    TAKE_ALONG_AXIS: take_along_axis,
    SEGMENT_SUM: _segment_sum,
}
"""Operation -> its rule."""
