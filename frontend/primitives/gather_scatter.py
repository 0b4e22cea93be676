"""Gather and scatter along an axis: the primitives TAKE_ALONG_AXIS, SEGMENT_SUM and LAST_INDEX.

- TAKE_ALONG_AXIS src=(x, index) arg=(axis, permutes): out[..., j, ...] = x[..., index[..., j, ...], ...].
  `permutes` is true for an index that is a permutation along the axis; the gradient is then a permutation,
  too.
- SEGMENT_SUM src=(values, index) arg=(axis, n): out[..., v, ...], v < n, is the sum of values[..., j, ...]
  over all j with index[..., j, ...] equal to v. TAKE_ALONG_AXIS and SEGMENT_SUM are each other's gradients.
- LAST_INDEX src=(index) arg=(axis, n): out[..., v, ...], v < n, is the greatest j with index[..., j, ...]
equal to v, as int32; a number below 0 if there is none.

The index is int32 or int64. Its other axes are those of the first source, or all have size 1: then all rows
use the same indices. An index out of range reads 0 and adds nothing. `lower_take`, `lower_sum` and
`lower_last` express these primitives by compiler operations. Sources of other shapes or dtypes raise
`UsageError`.

SEGMENT_SUM and LAST_INDEX have an optional last source: the stable order of the index along the axis. Without
it, every position v is compared with every index: n * m comparisons for m values. With it, the values are
read in that order, so that equal indices form a run. Each of about log m / log `_WAYS` kernels adds up to
`_WAYS` partial sums of a run; a bisection finds the end of the run of each v, where the sum is read. Values
of different runs are never added, so infinities and NaN do not spread. The order of additions depends only on
shapes and indices, so results are reproducible bit by bit.

Not here: gradients (`frontend.autograd.primitives`). Next: `frontend.ops.gather_scatter`, the methods.
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Final

from compiler.dtype import DType, dtypes
from compiler.ir import graph
from compiler.ir.ops import Ops
from hcq.errors import UsageError

if TYPE_CHECKING:
    from compiler.ir.uop import UOp

TAKE_ALONG_AXIS: Final = "TAKE_ALONG_AXIS"
SEGMENT_SUM: Final = "SEGMENT_SUM"
LAST_INDEX: Final = "LAST_INDEX"

_WAYS: Final = 16
"""The most partial sums that one kernel adds up."""


def _others(shape: tuple[int, ...], axis: int) -> tuple[int, ...]:
    return (*shape[:axis], *shape[axis + 1 :])


def check(what: str, x: UOp, index: UOp, axis: int) -> None:
    """Raise `UsageError` for an index whose dtype or shape does not fit the source."""
    if index.dtype not in (dtypes.int32, dtypes.int64):
        raise UsageError(f"{what}: the index must be int32 or int64, not {index.dtype.name}; CAST it")
    others = _others(index.shape, axis)
    if len(x.shape) != len(index.shape) or (others != _others(x.shape, axis) and prod(others) != 1):
        raise UsageError(
            f"{what} along axis {axis}: {x.shape} and the index {index.shape} must be equal in the other axes"
            ", or the index 1 there"
        )


def lower_take(x: UOp, index: UOp, axis: int) -> UOp:
    """Return TAKE_ALONG_AXIS as one GATHER: along the axis, or from all elements of x in a row."""
    check(TAKE_ALONG_AXIS, x, index, axis)
    shape, wanted = x.shape, index.shape
    if prod(_others(wanted, axis)) == 1:
        return graph.gather(x, graph.reshape(index, (wanted[axis],)), axis)
    n, total = shape[axis], prod(shape)
    dtype = dtypes.int32 if total <= dtypes.int32.max else dtypes.int64
    flat: UOp | None = None
    for i, size in enumerate(shape):
        place = graph.cast(index if i == axis else graph.iota(wanted, i), dtype)
        if flat is not None:
            times = graph.binary(Ops.MUL, flat, graph.full(size, wanted, dtype))
            place = graph.binary(Ops.ADD, times, place)
        flat = place
    assert flat is not None  # a shape without axes has one element, and no other axes
    least, beyond = (graph.full(value, wanted, index.dtype) for value in (-1, n))
    inside = graph.binary(Ops.AND, graph.binary(Ops.LT, least, index), graph.binary(Ops.LT, index, beyond))
    at = graph.where(inside, flat, graph.full(-1, wanted, dtype))
    picked = graph.gather(graph.reshape(x, (total,)), graph.reshape(at, (prod(wanted),)), 0)
    return graph.reshape(picked, wanted)


def lower_sum(src: tuple[UOp, ...], axis: int, n: int) -> UOp:
    """Return SEGMENT_SUM of `src`: values, an index, and optionally its order.

    16-bit floats are added up in float32 and rounded once. Raises as `check`.
    """
    check(SEGMENT_SUM, src[0], src[1], axis)
    if len(src) == 2:
        return _sum_by_comparing(src[0], src[1], axis, n)
    return _sum_of_runs(src[0], src[1], src[2], axis, n)


def lower_last(src: tuple[UOp, ...], axis: int, n: int) -> UOp:
    """Return LAST_INDEX of `src`: an index, and optionally its order."""
    if len(src) == 1:
        return _last_by_comparing(src[0], axis, n)
    return _last_of_runs(src[0], src[1], axis, n)


def _sum_by_comparing(values: UOp, index: UOp, axis: int, n: int) -> UOp:
    """Return SEGMENT_SUM without an order: compare every place with every index of its row, and sum."""
    shape, dtype = values.shape, values.dtype
    hit, wide = _named(index, shape, axis, n), widened(dtype)
    whole = hit.shape
    each = graph.reshape(graph.cast(values, wide), (*shape[:axis], 1, *shape[axis:]))
    chosen = graph.where(hit, graph.expand(each, whole), graph.full(0, whole, wide))
    return graph.cast(graph.reduce(chosen, Ops.ADD, (axis + 1,)), dtype)


def _last_by_comparing(index: UOp, axis: int, n: int) -> UOp:
    """Return LAST_INDEX without an order: compare every place with every index of its row."""
    hit = _named(index, index.shape, axis, n)
    whole = hit.shape
    found = graph.where(hit, graph.iota(whole, axis + 1), graph.full(-1, whole, dtypes.int32))
    return graph.reduce(found, Ops.MAX, (axis + 1,))


def _named(index: UOp, shape: tuple[int, ...], axis: int, n: int) -> UOp:
    """Return whether each index, expanded along axis + 1, names each of n places, along the axis."""
    named, whole = index.shape, (*shape[:axis], n, *shape[axis:])
    few = n <= dtypes.int32.max
    place = graph.iota(whole, axis, dtypes.int32 if few else dtypes.int64)
    dtype = index.dtype if few else dtypes.int64
    row = graph.cast(graph.reshape(index, (*named[:axis], 1, *named[axis:])), dtype)
    return graph.binary(Ops.EQ, graph.cast(place, dtype), graph.expand(row, whole))


def widened(dtype: DType) -> DType:
    """Return the dtype in which values are added up."""
    return dtypes.float32 if dtype.is_float and dtype.bits == 16 else dtype


def _sum_of_runs(values: UOp, index: UOp, order: UOp, axis: int, n: int) -> UOp:
    """Return SEGMENT_SUM with an order: the last sum of each run of equal indices, 0 where there is none."""
    keys = graph.contiguous(lower_take(index, order, axis))
    earlier = graph.binary(Ops.SUB, graph.iota(keys.shape, axis), _before(keys, keys, axis, equal=False))
    picked = graph.contiguous(lower_take(graph.cast(values, widened(values.dtype)), order, axis))
    sums = _running(picked, graph.contiguous(earlier), axis)
    return graph.cast(lower_take(sums, _ends(keys, axis, n), axis), values.dtype)


def _last_of_runs(index: UOp, order: UOp, axis: int, n: int) -> UOp:
    """Return LAST_INDEX with a stable order: the last element of each run of equal indices."""
    at = _ends(graph.contiguous(lower_take(index, order, axis)), axis, n)
    none = graph.binary(Ops.LT, at, _whole(0, at.shape))
    last = graph.cast(lower_take(order, at, axis), dtypes.int32)
    return graph.where(none, _whole(-1, at.shape), last)


def _ends(keys: UOp, axis: int, n: int) -> UOp:
    """Return for each v < n the position at which the run of keys equal to v ends, -1 if there is no run."""
    places = (*keys.shape[:axis], n, *keys.shape[axis + 1 :])
    place = graph.cast(graph.iota(places, axis), keys.dtype)
    last = graph.binary(Ops.SUB, _before(keys, place, axis, equal=True), _whole(1, places))
    hit = graph.binary(Ops.EQ, lower_take(keys, last, axis), place)
    found = graph.binary(Ops.AND, hit, graph.binary(Ops.LT, _whole(-1, places), last))
    return graph.contiguous(graph.where(found, last, _whole(-1, places)))


def _whole(value: int, shape: tuple[int, ...]) -> UOp:
    return graph.full(value, shape, dtypes.int32)


def _before(keys: UOp, wanted: UOp, axis: int, *, equal: bool) -> UOp:
    """Return how many keys, sorted along the axis, are less than each wanted one; `equal`: or equal to it."""
    shape = wanted.shape
    count = _whole(0, shape)
    step = 1 << keys.shape[axis].bit_length() >> 1
    while step:
        more = graph.binary(Ops.ADD, count, _whole(step, shape))
        key = lower_take(keys, graph.binary(Ops.SUB, more, _whole(1, shape)), axis)
        after = graph.binary(Ops.LT, wanted, key) if equal else graph.binary(Ops.LT, key, wanted)
        less = graph.unary(Ops.NOT, after) if equal else after
        there = graph.binary(Ops.LT, more, _whole(keys.shape[axis] + 1, shape))
        count = graph.where(graph.binary(Ops.AND, there, less), more, count)
        step >>= 1
    return count


def _ways(length: int) -> int:
    """Return the least number of sums for one step that needs no more steps than `_WAYS` does."""
    steps, reach = 0, 1
    while reach < length:
        reach *= _WAYS
        steps += 1
    ways = 2
    while ways**steps < length:
        ways += 1
    return ways


def _running(values: UOp, earlier: UOp, axis: int) -> UOp:
    """Return for each value the sum of its run up to this value; `earlier` is its position in the run."""
    rank, length = len(values.shape), values.shape[axis]
    stride, ways = 1, _ways(length)
    while stride < length:
        ways = min(ways, -(-length // stride))
        reach = (ways - 1) * stride
        led = graph.pad(values, [(reach if i == axis else 0, 0) for i in range(rank)])
        windows = graph.window(led, (axis,), (ways,), (1,), (stride,))
        back = graph.binary(
            Ops.MUL,
            graph.binary(Ops.SUB, _whole(ways - 1, windows.shape), graph.iota(windows.shape, rank)),
            _whole(stride, windows.shape),
        )
        most = graph.expand(graph.reshape(earlier, (*earlier.shape, 1)), windows.shape)
        beyond = graph.binary(Ops.LT, most, back)
        chosen = graph.where(beyond, graph.full(0, windows.shape, values.dtype), windows)
        values = graph.contiguous(graph.reduce(chosen, Ops.ADD, (rank,)))
        stride *= ways
    return values
