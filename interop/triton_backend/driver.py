"""The driver class of the Triton plug-in: the current device, its properties, launcher and timing.

Written for Triton 3.6 to 3.9. Not here: timing (`interop.triton_backend.timing`). Next:
`interop/triton_backend/launcher.py`, launching.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any, Final

import triton
from triton.backends.compiler import GPUTarget
from triton.backends.driver import DriverBase

import hcq
from hcq import registry
from hcq.config import config
from hcq.errors import UnsupportedError, UsageError
from interop import arrays
from interop.triton_backend.binary import Binary
from interop.triton_backend.launcher import Launcher
from interop.triton_backend.timing import DeviceInterface, bench

if TYPE_CHECKING:
    from collections.abc import Callable

    from hcq.device import Device
    from interop.arrays import DeviceArray

_NUMBERS: Final = itertools.count()
_GPUS: Final = ("nv", "amd", "nv-emu", "amd-emu")
_WIDE_WAVES: Final = "gfx9"
"""Architectures with this prefix have waves of 64 lanes (CDNA), others of 32."""
_CACHE_BYTES: Final = 256 << 20
"""Bytes that are written between two timed runs, to empty the L2 cache; Triton's own figure."""


class HcqDriver(DriverBase):  # type: ignore[misc]  # Triton has no types
    """Triton's view of one open device. `device` None: the device that `HCQ_DEVICE` names is opened.

    Raises `UnsupportedError` for a device that is no GPU, and as `hcq.open`.
    """

    def __init__(self, device: Device | None = None) -> None:
        super().__init__()
        self.device = hcq.open() if device is None else device
        if self.device.info.driver not in _GPUS:
            raise UnsupportedError(
                f"Triton compiles for GPUs, {self.device.name} is none\nhint: use one of {', '.join(_GPUS)}"
            )
        self._number = next(_NUMBERS)
        self.utils = Utilities(self)
        self.launcher_cls = lambda src, metadata: Launcher(self.device, src, metadata)
        self.hardware = registry.parse(self.device.info.driver)[0].hardware

    @staticmethod
    def is_active() -> bool:
        """Return whether `HCQ_DEVICE` names a GPU."""
        return config().device.partition(":")[0] in _GPUS

    def get_current_device(self) -> int:
        """Return a number that no other driver of this process has: Triton caches kernels by it."""
        return self._number

    def set_current_device(self, device: int) -> None:
        """Raise `UsageError` unless `device` is this one's number.

        `interop.triton_backend.use` changes it.
        """
        if device != self._number:
            raise UsageError(f"wanted device {self._number}, saw {device}; try interop.triton_backend.use")

    def get_current_stream(self, device: int) -> int:  # noqa: ARG002 - Triton's signature
        """Return 0: all launches go to the first compute queue, in order."""
        return 0

    def get_current_target(self) -> Any:
        """Return the target of Triton's own compiler."""
        arch = self.device.info.arch
        if arch.startswith("sm_"):
            return GPUTarget("cuda", int(arch[3:].rstrip("af")), 32)
        return GPUTarget("hip", arch, 64 if arch.startswith(_WIDE_WAVES) else 32)

    def get_device_capability(self, device: int = 0) -> tuple[int, int]:  # noqa: ARG002 - Triton's signature
        """Return the compute capability; for AMD GPUs the first two numbers of the architecture."""
        target = self.get_current_target()
        if target.backend == "cuda":
            return int(target.arch) // 10, int(target.arch) % 10
        return int(target.arch[3:-2]), int(target.arch[-2], 16)

    def map_python_to_cpp_type(self, ty: str) -> str:
        """Return the C type of a Triton type."""
        if ty.startswith("*"):
            return "uint64_t"
        narrow = {"fp16": "double", "bf16": "double", "fp32": "double", "fp64": "double"}
        return narrow.get(ty) or f"{'u' if ty[0] == 'u' else ''}int{max(8, int(ty[1:]))}_t"

    def get_active_torch_device(self) -> Any:
        """Return PyTorch's CPU device: its tensors are staged around each launch."""
        import torch  # noqa: PLC0415 - only where the user has it

        return torch.device("cpu")

    def get_device_interface(self) -> DeviceInterface:
        """Return the events and the synchronisation that `triton.testing.do_bench` uses."""
        return DeviceInterface(self.device, self._number)

    def get_benchmarker(self) -> Callable[..., Any]:
        """Return Triton's `do_bench` on hardware; on emulated GPUs one that estimates by counters."""
        if self.hardware:
            return triton.testing.do_bench  # type: ignore[no-any-return]
        return lambda call, **options: bench(self.device, call, **options)

    def get_empty_cache_for_benchmark(self) -> DeviceArray:
        """Return memory to clear between timed runs; emulated GPUs have no cache to empty.

        Raises as `Device.alloc`.
        """
        return arrays.empty(self.device, _CACHE_BYTES if self.hardware else 4, "uint8")

    def clear_cache(self, cache: DeviceArray) -> None:
        """Overwrite the memory of `get_empty_cache_for_benchmark`."""
        queue = self.device.compute
        queue.submit(queue.record(label="clear cache").fill(cache.buffer, 0))


class Utilities:
    """The functions that Triton calls to load code and to ask for limits."""

    def __init__(self, driver: HcqDriver) -> None:
        self._driver = driver

    def load_binary(
        self,
        name: str,
        code: bytes,
        shared: int,  # noqa: ARG002 - Triton's signature
        device: int,  # noqa: ARG002 - Triton's signature
    ) -> tuple[Binary, Binary, int, int, int]:
        """Return (module, function, registers, spilled registers, most threads) of a compiled kernel.

        `Binary` states the numbers, and is both module and function. Raises as `Binary.read`.
        """
        binary = Binary.read(name, code, self._driver.device.info)
        return binary, binary, binary.registers, binary.spills, binary.max_threads

    def unload_module(self, module: Binary) -> None:
        """Do nothing: the loaded program is unloaded with its last reference."""

    def get_device_properties(self, device: int) -> dict[str, Any]:  # noqa: ARG002 - Triton's signature
        """Return the limits that Triton asks for; "max_num_regs" is 65536 for every GPU."""
        info = self._driver.device.info
        target = self._driver.get_current_target()
        return {
            "max_shared_mem": info.limits["max_shared_bytes"],
            "max_num_regs": 65536,
            "multiprocessor_count": info.compute_units,
            "warpSize": target.warp_size,
            "arch": info.arch,
        }
