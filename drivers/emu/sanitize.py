"""Opt-in checks in generated code: races in shared memory and between workgroups, reads of memory nobody wrote, partial barriers.

**Shared memory.** Every warp has a vector clock; barriers, fences and mbarriers join clocks. Each byte
remembers its last writer and two readers with their clocks. An access is a race when the other party's
clock is not known to the accessing warp. Lanes of one warp are taken to be in order. What an asynchronous
copy writes is nobody's to use until its warp has waited for it; then it counts as that warp's write.

**Between workgroups.** Each dword of global memory remembers the workgroup that last wrote and last read
it, and when; where, is noted for those who compare launches (`RACE_CELL`). An access by another workgroup is a race unless that one has passed a fence since (a workgroup
that has fenced once acquires with each atomic too, as in the "last block" pattern). Atomics do not race
with atomics. Accesses narrower than a dword are not judged: neighbours may rightly share a dword.

**Uninitialised.** Memory the CPU cannot write (`Mapping.tracked`) and shared memory remember which bytes
were written.

What is off costs nothing: no code is made for it.
"""

# ruff: noqa: E501, PLR0917 - helpers mirror the functions they write, argument for argument

from __future__ import annotations

from typing import TYPE_CHECKING

from drivers.emu import access as memory
from drivers.emu.report import ReportKind
from drivers.emu.state import BARRIERS, GROUP, LAUNCH, MAP_ENTRY, THREAD, WARP
from drivers.emu.vector import Spilled, Value

if TYPE_CHECKING:
    from drivers.emu.library import Library, Sanitizers
    from drivers.emu.simt import WarpFunction
    from drivers.emu.vector import Code

_FENCES = BARRIERS
_CELL = 16
RACE_CELL = {"writer": 0, "reader": 8, "read_at": 16, "atomic_at": 20, "stored_at": 24, "storer": 28}
"""Where a cell of global memory keeps what: parties are numbers of workgroups, from 1, that of an atomic has
the top bit set; behind `writer` and `reader` lies when. Places are those of the last read, atomic and plain store
as `race_place` reads them, 0 is none; `storer` is the workgroup of the plain store."""
_THREAD_BITS = 10
_ATOMIC_CLOCK = 1 << 23
_CLOCK = _ATOMIC_CLOCK - 1
_ATOMIC_GROUP = 1 << 31
_COPY, _LANDED = 8, 16
"""Beside READ, WRITE and ATOMIC: an asynchronous copy that begins, and one that was waited for."""
_IN_FLIGHT = _CLOCK
"""The clock of bytes that a copy is still to write: known to no warp."""


