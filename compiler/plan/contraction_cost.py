"""The estimated cycles of a contraction: register tiles, results, loads in place, panels and windows.

Beside a sum over packed bytes there may be the sum of one operand, which the compiler adds. It depends on the
rows alone or on the columns alone. A sum for rows is computed once for each block of rows, outside the loop
over columns; a sum for columns again for each block of rows.

Not here: which operands are copied (`contraction`, the caller), the cycles of the tile itself
(`nest.register_tile`), other kernels (`cost`), the rewrite that adds a sum (`rewrite.packed_dot`).
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

from compiler.ir import index as symbolic
from compiler.nest import windows
from compiler.nest.loop_nest import Reduction
from compiler.nest.operand_roles import loads_of
from compiler.nest.register_tile import APART, COPY_CYCLES, FEWEST, tile_cycles
from compiler.plan.contraction_tile import ACROSS, run
from compiler.plan.in_place_reads import LINE

if TYPE_CHECKING:
    from collections.abc import Mapping

    from compiler.ir.uop import UOp
    from compiler.nest.kernel_shape import Family, KernelAccess
    from compiler.nest.loop_nest import Side, Stage
    from compiler.plan.contraction_tile import RegisterTile


LEAST_RUN = 32
"""Adjacent elements from which on an operand is read in place."""
_APART_CYCLES = 2.0
"""Cycles of one value that is read in place, apart from the one before."""
_WINDOW_CYCLES = 3.0
"""Cycles of one vector of a window: a masked load, a store."""
_LINE_CYCLES = 2.0
"""Cycles of one line of an operand that is read in place, from the second-level cache."""
_LOAD_CYCLES = {"row": 1.5, "same": 1.0, "strided": 5.0, "scattered": 20.0}
"""Cycles of one vector of a panel's copy, by the kind of its load along the columns."""
_TURN_CYCLES = 4.0
"""Cycles of one vector of a panel that is transposed in registers."""
_STORE_CYCLES = {"row": 1.0, "same": 1.0, "strided": 40.0, "scattered": 40.0}
"""Cycles to store one vector of results."""
_ROW_CYCLES = 2.0
"""Cycles to store one row of a square that was transposed in registers."""
_VECTOR_CYCLES, _VALUE_CYCLES = 1.5, 1.0
"""Cycles to load, extend and add a vector of values, and one value, in the sum of an operand."""
_SUM_CYCLES = 8.0
"""Cycles to add up the lanes of one such sum."""


class Copies(NamedTuple):
    """The copies of the operands of a contraction: each a list of none or one."""

    columns: list[Stage]
    """Of the streamed operand."""
    outer: list[Stage]
    """Of the broadcast operand, outside the last loop over rows."""
    inner: list[Stage]
    """Of the broadcast operand, a block of rows each."""


