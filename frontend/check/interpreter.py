"""Single operations of a tensor graph in NumPy, with bounds on how far a kernel's results may differ.

A value is a NumPy array, rounded to the node's dtype after every operation as `compiler.ir.ops` defines it,
with an array of bounds; None instead: every element is exact. Elementwise operations on exact values are
exact, but for transcendental functions; integers are exact. The bounds:

- A sum of n floats may be added in any order, and its products may be rounded or not. The bound is n units of
  roundoff of the sum of magnitudes S. For n > 1024 it is 32 * sqrt(n) units of the lesser of S and P, the
  largest partial sum from the first term on plus 8 times the root of the sum of squares. A product of n
  floats is bounded in the same way, by relative errors.
- A transcendental function adds two units in the last place.
- An operation on values with bounds passes the bounds on: a monotone function by the ends of the interval, a
  product by |a| e(b) + |b| e(a) + e(a) e(b).
- A comparison of values whose intervals touch is undecided. The bound of a selection by an undecided
  condition reaches both choices.
- An infinite bound allows any value: for numbers that may overflow within their bound, and for elements that
  WITHIN leaves undefined.

Nothing is shared with the scheduler or with lowering but the graph itself.

Not here: whole graphs (`evaluation`). Next: `launches`, which results of which kernel are compared.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from compiler.dtype import DType, dtypes
from compiler.ir.ops import ROWS, TRANSCENDENTAL, Ops
from compiler.narrow_floats import FORMATS, encode, loaded

if TYPE_CHECKING:
    from compiler.ir.uop import UOp

Array = np.ndarray[Any, Any]
MOST_WORK: Final = 1 << 22
"""The most elements that one evaluation computes."""
FEW: Final = 1 << 10
"""Up to this number of terms the bound of a sum grows with the number; beyond, with its square root."""
PARTS: Final = 1 << 12
"""From this number of terms on, partial sums of a 16-bit float may be stored, and rounded, in that dtype."""


class Float(NamedTuple):
    """Limits of a float dtype."""

    spacing: float
    """The distance from 1 to the next greater number."""
    least: float
    """The least number above 0, a subnormal one."""
    most: float
    """The greatest finite number."""


FLOATS: Final = {
    **{t: Float(2.0**-row.fraction, row.value(1), row.most) for t, row in FORMATS.items()},
    dtypes.float16: Float(2.0**-10, 2.0**-24, 65504.0),
    dtypes.bfloat16: Float(2.0**-7, 2.0**-133, 2.0**128 - 2.0**120),
    dtypes.float32: Float(2.0**-23, 2.0**-149, 2.0**128 - 2.0**104),
    dtypes.float64: Float(2.0**-52, 2.0**-1074, np.finfo(np.float64).max.item()),
}


class Bounded(NamedTuple):
    """The elements of a node, and by how much each may differ; None: not at all. For bool, 1: undecided."""

    v: Array
    e: Array | None = None


class TooLargeError(Exception):
    """An evaluation would compute more than `MOST_WORK` elements, or an operation is not interpreted."""


def kept_as(dtype: DType) -> np.dtype[Any]:
    """Return the NumPy dtype in which values of a dtype are held: float32 for those that NumPy lacks."""
    return np.dtype(dtype.numpy or np.float32)


def from_bytes(data: bytes | memoryview, dtype: DType) -> Array:
    """Return the elements in bytes of memory, as `kept_as` holds them."""
    return loaded(data, dtype) if dtype.numpy is None else np.frombuffer(data, dtype.numpy)


def rounded(x: Array, dtype: DType) -> Array:
    """Round numbers to a dtype, once, to nearest even."""
    if dtype in FORMATS:
        return loaded(encode(x, dtype), dtype).reshape(np.shape(x))
    if dtype is not dtypes.bfloat16:
        return np.asarray(x).astype(kept_as(dtype), copy=False)
    if x.dtype.kind in "iu" and x.dtype.itemsize == 8:  # to odd, so that no half is made where there is none
        low = x & x.dtype.type(0x7FF)
        exact = (low == 0) | (np.abs(x.astype(np.float64)) < 1 << 53)
        x = np.where(exact, x, (x - low) | x.dtype.type(0x800)).astype(np.float64)
    bits = np.asarray(x, np.float32).view(np.uint32)
    if x.dtype != np.float32:  # not twice: the first rounding keeps whether anything was lost
        low = bits & np.uint32(0xFFFF) == 0x8000
        wide, near = np.abs(np.asarray(x, np.float64)), np.abs(bits.view(np.float32).astype(np.float64))
        bits = bits + (low & (wide > near)).astype(np.uint32) - (low & (wide < near)).astype(np.uint32)
    even = (bits + (((bits >> 16) & 1) + np.uint32(0x7FFF))) & np.uint32(0xFFFF0000)
    return np.where(np.isnan(x), np.float32(np.nan), even.view(np.float32))


def wide(dtype: DType) -> Any:
    """Return the NumPy dtype in which functions and sums of a dtype are computed before rounding."""
    return np.longdouble if dtype is dtypes.float64 else np.float64


def _float_to_int(x: Array, dtype: DType) -> Array:
    whole = np.trunc(np.where(np.isnan(x), 0, x).astype(np.float64))
    low, high = dtype.min, dtype.max
    top = float(high) if high < 1 << 53 else np.nextafter(float(high), 0)
    inside = np.clip(whole, low, top).astype(dtype.numpy)
    found = np.where(whole >= high, np.array(high, dtype.numpy), inside)
    return np.where(whole <= low, np.array(low, dtype.numpy), found)


def _floordiv(a: Array, b: Array) -> Array:
    return np.where(b == 0, a.dtype.type(0), np.floor_divide(a, np.where(b == 0, a.dtype.type(1), b)))


def _mod(a: Array, b: Array) -> Array:
    return np.where(b == 0, a.dtype.type(0), np.mod(a, np.where(b == 0, a.dtype.type(1), b)))


def _shift(a: Array, b: Array, *, left: bool) -> Array:
    good = (b >= 0) & (b < a.dtype.itemsize * 8)
    by = np.where(good, b, 0).astype(a.dtype)
    zero = a.dtype.type(0)
    found: Array = np.where(
        good, a << by if left else a >> by, zero if left else np.where(a < 0, ~zero, zero)
    )
    return found


def _whole_power(a: Array, b: Array) -> Array:
    """Powers of integers by squaring, with wrapping; a negative exponent gives 0, except of 1 and -1."""
    result, base, left = np.ones_like(a), a.copy(), np.where(b < 0, b & b.dtype.type(1), b)
    for _ in range(8 * a.dtype.itemsize):
        result = np.where(left & 1 != 0, result * base, result)
        base, left = base * base, left >> 1
    gone = (b < 0) & (a != 1) & ((a != a.dtype.type(0) - a.dtype.type(1)) | (a.dtype.kind == "u"))
    return np.where(gone, a.dtype.type(0), result)


_OWN: Final[dict[str, Callable[..., Array]]] = {
    Ops.FLOORDIV: _floordiv,
    Ops.MOD: _mod,
    Ops.SHL: lambda a, b: _shift(a, b, left=True),
    Ops.SHR: lambda a, b: _shift(a, b, left=False),
}
_LIPSCHITZ: Final = frozenset((Ops.NEG, Ops.ABS, Ops.SIN, Ops.COS))
"""Functions whose result changes at most by the change of the argument."""


def _function(op: str, dtype: DType) -> Callable[..., Array]:
    own = _OWN.get(op)
    if own is not None:
        return own
    if op is Ops.POW:
        return np.power if dtype.is_float else _whole_power
    name = ROWS[op].oracle
    assert name is not None, op
    function: Callable[..., Array] = getattr(np, name)
    return function


def _values(op: str, dtype: DType, src: Sequence[Array]) -> Array:
    """Return the values of an operation of `ROWS` on values of `dtype`."""
    if dtype.is_float and (op in TRANSCENDENTAL or op is Ops.POW):
        return rounded(_function(op, dtype)(*[x.astype(wide(dtype)) for x in src]), dtype)
    found = np.asarray(_function(op, dtype)(*src))
    return found if found.dtype == np.bool_ or not dtype.is_float else rounded(found, dtype)


def bound_of(x: Bounded) -> Array | float:
    """Return the bounds of a value, 0 for an exact one."""
    return 0.0 if x.e is None else x.e


def _wide(x: Array) -> Array:
    return x.astype(np.longdouble if x.dtype.itemsize == 8 else np.float64)


def _distance(a: Array, b: Array) -> Array:
    """Return |a - b|; 0 of equal infinities, and infinity where one is NaN."""
    found = np.abs(_wide(a) - _wide(b))
    return np.where(a == b, 0.0, np.where(np.isnan(found), np.inf, found)).astype(np.float64)


def elementwise(node: UOp, src: Sequence[Bounded]) -> Bounded:
    """Return the values and bounds of an elementwise node, given those of its sources."""
    op, dtype = node.op, node.dtype
    source = node.src[0].dtype
    if op is Ops.WHERE:
        return _where(src)
    if op is Ops.WITHIN:
        known = src[0].v if src[0].e is None else src[0].v & (src[0].e == 0)
        return Bounded(src[1].v, np.where(known, bound_of(src[1]), np.inf))
    exact = all(x.e is None for x in src)
    if op is Ops.CAST:
        return _cast(src[0], source, dtype)
    if op is Ops.BITCAST:
        return _bitcast(src[0], source, dtype)
    v = _values(op, source, [x.v for x in src])
    if exact and not (source.is_float and (op in TRANSCENDENTAL or op is Ops.POW)):
        return Bounded(v)
    if ROWS[op].predicate:
        return Bounded(v, _undecided(src))
    if source is dtypes.bool:
        return _of_bools(lambda *x: _values(op, source, x), src, v, monotone=op not in {Ops.NOT, Ops.XOR})
    e = _propagated(op, source, src, v)
    if source.is_float:
        digits = FLOATS[dtype]
        if op in TRANSCENDENTAL or op is Ops.POW:
            e = e + 2 * digits.spacing * np.abs(_wide(v)) + digits.least
        elif not ROWS[op].exact:
            e = np.where(e > 0, e + digits.spacing * (np.abs(_wide(v)) + e) + digits.least, e)
    return settled(v, e, dtype, src)


def settled(v: Array, e: Array | float, dtype: DType, src: Sequence[Bounded]) -> Bounded:
    """Return values with their bounds, adjusted at the limits of the dtype.

    The bound is infinite where a value may overflow. A result that is not finite is exact where some float
    source is not finite and none has an infinite bound; elsewhere its bound is infinite, unless it was 0.
    """
    e = np.broadcast_to(np.asarray(e, np.float64), v.shape)
    if dtype.is_float:
        size = np.abs(_wide(v))
        e = np.where(np.isnan(e) | (np.isfinite(v) & (size + e > FLOATS[dtype].most) & (e > 0)), np.inf, e)
        open_ = np.zeros(v.shape, bool)
        endless = np.zeros(v.shape, bool)
        for x in src:
            if x.v.dtype.kind == "f":
                sure = x.e is None or np.asarray(x.e) < np.inf
                endless = endless | (~np.isfinite(x.v) & sure)
                open_ = open_ | np.logical_not(sure)
        e = np.where(np.isfinite(v), e, np.where(endless & ~open_, 0.0, np.where(e > 0, np.inf, 0.0)))
    else:
        far = (_wide(v) - e < dtype.min) | (_wide(v) + e > dtype.max)
        e = np.where(far & (e > 0) | np.isnan(e), np.inf, e)
    return Bounded(v, e)


def _of_bools(
    function: Callable[..., Array], src: Sequence[Bounded], v: Array, *, monotone: bool = True
) -> Bounded:
    """Return a function of bools. Its result is undecided where undecided sources can change it.

    `function` is called with the sources as low and as high as possible if it is `monotone`; else every
    element with an undecided source is undecided.
    """
    open_ = [np.broadcast_to(np.asarray(bound_of(x)) > 0, x.v.shape) for x in src]
    if monotone:
        low = function(*[x.v & ~o for x, o in zip(src, open_, strict=True)])
        high = function(*[x.v | o for x, o in zip(src, open_, strict=True)])
        return Bounded(v, (low != high).astype(np.float64))
    return Bounded(v, np.any(np.broadcast_arrays(*open_), axis=0).astype(np.float64))


def _undecided(src: Sequence[Bounded]) -> Array:
    """Return 1 where a comparison of values with bounds is undecided."""
    a, b = src
    e = np.asarray(bound_of(a)) + np.asarray(bound_of(b))
    near = a.v.dtype == np.bool_ or np.abs(_wide(a.v) - _wide(b.v)) <= e
    return np.where((near | np.isinf(e)) & (e > 0), np.ones(a.v.shape), 0.0)


def _propagated(op: str, dtype: DType, src: Sequence[Bounded], v: Array) -> Array | float:
    """Return the bound that follows from the bounds of an operation's sources, before rounding."""
    e = [bound_of(x) for x in src]
    if all(x.e is None for x in src):
        return 0.0
    x = [_wide(s.v) for s in src]
    if op is Ops.ADD or op is Ops.SUB:
        return e[0] + e[1]
    if op is Ops.MUL:
        return np.abs(x[0]) * e[1] + np.abs(x[1]) * e[0] + e[0] * e[1]
    if op is Ops.MAX or op is Ops.MIN:
        return np.maximum(e[0], e[1])
    if op in _LIPSCHITZ:
        return e[0]
    if op is Ops.DIV:
        left = np.abs(x[1]) - e[1]
        return np.where(left > 0, (e[0] + np.abs(_wide(v)) * e[1]) / np.where(left > 0, left, 1), np.inf)
    if op is Ops.COPYSIGN:
        return np.where(np.abs(x[1]) <= e[1], 2 * np.abs(x[0]) + e[0], e[0])
    if not dtype.is_float or op is Ops.FMOD:
        return np.where(sum(np.asarray(y) for y in e) > 0, np.inf, 0.0)
    function = _function(op, dtype)
    if op is Ops.POW:
        ends = [function(x[0] + i * e[0], x[1] + j * e[1]) for i in (-1, 1) for j in (-1, 1)]
        cut = x[0] <= e[0]
    else:
        ends = [function(x[0] - e[0]), function(x[0] + e[0])]
        cut = np.abs(x[0]) <= e[0] if op is Ops.RECIP else np.zeros(v.shape, bool)
    middle = function(*x)
    return np.where(
        cut & (np.asarray(e[0]) > 0), np.inf, np.max([_distance(y, middle) for y in ends], axis=0)
    )