def _clocks_bytes(warps: int) -> int:
    return -(-4 * warps * (warps + BARRIERS + 1) // 8) * 8


def shadow_bytes(checks: Sanitizers, warps: int, shared: int) -> int:
    """Return the bytes of shadow that a resident workgroup needs."""
    return _clocks_bytes(warps) + _CELL * shared if checks.shared_races or checks.uninitialised else 0


def _i32(value: int) -> Value:
    return Value("i32", str(value))


def _i64(value: int) -> Value:
    return Value("i64", str(value))


def _warps(c: Code, group: Value) -> Value:
    return THREAD.load(c, GROUP.load(c, group, "thread"), "warps")


def _clock(c: Code, group: Value, row: Value, column: Value) -> Value:
    """Return where one component of a clock lies; rows behind the warps' are those of barriers and of fences."""
    warps = _warps(c, group)
    at = c.op("add", c.op("mul", row, warps), column)
    return c.gep(GROUP.load(c, group, "shadow"), c.op("shl", c.resize(at, 64), 2))


def _cells(c: Code, group: Value) -> Value:
    warps = _warps(c, group)
    size = c.op("shl", c.op("mul", warps, c.op("add", warps, BARRIERS + 1)), 2)
    size = c.op("and", c.op("add", size, 7), ~7)
    return c.gep(GROUP.load(c, group, "shadow"), c.resize(size, 64))


def begin_group(lib: Library, c: Code, thread: Value, group: Value) -> None:
    """Clear the shadow of a workgroup and start its warps' clocks."""
    GROUP.store(c, group, "acquired", 0)
    if not (lib.checks.shared_races or lib.checks.uninitialised):
        return
    warps = THREAD.load(c, thread, "warps")
    first = _cells(c, group)
    length = c.op("mul", c.resize(THREAD.load(c, thread, "shared_bytes"), 64), _CELL)
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
        c.store(_i32(1), _clock(c, group, index, index))


def _join(lib: Library) -> str:
    """`emu.join(group, to, from)`: make one row of clocks know all that another knows."""

    def body(c: Code, group: Value, to: Value, source: Value) -> None:
        with c.count(_warps(c, group)) as column:
            here, there = _clock(c, group, to, column), _clock(c, group, source, column)
            c.store(c.intrinsic("umax", c.load("i32", here), c.load("i32", there)), here)
        c.ret()

    return lib.define("emu.join", "void", {"group": "ptr", "to": "i32", "source": "i32"}, body, core=True)


def _tick(c: Code, group: Value, index: Value) -> None:
    at = _clock(c, group, index, index)
    c.store(c.op("and", c.op("add", c.load("i32", at), 1), _CLOCK), at)


def barrier_arrive(lib: Library, c: Code, warp: Value, group: Value, number: Value) -> None:
    """A warp arrives at a barrier: the barrier learns what it knows."""
    if not lib.checks.shared_races:
        return
    index = WARP.load(c, warp, "index")
    c.call(_join(lib), "void", group, c.op("add", number, _warps(c, group)), index)
    _tick(c, group, index)


def warp_released(lib: Library, c: Code, thread: Value, group: Value, number: Value, index: Value) -> None:
    """A warp leaves a barrier: it learns what the barrier knows."""
    if lib.checks.shared_races:
        c.call(_join(lib), "void", group, index, c.op("add", number, THREAD.load(c, thread, "warps")))


def _fence(lib: Library) -> str:
    """`emu.fenced(warp)`: publish what a warp did and learn what others published."""

    def body(c: Code, warp: Value) -> None:
        group, index = WARP.load(c, warp, "group"), WARP.load(c, warp, "index")
        if lib.checks.shared_races:
            row = c.op("add", _warps(c, group), _FENCES)
            c.call(_join(lib), "void", group, row, index)
            c.call(_join(lib), "void", group, index, row)
            _tick(c, group, index)
        GROUP.store(c, group, "fenced", 1)
        _acquire(c, group)
        c.ret()

    return lib.define("emu.fenced", "void", {"warp": "ptr"}, body, core=True)


def _acquire(c: Code, group: Value) -> None:
    launch = THREAD.load(c, GROUP.load(c, group, "thread"), "launch")
    now = c.let("i64", f"atomicrmw add {LAUNCH.address(c, launch, 'sequence')}, i64 1 seq_cst")
    GROUP.store(c, group, "acquired", c.op("add", now, 1))


def fenced(wf: WarpFunction) -> None:
    """The kernel executes a fence."""
    if wf.lib.checks.shared_races or wf.lib.checks.global_races:
        wf.c.call(_fence(wf.lib), "void", wf.warp)


def after_atomic(wf: WarpFunction, space: str) -> None:
    """The kernel executed an atomic: one that follows a fence acquires."""
    if wf.lib.checks.global_races and space != "shared":
        with wf.c.when(wf.c.icmp("ne", wf.of_group("fenced"), 0)):
            _acquire(wf.c, wf.group)


def partial_barrier(wf: WarpFunction, site: int) -> None:
    """The kernel is at a barrier that all lanes of a warp must reach together."""
    if wf.lib.checks.partial_barriers:
        away = wf.c.op("and", wf.live, wf.c.not_(wf.active))
        with wf.c.when(wf.c.icmp("ne", away, 0), likely=False):
            wf.report(ReportKind.PARTIAL_BARRIER, site, away)


def watch(
    lib: Library,
    c: Code,
    space: str,
    warp: Value,
    addresses: Value,
    mask: Value,
    site: Value,
    size: int,
    access: int,
) -> None:
    """Append the checks of one access; its addresses are known to be good or reported."""
    checks = lib.checks
    if space == "generic" and checks.any:
        offsets, inside = memory.split_generic(lib, c, warp, addresses, "shared")
        lanes = c.op("and", mask, c.mask_bits(inside))
        watch(lib, c, "shared", warp, offsets, lanes, site, size, access)
        _, local = memory.split_generic(lib, c, warp, addresses, "local")
        rest = c.op("and", c.op("and", mask, c.not_(lanes)), c.not_(c.mask_bits(local)))
        watch(lib, c, "global", warp, addresses, rest, site, size, access)
    elif space == "shared" and (checks.shared_races or checks.uninitialised):
        c.call(_watch_shared(lib), "void", warp, addresses, mask, site, _i32(size), _i32(access))
    elif space == "global" and checks.shadows:
        c.call(_watch_global(lib), "void", warp, addresses, mask, site, _i32(size), _i32(access))


def copy_begins(
    lib: Library, c: Code, warp: Value, offsets: Value, mask: Value, site: Value, size: int
) -> None:
    """Append the checks of the shared bytes that an asynchronous copy will write some time."""
    if lib.checks.shared_races or lib.checks.uninitialised:
        c.call(_watch_shared(lib), "void", warp, offsets, mask, site, _i32(size), _i32(_COPY))


def copy_landed(
    lib: Library, c: Code, warp: Value, offsets: Value, mask: Value, site: Value, size: Value
) -> None:
    """Append the note that a warp has waited for its copy."""
    if lib.checks.shared_races or lib.checks.uninitialised:
        c.call(_watch_shared(lib), "void", warp, offsets, mask, site, size, _i32(_LANDED))


def _watch_shared(lib: Library) -> str:
    """`emu.watch.shared(warp, offsets, mask, site, size, access)`: judge each byte of each lane, then note the access."""
    checks = lib.checks

    def body(
        c: Code, warp: Value, offsets: Value, mask: Value, site: Value, size: Value, access: Value
    ) -> None:
        group, index = WARP.load(c, warp, "group"), WARP.load(c, warp, "index")
        limit = THREAD.load(c, WARP.load(c, warp, "thread"), "shared_bytes")
        clock = c.load("i32", _clock(c, group, index, index))
        is_atomic = c.icmp("eq", access, memory.ATOMIC)
        writes = c.icmp("ne", access, memory.READ)
        uses = c.icmp("ne", access, _LANDED)
        relies = c.icmp("eq", c.op("and", access, memory.READ | memory.ATOMIC), access)
        clock = c.select(c.icmp("eq", access, _COPY), _i32(_IN_FLIGHT), clock)
        flag = c.select(is_atomic, _i32(_ATOMIC_CLOCK), _i32(0))
        mine = c.op("or", c.op("or", c.op("shl", c.op("add", index, 1), 24), clock), flag)
        cells, all_in = _cells(c, group), Spilled(c, offsets)

        def judge(stamp: Value, lane: Value, offset: Value) -> None:
            other = c.op("lshr", stamp, 24)
            foreign = c.op("and", c.icmp("ne", other, 0), c.icmp("ne", other, c.op("add", index, 1)))
            both = c.op("and", is_atomic, c.icmp("ne", c.op("and", stamp, _ATOMIC_CLOCK), 0))
            away = c.icmp("eq", c.op("and", stamp, _CLOCK), _IN_FLIGHT)
            with c.when(c.op("and", away, uses)):
                _tell(lib, c, warp, ReportKind.COPY_IN_FLIGHT, site, lane, offset, size, access, other)
            quiet = c.op("or", both, c.op("or", away, c.not_(uses)))
            with c.when(c.op("and", foreign, c.not_(quiet))):
                party = c.op("sub", other, 1)
                known = c.load("i32", _clock(c, group, index, party))
                with c.when(c.icmp("ugt", c.op("and", stamp, _CLOCK), known)):
                    _tell(lib, c, warp, ReportKind.SHARED_RACE, site, lane, offset, size, access, party)

        def settled(stamp: Value) -> Value:
            """Whether a reader is nobody, this warp, or one whose reading this warp knows of."""
            other = c.op("lshr", stamp, 24)
            mine_or_none = c.op("or", c.icmp("eq", other, 0), c.icmp("eq", other, c.op("add", index, 1)))
            party = c.select(mine_or_none, index, c.op("sub", other, 1))
            known = c.load("i32", _clock(c, group, index, party))
            return c.op("or", mine_or_none, c.icmp("ule", c.op("and", stamp, _CLOCK), known))

        with c.each_lane(mask) as lane:
            offset = all_in.get(lane)
            with c.when(c.icmp("ule", c.op("add", offset, size), limit)), c.count(size) as byte:
                cell = c.gep(cells, c.op("mul", c.resize(c.op("add", offset, byte), 64), _CELL))
                last_write = c.load("i32", cell)
                if checks.uninitialised:
                    with c.when(c.op("and", c.icmp("eq", last_write, 0), relies)):
                        _tell(
                            lib, c, warp, ReportKind.UNINITIALISED, site, lane, offset, size, access, _i32(0)
                        )
                if checks.shared_races:
                    judge(last_write, lane, offset)
                    with c.when(writes):
                        for reader in (4, 8):
                            judge(c.load("i32", c.gep(cell, reader)), lane, offset)
                with c.when(writes):
                    c.store(mine, cell)
                with c.otherwise(writes):
                    first = c.load("i32", c.gep(cell, 4))
                    c.store(mine, c.gep(cell, c.select(settled(first), _i64(4), _i64(8))))
        c.ret()

    return lib.define("emu.watch.shared", "void", _parameters(lib, "i32"), body, core=True)


def _parameters(lib: Library, address: str) -> dict[str, str]:
    return {
        "warp": "ptr",
        "addresses": lib.v(address),
        "mask": lib.mask,
        "site": "i32",
        "size": "i32",
        "access": "i32",
    }


def _tell(
    lib: Library,
    c: Code,
    warp: Value,
    kind: ReportKind,
    site: Value,
    lane: Value,
    address: Value,
    size: Value,
    access: Value,
    party: Value,
) -> None:
    other = c.op("or", c.op("shl", c.resize(access, 64), 48), c.resize(party, 64))
    memory.emit_report(lib, c, warp, kind, site, lane, address=c.resize(address, 64), size=size, other=other)


def _watch_global(lib: Library) -> str:
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
            entry = c.call(memory.search(lib), "ptr", thread, address)
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

    return lib.define("emu.watch.global", "void", _parameters(lib, "i64"), body, core=True)


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
        with c.when(c.op("and", fresh, c.icmp("ne", access, memory.WRITE))):
            _tell(lib, c, warp, ReportKind.UNINITIALISED, site, lane, address, size, access, _i32(0))
        with c.when(c.icmp("ne", access, memory.READ)):
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
    is_atomic = c.icmp("eq", access, memory.ATOMIC)
    writes = c.icmp("ne", access, memory.READ)
    mine = c.op("or", me, c.select(is_atomic, c.const("i32", _ATOMIC_GROUP), _i32(0)))
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
            _tell(
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
