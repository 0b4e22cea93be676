"""Host time of launches and replays on the AMD driver, on the scripted kernel: Python time alone.

The case "amd" measures PM4 queues, AQL queues, and the NVIDIA driver for comparison. The GPU's results are
written outside the measured time, so each submission finds the previous one completed. No hardware is used.

Not here: NVIDIA's case (`nv`). Next: `tests.support.amd.scripted`, the scripted kernel.
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING

from compiler.llvm import Machine, emit_object
from drivers.amd.driver import AmdDriver
from hcq.device import Device
from hcq.driver import QueueKind
from hcq.program import ArgKind, ArgSlot, KernelImage
from tests.support.amd.script import Script
from tests.support.amd.scripted import ScriptedKernel
from tests.support.host_time.finished import KERNELS, FinishedDevice
from tests.support.host_time.nv import FinishedNv

if TYPE_CHECKING:
    from collections.abc import Callable

    from tools.bench.rows import Bench

TARGETS = ("gfx1100", "gfx942")
"""One with PM4 queues and one with AQL queues."""
_TEXT = """
define amdgpu_kernel void @k(ptr addrspace(1) %out, ptr addrspace(1) %x, i32 %n) #0 {
  store i32 %n, ptr addrspace(1) %out
  ret void
}
attributes #0 = { "amdgpu-no-dispatch-ptr" "amdgpu-no-implicitarg-ptr" "amdgpu-no-queue-ptr"
  "amdgpu-no-dispatch-id" "amdgpu-no-workitem-id-x" "amdgpu-no-workitem-id-y" "amdgpu-no-workitem-id-z" }
"""


class FinishedAmd(FinishedDevice):
    """AMD's driver on the scripted kernel."""

    def __init__(self, target: str) -> None:
        self._kernel = ScriptedKernel(Script(gpus=(target,)))
        driver = AmdDriver("amd", lambda _: self._kernel, lasting=False).open(0, None)
        device = Device(driver)
        code = emit_object(_TEXT, Machine("amdgcn-amd-amdhsa", target))
        slots = (
            ArgSlot("out", ArgKind.POINTER, 0, 8, "w"),
            ArgSlot("x", ArgKind.POINTER, 8, 8, "r"),
            ArgSlot("n", ArgKind.INT, 16, 4),
        )
        image = KernelImage(name="k", arch=target, code=code, args=slots, kernarg_size=24)
        super().__init__(device, device.load(image))
        self._ring = driver.ring(QueueKind.COMPUTE, 0)
        self.device.compute.submit(self.device.compute.record()).wait()
        self._kernel.hardware.ignored |= {
            queue.doorbell
            for queue in self._kernel.queues.values()
            if queue.ring[0] == self._ring.queue.ring.va
        }

    def take(self) -> None:
        """Write the read pointer."""
        self._ring.queue.read_pointer[0] = self._ring.taken


def amd(bench: Bench) -> None:
    """Measure one launch, and replays of 256 kernels with every input changed and with none changed.

    All devices are measured in turn; each AMD row states its time relative to NVIDIA's.
    """
    with ExitStack() as stack:
        gpus = {f"{name}, scripted": stack.enter_context(FinishedAmd(name)) for name in TARGETS}
        beside = stack.enter_context(FinishedNv())
        cases: dict[str, Callable[[FinishedAmd | FinishedNv], Callable[[], None]]] = {
            "record + args + encode + ring, one kernel": lambda gpu: gpu.launcher(),
            f"{KERNELS} kernels replayed, every input changed": lambda gpu: gpu.replayer(changed=True),
            f"{KERNELS} kernels replayed, nothing changed": lambda gpu: gpu.replayer(changed=False),
        }
        for case, make in cases.items():
            runs = {name: (make(gpu), gpu.finish) for name, gpu in gpus.items()}
            bench.interleaved(
                case, runs, beside=(make(beside), beside.finish), name="nv, scripted", samples=2000
            )


CASES = {"amd": amd}
