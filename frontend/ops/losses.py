"""Losses: the distance of predictions from targets, as one number or one for each element.

Another `reduction` than a function names raises `UsageError`, arguments of other classes `UsageTypeError`. A
mean over no elements, such as a mean in which every target is ignored, is NaN.

Not here: softmax (`normalization`). Next: `frontend.autograd.rules`, gradient rules of losses.
"""

# ruff: noqa: FBT001, FBT002 - the field's signatures

from __future__ import annotations

import math
from typing import Any, Literal

from compiler.dtype import dtypes
from compiler.ir.ops import Ops
from frontend.arguments.aliases import accepts_aliases
from frontend.arguments.checks import whole
from frontend.arguments.conversion import read
from frontend.arguments.settings import number_within
from frontend.evaluation.base import T
from frontend.evaluation.constants import convert, coordinate, narrowed, ruled, spread, widened
from frontend.evaluation.limits import IndexLimit, limited, refuse_known
from frontend.evaluation.trace import apply, composite
from frontend.ops import reductions
from frontend.ops.arithmetic import div
from frontend.ops.elementwise import add, agree, clip, ge, lt, mul, ne, neg, rsub, sub, where
from frontend.ops.functions import abs as absolute
from frontend.ops.functions import exp, log, log1p, xlogy
from frontend.ops.movement import reshape
from frontend.ops.normalization import log_softmax
from hcq.errors import UsageError

Reduction = Literal["mean", "sum", "none"]
_Settings = tuple[Reduction, float, int]
"""`reduction`, `label_smoothing` and `ignore_index`."""


def _reduced(x: T, reduction: Reduction, weight: T | None = None) -> T:
    if reduction == "none":
        return x
    if reduction == "sum":
        return reductions.sum(x)
    if reduction != "mean":
        raise UsageError(f'reduction must be "mean", "sum" or "none", not {reduction!r}')
    return reductions.mean(x) if weight is None else div(reductions.sum(x), reductions.sum(weight))


def _labels(what: str, logits: T, target: Any, axis: int, ignore: int | None) -> T:
    """Return the target as a tensor. A class known on the host and out of range raises `UsageIndexError`."""
    found: T = target if target.__class__ is logits.__class__ else read(_labelled, "target", target, logits)
    if found.expr.dtype.is_int and logits.expr.shape:
        refuse_known(found, IndexLimit(f"{what}, classes", 0, logits.expr.shape[axis], ignore))
    return found


def _chosen(what: str, logs: T, target: T, ignore: int | None) -> T:
    """Return logs (..., classes) at integer classes (...): NaN for a class out of range, 0 for `ignore`."""
    shape = logs.expr.shape
    classes = shape[-1]
    target = convert(limited(target, IndexLimit(f"{what}, classes", 0, classes, ignore)), dtypes.int64)
    place = coordinate(logs, shape, len(shape) - 1)
    hit = apply(Ops.EQ, None, place, spread(reshape(target, (*shape[:-1], 1)), shape))
    chosen = reductions.sum(where(hit, logs, 0.0), -1)
    inside = mul(lt(target, classes), ge(target, 0))
    outside = where(inside, chosen, math.nan)
    return outside if ignore is None else where(ne(target, ignore), outside, 0.0)


@accepts_aliases
def sparse_categorical_crossentropy(
    self: T, target: T, ignore_index: int = -1, label_smoothing: float = 0.0, reduction: Reduction = "mean"
) -> T:
    """Return the cross entropy of logits (..., classes) with integer classes (...).

    Targets equal to `ignore_index` are ignored: their loss is 0. Another class out of range raises
    `UsageIndexError` where the host knows its value, or under `HCQ_VALIDATE=1`; else its loss is NaN.

    `reduction`: "mean" over the targets that are not ignored, "sum", or "none" for the shape of the targets.
    `label_smoothing` is the share of a target's probability that is spread over all classes. Raises
    `UsageError` when shapes do not fit, and for label_smoothing outside 0..1.
    """
    number_within("cross entropy, label_smoothing", label_smoothing, 0, math.nextafter(1.0, 2.0))
    if ignore_index.__class__ is not int:
        ignore_index = whole(ignore_index, "sparse_categorical_crossentropy, ignore_index")
    target = _labels("sparse_categorical_crossentropy", self, target, -1, ignore_index)
    return _labelled(self, target, (reduction, label_smoothing, ignore_index))


