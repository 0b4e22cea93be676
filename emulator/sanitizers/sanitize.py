"""Optional checks in generated code: races, uninitialised reads, barriers that only part of a warp reaches.

`shadow_shared` and `shadow_global` record the accesses to shared and global memory. `clocks` and
`group_order` record the order between warps and between workgroups. Writes of bytes are recorded for shared
memory, local memory, and global memory that the CPU cannot write
(`emulator.shared.memory.GpuMapping.tracked`). A disabled check generates no code.

Not here: races between launches (`emulator.shared.races`). Next: `emulator.simt.access`, which calls these
checks.
"""

# ruff: noqa: PLR0917 - helpers mirror the functions they write, argument for argument

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Protocol

from emulator.ir.addresses import CLUSTERED, NARROW, PRIVATE, READ, split_generic
from emulator.ir.findings import emit_report, i32
from emulator.ir.report import ReportKind
from emulator.ir.state import GROUP, THREAD, WARP
from emulator.ir.vector import IrValue
from emulator.sanitizers import clocks, group_order, lane_order, shadow_local
from emulator.sanitizers.clocks import COPY, LANDED
from emulator.sanitizers.read_groups import BULK, GROUPED
from emulator.sanitizers.shadow_global import watch_global
from emulator.sanitizers.shadow_local import watch_local
from emulator.sanitizers.shadow_shared import ASYNC, group_exits, watch_shared

if TYPE_CHECKING:
    from emulator.ir.library import Library, Sanitizers
    from emulator.ir.vector import CodeBuilder


_MOST_LANES = 32
"""The most lanes of a warp whose lanes need not run in step."""


class OrderScope(enum.Enum):
    """The threads that a release or an acquire orders; the value is the suffix of the helper's name."""

    GROUP = ".narrow"
    CLUSTER = ".cluster"
    ALL = ""

    @property
    def flags(self) -> int:
        """The flags of a strong access of this scope."""
        return {OrderScope.GROUP: NARROW, OrderScope.CLUSTER: CLUSTERED, OrderScope.ALL: 0}[self]


class CopyStep(enum.IntEnum):
    """What an asynchronous copy does with bytes of shared memory; the value is the kind of its access."""

    STARTS = COPY
    """It will write them."""
    ENDS = LANDED
    """The warp has waited for the writes."""
    PROXY_ENDS = LANDED | ASYNC
    """The warp has waited for the writes, which the asynchronous proxy made."""
    PROXY_READS = READ | ASYNC
    """The proxy may read them until the warp waits for it."""


class Ordering(Protocol):
    """A warp function under construction whose releases and acquires are recorded."""

    @property
    def lib(self) -> Library:
        """The library of functions that it calls."""

    @property
    def c(self) -> CodeBuilder:
        """The builder of its code."""

    @property
    def warp(self) -> IrValue:
        """The address of the warp's state."""


class CheckedFunction(Ordering, Protocol):
    """A warp function under construction, such as an `emulator.simt.warp_function.WarpFunction`."""

    group: IrValue
    """The address of its workgroup's state."""

    @property
    def active(self) -> IrValue:
        """The mask of lanes that execute the current instruction, as an integer."""

    @property
    def live(self) -> IrValue:
        """The mask of lanes that have not left the kernel, as an integer."""

    def of_group(self, name: str) -> IrValue:
        """Return a field of `state.GROUP`, a scalar."""

    def report(self, kind: ReportKind, site: int, lanes: IrValue, /) -> None:
        """Append a report of a finding at instruction `site` for the lowest of some lanes."""


def shadow_bytes(checks: Sanitizers, warps: int, shared: int, local: int, groups: int = 1) -> int:
    """Return the size in bytes of the shadow of a resident workgroup in a cluster of `groups` workgroups.

    `shared` is its shared memory in bytes, `local` the local memory of all its threads in bytes. 0 if neither
    shared races nor uninitialised reads are checked.
    """
    if not (checks.shared_races or checks.uninitialised):
        return 0
    matrices = lane_order.matrix_bytes(_MOST_LANES) * warps if checks.lane_races else 0
    return clocks.clocks_bytes(warps, groups) + clocks.CELL * shared + local // 8 + matrices


