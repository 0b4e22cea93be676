"""What networks are made of: convolutions, pools, norms, softmax, losses, dropout, attention.

Not here: layers, which hold parameters (`frontend.nn.layers`); products of matrices (`linalg`); activations
(`activation`).
"""

# ruff: noqa: PLR0917 - the field's signatures

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Literal

from compiler.dtype import dtypes
from compiler.ir.ops import Ops
from frontend.arg_aliases import spelled
from frontend.expr import CONV, float_dtype
from frontend.ops import reduce
from frontend.ops.arguments import Axes, axes_of, axis_of, repeated, whole
from frontend.ops.comparison import eq, ge, lt, ne
from frontend.ops.diagonals import tril
from frontend.ops.division import div
from frontend.ops.elementwise import add, agree, clip, mul, neg, result_dtype, rsub, sub, where
from frontend.ops.functions import exp, log, log1p, rsqrt
from frontend.ops.indexing import interleaved
from frontend.ops.linalg import matmul
from frontend.ops.movement import pad, permute, reshape, transpose
from frontend.ops.random import rand_like
from frontend.ops.sources import constant, convert, coordinate, narrowed, ruled, spread, widened
from frontend.parameters import flag, read, scalar_of, shown
from frontend.primitives.limits import Limit, limited, refuse_known
from frontend.trace import apply, composite, method
from hcq.errors import UsageError, UsageTypeError

if TYPE_CHECKING:
    from collections.abc import Callable

    from frontend.tensor_base import T

Sizes = int | tuple[int, ...] | list[int]
Reduction = Literal["mean", "sum", "none"]


# -- convolutions and pools --------------------------------------------------------------------------
def spatial_padding(padding: Sizes, rank: int, what: str) -> tuple[tuple[int, int], ...]:
    """Read padding: one number, one for each spatial axis, or flat (before, after) pairs, last axis first."""
    if isinstance(padding, (tuple, list)) and len(padding) == 2 * rank:
        padding = tuple([whole(p, f"{what}, padding") for p in padding])
        return tuple([(padding[i], padding[i + 1]) for i in range(2 * rank - 2, -1, -2)])
    return tuple([(p, p) for p in repeated(padding, rank, f"{what}, padding")])


@composite
def conv2d(
    self: T,
    weight: T,
    bias: T | None = None,
    groups: int = 1,
    stride: Sizes = 1,
    dilation: Sizes = 1,
    padding: Sizes = 0,
) -> T:
    """Return the convolution of (batch, channels, *spatial) with (outputs, channels / groups, *kernel).

    Padding is one number, one per spatial axis, or flat (before, after) pairs with the last axis first.

    `self` has one more axis than the kernel's two in common use; any number of spatial axes works. The result
    is (batch, outputs, *sizes), in the promoted dtype, with size = (n + padding - dilation * (kernel - 1) -
    1) // stride + 1 and the padding of both sides. `groups` divides channels and outputs; `bias` is
    (outputs,).

        Tensor.rand(1, 3, 32, 32).conv2d(Tensor.rand(8, 3, 3, 3), padding=1)      # (1, 8, 32, 32)

    Raises `UsageError` when channels, groups, bias or kernel do not fit.
    """
    rank = len(weight.expr.shape) - 2
    if rank < 1 or len(self.expr.shape) != rank + 2:
        raise UsageError(
            f"conv2d of {self.expr.shape} with the weight {weight.expr.shape}: "
            "wanted (batch, channels, *spatial) and (outputs, channels, *kernel) of one rank"
        )
    pairs = ((0, 0), (0, 0), *spatial_padding(padding, rank, "conv2d"))
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
    y = convert(apply(CONV, arg, x, convert(weight, wide)), dtype)
    return y if bias is None else add(y, reshape(bias, (1, -1, *(1,) * rank)))


@composite
def conv_transpose2d(
    self: T,
    weight: T,
    bias: T | None = None,
    groups: int = 1,
    stride: Sizes = 1,
    dilation: Sizes = 1,
    padding: Sizes = 0,
    output_padding: Sizes = 0,
) -> T:
    """Return the transposed convolution with a weight of (channels, outputs / groups, *kernel).

    The gradient of `conv2d`.

    Sizes of the result: (n - 1) * stride - padding + dilation * (kernel - 1) + output_padding + 1, with the
    padding of both sides. Raises `UsageError` when channels, groups or bias do not fit.
    """
    rank = len(weight.expr.shape) - 2
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
    return conv2d(pad(x, ((0, 0), (0, 0), *around)), w, bias, groups, 1, dilations, 0)


