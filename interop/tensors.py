"""Tensors of the frontend as arguments of kernels: passed by address, without a copy.

Not here: arrays (`interop.arrays`). Next: `frontend.exposed`, tensors whose memory others may write.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from hcq.errors import UsageError

if TYPE_CHECKING:
    from hcq.device import Device
    from hcq.memory import Buffer


def is_tensor(value: object) -> bool:
    """Return whether a value is a `frontend.Tensor`. Does not import the frontend."""
    module: Any = sys.modules.get("frontend.evaluation.base")
    return module is not None and isinstance(value, module.TensorBase)


def memory(tensor: Any, device: Device) -> Buffer:
    """Return the memory of a tensor for a launch on `device`, which may write it; a pending one is computed.

    The tensor keeps the memory. Raises `UsageError` for a tensor of another device, and as
    `frontend.exposed.memory_of`.
    """
    from frontend.device import Device as Devices  # noqa: PLC0415 - loaded already, where there is a tensor
    from frontend.exposed import memory_of  # noqa: PLC0415 - as above

    name = tensor.expr.device
    home = Devices[name].hcq
    if home is not device:
        raise UsageError(
            f"wanted a tensor on {device!r}, where the kernel is, saw one on {name}, which is {home!r}\n"
            f"hint: load the kernel on frontend.Device[{name!r}].hcq, or use interop.array(device, tensor)"
        )
    return memory_of(tensor)
