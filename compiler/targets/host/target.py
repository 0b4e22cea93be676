"""The host target: one function call for each workgroup, with vectors of the machine's width.

A kernel is `void kernel(u64 args, u64 x, u64 y, u64 z)`. `args` points to the argument block, with 8 bytes
per buffer, then 8 per variable; x, y, z are the workgroup's index. An architecture is the machine's name with
a digest of /proc/cpuinfo from the cpu driver (LLVM then detects the instruction sets), or one of `LEVELS`,
whose code runs on every machine of that level.

Not here: linking and mapping the object (`drivers.cpu.link`, `drivers.cpu.image`).
"""

from __future__ import annotations

import functools
import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from compiler import llvm
from compiler.targets.host import matrix
from compiler.targets.shared.dialect import Dialect
from compiler.targets.shared.target import Target
from compiler.text import render_llvm
from hcq.config import config
from hcq.errors import UnsupportedError

if TYPE_CHECKING:
    from compiler.targets.shared.matrix import MatrixOp
    from hcq.config import Config

_FOOTER = """
attributes #0 = { nounwind "no-jump-tables"="true" "prefer-vector-width"="512" }
!0 = !{i32 1}"""

LEVELS = {
    "x86_64-v3": (32, 16, True), "x86_64-v4": (64, 32, True), "x86_64-znver4": (64, 32, True),
    "aarch64-v8": (16, 32, False), "aarch64-neoverse-n1": (16, 32, False),
}  # fmt: skip
"""Architecture -> (vector bytes, vector registers, whether gathers and masked accesses are fast)."""
MATRIX: dict[int, dict[str, tuple[MatrixOp, ...]]] = {
    64: {"avx512_bf16": (matrix.BF16,), "avx512_vnni": (matrix.BYTES, matrix.SHORT)},
    32: {"avx_vnni": (matrix.BYTES, matrix.SHORT)},
    16: {"asimddp": (matrix.SIGNED, matrix.UNSIGNED)},
}
"""Vector bytes -> instruction set -> its matrix operations, the preferred ones first.

The levels x86_64-znver4 and aarch64-neoverse-n1 have all of their size, the other levels none."""
_PROCESSORS = {"aarch64-v8": "generic", "aarch64-neoverse-n1": "neoverse-n1", "x86_64-znver4": "znver4"}
"""Level -> LLVM's name of its processor, if the two differ."""
LEVEL_CACHE = 32 << 20
"""Bytes of the last cache that a level assumes."""


def _entry(name: str, pointers: int, variables: int) -> str:
    del pointers, variables
    head = f"define void @{name}(i64 %args, i64 %x, i64 %y, i64 %z) #0 {{\nentry:"
    return head + "\n  %block = inttoptr i64 %args to ptr"


def _slot(kind: str, number: int, register: str) -> list[str]:
    address = f"{register}.at"
    return [
        f"  {address} = getelementptr i8, ptr %block, i64 {8 * number}",
        f"  {register} = load {kind}, ptr {address}, align 8",
    ]


DIALECT = Dialect(
    entry=_entry,
    pointer=lambda number, register: _slot("ptr", number, register),
    variable=lambda number, pointers, register: _slot("i64", pointers + number, register),
    group=lambda axis, register, _groups: [f"  {register} = add i64 %{'xyz'[axis]}, 0"],
    thread=lambda _axis, register: [f"  {register} = add i64 0, 0"],
    footer=_FOOTER,
    matrix=matrix.text,
)


X86_DIALECT = replace(
    DIALECT, ordered=("call void @llvm.x86.sse.sfence()", "declare void @llvm.x86.sse.sfence()")
)
"""The dialect of x86-64. Unlike aarch64, it needs a fence to order non-temporal stores."""
WIDE_X86_DIALECT = replace(X86_DIALECT, opaque="v")
"""The dialect of x86-64 with AVX-512."""


@functools.cache
def _last_level_bytes() -> int:
    """Return the size of this machine's last cache before memory; 0 if Linux does not say."""
    sizes = [0]
    for text in Path("/sys/devices/system/cpu/cpu0/cache").glob("index*/size"):
        kibibytes = text.read_text(encoding="ascii").strip().removesuffix("K")
        sizes.append(int(kibibytes) << 10 if kibibytes.isdecimal() else 0)
    return max(sizes)


