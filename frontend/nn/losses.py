"""Losses of `nn.functional`, with PyTorch's arguments in PyTorch's order.

`reduction` is "mean", "sum" or "none", which returns the loss of each element; `kl_div` also has "batchmean"
(`Tensor.kl_div`). Another text raises `UsageError`, and so do operands that do not broadcast; arguments of
other classes raise `UsageTypeError`.

Not here: losses as layers (`functions`). Next: `frontend.ops.losses`, the methods.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from functools import partial, wraps
from typing import Any, Final, Literal

from frontend.arguments.aliases import check_call
from frontend.arguments.checks import broadcast
from frontend.arguments.conversion import number
from frontend.arguments.settings import number_within
from frontend.nn.checks import layer_input, reduced_as_before
from frontend.nn.functions import pairwise_distance
from frontend.nn.module import raised
from frontend.tensor import Tensor
from hcq.errors import UsageError

Reduction = Literal["mean", "sum", "none"]


def _reduced(loss: Tensor, reduction: str) -> Tensor:
    if reduction not in {"mean", "sum", "none"}:
        raise UsageError(f"reduction: wanted 'mean', 'sum' or 'none', saw {reduction!r}")
    return loss.mean() if reduction == "mean" else loss.sum() if reduction == "sum" else loss


def in_order(order: str) -> Callable[[Callable[..., Tensor]], Callable[..., Tensor]]:
    """Decorate a loss so that it accepts its arguments by position, in the order of the names in `order`.

    `size_average` and `reduce` are PyTorch's old arguments; see `reduced_as_before`.
    """

    def decorated(fn: Callable[..., Tensor]) -> Callable[..., Tensor]:
        own = inspect.signature(fn).parameters
        kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
        every = [own.get(n, inspect.Parameter(n, kind, default=None)) for n in order.split()]

        @wraps(fn)
        def call(*args: Any, **names: Any) -> Tensor:
            given = check_call(fn.__name__, call, args, names).arguments
            given = {n: raised(v) if isinstance(v, Tensor) else v for n, v in given.items()}
            return fn(**reduced_as_before(fn.__name__, given))

        call.__signature__ = inspect.Signature([p.replace(kind=kind) for p in every])  # type: ignore[attr-defined]  # what `inspect.signature` returns
        return call

    return decorated


@in_order("input target weight size_average ignore_index reduce reduction label_smoothing")
def cross_entropy(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    *,
    ignore_index: int = -100,
    reduction: Reduction = "mean",
    label_smoothing: float = 0.0,
) -> Tensor:
    """Return the cross entropy of logits (batch, classes, ...); arguments: `Tensor.cross_entropy`."""
    x = layer_input("cross_entropy", input)
    return x.cross_entropy(target, reduction, label_smoothing, ignore_index, weight=weight)


@in_order("input target weight size_average ignore_index reduce reduction")
def nll_loss(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    *,
    ignore_index: int = -100,
    reduction: Reduction = "mean",
) -> Tensor:
    """Return the negative of log probabilities at integer classes; arguments: `Tensor.nll_loss`."""
    return input.nll_loss(target, reduction, weight=weight, ignore_index=ignore_index)


@in_order("input target weight size_average reduce reduction")
def binary_cross_entropy(
    input: Tensor, target: Tensor, weight: Tensor | None = None, *, reduction: Reduction = "mean"
) -> Tensor:
    """Return the cross entropy of probabilities; arguments are those of `Tensor.binary_crossentropy`."""
    return input.binary_crossentropy(target, reduction, weight)


@in_order("input target weight size_average reduce reduction pos_weight")
def binary_cross_entropy_with_logits(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    *,
    reduction: Reduction = "mean",
    pos_weight: Tensor | None = None,
) -> Tensor:
    """Return the cross entropy of logits; arguments are those of `Tensor.binary_crossentropy_logits`."""
    return input.binary_crossentropy_logits(target, reduction, weight, pos_weight)


@in_order("anchor positive negative margin p eps swap size_average reduce reduction")
def triplet_margin_loss(
    anchor: Tensor,
    positive: Tensor,
    negative: Tensor,
    margin: float = 1.0,
    p: float = 2.0,
    *,
    eps: float = 1e-6,
    swap: bool = False,
    reduction: Reduction = "mean",
) -> Tensor:
    """Return max(0, d(anchor, positive) - d(anchor, negative) + margin), with d the p-norm of the difference.

    With `swap`, the second distance is the lesser one of d(anchor, negative) and d(positive, negative).
    Raises `UsageError` unless margin > 0.
    """
    distance = partial(pairwise_distance, p=p, eps=eps)
    settings: Any = {"distance_function": distance, "margin": margin, "swap": swap, "reduction": reduction}
    return triplet_margin_with_distance_loss(anchor, positive, negative, **settings)


def triplet_margin_with_distance_loss(
    anchor: Tensor,
    positive: Tensor,
    negative: Tensor,
    *,
    distance_function: Callable[[Tensor, Tensor], Tensor] | None = None,
    margin: float = 1.0,
    swap: bool = False,
    reduction: Reduction = "mean",
) -> Tensor:
    """Return `triplet_margin_loss` with another distance, by default `nn.PairwiseDistance()`."""
    if not number(margin, "margin") > 0:
        raise UsageError(f"triplet_margin_with_distance_loss: wanted a margin above 0, saw {margin}")
    distance = distance_function or pairwise_distance
    apart = distance(anchor, negative)
    if swap:
        apart = apart.minimum(distance(positive, negative))
    return _reduced((distance(anchor, positive) - apart + margin).clip(0), reduction)


@in_order("input1 input2 target margin size_average reduce reduction")
def margin_ranking_loss(
    input1: Tensor, input2: Tensor, target: Tensor, margin: float = 0.0, *, reduction: Reduction = "mean"
) -> Tensor:
    """Return max(0, -target * (input1 - input2) + margin), for targets of 1 and -1."""
    return _reduced((target * (input2 - input1) + number(margin, "margin")).clip(0), reduction)


@in_order("input1 input2 target margin size_average reduce reduction")
def cosine_embedding_loss(
    input1: Tensor, input2: Tensor, target: Tensor, margin: float = 0.0, *, reduction: Reduction = "mean"
) -> Tensor:
    """Return 1 - cosine where the target is 1, max(0, cosine - margin) where it is -1, 0 elsewhere.

    The cosine is that of the angle between input1 and input2 along the last axis. The target has one number
    for each; `UsageError` for another shape.
    """
    shape = broadcast((input1.shape, input2.shape), "cosine_embedding_loss")
    if target.shape != shape[:-1] or input1.ndim != input2.ndim or not shape:
        raise UsageError(f"cosine_embedding_loss: wanted a target {shape[:-1]}, saw the shape {target.shape}")
    input1, input2 = input1.expand(shape), input2.expand(shape)
    size = [(t * t).sum(-1) + 1e-12 for t in (input1, input2)]
    cosine = (input1 * input2).sum(-1) / (size[0] * size[1]).sqrt()
    unlike = (target == -1).where((cosine - number(margin, "margin")).clip(0), 0.0)
    return _reduced((target == 1).where(1 - cosine, unlike), reduction)


@in_order("input target var full eps reduction")
def gaussian_nll_loss(
    input: Tensor,
    target: Tensor,
    var: Tensor | float,
    *,
    full: bool = False,
    eps: float = 1e-6,
    reduction: Reduction = "mean",
) -> Tensor:
    """Return (log(var) + (input - target)² / var) / 2, with var at least `eps`; `full` adds log(2 pi) / 2.

    `var` is a number, or a tensor of the input's shape, or of that shape with axes of 1 or without the
    last axis: then each row has one. Gradients flow to var as if it was not limited. Raises `UsageError` for
    other shapes and for a negative number.
    """
    if not isinstance(var, Tensor):
        var = input.full_like(number_within("gaussian_nll_loss, var", var, 0.0))
    if var.shape != input.shape:
        if var.shape == input.shape[:-1]:
            var = var.unsqueeze(-1)
        elif len(var.shape) != input.ndim or broadcast((var.shape, input.shape), "var") != input.shape:
            text = f"wanted {input.shape} or one for each row or axis"
            raise UsageError(f"gaussian_nll_loss: var has the shape {var.shape}, {text}")
    limited = var + (var.maximum(eps) - var).detach()
    loss = (limited.log() + (input - target) ** 2 / limited) * 0.5
    return _reduced(loss + 0.5 * math.log(2 * math.pi) if full else loss, reduction)


@in_order("input target log_input full size_average eps reduce reduction")
def poisson_nll_loss(
    input: Tensor,
    target: Tensor,
    log_input: bool = True,  # noqa: FBT001, FBT002 - the field's signature
    *,
    full: bool = False,
    eps: float = 1e-8,
    reduction: Reduction = "mean",
) -> Tensor:
    """Return exp(input) - target * input, or input - target * log(input + eps) without `log_input`.

    `full` adds Stirling's approximation of log(target!) where the target is above 1.
    """
    loss = input.exp() - target * input if log_input else input - target * (input + eps).log()
    if full:
        safe = (target > 1).where(target, 1.0)
        more = safe * safe.log() - safe + (safe * (2 * math.pi)).log() * 0.5
        loss = loss + (target > 1).where(more, 0.0)
    return _reduced(loss, reduction)


@in_order("input target margin size_average reduce reduction")
def hinge_embedding_loss(
    input: Tensor, target: Tensor, margin: float = 1.0, *, reduction: Reduction = "mean"
) -> Tensor:
    """Return the input where the target is 1, max(0, margin - input) where it is -1; elsewhere their sum."""
    unlike = (target != 1).where((number(margin, "margin") - input).clip(0), 0.0)
    return _reduced((target != -1).where(input, 0.0) + unlike, reduction)


@in_order("input target size_average reduce reduction")
def soft_margin_loss(input: Tensor, target: Tensor, *, reduction: Reduction = "mean") -> Tensor:
    """Return log(1 + exp(-target * input)), for targets of 1 and -1."""
    return _reduced((-(target * input)).softplus(), reduction)


@in_order("input target weight size_average reduce reduction")
def multilabel_soft_margin_loss(
    input: Tensor, target: Tensor, weight: Tensor | None = None, *, reduction: Reduction = "mean"
) -> Tensor:
    """Return the mean over classes, the last axis, of the cross entropy of logits with targets of 0 and 1.

    `weight` is one number for each class.
    """
    each = -(target * input.logsigmoid() + (1 - target) * (-input).logsigmoid())
    return _reduced((each if weight is None else each * weight).mean(-1), reduction)


@in_order("input target p margin weight size_average reduce reduction")
def multi_margin_loss(
    input: Tensor,
    target: Tensor,
    p: int = 1,
    margin: float = 1.0,
    weight: Tensor | None = None,
    *,
    reduction: Reduction = "mean",
) -> Tensor:
    """Return the mean over classes of max(0, margin - x[right] + x[wrong]) ** p, with 0 for the right class.

    `input` is (batch, classes), (classes,) or one number, `target` the right classes. `weight` has one number
    for each class; that of the right class multiplies the loss. Raises `UsageError` unless `p` is 1 or 2.
    """
    if p not in {1, 2}:
        raise UsageError(f"multi_margin_loss: wanted 1 or 2 as p, saw {p}")
    input = input if input.ndim else input.unsqueeze(0)
    labels = target.reshape(1) if input.ndim == 1 else target.unsqueeze(-1)
    excess = (number(margin, "margin") - input.gather(-1, labels) + input).relu()
    excess = excess if p == 1 else excess * excess
    if weight is not None:
        excess = excess * weight.take(labels)
    right = Tensor.arange(input.shape[-1], device=input.device) == labels
    return _reduced(right.where(0.0, excess).sum(-1) / input.shape[-1], reduction)


def _elementwise(name: str, order: str) -> Callable[..., Tensor]:
    """Return the function of a method with one loss for each element, which `weight` multiplies.

    The mean of weighted losses is their sum divided by the sum of the weights; for `huber_loss`, divided by
    their number. Raises `UsageError` for a weight of another shape than the input.
    """

    def loss(
        input: Tensor,
        target: Tensor,
        *,
        reduction: str = "mean",
        weight: Tensor | None = None,
        **settings: Any,
    ) -> Tensor:
        method = getattr(layer_input(name, input), name)
        if weight is None:
            plain: Tensor = method(target, reduction, **settings)
            return plain
        if weight.shape != input.shape:
            raise UsageError(f"{name}: wanted a weight for each of {input.shape}, saw {weight.shape}")
        found: Tensor = method(target, "none", **settings) * weight
        if reduction == "mean" and name != "huber_loss":
            return found.sum() / weight.sum()
        return _reduced(found, reduction)

    loss.__name__, loss.__doc__ = name, f"Return `Tensor.{name}` with PyTorch's arguments."
    return in_order(order)(loss)


_OLD: Final = "input target size_average reduce reduction"
mse_loss, l1_loss = [_elementwise(name, f"{_OLD} weight") for name in ("mse_loss", "l1_loss")]
smooth_l1_loss = _elementwise("smooth_l1_loss", f"{_OLD} beta")
kl_div = _elementwise("kl_div", f"{_OLD} log_target")
huber_loss = _elementwise("huber_loss", "input target reduction delta weight")
