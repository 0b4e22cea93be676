"""Sorting along an axis: sort, argsort, topk.

Elements are compared through integer keys, in which a NaN is greatest. A row of up to `DIRECT` elements is
sorted in three kernels: the keys; the rank of each element, which is the number of elements before it; and
the element of each rank, found by comparing ranks. Longer rows are divided into blocks of `BLOCK`, which are
sorted so and merged pairwise: each position of the result finds by bisection how many elements before it come
from the left block. That is n (BLOCK + log² n) operations for each row, and two kernels for each merge.
Sorting is stable.

An axis that does not exist raises `UsageIndexError`, arguments of other classes `UsageTypeError`.

Not here: greatest and least values alone (`extremes`).
"""

from __future__ import annotations

from math import prod
from typing import Final, Generic, NamedTuple

from compiler.dtype import dtypes
from compiler.ir.ops import Ops
from frontend.arguments.aliases import accepts_aliases
from frontend.arguments.checks import axis_of, whole
from frontend.evaluation.base import T
from frontend.evaluation.constants import constant, convert, coordinate, number_like, widened_float
from frontend.evaluation.trace import apply, composite, method
from frontend.ops.elementwise import where
from frontend.ops.movement import reshape
from frontend.primitives.gather_scatter import TAKE_ALONG_AXIS
from hcq.errors import UsageError

DIRECT: Final = 1024
"""The longest row that is sorted by ranks alone."""
BLOCK: Final = 512
"""The length of the blocks that longer rows are merged from."""


class Sorted(NamedTuple, Generic[T]):
    """Values in order, and their indices along the axis (int64)."""

    values: T
    indices: T


@accepts_aliases
def sort(
    self: T,
    axis: int = -1,
    descending: bool = False,  # noqa: FBT001, FBT002 - the field's signature
    stable: bool = True,  # noqa: ARG001, FBT001, FBT002 - the field's signature; it always is
) -> Sorted[T]:
    """Return the named tuple (values, indices): the values in order along an axis, and their indices (int64).

    A NaN is the greatest of all, as in PyTorch: last, or first when descending. Equal values keep their
    order; `stable` has no effect. Realized together, both are computed once. Raises `UsageIndexError` for an
    axis that does not exist.

        values, indices = Tensor([3, 1, 2]).sort()      # [1, 2, 3], [1, 2, 0]
    """
    order = argsort(self, axis, descending)
    a = axis_of(axis, self.expr.shape or (1,), "sort")
    return Sorted(_sorted(self, order, a) if self.expr.shape else self, order)


@method
def argsort(
    self: T,
    axis: int = -1,
    descending: bool = False,  # noqa: FBT001, FBT002 - the field's signature
    stable: bool = True,  # noqa: ARG001, FBT001, FBT002 - the field's signature; it always is
) -> T:
    """Return the indices (int64) that sort an axis; see `sort`."""
    a = axis_of(axis, self.expr.shape or (1,), "argsort")
    if not self.expr.shape:
        return constant(self, 0, dtypes.int64, ())
    return _from_last(_order(_keys(self, a, descending=descending)), a)


@composite
def _sorted(self: T, order: T, axis: int) -> T:
    return apply(TAKE_ALONG_AXIS, (axis, True), self, order)


def inverse(order: T, axis: int) -> T:
    """Return the inverse of permutations along an axis."""
    last = _keys(order, axis, descending=False)
    n = last.expr.shape[-1]
    return _from_last(_of_rank(last, n) if n <= DIRECT else _order(last), axis)


@accepts_aliases
def topk(
    self: T,
    k: int,
    axis: int = -1,
    largest: bool = True,  # noqa: FBT001, FBT002 - the field's signature
    sorted: bool = True,  # noqa: ARG001, FBT001, FBT002 - the field's signature; they always are
) -> Sorted[T]:
    """Return (values, indices): the k greatest (or least) values along an axis, and their indices (int64).

    The greatest (or least) comes first; `sorted` has no effect. A NaN counts as greatest; of equal values the
    first comes first. Raises `UsageError` for k outside 0..size, `UsageIndexError` for an axis that does not
    exist.
    """
    shape = self.expr.shape
    if not shape:
        return Sorted(*[reshape(part, ()) for part in topk(reshape(self, 1), k, axis, largest)])
    a = axis_of(axis, shape, "topk")
    if not 0 <= whole(k, "topk") <= shape[a]:
        raise UsageError(f"topk: wanted 0 to {shape[a]} values along axis {a} of the shape {shape}, saw {k}")
    return Sorted(_first_values(self, k, a, largest), _first_places(self, k, a, largest))


@method
def _first_places(self: T, k: int, axis: int, largest: bool) -> T:  # noqa: FBT001 - as in `_sorted`
    return _from_last(_first(_keys(self, axis, descending=largest), k), axis)


