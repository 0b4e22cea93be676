"""The ring of bulk copies in flight: its entries, and their execution at an mbarrier or for a group.

Source: PTX ISA 9.7.9.25.4.

A copy executes when it is waited for, not when it is issued. All copies of a cluster are queued in one ring, in the
state of the cluster's first warp. If the ring is full, the oldest copy is executed.

Each piece that a copy reads or writes must lie within one allocation, or within the shared memory of one workgroup.

Not here: issuing copies (`bulk`). Next: `tensor_copies`, the bytes of a box.
"""

# ruff: noqa: E501, PLR0917 - helpers mirror the functions they write, argument for argument

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from emulator.ir.addresses import ATOMIC, READ, search, translate
from emulator.ir.clusters import OFFSET, group_of_rank, peer, warp_at
from emulator.ir.findings import emit_report, i32, i64, report
from emulator.ir.library import helper
from emulator.ir.report import ReportKind
from emulator.ir.state import GROUP, MAP_ENTRY, THREAD, WARP, Record
from emulator.ir.vector import IrValue
from emulator.nv.ptx import tensor_copies
from emulator.nv.ptx.memory import shared_offsets
from emulator.nv.ptx.phases import advanced
from emulator.sanitizers import sanitize
from emulator.sanitizers.clocks import LANDED
from emulator.sanitizers.sanitize import CopyStep

if TYPE_CHECKING:
    from collections.abc import Iterator

    from emulator.ir.library import Library
    from emulator.ir.vector import CodeBuilder
    from emulator.nv.ptx.core import PtxTranslator
    from emulator.nv.ptx.statements import Operand

_STEP = 16
"""The alignment of addresses and of sizes in bytes."""
SPACES = {"global": "global", "shared::cta": "shared", "shared::cluster": "cluster"}
"""State space of an operand -> the space of `emulator.ir.addresses`."""


def place(lib: Library, space: str) -> str:
    """`ptx.bulk.at.SPACE(warp, address, size, site, lane, access) -> host`: check a piece; an invalid one is reported and gives null."""

    def body(
        c: CodeBuilder,
        warp: IrValue,
        address: IrValue,
        size: IrValue,
        site: IrValue,
        lane: IrValue,
        access: IrValue,
    ) -> None:
        thread, wide = WARP.load(c, warp, "thread"), c.resize(size, 64)
        outside: IrValue
        if space == "shared":
            allowed, outside = IrValue("i1", "true"), i32(ReportKind.SHARED_OUT_OF_BOUNDS)
            room = c.resize(THREAD.load(c, thread, "shared_bytes"), 64)
            inside = c.icmp("ule", c.op("add", address, wide), room)
            host = c.gep(WARP.load(c, warp, "shared"), address)
        elif space == "cluster":
            allowed, group = IrValue("i1", "true"), WARP.load(c, warp, "group")
            one = c.call(peer(lib), "ptr", group, c.resize(address, 32))
            there = c.icmp("ne", one, IrValue("ptr", "null"))
            one, offset = c.select(there, one, group), c.op("and", address, OFFSET)
            room = c.resize(THREAD.load(c, thread, "shared_bytes"), 64)
            inside = c.op("and", there, c.icmp("ule", c.op("add", offset, wide), room))
            host = c.gep(GROUP.load(c, one, "shared"), offset)
            gone = c.icmp("eq", GROUP.load(c, one, "live_warps"), 0)
            outside = c.select(
                c.op("and", inside, gone), i32(ReportKind.EXITED_PEER), i32(ReportKind.SHARED_OUT_OF_BOUNDS)
            )
            inside = c.op("and", inside, c.not_(gone))
        else:
            outside = i32(ReportKind.OUT_OF_BOUNDS)
            entry = c.call(search(lib), "ptr", thread, address)
            offset, length = (
                c.op("sub", address, MAP_ENTRY.load(c, entry, "start")),
                MAP_ENTRY.load(c, entry, "size"),
            )
            inside = c.op(
                "and", c.icmp("ule", offset, length), c.icmp("ule", wide, c.op("sub", length, offset))
            )
            inside = c.op("and", inside, c.icmp("ne", THREAD.load(c, thread, "map_count"), 0))
            want = c.resize(access, 64)
            allowed = c.icmp("eq", c.op("and", MAP_ENTRY.load(c, entry, "flags"), want), want)
            at = c.op("add", address, MAP_ENTRY.load(c, entry, "delta"))
            host = c.let("ptr", f"inttoptr {at} to ptr")
        aligned = c.icmp("eq", c.op("and", c.op("or", address, wide), _STEP - 1), 0)
        kind = c.select(inside, i32(ReportKind.FORBIDDEN), outside)
        kind = c.select(aligned, kind, i32(ReportKind.MISALIGNED))
        good = c.op("and", c.op("and", aligned, inside), allowed)
        with c.otherwise(good):
            c.call(report(lib), "void", warp, kind, site, lane, address, size, c.resize(access, 64))
        c.ret(c.select(good, host, IrValue("ptr", "null")))

    return lib.define(f"ptx.bulk.at.{space}", "ptr", "ptr, i64, i32, i32, i32, i32", body)


