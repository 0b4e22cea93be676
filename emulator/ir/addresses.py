"""Translation of device addresses to host addresses, with checks of bounds, alignment and permission.

Each instruction caches the allocation that it last accessed (`state.SITE`), so a check is a subtraction, a
rotation and a comparison for each lane. The rotation right by log2(size) moves the low bits of a misaligned offset
to the top, so the same comparison rejects a misaligned address. All other addresses go to `emu.find`, which
searches the map and reports invalid lanes. Invalid lanes access the *sink*: unused memory of the host thread.

Not here: the map of allocations (`emulator.shared.memory`). Next: `emulator.simt.access`, the accesses.
"""

# ruff: noqa: E501, PLR0917 - helpers mirror the functions they write, argument for argument

from __future__ import annotations

from typing import TYPE_CHECKING

from emulator.ir.clusters import OFFSET, RANK_SHIFT, peer
from emulator.ir.findings import i32, report, site_record
from emulator.ir.library import helper, iota
from emulator.ir.report import ReportKind
from emulator.ir.state import GROUP, MAP_ENTRY, SITE, THREAD, WARP
from emulator.ir.vector import IrValue, Spilled

if TYPE_CHECKING:
    from emulator.ir.library import Library
    from emulator.ir.vector import CodeBuilder

SPACES = ("global", "shared", "local", "generic")
"""The address spaces of common accesses. A generic address lies in a window of shared or local memory, or is global.
`translate` also has "cluster", the shared memory of all workgroups of a cluster (`clusters`)."""
READ, WRITE, ATOMIC = 1, 2, 4
"""Kinds of an access, and permissions of an allocation (`state.MAP_READ` and following)."""
STRONG, NARROW, CLUSTERED = 32, 64, 512
"""Flags of an access. STRONG, with READ or WRITE: other threads may access the same bytes concurrently, as with ATOMIC.
NARROW, with STRONG or ATOMIC: threads of other workgroups may not. CLUSTERED: threads of other clusters may not."""
UNCHANGED = 256
"""A flag of a store that stores the value that memory already has, so that its order with another store does not matter."""
VOLATILE = 2048
"""A flag of a STRONG load or store: between lanes of one warp it counts as plain, because it orders nothing."""
UNMARKED = 4096
"""A flag of a store whose encoding does not say whether it is atomic. Against strong accesses it counts as strong, against others as plain."""
PRIVATE = 1024
"""A flag of a load or store: in local memory, a read of bytes that were never written is reported."""
SHARED_WINDOW_BYTES = 1 << 32
LOCAL_WINDOW_BYTES = 1 << 24
"""Sizes in bytes of the windows of generic addresses; 1 << 24 agrees with `drivers.nv.layouts.compute`."""


def address_type(lib: Library, space: str) -> str:
    """Return the vector type of addresses in a space: i32 elements for shared and local memory, else i64."""
    return lib.v("i32" if space in ("shared", "local", "cluster") else "i64")


@helper("emu.search", "ptr, i64", result="ptr", core=True)
def search(_lib: Library, c: CodeBuilder, thread: IrValue, address: IrValue) -> None:
    """`emu.search(thread, address) -> ptr`: the last map entry that starts at or before an address; the first entry if none does."""
    table = THREAD.load(c, thread, "map")
    low, high = c.slot("i32"), c.slot("i32")
    c.store(i32(0), low)
    c.store(THREAD.load(c, thread, "map_count"), high)
    c.jump("test")
    c.label("test")
    left, right = c.load("i32", low), c.load("i32", high)
    c.branch(c.icmp("ult", c.op("add", left, 1), right), "halve", "found")
    c.label("halve")
    middle = c.op("lshr", c.op("add", left, right), 1)
    entry = c.gep(table, c.op("mul", c.resize(middle, 64), MAP_ENTRY.size))
    after = c.icmp("ugt", MAP_ENTRY.load(c, entry, "start"), address)
    c.store(c.select(after, left, middle), low)
    c.store(c.select(after, middle, right), high)
    c.jump("test")
    c.label("found")
    c.ret(c.gep(table, c.op("mul", c.resize(left, 64), MAP_ENTRY.size)))


