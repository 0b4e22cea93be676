"""Groups of asynchronous reads of shared memory that a warp closes and waits for, as those of wgmma.

All reads of a group have one clock. It begins `READ_AHEAD` later than the warp's clock and than the clocks of earlier groups.
When the warp waits for the group, its own clock advances to the group's clock. Groups that the wait leaves in flight stay
ahead. A warp has `AREA` bytes for this, zero at first: u32 clocks of its open group and then of its closed groups, the last
closed first. A clock of 0 means that there is no such group.

Not here: reads of bulk copies (`sanitize.proxy_waited`). Next: `shadow_shared`, the checks of the reads.
"""

# ruff: noqa: E501 - summaries that name their parameters read best on one line

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from emulator.ir.findings import i32
from emulator.ir.library import helper
from emulator.ir.state import WARP
from emulator.sanitizers import clocks
from emulator.sanitizers.clocks import IN_FLIGHT, READ_AHEAD

if TYPE_CHECKING:
    from emulator.ir.library import Library
    from emulator.ir.vector import CodeBuilder, IrValue
    from emulator.sanitizers.sanitize import CheckedFunction

_GROUPS: Final = 8
"""The most closed groups with clocks of their own; older ones share the last. wgmma.wait_group leaves at most 7 in flight."""
AREA: Final = 64
"""Bytes of the clocks of one warp."""
BULK, GROUPED = 1, 2
"""Bits of `WARP.reading`: a bulk copy reads for the warp (BULK); a group of reads is in flight (GROUPED)."""


def begin(wf: CheckedFunction, area: IrValue) -> None:
    """Append code after which asynchronous reads of a warp belong to its open group, until `end`."""
    if wf.lib.checks.shared_races:
        wf.c.call(_begin(wf.lib), "void", wf.warp, area)


def end(wf: CheckedFunction) -> None:
    """Append code after which asynchronous reads of a warp belong to no group."""
    if wf.lib.checks.shared_races:
        WARP.store(wf.c, wf.warp, "reads_until", 0)


def committed(wf: CheckedFunction, area: IrValue) -> None:
    """Append code for a warp that closes its open group."""
    if wf.lib.checks.shared_races:
        with wf.c.when(wf.c.icmp("ne", wf.active, 0)):
            wf.c.call(_commit(wf.lib), "void", area)


def waited(wf: CheckedFunction, area: IrValue, left: int) -> None:
    """Append code for a warp that has waited for all closed groups but the last `left`."""
    if wf.lib.checks.shared_races:
        with wf.c.when(wf.c.icmp("ne", wf.active, 0)):
            wf.c.call(_wait(wf.lib, min(left, _GROUPS)), "void", wf.warp, area)


def may_tick(c: CodeBuilder, warp: IrValue, now: IrValue) -> IrValue:
    """Return whether a warp's clock `now` may advance although asynchronous operations read for it.

    It must not reach the clock of a read before the warp waits for the read. Half of the distance is left for barriers.
    """
    reading = WARP.load(c, warp, "reading")
    left = c.op("sub", WARP.load(c, warp, "reads_first"), now)
    far = c.op("and", c.icmp("eq", reading, GROUPED), c.icmp("sgt", left, READ_AHEAD // 2))
    return c.op("or", c.icmp("eq", reading, 0), far)


def _own_clock(c: CodeBuilder, warp: IrValue) -> IrValue:
    group, party = WARP.load(c, warp, "group"), WARP.load(c, warp, "party")
    return clocks.clock(c, group, party, party)


def _clock_of(c: CodeBuilder, area: IrValue, number: int) -> IrValue:
    """Return the address of the clock of a group: 0 is the open one, 1 the last that was closed."""
    return c.gep(area, 4 * number)


def _latest(c: CodeBuilder, area: IrValue, first: int) -> IrValue:
    """Return the latest clock of the groups from number `first` on; 0 if none of them is in flight."""
    latest = i32(0)
    for number in range(first, _GROUPS + 1):
        latest = c.intrinsic("umax", latest, c.load("i32", _clock_of(c, area, number)))
    return latest


@helper("emu.reads.begin", "ptr, ptr")
def _begin(_lib: Library, c: CodeBuilder, warp: IrValue, area: IrValue) -> None:
    """`emu.reads.begin(warp, area)`: set `WARP.reads_until` to the clock of the open group; give the group a clock if it has none."""
    now, own = c.load("i32", _own_clock(c, warp)), _clock_of(c, area, 0)
    with c.when(c.icmp("ule", c.load("i32", own), now)):
        before = c.intrinsic("umax", now, _latest(c, area, 1))
        after = c.intrinsic("umin", c.op("add", before, READ_AHEAD), i32(IN_FLIGHT - 1))
        c.store(after, own)
        alone = c.icmp("eq", c.op("and", WARP.load(c, warp, "reading"), GROUPED), 0)
        first = c.select(alone, after, WARP.load(c, warp, "reads_first"))
        WARP.store(c, warp, "reads_first", first)
    WARP.store(c, warp, "reads_until", c.load("i32", own))


@helper("emu.reads.commit", "ptr")
def _commit(_lib: Library, c: CodeBuilder, area: IrValue) -> None:
    """`emu.reads.commit(area)`: the open group becomes group 1, and each closed group n becomes n + 1."""
    c.store(_latest(c, area, _GROUPS - 1), _clock_of(c, area, _GROUPS))
    for number in range(_GROUPS - 1, 0, -1):
        c.store(c.load("i32", _clock_of(c, area, number - 1)), _clock_of(c, area, number))
    c.store(i32(0), _clock_of(c, area, 0))


def _wait(lib: Library, left: int) -> str:
    """`emu.reads.wait.LEFT(warp, area)`: advance the warp's clock to those of all groups with a number above LEFT."""

    def body(c: CodeBuilder, warp: IrValue, area: IrValue) -> None:
        at = _own_clock(c, warp)
        now = c.intrinsic("umax", c.op("add", c.load("i32", at), 1), _latest(c, area, left + 1))
        c.store(c.intrinsic("umin", now, i32(IN_FLIGHT - 1)), at)
        for number in range(left + 1, _GROUPS + 1):
            c.store(i32(0), _clock_of(c, area, number))
        first = i32(0)
        for number in range(left + 1):  # the later it was closed, the later its clock
            one = c.load("i32", _clock_of(c, area, number))
            first = c.select(c.icmp("ne", one, 0), one, first)
        WARP.store(c, warp, "reads_first", first)
        others = c.op("and", WARP.load(c, warp, "reading"), BULK)
        grouped = c.select(c.icmp("ne", first, 0), i32(GROUPED), i32(0))
        WARP.store(c, warp, "reading", c.op("or", others, grouped))

    return lib.define(f"emu.reads.wait.{left}", "void", "ptr, ptr", body)