def _where(src: Sequence[Bounded]) -> Bounded:
    c, a, b = src
    v = np.where(c.v, a.v, b.v)
    if c.e is None and a.e is None and b.e is None:
        return Bounded(v)
    e = np.where(c.v, bound_of(a), bound_of(b))
    if c.e is not None and c.e.any():
        if v.dtype == np.bool_:
            other = ((a.v != b.v) | (np.asarray(bound_of(a)) > 0) | (np.asarray(bound_of(b)) > 0)).astype(
                float
            )
        else:
            other = np.maximum(bound_of(a), bound_of(b)) + _distance(a.v, b.v)
            other = np.where(np.isnan(a.v) & np.isnan(b.v) & ~np.isinf(other), 0.0, other)
        e = np.where(c.e > 0, other, e)
    return Bounded(v, np.broadcast_to(e, v.shape))


def _cast(x: Bounded, source: DType, dtype: DType) -> Bounded:
    if dtype is dtypes.bool:
        v = x.v != 0
        return (
            Bounded(v) if x.e is None else Bounded(v, ((np.abs(_wide(x.v)) <= x.e) & (x.e > 0)).astype(float))
        )

    def cast(y: Array) -> Array:
        if source.is_float and not dtype.is_float:
            return _float_to_int(y, dtype)
        return rounded(y, dtype)

    v = cast(x.v)
    if x.e is None:
        return Bounded(v)
    if source.is_float and dtype.is_int:
        e = np.maximum(_distance(cast(x.v - x.e), v), _distance(cast(x.v + x.e), v))
        return Bounded(v, np.where(np.isinf(x.e), np.inf, e))
    e = x.e
    if dtype.is_float:
        digits = FLOATS[dtype]
        if not source.is_float or digits.spacing > FLOATS[source].spacing:
            e = np.where(e > 0, e + digits.spacing * (np.abs(_wide(v)) + e) + digits.least, e)
    elif source.bits > dtype.bits:
        e = np.where((e > 0) & (v != x.v), np.inf, e)
    return settled(v, e, dtype, [x])