@helper("emu.find", "ptr, i64 each, mask, i32, i32, i32", result="i64 each", core=True)
def find(
    lib: Library, c: CodeBuilder, warp: IrValue, addresses: IrValue, mask: IrValue, site: IrValue, size: IrValue, access: IrValue
) -> None:
    """`emu.find(warp, addresses, mask, site, size, access) -> host addresses`: search the map for each lane, the slow path.

    Invalid lanes are reported. They and lanes outside `mask` get the sink.
    """
    thread = WARP.load(c, warp, "thread")
    sink = c.let("i64", f"ptrtoint {THREAD.load(c, thread, 'sink')} to i64")
    record = site_record(c, warp, site)
    size64, want = c.resize(size, 64), c.resize(access, 64)
    all_in, all_out = Spilled(c, addresses), Spilled(c, c.splat(sink, lib.lanes))
    empty = c.icmp("eq", THREAD.load(c, thread, "map_count"), 0)
    with c.each_lane(mask) as lane:
        address = all_in.get(lane)
        entry = c.call(search(lib), "ptr", thread, address)
        offset = c.op("sub", address, MAP_ENTRY.load(c, entry, "start"))
        length = MAP_ENTRY.load(c, entry, "size")
        outside = c.icmp("ugt", c.op("add", offset, size64), length)
        outside = c.op("or", c.op("or", outside, c.icmp("uge", offset, length)), empty)
        allowed = c.icmp("eq", c.op("and", MAP_ENTRY.load(c, entry, "flags"), want), want)
        aligned = c.icmp("eq", c.op("and", address, c.op("sub", size64, 1)), 0)
        kind = c.select(c.not_(aligned), i32(ReportKind.MISALIGNED), i32(ReportKind.FORBIDDEN))
        kind = c.select(outside, i32(ReportKind.OUT_OF_BOUNDS), kind)
        good = c.op("and", c.op("and", allowed, aligned), c.not_(outside))
        with c.when(good):
            delta = MAP_ENTRY.load(c, entry, "delta")
            all_out.set(lane, c.op("add", address, delta))
            SITE.store(c, record, "start", MAP_ENTRY.load(c, entry, "start"))
            SITE.store(c, record, "delta", delta)
            SITE.store(c, record, "bytes", length)
        with c.otherwise(good):
            c.call(report(lib), "void", warp, kind, site, lane, address, size, c.resize(access, 64))
    c.ret(all_out.whole())


def stray(lib: Library, space: str) -> str:
    """`emu.stray.SPACE(warp, offsets, mask, good, hosts, site, size, access) -> hosts`: report lanes of `mask` that are not `good`.

    Lanes that are not `good` get the sink.
    """
    kind = ReportKind.SHARED_OUT_OF_BOUNDS if space == "shared" else ReportKind.LOCAL_OUT_OF_BOUNDS

    def body(
        c: CodeBuilder,
        warp: IrValue,
        offsets: IrValue,
        mask: IrValue,
        good: IrValue,
        hosts: IrValue,
        site: IrValue,
        size: IrValue,
        access: IrValue,
    ) -> None:
        thread = WARP.load(c, warp, "thread")
        sink = c.let("i64", f"ptrtoint {THREAD.load(c, thread, 'sink')} to i64")
        all_in = Spilled(c, offsets)
        with c.each_lane(c.op("and", mask, c.not_(good))) as lane:
            offset = all_in.get(lane)
            misaligned = c.icmp("ne", c.op("and", offset, c.op("sub", size, 1)), 0)
            what = c.select(misaligned, i32(ReportKind.MISALIGNED), i32(kind))
            c.call(
                report(lib), "void", warp, what, site, lane, c.resize(offset, 64), size, c.resize(access, 64)
            )
        c.ret(c.select(c.mask_lanes(good), hosts, c.splat(sink, lib.lanes)))

    return lib.define(
        f"emu.stray.{space}",
        "i64 each",
        "ptr, i32 each, mask, mask, i64 each, i32, i32, i32",
        body,
        core=True,
    )


def _rotated(c: CodeBuilder, offset: IrValue, size: int) -> IrValue:
    shift = size.bit_length() - 1
    return c.intrinsic("fshr", offset, offset, c.const(offset.type, shift)) if shift else offset


def _within(lib: Library, c: CodeBuilder, offsets: IrValue, limit: IrValue, size: int) -> IrValue:
    """Return a mask of the lanes whose offsets are aligned and leave room for `size` bytes below `limit`."""
    steps = c.op("lshr", c.op("sub", limit, size), size.bit_length() - 1)
    steps = c.select(c.icmp("ult", limit, size), i32(0), c.op("add", steps, 1))
    return c.mask_bits(c.icmp("ult", _rotated(c, offsets, size), c.splat(steps, lib.lanes)))


