"""ATen operators that are more than one method of a tensor; arguments and results are the operator's.

Derivatives that PyTorch has as operators of their own are gradients of the forward function.

Not here: the table (`operators`).
"""

# ruff: noqa: FBT001, FBT002, PLR0917 - the signatures are those of the operators

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch

from compiler.dtype import dtypes
from frontend.evaluation.expr import PARAM
from frontend.ops.elementwise import chosen
from frontend.ops.resizing import binned
from frontend.tensor import Tensor
from frontend.torch_compile.memory import inverse, order_of
from hcq.errors import UnsupportedError

Sizes = Sequence[int]


def name_of(target: Any) -> str:
    """Return "add.Tensor" for `aten.add.Tensor`, "add" for a default overload, else with the namespace."""
    space, _, name = str(target).partition(".")
    return (name if space == "aten" else f"{space}.{name}").removesuffix(".default")


def tensor(x: Any, like: Any) -> Tensor:
    """Return a tensor or a number as a tensor, on the device of `like`."""
    if isinstance(x, Tensor):
        return x
    made: Tensor = Tensor.full((), x, device=like.device)
    return made


def scaled(x: Any, alpha: float) -> Any:
    """Return alpha * x."""
    return x if alpha == 1 else x * alpha


def axes(given: Any) -> Any:
    """Return the axes of a reduction; all for None and for an empty list."""
    return None if given is None or given == [] else tuple(given) if isinstance(given, Sequence) else given


def reduced(name: str) -> Callable[..., Tensor]:
    """Return a reduction, a method of `Tensor`, as an operator."""
    return lambda x, over=None, keepdim=False: getattr(x, name)(axes(over), keepdim)


def each(function: Callable[..., Any]) -> Callable[..., list[Any]]:
    """Return a function of one element as one of lists; an argument that is no list is that of all."""

    def over(*every: Any, **names: Any) -> list[Any]:
        count = len(next(a for a in every if isinstance(a, (list, tuple))))
        rows = zip(*[a if isinstance(a, (list, tuple)) else [a] * count for a in every], strict=True)
        return [function(*given, **names) for given in rows]

    return over


def filled(x: Tensor, value: Any) -> Tensor:
    """Return a value, a number or a tensor of shape (), in the shape and dtype of x."""
    return value.cast(x.dtype).expand(x.shape) if isinstance(value, Tensor) else x.full_like(value)


def strided(
    x: Tensor, shape: Sizes, strides: Sizes, offset: int | None = None, *, seen: Any, source: Any = None
) -> Tensor:
    """Return the elements of x's memory at the places of another shape and strides; or x with `source` there.

    `seen` is PyTorch's description of x. Raises `UnsupportedError` for an x that is not its whole memory.
    """
    order = order_of(seen.shape, seen.stride()) or tuple(range(len(seen.shape)))
    dense = all(a.stride(i) == n for a in (seen.permute(order),) for i, n in enumerate(_dense(a.shape)))
    if not dense or seen.storage_offset() or seen.untyped_storage().nbytes() != seen.numel() * seen.itemsize:
        raise UnsupportedError("as_strided of a part of a tensor's memory")
    ordered = x.permute(order)
    flat = ordered.reshape((-1,))
    axes_ = sorted(range(len(shape)), key=lambda i: -strides[i])
    sizes = [shape[i] for i in axes_]
    whole = not offset and math.prod(sizes) == x.numel() and [strides[i] for i in axes_] == _dense(sizes)
    if source is None and whole:
        return flat.reshape(sizes).permute(inverse(tuple(axes_)))
    place = Tensor.full(tuple(shape), offset or 0, dtype=dtypes.int64, device=x.device)
    for i, (n, step) in enumerate(zip(shape, strides, strict=True)):
        part = Tensor.arange(0, n, dtype=dtypes.int64, device=x.device) * step
        place = place + part.reshape((n, *(1,) * (len(shape) - i - 1)))
    if source is None:
        return flat.take(place)
    stored = flat.index_put([place.reshape((-1,))], source.expand(shape).reshape((-1,)).cast(x.dtype))
    return stored.reshape(ordered.shape).permute(inverse(order))


def _dense(sizes: Sizes) -> list[int]:
    """Return the strides of dense memory in C order."""
    return [math.prod(sizes[i + 1 :]) for i in range(len(sizes))]


def squeezed(x: Tensor, gone: Sizes) -> Tensor:
    """Return x without those of the given axes that have size 1."""
    every = {a % max(1, len(x.shape)) for a in gone}
    return x.reshape([n for i, n in enumerate(x.shape) if n != 1 or i not in every])