def _bitcast(x: Bounded, source: DType, dtype: DType) -> Bounded:
    bits = np.ascontiguousarray(x.v).reshape(x.v.shape)
    e = None if x.e is None else np.where(x.e > 0, np.inf, 0.0)
    if source is dtypes.bfloat16:
        bits = (bits.view(np.uint32) >> np.uint32(16)).astype(np.uint16)
    elif source in FORMATS:  # whose NaN has several codes
        e = np.where(np.isnan(bits), np.inf, 0.0 if e is None else e)
        bits = encode(bits, source)
    return Bounded(from_bytes(bits.tobytes(), dtype).reshape(bits.shape), e)


def _empty(op: str, dtype: DType) -> Any:
    if op in {Ops.ADD, Ops.MUL}:
        return int(op is Ops.MUL)
    if dtype.is_float:
        return -np.inf if op is Ops.MAX else np.inf
    return dtype.min if op is Ops.MAX else dtype.max


def reduced(op: str, x: Bounded, axes: tuple[int, ...], dtype: DType) -> Bounded:
    """Return the values and bounds of a reduction over axes, which are removed."""
    count = math.prod([x.v.shape[a] for a in axes])
    if not count:
        return Bounded(np.full(np.delete(x.v.shape, axes), _empty(op, dtype), kept_as(dtype)))
    if dtype is dtypes.bool:
        rule = np.logical_or if op is Ops.MAX else np.logical_and
        v = np.asarray(rule.reduce(x.v, axis=axes))
        return (
            Bounded(v) if x.e is None else _of_bools(lambda y: np.asarray(rule.reduce(y, axis=axes)), [x], v)
        )
    if op in {Ops.MAX, Ops.MIN}:
        v = np.asarray((np.maximum if op is Ops.MAX else np.minimum).reduce(x.v, axis=axes))
        return Bounded(v) if x.e is None else settled(v, x.e.max(axis=axes), dtype, [])
    if not dtype.is_float:
        function = np.add if op is Ops.ADD else np.multiply
        v = np.asarray(function.reduce(x.v, axis=axes, dtype=kept_as(dtype)))
        if x.e is None:
            return Bounded(v)
        e = x.e.sum(axis=axes) if op is Ops.ADD else np.where((x.e > 0).any(axis=axes), np.inf, 0.0)
        return settled(v, e, dtype, [])
    if count == 1:
        one = np.asarray(x.v.sum(axis=axes, dtype=x.v.dtype))
        return Bounded(one) if x.e is None else Bounded(one, x.e.sum(axis=axes))
    values = x.v.astype(wide(dtype))
    e = None if x.e is None else np.broadcast_to(x.e, x.v.shape)
    if op is Ops.ADD:
        sizes = np.abs(values) if e is None else np.abs(values) + e
        sizes = np.where(np.isfinite(sizes), sizes, 0.0)
        total = sizes.sum(axis=axes)
        if count > FEW:  # partial sums are this large at most, whatever the signs
            kept = [i for i in range(sizes.ndim) if i not in axes]
            rows = (
                np.where(np.isfinite(values), values, 0.0)
                .transpose(*kept, *axes)
                .reshape(*total.shape, count)
            )
            most = np.abs(np.cumsum(rows, axis=-1)).max(axis=-1) + 8 * np.sqrt((sizes**2).sum(axis=axes))
            total = np.minimum(total, most + (0.0 if e is None else e.sum(axis=axes)))
        return summed(values.sum(axis=axes), total, 0.0 if e is None else e.sum(axis=axes), count, dtype)
    return _multiplied(values, e, axes, count, dtype)


