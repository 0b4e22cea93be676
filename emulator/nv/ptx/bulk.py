"""Bulk copies (cp.async.bulk, cp.async.bulk.tensor) between global and shared memory.

Source: PTX ISA 9.7.9.25.4, 9.7.9.25.5.

A copy executes when its mbarrier or its group is waited for, not when it is issued.

Not here: the bytes of a box of a tensor (`tensor_copies`), reductions (`bulk_reductions`), smaller copies (`async_copies`), the mbarrier
(`mbarrier`). Next: `bulk_ring`, the ring of copies.
"""

# ruff: noqa: E501, PLR0917 - helpers mirror the functions they write, argument for argument

from __future__ import annotations

from typing import TYPE_CHECKING

from drivers.nv.layouts.tensor_map import BYTES, RANKS
from emulator.ir.addresses import READ, WRITE
from emulator.ir.clusters import OFFSET, absolute
from emulator.ir.findings import emit_report, i32
from emulator.ir.report import ReportKind
from emulator.ir.state import WARP
from emulator.ir.vector import IrValue, Spilled
from emulator.nv.ptx import tensor_copies
from emulator.nv.ptx.bulk_ring import (
    NOWHERE,
    SPACES,
    host_of_barrier,
    placed,
    push,
    ring_of,
    wait,
    waited,
    watch,
    wide_address,
)
from emulator.nv.ptx.core import Modifiers, PtxTranslator, operands
from emulator.nv.ptx.counted import count_boxes, count_copy
from emulator.nv.ptx.statements import Mem, PtxImm, PtxInstruction
from emulator.sanitizers.clocks import COPY

if TYPE_CHECKING:
    from emulator.ir.library import Library
    from emulator.ir.vector import CodeBuilder
    from emulator.nv.ptx.statements import Operand

REFUSED = ("multicast::cluster", "cp_mask", "ignore_oob", "cta_group::1", "cta_group::2")
"""Modifiers of bulk copies that are not supported."""


def issue_box(lib: Library, *, stores: bool) -> str:
    """`ptx.bulk.box.HOW(warp, ring, groups, maps, rank, coordinates, offsets, barriers, lanes, site)`: queue copies of boxes.

    `coordinates` points to vectors over the lanes, one for each of 5 dimensions. `stores`: from shared to global memory.
    """

    def body(
        c: CodeBuilder, warp: IrValue, ring: IrValue, groups: IrValue, maps: IrValue, rank: IrValue, coordinates: IrValue, offsets: IrValue,
        barriers: IrValue, lanes: IrValue, site: IrValue,
    ) -> None:  # fmt: skip
        given = [Spilled(c, v) for v in (maps, offsets, barriers)]
        before = c.op("mul", WARP.load(c, warp, "party"), lib.lanes)
        own_coordinates = c.slot("[5 x i32]")
        with c.each_lane(lanes) as lane:
            map_va, offset, barrier = (v.get(lane) for v in given)
            tensor_copies.take_coordinates(lib, c, coordinates, lane, own_coordinates)
            map_at = placed(lib, c, "global", warp, map_va, i32(BYTES), site, lane, READ)
            with c.when(c.icmp("ne", map_at, IrValue("ptr", "null"))):
                access = i32(WRITE if stores else READ)
                tensor = c.call(
                    tensor_copies.place(lib), "i64", warp, map_at, rank, own_coordinates, site, lane, access
                )
                size = c.call(tensor_copies.box_bytes(lib), "i32", map_at, rank)
                wide, space = c.resize(offset, 64), "shared" if stores else "cluster"
                here = placed(lib, c, space, warp, wide, size, site, lane, READ if stores else WRITE)
                good = c.op("and", c.icmp("ne", tensor, 0), c.icmp("ne", here, IrValue("ptr", "null")))
                straight = tensor_copies.aligned(c, offset)
                with c.when(c.op("and", good, c.not_(straight))):
                    emit_report(lib, c, warp, ReportKind.MISALIGNED, site, lane, address=wide, size=size)
                with c.when(c.op("and", good, straight)):
                    own = c.op("shl", c.const(lib.mask, 1), c.resize(lane, lib.lanes))
                    if lib.checks.any:
                        c.call(
                            tensor_copies.watch_rows(lib),
                            "void",
                            warp,
                            map_at,
                            rank,
                            own_coordinates,
                            own,
                            site,
                            i32(COPY if stores else READ),
                        )
                    watch(lib, c, space, warp, wide, own, site, size, READ if stores else WRITE)
                    count = c.load("i32", c.gep(groups, c.op("mul", c.resize(lane, 64), 4)))
                    base = c.let("ptr", f"inttoptr {tensor} to ptr")
                    fields = {
                        "target": base if stores else here, "source": here if stores else base,
                        "barrier": c.let("ptr", f"inttoptr {barrier} to ptr"), "size": size,
                        "thread": c.op("add", before, lane), "group": count, "site": site,
                        "offset": i32(NOWHERE) if stores else absolute(c, WARP.load(c, warp, "group"), offset),
                        "waits": i32(1), "map": map_at, "rank": rank, "place": c.op("and", offset, OFFSET),
                    } | {f"x{n}": c.load("i32", c.gep(own_coordinates, 4 * n)) for n in range(RANKS)}  # fmt: skip
                    push(lib, c, warp, ring, fields)

    return lib.define(
        f"ptx.bulk.box.{'store' if stores else 'load'}",
        "void",
        "ptr, ptr, ptr, i64 each, i32, ptr, i32 each, i64 each, mask, i32",
        body,
    )


