"""The kernel of the queue fuzzer, out[x] = out[x] * 3 + a[x] + term, and devices that have it loaded.

Next: `queue_programs`, which launches it.
"""

from __future__ import annotations

import functools
from contextlib import ExitStack
from typing import TYPE_CHECKING, Final

import hcq
from compiler.llvm import Machine, emit_object, host
from compiler.targets.nvptx.assembler import assemble
from hcq import ArgKind, ArgSlot, KernelImage

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hcq import DeviceInfo

SHARED: Final = hcq.BufferSpec(place=hcq.Place.HOST, host_visible=True, coherent=True)
SLOTS: Final = (
    ArgSlot("out", ArgKind.POINTER, 0, 8, "rw"),
    ArgSlot("a", ArgKind.POINTER, 8, 8, "r"),
    ArgSlot("term", ArgKind.INT, 16, 4),
)
_HOST: Final = """
define void @mix(i64 %args, i64 %x, i64 %y, i64 %z) {
  %base = inttoptr i64 %args to ptr
  %outp = load ptr, ptr %base
  %asite = getelementptr i8, ptr %base, i64 8
  %ap = load ptr, ptr %asite
  %tsite = getelementptr i8, ptr %base, i64 16
  %term = load i32, ptr %tsite
  %o = getelementptr i32, ptr %outp, i64 %x
  %i = getelementptr i32, ptr %ap, i64 %x
  %old = load i32, ptr %o
  %a = load i32, ptr %i
  %three = mul i32 %old, 3
  %sum = add i32 %three, %a
  %v = add i32 %sum, %term
  store i32 %v, ptr %o
  ret void
}
"""
_PTX: Final = """.version {version}
.target {arch}
.address_size 64
.visible .entry mix(.param .u64 out, .param .u64 a, .param .u32 term) {{
 .reg .b64 %rd<6>;
 .reg .b32 %r<6>;
 ld.param.u64 %rd1, [out];
 ld.param.u64 %rd2, [a];
 ld.param.u32 %r1, [term];
 mov.u32 %r2, %ctaid.x;
 mul.wide.u32 %rd3, %r2, 4;
 add.u64 %rd4, %rd1, %rd3;
 add.u64 %rd5, %rd2, %rd3;
 ld.global.u32 %r3, [%rd4];
 ld.global.u32 %r4, [%rd5];
 mad.lo.u32 %r5, %r3, 3, %r4;
 add.u32 %r5, %r5, %r1;
 st.global.u32 [%rd4], %r5;
 ret;
}}
"""
_UNUSED: Final = (
    "dispatch-ptr", "implicitarg-ptr", "queue-ptr", "dispatch-id", "workgroup-id-y", "workgroup-id-z",
    "workitem-id-x", "workitem-id-y", "workitem-id-z",
)  # fmt: skip
"""Inputs that the kernel does not use, so that they take no registers."""
_AMDGPU: Final = (
    """
declare i32 @llvm.amdgcn.workgroup.id.x()
define amdgpu_kernel void @mix(ptr addrspace(1) %out, ptr addrspace(1) %a, i32 %term) #0 {
  %x = call i32 @llvm.amdgcn.workgroup.id.x()
  %o = getelementptr i32, ptr addrspace(1) %out, i32 %x
  %i = getelementptr i32, ptr addrspace(1) %a, i32 %x
  %old = load i32, ptr addrspace(1) %o
  %more = load i32, ptr addrspace(1) %i
  %three = mul i32 %old, 3
  %sum = add i32 %three, %more
  %v = add i32 %sum, %term
  store i32 %v, ptr addrspace(1) %o
  ret void
}
attributes #0 = { "amdgpu-flat-work-group-size"="1,1" """
    + " ".join(f'"amdgpu-no-{one}"' for one in _UNUSED)
    + " }\n"
)


def ptx(arch: str) -> str:
    """Return the kernel's PTX for an NVIDIA GPU."""
    return _PTX.format(arch=arch, version="8.8" if arch.startswith(("sm_10", "sm_12")) else "8.0")


@functools.cache
def _code(arch: str) -> bytes:
    if arch.startswith("sm_"):
        return assemble(ptx(arch), arch)
    if arch.startswith("gfx"):
        return emit_object(_AMDGPU, Machine("amdgcn-amd-amdhsa", arch, ""))
    return emit_object(_HOST, host())


def image(info: DeviceInfo) -> KernelImage:
    """Return the kernel for a device; a workgroup has one thread and computes one u32."""
    arch = {"sm_90": "sm_90a", "sm_120": "sm_120a"}.get(info.arch, info.arch)
    return KernelImage(name="mix", arch=arch, code=_code(arch), args=SLOTS, kernarg_size=24)


class Stage:
    """Open devices, their queues, and the kernel loaded on each."""

    def __init__(self, names: Sequence[str], *, validate: bool, seed: int = 0) -> None:
        self.devices = [hcq.open(name, validate=validate, seed=seed) for name in names]
        self.queues = [queue for device in self.devices for queue in device.queues]
        self.mix = {device: device.load(image(device.info)) for device in self.devices}
        self.compute = tuple(queue.kind is hcq.QueueKind.COMPUTE for queue in self.queues)

    def buffer(self, data: bytes) -> hcq.Buffer:
        """Return a buffer with this content that the host and all devices see."""
        first, *others = self.devices
        buffer = first.alloc(len(data), SHARED)
        for device in others:
            buffer.map_to(device)
        buffer.host()[:] = data
        return buffer

    def close(self) -> None:
        """Close the devices, all of them also where one raises a fault."""
        self.mix.clear()
        with ExitStack() as stack:
            for device in self.devices:
                stack.callback(device.close)