def inside_shared(lib: Library, c: CodeBuilder, warp: IrValue, offsets: IrValue, size: int) -> IrValue:
    """Return a mask of the lanes whose offsets are aligned and leave room for `size` bytes in shared memory."""
    limit = THREAD.load(c, WARP.load(c, warp, "thread"), "shared_bytes")
    return _within(lib, c, offsets, limit, size)


def known_hosts(
    lib: Library, c: CodeBuilder, warp: IrValue, addresses: IrValue, mask: IrValue, site: IrValue, size: int
) -> tuple[IrValue, IrValue]:
    """Return host addresses in the allocation that the instruction last accessed, and an i1: whether all lanes of `mask` are valid."""
    record = site_record(c, warp, site)
    offset = c.op("sub", addresses, c.splat(SITE.load(c, record, "start"), lib.lanes))
    limit = c.op("lshr", SITE.load(c, record, "bytes"), size.bit_length() - 1)
    inside = c.icmp("ult", _rotated(c, offset, size), c.splat(limit, lib.lanes))
    bad = c.op("and", mask, c.not_(c.mask_bits(inside)))
    hosts = c.op("add", addresses, c.splat(SITE.load(c, record, "delta"), lib.lanes))
    return hosts, c.icmp("eq", bad, 0)


def translate(lib: Library, space: str, size: int) -> str:
    """`emu.at.SPACE.SIZE(warp, addresses, mask, site, access) -> host addresses`. Invalid lanes of `mask` are reported and get the sink."""

    def at_global(c: CodeBuilder, warp: IrValue, addresses: IrValue, mask: IrValue, site: IrValue, access: IrValue) -> None:
        quick, good = known_hosts(lib, c, warp, addresses, mask, site, size)
        c.emit(f"br {good}, label %good, label %look, !prof !0")
        c.label("look")
        slow = c.call(find(lib), lib.v("i64"), warp, addresses, mask, site, i32(size), access)
        c.ret(slow)
        c.label("good")
        c.ret(quick)

    def within(
        c: CodeBuilder,
        warp: IrValue,
        offsets: IrValue,
        mask: IrValue,
        site: IrValue,
        access: IrValue,
        hosts: IrValue,
        limit: IrValue,
    ) -> None:
        inside = _within(lib, c, offsets, limit, size)
        bad = c.op("and", mask, c.not_(inside))
        c.emit(f"br {c.icmp('eq', bad, 0)}, label %good, label %stray, !prof !0")
        c.label("stray")
        c.ret(
            c.call(
                stray(lib, space), lib.v("i64"), warp, offsets, mask, inside, hosts, site, i32(size), access
            )
        )
        c.label("good")
        c.ret(hosts)

    def at_shared(c: CodeBuilder, warp: IrValue, offsets: IrValue, mask: IrValue, site: IrValue, access: IrValue) -> None:
        base = c.let("i64", f"ptrtoint {WARP.load(c, warp, 'shared')} to i64")
        hosts = c.op("add", c.resize(offsets, 64), c.splat(base, lib.lanes))
        limit = THREAD.load(c, WARP.load(c, warp, "thread"), "shared_bytes")
        within(c, warp, offsets, mask, site, access, hosts, limit)

    def at_local(c: CodeBuilder, warp: IrValue, offsets: IrValue, mask: IrValue, site: IrValue, access: IrValue) -> None:
        base = c.let("i64", f"ptrtoint {WARP.load(c, warp, 'local')} to i64")
        limit = THREAD.load(c, WARP.load(c, warp, "thread"), "local_bytes")
        lane = c.op("mul", c.ints(lib.v("i64"), iota(lib.lanes, 1)), c.splat(c.resize(limit, 64), lib.lanes))
        hosts = c.op("add", c.op("add", c.resize(offsets, 64), lane), c.splat(base, lib.lanes))
        within(c, warp, offsets, mask, site, access, hosts, limit)

    body = {
        "global": at_global, "shared": at_shared, "local": at_local, "generic": _at_generic(lib, size),
        "cluster": _at_cluster(lib, size),
    }[space]  # fmt: skip
    parameters = {
        "warp": "ptr",
        "addresses": address_type(lib, space),
        "mask": lib.mask,
        "site": "i32",
        "access": "i32",
    }
    return lib.define(
        f"emu.at.{space}.{size}", lib.v("i64"), parameters, body, core=True, hot=space == "global"
    )


