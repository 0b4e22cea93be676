"""Tensor maps, and copies of boxes of a tensor between global and shared memory (tensormap, cp.async.bulk.tensor).

Sources: PTX ISA 9.7.9.25.5, 9.7.9.27.

A copy is queued like other bulk copies and executes when it is waited for. Elements outside the tensor become zeros in
shared memory, and are not stored in global memory. In shared memory the box is dense, the first dimension innermost, and
its chunks of 16 bytes are swizzled by their address. The part of a tensor that a copy touches must lie within one
allocation.

Not here: the queue (`bulk`), the map's format (`drivers.nv.layouts.tensor_map`). Not supported: im2col, multicast, gather4, fill with NaN,
interleaved layouts and boxes with steps.
"""

# ruff: noqa: E501, PLR0917 - helpers mirror the functions they write, argument for argument

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from drivers.nv.layouts import tensor_map as layout
from drivers.nv.layouts.tensor_map import RANKS
from emulator.ir.addresses import READ, WRITE, search
from emulator.ir.findings import emit_report, i32, i64, report
from emulator.ir.library import helper, iota
from emulator.ir.report import ReportKind
from emulator.ir.state import MAP_ENTRY, THREAD, WARP
from emulator.ir.vector import IrValue
from emulator.nv.ptx.core import Modifiers, PtxTranslator, meaning, operands
from emulator.nv.ptx.memory import address_bits, scope_of, take_space
from emulator.nv.ptx.statements import PtxImm, PtxInstruction
from emulator.sanitizers import sanitize
from emulator.sanitizers.clocks import COPY, LANDED

if TYPE_CHECKING:
    from collections.abc import Iterator

    from drivers.nv.layouts.tensor_map import TensorField
    from emulator.ir.library import Library
    from emulator.ir.vector import CodeBuilder

_PLAIN = {
    "rank": layout.RANK, "elemtype": layout.ELEMENT, "interleave_layout": layout.INTERLEAVE,
    "swizzle_mode": layout.SWIZZLE, "fill_mode": layout.FILL,
}  # fmt: skip
"""Field of tensormap.replace that exists once -> its place in a map."""
_ORDERED = {"box_dim": layout.BOXES, "global_dim": layout.DIMENSIONS, "element_stride": layout.STEPS}
"""Field that each dimension has -> their places in a map."""
_CONSTANT = ("elemtype", "interleave_layout", "swizzle_mode", "fill_mode")
"""Fields whose new value must be a constant."""
_ARCHES = (90, 100, 103, 110, 120, 121)
"""Architectures with tensormap."""
_WORD = 32
ARCH = 90
"""The lowest architecture with tensor maps."""


@dataclass(frozen=True, slots=True)
class TensorMap:
    """The fields of a tensor map, as scalars.

    There are as many dimensions as a map can have; those that a copy does not use have size 1.
    """

    address: IrValue
    """The tensor's device address, i64."""
    element: IrValue
    """The number of the element type, i32."""
    log: IrValue
    """Log2 of the bytes of an element, i64."""
    dimensions: list[IrValue]
    """Elements of the tensor in each dimension, i64."""
    strides: list[IrValue]
    """Bytes from one element to the next in each dimension but the first, i64."""
    boxes: list[IrValue]
    """Elements of a box in each dimension, i32."""
    pattern: IrValue
    """The bits of a shared address that the swizzle changes, i32."""
    bad: IrValue
    """Whether the map is invalid or not supported, or has another rank than the copy, i1."""


def _word(c: CodeBuilder, map_: IrValue, field: TensorField) -> IrValue:
    """Return a field of the map at a host address, i32."""
    raw = c.load("i32", c.gep(map_, field.offset))
    part = c.op("lshr", raw, field.shift) if field.shift else raw
    return part if field.bits == _WORD else c.op("and", part, (1 << field.bits) - 1)


