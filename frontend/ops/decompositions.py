"""Decompositions of matrices and functions based on them: qr, cholesky, svd, eigh, inverse, solve, det, norm.

Matrices are the last two axes; the axes before are a batch. Functions take float32 and float64, and raise
`UsageError` for other dtypes and for shapes that do not fit, `UsageTypeError` for arguments of other classes.
`qr` uses Householder reflections, one for each column. `solve` and `inverse` use Gaussian elimination with
exchanged rows, then back substitution. `svd` uses Jacobi rotations of pairs of columns, disjoint pairs at
once. The number of steps depends on the shape alone, so all functions can be captured. Steps of elimination,
substitution and rotation move rows and columns on, so that all are the same kernels (`singular.stepped`).

For determinants, columns are exchanged before reflections, so that gradients are right at singular matrices,
too: those of `det` are the cofactors. Second derivatives are right where the rank is at least n - 1.

Not here: products (`linalg`, `products`). Next: `singular`, the check of singular matrices.
"""

# ruff: noqa: FBT001, FBT002 - the field's signatures

from __future__ import annotations

import math
from typing import Generic, NamedTuple

from compiler.dtype import dtypes
from compiler.ir.ops import Ops
from frontend.arguments.checks import Axes, axes_of, broadcast, whole
from frontend.arguments.conversion import converting
from frontend.evaluation.base import T, TensorBase
from frontend.evaluation.constants import (
    constant,
    convert,
    coordinate,
    narrowed,
    number_like,
    ruled,
    stopped,
    widened,
)
from frontend.evaluation.trace import apply, composite, method
from frontend.ops import reductions
from frontend.ops.arithmetic import div
from frontend.ops.elementwise import add, eq, gt, lt, maximum, mul, neg, sub, where
from frontend.ops.functions import abs as absolute
from frontend.ops.functions import log, sign, sqrt
from frontend.ops.gather_scatter import gather
from frontend.ops.linalg import diagonal, matmul, symmetric, tril, triu
from frontend.ops.movement import expand, reshape, squeeze, transpose, unsqueeze
from frontend.ops.products import power_of
from frontend.ops.singular import refuse_indefinite, refuse_singular, stepped
from frontend.ops.sorting import sort
from frontend.ops.splitting import cat, part
from hcq.errors import UsageError


class Factors(NamedTuple, Generic[T]):
    """A matrix with orthonormal columns (Q) and an upper triangular one (R), x = Q @ R."""

    Q: T
    R: T


class Singular(NamedTuple, Generic[T]):
    """x = U @ diag(S) @ V.T; U and V have orthonormal columns, S is in descending order."""

    U: T
    S: T
    V: T


def check_matrices(x: TensorBase, what: str, *, square: bool = False) -> None:
    """Raise `UsageError` unless x has at least two axes, square if wanted, and is float32 or float64."""
    shape = x.expr.shape
    if len(shape) < 2 or (square and shape[-1] != shape[-2]):
        raise UsageError(f"{what}: wanted {'square ' if square else ''}matrices, saw the shape {shape}")
    if not x.expr.dtype.is_float or x.expr.dtype.bits < 32:
        raise UsageError(f"{what}: wanted float32 or float64, saw {x.expr.dtype.name}; cast first")


def _column(x: T, i: int) -> T:
    """Return column i, with an axis of size 1."""
    return part(x, len(x.expr.shape) - 1, i, i + 1)


