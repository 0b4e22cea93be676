"""The shadow of local memory: one bit for each byte that its thread has written.

A read is reported if none of its bytes was written. A read of written bytes together with padding is not
reported. The bits of a workgroup follow the cells of its shared memory (`clocks`).

Not here: shared memory (`shadow_shared`), global memory (`shadow_global`). Next: `sanitize`, which calls it.
"""

# ruff: noqa: PLR0917 - helpers mirror the functions they write, argument for argument

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from emulator.ir.addresses import READ, STRONG, WRITE
from emulator.ir.findings import i32, report_conflict
from emulator.ir.library import helper
from emulator.ir.report import ReportKind
from emulator.ir.state import GROUP, THREAD, WARP
from emulator.ir.vector import IrValue, Spilled
from emulator.sanitizers import clocks

if TYPE_CHECKING:
    from emulator.ir.library import Library
    from emulator.ir.vector import CodeBuilder

LOCAL_PARTY: Final = 1
"""The party in a report of uninitialised local memory. Reports of uninitialised memory elsewhere have party
0."""


def bits_at(c: CodeBuilder, group: IrValue) -> IrValue:
    """Return the address of the bits of a workgroup."""
    shared = c.resize(THREAD.load(c, GROUP.load(c, group, "thread"), "shared_bytes"), 64)
    return c.gep(clocks.cells(c, group), c.op("mul", shared, clocks.CELL))


def end_of_bits(lib: Library, c: CodeBuilder, group: IrValue) -> IrValue:
    """Return the first address after the bits of a workgroup."""
    return c.gep(bits_at(c, group), _bits_bytes(lib, c, group))


def _bits_bytes(lib: Library, c: CodeBuilder, group: IrValue) -> IrValue:
    thread = GROUP.load(c, group, "thread")
    each, warps = (c.resize(THREAD.load(c, thread, name), 64) for name in ("local_bytes", "warps"))
    return c.op("mul", c.op("mul", c.op("lshr", each, 3), warps), lib.lanes)


def clear(lib: Library, c: CodeBuilder, group: IrValue) -> None:
    """Append code that marks the local memory of a workgroup as never written."""
    no = IrValue("i8", "0"), _bits_bytes(lib, c, group), IrValue("i1", "false")
    c.call("llvm.memset.p0.i64", "void", bits_at(c, group), *no)


@helper("emu.watch.local", "ptr, i32 each, mask, i32, i32, i32", core=True)
def watch_local(
    lib: Library,
    c: CodeBuilder,
    warp: IrValue,
    offsets: IrValue,
    mask: IrValue,
    site: IrValue,
    size: IrValue,
    access: IrValue,
) -> None:
    """`emu.watch.local(warp, offsets, mask, site, size, access)`: check and record each lane's bytes."""
    thread = WARP.load(c, warp, "thread")
    limit = THREAD.load(c, thread, "local_bytes")
    bits, all_in = bits_at(c, WARP.load(c, warp, "group")), Spilled(c, offsets)
    before = c.op("mul", WARP.load(c, warp, "index"), lib.lanes)
    kind = c.op("and", access, STRONG - 1)
    steps = c.intrinsic("umax", c.op("lshr", size, 3), i32(1))
    within = c.op("sub", c.op("shl", i32(1), c.intrinsic("umin", size, i32(8))), 1)
    seen = c.slot("i32")
    with c.each_lane(mask) as lane:
        offset = all_in.get(lane)
        own = c.op("mul", c.resize(c.op("add", before, lane), 64), c.resize(c.op("lshr", limit, 3), 64))
        first = c.gep(bits, c.op("add", own, c.resize(c.op("lshr", offset, 3), 64)))
        wanted = c.resize(c.op("shl", within, c.op("and", offset, 7)), 8)
        c.store(i32(0), seen)
        with c.when(c.icmp("ule", c.op("add", offset, size), limit)):
            with c.count(steps) as step:
                at = c.gep(first, c.resize(step, 64))
                old = c.load("i8", at)
                written = c.resize(c.op("and", old, wanted), 32)
                c.store(c.op("or", c.load("i32", seen), written), seen)
                with c.when(c.icmp("ne", kind, READ)):
                    c.store(c.op("or", old, wanted), at)
            never = c.icmp("eq", c.load("i32", seen), 0)
            with c.when(c.op("and", never, c.icmp("ne", kind, WRITE))):
                what, party = ReportKind.UNINITIALISED, i32(LOCAL_PARTY)
                report_conflict(lib, c, warp, what, site, lane, offset, size, kind, party)
