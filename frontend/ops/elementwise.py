"""Elementwise methods: sums, products, bits, selections, comparisons and closeness.

Operands are tensors on one device and Python numbers. Shapes broadcast, aligned at the end; dtypes promote by
`result_dtype`. Shapes that do not broadcast, and tensors on several devices, raise `UsageError`, operands of
other classes `UsageTypeError`.

Not here: functions of one number (`functions`). Next: `arithmetic`, division and powers.
"""

# ruff: noqa: I001, FBT001, FBT002 - lists of names stand in rows; the field's signatures

from __future__ import annotations

import builtins
import math
from collections.abc import Callable
from functools import wraps
from typing import Any, Final

from compiler.dtype import DType, dtypes, promote
from compiler.ir.ops import Ops
from compiler.ir.scalar import convert as converted
from frontend.arguments.checks import broadcast, number_dtype, representable
from frontend.evaluation.base import T, TensorBase
from frontend.evaluation.constants import (
    Number, constant, convert, number_like, ruled, spread, suited, widened_float,
)  # fmt: skip
from frontend.evaluation.expr import float_dtype
from frontend.evaluation.trace import apply, composite, method, named, operator
from hcq.errors import UsageError

MASKS: Final = (dtypes.bool, dtypes.uint8)
"""Dtypes of masks; uint8 is that of PyTorch's former ones."""


def result_dtype(*operands: TensorBase | Number) -> DType:
    """Return the dtype of an elementwise result of tensors and numbers: PyTorch's rule of categories.

    Bool, integers and floats are three categories, in ascending order. Tensors with axes decide first, then
    tensors of shape (), then Python's numbers: a later operand changes the dtype only if its category is
    higher. Operands of one kind are combined by `compiler.dtype.promote`. So `half * Tensor(0.5)` and
    `half * 0.5` are float16, `int8 + tensor(1000)` is int8, and `int8 * 0.5` is float32.

    A difference from PyTorch: unsigned integers of 16 to 64 bits promote, where PyTorch refuses them: with a
    signed integer to the signed dtype that holds both, uint64 with a signed integer to float64, as in NumPy.
    """
    wide: DType | None = None
    scalar: DType | None = None
    numbers: list[Number] = []
    for x in operands:
        if isinstance(x, (int, float)):
            numbers.append(x)
        elif x.expr.shape:
            wide = x.expr.dtype if wide is None else promote(wide, x.expr.dtype)
        else:
            scalar = x.expr.dtype if scalar is None else promote(scalar, x.expr.dtype)
    found = scalar if wide is None else wide if scalar is None else beside(wide, scalar)
    for number in sorted(numbers, key=lambda n: isinstance(n, float)):
        found = number_dtype(number, dtypes.bool if found is None else found)
    assert found is not None  # there is at least one operand
    return found


def beside(wide: DType, scalar: DType) -> DType:
    """Return the result dtype of a tensor with axes and one of shape ()."""
    category = {"bool": 0, "int": 1, "uint": 1, "float": 2}
    return scalar if category[scalar.kind] > category[wide.kind] else wide


def is_half(dtype: DType) -> bool:
    """Return whether a dtype is a 16-bit float."""
    return dtype.is_float and dtype.bits == 16


def agree(what: str, a: T, b: T | Number, *, floats: bool = False) -> tuple[T, T]:
    """Return both operands in one shape and dtype; with `floats` the dtype is a float.

    Raises `UsageError` for shapes that do not broadcast; `what` starts the message.
    """
    dtype = result_dtype(a, b)
    if floats:
        dtype = float_dtype(dtype)
    if isinstance(b, (int, float)):
        return convert(a, dtype), constant(a, wrapped(b, dtype), dtype, a.expr.shape)
    shape = broadcast((a.expr.shape, b.expr.shape), what)
    return spread(convert(a, dtype), shape), spread(convert(b, dtype), shape)


def in_float32(fn: Callable[..., Any]) -> Callable[..., Any]:
    """Decorate a function of tensors and numbers: compute 16-bit floats in float32, round the result once."""

    @wraps(fn)
    def call(*args: Any, **names: Any) -> Any:
        dtype = result_dtype(*args)
        if not is_half(dtype):
            return fn(*args, **names)
        return convert(fn(*[widened_float(a) if hasattr(a, "expr") else a for a in args], **names), dtype)

    return call


