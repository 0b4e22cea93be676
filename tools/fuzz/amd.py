"""`python -m tools.fuzz.amd [--cases 300] [--first 0] [--jobs 2] [--target NAME] [--show SEED] [--json FILE]`.

Compares random kernels as machine code of gfx1100, gfx1201 and gfx942, and as PTX, with host code: five ways from one text
in LLVM IR. LLVM compiles the device's text for each; the emulators run what it gives; the same functions are compiled for
the host, and what work-items exchange is mirrored with NumPy. Prints the cases that disagree and their number, and exits
with 1 if there is one. A seed always gives the same case; `--show` prints its IR for gfx1100.

Not here: random functions (`functions`), options that all fuzzers share (`campaign`).
"""

# ruff: noqa: E501 - lines of IR read best on one line

from __future__ import annotations

import ctypes
import random
import struct
import sys
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import numpy as np

from compiler.llvm import Machine, emit_assembly, emit_object
from drivers.amd.emu.isa import objects
from drivers.emu.memory import AddressSpace
from drivers.emu.simt import jit
from drivers.emu.simt.engine import Settings
from drivers.emu.simt.launch import Options
from drivers.nv.emu.ptx.module import launch, load_ptx
from tools.fuzz import campaign
from tools.fuzz.functions import FunctionWriter, calls

GROUPS: Final = 2
BINS: Final = 16
LANES: Final = {"gfx1100": 32, "gfx1201": 32, "gfx942": 64, "sm_80": 32}
"""Targets and the lanes of their waves or warps."""


@dataclass(frozen=True, slots=True)
class _Words:
    """How a target writes what only devices have."""

    head: str
    kernel: str
    item: str
    group: str
    barrier: str
    exchange: str
    """A function that gives lanes the value of the lane whose number differs by the bits of a constant."""


