"""The scheduler of warps and workgroups, in generated code: `emu.run(thread)` runs workgroups in turn.

A workgroup of a launch without clusters is a cluster of one. A host thread has one resident cluster at a time, and starts
another only if all its resident clusters spin (on a grid barrier or a lock), up to `THREAD.slot_limit`. Within a cluster,
warps take turns until each waits at a barrier, spins or has ended. After `_MOST_TURNS` turns in a row of one cluster, the
others run: its warps may be polling together between barriers. If all warps of a cluster wait, no barrier can open, and a
deadlock is reported.

Not here: host threads and memory of a launch (`launch`, `running`), lanes of one warp (`warp_function`), queues
(`emulator.shared.scheduler`). Next: the other things that warps wait for: `cluster_barrier`, `register_pool`.
"""

# ruff: noqa: E501, PLR0917 - summaries and tables that name their parameters read best on one line

from __future__ import annotations

from typing import TYPE_CHECKING

from emulator.ir.clusters import group_of_rank, warp_at
from emulator.ir.findings import emit_report, i32, i64
from emulator.ir.library import helper
from emulator.ir.report import ReportKind
from emulator.ir.state import (
    BARRIER,
    BARRIER_WAIT,
    BARRIERS,
    CLUSTER_BARRIER,
    DONE,
    FINISHED,
    GROUP,
    GROUP_HEAD,
    LAUNCH,
    PACKED_IDS,
    POLL,
    READY,
    REGISTER_POOL,
    SPLIT_BARRIER,
    THREAD,
    WAITING,
    WARP,
    YIELDED,
    warp_ids_at,
    warp_registers_at,
)
from emulator.ir.vector import IrValue
from emulator.sanitizers import clocks, sanitize
from emulator.simt import cluster_barrier, register_pool

if TYPE_CHECKING:
    from emulator.ir.library import Library
    from emulator.ir.vector import CodeBuilder


_MOST_TURNS = 4096
"""Turns of one cluster in a row, after which other clusters run."""
_LEAST_STATE = 64
"""Bytes of registers and pending masks that every warp's state has at least. They are cleared by inline stores, the others by a
call."""


def memset(c: CodeBuilder, at: IrValue, size: IrValue) -> None:
    """Append code that sets `size` bytes to zero."""
    c.call("llvm.memset.p0.i64", "void", at, IrValue("i8", "0"), c.resize(size, 64), IrValue("i1", "false"))


def barrier_at(c: CodeBuilder, group: IrValue, number: IrValue) -> IrValue:
    """Return the address of barrier `number` of a workgroup."""
    return c.gep(group, c.op("add", c.op("mul", c.resize(number, 64), BARRIER.size), GROUP.size))


@helper("emu.thread_ids", "ptr, i32, i32, i32", core=True)
def _write_thread_ids(lib: Library, c: CodeBuilder, warp: IrValue, number: IrValue, width: IrValue, height: IrValue) -> None:
    """`emu.thread_ids(warp, number, width, height)`: write the thread ids of a warp's lanes."""
    first = c.op("mul", number, lib.lanes)
    with c.count(i32(lib.lanes)) as lane:
        flat = c.op("add", first, lane)
        row = c.op("udiv", flat, width)
        x, y, z = c.op("urem", flat, width), c.op("urem", row, height), c.op("udiv", row, height)
        packed = c.op("or", c.op("or", x, c.op("shl", y, 10)), c.op("shl", z, 20))
        for axis, value in ((0, x), (1, y), (2, z), (PACKED_IDS, packed)):
            c.store(
                value,
                c.gep(
                    warp, c.op("add", c.op("mul", c.resize(lane, 64), 4), warp_ids_at(axis, lib.lanes))
                ),
            )


