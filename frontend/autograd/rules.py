"""Gradient rules of functions: RULED expressions name them (`frontend.evaluation.constants.ruled`).

The gradient of the operations that compute a function is not always the gradient of the function: the
operations may overflow, divide 0 by 0, or take the wrong side of a kink. At kinks, edges and special values a
rule gives the gradient of PyTorch; `tests/frontend/test_gradients_of_pytorch.py` compares them with recorded
data.

Every rule is called as `rule(g, out, *sources, *about)`, with the gradient g of `out`, in its shape and
dtype; `sources` and `about` are the arguments of `ruled`. It returns the gradient of the source, or a tuple
with one for each source; None: no gradient flows. Errors are those of the methods; a rule gets operands that
fit. A docstring gives the function, then the gradients after a colon. Rules consist of methods and
primitives, so they can be differentiated.

Not here: rules of primitives (`elementwise`, `primitives`). Next: `matrix_rules`, decompositions of matrices.
"""

# ruff: noqa: ARG001, D402, D403 - all rules have one signature, and their docstrings are formulas

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final

from compiler.dtype import dtypes
from compiler.ir.ops import Ops
from frontend.autograd import matrix_rules
from frontend.evaluation.base import TensorBase
from frontend.evaluation.constants import constant, coordinate, number_like, spread
from frontend.evaluation.printing import described
from frontend.evaluation.trace import apply
from frontend.ops.activation import gate, gate_rest, sigmoid
from frontend.ops.arithmetic import floordiv
from frontend.ops.arithmetic import pow as power
from frontend.ops.elementwise import clip as cut
from frontend.ops.elementwise import eq, gt, le, lt, maximum, minimum, ne, where
from frontend.ops.functions import abs as absolute
from frontend.ops.functions import exp, log, log1p, rsqrt, sign, xlogy
from frontend.ops.reductions import fold, mean
from frontend.ops.special import cosh, digamma, sinh, trigamma
from hcq.errors import UsageError

Gradients = tuple["TensorBase | None", ...]


def ruled(g: TensorBase, out: TensorBase, *sources: TensorBase) -> Gradients:
    """RULED: no gradient for the first source, the values; the gradients of the named rule for the others."""
    name, *about = out.expr.arg
    found = RULES[name](g, out, *sources[1:], *about)
    return None, *(found if found.__class__ is tuple else (found,))


def _zeros(*like: TensorBase) -> Gradients:
    return tuple([number_like(s, 0.0) for s in like])


def clip(g: Any, out: Any, x: Any, *more: Any) -> Gradients:
    """x limited to bounds: g to x on the bounds and between them, else to the bound that is the result.

    `more` are the bounds that are given, then two flags: whether low and whether high is given. Where low is
    above high, g goes to high. An x that is NaN gets 0. This is PyTorch up to 2.13. PyTorch 2.14 gives x 0 on
    a bound that is a number, shares g with a bound that is a tensor, and gives g to a NaN.
    """
    *bounds, low, high = more
    if low and high:
        apart = lt(bounds[1], bounds[0])
        inside = eq(x, out) & ~apart
        below = lt(x, bounds[0]) & lt(bounds[0], bounds[1])
        return tuple([where(c, g, 0.0) for c in (inside, below, lt(bounds[1], x) | apart)])
    beyond = lt(x, bounds[0]) if low else lt(bounds[0], x)
    return where(eq(x, out), g, 0.0), where(beyond, g, 0.0)


def hardswish(g: Any, out: Any, x: Any) -> Any:
    """x relu6(x + 3) / 6: 0 up to -3, g (x / 3 + 1/2) below 3, g from there on."""
    least = where(gt(x, -3.0) | ne(x, x), g * (x * (1 / 3) + 0.5), 0.0)
    return where(gt(x, 3.0) | eq(x, 3.0), g, least)


