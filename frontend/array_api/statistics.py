"""Reductions, sums along an axis, sorting, searching and sets of the array API standard.

`axis` None reduces over all axes, and a NaN among the values gives NaN. Indices and counts are int64, the
namespace's default for them.

Not here: products of matrices (`linalg`).
"""

# ruff: noqa: FBT001 - the standard's signatures

from __future__ import annotations

from typing import Any, Literal, NamedTuple

from compiler.dtype import DType, dtypes
from frontend.tensor import Tensor
from hcq.errors import UsageError


def max(x: Tensor, /, *, axis: Any = None, keepdims: bool = False) -> Tensor:
    """Return the greatest value over axes. Raises `UsageIndexError` if there is no element."""
    return x.amax(axis, keepdims)


def min(x: Tensor, /, *, axis: Any = None, keepdims: bool = False) -> Tensor:
    """Return the least value over axes. Raises `UsageIndexError` if there is no element."""
    return x.amin(axis, keepdims)


def mean(x: Tensor, /, *, axis: Any = None, keepdims: bool = False) -> Tensor:
    """Return the mean over axes, float32 for integers; NaN if there is no element."""
    return x.mean(axis, keepdims)


def sum_dtype(dtype: DType) -> DType:
    """Return the dtype of sums and products of a dtype: integers and bools have 64 bits."""
    if dtype is dtypes.bool or dtype.is_int:
        return dtypes.uint64 if dtype.kind == "uint" else dtypes.int64
    return dtype


def sum(x: Tensor, /, *, axis: Any = None, dtype: Any = None, keepdims: bool = False) -> Tensor:
    """Return the sum over axes; bools and integers give 64 bits, unless `dtype` is given."""
    return x.sum(axis, keepdims, sum_dtype(x.dtype) if dtype is None else dtype)


def prod(x: Tensor, /, *, axis: Any = None, dtype: Any = None, keepdims: bool = False) -> Tensor:
    """Return the product over axes, in the dtype of `sum`."""
    return x.prod(axis, keepdims, sum_dtype(x.dtype) if dtype is None else dtype)


def std(x: Tensor, /, *, axis: Any = None, correction: float = 0.0, keepdims: bool = False) -> Tensor:
    """Return the standard deviation over axes, the root of `var`."""
    return var(x, axis=axis, correction=correction, keepdims=keepdims).sqrt()


def var(x: Tensor, /, *, axis: Any = None, correction: float = 0.0, keepdims: bool = False) -> Tensor:
    """Return the variance over axes: squares of distances from the mean, over max(count - correction, 0)."""
    return x.var(axis, keepdim=keepdims, correction=correction)


def any(x: Tensor, /, *, axis: Any = None, keepdims: bool = False) -> Tensor:
    """Return whether some value over axes is not zero; a NaN is not zero."""
    return x.any(axis, keepdims)


def all(x: Tensor, /, *, axis: Any = None, keepdims: bool = False) -> Tensor:
    """Return whether every value over axes is not zero; a NaN is not zero."""
    return x.all(axis, keepdims)


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


def argmax(x: Tensor, /, *, axis: int | None = None, keepdims: bool = False) -> Tensor:
    """Return the index of the first greatest value, or of the first NaN; None: in the flattened array."""
    return x.argmax(axis, keepdims)


def argmin(x: Tensor, /, *, axis: int | None = None, keepdims: bool = False) -> Tensor:
    """Return the index of the first least value, or of the first NaN; None: in the flattened array."""
    return x.argmin(axis, keepdims)


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


def argsort(x: Tensor, /, *, axis: int = -1, descending: bool = False, stable: bool = True) -> Tensor:
    """Return the indices that sort an axis. Equal values keep their order if `stable`."""
    return x.argsort(axis, descending, stable)


def sort(x: Tensor, /, *, axis: int = -1, descending: bool = False, stable: bool = True) -> Tensor:  # noqa: ARG001 - it always is
    """Return an array with the elements of an axis in order, NaNs as the greatest."""
    return x.sort(axis, descending).values


def isin(x1: Tensor, x2: Tensor, /, *, invert: bool = False) -> Tensor:
    """Return whether each element of x1 is among x2."""
    return x1.isin(x2, invert=invert)


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


def unique_values(x: Tensor, /) -> Tensor:
    """Return distinct values in ascending order."""
    found: Any = x.unique()
    values: Tensor = found
    return values
