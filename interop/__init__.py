"""Kernels of other compilers on this stack: PTX, cubins, AMDGPU code objects, Triton and CUDA C++.

    import hcq, interop
    with hcq.open("nv-emu") as device:
        kernel = interop.load(device, "add.ptx")
        a = interop.array(device, numpy_array)

Not here: the driver that runs them (`drivers`), kernels of this project's compiler (`compiler`). Next:
docs/other-kernels.md; `interop.load`, `interop.kernel`, `interop.arrays`. `interop.cuda`,
`interop.sanitize` and `interop.triton_backend` load when first used.
"""

from hcq.names import lazy
from interop.arrays import DeviceArray, array, copy, empty
from interop.kernel import LoadedKernel
from interop.load import load
from interop.signature import KernelParameter, Signature

_LATER = {name: f"interop.{name}" for name in ("cuda", "sanitize", "triton_backend")}
__all__ = ["DeviceArray", "KernelParameter", "LoadedKernel", "Signature", "array", "copy", "empty", "load"]
__getattr__, __dir__ = lazy(__name__, [*__all__, *_LATER], _LATER)