def of_gate(g: Any, out: Any, x: Any, negated: bool) -> Any:  # noqa: FBT001 - as all rules
    """t = tanh(softplus(x)): g (1 - t²) s(x), with a formula for 1 - t; 1 - t (`negated`): its negation."""
    found: Any = g * (gate_rest(x) * (gate(x) + 1.0) * sigmoid(x))
    return -found if negated else found


def logaddexp(g: Any, out: Any, x: Any, y: Any) -> Gradients:
    """log(exp(x) + exp(y)): g s(x - y), g s(y - x), s the logistic function; NaN for equal infinities."""
    apart: Any = x - y
    return g * sigmoid(apart), g * sigmoid(-apart)


def atan2(g: Any, out: Any, y: Any, x: Any) -> Gradients:
    """atan2(y, x): g x / (x² + y²), -g y / (x² + y²); 0 at the origin."""
    size = x * x + y * y
    share: Any = where(eq(size, 0.0), 0.0, g / size)
    return share * x, -(share * y)


def first_extreme(g: Any, out: Any, x: Any, *more: Any) -> Gradients:
    """Greatest or least value over axes: g to the first element that equals it, in row-major order.

    `more` is an optional source of bools that selects the elements that count, then the axes, then
    `last_nan`: whether of several NaNs the last gets g instead of the first.

    Each element that equals the result has a score, from which its position follows: `count` - position; with
    `last_nan`, NaNs have `count` + 1 + position. The element with the greatest score gets g.
    """
    *counted, axes, last_nan = more
    shape = x.expr.shape
    kept = _kept(shape, axes)
    best = spread(apply(Ops.RESHAPE, kept, out), shape)
    place, count = _place(x, axes)
    undefined = apply(Ops.NE, None, x, x)
    hit = apply(Ops.OR, None, apply(Ops.EQ, None, x, best), undefined)
    hit = apply(Ops.AND, None, hit, counted[0]) if counted else hit
    dtype = place.expr.dtype
    ahead = apply(Ops.SUB, None, constant(x, count, dtype, shape), place)
    if last_nan:
        ahead = where(undefined, apply(Ops.ADD, None, place, constant(x, count + 1, dtype, shape)), ahead)
    score = where(hit, ahead, constant(x, 0, dtype, shape))
    top = fold(Ops.MAX, score, axes, keepdim=True)
    first = apply(Ops.SUB, None, constant(x, count, dtype, kept), top)
    if last_nan:
        after = apply(Ops.LT, None, constant(x, count, dtype, kept), top)
        first = where(after, apply(Ops.SUB, None, top, constant(x, count + 1, dtype, kept)), first)
    chosen = apply(Ops.EQ, None, place, spread(first, shape))
    wide = spread(apply(Ops.RESHAPE, kept, g), shape)
    return where(chosen, wide, 0.0), *(None,) * len(counted)


def _kept(shape: tuple[int, ...], axes: tuple[int, ...]) -> tuple[int, ...]:
    return tuple([1 if i in axes else n for i, n in enumerate(shape)])


def _place(x: TensorBase, axes: tuple[int, ...]) -> tuple[TensorBase, int]:
    """Return each element's row-major position among the elements of its reduction, and their number.

    The positions are int32 if all numbers up to twice the number of elements are: a kernel may store them.
    """
    shape = x.expr.shape
    dtype = dtypes.int32 if 2 * math.prod([shape[a] for a in axes]) < dtypes.int32.max else dtypes.int64
    place, count = coordinate(x, shape, axes[-1], dtype), shape[axes[-1]]
    for a in reversed(axes[:-1]):
        more = coordinate(x, shape, a, dtype)
        step = constant(x, count, dtype, shape)
        place = apply(Ops.ADD, None, apply(Ops.MUL, None, more, step), place)
        count *= shape[a]
    return place, count


