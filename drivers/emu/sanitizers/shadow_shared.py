"""Shadows of shared memory: the last writer and two readers of each byte, with their clocks.

An access races with an earlier one if the accessing warp's vector clock does not cover the earlier one. Lanes
of one warp are treated as ordered. Bytes that an asynchronous copy writes must not be used until its warp has
waited for it; from then on the copy counts as a write of that warp. Strong accesses do not race with one
another, nor does a store that changes nothing with other stores.

What the asynchronous proxy reads (ASYNC) must have been written by it, or a fence of the proxies must lie
between. Such a read has a later clock than its warp: the warp reaches it when it waits. An earlier write of
these bytes, also by the same warp, is reported.

Not here: global memory (`shadow_global`), the clocks (`clocks`).
"""

# ruff: noqa: PLR0917 - helpers mirror the functions they write, argument for argument

from __future__ import annotations

from typing import TYPE_CHECKING

from drivers.emu.report import ReportKind
from drivers.emu.sanitizers import clocks
from drivers.emu.sanitizers.clocks import BY_PROXY, CELL, CLOCK, PLACES, STRONG_CLOCK
from drivers.emu.sanitizers.shadow_global import place_of
from drivers.emu.simt.addresses import ATOMIC, READ, STRONG, UNCHANGED
from drivers.emu.simt.findings import i32, i64, report_conflict, watch_parameters
from drivers.emu.simt.state import THREAD, WARP
from drivers.emu.simt.vector import Spilled, Value

if TYPE_CHECKING:
    from drivers.emu.simt.library import Library
    from drivers.emu.simt.vector import Code

COPY, LANDED = 8, 16
"""Access kinds in addition to READ, WRITE and ATOMIC: an asynchronous copy begins; a copy was waited for."""
ASYNC = 128
"""A flag of an access: the asynchronous proxy makes it."""
_IN_FLIGHT = CLOCK
"""The clock of bytes that a copy in flight will write; no warp's clock covers it."""


