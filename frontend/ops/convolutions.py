"""Convolutions and pooling: operations on windows over the spatial axes of (batch, channels, ...).

Shapes and settings that do not fit raise `UsageError`, arguments of other classes `UsageTypeError`.

Not here: layers, which have parameters (`frontend.nn.convolutions`, `frontend.nn.pools`).
"""

# ruff: noqa: FBT001, FBT002, PLR0917 - the field's signatures

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Generic, Literal, NamedTuple, TypeGuard, overload

from compiler.dtype import dtypes
from compiler.ir.ops import Ops
from frontend.arguments.aliases import accepts_aliases
from frontend.arguments.checks import repeated, whole
from frontend.arguments.conversion import converting, flag
from frontend.evaluation.base import T
from frontend.evaluation.constants import constant, convert, coordinate, ruled, widened_float
from frontend.evaluation.expr import CONV, float_dtype
from frontend.evaluation.trace import apply, composite, method
from frontend.ops import reductions
from frontend.ops.arithmetic import div
from frontend.ops.elementwise import add, eq, ne, result_dtype, where
from frontend.ops.gather_scatter import scatter
from frontend.ops.indexing import interleaved
from frontend.ops.movement import permute, reshape, unsqueeze
from frontend.ops.resizing import pad
from hcq.errors import UsageError

Sizes = int | tuple[int, ...] | list[int]
"""A whole number for all spatial axes, or one for each."""


def spatial_padding(padding: Sizes, rank: int, what: str) -> tuple[tuple[int, int], ...]:
    """Return (before, after) for each spatial axis.

    `padding` is one number, one for each axis, or flat (before, after) pairs, the last axis first. Raises
    `UsageError` for a negative number and another number of numbers.
    """
    if isinstance(padding, (tuple, list)) and len(padding) == 2 * rank:
        flat = [whole(p, f"{what}, padding") for p in padding]
        pairs = tuple([(flat[i], flat[i + 1]) for i in range(2 * rank - 2, -1, -2)])
    else:
        pairs = tuple([(p, p) for p in repeated(padding, rank, f"{what}, padding")])
    if any(n < 0 for pair in pairs for n in pair):
        raise UsageError(f"{what}: wanted padding of at least 0, saw {padding}")
    return pairs


