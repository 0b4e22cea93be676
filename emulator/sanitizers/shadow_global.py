"""Shadows of global memory: the last writer and reader of each dword, and the bytes that were written.

Two accesses of different workgroups, one of them a write, race unless the following happened between them: the first
workgroup released and then wrote strongly; the second observed that write, directly or through others, and acquired
(`group_order`). Once a workgroup has executed a fence, each of its atomics acquires, too, as in the "last block" pattern.
Strong accesses whose scope is wider than a workgroup do not race with one another. Accesses narrower than a dword are not
checked, because different workgroups may access different bytes of one dword. A store that may be plain
(`addresses.UNMARKED`) counts as strong against strong accesses, and as plain against others.

Races between the warps of one workgroup have a shadow of their own, `MAP_ENTRY.order`: two u32 for each dword, the clocks of
its last store and of its last read. A clock is compared only if the dword's cell says that the same workgroup made that
access; the vector clocks of the warps (`clocks`) then say whether the access came before. A store that does not change
memory does not race with other stores. Targets of copies in flight are there, too.

Not here: shared memory (`shadow_shared`), the order of workgroups (`group_order`). Next: `shadow_shared`.
"""

# ruff: noqa: E501, PLR0917 - helpers mirror the functions they write, argument for argument

# ruff: noqa: PLR0917 - a lane's access has as many parts

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from emulator.ir.addresses import ATOMIC, CLUSTERED, NARROW, READ, STRONG, UNCHANGED, UNMARKED, search
from emulator.ir.findings import i32, i64, report_conflict
from emulator.ir.library import helper
from emulator.ir.report import ReportKind
from emulator.ir.state import GROUP, LAUNCH, MAP_ENTRY, THREAD, WARP
from emulator.ir.vector import IrValue, Spilled
from emulator.sanitizers import clocks, group_order
from emulator.sanitizers.clocks import CLOCK, COPY, IN_FLIGHT, LANDED, STRONG_CLOCK
from emulator.sanitizers.group_order import PARTY, STRONG_PARTY, UNMARKED_PARTY

if TYPE_CHECKING:
    from emulator.ir.library import Library
    from emulator.ir.vector import CodeBuilder

_UNMARKED_CLOCK: Final = STRONG_CLOCK << 1
"""The bit that is set with STRONG_CLOCK in the clock of a store that may be plain (`addresses.UNMARKED`)."""
SAME_GROUP: Final = 1 << 47
"""The bit that is set in the party of a reported race if the party is a `place_of` word of the same
workgroup."""
_PAGE = 4096


def touch_page(c: CodeBuilder, cell: IrValue) -> None:
    """Append a write that changes nothing, if a cell of shadow memory begins a page.

    If the first access to a page were a read, it would map a page of zeros, and the next write would fault
    again.
    """
    begins = c.op("and", c.let("i64", f"ptrtoint {cell} to i64"), _PAGE - 1)
    with c.when(c.icmp("eq", begins, 0), likely=False):
        c.let("{ i32, i1 }", f"cmpxchg volatile {cell}, i32 0, i32 0 monotonic monotonic, align 4")


