"""Gradient rules of functions: RULED expressions name them (`frontend.ops.sources.ruled`).

The gradient of the operations that compute a function is not always its gradient: they may overflow, divide 0
by 0, or take the wrong side of a kink. At kinks, edges and special values a rule gives the gradient of
PyTorch; `tests/frontend/test_gradients_of_pytorch.py` compares them with recorded data.

Every rule is called as `rule(g, out, sources, about)`: g is the gradient of `out`, in its shape and dtype;
`sources` and `about` are the arguments of `ruled`. Rules use methods and primitives, so they can be
differentiated.

Not here: rules of primitives (`primitives`).
"""

# ruff: noqa: ARG001, D403 - all rules have one signature, and their docstrings are formulas

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final

from compiler.ir.ops import Ops
from frontend.autograd import inverse_rules, matrix_rules
from frontend.ops.activation import gate, gate_rest, sigmoid
from frontend.ops.combined import xlogy
from frontend.ops.division import floordiv
from frontend.ops.functions import abs as absolute
from frontend.ops.functions import exp, log, log1p, sign
from frontend.ops.powers import pow as power
from frontend.ops.reduce import fold, mean
from frontend.ops.sources import constant, coordinate, spread
from frontend.trace import apply

if TYPE_CHECKING:
    from collections.abc import Callable

    from frontend.tensor_base import TensorBase

Sources = tuple["TensorBase", ...]
About = tuple[Any, ...]
Gradients = tuple["TensorBase | None", ...]


def ruled(g: TensorBase, out: TensorBase, sources: Sources) -> Gradients:
    """RULED: no gradient for the values, the gradients of the rule for the other sources."""
    name, *about = out.expr.arg
    return None, *RULES[name](g, out, sources[1:], tuple(about))


def _number(like: TensorBase, value: float) -> TensorBase:
    return constant(like, value, like.expr.dtype, like.expr.shape)


def _where(c: TensorBase, a: TensorBase, b: TensorBase) -> TensorBase:
    return apply(Ops.WHERE, None, c, a, b)


def _binary(op: str, a: TensorBase, b: TensorBase | float) -> TensorBase:
    return apply(op, None, a, _number(a, b) if isinstance(b, (int, float)) else b)


def _mul(a: TensorBase, b: TensorBase | float) -> TensorBase:
    return _binary(Ops.MUL, a, b)


def _within(low: TensorBase | float, x: TensorBase, high: TensorBase | float) -> TensorBase:
    """Return low < x < high, as bool; false for NaN."""
    bounds = [_number(x, b) if isinstance(b, (int, float)) else b for b in (low, high)]
    return _binary(Ops.AND, _binary(Ops.LT, bounds[0], x), _binary(Ops.LT, x, bounds[1]))


def zero(g: TensorBase, out: TensorBase, sources: Sources, about: About) -> Gradients:
    """Steps: 0 for every source."""
    return tuple([constant(s, 0.0, s.expr.dtype, s.expr.shape) for s in sources])


def beside(g: TensorBase, out: TensorBase, sources: Sources, about: About) -> Gradients:
    """The value of the first source, independent of the others: g, and 0 for the others."""
    return g, *zero(g, out, sources[1:], about)


def relu(g: TensorBase, out: TensorBase, sources: Sources, about: About) -> Gradients:
    """max(x, 0): g where x > 0 or NaN; 0 at 0."""
    return (_where(_binary(Ops.EQ, out, 0.0), _number(g, 0.0), g),)


def clip(g: TensorBase, out: TensorBase, sources: Sources, about: About) -> Gradients:
    """x limited to bounds: g to x on the bounds and between them, else to the bound that was taken.

    `about` holds which of low and high are given. Where low is above high, all goes to high. NaN gets none.
    So has PyTorch up to 2.13. From 2.14 on it gives x none on a bound that is a number, shares g with one
    that is a tensor, and gives g to a NaN.
    """
    x, *bounds = sources
    zero = _number(g, 0.0)
    low, high = about
    if low and high:
        apart = _binary(Ops.LT, bounds[1], bounds[0])
        inside = _binary(Ops.AND, _binary(Ops.EQ, x, out), apply(Ops.NOT, None, apart))
        below = _binary(Ops.AND, _binary(Ops.LT, x, bounds[0]), _binary(Ops.LT, bounds[0], bounds[1]))
        above = _binary(Ops.OR, _binary(Ops.LT, bounds[1], x), apart)
        return _where(inside, g, zero), _where(below, g, zero), _where(above, g, zero)
    beyond = _binary(Ops.LT, x, bounds[0]) if low else _binary(Ops.LT, bounds[0], x)
    return _where(_binary(Ops.EQ, x, out), g, zero), _where(beyond, g, zero)


