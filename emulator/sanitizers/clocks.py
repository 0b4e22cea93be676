"""Vector clocks of the warps of a cluster, one row for each warp, and the shadow memory that holds them.

A row has two halves with one u32 for each warp of the cluster. The first half is the vector clock of the row's owner: up to
which clock of each warp the owner is ordered after that warp. The second half is about proxy fences: up to which clock each
warp's writes are fenced for the asynchronous proxy, by fences that the owner is ordered after. Joins take both halves.

The rows of the warps come first. For each workgroup, rows of its barriers and one of its releases follow, then the rows of
the cluster. A workgroup without a cluster is a cluster of one. The clocks lie in the shadow of the cluster's first workgroup.
In each workgroup's shadow, the cells of its shared memory (`shadow_shared`), one for each byte, follow the space of the clocks.

Not here: comparisons of clocks (`shadow_shared`). Next: `sanitize`, which joins clocks at barriers.
"""

# ruff: noqa: E501 - helpers mirror the functions they write, argument for argument

from __future__ import annotations

from typing import TYPE_CHECKING

from emulator.ir.library import helper
from emulator.ir.state import BARRIERS, GROUP, THREAD, WARP

if TYPE_CHECKING:
    from emulator.ir.library import Library
    from emulator.ir.vector import CodeBuilder, IrValue

FENCES = BARRIERS
"""The row that a workgroup's releases join, counted from the first row of its barriers."""
_GROUP_ROWS = BARRIERS + 1
CLUSTER_FENCES, CLUSTER_ARRIVALS, CLUSTER_OPENED = 0, 1, 2
"""Rows of a cluster: of its releases, of arrivals at its barrier, and of the arrivals that opened the barrier last."""
_CLUSTER_ROWS = 3
CELL = 32
"""Bytes of the shadow cell of a byte of shared memory: the stamps of a writer and two readers, the instructions of the stamps,
and the last plain write."""
PLAIN_PLACE, PLAIN = 12, 28
"""Offsets of the instruction and the stamp of the last write that was not strong. The top bit of the instruction's word is set if
the asynchronous proxy wrote last."""
PLACES = 16
"""Offset of the instruction words in a cell, in the order of the stamps."""
PARTY_SHIFT = 22
"""The lowest bit, in a stamp, of a warp's number in its cluster, from 1; 16 workgroups of 32 warps fit."""
STRONG_CLOCK = 1 << 21
"""The bit of a stamp that is set if the access was strong, or may be atomic."""
CLOCK = STRONG_CLOCK - 1
"""The bits of a stamp's clock."""
IN_FLIGHT = CLOCK
"""The clock of bytes that a copy in flight will write; no warp's clock covers it."""
READ_AHEAD = 64
"""How far the clock of a read of the asynchronous proxy is ahead of its warp's clock. It must exceed the barriers that the warp
passes before it waits for the read."""
COPY, LANDED = 8, 16
"""Access kinds in addition to READ, WRITE and ATOMIC: an asynchronous copy begins (COPY); it was waited for (LANDED)."""


def clocks_bytes(warps: int, groups: int) -> int:
    """Return the size in bytes of the clocks of a cluster of `groups` workgroups, a multiple of 8."""
    parties = warps * groups
    return 8 * parties * (parties + _GROUP_ROWS * groups + _CLUSTER_ROWS)


def parties_of(c: CodeBuilder, group: IrValue) -> IrValue:
    """Return the number of warps of a workgroup's cluster, as i32."""
    return THREAD.load(c, GROUP.load(c, group, "thread"), "parties")


def row_of_group(c: CodeBuilder, group: IrValue, which: IrValue | int) -> IrValue:
    """Return the number of a row of a workgroup; `which` is the number of a barrier, or FENCES."""
    own = c.op("mul", GROUP.load(c, group, "rank"), _GROUP_ROWS)
    return c.op("add", c.op("add", parties_of(c, group), own), which)


