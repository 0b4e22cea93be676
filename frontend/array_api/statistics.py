"""Reductions, sums along an axis, sorting, searching and sets of the array API standard.

`axis` None reduces over all axes, and a NaN among the values gives NaN. Indices and counts are int64, the
namespace's default for them. Errors are those of the methods of `Tensor`; a missing axis of an array that is
no vector raises `UsageError`.

Not here: products of matrices (`linalg`).
"""

# ruff: noqa: FBT001 - the standard's signatures

from __future__ import annotations

from functools import wraps
from typing import Any, Literal, NamedTuple

from compiler.dtype import DType, dtypes
from frontend.tensor import Tensor
from hcq.errors import UsageError


def over_axes(fn: Any) -> Any:
    """Decorate a reduction: the axes () are none, as the standard says; to the methods they are all."""

    @wraps(fn)
    def call(x: Tensor, /, *args: Any, axis: Any = None, **names: Any) -> Tensor:
        if isinstance(axis, (tuple, list)) and not axis:
            x, axis, names = x.unsqueeze(-1), -1, {**names, "keepdims": False}
        found: Tensor = fn(x, *args, axis=axis, **names)
        return found

    return call


def sum_dtype(dtype: DType) -> DType:
    """Return the dtype of sums and products of a dtype: integers and bools have 64 bits."""
    if dtype is dtypes.bool or dtype.is_int:
        return dtypes.uint64 if dtype.kind == "uint" else dtypes.int64
    return dtype


@over_axes
def sum(x: Tensor, /, *, axis: Any = None, dtype: Any = None, keepdims: bool = False) -> Tensor:
    """Return the sum over axes; bools and integers give 64 bits, unless `dtype` is given."""
    return x.sum(axis, keepdims, sum_dtype(x.dtype) if dtype is None else dtype)


@over_axes
def prod(x: Tensor, /, *, axis: Any = None, dtype: Any = None, keepdims: bool = False) -> Tensor:
    """Return the product over axes, in the dtype of `sum`."""
    return x.prod(axis, keepdims, sum_dtype(x.dtype) if dtype is None else dtype)


@over_axes
def count_nonzero(x: Tensor, /, *, axis: Any = None, keepdims: bool = False) -> Tensor:
    """Return how many values over axes are not zero, as int64."""
    return (x != 0).sum(axis, keepdims)


def _running(x: Tensor, axis: int | None, dtype: Any, initial: bool, what: str, start: int) -> Tensor:  # noqa: PLR0917 - internal
    if axis is None and x.ndim != 1:
        raise UsageError(f"{what}: wanted an axis of the shape {x.shape}")
    a = 0 if axis is None else axis
    found: Tensor = getattr(x, what)(a, sum_dtype(x.dtype) if dtype is None else dtype)
    if not initial:
        return found
    first = found.new_full([1 if i == a % x.ndim else n for i, n in enumerate(x.shape)], start)
    return Tensor.cat(first, found, axis=a)


def cumulative_sum(
    x: Tensor, /, *, axis: int | None = None, dtype: Any = None, include_initial: bool = False
) -> Tensor:
    """Return running sums along an axis, with 0 first if `include_initial`. The dtype is that of `sum`.

    `axis` None is allowed for a vector only; `UsageError` otherwise.
    """
    return _running(x, axis, dtype, include_initial, "cumsum", 0)


def cumulative_prod(
    x: Tensor, /, *, axis: int | None = None, dtype: Any = None, include_initial: bool = False
) -> Tensor:
    """Return running products along an axis, with 1 first if `include_initial`; else as `cumulative_sum`."""
    return _running(x, axis, dtype, include_initial, "cumprod", 1)


def nonzero(x: Tensor, /) -> tuple[Tensor, ...]:
    """Return the coordinates of values that are not zero, a vector for each axis. Computes `x` and reads it.

    Raises `UsageError` for an array of shape ().
    """
    if not x.ndim:
        raise UsageError("nonzero: wanted at least one axis, saw the shape ()")
    found: Any = x.nonzero(as_tuple=True)
    return tuple(found)


def searchsorted(
    x1: Tensor, x2: Tensor, /, *, side: Literal["left", "right"] = "left", sorter: Tensor | None = None
) -> Tensor:
    """Return the indices at which values x2, inserted into the sorted vector x1, keep it sorted.

    `side` "left" gives the first such index, "right" the last. `sorter` are indices that sort x1.
    """
    return (x1 if sorter is None else x1.take(sorter)).searchsorted(x2, side=side)


class UniqueAll(NamedTuple):
    """Distinct values, the flat index where each occurs first, the index of each element's value, counts."""

    values: Tensor
    indices: Tensor
    inverse_indices: Tensor
    counts: Tensor


class UniqueCounts(NamedTuple):
    """Distinct values and how often each occurs."""

    values: Tensor
    counts: Tensor


class UniqueInverse(NamedTuple):
    """Distinct values, and for each element the index of its value."""

    values: Tensor
    inverse_indices: Tensor


def unique_all(x: Tensor, /) -> UniqueAll:
    """Return distinct values in ascending order, with their first indices, inverse indices and counts.

    This function and the three below compute `x` and read it; each NaN is a value of its own.
    """
    found: Any = x.unique(return_inverse=True, return_counts=True)
    values, inverse, counts = found
    starts = counts.cumsum(0, counts.dtype) - counts
    return UniqueAll(values, x.reshape(x.numel()).argsort(0).take(starts), inverse, counts)


def unique_counts(x: Tensor, /) -> UniqueCounts:
    """Return distinct values in ascending order, and how often each occurs."""
    found: Any = x.unique(return_counts=True)
    return UniqueCounts(*found)


def unique_inverse(x: Tensor, /) -> UniqueInverse:
    """Return distinct values in ascending order, and for each element the index of its value."""
    found: Any = x.unique(return_inverse=True)
    return UniqueInverse(*found)