@composite
def _labelled(self: T, target: T, how: _Settings, weight: T | None = None) -> T:
    shape = self.expr.shape
    if not shape or target.expr.shape != shape[:-1] or not target.expr.dtype.is_int:
        raise UsageError(
            f"cross entropy: for logits {shape}, classes last, wanted integer targets {shape[:-1]}, "
            f"saw {target.expr.dtype.name}{list(target.expr.shape)}"
        )
    logs = log_softmax(widened(self))
    return narrowed(_of_classes("cross entropy", logs, target, weight, how), self)


def _of_classes(what: str, logs: T, target: T, weight: T | None, how: _Settings) -> T:
    """Return the loss of log probabilities (..., classes) with integer classes (...)."""
    reduction, smoothing, ignore = how
    counted = ne(target, ignore)
    factor = convert(counted, logs.expr.dtype)
    if weight is not None:
        each = _each(what, weight, logs)
        logs, factor = mul(logs, each), where(counted, _chosen(what, each, target, ignore), 0.0)
    chosen = _chosen(what, logs, target, ignore)
    if smoothing:
        chosen = add(mul(chosen, 1 - smoothing), mul(reductions.mean(logs, -1), smoothing))
    return _reduced(where(counted, neg(chosen), 0.0), reduction, factor)


def _each(what: str, weight: T, logs: T) -> T:
    """Return the weights of classes as a tensor like logs (..., classes)."""
    shape = logs.expr.shape
    if weight.expr.shape != shape[-1:]:
        raise UsageError(f"{what}: wanted a weight for each of {shape[-1]} classes, saw {weight.expr.shape}")
    return spread(convert(weight, logs.expr.dtype), shape)


@accepts_aliases
def cross_entropy(
    self: T,
    target: T,
    reduction: Reduction = "mean",
    label_smoothing: float = 0.0,
    ignore_index: int = -100,
    *,
    weight: T | None = None,
) -> T:
    """Return the cross entropy of logits (batch, classes, ...) with integers or probabilities.

    Integers are (batch, ...), probabilities have the shape of the logits. Integers equal to `ignore_index`
    are ignored: their loss is 0. Another class out of range raises `UsageIndexError` where the host knows its
    value, or under `HCQ_VALIDATE=1`; else its loss is NaN.

    `reduction`: "mean" over the targets that are not ignored, "sum", or "none" for (batch, ...).
    `label_smoothing` is the share of a target's probability that is spread over all classes. `weight` has a
    factor for each class; the mean over integers then is a mean with the weights of the targets.

        logits.cross_entropy(Tensor([3, 0, 9])).backward()      # logits are (3, 10)

    Raises `UsageError` when shapes do not fit, and for label_smoothing outside 0..1.
    """
    number_within("cross_entropy, label_smoothing", label_smoothing, 0, math.nextafter(1.0, 2.0))
    axis = 0 if len(self.expr.shape) < 2 else 1
    if ignore_index.__class__ is not int:
        ignore_index = whole(ignore_index, "cross_entropy, ignore_index")
    target = _labels("cross_entropy", self, target, axis, ignore_index)
    if weight is not None and weight.__class__ is not self.__class__:
        weight = read(cross_entropy, "weight", weight, self)
    return _cross_entropy(self, target, weight, (reduction, label_smoothing, ignore_index))


@composite
def _cross_entropy(self: T, target: T, weight: T | None, how: _Settings) -> T:
    reduction, label_smoothing, _ = how
    shape = self.expr.shape
    if len(shape) < 1:
        raise UsageError("cross_entropy needs logits with a class axis, saw a scalar")
    a = 0 if len(shape) == 1 else 1
    order = (*[i for i in range(len(shape)) if i != a], a)
    logits = apply(Ops.PERMUTE, order, self)
    if target.expr.shape != shape:
        return _labelled(logits, target, how, weight)
    logits = widened(logits)
    goal = convert(apply(Ops.PERMUTE, order, target), logits.expr.dtype)
    if label_smoothing:
        goal = add(mul(goal, 1 - label_smoothing), label_smoothing / shape[a])
    goal = goal if weight is None else mul(goal, _each("cross_entropy", weight, logits))
    return narrowed(_reduced(neg(reductions.sum(mul(log_softmax(logits), goal), -1)), reduction), self)


