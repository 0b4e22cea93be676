"""The kernels of the NVIDIA ladder, as PTX; each is small, so that a failure has few causes (see `KERNELS`).

They are assembled when a rung loads them, or beforehand into a folder (`prepare`).

Not here: launching. Next: `rungs_compute`, which launches them and checks their results.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from compiler.targets.nvptx.assembler import assemble
from hcq.program import ArgKind, ArgSlot, KernelImage

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

ARCHES: Final = ("sm_80", "sm_86", "sm_89", "sm_90a", "sm_100a", "sm_120a")
TOKEN: Final = 0xC0FFEE42
"""The word that `store` stores."""

_HEAD: Final = ".version {version}\n.target {arch}\n.address_size 64\n"

_STORE: Final = f"""
.visible .entry store(.param .u64 out) {{
 .reg .b64 %rd<2>;
 .reg .b32 %r<2>;
 ld.param.u64 %rd1, [out];
 mov.u32 %r1, {TOKEN};
 st.global.u32 [%rd1], %r1;
 ret;
}}
"""
_GRID: Final = """
.const .align 4 .b32 table[4] = {1000, 2000, 3000, 4000};
.visible .entry grid(.param .u64 out, .param .u32 add) {
 .reg .b64 %rd<5>;
 .reg .b32 %r<16>;
 targets: .branchtargets L0, L1, L2, L3, L4, L5, L6, L7;
 ld.param.u64 %rd1, [out];
 ld.param.u32 %r1, [add];
 mov.u32 %r2, %tid.x;
 mov.u32 %r3, %ntid.x;
 mov.u32 %r4, %ctaid.x;
 mov.u32 %r5, %nctaid.x;
 mad.lo.u32 %r6, %r4, %r3, %r2;
 mad.lo.u32 %r7, %r5, %r3, %r1;
 and.b32 %r8, %r2, 3;
 mul.wide.u32 %rd2, %r8, 4;
 mov.u64 %rd3, table;
 add.u64 %rd3, %rd3, %rd2;
 ld.const.u32 %r9, [%rd3];
 add.u32 %r10, %r7, %r9;
 add.u32 %r10, %r10, %r6;
 and.b32 %r11, %r2, 7;
 brx.idx %r11, targets;
L0:
 mov.u32 %r12, 23063;
 bra.uni over;
L1:
 mul.lo.u32 %r12, %r2, 77;
 bra.uni over;
L2:
 xor.b32 %r12, %r2, 1234567;
 bra.uni over;
L3:
 shl.b32 %r12, %r2, 9;
 bra.uni over;
L4:
 popc.b32 %r12, %r2;
 bra.uni over;
L5:
 not.b32 %r12, %r2;
 bra.uni over;
L6:
 brev.b32 %r12, %r2;
 bra.uni over;
L7:
 clz.b32 %r12, %r2;
over:
 add.u32 %r10, %r10, %r12;
 mul.wide.u32 %rd4, %r6, 4;
 add.u64 %rd4, %rd1, %rd4;
 st.global.u32 [%rd4], %r10;
 ret;
}
"""
PICKED: Final[tuple[Callable[[int], int], ...]] = (
    lambda _: 23063,
    lambda thread: thread * 77,
    lambda thread: thread ^ 1234567,
    lambda thread: thread << 9,
    lambda thread: thread.bit_count(),
    lambda thread: ~thread,
    lambda thread: int(f"{thread:032b}"[::-1], 2),
    lambda thread: 32 - thread.bit_length(),
)
"""Functions of the thread's number that `grid` adds. The low three bits of the number choose the function.
Each has its own branch of a jump table in the kernel."""
_SHARED: Final = """
.extern .shared .align 16 .b8 room[];
.visible .entry shared(.param .u64 out, .param .u32 top) {
 .reg .b64 %rd<4>;
 .reg .b32 %r<10>;
 ld.param.u64 %rd1, [out];
 ld.param.u32 %r1, [top];
 mov.u32 %r2, %tid.x;
 mov.u32 %r3, room;
 shl.b32 %r4, %r2, 2;
 add.u32 %r5, %r3, %r4;
 st.shared.u32 [%r5], %r2;
 add.u32 %r6, %r5, %r1;
 st.shared.u32 [%r6], %r2;
 bar.sync 0;
 sub.u32 %r7, 255, %r2;
 shl.b32 %r7, %r7, 2;
 add.u32 %r7, %r3, %r7;
 add.u32 %r7, %r7, %r1;
 ld.shared.u32 %r8, [%r7];
 mul.wide.u32 %rd2, %r2, 4;
 add.u64 %rd3, %rd1, %rd2;
 st.global.u32 [%rd3], %r8;
 ret;
}
"""
_LOCAL: Final = """
.visible .entry local(.param .u64 out, .param .u32 step) {
 .reg .b64 %rd<6>;
 .reg .b32 %r<12>;
 .reg .pred %p<2>;
 .local .align 16 .b8 stack[4096];
 ld.param.u64 %rd1, [out];
 ld.param.u32 %r1, [step];
 mov.u32 %r2, %tid.x;
 mov.u32 %r3, 0;
 mov.u64 %rd2, stack;
fill:
 mul.lo.u32 %r4, %r3, %r1;
 and.b32 %r4, %r4, 1023;
 mul.wide.u32 %rd3, %r4, 4;
 add.u64 %rd3, %rd2, %rd3;
 add.u32 %r5, %r3, %r2;
 st.local.u32 [%rd3], %r5;
 add.u32 %r3, %r3, 1;
 setp.lt.u32 %p1, %r3, 1024;
 @%p1 bra fill;
 mul.lo.u32 %r6, %r2, %r1;
 and.b32 %r6, %r6, 1023;
 mul.wide.u32 %rd4, %r6, 4;
 add.u64 %rd4, %rd2, %rd4;
 ld.local.u32 %r7, [%rd4];
 mov.u32 %r8, %ctaid.x;
 shl.b32 %r8, %r8, 8;
 or.b32 %r8, %r8, %r2;
 mul.wide.u32 %rd5, %r8, 4;
 add.u64 %rd5, %rd1, %rd5;
 st.global.u32 [%rd5], %r7;
 ret;
}
"""
_COUNT: Final = """
.visible .entry count(.param .u64 out, .param .u64 seen) {
 .reg .b64 %rd<4>;
 .reg .b32 %r<4>;
 ld.param.u64 %rd1, [out];
 ld.param.u64 %rd2, [seen];
 ld.global.u32 %r1, [%rd2];
 add.u32 %r1, %r1, 1;
 st.global.u32 [%rd1], %r1;
 ret;
}
"""
_WILD: Final = """
.visible .entry wild(.param .u64 out, .param .u64 where) {
 .reg .b64 %rd<3>;
 .reg .b32 %r<2>;
 ld.param.u64 %rd1, [where];
 mov.u32 %r1, 1;
 st.global.u32 [%rd1], %r1;
 ret;
}
"""
_ELEMENTWISE: Final = """
.visible .entry stream(.param .u64 out, .param .u64 from) {
 .reg .b64 %rd<5>;
 .reg .b32 %r<4>;
 .reg .f32 %f<5>;
 ld.param.u64 %rd1, [out];
 ld.param.u64 %rd2, [from];
 mov.u32 %r1, %ctaid.x;
 mov.u32 %r2, %tid.x;
 mad.lo.u32 %r3, %r1, 256, %r2;
 mul.wide.u32 %rd3, %r3, 16;
 add.u64 %rd2, %rd2, %rd3;
 add.u64 %rd1, %rd1, %rd3;
 ld.global.v4.f32 {%f1, %f2, %f3, %f4}, [%rd2];
 st.global.v4.f32 [%rd1], {%f1, %f2, %f3, %f4};
 ret;
}
"""

_CLUSTER: Final = """
.visible .entry cluster(.param .u64 out) {
 .reg .b64 %rd<4>;
 .reg .b32 %r<16>;
 .shared .align 4 .b32 mine;
 ld.param.u64 %rd1, [out];
 mov.u32 %r1, %ctaid.x;
 mov.u32 %r2, %cluster_ctarank;
 mov.u32 %r3, %cluster_nctarank;
 mov.u32 %r4, %nclusterid.x;
 mov.u32 %r5, mine;
 add.u32 %r6, %r1, 1000;
 st.shared.u32 [%r5], %r6;
 barrier.cluster.arrive.release;
 barrier.cluster.wait.acquire;
 add.u32 %r7, %r2, 1;
 rem.u32 %r7, %r7, %r3;
 mapa.shared::cluster.u32 %r8, %r5, %r7;
 ld.shared::cluster.u32 %r9, [%r8];
 barrier.cluster.arrive.release;
 barrier.cluster.wait.acquire;
 shl.b32 %r10, %r4, 16;
 shl.b32 %r11, %r2, 24;
 shl.b32 %r12, %r3, 28;
 or.b32 %r9, %r9, %r10;
 or.b32 %r9, %r9, %r11;
 or.b32 %r9, %r9, %r12;
 mul.wide.u32 %rd2, %r1, 4;
 add.u64 %rd3, %rd1, %rd2;
 st.global.u32 [%rd3], %r9;
 ret;
}
"""

_MEET: Final = """
.visible .entry meet(.param .u64 out, .param .u32 count) {
 .reg .b64 %rd<2>;
 .reg .b32 %r<5>;
 .reg .pred %p<3>;
 ld.param.u64 %rd1, [out];
 ld.param.u32 %r1, [count];
 mov.u32 %r2, %tid.x;
 setp.ne.u32 %p1, %r2, 0;
 @%p1 bra over;
 atom.acq_rel.gpu.global.add.u32 %r3, [%rd1], 1;
look:
 ld.acquire.gpu.global.u32 %r4, [%rd1];
 setp.lt.u32 %p2, %r4, %r1;
 @%p2 bra look;
over:
 bar.sync 0;
 ret;
}
"""

_OUT: Final = ArgSlot("out", ArgKind.POINTER, 0, 8, "w")
KERNELS: Final[dict[str, tuple[str, tuple[ArgSlot, ...], int]]] = {
    "store": (_STORE, (_OUT,), 8),
    "grid": (_GRID, (_OUT, ArgSlot("add", ArgKind.INT, 8, 4)), 16),
    "shared": (_SHARED, (_OUT, ArgSlot("top", ArgKind.INT, 8, 4)), 16),
    "local": (_LOCAL, (_OUT, ArgSlot("step", ArgKind.INT, 8, 4)), 16),
    "count": (_COUNT, (_OUT, ArgSlot("seen", ArgKind.POINTER, 8, 8, "r")), 16),
    "wild": (_WILD, (_OUT, ArgSlot("where", ArgKind.INT, 8, 8)), 16),
    "cluster": (_CLUSTER, (_OUT,), 8),
    "meet": (_MEET, (ArgSlot("out", ArgKind.POINTER, 0, 8), ArgSlot("count", ArgKind.INT, 8, 4)), 16),
    "stream": (_ELEMENTWISE, (_OUT, ArgSlot("from", ArgKind.POINTER, 8, 8, "r")), 16),
}
"""Name -> PTX without its head, arguments, bytes of the argument block. The kernels:

