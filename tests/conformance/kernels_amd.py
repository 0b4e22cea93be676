"""The conformance kernels for AMD GPUs, as LLVM IR: one work-item a workgroup, data is u32."""

from __future__ import annotations

import functools

from compiler.llvm import Machine, emit_object

_PARAMS = {
    "add": "ptr addrspace(1) %out, ptr addrspace(1) %a, ptr addrspace(1) %b",
    "copy": "ptr addrspace(1) %out, ptr addrspace(1) %a",
    "index": "ptr addrspace(1) %out, i32 %width, i32 %height, i32 %base",
    "count": "ptr addrspace(1) %out",
    "affine": "ptr addrspace(1) %out, i32 %factor, i32 %term",
    "turn": "ptr addrspace(1) %out, ptr addrspace(1) %counter, i32 %slot",
    "spin": "ptr addrspace(1) %out, i32 %n",
}
_BODIES = {
    "add": """
 %x = call i32 @llvm.amdgcn.workgroup.id.x()
 %pa = getelementptr i32, ptr addrspace(1) %a, i32 %x
 %pb = getelementptr i32, ptr addrspace(1) %b, i32 %x
 %po = getelementptr i32, ptr addrspace(1) %out, i32 %x
 %va = load i32, ptr addrspace(1) %pa
 %vb = load i32, ptr addrspace(1) %pb
 %sum = add i32 %va, %vb
 store i32 %sum, ptr addrspace(1) %po
 ret void
""",
    "copy": """
 %x = call i32 @llvm.amdgcn.workgroup.id.x()
 %pa = getelementptr i32, ptr addrspace(1) %a, i32 %x
 %po = getelementptr i32, ptr addrspace(1) %out, i32 %x
 %va = load i32, ptr addrspace(1) %pa
 store i32 %va, ptr addrspace(1) %po
 ret void
""",
    "index": """
 %x = call i32 @llvm.amdgcn.workgroup.id.x()
 %y = call i32 @llvm.amdgcn.workgroup.id.y()
 %z = call i32 @llvm.amdgcn.workgroup.id.z()
 %zh = mul i32 %z, %height
 %row = add i32 %zh, %y
 %start = mul i32 %row, %width
 %i = add i32 %start, %x
 %po = getelementptr i32, ptr addrspace(1) %out, i32 %i
 %old = load i32, ptr addrspace(1) %po
 %based = add i32 %old, %base
 %new = add i32 %based, %i
 store i32 %new, ptr addrspace(1) %po
 ret void
""",
    "count": """
 %old = atomicrmw add ptr addrspace(1) %out, i32 1 syncscope("agent") monotonic
 ret void
""",
    "affine": """
 %old = load i32, ptr addrspace(1) %out
 %scaled = mul i32 %old, %factor
 %new = add i32 %scaled, %term
 store i32 %new, ptr addrspace(1) %out
 ret void
""",
    "turn": """
 %turn = atomicrmw add ptr addrspace(1) %counter, i32 1 syncscope("agent") monotonic
 %po = getelementptr i32, ptr addrspace(1) %out, i32 %slot
 store i32 %turn, ptr addrspace(1) %po
 ret void
""",
    "spin": """
 %none = icmp eq i32 %n, 0
 br i1 %none, label %done, label %again
again:
 %left = phi i32 [ %n, %0 ], [ %less, %again ]
 %seen = load volatile i32, ptr addrspace(1) %out
 %less = sub i32 %left, 1
 %end = icmp eq i32 %less, 0
 br i1 %end, label %done, label %again
done:
 %old = atomicrmw add ptr addrspace(1) %out, i32 1 syncscope("agent") monotonic
 ret void
""",
}
_UNUSED = (
    "dispatch-ptr", "implicitarg-ptr", "queue-ptr", "dispatch-id", "workitem-id-x", "workitem-id-y",
    "workitem-id-z", "hostcall-ptr", "multigrid-sync-arg", "heap-ptr", "default-queue", "completion-action",
    "lds-kernel-id",
)  # fmt: skip
"""Kernel inputs that no kernel uses, so that they occupy no registers."""


def ir(name: str) -> str:
    """Return the LLVM IR of a kernel."""
    attributes = " ".join(f'"amdgpu-no-{one}"' for one in _UNUSED)
    declared = "".join(f"declare i32 @llvm.amdgcn.workgroup.id.{axis}()\n" for axis in "xyz")
    return (
        f"{declared}define amdgpu_kernel void @{name}({_PARAMS[name]}) #0 {{{_BODIES[name]}}}\n"
        f'attributes #0 = {{ {attributes} "amdgpu-flat-work-group-size"="1,1" }}\n'
    )


@functools.cache
def code(name: str, arch: str) -> bytes:
    """Return the code object of a kernel."""
    return emit_object(ir(name), Machine("amdgcn-amd-amdhsa", arch, ""))