@functools.cache
def _flags() -> frozenset[str]:
    """Return this machine's instruction sets in /proc/cpuinfo; an emulator may show those of its host."""
    key = "flags" if os.uname().machine == "x86_64" else "Features"
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="ascii", errors="replace")
    except OSError:
        return frozenset()
    for line in text.splitlines():
        name, _, value = line.partition(":")
        if name.strip() == key:
            return frozenset(value.split())
    return frozenset()


def _native_row() -> tuple[int, int, bool]:
    flags = _flags()
    if {"avx512f", "avx512bw", "avx512dq", "avx512vl"} <= flags:
        return LEVELS["x86_64-v4"]
    if {"avx2", "fma", "f16c"} <= flags:
        return LEVELS["x86_64-v3"]
    if os.uname().machine in ("aarch64", "arm64"):
        return LEVELS["aarch64-v8"]
    raise UnsupportedError(
        f"the host compiler needs AVX2, FMA and F16C, or aarch64; this {os.uname().machine} lacks "
        f"{', '.join(sorted({'avx2', 'fma', 'f16c'} - flags))}"
    )


def _matrix(arch: str, vector_bytes: int) -> tuple[MatrixOp, ...]:
    """Return the matrix operations of an architecture with vectors of a size."""
    rows = MATRIX.get(vector_bytes, {})
    if arch in LEVELS:
        return sum(rows.values(), ()) if arch in ("x86_64-znver4", "aarch64-neoverse-n1") else ()
    return sum([ops for name, ops in rows.items() if name in _flags()], ())


def _machine(arch: str) -> llvm.Machine:
    if arch not in LEVELS:
        return llvm.host()
    triple = f"{arch.partition('-')[0]}-unknown-linux-gnu"
    return llvm.Machine(triple, _PROCESSORS.get(arch, arch.replace("_", "-")))


def _emit(ir: str, machine: llvm.Machine, level: int) -> bytes:
    return llvm.emit_object(ir, machine, level=level)


def _dialect(name: str, vector_bytes: int) -> Dialect:
    """Return the dialect of a machine with vectors of a size."""
    if name != "x86_64":
        return DIALECT
    return WIDE_X86_DIALECT if vector_bytes == 64 else X86_DIALECT


def target(arch: str, settings: Config | None = None) -> Target:
    """Return the target of a host architecture.

    Raises `UnsupportedError` if it is neither a level nor this machine's, and if this machine has neither
    AVX2 with FMA and F16C nor aarch64.
    """
    return _target(arch, winograd=(settings or config()).winograd)


@functools.cache
def _target(arch: str, *, winograd: bool) -> Target:
    """Return the target of an architecture under one setting; see `target`."""
    name, dash, _ = arch.partition("-")
    if not dash or (arch not in LEVELS and name != os.uname().machine):
        raise UnsupportedError(
            f"no host target {arch!r}; there are {os.uname().machine}-<digest>, as in DeviceInfo.arch, "
            f"and {', '.join(LEVELS)}"
        )
    vector_bytes, registers, gathers = LEVELS.get(arch) or _native_row()
    cores = len(os.sched_getaffinity(0))
    cache = LEVEL_CACHE if arch in LEVELS else _last_level_bytes()
    return Target(
        arch=arch,
        dialect=_dialect(name, vector_bytes),
        machine=functools.partial(_machine, arch),
        vector_bytes=vector_bytes,
        registers=registers,
        fma_per_cycle=2.0,
        loads_per_cycle=2.0,
        gigahertz=3.5,
        bytes_per_ns=20.0,
        l1_bytes=32 << 10,
        l2_bytes=1 << 20,
        last_level_bytes=cache,
        cores=cores,
        gathers=gathers,
        matrix=_matrix(arch, vector_bytes),
        chains=True,
        winograd=winograd,
        settings=f"cores {cores}, last cache {cache}, winograd {int(winograd)}",
        render=render_llvm,
        emit=_emit,
    )
