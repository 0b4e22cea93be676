"""Diagonals of matrices: read (`diagonal`), built (`diag`), and triangles (`tril`, `triu`).

Next: `linalg`, products of matrices; `movement`, other changes of shape.
"""

from __future__ import annotations

from math import prod

from compiler.ir.ops import Ops
from frontend.ops.arguments import axis_of, whole
from frontend.ops.elementwise import add
from frontend.ops.movement import transpose
from frontend.ops.sources import constant, coordinate, number_like, suited
from frontend.parameters import converting
from frontend.tensor_base import T
from frontend.trace import apply, method
from frontend.views import viewing
from hcq.errors import UsageError, UsageIndexError


@viewing
def diagonal(self: T, offset: int = 0, axis1: int = 0, axis2: int = 1) -> T:
    """Return a diagonal of two axes as a new last axis.

    Its elements lie at [i, i + offset] of the two; there are none where the offset leaves the matrix.

    A view. Raises `UsageError` for fewer than two axes.
    """
    shape = self.expr.shape
    if len(shape) < 2:
        raise UsageIndexError(f"diagonal needs at least two axes, saw the shape {shape}")
    a, b = axis_of(axis1, shape, "diagonal"), axis_of(axis2, shape, "diagonal")
    if a == b:
        raise UsageError(f"diagonal of {shape}: wanted two different axes, saw {axis1} and {axis2}")
    x = apply(Ops.PERMUTE, (*[i for i in range(len(shape)) if i not in {a, b}], a, b), self)
    return _diagonal(x, whole(offset, "diagonal, offset"))


def _diagonal(x: T, offset: int) -> T:
    """Return the diagonal: with rows padded by one element and reshaped, it is the first column."""
    *before, rows, columns = x.expr.shape
    down, right = max(0, -offset), max(0, offset)
    n = max(0, min(rows - down, columns - right))
    outer = [(0, m) for m in before]
    if not n:
        empty = apply(Ops.SHRINK, (*outer, (0, 0), (0, min(columns, 1))), x)
        return apply(Ops.RESHAPE, (*before, 0), empty)
    x = apply(Ops.SHRINK, (*outer, (down, down + n), (right, right + n)), x)
    flat = apply(Ops.RESHAPE, (*before, n * n), x)
    longer = apply(Ops.PAD, (*[(0, 0)] * len(before), (0, n)), flat)
    turned = apply(Ops.RESHAPE, (*before, n, n + 1), longer)
    return apply(Ops.RESHAPE, (*before, n), apply(Ops.SHRINK, (*outer, (0, n), (0, 1)), turned))


@method
def diag(self: T, diagonal: int = 0) -> T:
    """Return the matrix that has a vector on a diagonal and zeros elsewhere; of a matrix, its diagonal.

    `diagonal` counts upwards from the main one. Raises `UsageError` for any other rank.
    """
    shape = self.expr.shape
    offset = whole(diagonal, "diag, diagonal")
    if len(shape) == 2:
        return _diagonal(self, offset)
    if len(shape) != 1:
        raise UsageError(f"diag needs a vector or a matrix, saw the shape {shape}; diagonal() takes any rank")
    size = shape[0] + abs(offset)
    square = (size, size)
    along = apply(Ops.PAD, ((max(0, offset), max(0, -offset)),), self)
    x = apply(Ops.EXPAND, square, apply(Ops.RESHAPE, (1, size), along))
    row, column = coordinate(x, square, 0), coordinate(x, square, 1)
    hit = apply(Ops.EQ, None, apply(Ops.ADD, None, row, constant(x, offset, row.expr.dtype, square)), column)
    return apply(Ops.WHERE, None, hit, x, constant(x, 0, x.expr.dtype, square))


@method
def tril(self: T, diagonal: int = 0) -> T:
    """Return self with zeros above a diagonal of the last two axes.

    Raises `UsageError` for fewer than two axes.
    """
    return _triangle(self, diagonal, lower=True)


@method
def triu(self: T, diagonal: int = 0) -> T:
    """Return self with zeros below a diagonal of the last two axes.

    Raises `UsageError` for fewer than two axes.
    """
    return _triangle(self, diagonal, lower=False)


def _triangle(x: T, diagonal: int, *, lower: bool) -> T:
    shape = x.expr.shape
    rank = len(shape)
    if rank < 2:
        raise UsageError(f"{'tril' if lower else 'triu'} needs at least two axes, saw the shape {shape}")
    row, column = coordinate(x, shape, rank - 2), coordinate(x, shape, rank - 1)
    border = apply(Ops.ADD, None, row, constant(x, diagonal + (1 if lower else 0), row.expr.dtype, shape))
    before = apply(Ops.LT, None, column, border)
    zero = constant(x, 0, x.expr.dtype, shape)
    return apply(Ops.WHERE, None, before, *((x, zero) if lower else (zero, x)))


@converting
def fill_diagonal(self: T, fill_value: float, wrap: bool = False) -> T:  # noqa: FBT001, FBT002 - the field's signature
    """Return self with a number on its main diagonal; with `wrap` again after each full square of rows.

    Two axes, or more of one size. Raises `UsageError` for other shapes.
    """
    shape = self.expr.shape
    if len(shape) < 2 or (len(shape) > 2 and len(set(shape)) > 1):
        raise UsageError(f"fill_diagonal_: wanted two axes, or several of one size, saw the shape {shape}")
    step = sum([prod(shape[i + 1 :]) for i in range(len(shape))])
    last = prod(shape) if wrap and len(shape) == 2 else (min(shape) - 1) * step + 1
    place = coordinate(self, (prod(shape),), 0)
    zero = number_like(place, 0)
    stride = number_like(place, max(1, step))
    on = apply(Ops.EQ, None, apply(Ops.MOD, None, place, stride), zero)
    before = apply(Ops.LT, None, place, number_like(place, last))
    mask = apply(Ops.RESHAPE, shape, apply(Ops.AND, None, on, before))
    value = constant(self, suited(fill_value, self.expr.dtype), self.expr.dtype, shape)
    return apply(Ops.WHERE, None, mask, value, self)


def symmetric(x: T, *, upper: bool) -> T:
    """Return symmetric matrices of one half of x."""
    half = transpose(x, -1, -2) if upper else x
    return add(tril(half), transpose(tril(half, -1), -1, -2))