def placed(
    lib: Library, c: CodeBuilder, space: str, warp: IrValue, address: IrValue, size: IrValue, site: IrValue, lane: IrValue, access: int
) -> IrValue:  # fmt: skip
    """Append a call of `place`: return the host address of a piece, null if it is invalid."""
    return c.call(place(lib, space), "ptr", warp, address, size, site, lane, i32(access))


def watch(
    lib: Library,
    c: CodeBuilder,
    space: str,
    warp: IrValue,
    address: IrValue,
    lane: IrValue,
    site: IrValue,
    size: IrValue,
    access: int,
) -> None:
    """Append the sanitizers' checks of one piece; `lane` is a mask with one bit."""
    if space == "global":
        sanitize.watch(lib, c, space, warp, c.splat(address, lib.lanes), lane, site, size, access)
        return
    offsets = c.splat(c.resize(address, 32), lib.lanes)
    assert access != READ or space == "shared"
    step = CopyStep.PROXY_READS if access == READ else CopyStep.STARTS
    sanitize.watch_copy(lib, c, warp, offsets, lane, site, size, step)


def wide_address(t: PtxTranslator, space: str, address: Operand) -> IrValue:
    """Return an address in global memory, or an offset or cluster address in shared memory, as i64."""
    return t.address(address, 64) if space == "global" else t.c.resize(t.address(address, 32), 64)


def host_of_barrier(t: PtxTranslator, address: Operand) -> IrValue:
    """Return the host addresses of the mbarriers of all active lanes, as i64; invalid ones are reported."""
    c, lib, warp, lanes = t.c, t.wf.lib, t.wf.warp, t.wf.active
    offsets, site = shared_offsets(t, "cluster", address), i32(t.site())
    return c.call(translate(lib, "cluster", 8), t.v("i64"), warp, offsets, lanes, site, i32(ATOMIC))


COPY_ENTRY = Record(
    "bulk copy",
    target="ptr", source="ptr", barrier="ptr", size="i32", thread="i32", group="i32", site="i32", offset="i32", waits="i32",
    map="ptr", rank="i32", place="i32", phase="i32", to="i64", x0="i32", x1="i32", x2="i32", x3="i32", x4="i32"
)  # fmt: skip
"""An entry of the ring.

`target` and `source` are host addresses. `barrier`: the mbarrier, null for a copy of a group. `thread`: the thread's number in
the cluster. `offset`: the cluster address, with a rank, of the shared memory that is written; `NOWHERE` if none is. `phase`:
the phase of the mbarrier when the copy was issued, which must not end before the copy's bytes have arrived. `to`: the
target's device address. `waits`: 1 until the copy was executed; 2 while the bytes that it wrote to global memory may not be
used yet; 0 when it has ended.

With `rank` not 0 a box of the tensor of `map` is copied, from coordinates `x0` to `x4`; `place` is the offset in shared memory.
"""
_ENTRIES, _HEAD = 64, 64
_GROUPS = 4 * 32
AREA = _GROUPS + _HEAD + _ENTRIES * COPY_ENTRY.size
"""Bytes of a warp's state for bulk copies: its threads' counts of closed groups, then a ring. Only the first warp's ring is used."""
NOWHERE = -1
"""The `offset` of a copy that does not write shared memory."""


