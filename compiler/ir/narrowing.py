"""Arithmetic of 64-bit integers that has the same result in 32 bits.

Coordinates, places and counts are int64, as PyTorch's, but their bounds are mostly known to fit int32, in
which processors compare twice as many in a vector and GPUs take half the registers. A value is *short* if it
is int64 only by its last step: a constant, a coordinate or a conversion. An operation whose sources are short
and whose result fits is computed in int32 and converted: the conversion makes a short value again, so it
moves to the end of the kernel, where the value is stored.

Values that are int64 in memory stay so, but an index made of them is short where its mask is true
(`is_short`): places in buffers of up to 2**31 - 1 elements.

Next: `fold`, the caller; `compiler.emit.accesses`, which writes the index of a masked access.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from compiler.dtype import dtypes
from compiler.ir import index as symbolic
from compiler.ir.infer import corners
from compiler.ir.ops import COMPARE, Ops
from compiler.ir.uop import UOp, const, uop

if TYPE_CHECKING:
    from collections.abc import Sequence

_INT: Final = dtypes.int32
_EXACT: Final = COMPARE | {Ops.WHERE, Ops.MAX, Ops.MIN, Ops.AND, Ops.OR, Ops.XOR, Ops.NOT}
"""Operations whose result on int32 is that on int64, for all values."""
_CORNERS: Final = frozenset((Ops.ADD, Ops.SUB, Ops.MUL))
_DIVISIONS: Final = frozenset((Ops.FLOORDIV, Ops.MOD))
OPERATIONS: Final = _EXACT | _CORNERS | _DIVISIONS
"""The operations that `narrowed` may compute in int32."""


def short(x: UOp) -> UOp | None:
    """Return an int64 value that is int64 only by its last step as int32; None for another value."""
    if x.op is Ops.CAST:
        source = x.src[0]
        if source.dtype is _INT:
            return source
        return (
            uop(Ops.CAST, _INT, (source,)) if not source.dtype.is_float and source.dtype.bits < 32 else None
        )
    if x.vmin < _INT.min or x.vmax > _INT.max:
        return None
    if x.op is Ops.CONST:
        return const(x.arg, _INT)
    return uop(Ops.IVALUE, _INT, x.src) if x.op is Ops.IVALUE else None


def narrowed(op: str, src: Sequence[UOp]) -> tuple[UOp, ...] | None:
    """Return the sources of an operation on int64 as int32, if its result is the same on them, else None.

    `op` is one of `OPERATIONS`. A condition stays as it is.
    """
    found: list[UOp] = []
    for x in src:
        value = short(x) if x.dtype is dtypes.int64 else x
        if value is None:
            return None
        found.append(value)
    if op in _CORNERS:
        low, high = corners(op, found[0], found[1])
        return tuple(found) if _INT.min <= low and high <= _INT.max else None
    return tuple(found) if op in _EXACT or found[1].vmin > 0 else None


def narrowed_sum(op: str, value: UOp, ranges: Sequence[UOp]) -> UOp | None:
    """Return the int32 value whose reduction over ranges is that of an int64 value; None if there is none."""
    found = short(value) if value.dtype is dtypes.int64 else None
    if found is None or op is Ops.MAX or op is Ops.MIN:
        return found
    count = math.prod([r.arg[1] for r in ranges])
    most = count * max(abs(found.vmin), abs(found.vmax))
    return found if op is Ops.ADD and most <= _INT.max else None


def is_short(index: UOp, mask: UOp) -> bool:
    """Return whether an index that may exceed int32 is from 0 to the largest int32 where a mask is true."""
    if index.vmin >= _INT.min and index.vmax <= _INT.max:
        return False
    least: dict[UOp, int] = {}
    most: dict[UOp, int] = {}
    for part in symbolic.parts_of(mask):
        if part.op is Ops.ILT:
            terms, constant = symbolic.terms_of(part.src[0])
            (atom, factor), *others = terms.items()
            if not others and factor == 1:
                most[atom] = part.arg - constant - 1
            elif not others and factor == -1:
                least[atom] = constant + 1 - part.arg
    terms, low = symbolic.terms_of(index)
    high = low
    for atom, factor in terms.items():
        first, last = max(atom.vmin, least.get(atom, atom.vmin)), min(atom.vmax, most.get(atom, atom.vmax))
        low += factor * (first if factor > 0 else last)
        high += factor * (last if factor > 0 else first)
    return low >= 0 and high <= _INT.max
