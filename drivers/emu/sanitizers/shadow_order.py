"""Races in global memory between the warps of one workgroup, and targets of copies in flight.

Beside each dword's cell (`shadow_global`) lie the clocks of its last plain store and of its last read, as u32, in the
shadow `MAP_ENTRY.order`. They count if the cell says that the accessing workgroup made that access; the vector clocks
of its warps (`clocks`) say whether it came before. A store that changes nothing races with no other store.

Not here: other workgroups (`group_order`), shared memory (`shadow_shared`).
"""

# ruff: noqa: E501, PLR0917 - helpers mirror the functions they write, argument for argument

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from drivers.emu.report import ReportKind
from drivers.emu.sanitizers import clocks
from drivers.emu.sanitizers.clocks import CLOCK, COPY, IN_FLIGHT, LANDED, STRONG_CLOCK
from drivers.emu.simt.addresses import ATOMIC, READ, STRONG, UNCHANGED, UNMARKED
from drivers.emu.simt.findings import i32, report_conflict
from drivers.emu.simt.state import WARP
from drivers.emu.simt.vector import Value

if TYPE_CHECKING:
    from drivers.emu.simt.library import Library
    from drivers.emu.simt.vector import Code

_UNMARKED_CLOCK: Final = STRONG_CLOCK << 1
"""Bit set beside STRONG_CLOCK in the clock of a store that may be plain (`addresses.UNMARKED`)."""
SAME_GROUP: Final = 1 << 47
"""Bit set in the party of a reported race if that is an instruction and a thread of the same workgroup."""


def check_warps(
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
    stored: tuple[Value, Value],
    read: tuple[Value, Value],
) -> None:
    """Append the check and the record of an access to a dword.

    `stored` and `read` are each whether this workgroup made that access last, and the word of its place.
    """
    group, party = WARP.load(c, warp, "group"), WARP.load(c, warp, "party")
    at = c.let("ptr", f"inttoptr {c.op('add', shadow, c.op('shl', dword, 3))} to ptr")
    kind = c.op("and", access, STRONG - 1)
    strong = c.icmp("ne", c.op("and", access, ATOMIC | STRONG), 0)
    unmarked = c.icmp("ne", c.op("and", access, UNMARKED), 0)
    marks = c.select(
        strong, i32(STRONG_CLOCK), c.select(unmarked, i32(STRONG_CLOCK | _UNMARKED_CLOCK), i32(0))
    )
    writes, lands = c.icmp("ne", kind, READ), c.icmp("eq", kind, LANDED)
    now = c.load("i32", clocks.clock(c, group, party, party))
    now = c.select(c.icmp("eq", kind, COPY), i32(IN_FLIGHT), now)
    now = c.op("or", now, marks)

    def check(offset: int, made: tuple[Value, Value], exempt: Value) -> None:
        own, place = made
        stamp = c.load("i32", c.gep(at, offset))
        then = c.op("and", stamp, CLOCK)
        marked = c.icmp("eq", c.op("and", stamp, STRONG_CLOCK | _UNMARKED_CLOCK), STRONG_CLOCK)
        either = c.op("and", strong, c.icmp("ne", c.op("and", stamp, STRONG_CLOCK), 0))
        both = c.op("or", either, c.op("and", unmarked, marked))
        away = c.icmp("eq", then, IN_FLIGHT)
        with c.when(c.op("and", c.op("and", own, c.icmp("ne", stamp, 0)), c.not_(exempt))):
            with c.when(c.op("and", away, c.icmp("ne", kind, COPY))):
                what = ReportKind.COPY_IN_FLIGHT
                report_conflict(lib, c, warp, what, site, lane, address, size, kind, i32(0))
            with c.when(c.not_(c.op("or", both, away))):
                thread = c.op("and", c.op("sub", place, 1), 1023)
                first = c.op("sub", party, WARP.load(c, warp, "index"))
                other = c.op("add", first, c.op("udiv", thread, lib.lanes))
                known = c.load("i32", clocks.clock(c, group, party, other))
                with c.when(c.op("and", c.icmp("ne", other, party), c.icmp("ugt", then, known))):
                    whom = c.op("or", c.resize(place, 64), SAME_GROUP)
                    kind_of = ReportKind.GLOBAL_RACE
                    report_conflict(lib, c, warp, kind_of, site, lane, address, size, kind, whom)

    unchanged = c.icmp("ne", c.op("and", access, UNCHANGED), 0)
    check(0, stored, c.op("or", lands, unchanged))
    with c.when(c.op("and", writes, c.not_(lands))):
        check(4, read, Value("i1", "false"))
        c.store(now, at)
    with c.otherwise(writes):
        c.store(now, c.gep(at, 4))
    landing = c.op("and", c.op("and", lands, stored[0]), c.icmp("eq", c.load("i32", at), IN_FLIGHT))
    with c.when(landing):
        c.store(now, at)
