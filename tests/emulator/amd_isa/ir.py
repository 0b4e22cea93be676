"""LLVM IR of the kernels that the tests run."""

# ruff: noqa: E501 - lines of IR read best on one line

from __future__ import annotations

HEAD = """target triple = "amdgcn-amd-amdhsa"
declare i32 @llvm.amdgcn.workitem.id.x()
declare i32 @llvm.amdgcn.workgroup.id.x()
declare void @llvm.amdgcn.s.barrier()
"""
INDEX = """  %thread = call i32 @llvm.amdgcn.workitem.id.x()
  %group = call i32 @llvm.amdgcn.workgroup.id.x()
  %first = mul i32 %group, 256
  %i = add i32 %first, %thread
"""
BOUNDS = '"amdgpu-flat-work-group-size"="256,256"'
SYNC = """  fence syncscope("workgroup") release
  call void @llvm.amdgcn.s.barrier()
  fence syncscope("workgroup") acquire
"""


def elementwise(type_: str, code: str, result: str = "", extra: str = "") -> str:
    """Return a kernel in which each work-item makes %r of its %x, %y, %z."""
    result = result or type_
    loads = "".join(
        f"  %p{v} = getelementptr {type_}, ptr addrspace(1) %{v}s, i32 %i\n  %{v} = load {type_}, ptr addrspace(1) %p{v}\n"
        for v in "xyz"
    )
    return (
        HEAD
        + extra
        + "define amdgpu_kernel void @k(ptr addrspace(1) %o, ptr addrspace(1) %xs, ptr addrspace(1) %ys, ptr addrspace(1) %zs) {\n"
        + INDEX
        + loads
        + code
        + f"\n  %po = getelementptr {result}, ptr addrspace(1) %o, i32 %i\n  store {result} %r, ptr addrspace(1) %po\n  ret void\n}}\n"
    )


REDUCTION = (
    HEAD
    + f"""@lds = internal addrspace(3) global [256 x float] poison, align 16
define amdgpu_kernel void @k(ptr addrspace(1) %o, ptr addrspace(1) %a) {BOUNDS} {{
entry:
{INDEX}
  %pa = getelementptr float, ptr addrspace(1) %a, i32 %i
  %x = load float, ptr addrspace(1) %pa
  %l = getelementptr [256 x float], ptr addrspace(3) @lds, i32 0, i32 %thread
  store float %x, ptr addrspace(3) %l
{SYNC}
  br label %loop
loop:
  %s = phi i32 [ 128, %entry ], [ %half, %next ]
  %t = icmp ult i32 %thread, %s
  br i1 %t, label %add, label %next
add:
  %j = add i32 %thread, %s
  %m = getelementptr [256 x float], ptr addrspace(3) @lds, i32 0, i32 %j
  %y = load float, ptr addrspace(3) %m
  %z = load float, ptr addrspace(3) %l
  %w = fadd float %y, %z
  store float %w, ptr addrspace(3) %l
  br label %next
next:
{SYNC}
  %half = lshr i32 %s, 1
  %e = icmp eq i32 %half, 0
  br i1 %e, label %done, label %loop
done:
  %zero = icmp eq i32 %thread, 0
  br i1 %zero, label %write, label %end
write:
  %r = load float, ptr addrspace(3) @lds
  %po = getelementptr float, ptr addrspace(1) %o, i32 %group
  store float %r, ptr addrspace(1) %po
  br label %end
end:
  ret void
}}
"""
)
COLLATZ = (
    HEAD
    + f"""define amdgpu_kernel void @k(ptr addrspace(1) %o) {{
entry:
{INDEX}
  %x = add i32 %i, 1
  br label %loop
loop:
  %v = phi i32 [ %x, %entry ], [ %w, %next ]
  %c = phi i32 [ 0, %entry ], [ %d, %next ]
  %one = icmp eq i32 %v, 1
  br i1 %one, label %done, label %body
body:
  %odd = and i32 %v, 1
  %t = icmp eq i32 %odd, 0
  br i1 %t, label %even, label %other
even:
  %h = lshr i32 %v, 1
  br label %next
other:
  %m = mul i32 %v, 3
  %n = add i32 %m, 1
  br label %next
next:
  %w = phi i32 [ %h, %even ], [ %n, %other ]
  %d = add i32 %c, 1
  br label %loop
done:
  %p = getelementptr i32, ptr addrspace(1) %o, i32 %i
  store i32 %c, ptr addrspace(1) %p
  ret void
}}
"""
)
SCRATCH = (
    HEAD
    + f"""define amdgpu_kernel void @k(ptr addrspace(1) %o, ptr addrspace(1) %a) {{
entry:
{INDEX}
  %s = alloca [16 x i32], addrspace(5)
  br label %fill
fill:
  %n = phi i32 [ 0, %entry ], [ %more, %fill ]
  %p = getelementptr [16 x i32], ptr addrspace(5) %s, i32 0, i32 %n
  %v = mul i32 %n, %i
  store volatile i32 %v, ptr addrspace(5) %p
  %more = add i32 %n, 1
  %c = icmp ult i32 %more, 16
  br i1 %c, label %fill, label %done
done:
  %pa = getelementptr i32, ptr addrspace(1) %a, i32 %i
  %k = load i32, ptr addrspace(1) %pa
  %q = getelementptr [16 x i32], ptr addrspace(5) %s, i32 0, i32 %k
  %generic = addrspacecast ptr addrspace(5) %q to ptr
  %w = load volatile i32, ptr %generic
  %po = getelementptr i32, ptr addrspace(1) %o, i32 %i
  store i32 %w, ptr addrspace(1) %po
  ret void
}}
"""
)
HISTOGRAM = (
    HEAD
    + f"""define amdgpu_kernel void @k(ptr addrspace(1) %o, ptr addrspace(1) %a, ptr addrspace(1) %sum) {{
{INDEX}
  %pa = getelementptr i32, ptr addrspace(1) %a, i32 %i
  %x = load i32, ptr addrspace(1) %pa
  %bin = and i32 %x, 15
  %p = getelementptr i32, ptr addrspace(1) %o, i32 %bin
  %old = atomicrmw add ptr addrspace(1) %p, i32 1 syncscope("agent") monotonic
  %wide = zext i32 %x to i64
  %old2 = atomicrmw umax ptr addrspace(1) %sum, i64 %wide syncscope("agent") monotonic
  ret void
}}
"""
)
SHUFFLE = (
    HEAD
    + f"""declare i32 @llvm.amdgcn.ds.bpermute(i32, i32)
declare i32 @llvm.amdgcn.update.dpp.i32(i32, i32, i32, i32, i32, i1)
declare i32 @llvm.amdgcn.readfirstlane.i32(i32)
define amdgpu_kernel void @k(ptr addrspace(1) %o, ptr addrspace(1) %a) {{
{INDEX}
  %pa = getelementptr i32, ptr addrspace(1) %a, i32 %i
  %x = load i32, ptr addrspace(1) %pa
  %other = xor i32 %thread, 5
  %byte = shl i32 %other, 2
  %s = call i32 @llvm.amdgcn.ds.bpermute(i32 %byte, i32 %x)
  %d = call i32 @llvm.amdgcn.update.dpp.i32(i32 7, i32 %x, i32 273, i32 15, i32 15, i1 0)
  %f = call i32 @llvm.amdgcn.readfirstlane.i32(i32 %x)
  %m = mul i32 %d, 3
  %n = add i32 %s, %m
  %r = xor i32 %n, %f
  %po = getelementptr i32, ptr addrspace(1) %o, i32 %i
  store i32 %r, ptr addrspace(1) %po
  ret void
}}
"""
)
