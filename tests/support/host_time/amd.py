"""AMD's driver on an emulated GPU that executes nothing: with PM4 queues, or with AQL queues."""

from __future__ import annotations

from compiler.llvm import Machine, emit_object
from drivers.amd.driver import AmdDriver
from emulator.amd.engines.engines import AmdEngines
from emulator.amd.machine import open_machine
from emulator.simt.engine import Settings
from hcq.config import config
from hcq.device import Device
from hcq.driver import QueueKind
from hcq.program import ArgKind, ArgSlot, KernelImage
from tests.support.host_time.finished import FinishedDevice, deaf

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
