"""Optional checks in generated code: races, uninitialised reads, barriers that only part of a warp reaches.

`shadow_shared` and `shadow_global` record the accesses to shared and global memory; `clocks` and
`group_order` record the order between warps and between workgroups. Which bytes were written is recorded for
shared memory and for memory that the CPU cannot write (`Mapping.tracked`). A disabled check costs nothing: it
generates no code.

Next: `drivers.emu.simt.access`, which calls these checks.
"""

# ruff: noqa: PLR0917 - helpers mirror the functions they write, argument for argument

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from drivers.emu.report import ReportKind
from drivers.emu.sanitizers import clocks, group_order
from drivers.emu.sanitizers.shadow_global import watch_global
from drivers.emu.sanitizers.shadow_shared import ASYNC, COPY, LANDED, watch_shared
from drivers.emu.simt.addresses import READ, split_generic
from drivers.emu.simt.findings import i32
from drivers.emu.simt.state import GROUP, THREAD, WARP
from drivers.emu.simt.vector import Value

if TYPE_CHECKING:
    from drivers.emu.simt.library import Library, Sanitizers
    from drivers.emu.simt.vector import Code


class Running(Protocol):
    """A warp function under construction: a `drivers.emu.simt.warp_function.WarpFunction`."""

    @property
    def lib(self) -> Library:
        """The library of functions that it calls."""
        ...

    @property
    def c(self) -> Code:
        """The builder of its code."""
        ...

    @property
    def warp(self) -> Value:
        """The address of the warp's state."""
        ...

    @property
    def group(self) -> Value:
        """The address of its workgroup's state."""
        ...

    @property
    def active(self) -> Value:
        """The mask of lanes that execute the current instruction, as an integer."""
        ...

    @property
    def live(self) -> Value:
        """The mask of lanes that have not left the kernel, as an integer."""
        ...

    def of_group(self, name: str) -> Value:
        """Return a field of `state.GROUP`, a scalar."""
        ...

    def report(self, kind: ReportKind, site: int, lanes: Value, /) -> None:
        """Append a report of a finding at instruction `site` for the lowest of some lanes."""
        ...


def shadow_bytes(checks: Sanitizers, warps: int, shared: int) -> int:
    """Return the size in bytes of the shadow of a resident workgroup.

    `shared` is its shared memory in bytes.
    """
    wanted = checks.shared_races or checks.uninitialised
    return clocks.clocks_bytes(warps) + clocks.CELL * shared if wanted else 0


def begin_group(lib: Library, c: Code, thread: Value, group: Value) -> None:
    """Append code that clears the shadow of a workgroup and starts the clocks of its warps."""
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
        c.call("llvm.memset.p0.i64", "void", at, Value("i8", "0"), size, Value("i1", "false"))
    with c.count(warps) as index:
        c.store(i32(1), clocks.clock(c, group, index, index))


def _ordered(lib: Library, what: str, *, wide: bool) -> str:
    """`emu.WHAT(warp)`: a release ("released"), an acquire ("acquired") or both ("fenced") of a warp.

    `wide` includes other workgroups.
    """

    def body(c: Code, warp: Value) -> None:
        group, index = WARP.load(c, warp, "group"), WARP.load(c, warp, "index")
        if lib.checks.shared_races:
            row = c.op("add", clocks.warps_of(c, group), clocks.FENCES)
            if what != "acquired":
                c.call(clocks.join(lib), "void", group, row, index)
            if what != "released":
                c.call(clocks.join(lib), "void", group, index, row)
            if what != "acquired":
                clocks.tick(c, group, index)
        if lib.checks.global_races and wide:
            group_order.order_event(c, group, what)
        c.ret()

    return lib.define(f"emu.{what}" + ("" if wide else ".narrow"), "void", {"warp": "ptr"}, body)


def _order(wf: Running, what: str, *, wide: bool) -> None:
    if wf.lib.checks.shared_races or (wf.lib.checks.global_races and wide):
        wf.c.call(_ordered(wf.lib, what, wide=wide), "void", wf.warp)


def fenced(wf: Running, *, wide: bool) -> None:
    """Append code for a fence of the kernel; `wide` if its scope includes other workgroups."""
    _order(wf, "fenced", wide=wide)


def released(wf: Running, *, wide: bool) -> None:
    """Append code for a release: earlier accesses are ordered before everything after a later acquire."""
    _order(wf, "released", wide=wide)


def publish(lib: Library, c: Code, warp: Value) -> None:
    """Append code for a release of a warp towards the other warps of its workgroup."""
    if lib.checks.shared_races:
        c.call(_ordered(lib, "released", wide=False), "void", warp)


def acquired(wf: Running, *, wide: bool) -> None:
    """Append code for an acquire: everything released before is ordered before later accesses."""
    _order(wf, "acquired", wide=wide)