def read_map(c: CodeBuilder, map_: IrValue, rank: IrValue) -> TensorMap:
    """Return the fields of the map at a host address, for a copy with `rank` coordinates (i32)."""
    address = c.load("i64", c.gep(map_, layout.ADDRESS))
    kind, swizzle = _word(c, map_, layout.ELEMENT), _word(c, map_, layout.SWIZZLE)
    sizes = sum((size.bit_length() - 1) << 4 * n for n, size in enumerate(layout.ELEMENT_BYTES))
    log = c.op("and", c.op("lshr", i64(sizes), c.resize(c.op("shl", kind, 2), 64)), 3)
    dimensions, strides, boxes = [], [], []
    bad = c.icmp("uge", kind, len(layout.ELEMENT_BYTES))
    for n in range(layout.RANKS):
        used = c.icmp("ult", i32(n), rank)
        size = c.op("add", c.resize(_word(c, map_, layout.DIMENSIONS[n]), 64), layout.DIMENSIONS[n].bias)
        box = c.op("add", _word(c, map_, layout.BOXES[n]), layout.BOXES[n].bias)
        steps = c.icmp("ne", _word(c, map_, layout.STEPS[n]), 0)
        bad = c.op("or", bad, c.op("and", used, steps))
        dimensions.append(c.select(used, size, i64(1)))
        boxes.append(c.select(used, box, i32(1)))
    for low, high in zip(layout.STRIDES, layout.HIGH_STRIDES, strict=True):
        upper = c.op("shl", c.resize(_word(c, map_, high), 64), 32)
        units = c.op("or", upper, c.resize(_word(c, map_, low), 64))
        strides.append(c.op("mul", units, layout.STRIDE_UNIT))
    for field in (layout.INTERLEAVE, layout.FILL):
        bad = c.op("or", bad, c.icmp("ne", _word(c, map_, field), 0))
    bad = c.op("or", bad, c.icmp("ne", c.op("add", _word(c, map_, layout.RANK), 1), rank))
    row = c.op("shl", c.resize(boxes[0], 64), log)
    for value in (address, row):
        bad = c.op("or", bad, c.icmp("ne", c.op("and", value, layout.STRIDE_UNIT - 1), 0))
    span = c.op("shl", i64(16), c.resize(swizzle, 64))
    wide = c.op("and", c.icmp("ne", swizzle, 0), c.icmp("ugt", row, span))
    pattern = c.op("shl", c.op("sub", c.op("shl", i32(1), swizzle), 1), 4)
    return TensorMap(address, kind, log, dimensions, strides, boxes, pattern, c.op("or", bad, wide))


@meaning("tensormap")
def _tensormap(t: PtxTranslator, i: PtxInstruction, m: Modifiers) -> None:
    if t.arch not in _ARCHES:
        raise t.error("needs sm_90a or a later architecture")
    if m.need("replace", "cp_fenceproxy") == "cp_fenceproxy":
        _published(t, i, m)
        return
    m.need("tile")
    name = m.need(*_PLAIN, *_ORDERED, "global_address", "global_stride")
    given = operands(t, i, 3 if name in _ORDERED or name == "global_stride" else 2)
    space = take_space(t, m, given[0])
    if space not in ("global", "shared", "generic"):
        raise t.error(f"works in global and shared memory, not in .{space}")
    m.need("b1024")
    m.need("b64" if name in ("global_address", "global_stride") else "b32")
    at = t.address(given[0], address_bits(space))
    if name == "global_address":
        t.wf.store(space, t.c.op("add", at, layout.ADDRESS), [t.bits(given[1], 64)], t.site())
        return
    number = given[1]
    if len(given) > 2 and not isinstance(number, PtxImm):
        raise t.error("the number of the dimension must be a constant")
    if name in _CONSTANT and not isinstance(given[1], PtxImm):
        raise t.error("the value must be a constant")
    if name == "global_stride":
        units = t.c.op("lshr", t.bits(given[2], 64), layout.STRIDE_UNIT.bit_length() - 1)
        order = _order(t, number, len(layout.STRIDES))
        _replace(t, space, at, layout.STRIDES[order], t.c.resize(units, 32))
        _replace(t, space, at, layout.HIGH_STRIDES[order], t.c.resize(t.c.op("lshr", units, 32), 32))
        return
    field = _PLAIN[name] if name in _PLAIN else _ORDERED[name][_order(t, number, layout.RANKS)]
    value = t.bits(given[-1], 32)
    _replace(t, space, at, field, t.c.op("sub", value, field.bias) if field.bias else value)


def _order(t: PtxTranslator, number: object, limit: int) -> int:
    """Return the number of a dimension, which is a constant. Raises `PtxError` unless it is below `limit`."""
    assert isinstance(number, PtxImm)
    if not 0 <= number.value < limit:
        raise t.error(f"the number of the dimension is {number.value}; wanted: 0 to {limit - 1}")
    return number.value


