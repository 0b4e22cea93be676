"""The pool of registers of a workgroup: a warp releases registers to it, and another warp can take them (setmaxnreg).

Every warp begins with the registers of the launch, so the pool is empty at first. A warp that wants more registers than the
pool has waits. Registers of a warp that has ended do not return to the pool. If the launch does not know its registers
(`THREAD.registers` 0), no warp waits.

Not here: turns of warps (`dispatch`). Next: `emulator.nv.ptx.translate`, the instruction setmaxnreg.
"""

# ruff: noqa: E501, PLR0917 - summaries and tables that name their parameters read best on one line

from __future__ import annotations

from typing import TYPE_CHECKING

from emulator.ir.clusters import warp_at
from emulator.ir.findings import emit_report, i32
from emulator.ir.library import helper
from emulator.ir.report import ReportKind
from emulator.ir.state import GROUP, READY, REGISTER_POOL, THREAD, WAITING, WARP

if TYPE_CHECKING:
    from emulator.ir.library import Library
    from emulator.ir.vector import CodeBuilder, IrValue


def _wanted(c: CodeBuilder, warp: IrValue) -> IrValue:
    """Return how many more registers a waiting warp wants; 0 if the launch does not know its registers."""
    more = c.op("sub", WARP.load(c, warp, "barrier_count"), WARP.load(c, warp, "registers"))
    known = c.icmp("ne", THREAD.load(c, WARP.load(c, warp, "thread"), "registers"), 0)
    return c.select(known, more, i32(0))


@helper("emu.registers.take", "ptr", core=True)
def take(_lib: Library, c: CodeBuilder, warp: IrValue) -> None:
    """`emu.registers.take(warp)`: continue a warp that waits for registers, if the pool has enough."""
    group, more = WARP.load(c, warp, "group"), _wanted(c, warp)
    free = GROUP.load(c, group, "free")
    with c.when(c.icmp("sle", more, free)):
        GROUP.store(c, group, "free", c.op("sub", free, more))
        WARP.store(c, warp, "registers", WARP.load(c, warp, "barrier_count"))
        WARP.store(c, warp, "status", READY)
        WARP.store(c, warp, "release", 1)


@helper("emu.registers.give", "ptr, i32")
def give(lib: Library, c: CodeBuilder, warp: IrValue, count: IrValue) -> None:
    """`emu.registers.give(warp, count)`: keep `count` registers, release the others, continue warps that wait for them."""
    group, thread = WARP.load(c, warp, "group"), WARP.load(c, warp, "thread")
    known = c.icmp("ne", THREAD.load(c, thread, "registers"), 0)
    less = c.select(known, c.op("sub", WARP.load(c, warp, "registers"), count), i32(0))
    GROUP.store(c, group, "free", c.op("add", GROUP.load(c, group, "free"), less))
    WARP.store(c, warp, "registers", count)
    with c.count(THREAD.load(c, thread, "warps")) as number:
        other = warp_at(c, thread, group, number)
        waits = c.icmp("eq", WARP.load(c, other, "status"), WAITING)
        here = c.icmp("eq", WARP.load(c, other, "barrier"), REGISTER_POOL)
        with c.when(c.op("and", waits, here)):
            c.call(take(lib), "void", other)


@helper("emu.registers.check", "ptr, i32, i32, i1")
def check(lib: Library, c: CodeBuilder, warp: IrValue, count: IrValue, site: IrValue, more: IrValue) -> None:
    """`emu.registers.check(warp, count, site, more)`: report a count below the warp's if `more`, else one above it."""
    now = WARP.load(c, warp, "registers")
    known = c.icmp("ne", THREAD.load(c, WARP.load(c, warp, "thread"), "registers"), 0)
    bad = c.select(more, c.icmp("ult", count, now), c.icmp("ugt", count, now))
    with c.when(c.op("and", known, bad)):
        kind = ReportKind.BAD_REGISTER_COUNT
        emit_report(lib, c, warp, kind, site, i32(0), other=c.resize(now, 64))


def lack(c: CodeBuilder, warp: IrValue) -> IrValue:
    """Return an i64: in the lower half how many more registers a waiting warp wants, in the upper how many its pool has."""
    free = c.resize(GROUP.load(c, WARP.load(c, warp, "group"), "free"), 64)
    return c.op("or", c.op("shl", free, 32), c.resize(_wanted(c, warp), 64))
