"""Shadows of shared memory: the last writer and two readers of each byte, with their clocks.

An access races with an earlier access, one of them a write, if the accessing warp's vector clock does not cover the earlier
access. Lanes of one warp are ordered where they meet (`lane_order`), or always if they run in step. Exceptions:

- Strong accesses do not race with one another.
- A store that does not change memory does not race with other stores.
- A store that may be atomic (`addresses.UNMARKED`) counts as plain against plain accesses and other such stores. It does
  not race with accesses that poll: strong loads, and atomics with the flag STRONG. It races with other atomics.
- Bytes that an asynchronous copy writes must not be accessed until the copying warp has waited for the copy. From then on the
  copy counts as a write of that warp.
- Bytes that the asynchronous proxy reads (ASYNC) must have been written by it, or before a fence of the proxies. The read
  has a later clock than its warp (`READ_AHEAD`), which the warp reaches when it waits for the read, not at barriers. A write
  of these bytes before that wait is reported, also one by the same warp.

AMD's LDS executes the accesses of a warp in order. There, an atomic that returns the old value orders its warp after the last
atomic of another warp at that address, and after all earlier accesses of that other warp. The clock of a warp advances
after each of its atomics, so that the atomics do not order later accesses. The clocks that the other warp has joined since its
atomic count as joined before, which is more than hardware promises.

Not here: global memory (`shadow_global`), the clocks (`clocks`). Next: `sanitize`, which calls it.
"""

# ruff: noqa: E501, PLR0917 - helpers mirror the functions they write, argument for argument

from __future__ import annotations

from typing import TYPE_CHECKING

from emulator.ir.addresses import ATOMIC, READ, STRONG, UNCHANGED, UNMARKED, VOLATILE, WRITE
from emulator.ir.clusters import OFFSET, RANK_SHIFT, group_of_rank, peer, warp_at
from emulator.ir.findings import i32, i64, report_conflict
from emulator.ir.library import helper
from emulator.ir.report import ReportKind
from emulator.ir.state import GROUP, THREAD, WARP
from emulator.ir.vector import IrValue, Spilled
from emulator.sanitizers import clocks, lane_order
from emulator.sanitizers.clocks import (
    CELL,
    CLOCK,
    COPY,
    IN_FLIGHT,
    LANDED,
    PARTY_SHIFT,
    PLACES,
    PLAIN,
    PLAIN_PLACE,
    READ_AHEAD,
    STRONG_CLOCK,
)
from emulator.sanitizers.read_groups import BULK, GROUPED
from emulator.sanitizers.shadow_global import THREAD_BITS, place_of

if TYPE_CHECKING:
    from emulator.ir.library import Library
    from emulator.ir.vector import CodeBuilder
    from emulator.sanitizers.sanitize import Ordering


def observes(wf: Ordering, offsets: IrValue, lanes: IrValue) -> None:
    """Append code before an atomic of the mask `lanes` that returns the old values at `offsets`."""
    if wf.lib.checks.shared_races:
        wf.c.call(_observe(wf.lib), "void", wf.warp, offsets, lanes)


def published(wf: Ordering) -> None:
    """Append code for a warp after an atomic: its clock advances."""
    if wf.lib.checks.shared_races:
        c = wf.c
        clocks.tick(c, WARP.load(c, wf.warp, "group"), WARP.load(c, wf.warp, "party"))


