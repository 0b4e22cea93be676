"""The type of a target: registers, vector width, memory, costs, dialect and assembler.

Not here: the targets (`targets.host.target`, `compiler.targets.nvptx.target`). Next: `compiler.plan.cost`,
which reads the limits.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from compiler.llvm import Machine
    from compiler.targets.shared.dialect import Dialect
    from compiler.targets.shared.matrix import MatrixOp


def unknown_memory(_code: bytes, _name: str) -> tuple[int, int]:
    """Return (0, 0), for targets whose loader reads the memory sizes from the image."""
    return 0, 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A target: machine properties for the cost model, and functions that make code."""

    arch: str
    dialect: Dialect
    machine: Callable[[], Machine]
    """Returns LLVM's description of the machine; called only to compile."""
    vector_bytes: int
    """Bytes of the widest vector register, the width of explicit vectors."""
    registers: int
    """Number of vector registers."""
    fma_per_cycle: float
    loads_per_cycle: float
    gigahertz: float
    bytes_per_ns: float
    """Memory bandwidth of one core in bytes per nanosecond."""
    l1_bytes: int
    l2_bytes: int
    cores: int
    last_level_bytes: int = 0
    """Bytes of the last cache before memory; stores of larger results bypass the caches. 0 where none can.

    With it, buffers that start at multiples of a line, as `hcq` allocates them, are stored to faster.
    """
    gathers: bool
    """Whether gathers and masked stores are single instructions."""
    threads: int = 1
    """The largest number of threads of a workgroup, a power of two. Above 1, threads replace vector lanes."""
    warp: int = 1
    """Threads of a warp, which can exchange registers; a power of two."""
    shared_bytes: int = 0
    """Bytes of shared memory that a workgroup may use without asking the driver."""
    dynamic_shared_bytes: int = 0
    """Bytes of shared memory that a workgroup may have if the launch says how many; 0 where it cannot."""
    thread_registers: int = 0
    """32-bit registers that a thread may use without spilling."""
    matrix: tuple[MatrixOp, ...] = ()
    """Matrix operations, the preferred ones of a type first."""
    line_bytes: int = 0
    """Bytes of global memory that a request moves at least, aligned: a sector or a line."""
    async_bytes: int = 0
    """Bytes of one asynchronous copy of a thread to shared memory; 0 without such copies."""
    chains: bool = False
    """Whether there are plans for chains of kernels."""
    winograd: bool = False
    """Whether convolutions may have plans of Winograd's algorithm."""
    may_abort: bool = False
    """Whether LLVM may end the process on a kernel; several kernels of such targets are compiled in
    workers."""
    settings: str = ""
    """Inputs of the plan besides the architecture, as text; part of the cache key."""
    emit: Callable[[str, Machine, int], bytes]
    """(IR text, machine, optimisation level) -> the image's code."""
    memory: Callable[[bytes, str], tuple[int, int]] = unknown_memory
    """(code, kernel name) -> `KernelImage.shared_bytes` and `scratch_bytes`."""
