"""The tiles of A and B of a wgmma in shared memory: descriptors, swizzles, and their elements as vectors.

Source: PTX ISA 9.7.15.5 (layouts in shared memory, matrix descriptors); the strides of each layout as CUTLASS states
them (CUT in `docs/sources.md`). A tile consists of blocks of 8 rows of 16 bytes. A row of a *K-major* block holds
consecutive k of one row of A (column of B). A row of an *MN-major* block holds consecutive rows of A (columns of B) at one
k.

Not here: the product (`wgmma`). Next: `wgmma`, the user.
"""

# ruff: noqa: E501, PLR0917 - helpers mirror the functions they write, argument for argument

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from emulator.ir.findings import i32
from emulator.ir.ir_text import lanes_of
from emulator.ir.library import helper
from emulator.ir.state import THREAD, WARP
from emulator.nv.ptx.mma import element
from emulator.sanitizers import sanitize
from emulator.sanitizers.sanitize import CopyStep

if TYPE_CHECKING:
    from emulator.ir.library import Library
    from emulator.ir.vector import CodeBuilder, IrValue

ROW_BYTES = 32
"""Bytes of a row of A (a column of B) in one product: all its k. They are the same for every type."""
CHUNK = 16
"""Bytes of a row of a block."""
_PLACES = [2 * (at % 4) + at // 4 for at in range(8)]
"""The columns of a group of 8 in the order in which they are stored: even ones first, as the registers of D need them."""


@dataclass(frozen=True, slots=True)
class WgmmaTile:
    """What the code for loading a tile depends on."""

    type: str
    """The type of an element."""
    bits: int
    """Its width."""
    by_rows: bool
    """Whether blocks are MN-major."""
    negated: bool
    """Whether elements are negated as they are loaded."""

    @property
    def per_chunk(self) -> int:
        """The number of elements in `CHUNK` bytes."""
        return 8 * CHUNK // self.bits


@dataclass(frozen=True, slots=True)
class _Matrix:
    """A decoded matrix descriptor: scalars, i32."""

    start: IrValue
    """Offset of the tile in shared memory."""
    leading: IrValue
    """The leading-dimension byte offset."""
    stride: IrValue
    """The stride-dimension byte offset."""
    width: IrValue
    """Chunks of 16 bytes in a swizzled row; 1 if it is not swizzled."""
    width_log: IrValue
    """Log2 of that."""
    plain: IrValue
    """Whether it is not swizzled, i1."""


def decoded(c: CodeBuilder, descriptor: IrValue, bad: IrValue | None = None) -> _Matrix:
    """Return the fields of a matrix descriptor (i64).

    `bad` points to an i8, which becomes nonzero if the descriptor has a base offset: that is not supported.
    """

    def field(at: int) -> IrValue:
        return c.op("shl", c.resize(c.op("and", c.op("lshr", descriptor, at), 0x3FFF), 32), 4)

    mode = c.resize(c.op("lshr", descriptor, 62), 32)
    plain = c.icmp("eq", mode, 0)
    log = c.select(plain, i32(0), c.op("sub", i32(4), mode))
    if bad is not None:
        shifted = c.icmp("ne", c.op("and", c.op("lshr", descriptor, 49), 7), 0)
        c.store(c.op("or", c.load("i8", bad), c.resize(shifted, 8)), bad)
    return _Matrix(field(0), field(16), field(32), c.op("shl", i32(1), log), log, plain)


def addresses(c: CodeBuilder, start: IrValue, width: IrValue) -> IrValue:
    """Return the offsets in shared memory of the 8 rows of a block, <8 x i32>.

    `start` is that of the first row before swizzling, and `width` that of `_Matrix`.
    """
    row = c.op("mul", c.ints("<8 x i32>", range(8)), c.splat(c.op("shl", width, 4), 8))
    linear = c.op("add", row, c.splat(start, 8))
    pattern = c.splat(c.op("shl", c.op("sub", width, 1), 4), 8)
    return c.op("xor", linear, c.op("and", c.op("lshr", linear, 3), pattern))


@helper("ptx.wgmma.rows", "ptr, i32, i32, ptr, i32", result="<16 x i64>")
def _rows(lib: Library, c: CodeBuilder, warp: IrValue, start: IrValue, width: IrValue, bad: IrValue, site: IrValue) -> None:
    """`ptx.wgmma.rows(warp, start, width, bad, site) -> <16 x i64>`: the 8 rows at `addresses(start, width)`.

    If a row is outside shared memory, the i8 at `bad` becomes nonzero. The sanitizers see the reads.
    """
    address = addresses(c, start, width)
    limit = THREAD.load(c, WARP.load(c, warp, "thread"), "shared_bytes")
    outside = c.icmp("ugt", c.op("add", address, CHUNK), c.splat(limit, 8))
    c.store(c.op("or", c.load("i8", bad), c.mask_bits(outside)), bad)
    address = c.select(outside, c.zero(address.type), address)
    offsets = c.shuffle(address, None, [*range(8), *([0] * (lib.lanes - 8))])
    first = c.const(lib.mask, 0xFF)
    sanitize.watch_copy(lib, c, warp, offsets, first, site, CHUNK, CopyStep.PROXY_READS)
    shared = WARP.load(c, warp, "shared")
    parts = []
    for n in range(8):
        at = c.gep(shared, c.resize(c.extract(address, n), 64))
        parts.append(c.load("<2 x i64>", at, align=CHUNK))
    while len(parts) > 1:
        count = 2 * lanes_of(parts[0].type)
        parts = [c.shuffle(parts[n], parts[n + 1], range(count)) for n in range(0, len(parts), 2)]
    c.ret(parts[0])


def _block(
    lib: Library, c: CodeBuilder, tile: WgmmaTile, matrix: _Matrix, warp: IrValue, start: IrValue, bad: IrValue, site: IrValue
) -> IrValue:
    """Load the block at `start`; return its elements, row by row, as integers."""
    raw = c.call(_rows(lib), "<16 x i64>", warp, start, matrix.width, bad, site)
    return c.bitcast(raw, f"<{8 * tile.per_chunk} x i{tile.bits}>")


def base(c: CodeBuilder, matrix: _Matrix, group: IrValue, chunk: IrValue, *, by_rows: bool) -> IrValue:
    """Return the offset of a block in shared memory, before swizzling.

    `group` is its number along the rows of A (columns of B), and `chunk` along k. K-major blocks have 8 rows and 16 bytes
    of k; MN-major blocks (`by_rows`) have 16 bytes of rows and 8 k.
    """
    if by_rows:
        inner = c.op("shl", c.op("and", group, c.op("sub", matrix.width, 1)), 4)
        outer = c.select(matrix.plain, matrix.stride, matrix.leading)
        far = c.op("mul", c.op("lshr", group, matrix.width_log), outer)
        step = c.select(matrix.plain, matrix.leading, matrix.stride)
        start = c.op("add", c.op("add", matrix.start, inner), far)
    else:
        step = c.select(matrix.plain, matrix.leading, i32(CHUNK))
        start = c.op("add", matrix.start, c.op("mul", group, matrix.stride))
    return c.op("add", start, c.op("mul", step, chunk))


def _values(c: CodeBuilder, tile: WgmmaTile, raw: IrValue) -> IrValue:
    """Return elements as `mma.element` converts them, negated if the tile is."""
    value = element(c, raw, tile.type)
    return c.let(value.type, f"fneg {value}") if tile.negated else value


def load_a(
    lib: Library, c: CodeBuilder, tile: WgmmaTile, warp: IrValue, descriptor: IrValue, target: IrValue, bad: IrValue, site: IrValue
) -> None:
    """Write the 16 rows of A that the warp multiplies to `target`: for each k, two vectors of rows 0 to 7 and 8 to 15.

    In a vector, lanes 4 n to 4 n + 3 hold row n. `bad` is that of `decoded` and `_rows`.
    """
    matrix, per = decoded(c, descriptor, bad), tile.per_chunk
    first = c.op("shl", c.op("and", WARP.load(c, warp, "index"), 3), 1)
    with c.count(i32(4)) as number:
        half, chunk = c.op("and", number, 1), c.op("lshr", number, 1)
        group = c.op("add", first, half)
        raw = _block(
            lib, c, tile, matrix, warp, base(c, matrix, group, chunk, by_rows=tile.by_rows), bad, site
        )
        if not tile.by_rows:
            raw = c.shuffle(raw, None, [row * per + k for k in range(per) for row in range(8)])
        value = _values(c, tile, raw)
        at = c.op("add", c.op("mul", chunk, 256 * per), c.op("mul", half, 128))
        place = c.gep(target, c.resize(at, 64))
        for k in range(per):
            one = c.shuffle(value, None, [8 * k + lane // 4 for lane in range(lib.lanes)])
            c.store(one, c.gep(place, 256 * k), align=64)


def load_b(
    lib: Library,
    c: CodeBuilder,
    tile: WgmmaTile,
    warp: IrValue,
    descriptor: IrValue,
    groups: IrValue,
    target: IrValue,
    bad: IrValue,
    site: IrValue,
) -> None:
    """Write all columns of B to `target`: for each group of 8 columns and each k, 8 elements in the order of `_PLACES`.

    `groups` is the number of groups, i32. `bad` is that of `decoded` and `_rows`.
    """
    matrix, per = decoded(c, descriptor, bad), tile.per_chunk
    across, along = (8, 1) if tile.by_rows else (1, per)
    with c.count(c.op("shl", groups, 1)) as number:
        group, chunk = c.op("lshr", number, 1), c.op("and", number, 1)
        raw = _block(
            lib, c, tile, matrix, warp, base(c, matrix, group, chunk, by_rows=tile.by_rows), bad, site
        )
        raw = c.shuffle(raw, None, [k * across + n * along for k in range(per) for n in _PLACES])
        at = c.op("mul", c.resize(number, 64), per * 32)
        c.store(_values(c, tile, raw), c.gep(target, at), align=32)