def sliced(
    x: Tensor, axis: int = 0, start: int | None = None, end: int | None = None, step: int = 1
) -> Tensor:
    """Return a range of an axis; bounds beyond it are cut, negative ones count from the end."""
    every = [slice(None)] * len(x.shape)
    every[axis] = slice(start, end, step)
    return x[tuple(every)]


def joined(tensors: Sequence[Tensor], axis: int = 0) -> Tensor:
    """Return tensors one behind the other; empty ones of one axis are left out, as PyTorch does."""
    parts = [t for t in tensors if t.shape != (0,)] or list(tensors[:1])
    return parts[0] if len(parts) == 1 else Tensor.cat(*parts, axis=axis)


def padded(x: Tensor, padding: Sizes, value: float = 0.0) -> Tensor:
    """Return x with a value around it, the last axis first; negative padding cuts."""
    cut = x
    for i, (before, after) in enumerate(zip(padding[::2], padding[1::2], strict=True)):
        axis = len(x.shape) - 1 - i
        cut = sliced(cut, axis, max(0, -before), x.shape[axis] - max(0, -after))
    return cut.pad([max(0, n) for n in padding], value=value)


def indexed(x: Tensor, indices: Sequence[Tensor | None]) -> Tensor:
    """Return x[indices]; None takes a whole axis.

    Raises `UnsupportedError` for a mask, whose result has no fixed shape.
    """
    if any(i is not None and i.dtype is dtypes.bool for i in indices):
        raise UnsupportedError("index by a mask: its result has no fixed shape; use torch.where")
    return x[tuple([slice(None) if i is None else i for i in indices])]


def stored_at(
    x: Tensor, indices: Sequence[Tensor | None], values: Tensor, accumulate: bool = False, *_: Any
) -> Tensor:
    """Return x with values stored or added at indices; None takes a whole axis.

    Raises `UnsupportedError` for a mask and values that are not one number.
    """
    given = [i for i in indices if i is not None]
    if all(i.dtype is dtypes.bool for i in given):
        return _stored_by_mask(x, indices, values, accumulate)
    at = [a for a, i in enumerate(indices) if i is not None]
    rest = [a for a in range(len(x.shape)) if a not in at]
    place = Tensor.broadcast_tensors(*given) if len(given) > 1 else given
    lead = len(place[0].shape)
    together = at == list(range(at[0], at[0] + len(at)))
    before = at[0] if together else 0  # where the axes of the indices stand in x[indices]
    shape = [x.shape[a] for a in rest]
    spread = values.expand([*shape[:before], *place[0].shape, *shape[before:]])
    order = [*range(before, before + lead), *range(before), *range(before + lead, len(spread.shape))]
    every = [*at, *rest]
    stored = x.permute(every).index_put(list(place), spread.permute(order).cast(x.dtype), accumulate)
    return stored.permute([every.index(a) for a in range(len(every))])


def _stored_by_mask(x: Tensor, indices: Sequence[Tensor | None], values: Tensor, accumulate: bool) -> Tensor:
    mask = indices[0]
    if len(indices) != 1 or mask is None or math.prod(values.shape) != 1:
        raise UnsupportedError("index_put by a mask of values that are not one number; use torch.where")
    mask = mask.reshape((*mask.shape, *(1,) * (len(x.shape) - len(mask.shape))))
    value = values.reshape(()).cast(x.dtype)
    return chosen(mask, x + value if accumulate else value.expand(x.shape), x)


def embedding_backward(grad: Tensor, ids: Tensor, count: int, padding: int, _by_frequency: bool) -> Tensor:
    """Return the gradient (count, width) of rows taken by ids.

    Raises `UnsupportedError` for gradients scaled by frequency.
    """
    if _by_frequency:
        raise UnsupportedError("embedding with scale_grad_by_freq")
    rows = grad.reshape((-1, grad.shape[-1]))
    ids = ids.reshape((-1,))
    if padding >= 0:
        rows = (ids == padding).unsqueeze(-1).where(0.0, rows)
    zeros: Tensor = Tensor.zeros(count, grad.shape[-1], dtype=grad.dtype, device=grad.device)
    return zeros.index_add(0, ids, rows)


def addmm(bias: Tensor, x: Tensor, y: Tensor, beta: float = 1, alpha: float = 1) -> Tensor:
    """Return beta * bias + alpha * x @ y."""
    product: Tensor = scaled(x @ y, alpha)
    return product if beta == 0 else product + scaled(bias, beta)


