"""Barriers in two parts: of a cluster, and of a workgroup as gfx12 has it.

A lane arrives at the barrier of a cluster, and waits later. It opens when all live lanes of the cluster have arrived.
Lanes that have left the kernel need not arrive. A lane that arrives twice without a wait between, or waits without an
arrival before, is reported.

A warp signals the split barrier of a workgroup, and waits later. It opens when all warps that have not ended have signalled.
A warp that signals twice without a wait between, or waits without a signal before, is reported. The barrier does not order
the accesses of a warp between its signal and its wait.

Not here: barriers at which a warp arrives and waits at once (`dispatch`). Next: `emulator.nv.ptx.translate` and
`emulator.amd.isa.translate`, the instructions.
"""

# ruff: noqa: E501, PLR0917 - summaries and tables that name their parameters read best on one line

from __future__ import annotations

from typing import TYPE_CHECKING

from emulator.ir.clusters import each_group, each_party, warp_at
from emulator.ir.findings import emit_report, i32
from emulator.ir.library import helper
from emulator.ir.report import ReportKind
from emulator.ir.state import CLUSTER_BARRIER, FINISHED, GROUP, READY, SPLIT_BARRIER, THREAD, WAITING, WARP
from emulator.ir.vector import IrValue
from emulator.sanitizers import clocks, sanitize

if TYPE_CHECKING:
    from emulator.ir.library import Library
    from emulator.ir.vector import CodeBuilder


def arrive(lib: Library, *, releases: bool) -> str:
    """`emu.cluster.arrive[.relaxed](warp, lanes, site)`: count lanes as arrived; report lanes that had arrived already.

    `releases`: the arrival is a release; the name then has no suffix.
    """

    def body(c: CodeBuilder, warp: IrValue, lanes: IrValue, site: IrValue) -> None:
        wide, before = c.resize(lanes, 64), WARP.load(c, warp, "arrived")
        again = c.op("and", wide, c.op("or", before, WARP.load(c, warp, "passed")))
        _report(lib, c, warp, again, site, ReportKind.CLUSTER_ARRIVED_TWICE)
        if releases:
            sanitize.arrived_at_cluster(lib, c, warp)
        WARP.store(c, warp, "arrived", c.op("or", before, wide))
        c.call(settle(lib), "void", WARP.load(c, warp, "group"))

    name = f"emu.cluster.arrive{'' if releases else '.relaxed'}"
    return lib.define(name, "void", "ptr, mask, i32", body)


@helper("emu.cluster.check", "ptr, mask, i32")
def check(lib: Library, c: CodeBuilder, warp: IrValue, lanes: IrValue, site: IrValue) -> None:
    """`emu.cluster.check(warp, lanes, site)`: report lanes that are about to wait and have not arrived."""
    here = c.op("or", WARP.load(c, warp, "arrived"), WARP.load(c, warp, "passed"))
    absent = c.op("and", c.resize(lanes, 64), c.not_(here))
    _report(lib, c, warp, absent, site, ReportKind.CLUSTER_NOT_ARRIVED)


def _report(
    lib: Library, c: CodeBuilder, warp: IrValue, lanes: IrValue, site: IrValue, kind: ReportKind
) -> None:
    with c.when(c.icmp("ne", lanes, 0)):
        lane = c.call("llvm.cttz.i64", "i64", lanes, IrValue("i1", "true"))
        emit_report(lib, c, warp, kind, site, c.resize(lane, 32))


@helper("emu.cluster.wait", "ptr", core=True)
def wait(lib: Library, c: CodeBuilder, warp: IrValue) -> None:
    """`emu.cluster.wait(warp)`: continue a warp that waits at the barrier, if it has opened for all its blocked lanes."""
    blocked, passed = WARP.load(c, warp, "blocked"), WARP.load(c, warp, "passed")
    with c.when(c.icmp("eq", c.op("and", blocked, c.not_(passed)), 0)):
        WARP.store(c, warp, "passed", c.op("and", passed, c.not_(blocked)))
        WARP.store(c, warp, "status", READY)
        WARP.store(c, warp, "release", 1)
        sanitize.waited_for_cluster(lib, c, warp)


@helper("emu.cluster.settle", "ptr", core=True)
def settle(lib: Library, c: CodeBuilder, group: IrValue) -> None:
    """`emu.cluster.settle(group)`: open the barrier of a cluster if all live lanes have arrived, and any has."""
    absent, some = c.slot("i64"), c.slot("i64")
    for slot in (absent, some):
        c.store(c.const("i64", 0), slot)
    with each_party(c, group) as warp:
        arrived = WARP.load(c, warp, "arrived")
        away = c.op("and", WARP.load(c, warp, "live"), c.not_(arrived))
        for slot, lanes in ((absent, away), (some, arrived)):
            c.store(c.op("or", c.load("i64", slot), lanes), slot)
    full = c.op("and", c.icmp("eq", c.load("i64", absent), 0), c.icmp("ne", c.load("i64", some), 0))
    with c.when(full):
        sanitize.cluster_opened(lib, c, group)
        with each_group(c, group) as one:
            GROUP.store(c, one, "met", 1)
        with each_party(c, group) as warp:
            passed = c.op("or", WARP.load(c, warp, "passed"), WARP.load(c, warp, "arrived"))
            WARP.store(c, warp, "passed", passed)
            WARP.store(c, warp, "arrived", 0)
            waits = c.icmp("eq", WARP.load(c, warp, "status"), WAITING)
            here = c.icmp("eq", WARP.load(c, warp, "barrier"), CLUSTER_BARRIER)
            with c.when(c.op("and", waits, here)):
                c.call(wait(lib), "void", warp)


@helper("emu.cluster.missing", "ptr", result="i32", core=True)
def missing(_lib: Library, c: CodeBuilder, group: IrValue) -> None:
    """`emu.cluster.missing(group) -> party`: 1 + the number of the first warp of a cluster with live lanes that have not arrived; 0 if none."""
    found = c.slot("i32")
    c.store(i32(0), found)
    with each_party(c, group) as warp:
        away = c.op("and", WARP.load(c, warp, "live"), c.not_(WARP.load(c, warp, "arrived")))
        first = c.icmp("eq", c.load("i32", found), 0)
        with c.when(c.op("and", first, c.icmp("ne", away, 0))):
            c.store(c.op("add", WARP.load(c, warp, "party"), 1), found)
    c.ret(c.load("i32", found))


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
        c.call(settle_split(lib), "void", group)


@helper("emu.split.wait", "ptr", core=True)
def wait_split(lib: Library, c: CodeBuilder, warp: IrValue) -> None:
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
def settle_split(lib: Library, c: CodeBuilder, group: IrValue) -> None:
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
                    c.call(wait_split(lib), "void", warp)