@helper("emu.observe.shared", "ptr, i32 each, mask")
def _observe(lib: Library, c: CodeBuilder, warp: IrValue, offsets: IrValue, mask: IrValue) -> None:
    """`emu.observe.shared(warp, offsets, mask)`: order a warp after the atomics that last wrote the bytes at `offsets`."""
    group, party = WARP.load(c, warp, "group"), WARP.load(c, warp, "party")
    limit = THREAD.load(c, WARP.load(c, warp, "thread"), "shared_bytes")
    cells, all_in = clocks.cells(c, group), Spilled(c, offsets)
    with c.each_lane(mask) as lane:
        offset = all_in.get(lane)
        with c.when(c.icmp("ult", offset, limit)):
            stamp = c.load("i32", c.gep(cells, c.op("mul", c.resize(offset, 64), CELL)))
            other, then = c.op("sub", c.op("lshr", stamp, PARTY_SHIFT), 1), c.op("and", stamp, CLOCK)
            strong = c.icmp("ne", c.op("and", stamp, STRONG_CLOCK), 0)
            with c.when(c.op("and", strong, c.icmp("ne", other, party))):
                known = clocks.clock(c, group, party, other)
                with c.when(c.icmp("ugt", then, c.load("i32", known))):
                    c.call(clocks.join(lib), "void", group, party, other)
                    c.store(then, known)  # accesses of the other warp after its atomic are not ordered


ASYNC = 128
"""A flag of an access: the asynchronous proxy makes it."""


_PLACE = (1 << 31) - 1
"""The bits of the word at `PLAIN_PLACE` that are a `place_of` word."""
_WHOLE = "<8 x i32>"
"""The IR type of a cell."""
_WRITER, _READERS = 0, (4, 8)
"""Byte offsets in a cell of the stamps of the last writer and of two readers."""


def _is_proxy(c: CodeBuilder, cell: IrValue) -> IrValue:
    """Return whether the last write of a byte was by the asynchronous proxy."""
    return c.icmp("slt", c.load("i32", c.gep(cell, PLAIN_PLACE)), 0)


@helper("emu.group.exits", "ptr", core=True)
def group_exits(lib: Library, c: CodeBuilder, group: IrValue) -> None:
    """`emu.group.exits(group)`: report accesses of other workgroups to its shared memory that are not ordered before its exit."""
    thread, rank = GROUP.load(c, group, "thread"), GROUP.load(c, group, "rank")
    warps, cells = THREAD.load(c, thread, "warps"), clocks.cells(c, group)
    first = c.op("mul", rank, warps)
    with c.count(THREAD.load(c, thread, "shared_bytes")) as byte:
        cell = c.gep(cells, c.op("mul", c.resize(byte, 64), CELL))
        for at in (0, 4, 8):
            stamp = c.load("i32", c.gep(cell, at))
            party = c.op("sub", c.op("lshr", stamp, PARTY_SHIFT), 1)
            foreign = c.icmp("uge", c.op("sub", party, first), warps)
            with c.when(c.op("and", c.icmp("ne", stamp, 0), foreign)):
                known = c.slot("i32")
                c.store(i32(0), known)
                with c.count(warps) as number:
                    seen = c.load("i32", clocks.clock(c, group, c.op("add", first, number), party))
                    c.store(c.intrinsic("umax", seen, c.load("i32", known)), known)
                with c.when(c.icmp("ugt", c.op("and", stamp, CLOCK), c.load("i32", known))):
                    word = c.op("sub", c.load("i32", c.gep(cell, PLACES + at)), 1)
                    there = group_of_rank(c, group, c.op("udiv", party, warps))
                    warp = warp_at(c, thread, there, c.op("urem", party, warps))
                    site, lane = c.op("lshr", word, THREAD_BITS), c.op("and", word, lib.lanes - 1)
                    upper = c.op("shl", c.op("add", rank, 1), RANK_SHIFT)
                    kind, access = ReportKind.UNORDERED_EXIT, i32(WRITE if at == 0 else READ)
                    report_conflict(
                        lib, c, warp, kind, site, lane, c.op("or", upper, byte), i32(1), access, i32(0)
                    )