def row_of_cluster(c: CodeBuilder, group: IrValue, which: int) -> IrValue:
    """Return the number of a row of a workgroup's cluster; `which` is one of the `CLUSTER_*`."""
    groups = THREAD.load(c, GROUP.load(c, group, "thread"), "cluster")
    return c.op("add", c.op("add", parties_of(c, group), c.op("mul", groups, _GROUP_ROWS)), which)


def clock(c: CodeBuilder, group: IrValue, row: IrValue, column: IrValue) -> IrValue:
    """Return the address of a component of a clock. The row and column of a warp are its number in the cluster."""
    at = c.op("add", c.op("mul", row, c.op("shl", parties_of(c, group), 1)), column)
    return c.gep(GROUP.load(c, group, "clocks"), c.op("shl", c.resize(at, 64), 2))


def fenced(c: CodeBuilder, group: IrValue, row: IrValue, column: IrValue) -> IrValue:
    """Return the address of the clock up to which warp `column`'s writes are fenced for the asynchronous proxy."""
    return clock(c, group, row, c.op("add", column, parties_of(c, group)))


def cells(c: CodeBuilder, group: IrValue) -> IrValue:
    """Return the address of the first cell of a workgroup's shared memory."""
    rows = c.op("add", row_of_cluster(c, group, 0), _CLUSTER_ROWS)
    size = c.op("shl", c.op("mul", parties_of(c, group), rows), 3)
    return c.gep(GROUP.load(c, group, "shadow"), c.resize(size, 64))


@helper("emu.join", "ptr, i32, i32", core=True)
def join(_lib: Library, c: CodeBuilder, group: IrValue, to: IrValue, source: IrValue) -> None:
    """`emu.join(group, to, source)`: set each component of row `to` to the maximum of both rows."""
    with c.count(c.op("shl", parties_of(c, group), 1)) as column:
        here, there = clock(c, group, to, column), clock(c, group, source, column)
        c.store(c.intrinsic("umax", c.load("i32", here), c.load("i32", there)), here)


def tick(c: CodeBuilder, group: IrValue, party: IrValue, step: IrValue | None = None) -> None:
    """Advance a warp's own component of its clock by `step`, 1 if None. It stops at its largest value: later races are missed."""
    at = clock(c, group, party, party)
    after = c.op("add", c.load("i32", at), step or c.const("i32", 1))
    c.store(c.intrinsic("umin", after, c.const("i32", IN_FLIGHT - 1)), at)


@helper("emu.proxy_fence", "ptr")
def proxy_fence(_lib: Library, c: CodeBuilder, warp: IrValue) -> None:
    """`emu.proxy_fence(warp)`: all writes that the warp is ordered after become fenced for the asynchronous proxy."""
    group, party = WARP.load(c, warp, "group"), WARP.load(c, warp, "party")
    with c.count(parties_of(c, group)) as column:
        here, there = fenced(c, group, party, column), clock(c, group, party, column)
        c.store(c.intrinsic("umax", c.load("i32", here), c.load("i32", there)), here)
    tick(c, group, party)


def barrier_arrive(lib: Library, c: CodeBuilder, warp: IrValue, group: IrValue, number: IrValue) -> None:
    """Append code for a warp that arrives at a barrier: join its clock to the barrier's."""
    if not lib.checks.shared_races:
        return
    party = WARP.load(c, warp, "party")
    c.call(join(lib), "void", group, row_of_group(c, group, number), party)
    WARP.store(c, warp, "synced", c.load("i32", clock(c, group, party, party)))
    tick(c, group, party)


def warp_released(lib: Library, c: CodeBuilder, warp: IrValue, group: IrValue, number: IrValue) -> None:
    """Append code for a warp that leaves a barrier: join the barrier's clock to its own."""
    if lib.checks.shared_races:
        c.call(join(lib), "void", group, WARP.load(c, warp, "party"), row_of_group(c, group, number))
