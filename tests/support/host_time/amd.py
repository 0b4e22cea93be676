"""Host time of launches and replays on the AMD driver, on the emulated kernel: Python time alone.

The case "amd" measures PM4 queues, AQL queues, and the NVIDIA driver for comparison. The GPU's results are
written outside the measured time, so each submission finds the previous one completed. No hardware is used.

Not here: NVIDIA's case (`nv`).
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING

from compiler.llvm import Machine, emit_object
from drivers.amd.driver import AmdDriver
from emulator.amd.engines.engines import AmdEngines
from emulator.amd.machine import open_machine
from emulator.simt.engine import Settings
from hcq.config import config
from hcq.device import Device
from hcq.driver import QueueKind
from hcq.program import ArgKind, ArgSlot, KernelImage
from tests.support.host_time.finished import KERNELS, FinishedDevice, deaf
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
    """AMD's driver on the emulated kernel, whose engines hear no doorbell."""

    def __init__(self, target: str) -> None:
        kernel = open_machine(target, engines=AmdEngines(Settings(cache=config().cache)))
        driver = AmdDriver("amd", lambda _: kernel, lasting=False, emulated=True).open(0, None)
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
        self._ring.queue.ring_doorbell = deaf

    def take(self) -> None:
        """Write the read pointer."""
        self._ring.queue.read_pointer[0] = self._ring.taken


def amd(bench: Bench) -> None:
    """Measure one launch, and replays of 256 kernels with every input changed and with none changed.

    All devices are measured in turn; each AMD row states its time relative to NVIDIA's.
    """
    with ExitStack() as stack:
        gpus = {f"{name}, emulated": stack.enter_context(FinishedAmd(name)) for name in TARGETS}
        beside = stack.enter_context(FinishedNv())
        cases: dict[str, Callable[[FinishedAmd | FinishedNv], Callable[[], None]]] = {
            "record + args + encode + ring, one kernel": lambda gpu: gpu.launcher(),
            f"{KERNELS} kernels replayed, every input changed": lambda gpu: gpu.replayer(changed=True),
            f"{KERNELS} kernels replayed, nothing changed": lambda gpu: gpu.replayer(changed=False),
        }
        for case, make in cases.items():
            runs = {name: (make(gpu), gpu.finish) for name, gpu in gpus.items()}
            bench.interleaved(
                case, runs, beside=(make(beside), beside.finish), name="nv, emulated", samples=2000
            )


CASES = {"amd": amd}
