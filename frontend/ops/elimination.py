"""Gaussian elimination of matrices, and what follows from it: solve, inverse, determinants, triangular_solve.

Matrices are the last two axes; the axes before are a batch. Functions take float32 and float64, and raise
`UsageError` for other dtypes and for shapes that do not fit, `UsageTypeError` for arguments of other classes.
The number of steps depends on the shape alone, so all functions can be captured. Steps move rows and columns
on, so that all are the same kernels (`singular.stepped`); triangles are solved by blocks of 16 rows.

Rules of gradients use the factors again. For determinants, columns are exchanged, too (complete pivoting), so
that first and second derivatives are right at singular matrices; third ones are those of regular matrices.

Not here: other factors (`decompositions`). Next: `singular`, the check of singular matrices.
"""

from __future__ import annotations

import math
from typing import Generic, NamedTuple

from compiler.dtype import dtypes
from compiler.ir.ops import Ops
from frontend.arguments.checks import broadcast
from frontend.arguments.conversion import converting
from frontend.evaluation.base import T, TensorBase
from frontend.evaluation.constants import constant, convert, coordinate, number_like, ruled, stopped
from frontend.evaluation.trace import apply, composite, method
from frontend.ops import reductions
from frontend.ops.arithmetic import div
from frontend.ops.elementwise import add, eq, lt, mul, neg, sub, where
from frontend.ops.functions import abs as absolute
from frontend.ops.functions import log, sign
from frontend.ops.gather_scatter import gather
from frontend.ops.linalg import diagonal, matmul, tril, triu
from frontend.ops.movement import expand, reshape, squeeze, transpose, unsqueeze
from frontend.ops.singular import refuse_singular, stepped
from frontend.ops.sorting import inverse as inverse_order
from frontend.ops.splitting import cat, part
from hcq.errors import UsageError

_BLOCK = 16
"""Rows of a triangle that are solved at once."""


def check_matrices(x: TensorBase, what: str, *, square: bool = False) -> None:
    """Raise `UsageError` unless x has at least two axes, square if wanted, and is float32 or float64."""
    shape = x.expr.shape
    if len(shape) < 2 or (square and shape[-1] != shape[-2]):
        raise UsageError(f"{what}: wanted {'square ' if square else ''}matrices, saw the shape {shape}")
    if not x.expr.dtype.is_float or x.expr.dtype.bits < 32:
        raise UsageError(f"{what}: wanted float32 or float64, saw {x.expr.dtype.name}; cast first")


def column(x: T, begin: int, end: int | None = None) -> T:
    """Return the columns from `begin` up to `end`, None: one column."""
    return part(x, len(x.expr.shape) - 1, begin, begin + 1 if end is None else end)


def rows(x: T, begin: int, end: int | None = None) -> T:
    """Return the rows from `begin` up to `end`, None: one row."""
    return part(x, len(x.expr.shape) - 2, begin, begin + 1 if end is None else end)


def stored(*blocks: tuple[T, ...]) -> T:
    """Return rows of blocks as one matrix in memory."""
    return apply(Ops.CONTIGUOUS, None, cat(*[cat(*row, axis=-1) for row in blocks], axis=-2))


def place(x: T, axis: int) -> T:
    """Return the numbers of the rows (-2) or columns (-1) of the elements of x."""
    return coordinate(x, x.expr.shape, len(x.expr.shape) + axis)


def unit_of(like: T, n: int) -> T:
    """Return unit matrices of n rows, in the dtype and batch of a tensor of matrices."""
    x = constant(like, 0.0, like.expr.dtype, (*like.expr.shape[:-2], n, n))
    return convert(eq(place(x, -2), place(x, -1)), like.expr.dtype)


@composite
def with_rule(self: T, *sources: T, rule: str, upper: bool = False) -> T:
    """Return self with the gradients of a rule of `frontend.autograd.matrix_rules` for the sources."""
    return ruled(rule, stopped(self), *sources, about=(upper,))