def _windows(
    x: T, size: Sizes, stride: Sizes | None, dilation: Sizes, padding: Sizes, fill: float, what: str
) -> tuple[T, tuple[int, ...]]:
    """Return sliding windows over the last axes, and the axes that run inside a window."""
    kernel = repeated(size, len(size) if isinstance(size, (tuple, list)) else 2, f"{what}, kernel_size")
    rank = len(kernel)
    shape = x.expr.shape
    if len(shape) < rank:
        raise UsageError(f"{what} needs at least {rank} axes, saw the shape {shape}")
    strides = kernel if stride is None else repeated(stride, rank, f"{what}, stride")
    dilations = repeated(dilation, rank, f"{what}, dilation")
    pairs = spatial_padding(padding, rank, what)
    before = len(shape) - rank
    y = pad(x, (*[(0, 0)] * before, *pairs), fill)
    axes = tuple(range(before, len(shape)))
    return apply(Ops.WINDOW, (axes, kernel, strides, dilations), y), tuple(
        range(len(shape), len(shape) + rank)
    )


@method
def max_pool2d(
    self: T,
    kernel_size: Sizes = (2, 2),
    stride: Sizes | None = None,
    dilation: Sizes = 1,
    padding: Sizes = 0,
) -> T:
    """Return the greatest value of each window over the last axes.

    The stride is the window's size unless given. Its gradient goes to the first place that holds that value.

    As many last axes as `kernel_size` has numbers; the dtype is that of self. Padding never wins. Raises
    `UsageError` for a window larger than the padded axis.
    """
    least = -math.inf if self.expr.dtype.is_float else self.expr.dtype.min
    x, axes = _windows(self, kernel_size, stride, dilation, padding, least, "max_pool2d")
    value = reduce.fold(Ops.MAX, x, axes, keepdim=False)
    every = constant(self, True, dtypes.bool, self.expr.shape)
    real, _ = _windows(every, kernel_size, stride, dilation, padding, False, "max_pool2d")
    return ruled("first_extreme", value, x, real, about=(axes, True))


@method
def avg_pool2d(
    self: T,
    kernel_size: Sizes = (2, 2),
    stride: Sizes | None = None,
    dilation: Sizes = 1,
    padding: Sizes = 0,
    count_include_pad: bool = True,  # noqa: FBT001, FBT002 - the field's signature
) -> T:
    """Return the mean of each window over the last axes.

    Padded zeros count unless `count_include_pad` is false.

    Integers give float32. Raises `UsageError` for a window larger than the padded axis.
    """
    x, axes = _windows(self, kernel_size, stride, dilation, padding, 0.0, "avg_pool2d")
    if count_include_pad:
        return reduce.mean(x, axes)
    ones = constant(self, 1.0, float_dtype(self.expr.dtype), self.expr.shape)
    counted, _ = _windows(ones, kernel_size, stride, dilation, padding, 0.0, "avg_pool2d")
    return div(reduce.sum(x, axes), reduce.sum(counted, axes))


# -- norms -------------------------------------------------------------------------------------------
@method
def softmax(self: T, axis: int = -1) -> T:
    """Return exp(self) / sum(exp(self)) along an axis, without overflow.

    The shape stays; integers give float32. Raises `UsageIndexError` for an axis that does not exist.
    """
    e = exp(_below_top(self, axis))
    return narrowed(div(e, reduce.sum(e, axis, keepdim=True)), self)


@method
def log_softmax(self: T, axis: int = -1) -> T:
    """Return log(softmax(self)) along an axis, without overflow.

    The shape stays; integers give float32. More exact than `softmax().log()`.
    """
    x = _below_top(self, axis)
    return narrowed(sub(x, log(reduce.sum(exp(x), axis, keepdim=True))), self)


def _below_top(x: T, axis: int) -> T:
    x = widened(x)
    axes = (axis_of(axis, x.expr.shape, "softmax"),)
    return sub(x, reduce.detached(reduce.fold(Ops.MAX, x, axes, keepdim=True)))


@method
def layernorm(self: T, axis: Axes = -1, eps: float = 1e-5) -> T:
    """Return self with mean 0 and variance 1 over axes.

    The shape stays; `eps` is added to the variance, which divides by the number of elements.
    """
    axes = axes_of(axis, self.expr.shape, "layernorm")
    x = widened(self)
    x = sub(x, reduce.mean(x, axes, keepdim=True))
    return narrowed(mul(x, rsqrt(add(reduce.mean(mul(x, x), axes, keepdim=True), eps))), self)


