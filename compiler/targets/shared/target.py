"""The type of a target: registers, vector width, memory, costs, dialect and assembler.

Not here: the targets (`compiler.targets.host.target`, `compiler.targets.nvptx.target`,
`compiler.targets.amdgcn.target`). Next: `compiler.plan.cost`, which reads the figures.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from compiler.targets.shared.matrix import check_rows

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
    """Returns LLVM's description of the machine; it is called only to compile. May raise
    `UnsupportedError`."""
    vector_bytes: int
    """Bytes of the widest vector register, the width of explicit vectors."""
    registers: int
    """Number of vector registers."""
    fma_per_cycle: float
    """Fused multiply-adds of vector registers that a core starts in a cycle."""
    loads_per_cycle: float
    """Loads of vector registers that a core starts in a cycle."""
    gigahertz: float
    bytes_per_ns: float
    """Memory bandwidth of one core in bytes per nanosecond."""
    l1_bytes: int
    l2_bytes: int
    cores: int
    last_level_bytes: int = 0
    """Bytes of the last cache before memory. Stores of larger results bypass the caches, if the buffer starts
    at a multiple of the store's size. 0 on a target without such stores."""
    gathers: bool
    """Whether gathers and masked stores are single instructions."""
    threads: int = 1
    """The largest number of threads of a workgroup, a power of two. Above 1, threads replace vector lanes."""
    warp: int = 1
    """Threads of a warp, which can exchange registers; a power of two."""
    shared_bytes: int = 0
    """The most bytes of static shared memory of a workgroup."""
    dynamic_shared_bytes: int = 0
    """The most bytes of shared memory of a workgroup if the launch states the number; 0 if it cannot."""
    thread_registers: int = 0
    """32-bit registers that a thread may use without spilling."""
    matrix: tuple[MatrixOp, ...] = ()
    """Matrix operations; among those of a type, the preferred ones first."""
    line_bytes: int = 0
    """The fewest bytes of global memory that an access moves, aligned: a sector or a line."""
    async_bytes: int = 0
    """Bytes of one asynchronous copy of a thread to shared memory; 0 on a target without such copies."""
    chains: bool = False
    """Whether there are plans for chains of kernels."""
    winograd: bool = False
    """Whether convolutions may have plans of Winograd's algorithm."""
    may_abort: bool = False
    """Whether LLVM may end the process on a kernel. Several kernels of such a target are compiled in
    workers."""
    settings: str = ""
    """Inputs of the plan besides the architecture, as text; part of the cache key."""
    render: Callable[..., str]
    """Returns the text that `emit` takes, with the arguments of `compiler.text.render_llvm`."""
    emit: Callable[[str, Machine, int], bytes]
    """(text of `render`, machine, optimisation level) -> the image's code."""
    memory: Callable[[bytes, str], tuple[int, int]] = unknown_memory
    """(code, kernel name) -> `KernelImage.shared_bytes` and `scratch_bytes`."""

    def __post_init__(self) -> None:
        """Raise `CompileError` for a matrix operation that `check_rows` refuses."""
        check_rows(self.matrix, self.warp, self.async_bytes)
