"""Order statistics and counts: median, quantile, mode, distinct values, histograms, searches in sorted data.

An axis that does not exist raises `UsageIndexError`, arguments of other classes raise `UsageTypeError`.
"Computes self" means: reads values on the host, which a captured function refuses with `UsageError`.

Not here: sums and means (`reductions`). Next: `sorting`, orders of whole axes.
"""

# ruff: noqa: FBT001, FBT002 - the field's signatures

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from math import prod
from typing import Any, Generic, NamedTuple, cast

from compiler.dtype import dtypes
from frontend.arguments.checks import axis_of, whole
from frontend.arguments.conversion import converting, flag, number, shown
from frontend.evaluation.base import T, TensorBase
from frontend.evaluation.constants import constant, convert, coordinate, narrowed, ruled, widened
from frontend.evaluation.printing import described
from frontend.evaluation.trace import apply, composite
from frontend.ops import creation, reductions
from frontend.ops.arithmetic import div, floordiv
from frontend.ops.elementwise import add, clip, eq, le, lerp, lt, maximum, minimum, mul, ne, sub, where
from frontend.ops.functions import ceil, floor, isnan
from frontend.ops.functions import round as rounded
from frontend.ops.gather_scatter import gather, index_select, masked_select, nonzero, scatter_add
from frontend.ops.movement import expand, movedim, reshape, squeeze, unsqueeze
from frontend.ops.scan import cumsum
from frontend.ops.sorting import argsort, sort
from frontend.ops.splitting import cat, part
from frontend.primitives.gather_scatter import TAKE_ALONG_AXIS
from hcq.errors import UsageError, UsageIndexError, UsageTypeError


class Ordered(NamedTuple, Generic[T]):
    """A value chosen along an axis by its position in ascending order, and its index (int64)."""

    values: T
    indices: T


def _axis(x: TensorBase, axis: int, what: str) -> int:
    a = axis_of(axis, x.expr.shape or (1,), what)
    if x.expr.shape and not x.expr.shape[a]:
        raise UsageIndexError(f"{what}: axis {a} of the shape {x.expr.shape} has no element to choose")
    return a


def _of_rank(x: T, rank: T | int, a: int, keepdim: bool) -> Ordered[T]:
    """Return the elements of a rank, from 0 on in ascending order, along an axis.

    A tensor of ranks has size 1 on that axis.
    """
    if not x.expr.shape:
        return Ordered(x, constant(x, 0, dtypes.int64, ()))
    order = argsort(x, a)
    wanted = (*x.expr.shape[:a], 1, *x.expr.shape[a + 1 :])
    at = part(order, a, rank, rank + 1) if isinstance(rank, int) else gather(order, a, expand(rank, wanted))
    found = gather(x, a, at)
    return Ordered(found, at) if keepdim else Ordered(squeeze(found, a), squeeze(at, a))


@converting
def kthvalue(self: T, k: int, axis: int = -1, keepdim: bool = False) -> Ordered[T]:
    """Return (values, indices): the k-th least value along an axis, counted from 1; NaN counts as greatest.

    Raises `UsageError` for a k outside 1..size, `UsageIndexError` for an axis without elements.
    """
    a = _axis(self, axis, "kthvalue")
    n = (self.expr.shape or (1,))[a]
    if not 1 <= whole(k, "kthvalue") <= n:
        raise UsageError(f"kthvalue: wanted 1 to {n}, saw {k}")
    return _of_rank(self, k - 1, a, flag(keepdim, "kthvalue, keepdim"))


def _of_all(x: T, middle: Any) -> T:
    """Return a median of all elements; those that equal it share its gradient evenly."""
    found: T = middle(reshape(x, -1), 0).values
    return ruled("every_extreme", found, x) if x.expr.dtype.is_float and x.expr.shape else found


