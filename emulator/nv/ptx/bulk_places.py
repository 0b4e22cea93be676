"""Address translation and checks of the pieces of memory that bulk copies read and write.

A piece must lie within one allocation, or within the shared memory of one workgroup.

Not here: boxes of a tensor (`tensor_copies`). Next: `bulk`, the copies.
"""

# ruff: noqa: E501, PLR0917 - helpers mirror the functions they write, argument for argument

from __future__ import annotations

from typing import TYPE_CHECKING

from emulator.ir.addresses import ATOMIC, READ, search, translate
from emulator.ir.clusters import OFFSET, peer
from emulator.ir.findings import i32, report
from emulator.ir.report import ReportKind
from emulator.ir.state import GROUP, MAP_ENTRY, THREAD, WARP
from emulator.ir.vector import IrValue
from emulator.nv.ptx.memory import shared_offsets
from emulator.sanitizers import sanitize

if TYPE_CHECKING:
    from emulator.ir.library import Library
    from emulator.ir.vector import CodeBuilder
    from emulator.nv.ptx.core import PtxTranslator
    from emulator.nv.ptx.statements import Operand

_STEP = 16
"""The alignment of addresses and of sizes in bytes."""
SPACES = {"global": "global", "shared::cta": "shared", "shared::cluster": "cluster"}
"""State space of an operand -> the space of `emulator.ir.addresses`."""


def place(lib: Library, space: str) -> str:
    """`ptx.bulk.at.SPACE(warp, address, size, site, lane, access) -> host`: check a piece; an invalid one is reported and gives null."""

    def body(
        c: CodeBuilder, warp: IrValue, address: IrValue, size: IrValue, site: IrValue, lane: IrValue, access: IrValue
    ) -> None:
        thread, wide = WARP.load(c, warp, "thread"), c.resize(size, 64)
        outside: IrValue
        if space == "shared":
            allowed, outside = IrValue("i1", "true"), i32(ReportKind.SHARED_OUT_OF_BOUNDS)
            room = c.resize(THREAD.load(c, thread, "shared_bytes"), 64)
            inside = c.icmp("ule", c.op("add", address, wide), room)
            host = c.gep(WARP.load(c, warp, "shared"), address)
        elif space == "cluster":
            allowed, group = IrValue("i1", "true"), WARP.load(c, warp, "group")
            one = c.call(peer(lib), "ptr", group, c.resize(address, 32))
            there = c.icmp("ne", one, IrValue("ptr", "null"))
            one, offset = c.select(there, one, group), c.op("and", address, OFFSET)
            room = c.resize(THREAD.load(c, thread, "shared_bytes"), 64)
            inside = c.op("and", there, c.icmp("ule", c.op("add", offset, wide), room))
            host = c.gep(GROUP.load(c, one, "shared"), offset)
            gone = c.icmp("eq", GROUP.load(c, one, "live_warps"), 0)
            outside = c.select(
                c.op("and", inside, gone), i32(ReportKind.EXITED_PEER), i32(ReportKind.SHARED_OUT_OF_BOUNDS)
            )
            inside = c.op("and", inside, c.not_(gone))
        else:
            outside = i32(ReportKind.OUT_OF_BOUNDS)
            entry = c.call(search(lib), "ptr", thread, address)
            offset, length = (
                c.op("sub", address, MAP_ENTRY.load(c, entry, "start")),
                MAP_ENTRY.load(c, entry, "size"),
            )
            inside = c.op(
                "and", c.icmp("ule", offset, length), c.icmp("ule", wide, c.op("sub", length, offset))
            )
            inside = c.op("and", inside, c.icmp("ne", THREAD.load(c, thread, "map_count"), 0))
            want = c.resize(access, 64)
            allowed = c.icmp("eq", c.op("and", MAP_ENTRY.load(c, entry, "flags"), want), want)
            at = c.op("add", address, MAP_ENTRY.load(c, entry, "delta"))
            host = c.let("ptr", f"inttoptr {at} to ptr")
        aligned = c.icmp("eq", c.op("and", c.op("or", address, wide), _STEP - 1), 0)
        kind = c.select(inside, i32(ReportKind.FORBIDDEN), outside)
        kind = c.select(aligned, kind, i32(ReportKind.MISALIGNED))
        good = c.op("and", c.op("and", aligned, inside), allowed)
        with c.otherwise(good):
            c.call(report(lib), "void", warp, kind, site, lane, address, size, c.resize(access, 64))
        c.ret(c.select(good, host, IrValue("ptr", "null")))

    return lib.define(f"ptx.bulk.at.{space}", "ptr", "ptr, i64, i32, i32, i32, i32", body)


def placed(
    lib: Library, c: CodeBuilder, space: str, warp: IrValue, address: IrValue, size: IrValue, site: IrValue, lane: IrValue, access: int
) -> IrValue:  # fmt: skip
    """Append a call of `place`: return the host address of a piece, null if it is invalid."""
    return c.call(place(lib, space), "ptr", warp, address, size, site, lane, i32(access))


def watch(
    lib: Library,
    c: CodeBuilder,
    space: str,
    warp: IrValue,
    address: IrValue,
    lane: IrValue,
    site: IrValue,
    size: IrValue,
    access: int,
) -> None:
    """Append the sanitizers' checks of one piece; `lane` is a mask with one bit."""
    if space == "global":
        sanitize.watch(lib, c, space, warp, c.splat(address, lib.lanes), lane, site, size, access)
        return
    offsets = c.splat(c.resize(address, 32), lib.lanes)
    if access == READ:
        assert space == "shared"
        sanitize.proxy_reads(lib, c, warp, offsets, lane, site, size)
    else:
        sanitize.copy_begins(lib, c, warp, offsets, lane, site, size)


def wide_address(t: PtxTranslator, space: str, address: Operand) -> IrValue:
    """Return an address in global memory, or an offset or cluster address in shared memory, as i64."""
    return t.address(address, 64) if space == "global" else t.c.resize(t.address(address, 32), 64)


def host_of_barrier(t: PtxTranslator, address: Operand) -> IrValue:
    """Return the host addresses of the mbarriers of all active lanes, as i64; invalid ones are reported."""
    c, lib, warp, lanes = t.c, t.wf.lib, t.wf.warp, t.wf.active
    offsets, site = shared_offsets(t, "cluster", address), i32(t.site())
    return c.call(translate(lib, "cluster", 8), t.v("i64"), warp, offsets, lanes, site, i32(ATOMIC))