@method
def rmsnorm(self: T, axis: Axes = -1, eps: float = 1e-6) -> T:
    """Return self divided by its root mean square over axes.

    The shape stays; `eps` is added to the mean square.
    """
    axes = axes_of(axis, self.expr.shape, "rmsnorm")
    x = widened(self)
    return narrowed(mul(x, rsqrt(add(reduce.mean(mul(x, x), axes, keepdim=True), eps))), self)


@composite
def batchnorm(self: T, weight: T | None, bias: T | None, mean: T, invstd: T, axis: int = 1) -> T:
    """Return (self - mean) * invstd * weight + bias, each of these a vector along one axis.

    `mean`, `invstd` and, unless None, `weight` and `bias` have the size of that axis. The shape stays.
    """
    a = axis_of(axis, self.expr.shape, "batchnorm")
    n = self.expr.shape[a]
    for name, x in (("weight", weight), ("bias", bias), ("mean", mean), ("invstd", invstd)):
        if x is not None and math.prod(x.expr.shape) != n:
            raise UsageError(
                f"batchnorm: axis {a} of {self.expr.shape} has {n} channels, {name} the shape {x.expr.shape}"
            )
    shape = tuple([n if i == a else 1 for i, n in enumerate(self.expr.shape)])
    y = sub(self, reshape(mean, shape))
    scale = invstd if weight is None else mul(weight, invstd)
    y = mul(y, reshape(scale, shape))
    return y if bias is None else add(y, reshape(bias, shape))


# -- losses ------------------------------------------------------------------------------------------
def _reduced(x: T, reduction: Reduction, weight: T | None = None) -> T:
    if reduction == "none":
        return x
    if reduction == "sum":
        return reduce.sum(x)
    if reduction != "mean":
        raise UsageError(f'reduction must be "mean", "sum" or "none", not {reduction!r}')
    return reduce.mean(x) if weight is None else div(reduce.sum(x), reduce.sum(weight))


def _labels(what: str, logits: T, target: Any, axis: int, ignore: int | None) -> T:
    """Return integer classes as a tensor; raise when a value known on the host is out of range."""
    found: T = target if target.__class__ is logits.__class__ else read(_labelled, "target", target, logits)
    if found.expr.dtype.is_int and logits.expr.shape:
        refuse_known(found, Limit(f"{what}, classes", 0, logits.expr.shape[axis], ignore))
    return found


def _chosen(what: str, logs: T, target: T, ignore: int | None) -> T:
    """Return logs (..., classes) at integer classes (...): NaN for one outside, 0 for the ignored one."""
    shape = logs.expr.shape
    classes = shape[-1]
    target = limited(target, Limit(f"{what}, classes", 0, classes, ignore))
    target = convert(target, dtypes.int32 if target.expr.dtype.bits < 32 else target.expr.dtype)
    place = convert(coordinate(logs, shape, len(shape) - 1), target.expr.dtype)
    hit = apply(Ops.EQ, None, place, spread(reshape(target, (*shape[:-1], 1)), shape))
    chosen = reduce.sum(where(hit, logs, 0.0), -1)
    inside = mul(lt(target, classes), ge(target, 0))
    outside = where(inside, chosen, math.nan)
    return outside if ignore is None else where(ne(target, ignore), outside, 0.0)


@spelled
def sparse_categorical_crossentropy(
    self: T,
    target: T,
    ignore_index: int = -1,
    label_smoothing: float = 0.0,
    reduction: Reduction = "mean",
) -> T:
    """Return the cross entropy of logits (..., classes) with integer classes (...).

    `ignore_index` counts for nothing. Another class outside is an `IndexError` where the host knows it, or
    under `HCQ_VALIDATE=1`; else its loss is NaN.

    `reduction`: "mean" over the classes that count, "sum", or "none" for the shape of the classes.
    `label_smoothing` in 0..1 is the share of the target spread over all classes. Raises `UsageError` when
    shapes do not fit.
    """
    if ignore_index.__class__ is not int:
        ignore_index = whole(ignore_index, "sparse_categorical_crossentropy, ignore_index")
    target = _labels("sparse_categorical_crossentropy", self, target, -1, ignore_index)
    return _labelled(self, target, ignore_index, label_smoothing, reduction)


@composite
def _labelled(self: T, target: T, ignore_index: int, label_smoothing: float, reduction: Reduction) -> T:
    shape = self.expr.shape
    if not shape or target.expr.shape != shape[:-1] or not target.expr.dtype.is_int:
        raise UsageError(
            f"cross entropy: for logits {shape}, classes last, wanted integer targets {shape[:-1]}, "
            f"saw {target.expr.dtype.name}{list(target.expr.shape)}"
        )
    logs = log_softmax(self)
    chosen = _chosen("cross entropy", logs, target, ignore_index)
    if label_smoothing:
        chosen = add(mul(chosen, 1 - label_smoothing), mul(reduce.mean(logs, -1), label_smoothing))
    counted = ne(target, ignore_index)
    return _reduced(where(counted, neg(chosen), 0.0), reduction, convert(counted, logs.expr.dtype))


