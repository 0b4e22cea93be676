"""Scalar values of kernels: each constructor returns the simplest equal node, under strict floating point.

The scheduler builds values bottom-up through `alu`. It folds constants and applies the rule of the operation,
a function in the table `RULES`. No rule changes a bit of a result, not even of signed zeros: `x + 0.0` is
kept, because it makes 0.0 of -0.0; `x - 0.0` and `x * 1.0` become x. Integer arithmetic on coordinates
becomes index arithmetic; other arithmetic of int64 is in int32 where the result is the same (`narrowing`). A
rule returns None if it does not apply.

`combine` makes REDUCE nodes. A range on which the value does not depend needs no loop: a sum over it is a
multiplication, a product a power.

Not here: the arithmetic on constants (`scalar`), index arithmetic (`index`), the loops of reductions
(`compiler.emit.reductions`). Next: `compiler.schedule.lower`, which builds kernels with these constructors.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from compiler.dtype import DType, dtypes
from compiler.ir import index as symbolic
from compiler.ir import narrowing
from compiler.ir.ops import COMPARE, Ops
from compiler.ir.scalar import compute
from compiler.ir.uop import UOp, const, uop

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


Sources = tuple[UOp, ...]


def alu(op: str, dtype: DType, src: Sources) -> UOp:
    """Return the simplest node equal to op(src) with a result of `dtype`; `src` are values of kernels."""
    if all([s.op is Ops.CONST for s in src]):  # noqa: C419 - a list is faster, and this is hot
        value = compute(op, dtype, [s.arg for s in src], src[0].dtype)
        if value is not None:
            return const(value, dtype)
    rule = RULES.get(op)
    if rule is not None:
        found = rule(dtype, src)
        if found is not None:
            return found
    if src[-1].dtype is dtypes.int64 and op in narrowing.OPERATIONS:
        narrow = narrowing.narrowed(op, src)
        if narrow is not None:
            if op in COMPARE:
                return alu(op, dtype, narrow)
            return alu(Ops.CAST, dtype, (alu(op, dtypes.int32, narrow),))
    return uop(op, dtype, src)


def number(index: UOp, dtype: DType) -> UOp:
    """Return an index or a mask as a value of `dtype`."""
    if index.op is Ops.CONST:
        return const(index.arg, dtype)
    return uop(Ops.IVALUE, dtype, (index,))


def index_of(value: UOp, low: int = -(1 << 63), high: int = 1 << 64) -> UOp:
    """Return an integer value between bounds as an index: a coordinate as arithmetic, others as INDEXOF."""
    if value.op is Ops.CONST:
        return symbolic.const(int(value.arg))
    if value.op is Ops.IVALUE:
        return value.src[0]
    if value.op is Ops.CAST and _holds(value.dtype, value.src[0]):
        return index_of(value.src[0], low, high)
    return uop(Ops.INDEXOF, dtypes.index, (value,), (max(low, value.vmin), min(high, value.vmax)))


def _holds(dtype: DType, x: UOp) -> bool:
    """Return whether an integer dtype has every value of the integer node x."""
    return x.dtype.is_int and dtype.is_int and dtype.min <= x.vmin and x.vmax <= dtype.max


def is_constant(x: UOp, value: float) -> bool:
    """Return whether x is the constant `value`; 0.0 and -0.0 are different."""
    if x.op is not Ops.CONST or x.arg != value:
        return False
    return value != 0 or math.copysign(1.0, x.arg) == math.copysign(1.0, value)


def _affine(x: UOp) -> UOp | None:
    """Return a coordinate or an integer constant as an index; None for other values."""
    if x.op is Ops.IVALUE and x.dtype is not dtypes.bool:
        return x.src[0]
    if x.op is Ops.CONST:
        return symbolic.const(x.arg)
    return None


def _coordinate(dtype: DType, index: UOp) -> UOp | None:
    """Return an index as a value of dtype; None if it may overflow or dtype is not int32 or int64."""
    if dtype in (dtypes.int32, dtypes.int64) and dtype.min <= index.vmin and index.vmax <= dtype.max:
        return number(index, dtype)
    return None


def _two_coordinates(dtype: DType, src: Sources) -> tuple[UOp, UOp] | None:
    if dtype.kind != "int" or (src[0].op is not Ops.IVALUE and src[1].op is not Ops.IVALUE):
        return None
    a, b = _affine(src[0]), _affine(src[1])
    return None if a is None or b is None else (a, b)


def fold_add(dtype: DType, src: Sources) -> UOp | None:
    """Fold x + -0.0 → x; integers: x + 0 → x; coordinates add as indices."""
    a, b = src
    zero = -0.0 if dtype.is_float else 0
    if is_constant(b, zero):
        return a
    if is_constant(a, zero):
        return b
    pair = _two_coordinates(dtype, src)
    return _coordinate(dtype, symbolic.add(*pair)) if pair else None


def fold_sub(dtype: DType, src: Sources) -> UOp | None:
    """Fold x - 0 → x; integers: x - x → 0; coordinates subtract as indices."""
    a, b = src
    if is_constant(b, 0.0 if dtype.is_float else 0):
        return a
    if a is b and dtype.is_int:
        return const(0, dtype)
    pair = _two_coordinates(dtype, src)
    return _coordinate(dtype, symbolic.add(pair[0], symbolic.mul(pair[1], -1))) if pair else None


def fold_mul(dtype: DType, src: Sources) -> UOp | None:
    """Fold x * 1 → x; floats: x * -1 → NEG x; integers: x * 0 → 0; coordinate * number → coordinate."""
    for x, y in (src, src[::-1]):
        if y.op is not Ops.CONST:
            continue
        if y.arg == 1:
            return x
        if dtype.is_float and y.arg == -1:
            return alu(Ops.NEG, dtype, (x,))
        if dtype.is_int and y.arg == 0:
            return y
        if x.op is Ops.IVALUE:
            return _coordinate(dtype, symbolic.mul(x.src[0], y.arg))
    return None


def fold_div(dtype: DType, src: Sources) -> UOp | None:
    """Fold x / 1 → x; x / 2**k → x * 2**-k, which rounds equally."""
    x, y = src
    if y.op is not Ops.CONST:
        return None
    if y.arg == 1:
        return x
    if y.arg != 0 and math.isfinite(y.arg) and abs(math.frexp(y.arg)[0]) == 0.5:
        inverse = const(1 / y.arg, dtype)
        if inverse.arg * y.arg == 1:
            return alu(Ops.MUL, dtype, (x, inverse))
    return None


def fold_floordiv(dtype: DType, src: Sources) -> UOp | None:
    """Fold x // 1 → x; coordinate // positive number → coordinate."""
    x, y = src
    if y.op is Ops.CONST and y.arg > 0:
        if y.arg == 1:
            return x
        if x.op is Ops.IVALUE:
            return _coordinate(dtype, symbolic.div(x.src[0], y.arg))
    return None