def ring_of(t: PtxTranslator) -> IrValue:
    """Return the address of the cluster's ring."""
    first = warp_at(t.c, t.wf.thread, group_of_rank(t.c, t.wf.group, i32(0)), i32(0))
    return t.c.gep(t.area("bulk", first), _GROUPS)


def _entry(c: CodeBuilder, ring: IrValue, number: IrValue) -> IrValue:
    at = c.op("mul", c.resize(c.op("and", number, _ENTRIES - 1), 64), COPY_ENTRY.size)
    return c.gep(ring, c.op("add", at, _HEAD))


@contextmanager
def _each_waiting(c: CodeBuilder, ring: IrValue) -> Iterator[IrValue]:
    """Loop over the copies that have not ended, oldest first."""
    at = c.slot("i32")
    c.store(c.load("i32", ring), at)
    test, look, after, end = (c.fresh(name) for name in ("test", "look", "after", "end"))
    c.jump(test)
    c.label(test)
    number = c.load("i32", at)
    c.branch(c.icmp("ne", number, c.load("i32", c.gep(ring, 4))), look, end)
    c.label(look)
    entry = _entry(c, ring, number)
    with c.when(c.icmp("ne", COPY_ENTRY.load(c, entry, "waits"), 0)):
        yield entry
    idle = c.icmp("eq", COPY_ENTRY.load(c, entry, "waits"), 0)
    with c.when(c.op("and", idle, c.icmp("eq", c.load("i32", ring), number))):
        c.store(c.op("add", number, 1), ring)
    c.jump(after)
    c.label(after)
    c.store(c.op("add", number, 1), at)
    c.jump(test)
    c.label(end)


def _phase(c: CodeBuilder, state: IrValue) -> IrValue:
    """Return the phase of an mbarrier's state, 0 or 1."""
    return c.resize(c.op("lshr", state, 63), 32)


def push(lib: Library, c: CodeBuilder, warp: IrValue, ring: IrValue, fields: dict[str, IrValue]) -> None:
    """Append code that queues a copy with the given fields of its entry."""
    oldest, newest = c.load("i32", ring), c.load("i32", c.gep(ring, 4))
    with c.when(c.icmp("eq", c.op("sub", newest, oldest), _ENTRIES)):
        first = _entry(c, ring, oldest)
        with c.when(c.icmp("ne", COPY_ENTRY.load(c, first, "waits"), 0)):
            _complete(lib, c, warp, first)
        c.store(c.op("add", oldest, 1), ring)
    entry = _entry(c, ring, newest)
    for name, value in fields.items():
        COPY_ENTRY.store(c, entry, name, value)
    with c.when(c.icmp("ne", fields["barrier"], IrValue("ptr", "null"))):
        COPY_ENTRY.store(c, entry, "phase", _phase(c, c.load("i64", fields["barrier"])))
    c.store(c.op("add", newest, 1), c.gep(ring, 4))


