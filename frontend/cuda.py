"""GPUs under the names of `torch.cuda`; "cuda" means a GPU of any vendor.

Not here: mixed precision (`frontend.amp`). Next: `frontend.device`, names of devices.
"""

from __future__ import annotations

from frontend.device import Device
from frontend.tensor import Tensor


def is_available() -> bool:
    """Return whether a GPU can be opened now. Emulated GPUs do not count."""
    return bool(Device.gpus())


def device_count() -> int:
    """Return the number of GPUs that can be opened now."""
    return len(Device.gpus())


def get_device_name(device: int = 0) -> str:
    """Return the product name of the GPU with this number, from 0 on.

    Raises `UsageError` if there is none.
    """
    return Device[f"cuda:{device}"].hcq.info.name


def synchronize(device: int | str = 0) -> None:
    """Wait for all work of a GPU, given by number or name.

    Raises `UsageError` if there is none, and as `hcq.Device.sync`.
    """
    Device[f"cuda:{device}" if isinstance(device, int) else device].hcq.sync()


def manual_seed(seed: int) -> None:
    """Seed the random numbers of all devices: there is one generator."""
    Tensor.manual_seed(seed)


manual_seed_all = manual_seed
