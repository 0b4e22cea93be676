"""Asynchronous copies of 4 to 16 bytes a thread to shared memory (cp.async). Source: PTX ISA 9.7.9.25.

A copy executes when it is waited for, or when 32 newer copies are in flight, not when it is issued. So a kernel without
the wait reads the old contents.

Not here: barriers in memory (`mbarrier`). Next: `bulk`, bulk copies.
"""

# ruff: noqa: E501, PLR0917 - helpers mirror the functions they write, argument for argument

from __future__ import annotations

from typing import TYPE_CHECKING

from emulator.ir.addresses import READ, WRITE, translate
from emulator.ir.findings import i32
from emulator.ir.library import helper
from emulator.ir.vector import IrValue
from emulator.nv.ptx import bulk, bulk_reductions, mbarrier
from emulator.nv.ptx.core import Modifiers, PtxTranslator, meaning, operands
from emulator.nv.ptx.memory import shared_offsets, take_hints, take_space
from emulator.nv.ptx.statements import Not, Operand, PtxImm, PtxInstruction, PtxReg
from emulator.sanitizers import sanitize
from emulator.sanitizers.sanitize import CopyStep

if TYPE_CHECKING:
    from emulator.ir.library import Library
    from emulator.ir.vector import CodeBuilder

_ENTRIES = 32
"""The most copies of a warp in flight."""
_HEAD = 64
_TARGETS, _SOURCES, _TAKEN, _OFFSETS = 64, 64 + 8 * 32, 64 + 16 * 32, 64 + 20 * 32
_ENTRY = _OFFSETS + 4 * 32
"""An entry: lanes, size, group and site of a copy; then, for each lane, target, source, bytes to copy, offset of the target."""
AREA = _HEAD + _ENTRIES * _ENTRY
"""Memory of a warp for copies in flight: oldest, newest and group counters, then a ring of entries."""


def uses(instruction: PtxInstruction) -> bool:
    """Return whether an instruction needs the queue of copies."""
    return instruction.opcode == "cp" and "bulk" not in instruction.modifiers


def _entry(c: CodeBuilder, queue: IrValue, number: IrValue) -> IrValue:
    at = c.op("mul", c.resize(c.op("and", number, _ENTRIES - 1), 64), _ENTRY)
    return c.gep(queue, c.op("add", at, _HEAD))


@helper("ptx.copy.finish", "ptr, ptr, i32, mask")
def _finish(lib: Library, c: CodeBuilder, warp: IrValue, queue: IrValue, number: IrValue, lanes: IrValue) -> None:
    """`ptx.copy.finish(warp, queue, number, lanes)`: execute the copies of an entry for some lanes."""
    entry = _entry(c, queue, number)
    waiting = c.load(lib.mask, entry)
    c.store(c.op("and", waiting, c.not_(lanes)), entry)
    size = c.load("i32", c.gep(entry, 8))
    with c.each_lane(c.op("and", waiting, lanes)) as lane:
        wide = c.op("mul", c.resize(lane, 64), 8)
        target = c.load("i64", c.gep(c.gep(entry, _TARGETS), wide))
        source = c.load("i64", c.gep(c.gep(entry, _SOURCES), wide))
        taken = c.load("i32", c.gep(c.gep(entry, _TAKEN), c.op("mul", c.resize(lane, 64), 4)))
        to = c.let("ptr", f"inttoptr {target} to ptr")
        c.call("llvm.memset.p0.i64", "void", to, IrValue("i8", "0"), c.resize(size, 64), IrValue("i1", "false"))
        origin = c.let("ptr", f"inttoptr {source} to ptr")
        c.call("llvm.memmove.p0.p0.i64", "void", to, origin, c.resize(taken, 64), IrValue("i1", "false"))
    offsets = c.load(lib.v("i32"), c.gep(entry, _OFFSETS), align=4)
    site = c.load("i32", c.gep(entry, 16))
    sanitize.watch_copy(lib, c, warp, offsets, c.op("and", waiting, lanes), site, size, CopyStep.ENDS)


@helper("ptx.copy.push", "ptr, ptr, i64 each, i64 each, i32 each, i32 each, i32, i32, mask")
def _push(
    lib: Library,
    c: CodeBuilder,
    warp: IrValue,
    queue: IrValue,
    targets: IrValue,
    sources: IrValue,
    taken: IrValue,
    offsets: IrValue,
    size: IrValue,
    site: IrValue,
    lanes: IrValue,
) -> None:
    """`ptx.copy.push(warp, queue, targets, sources, taken, offsets, size, site, lanes)`: record a copy.

    If the queue is full, the oldest copy is executed first.
    """
    oldest, newest = c.load("i32", queue), c.load("i32", c.gep(queue, 4))
    with c.when(c.icmp("eq", c.op("sub", newest, oldest), _ENTRIES)):
        c.call(_finish(lib), "void", warp, queue, oldest, c.const(lib.mask, -1))
        c.store(c.op("add", oldest, 1), queue)
    entry = _entry(c, queue, newest)
    c.store(lanes, entry)
    c.store(size, c.gep(entry, 8))
    c.store(c.load("i32", c.gep(queue, 8)), c.gep(entry, 12))
    c.store(site, c.gep(entry, 16))
    fields = ((targets, _TARGETS), (sources, _SOURCES), (taken, _TAKEN), (offsets, _OFFSETS))
    for value, at in fields:
        c.store(value, c.gep(entry, at), align=4)
    c.store(c.op("add", newest, 1), c.gep(queue, 4))