@helper("ptx.bulk.finish", "ptr, ptr")
def _finish(lib: Library, c: CodeBuilder, warp: IrValue, copy: IrValue) -> None:
    """`ptx.bulk.finish(warp, copy)`: execute a copy and complete it at its mbarrier."""
    size, site = COPY_ENTRY.load(c, copy, "size"), COPY_ENTRY.load(c, copy, "site")
    COPY_ENTRY.store(c, copy, "waits", 0)
    to, origin = COPY_ENTRY.load(c, copy, "target"), COPY_ENTRY.load(c, copy, "source")
    offset, rank = COPY_ENTRY.load(c, copy, "offset"), COPY_ENTRY.load(c, copy, "rank")
    with c.when(c.icmp("eq", rank, 0)):
        c.call("llvm.memmove.p0.p0.i64", "void", to, origin, c.resize(size, 64), IrValue("i1", "false"))
    with c.when(c.icmp("ne", rank, 0)):
        stores = c.icmp("eq", offset, NOWHERE)
        place = COPY_ENTRY.load(c, copy, "place")
        box = c.select(stores, origin, to)
        shared = c.gep(box, c.op("sub", i64(0), c.resize(place, 64)))
        fields = (COPY_ENTRY.load(c, copy, "map"), rank, COPY_ENTRY.address(c, copy, "x0"), shared)
        c.call(tensor_copies.move(lib), "void", *fields, place, c.select(stores, to, origin), stores)
    with c.when(c.icmp("ne", offset, NOWHERE)):
        first, landed = c.const(lib.mask, 1), CopyStep.PROXY_ENDS
        sanitize.watch_copy(lib, c, warp, c.splat(offset, lib.lanes), first, site, size, landed)
    barrier = COPY_ENTRY.load(c, copy, "barrier")
    with c.when(c.icmp("ne", barrier, IrValue("ptr", "null"))):
        sanitize.publish(lib, c, warp)
        done = c.op("sub", i64(0), c.resize(size, 64))
        before = c.load("i64", barrier)
        state, bad = advanced(c, "tx", before, i64(0), done)
        bad = c.op("or", bad, c.icmp("ne", _phase(c, before), COPY_ENTRY.load(c, copy, "phase")))
        with c.when(bad):
            emit_report(lib, c, warp, ReportKind.BAD_MBARRIER, site, i32(0))
        c.store(state, barrier)


@helper("ptx.bulk.land", "ptr, ptr")
def _land(lib: Library, c: CodeBuilder, warp: IrValue, copy: IrValue) -> None:
    """`ptx.bulk.land(warp, copy)`: end an executed copy: the bytes that it wrote to global memory may be used."""
    COPY_ENTRY.store(c, copy, "waits", 0)
    first, site, rank = (
        c.const(lib.mask, 1),
        COPY_ENTRY.load(c, copy, "site"),
        COPY_ENTRY.load(c, copy, "rank"),
    )
    with c.when(c.icmp("eq", rank, 0)):
        at, size = c.splat(COPY_ENTRY.load(c, copy, "to"), lib.lanes), COPY_ENTRY.load(c, copy, "size")
        sanitize.watch(lib, c, "global", warp, at, first, site, size, LANDED)
    with c.when(c.icmp("ne", rank, 0)):
        box = COPY_ENTRY.load(c, copy, "map"), rank, COPY_ENTRY.address(c, copy, "x0")
        c.call(tensor_copies.watch_rows(lib), "void", warp, *box, first, site, i32(LANDED))


def _complete(lib: Library, c: CodeBuilder, warp: IrValue, copy: IrValue, *, only_read: bool = False) -> None:
    """Append code that executes a copy, unless it was executed, and ends it; with `only_read` its target may not be used yet."""
    if not lib.checks.shadows:
        c.call(_finish(lib), "void", warp, copy)
        return
    with c.when(c.icmp("eq", COPY_ENTRY.load(c, copy, "waits"), 1)):
        c.call(_finish(lib), "void", warp, copy)
        with c.when(c.icmp("eq", COPY_ENTRY.load(c, copy, "offset"), NOWHERE)):
            COPY_ENTRY.store(c, copy, "waits", 2)
    if not only_read:
        with c.when(c.icmp("ne", COPY_ENTRY.load(c, copy, "waits"), 0)):
            c.call(_land(lib), "void", warp, copy)


@helper("ptx.bulk.settle", "ptr, ptr, i64 each, mask")
def _settle(
    lib: Library, c: CodeBuilder, warp: IrValue, ring: IrValue, hosts: IrValue, lanes: IrValue
) -> None:
    """`ptx.bulk.settle(warp, ring, hosts, lanes)`: execute the copies that complete at the mbarriers of some lanes."""
    with _each_waiting(c, ring) as entry:
        barrier = c.let("i64", f"ptrtoint {COPY_ENTRY.load(c, entry, 'barrier')} to i64")
        same = c.mask_bits(c.icmp("eq", hosts, c.splat(barrier, lib.lanes)))
        with c.when(c.icmp("ne", c.op("and", same, lanes), 0)):
            c.call(_finish(lib), "void", warp, entry)