class _AccessBits:
    """The decoded kind and flags of an access, as IR values that are equal for all lanes."""

    def __init__(self, c: CodeBuilder, access: IrValue) -> None:
        self.kind = c.op("and", access, STRONG - 1)
        """READ, WRITE, ATOMIC or a step of an asynchronous copy (COPY, LANDED), without flags."""
        self.strong = c.icmp("ne", c.op("and", access, ATOMIC | STRONG), 0)
        self.volatile = c.icmp("ne", c.op("and", access, VOLATILE), 0)
        self.unmarked = c.icmp("ne", c.op("and", access, UNMARKED), 0)
        self.changes = c.icmp("eq", c.op("and", access, UNCHANGED), 0)
        """Whether it has no flag UNCHANGED."""
        self.polls = c.icmp("ne", c.op("and", access, STRONG), 0)
        self.published = c.op("or", self.strong, self.unmarked)
        """Whether it is strong, or may be atomic."""
        self.writes = c.icmp("ne", self.kind, READ)
        self.checked = c.icmp("ne", self.kind, LANDED)
        """Whether it is compared with earlier accesses: true except for LANDED."""
        self.needs_value = c.icmp("eq", c.op("and", self.kind, READ | ATOMIC), self.kind)
        """Whether it reads, so that the bytes must have been written."""
        self.by_proxy = c.icmp("ne", c.op("and", access, ASYNC), 0)
        self.reads_later = c.op("and", self.by_proxy, c.not_(self.writes))
        """Whether it is a read of the asynchronous proxy, which happens after its instruction."""


