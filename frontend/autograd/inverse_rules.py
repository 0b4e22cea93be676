"""Gradient rules of inverse circular and hyperbolic functions, by PyTorch's formulas.

Not here: the functions (`frontend.ops.trigonometry`), other rules (`rules`).
"""

# ruff: noqa: ARG001, D402 - all rules have one signature, and their docstrings are formulas

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final

from compiler.ir.ops import Ops
from frontend.ops.elementwise import where
from frontend.ops.functions import exp, rsqrt
from frontend.ops.sources import constant
from frontend.ops.special import digamma
from frontend.ops.trigonometry import cosh, sinh
from frontend.trace import apply

if TYPE_CHECKING:
    from collections.abc import Callable

    from frontend.tensor_base import TensorBase

Sources = tuple["TensorBase", ...]
About = tuple[Any, ...]
Gradients = tuple["TensorBase | None", ...]


def _one(x: TensorBase) -> TensorBase:
    return constant(x, 1.0, x.expr.dtype, x.expr.shape)


def _square(x: TensorBase) -> TensorBase:
    return apply(Ops.MUL, None, x, x)


def _times(g: TensorBase, slope: TensorBase) -> Gradients:
    return (apply(Ops.MUL, None, g, slope),)


def atan(g: TensorBase, out: TensorBase, sources: Sources, about: About) -> Gradients:
    """atan(x): g / (1 + x²)."""
    return (apply(Ops.DIV, None, g, apply(Ops.ADD, None, _square(sources[0]), _one(out))),)


def asin(g: TensorBase, out: TensorBase, sources: Sources, about: About) -> Gradients:
    """asin(x): g / sqrt(1 - x²)."""
    return _times(g, rsqrt(apply(Ops.SUB, None, _one(out), _square(sources[0]))))


def acos(g: TensorBase, out: TensorBase, sources: Sources, about: About) -> Gradients:
    """acos(x): -g / sqrt(1 - x²)."""
    return (apply(Ops.NEG, None, *_of(asin(g, out, sources, about))),)


def _of(found: Gradients) -> tuple[TensorBase, ...]:
    return tuple([g for g in found if g is not None])


def atan2(g: TensorBase, out: TensorBase, sources: Sources, about: About) -> Gradients:
    """atan2(y, x): g x / (x² + y²), -g y / (x² + y²); 0 at the origin."""
    y, x = sources
    size = apply(Ops.ADD, None, _square(x), _square(y))
    zero = constant(g, 0.0, g.expr.dtype, g.expr.shape)
    share = where(apply(Ops.EQ, None, size, zero), zero, apply(Ops.DIV, None, g, size))
    return apply(Ops.MUL, None, share, x), apply(Ops.NEG, None, apply(Ops.MUL, None, share, y))


def of_sinh(g: TensorBase, out: TensorBase, sources: Sources, about: About) -> Gradients:
    """sinh(x): g cosh(x)."""
    return _times(g, cosh(sources[0]))


def of_cosh(g: TensorBase, out: TensorBase, sources: Sources, about: About) -> Gradients:
    """cosh(x): g sinh(x)."""
    return _times(g, sinh(sources[0]))


def asinh(g: TensorBase, out: TensorBase, sources: Sources, about: About) -> Gradients:
    """asinh(x): g / sqrt(x² + 1)."""
    return _times(g, rsqrt(apply(Ops.ADD, None, _square(sources[0]), _one(out))))


def acosh(g: TensorBase, out: TensorBase, sources: Sources, about: About) -> Gradients:
    """acosh(x): g / sqrt(x² - 1)."""
    return _times(g, rsqrt(apply(Ops.SUB, None, _square(sources[0]), _one(out))))


def atanh(g: TensorBase, out: TensorBase, sources: Sources, about: About) -> Gradients:
    """atanh(x): g / (1 - x²)."""
    return (apply(Ops.DIV, None, g, apply(Ops.SUB, None, _one(out), _square(sources[0]))),)


def erfinv(g: TensorBase, out: TensorBase, sources: Sources, about: About) -> Gradients:
    """erfinv(x): g sqrt(pi) / 2 e**(y²)."""
    half = constant(out, math.sqrt(math.pi) / 2, out.expr.dtype, out.expr.shape)
    return _times(g, apply(Ops.MUL, None, exp(_square(out)), half))


def of_lgamma(g: TensorBase, out: TensorBase, sources: Sources, about: About) -> Gradients:
    """lgamma(x): g digamma(x)."""
    return _times(g, digamma(sources[0]))


def nextafter(g: TensorBase, out: TensorBase, sources: Sources, about: About) -> Gradients:
    """nextafter(x, y): g for x, 0 where both are equal; nothing for y."""
    same = apply(Ops.EQ, None, *sources)
    return where(same, 0.0, g), None


RULES: Final[dict[str, Callable[[TensorBase, TensorBase, Sources, About], Gradients]]] = {
    "atan": atan,
    "asin": asin,
    "acos": acos,
    "atan2": atan2,
    "sinh": of_sinh,
    "cosh": of_cosh,
    "asinh": asinh,
    "acosh": acosh,
    "atanh": atanh,
    "erfinv": erfinv,
    "lgamma": of_lgamma,
    "nextafter": nextafter,
}
