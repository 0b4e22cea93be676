"""Write the parts of a chain of kernels for one block of rows, one after the other.

Not here: the blocks and the parts (`plan.phases`). Next: `linearize`, which calls `write` in the innermost
loop, and writes each part.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from compiler.dtype import dtypes
from compiler.emit.linear import POINTER
from compiler.nest.loop_nest import starts_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from compiler.emit.builder import Builder
    from compiler.emit.indexing import Indexer
    from compiler.emit.linear import Line
    from compiler.ir.uop import UOp
    from compiler.nest.loop_nest import LoopNest, Phase

    Places = dict[UOp, Line]
    Buffers = dict[int, tuple[Line, Line]]


def write_once(b: Builder, plan: LoopNest, part: Callable[[Phase, Places, Buffers], None]) -> None:
    """Write the parts that run once in each workgroup, at the cursor; `part` is that of `write`."""
    _run(b, plan, "once", {}, part)


def _run(
    b: Builder, plan: LoopNest, when: str, places: Places, part: Callable[[Phase, Places, Buffers], None]
) -> None:
    """Write the parts whose `Phase.when` is `when`, one after the other, at the cursor."""
    memory = {
        k.slot: b.line("scratch", POINTER, 1, (), (k.dtype, k.count, "kept", k.slot)) for k in plan.kept
    }
    for phase in plan.phases:
        if phase.when == when:
            cursor = b.cursor
            token = b.line("token", dtypes.bool, 1)
            part(phase, places, {slot: (pointer, token) for slot, pointer in memory.items()})
            b.cursor = cursor


def write(b: Builder, plan: LoopNest, index: Indexer, part: Callable[[Phase, Places, Buffers], None]) -> None:
    """Write all parts for the current block, one after the other.

    `part(phase, places, buffers)` writes one of them. `places` are the registers of the block's variables.
    `buffers` are, for each slot of a matrix in scratch memory, its address and the token of its loads.
    """
    b.cursor.floor = b.cursor  # nothing is loaded before the parts that store it
    ranges = [axis.range for axis in plan.axes]
    starts = starts_of(ranges, plan.axes[-1].block)
    places = {starts[r]: index.materialised(index.starts[r]) for r in ranges}

    def run(when: str) -> None:
        _run(b, plan, when, places, part)

    run("before")
    if plan.pieces is not None:
        start, size, count = plan.pieces
        loop = b.enter_loop(b.index(0), b.index(count), 1, b.cursor)
        loop.body.floor = loop.body
        places[start] = b.mul(loop.index, size)
        run("each")
        b.leave_loop(loop, [])
        run("after")
