"""The barrier of a cluster: a lane arrives, and waits later. It opens when all live lanes of the cluster have arrived.

Lanes that have left the kernel need not arrive. A lane that arrives twice without a wait between, or waits without an
arrival before, is reported.

Not here: barriers of a workgroup (`dispatch`). Next: `emulator.nv.ptx.translate`, the instructions.
"""

# ruff: noqa: E501, PLR0917 - summaries and tables that name their parameters read best on one line

from __future__ import annotations

from typing import TYPE_CHECKING

from emulator.ir.clusters import each_group, each_party
from emulator.ir.findings import emit_report, i32
from emulator.ir.library import helper
from emulator.ir.report import ReportKind
from emulator.ir.state import CLUSTER_BARRIER, GROUP, READY, WAITING, WARP
from emulator.ir.vector import IrValue
from emulator.sanitizers import sanitize

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


def _report(lib: Library, c: CodeBuilder, warp: IrValue, lanes: IrValue, site: IrValue, kind: ReportKind) -> None:
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
