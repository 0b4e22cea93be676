"""Kernels of operations across the lanes of a wave, of matrix instructions and of control flow.

Not here: which targets compile them (`corpus`). Next: `ir`, the parts that they share.
"""

# ruff: noqa: E501 - lines of IR read best on one line

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.support.amd_golden.ir import HEAD, kernel, short

if TYPE_CHECKING:
    from collections.abc import Iterator


def wave_kernels() -> Iterator[str]:
    """Yield kernels of cross-lane operations and of matrix instructions."""
    declare = "declare i32 @llvm.amdgcn.{}\n"
    for name, signature, code in (
        ("readfirstlane.i32", "readfirstlane.i32(i32)", "i32 %x"), ("readlane.i32", "readlane.i32(i32, i32)", "i32 %x, i32 %s"),
        ("writelane.i32", "writelane.i32(i32, i32, i32)", "i32 %s, i32 3, i32 %x"), ("ds.bpermute", "ds.bpermute(i32, i32)", "i32 %x, i32 %y"),
        ("ds.permute", "ds.permute(i32, i32)", "i32 %x, i32 %y"), ("ds.swizzle", "ds.swizzle(i32, i32 immarg)", "i32 %x, i32 1055"),
        ("ds.swizzle", "ds.swizzle(i32, i32 immarg)", "i32 %x, i32 32853"), ("mbcnt.lo", "mbcnt.lo(i32, i32)", "i32 %x, i32 %y"),
        ("mbcnt.hi", "mbcnt.hi(i32, i32)", "i32 %x, i32 %y"), ("perm", "perm(i32, i32, i32)", "i32 %x, i32 %y, i32 %z"),
        ("alignbyte", "alignbyte(i32, i32, i32)", "i32 %x, i32 %y, i32 %z"), ("lerp", "lerp(i32, i32, i32)", "i32 %x, i32 %y, i32 %z"),
        ("sad.u8", "sad.u8(i32, i32, i32)", "i32 %x, i32 %y, i32 %z"), ("mul.i24.i32", "mul.i24.i32(i32, i32)", "i32 %x, i32 %y"),
        ("sffbh.i32", "sffbh.i32(i32)", "i32 %x"), ("ubfe.i32", "ubfe.i32(i32, i32, i32)", "i32 %x, i32 %y, i32 %z"),
        ("s.getreg", "s.getreg(i32 immarg)", "i32 2177"), ("wave.reduce.umax.i32", "wave.reduce.umax.i32(i32, i32 immarg)", "i32 %x, i32 0"),
    ):  # fmt: skip
        yield kernel("i32", f"  %r = call i32 @llvm.amdgcn.{name}({code})", extra=declare.format(signature))
    for control, rows, banks, bound in (
        (0x1B, 15, 15, 1), (0x101, 15, 15, 0), (0x118, 15, 15, 1), (0x121, 10, 15, 0), (0x140, 15, 15, 1), (0x141, 15, 5, 1),
        (0x142, 15, 15, 0), (0x143, 12, 15, 0), (0x150, 15, 15, 1), (0x161, 15, 15, 1),
    ):  # fmt: skip
        for op in ("add i32 %u, %y", "or i32 %u, 0"):
            code = f"  %u = call i32 @llvm.amdgcn.update.dpp.i32(i32 0, i32 %x, i32 {control}, i32 {rows}, i32 {banks}, i1 {bound})\n  %r = {op}"
            yield kernel(
                "i32", code, extra="declare i32 @llvm.amdgcn.update.dpp.i32(i32, i32, i32, i32, i32, i1)\n"
            )
    yield kernel(
        "float",
        "  %q = bitcast float %x to i32\n  %u = call i32 @llvm.amdgcn.update.dpp.i32(i32 0, i32 %q, i32 273, i32 15, i32 15, i1 1)\n  %f = bitcast i32 %u to float\n  %n = fneg float %f\n  %r = fadd float %n, %y",
        extra="declare i32 @llvm.amdgcn.update.dpp.i32(i32, i32, i32, i32, i32, i1)\n",
    )
    yield kernel(
        "i32",
        "  %u = call i32 @llvm.amdgcn.mov.dpp8.i32(i32 %x, i32 2016)\n  %r = add i32 %u, %y",
        extra="declare i32 @llvm.amdgcn.mov.dpp8.i32(i32, i32)\n",
    )
    yield kernel(
        "i32",
        "  %r = call i32 @llvm.amdgcn.permlane16.i32(i32 %x, i32 %y, i32 %s, i32 %s, i1 0, i1 1)",
        extra="declare i32 @llvm.amdgcn.permlane16.i32(i32, i32, i32, i32, i1, i1)\n",
    )
    yield kernel(
        "i32",
        "  %r = call i32 @llvm.amdgcn.permlanex16.i32(i32 %x, i32 %y, i32 %s, i32 %s, i1 0, i1 0)",
        extra="declare i32 @llvm.amdgcn.permlanex16.i32(i32, i32, i32, i32, i1, i1)\n",
    )
    yield kernel(
        "i32",
        "  %r = call i32 @llvm.amdgcn.permlane64.i32(i32 %x)",
        extra="declare i32 @llvm.amdgcn.permlane64.i32(i32)\n",
    )
    yield kernel(
        "i32",
        "  %t = icmp slt i32 %x, %y\n  %q = call i32 @llvm.amdgcn.ballot.i32(i1 %t)\n  %r = call i32 @llvm.ctpop.i32(i32 %q)",
        extra="declare i32 @llvm.amdgcn.ballot.i32(i1)\ndeclare i32 @llvm.ctpop.i32(i32)\n",
    )
    yield kernel(
        "i32",
        "  call void @llvm.amdgcn.s.sleep(i32 2)\n  call void @llvm.amdgcn.s.setprio(i16 1)\n  call void @llvm.amdgcn.s.sethalt(i32 0)\n  call void @llvm.amdgcn.sched.barrier(i32 0)\n  %r = add i32 %x, 1",
        extra="declare void @llvm.amdgcn.s.sleep(i32)\ndeclare void @llvm.amdgcn.s.setprio(i16)\ndeclare void @llvm.amdgcn.s.sethalt(i32)\ndeclare void @llvm.amdgcn.sched.barrier(i32)\n",
    )
    for a, c in (("half", "float"), ("half", "half")):
        name = f"wmma.{short(c)}.16x16x16.f16"
        yield _matrix(
            name,
            f"<16 x {a}>",
            f"<8 x {c}>" if c == "float" else f"<16 x {c}>",
            ", i1 0" if c == "half" else "",
            "v16f16",
        )
        yield _matrix(name, f"<8 x {a}>", f"<8 x {c}>", ", i1 0" if c == "half" else "", "v8f16")
    for name, a, c in (("mfma.f32.32x32x8f16", "<4 x half>", "<16 x float>"), ("mfma.f32.16x16x16f16", "<4 x half>", "<4 x float>"),
                       ("mfma.f32.32x32x8bf16.1k", "<4 x i16>", "<16 x float>"), ("mfma.f32.32x32x2f32", "float", "<16 x float>"),
                       ("mfma.f32.4x4x4f16", "<4 x half>", "<4 x float>"), ("mfma.i32.32x32x16.i8", "i64", "<16 x i32>"),
                       ("mfma.f32.16x16x32.fp8.fp8", "i64", "<4 x float>"), ("mfma.f64.16x16x4f64", "double", "<4 x double>")):  # fmt: skip
        yield _mfma(name, a, c)