def _replace(t: PtxTranslator, space: str, at: IrValue, field: TensorField, value: IrValue) -> None:
    """Replace a field of the map at address `at` of a space, and no other bits of its word."""
    c, site = t.c, t.site()
    where = c.op("add", at, field.offset)
    ones = (1 << field.bits) - 1
    if field.bits < _WORD:
        (old,) = t.wf.load(space, 32, 1, where, site)
        value = c.op("shl", c.op("and", value, ones), field.shift)
        value = c.op("or", c.op("and", old, ~(ones << field.shift)), value)
    t.wf.store(space, where, [value], site)


def _published(t: PtxTranslator, i: PtxInstruction, m: Modifiers) -> None:
    """Translate tensormap.cp_fenceproxy: a warp copies a map from shared to global memory and releases it."""
    for word in ("global", "shared::cta", "tensormap::generic", "release"):
        m.need(word)
    scope = m.need("cta", "cluster", "gpu", "sys")
    m.need("sync")
    m.need("aligned")
    target, source, size = operands(t, i, 3)
    if not isinstance(size, PtxImm) or size.value != layout.BYTES:
        raise t.error(f"the size must be {layout.BYTES}")
    c, site = t.c, t.site()
    narrow, wide = (c.ints(t.v(f"i{bits}"), iota(t.wf.lib.lanes, 4)) for bits in (32, 64))
    words = t.wf.load("shared", 32, 1, c.op("add", t.address(source, 32), narrow), site)
    t.wf.store("global", c.op("add", t.address(target, 64), wide), words, site)
    c.emit("fence seq_cst")
    sanitize.released(t.wf, scope_of(scope))


_CHUNK = 16
"""Bytes that are copied at once, the unit of swizzles."""
_ALIGNMENT = 128
"""Alignment of a box in shared memory."""


@dataclass(frozen=True, slots=True)
class TensorCopyRow:
    """A row of a box: its elements along the first dimension."""

    number: IrValue
    """Counts the rows of the box from 0, i32."""
    address: IrValue
    """Bytes from the start of the tensor to the row, i64; negative if the row begins before it."""
    first: IrValue
    last: IrValue
    """Bytes [first, last) of the row are inside the tensor, i64; they are equal if none are."""


def _clamped(c: CodeBuilder, value: IrValue, limit: IrValue) -> IrValue:
    """Return an i64 brought into [0, limit]."""
    return c.intrinsic("smin", c.intrinsic("smax", value, i64(0)), limit)


def _coordinate(c: CodeBuilder, coordinates: IrValue, n: int) -> IrValue:
    """Return coordinate `n` of those that a pointer points to, as i64."""
    return c.resize(c.load("i32", c.gep(coordinates, 4 * n)), 64, signed=True)


def row_bytes(c: CodeBuilder, map_: TensorMap) -> IrValue:
    """Return the bytes of a row of a box in shared memory, i64."""
    return c.op("shl", c.resize(map_.boxes[0], 64), map_.log)


def _rows(c: CodeBuilder, map_: TensorMap) -> IrValue:
    """Return the number of rows of a box, i32."""
    total = map_.boxes[1]
    for box in map_.boxes[2:]:
        total = c.op("mul", total, box)
    return total


@contextmanager
def each_row(c: CodeBuilder, map_: TensorMap, coordinates: IrValue) -> Iterator[TensorCopyRow]:
    """Emit a loop over the rows of a box; the body of `with` is the loop's body.

    `coordinates` points to `RANKS` coordinates (i32) of the box's first element.
    """
    first = _coordinate(c, coordinates, 0)
    wide = c.resize(map_.boxes[0], 64)
    low = _clamped(c, c.op("sub", i64(0), first), wide)
    high = _clamped(c, c.op("sub", map_.dimensions[0], first), wide)
    start = c.op("shl", first, map_.log)
    with c.count(_rows(c, map_)) as number:
        rest, inside, address = number, IrValue("i1", "true"), start
        for n in range(1, RANKS):
            step = c.resize(c.op("urem", rest, map_.boxes[n]), 64)
            rest = c.op("udiv", rest, map_.boxes[n])
            at = c.op("add", _coordinate(c, coordinates, n), step)
            inside = c.op("and", inside, c.icmp("ult", at, map_.dimensions[n]))
            address = c.op("add", address, c.op("mul", at, map_.strides[n - 1]))
        last = c.select(inside, high, low)
        yield TensorCopyRow(number, address, c.op("shl", low, map_.log), c.op("shl", last, map_.log))