def reduced(x: T, columns: int, *, exchange: bool = False) -> tuple[T, T]:
    """Return x with zeros below the diagonal of its first columns, by reflections.

    Also return the determinant of the product of the reflections, 1 or -1. A column that has zeros below the
    diagonal already keeps its sign, as in LAPACK. Columns are divided by a power of two near their greatest
    element, so that squares neither overflow nor vanish.

    With `exchange`, a column that is far shorter than a later one is first exchanged for the longest. A
    column of length 0 then occurs only where all later columns have length 0, which keeps gradients at
    singular matrices right.
    """
    m = x.expr.shape[-2]
    rank = len(x.expr.shape)
    turns = constant(x, 1.0, x.expr.dtype, (*x.expr.shape[:-2], 1, 1))
    for i in range(min(m - 1, columns)):
        if exchange and i + 1 < columns:
            x, traded = _exchanged(x, i)
            turns = mul(turns, where(traded, -1.0, 1.0))
        column = part(x, rank - 1, i, i + 1)
        place = coordinate(column, column.expr.shape, rank - 2)
        below = where(lt(place, i), 0.0, column)
        below = div(below, _power_below(reductions.fold(Ops.MAX, absolute(below), (rank - 2,), keepdim=True)))
        squares = reductions.sum(mul(below, below), -2, keepdim=True)
        empty = eq(squares, 0.0)
        size = sqrt(where(empty, 1.0, squares))
        head = part(below, rank - 2, i, i + 1)
        v = sub(below, where(eq(place, i), where(lt(head, 0.0), size, neg(size)), 0.0))
        scale = where(empty, 0.0, div(_one(v, 2.0), reductions.sum(mul(v, v), -2, keepdim=True)))
        x = sub(x, mul(mul(v, scale), matmul(transpose(v, -1, -2), x)))
        rest = reductions.sum(where(lt(place, i + 1), 0.0, absolute(column)), -2, keepdim=True)
        kept = apply(Ops.EQ, None, rest, number_like(rest, 0.0))
        back = where(empty, 1.0, where(kept, -1.0, 1.0))
        x = mul(x, where(eq(place, i), back, 1.0))
        turns = mul(turns, where(kept, 1.0, -1.0))
    return x, turns


def _exchanged(x: T, i: int) -> tuple[T, T]:
    """Return x with column i exchanged for the longest later column, and a bool tensor: whether it was.

    It is exchanged where the longest one is more than 2**20 times as long.
    """
    rank = len(x.expr.shape)
    rows = coordinate(x, x.expr.shape, rank - 2)
    lengths = reductions.fold(Ops.MAX, where(lt(rows, i), 0.0, absolute(x)), (rank - 2,), keepdim=True)
    lengths = where(lt(coordinate(lengths, lengths.expr.shape, rank - 1), i), 0.0, lengths)
    longest = reductions.fold(Ops.MAX, lengths, (rank - 1,), keepdim=True)
    short = lt(mul(part(lengths, rank - 1, i, i + 1), 2.0**20), longest)
    chosen = where(short, reductions.argmax(lengths, rank - 1, keepdim=True), i)
    columns = coordinate(x, x.expr.shape, rank - 1)
    is_chosen = eq(columns, chosen)
    other = reductions.sum(where(is_chosen, x, 0.0), -1, keepdim=True)
    traded = where(eq(columns, i), other, where(is_chosen, _column(x, i), x))
    return apply(Ops.CONTIGUOUS, None, traded), short


def _power_below(size: T) -> T:
    """Return the greatest power of two <= size, limited to 2**-126..2**126 (float64: 2**-1022..2**1022).

    No gradient flows through it.
    """
    wide = size.expr.dtype is dtypes.float64
    digits, most = (52, 2045) if wide else (23, 253)
    whole = dtypes.int64 if wide else dtypes.int32
    bits = apply(Ops.BITCAST, whole, size)
    shape = bits.expr.shape
    shift, low, high = (constant(bits, n, whole, shape) for n in (digits, 1, most))
    power = apply(Ops.MIN, None, apply(Ops.MAX, None, apply(Ops.SHR, None, bits, shift), low), high)
    return apply(Ops.BITCAST, size.expr.dtype, apply(Ops.SHL, None, power, shift))


def _one(like: T, value: float = 1.0) -> T:
    return constant(like, value, like.expr.dtype, ())


@method
def _triangle(self: T) -> T:
    """Return R and the transpose of Q side by side: self and unit matrices, reduced together."""
    both = cat(self, unit_of(self, self.expr.shape[-2]), axis=-1)
    return reduced(both, self.expr.shape[-1])[0]


def unit_of(like: T, n: int) -> T:
    """Return unit matrices of n rows, in the dtype and batch of a tensor of matrices."""
    shape = (*like.expr.shape[:-2], n, n)
    rank = len(shape)
    same = apply(Ops.EQ, None, coordinate(like, shape, rank - 2), coordinate(like, shape, rank - 1))
    return convert(same, like.expr.dtype)