class Warps:
    """The check and the record of the warps that access a dword, for all lanes of one access."""

    def __init__(self, one: GlobalAccess) -> None:
        c = one.c
        self.one = one
        self.party = WARP.load(c, one.warp, "party")
        self.first = c.op("sub", self.party, WARP.load(c, one.warp, "index"))
        self.strong = c.icmp("ne", c.op("and", one.access, ATOMIC | STRONG), 0)
        self.writes, self.lands = c.icmp("ne", one.kind, READ), c.icmp("eq", one.kind, LANDED)
        now = c.load("i32", clocks.clock(c, one.group, self.party, self.party))
        now = c.select(c.icmp("eq", one.kind, COPY), i32(IN_FLIGHT), now)
        self.unmarked = c.icmp("ne", c.op("and", one.access, UNMARKED), 0)
        weak = c.select(self.unmarked, i32(STRONG_CLOCK | _UNMARKED_CLOCK), i32(0))
        self.now = c.op("or", now, c.select(self.strong, i32(STRONG_CLOCK), weak))
        unchanged = c.icmp("ne", c.op("and", one.access, UNCHANGED), 0)
        self.no_store = c.op("or", self.lands, unchanged)

    def check(
        self,
        shadow: IrValue,
        dword: IrValue,
        lane: IrValue,
        address: IrValue,
        stored: tuple[IrValue, IrValue],
        read: tuple[IrValue, IrValue],
    ) -> None:
        """Append the check and the record of a lane's access to a dword.

        `stored` and `read` describe the last store and read of the dword: an i1, whether this workgroup made
        it, and its `place_of` word.
        """
        c, writes = self.one.c, self.writes
        at = c.let("ptr", f"inttoptr {c.op('add', shadow, c.op('shl', dword, 3))} to ptr")
        with c.otherwise(writes):
            c.store(self.now, c.gep(at, 4))
        with c.when(writes):
            touch_page(c, at)
        self._check(at, stored, self.no_store, lane, address)
        with c.when(c.op("and", writes, c.not_(self.lands))):
            self._check(c.gep(at, 4), read, IrValue("i1", "false"), lane, address)
            c.store(self.now, at)
        landing = c.op("and", c.op("and", self.lands, stored[0]), c.icmp("eq", c.load("i32", at), IN_FLIGHT))
        with c.when(landing):
            c.store(self.now, at)

    def _check(
        self, at: IrValue, made: tuple[IrValue, IrValue], exempt: IrValue, lane: IrValue, address: IrValue
    ) -> None:
        """Report a conflict with the access whose stamp is at `at`, if another warp made it without order."""
        one, c = self.one, self.one.c
        own, place = made
        stamp = c.load("i32", at)
        then = c.op("and", stamp, CLOCK)
        marked = c.icmp("eq", c.op("and", stamp, STRONG_CLOCK | _UNMARKED_CLOCK), STRONG_CLOCK)
        both = c.op("and", self.strong, c.icmp("ne", c.op("and", stamp, STRONG_CLOCK), 0))
        both = c.op("or", both, c.op("and", self.unmarked, marked))
        away = c.icmp("eq", then, IN_FLIGHT)
        with c.when(c.op("and", c.op("and", own, c.icmp("ne", stamp, 0)), c.not_(exempt))):
            with c.when(c.op("and", away, c.icmp("ne", one.kind, COPY)), likely=False):
                one.conflict(ReportKind.COPY_IN_FLIGHT, lane, address, i32(0))
            with c.when(c.not_(c.op("or", both, away))):
                thread = c.op("and", c.op("sub", place, 1), 1023)
                other = c.op("add", self.first, c.op("udiv", thread, one.lib.lanes))
                known = c.load("i32", clocks.clock(c, one.group, self.party, other))
                late = c.op("and", c.icmp("ne", other, self.party), c.icmp("ugt", then, known))
                with c.when(late, likely=False):
                    whom = c.op("or", c.resize(place, 64), SAME_GROUP)
                    one.conflict(ReportKind.GLOBAL_RACE, lane, address, whom)


RACE_CELL = {"writer": 0, "reader": 8, "read_at": 16, "atomic_at": 20, "stored_at": 24, "storer": 28}
"""Byte offsets of the u32 fields in a cell of global memory.

`writer` and `reader` are workgroup numbers from 1 (0: none), with `STRONG_PARTY` set for a strong access, and
`UNMARKED_PARTY` for a store that may be plain. The time of the access follows each. `read_at`, `atomic_at` and `stored_at`
encode the instruction and thread of the last read, strong write and plain store (`race_place`; 0: none). A store that may
be plain is in `stored_at`. `storer` is the workgroup of that store.
"""
THREAD_BITS = 10
"""Bits of the number of a thread in its workgroup, in a `place_of` word."""