class _Watch:
    """The code that checks and records one access: `watch_byte` for each byte of each lane."""

    def __init__(
        self, lib: Library, c: CodeBuilder, warp: IrValue, site: IrValue, size: IrValue, access: IrValue
    ) -> None:
        self.lib, self.c, self.warp, self.site, self.size = lib, c, warp, site, size
        self.group, self.party = WARP.load(c, warp, "group"), WARP.load(c, warp, "party")
        self.limit = THREAD.load(c, WARP.load(c, warp, "thread"), "shared_bytes")
        clock = c.load("i32", clocks.clock(c, self.group, self.party, self.party))
        self.bits = bits = _AccessBits(c, access)
        until = WARP.load(c, warp, "reads_until")
        grouped = c.icmp("ne", until, 0)
        later = c.intrinsic("umin", c.op("add", clock, READ_AHEAD), i32(IN_FLIGHT - 1))
        later = c.select(grouped, until, later)
        clock = c.select(bits.reads_later, later, clock)
        clock = c.select(c.icmp("eq", bits.kind, COPY), i32(IN_FLIGHT), clock)
        flag = c.select(bits.published, i32(STRONG_CLOCK), i32(0))
        owner = c.op("shl", c.op("add", self.party, 1), PARTY_SHIFT)
        self.stamp = c.op("or", c.op("or", owner, clock), flag)
        """The stamp that this access stores in a cell: party, clock, and whether it is strong."""
        self.synced = WARP.load(c, warp, "synced")
        if lib.checks.lane_races:
            WARP.store(c, warp, "touched", 1)
        with c.when(bits.reads_later):
            who = c.select(grouped, i32(GROUPED), i32(BULK))
            WARP.store(c, warp, "reading", c.op("or", WARP.load(c, warp, "reading"), who))

    def report(self, kind: ReportKind, lane: IrValue, offset: IrValue, other: IrValue) -> None:
        """Append a report of a conflict of this access with another access."""
        report_conflict(
            self.lib, self.c, self.warp, kind, self.site, lane, offset, self.size, self.bits.kind, other
        )

    def of_party(self, place: IrValue, party: IrValue) -> IrValue:
        """Return an i64: the `place_of` word `place` in the lower half, the rank of `party`'s workgroup in the upper."""
        c = self.c
        rank = c.op("udiv", party, THREAD.load(c, WARP.load(c, self.warp, "thread"), "warps"))
        return c.op("or", c.resize(place, 64), c.op("shl", c.resize(rank, 64), 32))

    def watch_byte(self, cell: IrValue, lane: IrValue, offset: IrValue, place: IrValue) -> None:
        """Append the checks and the record of one byte.

        A read is compared with the last write, a write with the last write and the two readers.
        """
        c, bits, checks = self.c, self.bits, self.lib.checks
        last_write = c.load("i32", cell)
        if checks.uninitialised:
            with c.when(c.op("and", c.icmp("eq", last_write, 0), bits.needs_value), likely=False):
                self.report(ReportKind.UNINITIALISED, lane, offset, i32(0))
        if checks.shared_races:
            self.compare(cell, _WRITER, lane, offset)
            with c.when(c.op("or", bits.strong, c.op("and", bits.unmarked, bits.changes))):
                self.compare_with_plain_write(cell, lane, offset)
            with c.when(bits.writes):
                for reader in _READERS:
                    self.compare(cell, reader, lane, offset)
        self.record(cell, lane, place)

    def compare(self, cell: IrValue, at: int, lane: IrValue, offset: IrValue) -> None:
        """Report a race with the access whose stamp is at `at` in the cell: the writer or a reader.

        The other access races if this warp's clock does not cover it. Exceptions: both are strong; the other is a copy
        in flight, which has a report of its own; or the other is a write and this access does not change memory.
        """
        c, bits = self.c, self.bits
        stamp = c.load("i32", c.gep(cell, at))
        other = c.op("lshr", stamp, PARTY_SHIFT)
        present, own = c.icmp("ne", other, 0), c.icmp("eq", other, c.op("add", self.party, 1))
        allowed = c.op("and", bits.published, c.icmp("ne", c.op("and", stamp, STRONG_CLOCK), 0))
        in_flight = c.icmp("eq", c.op("and", stamp, CLOCK), IN_FLIGHT)
        with c.when(c.op("and", in_flight, bits.checked)):
            self.report(ReportKind.COPY_IN_FLIGHT, lane, offset, other)
        if self.lib.checks.lane_races:
            allowed = c.op("and", allowed, c.not_(c.op("and", own, bits.volatile)))
        if at == _WRITER:
            allowed = c.op("or", allowed, c.not_(bits.changes))
        exempt = c.op("or", allowed, c.op("or", in_flight, c.not_(bits.checked)))
        with c.when(c.op("and", present, c.not_(exempt))):
            self.compare_clocks(cell, at, stamp, other, own, lane, offset)

    def compare_clocks(
        self,
        cell: IrValue,
        at: int,
        stamp: IrValue,
        other: IrValue,
        own: IrValue,
        lane: IrValue,
        offset: IrValue,
    ) -> None:
        """Report the access of `stamp` if this warp's clock does not cover it.

        `other` is the party of that access plus 1; `own` is whether that is this warp.
        """
        c = self.c
        party = c.op("sub", other, 1)
        known = c.load("i32", clocks.clock(c, self.group, self.party, party))
        place = c.load("i32", c.gep(cell, PLACES + at))
        unordered = c.icmp("ugt", c.op("and", stamp, CLOCK), known)
        for kind, wanted in ((ReportKind.SHARED_RACE, c.not_(own)), (ReportKind.ASYNC_READ, own)):
            with c.when(c.op("and", unordered, wanted)):
                self.report(kind, lane, offset, self.of_party(place, party))
        if self.lib.checks.lane_races:
            before = c.op("and", own, c.not_(unordered))
            if at == _WRITER:
                before = c.op("and", before, c.not_(_is_proxy(c, cell)))
            with c.when(before):
                self.compare_lanes(stamp, place, lane, offset, stored=at == _WRITER)
        if at == _WRITER:
            reads = c.op("and", self.bits.reads_later, c.not_(unordered))
            self.check_proxy_fence(cell, stamp, c.op("sub", other, 1), reads, lane, offset)

    def compare_lanes(
        self, stamp: IrValue, place: IrValue, lane: IrValue, offset: IrValue, *, stored: bool
    ) -> None:
        """Report the access of another lane of this warp, at `place`, if it is not ordered before this access.

        Lanes that store with one instruction do not race.
        """
        c, lib = self.c, self.lib
        other = c.op("and", c.op("sub", place, 1), lib.lanes - 1)
        once = c.icmp("eq", c.op("lshr", c.op("sub", place, 1), THREAD_BITS), self.site)
        same = c.op("and", once, self.bits.writes) if stored else IrValue("i1", "false")
        with c.when(c.not_(c.op("or", same, self.bits.by_proxy))):
            unordered = lane_order.apart(lib, c, self.warp, lane, other, c.op("and", stamp, CLOCK))
            with c.when(unordered):
                self.report(ReportKind.SHARED_RACE, lane, offset, self.of_party(place, self.party))

    def compare_with_plain_write(self, cell: IrValue, lane: IrValue, offset: IrValue) -> None:
        """Report a race of this strong access with the last plain write, which a later strong write may have replaced.

        An access that polls does not race with a store that may be atomic.
        """
        c = self.c
        stamp = c.load("i32", c.gep(cell, PLAIN))
        exempt = c.op("and", self.bits.polls, c.icmp("ne", c.op("and", stamp, STRONG_CLOCK), 0))
        party, then = c.op("sub", c.op("lshr", stamp, PARTY_SHIFT), 1), c.op("and", stamp, CLOCK)
        foreign = c.op("and", c.icmp("ne", stamp, 0), c.icmp("ne", party, self.party))
        foreign = c.op("and", foreign, c.not_(exempt))
        with c.when(c.op("and", foreign, c.icmp("ne", then, IN_FLIGHT))):
            known = c.load("i32", clocks.clock(c, self.group, self.party, party))
            with c.when(c.icmp("ugt", then, known)):
                place = c.op("and", c.load("i32", c.gep(cell, PLAIN_PLACE)), _PLACE)
                self.report(ReportKind.SHARED_RACE, lane, offset, self.of_party(place, party))

    def check_proxy_fence(
        self, cell: IrValue, stamp: IrValue, party: IrValue, reads: IrValue, lane: IrValue, offset: IrValue
    ) -> None:
        """Report a read by the asynchronous proxy of a write by other means, without a proxy fence between them."""
        c = self.c
        plain = c.not_(_is_proxy(c, cell))
        fenced = c.load("i32", clocks.fenced(c, self.group, self.party, party))
        missing = c.icmp("ugt", c.op("and", stamp, CLOCK), fenced)
        with c.when(c.op("and", reads, c.op("and", plain, missing))):
            place = c.load("i32", c.gep(cell, PLACES))
            self.report(ReportKind.MISSING_PROXY_FENCE, lane, offset, self.of_party(place, party))

    def check_started(self, peer_group: IrValue, lane: IrValue, offset: IrValue) -> None:
        """Report an access to another workgroup's memory if nothing orders it after that workgroup's start."""
        c = self.c
        known = c.slot("i32")
        c.store(GROUP.load(c, peer_group, "met"), known)
        foreign = c.icmp("ne", peer_group, self.group)
        with c.when(c.op("and", foreign, c.icmp("eq", c.load("i32", known), 0))):
            warps = THREAD.load(c, WARP.load(c, self.warp, "thread"), "warps")
            first = c.op("mul", GROUP.load(c, peer_group, "rank"), warps)
            with c.count(warps) as number:
                seen = c.load("i32", clocks.clock(c, self.group, self.party, c.op("add", first, number)))
                c.store(c.op("or", c.load("i32", known), seen), known)
            with c.when(c.icmp("eq", c.load("i32", known), 0)):
                self.report(ReportKind.UNSTARTED_PEER, lane, offset, i32(0))

    def record(self, cell: IrValue, lane: IrValue, place: IrValue) -> None:
        """Store this access in a cell: as the last write, or as one of the two reads."""
        c, bits = self.c, self.bits
        with c.when(bits.writes):
            c.store(self.stamp, cell)
            c.store(place, c.gep(cell, PLACES))
            proxy = c.op("shl", c.resize(bits.by_proxy, 32), 31)
            kept = c.op("and", c.load("i32", c.gep(cell, PLAIN_PLACE)), _PLACE)
            c.store(c.op("or", c.select(bits.strong, kept, place), proxy), c.gep(cell, PLAIN_PLACE))
            with c.otherwise(bits.strong):
                c.store(self.stamp, c.gep(cell, PLAIN))
        with c.otherwise(bits.writes):
            first = c.load("i32", c.gep(cell, _READERS[0]))
            at = c.select(self.replaces(first, cell, lane), i64(_READERS[0]), i64(_READERS[1]))
            c.store(self.stamp, c.gep(cell, at))
            c.store(place, c.gep(c.gep(cell, at), PLACES))

    def replaces(self, stamp: IrValue, cell: IrValue, lane: IrValue) -> IrValue:
        """Return whether this read can replace the first reader's stamp: it is empty, ordered before, or this warp's.

        If lanes need not run in step, another lane of this warp counts as another reader.
        """
        c = self.c
        other = c.op("lshr", stamp, PARTY_SHIFT)
        mine_or_none = c.op("or", c.icmp("eq", other, 0), c.icmp("eq", other, c.op("add", self.party, 1)))
        party = c.select(mine_or_none, self.party, c.op("sub", other, 1))
        known = c.load("i32", clocks.clock(c, self.group, self.party, party))
        then = c.op("and", stamp, CLOCK)
        if not self.lib.checks.lane_races:
            return c.op("or", mine_or_none, c.icmp("ule", then, known))
        word = c.op("sub", c.load("i32", c.gep(cell, _READERS[0] + PLACES)), 1)
        reader = c.op("and", word, self.lib.lanes - 1)
        apart = c.op("and", c.icmp("ne", reader, lane), c.icmp("ugt", then, self.synced))
        mine_or_none = c.op("and", mine_or_none, c.not_(c.op("and", c.icmp("ne", other, 0), apart)))
        ordered = c.op("and", c.icmp("ule", then, known), c.icmp("ne", party, self.party))
        return c.op("or", mine_or_none, ordered)


