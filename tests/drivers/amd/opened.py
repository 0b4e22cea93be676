"""Devices on emulated kernels with hooks, and a kernel image to load on them."""

from __future__ import annotations

import errno
import functools
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from compiler.llvm import Machine, emit_object
from drivers.amd.driver import AmdDriver
from drivers.amd.layouts.chips import CHIPS
from drivers.amd.layouts.topology import ROOT
from emulator.amd.engines.engines import AmdEngines
from emulator.amd.machine.kernel import AmdKernel
from emulator.amd.machine.machine import AmdMachine
from emulator.amd.profiles import GPUS, find_kernel
from emulator.simt.engine import Settings
from hcq.config import config
from hcq.device import Device
from hcq.hardware import BufferSpec, Place
from hcq.program import ArgKind, ArgSlot, KernelImage
from tests.support.hooked import HookedKernel
from tests.support.surprises.amd import with_property

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from drivers.amd.device import AmdDevice
    from emulator.amd.profiles import GpuProfile

HOST = BufferSpec(place=Place.HOST, host_visible=True, coherent=True)
LINUX = ("6.1", "6.12", "6.12.107")
TARGETS = ("gfx1100", "gfx1200", "gfx1201", "gfx942", "gfx942-cpx", "gfx950", "gfx1103", "gfx1151")
PROFILES = GPUS | {
    "gfx1103": replace(
        GPUS["gfx1151"], target=CHIPS["gfx1103"], label="gfx1103", device_id=0x15BF, units=12, array_count=2,
        units_per_array=8,
    ),
}  # fmt: skip
VERSIONS = {"gfx90a": 90010, "gfx1030": 100300, "gfx1300": 130000}
"""GPUs that no profile has: a node with the properties of another, and this version."""
_IR = """
define amdgpu_kernel void @k(ptr addrspace(1) %out, i32 %n) #0 {{
  {body}
  store i32 %n, ptr addrspace(1) %out
  ret void
}}
attributes #0 = {{ {attributes} }}
"""
_SCRATCH = """%s = alloca [65 x i32], addrspace(5)
  %e = getelementptr [65 x i32], ptr addrspace(5) %s, i32 0, i32 %n
  store volatile i32 %n, ptr addrspace(5) %e"""
_UNUSED = (
    "dispatch-ptr", "implicitarg-ptr", "queue-ptr", "dispatch-id", "workitem-id-x", "workitem-id-y",
    "workitem-id-z", "workgroup-id-x", "workgroup-id-y", "workgroup-id-z", "hostcall-ptr",
    "multigrid-sync-arg", "heap-ptr", "default-queue", "completion-action", "lds-kernel-id",
)  # fmt: skip


@functools.cache
def image(arch: str, *, scratch: bool = False) -> KernelImage:
    """Return a kernel k(out, n) for an architecture."""
    attributes = " ".join(f'"amdgpu-no-{name}"' for name in _UNUSED)
    ir = _IR.format(body=_SCRATCH if scratch else "", attributes=attributes)
    code = emit_object(ir, Machine("amdgcn-amd-amdhsa", arch, ""))
    slots = (ArgSlot("out", ArgKind.POINTER, 0, 8, "w"), ArgSlot("n", ArgKind.INT, 8, 4))
    return KernelImage(name="k", arch=arch, code=code, args=slots, kernarg_size=16)


def emulated(
    *gpus: str | GpuProfile, linux: str = "6.12", table: dict[str, object] | None = None, **options: Any
) -> HookedKernel:
    """Return the kernel of a new machine; `table` has its surprises, `options` are those of `AmdMachine`."""
    names = gpus or ("gfx1100",)
    rows = [PROFILES.get(name, GPUS["gfx1100"]) if isinstance(name, str) else name for name in names]
    # No queue reads its write pointer but at a doorbell: tests move it.
    engines = AmdEngines(Settings(cache=config().cache), remaps=False)
    machine = AmdMachine(rows, find_kernel(linux), engines=engines, **options)
    machine.surprises.table = {
        **{
            f"read {ROOT}/nodes/{number}/properties": with_property("gfx_target_version", VERSIONS[name])
            for number, name in enumerate(names, 1)
            if isinstance(name, str) and name in VERSIONS
        },
        **(table or {}),
    }
    return HookedKernel(AmdKernel(machine))


def driver_of(kernel: HookedKernel) -> AmdDriver:
    """Return a driver on a kernel, whose process ends with its last device."""
    return AmdDriver("amd", lambda _: kernel, lasting=False, emulated=True)


def opened(kernel: HookedKernel, index: int = 0) -> AmdDevice:
    """Return an open driver device; the caller closes it."""
    return driver_of(kernel).open(index, None)


def paused(kernel: HookedKernel, number: int) -> Callable[[], None]:
    """Let a queue read nothing until the function that is returned is called."""
    queue = kernel.process.queue(number, errno.EINVAL)
    queue.percentage = 0

    def go() -> None:
        queue.percentage = 100
        kernel.machine.scheduler.doorbell_rung()

    return go


@contextmanager
def machine(*gpus: str, **options: Any) -> Iterator[tuple[AmdMachine, Device]]:
    """Open GPU 0 of a machine as `hcq` does; closed behind the block, with nothing left."""
    kernel = emulated(*gpus, **options)
    with Device(opened(kernel), emulated=True) as device:
        yield kernel.machine, device
    assert kernel.held() == {}