def after_atomic(wf: Running, space: str) -> None:
    """Append code for an executed atomic: after a fence of the workgroup, an atomic acquires."""
    if wf.lib.checks.global_races and space != "shared":
        with wf.c.when(wf.c.icmp("ne", wf.of_group("fenced"), 0)):
            group_order.order_event(wf.c, wf.group, "acquired")


def observed(wf: Running, space: str, address: Value, size: int) -> None:
    """Append code for a strong read of a scope beyond the workgroup: it observes strong writes of others."""
    if not wf.lib.checks.global_races or space not in ("global", "generic"):
        return
    c, lanes = wf.c, wf.active
    if space == "generic":
        for part in ("shared", "local"):
            _, inside = split_generic(wf.lib, c, wf.warp, address, part)
            lanes = c.op("and", lanes, c.not_(c.mask_bits(inside)))
    c.call(group_order.observe(wf.lib), "void", wf.warp, address, lanes, i32(size))


def partial_barrier(wf: Running, site: int) -> None:
    """Append the check of a barrier that all lanes of a warp must reach together."""
    if wf.lib.checks.partial_barriers:
        away = wf.c.op("and", wf.live, wf.c.not_(wf.active))
        with wf.c.when(wf.c.icmp("ne", away, 0), likely=False):
            wf.report(ReportKind.PARTIAL_BARRIER, site, away)


def absent_lanes(wf: Running, named: Value, site: int) -> None:
    """Append the check of a warp-wide operation: `named` is for each lane the mask that it states.

    A lane must be in its own mask, and all lanes there with which the warp began must execute the operation.
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
    c: Code,
    space: str,
    warp: Value,
    addresses: Value,
    mask: Value,
    site: Value,
    size: int | Value,
    access: int,
) -> None:
    """Append the checks of one access whose addresses have been checked; bad ones are reported already."""
    checks = lib.checks
    size = i32(size) if isinstance(size, int) else size
    if space == "generic" and checks.any:
        offsets, inside = split_generic(lib, c, warp, addresses, "shared")
        lanes = c.op("and", mask, c.mask_bits(inside))
        watch(lib, c, "shared", warp, offsets, lanes, site, size, access)
        _, local = split_generic(lib, c, warp, addresses, "local")
        rest = c.op("and", c.op("and", mask, c.not_(lanes)), c.not_(c.mask_bits(local)))
        watch(lib, c, "global", warp, addresses, rest, site, size, access)
    elif space == "shared" and (checks.shared_races or checks.uninitialised):
        c.call(watch_shared(lib), "void", warp, addresses, mask, site, size, i32(access))
    elif space == "global" and checks.shadows:
        c.call(watch_global(lib), "void", warp, addresses, mask, site, size, i32(access))


def copy_begins(
    lib: Library, c: Code, warp: Value, offsets: Value, mask: Value, site: Value, size: int | Value
) -> None:
    """Append the checks of the shared bytes that a starting asynchronous copy will write."""
    if lib.checks.shared_races or lib.checks.uninitialised:
        bytes_ = i32(size) if isinstance(size, int) else size
        c.call(watch_shared(lib), "void", warp, offsets, mask, site, bytes_, i32(COPY))


def copy_landed(
    lib: Library,
    c: Code,
    warp: Value,
    offsets: Value,
    mask: Value,
    site: Value,
    size: Value,
    *,
    by_proxy: bool = False,
) -> None:
    """Append code that records that a warp has waited for its copy; `by_proxy`: of the asynchronous proxy."""
    if lib.checks.shared_races or lib.checks.uninitialised:
        kind = i32(LANDED | ASYNC if by_proxy else LANDED)
        c.call(watch_shared(lib), "void", warp, offsets, mask, site, size, kind)


def proxy_reads(
    lib: Library, c: Code, warp: Value, offsets: Value, mask: Value, site: Value, size: int | Value
) -> None:
    """Append the checks of shared bytes that the asynchronous proxy reads until its warp waits."""
    if lib.checks.shared_races or lib.checks.uninitialised:
        bytes_ = i32(size) if isinstance(size, int) else size
        c.call(watch_shared(lib), "void", warp, offsets, mask, site, bytes_, i32(READ | ASYNC))


def proxy_waited(wf: Running) -> None:
    """Append code for a warp that has waited for what the asynchronous proxy reads."""
    if wf.lib.checks.shared_races:
        with wf.c.when(wf.c.icmp("ne", wf.active, 0)):
            clocks.tick(wf.c, wf.group, WARP.load(wf.c, wf.warp, "index"))


def proxy_fenced(wf: Running) -> None:
    """Append code for a fence between the generic and the asynchronous proxy."""
    if wf.lib.checks.shared_races:
        with wf.c.when(wf.c.icmp("ne", wf.active, 0)):
            wf.c.call(clocks.proxy_fence(wf.lib), "void", wf.warp)