def begin_group(lib: Library, c: CodeBuilder, thread: IrValue, group: IrValue) -> None:
    """Append code that clears the shadow of a workgroup and sets the own clocks of its warps to 1."""
    if not (lib.checks.shared_races or lib.checks.uninitialised):
        return
    warps = THREAD.load(c, thread, "warps")
    first = clocks.cells(c, group)
    length = c.op("mul", c.resize(THREAD.load(c, thread, "shared_bytes"), 64), clocks.CELL)
    shadow = GROUP.load(c, group, "shadow")
    for at, size in (
        (
            shadow,
            c.op("sub", c.let("i64", f"ptrtoint {first} to i64"), c.let("i64", f"ptrtoint {shadow} to i64")),
        ),
        (first, length),
    ):
        c.call("llvm.memset.p0.i64", "void", at, IrValue("i8", "0"), size, IrValue("i1", "false"))
    if lib.checks.uninitialised:
        shadow_local.clear(lib, c, group)
    with c.count(warps) as index:
        party = c.op("add", c.op("mul", GROUP.load(c, group, "rank"), warps), index)
        c.store(i32(1), clocks.clock(c, group, party, party))


def _ordered(lib: Library, what: str, scope: OrderScope) -> str:
    """`emu.WHAT[SCOPE](warp)`: a release ("released"), an acquire ("acquired") or both ("fenced")."""

    def body(c: CodeBuilder, warp: IrValue) -> None:
        group, party = WARP.load(c, warp, "group"), WARP.load(c, warp, "party")
        several = c.icmp("ne", THREAD.load(c, WARP.load(c, warp, "thread"), "cluster"), 1)
        if lib.checks.shared_races:
            _join(c, group, party, clocks.row_of_group(c, group, clocks.FENCES))
            if scope is not OrderScope.GROUP:
                with c.when(several):
                    _join(c, group, party, clocks.row_of_cluster(c, group, clocks.CLUSTER_FENCES))
            if what != "acquired":
                clocks.tick(c, group, party)
            lane_order.all_met(lib, c, warp)
        if lib.checks.global_races and scope is OrderScope.ALL:
            group_order.order_event(c, group, what)
        if lib.checks.global_races and scope is not OrderScope.GROUP:
            with c.when(several):
                if scope is OrderScope.CLUSTER and what != "acquired":
                    group_order.order_event(c, group, "released")
                if what != "released":
                    group_order.meet(lib, c, group)

    def _join(c: CodeBuilder, group: IrValue, party: IrValue, row: IrValue) -> None:
        if what != "acquired":
            c.call(clocks.join(lib), "void", group, row, party)
        if what != "released":
            c.call(clocks.join(lib), "void", group, party, row)

    return lib.define(f"emu.{what}{scope.value}", "void", "ptr", body)


def _order(wf: Ordering, what: str, scope: OrderScope) -> None:
    if wf.lib.checks.shared_races or (wf.lib.checks.global_races and scope is not OrderScope.GROUP):
        wf.c.call(_ordered(wf.lib, what, scope), "void", wf.warp)


def fenced(wf: CheckedFunction, scope: OrderScope) -> None:
    """Append code for a fence, which both releases and acquires."""
    _order(wf, "fenced", scope)


def released(wf: Ordering, scope: OrderScope) -> None:
    """Append code for a release: earlier accesses are ordered before accesses after a later acquire."""
    _order(wf, "released", scope)


def publish(lib: Library, c: CodeBuilder, warp: IrValue) -> None:
    """Append code for a release of a warp that the other warps of its cluster can acquire."""
    if lib.checks.shared_races:
        c.call(_ordered(lib, "released", OrderScope.CLUSTER), "void", warp)