def rounding_once(fn: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """Decorate an operator: keep a number beside 16-bit floats in float32, and round the result once.

    PyTorch does so for products and quotients, and on GPUs for sums. For comparisons, powers and remainders,
    which are not decorated, it rounds the number first. A tensor of shape () beside one with axes counts as a
    number.
    """
    wide = in_float32(fn)

    @wraps(fn)
    def call(self: Any, other: Any) -> Any:
        dtype = self.expr.dtype
        finer = is_half(dtype) and (
            converted(representable(other), dtype) != other
            if isinstance(other, (int, float))
            else self.expr.shape and not other.expr.shape and other.expr.dtype is not dtype
        )
        return (wide if finer else fn)(self, other)

    call.rounds_once = True  # type: ignore[attr-defined]  # read by `frontend.evaluation.trace`
    return call


def wrapped(value: Number, dtype: DType) -> Number:
    """Return a number, wrapped around if the dtype is an integer that cannot hold it, as in PyTorch."""
    if dtype.is_int and not dtype.min <= value <= dtype.max:
        return (int(value) - dtype.min) % (1 << dtype.bits) + dtype.min
    return value


@operator
@rounding_once
def add(self: T, other: T | Number) -> T:
    """Return the sum, broadcast and promoted; for two bools self or other.

    Shapes broadcast, aligned at the end; dtypes promote as in PyTorch (`result_dtype`). Raises `UsageError`
    for shapes that do not broadcast; so do all methods of two tensors.
    """
    x, y = agree("add", self, other)
    return apply(Ops.OR if x.expr.dtype is dtypes.bool else Ops.ADD, None, x, y)


def _difference(what: str, x: T, y: T) -> T:
    if x.expr.dtype is dtypes.bool:
        raise UsageError(
            f"{what} of two bools is refused\nhint: ^ gives where they differ; or cast one of them"
        )
    return apply(Ops.SUB, None, x, y)


@operator
@rounding_once
def sub(self: T, other: T | Number) -> T:
    """Return the difference; two bools raise `UsageError`, as in PyTorch: use `^`."""
    return _difference("sub", *agree("sub", self, other))


@operator
@rounding_once
def rsub(self: T, other: T | Number) -> T:
    """Return other - self."""
    x, y = agree("sub", self, other)
    return _difference("sub", y, x)


@operator
@rounding_once
def mul(self: T, other: T | Number) -> T:
    """Return the product, broadcast and promoted; for two bools self and other."""
    x, y = agree("mul", self, other)
    return apply(Ops.AND if x.expr.dtype is dtypes.bool else Ops.MUL, None, x, y)


@operator
def maximum(self: T, other: T | Number) -> T:
    """Return the greater of self and other; NaN if one is NaN."""
    return apply(Ops.MAX, None, *agree("maximum", self, other))


@operator
def minimum(self: T, other: T | Number) -> T:
    """Return the lesser of self and other; NaN if one is NaN."""
    return apply(Ops.MIN, None, *agree("minimum", self, other))


@method
def neg(self: T) -> T:
    """Return -self; unsigned integers wrap around. Raises `UsageError` for bools, as PyTorch: use `~`."""
    if self.expr.dtype is dtypes.bool:
        raise UsageError("-x of a bool is refused\nhint: ~x is its negation; or cast it")
    return apply(Ops.NEG, None, self)


def pos(self: T) -> T:
    """Return self; a bool raises `UsageError`, as in PyTorch."""
    if self.expr.dtype is dtypes.bool:
        raise UsageError("+x of a bool is refused; cast it")
    return self


@method
def invert(self: T) -> T:
    """Return every bit inverted; for a bool not self. Raises `UsageError` for floats."""
    if self.expr.dtype.is_float:
        raise UsageError(f"~ needs integers or bool, saw {self.expr.dtype.name}; cast first")
    return apply(Ops.NOT, None, self)


def _of_bits(name: str, op: str, text: str, *, swap: bool = False) -> Callable[[T, T | Number], T]:
    """Return the operator of an operation on bits of integers or bools; `swap` exchanges the operands.

    It raises `UsageError` for floats, and for a shift of a bool by a bool.
    """

    def function(self: T, other: T | Number) -> T:
        what = name[1:] if swap else name
        x, y = agree(what, self, other)
        if x.expr.dtype.is_float:
            raise UsageError(f"{what} needs integers or bool, saw {x.expr.dtype.name}; cast first")
        if op in (Ops.SHL, Ops.SHR) and x.expr.dtype is dtypes.bool:
            raise UsageError(f"{what} needs integers, saw bool; cast first")
        return apply(op, None, y, x) if swap else apply(op, None, x, y)

    return operator(named(name, text, function))


bitwise_and = _of_bits("bitwise_and", Ops.AND, "Return the bitwise and. Raises `UsageError` for floats.")
bitwise_or = _of_bits("bitwise_or", Ops.OR, "Return the bitwise or. Raises `UsageError` for floats.")
bitwise_xor = _of_bits("bitwise_xor", Ops.XOR, "Return the bitwise exclusive or. Raises as `bitwise_or`.")
lshift = _of_bits(
    "lshift",
    Ops.SHL,
    """Return the bits shifted left; a negative shift, and one by the width or more, gives 0.

    Raises `UsageError` for floats and for two bools.
    """,
)
rshift = _of_bits(
    "rshift",
    Ops.SHR,
    """Return the bits shifted right, keeping the sign of signed integers.

    A negative shift, and one by the width or more, gives 0, or -1 for negative numbers. Raises as `lshift`.
    """,
)
rlshift = _of_bits("rlshift", Ops.SHL, "Return other << self.", swap=True)
rrshift = _of_bits("rrshift", Ops.SHR, "Return other >> self.", swap=True)


@composite
def where(self: T, a: T | Number, b: T | Number) -> T:
    """Return a where self, a bool tensor, is true, else b; all three broadcast.

    As `where_of`, but a bool tensor self is the condition also beside a bool tensor a.
    """
    first: Any = a
    if self.expr.dtype is not dtypes.bool and hasattr(a, "expr") and a.expr.dtype in MASKS:
        found: T = where(convert(first, dtypes.bool), self, b)
        return found
    if self.expr.dtype is dtypes.uint8:
        self = convert(self, dtypes.bool)
    if self.expr.dtype is not dtypes.bool:
        raise UsageError(
            f"where: the condition must be bool, saw {self.expr.dtype.name}\n"
            "hint: compare it, as in (x != 0).where(a, b)"
        )
    dtype = result_dtype(a, b)
    shape = broadcast([self.expr.shape, *[x.expr.shape for x in (a, b) if hasattr(x, "expr")]], "where")
    parts = [
        constant(self, x, dtype, shape) if isinstance(x, (int, float)) else spread(convert(x, dtype), shape)
        for x in (a, b)
    ]
    return apply(Ops.WHERE, None, spread(self, shape), *parts)


def where_of(self: T, a: T | Number, b: T | Number) -> T:
    """Return a where self, a bool tensor, is true, else b; all three broadcast.

    a and b promote to one dtype. If a is a bool tensor, it is the condition: `x.where(condition, b)` is x
    where the condition is true, as in PyTorch, also for a condition of uint8 unless x is bool. Raises
    `UsageError` if neither is bool.
    """
    first: Any = a
    return where(first, self, b) if _is_bool(first) and _is_bool(self) else where(self, a, b)


where_of.__name__ = "where"  # as the rules of symbolic sizes name it


def _is_bool(x: Any) -> bool:
    return hasattr(x, "dtype") and x.dtype is dtypes.bool


def chosen(condition: T, a: Any, b: Any) -> T:
    """Return a where a bool tensor is true, else b; unlike `x.where`, also for an a of bools."""
    first: Any = condition
    found: T = a.where(condition, b) if _is_bool(a) else first.where(a, b)
    return found


@composite
def masked_fill(self: T, mask: T, value: T | Number) -> T:
    """Return self with `value` where a bool mask is true; shapes broadcast.

    The dtype is that of self: a float value is truncated for integers. Raises `UsageError` for a mask that is
    not bool and for a number that does not fit.
    """
    dtype = self.expr.dtype
    if isinstance(value, (int, float)):
        return where(mask, constant(self, suited(value, dtype), dtype, ()), self)
    return where(mask, convert(value, dtype), self)


@composite
def clip(self: T, low: T | Number | None = None, high: T | Number | None = None) -> T:
    """Return values limited to low..high, which are numbers or tensors; None: no limit on that side.

    Where low is above high the result is high. The dtype is that to which all promote. The gradient on a
    bound is 1 for self and 0 for the bound, as in PyTorch up to 2.13.

    Raises `UsageError` without any bound.
    """
    if low is None and high is None:
        raise UsageError("clip: give low, high or both (min and max, as PyTorch names them)")
    value = self
    if low is not None:
        value = maximum(value, low)
    if high is not None:
        value = minimum(value, high)
    dtype, shape = value.expr.dtype, value.expr.shape
    bounds = [
        constant(value, b, dtype, shape) if isinstance(b, (int, float)) else spread(convert(b, dtype), shape)
        for b in (low, high)
        if b is not None
    ]
    about = (low is not None, high is not None)
    return ruled("clip", value, spread(convert(self, dtype), shape), *bounds, about=about)


def lerp(self: T, end: T, weight: T | Number) -> T:
    """Return self + (end - self) * weight, exactly `end` for a weight of 1.

    Shapes broadcast; integers give float32; 16-bit floats are rounded once.
    """
    found: T = _lerp(self, end, weight)
    return found


@composite
@in_float32
def _lerp(self: T, end: T, weight: T | Number) -> T:
    """Start from the end that is nearer, so that a weight of 1 gives the end exactly."""
    x, y = agree("lerp", self, end, floats=True)
    x, w = agree("lerp", x, weight)
    y = spread(convert(y, x.expr.dtype), x.expr.shape)
    span = apply(Ops.SUB, None, y, x)
    dtype, shape = x.expr.dtype, x.expr.shape
    rest = apply(Ops.SUB, None, constant(x, 1.0, dtype, shape), w)
    near = apply(Ops.ADD, None, x, apply(Ops.MUL, None, w, span))
    far = apply(Ops.SUB, None, y, apply(Ops.MUL, None, span, rest))
    small = apply(Ops.LT, None, apply(Ops.ABS, None, w), constant(x, 0.5, dtype, shape))
    return ruled("lerp", apply(Ops.WHERE, None, small, near, far), x, y, w)


def _sides(what: str, a: T, b: T | Number) -> tuple[T, T]:
    """Return both operands in one dtype, for a comparison.

    A whole number outside the range of a's dtype is replaced by a comparison of constants. Two integer
    tensors are converted to the dtype to which both promote, also if one has shape ().
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
    """Return two integer tensors, broadcast, if no integer dtype holds the values of both; else None."""
    if isinstance(b, (int, float)) or not (a.expr.dtype.is_int and b.expr.dtype.is_int):
        return None
    if not promote(a.expr.dtype, b.expr.dtype).is_float:
        return None
    shape = broadcast((a.expr.shape, b.expr.shape), what)
    return spread(a, shape), spread(b, shape)


def _signed_less(x: T, y: T) -> T:
    """Return x < y, exactly, where one is signed and the other unsigned."""
    signed, unsigned = (x, y) if x.expr.dtype.kind == "int" else (y, x)
    zero = number_like(signed, 0)
    negative = apply(Ops.LT, None, signed, zero)
    turned = apply(Ops.CAST, unsigned.expr.dtype, signed)
    if signed is x:
        return apply(Ops.OR, None, negative, apply(Ops.LT, None, turned, y))
    return apply(Ops.AND, None, apply(Ops.NOT, None, negative), apply(Ops.LT, None, x, turned))


def _signed_equal(x: T, y: T) -> T:
    """Return x == y, exactly, where one is signed and the other unsigned."""
    signed, unsigned = (x, y) if x.expr.dtype.kind == "int" else (y, x)
    zero = number_like(signed, 0)
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
    """Return self <= other, as bool. Integers of any two dtypes are compared exactly."""
    mixed = _mixed("le", self, other)
    if mixed is not None:
        return apply(Ops.NOT, None, _signed_less(*reversed(mixed)))
    x, y = _sides("le", self, other)
    return apply(Ops.OR, None, apply(Ops.LT, None, x, y), apply(Ops.EQ, None, x, y))


@operator
def ge(self: T, other: T | Number) -> T:
    """Return self >= other, as bool. Integers of any two dtypes are compared exactly."""
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
    """Return whether |self - other| <= atol + rtol * |other| for each element, as bool.

    An infinity is close to an equal one only, NaN to nothing, or with `equal_nan` to NaN. Integers are
    compared in float64, 16-bit floats in float32.

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

    The result is a Python bool: the call computes and waits for the device. Raises as `isclose` and `item`.
    """
    near = isclose(self, other, rtol, atol, equal_nan)
    return builtins.bool(apply(Ops.REDUCE, (Ops.MIN, tuple(range(len(near.expr.shape)))), near).item())
