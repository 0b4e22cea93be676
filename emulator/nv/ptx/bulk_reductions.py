"""Reductions of shared memory into global memory (cp.reduce.async.bulk), of bytes and of boxes of a tensor.

Also reductions of shared memory into the shared memory of a workgroup of the cluster. Source: PTX ISA 9.7.9.25.4.2 and
9.7.9.25.5.3. A reduction executes when it is issued, with one atomic operation for each element. So waits for its group have
nothing to do.

Not here: the queue of copies (`bulk_ring`), the rows of a box (`tensor_copies`). Next: `emulator.simt.atomics`, one atomic
operation.
"""

# ruff: noqa: E501, PLR0917 - helpers mirror the functions they write, argument for argument

from __future__ import annotations

from typing import TYPE_CHECKING

from drivers.nv.layouts.tensor_map import BYTES, RANKS
from emulator.ir.addresses import ATOMIC, READ
from emulator.ir.findings import i32
from emulator.ir.library import iota
from emulator.ir.vector import IrValue, Spilled
from emulator.nv.ptx import bulk, bulk_ring, mbarrier, tensor_copies
from emulator.nv.ptx.counted import count_copy
from emulator.nv.ptx.integers import is_signed
from emulator.nv.ptx.statements import TYPES, PtxInstruction
from emulator.nv.ptx.tensor_copies import read_map
from emulator.simt import access, atomics

if TYPE_CHECKING:
    from emulator.ir.library import Library
    from emulator.ir.vector import CodeBuilder
    from emulator.nv.ptx.core import Modifiers, PtxTranslator

_WORDS, _HALVES = ("b32", "b64"), ("f16", "bf16")
_ORDERED = ("u32", "s32", "u64", "s64", *_HALVES)
_TYPES = {  # operation -> its types in global memory
    "and": _WORDS, "or": _WORDS, "xor": _WORDS, "inc": ("u32",), "dec": ("u32",), "min": _ORDERED, "max": _ORDERED,
    "add": ("u32", "s32", "u64", "f32", "f64", *_HALVES),
}  # fmt: skip
_SHARED_TYPES = {  # operation -> its types in shared memory
    "and": ("b32",), "or": ("b32",), "xor": ("b32",), "inc": ("u32",), "dec": ("u32",), "min": ("u32", "s32"),
    "max": ("u32", "s32"), "add": ("u32", "s32", "u64"),
}  # fmt: skip
_OF_TENSORS = {
    "and": {2: "b32", 3: "b32", 4: "b64", 5: "b64"}, "inc": {2: "u32"},
    "min": {2: "u32", 3: "s32", 4: "u64", 5: "s64", 6: "f16", 10: "bf16"},
    "add": {2: "u32", 3: "u32", 4: "u64", 6: "f16", 7: "f32", 8: "f32", 10: "bf16"},
}  # fmt: skip
"""Operation -> number of an element type in a tensor map -> the type of the operation."""
_ALIKE = {"or": "and", "xor": "and", "dec": "inc", "max": "min"}
"""Operation -> the one with the same row in `_OF_TENSORS`."""