@helper("ptx.bulk.reads", "ptr, ptr")
def _still_reads(lib: Library, c: CodeBuilder, warp: IrValue, ring: IrValue) -> None:
    """`ptx.bulk.reads(warp, ring)`: record again the reads of shared memory by a warp's copies that are still queued."""
    before = c.op("mul", WARP.load(c, warp, "party"), lib.lanes)
    shared = c.let("i64", f"ptrtoint {WARP.load(c, warp, 'shared')} to i64")
    with _each_waiting(c, ring) as entry:
        lane = c.op("sub", COPY_ENTRY.load(c, entry, "thread"), before)
        reads = c.icmp("eq", COPY_ENTRY.load(c, entry, "offset"), NOWHERE)
        queued = c.op("and", reads, c.icmp("eq", COPY_ENTRY.load(c, entry, "waits"), 1))
        with c.when(c.op("and", queued, c.icmp("ult", lane, lib.lanes))):
            own = c.op("shl", c.const(lib.mask, 1), c.resize(lane, lib.lanes))
            source = c.let("i64", f"ptrtoint {COPY_ENTRY.load(c, entry, 'source')} to i64")
            at = c.splat(c.resize(c.op("sub", source, shared), 32), lib.lanes)
            site, size = COPY_ENTRY.load(c, entry, "site"), COPY_ENTRY.load(c, entry, "size")
            sanitize.watch_copy(lib, c, warp, at, own, site, size, CopyStep.PROXY_READS)


def waited(t: PtxTranslator) -> None:
    """Append code for a warp that has waited for groups: copies of other groups may still read shared memory."""
    sanitize.proxy_waited(t.wf)
    if t.wf.lib.checks.shared_races:
        with t.c.when(t.c.icmp("ne", t.wf.active, 0)):
            t.c.call(_still_reads(t.wf.lib), "void", t.wf.warp, ring_of(t))


def settle(t: PtxTranslator, hosts: IrValue, lanes: IrValue) -> None:
    """Append code that executes the copies that complete at the mbarriers at `hosts` for which `lanes` wait."""
    if t.has_area("bulk"):
        t.c.call(_settle(t.wf.lib), "void", t.wf.warp, ring_of(t), hosts, lanes)


def wait(lib: Library, *, only_read: bool) -> str:
    """`ptx.bulk.wait(warp, ring, groups, keep, lanes)`: execute the copies of all groups except the newest `keep`.

    With `only_read` the wait is for the reads of their sources only: their targets may not be used yet.
    """

    def body(
        c: CodeBuilder, warp: IrValue, ring: IrValue, groups: IrValue, keep: IrValue, lanes: IrValue
    ) -> None:
        before = c.op("mul", WARP.load(c, warp, "party"), lib.lanes)
        with _each_waiting(c, ring) as entry:
            lane = c.op("sub", COPY_ENTRY.load(c, entry, "thread"), before)
            none = c.icmp("eq", COPY_ENTRY.load(c, entry, "barrier"), IrValue("ptr", "null"))
            with c.when(c.op("and", none, c.icmp("ult", lane, lib.lanes))):
                count = c.load("i32", c.gep(groups, c.op("mul", c.resize(lane, 64), 4)))
                old = c.icmp("slt", COPY_ENTRY.load(c, entry, "group"), c.op("sub", count, keep))
                here = c.op("and", c.op("lshr", lanes, c.resize(lane, lib.lanes)), 1)
                with c.when(c.op("and", old, c.icmp("ne", here, 0))):
                    _complete(lib, c, warp, entry, only_read=only_read)

    name = "ptx.bulk.wait.read" if only_read else "ptx.bulk.wait"
    return lib.define(name, "void", "ptr, ptr, ptr, i32, mask", body)
