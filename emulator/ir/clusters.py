"""Clusters of workgroups: addresses of their records, and addresses in the shared memory of another workgroup.

The workgroups of a cluster are resident together, in the slots of one unit in order of their ranks, and one host thread
runs them. An address of a cluster's shared memory has 1 + the workgroup's rank in its upper 8 bits, and the offset in the
lower 24. With upper bits 0 it is an offset in the own workgroup's memory. In a cluster of one all addresses are such offsets.

Not here: the turns of warps (`emulator.simt.dispatch`), the barrier of a cluster
(`emulator.simt.cluster_barrier`). Next: `state`, the records.
"""

# ruff: noqa: E501 - summaries and tables that name their parameters read best on one line

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from emulator.ir.library import helper
from emulator.ir.state import GROUP, THREAD
from emulator.ir.vector import IrValue

if TYPE_CHECKING:
    from collections.abc import Iterator

    from emulator.ir.library import Library
    from emulator.ir.vector import CodeBuilder

RANK_SHIFT = 24
"""The lowest bit of the rank in an address of the shared memory of a cluster."""
OFFSET = (1 << RANK_SHIFT) - 1
MOST_GROUPS = 16
"""The most workgroups of a cluster. More than 8 need a GPU and a kernel that allow them."""


def group_of_rank(c: CodeBuilder, group: IrValue, rank: IrValue) -> IrValue:
    """Return the address of the GROUP record of a rank in the cluster of the workgroup `group`."""
    step = c.resize(THREAD.load(c, GROUP.load(c, group, "thread"), "slot_bytes"), 64)
    far = c.op("sub", c.resize(rank, 64), c.resize(GROUP.load(c, group, "rank"), 64))
    return c.gep(group, c.op("mul", far, step))


@helper("emu.peer", "ptr, i32", result="ptr", core=True)
def peer(_lib: Library, c: CodeBuilder, group: IrValue, address: IrValue) -> None:
    """`emu.peer(group, address) -> group`: the workgroup that has the shared memory of an address of the cluster; null if none has."""
    upper = c.op("lshr", address, RANK_SHIFT)
    own = c.icmp("eq", upper, 0)
    rank = c.select(own, GROUP.load(c, group, "rank"), c.op("sub", upper, 1))
    size = THREAD.load(c, GROUP.load(c, group, "thread"), "cluster")
    there = c.op("or", own, c.op("and", c.icmp("ult", rank, size), c.icmp("ne", size, 1)))
    c.ret(c.select(there, group_of_rank(c, group, rank), IrValue("ptr", "null")))


def address_in(c: CodeBuilder, group: IrValue, rank: IrValue, offset: IrValue) -> IrValue:
    """Return the cluster address, an i32, of an offset in the shared memory of the workgroup of a rank."""
    alone = c.icmp("eq", THREAD.load(c, GROUP.load(c, group, "thread"), "cluster"), 1)
    ranked = c.op("shl", c.op("add", rank, 1), RANK_SHIFT)
    upper = c.select(c.op("and", alone, c.icmp("eq", rank, 0)), c.const(rank.type, 0), ranked)
    return c.op("or", upper, c.op("and", offset, OFFSET))


def absolute(c: CodeBuilder, group: IrValue, address: IrValue) -> IrValue:
    """Return a cluster address, an i32, with its rank in the upper bits, so that it is valid in all workgroups of the cluster."""
    own = c.icmp("eq", c.op("lshr", address, RANK_SHIFT), 0)
    return c.select(own, address_in(c, group, GROUP.load(c, group, "rank"), address), address)


def warp_at(c: CodeBuilder, thread: IrValue, group: IrValue, number: IrValue) -> IrValue:
    """Return the address of the WARP record of warp `number` of a workgroup."""
    step, first = (
        c.resize(THREAD.load(c, thread, "warp_bytes"), 64),
        c.resize(THREAD.load(c, thread, "warps_at"), 64),
    )
    return c.gep(group, c.op("add", c.op("mul", c.resize(number, 64), step), first))


@contextmanager
def each_group(c: CodeBuilder, group: IrValue) -> Iterator[IrValue]:
    """Loop over the workgroups of a cluster, given one of them."""
    with c.count(THREAD.load(c, GROUP.load(c, group, "thread"), "cluster")) as rank:
        yield group_of_rank(c, group, rank)


@contextmanager
def each_party(c: CodeBuilder, group: IrValue) -> Iterator[IrValue]:
    """Loop over the warps of a cluster, in order of their numbers, given one of its workgroups."""
    thread = GROUP.load(c, group, "thread")
    with each_group(c, group) as one, c.count(THREAD.load(c, thread, "warps")) as number:
        yield warp_at(c, thread, one, number)
