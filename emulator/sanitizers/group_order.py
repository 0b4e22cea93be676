"""Order between workgroups: vector clocks of their releases and of the strong writes that each observed.

Each workgroup has a row, its vector clock: the time of the last strong write of each other workgroup that it
observed (`THREAD.known`). A workgroup observes a strong write when it reads the written dword strongly or overwrites it.
Then it joins the writer's clock to its own. A release takes effect through the strong writes that follow it, so it reaches
every workgroup that observes one of these writes.

Accesses without an order here have none on hardware. The converse does not hold, because three things are simplified: a
release by any thread counts for the whole workgroup; a read before an acquire counts as a read after it; and
observations that the writer made after its write count as made before.

Above `_MOST_ROWS` workgroups all share one row: an observation of one counts for all.

Not here: the order of warps within a workgroup (`clocks`). Next: `shadow_global`, which queries the order of two accesses.
"""

# ruff: noqa: E501, PLR0917 - helpers mirror the functions they write, argument for argument

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from emulator.ir.addresses import search
from emulator.ir.clusters import each_group
from emulator.ir.findings import i32
from emulator.ir.library import helper
from emulator.ir.state import GROUP, LAUNCH, MAP_ENTRY, RELEASE, RELEASE_BYTES, THREAD, WARP
from emulator.ir.vector import IrValue, Spilled

if TYPE_CHECKING:
    from emulator.ir.library import Library
    from emulator.ir.vector import CodeBuilder

STRONG_PARTY: Final = 1 << 31
"""The bit that is set in the number of a workgroup (from 1) if it accessed a dword strongly."""
UNMARKED_PARTY: Final = 1 << 30
"""The bit that is set with `STRONG_PARTY` if the access is a store that may be plain (`addresses.UNMARKED`)."""
PARTY: Final = UNMARKED_PARTY - 1
"""The bits of the number of the workgroup."""
_MOST_ROWS: Final = 1024


def known_bytes(groups: int) -> tuple[int, int]:
    """Return the size in bytes of all rows of a launch, and the distance in bytes between two rows (0: one shared row)."""
    return (4 * groups * groups, 4 * groups) if groups <= _MOST_ROWS else (4 * groups, 0)


def tick(c: CodeBuilder, thread: IrValue) -> IrValue:
    """Increment the time of the launch and return it, as i32."""
    sequence = LAUNCH.address(c, THREAD.load(c, thread, "launch"), "sequence")
    return c.resize(c.op("add", c.let("i64", f"atomicrmw add {sequence}, i64 1 seq_cst"), 1), 32)


def order_event(c: CodeBuilder, group: IrValue, what: str) -> None:
    """Append code that records a release ("released"), an acquire ("acquired") or both ("fenced") of a workgroup."""
    thread = GROUP.load(c, group, "thread")
    now = tick(c, thread)
    if what != "acquired":
        log = _release_of(c, thread, GROUP.load(c, group, "index"))
        c.store(c.load("i32", c.gep(log, RELEASE["last"])), c.gep(log, RELEASE["before"]))
        c.store(now, c.gep(log, RELEASE["last"]))
    if what != "released":
        GROUP.store(c, group, "acquired", now)
    if what == "fenced":
        GROUP.store(c, group, "fenced", 1)


def unordered(c: CodeBuilder, thread: IrValue, me: IrValue, other: IrValue, when: IrValue, acquired: IrValue) -> IrValue:
    """Return whether an access of workgroup `other` at time `when` is unordered with workgroup `me`.

    `acquired` is the time of the last acquire of `me`. Only the last two releases of `other` are recorded; if an
    earlier one could have ordered the access, it counts as ordered.
    """
    log = _release_of(c, thread, other)
    last, before = (c.load("i32", c.gep(log, RELEASE[name])) for name in ("last", "before"))
    reached = c.intrinsic("umin", c.load("i32", _known(c, thread, me, other)), acquired)
    never = c.op("or", c.icmp("ule", last, when), c.icmp("ule", reached, when))
    late = c.op("and", c.icmp("ule", before, when), c.icmp("ugt", last, reached))
    return c.op("or", never, late)


def observed(c: CodeBuilder, thread: IrValue, me: IrValue, other: IrValue, when: IrValue) -> IrValue:
    """Return whether workgroup `me` has observed the strong write of `other` at time `when`, or a later one."""
    return c.icmp("uge", c.load("i32", _known(c, thread, me, other)), when)