@spelled
def cross_entropy(
    self: T,
    target: T,
    reduction: Reduction = "mean",
    label_smoothing: float = 0.0,
    ignore_index: int = -100,
) -> T:
    """Return the cross entropy of logits (batch, classes, ...) with integers or probabilities.

    Integers are (batch, ...), probabilities have the shape of the logits. `ignore_index` counts for nothing.
    Another class outside is an `IndexError` where the host knows it, or under `HCQ_VALIDATE=1`; else its loss
    is NaN.

    `reduction`: "mean" over the classes that count, "sum", or "none" for (batch, ...). `label_smoothing` in
    0..1 is the share of the target spread over all classes.

        logits.cross_entropy(Tensor([3, 0, 9])).backward()      # logits are (3, 10)

    Raises `UsageError` when shapes do not fit or `reduction` is another word.
    """
    axis = 0 if len(self.expr.shape) < 2 else 1
    if ignore_index.__class__ is not int:
        ignore_index = whole(ignore_index, "cross_entropy, ignore_index")
    target = _labels("cross_entropy", self, target, axis, ignore_index)
    return _cross_entropy(self, target, reduction, label_smoothing, ignore_index)


@composite
def _cross_entropy(self: T, target: T, reduction: Reduction, label_smoothing: float, ignore_index: int) -> T:
    shape = self.expr.shape
    if len(shape) < 1:
        raise UsageError("cross_entropy needs logits with a class axis, saw a scalar")
    a = 0 if len(shape) == 1 else 1
    order = (*[i for i in range(len(shape)) if i != a], a)
    logits = apply(Ops.PERMUTE, order, self)
    if target.expr.shape != shape:
        return _labelled(logits, target, ignore_index, label_smoothing, reduction)
    goal = convert(apply(Ops.PERMUTE, order, target), logits.expr.dtype)
    if label_smoothing:
        goal = add(mul(goal, 1 - label_smoothing), label_smoothing / shape[a])
    return _reduced(neg(reduce.sum(mul(log_softmax(logits), goal), -1)), reduction)


@spelled
def nll_loss(self: T, target: T, reduction: Reduction = "mean") -> T:
    """Return the negative of log probabilities (batch, classes) at integer classes (batch,).

    A class outside is an `IndexError` where the host knows it, or under `HCQ_VALIDATE=1`; else its loss is
    NaN. Unlike PyTorch's, it ignores no class.

    `reduction`: "mean", "sum", or "none" for (batch,). Raises `UsageError` when shapes do not fit.
    """
    if len(self.expr.shape) != 2:
        raise UsageError(
            f"nll_loss needs log probabilities (batch, classes), saw the shape {self.expr.shape}"
        )
    return _nll_loss(self, _labels("nll_loss", self, target, 1, None), reduction)


@composite
def _nll_loss(self: T, target: T, reduction: Reduction) -> T:
    if target.expr.shape != self.expr.shape[:1] or not target.expr.dtype.is_int:
        raise UsageError(
            f"nll_loss: for {self.expr.shape} wanted integer targets {self.expr.shape[:1]}, "
            f"saw {target.expr.dtype.name}{list(target.expr.shape)}"
        )
    return _reduced(neg(_chosen("nll_loss", self, target, None)), reduction)


@composite
def binary_crossentropy(self: T, target: T, reduction: Reduction = "mean") -> T:
    """Return the cross entropy of probabilities with targets between 0 and 1.

    Logarithms count as -100 at least, as in PyTorch: a certain and wrong answer costs 100.

    Shapes broadcast. `reduction`: "mean", "sum", or "none" for the broadcast shape.
    """
    x, goal = agree("binary_crossentropy", self, target, floats=True)
    logs, others = clip(log(x), -100.0), clip(log1p(neg(x)), -100.0)
    value = sub(mul(sub(goal, 1.0), others), mul(goal, logs))
    return _reduced(ruled("cross_entropy_of_two", value, x, goal), reduction)