_AMD = _Words(
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
_NV = _Words(
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
_ENTRY = """
@cells = internal addrspace(3) global [THREADS x i64] undef, align 16
@words = internal addrspace(3) global [BINS x i64] undef, align 16
define KERNEL void @k(ptr addrspace(1) %out, ptr addrspace(1) %x, ptr addrspace(1) %y, ptr addrspace(1) %bins) {
entry:
  %t = ITEM
  %g = GROUP
  %first = mul i32 %g, THREADS
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
_LOOP = """
define void @host_NAME(ptr %o, ptr %x, ptr %y, ptr %z, i64 %n) #1 {
entry:
  br label %l
l:
  %k = phi i64 [0, %entry], [%k1, %l]
  %px = getelementptr i64, ptr %x, i64 %k
  %py = getelementptr i64, ptr %y, i64 %k
  %pz = getelementptr i64, ptr %z, i64 %k
  %po = getelementptr i64, ptr %o, i64 %k
  %a = load i64, ptr %px
  %b = load i64, ptr %py
  %i = load i64, ptr %pz
  %r = call i64 @NAME(i64 %a, i64 %b, i64 %i)
  store i64 %r, ptr %po
  %k1 = add i64 %k, 1
  %c = icmp ult i64 %k1, %n
  br i1 %c, label %l, label %e
e:
  ret void
}
"""


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


class Case:
    """The kernel of one seed."""

    def __init__(self, seed: int) -> None:
        rng = random.Random(seed)  # noqa: S311 - a case, not a secret
        self.seed = seed
        self.threads = rng.choice((32, 64, 96, 128))
        steps = rng.randrange(3)
        sizes = [rng.choice((4, 7, 12)), *(rng.choice((2, 4, 6)) for _ in range(steps))]
        self._functions = [FunctionWriter(rng, f"f{k}", size).text() for k, size in enumerate(sizes)]
        kinds = ("swap", "turn", "lane", "lane", "add", "max", "count")
        self._exchanges = [Exchange(rng.choice(kinds), rng.randrange(1, 32)) for _ in range(steps)]
        data = np.random.default_rng(seed)
        shape = (GROUPS, self.threads)
        self._x, self._y = (
            data.integers(0, 2**64, shape, dtype="u8") >> data.integers(0, 64, shape, dtype="u8") for _ in range(2)
        )

    def text(self, target: str) -> str:
        """Return the IR for a target."""
        words, amd = (_NV, False) if target.startswith("sm") else (_AMD, True)
        body = _ENTRY
        for n, exchange in enumerate(self._exchanges):
            body += f"{exchange.device(n)}  %v{n + 1} = call i64 @f{n + 1}(i64 %v{n}, i64 %e{n}, i64 %i64)\n"
        body += f"  store i64 %v{len(self._exchanges)}, ptr addrspace(1) %outp\n  ret void\n}}\n"
        for name, value in (
            ("THREADS", str(self.threads)), ("BINS", str(BINS)), ("KERNEL", words.kernel), ("ITEM", words.item),
            ("GROUP", words.group), ("BARRIER", words.barrier), ("SCOPE", 'syncscope("agent")' if amd else ""),
        ):  # fmt: skip
            body = body.replace(name, value)
        if amd:
            body = body.replace("@k(ptr addrspace(1) %out, ptr addrspace(1) %x, ptr addrspace(1) %y, ptr addrspace(1) %bins) {",
                                f'@k(ptr addrspace(1) %out, ptr addrspace(1) %x, ptr addrspace(1) %y, ptr addrspace(1) %bins) "amdgpu-flat-work-group-size"="{self.threads},{self.threads}" {{')  # fmt: skip
        functions = "".join(self._functions).replace(" #0 {", " alwaysinline {")
        if amd:
            functions = functions.replace("  %local = alloca [64 x i8], align 8\n",
                                          "  %private = alloca [64 x i8], align 8, addrspace(5)\n"
                                          "  %local = addrspacecast ptr addrspace(5) %private to ptr\n")  # fmt: skip
        found = words.head + body + words.exchange + functions
        return found + "\n".join(sorted(calls(found) - set(found.splitlines())))

    def on_device(self, target: str, settings: Settings, options: Options) -> tuple[Any, Any]:
        """Run the kernel in the emulator of a target; returns what it left. A fault is an `AssertionError`."""
        out, bins, x, y = np.zeros_like(self._x), np.zeros(BINS, "u8"), self._x.copy(), self._y.copy()
        params = np.zeros(512, "u1")
        params[:32] = np.frombuffer(struct.pack("<4Q", *(a.ctypes.data for a in (out, x, y, bins))), "u1")
        memory = AddressSpace()
        for array in (out, x, y, bins, params):
            memory.map(array.ctypes.data, array.nbytes)
        grid, block = (GROUPS, 1, 1), (self.threads, 1, 1)
        if target.startswith("sm"):
            text = emit_assembly(self.text(target), Machine("nvptx64-nvidia-cuda", target, "+ptx78"), level=2)
            module = load_ptx(text, arch=target, settings=settings)
            kernel = module.kernel("k", module.place(memory))
            done = launch(kernel, grid, block, params[:32].tobytes(), memory=memory, options=options)
        else:
            code = emit_object(self.text(target), Machine("amdgcn-amd-amdhsa", target, ""), level=2)
            found = objects.kernels(code, target)["k"]
            done = objects.run(
                objects.program(found, settings), found, grid, block, params.ctypes.data, memory, options
            )
        if done.fault is not None:
            raise AssertionError(f"{target}: {done.fault}")
        return out, bins

    def on_host(self) -> tuple[Any, Any]:
        """Compute the same with host code and NumPy."""
        functions = self._host_functions()
        index = np.arange(self._x.size, dtype="u8").reshape(self._x.shape)
        words, bins = np.zeros((GROUPS, BINS), "u8"), np.zeros(BINS, "u8")
        v = functions(0, self._x, self._y, index)
        for n, exchange in enumerate(self._exchanges):
            v = functions(n + 1, v, exchange.mirror(v, words, bins), index)
        return v, bins

    def _host_functions(self) -> Any:
        target = jit.host()
        names = [f"f{k}" for k in range(len(self._functions))]
        text = "".join(self._functions) + "".join(_LOOP.replace("NAME", name) for name in names)
        text += "\n".join(sorted(calls(text)))
        text += f"\nattributes #0 = {{ alwaysinline {target.attributes} }}\nattributes #1 = {{ {target.attributes} }}\n"
        loaded = jit.load(jit.compile_ir(text, target, optimise=False), [f"host_{n}" for n in names], {})
        kind = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 4, ctypes.c_uint64)

        def call(number: int, *arrays: Any) -> Any:
            out = np.zeros(arrays[0].shape, "u8")
            inputs = [np.ascontiguousarray(a) for a in arrays]
            kind(loaded.addresses[f"host_f{number}"])(out.ctypes.data, *(a.ctypes.data for a in inputs), out.size)
            return out

        return call


def check(seed: int, targets: tuple[str, ...], settings: Settings) -> str:
    """Compare the emulators of some targets with the host on one case; return what differs."""
    case = Case(seed)
    wanted = case.on_host()
    options = Options(tier="quick", threads=1)
    for target in targets:
        try:
            found = case.on_device(target, settings, options)
        except Exception as error:  # noqa: BLE001 - whatever a case raises is its result
            return f"{target}: {type(error).__name__}: {error}"
        for what, mine, right in zip(("out", "bins"), found, wanted, strict=True):
            wrong = np.argwhere(mine != right)
            if wrong.size:
                at = tuple(wrong[0])
                return f"{target}: {len(wrong)} of {mine.size} in {what} differ, first {list(map(int, at))}: {mine[at]:#x}, wanted {right[at]:#x}"
    return ""


def disagreements(first: int, count: int, *, targets: tuple[str, ...]) -> dict[int, str]:
    """Return what is wrong with each of some cases, by seed."""
    found = {seed: check(seed, targets, Settings()) for seed in range(first, first + count)}
    return {seed: f"{seed}: {wrong}" for seed, wrong in found.items() if wrong}


def main() -> int:
    """Run the tool and return its exit status."""
    parser = campaign.parser("tools.fuzz.amd", __doc__, cases=300)
    parser.add_argument("--target", action="append", choices=list(LANES), help="(default: all)")
    options = parser.parse_args()
    if options.show is not None:
        sys.stdout.write(Case(options.show).text((options.target or list(LANES))[0]))
        return 0
    targets = tuple(options.target or LANES)
    return campaign.run(partial(disagreements, targets=targets), options, "agree")


if __name__ == "__main__":
    sys.exit(main())
