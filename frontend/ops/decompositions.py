"""Decompositions of matrices and functions based on them: qr, cholesky, svd, eigh, pinverse, powers, norm.

Matrices are the last two axes; the axes before are a batch. Functions take float32 and float64, and raise
`UsageError` for other dtypes and for shapes that do not fit, `UsageTypeError` for arguments of other classes.
`qr` uses Householder reflections, one for each column, `svd` Jacobi rotations of pairs of columns, disjoint
pairs at once. The number of steps depends on the shape alone, so all functions can be captured. Steps move
rows and columns on, so that all are the same kernels (`singular.stepped`); gradients have rules.

Not here: products (`linalg`, `products`). Next: `elimination`, solutions, inverses and determinants.
"""

# ruff: noqa: I001, FBT001, FBT002 - lists of names stand in rows; the field's signatures

from __future__ import annotations

import math
from typing import Generic, NamedTuple

from compiler.dtype import DType, dtypes
from compiler.ir.ops import Ops
from frontend.arguments.checks import Axes, axes_of, whole
from frontend.arguments.conversion import converting
from frontend.evaluation.base import T
from frontend.evaluation.constants import constant, convert, narrowed, number_like, ruled, stopped, widened
from frontend.evaluation.trace import apply, composite, method
from frontend.ops import reductions
from frontend.ops.arithmetic import div
from frontend.ops.elementwise import add, eq, gt, lt, maximum, mul, neg, sub, where
from frontend.ops.elimination import (
    check_matrices, column, flipped, inverse, place, rows, stored, triangular_solve, unit_of, with_rule,
)  # fmt: skip
from frontend.ops.functions import abs as absolute
from frontend.ops.functions import sqrt
from frontend.ops.gather_scatter import gather
from frontend.ops.linalg import matmul, symmetric, tril, triu
from frontend.ops.movement import expand, squeeze, transpose, unsqueeze
from frontend.ops.products import power_of
from frontend.ops.singular import refuse_indefinite, stepped
from frontend.ops.sorting import sort
from frontend.ops.splitting import cat
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


@method
def _reflected(self: T, n: int) -> T:
    """Return matrices of n columns, and the values beside them, after a reflection of the rows not done.

    It makes the first column zero below the first row. That row is then done, which the last column says; it
    moves behind the others, and the first column behind the other n - 1. A column that has zeros there
    already keeps its sign, as in LAPACK. Columns are divided by a power of two near their greatest element,
    so that squares neither overflow nor vanish.
    """
    *_, m, end = self.expr.shape
    x, done, first = column(self, 0, end - 1), column(self, end - 1), column(self, 0)
    top = eq(place(first, -2), 0)
    below = where(eq(done, 0.0), first, 0.0)
    kept = eq(reductions.sum(where(top, 0.0, absolute(below)), -2, keepdim=True), 0.0)
    most = reductions.fold(Ops.MAX, absolute(below), (len(x.expr.shape) - 2,), keepdim=True)
    below = div(below, _power_below(most))
    squares = reductions.sum(mul(below, below), -2, keepdim=True)
    empty = eq(squares, 0.0)
    size, head = sqrt(squares), rows(below, 0)
    v = sub(below, where(top, where(lt(head, 0.0), size, neg(size)), 0.0))
    scale = where(empty, 0.0, div(number_like(head, 1.0), add(squares, mul(absolute(head), size))))
    x = sub(x, mul(mul(v, scale), matmul(transpose(v, -1, -2), x)))
    x = where(top, mul(x, where(empty, 1.0, where(kept, -1.0, 1.0))), x)
    x = cat(column(x, 1, n), column(x, 0), column(x, n, end - 1), where(top, 1.0, done), axis=-1)
    return stored((rows(x, 1, m),), (rows(x, 0),))


@method
def _unturned(self: T, n: int, steps: int, k: int) -> T:
    """Return k rows of R and of the transpose of Q, side by side, after the steps of `_reflected`."""
    *_, m, end = self.expr.shape
    x = cat(column(self, n - steps, n), column(self, 0, n - steps), column(self, n, end - 1), axis=-1)
    x = rows(cat(rows(x, m - steps, m), rows(x, 0, m - steps), axis=-2), 0, k)
    return cat(triu(column(x, 0, n)), column(x, n, n + m), axis=-1)


@converting
def qr(self: T, mode: str = "reduced") -> Factors[T]:
    """Return Q, with orthonormal columns, and upper triangular R, whose product is self.

    For (m, n) matrices and k = min(m, n), Q is (m, k) and R (k, n); for `mode` "complete", (m, m) and (m, n).
    Raises `UsageError` for another mode, and for the gradient of "complete" where m > n, as PyTorch does.
    """
    check_matrices(self, "qr")
    if mode not in {"reduced", "complete"}:
        raise UsageError(f"qr: wanted the mode reduced or complete, saw {mode!r}")
    m, n = self.expr.shape[-2:]
    steps = max(0, min(m - 1, n))
    own = stopped(self)
    undone = constant(own, 0.0, own.expr.dtype, (*self.expr.shape[:-1], 1))
    x = stored((own, unit_of(own, m), undone))
    x = stepped(x, _reflected, steps, n)
    both = with_rule(_unturned(x, n, steps, min(m, n) if mode == "reduced" else m), self, rule="qr")
    return Factors(transpose(column(both, n, n + m), -1, -2), column(both, 0, n))


