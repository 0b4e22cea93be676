"""Rules of reductions along symbolic sizes, and of means, variances, softmax, norms and running sums.

A rule fills the elements beyond the sizes with the identity of its reduction, then applies the method of
fixed sizes. Means and variances divide by the sizes that the variables have at a launch. Arguments and errors
are those of the methods.

Not here: other methods (`rules`). Next: `tensor`, whose elements beyond the sizes are undefined.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Final

from compiler.dtype import dtypes
from frontend.arguments.checks import Axes, axes_of, axis_of, reduced_axes
from frontend.evaluation.expr import float_dtype
from frontend.ops.extremes import Extreme
from frontend.ops.reductions import spread_arguments, total_of_mean
from frontend.symbolic.sizes import Sizes, symbolic
from frontend.symbolic.tensor import SymbolicTensor, filled, is_tensor, made, shape_of, whole_of
from hcq.errors import UnsupportedError


def _left(x: SymbolicTensor, axes: Sequence[int], *, keepdim: bool) -> Sizes:
    """Return the shape of the result of a reduction."""
    return tuple([1 if i in axes else s for i, s in enumerate(x.sizes) if keepdim or i not in axes])


def with_identity(x: Any, axes: Sequence[int], value: Any) -> Any:
    """Return the tensor of the capacity, with `value`, or `value(dtype)`, beyond the sizes of some axes."""
    whole = whole_of(x)
    for axis, size in symbolic(shape_of(x)):
        if axis in axes:
            number = value(whole.expr.dtype) if callable(value) else value
            whole = filled(whole, size.scalar(whole), axis, number)
    return whole


def _reduction(identity: Any) -> Any:
    """Return the rule of a reduction with this identity: a value, or a function of the dtype."""

    def rule(call: Any, x: Any, axis: Axes = None, keepdim: bool = False) -> Any:  # noqa: FBT001, FBT002 - as the methods
        named = axes_of if call.__name__ in {"any", "all", "prod"} else reduced_axes
        axes = named(axis, x.whole.expr.shape, call.__name__)
        whole = with_identity(x, axes, identity)
        keep = {"keepdim": True} if keepdim else {}
        return made(call(whole, axis, **keep), _left(x, axes, keepdim=keepdim))

    return rule


def _least(dtype: Any) -> Any:
    return -math.inf if dtype.is_float else False if dtype is dtypes.bool else dtype.min


def _greatest(dtype: Any) -> Any:
    return math.inf if dtype.is_float else True if dtype is dtypes.bool else dtype.max


def _extreme(identity: Any) -> Any:
    """Return the rule of max or min: values, with indices along one axis."""
    reduce = _reduction(identity)

    def rule(call: Any, x: Any, axis: Any = None, keepdim: bool = False) -> Any:  # noqa: FBT001, FBT002 - as the methods
        if axis is None:
            return reduce(call, x, None, keepdim)
        if is_tensor(axis):
            return getattr(x, {"max": "maximum", "min": "minimum"}[call.__name__])(axis)
        a = axis_of(axis, x.whole.expr.shape, call.__name__)
        values, indices = call(with_identity(x, (a,), identity), a, keepdim)
        sizes = _left(x, (a,), keepdim=keepdim)
        return Extreme(made(values, sizes), made(indices, sizes))

    return rule


def _place(identity: Any) -> Any:
    """Return the rule of argmax or argmin, which raises `UnsupportedError` without an axis."""

    def rule(call: Any, x: Any, axis: int | None = None, keepdim: bool = False) -> Any:  # noqa: FBT001, FBT002 - as the methods
        rank = len(x.sizes)
        if axis is None and any(i for i, _ in symbolic(x.sizes)):
            raise UnsupportedError(
                f"{call.__name__} of the flattened shape {x.sizes}: places depend on the value of a size\n"
                "hint: give an axis"
            )
        axes = tuple(range(rank)) if axis is None else (axis_of(axis, x.whole.expr.shape, call.__name__),)
        whole = with_identity(x, axes, identity)
        return made(call(whole, axis, keepdim), _left(x, axes, keepdim=keepdim))

    return rule


def _count(x: SymbolicTensor, axes: Sequence[int], dtype: Any) -> Any:
    """Return the number of elements along axes, as a tensor of shape () or a number."""
    found: Any = 1.0
    for size in [x.sizes[a] for a in axes]:
        factor = size.scalar(x.whole).cast(dtype) if not isinstance(size, int) else float(size)
        found = factor * found if is_tensor(factor) else found * factor
    return found


def _mean(call: Any, x: Any, axis: Axes = None, keepdim: bool = False) -> Any:  # noqa: FBT001, FBT002 - as the methods
    axes = reduced_axes(axis, x.whole.expr.shape, call.__name__)
    dtype = float_dtype(x.dtype)
    total = x.cast(total_of_mean(x.dtype)).sum(axes, keepdim)
    wide = total.dtype if total.dtype.is_float else dtypes.float64
    return (total.cast(wide) / _count(x, axes, wide)).cast(dtype)


def _wide(x: Any) -> Any:
    dtype = float_dtype(x.dtype)
    return x.cast(dtypes.float32 if dtype.bits == 16 else dtype)


def _var(
    call: Any,
    x: Any,
    axis: Axes | bool = None,  # noqa: FBT001 - the field's signature
    *others: object,
    keepdim: bool = False,
    correction: float | None = 1,
    unbiased: bool | None = None,
) -> Any:
    axis, keepdim, correction = spread_arguments(call.__name__, axis, others, keepdim, correction, unbiased)
    axes = reduced_axes(axis, x.whole.expr.shape, call.__name__)
    y = _wide(x)
    distance = y - y.mean(axes, True)
    total = (distance * distance).sum(axes, keepdim)
    count = _count(x, axes, y.dtype) - correction
    count = count.maximum(0.0) if is_tensor(count) else max(count, 0.0)
    found = total / count
    found = found.sqrt() if call.__name__ == "std" else found
    return found.cast(float_dtype(x.dtype))


def _var_mean(
    call: Any,
    x: Any,
    axis: Axes | bool = None,  # noqa: FBT001 - the field's signature
    *others: object,
    keepdim: bool = False,
    correction: float | None = 1,
    unbiased: bool | None = None,
) -> Any:
    axis, keepdim, correction = spread_arguments(call.__name__, axis, others, keepdim, correction, unbiased)
    return x.var(axis, keepdim=keepdim, correction=correction), x.mean(axis, keepdim)


def _below_top(x: Any, axis: int) -> tuple[Any, int]:
    y = _wide(x)
    a = axis_of(axis, y.whole.expr.shape, "softmax")
    return y - y.amax(a, True).detach(), a


def _softmax(call: Any, x: Any, axis: int = -1) -> Any:
    y, a = _below_top(x, axis)
    e = y.exp()
    if call.__name__ == "softmax":
        return (e / e.sum(a, True)).cast(float_dtype(x.dtype))
    return (y - e.sum(a, True).log()).cast(float_dtype(x.dtype))


def _logsumexp(call: Any, x: Any, axis: Axes = None, keepdim: bool = False) -> Any:  # noqa: FBT001, FBT002 - as the methods
    axes = reduced_axes(axis, x.whole.expr.shape, call.__name__)
    y = _wide(x)
    top = y.amax(axes, True).detach()
    finite = top.isinf().where(0.0, top)
    total = ((y - finite).exp().sum(axes, True).log() + finite).cast(float_dtype(x.dtype))
    if keepdim:
        return total
    return total.reshape(tuple([s for i, s in enumerate(total.shape) if i not in axes]))


def _norm(call: Any, x: Any, axis: Axes = -1, eps: float | None = None) -> Any:
    axes = axes_of(axis, x.whole.expr.shape, call.__name__)
    y = _wide(x)
    if call.__name__ == "layernorm":
        y = y - y.mean(axes, True)
        eps = 1e-5 if eps is None else eps
    scale = ((y * y).mean(axes, True) + (1e-6 if eps is None else eps)).rsqrt()
    return (y * scale).cast(float_dtype(x.dtype))


def _scan(call: Any, x: Any, axis: int = 0) -> Any:
    return made(call(x.whole, axis), x.sizes)  # an element depends on those before it only


REDUCTIONS: Final[dict[str, Callable[..., Any]]] = {
    **dict.fromkeys(("cumsum", "cumprod"), _scan),
    **dict.fromkeys(("layernorm", "rmsnorm"), _norm),
    **dict.fromkeys(("softmax", "log_softmax"), _softmax),
    **dict.fromkeys(("var", "std"), _var),
    "sum": _reduction(0), "prod": _reduction(1), "any": _reduction(0), "all": _reduction(1),
    "count_nonzero": _reduction(0), "amax": _reduction(_least), "amin": _reduction(_greatest),
    "max": _extreme(_least), "min": _extreme(_greatest), "argmax": _place(_least),
    "argmin": _place(_greatest),
    "mean": _mean, "var_mean": _var_mean, "logsumexp": _logsumexp,
}  # fmt: skip
"""The name of a method -> its rule, as `rules.RULES`."""