def fold_mod(dtype: DType, src: Sources) -> UOp | None:
    """Fold x % 1 → 0; x % n → x if 0 <= x < n; coordinate % positive number → coordinate."""
    x, y = src
    if y.op is Ops.CONST and y.arg > 0:
        if y.arg == 1:
            return const(0, dtype)
        if x.vmin >= 0 and x.vmax < y.arg:
            return x
        if x.op is Ops.IVALUE:
            return _coordinate(dtype, symbolic.mod(x.src[0], y.arg))
    return None


def fold_pow(dtype: DType, src: Sources) -> UOp | None:
    """Fold x**0 → 1; x**1 → x; 1**x → 1, also for NaN."""
    x, y = src
    if (y.op is Ops.CONST and y.arg == 0) or (x.op is Ops.CONST and x.arg == 1):
        return const(1, dtype)
    return x if y.op is Ops.CONST and y.arg == 1 else None


def fold_same(_dtype: DType, src: Sources) -> UOp | None:
    """MAX(x, x), MIN(x, x) → x."""
    return src[0] if src[0] is src[1] else None


def fold_and(dtype: DType, src: Sources) -> UOp | None:
    """Fold x & x → x; x & 0 → 0; x & (all bits) → x; two masks → their conjunction."""
    a, b = src
    if a is b:
        return a
    everything = 1 if dtype is dtypes.bool else -1 if dtype.kind == "int" else dtype.max
    for x, y in (src, src[::-1]):
        if y.op is Ops.CONST and y.arg == 0:
            return y
        if y.op is Ops.CONST and y.arg == everything:
            return x
    if dtype is dtypes.bool and a.op is Ops.IVALUE and b.op is Ops.IVALUE:
        return number(symbolic.both(a.src[0], b.src[0]), dtype)
    return None


def fold_or(dtype: DType, src: Sources) -> UOp | None:
    """Fold x | x → x; x | 0 → x; bools: x | true → true."""
    if src[0] is src[1]:
        return src[0]
    for x, y in (src, src[::-1]):
        if y.op is Ops.CONST and y.arg == 0:
            return x
        if dtype is dtypes.bool and y.op is Ops.CONST:
            return y
    return None


def fold_xor(dtype: DType, src: Sources) -> UOp | None:
    """Fold x ^ 0 → x; x ^ x → 0; x ^ true → NOT x."""
    if src[0] is src[1]:
        return const(0, dtype)
    for x, y in (src, src[::-1]):
        if y.op is Ops.CONST and y.arg == 0:
            return x
        if y.op is Ops.CONST and dtype is dtypes.bool:
            return alu(Ops.NOT, dtype, (x,))
    return None


