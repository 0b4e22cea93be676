"""Arrays in device memory, and copies between NumPy arrays and device memory.

Copies are ordered with the launches of the device's first compute queue.

Not here: lazy tensors (`frontend.tensor`). Next: `interop.kernel`, launches with arrays.
"""

from __future__ import annotations

import math
import operator
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from hcq.device import Device
from hcq.errors import UsageError, UsageIndexError, UsageTypeError
from hcq.hardware import BufferSpec, Place
from hcq.memory import Buffer
from interop import elements

if TYPE_CHECKING:
    from collections.abc import Sequence

STAGING: Final = BufferSpec(place=Place.HOST, host_visible=True, coherent=True)
"""Memory that both host and device can access."""
CHUNK: Final = 64 << 20
"""Bytes of the largest staging buffer."""

Array = np.ndarray[Any, Any]


class DeviceArray:
    """A dense or strided array in device memory, which Triton and `LoadedKernel` take as an argument.

    Made by `array` and `empty`. It holds a reference to its buffer, whose memory is freed with the last
    reference. `dtype` is a NumPy type, or a name of `interop.elements.NARROW`: "bfloat16" or an 8-bit float.
    `strides` count elements. Methods that access the memory raise as `copy`, and `clone` also as
    `Device.alloc`.
    """

    __slots__ = ("buffer", "device", "dtype", "shape", "strides")

    def __init__(
        self,
        buffer: Buffer,
        device: Device,
        shape: tuple[int, ...],
        dtype: np.dtype[Any] | str,
        strides: tuple[int, ...] | None = None,
    ) -> None:
        self.buffer = buffer
        self.device = device
        self.shape = shape
        self.dtype = dtype
        self.strides = strides or tuple(math.prod(shape[i + 1 :]) for i in range(len(shape)))
        """Distance along each axis in elements."""

    def data_ptr(self) -> int:
        """Return the device address of the first element. Raises `UsageError` after the buffer was closed."""
        self.buffer.live()
        return self.buffer.va

    def stride(self, axis: int | None = None) -> Any:
        """Return the distance in elements along one axis, or a tuple for all.

        Raises `UsageIndexError` for an axis that does not exist.
        """
        return self.strides if axis is None else self.strides[self._axis(axis)]

    def size(self, axis: int | None = None) -> Any:
        """Return the length of one axis, or a tuple of all. Raises as `stride`."""
        return self.shape if axis is None else self.shape[self._axis(axis)]

    def _axis(self, axis: int) -> int:
        if not isinstance(axis, int) or not -self.ndim <= axis < self.ndim:
            wanted = f"an axis from {-self.ndim} to {self.ndim - 1}"
            raise UsageIndexError(f"{self!r}: wanted {wanted}, saw {axis!r}")
        return axis

    def numel(self) -> int:
        """Return the number of elements."""
        return math.prod(self.shape)

    def element_size(self) -> int:
        """Return the size of an element in bytes."""
        return elements.storage(self.dtype).itemsize

    def is_contiguous(self) -> bool:
        """Return whether the elements lie densely in C order."""
        return self.strides == tuple(math.prod(self.shape[i + 1 :]) for i in range(len(self.shape)))

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return len(self.shape)

    @property
    def T(self) -> DeviceArray:  # noqa: N802 - the field's name
        """A view with the axes reversed."""
        return DeviceArray(self.buffer, self.device, self.shape[::-1], self.dtype, self.strides[::-1])

    def numpy(self) -> Array:
        """Return the elements as a new NumPy array; narrow types become float32.

        Waits for work that was submitted to the first compute queue before.
        """
        kind = elements.storage(self.dtype)
        flat = np.empty(self._extent(), kind)
        copy(flat, self.buffer)
        steps = tuple(kind.itemsize * one for one in self.strides)
        raw = np.lib.stride_tricks.as_strided(flat, self.shape, steps)
        return elements.decode(raw, self.dtype)

    def _extent(self) -> int:
        """Return the number of elements of memory from the first to the last element, gaps included."""
        if 0 in self.shape:
            return 0
        return 1 + sum((n - 1) * step for n, step in zip(self.shape, self.strides, strict=True))

    def zero_(self) -> DeviceArray:
        """Set all bytes of the buffer to 0; return self. It is done when the call returns."""
        copy(self.buffer, np.zeros(self.buffer.size, np.uint8))
        return self

    def clone(self) -> DeviceArray:
        """Return a copy in new memory; the copy is ordered before later launches, and not waited for."""
        twin = self.device.alloc(self.buffer.size)
        queue = self.device.compute
        queue.submit(queue.record(label="clone").copy(twin, self.buffer))
        return DeviceArray(twin, self.device, self.shape, self.dtype, self.strides)

    def copy_(self, source: DeviceArray) -> DeviceArray:
        """Copy the bytes of an array whose buffer has the same size; return self, without waiting.

        Raises `UsageTypeError` for no `DeviceArray`, `UsageError` for another size.
        """
        if not isinstance(source, DeviceArray):
            hint = "hint: interop.copy takes NumPy arrays"  # type: ignore[unreachable]  # for callers without a type checker
            raise UsageTypeError(f"wanted a DeviceArray, saw {source!r}\n{hint}")
        if source.buffer.size != self.buffer.size:
            raise UsageError(f"wanted {self.buffer.size} bytes, saw {source.buffer.size}")
        queue = self.device.compute
        queue.submit(queue.record(label="copy").copy(self.buffer, source.buffer))
        return self

    def __repr__(self) -> str:
        return f"<DeviceArray {self.shape} {elements.name(self.dtype)} on {self.device.name}>"