@accepts_aliases
def nll_loss(
    self: T, target: T, reduction: Reduction = "mean", *, weight: T | None = None, ignore_index: int = -100
) -> T:
    """Return the negative of log probabilities (batch, classes, ...) at integer classes (batch, ...).

    Without a batch they are (classes,) and (). Targets equal to `ignore_index` are ignored: their loss is 0.
    Another class out of range raises `UsageIndexError` where the host knows its value, or under
    `HCQ_VALIDATE=1`; else its loss is NaN. `weight` has a factor for each class.

    `reduction`: "mean" divides the sum by the sum of the weights of targets that are not ignored; "sum"; or
    "none" for the shape of the target. Raises `UsageError` when shapes do not fit.
    """
    if not self.expr.shape:
        raise UsageError("nll_loss needs log probabilities with a class axis, saw a scalar")
    axis = 0 if len(self.expr.shape) < 2 else 1
    ignore_index = whole(ignore_index, "nll_loss, ignore_index")
    target = _labels("nll_loss", self, target, axis, ignore_index)
    if weight is not None:
        weight = weight if weight.__class__ is self.__class__ else read(nll_loss, "weight", weight, self)
    return _nll_loss(self, target, weight, (reduction, 0.0, ignore_index))


def _class_last(what: str, x: T, target: T) -> T:
    """Return log probabilities with the class axis last. Raises `UsageError` unless the targets fit."""
    shape = x.expr.shape
    a = 0 if len(shape) == 1 else 1
    wanted = (*shape[:a], *shape[a + 1 :])
    if target.expr.shape != wanted or not target.expr.dtype.is_int:
        raise UsageError(
            f"{what}: for {shape} wanted integer targets {wanted}, "
            f"saw {target.expr.dtype.name}{list(target.expr.shape)}"
        )
    return apply(Ops.PERMUTE, (*[i for i in range(len(shape)) if i != a], a), x)


@composite
def _nll_loss(self: T, target: T, weight: T | None, how: _Settings) -> T:
    logs = _class_last("nll_loss", self, target)
    return _of_classes("nll_loss", logs, target, weight, how)


def _alike(what: str, x: T, target: T) -> tuple[T, T]:
    """Return two tensors of one shape as floats of one dtype. Raises `UsageError` for other shapes."""
    wanted = x.expr.shape
    seen = target.expr.shape if hasattr(target, "expr") else wanted
    if seen != wanted:
        hint = f"\nhint: target.reshape({wanted})" if math.prod(seen) == math.prod(wanted) else ""
        raise UsageError(f"{what}: wanted a target of the shape {wanted}, saw {seen}{hint}")
    return agree(what, x, target, floats=True)


@composite
def binary_crossentropy(
    self: T, target: T, reduction: Reduction = "mean", weight: T | None = None
) -> T:  # fmt: skip
    """Return the cross entropy of probabilities with targets between 0 and 1.

    Logarithms are at least -100, as in PyTorch, so the loss of an element is at most 100. A probability
    outside 0..1 gives NaN. `weight` multiplies each element, and broadcasts.

    `reduction`: "mean", "sum", or "none" for each element. Raises `UsageError` for another shape of `target`.
    """
    x, goal = _alike("binary_crossentropy", self, target)
    logs, others = clip(log(x), -100.0), clip(log1p(neg(x)), -100.0)
    value = sub(mul(sub(goal, 1.0), others), mul(goal, logs))
    value = ruled("cross_entropy_of_two", value, x, goal)
    return _reduced(value if weight is None else mul(value, weight), reduction)


