"""The device's side of random kernels for AMD and NVIDIA: how each target writes them, and what work-items exchange.

An exchange is device IR that makes a 64-bit `%eN` from a work-item's value `%vN`, and a NumPy model of it. It has no
races and does not depend on the order of work-items, so its result is unique.

Not here: random functions (`functions`), whole kernels (`kernels`), the command (`__main__`).
"""

# ruff: noqa: E501 - lines of IR read best on one line

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

GROUPS: Final = 2
BINS: Final = 16
LANES: Final = {"gfx1100": 32, "gfx1201": 32, "gfx942": 64, "sm_80": 32}
"""Targets and the lanes of their waves or warps."""
ATOMICS: Final = {
    "add": np.add, "sub": np.subtract, "and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor,
    "umax": np.maximum, "umin": np.minimum, "max": np.maximum, "min": np.minimum,
}  # fmt: skip
"""Atomic operations in LDS, and what NumPy calls them; "max" and "min" are of signed numbers."""
KINDS: Final = (
    *["swap", "piece", "piece", "lane", "lane", "vote", "branch", "thin", "leave", "count"],
    *ATOMICS,
)
"""Kinds of exchanges, as often as they are drawn."""
START: Final = 0x0123_4567_89AB_CDEF
"""What the words in LDS hold at first."""