def watch_shared(lib: Library, space: str) -> str:
    """`emu.watch.SPACE(warp, addresses, mask, site, size, access)`: check and record each byte.

    The space is "shared" or "cluster". An address of a cluster (`clusters`) may be in another workgroup's memory.
    """

    def body(
        c: CodeBuilder,
        warp: IrValue,
        offsets: IrValue,
        mask: IrValue,
        site: IrValue,
        size: IrValue,
        access: IrValue,
    ) -> None:
        watch = _Watch(lib, c, warp, site, size, access)
        own_cells, all_in = clocks.cells(c, watch.group), Spilled(c, offsets)
        state, after = c.slot(_WHOLE), c.slot(_WHOLE)
        with c.each_lane(mask) as lane:
            offset = all_in.get(lane)
            inner, cells, limit = offset, own_cells, watch.limit
            if space == "cluster":
                inner = c.op("and", offset, OFFSET)
                one = c.call(peer(lib), "ptr", watch.group, offset)
                limit = c.select(c.icmp("ne", one, IrValue("ptr", "null")), limit, i32(0))
                one = c.select(c.icmp("ne", one, IrValue("ptr", "null")), one, watch.group)
                cells = clocks.cells(c, one)
                if lib.checks.shared_races:
                    watch.check_started(one, lane, offset)
            place = place_of(lib, c, warp, site, lane)
            fits, room = c.icmp("ule", size, limit), c.op("sub", limit, size)
            whole = c.op("and", fits, c.icmp("ule", inner, room))  # no sum: it would wrap
            c.store(c.zero(_WHOLE), state)
            first_cell = c.gep(cells, c.op("mul", c.resize(inner, 64), CELL))
            with c.when(whole), c.count(size) as byte:
                cell = c.gep(first_cell, c.op("mul", c.resize(byte, 64), CELL))
                now = c.load(_WHOLE, cell, align=4)
                alike = c.icmp("eq", c.bitcast(c.icmp("eq", now, c.load(_WHOLE, state)), "i8"), -1)
                alike = c.op("and", alike, c.icmp("ne", byte, 0))
                with c.when(alike):  # equal to the cell before it: the same findings, the same record
                    c.store(c.load(_WHOLE, after), cell, align=4)
                with c.otherwise(alike):
                    c.store(now, state)
                    watch.watch_byte(cell, lane, offset, place)
                    c.store(c.load(_WHOLE, cell, align=4), after)

    return lib.define(f"emu.watch.{space}", "void", "ptr, i32 each, mask, i32, i32, i32", body, core=True)