@composite
def binary_crossentropy_logits(self: T, target: T, reduction: Reduction = "mean") -> T:
    """Return the cross entropy of logits with targets between 0 and 1, without overflow.

    Shapes broadcast. `reduction`: "mean", "sum", or "none" for the broadcast shape.
    """
    from frontend.ops.activation import softplus  # noqa: PLC0415 - used by this loss only

    x, goal = agree("binary_crossentropy_logits", self, target, floats=True)
    value = add(mul(rsub(goal, 1.0), x), softplus(neg(x)))
    return _reduced(ruled("cross_entropy_of_logits", value, x, goal), reduction)


@composite
def mse_loss(self: T, target: T, reduction: Reduction = "mean") -> T:
    """Return the squared difference to a target: its mean, its sum, or each element.

    Shapes broadcast. `reduction`: "mean", "sum", or "none" for the broadcast shape. Raises `UsageError` when
    the shapes do not broadcast.
    """
    d = sub(*agree("mse_loss", self, target, floats=True))
    return _reduced(mul(d, d), reduction)


# -- dropout and attention ---------------------------------------------------------------------------
def dropout(self: T, p: float = 0.5) -> T:
    """Return self with a share p of its elements zero and the rest scaled by 1 / (1 - p).

    Self itself outside training.

    Inside `Tensor.train()` each call draws anew, also at each replay of a captured function. Raises
    `UsageError` for p outside 0..1.
    """
    p = scalar_of(p)
    if not isinstance(p, (int, float)):
        raise UsageTypeError(f"dropout: wanted a number, saw {shown(p)}")
    if not 0 <= p <= 1:
        raise UsageError(f"dropout: the share must be in 0..1, saw {p}")
    if not self.training or p == 0:
        return self
    if p == 1:
        return mul(self, 0)
    return _dropped(self, rand_like(self, dtype=dtypes.float32), p)


@composite
def _dropped(self: T, chance: T, p: float) -> T:
    kept = apply(
        Ops.NOT, None, apply(Ops.LT, None, chance, constant(chance, p, dtypes.float32, chance.expr.shape))
    )
    return where(kept, mul(self, 1 / (1 - p)), 0)


@composite
def _scores(query: T, key: T, mask: T | None, is_causal: bool) -> T:  # noqa: FBT001 - internal
    if not query.expr.shape or not query.expr.shape[-1]:
        raise UsageError(
            f"scaled_dot_product_attention needs (..., tokens, depth), saw the shape {query.expr.shape}"
        )
    scale = 1 / math.sqrt(query.expr.shape[-1])
    scores = mul(matmul(query, transpose(key, -2, -1)), scale)
    if is_causal:
        n, m = scores.expr.shape[-2:]
        mask = tril(constant(query, True, dtypes.bool, (n, m)))
    if mask is not None:
        scores = where(mask, scores, -math.inf) if mask.expr.dtype is dtypes.bool else add(scores, mask)
    return softmax(scores) if mask is None or is_causal else _softmax_of_seen(scores)


def _softmax_of_seen(scores: T) -> T:
    """Return the softmax, zeros in rows of which nothing may be seen."""
    top = reduce.detached(reduce.max(scores, -1, keepdim=True))
    unseen = spread(eq(top, -math.inf), scores.expr.shape)
    return where(unseen, 0.0, softmax(where(unseen, 0.0, scores)))


def scaled_dot_product_attention(
    self: T,
    key: T,
    value: T,
    attn_mask: T | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,  # noqa: FBT001, FBT002 - the field's signature
) -> T:
    """Return softmax(self @ key^T / sqrt(depth) + mask) @ value over (..., tokens, depth).

    A bool mask is true where a query may attend; any other mask is added to the scores.

    self is (..., queries, depth), key (..., keys, depth), value (..., keys, width): the result is (...,
    queries, width). `is_causal` masks keys after the query; `dropout_p` drops weights inside
    `Tensor.train()`. Rows without any key give 0. Raises `UsageError` when shapes do not fit.
    """
    is_causal = flag(is_causal, "scaled_dot_product_attention, is_causal")
    if is_causal and attn_mask is not None:
        raise UsageError("scaled_dot_product_attention: give a mask or is_causal, not both")
    weights = _scores(self, key, attn_mask, is_causal)
    return matmul(dropout(weights, dropout_p), value)


def sequential(self: T, layers: Iterable[Callable[[Any], Any]]) -> T:
    """Return self passed through each layer in turn.

    A layer is any callable of one tensor.

        x.sequential([nn.Linear(4, 8), Tensor.relu, nn.Linear(8, 2)])
    """
    every = list(layers) if isinstance(layers, Iterable) else [None]
    if not all(callable(layer) for layer in every):
        raise UsageTypeError(f"sequential needs a list of layers, saw {shown(layers)}")
    x = self
    for layer in every:
        x = layer(x)
    return x