def solve_upper(a: T, b: T) -> T:
    """Return x with a @ x = b, for upper triangles, whose other triangle is not read; without gradients.

    Diagonal blocks are inverted first, all at once; then each step solves the rows of one block.
    """
    n, k = b.expr.shape[-2:]
    if n <= _BLOCK:
        return column(stepped(stored((triu(a), b)), _with_last, n, n, 1), n, n + k)
    blocks = -(-n // _BLOCK)
    own = _diagonal_blocks(a, blocks)
    x = _padded_beside(a, solve_upper(own, unit_of(own, _BLOCK)), b, size=blocks * _BLOCK)
    x = stepped(x, _with_last, blocks, blocks * _BLOCK, _BLOCK)
    return rows(column(x, (blocks + 1) * _BLOCK, x.expr.shape[-1]), 0, n)


@method
def _padded(self: T, size: int) -> T:
    """Return upper triangles of `size` rows, in blocks; further diagonal elements are 1."""
    *batch, n, _ = self.expr.shape
    wide = apply(Ops.PAD, (*[(0, 0)] * len(batch), (0, size - n), (0, size - n)), triu(self))
    at = place(wide, -1)
    return where(eq(at, place(wide, -2)), where(lt(at, n), wide, 1.0), wide)


@method
def _diagonal_blocks(self: T, blocks: int) -> T:
    """Return the diagonal blocks (..., blocks, _BLOCK, _BLOCK) of upper triangles."""
    wide = _padded(self, blocks * _BLOCK)
    x = reshape(wide, (*wide.expr.shape[:-2], blocks, _BLOCK, blocks, _BLOCK))
    own = eq(place(x, -2), place(x, -4))
    return apply(Ops.CONTIGUOUS, None, reductions.sum(where(own, x, 0.0), -2))


@composite
def _padded_beside(self: T, inverses: T, b: T, size: int) -> T:
    more = size - self.expr.shape[-2]
    below = apply(Ops.PAD, (*[(0, 0)] * (len(b.expr.shape) - 2), (0, more), (0, 0)), b)
    return stored((_padded(self, size), reshape(inverses, (*b.expr.shape[:-2], size, _BLOCK)), below))


@method
def _with_last(self: T, n: int, size: int) -> T:
    """Return an upper triangle with the values beside it, after those of its last `size` rows are found.

    The inverses of the diagonal blocks are between the two, unless `size` is 1. Rows and columns of the
    triangle then move on by `size` places, the last to the front.
    """
    m, wide = n - size, n + size if size > 1 else n
    last, known, b = column(self, m, n), column(self, n, wide), column(self, wide, self.expr.shape[-1])
    if size > 1:
        found = matmul(rows(known, m, n), rows(b, m, n))
        taken = matmul(last, found)
    else:
        found = div(rows(b, m, n), rows(last, m, n))
        taken = where(eq(last, 0.0), 0.0, mul(last, found))
    a, rest = cat(last, column(self, 0, m), axis=-1), sub(b, taken)
    upper = (rows(a, m, n), rows(known, m, n), found)
    return stored(upper, (rows(a, 0, m), rows(known, 0, m), rows(rest, 0, m)))


@method
def flipped(x: T, axis: int) -> T:
    """Return x with an axis backwards."""
    return apply(Ops.FLIP, (axis % len(x.expr.shape),), x)


def solve_lower(a: T, b: T) -> T:
    """Return x with a @ x = b, for lower triangles, as `solve_upper`."""
    return flipped(solve_upper(flipped(flipped(a, -1), -2), flipped(b, -2)), -2)


@converting
def triangular_solve(self: T, right: T, *, upper: bool = True) -> T:
    """Return x with self @ x = right, for triangular matrices self, whose other triangle is not read."""
    check_matrices(self, "triangular_solve", square=True)
    a, b = _of_one_batch(self, right, "triangular_solve")
    found = (solve_upper if upper else solve_lower)(stopped(a), stopped(b))
    return with_rule(found, a, b, rule="triangular", upper=upper)


def _of_one_batch(a: T, b: T, what: str) -> tuple[T, T]:
    """Return matrices with the batch axes of both."""
    batch = broadcast((a.expr.shape[:-2], b.expr.shape[:-2]), what)
    return expand(a, (*batch, *a.expr.shape[-2:])), expand(b, (*batch, *b.expr.shape[-2:]))


def factored(a: T, *, complete: bool = False) -> T:
    """Return the factors of matrices (n, n), with labels: (n + 1, n + 2), without gradients.

    a[p][:, q] = L @ U: L, with ones on its diagonal, is below the diagonal of the first n rows and columns,
    and U above. Column n has a sign for each step, whose product is that of the permutations, column n + 1
    the rows p. Row n has the columns q, in order but where `complete` pivoting exchanges them.
    """
    n = a.expr.shape[-1]
    return stepped(_with_labels(stopped(a)), _eliminated, n, n, complete)


@method
def _with_labels(self: T) -> T:
    n = self.expr.shape[-1]
    zeros = constant(self, 0.0, self.expr.dtype, (*self.expr.shape[:-2], n + 1, n + 2))
    down, across = (convert(place(zeros, axis), self.expr.dtype) for axis in (-2, -1))
    beside = (rows(column(x, 0), 0, n) for x in (zeros, down))
    return stored((self, *beside), (rows(column(across, 0, n), 0), rows(column(zeros, 0, 2), 0)))


@method
def _eliminated(self: T, n: int, complete: bool) -> T:  # noqa: FBT001 - the key of a method is by position
    """Return the state of `factored` after one step; column n of row n counts the steps.

    The row with the greatest element of the first column, or with `complete` of all that are left, whose
    column is then exchanged for the first, moves behind the others and is done. Its multiples are taken from
    those that are not done. The first column moves behind the other n - 1. After n steps columns and rows
    are in order.
    """
    first, end = eq(place(self, -1), 0), n + 2
    undone, left = eq(column(self, n), 0.0), lt(place(self, -1), add(neg(rows(column(self, n), n)), n))
    turn: T | float = 1.0
    if complete:
        sizes = rows(where(left, where(undone, absolute(self), -1.0), -1.0), 0, n)
        longest = reductions.fold(Ops.MAX, sizes, (len(sizes.expr.shape) - 2,), keepdim=True)
        q = reductions.argmax(longest, -1, keepdim=True)
        other = reductions.sum(where(eq(place(self, -1), q), self, 0.0), -1, keepdim=True)
        self = where(first, other, where(eq(place(self, -1), q), column(self, 0), self))
        turn = where(eq(q, 0), 1.0, -1.0)
    x, labels, undone, left = rows(self, 0, n), rows(self, n), rows(undone, 0, n), rows(left, 0, n)
    start = column(x, 0)
    p = reductions.argmax(where(undone, absolute(start), -1.0), -2, keepdim=True)
    chosen = eq(place(start, -2), p)
    row = reductions.sum(where(chosen, x, 0.0), -2, keepdim=True)
    pivot = column(row, 0)
    by = where(undone, div(start, where(eq(pivot, 0.0), 1.0, pivot)), start)
    rest = where(undone, where(left, sub(x, mul(by, row)), x), x)
    rest = cat(column(rest, 1, n), by, column(rest, n, end), axis=-1)
    rest = where(chosen, rows(rest, 0), rest)
    turned = mul(where(eq(p, 0), number_like(pivot, 1.0), -1.0), turn)
    count = add(column(labels, n), 1.0)
    return stored(
        (rows(rest, 1, n),),
        (column(row, 1, n), pivot, turned, column(row, n + 1)),
        (column(labels, 1, n), column(labels, 0), count, column(labels, n + 1)),
    )


def _parts(lu: T) -> tuple[T, T, T, T, T]:
    """Return L and U in one matrix, p as a column, q as a row, the sign of all exchanges, and the pivots."""
    n = lu.expr.shape[-2] - 1
    above, q = rows(lu, 0, n), rows(column(lu, 0, n), n)
    square, turns = column(above, 0, n), reductions.prod(column(above, n), (-2, -1))
    return square, column(above, n + 1), q, turns, diagonal(square, 0, -2, -1)


def _lower(square: T) -> T:
    return add(tril(square, -1), unit_of(square, square.expr.shape[-1]))


def by_factors(a: T, b: T, lu: T, *, adjoint: bool) -> T:
    """Return x with a @ x = b, or with `adjoint` a.T @ x = b, given `factored(a)`."""
    square, p, *_ = _parts(lu)
    order, right = convert(p, dtypes.int64), stopped(b)
    if adjoint:
        order = inverse_order(order, len(lu.expr.shape) - 2)
        right = solve_lower(transpose(square, -1, -2), right)
        right = solve_upper(transpose(_lower(square), -1, -2), right)
    found = gather(right, -2, expand(order, right.expr.shape))
    found = found if adjoint else solve_upper(square, solve_lower(_lower(square), found))
    return with_rule(found, a, b, lu, rule="solution", upper=adjoint)


def solve(self: T, right: T) -> T:
    """Return x with self @ x = right, for square self (..., n, n) and a vector (n,) or matrices (..., n, k).

    Raises `LinAlgError` for a singular matrix, as `inverse` does; `UsageError` for another number of rows.
    """
    found, pivots = solved(self, right)
    refuse_singular(self, pivots, "solve")
    return found


@converting
def solved(self: T, right: T) -> tuple[T, T]:
    """Return `solve` without its check, and the pivots of the elimination, whose rows are exchanged."""
    check_matrices(self, "solve", square=True)
    vector = len(right.expr.shape) == 1
    b = unsqueeze(right, -1) if vector else right
    n = self.expr.shape[-1]
    if b.expr.shape[-2:-1] != (n,):
        raise UsageError(f"solve: wanted {n} rows on the right, saw {right.expr.shape}")
    a, b = _of_one_batch(self, b, "solve")
    lu = factored(self)
    found = by_factors(a, b, expand(lu, (*a.expr.shape[:-2], n + 1, n + 2)), adjoint=False)
    return squeeze(found, -1) if vector else found, _parts(lu)[-1]


@converting
def inverted(self: T) -> tuple[T, T]:
    """Return `inverse` without its check, and the pivots of the elimination."""
    check_matrices(self, "inverse", square=True)
    lu, unit = factored(self), unit_of(self, self.expr.shape[-1])
    return with_rule(by_factors(self, unit, lu, adjoint=False), self, rule="inverted"), _parts(lu)[-1]


def inverse(self: T) -> T:
    """Return the inverse of square matrices.

    Raises `LinAlgError` for a singular matrix; the values are read to find out (`singular`). Inside captured
    and traced functions and in a gradient they cannot be read, and the result has infinities or NaN.
    """
    found, pivots = inverted(self)
    refuse_singular(self, pivots, "inverse")
    return found


class Determinant(NamedTuple, Generic[T]):
    """The sign of a determinant, -1, 0 or 1, and the logarithm of its absolute value, -infinity for 0."""

    sign: T
    logabsdet: T


@converting
def det(self: T) -> T:
    """Return the determinants of square matrices."""
    check_matrices(self, "det", square=True)
    return determinant(self, factored(self, complete=True))


def determinant(a: T, lu: T) -> T:
    """Return the determinants of matrices given their factors of complete pivoting."""
    *_, turns, pivots = _parts(lu)
    return with_rule(mul(reductions.prod(pivots, -1), turns), a, lu, rule="determinant")


@converting
def slogdet(self: T) -> Determinant[T]:
    """Return the signs of determinants and the logarithms of their absolute values."""
    check_matrices(self, "slogdet", square=True)
    lu = factored(self, complete=True)
    *_, turns, pivots = _parts(lu)
    size = reductions.sum(log(absolute(pivots)), -1)
    signs = with_rule(mul(reductions.prod(sign(pivots), -1), turns), self, rule="constant")
    return Determinant(signs, with_rule(size, self, lu, rule="logarithm"))


@converting
def logdet(self: T) -> T:
    """Return the logarithms of determinants: NaN for a negative one, -infinity for 0."""
    found = slogdet(self)
    return where(lt(found.sign, 0.0), math.nan, found.logabsdet)


def parted(lu: T) -> tuple[T, T, T, T]:
    """Return M, N, the pivots d and their sign, given factors of complete pivoting of a.

    a = M⁻¹ diag(d) N⁻¹, also for singular matrices. The sign is the product of those of det(M) and det(N).
    """
    square, p, q, turns, d = _parts(lu)
    dtype = square.expr.dtype
    pivot = unsqueeze(where(eq(d, 0.0), math.inf, d), -1)
    upper = add(div(triu(square, 1), pivot), unit_of(square, square.expr.shape[-1]))
    n = solve_upper(upper, unit_of(square, square.expr.shape[-1]))
    m = solve_lower(_lower(square), convert(eq(place(square, -1), p), dtype))
    return m, matmul(convert(eq(place(square, -2), q), dtype), n), d, turns


def cofactors(a: T, lu: T) -> T:
    """Return the matrices of cofactors, also of singular matrices, given factors of complete pivoting."""
    m, n, d, turns = parted(lu)
    others = mul(reductions.prod(without(d, 1), -1), unsqueeze(turns, -1))
    found = transpose(matmul(mul(n, unsqueeze(others, -2)), m), -1, -2)
    return with_rule(found, a, lu, rule="cofactors")


@method
def without(self: T, count: int) -> T:
    """Return elements k of vectors as (..., i, k) or (..., i, j, k), `count` 1 or 2; 1 where k is i or j."""
    *batch, n = self.expr.shape
    wide = expand(reshape(self, (*batch, *(1,) * count, n)), (*batch, *(n,) * count, n))
    for axis in range(count):
        wide = where(eq(place(wide, -2 - axis), place(wide, -1)), 1.0, wide)
    return wide