def acquired(wf: Ordering, scope: OrderScope) -> None:
    """Append code for an acquire: accesses before earlier releases are ordered before later accesses."""
    _order(wf, "acquired", scope)


def warp_ended(lib: Library, c: CodeBuilder, group: IrValue) -> None:
    """Append code for a warp of a cluster that has left the kernel. The last one ends its workgroup."""
    if lib.checks.shared_races:
        with c.when(c.icmp("eq", GROUP.load(c, group, "live_warps"), 0)):
            c.call(group_exits(lib), "void", group)


def arrived_at_cluster(lib: Library, c: CodeBuilder, warp: IrValue) -> None:
    """Append code for a warp that arrives, with a release, at the barrier of its cluster."""
    group, party = WARP.load(c, warp, "group"), WARP.load(c, warp, "party")
    if lib.checks.shared_races:
        row = clocks.row_of_cluster(c, group, clocks.CLUSTER_ARRIVALS)
        c.call(clocks.join(lib), "void", group, row, party)
        clocks.tick(c, group, party)
    if lib.checks.global_races:
        group_order.order_event(c, group, "released")


def cluster_opened(lib: Library, c: CodeBuilder, group: IrValue) -> None:
    """Append code for the barrier of a cluster that opens: warps that wait are ordered after all arrivals."""
    if lib.checks.shared_races:
        opened = clocks.row_of_cluster(c, group, clocks.CLUSTER_OPENED)
        for row in (
            clocks.CLUSTER_ARRIVALS,
            clocks.CLUSTER_FENCES,
        ):  # an arrival without order follows fences, too
            c.call(clocks.join(lib), "void", group, opened, clocks.row_of_cluster(c, group, row))


def waited_for_cluster(lib: Library, c: CodeBuilder, warp: IrValue) -> None:
    """Append code for a warp that has waited for the barrier of its cluster."""
    group = WARP.load(c, warp, "group")
    if lib.checks.shared_races:
        row = clocks.row_of_cluster(c, group, clocks.CLUSTER_OPENED)
        c.call(clocks.join(lib), "void", group, WARP.load(c, warp, "party"), row)
        lane_order.all_met(lib, c, warp)  # the barrier opened, so all lanes of the warp had arrived
    if lib.checks.global_races:
        group_order.meet(lib, c, group)


def after_atomic(wf: CheckedFunction, space: str) -> None:
    """Append code for an executed atomic. Once a workgroup has executed a fence, its atomics acquire."""
    if wf.lib.checks.global_races and space not in ("shared", "cluster"):
        with wf.c.when(wf.c.icmp("ne", wf.of_group("fenced"), 0)):
            group_order.order_event(wf.c, wf.group, "acquired")


def observed(wf: CheckedFunction, space: str, address: IrValue, size: int) -> None:
    """Append code for a strong read by the active lanes, of a scope beyond the workgroup.

    The workgroup observes the strong writes of other workgroups that it reads (`group_order`).
    """
    if wf.lib.checks.global_races:
        observed_in(wf, space, address, size, wf.active)


def observed_in(wf: Ordering, space: str, address: IrValue, size: int, lanes: IrValue) -> None:
    """Append the code of `observed` for the mask `lanes`."""
    if not wf.lib.checks.global_races or space not in ("global", "generic"):
        return
    c = wf.c
    if space == "generic":
        for part in ("shared", "local"):
            _, inside = split_generic(wf.lib, c, wf.warp, address, part)
            lanes = c.op("and", lanes, c.not_(c.mask_bits(inside)))
    c.call(group_order.observe(wf.lib), "void", wf.warp, address, lanes, i32(size))


def partial_barrier(wf: CheckedFunction, site: int) -> None:
    """Append the check of an operation without a wait that all lanes of a warp must reach together."""
    if wf.lib.checks.partial_barriers:
        elsewhere = wf.c.op("and", wf.live, wf.c.not_(wf.active))
        with wf.c.when(wf.c.icmp("ne", elsewhere, 0), likely=False):
            wf.report(ReportKind.PARTIAL_BARRIER, site, elsewhere)


