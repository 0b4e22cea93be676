"""Protocols of array libraries as methods of `Tensor`: DLPack, NumPy's functions, the array API's namespace.

Not here: the layouts of DLPack. Next: `dlpack`; `ufuncs`, NumPy's functions on tensors.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from frontend.evaluation.base import TensorBase
from frontend.evaluation.history import realize_for_reading
from frontend.later import AT_ONCE, later
from hcq.errors import UsageError

if AT_ONCE:
    from frontend import assignment, dlpack, ufuncs
else:
    assignment = later("frontend.assignment")
    dlpack = later("frontend.dlpack")
    ufuncs = later("frontend.ufuncs")
if TYPE_CHECKING:
    from types import ModuleType

VERSIONS = ("2021.12", "2022.12", "2023.12", "2024.12")
"""The versions of the array API standard whose names the namespace has."""


class Storage:
    """The memory of a tensor and its views, as libraries compare and count it."""

    def __init__(self, of: TensorBase, unit: int) -> None:
        root: Any = next(t for t in (assignment.root_of(of), of) if t is not None)
        self.device, self._root, self._unit = root.device, root, unit

    def data_ptr(self) -> int:
        """Return the device address, the same for all views; see `Tensor.data_ptr`."""
        return int(self._root.data_ptr()) if self.nbytes() else 0

    def nbytes(self) -> int:
        """Return the bytes."""
        return int(self._root.nbytes)

    def size(self) -> int:
        """Return the bytes, of a storage with a dtype the elements."""
        return self.nbytes() // self._unit

    __len__ = size


class Exchange(TensorBase):
    """The methods of `Tensor` that other array libraries call."""

    __slots__ = ()

    __array_priority__ = 100.0
    __array_ufunc__ = ufuncs.applied
    __dlpack__ = dlpack.exported
    __dlpack_device__ = dlpack.device_of

    def __array_namespace__(self, *, api_version: str | None = None) -> ModuleType:
        """Return `frontend.array_api`. Raises `UsageError` for an unknown version of the standard."""
        if api_version is not None and api_version not in VERSIONS:
            raise UsageError(f"array API: wanted one of {', '.join(VERSIONS)}, saw {api_version!r}")
        return import_module("frontend.array_api")

    @property
    def __array_interface__(self) -> dict[str, Any]:
        """NumPy's description of a copy of the value; computes and waits.

        bfloat16 and 8-bit floats raise `AttributeError`: NumPy lacks them.
        """
        dtype = self.expr.dtype
        if dtype.numpy is None:
            raise AttributeError(f"NumPy has no {dtype.name}; numpy() gives float32")
        kind = {"bool": "|b", "int": "<i", "uint": "<u", "float": "<f"}[dtype.kind]
        kind = kind if dtype.itemsize > 1 else f"|{kind[1]}"
        me: Any = self
        data = bytearray(me.tobytes())
        return {"shape": self.expr.shape, "typestr": f"{kind}{dtype.itemsize}", "data": data, "version": 3}

    def data_ptr(self) -> int:
        """Return the device address of the elements, dense in C order; computes a pending tensor.

        It is valid until the tensor is assigned to or freed. The device may still be computing the elements.
        Raises as `realize`.
        """
        realize_for_reading(self)
        buffer = self.leaves[0].buffer
        buffer.live()
        address: int = buffer.va
        return address

    const_data_ptr = data_ptr

    def untyped_storage(self) -> Storage:
        """Return the memory of the tensor, or of the tensor that it is a view of."""
        return Storage(self, 1)

    def storage(self) -> Storage:
        """Return `untyped_storage`, whose `size` is the number of elements."""
        return Storage(self, self.expr.dtype.itemsize)

    def __complex__(self) -> complex:
        return complex(self.item())

    def to_device(self, device: str, /, *, stream: Any = None) -> TensorBase:
        """Return the value on another device. Raises as `to`, and `UsageError` for a stream."""
        if stream is not None:
            raise UsageError("to_device: a stream is not supported; the device orders its work itself")
        return self.to(device)
