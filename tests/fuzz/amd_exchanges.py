"""The device's side of random kernels for AMD and NVIDIA: how each target writes them, and what work-items exchange.

Not here: random functions (`functions`), whole kernels (`amd_cases`), the command (`amd`).
"""

# ruff: noqa: E501 - lines of IR read best on one line

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np

GROUPS: Final = 2
BINS: Final = 16
LANES: Final = {"gfx1100": 32, "gfx1201": 32, "gfx942": 64, "sm_80": 32}
"""Targets and the lanes of their waves or warps."""
KINDS: Final = ("swap", "turn", "lane", "lane", "add", "max", "count")
"""Kinds of exchanges, as often as they are drawn."""


@dataclass(frozen=True, slots=True)
class Words:
    """How a target writes what only devices have."""

    head: str
    kernel: str
    item: str
    group: str
    barrier: str
    exchange: str
    """A function that gives lanes the value of the lane whose number differs by the bits of a constant."""


AMD: Final = Words(
    head='target triple = "amdgcn-amd-amdhsa"\n'
    'target datalayout = "e-p:64:64-p1:64:64-p2:32:32-p3:32:32-p4:64:64-p5:32:32-p6:32:32-p7:160:256:256:32-p8:128:128-p9:192:256:256:32-i64:64-v16:16-v24:32-v32:32-v48:64-v96:128-v192:256-v256:256-v512:512-v1024:1024-v2048:2048-n32:64-S32-A5-G1-ni:7:8:9"\n',
    kernel="amdgpu_kernel",
    item="call i32 @llvm.amdgcn.workitem.id.x()",
    group="call i32 @llvm.amdgcn.workgroup.id.x()",
    barrier='fence syncscope("workgroup") release\n  call void @llvm.amdgcn.s.barrier()\n  fence syncscope("workgroup") acquire',
    exchange="""define internal i32 @other(i32 %value, i32 %bits) alwaysinline convergent {
  %low = call i32 @llvm.amdgcn.mbcnt.lo(i32 -1, i32 0)
  %lane = call i32 @llvm.amdgcn.mbcnt.hi(i32 -1, i32 %low)
  %from = xor i32 %lane, %bits
  %place = shl i32 %from, 2
  %got = call i32 @llvm.amdgcn.ds.bpermute(i32 %place, i32 %value)
  ret i32 %got
}
""",
)
NV: Final = Words(
    head='target triple = "nvptx64-nvidia-cuda"\n',
    kernel="ptx_kernel",
    item="call i32 @llvm.nvvm.read.ptx.sreg.tid.x()",
    group="call i32 @llvm.nvvm.read.ptx.sreg.ctaid.x()",
    barrier="call void @llvm.nvvm.barrier0()",
    exchange="""define internal i32 @other(i32 %value, i32 %bits) alwaysinline convergent {
  %got = call i32 @llvm.nvvm.shfl.sync.bfly.i32(i32 -1, i32 %value, i32 %bits, i32 31)
  ret i32 %got
}
""",
)
LOCAL: Final = """
@cells = internal addrspace(3) global [THREADS x i64] undef, align 16
@words = internal addrspace(3) global [BINS x i64] undef, align 16
"""
"""LDS of a workgroup."""
_VALUES: Final = """  %first = mul i32 %g, THREADS
  %i = add i32 %first, %t
  %i64 = zext i32 %i to i64
  %px = getelementptr i64, ptr addrspace(1) %x, i32 %i
  %py = getelementptr i64, ptr addrspace(1) %y, i32 %i
  %outp = getelementptr i64, ptr addrspace(1) %out, i32 %i
  %own = getelementptr i64, ptr addrspace(3) @cells, i32 %t
  %slot = and i32 %t, 15
  %word = getelementptr i64, ptr addrspace(3) @words, i32 %slot
  store i64 0, ptr addrspace(3) %word
  %a = load i64, ptr addrspace(1) %px
  %b = load i64, ptr addrspace(1) %py
  %v0 = call i64 @f0(i64 %a, i64 %b, i64 %i64)
"""
"""The first function of a chain: %v0 of the inputs of a work-item."""
ENTRY: Final = (
    LOCAL
    + """define KERNEL void @k(ptr addrspace(1) %out, ptr addrspace(1) %x, ptr addrspace(1) %y, ptr addrspace(1) %bins) {
entry:
  %t = ITEM
  %g = GROUP
"""
    + _VALUES
)
"""The beginning of a kernel of one chain."""
PART: Final = """define internal void @caseNUMBER(ptr addrspace(1) %out, ptr addrspace(1) %x, ptr addrspace(1) %y, ptr addrspace(1) %bins, i32 %t, i32 %g) alwaysinline convergent {
entry:
""" + _VALUES.replace("@f0", "@FIRST")
"""The beginning of one of several chains that share a kernel."""
PARTS: Final = (
    LOCAL
    + """define KERNEL void @k(ptr addrspace(1) %out, ptr addrspace(1) %x, ptr addrspace(1) %y, ptr addrspace(1) %bins) {
entry:
  %t = ITEM
  %group = GROUP
  %which = lshr i32 %group, 1
  %g = and i32 %group, 1
  %begin = mul i32 %which, THREADS
  %at = shl i32 %begin, 1
  %bin = mul i32 %which, BINS
  %o = getelementptr i64, ptr addrspace(1) %out, i32 %at
  %px = getelementptr i64, ptr addrspace(1) %x, i32 %at
  %py = getelementptr i64, ptr addrspace(1) %y, i32 %at
  %pb = getelementptr i64, ptr addrspace(1) %bins, i32 %bin
  switch i32 %which, label %end [ WAYS ]
"""
)
"""The kernel of several chains: each pair of workgroups runs one."""


