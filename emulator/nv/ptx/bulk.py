"""Bulk copies (cp.async.bulk) between global and shared memory.

Source: PTX ISA 9.7.9.25.4.

A copy executes when its mbarrier or its group is waited for, not when it is issued.

Not here: boxes of a tensor (`bulk_tensors`), reductions (`bulk_reductions`), smaller copies (`async_copies`), the mbarrier
(`mbarrier`). Next: `bulk_ring`, the ring of copies.
"""

# ruff: noqa: E501, PLR0917 - helpers mirror the functions they write, argument for argument

from __future__ import annotations

from typing import TYPE_CHECKING

from emulator.ir.addresses import READ, WRITE
from emulator.ir.clusters import absolute
from emulator.ir.findings import i32
from emulator.ir.state import WARP
from emulator.ir.vector import IrValue, Spilled
from emulator.nv.ptx.bulk_places import SPACES, host_of_barrier, placed, watch, wide_address
from emulator.nv.ptx.bulk_ring import NOWHERE, push, ring_of, wait, waited
from emulator.nv.ptx.bulk_tensors import REFUSED, coordinates_of, rank_of, tensor, tile_only
from emulator.nv.ptx.core import Modifiers, PtxTranslator, operands
from emulator.nv.ptx.counted import count_copy
from emulator.nv.ptx.statements import PtxImm, PtxInstruction
from emulator.sanitizers.clocks import COPY

if TYPE_CHECKING:
    from emulator.ir.library import Library
    from emulator.ir.vector import CodeBuilder
    from emulator.nv.ptx.statements import Operand


def uses(instruction: PtxInstruction) -> bool:
    """Return whether an instruction needs the ring of bulk copies."""
    return instruction.opcode == "cp" and "bulk" in instruction.modifiers


def bulk(t: PtxTranslator, i: PtxInstruction, m: Modifiers) -> None:
    """Translate cp.async.bulk with its groups, waits and prefetches; `m` has consumed these three words."""
    groups = t.area("bulk")
    if m.flag("commit_group"):
        operands(t, i, 0)
        counts = t.c.load(t.v("i32"), groups, align=4)
        t.c.store(t.c.op("add", counts, t.c.resize(t.wf.active_lanes, 32)), groups, align=4)
    elif m.flag("wait_group"):
        only_read = m.flag("read")
        (count,) = operands(t, i, 1)
        if not isinstance(count, PtxImm):
            raise t.error("the number of groups must be a constant")
        t.c.call(
            wait(t.wf.lib, only_read=only_read),
            "void",
            t.wf.warp,
            ring_of(t),
            groups,
            i32(count.value),
            t.wf.active,
        )
        waited(t)
    elif m.flag("prefetch"):
        _prefetch(t, i, m)
    elif m.rest[:1] == ["tensor"]:
        tensor(t, i, m, groups)
    else:
        _copy(t, i, m, groups)


def _prefetch(t: PtxTranslator, i: PtxInstruction, m: Modifiers) -> None:
    """Check the form of a prefetch, of bytes or of a box of a tensor; it has no effect."""
    of_tensor = m.flag("tensor")
    rank = rank_of(t, m) if of_tensor else 0
    m.need("L2")
    m.need("global")
    fixed = 1 if of_tensor else 2
    address, *rest = operands(t, i, fixed + 1 if m.flag("L2::cache_hint") else fixed)
    if of_tensor:
        tile_only(t, m)
        coordinates_of(t, address, rank)
    else:
        t.address(address, 64)
    for operand in rest:
        t.bits(operand, 64 if operand is not rest[0] or of_tensor else 32)


def _issue(lib: Library, target: str, source: str) -> str:
    """`ptx.bulk.SOURCE.TARGET(warp, ring, groups, targets, sources, sizes, barriers, lanes, site)`: queue copies.

    Addresses are 64 bits wide in every space. A barrier is the host address of an mbarrier; 0 for a copy of a group.
    """

    def body(
        c: CodeBuilder, warp: IrValue, ring: IrValue, groups: IrValue, targets: IrValue, sources: IrValue, sizes: IrValue, barriers: IrValue,
        lanes: IrValue, site: IrValue,
    ) -> None:  # fmt: skip
        given = [Spilled(c, v) for v in (targets, sources, sizes, barriers)]
        before = c.op("mul", WARP.load(c, warp, "party"), lib.lanes)
        with c.each_lane(lanes) as lane:
            to, origin, size, barrier = (v.get(lane) for v in given)
            there = placed(lib, c, target, warp, to, size, site, lane, WRITE)
            here = placed(lib, c, source, warp, origin, size, site, lane, READ)
            good = c.op(
                "and", c.icmp("ne", there, IrValue("ptr", "null")), c.icmp("ne", here, IrValue("ptr", "null"))
            )
            with c.when(good):
                own = c.op("shl", c.const(lib.mask, 1), c.resize(lane, lib.lanes))
                watch(lib, c, source, warp, origin, own, site, size, READ)
                watch(lib, c, target, warp, to, own, site, size, COPY if target == "global" else WRITE)
                count = c.load("i32", c.gep(groups, c.op("mul", c.resize(lane, 64), 4)))
                fields = {
                    "target": there, "source": here, "barrier": c.let("ptr", f"inttoptr {barrier} to ptr"), "size": size,
                    "thread": c.op("add", before, lane), "group": count, "site": site,
                    "offset": i32(NOWHERE) if target == "global" else absolute(c, WARP.load(c, warp, "group"), c.resize(to, 32)),
                    "waits": i32(1), "rank": i32(0), "to": to,
                }  # fmt: skip
                push(lib, c, warp, ring, fields)

    wide = lib.v("i64")
    return lib.define(
        f"ptx.bulk.{source}.{target}",
        "void",
        f"ptr, ptr, ptr, {wide}, {wide}, i32 each, {wide}, mask, i32",
        body,
    )


def _copy(t: PtxTranslator, i: PtxInstruction, m: Modifiers, groups: IrValue) -> None:
    """Translate cp.async.bulk between global and shared memory: queue a copy for each active lane."""
    for word in REFUSED:
        if word in m.rest:
            raise t.error(f".{word} of bulk copies is not supported")
    spaces = [SPACES[m.need(*SPACES)] for _ in ("target", "source")]
    items = list(i.operands)
    if m.flag("L2::cache_hint"):
        t.bits(items.pop(), 64)
    barrier: Operand | None = None
    if spaces[0] == "global":
        m.need("bulk_group")
    else:
        m.need("mbarrier::complete_tx::bytes")
        barrier = items.pop()
    if spaces[0] == spaces[1] or spaces[1] == "cluster" or len(items) != 3:
        raise t.error("copies between global and shared memory, of an address to an address, and a size")
    c = t.c
    where = [wide_address(t, space, item) for space, item in zip(spaces, items, strict=False)]
    hosts = c.const(t.v("i64"), 0) if barrier is None else host_of_barrier(t, barrier)
    if "global" in spaces:
        stores = spaces[0] == "global"
        count_copy(t, where[0 if stores else 1], t.bits(items[2], 32), "store" if stores else "load")
    arguments = (*where, t.bits(items[2], 32), hosts, t.wf.active, i32(t.site()))
    c.call(_issue(t.wf.lib, *spaces), "void", t.wf.warp, ring_of(t), groups, *arguments)