def hardtanh(g: TensorBase, out: TensorBase, sources: Sources, about: About) -> Gradients:
    """x limited to low..high, numbers: g strictly between; 0 on the bounds and for NaN."""
    return (_where(_within(about[0], sources[0], about[1]), g, _number(g, 0.0)),)


def hardsigmoid(g: TensorBase, out: TensorBase, sources: Sources, about: About) -> Gradients:
    """x / 6 + 1/2 limited to 0..1: g / 6 where -3 < x < 3, else 0."""
    return (_where(_within(-3.0, sources[0], 3.0), _mul(g, 1 / 6), _number(g, 0.0)),)


def hardswish(g: TensorBase, out: TensorBase, sources: Sources, about: About) -> Gradients:
    """x relu6(x + 3) / 6: 0 up to -3, g (x / 3 + 1/2) below 3, g from there on."""
    x = sources[0]
    slope = _mul(g, _binary(Ops.ADD, _mul(x, 1 / 3), 0.5))
    low = _binary(Ops.LT, _number(x, -3.0), x)
    least = _where(_binary(Ops.OR, low, _binary(Ops.NE, x, x)), slope, _number(g, 0.0))
    high = _binary(Ops.OR, _binary(Ops.LT, _number(x, 3.0), x), _binary(Ops.EQ, x, 3.0))
    return (_where(high, g, least),)


def leaky_relu(g: TensorBase, out: TensorBase, sources: Sources, about: About) -> Gradients:
    """x where x > 0, else slope x: g, or slope g; the slope at 0 and for NaN."""
    return (_where(_binary(Ops.LT, _number(g, 0.0), sources[0]), g, _mul(g, about[0])),)


def elu(g: TensorBase, out: TensorBase, sources: Sources, about: About) -> Gradients:
    """x where x > 0, else alpha (exp(x) - 1): g, or g alpha exp(x)."""
    x = sources[0]
    zero = _number(x, 0.0)
    slope = _mul(exp(_binary(Ops.MIN, x, zero)), about[0])
    return (_where(_binary(Ops.LT, zero, x), g, _mul(g, slope)),)


def celu(g: TensorBase, out: TensorBase, sources: Sources, about: About) -> Gradients:
    """x where x > 0, else alpha (exp(x / alpha) - 1): g, or g exp(x / alpha)."""
    x = sources[0]
    zero = _number(x, 0.0)
    return (_where(_binary(Ops.LT, zero, x), g, _mul(g, exp(_mul(_binary(Ops.MIN, x, zero), 1 / about[0])))),)


def of_sigmoid(g: TensorBase, out: TensorBase, sources: Sources, about: About) -> Gradients:
    """Logistic function s(x): g s(x) s(-x), which keeps its digits where s(x) is near 1."""
    return (_mul(g, _mul(out, sigmoid(apply(Ops.NEG, None, sources[0])))),)


def softplus(g: TensorBase, out: TensorBase, sources: Sources, about: About) -> Gradients:
    """log(1 + exp(x)): g s(x)."""
    return (_mul(g, sigmoid(sources[0])),)


def logsigmoid(g: TensorBase, out: TensorBase, sources: Sources, about: About) -> Gradients:
    """log(s(x)): g s(-x)."""
    return (_mul(g, sigmoid(apply(Ops.NEG, None, sources[0]))),)


def of_gate(g: TensorBase, out: TensorBase, sources: Sources, about: About) -> Gradients:
    """t(x) = tanh(softplus(x)): g (1 - t²) s(x), with 1 - t computed apart; its negation for 1 - t(x)."""
    x = sources[0]
    whole = _mul(gate_rest(x), _binary(Ops.ADD, gate(x), 1.0))
    found = _mul(g, _mul(whole, sigmoid(x)))
    return (apply(Ops.NEG, None, found) if about[0] else found,)


def root(g: TensorBase, out: TensorBase, sources: Sources, about: About) -> Gradients:
    """Square root of a spread: g / (2 sqrt(x)), but 0 where that is 0, as all values are equal there."""
    none = _binary(Ops.EQ, out, 0.0)
    slope = apply(Ops.DIV, None, g, _mul(out, 2.0))
    return (_where(none, _number(g, 0.0), slope),)


def root_power(g: TensorBase, out: TensorBase, sources: Sources, about: About) -> Gradients:
    """x ** 0.5, x ** -0.5: g / 2 x ** -0.5, -g / 2 (x ** -0.5) ** 3."""
    if about[0] > 0:
        return (_mul(g, _mul(power(sources[0], -0.5), 0.5)),)
    return (_mul(g, _mul(_mul(out, _mul(out, out)), -0.5)),)


