"""Operators over axes: sums, extremes, softmax, normalisation, losses.

Next: `table`. Raises `UsageError` for axes that do not fit.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from compiler.dtype import dtypes
from frontend.onnx.initialisers import element_type
from frontend.onnx.values import as_tensor, axes_in, axis_in, integers, is_host
from frontend.tensor import Tensor
from hcq.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_HOST: Final[dict[str, Any]] = {"sum": np.sum, "prod": np.prod, "amax": np.max, "amin": np.min}


def _reduced(kind: str, x: Any, axes: Sequence[int] | None, *, keep: int, empty: int) -> Any:
    """Return one reduction over axes; None: all, unless `empty` (noop_with_empty_axes)."""
    if not axes and axes is not None:
        axes = None
    if axes is None and empty:
        along: tuple[int, ...] = ()
    else:
        along = tuple(range(len(x.shape))) if axes is None else axes_in(axes, len(x.shape))
    if is_host(x) and kind in _HOST:
        return _HOST[kind](x, axis=along, keepdims=bool(keep)).astype(x.dtype) if along else x
    x = as_tensor(x)
    if not along:
        return _over(kind, x.unsqueeze(-1), (len(x.shape),), keep=False)
    return _over(kind, x, along, keep=bool(keep))


def _over(kind: str, x: Any, along: tuple[int, ...], *, keep: bool) -> Any:
    dtype = x.dtype
    if kind in {"amax", "amin"}:
        if not all(x.shape[a] for a in along):
            low, high = (
                (-math.inf, math.inf)
                if dtype.is_float
                else (0, 1)
                if dtype.kind == "bool"
                else (dtype.min, dtype.max)
            )
            shape = [1 if a in along else n for a, n in enumerate(x.shape) if keep or a not in along]
            return Tensor.full(shape, low if kind == "amax" else high, dtype=dtype, device=x.device)
        if dtype.kind == "bool":
            return (x.any if kind == "amax" else x.all)(along, keep)
        return getattr(x, kind)(along, keep)
    if kind == "l1":
        return x.abs().sum(along, keep).cast(dtype)
    if kind in {"l2", "sum_square", "log_sum"}:
        wide = x if dtype.is_float else x.cast("float64") if kind != "sum_square" else x
        total = (wide if kind == "log_sum" else wide * wide).sum(along, keep)
        return (total.sqrt() if kind == "l2" else total.log() if kind == "log_sum" else total).cast(dtype)
    if kind == "log_sum_exp":
        wide = x if dtype.is_float else x.cast("float64")
        return wide.logsumexp(along, keep).cast(dtype)
    if kind == "mean" and not dtype.is_float:
        count = math.prod([x.shape[a] for a in along])
        return x.sum(along, keep).div(count, rounding_mode="trunc").cast(dtype)
    if kind == "prod":
        for a in sorted(along, reverse=True):
            x = x.prod(a, keep)
        return x.cast(dtype)
    return getattr(x, kind)(along, keep).cast(dtype)


def reduction(kind: str) -> Callable[..., Any]:
    """Return a reduction whose axes are an input."""

    def reduce(x: Any, axes: Any = None, *, keepdims: int = 1, noop_with_empty_axes: int = 0) -> Any:
        listed = None if axes is None else integers(axes, "axes")
        return _reduced(kind, x, listed, keep=keepdims, empty=noop_with_empty_axes)

    return reduce


def arg_extreme(name: str) -> Callable[..., Any]:
    """Return ArgMax or ArgMin."""

    def place(x: Any, *, axis: int = 0, keepdims: int = 1, select_last_index: int = 0) -> Any:
        axis = axis_in(axis, len(x.shape))
        if select_last_index:
            return x.shape[axis] - 1 - getattr(x.flip(axis), name)(axis, bool(keepdims))
        return getattr(x, name)(axis, bool(keepdims))

    return place


def top_k(x: Tensor, k: Any, *, axis: int = -1, largest: int = 1, sorted: int = 1) -> Any:  # noqa: ARG001 - sorted satisfies both
    """TopK."""
    count = integers(k, "K")[0]
    if not 0 <= count <= x.shape[axis_in(axis, len(x.shape))]:
        raise UsageError(f"no {count} elements along axis {axis} of {x.shape}")
    values, places = x.sort(axis, bool(largest), stable=True)
    return values.narrow(axis, 0, count), places.narrow(axis, 0, count).cast("int64")


def cumulative(name: str) -> Callable[..., Any]:
    """Return CumSum or CumProd."""

    def scan(x: Any, axis: Any, *, exclusive: int = 0, reverse: int = 0) -> Any:
        along = axis_in(integers(axis, "axis")[0], len(x.shape))
        y = x.flip(along) if reverse else x
        y = getattr(y, name)(along).cast(x.dtype)
        if exclusive:
            pairs = [(1, -1) if a == along else (0, 0) for a in range(len(x.shape))]
            y = y.pad(tuple(pairs), value=0 if name == "cumsum" else 1)
        return y.flip(along) if reverse else y

    return scan


def softmax(kind: str) -> Callable[..., Any]:
    """Return Softmax, LogSoftmax or Hardmax along one axis."""

    def along(x: Any, *, axis: int = -1) -> Any:
        axis = axis_in(axis, len(x.shape))
        if kind != "hardmax":
            return getattr(x, kind)(axis).cast(x.dtype)
        places = Tensor.arange(x.shape[axis], device=x.device).reshape(
            *[-1 if a == axis else 1 for a in range(len(x.shape))]
        )
        return (places == x.argmax(axis, keepdim=True)).cast(x.dtype)

    return along


def softmax_flat(kind: str) -> Callable[..., Any]:
    """Return the operator before opset 13: over all axes from one on."""

    def along(x: Any, *, axis: int = 1) -> Any:
        axis = axis_in(axis, len(x.shape))
        flat = x.reshape(math.prod(x.shape[:axis]), math.prod(x.shape[axis:]))
        return softmax(kind)(flat, axis=1).reshape(x.shape)

    return along


def _by_channel(x: Tensor, rank: int) -> Tensor:
    return x.reshape(1, -1, *(1,) * (rank - 2))


def batch_norm(
    x: Tensor, scale: Tensor, bias: Tensor, mean: Tensor, var: Tensor,
    *, epsilon: float = 1e-5, momentum: float = 0.9, training_mode: int = 0, spatial: int = 1,
) -> Any:  # fmt: skip
    """BatchNormalization."""
    rank = len(x.shape)
    if not spatial:
        raise UsageError("wanted spatial statistics")
    used, used_var = mean, var
    if training_mode:
        axes = (0, *range(2, rank))
        used = x.mean(axes)
        used_var = ((x - _by_channel(used, rank)) ** 2).mean(axes)
    factor = scale / (used_var + epsilon).sqrt()
    y = (x - _by_channel(used, rank)) * _by_channel(factor, rank) + _by_channel(bias, rank)
    if not training_mode:
        return y.cast(x.dtype)
    running = [
        (old * momentum + new * (1 - momentum)).cast(old.dtype)
        for old, new in ((mean, used), (var, used_var))
    ]
    return y.cast(x.dtype), *running


def _normalised(
    x: Tensor, axes: Sequence[int], epsilon: float, *, centred: bool = True
) -> tuple[Tensor, Tensor, Tensor]:
    """Return x with mean 0 and variance 1 over axes, the mean, and 1 / the deviation."""
    mean = x.mean(tuple(axes), keepdim=True)
    shifted = x - mean if centred else x
    scale = ((shifted * shifted).mean(tuple(axes), keepdim=True) + epsilon).sqrt().reciprocal()
    return shifted * scale, mean, scale


def instance_norm(x: Tensor, scale: Tensor, bias: Tensor, *, epsilon: float = 1e-5) -> Tensor:
    """InstanceNormalization."""
    rank = len(x.shape)
    y, _, _ = _normalised(x.cast("float32"), range(2, rank), epsilon)
    return (y * _by_channel(scale, rank) + _by_channel(bias, rank)).cast(x.dtype)


def group_norm(
    x: Tensor, scale: Tensor, bias: Tensor,
    *, num_groups: int, epsilon: float = 1e-5, stash_type: int = 1,  # noqa: ARG001 - float32
) -> Tensor:  # fmt: skip
    """GroupNormalization; before opset 21 scale and bias are those of groups."""
    channels, rank = x.shape[1], len(x.shape)
    if scale.shape[0] != channels:
        scale, bias = [v.repeat_interleave(channels // num_groups) for v in (scale, bias)]
    y, _, _ = _normalised(x.cast("float32").reshape(x.shape[0], num_groups, -1), (2,), epsilon)
    return (y.reshape(x.shape).cast(x.dtype) * _by_channel(scale, rank) + _by_channel(bias, rank)).cast(
        x.dtype
    )


def layer_norm(
    x: Tensor, scale: Tensor, bias: Tensor | None = None,
    *, axis: int = -1, epsilon: float = 1e-5, stash_type: int = 1,
) -> Any:  # fmt: skip
    """LayerNormalization, with the means and the reciprocals of deviations."""
    wide = x.cast(dtypes.float64 if x.dtype is dtypes.float64 else element_type(stash_type, "stash_type"))
    y, mean, scales = _normalised(wide, range(axis_in(axis, len(x.shape)), len(x.shape)), epsilon)
    y = y.cast(x.dtype) * scale
    return (y if bias is None else y + bias).cast(x.dtype), mean, scales


def rms_norm(
    x: Tensor, scale: Tensor, *, axis: int = -1, epsilon: float = 1e-5, stash_type: int = 1
) -> Tensor:
    """RMSNormalization."""
    wide = x.cast(dtypes.float64 if x.dtype is dtypes.float64 else element_type(stash_type, "stash_type"))
    y, _, _ = _normalised(wide, range(axis_in(axis, len(x.shape)), len(x.shape)), epsilon, centred=False)
    return (y.cast(x.dtype) * scale).cast(scale.dtype)


def mean_variance_norm(x: Tensor, *, axes: list[int] | None = None) -> Tensor:
    """MeanVarianceNormalization."""
    along = axes_in([0, 2, 3] if axes is None else axes, len(x.shape))
    shifted = x - x.mean(along, keepdim=True)
    return shifted / ((shifted * shifted).mean(along, keepdim=True).sqrt() + 1e-9)


def lp_norm(x: Tensor, *, axis: int = -1, p: int = 2) -> Tensor:
    """LpNormalization."""
    size = x.abs().sum(axis, keepdim=True) if p == 1 else (x * x).sum(axis, keepdim=True).sqrt()
    return (size == 0).where(0.0, x / (size == 0).where(1.0, size)).cast(x.dtype)


def lrn(x: Tensor, *, size: int, alpha: float = 1e-4, beta: float = 0.75, bias: float = 1.0) -> Tensor:
    """LRN."""
    before, rank = (size - 1) // 2, len(x.shape)
    pairs = [(before, size - 1 - before) if a == 1 else (0, 0) for a in range(rank)]
    square = (x * x).pad(tuple(pairs)).unfold(1, size, 1).sum(-1)
    return x / (square * (alpha / size) + bias).pow(beta)


def nll_loss(
    x: Tensor, target: Tensor, weight: Tensor | None = None,
    *, ignore_index: int | None = None, reduction: str = "mean",
) -> Tensor:  # fmt: skip
    """NegativeLogLikelihoodLoss."""
    known = None if ignore_index is None else target != ignore_index
    at = target if known is None else known.where(target, 0)
    found = -x.gather(1, at.unsqueeze(1)).squeeze(1)
    share = None if weight is None else weight.index_select(0, at.reshape(-1)).reshape(at.shape)
    if known is not None:
        share = known.cast(x.dtype) if share is None else known.where(share, 0)
    found = found if share is None else found * share
    if reduction == "none":
        return found.cast(x.dtype)
    if reduction not in {"sum", "mean"}:
        raise UsageError(f"wanted the reduction none, sum or mean, saw {reduction!r}")
    total = found.sum()
    count = (math.prod(found.shape) if share is None else share.sum()) if reduction == "mean" else 1
    return (total / count).cast(x.dtype)


def cross_entropy(
    x: Tensor, target: Tensor, weight: Tensor | None = None,
    *, ignore_index: int | None = None, reduction: str = "mean",
) -> Any:  # fmt: skip
    """SoftmaxCrossEntropyLoss, with the logarithms of the softmax."""
    logs = x.log_softmax(1).cast(x.dtype)
    return nll_loss(logs, target, weight, ignore_index=ignore_index, reduction=reduction), logs
