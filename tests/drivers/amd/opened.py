"""Devices on the scripted kernel, and a kernel image to load on them."""

from __future__ import annotations

import functools
from contextlib import contextmanager
from typing import TYPE_CHECKING

from compiler.llvm import Machine, emit_object
from drivers.amd.driver import AmdDriver
from hcq.device import Device
from hcq.hardware import BufferSpec, Place
from hcq.program import ArgKind, ArgSlot, KernelImage
from tests.support.amd.script import Script
from tests.support.amd.scripted import ScriptedKernel

if TYPE_CHECKING:
    from collections.abc import Iterator

    from drivers.amd.device import AmdDevice

HOST = BufferSpec(place=Place.HOST, host_visible=True, coherent=True)
TARGETS = ("gfx1100", "gfx1201", "gfx942", "gfx942-cpx", "gfx1103", "gfx1151")
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


def driver_of(kernel: ScriptedKernel) -> AmdDriver:
    """Return a driver on the scripted kernel, whose process ends with its last device."""
    return AmdDriver("amd", lambda _: kernel, lasting=False)


def opened(kernel: ScriptedKernel, index: int = 0) -> AmdDevice:
    """Return an open driver device; the caller closes it."""
    return driver_of(kernel).open(index, None)


@contextmanager
def machine(script: Script | None = None) -> Iterator[tuple[ScriptedKernel, Device]]:
    """Open GPU 0 of a machine as `hcq` does; closed behind the block, with nothing left."""
    kernel = ScriptedKernel(script or Script())
    with Device(opened(kernel)) as device:
        yield kernel, device
    assert kernel.leaks() == []
