"""Checked memory: device addresses to host addresses, loads and stores of every width, in every space.

Each instruction keeps the allocation it last met (`state.SITE`), so a check is a subtraction, a rotation
and a comparison a lane: the rotation by log2(size) makes a misaligned offset enormous, so one comparison
refuses it too. What the site does not know goes to `emu.find`, which searches the map, reports what is
wrong, and lets the bad lanes access a sink of their own.
"""

# ruff: noqa: E501, PLR0917 - helpers mirror the functions they write, argument for argument

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from drivers.emu import sanitize
from drivers.emu.library import iota
from drivers.emu.report import ReportKind
from drivers.emu.state import GROUP, LAUNCH, MAP_ENTRY, REPORT, REPORT_LIMIT, REPORTS_HEAD, SITE, THREAD, WARP
from drivers.emu.vector import Spilled, Value, bits_of, lanes_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from drivers.emu.library import Library
    from drivers.emu.vector import Code

SPACES = ("global", "shared", "local", "generic")
READ, WRITE, ATOMIC = 1, 2, 4
SHARED_WINDOW_BYTES = 1 << 32
LOCAL_WINDOW_BYTES = 1 << 24


def i32(value: int) -> Value:
    """Return an i32 constant."""
    return Value("i32", str(value))


def i64(value: int) -> Value:
    """Return an i64 constant."""
    return Value("i64", str(value))


def address_type(lib: Library, space: str) -> str:
    """Return the type of addresses of a space: 32 bits a lane in shared and local memory, else 64."""
    return lib.v("i32" if space in ("shared", "local") else "i64")


def site_record(c: Code, warp: Value, site: Value) -> Value:
    """Return the address of an instruction's SITE record of this host thread."""
    thread = WARP.load(c, warp, "thread")
    sites = THREAD.load(c, thread, "sites")
    return c.gep(sites, c.op("mul", c.resize(site, 64), SITE.size))


def report(lib: Library) -> str:
    """`emu.report(warp, kind, site, lane, address, size, other)`: write a finding down, once a site and kind; fatal ones stop."""

    def body(
        c: Code, warp: Value, kind: Value, site: Value, lane: Value, address: Value, size: Value, other: Value
    ) -> None:
        thread = WARP.load(c, warp, "thread")
        record = site_record(c, warp, site)
        seen = SITE.load(c, record, "seen")
        bit = c.op("shl", i64(1), c.resize(kind, 64))
        fatal = c.icmp("ult", kind, int(ReportKind.SHARED_RACE))
        with c.when(c.icmp("eq", c.op("and", seen, bit), 0)):
            SITE.store(c, record, "seen", c.op("or", seen, bit))
            table = THREAD.load(c, thread, "reports")
            number = c.let("i32", f"atomicrmw add {table}, i32 1 seq_cst")
            with c.when(c.icmp("ult", number, REPORT_LIMIT)):
                at = c.gep(table, c.op("add", c.op("mul", c.resize(number, 64), REPORT.size), REPORTS_HEAD))
                group = WARP.load(c, warp, "group")
                for name, value in (
                    ("kind", kind),
                    ("site", site),
                    ("lane", lane),
                    ("size", size),
                    ("address", address),
                    ("other", other),
                ):
                    REPORT.store(c, at, name, value)
                REPORT.store(c, at, "group", GROUP.load(c, group, "index"))
                REPORT.store(c, at, "warp", WARP.load(c, warp, "index"))
        with c.when(fatal):
            launch = THREAD.load(c, thread, "launch")
            c.emit(f"store atomic i32 1, {LAUNCH.address(c, launch, 'stop')} seq_cst, align 4")
        c.ret()

    parameters = {
        "warp": "ptr",
        "kind": "i32",
        "site": "i32",
        "lane": "i32",
        "address": "i64",
        "size": "i32",
        "other": "i64",
    }
    return lib.define("emu.report", "void", parameters, body, core=True)


