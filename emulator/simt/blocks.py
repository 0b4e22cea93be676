"""Basic blocks, the output of a front end, and the layout of a warp's function made of them.

The layout is the order of the blocks, and the frame of a suspended warp.

Not here: splitting a kernel into blocks (`emulator.nv.ptx.blocks`), the algorithm of the order (`schedule`), the
function (`warp_function`).
"""

# ruff: noqa: E501 - summaries and tables that name their parameters read best on one line

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from emulator.ir.state import warp_registers_at
from emulator.simt import schedule

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from emulator.ir.vector import IrValue
    from emulator.simt.counting import Counted
    from emulator.simt.warp_function import WarpFunction


@dataclass(frozen=True, slots=True)
class InstructionSite:
    """An instruction for reports: its line (or byte offset) and its text."""

    line: int
    text: str


@dataclass(frozen=True, slots=True)
class Convergence:
    """A point at which lanes must converge before a block: the mask that each lane waits for, and the instruction."""

    masks: Callable[[WarpFunction], IrValue]
    line: int
    text: str


@dataclass(slots=True)
class WarpBlock:
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
    sites: list[InstructionSite]
    state_bytes: int
    """Bytes of a warp's state from `state.warp_registers_at` on."""
    blocks: int = 0
    instructions: int = 0
    loops: bool = False
    """Whether a warp's turn may not end: the kernel has loops in which a warp does not yield."""
    counted: Counted | None = None
    """The slots of its counters; None if it does not count."""


@dataclass(frozen=True, slots=True)
class BlockPlace:
    """A block with its position in the chosen order."""

    index: int
    node: schedule.FlowNode
    block: WarpBlock


@dataclass(frozen=True, slots=True, kw_only=True)
class WarpLayout:
    """The order of blocks, and the offsets of the kernel's part of a warp's state, in bytes."""

    places: list[BlockPlace]
    index: dict[int, int]
    """Number of a block -> its position."""
    converging: list[BlockPlace]
    """Blocks before which lanes wait for other lanes of their warp."""
    unmasked: set[tuple[int, str]]
    """(position, register) of writes that need not preserve the values of other lanes."""
    across: frozenset[str]
    """Registers that are live between blocks."""
    polling: frozenset[int]
    """Positions of blocks in loops that only a successful test of a barrier in memory ends."""
    sleepers: list[int]
    """Positions of blocks at which lanes continue after a barrier."""
    saved: dict[str, int]
    """Register -> offset at which it is saved while the warp is suspended."""
    pending_at: int
    sleeping_at: int
    reserved_at: int
    state_bytes: int


def lay_out(
    blocks: Sequence[WarpBlock], registers: Mapping[str, int], lanes: int, *, spins: bool, reserve: int
) -> WarpLayout:
    """Order the blocks; allocate state for pending masks, registers and `reserve` bytes."""
    nodes = [schedule.FlowNode(b.successors, b.uses, b.defs) for b in blocks]
    chosen = schedule.order(nodes)
    schedule.liveness(nodes, chosen)
    places = [BlockPlace(i, nodes[n], blocks[n]) for i, n in enumerate(chosen)]
    index = {n: i for i, n in enumerate(chosen)}
    across: frozenset[str] = frozenset().union(*(p.node.live_in for p in places))
    resumes = {index[p.block.sleeps] for p in places if p.block.sleeps is not None}
    kept = across if spins else frozenset().union(*(places[i].node.live_in for i in resumes))
    pending_at, step = warp_registers_at(lanes), lanes // 8
    at = -(-(pending_at + 2 * len(places) * step) // 64) * 64
    saved: dict[str, int] = {}
    for register in sorted(kept):
        saved[register] = at
        at += -(-max(registers[register], 8) * lanes // 8 // 64) * 64
    return WarpLayout(
        places=places,
        index=index,
        converging=[p for p in places if p.block.convergence is not None],
        unmasked=set() if resumes or spins else _single_definitions(places),
        across=across,
        polling=_polling(places, index),
        sleepers=sorted(resumes),
        saved=saved,
        pending_at=pending_at,
        sleeping_at=pending_at + len(places) * step,
        reserved_at=at,
        state_bytes=at + reserve - pending_at,
    )


def _polling(places: list[BlockPlace], index: dict[int, int]) -> frozenset[int]:
    """Return the blocks of loops of which every iteration is the same until a test succeeds.

    They only test and compute, and no iteration changes what the next one reads.
    """
    found: set[int] = set()
    for place in places:
        for target in (index[number] for number in place.node.successors):
            loop = places[target : place.index + 1]
            if not loop or not all(one.block.polls for one in loop):
                continue
            changed = frozenset().union(*(one.node.defs for one in loop))
            if not changed & places[target].node.live_in:
                found.update(one.index for one in loop)
    return frozenset(found)


def _single_definitions(places: list[BlockPlace]) -> set[tuple[int, str]]:
    writers: dict[str, list[BlockPlace]] = {}
    for place in places:
        for register in place.node.defs:
            writers.setdefault(register, []).append(place)
    return {(p[0].index, r) for r, p in writers.items() if len(p) == 1 and not p[0].node.in_loop}