def publish(lib: Library, c: CodeBuilder, thread: IrValue, me: IrValue, cell: IrValue, flags: IrValue) -> None:
    """Append code that records a strong write of a workgroup in a dword's cell, and observes the write that it replaces.

    `flags`, an i32, is `STRONG_PARTY`, with `UNMARKED_PARTY` if the write may be plain. The replaced write is
    observed first, so that a workgroup which reads the cell later observes it through this write.
    """
    now = c.resize(tick(c, thread), 64)
    mine = c.op("or", c.op("shl", now, 32), c.resize(c.op("or", c.op("add", me, 1), flags), 64))
    again, done = c.fresh("again"), c.fresh("done")
    c.jump(again)
    c.label(again)
    before = c.load("i64", cell, volatile=True)
    _learn_from(lib, c, thread, me, before)
    pair = c.let("{ i64, i1 }", f"cmpxchg {cell}, {before}, {mine} seq_cst seq_cst, align 8")
    c.branch(c.let("i1", f"extractvalue {pair}, 1"), done, again)
    c.label(done)


@helper("emu.observe", "ptr, i64 each, mask, i32")
def observe(lib: Library, c: CodeBuilder, warp: IrValue, addresses: IrValue, mask: IrValue, size: IrValue) -> None:
    """`emu.observe(warp, addresses, mask, size)`: after a strong read, observe the last strong writes to the dwords read."""
    thread = WARP.load(c, warp, "thread")
    me = GROUP.load(c, WARP.load(c, warp, "group"), "index")
    all_in, size64 = Spilled(c, addresses), c.resize(size, 64)
    some = c.icmp("ne", THREAD.load(c, thread, "map_count"), 0)
    with c.when(some), c.each_lane(mask) as lane:
        entry = c.call(search(lib), "ptr", thread, all_in.get(lane))
        offset = c.op("sub", all_in.get(lane), MAP_ENTRY.load(c, entry, "start"))
        length, shadow = MAP_ENTRY.load(c, entry, "size"), MAP_ENTRY.load(c, entry, "touched")
        inside = c.op(
            "and", c.icmp("ult", offset, length), c.icmp("ule", c.op("add", offset, size64), length)
        )
        with (
            c.when(c.op("and", inside, c.icmp("ne", shadow, 0))),
            c.count(c.intrinsic("umax", c.op("lshr", size, 2), i32(1))) as dword,
        ):
            at = c.op("shl", c.op("add", c.op("lshr", offset, 2), c.resize(dword, 64)), 5)
            cell = c.let("ptr", f"inttoptr {c.op('add', shadow, at)} to ptr")
            _learn_from(lib, c, thread, me, c.load("i64", cell, volatile=True))


def meet(lib: Library, c: CodeBuilder, group: IrValue) -> None:
    """Append code for a workgroup that acquires from the others of its cluster: it observes all their writes so far."""
    thread, me = GROUP.load(c, group, "thread"), GROUP.load(c, group, "index")
    now = tick(c, thread)
    with each_group(c, group) as one:
        other = GROUP.load(c, one, "index")
        with c.when(c.icmp("ne", other, me)):
            c.call(_learn(lib), "void", thread, me, other, now)
    GROUP.store(c, group, "acquired", now)


def _learn_from(lib: Library, c: CodeBuilder, thread: IrValue, me: IrValue, written: IrValue) -> None:
    """Append code that observes the write recorded in a cell, if it is a strong write of another workgroup."""
    party = c.resize(written, 32)
    other = c.op("sub", c.op("and", party, PARTY), 1)
    with c.when(c.op("and", c.icmp("slt", party, 0), c.icmp("ne", other, me))):
        c.call(_learn(lib), "void", thread, me, other, c.resize(c.op("lshr", written, 32), 32))


@helper("emu.learn", "ptr, i32, i32, i32", core=True)
def _learn(_lib: Library, c: CodeBuilder, thread: IrValue, me: IrValue, other: IrValue, when: IrValue) -> None:
    """`emu.learn(thread, me, other, when)`: observe the strong write of `other` at `when`, and join its clock."""
    at = _known(c, thread, me, other)
    own_rows = c.icmp("ne", THREAD.load(c, thread, "known_step"), 0)
    with c.when(c.icmp("ult", c.load("i32", at), when)):
        with c.when(own_rows), c.count(THREAD.load(c, thread, "groups")) as one:
            here, there = (_known(c, thread, row, one) for row in (me, other))
            c.store(c.intrinsic("umax", c.load("i32", here), c.load("i32", there)), here)
        c.let("i32", f"atomicrmw umax {at}, {when} seq_cst")


def _known(c: CodeBuilder, thread: IrValue, row: IrValue, column: IrValue) -> IrValue:
    """Return the address of a component of a clock: the last time of `column` that `row` observed."""
    first = c.op("mul", c.resize(row, 64), c.resize(THREAD.load(c, thread, "known_step"), 64))
    at = c.op("add", first, c.op("shl", c.resize(column, 64), 2))
    return c.gep(THREAD.load(c, thread, "known"), at)


def _release_of(c: CodeBuilder, thread: IrValue, number: IrValue) -> IrValue:
    """Return the address of the `state.RELEASE` record of a workgroup."""
    log = THREAD.load(c, thread, "releases")
    return c.gep(log, c.op("mul", c.resize(number, 64), RELEASE_BYTES))