def waits_partly(wf: CheckedFunction, site: int, blocked: IrValue, *, aligned: bool) -> None:
    """Append the check of active lanes that begin to wait at a barrier while `blocked` lanes wait already.

    `aligned`: all lanes of a warp must reach this barrier together. If they wait at different instructions, a
    finding is reported. Lanes that come later to the same instruction are correct: they may have polled
    before.
    """
    if wf.lib.checks.partial_barriers:
        c, warp = wf.c, wf.warp
        strict = c.op("or", WARP.load(c, warp, "barrier_aligned"), int(aligned))
        elsewhere = c.icmp("ne", WARP.load(c, warp, "barrier_site"), site)
        _report_partial(wf, c.op("and", elsewhere, c.icmp("ne", strict, 0)), blocked, wf.active)
        WARP.store(c, warp, "barrier_aligned", int(aligned))


def arrives_partly(wf: CheckedFunction, site: int) -> None:
    """Append the check of the active lanes, which arrive at an aligned barrier of their cluster.

    All lanes of a warp must arrive at one instruction; they may come later, as in `waits_partly`.
    """
    if wf.lib.checks.partial_barriers:
        c, warp = wf.c, wf.warp
        some = c.icmp("ne", WARP.load(c, warp, "arrived"), 0)
        elsewhere = c.icmp("ne", WARP.load(c, warp, "cluster_site"), site)
        with c.when(c.op("and", some, elsewhere), likely=False):
            wf.report(ReportKind.PARTIAL_BARRIER, site, wf.active)
        WARP.store(c, warp, "cluster_site", site)


def exits_partly(wf: CheckedFunction, blocked: IrValue, leaving: IrValue) -> None:
    """Append the check of lanes that leave the kernel while `blocked` lanes wait at an aligned barrier."""
    if wf.lib.checks.partial_barriers:
        aligned = wf.c.icmp("ne", WARP.load(wf.c, wf.warp, "barrier_aligned"), 0)
        _report_partial(wf, aligned, blocked, leaving)


def _report_partial(wf: CheckedFunction, condition: IrValue, blocked: IrValue, others: IrValue) -> None:
    """Append a report of the barrier where `blocked` lanes wait, for the lowest lane of `others`."""
    c = wf.c
    some = c.op("and", c.icmp("ne", blocked, 0), c.icmp("ne", others, 0))
    with c.when(c.op("and", condition, some), likely=False):
        lane = c.intrinsic("cttz", others, extra=(IrValue("i1", "true"),))
        site = WARP.load(c, wf.warp, "barrier_site")
        emit_report(wf.lib, c, wf.warp, ReportKind.PARTIAL_BARRIER, site, c.resize(lane, 32))


def lanes_met(wf: CheckedFunction, masks: IrValue | None = None) -> None:
    """Append code for an operation at which each active lane meets the lanes in its mask (None: all)."""
    if wf.lib.checks.lane_races:
        c, lanes = wf.c, wf.active
        together = c.splat(lanes, wf.lib.lanes) if masks is None else masks
        with c.when(c.icmp("ne", WARP.load(c, wf.warp, "touched"), 0)):
            c.call(lane_order.met(wf.lib), "void", wf.warp, together, lanes, wf.live)


def absent_lanes(wf: CheckedFunction, named: IrValue, site: int) -> None:
    """Append the check of a warp-wide operation: `named` is for each lane the mask of lanes that it names.

    A lane must be in its own mask. All lanes of the mask must execute the operation, except lanes that the
    warp never had.
    """
    c, lanes = wf.c, wf.lib.lanes
    began = c.resize(WARP.load(c, wf.warp, "lanes"), lanes)
    own = c.op("shl", c.const(named.type, 1), c.ints(named.type, range(lanes)))
    others = c.op("and", named, c.splat(c.op("and", began, c.not_(wf.active)), lanes))
    missing = c.op("or", others, c.op("and", own, c.not_(named)))
    bad = c.op("and", c.mask_bits(c.icmp("ne", missing, 0)), wf.active)
    with c.when(c.icmp("ne", bad, 0), likely=False):
        wf.report(ReportKind.ABSENT_LANE, site, bad)


