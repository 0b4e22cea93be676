"""Shadows of global memory: who last wrote and last read each dword, and which bytes anybody wrote.

An access by another workgroup is a race unless that one has passed a fence since (a workgroup that has
fenced once acquires with each atomic too, as in the "last block" pattern). Atomics do not race with atomics.
Accesses narrower than a dword are not judged: neighbours may rightly share a dword.
"""

# ruff: noqa: E501, PLR0917 - helpers mirror the functions they write, argument for argument

from __future__ import annotations

from typing import TYPE_CHECKING

from drivers.emu.addresses import ATOMIC, READ, WRITE, search
from drivers.emu.findings import i32, tell, watch_parameters
from drivers.emu.report import ReportKind
from drivers.emu.state import GROUP, LAUNCH, MAP_ENTRY, THREAD, WARP
from drivers.emu.vector import Spilled, Value

if TYPE_CHECKING:
    from drivers.emu.library import Library
    from drivers.emu.vector import Code

RACE_CELL = {"writer": 0, "reader": 8, "read_at": 16, "atomic_at": 20, "stored_at": 24, "storer": 28}
"""Where a cell of global memory keeps what: parties are numbers of workgroups, from 1, that of an atomic has
the top bit set; behind `writer` and `reader` lies when. Places are those of the last read, atomic and plain store
as `race_place` reads them, 0 is none; `storer` is the workgroup of the plain store."""
_THREAD_BITS = 10
_ATOMIC_GROUP = 1 << 31


def watch_global(lib: Library) -> str:
    """`emu.watch.global(warp, addresses, mask, site, size, access)`: look at the shadows of each lane's allocation."""
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
                if checks.global_races:
                    wide = c.icmp("uge", size, 4)
                    with c.when(wide), c.count(c.op("lshr", size, 2)) as dword:
                        at = c.op("add", c.op("lshr", offset, 2), c.resize(dword, 64))
                        _note_party(
                            lib,
                            c,
                            warp,
                            MAP_ENTRY.load(c, entry, "touched"),
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
    with c.when(c.icmp("ne", shadow, 0)), c.count(size) as byte:
        at = c.let("ptr", f"inttoptr {c.op('add', c.op('add', shadow, offset), c.resize(byte, 64))} to ptr")
        fresh = c.icmp("eq", c.load("i8", at), 0)
        with c.when(c.op("and", fresh, c.icmp("ne", access, WRITE))):
            tell(lib, c, warp, ReportKind.UNINITIALISED, site, lane, address, size, access, i32(0))
        with c.when(c.icmp("ne", access, READ)):
            c.store(Value("i8", "1"), at)


def race_place(word: int) -> tuple[int, int]:
    """Return the number of the instruction and the thread of its workgroup that a place of a `RACE_CELL` names."""
    return (word - 1) >> _THREAD_BITS, (word - 1) & ((1 << _THREAD_BITS) - 1)


def _note_party(
    lib: Library,
    c: Code,
    warp: Value,
    shadow: Value,
    dword: Value,
    lane: Value,
    site: Value,
    size: Value,
    access: Value,
    address: Value,
) -> None:
    group = WARP.load(c, warp, "group")
    launch = THREAD.load(c, WARP.load(c, warp, "thread"), "launch")
    now, acquired = (
        c.resize(LAUNCH.load(c, launch, "sequence"), 32),
        c.resize(GROUP.load(c, group, "acquired"), 32),
    )
    me = c.op("add", GROUP.load(c, group, "index"), 1)
    is_atomic = c.icmp("eq", access, ATOMIC)
    writes = c.icmp("ne", access, READ)
    mine = c.op("or", me, c.select(is_atomic, c.const("i32", _ATOMIC_GROUP), i32(0)))
    cell = c.let("ptr", f"inttoptr {c.op('add', shadow, c.op('shl', dword, 5))} to ptr")
    lanes_before = c.op("mul", WARP.load(c, warp, "index"), lib.lanes)
    flat = c.op("add", lanes_before, c.resize(lane, 32))
    place = c.op("add", c.op("or", c.op("shl", site, _THREAD_BITS), flat), 1)

    def part(name: str) -> Value:
        return c.gep(cell, RACE_CELL[name])

    def judge(at: int) -> None:
        other, when = c.load("i32", c.gep(cell, at)), c.load("i32", c.gep(cell, at + 4))
        party = c.op("and", other, _ATOMIC_GROUP - 1)
        foreign = c.op("and", c.icmp("ne", party, 0), c.icmp("ne", party, me))
        both = c.op("and", is_atomic, c.icmp("slt", other, 0))
        unordered = c.icmp("ule", acquired, when)
        with c.when(c.op("and", c.op("and", foreign, c.not_(both)), unordered)):
            tell(
                lib, c, warp, ReportKind.GLOBAL_RACE, site, lane, address, size, access, c.op("sub", party, 1)
            )

    with c.when(c.icmp("ne", shadow, 0)):
        judge(0)
        with c.when(writes):
            judge(8)
            c.store(mine, cell)
            c.store(now, c.gep(cell, 4))
            with c.when(is_atomic):
                c.store(place, part("atomic_at"))
            with c.otherwise(is_atomic):
                c.store(place, part("stored_at"))
                c.store(me, part("storer"))
        with c.otherwise(writes):
            c.store(mine, c.gep(cell, 8))
            c.store(now, c.gep(cell, 12))
            c.store(place, part("read_at"))