@helper("emu.begin", "ptr, ptr, i32, i32", core=True)
def _begin(lib: Library, c: CodeBuilder, thread: IrValue, group: IrValue, index: IrValue, rank: IrValue) -> None:
    """`emu.begin(thread, group, index, rank)`: start workgroup `index`, of rank `rank` in its cluster, in the slot at `group`.

    Thread ids are written at the first use of a slot, for a partial workgroup, and for the workgroup after a partial one.
    """
    fresh = c.icmp("eq", GROUP.load(c, group, "thread"), IrValue("ptr", "null"))
    fresh = c.op("or", fresh, c.icmp("ne", GROUP.load(c, group, "partial"), 0))
    memset(c, group, i64(GROUP_HEAD))
    GROUP.store(c, group, "thread", thread)
    for field, at in (("shared", "shared_at"), ("shadow", "shadow_at")):
        GROUP.store(c, group, field, c.gep(group, c.resize(THREAD.load(c, thread, at), 64)))
    width, height = THREAD.load(c, thread, "grid_x"), THREAD.load(c, thread, "grid_y")
    row = c.op("udiv", index, width)
    place = (c.op("urem", index, width), c.op("urem", row, height), c.op("udiv", row, height))
    block = [_extent(c, thread, axis, at) for axis, at in zip("xyz", place, strict=True)]
    threads = c.op("mul", c.op("mul", block[0], block[1]), block[2])
    warps = c.op("udiv", c.op("add", threads, lib.lanes - 1), lib.lanes)
    partial = c.icmp("ne", threads, THREAD.load(c, thread, "threads"))
    fresh = c.op("or", fresh, partial)
    for field, value in (
        ("index", index), ("x", place[0]), ("y", place[1]), ("z", place[2]), ("live_lanes", threads), ("live_warps", warps),
        ("warps", warps), ("partial", c.resize(partial, 32)), ("rank", rank),
    ):  # fmt: skip
        GROUP.store(c, group, field, value)
    first = group_of_rank(c, group, i32(0))
    GROUP.store(c, group, "clocks", c.gep(first, c.resize(THREAD.load(c, thread, "shadow_at"), 64)))
    before = c.op("mul", rank, THREAD.load(c, thread, "warps"))
    sanitize.begin_group(lib, c, thread, group)
    shared = GROUP.load(c, group, "shared")
    local = c.gep(group, c.resize(THREAD.load(c, thread, "local_at"), 64))
    local_step = c.op("mul", c.resize(THREAD.load(c, thread, "local_bytes"), 64), lib.lanes)
    keep = warp_registers_at(lib.lanes)
    with c.count(THREAD.load(c, thread, "warps")) as number:
        warp = warp_at(c, thread, group, number)
        with c.when(fresh):
            c.call(_write_thread_ids(lib), "void", warp, number, block[0], block[1])
        memset(c, warp, i64(WARP.size))
        memset(c, c.gep(warp, keep), i64(_LEAST_STATE))
        more = c.op("sub", THREAD.load(c, thread, "warp_bytes"), keep + _LEAST_STATE)
        with c.when(c.icmp("ne", more, 0)):
            memset(c, c.gep(warp, keep + _LEAST_STATE), more)
        there = c.icmp("ult", number, warps)
        WARP.store(c, warp, "status", c.select(there, i32(READY), i32(FINISHED)))
        left = c.op("sub", threads, c.op("mul", number, lib.lanes))
        left = c.select(there, left, i32(0))
        full = c.icmp("uge", left, lib.lanes)
        part = c.op("sub", c.op("shl", i64(1), c.resize(c.select(full, i32(0), left), 64)), 1)
        lanes = c.select(full, c.resize(c.const(lib.mask, -1), 64), part)
        for field, item in (
            ("thread", thread),
            ("group", group),
            ("shared", shared),
            ("index", number),
            ("party", c.op("add", before, number)),
            ("registers", THREAD.load(c, thread, "registers")),
            ("live", lanes),
            ("start", lanes),
            ("lanes", lanes),
        ):
            WARP.store(c, warp, field, item)
        WARP.store(c, warp, "local", c.gep(local, c.op("mul", c.resize(number, 64), local_step)))


@helper("emu.begin.cluster", "ptr, ptr, i32", core=True)
def _begin_cluster(lib: Library, c: CodeBuilder, thread: IrValue, unit: IrValue, number: IrValue) -> None:
    """`emu.begin.cluster(thread, unit, number)`: start cluster `number` of the grid in the unit at `unit`."""
    shape = [THREAD.load(c, thread, f"cluster_{axis}") for axis in "xyz"]
    grid = [THREAD.load(c, thread, f"grid_{axis}") for axis in "xyz"]
    width, height = (c.op("udiv", grid[i], shape[i]) for i in (0, 1))
    row = c.op("udiv", number, width)
    place = (c.op("urem", number, width), c.op("urem", row, height), c.op("udiv", row, height))
    with c.count(THREAD.load(c, thread, "cluster")) as rank:
        within = c.op("udiv", rank, shape[0])
        inner = (
            c.op("urem", rank, shape[0]),
            c.op("urem", within, shape[1]),
            c.op("udiv", within, shape[1]),
        )
        x, y, z = (c.op("add", c.op("mul", place[i], shape[i]), inner[i]) for i in range(3))
        index = c.op("add", c.op("mul", c.op("add", c.op("mul", z, grid[1]), y), grid[0]), x)
        far = c.op("mul", c.resize(rank, 64), c.resize(THREAD.load(c, thread, "slot_bytes"), 64))
        c.call(_begin(lib), "void", thread, c.gep(unit, far), index, rank)