@dataclass(frozen=True, slots=True)
class Words:
    """How a target writes what only devices have."""

    head: str
    kernel: str
    item: str
    group: str
    barrier: str
    exchange: str
    """A function that gives lanes the value of the lane whose number differs by the bits of a constant, and one that gives
    a mask of those of a lane's 32 neighbours for which a condition holds; its second argument has those that ask."""


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
define internal i32 @voters(i1 %yes, i32 %asked) alwaysinline convergent {
  %low = call i32 @llvm.amdgcn.mbcnt.lo(i32 -1, i32 0)
  %lane = call i32 @llvm.amdgcn.mbcnt.hi(i32 -1, i32 %low)
  %half = and i32 %lane, 32
  %by = zext i32 %half to i64
  %all = call i64 @llvm.amdgcn.ballot.i64(i1 %yes)
  %mine = lshr i64 %all, %by
  %got = trunc i64 %mine to i32
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
define internal i32 @voters(i1 %yes, i32 %asked) alwaysinline convergent {
  %got = call i32 @llvm.nvvm.vote.ballot.sync(i32 %asked, i1 %yes)
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
  store i64 START, ptr addrspace(3) %word
  store i64 %i64, ptr addrspace(3) %own
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


@dataclass(slots=True)
class State:
    """What the work-items of a chain share, in the NumPy model; arrays have a row for each workgroup."""

    index: Any
    """The number of each work-item in the chain."""
    alive: Any = field(init=False)
    """Whether it has not ended."""
    out: Any = field(init=False)
    """The result of each that has ended."""
    cells: Any = field(init=False)
    """The bytes of LDS that each has of its own."""
    words: Any = field(init=False)
    bins: Any = field(init=False)

    def __post_init__(self) -> None:
        self.alive, self.out = np.ones(self.index.shape, bool), np.zeros(self.index.shape, "u8")
        self.cells = self.index.copy()[:, :, None].view("u1")
        self.words, self.bins = np.full((GROUPS, BINS), START, "u8"), np.zeros(BINS, "u8")

    def voters(self, yes: Any) -> Any:
        """Return for each work-item the mask of its 32 neighbours for which a condition holds; those that ended have none."""
        padded = np.pad(yes & self.alive, ((0, 0), (0, -yes.shape[1] % 32))).reshape(GROUPS, -1, 32)
        masks = (padded.astype("u8") << np.arange(32, dtype="u8")).sum(2, dtype="u8")
        return np.repeat(masks, 32, axis=1)[:, : yes.shape[1]]


@dataclass(frozen=True, slots=True)
class Exchange:
    """One exchange between the work-items of a workgroup."""

    kind: str
    """"swap" whole cells of LDS, "piece": store and load them at other widths, "lane" between lanes, "vote" and "branch" ask
    all lanes and those of a branch, "thin": a loop that lanes leave, "leave" ends work-items, "count" atomically in memory,
    or one of `ATOMICS`."""
    by: int

    @property
    def _widths(self) -> tuple[int, int, int]:
        """Bytes of the store and of the load of "piece", and the number of the piece that is loaded."""
        store, load = 1 << self.by % 4, 1 << self.by // 4 % 4
        return store, load, self.by % (8 // load)

    @property
    def _width(self) -> int:
        """The bits of an atomic operation."""
        return 32 if self.by % 2 else 64

    def device(self, n: int) -> str:
        """Return the IR that makes %eN of %vN."""
        return self._device().replace("$", str(n))

    def _device(self) -> str:
        by, kept = self.by, f"  %m$ = and i64 %v$, {self.by}\n  %p$ = icmp ne i64 %m$, 0\n"
        low = "  %s$ = lshr i64 %v$, 9\n  %l$ = trunc i64 %s$ to i32\n"
        bin_ = f"  %k$ = and i64 %v$, {BINS - 1}\n"
        if self.kind == "swap":
            return (
                f"  store i64 %v$, ptr addrspace(3) %own\n  BARRIER\n  %o$ = xor i32 %t, {by}\n  %in$ = icmp ult i32 %o$, THREADS\n"
                "  %p$ = select i1 %in$, i32 %o$, i32 %t\n  %q$ = getelementptr i64, ptr addrspace(3) @cells, i32 %p$\n"
                "  %e$ = load i64, ptr addrspace(3) %q$\n  BARRIER\n"
            )
        if self.kind == "piece":
            store, load, piece = self._widths
            return (
                f"  %w$.0 = zext i64 %v$ to i65\n  %w$ = trunc i65 %w$.0 to i{8 * store}\n  store i{8 * store} %w$, ptr addrspace(3) %own\n"
                f"  BARRIER\n  %o$ = add i32 %t, {by}\n  %p$ = urem i32 %o$, THREADS\n"
                "  %q$ = getelementptr i64, ptr addrspace(3) @cells, i32 %p$\n"
                f"  %r$ = getelementptr i{8 * load}, ptr addrspace(3) %q$, i32 {piece}\n  %x$ = load i{8 * load}, ptr addrspace(3) %r$\n"
                f"  %y$ = zext i{8 * load} %x$ to i65\n  %e$ = trunc i65 %y$ to i64\n  BARRIER\n"
            )
        if self.kind == "lane":
            return (
                "  %l$ = trunc i64 %v$ to i32\n  %s$ = lshr i64 %v$, 32\n  %h$ = trunc i64 %s$ to i32\n"
                f"  %ol$ = call i32 @other(i32 %l$, i32 {by})\n  %oh$ = call i32 @other(i32 %h$, i32 {by})\n"
                "  %wl$ = zext i32 %ol$ to i64\n  %wh$ = zext i32 %oh$ to i64\n  %sh$ = shl i64 %wh$, 32\n"
                "  %e$ = or i64 %wl$, %sh$\n"
            )
        if self.kind == "vote":
            return f"{kept}  %g$ = call i32 @voters(i1 %p$, i32 -1)\n  %e$ = zext i32 %g$ to i64\n"
        if self.kind == "branch":
            return (
                f"{kept}{low}  %took$ = call i32 @voters(i1 %p$, i32 -1)\n  %b$ = and i64 %s$, {by}\n  %q$ = icmp ne i64 %b$, 0\n"
                "  br i1 %p$, label %in$, label %out$\nin$:\n  %yes$ = call i32 @voters(i1 %q$, i32 %took$)\n  br label %join$\n"
                "out$:\n  %no$ = xor i32 %l$, 77\n  br label %join$\n"
                "join$:\n  %g$ = phi i32 [ %yes$, %in$ ], [ %no$, %out$ ]\n  %e$ = zext i32 %g$ to i64\n"
            )
        if self.kind == "thin":
            return (
                f"{low}  %times$ = and i32 %l$, 7\n  %every$ = call i32 @voters(i1 true, i32 -1)\n  br label %before$\nbefore$:\n  br label %head$\n"
                "head$:\n  %k$ = phi i32 [ 0, %before$ ], [ %k$.1, %tail$ ]\n  %with$ = phi i32 [ %every$, %before$ ], [ %with$.1, %tail$ ]\n"
                "  %sum$ = phi i32 [ 0, %before$ ], [ %sum$.1, %tail$ ]\n  %more$ = icmp ult i32 %k$, %times$\n"
                "  %with$.1 = call i32 @voters(i1 %more$, i32 %with$)\n  br i1 %more$, label %tail$, label %end$\n"
                "tail$:\n  %count$ = call i32 @llvm.ctpop.i32(i32 %with$.1)\n  %sum$.0 = mul i32 %sum$, 37\n"
                "  %sum$.1 = add i32 %sum$.0, %count$\n  %k$.1 = add i32 %k$, 1\n  br label %head$\nend$:\n  %e$ = zext i32 %sum$ to i64\n"
            )
        if self.kind == "leave":
            return (
                f"  %m$ = and i64 %v$, 7\n  %p$ = icmp eq i64 %m$, {by % 3}\n  br i1 %p$, label %leave$, label %stay$\n"
                "leave$:\n  store i64 %v$, ptr addrspace(1) %outp\n  ret void\nstay$:\n  %e$ = xor i64 %v$, %i64\n"
            )
        if self.kind == "count":
            return (
                f"{bin_}  %b$ = getelementptr i64, ptr addrspace(1) %bins, i64 %k$\n"
                f"  %u$ = atomicrmw xor ptr addrspace(1) %b$, i64 %v$ SCOPE monotonic\n  %e$ = add i64 %v$, {by}\n"
            )
        narrow = "  %n$.0 = zext i64 %v$ to i65\n" + f"  %n$ = trunc i65 %n$.0 to i{self._width}\n"
        return (
            f"{bin_}{narrow}  BARRIER\n  %b$ = getelementptr i64, ptr addrspace(3) @words, i64 %k$\n"
            f"  %u$ = atomicrmw {self.kind} ptr addrspace(3) %b$, i{self._width} %n$ SCOPE monotonic\n  BARRIER\n"
            "  %e$ = load i64, ptr addrspace(3) %word\n  BARRIER\n"
        )

    def mirror(self, v: Any, state: State) -> Any:
        """Return what the exchange gives of (workgroup, work-item) values; changes the state."""
        threads = v.shape[1]
        t = np.arange(threads)
        by, kept, low = np.uint64(self.by), (v & np.uint64(self.by)) != 0, v >> np.uint64(9)
        if self.kind in ("swap", "piece"):
            store, load, piece = self._widths if self.kind == "piece" else (8, 8, 0)
            state.cells[state.alive, :store] = v.copy()[:, :, None].view("u1")[state.alive, :store]
            other = (
                (t + self.by) % threads
                if self.kind == "piece"
                else np.where(t ^ self.by < threads, t ^ self.by, t)
            )
            found = np.zeros_like(state.cells)
            found[:, :, :load] = state.cells[:, other, piece * load : (piece + 1) * load]
            return found.view("u8")[:, :, 0].copy()
        if self.kind == "lane":
            return v[:, t ^ self.by]
        if self.kind == "vote":
            return state.voters(kept)
        if self.kind == "branch":
            asked = state.voters(kept & ((low & by) != 0))
            return np.where(kept, asked, (low & np.uint64(0xFFFF_FFFF)) ^ np.uint64(77))
        if self.kind == "thin":
            total = np.zeros_like(v)
            for k in range(7):
                here = (low & np.uint64(7)) > k
                count = (state.voters(here)[:, :, None] >> np.arange(32, dtype="u8") & np.uint64(1)).sum(
                    2, dtype="u8"
                )
                total = np.where(here, (total * np.uint64(37) + count) & np.uint64(0xFFFF_FFFF), total)
            return total
        if self.kind == "leave":
            leaves = state.alive & ((v & np.uint64(7)) == self.by % 3)
            state.out[leaves] = v[leaves]
            state.alive &= ~leaves
            return v ^ state.index
        where = (v & np.uint64(BINS - 1)).astype("i8")
        if self.kind == "count":
            np.bitwise_xor.at(state.bins, where[state.alive], v[state.alive])
            return v + by
        type_ = f"{'i' if self.kind in ('max', 'min') else 'u'}{self._width // 8}"
        parts = 64 // self._width
        for row, places, values, alive in zip(state.words, where, v, state.alive, strict=True):
            given = values.view(type_)[::parts]
            ATOMICS[self.kind].at(row.view(type_), parts * places[alive], given[alive])
        return state.words[:, t % BINS]
