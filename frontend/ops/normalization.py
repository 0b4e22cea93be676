"""Operations of neural networks: normalisation, softmax, dropout, attention.

An axis that does not exist raises `UsageIndexError`, one that is given twice `UsageError`, arguments of other
classes `UsageTypeError`.

Not here: convolutions and pools (`convolutions`), losses (`losses`), products of matrices (`linalg`),
activations (`activation`). Next: `frontend.nn.layers`, layers with parameters.
"""

# ruff: noqa: FBT001, FBT002, PLR0917 - the field's signatures

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any, cast

from compiler.dtype import DType, dtypes
from compiler.ir.ops import Ops
from frontend.arguments.checks import Axes, axes_of, axis_of, tensor
from frontend.arguments.conversion import flag, held, scalar_of, shown
from frontend.evaluation import modes
from frontend.evaluation.base import T
from frontend.evaluation.constants import constant, convert, narrowed, spread, widened, widened_float
from frontend.evaluation.trace import apply, composite, method
from frontend.ops import reductions
from frontend.ops.arithmetic import div
from frontend.ops.elementwise import add, eq, mul, neg, result_dtype, sub, where
from frontend.ops.functions import exp, log, rsqrt
from frontend.ops.linalg import matmul, tril, wide_matmul
from frontend.ops.movement import along, repeat_interleave, reshape, transpose
from frontend.ops.random import rand_like
from hcq.errors import UsageError, UsageTypeError


@method
def softmax(self: T, axis: int = -1, dtype: DType | str | None = None) -> T:
    """Return exp(self) / sum(exp(self)) along an axis, without overflow.

    The shape stays; integers give float32. With `dtype`, self is converted first.
    """
    self = reductions.as_dtype(self, dtype)
    x, a = along(self, axis, "softmax")
    e = exp(_below_top(x, a))
    return reshape(narrowed(div(e, reductions.sum(e, a, keepdim=True)), self), self.expr.shape)


@method
def log_softmax(self: T, axis: int = -1, dtype: DType | str | None = None) -> T:
    """Return log(softmax(self)) along an axis, without overflow.

    The shape stays; integers give float32. It is more exact than `softmax().log()`. `dtype` as of `softmax`.
    """
    self = reductions.as_dtype(self, dtype)
    own, a = along(self, axis, "log_softmax")
    x = _below_top(own, a)
    return reshape(narrowed(sub(x, log(reductions.sum(exp(x), a, keepdim=True))), self), self.expr.shape)


@method
def softmin(self: T, axis: int = -1, dtype: DType | str | None = None) -> T:
    """Return softmax(-self) along an axis; arguments and errors are those of `softmax`."""
    return softmax(neg(reductions.as_dtype(self, dtype)), axis)


def _below_top(x: T, axis: int) -> T:
    x = widened(x)
    return sub(x, reductions.detached(reductions.fold(Ops.MAX, x, (axis,), keepdim=True)))


@method
def layernorm(self: T, axis: Axes = -1, eps: float = 1e-5) -> T:
    """Return self with mean 0 and variance 1 over axes.

    The shape stays; integers give float32. `eps` is added to the variance, whose sum of squares is divided by
    the number of elements.
    """
    axes = axes_of(axis, self.expr.shape, "layernorm")
    x = widened(self)
    x = sub(x, reductions.mean(x, axes, keepdim=True))
    return narrowed(mul(x, rsqrt(add(reductions.mean(mul(x, x), axes, keepdim=True), eps))), self)


@method
def rmsnorm(self: T, axis: Axes = -1, eps: float = 1e-6) -> T:
    """Return self divided by its root mean square over axes.

    The shape stays; `eps` is added to the mean square.
    """
    axes = axes_of(axis, self.expr.shape, "rmsnorm")
    x = widened(self)
    return narrowed(mul(x, rsqrt(add(reductions.mean(mul(x, x), axes, keepdim=True), eps))), self)


@composite
def batchnorm(self: T, weight: T | None, bias: T | None, mean: T, invstd: T, axis: int = 1) -> T:
    """Return (self - mean) * invstd * weight + bias, each of the four a vector along one axis.

    `mean` and `invstd`, and `weight` and `bias` unless they are None, have the size of that axis; else
    `UsageError` is raised. The shape stays.
    """
    a = axis_of(axis, self.expr.shape, "batchnorm")
    n = self.expr.shape[a]
    for name, x in (("weight", weight), ("bias", bias), ("mean", mean), ("invstd", invstd)):
        if x is not None and math.prod(x.expr.shape) != n:
            raise UsageError(
                f"batchnorm: axis {a} of {self.expr.shape} has {n} channels, {name} the shape {x.expr.shape}"
            )
    shape = tuple([n if i == a else 1 for i, n in enumerate(self.expr.shape)])
    y = sub(widened_float(self), reshape(mean, shape))
    scale = widened_float(invstd) if weight is None else mul(weight, widened_float(invstd))
    y = mul(y, reshape(scale, shape))
    found = y if bias is None else add(y, reshape(bias, shape))
    return convert(found, result_dtype(*[t for t in (self, mean, invstd, weight, bias) if t is not None]))


