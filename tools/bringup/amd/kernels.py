"""The kernels of the AMD ladder, in LLVM IR; each is small, so that a failure has few causes (see `KERNELS`).

They are compiled when a rung loads them, or beforehand into a folder (`prepare`).

Not here: the kernels of tensors (`compiler.targets.amdgcn`). Next: `rungs_compute`, which launches them and
checks their results.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from compiler.llvm import Machine, emit_object
from drivers.amd.layouts.chips import CHIPS
from hcq.program import ArgKind, ArgSlot, KernelImage

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

TOKEN: Final = 0x600DCAFE
"""The word that `store` stores."""
THREADS: Final = 96
"""Threads of a workgroup of `grid`."""
LDS_SIZES: Final = (4 << 10, 48 << 10, 64 << 10, 160 << 10)
"""Sizes of LDS, in bytes, for which `shared` is built."""
UNUSED: Final = (
    "dispatch-ptr", "implicitarg-ptr", "queue-ptr", "dispatch-id", "workitem-id-y", "workitem-id-z",
    "workgroup-id-y", "workgroup-id-z", "hostcall-ptr", "multigrid-sync-arg", "heap-ptr", "default-queue",
    "completion-action", "lds-kernel-id",
)  # fmt: skip
_TAIL: Final = """
declare i32 @llvm.amdgcn.workitem.id.x()
declare i32 @llvm.amdgcn.workgroup.id.x()
declare void @llvm.amdgcn.s.barrier()
declare i32 @llvm.ctpop.i32(i32)
declare i32 @llvm.bitreverse.i32(i32)
attributes #0 = {{ {unused} }}
"""

_STORE: Final = f"""
define amdgpu_kernel void @store(ptr addrspace(1) %out) #0 {{
  store i32 {TOKEN}, ptr addrspace(1) %out
  ret void
}}
"""
_GRID: Final = f"""
@table = internal addrspace(4) constant [4 x i32] [i32 1000, i32 2000, i32 3000, i32 4000]
define amdgpu_kernel void @grid(ptr addrspace(1) %out, i32 %add) #0 {{
entry:
  %thread = call i32 @llvm.amdgcn.workitem.id.x()
  %group = call i32 @llvm.amdgcn.workgroup.id.x()
  %first = mul i32 %group, {THREADS}
  %i = add i32 %first, %thread
  %row = and i32 %thread, 3
  %at = getelementptr [4 x i32], ptr addrspace(4) @table, i32 0, i32 %row
  %constant = load i32, ptr addrspace(4) %at
  %which = and i32 %thread, 3
  switch i32 %which, label %d [ i32 0, label %a
                                i32 1, label %b
                                i32 2, label %c ]
a:
  %va = mul i32 %thread, 77
  br label %over
b:
  %vb = call i32 @llvm.ctpop.i32(i32 %thread)
  br label %over
c:
  %vc = call i32 @llvm.bitreverse.i32(i32 %thread)
  br label %over
d:
  %vd = xor i32 %thread, 1234567
  br label %over
over:
  %picked = phi i32 [ %va, %a ], [ %vb, %b ], [ %vc, %c ], [ %vd, %d ]
  %one = add i32 %picked, %constant
  %two = add i32 %one, %add
  %sum = add i32 %two, %i
  %to = getelementptr i32, ptr addrspace(1) %out, i32 %i
  store i32 %sum, ptr addrspace(1) %to
  ret void
}}
"""
PICKED: Final[tuple[Callable[[int], int], ...]] = (
    lambda thread: thread * 77,
    lambda thread: thread.bit_count(),
    lambda thread: int(f"{thread:032b}"[::-1], 2),
    lambda thread: thread ^ 1234567,
)
"""Functions of the thread's number that `grid` adds. The low two bits of the number choose the function. Each
has its own branch in the kernel."""
_SHARED: Final = """
@room = internal addrspace(3) global [{words} x i32] undef, align 16
define amdgpu_kernel void @shared(ptr addrspace(1) %out) #0 {{
  %thread = call i32 @llvm.amdgcn.workitem.id.x()
  %low = getelementptr [{words} x i32], ptr addrspace(3) @room, i32 0, i32 %thread
  %far = add i32 %thread, {top}
  %high = getelementptr [{words} x i32], ptr addrspace(3) @room, i32 0, i32 %far
  %other = sub i32 255, %thread
  %back = add i32 %other, {top}
  %mirror = getelementptr [{words} x i32], ptr addrspace(3) @room, i32 0, i32 %back
  store volatile i32 7, ptr addrspace(3) %low
  store volatile i32 %thread, ptr addrspace(3) %high
  fence syncscope("workgroup") release
  call void @llvm.amdgcn.s.barrier()
  fence syncscope("workgroup") acquire
  %seen = load volatile i32, ptr addrspace(3) %mirror
  %to = getelementptr i32, ptr addrspace(1) %out, i32 %thread
  store i32 %seen, ptr addrspace(1) %to
  ret void
}}
"""
_LOCAL: Final = """
define amdgpu_kernel void @local(ptr addrspace(1) %out, i32 %step) #0 {
entry:
  %stack = alloca [1024 x i32], align 16, addrspace(5)
  %thread = call i32 @llvm.amdgcn.workitem.id.x()
  br label %fill
fill:
  %i = phi i32 [ 0, %entry ], [ %next, %fill ]
  %m = mul i32 %i, %step
  %k = and i32 %m, 1023
  %at = getelementptr [1024 x i32], ptr addrspace(5) %stack, i32 0, i32 %k
  %value = add i32 %i, %thread
  store volatile i32 %value, ptr addrspace(5) %at
  %next = add i32 %i, 1
  %more = icmp ult i32 %next, 1024
  br i1 %more, label %fill, label %done