def _at_cluster(lib: Library, size: int):  # type: ignore[no-untyped-def]  # noqa: ANN202 - the body of one helper
    """Return the body of `translate` for addresses in a cluster: a rank and an offset."""

    def body(c: CodeBuilder, warp: IrValue, addresses: IrValue, mask: IrValue, site: IrValue, access: IrValue) -> None:
        upper = c.op("lshr", addresses, RANK_SHIFT)
        far = c.op("and", mask, c.mask_bits(c.icmp("ne", upper, 0)))
        near = c.op("and", mask, c.not_(far))
        own = c.call(translate(lib, "shared", size), lib.v("i64"), warp, addresses, near, site, access)
        c.branch(c.icmp("eq", far, 0), "alone", "others")
        c.label("alone")
        c.ret(own)
        c.label("others")
        group, thread = WARP.load(c, warp, "group"), WARP.load(c, warp, "thread")
        limit = THREAD.load(c, thread, "shared_bytes")
        sink = c.let("i64", f"ptrtoint {THREAD.load(c, thread, 'sink')} to i64")
        all_in, all_out = Spilled(c, addresses), Spilled(c, own)
        with c.each_lane(far) as lane:
            address = all_in.get(lane)
            one = c.call(peer(lib), "ptr", group, address)
            offset = c.op("and", address, OFFSET)
            inside = c.op(
                "and",
                c.icmp("ule", c.op("add", offset, size), limit),
                c.icmp("ne", one, IrValue("ptr", "null")),
            )
            aligned = c.icmp("eq", c.op("and", offset, size - 1), 0)
            safe = c.select(inside, one, group)
            gone = c.icmp("eq", GROUP.load(c, safe, "live_warps"), 0)
            kind = c.select(inside, i32(ReportKind.EXITED_PEER), i32(ReportKind.SHARED_OUT_OF_BOUNDS))
            kind = c.select(aligned, kind, i32(ReportKind.MISALIGNED))
            bad = c.op("or", gone, c.not_(c.op("and", inside, aligned)))
            at = c.let("i64", f"ptrtoint {c.gep(GROUP.load(c, safe, 'shared'), c.resize(offset, 64))} to i64")
            all_out.set(lane, c.select(bad, sink, at))
            with c.when(bad):
                more = c.resize(access, 64)
                c.call(report(lib), "void", warp, kind, site, lane, c.resize(address, 64), i32(size), more)
        c.ret(all_out.whole())

    return body


def _at_generic(lib: Library, size: int):  # type: ignore[no-untyped-def]  # noqa: ANN202 - the body of one helper
    """Return the body of `translate` for generic addresses, in shared, local or global memory."""

    def body(c: CodeBuilder, warp: IrValue, addresses: IrValue, mask: IrValue, site: IrValue, access: IrValue) -> None:
        result = c.slot(lib.v("i64"))
        c.store(c.zero(lib.v("i64")), result)
        rest = mask
        for space in ("shared", "local"):
            offset, inside = split_generic(lib, c, warp, addresses, space)
            lanes = c.op("and", rest, c.mask_bits(inside))
            with c.when(c.icmp("ne", lanes, 0)):
                where = "cluster" if space == "shared" else space
                host = c.call(translate(lib, where, size), lib.v("i64"), warp, offset, lanes, site, access)
                c.store(c.select(inside, host, c.load(lib.v("i64"), result)), result)
            rest = c.op("and", rest, c.not_(c.mask_bits(inside)))
        with c.when(c.icmp("ne", rest, 0)):
            host = c.call(translate(lib, "global", size), lib.v("i64"), warp, addresses, rest, site, access)
            c.store(c.select(c.mask_lanes(rest), host, c.load(lib.v("i64"), result)), result)
        c.ret(c.load(lib.v("i64"), result))

    return body


def split_generic(lib: Library, c: CodeBuilder, warp: IrValue, addresses: IrValue, space: str) -> tuple[IrValue, IrValue]:
    """Return the offsets of generic addresses in the window of a space, as i32, and one bit for each lane inside it."""
    window = THREAD.load(c, WARP.load(c, warp, "thread"), f"{space}_window")
    offset = c.op("sub", addresses, c.splat(window, lib.lanes))
    inside = c.icmp("ult", offset, SHARED_WINDOW_BYTES if space == "shared" else LOCAL_WINDOW_BYTES)
    return c.resize(offset, 32), inside