def cholesky(self: T, upper: bool = False) -> T:
    """Return the lower triangular L with L @ L.T = self, or with `upper` the transpose of L.

    The upper triangle of self is not read. Raises `LinAlgError` for a matrix that is not positive definite;
    the values are read to find out, as for `inverse`, and where they cannot be read the result has NaN.
    """
    found = cholesky_root(self, upper)
    refuse_indefinite(found, "cholesky")
    return found


@converting
def cholesky_root(self: T, upper: bool = False) -> T:
    """Return `cholesky` without its check."""
    check_matrices(self, "cholesky", square=True)
    n = self.expr.shape[-1]
    found = stepped(stored((symmetric(stopped(self), upper=False),)), _rooted, n, n)
    lower = with_rule(tril(found), self, rule="root_of_matrix")
    return transpose(lower, -1, -2) if upper else lower


@method
def _rooted(self: T, n: int) -> T:
    """Return symmetric matrices after their first column has become that of the factor.

    Its multiples are taken from the other columns, and it moves behind them with its row, which is 0 where
    columns are left. So rows and columns that are done have zeros where they meet those that are not.
    """
    first, across = column(self, 0), rows(self, 0)
    size = sqrt(rows(first, 0))
    down, right = (where(eq(t, 0.0), 0.0, div(t, size)) for t in (first, transpose(first, -1, -2)))
    rest = where(eq(down, 0.0), self, where(eq(right, 0.0), self, sub(self, mul(down, right))))
    above, rest = where(eq(right, 0.0), across, 0.0), column(rows(rest, 1, n), 1, n)
    return stored((rest, rows(down, 1, n)), (column(above, 1, n), rows(down, 0)))


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
    return cat(x, mul(column(x, 0), 0.0), axis=-1) if n % 2 else x


@method
def _turned(self: T, m: int) -> T:
    """Return the columns after one round of Jacobi rotations, in the order of the next round.

    Column i of the left half and column i of the right one are a pair: a rotation makes their first m rows
    orthogonal. The first column stays, and the others move on by one place of a ring that runs along the left
    half and back along the right one, so that n - 1 rounds of n columns have all pairs, and the first order.
    """
    h = self.expr.shape[-1] // 2
    a, b = column(self, 0, h), column(self, h, 2 * h)
    up, vp = rows(a, 0, m), rows(b, 0, m)
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
        first, last = cat(column(left, 0), column(right, 0), axis=-1), column(left, h - 1)
        left, right = cat(first, column(left, 1, h - 1), axis=-1), cat(column(right, 1, h), last, axis=-1)
    return apply(Ops.CONTIGUOUS, None, cat(left, right, axis=-1))


def _rotated(self: T) -> T:
    """Return self @ V above V, where V is orthogonal and the columns of self @ V are orthogonal (Jacobi).

    The number of rounds is that of six or more sweeps over all pairs, and depends on n alone.
    """
    *_, m, n = self.expr.shape
    rounds = max(6, 2 * math.ceil(math.log2(max(2, n))) + 3) * (n + n % 2 - 1) if n else 0
    x = stepped(_beside_unit(self), _turned, rounds, m)
    return column(x, 0, n) if n % 2 else x


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
    work, v = rows(both, 0, m), rows(both, m, m + n)
    size, order = sort(sqrt(reductions.sum(mul(work, work), -2)), -1, True)
    at = unsqueeze(order, -2)
    work, v = (gather(x, -1, expand(at, x.expr.shape)) for x in (work, v))
    none = unsqueeze(eq(size, 0.0), -2)
    u = where(none, 0.0, div(work, where(none, 1.0, unsqueeze(size, -2))))
    both = with_rule(cat(u, v, axis=-2), self, rule="singular_vectors")
    u, v = rows(both, 0, m), rows(both, m, m + n)
    s = with_rule(reductions.sum(mul(u, matmul(self, v)), -2), self, both, rule="singular_values")
    if not some and m != n:
        q = stopped(qr(u, "complete").Q)
        u = cat(where(none, column(q, 0, n), u), column(q, n, m), axis=-1)
    return Singular(u, s, v)


@composite
def taken_as_symmetric(self: T) -> T:
    """Return symmetric matrices made of the lower triangles; the gradient is that of PyTorch, unchanged."""
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
    vectors = with_rule(stopped(flipped(found.V, -1)), self, rule="eigenvectors", upper=upper)
    values = sub(flipped(found.S, -1), squeeze(shift, -1))
    return with_rule(stopped(values), self, vectors, rule="eigenvalues"), vectors


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
    scale = where(large, div(number_like(s, 1.0), where(large, s, 1.0)), 0.0)
    found = matmul(mul(v, unsqueeze(scale, -2)), transpose(u, -1, -2))
    return with_rule(stopped(found), self, rule="pseudoinverse")


@converting
def matrix_power(self: T, n: int) -> T:
    """Return the n-th power of square matrices: unit matrices for 0, powers of the inverses for a negative n.

    Raises as `inverse` for a negative n.
    """
    power = whole(n, "matrix_power")
    return power_of(inverse(self), -power) if power < 0 else power_of(self, power)


@method
def norm(
    self: T, p: float | str = 2.0, axis: Axes = None, keepdim: bool = False, dtype: DType | str | None = None
) -> T:
    """Return the p-norm over axes, of the values in `dtype` if that is given; None: of all elements.

    p is a number, infinity (the greatest magnitude), -infinity (the least), 0 (the number of elements that
    are not 0), "fro" (2), or over two axes "nuc" (the sum of the singular values). Raises `UsageError` for
    integers, for another text, and for "nuc" over another number of axes.
    """
    shape, self = self.expr.shape, reductions.as_dtype(self, dtype)
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