@composite
def binary_crossentropy_logits(
    self: T, target: T, reduction: Reduction = "mean", weight: T | None = None, pos_weight: T | None = None
) -> T:
    """Return the cross entropy of logits with targets between 0 and 1, without overflow.

    `pos_weight` multiplies the term of the target, -target * log(sigmoid(self)); `weight` multiplies each
    element. Both broadcast.

    `reduction`: "mean", "sum", or "none" for each element. Raises `UsageError` for another shape of `target`.
    """
    from frontend.ops.activation import softplus  # noqa: PLC0415 - used by this loss only

    x, goal = _alike("binary_crossentropy_logits", self, target)
    if pos_weight is not None:
        heavy = add(mul(sub(pos_weight, 1.0), goal), 1.0)
        value = add(mul(rsub(goal, 1.0), x), mul(heavy, softplus(neg(x))))
    else:
        value = add(mul(rsub(goal, 1.0), x), softplus(neg(x)))
        value = ruled("cross_entropy_of_logits", value, x, goal)
    return _reduced(value if weight is None else mul(value, weight), reduction)


@composite
def mse_loss(self: T, target: T, reduction: Reduction = "mean") -> T:
    """Return the squared difference to a target: its mean, its sum, or each element.

    Shapes broadcast; integers give float32. `reduction`: "mean", "sum", or "none" for the broadcast shape.
    Raises `UsageError` when the shapes do not broadcast.
    """
    d = sub(*agree("mse_loss", self, target, floats=True))
    return _reduced(mul(d, d), reduction)


@composite
def l1_loss(self: T, target: T, reduction: Reduction = "mean") -> T:
    """Return the absolute difference to a target: its mean, its sum, or each element.

    Shapes broadcast; `reduction` and errors are those of `mse_loss`. Integers give integers, their sum int64
    and their mean float32.
    """
    bools = self.expr.dtype is dtypes.bool or target.expr.dtype is dtypes.bool
    return _reduced(absolute(sub(*agree("l1_loss", self, target, floats=bools))), reduction)


@composite
def smooth_l1_loss(self: T, target: T, reduction: Reduction = "mean", beta: float = 1.0) -> T:
    """Return d² / (2 beta) of differences with |d| < beta, |d| - beta / 2 of others.

    Shapes broadcast; `reduction` is that of `mse_loss`. Raises `UsageError` for a negative beta, and as
    `mse_loss`.
    """
    if not beta >= 0:
        raise UsageError(f"smooth_l1_loss: wanted a beta that is not negative, saw {beta}")
    return _reduced(_smooth("smooth_l1_loss", self, target, beta, 1.0), reduction)


def _smooth(what: str, x: T, target: T, beta: float, scale: float) -> T:
    x, goal = agree(what, x, target, floats=True)
    a, b = widened(x), widened(goal)
    size = absolute(sub(a, b))
    if beta:
        near = mul(mul(size, size), 0.5 * scale / beta)
        size = where(lt(size, beta), near, mul(sub(size, 0.5 * beta), scale))
        size = ruled("smooth", size, a, b, about=(beta, scale))
    return narrowed(size, x)


@composite
def huber_loss(self: T, target: T, reduction: Reduction = "mean", delta: float = 1.0) -> T:
    """Return delta times `smooth_l1_loss` with that beta. Raises `UsageError` for a delta not above 0."""
    if not delta > 0:
        raise UsageError(f"huber_loss: wanted a delta above 0, saw {delta}")
    return _reduced(_smooth("huber_loss", self, target, delta, delta), reduction)


@composite
def kl_div(
    self: T, target: T, reduction: Reduction | Literal["batchmean"] = "mean", log_target: bool = False
) -> T:
    """Return target * (log(target) - self) of log probabilities; with `log_target` the target is a log, too.

    It is 0 where the target is 0. `reduction` and errors are those of `mse_loss`; "batchmean" divides the sum
    by the size of axis 0.
    """
    if reduction == "batchmean":
        total = kl_div(self, target, "sum", log_target)
        return div(total, self.expr.shape[0]) if self.expr.shape else total
    x, goal = agree("kl_div", self, target, floats=True)
    if log_target:
        return _reduced(mul(exp(goal), sub(goal, x)), reduction)
    return _reduced(sub(xlogy(goal, goal), mul(goal, x)), reduction)