@method
def _first_values(self: T, k: int, axis: int, largest: bool) -> T:  # noqa: FBT001 - as in `_sorted`
    return apply(TAKE_ALONG_AXIS, (axis, False), self, _first_places(self, k, axis, largest))


def _keys(x: T, axis: int, *, descending: bool) -> T:
    """Return integers that are in the order of the elements, the axis last."""
    dtype = x.expr.dtype
    if dtype is dtypes.bool:
        x = convert(x, dtypes.int32)
    elif dtype.is_float:
        x = _float_keys(widened_float(x))
    rank = len(x.expr.shape)
    x = apply(Ops.PERMUTE, (*[i for i in range(rank) if i != axis], axis), x)
    return apply(Ops.NOT, None, x) if descending else x


def _float_keys(x: T) -> T:
    """Return integers in the order of floats; both zeros are equal, and a NaN is greatest.

    They are the bits of the floats; those of a negative float but the sign are inverted.
    """
    dtype = dtypes.int64 if x.expr.dtype is dtypes.float64 else dtypes.int32
    shape = x.expr.shape
    zero = constant(x, 0.0, x.expr.dtype, shape)
    bits = apply(Ops.BITCAST, dtype, where(apply(Ops.EQ, None, x, zero), 0.0, x))
    last = constant(bits, dtype.max, dtype, shape)
    sign = apply(Ops.SHR, None, bits, constant(bits, dtype.bits - 1, dtype, shape))
    turned = apply(Ops.XOR, None, bits, apply(Ops.AND, None, sign, last))
    return apply(Ops.WHERE, None, apply(Ops.NE, None, x, x), last, turned)


def _from_last(x: T, axis: int) -> T:
    """Return x with its last axis moved to `axis`."""
    rank = len(x.expr.shape)
    return apply(Ops.PERMUTE, (*range(axis), rank - 1, *range(axis, rank - 1)), x)


def _ranks(keys: T) -> T:
    """Return the rank of each element of the last axis: the number of elements before it in order."""
    shape = keys.expr.shape
    square = (*shape, shape[-1])
    rank = len(shape)
    own = apply(Ops.EXPAND, square, apply(Ops.RESHAPE, (*shape, 1), keys))
    other = apply(Ops.EXPAND, square, apply(Ops.RESHAPE, (*shape[:-1], 1, shape[-1]), keys))
    earlier = apply(Ops.LT, None, coordinate(keys, square, rank), coordinate(keys, square, rank - 1))
    tie = apply(Ops.AND, None, apply(Ops.EQ, None, other, own), earlier)
    before = apply(Ops.OR, None, apply(Ops.LT, None, other, own), tie)
    return apply(Ops.REDUCE, (Ops.ADD, (rank,)), convert(before, dtypes.int32))


def _of_rank(ranks: T, k: int) -> T:
    """Return the indices of the elements of the last axis that have the ranks 0 to k - 1."""
    ranks = convert(ranks, dtypes.int32)
    shape = ranks.expr.shape
    whole = (*shape[:-1], k, shape[-1])
    rank = len(shape)
    own = apply(Ops.EXPAND, whole, apply(Ops.RESHAPE, (*shape[:-1], 1, shape[-1]), ranks))
    hit = apply(Ops.EQ, None, own, convert(coordinate(ranks, whole, rank - 1), dtypes.int32))
    return apply(Ops.REDUCE, (Ops.ADD, (rank,)), where(hit, coordinate(ranks, whole, rank), 0))


