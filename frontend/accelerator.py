"""The GPU of this machine under the names of `torch.accelerator`; those of `frontend.cuda` for any vendor.

Functions raise `UsageError` without a GPU, except those that count or that ask whether there is one.

Not here: the functions themselves (`frontend.cuda`).
"""

# ruff: noqa: I001 - lists of names stand in rows

from __future__ import annotations

from frontend.cuda import (
    current_device, device_count, empty_cache, get_device_capability, is_available, memory_allocated,
    memory_reserved, set_device, synchronize,
)  # fmt: skip
from frontend.cuda import device as device_index
from frontend.device import DeviceName

__all__ = [
    "current_accelerator", "current_device_idx", "current_device_index", "device_count", "device_index",
    "empty_cache", "get_device_capability", "is_available", "memory_allocated", "memory_reserved",
    "set_device_idx", "set_device_index", "synchronize",
]  # fmt: skip

current_device_index = current_device_idx = current_device
set_device_index = set_device_idx = set_device


def current_accelerator(check_available: bool = False) -> DeviceName | None:  # noqa: FBT001, FBT002 - PyTorch's
    """Return the name of the GPU of `set_device_index`, as "nv" or "amd:1"; None without a GPU."""
    del check_available
    return DeviceName("cuda") if is_available() else None
