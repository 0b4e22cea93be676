"""The operations of PTX instructions for the counters, and counters of bulk copies and of wgmma.

A floating-point addition, subtraction or multiplication is one operation, a fused multiply-add two. A packed
instruction has that number for each element. Divisions, roots and transcendental functions are of the class
"special" and have none. A matrix instruction has 2 M N K operations; one warp of a warp group does a quarter.

A bulk copy is one request for each run of consecutive bytes: one request, or one for each row of a box of a
tensor. Only the part of a box inside the tensor is read or written.

For wgmma's operands in shared memory, a block of 8 rows of 16 bytes is one request. It takes one cycle if its
rows lie in different banks, as in every layout whose descriptor fits its tile. Each warp reads its 16 rows of
A. B counts as read once for the four warps of a warp group: otherwise m64n256k16 would take more than the 128
cycles of its published rate.

Not here: the code that counts (`emulator.simt.counting`), the copies (`bulk`, `tensor_copies`), the tiles
(`wgmma_tiles`). Next: `translate`, the user.
"""

# ruff: noqa: PLR0917 - a copy has that many parts

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from emulator.ir.findings import i32
from emulator.ir.state import WARP
from emulator.ir.vector import Spilled
from emulator.nv.ptx import wgmma_tiles as tiles
from emulator.nv.ptx.tensor_copies import each_row, read_map, take_coordinates
from emulator.simt.counting import CountedOperation, shared_counter

if TYPE_CHECKING:
    from collections.abc import Callable

    from emulator.ir.library import Library
    from emulator.ir.vector import CodeBuilder, IrValue
    from emulator.nv.ptx.core import PtxTranslator
    from emulator.nv.ptx.statements import PtxInstruction

SECTOR: Final = 32
"""Bytes of a sector, the unit in which memory is moved (CUDA C++ Best Practices Guide, 10.2.1)."""
_SPECIAL: Final = frozenset({"div", "rcp", "sqrt", "rsqrt", "sin", "cos", "ex2", "lg2", "tanh"})
_ARITHMETIC: Final = {"add": 1, "sub": 1, "mul": 1, "fma": 2, "mad": 2}
_FLOATS: Final = {
    "f16": ("f16", 1), "f16x2": ("f16", 2), "bf16": ("bf16", 1), "bf16x2": ("bf16", 2),
    "f32": ("f32", 1), "f32x2": ("f32", 2), "f64": ("f64", 1),
}  # fmt: skip
"""Type -> the type of its elements, and their number."""
_KINDS: Final = {  # opcode -> class, for instructions whose class does not depend on their type
    "ld": "load", "ldu": "load", "ldmatrix": "load", "st": "store", "stmatrix": "store", "atom": "atomic",
    "red": "atomic", "cp": "copy", "bar": "barrier", "barrier": "barrier", "mbarrier": "barrier",
    "bra": "branch", "brx": "branch", "ret": "branch", "exit": "branch", "trap": "branch", "brkpt": "branch",
    "cvt": "convert", "cvta": "convert", "mov": "move", "movmatrix": "shuffle", "selp": "move",
    "shfl": "shuffle",
    "vote": "shuffle", "match": "shuffle", "redux": "shuffle", "activemask": "shuffle", "elect": "shuffle",
    "prefetch": "load", "prefetchu": "load", "membar": "fence", "fence": "fence",
}  # fmt: skip
_MATRIX_TYPES: Final = frozenset(
    ("f16", "bf16", "tf32", "f32", "f64", "e4m3", "e5m2", "s8", "u8", "s4", "u4", "b1", "s32")
)
_WARPS_OF_GROUP: Final = 4


def operation(instruction: PtxInstruction) -> CountedOperation:
    """Return an instruction's class and operations."""
    opcode, words = instruction.opcode, instruction.modifiers
    if opcode in ("mma", "wgmma", "wmma"):
        return _matrix(opcode, words)
    if opcode in _SPECIAL:
        return CountedOperation(kind="special")
    found = [word for word in words if word in _FLOATS]
    if opcode in _KINDS:
        return CountedOperation(kind=_KINDS[opcode])
    if not found:
        return CountedOperation(kind="integer")
    type_, count = _FLOATS[found[-1]]
    return CountedOperation(kind="float", flops=_ARITHMETIC.get(opcode, 0) * count, type=type_)


