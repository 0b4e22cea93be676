"""The barrier of a workgroup in two parts, as gfx12 has it: a warp signals, and waits later.

It opens when all warps that have not ended have signalled. A warp that signals twice without a wait between, or waits
without a signal before, is reported. The barrier does not order the accesses of a warp between its signal and its wait.

Not here: barriers at which a warp arrives and waits at once (`dispatch`). Next: `emulator.amd.isa.translate`, the
instructions.
"""

# ruff: noqa: E501 - summaries and tables that name their parameters read best on one line

from __future__ import annotations

from typing import TYPE_CHECKING

from emulator.ir.clusters import warp_at
from emulator.ir.findings import emit_report, i32
from emulator.ir.library import helper
from emulator.ir.report import ReportKind
from emulator.ir.state import FINISHED, GROUP, READY, SPLIT_BARRIER, THREAD, WAITING, WARP
from emulator.sanitizers import clocks

if TYPE_CHECKING:
    from emulator.ir.library import Library
    from emulator.ir.vector import CodeBuilder, IrValue

_SIGNALLED, _OPENED = 1, 2
"""Values of `WARP.split`: the warp has signalled; the barrier has opened since the signal. 0: neither."""
_ARRIVALS, _BEFORE_OPENING = 0, 1
"""Rows of clocks: of the warps that signalled, and of the signals of the last round. They are the rows of barriers 0 and 1,
which a workgroup with this barrier does not use."""


@helper("emu.split.signal", "ptr, i32")
def signal(lib: Library, c: CodeBuilder, warp: IrValue, site: IrValue) -> None:
    """`emu.split.signal(warp, site)`: count a warp as arrived; report it if it had signalled already."""
    group = WARP.load(c, warp, "group")
    again = c.icmp("ne", WARP.load(c, warp, "split"), 0)
    with c.when(again):
        emit_report(lib, c, warp, ReportKind.BAD_BARRIER, site, i32(0))
    with c.otherwise(again):
        GROUP.store(c, group, "arrivals", 1)
        WARP.store(c, warp, "split", _SIGNALLED)
        clocks.barrier_arrive(lib, c, warp, group, i32(_ARRIVALS))
        c.call(settle(lib), "void", group)


@helper("emu.split.wait", "ptr", core=True)
def wait(lib: Library, c: CodeBuilder, warp: IrValue) -> None:
    """`emu.split.wait(warp)`: continue a warp that waits at the barrier, if it has opened; report it if it has not signalled."""
    state = WARP.load(c, warp, "split")
    with c.when(c.icmp("eq", state, 0)):
        site = WARP.load(c, warp, "barrier_site")
        emit_report(lib, c, warp, ReportKind.BAD_BARRIER, site, i32(0))
    with c.when(c.icmp("eq", state, _OPENED)):
        WARP.store(c, warp, "split", 0)
        WARP.store(c, warp, "status", READY)
        WARP.store(c, warp, "release", 1)
        clocks.warp_released(lib, c, warp, WARP.load(c, warp, "group"), i32(_BEFORE_OPENING))


@helper("emu.split.settle", "ptr", core=True)
def settle(lib: Library, c: CodeBuilder, group: IrValue) -> None:
    """`emu.split.settle(group)`: open the barrier of a workgroup if all warps that have not ended have signalled."""
    thread = GROUP.load(c, group, "thread")
    absent, some = c.slot("i32"), c.slot("i32")
    for slot in (absent, some):
        c.store(i32(0), slot)
    with c.count(THREAD.load(c, thread, "warps")) as number:
        warp = warp_at(c, thread, group, number)
        left = c.icmp("ne", WARP.load(c, warp, "status"), FINISHED)
        arrived = c.icmp("eq", WARP.load(c, warp, "split"), _SIGNALLED)
        away = c.op("and", left, c.not_(arrived))
        for slot, is_one in ((absent, away), (some, arrived)):
            c.store(c.op("or", c.load("i32", slot), c.resize(is_one, 32)), slot)
    full = c.op("and", c.icmp("eq", c.load("i32", absent), 0), c.icmp("ne", c.load("i32", some), 0))
    with c.when(full):
        if lib.checks.shared_races:
            opened = clocks.row_of_group(c, group, _BEFORE_OPENING)
            c.call(clocks.join(lib), "void", group, opened, clocks.row_of_group(c, group, _ARRIVALS))
        with c.count(THREAD.load(c, thread, "warps")) as number:
            warp = warp_at(c, thread, group, number)
            with c.when(c.icmp("eq", WARP.load(c, warp, "split"), _SIGNALLED)):
                WARP.store(c, warp, "split", _OPENED)
                waits = c.icmp("eq", WARP.load(c, warp, "status"), WAITING)
                here = c.icmp("eq", WARP.load(c, warp, "barrier"), SPLIT_BARRIER)
                with c.when(c.op("and", waits, here)):
                    c.call(wait(lib), "void", warp)