def emit_report(
    lib: Library,
    c: Code,
    warp: Value,
    kind: ReportKind,
    site: Value,
    lane: Value,
    *,
    address: Value | None = None,
    size: Value | None = None,
    other: Value | None = None,
) -> None:
    """Append a call of `emu.report`."""
    c.call(
        report(lib), "void", warp, i32(kind), site, lane, address or i64(0), size or i32(0), other or i64(0)
    )


def search(lib: Library) -> str:
    """`emu.search(thread, address) -> ptr`: the last map entry that starts at or before an address, or the first."""

    def body(c: Code, thread: Value, address: Value) -> None:
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

    return lib.define("emu.search", "ptr", {"thread": "ptr", "address": "i64"}, body, core=True)


def find(lib: Library) -> str:
    """`emu.find(warp, addresses, mask, site, size, access) -> host addresses`: the slow way, lane by lane, through the map."""

    def body(
        c: Code, warp: Value, addresses: Value, mask: Value, site: Value, size: Value, access: Value
    ) -> None:
        thread = WARP.load(c, warp, "thread")
        sink = c.let("i64", f"ptrtoint {THREAD.load(c, thread, 'sink')} to i64")
        record = site_record(c, warp, site)
        size64, want = c.resize(size, 64), c.resize(access, 64)
        shift = c.resize(c.call("llvm.cttz.i32", "i32", size, Value("i1", "true")), 64)
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
                SITE.store(
                    c, record, "limit", c.op("add", c.op("lshr", c.op("sub", length, size64), shift), 1)
                )
            with c.otherwise(good):
                c.call(report(lib), "void", warp, kind, site, lane, address, size, c.resize(access, 64))
        c.ret(all_out.whole())

    parameters = {
        "warp": "ptr",
        "addresses": lib.v("i64"),
        "mask": lib.mask,
        "site": "i32",
        "size": "i32",
        "access": "i32",
    }
    return lib.define("emu.find", lib.v("i64"), parameters, body, core=True)