def fold_shift(_dtype: DType, src: Sources) -> UOp | None:
    """Fold a shift by 0 → x."""
    return src[0] if src[1].op is Ops.CONST and src[1].arg == 0 else None


def fold_neg(dtype: DType, src: Sources) -> UOp | None:
    """NEG NEG x → x; NEG coordinate → coordinate."""
    x = src[0]
    if x.op is Ops.NEG:
        return x.src[0]
    return _coordinate(dtype, symbolic.mul(x.src[0], -1)) if x.op is Ops.IVALUE else None


def fold_not(_dtype: DType, src: Sources) -> UOp | None:
    """NOT NOT x → x; NOT (x < c) → x >= c on masks."""
    x = src[0]
    if x.op is Ops.NOT:
        return x.src[0]
    if x.op is Ops.IVALUE and x.src[0].op is Ops.ILT:
        part = x.src[0]
        return number(symbolic.ge(part.src[0], part.arg), dtypes.bool)
    return None


def fold_abs(_dtype: DType, src: Sources) -> UOp | None:
    """ABS NEG x, ABS ABS x → ABS x; ABS x → x if x is never negative."""
    x = src[0]
    if x.op is Ops.NEG:
        return alu(Ops.ABS, x.dtype, x.src)
    return x if x.op is Ops.ABS or (x.dtype.is_int and x.vmin >= 0) else None


def fold_cast(dtype: DType, src: Sources) -> UOp | None:
    """CAST to the same dtype → x; CAST CAST x → CAST x if the intermediate dtype has every value of x.

    A coordinate is converted from int32 if it fits. The second rule does not apply to integer → float →
    integer if the last dtype lacks a value of x: a cast of a float saturates, a cast of an integer wraps.
    """
    x = src[0]
    if x.dtype is dtype:
        return x
    if x.op is Ops.CAST and exact_cast(x.src[0].dtype, x.dtype):
        first = x.src[0]
        if not (first.dtype.is_int and x.dtype.is_float and dtype.is_int) or _holds(dtype, first):
            return alu(Ops.CAST, dtype, x.src)
    if x.op is Ops.IVALUE and x.dtype is not dtypes.bool:
        found = _coordinate(dtype, x.src[0])
        narrow = narrowing.short(x) if x.dtype is dtypes.int64 and found is None else None
        return found if narrow is None else alu(Ops.CAST, dtype, (narrow,))
    return None


def exact_cast(a: DType, b: DType) -> bool:
    """Return whether dtype b has every value of dtype a."""
    if a is b or a.kind == "bool":
        return True
    if a.is_int and b.is_int:
        return b.min <= a.min and a.max <= b.max
    if b.is_float and b.computes:
        digits, reach = _FLOAT[b]
        if a.is_float:
            return _FLOAT[a][0] <= digits and _FLOAT[a][1] <= reach
        return a.bits - (a.kind == "int") <= digits and a.bits <= reach
    return False


_FLOAT: Final[dict[DType, tuple[int, int]]] = {
    dtypes.float8_e4m3fn: (4, 8),
    dtypes.float8_e5m2: (3, 15),
    dtypes.float8_e4m3fnuz: (4, 7),
    dtypes.float8_e5m2fnuz: (3, 15),
    dtypes.float16: (11, 15),
    dtypes.bfloat16: (8, 127),
    dtypes.float32: (24, 127),
    dtypes.float64: (53, 1023),
}
"""Float dtype -> (significant bits, largest exponent)."""


def fold_bitcast(dtype: DType, src: Sources) -> UOp | None:
    """BITCAST BITCAST x → BITCAST x."""
    x = src[0]
    if x.op is Ops.BITCAST:
        x = x.src[0]
        return x if x.dtype is dtype else uop(Ops.BITCAST, dtype, (x,))
    return x if x.dtype is dtype else None


def fold_where(dtype: DType, src: Sources) -> UOp | None:
    """Fold WHERE of a constant condition, of equal branches, of NOT c; WHERE(c, true, false) → c."""
    condition, a, b = src
    if a is b:
        return a
    if condition.op is Ops.CONST:
        return a if condition.arg else b
    if condition.op is Ops.NOT:
        return alu(Ops.WHERE, dtype, (condition.src[0], b, a))
    if dtype is dtypes.bool and is_constant(a, 1) and is_constant(b, 0):
        return condition
    return None


