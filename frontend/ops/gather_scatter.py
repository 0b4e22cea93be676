"""Gather and scatter: elements along one axis at the indices of an integer tensor, and where a mask is true.

Negative indices count from the end; PyTorch accepts them only in `take`. An index out of range raises
`UsageIndexError` if the host knows its value, or under `HCQ_VALIDATE=1` (`frontend.evaluation.limits`);
otherwise it reads 0, and a value written to it is ignored. An axis that does not exist and an index of floats
raise `UsageIndexError`, too; shapes that do not fit raise `UsageError`, arguments of other classes
`UsageTypeError`.

Small sums and writes compare every position with every index of its row in one kernel. Larger ones sort the
indices, in about ten kernels (`placed`).

Not here: `x[key]` (`indexing`). Next: `frontend.primitives.gather_scatter`, the primitives.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from math import prod
from typing import Any, Final, cast

from compiler.dtype import DType, dtypes
from compiler.ir.ops import Ops
from frontend.arguments.aliases import accepts_aliases
from frontend.arguments.checks import Shape, axis_of, broadcast, whole
from frontend.arguments.conversion import converting, flag, read
from frontend.evaluation.base import T, TensorBase
from frontend.evaluation.constants import Number, constant, convert, coordinate, ruled, suited
from frontend.evaluation.limits import IndexLimit, limited, refuse_known
from frontend.evaluation.trace import apply, composite, method
from frontend.ops.arithmetic import div, floordiv, mod
from frontend.ops.elementwise import add, eq, gt, invert, lt, ne, sub, where
from frontend.ops.indexing import getitem, limit_of, places_of, wrapped
from frontend.ops.movement import contiguous, expand, reshape
from frontend.ops.reductions import any as any_of
from frontend.ops.reductions import fold
from frontend.ops.reductions import sum as total
from frontend.ops.resizing import pad
from frontend.ops.sorting import BLOCK, argsort
from frontend.ops.splitting import cat, part, stack
from frontend.primitives.gather_scatter import LAST_INDEX, SEGMENT_SUM, TAKE_ALONG_AXIS
from hcq.errors import UsageError, UsageIndexError, UsageTypeError

_LAUNCHES: Final = 1 << 18
"""Comparisons that take as long as the kernel launches of a sum with sorted indices."""
_STEP: Final = 8
"""Values that one step of a sum reads for each result; each step multiplies the length by it."""


def placed(values: T, index: T, axis: int, n: int) -> T:
    """Return, for each of n positions along an axis, the sum of the values with that index (SEGMENT_SUM)."""
    shape = values.expr.shape
    if _compares(n, shape[axis], prod(shape), prod(index.expr.shape)):
        return apply(SEGMENT_SUM, (axis, n), values, index)
    return apply(SEGMENT_SUM, (axis, n), values, index, argsort(index, axis))


def last_named(index: T, axis: int, n: int) -> T:
    """Return, for each of n positions along an axis, the position of the last index with that value.

    It is less than 0 if no index has the value: see LAST_INDEX.
    """
    shape = index.expr.shape
    count = prod(shape)
    if _compares(n, shape[axis], count, count):
        return apply(LAST_INDEX, (axis, n), index)
    return apply(LAST_INDEX, (axis, n), index, argsort(index, axis))


def _compares(n: int, m: int, values: int, indices: int) -> bool:
    """Return whether comparing every position with every index takes less time than sorting the indices.

    There are n positions and m indices in a row, and `values` and `indices` in all.
    """
    steps = (max(m - 1, 0).bit_length() + 2) // 3
    in_order = indices * 2 * min(m, BLOCK) + values * _STEP * steps + values // max(m, 1) * n
    return n * values <= 2 * in_order + _LAUNCHES


@accepts_aliases
def gather(self: T, axis: int, index: T) -> T:
    """Return out[i][j]... = self[..., index[i][j]..., ...] along one axis: index has the rank of self.

    The result has the shape of index and the dtype of self.

        Tensor([[1, 2], [3, 4]]).gather(1, Tensor([[0], [1]]))      # [[1], [4]]

    Raises `UsageError` for an index of another rank, or one that is longer than self on another axis. For
    indices out of range see the module.
    """
    index = _index("gather", self, axis, index)
    if len(self.expr.shape) != len(index.expr.shape) and 0 in index.expr.shape:
        return constant(self, 0, self.expr.dtype, index.expr.shape)
    if self.expr.shape and index.expr.shape:
        return _gather(self, axis, index)
    return reshape(_gather(with_axes(self), axis, with_axes(index)), index.expr.shape)


@composite
def _gather(self: T, axis: int, index: T) -> T:
    a = _checked("gather", self.expr.shape, axis, index)
    x = apply(Ops.SHRINK, _bounds(self.expr.shape, index.expr.shape, a), self)
    return apply(TAKE_ALONG_AXIS, (a, False), x, wrapped(index, self.expr.shape[a], "gather", a))


@accepts_aliases
def take(self: T, index: T, axis: int | None = None) -> T:
    """Return the elements of the flattened tensor at the indices, in the shape of the index.

    With an axis, return the elements of that axis at the indices; the shape of the index replaces the axis.

        Tensor([[10, 20], [30, 40]]).take([[2, 0]])      # [[30, 10]]

    Negative indices count from the end. An index out of range is as in `gather`.
    """
    if axis is None:
        self, axis = reshape(self, -1), 0
    return _take(self, _index("take", self, axis, index), axis)


@composite
def _take(self: T, index: T, axis: int) -> T:
    a = axis_of(axis, self.expr.shape, "take")
    return apply(Ops.GATHER, a, self, wrapped(index, self.expr.shape[a], "take", a))


def rows(weight: T, index: T) -> T:
    """Return the rows of a table at indices from 0 on; a negative index is out of range."""
    if hasattr(index, "dispatch"):
        return cast("T", index.dispatch(rows, (weight, index), {}))
    limit = IndexLimit("Embedding", 0, weight.expr.shape[0])
    refuse_known(index, limit)
    return _rows(weight, index, limit)


@composite
def _rows(self: T, index: T, limit: IndexLimit) -> T:
    index = limited(index, limit)
    if index.expr.dtype not in {dtypes.int32, dtypes.int64}:
        index = convert(index, dtypes.int64 if index.expr.dtype.bits >= 32 else dtypes.int32)
    return apply(Ops.GATHER, 0, self, index)


@accepts_aliases
def take_along_dim(self: T, index: T, axis: int | None = None) -> T:
    """Return `gather(axis, index)`, where self and index broadcast on the other axes.

    Without an axis both are flattened first. Raises `UsageError` for an index of another rank, and for other
    axes that do not broadcast.
    """
    index = index if index.__class__ is self.__class__ else read(gather, "index", index, self)
    if axis is None:
        return gather(reshape(self, -1), 0, reshape(index, -1))
    a = axis_of(axis, self.expr.shape, "take_along_dim")
    if len(index.expr.shape) != len(self.expr.shape):
        raise UsageError(
            f"take_along_dim: the index {index.expr.shape} must have the rank of {self.expr.shape}"
        )
    shapes = [tuple([1 if i == a else n for i, n in enumerate(t.expr.shape)]) for t in (self, index)]
    common = broadcast(shapes, "take_along_dim")
    x, places = (expand(t, tuple([-1 if i == a else n for i, n in enumerate(common)])) for t in (self, index))
    return gather(x, a, places)


@accepts_aliases
def index_select(self: T, axis: int, index: T) -> T:
    """Return the elements of an axis at the indices of a vector of integers, or at one integer.

    An index out of range is as in `gather`. Raises `UsageIndexError` for an index of more than one axis.
    """
    index = with_axes(_index("index_select", self, axis, index))
    if len(index.expr.shape) != 1 or (not self.expr.shape and index.expr.shape[0] != 1):
        raise UsageIndexError(
            f"index_select of {self.expr.shape} needs a vector of integers, saw the shape "
            f"{index.expr.shape}; take() accepts any shape"
        )
    return _take(self, index, axis) if self.expr.shape else reshape(_take(with_axes(self), index, axis), ())


def with_axes(x: T) -> T:
    """Return a tensor of shape () as one of shape (1,), and any other unchanged."""
    return x if x.expr.shape else reshape(x, 1)


def _index(what: str, x: T, axis: int, index: T) -> T:
    """Return an index as a tensor. Raises `UsageIndexError` if a value known on the host is out of range."""
    found: T = index if index.__class__ is x.__class__ else read(gather, "index", index, x)
    shape = x.expr.shape or (1,)
    a = axis_of(axis, shape, what)
    refuse_known(found, limit_of(what, a, shape[a]))
    return found


@accepts_aliases
def scatter_add(self: T, axis: int, index: T, src: T) -> T:
    """Return self with src[i][j]... added at [..., index[i][j]..., ...] along one axis.

    The index has the rank of self and no axis longer than in src. All values for one element are added:
    16-bit floats in float32, rounded once. A sum of bools is whether one of them is true.

    Raises `UsageError` for a src of another dtype than self, and for shapes that do not fit. For indices out
    of range see the module.
    """
    return _lifted(_scatter_add, self, axis, _index("scatter_add", self, axis, index), src)


def _lifted(fn: Callable[..., T], self: T, axis: int, index: T, src: T | Number, *rest: Any) -> T:
    """Return fn(self, axis, index, src, *rest), where tensors of shape () count as of shape (1,).

    An index of another rank may name no element.
    """
    if 0 in index.expr.shape and len(index.expr.shape) != len(self.expr.shape):
        return contiguous(self)
    if self.expr.shape and index.expr.shape:
        return fn(self, axis, index, src, *rest)
    given: Any = src
    source = with_axes(given) if hasattr(given, "expr") else given
    return reshape(fn(with_axes(self), axis, with_axes(index), source, *rest), self.expr.shape)


@composite
def _scatter_add(self: T, axis: int, index: T, src: T) -> T:
    shape, dtype = self.expr.shape, self.expr.dtype
    a = _checked("scatter_add", shape, axis, index)
    if dtype is dtypes.bool:
        values = convert(_values("scatter_add", self, index, src), dtypes.int32)
        return ne(_scatter_add(convert(self, dtypes.int32), axis, index, values), 0)
    place = wrapped(index, shape[a], "scatter_add", a)
    total = placed(_values("scatter_add", self, index, src), place, a, shape[a])
    return add(self, _grown(total, shape))


@accepts_aliases
def scatter(self: T, axis: int, index: T, src: T | Number, *, reduce: str | None = None) -> T:
    """Return self with src[i][j]..., or a number, written at [..., index[i][j]..., ...] along one axis.

    The index has the rank of self and no axis longer than in src. Of several values for one element, the last
    along the axis is written. With `reduce` "add" or "multiply", all values are added to the element, or
    multiplied with it, instead.

    Raises `UsageError` for a src of another dtype than self, for shapes that do not fit, and for another
    `reduce`. For indices out of range see the module.
    """
    if reduce is not None:
        if not isinstance(reduce, str) or reduce not in {"add", "multiply"}:
            raise UsageError(f"scatter: wanted the reduce 'add' or 'multiply', saw {reduce!r}")
        index = _index("scatter", self, axis, index)
        if isinstance(src, (int, float)):
            src = constant(self, suited(src, self.expr.dtype), self.expr.dtype, index.expr.shape)
        return _lifted(_scatter_reduce, self, axis, index, src, "sum" if reduce == "add" else "prod", True)
    return _lifted(_scatter, self, axis, _index("scatter", self, axis, index), src)


_REDUCTIONS: Final = {"sum": Ops.ADD, "prod": Ops.MUL, "amax": Ops.MAX, "amin": Ops.MIN, "mean": Ops.ADD}


@accepts_aliases
def scatter_reduce(self: T, axis: int, index: T, src: T, reduce: str, *, include_self: bool = True) -> T:
    """Return self with values of src combined at [..., index[i][j]..., ...] along one axis.

    `reduce` is "sum", "prod", "mean" (of integers rounded down), "amax" or "amin"; another one raises
    `UsageError`. Without `include_self`, an element of self that an index names takes no part in its result.
    Shapes, dtypes and other errors are those of `scatter_add`. Every position is compared with every index of
    its row.
    """
    if not isinstance(reduce, str) or reduce not in _REDUCTIONS:
        raise UsageError(f"scatter_reduce: wanted one of {', '.join(_REDUCTIONS)}, saw {reduce!r}")
    index = _index("scatter_reduce", self, axis, index)
    return _lifted(_scatter_reduce, self, axis, index, src, reduce, include_self)


@composite
def _scatter_reduce(self: T, axis: int, index: T, src: T, how: str, own: bool) -> T:  # noqa: FBT001, PLR0917 - internal
    shape, dtype = self.expr.shape, self.expr.dtype
    a = _checked("scatter_reduce", shape, axis, index)
    place = wrapped(index, shape[a], "scatter_reduce", a)
    rank, n, m = len(shape), shape[a], index.expr.shape[a]
    values = _values("scatter_reduce", self, index, src)
    order = (*[i for i in range(rank) if i != a], a)
    rows = apply(Ops.PERMUTE, order, values)
    at = apply(Ops.PERMUTE, order, place)
    before = rows.expr.shape[:-1]
    wide = (*before, n, m)
    rows, at = (apply(Ops.EXPAND, wide, apply(Ops.RESHAPE, (*before, 1, m), t)) for t in (rows, at))
    hit = eq(at, coordinate(self, wide, rank - 1))
    target = apply(Ops.PERMUTE, order, self)
    held = apply(Ops.SHRINK, (*[(0, k) for k in before], (0, n)), target)
    some = any_of(hit, -1)
    neutral = {"prod": 1, "amax": least(dtype), "amin": greatest(dtype)}.get(how, 0)
    first = held if own else where(some, neutral, held)
    every = cat(where(hit, rows, neutral), apply(Ops.RESHAPE, (*before, n, 1), first), axis=rank)
    found = fold(_REDUCTIONS[how], every, (rank,), keepdim=False)
    if how == "mean":
        count = add(total(hit, -1), 1 if own else 0)
        count = where(lt(count, 1), 1, count)
        found = div(found, count) if dtype.is_float else floordiv(found, count)
    found = where(some, convert(found, dtype), held)
    inside = apply(
        Ops.PAD, tuple([(0, k - h) for k, h in zip(target.expr.shape, held.expr.shape, strict=True)]), found
    )
    covered = constant(self, True, dtypes.bool, held.expr.shape)
    covered = apply(
        Ops.PAD, tuple([(0, k - h) for k, h in zip(target.expr.shape, held.expr.shape, strict=True)]), covered
    )
    result = where(covered, inside, target)
    return apply(Ops.PERMUTE, tuple([order.index(i) for i in range(rank)]), result)


def least(dtype: DType) -> float:
    """Return the least number of a dtype: -infinity for floats."""
    return -math.inf if dtype.is_float else dtype.min


def greatest(dtype: DType) -> float:
    """Return the greatest number of a dtype: infinity for floats."""
    return math.inf if dtype.is_float else dtype.max


@composite
def _scatter(self: T, axis: int, index: T, src: T | Number) -> T:
    a = _checked("scatter", self.expr.shape, axis, index)
    return written(
        self, a, wrapped(index, self.expr.shape[a], "scatter", a), _values("scatter", self, index, src)
    )


def written(x: T, axis: int, place: T, values: T) -> T:
    """Return x with values written at the indices `place` along an axis; those out of range are ignored.

    Of several values for one element the last is written, and each has the gradient there, as in PyTorch.
    """
    shape = x.expr.shape
    last = add(last_named(place, axis, shape[axis]), 1)  # 0: no index names it
    last = _grown(where(gt(last, 0), last, 0), shape)
    n = place.expr.shape[axis]
    rows = _grown(values, tuple([n if i == axis else m for i, m in enumerate(shape)]))
    found = where(gt(last, 0), apply(TAKE_ALONG_AXIS, (axis, False), rows, sub(last, 1)), x)
    if not x.expr.dtype.is_float:
        return found
    each = apply(SEGMENT_SUM, (axis, shape[axis]), values, place)
    return ruled("beside", found, where(gt(last, 0), _grown(each, shape), x))


def _checked(what: str, shape: Shape, axis: int, index: TensorBase) -> int:
    """Return the axis counted from the front.

    Raises `UsageError` for an index of another rank, or one that is longer on another axis.
    """
    a = axis_of(axis, shape, what)
    wanted = index.expr.shape
    if len(wanted) != len(shape) or any(
        m > n for i, (m, n) in enumerate(zip(wanted, shape, strict=True)) if i != a
    ):
        raise UsageError(
            f"{what} along axis {a}: the index {wanted} must have the rank of {shape}, "
            "and no other axis longer"
        )
    return a


def _bounds(shape: Shape, wanted: Shape, axis: int) -> tuple[tuple[int, int], ...]:
    """Return the bounds of the part of a shape that an index can name: all of the axis."""
    return tuple([(0, n if i == axis else wanted[i]) for i, n in enumerate(shape)])


def _values(what: str, x: T, index: T, src: T | Number) -> T:
    """Return the values to write, in the shape of the index: those of a tensor, or one number."""
    dtype, wanted = x.expr.dtype, index.expr.shape
    if isinstance(src, (int, float)):
        return constant(x, suited(src, dtype), dtype, wanted)
    shape = src.expr.shape
    if len(shape) != len(wanted) or any(m > n for m, n in zip(wanted, shape, strict=True)):
        raise UsageError(
            f"{what}: src has the shape {shape}; wanted each axis at least as long as in the index, {wanted}"
        )
    if src.expr.dtype is not dtype:
        raise UsageError(f"{what}: src is {src.expr.dtype.name}, self is {dtype.name}; cast one of them")
    return apply(Ops.SHRINK, tuple([(0, n) for n in wanted]), src)


def _grown(x: T, shape: Shape) -> T:
    """Return x with zeros after it, up to a shape."""
    return apply(Ops.PAD, tuple([(0, n - m) for n, m in zip(shape, x.expr.shape, strict=True)]), x)


@accepts_aliases
def masked_select(self: T, mask: T, *, size: int | None = None, fill_value: float = 0) -> T:
    """Return the elements where a bool mask is true, as a vector; self and mask broadcast.

    The mask is computed, unless `size` gives the length of the result: elements beyond it are left out, and
    missing ones are `fill_value`.

        Tensor([3, 1, 2]).masked_select(Tensor([True, False, True]))      # [3, 2]

    Raises `UsageTypeError` for a mask that is not bool. Raises `UsageError` for shapes that do not broadcast,
    for a negative size, and inside a captured function without `size`.
    """
    mask = mask if mask.__class__ is self.__class__ else read(masked_select, "mask", mask, self)
    if mask.expr.dtype is not dtypes.bool:
        raise UsageTypeError(f"masked_select: wanted a bool mask, saw {mask.expr.dtype.name}; compare it")
    shape = broadcast((self.expr.shape, mask.expr.shape), "masked_select")
    x, wanted = expand(self, shape), expand(mask, shape)
    if size is None:
        return getitem(x, wanted) if shape else getitem(reshape(x, 1), reshape(wanted, 1))
    places = _first_places(wanted, _length("masked_select", size))
    missing = lt(places, 0)
    like = x if prod(shape) else pad(x, [(0, int(not n)) for n in shape])
    taken = getitem(reshape(like, -1), where(missing, 0, places))
    return where(missing, suited(fill_value, x.expr.dtype), taken)


@accepts_aliases
def nonzero(
    self: T, *, as_tuple: bool = False, size: int | None = None, fill_value: int = 0
) -> T | tuple[T, ...]:
    """Return the coordinates (int64) of the elements that are not zero: (elements, axes).

    With `as_tuple`, return a vector for each axis. self is computed, unless `size` gives the number of rows:
    rows beyond it are left out, and missing ones hold `fill_value`. Raises `UsageError` for a negative size,
    and inside a captured function without `size`.

        Tensor([[0, 5], [7, 0]]).nonzero()      # [[0, 1], [1, 0]]
    """
    as_tuple = flag(as_tuple, "nonzero, as_tuple")
    shape = self.expr.shape
    mask = ne(self, 0)
    if size is None:
        axes = places_of(mask)
    else:
        flat = _first_places(mask, _length("nonzero", size))
        steps = [prod(shape[i + 1 :]) for i in range(len(shape))]
        each = [mod(floordiv(flat, max(1, step)), max(1, n)) for step, n in zip(steps, shape, strict=True)]
        axes = [where(lt(flat, 0), fill_value, axis) for axis in each]
    count = 0 if axes else int(bool(self.item())) if size is None else size
    if as_tuple:
        return tuple(axes) or (coordinate(self, (count,), 0),)
    if axes:
        return stack(axes, axis=1)
    return coordinate(self, (count, 0), 1)


def _length(what: str, size: int) -> int:
    if whole(size, f"{what}, size") < 0:
        raise UsageError(f"{what}: wanted a size that is not negative, saw {size}")
    return size


@method
def _first_places(self: T, size: int) -> T:
    """Return the first `size` indices at which a flattened mask is true, then -1."""
    n = prod(self.expr.shape)
    flat = reshape(self, n)
    order = argsort(invert(flat)) if n else convert(flat, dtypes.int64)
    held = where(getitem(flat, order), order, -1) if n else order
    return pad(part(held, 0, 0, min(size, n)), ((0, max(0, size - n)),), -1)


def argwhere(self: T) -> T:
    """Return the coordinates (int64) of the elements that are not zero, one in each row; see `nonzero`."""
    found: Any = nonzero(self)
    made: T = found
    return made


@converting
def nonzero_static(self: T, *, size: int | None = None, fill_value: int = -1) -> T:
    """Return `size` rows of coordinates (int64) as `nonzero`; missing rows hold `fill_value`.

    Raises `UsageError` without a size.
    """
    if size is None:
        raise UsageError("nonzero_static: wanted size=, the number of rows; nonzero() counts them")
    found: Any = nonzero(self, size=size, fill_value=fill_value)
    made: T = found
    return made