@dataclass(frozen=True, slots=True)
class GlobalAccess:
    """The values that all lanes of one access share, computed before the loop over the lanes."""

    lib: Library
    c: CodeBuilder
    warp: IrValue
    site: IrValue
    size: IrValue
    access: IrValue
    """The kind and the flags of the access."""
    kind: IrValue
    """The kind without flags."""
    thread: IrValue
    group: IrValue

    @classmethod
    def of(
        cls, lib: Library, c: CodeBuilder, warp: IrValue, site: IrValue, size: IrValue, access: IrValue
    ) -> GlobalAccess:
        """Append the loads that all lanes share."""
        kind = c.op("and", access, STRONG - 1)
        thread, group = WARP.load(c, warp, "thread"), WARP.load(c, warp, "group")
        return cls(lib, c, warp, site, size, access, kind, thread, group)

    def conflict(self, kind: ReportKind, lane: IrValue, address: IrValue, party: IrValue) -> None:
        """Append a report of a conflict of a lane's access with an access of `party`."""
        report_conflict(
            self.lib, self.c, self.warp, kind, self.site, lane, address, self.size, self.kind, party
        )


class _Entry:
    """The map entry that the last lane accessed, in stack variables: neighbouring lanes rarely need a search."""

    PARTS = ("start", "size", "initialised", "touched", "order")

    def __init__(self, c: CodeBuilder) -> None:
        self._c = c
        self._slots = {name: c.slot("i64") for name in self.PARTS}
        for slot in self._slots.values():
            c.store(i64(0), slot)

    def part(self, name: str) -> IrValue:
        """Return a field of the entry, as i64."""
        return self._c.load("i64", self._slots[name])

    def holds(self, address: IrValue, size: IrValue) -> IrValue:
        """Return whether the entry contains all of [address, address + size)."""
        c, length = self._c, self.part("size")
        offset = c.op("sub", address, self.part("start"))
        return c.op("and", c.icmp("ult", offset, length), c.icmp("ule", c.op("add", offset, size), length))

    def look_up(self, lib: Library, thread: IrValue, address: IrValue) -> None:
        """Append a search of the map for an address."""
        c = self._c
        entry = c.call(search(lib), "ptr", thread, address)
        for name, slot in self._slots.items():
            c.store(MAP_ENTRY.load(c, entry, name), slot)


@helper("emu.watch.global", "ptr, i64 each, mask, i32, i32, i32", core=True)
def watch_global(
    lib: Library,
    c: CodeBuilder,
    warp: IrValue,
    addresses: IrValue,
    mask: IrValue,
    site: IrValue,
    size: IrValue,
    access: IrValue,
) -> None:
    """`emu.watch.global(warp, addresses, mask, site, size, access)`: check and update the shadows of each lane's access."""
    checks = lib.checks
    one = GlobalAccess.of(lib, c, warp, site, size, access)
    all_in, size64 = Spilled(c, addresses), c.resize(size, 64)
    note_party = _Parties(one) if checks.last_accesses else None
    dwords = c.intrinsic("umax", c.op("lshr", size, 2), i32(1))
    some, entry = c.icmp("ne", THREAD.load(c, one.thread, "map_count"), 0), _Entry(c)
    with c.when(some), c.each_lane(mask) as lane:
        address = all_in.get(lane)
        with c.otherwise(entry.holds(address, size64)):
            entry.look_up(lib, one.thread, address)
        with c.when(entry.holds(address, size64)):
            offset = c.op("sub", address, entry.part("start"))
            if checks.uninitialised:
                _note_initialised(one, entry.part("initialised"), offset, lane, address)
            if note_party is not None:
                recorded = c.op("or", c.icmp("uge", size, 4), note_party.published)
                with c.when(recorded), c.count(dwords) as dword:
                    at = c.op("add", c.op("lshr", offset, 2), c.resize(dword, 64))
                    note_party.note(entry.part("touched"), entry.part("order"), at, lane, address)


