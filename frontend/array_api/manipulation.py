"""Functions of the array API standard that move, repeat, join and choose elements.

Not here: sorting and searches (`statistics`).
"""

from __future__ import annotations

from typing import Any

from frontend.arguments.checks import broadcast
from frontend.array_api.data_types import result_type
from frontend.tensor import Tensor
from hcq.errors import UsageError


def broadcast_to(x: Tensor, /, shape: tuple[int, ...]) -> Tensor:
    """Return an array repeated to a shape. A view."""
    return x.expand(shape)


def broadcast_arrays(*arrays: Tensor) -> list[Tensor]:
    """Return arrays repeated to their common shape."""
    return list(arrays[0].broadcast_tensors(*arrays[1:])) if arrays else []


def broadcast_shapes(*shapes: tuple[int, ...]) -> tuple[int, ...]:
    """Return the shape that shapes broadcast to."""
    return broadcast(shapes, "broadcast_shapes")


def _of_one_dtype(arrays: Any) -> list[Tensor]:
    dtype = result_type(*arrays)
    return [x.cast(dtype) for x in arrays]


def concat(arrays: Any, /, *, axis: int | None = 0) -> Tensor:
    """Return arrays joined along an axis; flattened first if None."""
    every = _of_one_dtype(arrays)
    if axis is None:
        every, axis = [x.reshape(-1) if x.numel() else x.reshape(0) for x in every], 0
    return Tensor.cat(*every, axis=axis)


def stack(arrays: Any, /, *, axis: int = 0) -> Tensor:
    """Return arrays of one shape joined along a new axis."""
    return Tensor.stack(*_of_one_dtype(arrays), axis=axis)


def unstack(x: Tensor, /, *, axis: int = 0) -> tuple[Tensor, ...]:
    """Return the parts of an axis."""
    return x.unbind(axis)


def expand_dims(x: Tensor, /, axis: int = 0) -> Tensor:
    """Return a new axis of size 1."""
    return x.unsqueeze(axis)


def squeeze(x: Tensor, /, axis: Any) -> Tensor:
    """Return an array without axes of size 1; `UsageError` for another size."""
    axes = axis if isinstance(axis, tuple) else (axis,)
    if any(x.size(a) != 1 for a in axes):
        raise UsageError(f"squeeze: wanted axes of size 1, saw {axes} of the shape {x.shape}")
    return x.squeeze(axes)


def flip(x: Tensor, /, *, axis: Any = None) -> Tensor:
    """Return axes in reverse order, all if None."""
    return x.flip(tuple(range(x.ndim)) if axis is None else axis)


def moveaxis(x: Tensor, source: Any, destination: Any, /) -> Tensor:
    """Return axes moved to other places."""
    return x.movedim(source, destination)


def permute_dims(x: Tensor, /, axes: tuple[int, ...]) -> Tensor:
    """Return axes in another order."""
    return x.permute(axes)


def repeat(x: Tensor, repeats: Any, /, *, axis: int | None = None) -> Tensor:
    """Return each element so many times in a row. An array of counts, one for each element, is read."""
    if not isinstance(repeats, Tensor) or repeats.numel() == 1:
        return x.repeat_interleave(int(repeats), axis)
    flat, a = (x.reshape(-1), 0) if axis is None else (x, axis)
    counts = repeats.tolist()
    if repeats.ndim != 1 or len(counts) != flat.shape[a] or min(counts, default=0) < 0:
        raise UsageError(
            f"repeat: wanted {flat.shape[a]} counts that are not negative, one for each element, saw {counts}"
        )
    at = [i for i, n in enumerate(counts) for _ in range(n)]
    return flat.take(Tensor(at, dtype="int32", device=x.device), a)


def reshape(x: Tensor, /, shape: tuple[int, ...], *, copy: bool | None = None) -> Tensor:
    """Return an array in another shape: a view, unless `copy`."""
    made = x.reshape(shape)
    return made.clone() if copy else made


def roll(x: Tensor, /, shift: Any, *, axis: Any = None) -> Tensor:
    """Return elements shifted cyclically along axes; of the flattened array if None."""
    if isinstance(axis, tuple) and isinstance(shift, int):
        shift = (shift,) * len(axis)
    return x.roll(shift, axis)


def tile(x: Tensor, repetitions: tuple[int, ...], /) -> Tensor:
    """Return an array repeated along each axis."""
    return x.tile(repetitions)


def take(x: Tensor, indices: Tensor, /, *, axis: int | None = None) -> Tensor:
    """Return elements of an axis at indices; None is axis 0 of a vector."""
    if axis is None and x.ndim != 1:
        raise UsageError(f"take: wanted an axis of the shape {x.shape}")
    return x.take(indices, 0 if axis is None else axis)


def take_along_axis(x: Tensor, indices: Tensor, /, *, axis: int = -1) -> Tensor:
    """Return elements of an axis at indices of the same rank; the other axes broadcast."""
    return x.take_along_dim(indices, axis)


def diff(
    x: Tensor, /, *, axis: int = -1, n: int = 1, prepend: Tensor | None = None, append: Tensor | None = None
) -> Tensor:
    """Return the differences of neighbours, n times."""
    return x.diff(n, axis, prepend, append)