def _matrix(opcode: str, words: tuple[str, ...]) -> CountedOperation:
    """Return how a matrix instruction counts: as a product, a load, a store or a barrier."""
    shape = next((found for word in words if (found := re.fullmatch(r"m(\d+)n(\d+)k(\d+)", word))), None)
    if shape is None or (opcode == "wmma" and "mma" not in words):
        kind = {"load": "load", "store": "store"}.get(words[0] if words else "", "barrier")
        return CountedOperation(kind=kind)
    types = [word for word in words if word in _MATRIX_TYPES]
    factor = types[1] if len(types) > 2 else "f16"  # wmma of f16 names only the types of D and C
    total = 2 * int(shape[1]) * int(shape[2]) * int(shape[3])
    return CountedOperation(
        kind="matrix", matrix=total // _WARPS_OF_GROUP if opcode == "wgmma" else total, type=factor
    )


def count_copy(t: PtxTranslator, addresses: IrValue, sizes: IrValue, what: str) -> None:
    """Count linear copies: the lanes' addresses in global memory (i64) and sizes in bytes (i32)."""
    counting, c = t.wf.counting, t.c
    if counting is None:
        return
    places, bytes_ = Spilled(c, addresses), Spilled(c, sizes)
    one = c.const(t.wf.lib.mask, 1)
    with c.each_lane(t.wf.active) as lane:
        size = c.resize(bytes_.get(lane), 64)
        counting.run(what, places.get(lane), size, one)
        counting.copy(one, size)


def count_boxes(
    t: PtxTranslator,
    maps: IrValue,
    coordinates: IrValue,
    rank: IrValue,
    what: str,
    host: Callable[[IrValue, IrValue], IrValue],
) -> None:
    """Count copies of boxes of the lanes' tensor maps, whose device addresses are `maps`.

    `coordinates` points to the vectors of coordinates. `host(address, lane)` returns the host address of a
    map, and null for an address without a map, which it reports.
    """
    counting, c = t.wf.counting, t.c
    if counting is None:
        return
    places, own = Spilled(c, maps), c.slot("[5 x i32]")
    one = c.const(t.wf.lib.mask, 1)
    with c.each_lane(t.wf.active) as lane:
        take_coordinates(t.wf.lib, c, coordinates, lane, own)
        there = host(places.get(lane), lane)
        with c.when(c.icmp("ne", there, c.zero("ptr"))):
            map_ = read_map(c, there, rank)
            with c.otherwise(map_.bad), each_row(c, map_, own) as row:
                size = c.op("sub", row.last, row.first)
                at = c.op("add", map_.address, c.op("add", row.address, row.first))
                counting.run(what, at, size, one)
                counting.copy(one, size)


_WARPS = 3
"""The mask of the bits of a warp's number in its warp group."""


def count_tile(t: PtxTranslator, descriptor: IrValue, *, by_rows: bool, groups: int = 0) -> None:
    """Count the reads of a tile of wgmma: of B, or with `groups` 0 of the rows of A that the warp has.

    `groups` is B's number of groups of 8 columns. `descriptor` is a scalar i64; `by_rows`: the tile is
    MN-major. Does nothing if the kernel is not counted.
    """
    if t.wf.counting is None:
        return
    at = t.wf.counting.record("shared", "load")
    name = _tile(t.wf.lib, by_rows=by_rows, whole=bool(groups))
    t.c.call(name, "void", t.wf.warp, i32(at), descriptor, i32(groups))


def _tile(lib: Library, *, by_rows: bool, whole: bool) -> str:
    """`ptx.wgmma.count...(warp, at, descriptor, groups)`: count the blocks of a tile."""

    def body(c: CodeBuilder, warp: IrValue, at: IrValue, descriptor: IrValue, groups: IrValue) -> None:
        matrix = tiles.decoded(c, descriptor)
        number = c.op("and", WARP.load(c, warp, "index"), _WARPS)
        count, first = groups, i32(0)
        if whole:
            count = c.select(c.icmp("eq", number, 0), groups, i32(0))
        else:
            count, first = i32(2), c.op("shl", number, 1)
        with c.count(c.op("shl", count, 1)) as block:
            group, chunk = c.op("add", first, c.op("lshr", block, 1)), c.op("and", block, 1)
            rows = tiles.addresses(c, tiles.base(c, matrix, group, chunk, by_rows=by_rows), matrix.width)
            offsets = c.shuffle(rows, None, [*range(8), *([0] * (lib.lanes - 8))])
            c.call(shared_counter(lib, tiles.CHUNK), "void", warp, at, offsets, c.const(lib.mask, 0xFF))

    kind = "b" if whole else "a"
    return lib.define(f"ptx.wgmma.count.{kind}{'.rows' * by_rows}", "void", "ptr, i32, i64, i32", body)