def grouped(x: Tensor, weights: Tensor, ends: Tensor) -> Tensor:
    """Return rows (n, k) times the matrix (k, m) of their group; rows after the last end give zeros.

    Group e has the rows before `ends[e]` that no group before has. Which ones depends on values, so that each
    of `weights` (groups, k, m) multiplies all rows.
    """
    group = (Tensor.arange(x.shape[0], device=x.device).unsqueeze(-1) >= ends).sum(-1, keepdim=True)
    parts = [(group == e).where(x @ weights[e], 0.0) for e in range(weights.shape[0])]
    return sum(parts[1:], parts[0])


def gradients(forward: Callable[..., Tensor], grad: Tensor, *given: Tensor) -> list[Tensor]:
    """Return the gradients of `forward(*given)` by each of `given`, where its own gradient is `grad`.

    A view gets memory of its own first: its elements are not distinct from those of what it is taken from.
    """
    targets = [t if t.expr.op is PARAM else t.clone() for t in given]
    return forward(*targets).gradient(*targets, gradient=grad)


def _each(value: Any, rank: int) -> tuple[int, ...]:
    return tuple(value) * rank if len(value) == 1 else tuple(value)


def convolution(x: Tensor, weight: Tensor, bias: Tensor | None, *how: Any) -> Tensor:
    """Return a convolution, or a transposed one, over any number of axes."""
    stride, padding, dilation, transposed, extra, groups = how
    rank = len(weight.shape) - 2
    stride, padding, dilation, extra = (_each(v, rank) for v in (stride, padding, dilation, extra))
    if transposed:
        return x.conv_transpose2d(weight, bias, stride, padding, extra, groups, dilation)
    return x.conv2d(weight, bias, stride, padding, dilation, groups)


def convolution_backward(
    grad: Tensor, x: Tensor, weight: Tensor, _bias_sizes: Any, *how: Any
) -> tuple[Tensor | None, ...]:
    """Return the gradients by input, weight and bias; None where the mask, the last argument, is false."""
    *how_, mask = how
    dx = gradients(lambda t: convolution(t, weight, None, *how_), grad, x)[0] if mask[0] else None
    dw = gradients(lambda t: convolution(x, t, None, *how_), grad, weight)[0] if mask[1] else None
    return dx, dw, grad.sum((0, *range(2, len(grad.shape)))) if mask[2] else None


def _with_defaults(given: Sequence[Any], *defaults: Any) -> list[Any]:
    return [*given, *defaults[len(given) :]]


def max_pool(rank: int) -> Callable[..., Any]:
    """Return `max_poolNd_with_indices` of `rank` axes."""

    def pool(x: Tensor, size: Sizes, *how: Any) -> tuple[Tensor, Tensor]:
        stride, padding, dilation, ceil = _with_defaults(how, (), (0,), (1,), False)
        a, b, c, d = [_each(v, rank) for v in (size, stride or size, padding, dilation)]
        values, places = x.max_pool2d(a, b, c, d, ceil, return_indices=True)
        return values, places

    return pool


def max_pool_backward(rank: int) -> Callable[..., Any]:
    """Return `max_poolNd_with_indices_backward`: the gradient goes to the first greatest element."""
    return lambda grad, x, *how: gradients(lambda t: max_pool(rank)(t, *how[:-1])[0], grad, x)[0]


def avg_pool(rank: int) -> Callable[..., Any]:
    """Return `avg_poolNd`."""

    def pool(x: Tensor, size: Sizes, *how: Any) -> Tensor:
        stride, padding, ceil, counts, divisor = _with_defaults(how, (), (0,), False, True, None)
        a, b, c = [_each(v, rank) for v in (size, stride or size, padding)]
        return x.avg_pool2d(a, b, c, ceil, counts, divisor)

    return pool


def avg_pool_backward(rank: int) -> Callable[..., Any]:
    """Return `avg_poolNd_backward`."""
    return lambda grad, x, *how: gradients(lambda t: avg_pool(rank)(t, *how), grad, x)[0]


def adaptive_backward(grad: Tensor, x: Tensor) -> Tensor:
    """Return the gradient of means of as many bins as each axis of `grad` has elements."""
    return gradients(lambda t: binned(t, grad.shape, "mean"), grad, x)[0]