def stray(lib: Library, space: str) -> str:
    """`emu.stray.SPACE(warp, offsets, mask, good, base, site, size, access) -> host`: report the bad lanes, send them to the sink."""
    kind = ReportKind.SHARED_OUT_OF_BOUNDS if space == "shared" else ReportKind.LOCAL_OUT_OF_BOUNDS

    def body(
        c: Code,
        warp: Value,
        offsets: Value,
        mask: Value,
        good: Value,
        hosts: Value,
        site: Value,
        size: Value,
        access: Value,
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

    parameters = {
        "warp": "ptr",
        "offsets": lib.v("i32"),
        "mask": lib.mask,
        "good": lib.mask,
        "hosts": lib.v("i64"),
        "site": "i32",
        "size": "i32",
        "access": "i32",
    }
    return lib.define(f"emu.stray.{space}", lib.v("i64"), parameters, body, core=True)


def _rotated(c: Code, offset: Value, size: int) -> Value:
    shift = size.bit_length() - 1
    return c.intrinsic("fshr", offset, offset, c.const(offset.type, shift)) if shift else offset


def _within(lib: Library, c: Code, offsets: Value, limit: Value, size: int) -> Value:
    """Return which offsets are aligned and leave room for `size` bytes below `limit`."""
    steps = c.op("lshr", c.op("sub", limit, size), size.bit_length() - 1)
    steps = c.select(c.icmp("ult", limit, size), i32(0), c.op("add", steps, 1))
    return c.mask_bits(c.icmp("ult", _rotated(c, offsets, size), c.splat(steps, lib.lanes)))


def _inside_shared(lib: Library, c: Code, warp: Value, offsets: Value, size: int) -> Value:
    limit = THREAD.load(c, WARP.load(c, warp, "thread"), "shared_bytes")
    return _within(lib, c, offsets, limit, size)


def translate(lib: Library, space: str, size: int) -> str:
    """`emu.at.SPACE.SIZE(warp, addresses, mask, site, access) -> host addresses`, every one of them safe to use."""

    def at_global(c: Code, warp: Value, addresses: Value, mask: Value, site: Value, access: Value) -> None:
        record = site_record(c, warp, site)
        offset = c.op("sub", addresses, c.splat(SITE.load(c, record, "start"), lib.lanes))
        inside = c.icmp("ult", _rotated(c, offset, size), c.splat(SITE.load(c, record, "limit"), lib.lanes))
        bad = c.op("and", mask, c.not_(c.mask_bits(inside)))
        quick = c.op("add", addresses, c.splat(SITE.load(c, record, "delta"), lib.lanes))
        c.emit(f"br {c.icmp('eq', bad, 0)}, label %good, label %look, !prof !0")
        c.label("look")
        slow = c.call(find(lib), lib.v("i64"), warp, addresses, mask, site, i32(size), access)
        c.ret(slow)
        c.label("good")
        c.ret(quick)

    def within(
        c: Code,
        warp: Value,
        offsets: Value,
        mask: Value,
        site: Value,
        access: Value,
        hosts: Value,
        limit: Value,
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

    def at_shared(c: Code, warp: Value, offsets: Value, mask: Value, site: Value, access: Value) -> None:
        base = c.let("i64", f"ptrtoint {WARP.load(c, warp, 'shared')} to i64")
        hosts = c.op("add", c.resize(offsets, 64), c.splat(base, lib.lanes))
        limit = THREAD.load(c, WARP.load(c, warp, "thread"), "shared_bytes")
        within(c, warp, offsets, mask, site, access, hosts, limit)

    def at_local(c: Code, warp: Value, offsets: Value, mask: Value, site: Value, access: Value) -> None:
        base = c.let("i64", f"ptrtoint {WARP.load(c, warp, 'local')} to i64")
        limit = THREAD.load(c, WARP.load(c, warp, "thread"), "local_bytes")
        lane = c.op("mul", c.ints(lib.v("i64"), iota(lib.lanes, 1)), c.splat(c.resize(limit, 64), lib.lanes))
        hosts = c.op("add", c.op("add", c.resize(offsets, 64), lane), c.splat(base, lib.lanes))
        within(c, warp, offsets, mask, site, access, hosts, limit)

    body = {"global": at_global, "shared": at_shared, "local": at_local, "generic": _at_generic(lib, size)}[
        space
    ]
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


def _at_generic(lib: Library, size: int):  # type: ignore[no-untyped-def]  # noqa: ANN202 - the body of one helper
    def body(c: Code, warp: Value, addresses: Value, mask: Value, site: Value, access: Value) -> None:
        result = c.slot(lib.v("i64"))
        c.store(c.zero(lib.v("i64")), result)
        rest = mask
        for space in ("shared", "local"):
            offset, inside = split_generic(lib, c, warp, addresses, space)
            lanes = c.op("and", rest, c.mask_bits(inside))
            with c.when(c.icmp("ne", lanes, 0)):
                host = c.call(translate(lib, space, size), lib.v("i64"), warp, offset, lanes, site, access)
                c.store(c.select(inside, host, c.load(lib.v("i64"), result)), result)
            rest = c.op("and", rest, c.not_(c.mask_bits(inside)))
        with c.when(c.icmp("ne", rest, 0)):
            host = c.call(translate(lib, "global", size), lib.v("i64"), warp, addresses, rest, site, access)
            c.store(c.select(c.mask_lanes(rest), host, c.load(lib.v("i64"), result)), result)
        c.ret(c.load(lib.v("i64"), result))

    return body


def split_generic(lib: Library, c: Code, warp: Value, addresses: Value, space: str) -> tuple[Value, Value]:
    """Return the offsets of generic addresses in a window, as i32, and which lanes lie in it."""
    window = THREAD.load(c, WARP.load(c, warp, "thread"), f"{space}_window")
    offset = c.op("sub", addresses, c.splat(window, lib.lanes))
    inside = c.icmp("ult", offset, SHARED_WINDOW_BYTES if space == "shared" else LOCAL_WINDOW_BYTES)
    return c.resize(offset, 32), inside


_ROW = 16
"""Lanes that are looked at together: their addresses often follow one another, or are one address."""


@dataclass(frozen=True, slots=True)
class _Rows:
    """Where the rows of a warp's lanes begin, and which lanes follow the first of their row, or name the same place."""

    bases: list[Value]
    following: Value
    same: Value


def _contiguous(lib: Library, c: Code, hosts: Value, step: int) -> tuple[Value, Value]:
    base = c.extract(hosts, 0)
    wanted = c.op("add", c.splat(base, lib.lanes), c.ints(lib.v("i64"), iota(lib.lanes, step)))
    return base, c.mask_bits(c.icmp("eq", hosts, wanted))


def _rows(lib: Library, c: Code, places: Value, step: int) -> _Rows:
    firsts = c.shuffle(places, None, [lane // _ROW * _ROW for lane in range(lib.lanes)])
    wanted = c.op("add", firsts, c.ints(places.type, [lane % _ROW * step for lane in range(lib.lanes)]))
    bases = [c.extract(places, row) for row in range(0, lib.lanes, _ROW)]
    return _Rows(bases, c.mask_bits(c.icmp("eq", places, wanted)), c.mask_bits(c.icmp("eq", places, firsts)))


def _row_mask(c: Code, mask: Value, row: int) -> Value:
    return c.resize(c.op("lshr", mask, row * _ROW) if row else mask, _ROW)


def _joined(c: Code, parts: list[Value]) -> Value:
    while len(parts) > 1:
        size = 2 * lanes_of(parts[0].type)
        parts = [c.shuffle(low, high, range(size)) for low, high in zip(parts[::2], parts[1::2], strict=True)]
    return parts[0]


def _load_rows(c: Code, pointers: list[Value], mask: Value, bits: int) -> Value:
    """Load rows that each lie in one piece."""
    return _joined(c, [
        c.masked_load(f"<{_ROW} x i{bits}>", pointer, c.mask_lanes(_row_mask(c, mask, row)), bits // 8)
        for row, pointer in enumerate(pointers)
    ])  # fmt: skip


def _spread_rows(c: Code, pointers: list[Value], mask: Value, bits: int) -> Value:
    """Load one item a row for all its lanes; a row without active lanes loads nothing."""
    type_, parts = f"<{_ROW} x i{bits}>", []
    for row, pointer in enumerate(pointers):
        some = c.resize(c.icmp("ne", _row_mask(c, mask, row), 0), _ROW)
        item = c.masked_load(type_, pointer, c.mask_lanes(some), bits // 8)
        parts.append(c.shuffle(item, None, [0] * _ROW))
    return _joined(c, parts)


def pick(lib: Library, bits: int) -> str:
    """`emu.pick.BITS(hosts, mask) -> values`: one load a lane, where gathers are slow or do not exist."""

    def body(c: Code, hosts: Value, mask: Value) -> None:
        all_in, all_out = Spilled(c, hosts), Spilled(c, lib.v(f"i{bits}"))
        with c.each_lane(mask) as lane:
            pointer = c.let("ptr", f"inttoptr {all_in.get(lane)} to ptr")
            all_out.set(lane, c.load(f"i{bits}", pointer))
        c.ret(all_out.whole())

    return lib.define(
        f"emu.pick.{bits}", lib.v(f"i{bits}"), {"hosts": lib.v("i64"), "mask": lib.mask}, body, core=True
    )


def drop(lib: Library, bits: int) -> str:
    """`emu.drop.BITS(hosts, values, mask)`: one store a lane, lowest lane first."""

    def body(c: Code, hosts: Value, values: Value, mask: Value) -> None:
        all_in, data = Spilled(c, hosts), Spilled(c, values)
        with c.each_lane(mask) as lane:
            pointer = c.let("ptr", f"inttoptr {all_in.get(lane)} to ptr")
            c.store(data.get(lane), pointer)
        c.ret()

    parameters = {"hosts": lib.v("i64"), "values": lib.v(f"i{bits}"), "mask": lib.mask}
    return lib.define(f"emu.drop.{bits}", "void", parameters, body, core=True)


def _scattered(lib: Library, bits: int) -> bool:
    return bits >= 32 and lib.target.gathers


def _load_one(lib: Library, c: Code, hosts: Value, mask: Value, bits: int) -> Value:
    if _scattered(lib, bits):
        return c.gather(lib.v(f"i{bits}"), c.cast("inttoptr", hosts, "ptr"), c.mask_lanes(mask), bits // 8)
    return c.call(pick(lib, bits), lib.v(f"i{bits}"), hosts, mask)


def _store_one(lib: Library, c: Code, hosts: Value, value: Value, mask: Value) -> None:
    bits = bits_of(value.type)
    if _scattered(lib, bits):
        c.scatter(value, c.cast("inttoptr", hosts, "ptr"), c.mask_lanes(mask), bits // 8)
    else:
        c.call(drop(lib, bits), "void", hosts, value, mask)


def load(lib: Library, space: str, bits: int, count: int) -> str:
    """`emu.load.SPACE.BITSxCOUNT(warp, addresses, mask, site) -> values` (a struct of vectors when COUNT > 1)."""
    one = lib.v(f"i{bits}")
    result = one if count == 1 else "{ " + ", ".join([one] * count) + " }"
    size = bits // 8 * count

    def several(c: Code, warp: Value, addresses: Value, mask: Value, site: Value) -> None:
        hosts = c.call(translate(lib, space, size), lib.v("i64"), warp, addresses, mask, site, i32(READ))
        sanitize.watch(lib, c, space, warp, addresses, mask, site, size, READ)
        base, same = _contiguous(lib, c, hosts, size)
        c.branch(c.icmp("eq", c.op("and", same, mask), -1), "near", "far")
        c.label("near")
        pointer = c.let("ptr", f"inttoptr {base} to ptr")
        block = c.load(f"<{lib.lanes * count} x i{bits}>", pointer, align=bits // 8)
        c.ret(
            _structure(
                c, result, [c.shuffle(block, None, range(i, lib.lanes * count, count)) for i in range(count)]
            )
        )
        c.label("far")
        steps = [c.op("add", hosts, i * bits // 8) if i else hosts for i in range(count)]
        c.ret(_structure(c, result, [_load_one(lib, c, step, mask, bits) for step in steps]))

    def single(c: Code, warp: Value, addresses: Value, mask: Value, site: Value) -> None:
        def rest(hosts: Value) -> None:
            c.ret(_load_one(lib, c, hosts, mask, bits))

        sanitize.watch(lib, c, space, warp, addresses, mask, site, size, READ)
        places, pointer, far = _placed(lib, c, space, warp, addresses, mask, site, size, READ, rest)
        rows = _rows(lib, c, places, size)
        idle = c.not_(mask)
        c.branch(c.icmp("eq", c.op("or", rows.following, idle), -1), "near", "look")
        c.label("near")
        c.ret(_load_rows(c, [pointer(base) for base in rows.bases], mask, bits))
        c.label("look")
        c.branch(c.icmp("eq", c.op("or", rows.same, idle), -1), "spread", "far")
        c.label("spread")
        c.ret(_spread_rows(c, [pointer(base) for base in rows.bases], mask, bits))
        c.label("far")
        if _scattered(lib, bits):
            c.ret(c.gather(one, far(), c.mask_lanes(mask), bits // 8))
        else:
            rest(c.cast("ptrtoint", far(), "i64"))

    parameters = {"warp": "ptr", "addresses": address_type(lib, space), "mask": lib.mask, "site": "i32"}
    hot = count == 1 and space == "global"
    body = single if count == 1 else several
    return lib.define(f"emu.load.{space}.{bits}x{count}", result, parameters, body, core=True, hot=hot)


def _structure(c: Code, type_: str, values: list[Value]) -> Value:
    whole = Value(type_, "poison")
    for i, value in enumerate(values):
        whole = c.let(type_, f"insertvalue {whole}, {value}, {i}")
    return whole


def _placed(
    lib: Library, c: Code, space: str, warp: Value, addresses: Value, mask: Value, site: Value, size: int, access: int,
    rest: Callable[[Value], None],
) -> tuple[Value, Callable[[Value], Value], Callable[[], Value]]:  # fmt: skip
    """Check addresses; return them as places to compare, how one becomes a pointer, and how all do.

    In shared memory places are offsets of 32 bits: half the work. There `rest` writes what is done when a lane strays.
    """
    if space != "shared":
        hosts = c.call(translate(lib, space, size), lib.v("i64"), warp, addresses, mask, site, i32(access))
        return (
            hosts,
            lambda base: c.let("ptr", f"inttoptr {base} to ptr"),
            lambda: c.cast("inttoptr", hosts, "ptr"),
        )
    shared = WARP.load(c, warp, "shared")
    bad = c.op("and", mask, c.not_(_inside_shared(lib, c, warp, addresses, size)))
    c.emit(f"br {c.icmp('eq', bad, 0)}, label %good, label %astray, !prof !0")
    c.label("astray")
    rest(c.call(translate(lib, "shared", size), lib.v("i64"), warp, addresses, mask, site, i32(access)))
    c.label("good")
    return (
        addresses,
        lambda base: c.gep(shared, c.resize(base, 64)),
        lambda: c.gep(shared, c.resize(addresses, 64, signed=True)),
    )


def store(lib: Library, space: str, bits: int, count: int) -> str:
    """`emu.store.SPACE.BITSxCOUNT(warp, addresses, values..., mask, site)`."""
    size = bits // 8 * count

    def several(c: Code, warp: Value, addresses: Value, *rest: Value) -> None:
        values, mask, site = rest[:count], rest[count], rest[count + 1]
        hosts = c.call(translate(lib, space, size), lib.v("i64"), warp, addresses, mask, site, i32(WRITE))
        sanitize.watch(lib, c, space, warp, addresses, mask, site, size, WRITE)
        for i, value in enumerate(values):
            _store_one(lib, c, c.op("add", hosts, i * bits // 8) if i else hosts, value, mask)
        c.ret()

    def single(c: Code, warp: Value, addresses: Value, value: Value, mask: Value, site: Value) -> None:
        def rest(hosts: Value) -> None:
            _store_one(lib, c, hosts, value, mask)
            c.ret()

        sanitize.watch(lib, c, space, warp, addresses, mask, site, size, WRITE)
        places, pointer, far = _placed(lib, c, space, warp, addresses, mask, site, size, WRITE, rest)
        rows = _rows(lib, c, places, size)
        c.branch(c.icmp("eq", c.op("or", rows.following, c.not_(mask)), -1), "near", "far")
        c.label("near")
        for row, base in enumerate(rows.bases):
            part = c.shuffle(value, None, range(row * _ROW, (row + 1) * _ROW))
            c.masked_store(part, pointer(base), c.mask_lanes(_row_mask(c, mask, row)), size)
        c.ret()
        c.label("far")
        if _scattered(lib, bits):
            c.scatter(value, far(), c.mask_lanes(mask), size)
            c.ret()
        else:
            rest(c.cast("ptrtoint", far(), "i64"))

    parameters = {"warp": "ptr", "addresses": address_type(lib, space)}
    parameters |= {f"value{i}": lib.v(f"i{bits}") for i in range(count)} | {"mask": lib.mask, "site": "i32"}
    hot = count == 1 and space == "global"
    body = single if count == 1 else several
    return lib.define(f"emu.store.{space}.{bits}x{count}", "void", parameters, body, core=True, hot=hot)


def define_core(lib: Library) -> None:
    """Write the loads and stores that kernels commonly use."""
    for space in SPACES:
        for bits in (8, 16, 32, 64):
            for count in (1, 2, 4, 8):
                if bits * count <= 256:
                    load(lib, space, bits, count)
                    store(lib, space, bits, count)
