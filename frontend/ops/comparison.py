"""Comparisons of two tensors, or of a tensor and a number: elementwise, as bool; and closeness."""

from __future__ import annotations

import builtins
import math
from typing import TYPE_CHECKING

from compiler.dtype import dtypes
from compiler.ops import Ops
from frontend.lazy import apply, composite, operator
from frontend.ops.elementwise import agree
from frontend.ops.sources import Number, constant, convert

if TYPE_CHECKING:
    from frontend.tensor import Tensor


def _sides(what: str, a: Tensor, b: Tensor | Number) -> tuple[Tensor, Tensor]:
    """Return what to compare; a whole number that no element can be is only greater or less than all."""
    dtype, shape = a.expr.dtype, a.expr.shape
    if isinstance(b, int) and dtype.is_int and not dtype.min <= b <= dtype.max:
        return constant(a, 0, dtypes.int32, shape), constant(a, 1 if b > 0 else -1, dtypes.int32, shape)
    return agree(what, a, b)


@operator
def lt(self: Tensor, other: Tensor | Number) -> Tensor:
    """Return self < other, as bool."""
    return apply(Ops.LT, None, *_sides("lt", self, other))


@operator
def gt(self: Tensor, other: Tensor | Number) -> Tensor:
    """Return self > other, as bool."""
    x, y = _sides("gt", self, other)
    return apply(Ops.LT, None, y, x)


@operator
def le(self: Tensor, other: Tensor | Number) -> Tensor:
    """Return self <= other, as bool; false when one is NaN."""
    x, y = _sides("le", self, other)
    return apply(Ops.OR, None, apply(Ops.LT, None, x, y), apply(Ops.EQ, None, x, y))


@operator
def ge(self: Tensor, other: Tensor | Number) -> Tensor:
    """Return self >= other, as bool; false when one is NaN."""
    x, y = _sides("ge", self, other)
    return apply(Ops.OR, None, apply(Ops.LT, None, y, x), apply(Ops.EQ, None, x, y))


@operator
def eq(self: Tensor, other: Tensor | Number) -> Tensor:
    """Return self == other, as bool."""
    return apply(Ops.EQ, None, *_sides("eq", self, other))


@operator
def ne(self: Tensor, other: Tensor | Number) -> Tensor:
    """Return self != other, as bool."""
    return apply(Ops.NE, None, *_sides("ne", self, other))


@composite
def isclose(
    self: Tensor,
    other: Tensor | Number,
    rtol: float = 1e-5,
    atol: float = 1e-8,
    equal_nan: bool = False,  # noqa: FBT001, FBT002 - the field's signature
) -> Tensor:
    """Return where |self - other| <= atol + rtol * |other|, as bool.

    Infinities are close to themselves only; NaN to NaN when `equal_nan`. Integers are compared in float64,
    sixteen-bit floats in float32.
    """
    x, y = agree("isclose", self, other)
    dtype, shape = x.expr.dtype, x.expr.shape
    wide = dtypes.float64 if not dtype.is_float else dtypes.float32 if dtype.bits == 16 else dtype
    x, y = convert(x, wide), convert(y, wide)

    def number(value: float) -> Tensor:
        return constant(x, value, wide, shape)

    distance = apply(Ops.ABS, None, apply(Ops.SUB, None, x, y))
    share = apply(Ops.MUL, None, apply(Ops.ABS, None, y), number(rtol))
    near = le(distance, apply(Ops.ADD, None, share, number(atol)))
    near = apply(Ops.AND, None, near, apply(Ops.LT, None, distance, number(math.inf)))
    close = apply(Ops.OR, None, near, apply(Ops.EQ, None, x, y))
    if not equal_nan:
        return close
    return apply(Ops.OR, None, close, apply(Ops.AND, None, ne(x, x), ne(y, y)))


def allclose(
    self: Tensor,
    other: Tensor | Number,
    rtol: float = 1e-5,
    atol: float = 1e-8,
    equal_nan: bool = False,  # noqa: FBT001, FBT002 - the field's signature
) -> builtins.bool:
    """Compute, and return whether all elements are close: see `isclose`."""
    near = isclose(self, other, rtol, atol, equal_nan)
    return builtins.bool(apply(Ops.REDUCE, (Ops.MIN, tuple(range(len(near.expr.shape)))), near).item())