def _run(lib: Library, space: str, operation: str, type_: str) -> str:
    """`ptx.bulk.reduce.SPACE.OP.TYPE(warp, target, source, pattern, first, last, site)`: reduce a run of elements.

    Bytes [first, last) from `target` on are changed. The source is swizzled by `pattern` (`tensor_copies`), 0 for none.
    """
    bits = TYPES[type_]
    floating = type_.lstrip("b").startswith("f")
    name = f"f{operation}" if floating else operation
    if operation in ("min", "max") and not floating:
        name = ("s" if is_signed(type_) else "u") + operation

    def body(
        c: CodeBuilder,
        warp: IrValue,
        target: IrValue,
        source: IrValue,
        pattern: IrValue,
        first: IrValue,
        last: IrValue,
        site: IrValue,
    ) -> None:
        per = lib.lanes * bits // 8
        turns = c.op("udiv", c.op("add", c.op("sub", last, first), per - 1), i32(per))
        with c.count(turns) as turn:
            begin = c.op("add", first, c.op("mul", turn, per))
            bytes_ = c.op("add", c.splat(begin, lib.lanes), c.ints(lib.v("i32"), iota(lib.lanes, bits // 8)))
            mask = c.mask_bits(c.icmp("ult", bytes_, c.splat(last, lib.lanes)))
            linear = c.op("add", bytes_, c.splat(source, lib.lanes))
            offsets = c.op("xor", linear, c.op("and", c.op("lshr", linear, 3), c.splat(pattern, lib.lanes)))
            values = c.call(
                access.load(lib, "shared", bits, 1, 0), lib.v(f"i{bits}"), warp, offsets, mask, site
            )
            to = c.op("add", c.resize(bytes_, 64), c.splat(target, lib.lanes))
            if space != "global":
                to = c.resize(to, 32)
            atom = atomics.atomic(lib, space, name, bits, type_ if floating else "")
            c.call(atom, lib.v(f"i{bits}"), warp, to, values, mask, site)

    return lib.define(
        f"ptx.bulk.reduce.{space}.{operation}.{type_}", "void", "ptr, i64, i32, i32, i32, i32, i32", body
    )


def _linear(lib: Library, space: str, operation: str, type_: str) -> str:
    """`ptx.bulk.reduces.SPACE.OP.TYPE(warp, targets, sources, sizes, lanes, site)`: the reductions of some lanes."""

    def body(
        c: CodeBuilder, warp: IrValue, targets: IrValue, sources: IrValue, sizes: IrValue, lanes: IrValue, site: IrValue
    ) -> None:
        given = [Spilled(c, v) for v in (targets, sources, sizes)]
        with c.each_lane(lanes) as lane:
            to, origin, size = (v.get(lane) for v in given)
            there = bulk_ring.placed(
                lib, c, space, warp, to, size, site, lane, ATOMIC if space == "global" else READ
            )
            here = bulk_ring.placed(lib, c, "shared", warp, c.resize(origin, 64), size, site, lane, READ)
            null = IrValue("ptr", "null")
            with c.when(c.op("and", c.icmp("ne", there, null), c.icmp("ne", here, null))):
                run = _run(lib, space, operation, type_)
                c.call(run, "void", warp, to, origin, i32(0), i32(0), size, site)

    return lib.define(
        f"ptx.bulk.reduces.{space}.{operation}.{type_}",
        "void",
        "ptr, i64 each, i32 each, i32 each, mask, i32",
        body,
    )


def _box(lib: Library, operation: str) -> str:
    """`ptx.bulk.reduces.box.OP(warp, maps, rank, coordinates, offsets, lanes, site)`: reduce boxes into tensors."""

    def body(
        c: CodeBuilder,
        warp: IrValue,
        maps: IrValue,
        rank: IrValue,
        coordinates: IrValue,
        offsets: IrValue,
        lanes: IrValue,
        site: IrValue,
    ) -> None:
        all_maps, all_offsets = Spilled(c, maps), Spilled(c, offsets)
        own = c.slot(f"[{RANKS} x i32]")
        with c.each_lane(lanes) as lane:
            tensor_copies.take_coordinates(lib, c, coordinates, lane, own)
            offset = all_offsets.get(lane)
            map_at = bulk_ring.placed(
                lib, c, "global", warp, all_maps.get(lane), i32(BYTES), site, lane, READ
            )
            with c.when(c.icmp("ne", map_at, IrValue("ptr", "null"))):
                host = c.call(
                    tensor_copies.place(lib), "i64", warp, map_at, rank, own, site, lane, i32(ATOMIC)
                )
                size = c.call(tensor_copies.box_bytes(lib), "i32", map_at, rank)
                here = bulk_ring.placed(
                    lib, c, "shared", warp, c.resize(offset, 64), size, site, lane, READ
                )
                with c.when(c.op("and", c.icmp("ne", host, 0), c.icmp("ne", here, IrValue("ptr", "null")))):
                    _rows_of(lib, c, operation, warp, map_at, rank, own, offset, site, lane)

    return lib.define(
        f"ptx.bulk.reduces.box.{operation}", "void", "ptr, i64 each, i32, ptr, i32 each, mask, i32", body
    )


def _rows_of(
    lib: Library,
    c: CodeBuilder,
    operation: str,
    warp: IrValue,
    map_at: IrValue,
    rank: IrValue,
    own: IrValue,
    offset: IrValue,
    site: IrValue,
    lane: IrValue,
) -> None:
    """Emit the reduction of a box, row by row, for each type that its elements may have; report other types."""
    map_ = read_map(c, map_at, rank)
    row_bytes = c.resize(tensor_copies.row_bytes(c, map_), 32)
    known = IrValue("i1", "false")
    for number, type_ in _OF_TENSORS[_ALIKE.get(operation, operation)].items():
        chosen = c.icmp("eq", map_.element, number)
        known = c.op("or", known, chosen)
        with c.when(chosen), tensor_copies.each_row(c, map_, own) as row:
            begin = c.op("add", offset, c.op("mul", row.number, row_bytes))
            to = c.op("add", map_.address, row.address)
            first, last = c.resize(row.first, 32), c.resize(row.last, 32)
            c.call(
                _run(lib, "global", operation, type_),
                "void",
                warp,
                to,
                begin,
                map_.pattern,
                first,
                last,
                site,
            )
    with c.otherwise(known):
        tensor_copies.report_map(lib, c, warp, site, lane)


def reduce(t: PtxTranslator, i: PtxInstruction, m: Modifiers) -> None:
    """Translate cp.reduce.async.bulk; `m` has consumed its words reduce, async and bulk."""
    if m.flag("tensor"):
        _reduce_box(t, i, m)
        return
    spaces = [bulk_ring.SPACES[m.need(*bulk_ring.SPACES)] for _ in ("target", "source")]
    if spaces[1] != "shared":
        raise t.error("reduces from shared memory")
    items = list(i.operands)
    if m.flag("L2::cache_hint"):
        t.bits(items.pop(), 64)
    into_global = spaces[0] == "global"
    m.need("bulk_group" if into_global else "mbarrier::complete_tx::bytes")
    barrier = None if into_global else items.pop()
    operation = m.need(*_TYPES)
    type_ = m.type()
    if type_ not in (_TYPES if into_global else _SHARED_TYPES)[operation]:
        raise t.error(f".{operation} of .{type_} is not defined")
    if m.flag("noftz") != (type_ in _HALVES and operation == "add"):
        raise t.error(".noftz is required for sums of 16-bit floats, and allowed for no other reduction")
    if len(items) != 3:
        raise t.error("takes two addresses and a size")
    to = bulk_ring.wide_address(t, spaces[0], items[0])
    size = t.bits(items[2], 32)
    if into_global:
        count_copy(t, to, size, "atomic")
    arguments = (to, t.address(items[1], 32), size, t.wf.active, i32(t.site()))
    t.c.call(_linear(t.wf.lib, spaces[0], operation, type_), "void", t.wf.warp, *arguments)
    if barrier is not None:
        done = t.c.op("sub", t.c.const(t.v("i64"), 0), t.c.resize(size, 64))
        mbarrier.call(t, "tx", "cluster", t.address(barrier, 32), size=done)


def _reduce_box(t: PtxTranslator, i: PtxInstruction, m: Modifiers) -> None:
    """Translate cp.reduce.async.bulk.tensor; `m` has consumed its words before the rank."""
    rank = bulk.rank_of(t, m)
    m.need("global")
    m.need("shared::cta")
    bulk.tile_only(t, m)
    m.need("bulk_group")
    operation = m.need(*_TYPES)
    items = list(i.operands)
    if m.flag("L2::cache_hint"):
        t.bits(items.pop(), 64)
    if len(items) != 2:
        raise t.error("takes a tensor map with coordinates and an address in shared memory")
    maps, coordinates = bulk.coordinates_of(t, items[0], rank)
    site = i32(t.site())
    bulk.count_tiles(t, maps, coordinates, i32(rank), "atomic", site)
    arguments = (maps, i32(rank), coordinates, t.address(items[1], 32), t.wf.active, site)
    t.c.call(_box(t.wf.lib, operation), "void", t.wf.warp, *arguments)