@converting
def median(self: T, axis: int | None = None, keepdim: bool = False) -> T | Ordered[T]:
    """Return the middle value of all elements, the lower of two; NaN if one is NaN.

    Along an axis, return (values, indices); an axis without elements raises `UsageIndexError`. The median of
    no floats is NaN, of no integers it raises `UsageError`.
    """
    if axis is None:
        if not prod(self.expr.shape):
            return constant(self, math.nan, self.expr.dtype, ())
        return _of_all(self, median)
    a = _axis(self, axis, "median")
    n = (self.expr.shape or (1,))[a]
    if not self.expr.dtype.is_float or not self.expr.shape:
        return _of_rank(self, (n - 1) // 2, a, keepdim)
    bad = reductions.any(isnan(self), a, keepdim=True)
    return _of_rank(self, where(bad, n - 1, (n - 1) // 2), a, keepdim)


@converting
def nanmedian(self: T, axis: int | None = None, keepdim: bool = False) -> T | Ordered[T]:
    """Return the middle value of the elements that are not NaN, the lower of two; else as `median`."""
    if axis is None and not prod(self.expr.shape):
        return median(self)
    if axis is None:
        return _of_all(self, nanmedian)
    a = _axis(self, axis, "nanmedian")
    if not self.expr.shape:
        return _of_rank(self, 0, a, keepdim)
    count = reductions.sum(eq(self, self), a, keepdim=True)
    return _of_rank(self, floordiv(maximum(sub(count, 1), 0), 2), a, keepdim)


def _quantiles(x: T, q: Any, axis: int | None, keepdim: bool, how: str, *, skip: bool) -> T:
    what = "nanquantile" if skip else "quantile"
    if not x.expr.dtype.is_float:
        raise UsageError(f"{what}: wanted floats, saw {x.expr.dtype.name}; cast first")
    if how not in {"linear", "lower", "higher", "midpoint", "nearest"}:
        raise UsageError(f"{what}: wanted linear, lower, higher, midpoint or nearest, saw {how!r}")
    make: Any = x.__class__
    given = q if q.__class__ is x.__class__ else make(q, dtype=x.expr.dtype, device=x.expr.device)
    if len(given.expr.shape) > 1:
        raise UsageError(f"{what}: wanted a number or a vector of shares, saw the shape {given.expr.shape}")
    if q.__class__ is not x.__class__ and not all(
        0 <= v <= 1 for v in (q if isinstance(q, (list, tuple)) else [q])
    ):
        raise UsageError(f"{what}: wanted shares within 0..1, saw {q}")
    rank = len(x.expr.shape)
    if axis is None:
        flat, a = reshape(x, -1), 0
    else:
        flat, a = (x, axis_of(axis, x.expr.shape, what)) if rank else (reshape(x, 1), 0)
    n = flat.expr.shape[a]
    if not n:
        raise UsageError(f"{what}: there is no element to choose in the shape {x.expr.shape}")
    row = movedim(sort(flat, a).values, a, -1)
    share = reshape(convert(given, x.expr.dtype), (-1,) + (1,) * (len(row.expr.shape)))
    last: Any = float(n - 1)
    if skip:
        last = maximum(sub(reductions.sum(convert(eq(row, row), x.expr.dtype), -1, keepdim=True), 1.0), 0.0)
    within = clip(share, 0.0, 1.0)
    place = mul(within, last)
    if not skip:
        place = where(reductions.any(isnan(row), -1, keepdim=True), last, place)  # it gets the gradient
    low, high = floor(place), ceil(place)
    if how == "nearest":
        low = high = rounded(place)
    elif how in {"lower", "higher"}:
        low = high = low if how == "lower" else high
    count = share.expr.shape[0]
    every = expand(unsqueeze(row, 0), (count, *row.expr.shape))
    wanted = (count, *row.expr.shape[:-1], 1)
    first, second = (gather(every, -1, convert(expand(p, wanted), dtypes.int32)) for p in (low, high))
    weight = sub(place, low) if how == "linear" else constant(x, 0.5, x.expr.dtype, ())
    found = lerp(first, second, expand(weight, wanted)) if low is not high else first
    found = where(eq(within, share), found, math.nan) if given is q else found
    if axis is None:
        found = reshape(found, (count, *(1,) * rank))
    else:
        found = movedim(found, -1, a + 1) if rank else reshape(found, (count,))
    reduced = tuple(range(1, rank + 1)) if axis is None else (a + 1,)
    kept = found if keepdim or not rank else squeeze(found, reduced)
    return kept if given.expr.shape else squeeze(kept, 0)


@converting
def quantile(
    self: T,
    q: float | Sequence[float] | T,
    axis: int | None = None,
    keepdim: bool = False,
    *,
    interpolation: str = "linear",
) -> T:
    """Return the q-quantiles along an axis (None: of all elements), NaN where an element is NaN.

    A vector of shares q makes a new first axis. `interpolation` is "linear", "lower", "higher", "midpoint" or
    "nearest". A share outside 0..1 raises `UsageError`; in a tensor q it gives NaN. Raises `UsageError` for
    integers, for no elements and for q of several axes.
    """
    return _quantiles(self, q, axis, keepdim, interpolation, skip=False)


@converting
def nanquantile(
    self: T,
    q: float | Sequence[float] | T,
    axis: int | None = None,
    keepdim: bool = False,
    *,
    interpolation: str = "linear",
) -> T:
    """Return the quantiles of the elements that are not NaN; else as `quantile`."""
    return _quantiles(self, q, axis, keepdim, interpolation, skip=True)


@converting
def mode(self: T, axis: int = -1, keepdim: bool = False) -> Ordered[T]:
    """Return (values, indices): the most frequent value along an axis, the least of several, its last index.

    n elements take n² operations. Raises `UsageIndexError` for an axis without elements.
    """
    a = _axis(self, axis, "mode")
    if not self.expr.shape:
        return _of_rank(self, 0, a, keepdim)
    row = movedim(sort(self, a).values, a, -1)
    same = eq(unsqueeze(row, -1), unsqueeze(row, -2))
    best = reductions.argmax(reductions.sum(same, -1), -1, keepdim=True)
    value = gather(row, -1, best)
    own = movedim(self, a, -1)
    place = coordinate(own, own.expr.shape, len(own.expr.shape) - 1)
    last = movedim(reductions.max(where(eq(own, value), place, 0), -1, keepdim=True), -1, a)
    found = gather(self, a, last)
    return Ordered(found, last) if keepdim else Ordered(squeeze(found, a), squeeze(last, a))


@converting
def msort(self: T) -> T:
    """Return self sorted along axis 0."""
    return sort(self, 0).values


def _runs(row: T) -> T:
    """Return which elements of a vector differ from the element before, as bool; the first is True."""
    first = constant(row, True, dtypes.bool, (min(1, row.expr.shape[0]),))
    n = row.expr.shape[0]
    return cat(first, ne(part(row, 0, 1, n), part(row, 0, 0, n - 1))) if n > 1 else first


def _counted(mask: T, count: int) -> T:
    """Return the lengths of the `count` runs that begin where a mask is true."""
    starts: T = cast("Any", nonzero(mask, as_tuple=True))[0]
    ends = constant(starts, mask.expr.shape[0], starts.expr.dtype, (min(1, count),))
    return sub(cat(part(starts, 0, min(1, count), count), ends), starts)


def _distinct(row: T, inverse: Any, counts: bool) -> tuple[T, ...] | T:
    mask = _runs(row)
    found = [masked_select(row, mask)]
    if inverse is not None:
        found.append(inverse(sub(cumsum(mask, 0), 1)))
    if counts:
        found.append(_counted(mask, found[0].expr.shape[0]))
    return tuple(found) if len(found) > 1 else found[0]


def _distinct_parts(x: T, axis: int, inverse: bool, counts: bool, *, in_order: bool) -> tuple[T, ...] | T:
    """Return the distinct parts along an axis: all in lexical order, or the first of each run."""
    a = axis_of(axis, x.expr.shape, "unique")
    n = x.expr.shape[a]
    each: Any = reshape(movedim(x, a, 0), (n, prod(x.expr.shape) // n if n else 0))
    rows = each.tolist()
    order = sorted(range(n), key=rows.__getitem__) if in_order else [*range(n)]
    starts = [k for k in range(n) if not k or rows[order[k]] != rows[order[k - 1]]]
    sizes = [end - start for start, end in pairwise([*starts, n])]
    back = [0] * n
    for group, (start, size) in enumerate(zip(starts, sizes, strict=True)):
        for k in order[start : start + size]:
            back[k] = group
    make: Any = x.__class__
    lists = [[order[k] for k in starts], *([back] if inverse else []), *([sizes] if counts else [])]
    first, *rest = [make(v, dtype=dtypes.int64, device=x.expr.device) for v in lists]
    found = index_select(x, a, first)
    return (found, *rest) if rest else found


@converting
def unique(
    self: T,
    sorted: bool = True,
    return_inverse: bool = False,
    return_counts: bool = False,
    dim: int | None = None,
) -> tuple[T, ...] | T:
    """Return the distinct values of self in ascending order. Computes self.

    With `return_inverse` or `return_counts`, return a tuple: the values, the index of each element among
    them, how often each value occurs. With `dim`, return the distinct slices along that axis, in
    lexicographic order, compared on the host. `sorted` has no effect.
    """
    flag(sorted, "unique, sorted")
    if dim is not None:
        return _distinct_parts(self, dim, return_inverse, return_counts, in_order=True)
    flat = reshape(self, (prod(self.expr.shape),))
    in_order = sort(flat, 0)

    def back(places: T) -> T:
        return reshape(gather(places, 0, argsort(in_order.indices, 0)), self.expr.shape)

    return _distinct(in_order.values, back if return_inverse else None, return_counts)


@converting
def unique_consecutive(
    self: T, return_inverse: bool = False, return_counts: bool = False, dim: int | None = None
) -> tuple[T, ...] | T:
    """Return the first element of each run of equal elements of the flattened tensor. Computes self.

    With `return_inverse` or `return_counts`, return a tuple: the elements, the index of the run of each
    element, the lengths of the runs. With `dim`, runs are of slices along that axis, compared on the host.
    """
    if dim is not None:
        return _distinct_parts(self, dim, return_inverse, return_counts, in_order=False)
    flat = reshape(self, (prod(self.expr.shape),))
    same = (lambda places: reshape(places, self.expr.shape)) if return_inverse else None
    return _distinct(flat, same, return_counts)


@converting
def bincount(self: T, weights: T | None = None, minlength: int = 0) -> T:
    """Return how often each number from 0 on occurs in a vector of integers, or the sum of its weights.

    Computes self: the size is the greatest number + 1, at least `minlength`. Counts are int64, sums of
    weights float32 for float32 weights, else float64. Raises `UsageError` for negative numbers, and for
    weights of another shape.
    """
    if len(self.expr.shape) != 1 or not self.expr.dtype.is_int:
        raise UsageError(
            f"bincount: wanted a vector of integers, saw {self.expr.dtype.name}{list(self.expr.shape)}"
        )
    if whole(minlength, "bincount") < 0:
        raise UsageError(f"bincount: wanted a minlength that is not negative, saw {minlength}")
    if weights is not None and weights.expr.shape != self.expr.shape:
        raise UsageError(f"bincount: wanted a weight for each of {self.expr.shape}, saw {weights.expr.shape}")
    n = self.expr.shape[0]
    if n and reductions.min(self).item() < 0:
        raise UsageError("bincount: wanted numbers that are not negative")
    size = max(int(minlength), int(reductions.max(self).item()) + 1 if n else 0)
    if weights is not None and weights.expr.dtype is not dtypes.float32:
        weights = convert(weights, dtypes.float64)
    each = constant(self, 1, dtypes.int64, (n,)) if weights is None else weights
    return scatter_add(constant(self, 0, each.expr.dtype, (size,)), 0, self, each)


@converting
def histc(self: T, bins: int = 100, low: float = 0.0, high: float = 0.0) -> T:
    """Return how many elements lie in each of `bins` equal parts of low..high; others are not counted.

    If `low` equals `high`, the least and the greatest element, which are computed, are used instead. Raises
    `UsageError` for integers, fewer than one bin, low > high, and computed borders that are not finite.
    """
    if not self.expr.dtype.is_float:
        raise UsageError(f"histc: wanted floats, saw {self.expr.dtype.name}; cast first")
    if whole(bins, "histc") < 1 or low > high:
        raise UsageError(f"histc: wanted at least one part and low <= high, saw {bins} of {low}..{high}")
    x = widened(reshape(self, (prod(self.expr.shape),)))
    if low == high and x.expr.shape[0]:
        low, high = float(reductions.min(x).item()), float(reductions.max(x).item())
        if not math.isfinite(high - low):
            raise UsageError(f"histc: the elements are from {low} to {high}; give a finite range")
    if low == high:
        low, high = low - 1, high + 1
    inside = mul(le(x, high), eq(lt(x, low), False))
    place = convert(floor(mul(sub(x, low), bins / (high - low))), dtypes.int32)
    at = where(inside, minimum(place, bins - 1), 0)
    zero = constant(x, 0, x.expr.dtype, (bins,))
    return narrowed(scatter_add(zero, 0, at, convert(inside, x.expr.dtype)), self)


class Histogram(NamedTuple, Generic[T]):
    """Counts of n parts of a range, or densities, and the n + 1 borders of the parts."""

    hist: T
    bin_edges: T


@converting
def histogram(
    self: T,
    bins: int | T,
    *,
    range: tuple[float, float] | None = None,
    weight: T | None = None,
    density: bool = False,
) -> Histogram[T]:
    """Return how many elements lie in each of `bins` equal parts of a range, and the borders of the parts.

    Without a range, it is from the least to the greatest element, which are computed. `weight` is how often
    each element counts. With `density`, counts are divided by their sum and by the width of the part. `bins`
    may be a vector of borders in ascending order; an element equal to the last border is in the last part.

    Raises `UsageError` for integers, for low > high, and for borders with a range; `UsageTypeError` for a
    range that is no pair.
    """
    count = prod(self.expr.shape)
    if bins.__class__ is self.__class__:
        return _between_borders(self, bins, range, weight, density)
    bins = whole(bins, "histogram, bins")
    given: Any = range
    if given is not None and not (isinstance(given, (tuple, list)) and len(given) == 2):
        raise UsageTypeError(f"histogram: range needs two numbers, saw {shown(given)}")
    low, high = (0.0, 0.0) if given is None else [number(n, "histogram, range") for n in given]
    if given is None and count:
        low, high = float(reductions.min(self).item()), float(reductions.max(self).item())
    if low == high:
        low, high = (low - 0.5, high + 0.5) if count else (0.0, 1.0)
    counts = histc(self, bins, low, high)
    edges = creation.linspace(
        self.__class__, low, high, bins + 1, dtype=self.expr.dtype, device=self.expr.device
    )
    if weight is not None:
        return _between_borders(self, edges, None, weight, density)
    if density:
        counts = div(counts, mul(reductions.sum(counts), (high - low) / bins))
    return Histogram(counts, edges)


def _between_borders(x: T, edges: Any, range: Any, weight: T | None, density: bool) -> Histogram[T]:
    """Return the counts, or the weights, of the elements between borders."""
    n = prod(edges.expr.shape) - 1
    if len(edges.expr.shape) != 1 or n < 1 or range is not None:
        raise UsageError(f"histogram: wanted a vector of borders and no range, saw {shown(edges)}, {range}")
    if weight is not None and weight.expr.shape != x.expr.shape:
        raise UsageError(f"histogram: wanted a weight for each of {x.expr.shape}, saw {weight.expr.shape}")
    flat = reshape(x, (prod(x.expr.shape),))
    first, last = part(edges, 0, 0, 1), part(edges, 0, n, n + 1)
    inside = mul(le(flat, last), le(first, flat))
    place = minimum(sub(searchsorted(edges, flat, right=True), 1), n - 1)
    each = convert(inside, x.expr.dtype)
    each = each if weight is None else where(inside, reshape(weight, flat.expr.shape), 0.0)
    counts = scatter_add(constant(x, 0, each.expr.dtype, (n,)), 0, where(inside, place, 0), each)
    if density:
        widths = sub(part(edges, 0, 1, n + 1), part(edges, 0, 0, n))
        counts = div(counts, mul(reductions.sum(counts), widths))
    return Histogram(counts, edges)


@composite
def _between(self: T, places: T) -> T:
    """Return elements of the last axis at places that are in range; checks would repeat the earlier ones."""
    return apply(TAKE_ALONG_AXIS, (len(self.expr.shape) - 1, False), self, places)


@converting
def searchsorted(
    self: T,
    values: T,
    *,
    out_int32: bool = False,
    right: bool = False,
    side: str | None = None,
    sorter: T | None = None,
) -> T:
    """Return the indices before which values are to be inserted into a sorted vector.

    They are int64, with `out_int32` int32.
    self is a vector, or has a sorted row for each row of `values`. The index is the first possible one, with
    `right` or side="right" the last. If self is not sorted, `sorter` has the indices that sort it, int64 in
    the shape of self; without, indices are those of PyTorch's binary search. Raises `UsageError` for shapes
    that do not fit, and for `right` beside side="left".
    """
    if side not in {None, "left", "right"} or (side == "left" and right):
        raise UsageError(f"searchsorted: wanted one side, left or right, saw {side!r} and right={right}")
    found = dtypes.int32 if flag(out_int32, "searchsorted, out_int32") else dtypes.int64
    shape, given = self.expr.shape, values.expr.shape
    if not shape or (len(shape) > 1 and shape[:-1] != given[:-1]):
        raise UsageError(f"searchsorted: wanted a vector, or rows for the rows of {given}, saw {shape}")
    if sorter is not None:
        if sorter.expr.shape != shape or sorter.expr.dtype is not dtypes.int64:
            raise UsageError(f"searchsorted: wanted a sorter int64{shape}, saw {described(sorter)}")
        self = gather(self, -1, sorter)
    wanted = values if len(shape) > 1 else reshape(values, (prod(given),))
    last = flag(right, "searchsorted, right") or side == "right"
    low = constant(self, 0, dtypes.int64, wanted.expr.shape)
    high = constant(self, shape[-1], dtypes.int64, wanted.expr.shape)
    for _ in range(shape[-1].bit_length()):
        middle = floordiv(add(low, high), 2)
        at = _between(self, minimum(middle, shape[-1] - 1))
        above, left = lt(wanted, at) if last else le(wanted, at), lt(low, high)
        right_of = where(left, add(middle, 1), low)
        low, high = where(above, low, right_of), where(above, where(left, middle, high), high)
    return convert(reshape(low, given), found)


@converting
def bucketize(self: T, boundaries: T, *, out_int32: bool = False, right: bool = False) -> T:
    """Return the index of each element of self among sorted boundaries: see `searchsorted`."""
    return searchsorted(boundaries, self, out_int32=out_int32, right=right)


@converting
def isin(self: T, values: T, *, invert: bool = False) -> T:
    """Return, as bool, whether each element is one of the values; with `invert`, whether it is none."""
    hit = reductions.any(eq(unsqueeze(self, -1), reshape(values, (prod(values.expr.shape),))), -1)
    return ne(hit, True) if flag(invert, "isin, invert") else hit