@converting
def qr(self: T, mode: str = "reduced") -> Factors[T]:
    """Return Q, with orthonormal columns, and upper triangular R, whose product is self.

    For (m, n) matrices and k = min(m, n), Q is (m, k) and R (k, n); for `mode` "complete", (m, m) and (m, n).
    Raises `UsageError` for another mode.
    """
    check_matrices(self, "qr")
    if mode not in {"reduced", "complete"}:
        raise UsageError(f"qr: wanted the mode reduced or complete, saw {mode!r}")
    m, n = self.expr.shape[-2:]
    rank = len(self.expr.shape)
    both = _triangle(self)
    r = triu(part(both, rank - 1, 0, n))
    q = transpose(part(both, rank - 1, n, n + m), -1, -2)
    if mode == "reduced":
        k = min(m, n)
        return Factors(part(q, rank - 1, 0, k), part(r, rank - 2, 0, k))
    return Factors(q, r)


def _back_substituted(self: T, right: T) -> T:
    """Return x with self @ x = right, for upper triangular matrices, whose other triangle is not read."""
    a, b = _of_one_batch(self, right, "triangular_solve")
    both = stopped(cat(a, b, axis=-1))
    return _with_rule(_substituted(both), a, b, rule="triangular")


def _substituted(both: T) -> T:
    """Return x with a @ x = b, of upper triangles a (n, n) with b beside them."""
    n = both.expr.shape[-2]
    rank, end = len(both.expr.shape), both.expr.shape[-1]
    a, b = part(both, rank - 1, 0, n), part(both, rank - 1, n, end)
    found = stepped(cat(triu(a), b, axis=-1), _with_last_row, n, (both,), n)
    return stopped(part(found, rank - 1, n, end))


@method
def _with_last_row(self: T, n: int) -> T:
    """Return an upper triangle with the values beside it, after the value of the last row is found.

    Rows and columns of the triangle, and the values, then move on by one place, the last to the front.
    """
    rank, end = len(self.expr.shape), self.expr.shape[-1]
    a, b = part(self, rank - 1, 0, n), part(self, rank - 1, n, end)
    column = _column(a, n - 1)
    found = div(part(b, rank - 2, n - 1, n), part(column, rank - 2, n - 1, n))
    rest = sub(b, where(eq(column, 0.0), 0.0, mul(column, found)))
    a = cat(column, part(a, rank - 1, 0, n - 1), axis=-1)
    above = cat(part(a, rank - 2, 0, n - 1), part(rest, rank - 2, 0, n - 1), axis=-1)
    row = cat(part(a, rank - 2, n - 1, n), found, axis=-1)
    return apply(Ops.CONTIGUOUS, None, cat(row, above, axis=-2))


@converting
def triangular_solve(self: T, right: T, *, upper: bool = True) -> T:
    """Return x with self @ x = right, for triangular matrices self, whose other triangle is not read."""
    check_matrices(self, "triangular_solve", square=True)
    if upper:
        return _back_substituted(self, right)
    return _flipped(_back_substituted(_flipped(_flipped(self, -1), -2), _flipped(right, -2)), -2)


def _flipped(x: T, axis: int) -> T:
    return apply(Ops.FLIP, (axis % len(x.expr.shape),), x)


def solve(self: T, right: T) -> T:
    """Return x with self @ x = right, for square self (..., n, n) and a vector (n,) or matrices (..., n, k).

    Raises `LinAlgError` for a singular matrix, as `inverse` does; `UsageError` for another number of rows.
    """
    found, pivots = solved(self, right)
    refuse_singular(self, pivots, "solve")
    return found


def solution(self: T, right: T) -> T:
    """Return `solve` without a check for singular matrices, whose results have infinities or NaN."""
    return solved(self, right)[0]