def _mfma(name: str, a: str, c: str) -> str:
    return (
        HEAD
        + f"""declare {c} @llvm.amdgcn.{name}({a}, {a}, {c}, i32, i32, i32)
define amdgpu_kernel void @k(ptr addrspace(1) %a, ptr addrspace(1) %o) {{
  %i = call i32 @llvm.amdgcn.workitem.id.x()
  %pa = getelementptr {a}, ptr addrspace(1) %a, i32 %i
  %x = load {a}, ptr addrspace(1) %pa
  %po = getelementptr {c}, ptr addrspace(1) %o, i32 %i
  %z = load {c}, ptr addrspace(1) %po
  %r = call {c} @llvm.amdgcn.{name}({a} %x, {a} %x, {c} %z, i32 0, i32 0, i32 0)
  store {c} %r, ptr addrspace(1) %po
  ret void
}}
"""
    )


def _matrix(name: str, a: str, c: str, tail: str, suffix: str) -> str:
    out = "v" + c[1:].split(maxsplit=1)[0] + short(c.split()[2].rstrip(">"))
    bools = ", i1" if tail else ""
    full = f"@llvm.amdgcn.{name}.{out}.{suffix}"
    return (
        HEAD
        + f"""declare {c} {full}({a}, {a}, {c}{bools})
define amdgpu_kernel void @k(ptr addrspace(1) %a, ptr addrspace(1) %o) {{
  %i = call i32 @llvm.amdgcn.workitem.id.x()
  %pa = getelementptr {a}, ptr addrspace(1) %a, i32 %i
  %x = load {a}, ptr addrspace(1) %pa
  %po = getelementptr {c}, ptr addrspace(1) %o, i32 %i
  %z = load {c}, ptr addrspace(1) %po
  %r = call {c} {full}({a} %x, {a} %x, {c} %z{tail})
  store {c} %r, ptr addrspace(1) %po
  ret void
}}
"""
    )


