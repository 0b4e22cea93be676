"""Counters of bulk copies: the bytes that they move, and the sectors of global memory.

A bulk copy counts as a request for each run of consecutive bytes: one, or one for each row of a box of a
tensor. Of a box only what lies inside the tensor is read or written.

Not here: the copies (`bulk`, `tensor_copies`), the code that counts (`drivers.emu.simt.counting`).
"""

# ruff: noqa: PLR0917 - a copy has that many parts

from __future__ import annotations

from typing import TYPE_CHECKING

from drivers.emu.simt.vector import Spilled
from drivers.nv.emu.ptx.tensor_copies import each_row, take_coordinates
from drivers.nv.emu.ptx.tensor_maps import read_map

if TYPE_CHECKING:
    from collections.abc import Callable

    from drivers.emu.simt.vector import Value
    from drivers.nv.emu.ptx.core import Translator


def count_copy(t: Translator, addresses: Value, sizes: Value, what: str) -> None:
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
    t: Translator,
    maps: Value,
    coordinates: Value,
    rank: Value,
    what: str,
    host: Callable[[Value, Value], Value],
) -> None:
    """Count copies of boxes by the lanes' tensor maps.

    `coordinates` points to the vectors of coordinates. `host` returns the host address of the map at an
    address, for a lane; null if the map is not there, which it reports.
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
