"""Runs of equal indices, when their order is known: PLACE and LAST with an order.

In order, equal indices are a run. Sums run along it, `_WAYS` values at a time and then so many of these sums,
each step a kernel; the last sum of a run is read at its place, which a bisection finds. That is
m * log m values read for m values, and one for each place; the comparison of `picking.lower_sum` is n * m.
Nothing is added to zeros of another run, so what is not finite stays at its place, and how a sum is cut
depends on shapes and indices alone: it has the same bits each time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from compiler.dtype import dtypes
from compiler.ir import graph
from compiler.ir.ops import Ops
from frontend.primitives.gather_scatter import PLACE, check, lower, widened

if TYPE_CHECKING:
    from compiler.ir.uop import UOp

_WAYS: Final = 8
"""Sums that one step adds up."""


def lower_sum(values: UOp, index: UOp, order: UOp, axis: int, n: int) -> UOp:
    """Return PLACE with an order: the last sum of each run of equal indices, 0 where there is none.

    Sixteen-bit floats are added up in float32 and rounded once.
    """
    check(PLACE, values, index, axis)
    keys = graph.contiguous(lower(index, order, axis))
    earlier = graph.binary(Ops.SUB, graph.iota(keys.shape, axis), _before(keys, keys, axis, equal=False))
    picked = graph.contiguous(lower(graph.cast(values, widened(values.dtype)), order, axis))
    sums = _running(picked, graph.contiguous(earlier), axis)
    return graph.cast(lower(sums, _ends(keys, axis, n), axis), values.dtype)


def lower_last(index: UOp, order: UOp, axis: int, n: int) -> UOp:
    """Return LAST with an order, which is stable: what stands at the end of each run of equal indices."""
    at = _ends(graph.contiguous(lower(index, order, axis)), axis, n)
    none = graph.binary(Ops.LT, at, _number(0, at.shape))
    return graph.where(none, _number(-1, at.shape), lower(order, at, axis))


def _ends(keys: UOp, axis: int, n: int) -> UOp:
    """Return for each of n places where the run of keys equal to it ends, -1 where there is none."""
    places = (*keys.shape[:axis], n, *keys.shape[axis + 1 :])
    place = graph.cast(graph.iota(places, axis), keys.dtype)
    last = graph.binary(Ops.SUB, _before(keys, place, axis, equal=True), _number(1, places))
    hit = graph.binary(Ops.EQ, lower(keys, last, axis), place)
    found = graph.binary(Ops.AND, hit, graph.binary(Ops.LT, _number(-1, places), last))
    return graph.contiguous(graph.where(found, last, _number(-1, places)))


def _number(value: int, shape: tuple[int, ...]) -> UOp:
    return graph.full(value, shape, dtypes.int32)


def _before(keys: UOp, wanted: UOp, axis: int, *, equal: bool) -> UOp:
    """Return how many of the keys, in order along the axis, are less than each wanted one, or equal to it."""
    shape = wanted.shape
    count = _number(0, shape)
    step = 1 << keys.shape[axis].bit_length() >> 1
    while step:
        more = graph.binary(Ops.ADD, count, _number(step, shape))
        key = lower(keys, graph.binary(Ops.SUB, more, _number(1, shape)), axis)
        after = graph.binary(Ops.LT, wanted, key) if equal else graph.binary(Ops.LT, key, wanted)
        less = graph.unary(Ops.NOT, after) if equal else after
        there = graph.binary(Ops.LT, more, _number(keys.shape[axis] + 1, shape))
        count = graph.where(graph.binary(Ops.AND, there, less), more, count)
        step >>= 1
    return count


def _running(values: UOp, earlier: UOp, axis: int) -> UOp:
    """Return for each value the sum of its run up to it; `earlier` is how many of the run come before it."""
    rank, length = len(values.shape), values.shape[axis]
    stride = 1
    while stride < length:
        ways = min(_WAYS, -(-length // stride))
        reach = (ways - 1) * stride
        led = graph.pad(values, [(reach if i == axis else 0, 0) for i in range(rank)])
        windows = graph.window(led, (axis,), (ways,), (1,), (stride,))
        back = graph.binary(
            Ops.MUL,
            graph.binary(Ops.SUB, _number(ways - 1, windows.shape), graph.iota(windows.shape, rank)),
            _number(stride, windows.shape),
        )
        most = graph.expand(graph.reshape(earlier, (*earlier.shape, 1)), windows.shape)
        beyond = graph.binary(Ops.LT, most, back)
        chosen = graph.where(beyond, graph.full(0, windows.shape, values.dtype), windows)
        values = graph.contiguous(graph.reduce(chosen, Ops.ADD, (rank,)))
        stride *= ways
    return values