def _first(keys: T, k: int) -> T:
    """Return the indices of the first k elements, in order, of the last axis.

    The first k of a long row are among the first k of each of its blocks.
    """
    *outer, n = keys.expr.shape
    if n <= DIRECT:
        return _of_rank(_ranks(keys), k)
    if 4 * k > BLOCK:
        order = _order(keys)
        return apply(Ops.SHRINK, (*[(0, m) for m in outer], (0, k)), order)
    blocks = -(-n // BLOCK)
    rows = apply(Ops.RESHAPE, (*outer, blocks, BLOCK), _lengthened(keys, blocks * BLOCK))
    found = _within_row(_of_rank(_ranks(rows), k), BLOCK)
    candidates = apply(Ops.CONTIGUOUS, None, apply(Ops.RESHAPE, (*outer, blocks * k), found))
    axis = len(outer)
    chosen = apply(
        Ops.CONTIGUOUS,
        None,
        apply(TAKE_ALONG_AXIS, (axis, False), _lengthened(keys, blocks * BLOCK), candidates),
    )
    return apply(TAKE_ALONG_AXIS, (axis, False), candidates, _first(chosen, k))


def _lengthened(keys: T, n: int) -> T:
    """Return keys with the last axis extended to n, by keys that come after all others."""
    shape, dtype = keys.expr.shape, keys.expr.dtype
    padded = apply(Ops.PAD, (*[(0, 0)] * (len(shape) - 1), (0, n - shape[-1])), keys)
    place = coordinate(keys, padded.expr.shape, len(shape) - 1)
    own = apply(Ops.LT, None, place, constant(keys, shape[-1], place.expr.dtype, place.expr.shape))
    return apply(Ops.WHERE, None, own, padded, constant(keys, dtype.max, dtype, place.expr.shape))


def _within_row(places: T, length: int) -> T:
    """Return indices in blocks of a length, (..., blocks, indices), as indices in the row."""
    shape = places.expr.shape
    block = coordinate(places, shape, len(shape) - 2)
    return apply(Ops.ADD, None, places, apply(Ops.MUL, None, block, number_like(block, length)))


def _order(keys: T) -> T:
    """Return the indices that sort the last axis."""
    *outer, n = keys.expr.shape
    if n <= DIRECT:
        return _of_rank(_ranks(keys), n)
    length = BLOCK
    while length < n:
        length *= 2
    blocks = apply(Ops.RESHAPE, (*outer, length // BLOCK, BLOCK), _lengthened(keys, length))
    axis = len(outer) + 1
    first = apply(Ops.CONTIGUOUS, None, _of_rank(_ranks(blocks), BLOCK))
    keys, order = _carried((blocks, _places_in_row(blocks)), first, axis)
    size = BLOCK
    while size < length:
        pairs = (*outer, length // (2 * size), 2 * size)
        keys, order = (apply(Ops.RESHAPE, pairs, x) for x in (keys, order))
        keys, order = _carried((keys, order), apply(Ops.CONTIGUOUS, None, _merge(keys, size)), axis)
        size *= 2
    row = apply(Ops.RESHAPE, (*outer, length), order)
    return apply(Ops.SHRINK, (*[(0, m) for m in outer], (0, n)), row)


def _places_in_row(blocks: T) -> T:
    """Return for each element of blocks its place in the row that they were cut from."""
    shape = blocks.expr.shape
    return _within_row(coordinate(blocks, shape, len(shape) - 1), shape[-1])


def _carried(xs: tuple[T, T], places: T, axis: int) -> tuple[T, T]:
    first, second = [
        apply(Ops.CONTIGUOUS, None, apply(TAKE_ALONG_AXIS, (axis, False), x, places)) for x in xs
    ]
    return first, second


def _merge(keys: T, size: int) -> T:
    """Return the indices by which the two sorted halves of the last axis, of `size` keys each, are merged.

    Of the p elements before position p, `left` come from the left half. Bisection finds `left`: the largest
    number for which left element `left - 1` is not greater than right element `p - left`.
    """
    shape = keys.expr.shape
    count = prod(shape)
    flat = apply(Ops.RESHAPE, (count,), keys)
    place = coordinate(keys, shape, len(shape) - 1)
    start = _starts(keys)
    right = apply(Ops.ADD, None, apply(Ops.ADD, None, start, place), number_like(place, size))
    surplus = apply(Ops.SUB, None, place, number_like(place, size))

    def right_first(at: T, taken: T) -> T:
        """Return whether right element p - taken exists and is less than the left element at index `at`."""
        there = apply(Ops.LT, None, surplus, taken)
        own = _elements(flat, apply(Ops.SUB, None, right, taken))
        return apply(Ops.AND, None, there, apply(Ops.LT, None, own, _elements(flat, at)))

    most = apply(Ops.MIN, None, place, number_like(place, size))
    before = apply(Ops.SUB, None, start, number_like(place, 1))
    left = number_like(place, 0)
    step = size
    while step:
        more = apply(Ops.ADD, None, left, number_like(place, step))
        too_many = apply(Ops.LT, None, most, more)
        stop = apply(Ops.OR, None, too_many, right_first(apply(Ops.ADD, None, before, more), more))
        left = apply(Ops.WHERE, None, stop, left, more)
        step //= 2
    none_left = apply(Ops.NOT, None, apply(Ops.LT, None, left, number_like(place, size)))
    is_right = apply(Ops.OR, None, none_left, right_first(apply(Ops.ADD, None, start, left), left))
    at = apply(Ops.SUB, None, apply(Ops.ADD, None, place, number_like(place, size)), left)
    return apply(Ops.WHERE, None, is_right, at, left)


def _starts(keys: T) -> T:
    """Return, for each element, the index of the first element of its row in the flattened tensor."""
    shape = keys.expr.shape
    start = constant(keys, 0, dtypes.int64, shape)
    for i, n in enumerate(shape[:-1]):
        start = apply(Ops.MUL, None, start, number_like(start, n))
        start = apply(Ops.ADD, None, start, coordinate(keys, shape, i))
    return apply(Ops.MUL, None, start, number_like(start, shape[-1]))


def _elements(flat: T, at: T) -> T:
    """Return elements of a vector; an index out of range gives an arbitrary value."""
    shape = at.expr.shape
    return apply(Ops.RESHAPE, shape, apply(Ops.GATHER, 0, flat, apply(Ops.RESHAPE, (prod(shape),), at)))
