"""Bulk copies of boxes of a tensor (cp.async.bulk.tensor): their operands, and their entries in the ring.

Source: PTX ISA 9.7.9.25.5.

Not here: reductions (`bulk_reductions`), the ring (`bulk_ring`). Next: `tensor_copies`, the bytes of a box.
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
from emulator.nv.ptx import tensor_copies, tensor_maps
from emulator.nv.ptx.bulk_places import SPACES, host_of_barrier, placed, watch
from emulator.nv.ptx.bulk_ring import NOWHERE, push, ring_of
from emulator.nv.ptx.counted import count_boxes
from emulator.nv.ptx.statements import Mem, PtxInstruction
from emulator.sanitizers.clocks import COPY

if TYPE_CHECKING:
    from emulator.ir.library import Library
    from emulator.ir.vector import CodeBuilder
    from emulator.nv.ptx.core import Modifiers, PtxTranslator
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
    if t.arch < tensor_maps.ARCH:
        raise t.error(f"needs sm_{tensor_maps.ARCH}")
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


def count_tiles(t: PtxTranslator, maps: IrValue, coordinates: IrValue, rank: IrValue, what: str, site: IrValue) -> None:
    """Append code that counts copies of boxes, if the kernel is counted; `what` is load, store or atomic."""

    def host(address: IrValue, lane: IrValue) -> IrValue:
        return placed(t.wf.lib, t.c, "global", t.wf.warp, address, i32(BYTES), site, lane, READ)

    count_boxes(t, maps, coordinates, rank, what, host)
