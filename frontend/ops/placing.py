"""Segment sums and last indices along an axis: the algorithm chosen for given sizes.

Few values or positions are compared with each other, in one kernel. Many values are first sorted by index, in
about ten kernels whose cost does not depend on the number of positions.

Not here: the methods (`along`), the primitives (`frontend.primitives.gather_scatter`).
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Final

from frontend.ops.sorting import BLOCK, argsort
from frontend.primitives.gather_scatter import LAST_INDEX, SEGMENT_SUM
from frontend.trace import apply

if TYPE_CHECKING:
    from frontend.tensor_base import T

_LAUNCHES: Final = 1 << 18
"""Comparisons that take as long as the launches of a sum in order."""
_STEP: Final = 8
"""Values that one step of a sum reads for each result; each step multiplies the length by it."""


def placed(values: T, index: T, axis: int, n: int) -> T:
    """Return for each of n places along an axis the sum of the values with that index: see SEGMENT_SUM."""
    shape = values.expr.shape
    if _compares(n, shape[axis], prod(shape), prod(index.expr.shape)):
        return apply(SEGMENT_SUM, (axis, n), values, index)
    return apply(SEGMENT_SUM, (axis, n), values, index, argsort(index, axis))


def last_named(index: T, axis: int, n: int) -> T:
    """Return for each of n places along an axis which names it last, less than 0 for none: see LAST_INDEX."""
    shape = index.expr.shape
    count = prod(shape)
    if _compares(n, shape[axis], count, count):
        return apply(LAST_INDEX, (axis, n), index)
    return apply(LAST_INDEX, (axis, n), index, argsort(index, axis))


def _compares(n: int, m: int, values: int, indices: int) -> bool:
    """Whether comparing is the shorter way, for n places, m indices in a row, and all values and indices."""
    steps = (max(m - 1, 0).bit_length() + 2) // 3
    in_order = indices * 2 * min(m, BLOCK) + values * _STEP * steps + values // max(m, 1) * n
    return n * values <= 2 * in_order + _LAUNCHES
