"""Shadows of global memory: the last writer and reader of each dword, and the bytes that were written.

An access races with an earlier access of another workgroup, unless that workgroup released afterwards and then
wrote strongly, and this one observed the write, directly or through others, and acquired (`group_order`). Once a
workgroup has executed a fence, each of its atomics acquires, too, as in the "last block" pattern. Strong accesses,
whose scope is wider than a workgroup, do not race with one another. Accesses narrower than a dword are not
checked: different workgroups may access different bytes of one dword. A store that may be plain (`addresses.UNMARKED`)
is strong beside strong accesses only.

Not here: shared memory (`shadow_shared`), the order of workgroups (`group_order`), races within one (`shadow_order`).
"""

# ruff: noqa: E501, PLR0917 - helpers mirror the functions they write, argument for argument

from __future__ import annotations

from typing import TYPE_CHECKING

from drivers.emu.report import ReportKind
from drivers.emu.sanitizers import group_order
from drivers.emu.sanitizers.clocks import LANDED
from drivers.emu.sanitizers.group_order import PARTY, STRONG_PARTY, UNMARKED_PARTY
from drivers.emu.sanitizers.shadow_order import check_warps
from drivers.emu.simt.addresses import ATOMIC, CLUSTERED, NARROW, READ, STRONG, UNMARKED, search
from drivers.emu.simt.findings import i32, report_conflict, watch_parameters
from drivers.emu.simt.state import GROUP, LAUNCH, MAP_ENTRY, THREAD, WARP
from drivers.emu.simt.vector import Spilled, Value

if TYPE_CHECKING:
    from drivers.emu.simt.library import Library
    from drivers.emu.simt.vector import Code

RACE_CELL = {"writer": 0, "reader": 8, "read_at": 16, "atomic_at": 20, "stored_at": 24, "storer": 28}
"""Byte offsets of the u32 fields in a cell of global memory.

`writer` and `reader` are workgroup numbers from 1, with `STRONG_PARTY` set for a strong access, and `UNMARKED_PARTY`
for a store that may be plain; the time of the access follows each. `read_at`, `atomic_at` and `stored_at` name the
instruction and thread of the last read, strong write and plain store (`race_place`; 0 is none); a store that may be
plain is named with the plain ones. `storer` is the workgroup of the plain store.
"""
THREAD_BITS = 10


def watch_global(lib: Library) -> str:
    """`emu.watch.global(warp, addresses, mask, site, size, access)`: check and update the shadows of each lane's access."""
    checks = lib.checks

    def body(
        c: Code, warp: Value, addresses: Value, mask: Value, site: Value, size: Value, access: Value
    ) -> None:
        thread = WARP.load(c, warp, "thread")
        all_in, size64 = Spilled(c, addresses), c.resize(size, 64)
        some = c.icmp("ne", THREAD.load(c, thread, "map_count"), 0)
        with c.when(some), c.each_lane(mask) as lane:
            address = all_in.get(lane)
            entry = c.call(search(lib), "ptr", thread, address)
            offset = c.op("sub", address, MAP_ENTRY.load(c, entry, "start"))
            length = MAP_ENTRY.load(c, entry, "size")
            inside = c.op(
                "and", c.icmp("ult", offset, length), c.icmp("ule", c.op("add", offset, size64), length)
            )
            with c.when(inside):
                if checks.uninitialised:
                    _note_initialised(
                        lib,
                        c,
                        warp,
                        MAP_ENTRY.load(c, entry, "initialised"),
                        offset,
                        lane,
                        site,
                        size,
                        access,
                        address,
                    )
                if checks.last_accesses:
                    marked = c.op("or", _strong(c, thread, access), _unmarked(c, access))
                    recorded = c.op("or", c.icmp("uge", size, 4), marked)
                    with (
                        c.when(recorded),
                        c.count(c.intrinsic("umax", c.op("lshr", size, 2), i32(1))) as dword,
                    ):
                        at = c.op("add", c.op("lshr", offset, 2), c.resize(dword, 64))
                        _note_party(
                            lib,
                            c,
                            warp,
                            entry,
                            at,
                            lane,
                            site,
                            size,
                            access,
                            address,
                        )
        c.ret()

    return lib.define("emu.watch.global", "void", watch_parameters(lib, "i64"), body, core=True)


def _note_initialised(
    lib: Library,
    c: Code,
    warp: Value,
    shadow: Value,
    offset: Value,
    lane: Value,
    site: Value,
    size: Value,
    access: Value,
    address: Value,
) -> None:
    kind = c.op("and", access, STRONG - 1)
    relies = c.icmp("eq", c.op("and", kind, READ | ATOMIC), kind)
    with c.when(c.icmp("ne", shadow, 0)), c.count(size) as byte:
        at = c.let("ptr", f"inttoptr {c.op('add', c.op('add', shadow, offset), c.resize(byte, 64))} to ptr")
        fresh = c.icmp("eq", c.load("i8", at), 0)
        with c.when(c.op("and", fresh, relies)):
            report_conflict(lib, c, warp, ReportKind.UNINITIALISED, site, lane, address, size, kind, i32(0))
        with c.when(c.icmp("ne", kind, READ)):
            c.store(Value("i8", "1"), at)