def watch(
    lib: Library,
    c: CodeBuilder,
    space: str,
    warp: IrValue,
    addresses: IrValue,
    mask: IrValue,
    site: IrValue,
    size: int | IrValue,
    access: int,
) -> None:
    """Append the checks of one access, of `size` bytes for each lane of `mask`.

    `access` is a kind with flags (`emulator.ir.addresses`). Invalid addresses are ignored, because
    `translate` reports them. A generic access is split into accesses of shared, local and global memory.
    """
    checks = lib.checks
    size = i32(size) if isinstance(size, int) else size
    if space == "generic" and checks.any:
        offsets, inside = split_generic(lib, c, warp, addresses, "shared")
        lanes = c.op("and", mask, c.mask_bits(inside))
        watch(lib, c, "cluster", warp, offsets, lanes, site, size, access)
        _, local = split_generic(lib, c, warp, addresses, "local")
        rest = c.op("and", c.op("and", mask, c.not_(lanes)), c.not_(c.mask_bits(local)))
        watch(lib, c, "global", warp, addresses, rest, site, size, access)
        if access & PRIVATE:
            places, local = split_generic(lib, c, warp, addresses, "local")
            own = c.op("and", c.op("and", mask, c.not_(lanes)), c.mask_bits(local))
            watch(lib, c, "local", warp, places, own, site, size, access)
    elif space == "local" and checks.uninitialised and access & PRIVATE:
        c.call(watch_local(lib), "void", warp, addresses, mask, site, size, i32(access))
    elif space in ("shared", "cluster") and (checks.shared_races or checks.uninitialised):
        c.call(watch_shared(lib, space), "void", warp, addresses, mask, site, size, i32(access))
    elif space == "global" and checks.shadows:
        c.call(watch_global(lib), "void", warp, addresses, mask, site, size, i32(access))


def watch_copy(
    lib: Library,
    c: CodeBuilder,
    warp: IrValue,
    offsets: IrValue,
    mask: IrValue,
    site: IrValue,
    size: int | IrValue,
    step: CopyStep,
) -> None:
    """Append the checks of the shared bytes that an asynchronous copy uses in a step."""
    if lib.checks.shared_races or lib.checks.uninitialised:
        space = "shared" if step is CopyStep.PROXY_READS else "cluster"
        bytes_ = i32(size) if isinstance(size, int) else size
        c.call(watch_shared(lib, space), "void", warp, offsets, mask, site, bytes_, i32(step))


def proxy_waited(wf: CheckedFunction) -> None:
    """Append code for a warp that has waited for bulk copies: its clock advances to that of their reads."""
    if wf.lib.checks.shared_races:
        c = wf.c
        with c.when(c.icmp("ne", wf.active, 0)):
            before = WARP.load(c, wf.warp, "reading")
            reading = c.icmp("ne", c.op("and", before, BULK), 0)
            step = c.select(reading, i32(clocks.READ_AHEAD), i32(1))
            clocks.tick(c, wf.group, WARP.load(c, wf.warp, "party"), step)
            WARP.store(c, wf.warp, "reading", c.op("and", before, GROUPED))


def proxy_fenced(wf: CheckedFunction) -> None:
    """Append code for a fence between the generic and the asynchronous proxy."""
    if wf.lib.checks.shared_races:
        with wf.c.when(wf.c.icmp("ne", wf.active, 0)):
            wf.c.call(clocks.proxy_fence(wf.lib), "void", wf.warp)