@converting
def solved(self: T, right: T) -> tuple[T, T]:
    """Return x with self @ x = right, and the pivots of Gaussian elimination, whose rows are exchanged."""
    check_matrices(self, "solve", square=True)
    vector = len(right.expr.shape) == 1
    b = unsqueeze(right, -1) if vector else right
    n = self.expr.shape[-1]
    if b.expr.shape[-2:-1] != (n,):
        raise UsageError(f"solve: wanted {n} rows on the right, saw {right.expr.shape}")
    a, b = _of_one_batch(self, b, "solve")
    rank = len(a.expr.shape)
    x = stepped(_with_done(stopped(cat(a, b, axis=-1))), _eliminated, n, (self, right), n)
    x = part(x, rank - 1, 0, n + b.expr.shape[-1])
    pivots = diagonal(part(x, rank - 1, 0, n), 0, -2, -1)
    found = _with_rule(_substituted(x), a, b, rule="solution")
    return squeeze(found, -1) if vector else found, pivots


def _of_one_batch(a: T, b: T, what: str) -> tuple[T, T]:
    """Return matrices with the batch axes of both."""
    batch = broadcast((a.expr.shape[:-2], b.expr.shape[:-2]), what)
    return expand(a, (*batch, *a.expr.shape[-2:])), expand(b, (*batch, *b.expr.shape[-2:]))


@method
def _with_done(self: T) -> T:
    """Return matrices with a further column of zeros: no row is done."""
    return cat(self, constant(self, 0.0, self.expr.dtype, (*self.expr.shape[:-1], 1)), axis=-1)


@method
def _eliminated(self: T, n: int) -> T:
    """Return matrices of n rows and columns, and the values beside them, after one step of elimination.

    The row with the greatest element of the first column moves behind the others and is done, which the last
    column says; its multiples are taken from those that are not done. The first column moves behind the
    other n - 1. After n steps the columns have their order again, the rows are those of the upper triangle,
    and what is below it is to be ignored.
    """
    rank, end = len(self.expr.shape), self.expr.shape[-1] - 1
    x, done = part(self, rank - 1, 0, end), _column(self, end)
    column = _column(x, 0)
    place = coordinate(column, column.expr.shape, rank - 2)
    sizes = where(eq(done, 0.0), absolute(column), -1.0)
    chosen = eq(place, reductions.argmax(sizes, rank - 2, keepdim=True))
    row = reductions.sum(where(chosen, x, 0.0), -2, keepdim=True)
    pivot = _column(row, 0)
    by = div(column, where(eq(pivot, 0.0), 1.0, pivot))
    rest = sub(x, where(eq(done, 0.0), mul(by, row), 0.0))
    rest = cat(part(rest, rank - 1, 1, n), column, part(rest, rank - 1, n, end), done, axis=-1)
    row = cat(part(row, rank - 1, 1, n), pivot, part(row, rank - 1, n, end), number_like(pivot, 1.0), axis=-1)
    rest = where(chosen, part(rest, rank - 2, 0, 1), rest)
    return apply(Ops.CONTIGUOUS, None, cat(part(rest, rank - 2, 1, n), row, axis=-2))


def inverse(self: T) -> T:
    """Return the inverse of square matrices.

    Raises `LinAlgError` for a singular matrix; the values are read to find out (`singular`). Inside captured
    and traced functions and in a gradient they cannot be read, and the result has infinities or NaN.
    """
    check_matrices(self, "inverse", square=True)
    found, pivots = solved(self, unit_of(self, self.expr.shape[-1]))
    refuse_singular(self, pivots, "inverse")
    return found


@converting
def inverted(self: T) -> T:
    """Return `inverse` without its check."""
    check_matrices(self, "inverse", square=True)
    return solution(self, unit_of(self, self.expr.shape[-1]))


def cholesky(self: T, upper: bool = False) -> T:
    """Return the lower triangular L with L @ L.T = self, or with `upper` the transpose of L.

    The upper triangle of self is not read. Raises `LinAlgError` for a matrix that is not positive definite;
    the values are read to find out, as for `inverse`, and where they cannot be read the result has NaN.
    """
    found = cholesky_root(self, upper)
    refuse_indefinite(found, "cholesky")
    return found


