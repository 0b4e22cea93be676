"""Basic blocks, the output of a front end, and the layout of the warp function that is made of them.

The layout is the order of the blocks, and the offsets at which a suspended warp saves its registers and masks.

Not here: splitting a kernel into blocks (`emulator.nv.ptx.blocks`), the algorithm of the order (`schedule`). Next:
`warp_function`, which writes the function.
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
    """A point at which lanes must converge before a block."""

    masks: Callable[[WarpFunction], IrValue]
    """Returns for each lane the mask of lanes that it waits for, as i32."""
    line: int
    """The line of the instruction that needs convergence, for reports."""
    text: str


@dataclass(slots=True)
class WarpBlock:
    """A basic block of a kernel; blocks are numbered from 0, the entry."""

    emit: Callable[[WarpFunction], None]
    """Writes its code and its terminator."""
    successors: tuple[int, ...]
    uses: frozenset[str]
    """Registers that it reads before it has written them in all lanes."""
    defs: frozenset[str]
    """Registers that it writes in all lanes."""
    sleeps: int | None = None
    """The block at which lanes continue after the barrier that ends this block; None if no barrier does."""
    polls: bool = False
    """Whether it only tests barriers in memory and computes."""
    convergence: Convergence | None = None
    """Lanes wait before the block until the lanes that this names have arrived or left the kernel. None: they do not wait."""


@dataclass(slots=True)
class Translation:
    """The warp function of one kernel as IR text, with the data that a launch needs."""

    name: str
    """The kernel's name; the function is `warp.NAME`."""
    text: str
    called: dict[str, str]
    """Name of a function that it calls -> the declaration."""
    sites: list[InstructionSite]
    """The instructions that reports can name, by number."""
    state_bytes: int
    """Bytes of a warp's state from `state.warp_registers_at` on."""
    blocks: int = 0
    """The number of basic blocks."""
    instructions: int = 0
    """The number of `sites`."""
    loops: bool = False
    """Whether the kernel has loops in which a warp never yields, so that its turn may not end."""
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
    """The order of blocks, and the offsets in bytes of the kernel's data in a warp's state."""

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
    """Offset of the pending mask of the first block; the masks of the others follow."""
    sleeping_at: int
    """Offset of the masks of lanes that continue at each block after their barrier opens."""
    reserved_at: int
    """Offset of the memory that belongs to the front end."""
    state_bytes: int
    """Bytes of all of these, from `pending_at` on."""


def lay_out(
    blocks: Sequence[WarpBlock], registers: Mapping[str, int], lanes: int, *, spins: bool, reserve: int
) -> WarpLayout:
    """Order the blocks; allocate state for pending masks, registers and `reserve` bytes of the front end.

    `registers` maps each register to its width in bits. `spins`: some loop may wait for other threads, so the warp may be
    suspended at any backward branch.
    """
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
    """Return the positions of blocks in loops whose iterations are all equal until a test of a barrier succeeds.

    The blocks only test and compute, and no iteration writes a register that the next one reads.
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
