"""Basic blocks: what a front end makes of a kernel, and what a translation to a warp function returns.

Not here: cutting a kernel into blocks (`drivers.nv.emu.ptx.blocks`), the function (`warp_function`).
"""

# ruff: noqa: E501 - summaries and tables that name their parameters read best on one line

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from drivers.emu.simt.vector import Value
    from drivers.emu.simt.warp_function import WarpFunction


@dataclass(frozen=True, slots=True)
class Site:
    """An instruction that can be reported: where it is written and how it reads."""

    line: int
    text: str


@dataclass(frozen=True, slots=True)
class Gathering:
    """Lanes that must be together before a block: for each lane a mask of those it waits for, and the instruction that requires it."""

    masks: Callable[[WarpFunction], Value]
    line: int
    text: str


@dataclass(slots=True)
class Block:
    """A basic block: what it reads, writes and leads to, and a function that writes its code, terminator included."""

    emit: Callable[[WarpFunction], None]
    successors: tuple[int, ...]
    uses: frozenset[str]
    defs: frozenset[str]
    sleeps: int | None = None
    """Where lanes continue after the barrier that ends the block, if one does."""
    gathers: Gathering | None = None
    """Lanes wait before the block until those named have come or left the kernel."""


@dataclass(slots=True)
class Translation:
    """One kernel's warp function as IR, and what a launch needs of it."""

    name: str
    text: str
    called: dict[str, str]
    sites: list[Site]
    state_bytes: int
    """Bytes of a warp's state behind `state.warp_registers_at`."""
    blocks: int = 0
    instructions: int = 0
    loops: bool = False
    """Whether a warp's turn may take for ever: it has loops in which it yields to no other warp."""