def tensor(t: PtxTranslator, i: PtxInstruction, m: Modifiers, groups: IrValue) -> None:
    """Translate cp.async.bulk.tensor, which copies a box of a tensor to or from shared memory."""
    m.need("tensor")
    rank = rank_of(t, m)
    spaces = [SPACES[m.need(*SPACES)] for _ in ("target", "source")]
    if spaces not in (["global", "shared"], ["shared", "global"], ["cluster", "global"]):
        raise t.error("copies between global and shared memory")
    tile_only(t, m)
    items = list(i.operands)
    if m.flag("L2::cache_hint"):
        t.bits(items.pop(), 64)
    stores = spaces[0] == "global"
    m.need("bulk_group" if stores else "mbarrier::complete_tx::bytes")
    barrier = None if stores else items.pop()
    if len(items) != 2:
        raise t.error("takes an address in shared memory and a tensor map with coordinates")
    tensor, tile = items if stores else items[::-1]
    maps, coordinates = coordinates_of(t, tensor, rank)
    hosts = t.c.const(t.v("i64"), 0) if barrier is None else host_of_barrier(t, barrier)
    site = i32(t.site())
    count_tiles(t, maps, coordinates, i32(rank), "store" if stores else "load", site)
    arguments = (maps, i32(rank), coordinates, t.address(tile, 32), hosts, t.wf.active, site)
    t.c.call(issue_box(t.wf.lib, stores=stores), "void", t.wf.warp, ring_of(t), groups, *arguments)


def rank_of(t: PtxTranslator, m: Modifiers) -> int:
    """Consume and return the number of dimensions, 1 to 5. Raises `PtxError` before sm_90."""
    word = m.need("1d", "2d", "3d", "4d", "5d")
    if t.arch < tensor_copies.ARCH:
        raise t.error(f"needs sm_{tensor_copies.ARCH}")
    return int(word[0])


def tile_only(t: PtxTranslator, m: Modifiers) -> None:
    """Consume the mode of a load or store. Raises `PtxError` for modes other than whole boxes."""
    m.flag("tile")
    for word in m.rest:
        if word.startswith(("im2col", "tile::")) or word in REFUSED:
            raise t.error(f".{word} of copies of tensors is not supported")


def coordinates_of(t: PtxTranslator, address: Operand, rank: int) -> tuple[IrValue, IrValue]:
    """Return the tensor maps' addresses, and the address of the vectors of coordinates."""
    if not isinstance(address, Mem) or len(address.coordinates) != rank:
        raise t.error(f"needs an address with {rank} coordinates")
    found = t.scratch("coordinates", f"[{RANKS} x {t.v('i32')}]")
    for n in range(RANKS):
        value = t.bits(address.coordinates[n], 32) if n < rank else t.c.const(t.v("i32"), 0)
        t.c.store(value, t.c.gep(found, 4 * t.wf.lib.lanes * n))
    return t.address(address, 64), found


def count_tiles(
    t: PtxTranslator, maps: IrValue, coordinates: IrValue, rank: IrValue, what: str, site: IrValue
) -> None:
    """Append code that counts copies of boxes, if the kernel is counted; `what` is load, store or atomic."""

    def host(address: IrValue, lane: IrValue) -> IrValue:
        return placed(t.wf.lib, t.c, "global", t.wf.warp, address, i32(BYTES), site, lane, READ)

    count_boxes(t, maps, coordinates, rank, what, host)


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