def remainder(g: TensorBase, out: TensorBase, sources: Sources, about: About) -> Gradients:
    """x % y: g, and -g floor(x / y)."""
    return g, apply(Ops.NEG, None, _mul(g, floordiv(*sources)))


def fmod(g: TensorBase, out: TensorBase, sources: Sources, about: About) -> Gradients:
    """x - y q, q the whole quotient, a third source: g, -g q, and none."""
    return g, apply(Ops.NEG, None, _mul(g, sources[2])), None


def logaddexp(g: TensorBase, out: TensorBase, sources: Sources, about: About) -> Gradients:
    """log(exp(x) + exp(y)): g s(x - y), g s(y - x), where s is the logistic function; equals share it."""
    x, y = sources
    apart = _where(_binary(Ops.EQ, x, y), _number(x, 0.0), apply(Ops.SUB, None, x, y))
    return _mul(g, sigmoid(apart)), _mul(g, sigmoid(apply(Ops.NEG, None, apart)))


def of_xlogy(g: TensorBase, out: TensorBase, sources: Sources, about: About) -> Gradients:
    """x log(y): g log(y), 0 where x is 0 and y is not above 0, and g x / y."""
    x, y = sources
    low = _binary(Ops.OR, _binary(Ops.LT, y, 0.0), _binary(Ops.EQ, y, 0.0))
    none = _binary(Ops.AND, _binary(Ops.EQ, x, 0.0), low)
    return _where(none, _number(g, 0.0), xlogy(g, y)), _mul(g, apply(Ops.DIV, None, x, y))


def lerp(g: TensorBase, out: TensorBase, sources: Sources, about: About) -> Gradients:
    """x + (end - x) w: g (1 - w), g w, g (end - x)."""
    x, end, weight = sources
    rest = apply(Ops.SUB, None, _number(g, 1.0), weight)
    return _mul(g, rest), _mul(g, weight), _mul(g, apply(Ops.SUB, None, end, x))


def first_extreme(g: TensorBase, out: TensorBase, sources: Sources, about: About) -> Gradients:
    """Greatest or least over axes: g to the first element that attains it, in row-major order.

    Each element that attains it has a score, from which its place follows: `count` - place, or for NaNs,
    where the last one is wanted, more than that. So where g flows depends on the greatest score, not on x.

    `about` is the axes, and whether the last NaN gets g where there are several, instead of the first. A
    second source, of bools, selects the elements that count.
    """
    axes, last_nan = about
    x = sources[0]
    shape = x.expr.shape
    kept = tuple([1 if i in axes else n for i, n in enumerate(shape)])
    best = spread(apply(Ops.RESHAPE, kept, out), shape)
    place, count = _place(x, axes)
    undefined = apply(Ops.NE, None, x, x)
    hit = apply(Ops.OR, None, apply(Ops.EQ, None, x, best), undefined)
    hit = apply(Ops.AND, None, hit, sources[1]) if len(sources) > 1 else hit
    dtype = place.expr.dtype
    ahead = apply(Ops.SUB, None, constant(x, count, dtype, shape), place)
    if last_nan:
        ahead = _where(undefined, apply(Ops.ADD, None, place, constant(x, count + 1, dtype, shape)), ahead)
    score = _where(hit, ahead, constant(x, 0, dtype, shape))
    top = fold(Ops.MAX, score, axes, keepdim=True)
    first = apply(Ops.SUB, None, constant(x, count, dtype, kept), top)
    if last_nan:
        after = apply(Ops.LT, None, constant(x, count, dtype, kept), top)
        first = _where(after, apply(Ops.SUB, None, top, constant(x, count + 1, dtype, kept)), first)
    chosen = apply(Ops.EQ, None, place, spread(first, shape))
    wide = spread(apply(Ops.RESHAPE, kept, g), shape)
    return _where(chosen, wide, _number(wide, 0.0)), *(None,) * (len(sources) - 1)


def _place(x: TensorBase, axes: tuple[int, ...]) -> tuple[TensorBase, int]:
    """Return each element's place among those of its reduction, row-major, and how many these are."""
    shape = x.expr.shape
    place, count = coordinate(x, shape, axes[-1]), shape[axes[-1]]
    for a in reversed(axes[:-1]):
        more = coordinate(x, shape, a)
        step = constant(x, count, more.expr.dtype, shape)
        place = apply(Ops.ADD, None, apply(Ops.MUL, None, more, step), place)
        count *= shape[a]
    return place, count


