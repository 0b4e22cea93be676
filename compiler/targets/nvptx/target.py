"""NVIDIA targets: LLVM emits PTX, and `assembler` makes cubins of it.

Threads replace vector lanes, so kernels are scalar code. Parameters are passed by value in the order of the
argument block: a pointer per buffer, then an i64 per variable. LLVM aborts on instructions that an
architecture lacks, so kernels use only instructions that all architectures of the table have, apart from the
matrix operations of `matrix.GROUPED`.

Not here: loading cubins (`drivers.nv.cubin`). Next: `assembler`; `matrix`.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

from compiler import llvm
from compiler.targets.nvptx import float_division, int_division, matrix, sqrt
from compiler.targets.shared.dialect import Dialect
from compiler.targets.shared.target import Target
from compiler.text import render_llvm
from hcq.errors import UnsupportedError


@dataclass(frozen=True, slots=True, kw_only=True)
class NvptxRow:
    """One architecture, named as for LLVM's `-mcpu`. Only estimates use the fields, except `shared_kib`."""

    processors: int
    """Multiprocessors of its largest device."""
    gigahertz: float
    bytes_per_ns: float
    """Memory bandwidth of one multiprocessor in bytes per nanosecond."""
    shared_kib: int
    """The most KiB of shared memory of a workgroup."""


ROWS = {
    "sm_80": NvptxRow(processors=108, gigahertz=1.4, bytes_per_ns=14.0, shared_kib=163),
    "sm_86": NvptxRow(processors=84, gigahertz=1.7, bytes_per_ns=11.0, shared_kib=99),
    "sm_89": NvptxRow(processors=128, gigahertz=2.2, bytes_per_ns=7.5, shared_kib=99),
    "sm_90": NvptxRow(processors=132, gigahertz=1.7, bytes_per_ns=30.0, shared_kib=227),
    "sm_90a": NvptxRow(processors=132, gigahertz=1.7, bytes_per_ns=30.0, shared_kib=227),
    "sm_100a": NvptxRow(processors=148, gigahertz=1.8, bytes_per_ns=50.0, shared_kib=227),
    "sm_120a": NvptxRow(processors=170, gigahertz=2.2, bytes_per_ns=10.0, shared_kib=99),
}
"""Known architectures. Shared memory: CUDA C++ Programming Guide, technical specifications per compute
capability."""
THREADS = 256
"""The most threads of a workgroup."""
WARP = 32
SHARED_BYTES = 48 << 10
"""The most bytes of static shared memory of a workgroup. More is dynamic: the launch states its size."""
THREAD_REGISTERS = 255
"""The most 32-bit registers of a thread."""
ASYNC_BYTES = 16
"""Bytes of one asynchronous copy of a thread."""
SECTOR_BYTES = 32
"""The fewest bytes of global memory that an access moves."""
SHARED_SPACE = 3
"""LLVM's address space of shared memory."""

_FOOTER = """
declare i32 @llvm.nvvm.read.ptx.sreg.tid.x()
declare i32 @llvm.nvvm.read.ptx.sreg.ctaid.x()
declare void @llvm.nvvm.barrier.cta.sync.aligned.all(i32)
declare i32 @llvm.nvvm.shfl.sync.bfly.i32(i32, i32, i32, i32)
attributes #0 = { nounwind "nvvm.maxntid"="THREADS" "no-jump-tables"="true" }
!0 = !{i32 1}"""


def _entry(name: str, pointers: int, variables: int) -> str:
    parts = [f"ptr addrspace(1) %p{k}" for k in range(pointers)] + [
        f"i64 %n{k}.value" for k in range(variables)
    ]
    return f"define ptx_kernel void @{name}({', '.join(parts)}) #0 {{\nentry:"


def _special(name: str, register: str) -> list[str]:
    """Return instructions that read a special register, zero-extended to i64."""
    return [
        f"  {register}.narrow = call i32 @llvm.nvvm.read.ptx.sreg.{name}()",
        f"  {register} = zext i32 {register}.narrow to i64",
    ]


def _exchange(register: str, word: str, distance: int, threads: int) -> list[str]:
    """Return the butterfly exchange of a word with the thread at a distance."""
    members = -1 if threads == WARP else (1 << threads) - 1
    words = f"i32 {members}, i32 {word}, i32 {distance}, i32 {WARP - 1}"
    return [f"  {register} = call i32 @llvm.nvvm.shfl.sync.bfly.i32({words})"]


EXPANSIONS = {
    ("fdiv", "float32"): float_division.divide_float32,
    ("fdiv", "float64"): float_division.divide_float64,
    ("sqrt", "float32"): sqrt.root_float32,
    ("sqrt", "float64"): sqrt.root_float64,
    ("udiv", "uint64"): int_division.divide_unsigned,
    ("sdiv", "int64"): int_division.divide_signed,
}
"""The operations for which the assembler would link a helper function: it has a call stack, relocations and
more registers. A division of 32-bit integers needs none."""

DIALECT = Dialect(
    entry=_entry,
    pointer=lambda number, register: [f"  {register} = addrspacecast ptr addrspace(1) %p{number} to ptr"],
    variable=lambda number, _pointers, register: [f"  {register} = add i64 %n{number}.value, 0"],
    group=lambda axis, register, _groups: _special(f"ctaid.{'xyz'[axis]}", register),
    thread=lambda axis, register: _special(f"tid.{'xyz'[axis]}", register),
    barrier="call void @llvm.nvvm.barrier.cta.sync.aligned.all(i32 0)",
    exchange=_exchange,
    exp2="llvm.nvvm.ex2.approx.f",
    matrix=matrix.text,
    staging=matrix.STAGING,
    shared_space=SHARED_SPACE,
    expansions=EXPANSIONS,
    footer=_FOOTER,
)


def ptx(ir: str, machine: llvm.Machine, level: int) -> str:
    """Return the PTX of a kernel."""
    return llvm.emit_assembly(ir, machine, level=level)


def _emit(ir: str, machine: llvm.Machine, level: int) -> bytes:
    from compiler.targets.nvptx.assembler import assemble  # noqa: PLC0415  # loads the assembler

    return assemble(ptx(ir, machine, level), machine.cpu)


@functools.cache
def target(arch: str) -> Target:
    """Return the target of an architecture. Raises `UnsupportedError` if it is not in the table."""
    from compiler.targets.nvptx.assembler import identity  # noqa: PLC0415  # needed only for NVIDIA

    row = ROWS.get(arch)
    if row is None:
        raise UnsupportedError(f"no compiler target for {arch!r}; NVIDIA archs known are {', '.join(ROWS)}")
    return Target(
        arch=arch,
        dialect=DIALECT,
        machine=functools.partial(llvm.Machine, "nvptx64-nvidia-cuda", arch),
        vector_bytes=4 * THREADS,
        registers=96,
        fma_per_cycle=0.5,
        loads_per_cycle=0.125,
        gigahertz=row.gigahertz,
        bytes_per_ns=row.bytes_per_ns,
        l1_bytes=128 << 10,
        l2_bytes=40 << 20,
        cores=row.processors,
        gathers=True,
        threads=THREADS,
        warp=WARP,
        shared_bytes=SHARED_BYTES,
        dynamic_shared_bytes=row.shared_kib << 10,
        thread_registers=THREAD_REGISTERS,
        matrix=(*matrix.OPERATIONS, *matrix.GROUPED.get(arch, ())),
        line_bytes=SECTOR_BYTES,
        async_bytes=ASYNC_BYTES,
        may_abort=True,
        settings=identity(),
        render=render_llvm,
        emit=_emit,
    )