def watch_shared(lib: Library) -> str:
    """`emu.watch.shared(warp, offsets, mask, site, size, access)`: check and record each byte."""
    checks = lib.checks

    def body(
        c: Code, warp: Value, offsets: Value, mask: Value, site: Value, size: Value, access: Value
    ) -> None:
        group, index = WARP.load(c, warp, "group"), WARP.load(c, warp, "index")
        limit = THREAD.load(c, WARP.load(c, warp, "thread"), "shared_bytes")
        clock = c.load("i32", clocks.clock(c, group, index, index))
        kind = c.op("and", access, STRONG - 1)
        strong = c.icmp("ne", c.op("and", access, ATOMIC | STRONG), 0)
        writes = c.icmp("ne", kind, READ)
        uses = c.icmp("ne", kind, LANDED)
        relies = c.icmp("eq", c.op("and", kind, READ | ATOMIC), kind)
        by_proxy = c.icmp("ne", c.op("and", access, ASYNC), 0)
        reads_later = c.op("and", by_proxy, c.not_(writes))
        clock = c.op("add", clock, c.resize(reads_later, 32))
        clock = c.select(c.icmp("eq", kind, COPY), i32(_IN_FLIGHT), clock)
        flag = c.select(strong, i32(STRONG_CLOCK), i32(0))
        mine = c.op("or", c.op("or", c.op("shl", c.op("add", index, 1), 24), clock), flag)
        cells, all_in = clocks.cells(c, group), Spilled(c, offsets)

        def check(cell: Value, at: int, lane: Value, offset: Value) -> None:
            stamp = c.load("i32", c.gep(cell, at))
            other = c.op("lshr", stamp, 24)
            some, own = c.icmp("ne", other, 0), c.icmp("eq", other, c.op("add", index, 1))
            both = c.op("and", strong, c.icmp("ne", c.op("and", stamp, STRONG_CLOCK), 0))
            away = c.icmp("eq", c.op("and", stamp, CLOCK), _IN_FLIGHT)
            with c.when(c.op("and", away, uses)):
                report_conflict(
                    lib, c, warp, ReportKind.COPY_IN_FLIGHT, site, lane, offset, size, kind, other
                )
            if at == 0:
                both = c.op("or", both, c.icmp("ne", c.op("and", access, UNCHANGED), 0))
            exempt = c.op("or", both, c.op("or", away, c.not_(uses)))
            with c.when(c.op("and", some, c.not_(exempt))):
                party = c.op("sub", other, 1)
                known = c.load("i32", clocks.clock(c, group, index, party))
                place = c.load("i32", c.gep(cell, PLACES + at))
                late = c.icmp("ugt", c.op("and", stamp, CLOCK), known)
                for what, wanted in ((ReportKind.SHARED_RACE, c.not_(own)), (ReportKind.ASYNC_READ, own)):
                    with c.when(c.op("and", late, wanted)):
                        report_conflict(lib, c, warp, what, site, lane, offset, size, kind, place)
                if at == 0:
                    reads = c.op("and", reads_later, c.not_(late))
                    check_proxy(cell, stamp, c.op("sub", other, 1), reads, lane, offset)

        def check_proxy(  # a byte that the generic proxy wrote, with no fence of the proxies since
            cell: Value, stamp: Value, party: Value, reads: Value, lane: Value, offset: Value
        ) -> None:
            plain = c.icmp("eq", c.load("i32", c.gep(cell, BY_PROXY)), 0)
            fenced = c.load("i32", clocks.fenced(c, group, index, party))
            missing = c.icmp("ugt", c.op("and", stamp, CLOCK), fenced)
            with c.when(c.op("and", reads, c.op("and", plain, missing))):
                place = c.load("i32", c.gep(cell, PLACES))
                report_conflict(
                    lib, c, warp, ReportKind.MISSING_PROXY_FENCE, site, lane, offset, size, kind, place
                )

        def settled(stamp: Value) -> Value:
            """Return whether a reader's stamp can be replaced: empty, this warp's, or ordered before it."""
            other = c.op("lshr", stamp, 24)
            mine_or_none = c.op("or", c.icmp("eq", other, 0), c.icmp("eq", other, c.op("add", index, 1)))
            party = c.select(mine_or_none, index, c.op("sub", other, 1))
            known = c.load("i32", clocks.clock(c, group, index, party))
            return c.op("or", mine_or_none, c.icmp("ule", c.op("and", stamp, CLOCK), known))

        with c.each_lane(mask) as lane:
            offset = all_in.get(lane)
            place = place_of(lib, c, warp, site, lane)
            with c.when(c.icmp("ule", c.op("add", offset, size), limit)), c.count(size) as byte:
                cell = c.gep(cells, c.op("mul", c.resize(c.op("add", offset, byte), 64), CELL))
                last_write = c.load("i32", cell)
                if checks.uninitialised:
                    with c.when(c.op("and", c.icmp("eq", last_write, 0), relies)):
                        report_conflict(
                            lib, c, warp, ReportKind.UNINITIALISED, site, lane, offset, size, kind, i32(0)
                        )
                if checks.shared_races:
                    check(cell, 0, lane, offset)
                    with c.when(writes):
                        for reader in (4, 8):
                            check(cell, reader, lane, offset)
                with c.when(writes):
                    c.store(mine, cell)
                    c.store(place, c.gep(cell, PLACES))
                    c.store(c.resize(by_proxy, 32), c.gep(cell, BY_PROXY))
                with c.otherwise(writes):
                    first = c.load("i32", c.gep(cell, 4))
                    at = c.select(settled(first), i64(4), i64(8))
                    c.store(mine, c.gep(cell, at))
                    c.store(place, c.gep(c.gep(cell, at), PLACES))
        c.ret()

    return lib.define("emu.watch.shared", "void", watch_parameters(lib, "i32"), body, core=True)
