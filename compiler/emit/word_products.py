"""The lines of matrix operations on vectors of words: one product of a word with every word of a vector.

Not here: which kernels have them (`rewrite.packed_dot`), loops and accumulators (`reductions`, the caller).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from compiler.dtype import dtypes

if TYPE_CHECKING:
    from compiler.emit.builder import Builder
    from compiler.emit.linear import Line
    from compiler.targets.shared.matrix import MatrixOp


def dot(b: Builder, op: MatrixOp, x: Line, y: Line, total: Line) -> Line:
    """Return the total with the products of two words added, in every lane.

    Words of one lane are those of all. Fewer lanes than the narrowest operation has are filled with zeros.
    """
    lanes = total.lanes
    row = op
    while row.narrower is not None and row.narrower.d.registers >= lanes:
        row = row.narrower
    wide = row.d.registers
    src = tuple([_filled(b, b.splat(s, lanes), wide) for s in (x, y, total)])
    made = b.line("matrix", total.dtype, wide, src, row)
    if wide == lanes:
        return made
    if lanes == 1:
        return b.line("extract", total.dtype, 1, (made,), 0)
    return b.shuffle(made, made, range(lanes))


def masked(b: Builder, mask: Line, word: Line) -> Line:
    """Return a word where the mask is true, else zeros."""
    wide = b.splat(word, max(word.lanes, mask.lanes))
    return b.select(mask, wide, b.const(dtypes.uint32, 0, wide.lanes))


def _filled(b: Builder, value: Line, lanes: int) -> Line:
    """Return a value with zeros in more lanes."""
    if value.lanes == lanes:
        return value
    zero = 0.0 if value.dtype.is_float else 0
    if value.lanes == 1:
        value = b.splat(value, 2)
        first = [0] + [2] * (lanes - 1)
    else:
        first = [*range(value.lanes)] + [value.lanes] * (lanes - value.lanes)
    return b.shuffle(value, b.const(value.dtype, zero, value.lanes), first)
