"""AMD targets: the dialect of LLVM IR, and the code objects that LLVM emits.

Threads replace vector lanes, so kernels are scalar code. LLVM emits unlinked objects (ET_REL). The loader
applies their relocations: one of a kernel descriptor to its code, two of each table of constants.

Parameters are passed by value in the order of the argument block: a pointer per buffer, then an i64 per
variable. They are read from memory, not preloaded into registers. There are no hidden arguments, because
kernels do not use the packet, the queue or the grid size. Pointers keep their address spaces, so no access is
flat. Instructions that a processor lacks are not emitted (`lanes`), and are refused (`intrinsics`).

The memory sizes of a kernel are read from its descriptor, whose symbol is the kernel's name with `.kd`.
Source: LLVM's AMDGPUUsage, "Kernel Descriptor".

Not here: text that is the same for every target (`compiler.text.llvm_ir`), loading, registers and relocations
(`drivers.amd.code`).
Next: `rows`, the processors.
"""

from __future__ import annotations

import functools
import struct

from compiler import llvm
from compiler.targets.amdgcn import intrinsics, lanes, matrix
from compiler.targets.amdgcn.rows import CODE_OBJECTS, Choice, choice_of
from compiler.targets.shared.dialect import Dialect
from compiler.targets.shared.target import Target
from compiler.text import render_llvm
from hcq.errors import CompileError, UnsupportedError

THREADS = 256
"""The most threads of a workgroup."""
SHARED_BYTES = 64 << 10
"""Bytes of LDS of a workgroup."""
THREAD_REGISTERS = 256
"""Vector registers that a wave of any processor may use if a workgroup has `THREADS` threads."""
LINE_BYTES = 128
"""Bytes of a cache line of every processor here."""
GLOBAL, SHARED, CONSTANT, PRIVATE = 1, 3, 4, 5
"""LLVM's address spaces."""
SPACES = {"argument": GLOBAL, "shared": SHARED, "table": CONSTANT, "scratch": PRIVATE}
BARRIER = """fence syncscope("workgroup") release, !mmra !1
  call void @llvm.amdgcn.s.barrier()
  fence syncscope("workgroup") acquire, !mmra !1"""
"""A barrier that orders only LDS, as the linear form requires, and affects no cache of global memory."""
ABSENT = {
    **{f"llvm.amdgcn.workitem.id.{axis}": f'"amdgpu-no-workitem-id-{axis}"' for axis in "xyz"},
    **{f"llvm.amdgcn.workgroup.id.{axis}": f'"amdgpu-no-workgroup-id-{axis}" "amdgpu-no-cluster-id-{axis}"'
       for axis in "xyz"},
    "llvm.amdgcn.dispatch.ptr": '"amdgpu-no-dispatch-ptr"',
    "llvm.amdgcn.queue.ptr": '"amdgpu-no-queue-ptr"',
    "llvm.amdgcn.dispatch.id": '"amdgpu-no-dispatch-id"',
    "llvm.amdgcn.implicitarg.ptr": " ".join(
        f'"amdgpu-no-{what}"'
        for what in ("implicitarg-ptr", "hostcall-ptr", "heap-ptr", "multigrid-sync-arg", "default-queue",
                     "completion-action")
    ),
    "llvm.amdgcn.lds.kernel.id": '"amdgpu-no-lds-kernel-id"',
}  # fmt: skip
"""Intrinsic -> attributes of a kernel without it: no register or hidden argument is set up for it."""
_FOOTER = """
declare i32 @llvm.amdgcn.workitem.id.x()
declare i32 @llvm.amdgcn.workitem.id.y()
declare i32 @llvm.amdgcn.workitem.id.z()
declare i32 @llvm.amdgcn.workgroup.id.x()
declare i32 @llvm.amdgcn.workgroup.id.y()
declare i32 @llvm.amdgcn.workgroup.id.z()
declare void @llvm.amdgcn.s.barrier()
declare void @llvm.amdgcn.sched.barrier(i32 immarg)
LANES
attributes #0 = { nounwind "amdgpu-flat-work-group-size"="THREADS,THREADS" "uniform-work-group-size" ABSENT }
!llvm.module.flags = !{!2}
!0 = !{i32 1}
!1 = !{!"amdgpu-synchronize-as", !"local"}
!2 = !{i32 1, !"amdhsa_code_object_version", i32 VERSION}"""


NO_DOT_PRODUCTS = "-dot7-insts"
"""The feature without which LLVM makes no v_dot4 of sums of products of bytes.

LLVM 22 takes x * y + f(z * w, t) for x * y + z * w + t, even if f is a difference, a shift or a selection.
Seen in its code for gfx90a, gfx942, gfx1030, gfx1100 and gfx1201; `tests/frontend/test_byte_products.py` runs
two of them.
"""


def _entry(name: str, pointers: int, variables: int) -> str:
    parts = [f"ptr addrspace({GLOBAL}) %p{k}" for k in range(pointers)] + [
        f"i64 %n{k}.value" for k in range(variables)
    ]
    return f"define amdgpu_kernel void @{name}({', '.join(parts)}) #0 {{\nentry:"