def cycles(tile: RegisterTile, copies: Copies, order: tuple[UOp, ...], piece: int, held: int) -> float:
    """Return the estimated cycles of the kernel on one core: register tiles, results, loads or panels.

    `order` is that of the summed ranges, `piece` the products that are summed before they join the totals,
    `held` the panels of columns that are filled at once.
    """
    c, axes, k = tile.c, tile.axes, tile.c.size[2]
    columns, outer, inner = copies
    blocks = math.prod([axis.count for axis in axes.values()])
    vectors = tile.rows * tile.vectors
    stored = sum([_result_cycles(tile, a, gaps=True) for a in tile.kernel.stores])
    stored += sum([_result_cycles(tile, a, gaps=False) for a in tile.kernel.loads])
    rounds = k * tile_cycles(tile.rows, tile.vectors, tile.target, first=tile.first)
    if tile.border is not None:
        rounds = tile.border.cycles
    totals = 1.0 * vectors * (k / piece) if piece < k else 0.0
    total = blocks * (rounds + totals + (3.0 + stored) * vectors)
    total += _operand_sum_cycles(tile)
    _, streamed, broadcast = tile.others()
    if columns:
        total += _column_cycles(tile, columns[0])
    else:
        total += max(0.0, _load_cycles(tile) - 1.5) * k * tile.vectors * blocks / tile.target.loads_per_cycle
    least = min(k, LEAST_RUN)
    windowed = tile.window if outer and outer[0].window else None
    lines = tile.lines if windowed is None else windowed.lines
    if lines is not None and not inner and (windowed is not None or not outer):
        far = lines * piece / k * LINE > tile.target.l1_bytes
        total += far * _LINE_CYCLES * lines * blocks
    elif tile.border is not None or outer or inner:
        pass
    elif any(run(n, order) < least for n in loads_of(c.broadcast)):
        total += _APART_CYCLES * tile.rows * k * blocks
    for stage in (*outer, *inner) if windowed is None else ():
        count = 1
        if inner or broadcast:
            count *= -(-axes[c.columns].count // held)
            count *= math.prod([axes[r].count for r in streamed])
        total += _row_cycles(tile, stage) * count
    return total


def copy_cycles(tile: RegisterTile, copies: Copies) -> tuple[float, float]:
    """Return the cycles to copy each operand once: the streamed one, and the broadcast one; 0 without copies.

    A window counts as 0. With a copy of rows belong their sums.
    """
    columns = sum([_column_cycles(tile, stage) for stage in copies.columns])
    rows = sum([_row_cycles(tile, stage) for stage in (*copies.outer, *copies.inner) if not stage.window])
    if rows and not any(tile.c.columns in family.free for family in _beside(tile)):
        rows += _operand_sum_cycles(tile)
    return columns, rows


def _load_cycles(tile: RegisterTile) -> float:
    """Return the cycles of one vector of the streamed operand."""
    kinds = [(tile.kind(n, tile.c.columns, tile.lanes), len(n.src) > 2) for n in loads_of(tile.c.streamed)]
    return sum([_LOAD_CYCLES[kind] + 2.0 * masked for kind, masked in kinds])


def _column_cycles(tile: RegisterTile, stage: Stage) -> float:
    """Return the cycles to copy the streamed operand once."""
    c, axes = tile.c, tile.axes
    each = _TURN_CYCLES if stage.turn > 1 else _load_cycles(tile)
    shared, streamed, _ = tile.others()
    blocks = math.prod([axes[r].count for r in (*shared, *streamed, c.columns)])
    return each * blocks * c.size[2] * tile.vectors


def _row_cycles(tile: RegisterTile, stage: Stage) -> float:
    """Return the cycles to copy the broadcast operand once."""
    c, axes = tile.c, tile.axes
    each = -(-tile.rows // tile.lanes) * 2.0 if stage.wide else COPY_CYCLES * tile.rows
    each += 2.0 * tile.rows * any(len(n.src) > 2 for n in loads_of(c.broadcast))
    shared, _, broadcast = tile.others()
    return each * math.prod([axes[r].count for r in (*shared, *broadcast, c.rows)]) * c.size[2]


def _result_cycles(tile: RegisterTile, access: KernelAccess, *, gaps: bool) -> float:
    """Return the cycles to store a vector of results, or to load what is added to it.

    A square of vectors is transposed in registers if its rows are adjacent in memory; with `gaps`, for
    stores, also if there is one element between them.
    """
    c, lanes = tile.c, tile.lanes
    kind = tile.along(access.index, c.columns, lanes)
    if kind not in ACROSS or access.masked or lanes > FEWEST * tile.rows or (tile.rows > lanes and not gaps):
        return _STORE_CYCLES[kind]
    exact = "masked" not in (tile.axes[c.rows].edge, tile.axes[c.columns].edge)
    apart = symbolic.terms_of(access.index)[0].get(c.rows, 0) if gaps else 0
    adjacent = tile.along(access.index, c.rows, tile.rows) == "row"
    if not exact or not (adjacent or apart == APART):
        return _STORE_CYCLES[kind]
    each = lanes * (math.log2(lanes) + _ROW_CYCLES * (1 if adjacent else APART))
    return -(-tile.rows // lanes) * each / tile.rows


def window_cycles(
    tile: RegisterTile, sides: tuple[Side, ...], columns: list[Stage], parts: Mapping[UOp, int]
) -> float:
    """Return the cycles in which all workgroups fill windows, and those but one the same panels.

    `parts` are the blocks of ranges of a workgroup.
    """
    c, axes = tile.c, tile.axes
    _, streamed, broadcast = tile.others()
    covered = frozenset([r for side in sides for r in windows.ranges_of(side)])
    vectors = windows.strides_of(sides, tile.lanes)[0] / tile.lanes
    if tile.taps is not None:
        vectors *= math.prod([-(-r.arg[1] // size) for r, size in tile.taps.pieces.items()])
    times = math.prod([axes[r].count for r in broadcast if r not in covered])
    for r in (*streamed, c.columns):
        times *= -(-axes[r].count // parts.get(r, axes[r].count))
    return _WINDOW_CYCLES * vectors * times + panel_cycles(tile, columns, parts)


def panel_cycles(tile: RegisterTile, columns: list[Stage], parts: Mapping[UOp, int]) -> float:
    """Return the cycles in which all workgroups but one fill the same panels of columns.

    `parts` are the blocks of ranges of a workgroup.
    """
    c, axes = tile.c, tile.axes
    divided = [*tile.others()[2], c.rows]
    again = -1.0 + math.prod([-(-axes[r].count // parts.get(r, axes[r].count)) for r in divided])
    panels = (_TURN_CYCLES if columns[0].turn > 1 else _LOAD_CYCLES["scattered"]) * tile.vectors
    return again * panels * c.size[2] * axes[c.columns].count


def _beside(tile: RegisterTile) -> list[Family]:
    """Return the sums of a kernel beside that of the products: none or one."""
    return [family for family in tile.kernel.families if family is not tile.c.family]


def operand_sums(tile: RegisterTile) -> dict[frozenset[UOp], Reduction]:
    """Return the loops of these sums: with vectors along them where the operand lies in rows."""
    out: dict[frozenset[UOp], Reduction] = {}
    for family in _beside(tile):
        last = _along(tile, family)
        order = sorted(family.ranges, key=lambda r: (r is last, r.arg[1], r.arg[0]))
        wide = 1 if last is None else tile.lanes
        out[family.ranges] = Reduction(tuple(order), wide, 2 if order[-1].arg[1] >= 2 * wide else 1)
    return out


def _operand_sum_cycles(tile: RegisterTile) -> float:
    """Return the estimated cycles of these sums in the whole kernel."""
    c, total = tile.c, 0.0
    for family in _beside(tile):
        sums = math.prod([tile.axes[r].size for r in family.free])
        if c.columns in family.free:
            total += _VALUE_CYCLES * sums * family.trips * tile.axes[c.rows].count
        elif _along(tile, family) is None:
            total += _VALUE_CYCLES * sums * family.trips
        else:
            total += sums * (_VECTOR_CYCLES * family.trips / tile.lanes + _SUM_CYCLES)
    return total


def _along(tile: RegisterTile, family: Family) -> UOp | None:
    """Return the range along which vectors of a sum run; None without, and where they run along columns."""
    if tile.c.columns in family.free:
        return None
    for r in sorted(family.ranges, key=lambda r: -int(r.arg[1])):
        if r.arg[1] >= tile.lanes and all(tile.along(a.index, r, tile.lanes) == "row" for a in family.loads):
            return r
    return None