def _extent(c: CodeBuilder, thread: IrValue, axis: str, at: IrValue) -> IrValue:
    """Return the number of threads along an axis of the workgroup with index `at` there; the last may have fewer."""
    last = c.icmp("eq", c.op("add", at, 1), THREAD.load(c, thread, f"grid_{axis}"))
    return c.select(last, THREAD.load(c, thread, f"last_{axis}"), THREAD.load(c, thread, f"block_{axis}"))


@helper("emu.settle", "ptr, i32", core=True)
def _settle(lib: Library, c: CodeBuilder, group: IrValue, number: IrValue) -> None:
    """`emu.settle(group, number)`: open a barrier if all threads that it waits for have arrived."""
    thread = GROUP.load(c, group, "thread")
    bar = barrier_at(c, group, number)
    arrived, expected = BARRIER.load(c, bar, "arrived"), BARRIER.load(c, bar, "expected")
    all_threads = c.op("mul", GROUP.load(c, group, "live_warps"), lib.lanes)
    need = c.select(c.icmp("eq", expected, 0), all_threads, expected)
    here = c.op("and", c.icmp("ne", arrived, 0), c.icmp("uge", arrived, need))
    with c.when(here):
        for last, vote in (("last_count", "count"), ("last_every", "every"), ("last_some", "some")):
            BARRIER.store(c, bar, last, BARRIER.load(c, bar, vote))
        for field in ("arrived", "expected", "waiting", "count", "every", "some"):
            BARRIER.store(c, bar, field, 0)
        with c.count(THREAD.load(c, thread, "warps")) as index:
            warp = warp_at(c, thread, group, index)
            waits = c.icmp("eq", WARP.load(c, warp, "status"), WAITING)
            with c.when(c.op("and", waits, c.icmp("eq", WARP.load(c, warp, "barrier"), number))):
                WARP.store(c, warp, "status", READY)
                WARP.store(c, warp, "release", 1)
                clocks.warp_released(lib, c, warp, group, number)


@helper("emu.arrive", "ptr, i32, i32, i32", core=True)
def arrive(lib: Library, c: CodeBuilder, warp: IrValue, number: IrValue, count: IrValue, site: IrValue) -> None:
    """`emu.arrive(warp, number, count, site)`: count this whole warp as arrived at a barrier of `count` threads (0: all).

    Reports a barrier that does not exist, a count that is no multiple of the warp's lanes, and one that earlier arrivals
    did not state.
    """
    group = WARP.load(c, warp, "group")
    odd = c.icmp("ne", c.op("urem", count, lib.lanes), 0)
    bad = c.op("or", c.icmp("uge", number, BARRIERS), odd)
    safe = c.select(bad, i32(0), number)
    bar = barrier_at(c, group, safe)
    arrived, expected = BARRIER.load(c, bar, "arrived"), BARRIER.load(c, bar, "expected")
    differs = c.op("and", c.icmp("ne", arrived, 0), c.icmp("ne", expected, count))
    bad = c.op("or", bad, differs)
    with c.when(bad):
        emit_report(lib, c, warp, ReportKind.BAD_BARRIER, site, i32(0), other=c.resize(number, 64))
    with c.otherwise(bad):
        GROUP.store(c, group, "arrivals", 1)
        BARRIER.store(c, bar, "expected", count)
        BARRIER.store(c, bar, "arrived", c.op("add", arrived, lib.lanes))
        clocks.barrier_arrive(lib, c, warp, group, safe)
        c.call(_settle(lib), "void", group, safe)