@method
def cholesky_root(self: T, upper: bool = False) -> T:
    """Return `cholesky` without its check."""
    check_matrices(self, "cholesky", square=True)
    n = self.expr.shape[-1]
    rank = len(self.expr.shape)
    even = mul(add(self, transpose(self, -1, -2)), 0.5)
    rest = add(tril(even), stopped(tril(sub(self, even))))  # the gradient is symmetric, as in PyTorch
    columns: list[T] = []
    for i in range(n):
        column = _column(rest, i)
        place = coordinate(column, column.expr.shape, rank - 2)
        size = sqrt(part(column, rank - 2, i, i + 1))
        found = where(lt(place, i), 0.0, div(column, size))
        columns.append(found)
        if i + 1 < n:
            rest = sub(rest, matmul(found, transpose(found, -1, -2)))
    lower = cat(*columns, axis=-1) if columns else self
    return transpose(lower, -1, -2) if upper else lower


@converting
def cholesky_solve(self: T, factor: T, upper: bool = False) -> T:
    """Return x with a @ x = self, for matrices self, where `factor` is `a.cholesky(upper)`.

    The other triangle of the factor is not read. Raises `UsageError` for another number of rows.
    """
    check_matrices(self, "cholesky_solve")
    check_matrices(factor, "cholesky_solve", square=True)
    if self.expr.shape[-2] != factor.expr.shape[-1]:
        raise UsageError(
            f"cholesky_solve: wanted {factor.expr.shape[-1]} rows, saw the shape {self.expr.shape}"
        )
    first = transpose(factor, -1, -2) if upper else factor
    middle = triangular_solve(first, self, upper=False)
    return triangular_solve(transpose(first, -1, -2), middle)


def cholesky_inverse(self: T, upper: bool = False) -> T:
    """Return the inverse of a, where self is `a.cholesky(upper)`."""
    check_matrices(self, "cholesky_inverse", square=True)
    return cholesky_solve(unit_of(self, self.expr.shape[-1]), self, upper)


@method
def _beside_unit(self: T) -> T:
    """Return self above a unit matrix, with a column of zeros more where the number of columns is odd."""
    n = self.expr.shape[-1]
    x = cat(self, unit_of(self, n), axis=-2)
    return cat(x, mul(_column(x, 0), 0.0), axis=-1) if n % 2 else x


@method
def _turned(self: T, m: int) -> T:
    """Return the columns after one round of Jacobi rotations, in the order of the next round.

    Column i of the left half and column i of the right one are a pair: a rotation makes their first m rows
    orthogonal. The first column stays, and the others move on by one place of a ring that runs along the left
    half and back along the right one, so that n - 1 rounds of n columns have all pairs, and the first order.
    """
    rank, h = len(self.expr.shape), self.expr.shape[-1] // 2
    a, b = part(self, rank - 1, 0, h), part(self, rank - 1, h, 2 * h)
    up, vp = part(a, rank - 2, 0, m), part(b, rank - 2, 0, m)
    alpha, beta = (reductions.sum(mul(t, t), -2, keepdim=True) for t in (up, vp))
    gamma = reductions.sum(mul(up, vp), -2, keepdim=True)
    still = eq(gamma, 0.0)
    zeta = div(sub(beta, alpha), mul(where(still, 1.0, gamma), 2.0))
    t = div(where(lt(zeta, 0.0), -1.0, 1.0), add(absolute(zeta), sqrt(add(mul(zeta, zeta), 1.0))))
    t = where(still, 0.0, convert(t, self.expr.dtype))
    c = div(number_like(t, 1.0), sqrt(add(mul(t, t), 1.0)))
    s = mul(c, t)
    left, right = sub(mul(a, c), mul(b, s)), add(mul(a, s), mul(b, c))
    if h > 1:
        first, rest, last = (part(left, rank - 1, *ends) for ends in ((0, 1), (1, h - 1), (h - 1, h)))
        right, moved = cat(part(right, rank - 1, 1, h), last, axis=-1), _column(right, 0)
        left = cat(first, moved, rest, axis=-1)
    return apply(Ops.CONTIGUOUS, None, cat(left, right, axis=-1))