def take_coordinates(lib: Library, c: CodeBuilder, vectors: IrValue, lane: IrValue, target: IrValue) -> None:
    """Copy a lane's coordinates to `target`, where they are as `each_row` takes them.

    `vectors` points to one vector with the coordinates of all lanes for each dimension.
    """
    for n in range(RANKS):
        at = c.op("add", c.op("mul", c.resize(lane, 64), 4), 4 * lib.lanes * n)
        c.store(c.load("i32", c.gep(vectors, at)), c.gep(target, 4 * n))


def report_map(lib: Library, c: CodeBuilder, warp: IrValue, site: IrValue, lane: IrValue) -> None:
    """Emit a report of a tensor map that a copy cannot use."""
    emit_report(lib, c, warp, ReportKind.BAD_TENSOR_MAP, site, lane)


@helper("ptx.tensor.move", "ptr, i32, ptr, ptr, i32, ptr, i1")
def move(
    _lib: Library,
    c: CodeBuilder,
    map_at: IrValue,
    rank: IrValue,
    coordinates: IrValue,
    shared: IrValue,
    offset: IrValue,
    tensor: IrValue,
    stores: IrValue,
) -> None:
    """`ptx.tensor.move(map, rank, coordinates, shared, offset, tensor, stores)`: copy a box.

    `stores` is true if the copy goes to global memory. `shared` is the host address of shared memory, `offset` the place
    of the box in it, and `tensor` the host address of the tensor, outside of which nothing is read or written.
    """
    map_ = read_map(c, map_at, rank)
    size = row_bytes(c, map_)
    with each_row(c, map_, coordinates) as row:
        there = c.gep(tensor, row.address)
        begin = c.op("add", offset, c.op("mul", row.number, c.resize(size, 32)))
        with c.count(c.resize(c.op("lshr", size, 4), 32)) as chunk:
            at = c.op("add", begin, c.op("shl", chunk, 4))
            at = c.op("xor", at, c.op("and", c.op("lshr", at, 3), map_.pattern))
            here, byte = c.gep(shared, c.resize(at, 64)), c.resize(c.op("shl", chunk, 4), 64)
            _move_chunk(c, row, here, there, byte, stores)


def _move_chunk(
    c: CodeBuilder, row: TensorCopyRow, here: IrValue, there: IrValue, byte: IrValue, stores: IrValue
) -> None:
    """Copy 16 bytes at `byte` of a row: at once if all are inside the tensor, else one by one.

    `here` is their host address in shared memory, and `there` that of the row's start in global memory.
    """
    whole = c.op("and", c.icmp("uge", byte, row.first), c.icmp("ule", c.op("add", byte, _CHUNK), row.last))
    to, origin = (c.select(stores, a, b) for a, b in ((c.gep(there, byte), here), (here, c.gep(there, byte))))
    with c.when(whole, likely=True):
        c.store(c.load("<16 x i8>", origin, align=1), to, align=1)
    with c.otherwise(whole):
        with c.otherwise(stores):
            c.store(c.zero("<16 x i8>"), here, align=1)
        with c.count(i64(_CHUNK)) as n:
            at = c.op("add", byte, n)
            with c.when(c.op("and", c.icmp("uge", at, row.first), c.icmp("ult", at, row.last))):
                c.store(c.load("i8", c.gep(origin, n)), c.gep(to, n))


def _scaled(c: CodeBuilder, map_: TensorMap, n: int, index: IrValue) -> IrValue:
    """Return the distance in bytes of elements that are `index` apart in dimension `n`."""
    return c.op("mul", index, map_.strides[n - 1]) if n else c.op("shl", index, map_.log)


