"""Kernels of loads, stores and atomic operations in global, flat, LDS, scratch and buffer memory.

Not here: which targets compile them (`corpus`). Next: `ir`, the parts that they share.
"""

# ruff: noqa: E501 - lines of IR read best on one line

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.support.amd_golden.ir import HEAD, kernel

if TYPE_CHECKING:
    from collections.abc import Iterator


def memory_kernels() -> Iterator[str]:
    """Yield kernels of each memory space and access width, of atomics, fences and cache hints."""
    for type_ in ("i8", "i16", "i32", "i64", "<3 x i32>", "<4 x i32>", "<8 x i32>", "<2 x i16>"):
        yield kernel(type_, f"  %r = freeze {type_} %x")
        yield (
            HEAD
            + f"""define amdgpu_kernel void @k(ptr %a, ptr %o) {{
  %i = call i32 @llvm.amdgcn.workitem.id.x()
  %pa = getelementptr {type_}, ptr %a, i32 %i
  %po = getelementptr {type_}, ptr %o, i32 %i
  %x = load {type_}, ptr %pa
  store {type_} %x, ptr %po
  ret void
}}
"""
        )
        yield (
            HEAD
            + f"""@lds = internal addrspace(3) global [2048 x {type_}] poison, align 16
define amdgpu_kernel void @k(ptr addrspace(1) %a, ptr addrspace(1) %o, i32 %n) {{
  %i = call i32 @llvm.amdgcn.workitem.id.x()
  %pa = getelementptr {type_}, ptr addrspace(1) %a, i32 %i
  %x = load {type_}, ptr addrspace(1) %pa
  %l = getelementptr [2048 x {type_}], ptr addrspace(3) @lds, i32 0, i32 %i
  store {type_} %x, ptr addrspace(3) %l
  %j = xor i32 %i, %n
  call void @llvm.amdgcn.s.barrier()
  %m = getelementptr [2048 x {type_}], ptr addrspace(3) @lds, i32 0, i32 %j
  %y = load {type_}, ptr addrspace(3) %m
  %m2 = getelementptr {type_}, ptr addrspace(3) %m, i32 64
  %y2 = load {type_}, ptr addrspace(3) %m2
  %po = getelementptr {type_}, ptr addrspace(1) %o, i32 %i
  store {type_} %y, ptr addrspace(1) %po
  %po2 = getelementptr {type_}, ptr addrspace(1) %po, i32 100
  store {type_} %y2, ptr addrspace(1) %po2
  ret void
}}
"""
        )
        yield (
            HEAD
            + f"""define amdgpu_kernel void @k(ptr addrspace(1) %a, ptr addrspace(1) %o, i32 %n) {{
  %i = call i32 @llvm.amdgcn.workitem.id.x()
  %s = alloca [64 x {type_}], addrspace(5)
  %pa = getelementptr {type_}, ptr addrspace(1) %a, i32 %i
  %x = load {type_}, ptr addrspace(1) %pa
  %j = and i32 %i, 63
  %l = getelementptr [64 x {type_}], ptr addrspace(5) %s, i32 0, i32 %j
  store volatile {type_} %x, ptr addrspace(5) %l
  %m = getelementptr [64 x {type_}], ptr addrspace(5) %s, i32 0, i32 5
  store volatile {type_} %x, ptr addrspace(5) %m
  %l2 = getelementptr [64 x {type_}], ptr addrspace(5) %s, i32 0, i32 %n
  %y = load volatile {type_}, ptr addrspace(5) %l2
  %po = getelementptr {type_}, ptr addrspace(1) %o, i32 %i
  store {type_} %y, ptr addrspace(1) %po
  ret void
}}
"""
        )
    for type_ in ("i32", "i64"):
        for space in (1, 3, 0):
            for op in (
                "add",
                "sub",
                "and",
                "or",
                "xor",
                "max",
                "min",
                "umax",
                "umin",
                "xchg",
                "uinc_wrap",
                "udec_wrap",
            ):
                for scope, used in (("agent", True), ("workgroup", False)):
                    if used or op in ("add", "umax", "xchg"):
                        yield _atomic(
                            type_,
                            space,
                            f'atomicrmw {op} ptr addrspace({space}) %p, {type_} %v syncscope("{scope}") seq_cst',
                            used=used,
                        )
            yield _atomic(
                type_,
                space,
                f'cmpxchg ptr addrspace({space}) %p, {type_} %v, {type_} 7 syncscope("agent") seq_cst seq_cst',
                used=True,
                pair=True,
            )
    for type_, op in (("float", "fadd"), ("float", "fmax"), ("double", "fadd"), ("<2 x half>", "fadd")):
        for space in (1, 3):
            for used in (True, False):
                yield _atomic(
                    type_,
                    space,
                    f'atomicrmw {op} ptr addrspace({space}) %p, {type_} %v syncscope("agent") monotonic, !amdgpu.no.fine.grained.memory !0, !amdgpu.no.remote.memory !0',
                    used=used,
                )
    for order in ("acquire", "release", "seq_cst"):
        for scope in ("workgroup", "agent", "system"):
            scoped = "" if scope == "system" else f'syncscope("{scope}") '
            yield kernel("i32", f"  fence {scoped}{order}\n  %r = add i32 %x, 1")
    for hint in ("load i32, ptr addrspace(1) %pa, !nontemporal !0", 'load atomic i32, ptr addrspace(1) %pa syncscope("agent") acquire, align 4',
                 "load volatile i32, ptr addrspace(1) %pa", "load atomic i32, ptr addrspace(1) %pa seq_cst, align 4"):  # fmt: skip
        yield kernel("i32", f"  %r = {hint}") + "!0 = !{i32 1}\n"
    yield (
        kernel("half", "  %r = insertelement <2 x half> poison, half %x, i32 0\n", "<2 x half>")
        .replace("%r = ins", "%v = ins")
        .replace("\n\n  %po", "\n  %r = insertelement <2 x half> %v, half %y, i32 1\n  %po")
    )
    for builtin in ("load", "store"):
        body = ("  %r = call i32 @llvm.amdgcn.raw.buffer.load.i32(<4 x i32> %d, i32 %x, i32 %y2, i32 0)" if builtin == "load" else
                "  call void @llvm.amdgcn.raw.buffer.store.i32(i32 %y, <4 x i32> %d, i32 %x, i32 16, i32 1)\n  %r = add i32 %x, 1")  # fmt: skip
        code = (
            "  %d = load <4 x i32>, ptr addrspace(4) null\n  %y2 = call i32 @llvm.amdgcn.readfirstlane.i32(i32 %y)\n"
            + body
        )
        yield kernel(
            "i32",
            code,
            extra="declare i32 @llvm.amdgcn.raw.buffer.load.i32(<4 x i32>, i32, i32, i32)\ndeclare void @llvm.amdgcn.raw.buffer.store.i32(i32, <4 x i32>, i32, i32, i32)\ndeclare i32 @llvm.amdgcn.readfirstlane.i32(i32)\n",
        )