def _rotated(self: T) -> T:
    """Return self @ V above V, where V is orthogonal and the columns of self @ V are orthogonal (Jacobi).

    The number of rounds is that of six or more sweeps over all pairs, and depends on n alone.
    """
    *_, m, n = self.expr.shape
    rounds = max(6, 2 * math.ceil(math.log2(max(2, n))) + 3) * (n + n % 2 - 1) if n else 0
    x = stepped(_beside_unit(self), _turned, rounds, (self,), m)
    return part(x, len(x.expr.shape) - 1, 0, n) if n % 2 else x


@converting
def svd(self: T, some: bool = True) -> Singular[T]:
    """Return U, S and V with self = U @ diag(S) @ V.T, the singular values in descending order.

    There are k = min(m, n) singular values of (m, n) matrices; U is (m, k), V is (n, k), with `some=False`
    (m, m) and (n, n). A column of U whose singular value is 0 is 0, unless m != n and `some=False`. The
    gradient of U and V is infinite or NaN where two singular values are equal, as the vectors are not unique;
    none flows through vectors beyond k.
    """
    check_matrices(self, "svd")
    m, n = self.expr.shape[-2:]
    if m < n:
        found = svd(transpose(self, -1, -2), some)
        return Singular(found.V, found.S, found.U)
    rank = len(self.expr.shape)
    size = reductions.fold(Ops.MAX, absolute(self), (rank - 2, rank - 1), keepdim=True)
    both = stopped(_rotated(stopped(div(self, _power_below(size)))))
    work, v = part(both, rank - 2, 0, m), part(both, rank - 2, m, m + n)
    size, order = sort(sqrt(reductions.sum(mul(work, work), -2)), -1, True)
    at = unsqueeze(order, -2)
    work, v = (gather(x, -1, expand(at, x.expr.shape)) for x in (work, v))
    none = unsqueeze(eq(size, 0.0), -2)
    u = where(none, 0.0, div(work, where(none, 1.0, unsqueeze(size, -2))))
    both = _with_rule(cat(u, v, axis=-2), self, rule="singular_vectors")
    u, v = part(both, rank - 2, 0, m), part(both, rank - 2, m, m + n)
    s = _with_rule(reductions.sum(mul(u, matmul(self, v)), -2), self, both, rule="singular_values")
    if not some and m != n:
        q = stopped(qr(u, "complete").Q)
        u = cat(where(none, part(q, rank - 1, 0, n), u), part(q, rank - 1, n, m), axis=-1)
    return Singular(u, s, v)


@composite
def _with_rule(self: T, *sources: T, rule: str, upper: bool = False) -> T:
    return ruled(rule, self, *sources, about=(upper,))


@composite
def taken_as_symmetric(self: T) -> T:
    """Return symmetric matrices made of the lower triangles.

    The gradient is passed on unchanged, as in PyTorch.
    """
    return ruled("beside", stopped(symmetric(self, upper=False)), self)


@converting
def eigh(self: T, *, upper: bool = False) -> tuple[T, T]:
    """Return the eigenvalues of symmetric matrices, the least first, and the eigenvectors as columns.

    Only the lower triangle is read, or with `upper` the upper one. Eigenvalues are the singular values of the
    matrix plus its norm times the unit matrix, less the norm. The gradient of the vectors is infinite or NaN
    where two eigenvalues are equal.
    """
    check_matrices(self, "eigh", square=True)
    even = stopped(symmetric(self, upper=upper))
    shift = sqrt(reductions.sum(mul(even, even), (-2, -1), keepdim=True))
    found = svd(add(even, mul(shift, unit_of(self, self.expr.shape[-1]))))
    vectors = _with_rule(stopped(_flipped(found.V, -1)), self, rule="eigenvectors", upper=upper)
    values = sub(_flipped(found.S, -1), squeeze(shift, -1))
    return _with_rule(stopped(values), self, vectors, rule="eigenvalues"), vectors


