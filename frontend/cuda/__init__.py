"""GPUs under the names of `torch.cuda`; "cuda" means a GPU of any vendor. Emulated GPUs do not count.

GPUs have numbers from 0 on. A device is given by number, by a name as "cuda:1", or by the first part of one:
"cuda" is the GPU of `set_device`, at first GPU 0, and None means it, too. Functions raise `UsageError` for a
GPU that is not here.

Not here: mixed precision (`frontend.cuda.amp`). Next: `frontend.device`, names of devices.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from frontend import functions
from frontend.device import Device
from frontend.tensor import Tensor

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hcq.heap import MemoryUse


@dataclass(frozen=True, slots=True)
class DeviceProperties:
    """What a GPU is; fields have PyTorch's names."""

    name: str
    major: int
    minor: int
    total_memory: int
    """Bytes of its memory."""
    multi_processor_count: int


def is_available() -> bool:
    """Return whether a GPU can be opened now."""
    return bool(Device.gpus())


def device_count() -> int:
    """Return the number of GPUs that can be opened now."""
    return len(Device.gpus())


def _name(device: Any) -> str:
    """Return the canonical name of a GPU."""
    kind = f"cuda:{device}" if isinstance(device, int) else "cuda" if device is None else str(device)
    return Device.canonical(kind)


def current_device() -> int:
    """Return the number of the GPU that "cuda" means."""
    return [Device.canonical(name) for name in Device.gpus()].index(_name(None))


def set_device(device: int | str) -> None:
    """Choose the GPU that "cuda" means; new tensors are on it, too, if they were on a GPU."""
    Device.choose_gpu(_name(device))


class device:  # noqa: N801 - PyTorch's name
    """A `with` block in which "cuda" means another GPU. A number below 0, and None, change nothing."""

    def __init__(self, device: int | str | None) -> None:
        self._device: int | str | None = None if isinstance(device, int) and device < 0 else device
        self._before: int | None = None

    def __enter__(self) -> None:
        if self._device is not None:
            self._before = current_device()
            set_device(self._device)

    def __exit__(self, *_: object) -> None:
        if self._before is not None:
            set_device(self._before)


def get_device_properties(device: int | str | None = None) -> DeviceProperties:
    """Return what a GPU is."""
    info = Device[_name(device)].hcq.info
    major, minor = get_device_capability(device)
    return DeviceProperties(info.name, major, minor, info.vram_bytes, info.compute_units)


def get_device_name(device: int | str | None = None) -> str:
    """Return the product name of a GPU."""
    return Device[_name(device)].hcq.info.name


def get_device_capability(device: int | str | None = None) -> tuple[int, int]:
    """Return the two numbers of an architecture: (9, 0) of sm_90a, (11, 0) of gfx1100, (9, 4) of gfx942."""
    arch = Device[_name(device)].hcq.info.arch
    digits = "".join([c for c in arch.rpartition("_")[2] if c in "0123456789"])
    cut = -2 if arch.startswith("gfx") else -1
    return int(digits[:cut]), int(digits[cut])


def is_bf16_supported() -> bool:
    """Return whether there is a GPU: all that are supported have bfloat16."""
    return is_available()


def synchronize(device: int | str | None = None) -> None:
    """Wait for all work of a GPU. Raises as `hcq.Device.sync`, too."""
    Device[_name(device)].hcq.sync()


def _memory(device: int | str | None) -> MemoryUse | None:
    """Return the memory of a GPU, None if it is not open or there is none."""
    if device is None and not is_available():
        return None
    name = _name(device)
    return next((one.hcq.memory() for one in Device.opened() if one.name == name), None)


def memory_allocated(device: int | str | None = None) -> int:
    """Return the bytes of tensors on a GPU, rounded up to size classes; 0 without a GPU."""
    return int(getattr(_memory(device), "used", 0))


def memory_reserved(device: int | str | None = None) -> int:
    """Return the bytes that this process has of a GPU's memory; 0 without a GPU."""
    return int(getattr(_memory(device), "reserved", 0))


def empty_cache() -> None:
    """Return the memory without a tensor of all open GPUs to their drivers."""
    here = {Device.canonical(name) for name in Device.gpus()}
    for one in Device.opened():
        if one.name in here:
            one.hcq.trim()


manual_seed = manual_seed_all = Tensor.manual_seed


def get_rng_state(device: int | str | None = None) -> Tensor:
    """Return the state of the generator, which all devices share."""
    del device
    return functions.get_rng_state()


def set_rng_state(new_state: Tensor, device: int | str | None = None) -> None:
    """Set the state of the generator. Raises as `frontend.set_rng_state`."""
    del device
    functions.set_rng_state(new_state)


def get_rng_state_all() -> list[Tensor]:
    """Return the state of the generator once for each GPU."""
    return [functions.get_rng_state() for _ in Device.gpus()]


def set_rng_state_all(new_states: Sequence[Tensor]) -> None:
    """Set the state of the generator to the first one. Raises as `frontend.set_rng_state`."""
    for state in new_states[:1]:
        functions.set_rng_state(state)
