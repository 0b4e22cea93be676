"""Plan the sum of one operand that the compiler adds to a sum over packed bytes, and estimate its cost.

The sum depends on the rows alone or on the columns alone. A sum for rows is computed once for each block of
rows, outside the loop over columns. A sum for columns is computed again for each block of rows.

Not here: the rewrite that adds this sum (`rewrite.packed_dot`), the plan of the products (`contraction`, the
caller).
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from compiler.nest.kernel_shape import kind_along
from compiler.nest.loop_nest import Reduction

if TYPE_CHECKING:
    from collections.abc import Mapping

    from compiler.ir.uop import UOp
    from compiler.nest.kernel_shape import Family, KernelShape
    from compiler.nest.loop_nest import Axis
    from compiler.nest.operand_roles import Contraction

_VECTOR_CYCLES = 1.5
"""Cycles to load, extend and add a vector of values."""
_VALUE_CYCLES = 1.0
"""Cycles to load, extend and add one value."""
_ACROSS_CYCLES = 8.0
"""Cycles to add up the lanes of one sum."""


def families(kernel: KernelShape, c: Contraction) -> list[Family]:
    """Return the sums of a kernel beside that of the products: none or one."""
    return [family for family in kernel.families if family is not c.family]


def reductions(kernel: KernelShape, c: Contraction, lanes: int) -> dict[frozenset[UOp], Reduction]:
    """Return the loops of these sums: with vectors along them where the operand lies in rows."""
    out: dict[frozenset[UOp], Reduction] = {}
    for family in families(kernel, c):
        last = _along(kernel, family, c, lanes)
        order = sorted(family.ranges, key=lambda r: (r is last, r.arg[1], r.arg[0]))
        wide = 1 if last is None else lanes
        out[family.ranges] = Reduction(tuple(order), wide, 2 if order[-1].arg[1] >= 2 * wide else 1)
    return out


def cycles(kernel: KernelShape, c: Contraction, lanes: int, axes: Mapping[UOp, Axis]) -> float:
    """Return the estimated cycles of these sums in the whole kernel."""
    total = 0.0
    for family in families(kernel, c):
        sums = math.prod([axes[r].size for r in family.free])
        if c.columns in family.free:
            total += _VALUE_CYCLES * sums * family.trips * axes[c.rows].count
        elif _along(kernel, family, c, lanes) is None:
            total += _VALUE_CYCLES * sums * family.trips
        else:
            total += sums * (_VECTOR_CYCLES * family.trips / lanes + _ACROSS_CYCLES)
    return total


def _along(kernel: KernelShape, family: Family, c: Contraction, lanes: int) -> UOp | None:
    """Return the range along which vectors of a sum run; None without, and where they run along columns."""
    if c.columns in family.free:
        return None
    for r in sorted(family.ranges, key=lambda r: -int(r.arg[1])):
        kinds = [kind_along(a.index, r, lanes, lanes, aligned=True, free=kernel.free) for a in family.loads]
        if r.arg[1] >= lanes and all(kind == "row" for kind in kinds):
            return r
    return None
