"""GPUs under the names of `torch.cuda`: a program that asks for one runs on the GPU here, of any vendor.

Not here: names of devices (`frontend.device`), which take "cuda" for the GPU here.
"""

from __future__ import annotations

from frontend.device import Device
from frontend.tensor import Tensor


def is_available() -> bool:
    """Return whether a GPU can be opened now. Emulated ones do not count."""
    return bool(Device.gpus())


def device_count() -> int:
    """Return the number of GPUs that can be opened now."""
    return len(Device.gpus())


def get_device_name(device: int = 0) -> str:
    """Return the product name of a GPU. Raises `UsageError` where there are not so many."""
    return Device[f"cuda:{device}"].hcq.info.name


def synchronize(device: int | str = 0) -> None:
    """Wait for all work of a GPU. Raises `UsageError` where there is none."""
    Device[f"cuda:{device}" if isinstance(device, int) else device].hcq.sync()


def manual_seed(seed: int) -> None:
    """Seed the random numbers, of all devices."""
    Tensor.manual_seed(seed)


manual_seed_all = manual_seed