def control_kernels() -> Iterator[str]:
    """Yield kernels with a loop and with scalar branches."""
    yield (
        HEAD
        + """define amdgpu_kernel void @k(ptr addrspace(1) %a, i32 %n) {
entry:
  %i = call i32 @llvm.amdgcn.workitem.id.x()
  %p = getelementptr i32, ptr addrspace(1) %a, i32 %i
  %x = load i32, ptr addrspace(1) %p
  br label %loop
loop:
  %v = phi i32 [ %x, %entry ], [ %w, %next ]
  %c = phi i32 [ 0, %entry ], [ %d, %next ]
  %odd = and i32 %v, 1
  %t = icmp eq i32 %odd, 0
  br i1 %t, label %even, label %other
even:
  %h = lshr i32 %v, 1
  br label %next
other:
  %m = mul i32 %v, 3
  %k = add i32 %m, 1
  br label %next
next:
  %w = phi i32 [ %h, %even ], [ %k, %other ]
  %d = add i32 %c, 1
  %e = icmp ugt i32 %w, %n
  br i1 %e, label %loop, label %done
done:
  store i32 %d, ptr addrspace(1) %p
  ret void
}
"""
    )
    yield (
        HEAD
        + """define amdgpu_kernel void @k(ptr addrspace(1) %a, i32 %n, i64 %m) {
entry:
  %g = call i32 @llvm.amdgcn.workgroup.id.x()
  %t = icmp slt i32 %g, %n
  br i1 %t, label %yes, label %no
yes:
  %q = sext i32 %g to i64
  %u = mul i64 %q, %m
  %z = call i64 @llvm.ctpop.i64(i64 %u)
  %w = lshr i64 %z, 3
  %f = call i32 @llvm.abs.i32(i32 %g, i1 0)
  %h = call i32 @llvm.ctlz.i32(i32 %f, i1 0)
  %h64 = zext i32 %h to i64
  %s = add i64 %w, %h64
  %r = call i64 @llvm.smax.i64(i64 %s, i64 %m)
  %v = ashr i64 %r, 5
  %p = getelementptr i64, ptr addrspace(1) %a, i64 %q
  store i64 %v, ptr addrspace(1) %p
  br label %no
no:
  ret void
}
declare i64 @llvm.ctpop.i64(i64)
declare i32 @llvm.abs.i32(i32, i1)
declare i32 @llvm.ctlz.i32(i32, i1)
declare i64 @llvm.smax.i64(i64, i64)
"""
    )