def _number(intrinsic: str, register: str, bound: str = "") -> list[str]:
    """Return instructions that read a number of 32 bits, zero-extended to i64."""
    return [
        f"  {register}.narrow = call {bound}i32 @llvm.amdgcn.{intrinsic}()",
        f"  {register} = zext i32 {register}.narrow to i64",
    ]


def _group(axis: int, register: str, groups: int) -> list[str]:
    """Return instructions that read the workgroup's number, with its bound.

    With the bound offsets are known to fit 32 bits, so addresses need no arithmetic.
    """
    bound = f"range(i32 0, {groups}) " if groups < 1 << 31 else ""
    return _number(f"workgroup.id.{'xyz'[axis]}", register, bound)


@functools.cache
def dialect(choice: Choice) -> Dialect:
    """Return the dialect of a choice."""
    version = CODE_OBJECTS[choice.version]
    return Dialect(
        entry=_entry,
        pointer=lambda number, register: [
            f"  {register} = getelementptr i8, ptr addrspace({GLOBAL}) %p{number}, i64 0"
        ],
        variable=lambda number, _pointers, register: [f"  {register} = add i64 %n{number}.value, 0"],
        group=_group,
        thread=lambda axis, register: _number(f"workitem.id.{'xyz'[axis]}", register),
        barrier=BARRIER,
        exp2="llvm.amdgcn.exp2.f32",
        phase="call void @llvm.amdgcn.sched.barrier(i32 0)",
        exchange=lambda register, word, distance, _threads: lanes.exchange(
            choice.row, register, word, distance
        ),
        matrix=matrix.text,
        half="fptrunc.round",  # fptrunc of a product becomes v_fma_mixlo_f16 x, y, 0: -0 would become 0
        shared_space=SHARED,
        spaces=SPACES,
        footer=_FOOTER.replace("LANES", lanes.DECLARED).replace("VERSION", str(version)),
        absent=ABSENT,
    )


def _machine(choice: Choice) -> llvm.Machine:
    """Return LLVM's description. Raises `UnsupportedError` if the installed LLVM lacks the processor."""
    have = llvm.major()
    if have < choice.row.llvm:
        raise UnsupportedError(
            f"{choice.arch} needs LLVM {choice.row.llvm} or newer, "
            f"llvmlite {llvm.version()} has LLVM {have}\n"
            f"hint: install a newer llvmlite"
        )
    features = [NO_DOT_PRODUCTS]
    if len(choice.row.waves) > 1:
        features += [
            f"{'+' if size == choice.wave else '-'}wavefrontsize{size}" for size in choice.row.waves
        ]
    return llvm.Machine("amdgcn-amd-amdhsa", choice.arch, ",".join(features))


def _emit(choice: Choice, ir: str, machine: llvm.Machine, level: int) -> bytes:
    intrinsics.check(ir, choice)
    return llvm.emit_object(ir, machine, level=level)


@functools.cache
def target(arch: str) -> Target:
    """Return the target of an architecture, with options. Raises `UnsupportedError` as `choice_of` does."""
    choice = choice_of(arch)
    row = choice.row
    return Target(
        arch=choice.arch,
        dialect=dialect(choice),
        machine=functools.partial(_machine, choice),
        vector_bytes=4 * THREADS,
        registers=96,
        fma_per_cycle=0.25,
        loads_per_cycle=0.0625,
        gigahertz=row.gigahertz,
        bytes_per_ns=row.bytes_per_ns,
        l1_bytes=32 << 10,
        l2_bytes=row.l2_bytes,
        cores=row.processors,
        gathers=True,
        threads=THREADS,
        warp=lanes.reach(row, choice.wave),
        shared_bytes=SHARED_BYTES,
        thread_registers=THREAD_REGISTERS,
        matrix=matrix.operations(choice),
        line_bytes=LINE_BYTES,
        may_abort=True,
        settings=f"wave{choice.wave} {choice.version}",
        render=render_llvm,
        emit=functools.partial(_emit, choice),
        memory=memory_of,
    )


_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_SYMTAB = 2
_SIZES = struct.Struct("<II")
"""The first words of the descriptor: bytes of LDS of a workgroup, private bytes of a thread."""


def memory_of(code: bytes, name: str) -> tuple[int, int]:
    """Return (static bytes of LDS of a workgroup, private bytes of a thread) of the kernel `name`.

    `code` is an unlinked object from LLVM. Raises `CompileError` if it has no such kernel.
    """
    wanted = f"{name}.kd".encode() + b"\0"
    head = _HEADER.unpack_from(code)
    sections = [_SECTION.unpack_from(code, head[6] + k * _SECTION.size) for k in range(head[12])]
    for table in sections:
        if table[1] != _SYMTAB:
            continue
        names = sections[table[6]][4]
        for at in range(table[4], table[4] + table[5], _SYMBOL.size):
            text, _, _, section, value, _ = _SYMBOL.unpack_from(code, at)
            if code.startswith(wanted, names + text):
                group, private = _SIZES.unpack_from(code, sections[section][4] + value)
                return group, private
    raise CompileError(f"LLVM made no kernel descriptor of the name {name}.kd")
