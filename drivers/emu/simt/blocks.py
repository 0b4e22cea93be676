"""Basic blocks, the output of a front end, and the result of translating them to a warp function.

Not here: splitting a kernel into blocks (`drivers.nv.emu.ptx.blocks`), the function (`warp_function`).
"""

# ruff: noqa: E501 - summaries and tables that name their parameters read best on one line

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from drivers.emu.simt.counting import Counted
    from drivers.emu.simt.vector import Value
    from drivers.emu.simt.warp_function import WarpFunction


@dataclass(frozen=True, slots=True)
class Site:
    """An instruction for reports: its line (or byte offset) and its text."""

    line: int
    text: str


@dataclass(frozen=True, slots=True)
class Convergence:
    """A point at which lanes must converge before a block: the mask that each lane waits for, and the instruction."""

    masks: Callable[[WarpFunction], Value]
    line: int
    text: str


@dataclass(slots=True)
class Block:
    """A basic block: the registers that it reads and writes, its successors, and `emit`, which writes its code and terminator."""

    emit: Callable[[WarpFunction], None]
    successors: tuple[int, ...]
    uses: frozenset[str]
    defs: frozenset[str]
    sleeps: int | None = None
    """The block at which lanes continue after the barrier that ends this block; None if no barrier does."""
    polls: bool = False
    """Whether it does nothing but test barriers in memory, and compute."""
    convergence: Convergence | None = None
    """Lanes wait before the block until the lanes named here have arrived or left the kernel; None: they do not wait."""


@dataclass(slots=True)
class Translation:
    """The warp function of one kernel as IR text, with the data that a launch needs."""

    name: str
    text: str
    called: dict[str, str]
    sites: list[Site]
    state_bytes: int
    """Bytes of a warp's state from `state.warp_registers_at` on."""
    blocks: int = 0
    instructions: int = 0
    loops: bool = False
    """Whether a warp's turn may not end: the kernel has loops in which a warp does not yield."""
    counted: Counted | None = None
    """The slots of its counters; None if it does not count."""
