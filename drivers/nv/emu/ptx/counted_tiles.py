"""Counters of what wgmma reads from shared memory through descriptors.

A block of 8 rows of 16 bytes is one request; it takes a cycle if its rows lie in different banks, as in every
layout whose descriptor fits its tile. Each warp reads its 16 rows of A. B is read once for the four warps of
a warp group: read by each, m64n256k16 would take more than the 128 cycles of its published rate.

Not here: the tiles (`wgmma_tiles`), the code that counts (`drivers.emu.simt.counting`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from drivers.emu.simt.counting import shared_counter
from drivers.emu.simt.findings import i32
from drivers.emu.simt.state import WARP
from drivers.nv.emu.ptx import wgmma_tiles as tiles

if TYPE_CHECKING:
    from drivers.emu.simt.library import Library
    from drivers.emu.simt.vector import Code, Value
    from drivers.nv.emu.ptx.core import Translator

_WARPS = 3
"""Mask of a warp's number in its warp group."""


def count_tile(t: Translator, descriptor: Value, *, by_rows: bool, groups: int = 0) -> None:
    """Count the reads of a tile: of B, with its groups of 8 columns, else of the rows of A that the warp has.

    `descriptor` is a scalar i64; `by_rows`: the tile is MN-major. Does nothing where nothing is counted.
    """
    if t.wf.counting is None:
        return
    at = t.wf.counting.record("shared", "load")
    name = _tile(t.wf.lib, by_rows=by_rows, whole=bool(groups))
    t.c.call(name, "void", t.wf.warp, i32(at), descriptor, i32(groups))


def _tile(lib: Library, *, by_rows: bool, whole: bool) -> str:
    """`ptx.wgmma.count...(warp, at, descriptor, groups)`: count the blocks of a tile."""

    def body(c: Code, warp: Value, at: Value, descriptor: Value, groups: Value) -> None:
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

    parameters = {"warp": "ptr", "at": "i32", "descriptor": "i64", "groups": "i32"}
    kind = "b" if whole else "a"
    return lib.define(f"ptx.wgmma.count.{kind}{'.rows' * by_rows}", "void", parameters, body)