- `store`: one thread stores `TOKEN` at `out`.
- `grid`: thread i of the grid stores a sum of i, `add`, the number of threads, an element of constant memory
  and a function of `PICKED`.
- `shared`: 256 threads write the first and the last 1024 bytes of dynamic shared memory, which begin `top`
  bytes apart; after a barrier thread t stores the number of thread 255 - t.
- `local`: each thread writes 1024 words of local memory at multiples of `step`, and stores one of them.
- `count`: stores the word at `seen`, plus 1.
- `wild`: stores 1 at the address `where`, which need not be mapped.
- `cluster`: each workgroup stores a number that the next workgroup of its cluster has in shared memory, with
  rank, size and number of clusters in the upper bits.
- `meet`: a thread of each workgroup adds 1 to the word at `out`, and waits until the word is `count`.
- `stream`: each thread copies 16 bytes.
"""
_SINCE: Final = {"cluster": 90}
"""Name -> the least SM number whose GPUs can run the kernel; all GPUs can run the others."""


def ptx(name: str, arch: str) -> str:
    """Return the complete PTX of a kernel for an architecture, for example "sm_90a"."""
    version = "8.8" if arch.startswith(("sm_10", "sm_12")) else "8.0"
    return _HEAD.format(version=version, arch=arch) + KERNELS[name][0]


def fitting(arch: str) -> list[str]:
    """Return the names of the kernels that an architecture can run."""
    sm = int(arch.removeprefix("sm_").rstrip("af"))
    return [name for name in KERNELS if _SINCE.get(name, 0) <= sm]


def image(name: str, arch: str, *, shared_bytes: int = 0, folder: Path | None = None) -> KernelImage:
    """Return a kernel's image: the prepared one from `folder` if it exists, else a newly assembled one.

    `shared_bytes` is the dynamic shared memory of a launch. Raises as `assemble` does without an assembler.
    """
    file = folder / arch / f"{name}.cubin" if folder is not None else None
    code = file.read_bytes() if file is not None and file.exists() else assemble(ptx(name, arch), arch)
    _, args, size = KERNELS[name]
    return KernelImage(
        name=name, arch=arch, code=code, args=args, kernarg_size=size, shared_bytes=shared_bytes
    )


def prepare(folder: Path) -> list[Path]:
    """Assemble the kernels for each of `ARCHES` into `folder`; return the files, ARCH/NAME.cubin."""
    written = []
    for arch in ARCHES:
        (folder / arch).mkdir(parents=True, exist_ok=True)
        for name in fitting(arch):
            path = folder / arch / f"{name}.cubin"
            path.write_bytes(assemble(ptx(name, arch), arch))
            written.append(path)
    return written