def every_extreme(g: Any, out: Any, x: Any) -> Any:
    """One of all elements, as the greatest: g shared evenly by those that equal it; all NaNs equal NaN."""
    shape = x.expr.shape
    wide: Any = spread(out, shape)
    hit: Any = eq(x, wide) | (ne(x, x) & ne(wide, wide))
    share = where(hit, constant(x, 1.0, x.expr.dtype, shape), 0.0)
    count = spread(fold(Ops.ADD, share, tuple(range(len(shape))), keepdim=True), shape)
    return where(hit, spread(g, shape) / count, 0.0)


def variance(g: Any, out: Any, x: Any, axes: tuple[int, ...], count: float | None) -> Any:
    """The sum over axes of squared distances from the mean, by `count`: 2 g / count times each distance.

    The mean contributes nothing, as the distances sum to 0. `count` may be below 0. None: it is not
    above 0, and no axes were named; an element then gets infinite g, or NaN where it is the mean.
    """
    shape = x.expr.shape
    wide: Any = spread(apply(Ops.RESHAPE, _kept(shape, axes), g), shape)
    distance: Any = x - spread(mean(x, axes, keepdim=True), shape)
    distance = absolute(distance) if count is None else distance
    return wide * (2.0 / count if count else math.inf) * distance


def of_norm(g: Any, out: Any, x: Any, p: float) -> Any:
    """p-norm over axes, which keep size 1: g sign(x) (|x| / norm) ** (p - 1); 0 where the norm or p is 0.

    Of an infinite p, g sign(x) is shared evenly by the elements whose magnitude is the norm.
    """
    shape = x.expr.shape
    wide: Any = spread(g, shape)
    norm: Any = spread(out, shape)
    empty: Any = eq(norm, 0.0)
    if p in {0, 1}:
        return wide * sign(x) if p else _zeros(x)
    if p == 2:
        return wide * where(empty, 0.0, x / norm)
    if math.isinf(p):
        hit = eq(absolute(x), norm)
        axes = tuple([i for i, n in enumerate(out.expr.shape) if n == 1])
        count = spread(fold(Ops.ADD, where(hit, number_like(x, 1.0), 0.0), axes, keepdim=True), shape)
        return where(hit, wide * sign(x) / count, 0.0)
    slope: Any = power(absolute(x), p - 1.0)
    slope = where(eq(x, 0.0), 0.0, slope) if p < 1 else slope
    return where(empty, 0.0, wide * (sign(x) * (slope / power(norm, p - 1.0))))


def cross_entropy_of_two(g: Any, out: Any, x: Any, t: Any) -> Gradients:
    """-t log(x) - (1 - t) log(1 - x): g (x - t) / max(x (1 - x), 1e-12); g log((1 - x) / x)."""
    odds: Any = log1p(-x)
    return g * (x - t) / maximum((1.0 - x) * x, 1e-12), g * (odds - log(x))


def cross_entropy_of_logits(g: Any, out: Any, x: Any, t: Any) -> Gradients:
    """-t log(s(x)) - (1 - t) log(s(-x)): g ((1 - t) s(x) - t s(-x)), exact where t is 0 or 1; -g x."""
    return g * ((1.0 - t) * sigmoid(x) - t * sigmoid(-x)), -(g * x)


def smooth(g: Any, out: Any, x: Any, y: Any, *limits: float) -> Gradients:
    """The loss of x - y that is a square up to beta: g (x - y), limited to beta, and its negation."""
    beta, scale = limits
    found: Any = g * (cut(x - y, -beta, beta) * (scale / beta))
    return found, -found


def refused(g: Any, *_: Any) -> Gradients:
    """Raise `UsageError`: no gradient flows through a backward that is marked once_differentiable."""
    raise UsageError(
        f"a gradient of a backward that is marked once_differentiable, for {described(g)}\n"
        "hint: without the mark, gradients flow through what backward computes"
    )


