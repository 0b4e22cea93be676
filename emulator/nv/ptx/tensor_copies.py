"""Copies of boxes of a tensor between global and shared memory (cp.async.bulk.tensor). Source: PTX ISA 9.7.9.25.5.

A copy is queued like other bulk copies and executes when it is waited for. Elements outside the tensor become zeros in
shared memory, and are not stored in global memory. In shared memory the box is dense, the first dimension innermost, and
its chunks of 16 bytes are swizzled by their address. The part of a tensor that a copy touches must lie within one
allocation.

Not here: the queue (`bulk`), the map (`tensor_maps`). Not supported: im2col, multicast, gather4, fill with NaN,
interleaved layouts and boxes with steps. Next: `tensor_maps`.
"""

# ruff: noqa: E501, PLR0917 - helpers mirror the functions they write, argument for argument

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from drivers.nv.layouts.tensor_map import RANKS
from emulator.ir.addresses import READ, WRITE, search
from emulator.ir.findings import emit_report, i32, i64, report
from emulator.ir.library import helper
from emulator.ir.report import ReportKind
from emulator.ir.state import MAP_ENTRY, THREAD, WARP
from emulator.ir.vector import IrValue
from emulator.nv.ptx.tensor_maps import TensorMap, read_map
from emulator.sanitizers import sanitize
from emulator.sanitizers.clocks import COPY, LANDED

if TYPE_CHECKING:
    from collections.abc import Iterator

    from emulator.ir.library import Library
    from emulator.ir.vector import CodeBuilder

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


def _move_chunk(c: CodeBuilder, row: TensorCopyRow, here: IrValue, there: IrValue, byte: IrValue, stores: IrValue) -> None:
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
