"""Values of a running model: tensors, and small arrays of the host.

Shapes, indices and constants of few elements stay NumPy arrays, so that sizes and conditions computed from
them are known without reading a device. An operator that takes both gets arrays if all of its inputs are
arrays, else tensors. The functions here are those that differ between the two.

Not here: the element types of files (`initialisers`).
"""

from __future__ import annotations

from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from compiler.dtype import DType, dtypes
from frontend.ops.elementwise import chosen
from frontend.tensor import Tensor
from hcq.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

Value = Tensor | np.ndarray[Any, Any]
SMALL: Final = 1024
"""The most elements of an array of the host."""


def is_host(x: object) -> bool:
    """Return whether a value is an array of the host; functions of NumPy give scalars for shape ()."""
    return isinstance(x, (np.ndarray, np.generic))


def cat(parts: Sequence[Any], axis: int) -> Any:
    """Return values joined along an axis; all are tensors, or all arrays."""
    if all(is_host(p) for p in parts):
        return np.concatenate(parts, axis)
    return parts[0].cat(*parts[1:], dim=axis) if len(parts) > 1 else parts[0]


def where(condition: Any, a: Any, b: Any) -> Any:
    """Return a where the condition holds, else b."""
    return np.where(condition, a, b) if is_host(condition) else chosen(condition, a, b)


def permute(x: Any, axes: Sequence[int]) -> Any:
    """Return a value with its axes in another order."""
    return np.transpose(x, axes) if is_host(x) else x.permute(*axes)


def spread(x: Any, shape: Sequence[int]) -> Any:
    """Return a value broadcast to a shape."""
    return np.broadcast_to(x, tuple(shape)) if is_host(x) else x.broadcast_to(*shape)


def cast(x: Any, dtype: DType) -> Any:
    """Return a value in another dtype."""
    if is_host(x) and dtype.numpy is not None:
        with np.errstate(invalid="ignore", over="ignore"):
            return x.astype(dtype.numpy)
    return as_tensor(x).cast(dtype)


def dtype_of(x: Any) -> DType:
    """Return the element type of a value."""
    return _BY_NUMPY[x.dtype.name] if is_host(x) else x.dtype


_BY_NUMPY: Final = {t.numpy: t for t in dtypes.all() if t.numpy is not None}


class Constants:
    """The device of a model, and the tensors that its small arrays have become there.

    A capture cannot copy data of the host; it finds the tensors that the call before has made.
    """

    def __init__(self, device: str | None) -> None:
        self.device = device
        self._kept: dict[tuple[str, tuple[int, ...], bytes], Tensor] = {}

    def tensor(self, x: np.ndarray[Any, Any]) -> Tensor:
        """Return an array as a tensor; a single element becomes a constant."""
        if x.size == 1:
            return Tensor.full(x.shape, x.item(), dtype=dtype_of(x), device=self.device)
        if x.size > _KEPT:
            return self._copied(x)
        key = (x.dtype.name, x.shape, x.tobytes())
        if (found := self._kept.get(key)) is None:
            if len(self._kept) >= _MOST:
                self._kept.clear()
            found = self._kept[key] = self._copied(x)
        return found

    def _copied(self, x: np.ndarray[Any, Any]) -> Tensor:
        if not x.size:
            return Tensor.full(x.shape, 0, dtype=dtype_of(x), device=self.device)
        return Tensor(np.ascontiguousarray(x).reshape(x.shape), device=self.device)


_KEPT: Final = 1 << 16
"""The most elements of an array whose tensor is kept."""
_MOST: Final = 1024
"""Tensors of small arrays that a model keeps; beyond it they are made again."""
CONSTANTS: Final[ContextVar[Constants]] = ContextVar("constants of the model that runs")


def as_tensor(x: Any) -> Tensor:
    """Return a value as a tensor on the device of the model that runs."""
    if is_host(x):
        return CONSTANTS.get().tensor(x)
    found: Tensor = x
    return found


def as_array(x: Any) -> np.ndarray[Any, Any]:
    """Return a value as an array; a tensor is computed and read."""
    found: np.ndarray[Any, Any] = x if is_host(x) else x.numpy()
    return found


def integers(x: Any, what: str) -> list[int]:
    """Return the integers of a value, flat. Raises `UsageError` for other dtypes."""
    found = as_array(x)
    if found.dtype.kind not in "iu":
        raise UsageError(f"{what}: wanted integers, saw {found.dtype}")
    return [int(n) for n in found.reshape(-1)]


def axis_in(axis: int, rank: int, *, extra: int = 0) -> int:
    """Return an axis counted from 0. Raises `UsageError` if it is out of range."""
    if not -rank - extra <= axis < rank + extra:
        raise UsageError(f"axis {axis} is no axis of a shape of {rank} axes")
    return axis % (rank + extra) if rank + extra else 0


def axes_in(axes: Sequence[int], rank: int) -> tuple[int, ...]:
    """Return different axes counted from 0. Raises `UsageError` if one is out of range or given twice."""
    found = tuple([axis_in(a, rank) for a in axes])
    if len(set(found)) != len(found):
        raise UsageError(f"axes {tuple(axes)}: one is given twice")
    return found
