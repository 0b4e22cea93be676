"""Host memory as an argument: a tensor of PyTorch on the CPU is copied in before a launch and out after it.

Not here: arrays on the device, which need no copies (`interop.arrays`). Next: `interop.tensors`, tensors of
the frontend.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from hcq.errors import UsageError
from hcq.memory import Buffer
from interop import arrays, tensors

if TYPE_CHECKING:
    from hcq.device import Device


@dataclass(slots=True)
class _Range:
    """Host bytes [start, end), and their memory on the device: None before `upload`."""

    start: int
    end: int
    buffer: Buffer | None = None


class LaunchStaging:
    """The host memory of one launch. At the end of a `with` block all of it is copied back.

    After an error nothing is copied back. Ranges that overlap become one, so that views of one tensor share
    memory on the device, too.
    """

    def __init__(self, device: Device) -> None:
        self._device = device
        self._ranges: list[_Range] = []

    def place(self, item: tuple[str, Any]) -> Any:
        """Return the argument of the launch for (type, value): a `Reference` for host memory.

        None, numbers and memory of the device are returned themselves; a tensor of the frontend gives its
        Buffer, and a host tensor without elements gives None. Raises `UsageError` for a pointer that is no
        array in memory, and for memory of another driver, and as `interop.tensors.memory`.
        """
        kind, value = item
        if not kind.startswith("*") or value is None or isinstance(value, (Buffer, arrays.DeviceArray)):
            return value
        if tensors.is_tensor(value):
            return tensors.memory(value, self._device)
        if not hasattr(value, "data_ptr"):
            raise UsageError(f"wanted an array in memory, saw {value!r}; try interop.array(device, value)")
        place = str(getattr(value, "device", "cpu"))
        if place != "cpu":
            raise UsageError(
                f"saw a tensor on {place}, whose memory belongs to another driver\n"
                "hint: use interop.array(device, tensor.cpu()), or a tensor on the CPU"
            )
        start = value.data_ptr()
        steps = zip(value.shape, value.stride(), strict=True)
        extent = 1 + sum((n - 1) * step for n, step in steps) if value.numel() else 0
        return self._hold(start, extent * value.element_size())

    def _hold(self, start: int, size: int) -> Reference | None:
        if not size:
            return None
        whole = _Range(start, start + size)
        for other in [one for one in self._ranges if one.start < whole.end and whole.start < one.end]:
            self._ranges.remove(other)
            whole = _Range(min(whole.start, other.start), max(whole.end, other.end))
        self._ranges.append(whole)
        return Reference(self, start)

    def upload(self) -> None:
        """Copy all host memory to the device. Raises as `Device.alloc` and `interop.copy`."""
        for one in self._ranges:
            lead = one.start % 256  # keeps the alignment of the pointer
            room = self._device.alloc(-(-(one.end - one.start + lead) // 4) * 4, label="host tensor")
            one.buffer = room.view(lead)
            arrays.copy(one.buffer, _view(one))

    def resolve(self, address: int) -> Buffer:
        """Return the device memory of a host address that was placed. Call `upload` first."""
        one = next(one for one in self._ranges if one.start <= address < one.end)
        assert one.buffer is not None  # `upload` was called
        return one.buffer.view(address - one.start)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        for one in self._ranges if kind is None else ():
            if one.buffer is not None:
                arrays.copy(_view(one), one.buffer)


@dataclass(slots=True)
class Reference:
    """A pointer into staged memory."""

    staging: LaunchStaging
    address: int

    @property
    def buffer(self) -> Buffer:
        """The device memory; only after `LaunchStaging.upload`."""
        return self.staging.resolve(self.address)


def _view(one: _Range) -> arrays.Array:
    """Return the host bytes as an array that shares them."""
    size = one.end - one.start
    return np.ctypeslib.as_array((ctypes.c_uint8 * size).from_address(one.start))
