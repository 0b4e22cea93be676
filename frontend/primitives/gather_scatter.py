"""PICK, PLACE and LAST: elements named by an index along one axis, read, added up, and who names them last.

PICK and PLACE are each the other's derivative.

PICK src=(x, index) arg=(axis, permutes): out[..., j, ...] = x[..., index[..., j, ...], ...]; `permutes` says
that the index is a permutation along the axis: the derivative is then a PICK too. PLACE src=(values, index)
arg=(axis, n): out[..., v, ...], v < n, is the sum of values[..., j, ...] over all j with index[..., j, ...]
equal to v. The index has the other axes of the first source, or size 1 in all of them: one row for all. An
index outside reads 0 and adds nowhere. It is int32 or int64.

LAST src=(index) arg=(axis, n) is which j, the greatest, has index[..., j, ...] equal to v, or
less than 0 where none has (int32).

A last source of PLACE and LAST is the stable order of the index along the axis (int32): with it, the result
costs what is named (`frontend.primitives.segments`), and no comparison of every place with every index. The
compiler never sees these operations, as with CONV (`frontend.primitives.convolution`): `lower`, `lower_sum`
and `lower_last` say what they are.
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Final

from compiler.dtype import dtypes
from compiler.ir import graph
from compiler.ir.ops import Ops
from hcq.errors import UsageError

if TYPE_CHECKING:
    from compiler.dtype import DType
    from compiler.ir.uop import UOp

PICK: Final = "PICK"
PLACE: Final = "PLACE"
LAST: Final = "LAST"


def _others(shape: tuple[int, ...], axis: int) -> tuple[int, ...]:
    return (*shape[:axis], *shape[axis + 1 :])


def check(what: str, x: UOp, index: UOp, axis: int) -> None:
    """Refuse an index that does not fit what it names elements of."""
    if index.dtype not in (dtypes.int32, dtypes.int64):
        raise UsageError(f"{what}: the index must be int32 or int64, not {index.dtype.name}; CAST it")
    others = _others(index.shape, axis)
    if len(x.shape) != len(index.shape) or (others != _others(x.shape, axis) and prod(others) != 1):
        raise UsageError(
            f"{what} along axis {axis}: {x.shape} and the index {index.shape} must be equal in the other axes"
            ", or the index 1 there"
        )


def lower(x: UOp, index: UOp, axis: int) -> UOp:
    """Return PICK as one GATHER: along the axis, or from all elements of x in a row."""
    check(PICK, x, index, axis)
    shape, wanted = x.shape, index.shape
    if prod(_others(wanted, axis)) == 1:
        return graph.gather(x, graph.reshape(index, (wanted[axis],)), axis)
    n, total = shape[axis], prod(shape)
    if total > index.dtype.max:
        index = graph.cast(index, dtypes.int64)
    dtype = index.dtype

    def number(value: int) -> UOp:
        return graph.full(value, wanted, dtype)

    flat: UOp | None = None
    for i, size in enumerate(shape):
        place = index if i == axis else graph.cast(graph.iota(wanted, i), dtype)
        if flat is not None:
            place = graph.binary(Ops.ADD, graph.binary(Ops.MUL, flat, number(size)), place)
        flat = place
    assert flat is not None  # a shape without axes has one element, and no other axes
    inside = graph.binary(
        Ops.AND, graph.binary(Ops.LT, number(-1), index), graph.binary(Ops.LT, index, number(n))
    )
    at = graph.where(inside, flat, number(-1))
    picked = graph.gather(graph.reshape(x, (total,)), graph.reshape(at, (prod(wanted),)), 0)
    return graph.reshape(picked, wanted)


def lower_sum(values: UOp, index: UOp, axis: int, n: int) -> UOp:
    """Return PLACE without an order: a comparison of every place with every index of its row, and a sum.

    Sixteen-bit floats are added up in float32 and rounded once.
    """
    check(PLACE, values, index, axis)
    shape, named, dtype = values.shape, index.shape, values.dtype
    whole = (*shape[:axis], n, *shape[axis:])
    place = graph.cast(graph.iota(whole, axis), index.dtype)
    row = graph.reshape(index, (*named[:axis], 1, *named[axis:]))
    hit = graph.binary(Ops.EQ, place, graph.expand(row, whole))
    wide = widened(dtype)
    each = graph.reshape(graph.cast(values, wide), (*shape[:axis], 1, *shape[axis:]))
    chosen = graph.where(hit, graph.expand(each, whole), graph.full(0, whole, wide))
    return graph.cast(graph.reduce(chosen, Ops.ADD, (axis + 1,)), dtype)


def lower_last(index: UOp, axis: int, n: int) -> UOp:
    """Return LAST without an order: a comparison of every place with every index of its row."""
    named = index.shape
    whole = (*named[:axis], n, *named[axis:])
    place = graph.cast(graph.iota(whole, axis), index.dtype)
    row = graph.reshape(index, (*named[:axis], 1, *named[axis:]))
    hit = graph.binary(Ops.EQ, place, graph.expand(row, whole))
    found = graph.where(hit, graph.iota(whole, axis + 1), graph.full(-1, whole, dtypes.int32))
    return graph.reduce(found, Ops.MAX, (axis + 1,))


def widened(dtype: DType) -> DType:
    """Return the dtype in which values are added up."""
    return dtypes.float32 if dtype.is_float and dtype.bits == 16 else dtype
