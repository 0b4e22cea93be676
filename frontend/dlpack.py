"""DLPack: tensors exchanged with other array libraries through host memory.

`Tensor.__dlpack__` exports the memory of a tensor on a cpu device, without a copy, and a copy in host memory
of any other tensor. The capsule keeps the memory alive, also after the device is closed. Without a copy, the
consumer sees later writes to the tensor. `imported` always copies.

Layout and names: DLPack 1.0, dlpack.h (Apache 2.0); the codes of 8-bit floats are those of 1.1.

Not here: other protocols of array libraries. Next: `exchange`.
"""

from __future__ import annotations

import ctypes
import math
from ctypes import POINTER, Structure, c_int32, c_int64, c_uint8, c_uint16, c_uint32, c_uint64, c_void_p
from typing import Any, Final, cast

from compiler.dtype import DType, by_name
from frontend.device import Device
from frontend.evaluation.base import T, TensorBase
from frontend.evaluation.history import readable, realize_for_reading
from frontend.evaluation.storage import read, stored
from hcq.errors import UsageError

CPU: Final = (1, 0)
"""kDLCPU, device 0."""
_KINDS: Final = {"int": 0, "uint": 1, "float": 2, "bool": 6}
_NARROW: Final = {
    "bfloat16": 4, "float8_e4m3fn": 10, "float8_e4m3fnuz": 11, "float8_e5m2": 12, "float8_e5m2fnuz": 13,
}  # fmt: skip
_NAME: Final = b"dltensor"
_VERSIONED: Final = b"dltensor_versioned"
_USED: Final = {_NAME: b"used_dltensor", _VERSIONED: b"used_dltensor_versioned"}


class _Device(Structure):
    _fields_ = (("device_type", c_int32), ("device_id", c_int32))


class _Type(Structure):
    _fields_ = (("code", c_uint8), ("bits", c_uint8), ("lanes", c_uint16))


class _Tensor(Structure):
    _fields_ = (
        ("data", c_void_p),
        ("device", _Device),
        ("ndim", c_int32),
        ("dtype", _Type),
        ("shape", POINTER(c_int64)),
        ("strides", POINTER(c_int64)),
        ("byte_offset", c_uint64),
    )


class _Managed(Structure):
    _fields_ = (("dl_tensor", _Tensor), ("manager_ctx", c_void_p), ("deleter", c_void_p))


class _ManagedVersioned(Structure):
    _fields_ = (
        ("major", c_uint32),
        ("minor", c_uint32),
        ("manager_ctx", c_void_p),
        ("deleter", c_void_p),
        ("flags", c_uint64),
        ("dl_tensor", _Tensor),
    )


def _function(name: str, result: Any, *arguments: Any) -> Any:
    return ctypes.PYFUNCTYPE(result, *arguments)((name, ctypes.pythonapi))


_new: Final = _function("PyCapsule_New", ctypes.py_object, c_void_p, ctypes.c_char_p, c_void_p)
_pointer: Final = _function("PyCapsule_GetPointer", c_void_p, ctypes.py_object, ctypes.c_char_p)
_pointer_raw: Final = _function("PyCapsule_GetPointer", c_void_p, c_void_p, ctypes.c_char_p)
_valid: Final = _function("PyCapsule_IsValid", ctypes.c_int, ctypes.py_object, ctypes.c_char_p)
_valid_raw: Final = _function("PyCapsule_IsValid", ctypes.c_int, c_void_p, ctypes.c_char_p)
_rename: Final = _function("PyCapsule_SetName", ctypes.c_int, ctypes.py_object, ctypes.c_char_p)
_keep: Final = _function("Py_IncRef", None, ctypes.py_object)
_drop: Final = _function("Py_DecRef", None, c_void_p)


def _released(address: int) -> None:
    """Release the memory of an exported tensor; `address` is that of its `_Managed`."""
    _drop(_Managed.from_address(address).manager_ctx)


def _discarded(capsule: int) -> None:
    """Release the memory of a capsule that no consumer took."""
    if _valid_raw(capsule, _NAME):
        _released(_pointer_raw(capsule, _NAME))


_delete: Final = ctypes.CFUNCTYPE(None, c_void_p)(_released)
_discard: Final = ctypes.PYFUNCTYPE(None, c_void_p)(_discarded)


class _Exported:
    """The memory and the DLPack description of an exported tensor."""

    def __init__(self, owner: Any, data: Any, shape: tuple[int, ...], dtype: DType) -> None:
        size = dtype.itemsize
        self.owner = owner, data
        self.sizes = (c_int64 * max(1, len(shape)))(*shape)
        steps = []
        step = 1
        for n in reversed(shape):
            steps.append(step)
            step *= n
        self.steps = (c_int64 * max(1, len(shape)))(*reversed(steps))
        self.name = _NAME
        self.managed = _Managed()
        t = self.managed.dl_tensor
        t.data = ctypes.addressof(data) if step else None
        t.device = _Device(*CPU)
        t.ndim = len(shape)
        t.dtype = _Type(_NARROW.get(dtype.name, _KINDS[dtype.kind]), size * 8, 1)
        t.shape, t.strides = self.sizes, self.steps
        self.managed.manager_ctx = id(self)
        self.managed.deleter = ctypes.cast(_delete, c_void_p)


