"""Tensors with values written, added or filled in at indices: PyTorch's `index_*`, `put`, `masked_scatter`.

Each returns a new tensor; with `_` at the end of its name it changes self. Indices out of range are those of
`gather` and `scatter`.

Not here: writing by keys (`writing`), indices of the rank of self (`along`).
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from compiler.dtype import dtypes
from compiler.ir.ops import Ops
from frontend.ops.along import scatter, scatter_add, scatter_reduce, with_axes
from frontend.ops.arguments import Shape, axis_of, broadcast
from frontend.ops.elementwise import add, gt, lt, mul, where
from frontend.ops.indexing import limit_of, wrapped
from frontend.ops.movement import expand, reshape
from frontend.ops.scan import cumsum
from frontend.ops.selection import nonzero
from frontend.ops.sources import Number, constant, convert, coordinate, number_like
from frontend.ops.writing import written
from frontend.parameters import converting, read, shown
from frontend.primitives.limits import refuse_known
from frontend.tensor_base import T
from frontend.trace import apply, composite
from hcq.errors import UsageError, UsageIndexError, UsageTypeError


def _rows(what: str, x: T, axis: int, index: T) -> tuple[int, T, Shape]:
    """Return the axis, the index spread over the other axes, and the shape of what it names."""
    shape = x.expr.shape or (1,)
    a = axis_of(axis, shape, what)
    found: T = index if index.__class__ is x.__class__ else read(scatter, "index", index, x)
    if len(found.expr.shape) > 1 or not found.expr.dtype.is_int:
        raise UsageIndexError(
            f"{what}: wanted a vector of integers, saw {found.expr.dtype.name}{list(found.expr.shape)}"
        )
    n = prod(found.expr.shape)
    wanted = (*shape[:a], n, *shape[a + 1 :])
    return a, expand(reshape(found, (1,) * a + (n,) + (1,) * (len(shape) - a - 1)), wanted), wanted


def _source(what: str, x: T, source: T, wanted: Shape) -> T:
    if source.expr.shape != wanted and not (not x.expr.shape and prod(source.expr.shape) == 1):
        raise UsageError(f"{what}: wanted a source of the shape {wanted}, saw {source.expr.shape}")
    if source.expr.dtype is not x.expr.dtype:
        raise UsageError(
            f"{what}: the source is {source.expr.dtype.name}, self is {x.expr.dtype.name}; cast one of them"
        )
    return reshape(source, wanted)


@converting
def index_add(self: T, axis: int, index: T, source: T, *, alpha: Number = 1) -> T:
    """Return self with alpha * source added at the indices of an axis; what stands twice is added twice."""
    a, every, wanted = _rows("index_add", self, axis, index)
    values = _source("index_add", self, source, wanted)
    return reshape(
        scatter_add(with_axes(self), a, every, values if alpha == 1 else mul(values, alpha)), self.expr.shape
    )


@converting
def index_copy(self: T, axis: int, index: T, source: T) -> T:
    """Return self with the source written at the indices of an axis."""
    a, every, wanted = _rows("index_copy", self, axis, index)
    values = _source("index_copy", self, source, wanted)
    return reshape(scatter(with_axes(self), a, every, values), self.expr.shape)


@converting
def index_fill(self: T, axis: int, index: T, value: T | Number) -> T:
    """Return self with one number, or the value of a tensor of shape (), at the indices of an axis."""
    a, every, wanted = _rows("index_fill", self, axis, index)
    if isinstance(value, (int, float)):
        return reshape(scatter(with_axes(self), a, every, value), self.expr.shape)
    if value.expr.shape:
        raise UsageError(f"index_fill: wanted a number or a tensor of shape (), saw {value.expr.shape}")
    values = expand(convert(reshape(value, (1,) * len(wanted)), self.expr.dtype), wanted)
    return reshape(scatter(with_axes(self), a, every, values), self.expr.shape)


@converting
def index_reduce(self: T, axis: int, index: T, source: T, reduce: str, *, include_self: bool = True) -> T:
    """Return self with the source combined at the indices of an axis: "prod", "mean", "amax" or "amin"."""
    if reduce not in {"prod", "mean", "amax", "amin"}:
        raise UsageError(f"index_reduce: wanted prod, mean, amax or amin, saw {reduce!r}")
    a, every, wanted = _rows("index_reduce", self, axis, index)
    values = _source("index_reduce", self, source, wanted)
    found = scatter_reduce(with_axes(self), a, every, values, reduce, include_self=include_self)
    return reshape(found, self.expr.shape)


@converting
def index_put(self: T, indices: Sequence[T], values: T, accumulate: bool = False) -> T:  # noqa: FBT001, FBT002 - the field's signature
    """Return self with `self[indices] = values`; with `accumulate` the values are added there.

    Masks among the indices of a sum are computed.
    """
    if not isinstance(indices, (tuple, list)):
        raise UsageTypeError(f"index_put: wanted a tuple of indices, saw {shown(indices)}")
    key: tuple[Any, ...] = tuple(indices)
    if not accumulate:
        found: T = written(self, key, values)
        return found
    masks = [getattr(getattr(i, "expr", None), "dtype", None) is dtypes.bool for i in key]
    every: Any = [nonzero(i, as_tuple=True) if mask else (i,) for i, mask in zip(key, masks, strict=True)]
    key = tuple([i for part in every for i in part])
    for axis, (i, n) in enumerate(zip(key, self.expr.shape, strict=False)):
        if hasattr(i, "expr"):
            refuse_known(i, limit_of("index_put", axis, n))
    added: T = _accumulated(self, values, *key)
    return added


@composite
def _accumulated(self: T, values: T, *indices: T) -> T:
    shape = self.expr.shape
    if len(indices) > len(shape):
        raise UsageIndexError(f"index_put: {len(indices)} indices for the shape {shape}")
    where_to = broadcast([i.expr.shape for i in indices], "index_put")
    rest = shape[len(indices) :]
    place, inside = constant(self, 0, dtypes.int64, ()), constant(self, True, dtypes.bool, ())
    for axis, (i, n) in enumerate(zip(indices, shape, strict=False)):
        at = convert(wrapped(i, n, "index_put", axis), dtypes.int64)
        place = add(mul(place, n), at)
        inside = mul(inside, mul(lt(at, n), gt(at, -1)))
    place = where(inside, mul(place, prod(rest)), prod(shape))
    every = (*where_to, *rest)
    flat = expand(reshape(expand(place, where_to), (*where_to, *(1,) * len(rest))), every)
    within = reshape(coordinate(self, (prod(rest),), 0), (1,) * len(where_to) + rest)
    at = reshape(add(flat, within), (prod(every),))
    source = reshape(expand(convert(values, self.expr.dtype), every), (prod(every),))
    return reshape(scatter_add(reshape(self, (prod(shape),)), 0, at, source), shape)


@converting
def put(self: T, index: T, source: T, accumulate: bool = False) -> T:  # noqa: FBT001, FBT002 - the field's signature
    """Return self with the source written, or added, at indices of the flattened tensor."""
    found: T = index if index.__class__ is self.__class__ else read(scatter, "index", index, self)
    if prod(found.expr.shape) != prod(source.expr.shape):
        raise UsageError(
            f"put: wanted a value for each of {prod(found.expr.shape)} indices, saw {source.expr.shape}"
        )
    if source.expr.dtype is not self.expr.dtype:
        raise UsageError(f"put: the source is {source.expr.dtype.name}, self is {self.expr.dtype.name}")
    flat, at, values = (reshape(x, (prod(x.expr.shape),)) for x in (self, found, source))
    done = scatter_add(flat, 0, at, values) if accumulate else scatter(flat, 0, at, values)
    return reshape(done, self.expr.shape)


@composite
def masked_scatter(self: T, mask: T, source: T) -> T:
    """Return self with the elements of the source, in order, where a bool mask is true.

    What the source lacks is 0.
    """
    if mask.expr.dtype is not dtypes.bool:
        raise UsageTypeError(f"masked_scatter: wanted a bool mask, saw {mask.expr.dtype.name}; compare it")
    if source.expr.dtype is not self.expr.dtype:
        raise UsageError(f"masked_scatter: source {source.expr.dtype.name}, self {self.expr.dtype.name}")
    shape = broadcast((self.expr.shape, mask.expr.shape), "masked_scatter")
    x, wanted = expand(self, shape), expand(mask, shape)
    count = prod(source.expr.shape)
    if not prod(shape) or not count:
        return x
    flat = reshape(wanted, (prod(shape),))
    place = add(cumsum(flat, 0, dtypes.int32), -1)
    at = where(flat, place, number_like(place, count))
    taken = apply(Ops.GATHER, 0, reshape(source, (count,)), at)
    return where(wanted, reshape(taken, shape), x)
