"""What a target declares, as one table row: registers, vector width, memory, costs, dialect, assembler.

Not here: the rows (`host`, `compiler.targets.nvptx.target`). Next: `compiler.kernel.cost`, which reads the
limits.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from compiler.codegen.dialect import Dialect
    from compiler.llvm import Machine


def loader_reads(_code: bytes, _name: str) -> tuple[int, int]:
    """For targets whose images state their memory to the driver alone: no other properties are needed."""
    return 0, 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A target's row: machine facts for the cost model, and how code is made."""

    arch: str
    dialect: Dialect
    machine: Callable[[], Machine]
    """LLVM's description; called only when something is compiled."""
    vector_bytes: int
    """Bytes of the widest vector register; the width of explicit vectors."""
    registers: int
    """Vector registers."""
    fma_per_cycle: float
    loads_per_cycle: float
    gigahertz: float
    bytes_per_ns: float
    """Memory bandwidth of one core."""
    l1_bytes: int
    l2_bytes: int
    cores: int
    gathers: bool
    """Whether gathers and masked stores are instructions; without them they are many."""
    threads: int = 1
    """Threads of a workgroup at most, a power of two; above one, lanes are threads."""
    warp: int = 1
    """Threads that run together and may exchange registers, a power of two."""
    may_abort: bool = False
    """Whether LLVM may end the process on a kernel.

    Such targets compile in workers when there are several.
    """
    settings: str = ""
    """What the plan depends on besides the arch; part of the cache key."""
    emit: Callable[[str, Machine, int], bytes]
    """(IR text, machine, optimisation level) -> the image's code."""
    memory: Callable[[bytes, str], tuple[int, int]] = loader_reads
    """(code, kernel name) -> `KernelImage.shared_bytes` and `scratch_bytes`."""