def exported(
    self: TensorBase,
    *,
    stream: Any = None,
    max_version: tuple[int, int] | None = None,  # noqa: ARG001 - the capsule is that of version 0, which all read
    dl_device: tuple[int, int] | None = None,
    copy: bool | None = None,
) -> object:
    """Return a DLPack capsule, of version 0 whatever `max_version` is, of the value in host memory.

    Computes the tensor and waits. Of a tensor on a cpu device it is the tensor's memory unless `copy` is
    true; of others it is a copy. Raises `BufferError` for `copy=False` where a copy is needed, for another
    `dl_device` than the host, and for a `stream`; `UsageError` for a tensor whose value cannot be read, as
    inside a captured function.
    """
    if stream is not None or (dl_device is not None and tuple(dl_device) != CPU):
        raise BufferError(f"DLPack: wanted host memory and no stream, saw the device {dl_device}, {stream}")
    e = self.expr
    shared = e.device.split(":")[0] == "cpu" and copy is not True
    if copy is False and not shared:
        raise BufferError(f"DLPack: the memory of {e.device} is not the host's; allow a copy")
    owner: Any = self
    realize_for_reading(self)
    owner.realize()
    e, leaf = readable(self)
    kind = c_uint8 * max(1, math.prod(e.shape) * e.dtype.itemsize)

    def taken(view: memoryview) -> Any:
        if shared and len(view):
            return kind.from_buffer(leaf.buffer.host()[: len(view)])  # it outlives the device
        return kind.from_buffer_copy(bytes(view) or b"\0")

    holder = _Exported(leaf, read(e, leaf, taken), e.shape, e.dtype)
    _keep(holder)
    return _new(ctypes.addressof(holder.managed), _NAME, ctypes.cast(_discard, c_void_p))


def device_of(_tensor: TensorBase) -> tuple[int, int]:
    """Return the DLPack device of what `exported` gives: the host."""
    return CPU


def imported(cls: type[T], array: Any, *, device: str | None = None, copy: bool | None = None) -> T:
    """Return a tensor with a copy of an array in host memory that has `__dlpack__`.

    Raises `BufferError` for `copy=False`. Raises `UsageError` for an object without `__dlpack__`, for memory
    that is not the host's, for a dtype that tensors do not have, and for an unknown device.
    """
    if copy is False:
        raise BufferError("from_dlpack: a tensor has memory of its own, so a copy is needed; allow it")
    if not hasattr(array, "__dlpack__"):
        raise UsageError(f"from_dlpack: wanted an object with __dlpack__, saw {type(array).__name__}")
    capsule = array.__dlpack__()
    name = next((n for n in (_NAME, _VERSIONED) if _valid(capsule, n)), None)
    if name is None:
        raise UsageError("from_dlpack: the capsule is of no known version, or was taken before")
    address = _pointer(capsule, name)
    managed: Any = (_Managed if name is _NAME else _ManagedVersioned).from_address(address)
    _rename(capsule, _USED[name])
    try:
        return _copied(cls, managed.dl_tensor, device)
    finally:
        if managed.deleter:
            ctypes.CFUNCTYPE(None, c_void_p)(managed.deleter)(address)


def _copied(cls: type[T], t: Any, device: str | None) -> T:
    if t.device.device_type != CPU[0]:
        raise UsageError(f"from_dlpack: wanted host memory, saw the DLPack device {t.device.device_type}")
    kind = {code: kind for kind, code in _KINDS.items()}.get(t.dtype.code)
    narrow = {code: name for name, code in _NARROW.items()}.get(t.dtype.code)
    try:
        dtype = by_name(narrow or ("bool" if kind == "bool" else f"{kind}{t.dtype.bits}"))
    except UsageError:
        raise UsageError(f"from_dlpack: no dtype is DLPack's {t.dtype.code} of {t.dtype.bits} bits") from None
    if t.dtype.lanes != 1:
        raise UsageError(f"from_dlpack: wanted single elements, saw vectors of {t.dtype.lanes}")
    shape = tuple(t.shape[: t.ndim])
    dense = []
    step = 1
    for n in reversed(shape):
        dense.append(step)
        step *= n
    steps = tuple(t.strides[: t.ndim]) if t.strides else tuple(reversed(dense))
    named = Device.named(device)
    if 0 in shape:
        return cls.of_part(stored(b"", shape, dtype, named))
    reach = [(n - 1) * s for n, s in zip(shape, steps, strict=True)]
    low, high = sum([r for r in reach if r < 0]), sum([r for r in reach if r > 0])
    start = t.data + t.byte_offset + low * dtype.itemsize
    flat = cls.of_part(
        stored(ctypes.string_at(start, (high - low + 1) * dtype.itemsize), (high - low + 1,), dtype, named)
    )
    if steps == tuple(reversed(dense)):
        return cast("T", cast("Any", flat).reshape(shape))
    place: Any = -low
    any_cls: Any = cls
    for i, (n, s) in enumerate(zip(shape, steps, strict=True)):
        place = place + (any_cls.arange(n, device=named) * s).reshape((n, *(1,) * (len(shape) - i - 1)))
    return cast("T", cast("Any", flat).take(place))