@helper("ptx.tensor.place", "ptr, ptr, i32, ptr, i32, i32, i32", result="i64")
def place(
    lib: Library,
    c: CodeBuilder,
    warp: IrValue,
    map_at: IrValue,
    rank: IrValue,
    coordinates: IrValue,
    site: IrValue,
    lane: IrValue,
    access: IrValue,
) -> None:
    """`ptx.tensor.place(warp, map, rank, coordinates, site, lane, access) -> tensor`: the tensor's host address.

    If the map cannot be used, or the box is not within one allocation that allows the access (flags of
    `emulator.ir.addresses`), it reports that and returns 0. For a box entirely outside the tensor it returns 1: the copy
    succeeds without an access.
    """
    map_ = read_map(c, map_at, rank)
    with c.when(map_.bad):
        report_map(lib, c, warp, site, lane)
        c.ret(i64(0))
        c.label(c.fresh("unreachable"))
    low, high, nothing = i64(0), i64(0), IrValue("i1", "false")
    for n in range(RANKS):
        at = _coordinate(c, coordinates, n)
        begin = c.intrinsic("smax", at, i64(0))
        end = c.intrinsic("smin", c.op("add", at, c.resize(map_.boxes[n], 64)), map_.dimensions[n])
        nothing = c.op("or", nothing, c.icmp("sge", begin, end))
        last = end if n == 0 else c.op("sub", end, 1)
        low, high = (c.op("add", total, _scaled(c, map_, n, v)) for total, v in ((low, begin), (high, last)))
    with c.when(nothing):
        c.ret(i64(1))
        c.label(c.fresh("unreachable"))
    thread = WARP.load(c, warp, "thread")
    address, size = c.op("add", map_.address, low), c.op("sub", high, low)
    entry = c.call(search(lib), "ptr", thread, address)
    offset = c.op("sub", address, MAP_ENTRY.load(c, entry, "start"))
    length = MAP_ENTRY.load(c, entry, "size")
    inside = c.op("and", c.icmp("ule", offset, length), c.icmp("ule", size, c.op("sub", length, offset)))
    inside = c.op("and", inside, c.icmp("ne", THREAD.load(c, thread, "map_count"), 0))
    want = c.resize(access, 64)
    allowed = c.icmp("eq", c.op("and", MAP_ENTRY.load(c, entry, "flags"), want), want)
    good = c.op("and", inside, allowed)
    with c.otherwise(good):
        kind = c.select(inside, i32(ReportKind.FORBIDDEN), i32(ReportKind.OUT_OF_BOUNDS))
        c.call(report(lib), "void", warp, kind, site, lane, address, c.resize(size, 32), want)
    c.ret(c.select(good, c.op("add", map_.address, MAP_ENTRY.load(c, entry, "delta")), i64(0)))


@helper("ptx.tensor.bytes", "ptr, i32", result="i32")
def box_bytes(_lib: Library, c: CodeBuilder, map_at: IrValue, rank: IrValue) -> None:
    """`ptx.tensor.bytes(map, rank) -> i32`: the bytes of a box in shared memory."""
    map_ = read_map(c, map_at, rank)
    c.ret(c.op("mul", _rows(c, map_), c.resize(row_bytes(c, map_), 32)))


@helper("ptx.tensor.watch", "ptr, ptr, i32, ptr, mask, i32, i32")
def watch_rows(
    lib: Library,
    c: CodeBuilder,
    warp: IrValue,
    map_at: IrValue,
    rank: IrValue,
    coordinates: IrValue,
    lane: IrValue,
    site: IrValue,
    access: IrValue,
) -> None:
    """`ptx.tensor.watch(warp, map, rank, coordinates, lane, site, access)`: tell the sanitizers of a box's global bytes.

    `lane` is a mask of one lane, and `access` READ, WRITE, COPY or LANDED.
    """
    map_ = read_map(c, map_at, rank)
    with each_row(c, map_, coordinates) as row:
        size = c.resize(c.op("sub", row.last, row.first), 32)
        with c.when(c.icmp("ne", size, 0)):
            at = c.op("add", map_.address, c.op("add", row.address, row.first))
            address = c.splat(at, lib.lanes)
            for wanted in (READ, WRITE, COPY, LANDED):
                with c.when(c.icmp("eq", access, wanted)):
                    sanitize.watch(lib, c, "global", warp, address, lane, site, size, wanted)


def aligned(c: CodeBuilder, offset: IrValue) -> IrValue:
    """Return whether a box may lie at an offset in shared memory."""
    return c.icmp("eq", c.op("and", offset, _ALIGNMENT - 1), 0)
