"""Parts of LLVM IR that the kernels of the corpus share: the kernel around an operation, and intrinsics.

Not here: the operations (`integers`, `floats`, `memory`, `waves`).
"""

# ruff: noqa: E501 - lines of IR read best on one line

from __future__ import annotations

import re

HEAD = """target triple = "amdgcn-amd-amdhsa"
declare i32 @llvm.amdgcn.workitem.id.x()
declare i32 @llvm.amdgcn.workgroup.id.x()
declare void @llvm.amdgcn.s.barrier()
"""
_BODY = """define amdgpu_kernel void @k(ptr addrspace(1) %a, ptr addrspace(1) %b, ptr addrspace(1) %c, ptr addrspace(1) %o, {T} %s) {{
  %i = call i32 @llvm.amdgcn.workitem.id.x()
  %pa = getelementptr {T}, ptr addrspace(1) %a, i32 %i
  %pb = getelementptr {T}, ptr addrspace(1) %b, i32 %i
  %pc = getelementptr {T}, ptr addrspace(1) %c, i32 %i
  %x = load {T}, ptr addrspace(1) %pa
  %y = load {T}, ptr addrspace(1) %pb
  %z = load {T}, ptr addrspace(1) %pc
{code}
  %po = getelementptr {R}, ptr addrspace(1) %o, i32 %i
  store {R} %r, ptr addrspace(1) %po
  ret void
}}
"""


def short(type_: str) -> str:
    """Return the suffix of overloaded intrinsics for a type: "f32" for float, "v2i16" for <2 x i16>."""
    match = re.match(r"<(\d+) x (\w+)>", type_)
    stem = {"half": "f16", "float": "f32", "double": "f64", "bfloat": "bf16"}
    return f"v{match[1]}{stem.get(match[2], match[2])}" if match else stem.get(type_, type_)


def kernel(type_: str, code: str, result: str = "", extra: str = "") -> str:
    """Return a kernel that loads %x, %y and %z of a type, takes %s as an argument, runs `code` and stores %r.

    `result` is the type of %r, by default the same; `extra` holds declarations.
    """
    return HEAD + extra + _BODY.format(T=type_, R=result or type_, code=code)


def intrinsic(name: str, type_: str, *args: str, result: str = "") -> tuple[str, str]:
    """Return a line that calls an LLVM intrinsic, and its declaration.

    Arguments that begin with "%" have the type; others carry their own, such as "i1 0".
    """
    full = f"@llvm.{name}.{short(type_)}"
    types = ", ".join(type_ if a[0] == "%" else a.split()[0] for a in args)
    given = ", ".join(f"{type_} {a}" if a[0] == "%" else a for a in args)
    return f"  %r = call {result or type_} {full}({given})", f"declare {result or type_} {full}({types})\n"