@converting
def pinverse(self: T, rcond: T | float | None = None, *, atol: T | float | None = None) -> T:
    """Return Moore-Penrose inverses of (m, n) matrices: (n, m).

    Singular values count as 0 up to `rcond` times the greatest one, and up to `atol`. Without both, rcond is
    max(m, n) times the distance from 1 to the next number of the dtype.
    """
    check_matrices(self, "pinverse")
    if 0 in self.expr.shape:
        return transpose(self, -1, -2)
    u, s, v = svd(stopped(self))
    step = 2.0 ** (-52 if self.expr.dtype is dtypes.float64 else -23)
    given = max(self.expr.shape[-2:]) * step if rcond is None and atol is None else rcond
    given = 0.0 if given is None else given
    share, least = (
        v if v is None or isinstance(v, (int, float)) else unsqueeze(v, -1) for v in (given, atol)
    )
    limit = mul(reductions.fold(Ops.MAX, s, (len(s.expr.shape) - 1,), keepdim=True), share)
    large = gt(s, limit if least is None else maximum(limit, least))
    scale = where(large, div(_one(s), where(large, s, 1.0)), 0.0)
    found = matmul(mul(v, unsqueeze(scale, -2)), transpose(u, -1, -2))
    return _with_rule(stopped(found), self, rule="pseudoinverse")


@converting
def matrix_power(self: T, n: int) -> T:
    """Return the n-th power of square matrices: unit matrices for 0, powers of the inverses for a negative n.

    Raises as `inverse` for a negative n.
    """
    power = whole(n, "matrix_power")
    return power_of(inverse(self), -power) if power < 0 else power_of(self, power)


@method
def norm(self: T, p: float | str = 2.0, axis: Axes = None, keepdim: bool = False) -> T:
    """Return the p-norm over axes; None: of all elements.

    p is a number, infinity (the greatest magnitude), -infinity (the least), 0 (the number of elements that
    are not 0), "fro" (2), or over two axes "nuc" (the sum of the singular values). Raises `UsageError` for
    integers, for another text, and for "nuc" over another number of axes.
    """
    shape = self.expr.shape
    if not self.expr.dtype.is_float:
        raise UsageError(f"norm: wanted floats, saw {self.expr.dtype.name}; cast first")
    if isinstance(p, str) and p not in {"fro", "nuc"}:
        raise UsageError(f"norm: wanted a number, 'fro' or 'nuc', saw {p!r}")
    if p != "nuc":
        return reductions.power_norm(self, 2.0 if isinstance(p, str) else p, axis, keepdim=keepdim)
    axes = axes_of(axis, shape, "norm")
    if len(axes) != 2:
        raise UsageError(f"norm: 'nuc' is of matrices, saw the axes {axes} of the shape {shape}")
    rest = [i for i in range(len(shape)) if i not in axes]
    found = reductions.sum(svd(apply(Ops.PERMUTE, (*rest, *axes), widened(self))).S, -1)
    kept = tuple([1 if i in axes else n for i, n in enumerate(shape)])
    return narrowed(apply(Ops.RESHAPE, kept, found) if keepdim else found, self)


class Determinant(NamedTuple, Generic[T]):
    """The sign of a determinant, -1, 0 or 1, and the logarithm of its absolute value, -infinity for 0."""

    sign: T
    logabsdet: T


@method
def _signed_diagonal(self: T) -> T:
    """Return numbers whose product is the determinant: the diagonal of R, the first one times det(Q)."""
    n = self.expr.shape[-1]
    if not n:
        return reshape(add(reductions.sum(self, (-2, -1)), 1.0), (*self.expr.shape[:-2], 1))
    x, turns = reduced(self, n, exchange=True)
    found = diagonal(x, 0, -2, -1)
    first = eq(coordinate(found, found.expr.shape, len(found.expr.shape) - 1), 0)
    return mul(found, where(first, squeeze(turns, -1), 1.0))


@method
def det(self: T) -> T:
    """Return the determinants of square matrices."""
    check_matrices(self, "det", square=True)
    return reductions.prod(_signed_diagonal(self), -1)


@converting
def slogdet(self: T) -> Determinant[T]:
    """Return the signs of determinants and the logarithms of their absolute values."""
    check_matrices(self, "slogdet", square=True)
    found = _signed_diagonal(self)
    return Determinant(reductions.prod(sign(found), -1), reductions.sum(log(absolute(found)), -1))


@method
def logdet(self: T) -> T:
    """Return the logarithms of determinants: NaN for a negative one, -infinity for 0."""
    return log(det(self))
