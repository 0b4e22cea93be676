"""Races in global memory between the warps of one workgroup, and targets of copies in flight.

The shadow `MAP_ENTRY.order` has two u32 for each dword: the clocks of its last store and of its last read. A
clock is compared only if the dword's cell (`shadow_global`) says that the same workgroup made that access.
The vector clocks of the warps (`clocks`) then say whether the access came before. A store that does not
change memory does not race with other stores.

Not here: other workgroups (`group_order`). Next: `shadow_shared`, shared memory.
"""

# ruff: noqa: PLR0917 - a lane's access has as many parts

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from emulator.ir.addresses import ATOMIC, READ, STRONG, UNCHANGED, UNMARKED
from emulator.ir.findings import i32
from emulator.ir.report import ReportKind
from emulator.ir.state import WARP
from emulator.ir.vector import IrValue
from emulator.sanitizers import clocks
from emulator.sanitizers.clocks import CLOCK, COPY, IN_FLIGHT, LANDED, STRONG_CLOCK

if TYPE_CHECKING:
    from emulator.ir.vector import CodeBuilder
    from emulator.sanitizers.shadow_global import GlobalAccess

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