def summed(total: Array, sizes: Array, e: Array | float, count: int, dtype: DType) -> Bounded:
    """Return a sum of `count` floats, given the exact sum, the sum of magnitudes, and the sum of bounds."""
    digits = FLOATS[dtype]
    adder = FLOATS[dtypes.float32] if dtype.bits == 16 else digits
    depth = count if count <= FEW else 32 * math.sqrt(count)
    e = e + (depth + 1) * adder.spacing / 2 * sizes + digits.least
    if dtype.bits == 16:
        e = e + digits.spacing * np.abs(total) + (digits.spacing * sizes if count >= PARTS else 0.0)
    e = np.where(sizes > (digits if count >= PARTS else adder).most, np.inf, e)
    v = np.asarray(rounded(np.asarray(total), dtype))
    e = np.where(np.isfinite(v), np.where(np.isnan(e), np.inf, e), np.where(np.isinf(e), np.inf, 0.0))
    far = np.isfinite(v) & (np.abs(_wide(v)) + e > digits.most) | np.isinf(v) & np.isfinite(total)
    return Bounded(v, np.where(far, np.inf, e).astype(np.float64))


def _multiplied(values: Array, e: Array | None, axes: tuple[int, ...], count: int, dtype: DType) -> Bounded:
    digits = FLOATS[dtype]
    adder = FLOATS[dtypes.float32] if dtype.bits == 16 else digits
    sizes = np.abs(values)
    v = np.asarray(rounded(np.multiply.reduce(values, axis=axes), dtype))
    upper = np.multiply.reduce(sizes if e is None else sizes + e, axis=axes)
    found = upper - np.multiply.reduce(sizes, axis=axes) + (count * adder.spacing + digits.spacing) * upper
    found = found + count * digits.least
    far = np.multiply.reduce(np.maximum(sizes, 1), axis=axes) * (1 if e is None else 2) > digits.most
    near = np.multiply.reduce(np.minimum(np.where(sizes == 0, 1, sizes), 1), axis=axes)
    far = far | (near * 2.0**-24 < digits.least)
    found = np.where(np.isfinite(v) & ~far, found, np.where(np.isnan(v) & ~far, 0.0, np.inf))
    return Bounded(v, np.where(np.isnan(found), np.inf, found).astype(np.float64))