@helper("emu.step", "ptr, ptr, ptr", result="i32", core=True)
def _step(lib: Library, c: CodeBuilder, thread: IrValue, group: IrValue, warp: IrValue) -> None:
    """`emu.step(thread, group, warp) -> result`: run one warp until it returns, then begin its wait or record its end.

    The result is 1 if the warp ended or waits at a barrier, 2 if it polls, and 0 if it may progress by itself.
    """
    before = WARP.load(c, warp, "live")
    entry = THREAD.load(c, thread, "entry", volatile=True)
    why = c.let("i32", f"call i32 {entry.ref}({warp})")
    gone = c.op("sub", c.intrinsic("ctpop", before), c.intrinsic("ctpop", WARP.load(c, warp, "live")))
    GROUP.store(
        c, group, "live_lanes", c.op("sub", GROUP.load(c, group, "live_lanes"), c.resize(gone, 32))
    )
    done, waits = c.icmp("eq", why, DONE), c.icmp("eq", why, BARRIER_WAIT)
    with c.when(done):
        WARP.store(c, warp, "status", FINISHED)
        GROUP.store(c, group, "live_warps", c.op("sub", GROUP.load(c, group, "live_warps"), 1))
        used = c.icmp("ne", GROUP.load(c, group, "arrivals"), 0)
        with c.when(used):
            with c.count(i32(BARRIERS)) as number:
                c.call(_settle(lib), "void", group, number)
            c.call(cluster_barrier.settle_split(lib), "void", group)
    number = WARP.load(c, warp, "barrier")
    others = {
        CLUSTER_BARRIER: cluster_barrier.wait,
        REGISTER_POOL: register_pool.take,
        SPLIT_BARRIER: cluster_barrier.wait_split,
    }
    with c.when(waits):
        WARP.store(c, warp, "status", WAITING)
        items = [WARP.load(c, warp, f) for f in ("barrier", "barrier_count", "barrier_site")]
        plain = c.icmp("ult", number, CLUSTER_BARRIER)
        with c.when(plain):
            c.call(arrive(lib), "void", warp, *items)
        with c.otherwise(plain):
            for other, begin in others.items():
                with c.when(c.icmp("eq", number, other)):
                    c.call(begin(lib), "void", warp)
    more = c.icmp("ne", THREAD.load(c, thread, "cluster"), 1)
    with c.when(c.op("and", more, c.icmp("ne", gone, 0))):
        c.call(cluster_barrier.settle(lib), "void", group)
        with c.when(done):
            sanitize.warp_ended(lib, c, group)
    with c.otherwise(c.op("or", done, waits)):
        WARP.store(c, warp, "status", YIELDED)
    polls = c.select(c.icmp("eq", why, POLL), i32(2), i32(0))
    c.ret(c.select(c.op("or", done, waits), i32(1), polls))


@helper("emu.turn", "ptr, ptr", result="i32", core=True)
def _turn(lib: Library, c: CodeBuilder, thread: IrValue, unit: IrValue) -> None:
    """`emu.turn(thread, unit) -> progressed`: run every warp of a cluster that can run once; report a deadlock if none can.

    The result is 1 if a warp ended or reached a barrier, else 0.
    """
    launch, order = THREAD.load(c, thread, "launch"), THREAD.load(c, thread, "warp_order")
    progressed, spinning = c.slot("i32"), c.slot("i32")
    c.store(i32(0), progressed)
    c.store(i32(0), spinning)

    def party(number: IrValue) -> IrValue:
        at = c.load("i32", c.gep(order, c.op("mul", c.resize(number, 64), 4)))
        return c.gep(unit, c.resize(at, 64))

    with c.count(THREAD.load(c, thread, "parties")) as turn:
        warp = party(turn)
        status = WARP.load(c, warp, "status")
        runs = c.op("or", c.icmp("eq", status, READY), c.icmp("eq", status, YIELDED))
        going = c.icmp("eq", LAUNCH.load(c, launch, "stop", volatile=True), 0)
        with c.when(c.op("and", runs, going)):
            moved = c.call(_step(lib), "i32", thread, WARP.load(c, warp, "group"), warp)
            c.store(c.op("or", c.load("i32", progressed), c.op("and", moved, 1)), progressed)
            may_move = c.resize(c.icmp("eq", moved, 0), 32)
            c.store(c.op("or", c.load("i32", spinning), may_move), spinning)
    moved = c.load("i32", progressed)
    stuck = c.icmp("eq", c.op("or", moved, c.load("i32", spinning)), 0)
    going = c.icmp("eq", LAUNCH.load(c, launch, "stop", volatile=True), 0)
    with c.when(c.op("and", stuck, going)):
        for for_registers in (True, False):  # warps that lack registers keep the others waiting: they come first
            if not for_registers:
                with c.count(THREAD.load(c, thread, "parties")) as number:
                    warp = party(number)
                    with c.when(c.icmp("eq", WARP.load(c, warp, "status"), YIELDED)):
                        _report_polling(lib, c, warp)
            with c.count(THREAD.load(c, thread, "parties")) as number:
                warp = party(number)
                waits = c.icmp("eq", WARP.load(c, warp, "status"), WAITING)
                how = "eq" if for_registers else "ne"
                chosen = c.icmp(how, WARP.load(c, warp, "barrier"), REGISTER_POOL)
                with c.when(c.op("and", waits, chosen)):
                    _report_waiting(lib, c, warp)
    c.ret(moved)


