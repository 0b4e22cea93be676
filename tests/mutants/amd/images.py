"""The kernels of the scenario: two of the bring-up ladder, and two that read all that commands wrote.

`spread` and `gather` read an element in each thread, so that memory which a changed command left out is a
read of uninitialised memory. Each also reads by a scalar load, for the scalar cache.

Not here: kernels without a barrier (`kernels`), the program (`tests.mutants.private`).
"""

from __future__ import annotations

from typing import Final

from compiler.llvm import Machine, emit_object
from hcq.program import ArgKind, ArgSlot, KernelImage
from tests.mutants.private import THREADS
from tools.bringup.amd.kernels import image

_LDS: Final = 4096
_SPREAD: Final = f"""
define amdgpu_kernel void @spread(ptr addrspace(1) noalias %out,
                                  ptr addrspace(1) noalias readonly %seen) #0 {{
  %thread = call i32 @llvm.amdgcn.workitem.id.x()
  %group = call i32 @llvm.amdgcn.workgroup.id.x()
  %first = mul i32 %group, {THREADS}
  %i = add i32 %first, %thread
  %from = getelementptr i32, ptr addrspace(1) %seen, i32 %i
  %one = load i32, ptr addrspace(1) %from
  %all = load i32, ptr addrspace(1) %seen
  %sum = add i32 %one, %all
  %to = getelementptr i32, ptr addrspace(1) %out, i32 %i
  store i32 %sum, ptr addrspace(1) %to
  ret void
}}
"""
_GATHER: Final = f"""
define amdgpu_kernel void @gather(ptr addrspace(1) noalias %out, ptr addrspace(1) noalias readonly %index,
                                  ptr addrspace(1) noalias readonly %table) #0 {{
  %thread = call i32 @llvm.amdgcn.workitem.id.x()
  %group = call i32 @llvm.amdgcn.workgroup.id.x()
  %first = mul i32 %group, {THREADS}
  %i = add i32 %first, %thread
  %from = getelementptr i32, ptr addrspace(1) %index, i32 %i
  %own = load i32, ptr addrspace(1) %from
  %all = load i32, ptr addrspace(1) %index
  %row = zext i32 %own to i64
  %begin = mul i64 %row, {THREADS}
  %column = zext i32 %i to i64
  %at = add i64 %begin, %column
  %cell = getelementptr i32, ptr addrspace(1) %table, i64 %at
  %value = load i32, ptr addrspace(1) %cell
  %sum = add i32 %value, %all
  %to = getelementptr i32, ptr addrspace(1) %out, i32 %i
  store i32 %sum, ptr addrspace(1) %to
  ret void
}}
"""
_TAIL: Final = """
declare i32 @llvm.amdgcn.workitem.id.x()
declare i32 @llvm.amdgcn.workgroup.id.x()
attributes #0 = { "amdgpu-no-dispatch-ptr" "amdgpu-no-implicitarg-ptr" "amdgpu-no-queue-ptr"
  "amdgpu-no-dispatch-id" "amdgpu-no-workitem-id-y" "amdgpu-no-workitem-id-z" "amdgpu-no-workgroup-id-y"
  "amdgpu-no-workgroup-id-z" "amdgpu-no-hostcall-ptr" "amdgpu-no-multigrid-sync-arg" "amdgpu-no-heap-ptr"
  "amdgpu-no-default-queue" "amdgpu-no-completion-action" "amdgpu-no-lds-kernel-id" }
"""


def _own(name: str, text: str, arch: str, *read: str) -> KernelImage:
    args = (
        ArgSlot("out", ArgKind.POINTER, 0, 8, "w"),
        *(ArgSlot(one, ArgKind.POINTER, 8 * at, 8, "r") for at, one in enumerate(read, 1)),
    )
    code = emit_object(text + _TAIL, Machine("amdgcn-amd-amdhsa", arch))
    return KernelImage(name=name, arch=arch, code=code, args=args, kernarg_size=8 * len(args))


def images(arch: str) -> dict[str, KernelImage]:
    """Return the kernels of the scenario by name."""
    return {
        "grid": image("grid", arch),
        "shared": image("shared", arch, shared_bytes=_LDS),
        "spread": _own("spread", _SPREAD, arch, "seen"),
        "gather": _own("gather", _GATHER, arch, "index", "table"),
    }
