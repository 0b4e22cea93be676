"""The state of an mbarrier, and its transitions. Source: PTX ISA 9.7.13.15.

PTX leaves the 64 bits opaque. The layout here: phase (bit 63), expected arrivals (62:43), pending arrivals (42:23),
pending bytes (22:0, biased by 2^22).

Not here: the instructions, and the addresses of mbarriers (`mbarrier`). Next: `mbarrier`.
"""

# ruff: noqa: E501, PLR0917 - helpers mirror the functions they write, argument for argument

from __future__ import annotations

from typing import TYPE_CHECKING

from emulator.ir.findings import emit_report, i64
from emulator.ir.report import ReportKind
from emulator.ir.vector import IrValue, Spilled

if TYPE_CHECKING:
    from emulator.ir.library import Library
    from emulator.ir.vector import CodeBuilder

_BIAS = 1 << 22
"""Added to the pending bytes, because they may be negative."""
COUNT = (1 << 20) - 1
"""The most arrivals, and the most pending bytes of either sign."""


def step(lib: Library, action: str) -> str:
    """`ptx.mbarrier.ACTION(warp, hosts, counts, bytes, lanes, site) -> states before`: one step for each of `lanes`, in order.

    `hosts` are the host addresses of the mbarriers. The actions:
    - "init": expect `counts` arrivals in each phase. "inval": store 0, the state of no mbarrier. "read": change nothing;
    - "tx": expect `bytes`, or complete them if negative;
    - "arrive": like "tx", then arrive `counts` times. "drop": the same, and expect so many fewer in later phases;
    - "arrive.quiet", "drop.quiet": the same, but they must not complete the phase;
    - "passing": like "tx"; the lane also expects one more arrival and arrives, so `counts` has no effect.

    A step that is invalid is reported, and the state changes nevertheless.
    """

    def body(
        c: CodeBuilder, warp: IrValue, hosts: IrValue, counts: IrValue, sizes: IrValue, lanes: IrValue, site: IrValue
    ) -> None:
        where, given, moved = Spilled(c, hosts), Spilled(c, counts), Spilled(c, sizes)
        before = Spilled(c, lib.v("i64"))
        with c.each_lane(lanes) as lane:
            pointer = c.let("ptr", f"inttoptr {where.get(lane)} to ptr")
            count, size = given.get(lane), moved.get(lane)
            old = c.load("i64", pointer)
            before.set(lane, old)
            if action == "init":
                with c.when(c.icmp("ugt", c.op("sub", count, 1), COUNT - 1)):
                    emit_report(lib, c, warp, ReportKind.BAD_MBARRIER, site, lane)
                c.store(_packed(c, i64(0), count, count, i64(_BIAS)), pointer)
            elif action == "inval":
                c.store(i64(0), pointer)
            elif action != "read":
                state, bad = advanced(c, action, old, count, size)
                with c.when(bad):
                    emit_report(lib, c, warp, ReportKind.BAD_MBARRIER, site, lane)
                c.store(state, pointer)
        c.ret(before.whole())

    return lib.define(
        f"ptx.mbarrier.{action}", "i64 each", "ptr, i64 each, i64 each, i64 each, mask, i32", body
    )


def awaited(c: CodeBuilder, state: IrValue) -> IrValue:
    """Return what the phase of a state waits for, as in `WARP.poll_wants`: bit 63, arrivals (62:32), bytes (31:0)."""
    pending = c.op("and", c.op("lshr", state, 23), COUNT)
    bytes_ = c.op("and", c.op("sub", c.op("and", state, 2 * _BIAS - 1), _BIAS), (1 << 32) - 1)
    return c.op("or", c.op("or", c.op("shl", pending, 32), bytes_), 1 << 63)


def _packed(c: CodeBuilder, phase: IrValue, expected: IrValue, pending: IrValue, bytes_: IrValue) -> IrValue:
    """Return a state, i64; `bytes_` are biased."""
    counts = c.op("or", c.op("shl", expected, 43), c.op("shl", pending, 23))
    return c.op("or", c.op("or", c.op("shl", phase, 63), counts), bytes_)


def advanced(c: CodeBuilder, action: str, old: IrValue, count: IrValue, size: IrValue) -> tuple[IrValue, IrValue]:
    """Return an mbarrier's next state after an action that `step` lists from "tx" on, and whether the action is invalid.

    It is invalid without an initialised mbarrier, with too many bytes pending, or with no or too many arrivals.
    """
    expected = c.op("and", c.op("lshr", old, 43), COUNT)
    pending = c.op("and", c.op("lshr", old, 23), COUNT)
    moved = c.op("add", c.op("sub", c.op("and", old, 2 * _BIAS - 1), _BIAS), size)
    bad = c.icmp("ugt", c.op("add", moved, COUNT), 2 * COUNT)
    bad = c.op("or", bad, c.icmp("eq", old, 0))
    if action == "passing":
        bad = c.op("or", bad, c.op("or", c.icmp("eq", pending, COUNT), c.icmp("eq", pending, 0)))
    if action.startswith(("arrive", "drop")):
        bad = c.op("or", bad, c.op("or", c.icmp("ult", pending, count), c.icmp("eq", count, 0)))
        pending = c.op("and", c.op("sub", pending, count), COUNT)
    if action.startswith("drop"):
        expected = c.op("and", c.op("sub", expected, count), COUNT)
    done = c.op("and", c.icmp("eq", pending, 0), c.icmp("eq", moved, 0))
    if action.endswith(".quiet"):
        bad = c.op("or", bad, done)
    phase = c.op("xor", c.op("lshr", old, 63), c.resize(done, 64))
    pending = c.select(done, expected, pending)
    return _packed(c, phase, expected, pending, c.op("and", c.op("add", moved, _BIAS), 2 * _BIAS - 1)), bad
