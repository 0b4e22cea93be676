"""Triton on this stack: `@triton.jit` kernels run on real and emulated GPUs without libcuda and ROCm.

    import hcq, interop.triton_backend
    device = interop.triton_backend.use("nv-emu")      # or an open hcq.Device
    kernel[grid](interop.array(device, x), ...)

With `HCQ_DEVICE=nv-emu` in the environment Triton finds the driver itself, by the entry point "hcq" of the
group "triton.backends". Triton's own compilers make the code.

Not here: CUDA C++ (`interop.cuda`). Next: docs/other-kernels.md; `interop/triton_backend/driver.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hcq.errors import UnsupportedError

if TYPE_CHECKING:
    from hcq.device import Device


def use(device: Device | str) -> Device:
    """Make Triton launch on `device` from now on; return the device.

    A `str` names a device, which is opened and which the caller then owns. Raises `UnsupportedError` if
    Triton is not installed, and for a device that is no GPU; and as `hcq.open`.
    """
    try:
        import triton  # noqa: PLC0415 - heavy; this package is also imported where Triton is absent
    except ModuleNotFoundError as error:
        if error.name != "triton":
            raise
        raise UnsupportedError(
            "Triton is not installed\nhint: pip install 'triton>=3.6' 'nvidia-nvjitlink>=13.0,<14'"
        ) from None

    import hcq  # noqa: PLC0415 - beside it
    from interop.triton_backend.driver import HcqDriver  # noqa: PLC0415 - imports Triton

    opened = hcq.open(device) if isinstance(device, str) else device
    try:
        triton.runtime.driver.set_active(HcqDriver(opened))
    except BaseException:
        if isinstance(device, str):
            opened.close()
        raise
    return opened
