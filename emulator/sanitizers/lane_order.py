"""Order between the lanes of one warp: which accesses to shared memory come before others.

Lanes need not run in step. They meet at operations of the warp that name them, at barriers, and at fences (hardware promises
less of fences). Each warp has one clock (`clocks`). When all live lanes meet, `WARP.synced` becomes that clock: every lane
is ordered after all accesses up to it. When only some lanes meet, their rows of a matrix are joined: row i, column j is the
clock up to which lane i is ordered after lane j.

Not here: the order of warps (`clocks`). Next: `shadow_shared`, which queries the order of two accesses.
"""

# ruff: noqa: E501, PLR0917 - helpers mirror the functions they write, argument for argument

from __future__ import annotations

from typing import TYPE_CHECKING

from emulator.ir.findings import i32
from emulator.ir.library import helper
from emulator.ir.state import WARP
from emulator.ir.vector import IrValue, Spilled
from emulator.sanitizers import clocks, read_groups
from emulator.sanitizers.shadow_local import end_of_bits

if TYPE_CHECKING:
    from emulator.ir.library import Library
    from emulator.ir.vector import CodeBuilder


def matrix_bytes(lanes: int) -> int:
    """Return the size in bytes of the matrix of a warp."""
    return 4 * lanes * lanes


def _row(lib: Library, c: CodeBuilder, warp: IrValue, lane: IrValue) -> IrValue:
    """Return the address of a lane's row."""
    first = end_of_bits(lib, c, WARP.load(c, warp, "group"))
    number = c.op("add", c.op("mul", WARP.load(c, warp, "index"), lib.lanes), lane)
    return c.gep(first, c.op("mul", c.resize(number, 64), 4 * lib.lanes))


def _next_clock(c: CodeBuilder, warp: IrValue) -> IrValue:
    """Append code that advances the warp's clock; return the clock before.

    The clock stays while it is near the clock of a read of the asynchronous proxy for the warp (`read_groups.may_tick`).
    """
    group, party = WARP.load(c, warp, "group"), WARP.load(c, warp, "party")
    now = c.load("i32", clocks.clock(c, group, party, party))
    with c.when(read_groups.may_tick(c, warp, now)):
        clocks.tick(c, group, party)
    return now


def all_met(lib: Library, c: CodeBuilder, warp: IrValue) -> None:
    """Append code for a meeting of all live lanes of a warp."""
    if lib.checks.lane_races:
        with c.when(c.icmp("ne", WARP.load(c, warp, "touched"), 0)):
            WARP.store(c, warp, "touched", 0)
            WARP.store(c, warp, "synced", _next_clock(c, warp))


@helper("emu.lanes.met", "ptr, i32 each, mask, mask")
def met(lib: Library, c: CodeBuilder, warp: IrValue, masks: IrValue, lanes: IrValue, live: IrValue) -> None:
    """`emu.lanes.met(warp, masks, lanes, live)`: each of `lanes` meets the lanes in its mask; `live` are all live lanes."""
    apart = c.icmp("ne", c.op("and", c.mask_bits(c.icmp("ne", masks, c.splat(live, lib.lanes))), lanes), 0)
    some = c.op("or", apart, c.icmp("ne", lanes, live))
    with c.otherwise(some):
        all_met(lib, c, warp)
    with c.when(c.op("and", some, c.icmp("ne", WARP.load(c, warp, "touched"), 0))):
        with c.when(c.icmp("eq", WARP.load(c, warp, "grouped"), 0)):
            WARP.store(c, warp, "grouped", 1)
            no = IrValue("i8", "0"), c.const("i64", matrix_bytes(lib.lanes)), IrValue("i1", "false")
            c.call("llvm.memset.p0.i64", "void", _row(lib, c, warp, i32(0)), *no)
        now = c.splat(_next_clock(c, warp), lib.lanes)
        all_in, row = Spilled(c, masks), c.slot(lib.v("i32"))
        left = c.slot(lib.mask)
        c.store(lanes, left)
        with c.each_lane(lanes) as first:
            waiting = c.load(lib.mask, left)
            mask = c.op("and", c.resize(all_in.get(first), lib.lanes), lanes)
            here = c.op("and", c.op("lshr", waiting, c.resize(first, lib.lanes)), 1)
            with c.when(c.icmp("ne", here, 0)):
                c.store(c.op("and", waiting, c.not_(mask)), left)
                c.store(c.select(c.mask_lanes(mask), now, c.zero(lib.v("i32"))), row)
                with c.each_lane(mask) as one:
                    known = c.load(lib.v("i32"), _row(lib, c, warp, one), align=4)
                    c.store(c.intrinsic("umax", known, c.load(lib.v("i32"), row)), row)
                with c.each_lane(mask) as one:
                    c.store(c.load(lib.v("i32"), row), _row(lib, c, warp, one), align=4)


def apart(lib: Library, c: CodeBuilder, warp: IrValue, lane: IrValue, other: IrValue, then: IrValue) -> IrValue:
    """Return whether lane `lane` now is unordered with an access that lane `other` made at the warp's clock `then`."""
    known = c.slot("i32")
    c.store(WARP.load(c, warp, "synced"), known)
    late = c.op("and", c.icmp("ne", lane, other), c.icmp("ugt", then, c.load("i32", known)))
    with c.when(c.op("and", late, c.icmp("ne", WARP.load(c, warp, "grouped"), 0))):
        at = c.gep(_row(lib, c, warp, lane), c.op("shl", c.resize(other, 64), 2))
        c.store(c.intrinsic("umax", c.load("i32", known), c.load("i32", at)), known)
    return c.op("and", late, c.icmp("ugt", then, c.load("i32", known)))