@helper("ptx.copy.wait", "ptr, ptr, i32, mask")
def _wait(lib: Library, c: CodeBuilder, warp: IrValue, queue: IrValue, keep: IrValue, lanes: IrValue) -> None:
    """`ptx.copy.wait(warp, queue, keep, lanes)`: execute the lanes' copies of all closed groups except the newest `keep`.

    With `keep` -1, copies that are in no closed group are executed, too.
    """
    oldest, newest, group = (
        c.load("i32", queue),
        c.load("i32", c.gep(queue, 4)),
        c.load("i32", c.gep(queue, 8)),
    )
    at = c.slot("i32")
    c.store(oldest, at)
    limit = c.op("sub", group, keep)
    c.jump("test")
    c.label("test")
    number = c.load("i32", at)
    c.branch(c.icmp("slt", number, newest), "look", "end")
    c.label("look")
    belongs = c.load("i32", c.gep(_entry(c, queue, number), 12))
    c.branch(c.icmp("slt", belongs, limit), "make", "end")
    c.label("make")
    c.call(_finish(lib), "void", warp, queue, number, lanes)
    left = c.load(lib.mask, _entry(c, queue, number))
    head = c.load("i32", queue)
    with c.when(c.op("and", c.icmp("eq", left, 0), c.icmp("eq", head, number))):
        c.store(c.op("add", number, 1), queue)
    c.store(c.op("add", number, 1), at)
    c.jump("test")
    c.label("end")


@meaning("cp")
def _cp(t: PtxTranslator, i: PtxInstruction, m: Modifiers) -> None:
    if m.flag("reduce"):
        m.need("async")
        m.need("bulk")
        bulk_reductions.reduce(t, i, m)
        return
    m.need("async")
    if m.flag("bulk"):
        bulk.bulk(t, i, m)
        return
    queue = t.area("copies")
    if m.flag("commit_group"):
        at = t.c.gep(queue, 8)
        moves = t.c.resize(t.c.icmp("ne", t.wf.active, 0), 32)
        t.c.store(t.c.op("add", t.c.load("i32", at), moves), at)
    elif m.flag("wait_group"):
        (count,) = operands(t, i, 1)
        if not isinstance(count, PtxImm):
            raise t.error("the number of groups must be a constant")
        t.c.call(_wait(t.wf.lib), "void", t.wf.warp, queue, i32(count.value), t.wf.active)
    elif m.flag("wait_all"):
        t.c.call(_wait(t.wf.lib), "void", t.wf.warp, queue, i32(-1), t.wf.active)
    elif m.flag("mbarrier"):
        _arrive(t, i, m, queue)
    else:
        _copy(t, i, m, queue)


def _arrive(t: PtxTranslator, i: PtxInstruction, m: Modifiers, queue: IrValue) -> None:
    """Translate an arrival at an mbarrier after earlier copies. Without .noinc it adds to the pending count first."""
    m.need("arrive")
    noinc = m.flag("noinc")
    (address,) = operands(t, i, 1)
    offsets = shared_offsets(t, take_space(t, m, address), address)
    m.need("b64")
    t.c.call(_wait(t.wf.lib), "void", t.wf.warp, queue, i32(-1), t.wf.active)
    sanitize.released(t.wf, sanitize.OrderScope.GROUP)
    one = t.c.const(t.v("i64"), 1)
    mbarrier.call(t, "arrive" if noinc else "passing", "shared", offsets, count=one)


def _taken(t: PtxTranslator, more: list[Operand], size: int) -> IrValue:
    """Return the number of bytes to copy: all, those of an operand, or 0 in lanes whose predicate ignores the source."""
    c = t.c
    whole = c.const(t.v("i32"), size)
    if not more:
        return whole
    if isinstance(more[0], Not) or (isinstance(more[0], PtxReg) and more[0].bits == 1):
        return c.select(t.pred(more[0]), c.const(whole.type, 0), whole)
    return c.intrinsic("umin", t.bits(more[0], 32), whole)


def _copy(t: PtxTranslator, i: PtxInstruction, m: Modifiers, queue: IrValue) -> None:
    """Translate cp.async: queue a copy for each active lane."""
    how = m.need("ca", "cg")
    m.need("shared", "shared::cta")
    m.need("global")
    items = list(i.operands)
    if m.flag("L2::cache_hint"):
        t.bits(items.pop(), 64)
    take_hints(m, "L2::64B", "L2::128B", "L2::256B")
    if len(items) not in (3, 4) or not isinstance(items[2], PtxImm):
        raise t.error("takes two addresses, a constant size, and at most one operand for the size of the source")
    size = items[2].value
    if size not in ((16,) if how == "cg" else (4, 8, 16)):
        raise t.error("copies 4, 8 or 16 bytes, .cg 16")
    c, lib, site, warp, lanes = t.c, t.wf.lib, i32(t.site()), t.wf.warp, t.wf.active
    taken = _taken(t, items[3:], size)
    reading = c.op("and", lanes, c.mask_bits(c.icmp("ne", taken, 0)))
    offsets, sources = t.address(items[0], 32), t.address(items[1], 64)
    wide = t.v("i64")
    to = c.call(translate(lib, "shared", size), wide, warp, offsets, lanes, site, i32(WRITE))
    origin = c.call(translate(lib, "global", size), wide, warp, sources, reading, site, i32(READ))
    if t.wf.counting is not None:
        t.wf.counting.access("global", "load", sources, size, reading)
        t.wf.counting.access("shared", "store", offsets, size, lanes)
        t.wf.counting.copy(reading, c.const("i64", size))
    sanitize.watch(lib, c, "global", warp, sources, reading, site, size, READ)
    sanitize.watch_copy(lib, c, warp, offsets, lanes, site, size, CopyStep.STARTS)
    c.call(_push(lib), "void", warp, queue, to, origin, taken, offsets, i32(size), site, lanes)
