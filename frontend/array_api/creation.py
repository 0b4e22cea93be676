"""Creation functions of the array API standard.

Without `dtype`, floats are float32, whole numbers int64, and bools bool.
Without `device`, the device is the default one. A negative size and an unknown device raise `UsageError`.

Not here: casts (`data_types`), changes of shape (`manipulation`).
"""

from __future__ import annotations

from typing import Any

from compiler.dtype import dtypes
from frontend import dlpack
from frontend.tensor import Tensor
from hcq.errors import UsageError


def asarray(obj: Any, /, *, dtype: Any = None, device: str | None = None, copy: bool | None = None) -> Tensor:
    """Return an array of a number, nested lists, an array of another library, or a `Tensor`.

    A `Tensor` that has the dtype and device already is returned itself; everything else is copied.
    `copy=True` copies a `Tensor` always. `copy=False` raises `UsageError` where a copy is needed. Lists of
    unequal lengths and elements that are no numbers raise `UsageError`.
    """
    if isinstance(obj, Tensor):
        made = obj if dtype is None else obj.cast(dtype)
        made = made if device is None else made.to(device)
        if copy is False and made is not obj:
            raise UsageError("asarray: another dtype or device needs a copy, saw copy=False")
        return made.clone() if copy and made is obj else made
    if copy is False:
        raise UsageError(f"asarray: a tensor of a {type(obj).__name__} has memory of its own, saw copy=False")
    if obj.__class__ is int:  # `Tensor` would take it for a size
        return Tensor.full((), obj, dtype=dtype, device=device)
    return Tensor(obj, dtype=dtype, device=device)


def from_dlpack(x: Any, /, *, device: str | None = None, copy: bool | None = None) -> Tensor:
    """Return a copy of an array in host memory that has `__dlpack__`.

    Raises `BufferError` for `copy=False`, and as `frontend.dlpack.imported`.
    """
    return dlpack.imported(Tensor, x, device=device, copy=copy)


def eye(
    n_rows: int, n_cols: int | None = None, /, *, k: int = 0, dtype: Any = None, device: str | None = None
) -> Tensor:
    """Return a matrix, by default float32 and square, of ones on diagonal `k` and zeros elsewhere.

    Diagonal 0 is the main one; positive ones lie above it, negative ones below.
    """
    shape = (n_rows, n_rows if n_cols is None else n_cols)
    place = Tensor.arange(shape[1], device=device) - Tensor.arange(shape[0], device=device).reshape(-1, 1)
    found = place.reshape(shape) == k if 0 not in shape else Tensor.zeros(shape, device=device)
    return found.cast(dtypes.float32 if dtype is None else dtype)


def linspace(
    start: float,
    stop: float,
    /,
    num: int,
    *,
    dtype: Any = None,
    device: str | None = None,
    endpoint: bool = True,
) -> Tensor:
    """Return `num` evenly spaced numbers from `start` to `stop`. Without `endpoint`, `stop` is left out."""
    if endpoint or not num:
        return Tensor.linspace(start, stop, num, dtype=dtype, device=device)
    return Tensor.linspace(start, stop, num + 1, dtype=dtype, device=device)[:num]
