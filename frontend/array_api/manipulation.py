"""Functions of the array API standard that move, repeat, join and choose elements.

Functions that only move elements return views: a write to `x` changes them. An axis that does not exist
raises `UsageIndexError`, shapes that do not fit raise `UsageError`.

Not here: sorting and searches (`statistics`).
"""

from __future__ import annotations

from typing import Any

from frontend.array_api.data_types import result_type
from frontend.tensor import Tensor
from hcq.errors import UsageError


def _of_one_dtype(arrays: Any) -> list[Tensor]:
    dtype = result_type(*arrays)
    return [x.cast(dtype) for x in arrays]


def concat(arrays: Any, /, *, axis: int | None = 0) -> Tensor:
    """Return arrays joined along an axis, in the dtype that they promote to; None: each flattened first."""
    every = _of_one_dtype(arrays)
    if axis is None:
        every, axis = [x.reshape(-1) if x.numel() else x.reshape(0) for x in every], 0
    return Tensor.cat(*every, axis=axis)


def stack(arrays: Any, /, *, axis: int = 0) -> Tensor:
    """Return arrays of one shape joined along a new axis, in the dtype that they promote to."""
    return Tensor.stack(*_of_one_dtype(arrays), axis=axis)


def squeeze(x: Tensor, /, axis: Any) -> Tensor:
    """Return an array without the given axes, which have size 1. Raises `UsageError` for another size."""
    axes = axis if isinstance(axis, tuple) else (axis,)
    if any(x.size(a) != 1 for a in axes):
        raise UsageError(f"squeeze: wanted axes of size 1, saw {axes} of the shape {x.shape}")
    return x.squeeze(axes)


def repeat(x: Tensor, repeats: Any, /, *, axis: int | None = None) -> Tensor:
    """Return each element `repeats` times in a row, along an axis; None: of the flattened array.

    `repeats` is a number, or a vector with a number for each element, which is computed and read. Raises
    `UsageError` for negative numbers and for a vector of another length.
    """
    if not isinstance(repeats, Tensor) or repeats.numel() == 1:
        return x.repeat_interleave(int(repeats), axis)
    flat, a = (x.reshape(-1), 0) if axis is None else (x, axis)
    counts = repeats.tolist()
    if repeats.ndim != 1 or len(counts) != flat.shape[a] or min(counts, default=0) < 0:
        raise UsageError(
            f"repeat: wanted {flat.shape[a]} counts that are not negative, one for each element, saw {counts}"
        )
    at = [i for i, n in enumerate(counts) for _ in range(n)]
    return flat.take(Tensor(at, dtype="int64", device=x.device), a)


def reshape(x: Tensor, /, shape: tuple[int, ...], *, copy: bool | None = None) -> Tensor:
    """Return an array in another shape, of which one size may be -1: a view, unless `copy` is true."""
    made = x.reshape(shape)
    return made.clone() if copy else made


def roll(x: Tensor, /, shift: Any, *, axis: Any = None) -> Tensor:
    """Return elements moved cyclically to indices higher by `shift`, along axes; None: of the flat array."""
    if isinstance(axis, tuple) and isinstance(shift, int):
        shift = (shift,) * len(axis)
    return x.roll(shift, axis)


def take(x: Tensor, indices: Tensor, /, *, axis: int | None = None) -> Tensor:
    """Return the elements of an axis at indices. `axis` None is allowed for a vector only.

    An index outside raises `UsageIndexError` if the host knows it; see `frontend.evaluation.limits`.
    """
    if axis is None and x.ndim != 1:
        raise UsageError(f"take: wanted an axis of the shape {x.shape}")
    return x.take(indices, 0 if axis is None else axis)