def _atomic(type_: str, space: int, operation: str, *, used: bool, pair: bool = False) -> str:
    lds = f"@lds = internal addrspace(3) global [256 x {type_}] poison, align 16\n" if space == 3 else ""
    base = {0: f"getelementptr {type_}, ptr %g, i32 %i", 1: f"getelementptr {type_}, ptr addrspace(1) %a, i32 %i",
            3: f"getelementptr {type_}, ptr addrspace(3) @lds, i32 %i"}[space]  # fmt: skip
    taken = f"  %w = extractvalue {{ {type_}, i1 }} %t, 0" if pair else f"  %w = freeze {type_} %t"
    store = (
        f"{taken}\n  %po = getelementptr {type_}, ptr addrspace(1) %o, i32 %i\n  store {type_} %w, ptr addrspace(1) %po"
        if used
        else ""
    )
    metadata = "!0 = !{}\n" if "!0" in operation else ""
    return (
        HEAD
        + lds
        + f"""define amdgpu_kernel void @k(ptr addrspace(1) %a, ptr addrspace(1) %o, ptr %g) {{
  %i = call i32 @llvm.amdgcn.workitem.id.x()
  %pv = getelementptr {type_}, ptr addrspace(1) %o, i32 %i
  %v = load {type_}, ptr addrspace(1) %pv
  %p = {base}
  %t = {operation}
{store}
  ret void
}}
{metadata}"""
    )