def empty(device: Device, shape: int | Sequence[int], dtype: object = np.float32) -> DeviceArray:
    """Return a new array with undefined contents. `dtype` is a NumPy type or a name of `elements.NARROW`.

    Raises `UsageError` for a negative length and a dtype of no numbers, `UsageTypeError` for no open device
    and for a shape that is no int and no sequence of ints, and as `Device.alloc`.
    """
    if not isinstance(device, Device):
        raise UsageTypeError(f"wanted an open device, saw {device!r}\nhint: interop.empty(device, shape)")
    try:
        dims = (operator.index(shape),) if hasattr(shape, "__index__") else tuple(map(operator.index, shape))
    except TypeError:
        raise UsageTypeError(f"shape: wanted an int or a sequence of ints, saw {shape!r}") from None
    if any(length < 0 for length in dims):
        raise UsageError(f"shape: wanted lengths of at least 0, saw {shape!r}")
    kind = elements.resolve(dtype)
    size = max(1, math.prod(dims)) * elements.storage(kind).itemsize
    return DeviceArray(device.alloc(-(-size // 4) * 4), device, dims, kind)


def array(device: Device, values: object, dtype: object = None) -> DeviceArray:
    """Return a new array in device memory with the elements of `values`.

    `values` is a NumPy array, a nested list, a `frontend.Tensor`, or an object in host memory that has
    `__dlpack__` (PyTorch on the CPU). `dtype` converts; by default the type stays as it is. Raises
    `UsageError` for elements that are no numbers and for lists of unequal lengths, and as `empty`, `copy` and
    `numpy.from_dlpack` do.
    """
    if hasattr(values, "__dlpack__") and not isinstance(values, np.ndarray):
        values = np.from_dlpack(values)
    try:
        host = np.asarray(values)
    except ValueError as error:
        raise UsageError(f"wanted lists of equal lengths: {error}") from None
    kind = elements.resolve(host.dtype if dtype is None else dtype)
    out = empty(device, host.shape, kind)
    copy(out.buffer, elements.encode(host, kind))
    return out


def copy(target: Buffer | Array | DeviceArray, source: Buffer | Array | DeviceArray) -> None:
    """Copy the bytes of a NumPy array to device memory, or from device memory to a NumPy array.

    One argument is a C-contiguous NumPy array, the other device memory of at least as many bytes; all of the
    array is copied. The copy starts after the work submitted to the first compute queue, and is complete when
    the call returns. Raises `UsageError` for two arguments of one kind, a strided array, a read-only target,
    and memory that is too small, and as `Device.alloc` and `Queue.submit`.
    """
    target = target.buffer if isinstance(target, DeviceArray) else target
    source = source.buffer if isinstance(source, DeviceArray) else source
    if isinstance(target, Buffer) and isinstance(source, np.ndarray):
        _transfer(target, source, up=True)
    elif isinstance(source, Buffer) and isinstance(target, np.ndarray):
        _transfer(source, target, up=False)
    else:
        raise UsageError(
            f"wanted a NumPy array and device memory, saw {type(target).__name__} and {type(source).__name__}"
        )


def _transfer(buffer: Buffer, host: Array, *, up: bool) -> None:
    if not host.flags.c_contiguous or (not up and not host.flags.writeable):
        raise UsageError("wanted a C-contiguous NumPy array, writeable as a target; try np.ascontiguousarray")
    if host.nbytes > buffer.size:
        raise UsageError(f"wanted at least {host.nbytes} bytes of device memory, saw {buffer!r}")
    flat = host.reshape(-1).view(np.uint8)
    device: Any = buffer.device
    queue = device.compute
    size = min(CHUNK, -(-max(host.nbytes, 1) // 4) * 4)
    with device.alloc(size, STAGING, label="staging") as stage:
        for at in range(0, host.nbytes, CHUNK):
            count = min(CHUNK, host.nbytes - at)
            if up:
                stage.borrow()[:count] = flat[at : at + count].data
                queue.submit(queue.record(label="upload").copy(buffer.view(at, count), stage, count)).wait()
            else:
                queue.submit(queue.record(label="download").copy(stage, buffer.view(at, count), count)).wait()
                flat[at : at + count].data[:] = stage.borrow()[:count]