def _note_initialised(
    one: GlobalAccess, shadow: IrValue, offset: IrValue, lane: IrValue, address: IrValue
) -> None:
    """Append the check and the record of written bytes. A dword that was written before takes one comparison."""
    c, kind, size = one.c, one.kind, one.size
    relies = c.icmp("eq", c.op("and", kind, READ | ATOMIC), kind)
    with c.when(c.icmp("ne", shadow, 0)):
        first = c.let("ptr", f"inttoptr {c.op('add', shadow, offset)} to ptr")
        written = c.slot("i1")
        c.store(IrValue("i1", "false"), written)
        with c.when(c.icmp("eq", c.op("and", size, 3), 0)):
            c.store(IrValue("i1", "true"), written)
            with c.count(c.op("lshr", size, 2)) as dword:
                four = c.load("i32", c.gep(first, c.op("shl", c.resize(dword, 64), 2)), align=1)
                c.store(c.op("and", c.load("i1", written), c.icmp("eq", four, 0x01010101)), written)
        with c.otherwise(c.load("i1", written)), c.count(size) as byte:
            at = c.gep(first, c.resize(byte, 64))
            fresh = c.icmp("eq", c.load("i8", at), 0)
            with c.when(c.op("and", fresh, relies), likely=False):
                one.conflict(ReportKind.UNINITIALISED, lane, address, i32(0))
            with c.when(c.icmp("ne", kind, READ)):
                c.store(IrValue("i8", "1"), at)


def place_of(lib: Library, c: CodeBuilder, warp: IrValue, site: IrValue, lane: IrValue) -> IrValue:
    """Return the i32 that encodes an instruction and a thread in its workgroup; never 0. `race_place` decodes it."""
    thread = c.op("add", c.op("mul", WARP.load(c, warp, "index"), lib.lanes), lane)
    return c.op("add", c.op("or", c.op("shl", site, THREAD_BITS), thread), 1)


def race_place(word: int) -> tuple[int, int]:
    """Return the numbers of the instruction and of the thread in its workgroup that a `place_of` word encodes."""
    return (word - 1) >> THREAD_BITS, (word - 1) & ((1 << THREAD_BITS) - 1)


def _strong(c: CodeBuilder, thread: IrValue, access: IrValue) -> IrValue:
    """Return whether an access is strong with a scope beyond its workgroup.

    Where clusters have several workgroups, the scope of a cluster counts as that of the GPU.
    """
    strong = c.icmp("ne", c.op("and", access, ATOMIC | STRONG), 0)
    alone = c.icmp("eq", THREAD.load(c, thread, "cluster"), 1)
    narrow = c.op("and", access, c.select(alone, i32(NARROW | CLUSTERED), i32(NARROW)))
    return c.op("and", strong, c.icmp("eq", narrow, 0))


def _unmarked(c: CodeBuilder, access: IrValue) -> IrValue:
    """Return whether an access is a store that may be atomic or plain."""
    return c.icmp("ne", c.op("and", access, UNMARKED), 0)