def fold_within(_dtype: DType, src: Sources) -> UOp | None:
    """Fold WITHIN of a constant condition, and WITHIN(c, WITHIN(c, a)) → WITHIN(c, a)."""
    condition, a = src
    return a if condition.op is Ops.CONST or (a.op is Ops.WITHIN and a.src[0] is condition) else None


def fold_lt(_dtype: DType, src: Sources) -> UOp | None:
    """Fold x < x → false for integers; compare coordinates as indices."""
    a, b = src
    if a is b and not a.dtype.is_float:
        return const(value=False, dtype=dtypes.bool)
    pair = _two_coordinates(a.dtype, src)
    return (
        number(symbolic.lt(symbolic.add(pair[0], symbolic.mul(pair[1], -1)), 0), dtypes.bool)
        if pair
        else None
    )


def fold_eq(_dtype: DType, src: Sources) -> UOp | None:
    """Fold x == x → true, except for floats."""
    return const(value=True, dtype=dtypes.bool) if src[0] is src[1] and not src[0].dtype.is_float else None


def fold_ne(_dtype: DType, src: Sources) -> UOp | None:
    """Fold x != x → false, except for floats."""
    return const(value=False, dtype=dtypes.bool) if src[0] is src[1] and not src[0].dtype.is_float else None


RULES: Final[dict[str, Callable[[DType, Sources], UOp | None]]] = {
    Ops.ADD: fold_add, Ops.SUB: fold_sub, Ops.MUL: fold_mul, Ops.DIV: fold_div, Ops.FLOORDIV: fold_floordiv,
    Ops.MOD: fold_mod, Ops.POW: fold_pow, Ops.MAX: fold_same, Ops.MIN: fold_same, Ops.AND: fold_and,
    Ops.OR: fold_or, Ops.XOR: fold_xor, Ops.SHL: fold_shift, Ops.SHR: fold_shift, Ops.NEG: fold_neg,
    Ops.NOT: fold_not, Ops.ABS: fold_abs, Ops.CAST: fold_cast, Ops.BITCAST: fold_bitcast,
    Ops.WHERE: fold_where, Ops.WITHIN: fold_within, Ops.LT: fold_lt, Ops.EQ: fold_eq, Ops.NE: fold_ne,
}  # fmt: skip


def identity(op: str, dtype: DType) -> UOp:
    """Return the result of a reduction by ADD, MUL, MAX or MIN over no elements."""
    if op is Ops.ADD:
        return const(0, dtype)
    if op is Ops.MUL:
        return const(1, dtype)
    if dtype.is_float:
        return const(-math.inf if op is Ops.MAX else math.inf, dtype)
    return const(dtype.min if op is Ops.MAX else dtype.max, dtype)


def combine(op: str, value: UOp, ranges: Sequence[UOp], used: int) -> UOp:
    """Return the reduction of value over ranges; bit n of `used` is set if value depends on range n.

    Other ranges are left out of the REDUCE. For them ADD multiplies the result by the product of their sizes,
    and MUL raises it to that power; MAX and MIN keep it. What fits int32 is reduced in it.
    """
    looped = [r for r in ranges if used >> r.arg[0] & 1]
    times = math.prod([r.arg[1] for r in ranges if not used >> r.arg[0] & 1])
    if looped:
        short = narrowing.narrowed_sum(op, value, looped)
        x = value if short is None else short
        x = uop(Ops.REDUCE, x.dtype, (x,), (op, tuple([r.arg[0] for r in looped])))
        value = alu(Ops.CAST, value.dtype, (x,))
    if times == 1 or op is Ops.MAX or op is Ops.MIN:
        return value
    return _times(value, times) if op is Ops.ADD else _power(value, times)


def _times(value: UOp, times: int) -> UOp:
    """Return value * times; a count that is not exact in a narrow float is multiplied in float32."""
    dtype = value.dtype
    if dtype.is_int:
        wrapped = times & ((1 << dtype.bits) - 1)
        return alu(Ops.MUL, dtype, (value, const(wrapped - (1 << dtype.bits) * (wrapped > dtype.max), dtype)))
    factor = const(times, dtype)
    if factor.arg == times or dtype in (dtypes.float32, dtypes.float64):
        return alu(Ops.MUL, dtype, (value, factor))
    wide = alu(Ops.CAST, dtypes.float32, (value,))
    return alu(Ops.CAST, dtype, (alu(Ops.MUL, dtypes.float32, (wide, const(times, dtypes.float32))),))


def _power(value: UOp, times: int) -> UOp:
    """Return value ** times, by squaring."""
    result: UOp | None = None
    while times:
        if times & 1:
            result = value if result is None else alu(Ops.MUL, value.dtype, (result, value))
        times >>= 1
        if times:
            value = alu(Ops.MUL, value.dtype, (value, value))
    return value if result is None else result