def same_padding(kernel: tuple[int, ...], stride: Sizes, dilation: Sizes) -> tuple[int, ...]:
    """Return flat (before, after) pairs, the last axis first, with which a convolution keeps sizes.

    Raises `UsageError` for a stride other than 1.
    """
    rank = len(kernel)
    if set(repeated(stride, rank, "conv2d, stride")) != {1}:
        raise UsageError(f"conv2d: the padding 'same' needs a stride of 1, saw {stride}")
    reach = [d * (k - 1) for d, k in zip(repeated(dilation, rank, "conv2d, dilation"), kernel, strict=True)]
    return tuple([n for r in reversed(reach) for n in (r // 2, r - r // 2)])


@composite
def conv2d(
    self: T,
    weight: T,
    bias: T | None = None,
    stride: Sizes = 1,
    padding: Sizes | str = 0,
    dilation: Sizes = 1,
    groups: int = 1,
) -> T:
    """Return the convolution of (batch, channels, *spatial) with (outputs, channels / groups, *kernel).

    There may be any number of spatial axes, at least one. The result is (batch, outputs, *sizes), in the
    promoted dtype, with size = (n + padding - dilation * (kernel - 1) - 1) // stride + 1 for the padding of
    both sides. Without a batch, self is (channels, *spatial), and the result has no batch. `padding` is one
    number, one for each spatial axis, flat (before, after) pairs, the last axis first, "same" (for a stride
    of 1) or "valid" (0). `groups` divides channels and outputs; `bias` is (outputs,).

        Tensor.rand(1, 3, 32, 32).conv2d(Tensor.rand(8, 3, 3, 3), padding=1)      # (1, 8, 32, 32)

    Products with the padding may be left out. Where a weight that is infinite or NaN meets the padding, the
    result is therefore either NaN or the sum of the other products, depending on the sizes.

    Raises `UsageError` when channels, groups, bias or kernel do not fit, and for negative padding.
    """
    rank = len(weight.expr.shape) - 2
    if len(self.expr.shape) == rank + 1 > 1:
        single = conv2d(unsqueeze(self, 0), weight, bias, stride, padding, dilation, groups)
        return reshape(single, single.expr.shape[1:])
    if rank < 1 or len(self.expr.shape) != rank + 2:
        raise UsageError(
            f"conv2d of {self.expr.shape} with the weight {weight.expr.shape}: "
            "wanted (batch, channels, *spatial) and (outputs, channels, *kernel) of one rank"
        )
    if padding == "same":
        padding = same_padding(weight.expr.shape[2:], stride, dilation)
    elif padding == "valid":
        padding = 0
    elif isinstance(padding, str):
        raise UsageError(f"conv2d: wanted the padding 'same', 'valid' or numbers, saw {padding!r}")
    pairs = ((0, 0), (0, 0), *spatial_padding(padding, rank, "conv2d"))
    if bias is not None and bias.expr.shape != weight.expr.shape[:1]:
        raise UsageError(f"conv2d: wanted a bias of shape {weight.expr.shape[:1]}, saw {bias.expr.shape}")
    dtype = result_dtype(self, weight)
    if groups < 1:
        raise UsageError(f"conv2d: wanted at least one group, saw {groups}")
    channels, inner = self.expr.shape[1], weight.expr.shape[1]
    if channels != inner * groups or weight.expr.shape[0] % groups:
        raise UsageError(
            f"conv2d of {self.expr.shape} with the weight {weight.expr.shape} in {groups} groups: wanted "
            f"{inner * groups} input channels, and outputs that are a multiple of the groups"
        )
    wide = dtypes.float32 if dtype.is_float and dtype.bits == 16 else dtype
    x = pad(convert(self, wide), pairs)
    arg = (repeated(stride, rank, "conv2d, stride"), repeated(dilation, rank, "conv2d, dilation"), groups)
    _check_fit("conv2d", x.expr.shape[2:], weight.expr.shape[2:], *arg[:2])
    y = apply(CONV, arg, x, convert(weight, wide))
    if bias is None:
        return convert(y, dtype)
    found = add(y, reshape(widened_float(bias), (1, -1, *(1,) * rank)))
    return convert(found, result_dtype(self, weight, bias))


@composite
def conv_transpose2d(
    self: T,
    weight: T,
    bias: T | None = None,
    stride: Sizes = 1,
    padding: Sizes = 0,
    output_padding: Sizes = 0,
    groups: int = 1,
    dilation: Sizes = 1,
) -> T:
    """Return the transposed convolution with a weight of (channels, outputs / groups, *kernel).

    It is the gradient of `conv2d` by its input. The result is (batch, outputs, *sizes), with size = (n - 1) *
    stride - padding + dilation * (kernel - 1) + output_padding + 1 for the padding of both sides. Without a
    batch, as `conv2d`. `padding` is as for `conv2d`, without names; `bias` is (outputs,). Raises `UsageError`
    when channels, groups or bias do not fit, and for negative padding.
    """
    rank = len(weight.expr.shape) - 2
    if len(self.expr.shape) == rank + 1 > 1:
        every = (bias, stride, padding, output_padding, groups, dilation)
        single = conv_transpose2d(unsqueeze(self, 0), weight, *every)
        return reshape(single, single.expr.shape[1:])
    if rank < 1 or len(self.expr.shape) != rank + 2 or groups < 1:
        raise UsageError(
            f"conv_transpose2d of {self.expr.shape} with the weight {weight.expr.shape} in {groups} groups: "
            "wanted (batch, channels, *spatial), (channels, outputs, *kernel) of one rank, and a group"
        )
    channels, each, *kernel = weight.expr.shape
    strides, dilations = repeated(stride, rank, "stride"), repeated(dilation, rank, "dilation")
    extra = repeated(output_padding, rank, "output_padding")
    pairs = spatial_padding(padding, rank, "conv_transpose2d")
    if channels % groups or channels != self.expr.shape[1]:
        raise UsageError(
            f"conv_transpose2d of {self.expr.shape} with the weight {weight.expr.shape} "
            f"in {groups} groups: wanted {self.expr.shape[1]} input channels, a multiple of them"
        )
    w = reshape(weight, (groups, channels // groups, each, *kernel))
    w = reshape(permute(w, 0, 2, 1, *range(3, 3 + rank)), (groups * each, channels // groups, *kernel))
    w = apply(Ops.FLIP, tuple([i + 2 for i, k in enumerate(kernel) if k > 1]), w)
    x = self
    around = []
    for i in range(rank):
        n = x.expr.shape[2 + i]
        x = interleaved(x, 2 + i, strides[i], 0, (n - 1) * strides[i] + 1)
        reach = (kernel[i] - 1) * dilations[i]
        around.append((reach - pairs[i][0], reach - pairs[i][1] + extra[i]))
    return conv2d(pad(x, ((0, 0), (0, 0), *around)), w, bias, 1, 0, dilations, groups)


def _check_fit(
    what: str, shape: Sequence[int], kernel: Sequence[int], strides: Sequence[int], dilations: Sequence[int]
) -> None:
    """Raise `UsageError` for windows that are longer than the padded axes, or not positive."""
    for n, k, stride, d in zip(shape, kernel, strides, dilations, strict=True):
        if min(k, stride, d) < 1 or d * (k - 1) + 1 > n:
            raise UsageError(
                f"{what}: wanted a kernel within the padded axis, stride and dilation of at least 1, saw a "
                f"kernel of {k}, a stride of {stride}, a dilation of {d}, and {n} elements with the padding"
            )


def _given(stride: Sizes | None) -> TypeGuard[Sizes]:
    """Return whether a pool has a stride of its own: neither None nor, as in PyTorch, an empty list."""
    return stride is not None and (isinstance(stride, int) or len(stride) > 0)


def _windows(
    x: T,
    size: Sizes,
    stride: Sizes | None,
    dilation: Sizes,
    padding: Sizes,
    fill: float,
    what: str,
    *,
    ceil: bool = False,
) -> tuple[T, tuple[int, ...]]:
    """Return sliding windows over the last axes, and the axes that run inside a window."""
    kernel = repeated(size, len(size) if isinstance(size, (tuple, list)) else 2, f"{what}, kernel_size")
    rank = len(kernel)
    shape = x.expr.shape
    if len(shape) < rank:
        raise UsageError(f"{what} needs at least {rank} axes, saw the shape {shape}")
    strides = repeated(stride, rank, f"{what}, stride") if _given(stride) else kernel
    dilations = repeated(dilation, rank, f"{what}, dilation")
    pairs = spatial_padding(padding, rank, what)
    for pair, k, d in zip(pairs, kernel, dilations, strict=True):
        if min(pair) < 0 or max(pair) > (d * (k - 1) + 1) // 2:
            raise UsageError(f"{what}: wanted padding of at least 0 and at most half a window, saw {padding}")
    before = len(shape) - rank
    if ceil:
        every = zip(shape[before:], pairs, kernel, strides, dilations, strict=True)
        pairs = tuple(
            [(low, high + _rest(n + low + high, n + low, *each)) for n, (low, high), *each in every]
        )
    y = pad(x, (*[(0, 0)] * before, *pairs), fill)
    _check_fit(what, y.expr.shape[before:], kernel, strides, dilations)
    axes = tuple(range(before, len(shape)))
    return apply(Ops.WINDOW, (axes, kernel, strides, dilations), y), tuple(
        range(len(shape), len(shape) + rank)
    )


def _rest(n: int, begun: int, kernel: int, stride: int, dilation: int) -> int:
    """Return by how many elements the last window exceeds an axis of n elements, 0 if it does not.

    For `ceil_mode`: one more window is added if a part of it fits and it begins before the index `begun`.
    """
    reach = dilation * (kernel - 1) + 1
    count = -(-(n - reach) // stride) + 1
    if (count - 1) * stride >= begun:
        count -= 1
    return max(0, (count - 1) * stride + reach - n)


class Pooled(NamedTuple, Generic[T]):
    """The greatest values of windows, and their indices in the flattened last axes (int64)."""

    values: T
    indices: T


@overload
def max_pool2d(
    self: T,
    kernel_size: Sizes = (2, 2),
    stride: Sizes | None = None,
    padding: Sizes = 0,
    dilation: Sizes = 1,
    ceil_mode: bool = False,
    return_indices: Literal[False] = False,
) -> T: ...
@overload
def max_pool2d(
    self: T,
    kernel_size: Sizes = (2, 2),
    stride: Sizes | None = None,
    padding: Sizes = 0,
    dilation: Sizes = 1,
    ceil_mode: bool = False,
    *,
    return_indices: Literal[True],
) -> Pooled[T]: ...
@accepts_aliases
def max_pool2d(
    self: T,
    kernel_size: Sizes = (2, 2),
    stride: Sizes | None = None,
    padding: Sizes = 0,
    dilation: Sizes = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> T | Pooled[T]:
    """Return the greatest value of each window over the last axes, as many as `kernel_size` has numbers.

    One number for `kernel_size` means two axes. The stride is the window's size unless given. With
    `ceil_mode` windows may exceed the end of an axis. Padding is less than every value. The dtype is that of
    self. A gradient goes to the first element of the window that has the value. With `return_indices` the
    result is the pair `(values, indices)` for `max_unpool2d`.

    Raises `UsageError` for too few axes, a window larger than the padded axis, and padding that is negative
    or above half a window.
    """
    every = (kernel_size, stride, padding, dilation, ceil_mode)
    value = _max_pool(self, *every)
    if not flag(return_indices, "max_pool2d, return_indices"):
        return value
    return Pooled(value, _places_of_greatest(self, *every))


@method
def _max_pool(
    self: T, kernel_size: Sizes, stride: Sizes | None, padding: Sizes, dilation: Sizes, ceil_mode: bool
) -> T:
    x, real, axes = _filled_windows(self, kernel_size, stride, padding, dilation, ceil_mode)
    top = reductions.fold(Ops.MAX, x, axes, keepdim=False)
    return ruled("first_extreme", top, x, real, about=(axes, True))


def _filled_windows(
    self: T, kernel_size: Sizes, stride: Sizes | None, padding: Sizes, dilation: Sizes, ceil_mode: bool
) -> tuple[T, T, tuple[int, ...]]:
    """Return windows, padded with the least number; whether each element is inside self.

    The windows' axes.
    """
    least = -math.inf if self.expr.dtype.is_float else self.expr.dtype.min
    x, axes = _windows(self, kernel_size, stride, dilation, padding, least, "max_pool2d", ceil=ceil_mode)
    every = constant(self, True, dtypes.bool, self.expr.shape)
    real, _ = _windows(every, kernel_size, stride, dilation, padding, False, "max_pool2d", ceil=ceil_mode)
    return x, real, axes


@method
def _places_of_greatest(
    self: T, kernel_size: Sizes, stride: Sizes | None, padding: Sizes, dilation: Sizes, ceil_mode: bool
) -> T:
    """Return the flat index of the first greatest value of each window; a NaN is greatest."""
    x, real, axes = _filled_windows(self, kernel_size, stride, padding, dilation, ceil_mode)
    value = reductions.fold(Ops.MAX, x, axes, keepdim=True)
    shape = self.expr.shape
    inner = shape[len(shape) - len(axes) :]
    lead = len(shape) - len(inner)
    number = reshape(coordinate(self, (math.prod(inner),), 0), (*(1,) * lead, *inner))
    number = apply(Ops.EXPAND, shape, number)
    places, _ = _windows(number, kernel_size, stride, dilation, padding, 0, "max_pool2d", ceil=ceil_mode)
    hit = eq(x, value)
    if x.expr.dtype.is_float:
        hit = apply(Ops.OR, None, hit, ne(x, x))
    hit = apply(Ops.AND, None, hit, real)
    return reductions.fold(Ops.MIN, where(hit, places, places.expr.dtype.max), axes, keepdim=False)


@converting
def max_unpool2d(
    self: T,
    index: T,
    kernel_size: Sizes,
    stride: Sizes | None = None,
    padding: Sizes = 0,
    output_size: tuple[int, ...] | None = None,
) -> T:
    """Return zeros with the values of self at the indices that `max_pool2d` with `return_indices` gave.

    The sizes of the last axes are (n - 1) * stride - 2 * padding + kernel, or `output_size`. Raises
    `UsageError` for an index of another shape, `UsageIndexError` for an index outside if the host knows it.
    """
    shape = self.expr.shape
    rank = len(kernel_size) if isinstance(kernel_size, (tuple, list)) else 2
    if index.expr.shape != shape or len(shape) < rank:
        raise UsageError(f"max_unpool2d: wanted an index for each of {shape}, saw {index.expr.shape}")
    kernel = repeated(kernel_size, rank, "max_unpool2d, kernel_size")
    strides = repeated(stride, rank, "max_unpool2d, stride") if _given(stride) else kernel
    around = repeated(padding, rank, "max_unpool2d, padding")
    lead, last = shape[: len(shape) - rank], shape[len(shape) - rank :]
    sizes = tuple([(n - 1) * s - 2 * p + k for n, s, p, k in zip(last, strides, around, kernel, strict=True)])
    if output_size is not None:
        sizes = tuple([whole(n, "max_unpool2d, output_size") for n in output_size])[-rank:]
    empty = constant(self, 0, self.expr.dtype, (*lead, math.prod(sizes)))
    flat = (*lead, math.prod(last))
    found = scatter(empty, len(lead), reshape(index, flat), reshape(self, flat))
    return reshape(found, (*lead, *sizes))


@method
def avg_pool2d(
    self: T,
    kernel_size: Sizes = (2, 2),
    stride: Sizes | None = None,
    padding: Sizes = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
    dilation: Sizes = 1,
) -> T:
    """Return the mean of each window over the last axes, as many as `kernel_size` has numbers.

    Other arguments are those of `max_pool2d`. Padded zeros are counted unless `count_include_pad` is false.
    With `divisor_override` the sum of each window is divided by that number.

    Integers keep their dtype, and the mean is truncated; bools give float32. Raises as `max_pool2d`, and
    `UsageError` for a divisor_override of 0.
    """
    x, axes = _windows(self, kernel_size, stride, dilation, padding, 0, "avg_pool2d", ceil=ceil_mode)
    if divisor_override is not None:
        if not whole(divisor_override, "avg_pool2d, divisor_override"):
            raise UsageError("avg_pool2d, divisor_override: wanted a number other than 0")
        return _share(reductions.sum(x, axes), divisor_override, self)
    if count_include_pad and not ceil_mode:
        if self.expr.dtype.kind in {"int", "uint"}:
            return _share(reductions.sum(x, axes), math.prod([x.expr.shape[a] for a in axes]), self)
        return reductions.mean(x, axes)
    ones = constant(self, 1.0, float_dtype(self.expr.dtype), self.expr.shape)
    if count_include_pad:  # the padding is counted, elements beyond the padding are not
        rank = len(axes)
        around = (*[(0, 0)] * (len(self.expr.shape) - rank), *spatial_padding(padding, rank, "avg_pool2d"))
        ones = pad(ones, around, 1.0)
        beyond = [
            (0, max(0, _rest(n, n - high, *each)))
            for n, (_, high), *each in zip(
                ones.expr.shape[-rank:],
                around[-rank:],
                repeated(kernel_size, rank, "avg_pool2d"),
                repeated(stride if _given(stride) else kernel_size, rank, "avg_pool2d"),
                repeated(dilation, rank, "avg_pool2d"),
                strict=True,
            )
        ]
        ones = pad(ones, (*[(0, 0)] * (len(self.expr.shape) - rank), *beyond))
        counted, _ = _windows(ones, kernel_size, stride, dilation, 0, 0.0, "avg_pool2d")
    else:
        counted, _ = _windows(ones, kernel_size, stride, dilation, padding, 0.0, "avg_pool2d", ceil=ceil_mode)
    return _share(reductions.sum(x, axes), reductions.sum(counted, axes), self)


def _share(total: T, count: T | int, of: T) -> T:
    """Return total / count; if `of` is of integers, truncated and in its dtype."""
    if of.expr.dtype.kind not in {"int", "uint"}:
        return div(total, count)
    whole_count = count if isinstance(count, int) else convert(count, total.expr.dtype)
    return convert(div(total, whole_count, rounding_mode="trunc"), of.expr.dtype)