def _report_polling(lib: Library, c: CodeBuilder, warp: IrValue) -> None:
    """Append a report of a warp that tests a barrier in memory whose phase can never complete."""
    site, lane, address, wants = (
        WARP.load(c, warp, f"poll_{name}") for name in ("site", "lane", "address", "wants")
    )
    kind = ReportKind.BARRIER_DEADLOCK
    emit_report(lib, c, warp, kind, site, lane, address=address, size=i32(8), other=wants)


@helper("emu.loops", "ptr, ptr", core=True)
def _report_loops(lib: Library, c: CodeBuilder, thread: IrValue, unit: IrValue) -> None:
    """`emu.loops(thread, unit)`: report the warps of a cluster that last left a loop to yield.

    The host uses these reports only if it stopped the kernel at its time limit.
    """
    order = THREAD.load(c, thread, "warp_order")
    with c.count(THREAD.load(c, thread, "parties")) as number:
        at = c.load("i32", c.gep(order, c.op("mul", c.resize(number, 64), 4)))
        warp = c.gep(unit, c.resize(at, 64))
        status, place = WARP.load(c, warp, "status"), WARP.load(c, warp, "loop_site")
        runs = c.op("or", c.icmp("eq", status, READY), c.icmp("eq", status, YIELDED))
        with c.when(c.op("and", runs, c.icmp("ne", place, 0))):
            site, lane = c.op("sub", place, 1), WARP.load(c, warp, "loop_lane")
            emit_report(lib, c, warp, ReportKind.HANG, site, lane)


def _report_waiting(lib: Library, c: CodeBuilder, warp: IrValue) -> None:
    """Append a report of a warp that waits at a barrier which can never open."""
    site, number = WARP.load(c, warp, "barrier_site"), WARP.load(c, warp, "barrier")
    of_cluster = c.icmp("eq", number, CLUSTER_BARRIER)
    with c.when(of_cluster):
        missing = c.call(cluster_barrier.missing(lib), "i32", WARP.load(c, warp, "group"))
        kind = ReportKind.CLUSTER_DEADLOCK
        emit_report(lib, c, warp, kind, site, i32(0), other=c.resize(missing, 64))
    of_pool = c.icmp("eq", number, REGISTER_POOL)
    with c.when(of_pool):
        lack = register_pool.lack(c, warp)
        emit_report(lib, c, warp, ReportKind.REGISTER_DEADLOCK, site, i32(0), other=lack)
    with c.otherwise(c.op("or", of_cluster, of_pool)):
        kind, of_split = ReportKind.BARRIER_DEADLOCK, c.icmp("eq", number, SPLIT_BARRIER)
        shown = c.select(of_split, i32(0), number)
        emit_report(lib, c, warp, kind, site, i32(0), other=c.resize(shown, 64))