done:
  %m2 = mul i32 %thread, %step
  %k2 = and i32 %m2, 1023
  %at2 = getelementptr [1024 x i32], ptr addrspace(5) %stack, i32 0, i32 %k2
  %seen = load volatile i32, ptr addrspace(5) %at2
  %group = call i32 @llvm.amdgcn.workgroup.id.x()
  %first = shl i32 %group, 8
  %own = or i32 %first, %thread
  %to = getelementptr i32, ptr addrspace(1) %out, i32 %own
  store i32 %seen, ptr addrspace(1) %to
  ret void
}
"""
_COUNT: Final = """
define amdgpu_kernel void @count(ptr addrspace(1) %out, ptr addrspace(1) %seen) #0 {
  %n = load i32, ptr addrspace(1) %seen
  %more = add i32 %n, 1
  store i32 %more, ptr addrspace(1) %out
  ret void
}
"""
_WILD: Final = """
define amdgpu_kernel void @wild(ptr addrspace(1) %out, i64 %where) #0 {
  %to = inttoptr i64 %where to ptr addrspace(1)
  store i32 1, ptr addrspace(1) %to
  ret void
}
"""
_STREAM: Final = """
define amdgpu_kernel void @stream(ptr addrspace(1) %out, ptr addrspace(1) %from) #0 {
  %thread = call i32 @llvm.amdgcn.workitem.id.x()
  %group = call i32 @llvm.amdgcn.workgroup.id.x()
  %first = mul i32 %group, 256
  %i = add i32 %first, %thread
  %source = getelementptr <4 x float>, ptr addrspace(1) %from, i32 %i
  %four = load <4 x float>, ptr addrspace(1) %source, align 16
  %to = getelementptr <4 x float>, ptr addrspace(1) %out, i32 %i
  store <4 x float> %four, ptr addrspace(1) %to, align 16
  ret void
}
"""

_OUT: Final = ArgSlot("out", ArgKind.POINTER, 0, 8, "w")
KERNELS: Final[dict[str, tuple[str, tuple[ArgSlot, ...], int]]] = {
    "store": (_STORE, (_OUT,), 8),
    "grid": (_GRID, (_OUT, ArgSlot("add", ArgKind.INT, 8, 4)), 16),
    "shared": (_SHARED, (_OUT,), 8),
    "local": (_LOCAL, (_OUT, ArgSlot("step", ArgKind.INT, 8, 4)), 16),
    "count": (_COUNT, (_OUT, ArgSlot("seen", ArgKind.POINTER, 8, 8, "r")), 16),
    "wild": (_WILD, (_OUT, ArgSlot("where", ArgKind.INT, 8, 8)), 16),
    "stream": (_STREAM, (_OUT, ArgSlot("from", ArgKind.POINTER, 8, 8, "r")), 16),
}
"""Name -> IR without its tail, arguments, bytes of the argument block. The kernels:

- `store`: one thread stores `TOKEN` at `out`.
- `grid`: thread i of the grid stores a sum of i, `add`, an element of a constant table and a function of
  `PICKED`.
- `shared`: 256 threads write the first and the last 1024 bytes of LDS; after a barrier thread t stores the
  number of thread 255 - t.
- `local`: each thread writes 1024 words of scratch memory at multiples of `step`, and stores one of them.
- `count`: stores the word at `seen`, plus 1.
- `wild`: stores 1 at the address `where`, which need not be mapped.
- `stream`: each thread copies 16 bytes.
"""


def ir(name: str, lds_bytes: int = 0) -> str:
    """Return the complete IR of a kernel; `lds_bytes` is the size of LDS of `shared`, ignored for others."""
    body = KERNELS[name][0]
    if name == "shared":
        body = body.format(words=lds_bytes // 4, top=lds_bytes // 4 - 256)
    return body + _TAIL.format(unused=" ".join(f'"amdgpu-no-{word}"' for word in UNUSED))


def _assemble(name: str, arch: str, lds_bytes: int) -> bytes:
    return emit_object(ir(name, lds_bytes), Machine("amdgcn-amd-amdhsa", arch))


def _file(folder: Path, name: str, arch: str, lds_bytes: int) -> Path:
    return folder / arch / (f"{name}-{lds_bytes}.o" if lds_bytes else f"{name}.o")


def image(name: str, arch: str, *, shared_bytes: int = 0, folder: Path | None = None) -> KernelImage:
    """Return a kernel's image: the prepared one from `folder` if it exists, else a newly compiled one.

    `shared_bytes` is the size of LDS, one of `LDS_SIZES` for the kernel `shared` and 0 for the others.
    """
    file = _file(folder, name, arch, shared_bytes) if folder is not None else None
    code = file.read_bytes() if file is not None and file.exists() else _assemble(name, arch, shared_bytes)
    _, args, size = KERNELS[name]
    return KernelImage(
        name=name, arch=arch, code=code, args=args, kernarg_size=size, shared_bytes=shared_bytes
    )


def prepare(folder: Path) -> list[Path]:
    """Compile every kernel for every supported target into `folder`; return the files.

    They are TARGET/NAME.o, and TARGET/shared-BYTES.o for each size of LDS that the target has.
    """
    written = []
    for target in CHIPS.values():
        if target.refusal:
            continue
        (folder / target.name).mkdir(parents=True, exist_ok=True)
        for name in KERNELS:
            sizes = [size for size in LDS_SIZES if size <= target.lds_bytes] if name == "shared" else [0]
            for size in sizes:
                path = _file(folder, name, target.name, size)
                path.write_bytes(_assemble(name, target.name, size))
                written.append(path)
    return written