def every_extreme(g: TensorBase, out: TensorBase, sources: Sources, about: About) -> Gradients:
    """Greatest or least of all: g shared evenly among those that attain it, among the NaNs if any."""
    x = sources[0]
    shape = x.expr.shape
    axes = tuple(range(len(shape)))
    best = spread(out, shape)
    hit = apply(Ops.OR, None, apply(Ops.EQ, None, x, best), apply(Ops.NE, None, x, x))
    share = _where(hit, _number(x, 1.0), _number(x, 0.0))
    count = spread(fold(Ops.ADD, share, axes, keepdim=True), shape)
    return (_where(hit, apply(Ops.DIV, None, spread(g, shape), count), _number(x, 0.0)),)


def variance(g: TensorBase, out: TensorBase, sources: Sources, about: About) -> Gradients:
    """Squared distances from the mean, added up over axes, by a count: 2 g / count times each distance.

    The mean contributes nothing, as the distances sum to 0.
    """
    axes, count = about
    x = sources[0]
    distance = apply(Ops.SUB, None, x, spread(mean(x, axes, keepdim=True), x.expr.shape))
    shape = x.expr.shape
    kept = tuple([1 if i in axes else n for i, n in enumerate(shape)])
    wide = spread(apply(Ops.RESHAPE, kept, g), shape)
    return (_mul(_mul(wide, 2.0 / count if count else math.inf), distance),)


def of_norm(g: TensorBase, out: TensorBase, sources: Sources, about: About) -> Gradients:
    """p-norm along axes that keep size 1: g sign(x) (|x| / norm) ** (p - 1); 0 where the norm, or p, is 0."""
    p = about[0]
    x = sources[0]
    shape = x.expr.shape
    wide, norm = spread(g, shape), spread(out, shape)
    zero = _number(x, 0.0)
    empty = apply(Ops.EQ, None, norm, zero)
    if p in {0, 1}:
        return (_mul(wide, sign(x)) if p else spread(zero, shape),)
    if p == 2:
        return (_mul(x, _where(empty, zero, apply(Ops.DIV, None, wide, norm))),)
    if p < 1:
        empty = apply(Ops.OR, None, empty, apply(Ops.EQ, None, x, zero))
    slope = apply(Ops.DIV, None, power(absolute(x), p - 1.0), power(norm, p - 1.0))
    return (_where(empty, zero, _mul(wide, _mul(sign(x), slope))),)


def cross_entropy_of_two(g: TensorBase, out: TensorBase, sources: Sources, about: About) -> Gradients:
    """-t log(x) - (1 - t) log(1 - x): g (x - t) / max(x (1 - x), 1e-12); g log((1 - x) / x)."""
    x, t = sources
    rest = apply(Ops.SUB, None, _number(x, 1.0), x)
    divisor = _binary(Ops.MAX, _mul(rest, x), 1e-12)
    odds = apply(Ops.SUB, None, log1p(apply(Ops.NEG, None, x)), log(x))
    return apply(Ops.DIV, None, _mul(g, apply(Ops.SUB, None, x, t)), divisor), _mul(g, odds)


def cross_entropy_of_logits(g: TensorBase, out: TensorBase, sources: Sources, about: About) -> Gradients:
    """-t log(s(x)) - (1 - t) log(s(-x)): g ((1 - t) s(x) - t s(-x)), exact where t is 0 or 1; -g x."""
    x, t = sources
    up, down = sigmoid(x), sigmoid(apply(Ops.NEG, None, x))
    slope = apply(Ops.SUB, None, _mul(apply(Ops.SUB, None, _number(t, 1.0), t), up), _mul(t, down))
    return _mul(g, slope), apply(Ops.NEG, None, _mul(g, x))


def custom(g: TensorBase, out: TensorBase, sources: Sources, about: About) -> Gradients:
    """The gradient that a user wrote: `frontend.autograd.function`."""
    found: Gradients = about[0].gradients(g, sources)
    return found


RULES: Final[dict[str, Callable[[TensorBase, TensorBase, Sources, About], Gradients]]] = {
    **inverse_rules.RULES,
    **matrix_rules.RULES,
    "custom": custom,
    "zero": zero,
    "beside": beside,
    "relu": relu,
    "clip": clip,
    "hardtanh": hardtanh,
    "hardsigmoid": hardsigmoid,
    "hardswish": hardswish,
    "leaky_relu": leaky_relu,
    "elu": elu,
    "celu": celu,
    "sigmoid": of_sigmoid,
    "softplus": softplus,
    "logsigmoid": logsigmoid,
    "gate": of_gate,
    "root": root,
    "root_power": root_power,
    "remainder": remainder,
    "fmod": fmod,
    "logaddexp": logaddexp,
    "xlogy": of_xlogy,
    "lerp": lerp,
    "first_extreme": first_extreme,
    "every_extreme": every_extreme,
    "variance": variance,
    "norm": of_norm,
    "cross_entropy_of_two": cross_entropy_of_two,
    "cross_entropy_of_logits": cross_entropy_of_logits,
}