def place_of(lib: Library, c: Code, warp: Value, site: Value, lane: Value) -> Value:
    """Return the word that encodes an instruction and a thread of its workgroup; never 0. `race_place` decodes it."""
    thread = c.op("add", c.op("mul", WARP.load(c, warp, "index"), lib.lanes), lane)
    return c.op("add", c.op("or", c.op("shl", site, THREAD_BITS), thread), 1)


def race_place(word: int) -> tuple[int, int]:
    """Return the numbers of the instruction and of the thread in its workgroup that a `place_of` word encodes."""
    return (word - 1) >> THREAD_BITS, (word - 1) & ((1 << THREAD_BITS) - 1)


def _strong(c: Code, thread: Value, access: Value) -> Value:
    """Return whether an access is strong with a scope beyond its workgroup.

    Where clusters have several workgroups, the scope of a cluster counts as that of the GPU.
    """
    strong = c.icmp("ne", c.op("and", access, ATOMIC | STRONG), 0)
    alone = c.icmp("eq", THREAD.load(c, thread, "cluster"), 1)
    narrow = c.op("and", access, c.select(alone, i32(NARROW | CLUSTERED), i32(NARROW)))
    return c.op("and", strong, c.icmp("eq", narrow, 0))


def _unmarked(c: Code, access: Value) -> Value:
    """Return whether an access is a store that may be atomic or plain."""
    return c.icmp("ne", c.op("and", access, UNMARKED), 0)


def _note_party(
    lib: Library,
    c: Code,
    warp: Value,
    entry: Value,
    dword: Value,
    lane: Value,
    site: Value,
    size: Value,
    access: Value,
    address: Value,
) -> None:
    group = WARP.load(c, warp, "group")
    thread = WARP.load(c, warp, "thread")
    launch = THREAD.load(c, thread, "launch")
    now, acquired = (
        c.resize(LAUNCH.load(c, launch, "sequence"), 32),
        c.resize(GROUP.load(c, group, "acquired"), 32),
    )
    index = GROUP.load(c, group, "index")
    me = c.op("add", index, 1)
    kind, strong, unmarked = c.op("and", access, STRONG - 1), _strong(c, thread, access), _unmarked(c, access)
    writes, lands = c.icmp("ne", kind, READ), c.icmp("eq", kind, LANDED)
    shadow, ordered = MAP_ENTRY.load(c, entry, "touched"), MAP_ENTRY.load(c, entry, "order")
    weak = c.select(unmarked, c.const("i32", STRONG_PARTY | UNMARKED_PARTY), i32(0))
    flags = c.select(strong, c.const("i32", STRONG_PARTY), weak)
    mine = c.op("or", me, flags)
    cell = c.let("ptr", f"inttoptr {c.op('add', shadow, c.op('shl', dword, 5))} to ptr")
    lanes_before = c.op("mul", WARP.load(c, warp, "index"), lib.lanes)
    flat = c.op("add", lanes_before, c.resize(lane, 32))
    place = c.op("add", c.op("or", c.op("shl", site, THREAD_BITS), flat), 1)

    def part(name: str) -> Value:
        return c.gep(cell, RACE_CELL[name])

    def check(at: int) -> None:
        if not lib.checks.global_races:
            return
        other, when = c.load("i32", c.gep(cell, at)), c.load("i32", c.gep(cell, at + 4))
        party = c.op("and", other, PARTY)
        foreign = c.op("and", c.icmp("ne", party, 0), c.icmp("ne", party, me))
        marked = c.icmp("eq", c.op("and", other, STRONG_PARTY | UNMARKED_PARTY), c.const("i32", STRONG_PARTY))
        both = c.op("or", c.op("and", strong, c.icmp("slt", other, 0)), c.op("and", unmarked, marked))
        exempt = c.op("or", both, c.icmp("ult", size, 4))
        with c.when(c.op("and", foreign, c.not_(exempt))):
            number = c.op("sub", party, 1)
            with c.when(group_order.unordered(c, thread, index, number, when, acquired)):
                report_conflict(lib, c, warp, ReportKind.GLOBAL_RACE, site, lane, address, size, kind, number)

    if lib.checks.global_races and lib.checks.shared_races:
        with c.when(c.icmp("ne", ordered, 0)):
            stored = c.icmp("eq", c.load("i32", part("storer")), me), c.load("i32", part("stored_at"))
            reader = c.op("and", c.load("i32", part("reader")), PARTY)
            read = c.icmp("eq", reader, me), c.load("i32", part("read_at"))
            check_warps(lib, c, warp, ordered, dword, lane, site, size, access, address, stored, read)
    with c.when(c.op("and", c.icmp("ne", shadow, 0), c.not_(lands))):
        check(0)
        with c.when(writes):
            check(8)
            published = c.op("or", strong, unmarked)
            if lib.checks.global_races:
                with c.when(published):
                    group_order.publish(lib, c, thread, index, cell, flags)
            with c.otherwise(published):
                c.store(mine, cell)
                c.store(now, c.gep(cell, 4))
            with c.when(strong):
                if not lib.checks.global_races:
                    c.store(mine, cell)
                c.store(place, part("atomic_at"))
            with c.otherwise(strong):
                c.store(place, part("stored_at"))
                c.store(me, part("storer"))
        with c.otherwise(writes):
            c.store(mine, c.gep(cell, 8))
            c.store(now, c.gep(cell, 12))
            c.store(place, part("read_at"))