class _Parties:
    """The check and the record of the workgroups that access a dword, for all lanes of one access.

    The first access to a page of shadow should be a write: a read first maps a page of zeros, and the next write faults again.
    """

    def __init__(self, one: GlobalAccess) -> None:
        c, lib = one.c, one.lib
        self.one = one
        launch = THREAD.load(c, one.thread, "launch")
        self.now = c.resize(LAUNCH.load(c, launch, "sequence"), 32)
        self.acquired = c.resize(GROUP.load(c, one.group, "acquired"), 32)
        self.index = GROUP.load(c, one.group, "index")
        self.me = c.op("add", self.index, 1)
        self.strong, self.unmarked = _strong(c, one.thread, one.access), _unmarked(c, one.access)
        self.published = c.op("or", self.strong, self.unmarked)
        self.writes = c.icmp("ne", one.kind, READ)
        self.lands = c.icmp("eq", one.kind, LANDED)
        weak = c.select(self.unmarked, c.const("i32", STRONG_PARTY | UNMARKED_PARTY), i32(0))
        self.flags = c.select(self.strong, c.const("i32", STRONG_PARTY), weak)
        self.mine = c.op("or", self.me, self.flags)
        self.lanes_before = c.op("mul", WARP.load(c, one.warp, "index"), lib.lanes)
        self.in_group = Warps(one) if lib.checks.global_races and lib.checks.shared_races else None

    def note(
        self, shadow: IrValue, ordered: IrValue, dword: IrValue, lane: IrValue, address: IrValue
    ) -> None:
        """Append the check and the record of a lane's access to a dword of an entry with these shadows."""
        one, c, lib = self.one, self.one.c, self.one.lib
        me, strong, writes = self.me, self.strong, self.writes
        cell = c.let("ptr", f"inttoptr {c.op('add', shadow, c.op('shl', dword, 5))} to ptr")
        flat = c.op("add", self.lanes_before, c.resize(lane, 32))
        place = c.op("add", c.op("or", c.op("shl", one.site, THREAD_BITS), flat), 1)

        def part(name: str) -> IrValue:
            return c.gep(cell, RACE_CELL[name])

        with c.when(c.icmp("ne", shadow, 0)):
            with c.otherwise(writes):  # before the checks: those of a read do not use these fields
                c.store(self.mine, part("reader"))
                c.store(self.now, c.gep(cell, 12))
                c.store(place, part("read_at"))
            with c.when(writes):
                touch_page(c, cell)
        if self.in_group is not None:
            with c.when(c.icmp("ne", ordered, 0)):
                stored = c.icmp("eq", c.load("i32", part("storer")), me), c.load("i32", part("stored_at"))
                reader = c.op("and", c.load("i32", part("reader")), PARTY)
                read = c.icmp("eq", reader, me), c.load("i32", part("read_at"))
                self.in_group.check(ordered, dword, lane, address, stored, read)
        with c.when(c.op("and", c.icmp("ne", shadow, 0), c.not_(self.lands))):
            self._check(part("writer"), lane, address)
            with c.when(writes):
                self._check(part("reader"), lane, address)
                if lib.checks.global_races:
                    with c.when(self.published):
                        group_order.publish(lib, c, one.thread, self.index, cell, self.flags)
                    with c.otherwise(self.published):
                        self._store_writer(cell)
                else:
                    self._store_writer(cell)
                with c.when(strong):
                    c.store(place, part("atomic_at"))
                with c.otherwise(strong):
                    c.store(place, part("stored_at"))
                    c.store(me, part("storer"))

    def _store_writer(self, cell: IrValue) -> None:
        self.one.c.store(self.mine, cell)
        self.one.c.store(self.now, self.one.c.gep(cell, 4))

    def _check(self, at: IrValue, lane: IrValue, address: IrValue) -> None:
        """Append the check against the workgroup whose number is at `at`, followed by the time of its access."""
        one, c = self.one, self.one.c
        if not one.lib.checks.global_races:
            return
        other = c.load("i32", at)
        party = c.op("and", other, PARTY)
        foreign = c.op("and", c.icmp("ne", party, 0), c.icmp("ne", party, self.me))
        marked = c.icmp("eq", c.op("and", other, STRONG_PARTY | UNMARKED_PARTY), c.const("i32", STRONG_PARTY))
        both = c.op("and", self.strong, c.icmp("slt", other, 0))
        both = c.op("or", both, c.op("and", self.unmarked, marked))
        exempt = c.op("or", both, c.icmp("ult", one.size, 4))
        with c.when(c.op("and", foreign, c.not_(exempt))):
            number, when = c.op("sub", party, 1), c.load("i32", c.gep(at, 4))
            late = group_order.unordered(c, one.thread, self.index, number, when, self.acquired)
            with c.when(late, likely=False):
                published = c.op("and", self.unmarked, c.icmp("slt", other, 0))  # replaces what it has read
                seen = group_order.observed(c, one.thread, self.index, number, when)
                with c.otherwise(c.op("and", published, seen)):
                    one.conflict(ReportKind.GLOBAL_RACE, lane, address, number)