RULES: Final[dict[str, Callable[..., Any]]] = {
    **matrix_rules.RULES,
    "once": refused,
    "zero": lambda _g, _, *sources: _zeros(*sources),
    "beside": lambda g, _, __, *others: (g, *_zeros(*others)),
    "relu": lambda g, y, _: where(eq(y, 0.0), 0.0, g),  # 0 at 0
    "clip": clip,
    "hardtanh": lambda g, _, x, low, high: where(gt(x, low) & lt(x, high), g, 0.0),
    "hardsigmoid": lambda g, _, x: where(gt(x, -3.0) & lt(x, 3.0), g * (1 / 6), 0.0),
    "hardswish": hardswish,
    "leaky_relu": lambda g, _, x, slope: where(gt(x, 0.0), g, g * slope),  # the slope at 0 and for NaN
    "elu": lambda g, _, x, alpha: where(gt(x, 0.0), g, g * (exp(minimum(x, 0.0)) * alpha)),
    "celu": lambda g, _, x, alpha: where(gt(x, 0.0), g, g * exp(minimum(x, 0.0) * (1 / alpha))),
    "sigmoid": lambda g, y, x: g * (y * sigmoid(-x)),  # keeps its digits where s(x) is near 1
    "softplus": lambda g, _, x: g * sigmoid(x),
    "logsigmoid": lambda g, _, x: g * sigmoid(-x),
    "gate": of_gate,
    "root": lambda g, y, _: where(eq(y, 0.0), 0.0, g / (y * 2.0)),  # of a spread: all are equal where it is 0
    "root_power": lambda g, y, x, n: g * (power(x, -0.5) * 0.5 if n > 0 else y * (y * y) * -0.5),  # x ** n
    "remainder": lambda g, _, x, y: (g, -(g * floordiv(x, y))),
    "fmod": lambda g, _, _x, _y, quotient: (g, -(g * quotient), None),
    "logaddexp": logaddexp,
    "entr": lambda g, _, x: -(g * (log(x) + 1.0)),
    "xlog1py": lambda g, _, x, y: (where(eq(x, 0.0) & le(y, -1.0), 0.0, g * log1p(y)), g * (x / (y + 1.0))),
    "xlogy": lambda g, _, x, y: (where(eq(x, 0.0) & le(y, 0.0), 0.0, xlogy(g, y)), g * (x / y)),
    "lerp": lambda g, _, x, end, weight: (g * (1.0 - weight), g * weight, g * (end - x)),
    "first_extreme": first_extreme,
    "every_extreme": every_extreme,
    "smooth": smooth,
    "variance": variance,
    "norm": of_norm,
    "cross_entropy_of_two": cross_entropy_of_two,
    "cross_entropy_of_logits": cross_entropy_of_logits,
    "atan": lambda g, _, x: g / (x * x + 1.0),
    "asin": lambda g, _, x: g * rsqrt(1.0 - x * x),
    "acos": lambda g, _, x: -(g * rsqrt(1.0 - x * x)),
    "atan2": atan2,
    "sinh": lambda g, _, x: g * cosh(x),
    "cosh": lambda g, _, x: g * sinh(x),
    "asinh": lambda g, _, x: g * rsqrt(x * x + 1.0),
    "acosh": lambda g, _, x: g * rsqrt(x * x - 1.0),
    "atanh": lambda g, _, x: g / (1.0 - x * x),
    "erfc": lambda g, _, x: g * (exp(-(x * x)) * (-2 / math.sqrt(math.pi))),
    "logit": lambda g, _, x, low, high, beyond: where(
        lt(x, low) | gt(x, high), beyond, g / (x * (1.0 - x) + 0.0)
    ),
    "erfinv": lambda g, y, _: g * (exp(y * y) * (math.sqrt(math.pi) / 2)),
    "ndtri": lambda g, y, _: g * (exp(y * y * 0.5) * math.sqrt(2 * math.pi)),
    "numbers": lambda g, _, x: g * where(eq(x, x), number_like(x, 1.0), 0.0),
    "lgamma": lambda g, _, x: g * digamma(x),
    "digamma": lambda g, _, x: g * trigamma(x),
    "nextafter": lambda g, _, x, y: (where(eq(x, y), 0.0, g), None),
}
"""The name of a function -> its rule. In comments s(x) is the logistic function."""