def layer_norm(
    x: Tensor, shape: Sizes, weight: Tensor | None, bias: Tensor | None, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the normalised values, the means and the reciprocal deviations."""
    last = tuple(range(-len(shape), 0))
    wide = x if x.dtype is dtypes.float64 else x.cast(dtypes.float32)
    mean = wide.mean(last, keepdim=True)
    rstd = ((wide - mean).square().mean(last, keepdim=True) + eps).rsqrt()
    out = (wide - mean) * rstd
    out = out if weight is None else out * weight
    return out if bias is None else out + bias, mean, rstd


def place(out: Any, dtype: Any = None) -> Any:
    """Return memory of PyTorch's for what `out` describes, which decides the order of drawn values."""
    return torch.empty_strided(out.shape, out.stride(), dtype=dtype or out.dtype)


def kept_mask(out: Any, p: float) -> Any:
    """Return which elements a dropout keeps, drawn by PyTorch's generator; none of p = 1, without a draw."""
    mask = place(out, torch.bool)
    return mask.bernoulli_(1 - p) if p < 1 else mask.zero_()


def native_dropout(x: Tensor, p: float, train: bool | None, mask: Tensor) -> tuple[Tensor, Tensor]:
    """Return the kept elements, scaled by 1 / (1 - p) in training, and the mask."""
    scale = (1 / (1 - p) if p < 1 else 0.0) if train else 1.0
    return x * mask.cast(x.dtype) * scale, mask


def _scores(q: Tensor, k: Tensor, causal: bool, mask: Tensor | None, scale: float | None) -> Tensor:
    """Return the masked products (..., queries, keys), in float32 or float64."""
    wide = dtypes.float64 if q.dtype is dtypes.float64 else dtypes.float32
    scores = (q @ k.transpose(-1, -2)).cast(wide) * (scale or 1 / math.sqrt(q.shape[-1]))
    if causal:
        rows, columns = (Tensor.arange(n, device=q.device) for n in scores.shape[-2:])
        scores = (columns > rows.unsqueeze(-1)).where(-math.inf, scores)
    if mask is None:
        return scores
    return mask.where(scores, -math.inf) if mask.dtype is dtypes.bool else scores + mask


def attention(
    q: Tensor, k: Tensor, v: Tensor, *how: Any, attn_mask: Tensor | None = None, scale: float | None = None
) -> tuple[Tensor, Tensor]:
    """Return the attention (..., queries, width) and the logarithms of the sums of its weights.

    Raises `UnsupportedError` for dropout.
    """
    dropout, causal = _with_defaults(how, 0.0, False)
    if dropout:
        raise UnsupportedError("attention with dropout inside; PyTorch gives such as separate operators")
    out = q.scaled_dot_product_attention(k, v, attn_mask, is_causal=causal, scale=scale)
    return out, _scores(q, k, causal, attn_mask, scale).logsumexp(-1)


def encoder_layer(x: Tensor, width: int, heads: int, *every: Any) -> Tensor:
    """Return what a layer of a transformer gives in evaluation; x is (batch, tokens, width).

    Raises `UnsupportedError` for a mask.
    """
    into, of_into, out, of_out, gelu, first, eps, *norms, up, of_up, down, of_down = every[:15]
    if any(e is not None for e in every[15:]):
        raise UnsupportedError("the fast path of a transformer with a mask; torch.backends.mha turns it off")

    def attended(y: Tensor) -> Any:
        qkv = (y @ into.t() + of_into).unflatten(-1, (3, heads, width // heads)).permute(2, 0, 3, 1, 4)
        mixed = qkv[0].scaled_dot_product_attention(qkv[1], qkv[2])
        return mixed.transpose(1, 2).flatten(-2).matmul(out.t()) + of_out

    def normed(y: Tensor, at: int) -> Tensor:
        return layer_norm(y, [width], norms[at], norms[at + 1], eps)[0]

    def fed(y: Tensor) -> Any:
        hidden = y @ up.t() + of_up
        return (hidden.gelu() if gelu else hidden.relu()).matmul(down.t()) + of_down

    x = x + attended(normed(x, 0)) if first else normed(x + attended(x), 0)
    return x + fed(normed(x, 2)) if first else normed(x + fed(x), 2)


def attention_backward(
    grad: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Tensor, logsumexp: Tensor, *how: Any, **names: Any
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the gradients of queries, keys and values."""
    scale = names.get("scale")
    scores = _scores(q, k, how[1], names.get("attn_mask"), scale)
    weights = (logsumexp == -math.inf).unsqueeze(-1).where(0.0, (scores - logsumexp.unsqueeze(-1)).exp())
    of_weights = grad @ v.transpose(-1, -2) - (grad * out).sum(-1, keepdim=True)
    of_scores = weights * of_weights * (scale or 1 / math.sqrt(q.shape[-1]))
    back = [x.transpose(-1, -2) for x in (of_scores, weights)]
    return of_scores @ k, back[0] @ q, back[1] @ grad