@helper("emu.run", "ptr", core=True)
def run(lib: Library, c: CodeBuilder, thread: IrValue) -> None:
    """`emu.run(thread)`: run clusters until none is left, the launch is stopped, or `THREAD.fuel` turns have run.

    The next call continues from the progress in the host thread's record.
    """
    launch, queue, slots = (THREAD.load(c, thread, f) for f in ("launch", "queue", "slots"))
    size = THREAD.load(c, thread, "cluster")
    groups = c.op("udiv", THREAD.load(c, thread, "groups"), size)
    limit = THREAD.load(c, thread, "slot_limit")
    kept = {name: c.slot("i32") for name in ("active", "stalled", "at", "turns")}
    active, stalled, at, turns = kept.values()
    fuel = c.slot("i64")

    def place(index: IrValue) -> IrValue:
        return c.gep(queue, c.op("mul", c.resize(index, 64), 4))

    def slot(index: IrValue) -> IrValue:
        step = c.resize(THREAD.load(c, thread, "unit_bytes"), 64)
        return c.gep(slots, c.op("mul", c.resize(c.load("i32", place(index)), 64), step))

    def live_warps(unit: IrValue) -> IrValue:
        first = GROUP.load(c, unit, "live_warps")
        total = c.slot("i32")
        c.store(first, total)
        with c.when(c.icmp("ne", size, 1)), c.count(c.op("sub", size, 1)) as before:
            group = group_of_rank(c, unit, c.op("add", before, 1))
            c.store(c.op("add", c.load("i32", total), GROUP.load(c, group, "live_warps")), total)
        return c.load("i32", total)

    c.store(THREAD.load(c, thread, "fuel"), fuel)
    for name, where in kept.items():
        c.store(THREAD.load(c, thread, name), where)
    c.branch(c.icmp("eq", THREAD.load(c, thread, "begun"), 0), "first", "next")
    c.label("first")
    THREAD.store(c, thread, "begun", 1)
    with c.count(limit) as i:
        c.store(i, place(i))
    c.store(i32(1), stalled)
    c.jump("more")
    c.label("more")
    c.branch(c.icmp("eq", LAUNCH.load(c, launch, "stop", volatile=True), 0), "take", "end")
    c.label("take")
    now = c.load("i32", active)
    room = c.op("and", c.icmp("ult", now, limit), c.icmp("ne", c.load("i32", stalled), 0))
    left = c.icmp("ult", LAUNCH.load(c, launch, "next", volatile=True), groups)
    with c.when(c.op("and", room, left)):
        number = c.let("i32", f"atomicrmw add {LAUNCH.address(c, launch, 'next')}, i32 1 seq_cst")
        with c.when(c.icmp("ult", number, groups)):
            far = c.op("mul", c.resize(number, 64), c.resize(THREAD.load(c, thread, "group_step"), 64))
            far = c.op("add", far, c.resize(THREAD.load(c, thread, "group_first"), 64))
            index = c.resize(c.op("urem", far, c.resize(groups, 64)), 32)
            alone = c.icmp("eq", size, 1)
            with c.when(alone):
                c.call(_begin(lib), "void", thread, slot(now), index, i32(0))
            with c.otherwise(alone):
                c.call(_begin_cluster(lib), "void", thread, slot(now), index)
            c.store(c.op("add", now, 1), active)
    c.branch(c.icmp("eq", c.load("i32", active), 0), "end", "round")
    c.label("round")
    c.store(i32(1), stalled)
    c.store(i32(0), at)
    c.jump("next")
    c.label("next")
    c.branch(c.icmp("eq", c.load("i64", fuel), 0), "end", "fuelled")
    c.label("fuelled")
    i = c.load("i32", at)
    c.branch(c.icmp("ult", i, c.load("i32", active)), "turn", "more")
    c.label("turn")
    c.store(c.op("sub", c.load("i64", fuel), 1), fuel)
    unit = slot(i)
    moved = c.call(_turn(lib), "i32", thread, unit)
    with c.when(c.icmp("ne", moved, 0)):
        c.store(i32(0), stalled)
    finished = c.icmp("eq", live_warps(unit), 0)
    going = c.icmp("eq", LAUNCH.load(c, launch, "stop", volatile=True), 0)
    c.store(c.op("add", c.load("i32", turns), 1), turns)
    patient = c.icmp("ult", c.load("i32", turns), _MOST_TURNS)
    with c.otherwise(patient):
        c.store(i32(1), stalled)
    again = c.op("and", c.op("and", c.icmp("ne", moved, 0), c.not_(finished)), c.op("and", going, patient))
    c.branch(again, "next", "moved")
    c.label("moved")
    c.store(i32(0), turns)
    with c.when(finished):
        last = c.op("sub", c.load("i32", active), 1)
        mine, other = c.load("i32", place(i)), c.load("i32", place(last))
        c.store(other, place(i))
        c.store(mine, place(last))
        c.store(last, active)
        c.store(i32(1), stalled)
    with c.otherwise(finished):
        c.store(c.op("add", i, 1), at)
    c.jump("next")
    c.label("end")
    stopped = c.icmp("ne", LAUNCH.load(c, launch, "stop", volatile=True), 0)
    with c.when(stopped, likely=False), c.count(c.load("i32", active)) as number:
        c.call(_report_loops(lib), "void", thread, slot(number))
    for name, where in kept.items():
        THREAD.store(c, thread, name, c.load("i32", where))