@dataclass(frozen=True, slots=True)
class Exchange:
    """One exchange between the work-items of a workgroup."""

    kind: str
    """"swap" and "turn" through LDS, "lane" between lanes, "add" and "max" atomically in LDS, "count" in memory."""
    by: int

    def device(self, n: int) -> str:
        """Return the IR that makes %eN of %vN."""
        text = {
            "swap": f"  %o{n} = xor i32 %t, {self.by}\n  %in{n} = icmp ult i32 %o{n}, THREADS\n"
                    f"  %p{n} = select i1 %in{n}, i32 %o{n}, i32 %t\n",
            "turn": f"  %o{n} = add i32 %t, {self.by}\n  %p{n} = urem i32 %o{n}, THREADS\n",
        }  # fmt: skip
        if self.kind in text:
            return (
                f"  store i64 %v{n}, ptr addrspace(3) %own\n  BARRIER\n{text[self.kind]}"
                f"  %q{n} = getelementptr i64, ptr addrspace(3) @cells, i32 %p{n}\n"
                f"  %e{n} = load i64, ptr addrspace(3) %q{n}\n  BARRIER\n"
            )
        if self.kind == "lane":
            return (
                f"  %l{n} = trunc i64 %v{n} to i32\n  %s{n} = lshr i64 %v{n}, 32\n  %h{n} = trunc i64 %s{n} to i32\n"
                f"  %ol{n} = call i32 @other(i32 %l{n}, i32 {self.by})\n  %oh{n} = call i32 @other(i32 %h{n}, i32 {self.by})\n"
                f"  %wl{n} = zext i32 %ol{n} to i64\n  %wh{n} = zext i32 %oh{n} to i64\n  %sh{n} = shl i64 %wh{n}, 32\n"
                f"  %e{n} = or i64 %wl{n}, %sh{n}\n"
            )
        bin_ = f"  %k{n} = and i64 %v{n}, {BINS - 1}\n"
        if self.kind == "count":
            return (
                f"{bin_}  %b{n} = getelementptr i64, ptr addrspace(1) %bins, i64 %k{n}\n"
                f"  %u{n} = atomicrmw xor ptr addrspace(1) %b{n}, i64 %v{n} SCOPE monotonic\n  %e{n} = add i64 %v{n}, {self.by}\n"
            )
        operation = "umax" if self.kind == "max" else "add"
        return (
            f"{bin_}  BARRIER\n  %b{n} = getelementptr i64, ptr addrspace(3) @words, i64 %k{n}\n"
            f"  %u{n} = atomicrmw {operation} ptr addrspace(3) %b{n}, i64 %v{n} SCOPE monotonic\n  BARRIER\n"
            f"  %e{n} = load i64, ptr addrspace(3) %word\n  BARRIER\n"
        )

    def mirror(self, v: Any, words: Any, bins: Any) -> Any:
        """Return what the exchange gives of (workgroup, work-item) values; changes words and bins."""
        threads = v.shape[1]
        t = np.arange(threads)
        if self.kind == "swap":
            other = t ^ self.by
            return v[:, np.where(other < threads, other, t)]
        if self.kind == "turn":
            return v[:, (t + self.by) % threads]
        if self.kind == "lane":
            return v[:, t ^ self.by]
        where = (v & np.uint64(BINS - 1)).astype("i8")
        if self.kind == "count":
            np.bitwise_xor.at(bins, where.ravel(), v.ravel())
            return v + np.uint64(self.by)
        for row, places, values in zip(words, where, v, strict=True):
            (np.maximum if self.kind == "max" else np.add).at(row, places, values)
        return words[:, t % BINS]
