"""Comparisons of two tensors, or of a tensor and a number: elementwise, as bool; and closeness.

Not here: sums, products and selections (`elementwise`), the operators `==`, `<`, ... (`frontend.operators`).
"""

# ruff: noqa: FBT001, FBT002 - the field's signatures

from __future__ import annotations

import builtins
import math

from compiler.dtype import dtypes, promote
from compiler.ir.ops import Ops
from frontend.ops.arguments import broadcast, representable
from frontend.ops.elementwise import agree
from frontend.ops.sources import Number, constant, convert, spread
from frontend.tensor_base import T
from frontend.trace import apply, composite, operator
from hcq.errors import UsageError


def _sides(what: str, a: T, b: T | Number) -> tuple[T, T]:
    """Return both operands in one dtype, for a comparison.

    A whole number that no element can be is only greater or less than all. Integers are compared as they are,
    whichever has axes: in a dtype that holds both.
    """
    dtype, shape = a.expr.dtype, a.expr.shape
    if isinstance(b, (int, float)):
        if isinstance(b, int) and dtype.is_int and not dtype.min <= b <= dtype.max:
            return constant(a, 0, dtypes.int32, shape), constant(a, 1 if b > 0 else -1, dtypes.int32, shape)
    elif dtype.is_int and b.expr.dtype.is_int:
        common = broadcast((shape, b.expr.shape), what)
        both = promote(dtype, b.expr.dtype)
        return spread(convert(a, both), common), spread(convert(b, both), common)
    return agree(what, a, b)


def _mixed(what: str, a: T, b: T | Number) -> tuple[T, T] | None:
    """Return two integers, broadcast, when one is signed and no integer dtype holds both; else None."""
    if isinstance(b, (int, float)) or not (a.expr.dtype.is_int and b.expr.dtype.is_int):
        return None
    if not promote(a.expr.dtype, b.expr.dtype).is_float:
        return None
    shape = broadcast((a.expr.shape, b.expr.shape), what)
    return spread(a, shape), spread(b, shape)


def _signed_less(x: T, y: T) -> T:
    """Return x < y of a signed and an unsigned integer, either way round, exactly."""
    signed, unsigned = (x, y) if x.expr.dtype.kind == "int" else (y, x)
    zero = constant(signed, 0, signed.expr.dtype, signed.expr.shape)
    negative = apply(Ops.LT, None, signed, zero)
    turned = apply(Ops.CAST, unsigned.expr.dtype, signed)
    if signed is x:
        return apply(Ops.OR, None, negative, apply(Ops.LT, None, turned, y))
    return apply(Ops.AND, None, apply(Ops.NOT, None, negative), apply(Ops.LT, None, x, turned))


def _signed_equal(x: T, y: T) -> T:
    """Return x == y of a signed and an unsigned integer, exactly."""
    signed, unsigned = (x, y) if x.expr.dtype.kind == "int" else (y, x)
    zero = constant(signed, 0, signed.expr.dtype, signed.expr.shape)
    there = apply(Ops.NOT, None, apply(Ops.LT, None, signed, zero))
    turned = apply(Ops.CAST, unsigned.expr.dtype, signed)
    return apply(Ops.AND, None, there, apply(Ops.EQ, None, turned, unsigned))


@operator
def lt(self: T, other: T | Number) -> T:
    """Return self < other, as bool. Integers of any two dtypes are compared exactly."""
    mixed = _mixed("lt", self, other)
    return apply(Ops.LT, None, *_sides("lt", self, other)) if mixed is None else _signed_less(*mixed)


@operator
def gt(self: T, other: T | Number) -> T:
    """Return self > other, as bool. Integers of any two dtypes are compared exactly."""
    mixed = _mixed("gt", self, other)
    if mixed is not None:
        return _signed_less(*reversed(mixed))
    x, y = _sides("gt", self, other)
    return apply(Ops.LT, None, y, x)


@operator
def le(self: T, other: T | Number) -> T:
    """Return self <= other, as bool; false when one is NaN.

    Integers of any two dtypes are compared exactly.
    """
    mixed = _mixed("le", self, other)
    if mixed is not None:
        return apply(Ops.NOT, None, _signed_less(*reversed(mixed)))
    x, y = _sides("le", self, other)
    return apply(Ops.OR, None, apply(Ops.LT, None, x, y), apply(Ops.EQ, None, x, y))


@operator
def ge(self: T, other: T | Number) -> T:
    """Return self >= other, as bool; false when one is NaN.

    Integers of any two dtypes are compared exactly.
    """
    mixed = _mixed("ge", self, other)
    if mixed is not None:
        return apply(Ops.NOT, None, _signed_less(*mixed))
    x, y = _sides("ge", self, other)
    return apply(Ops.OR, None, apply(Ops.LT, None, y, x), apply(Ops.EQ, None, x, y))


@operator
def eq(self: T, other: T | Number) -> T:
    """Return self == other, as bool. Integers of any two dtypes are compared exactly."""
    mixed = _mixed("eq", self, other)
    return apply(Ops.EQ, None, *_sides("eq", self, other)) if mixed is None else _signed_equal(*mixed)


@operator
def ne(self: T, other: T | Number) -> T:
    """Return self != other, as bool. Integers of any two dtypes are compared exactly."""
    mixed = _mixed("ne", self, other)
    if mixed is not None:
        return apply(Ops.NOT, None, _signed_equal(*mixed))
    return apply(Ops.NE, None, *_sides("ne", self, other))


@composite
def isclose(self: T, other: T | Number, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False) -> T:
    """Return where |self - other| <= atol + rtol * |other|, as bool.

    Infinities are close to themselves only; NaN to NaN when `equal_nan`. Integers are compared in float64,
    sixteen-bit floats in float32.

    Shapes broadcast. Raises `UsageError` for a negative tolerance.
    """
    if rtol < 0 or atol < 0:
        raise UsageError(f"isclose: wanted tolerances of at least 0, saw rtol={rtol} and atol={atol}")
    x, y = agree("isclose", self, other)
    dtype, shape = x.expr.dtype, x.expr.shape
    wide = dtypes.float64 if not dtype.is_float else dtypes.float32 if dtype.bits == 16 else dtype
    x, y = convert(x, wide), convert(y, wide)

    def number(value: float) -> T:
        return constant(x, representable(value), wide, shape)

    distance = apply(Ops.ABS, None, apply(Ops.SUB, None, x, y))
    share = apply(Ops.MUL, None, apply(Ops.ABS, None, y), number(rtol))
    near = le(distance, apply(Ops.ADD, None, share, number(atol)))
    near = apply(Ops.AND, None, near, apply(Ops.LT, None, distance, number(math.inf)))
    close = apply(Ops.OR, None, near, apply(Ops.EQ, None, x, y))
    if not equal_nan:
        return close
    return apply(Ops.OR, None, close, apply(Ops.AND, None, ne(x, x), ne(y, y)))


def allclose(
    self: T, other: T | Number, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False
) -> builtins.bool:
    """Return whether all elements are close; see `isclose`.

    The result is a Python bool, so this computes and waits for the device.
    """
    near = isclose(self, other, rtol, atol, equal_nan)
    return builtins.bool(apply(Ops.REDUCE, (Ops.MIN, tuple(range(len(near.expr.shape)))), near).item())