def dropout(self: T, p: float = 0.5, training: bool | None = None) -> T:
    """Return self with each element set to 0 with probability p, and the others scaled by 1 / (1 - p).

    With `training` False the result is self. None: the mode of the surrounding `Tensor.train` block, True
    outside. In training each call, and each replay of a captured function, draws anew.

    Raises `UsageError` for p outside 0..1, `UsageTypeError` for no number.
    """
    p = p if isinstance(p, (int, float)) else held(scalar_of(p))
    if not isinstance(p, (int, float)):
        raise UsageTypeError(f"dropout: wanted a number, saw {shown(p)}")
    if not 0 <= p <= 1:
        raise UsageError(f"dropout: the share must be in 0..1, saw {p}")
    if training is None:
        training = modes.training(self.__class__) is not False
    if not flag(training, "dropout, training") or p == 0:
        return self
    if p == 1:
        return mul(self, self.expr.dtype is not dtypes.bool and 0)
    return _dropped(self, rand_like(self, dtype=dtypes.float32), p)


@composite
def _dropped(self: T, chance: T, p: float) -> T:
    kept = apply(
        Ops.NOT, None, apply(Ops.LT, None, chance, constant(chance, p, dtypes.float32, chance.expr.shape))
    )
    return where(kept, mul(self, 1 / (1 - p)), 0)


@composite
def _scores(query: T, key: T, mask: T | None, is_causal: bool, scale: float | None) -> T:
    if min(len(t.expr.shape) for t in (query, key)) < 2:
        raise UsageError(
            f"scaled_dot_product_attention needs (..., tokens, depth), saw the shape {query.expr.shape}"
        )
    scale = 1 / math.sqrt(query.expr.shape[-1] or 1) if scale is None else scale
    added = [] if mask is None or mask.expr.dtype is dtypes.bool else [mask]
    dtype = result_dtype(query, key, *added)
    scores = mul(wide_matmul(query, transpose(key, -2, -1)), scale)
    if is_causal:
        n, m = scores.expr.shape[-2:]
        mask = tril(constant(query, True, dtypes.bool, (n, m)))
    if mask is not None:
        scores = where(mask, scores, -math.inf) if mask.expr.dtype is dtypes.bool else add(scores, mask)
    return convert(softmax(scores) if mask is None or is_causal else _softmax_of_seen(scores), dtype)


def _softmax_of_seen(scores: T) -> T:
    """Return the softmax of the scores; rows in which every score is masked (-infinity) give 0."""
    top = reductions.detached(reductions.max(scores, -1, keepdim=True))
    unseen = spread(eq(top, -math.inf), scores.expr.shape)
    return where(unseen, 0.0, softmax(where(unseen, 0.0, scores)))


def _shared_heads(query: T, x: T) -> T:
    """Return key or value with each head repeated to the number of heads of the query."""
    heads, own = ([*t.expr.shape[-3:-2], 0][0] for t in (query, x))
    if not own or heads % own:
        raise UsageError(f"scaled_dot_product_attention: {heads} heads of the query are no multiple of {own}")
    return repeat_interleave(x, heads // own, -3)


def scaled_dot_product_attention(
    self: T,
    key: T,
    value: T,
    attn_mask: T | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> T:
    """Return softmax(self @ key^T / sqrt(depth) + mask) @ value over (..., tokens, depth).

    self is (..., queries, depth), key (..., keys, depth), value (..., keys, width); the result is (...,
    queries, width). `scale` replaces 1 / sqrt(depth). A bool mask is true where a query may attend to a key;
    any other mask is added to the scores. `is_causal` masks the keys after the query. Rows in which every key
    is masked give 0. `dropout_p` is the probability of `dropout` of the weights.

    With `enable_gqa`, neighbouring heads (axis -3) of self share one head of key and value, whose number of
    heads divides that of self.

    Raises `UsageError` when shapes do not fit, and for a mask beside `is_causal`.
    """
    is_causal = flag(is_causal, "scaled_dot_product_attention, is_causal")
    if is_causal and attn_mask is not None:
        raise UsageError("scaled_dot_product_attention: give a mask or is_causal, not both")
    sized: Any = next((t for t in (key, value, attn_mask) if hasattr(t, "dispatch")), None)
    if sized is not None:
        every = (self, key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa)
        return cast("T", sized.dispatch(scaled_dot_product_attention, every, {}))
    if flag(enable_gqa, "scaled_dot_product_attention, enable_gqa"):
        for x in (key, value):
            tensor(x, "scaled_dot_product_attention", self)
        key, value = (_shared_heads(self, x) for x in (key, value))
    weights = _scores(self, key, attn_mask, is_causal, scale)
    return matmul(dropout(weights, dropout_p), value)


def sequential(self: T, layers: Iterable[Callable[[Any], Any]]) -> T:
    """Return self passed through each layer in order. A layer is any callable of one tensor.

    Raises `UsageTypeError` for a layer that cannot be called.

        x.sequential([nn.Linear(4, 8), Tensor.relu, nn.Linear(8, 2)])
    """
    every = list(layers) if isinstance(layers, Iterable) else [None]
    if not all(callable(layer) for layer in every):
        raise UsageTypeError(f"sequential needs a list of layers, saw {shown(layers)}")
    x = self
    for layer in every:
        x = layer(x)
    return x
