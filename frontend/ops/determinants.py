"""Determinants of square matrices: det, slogdet, logdet.

Householder's reflections make a matrix triangular (`factors.reduced`), with exchanges of columns, so that
gradients are right at singular matrices, too: those of `det` are the cofactors. Second derivatives are right
where the rank is at least n - 1.

Not here: the reflections (`factors`).
"""

from __future__ import annotations

from typing import Generic, NamedTuple

from frontend.ops import reduce
from frontend.ops.diagonals import diagonal
from frontend.ops.elementwise import add, eq, mul, where
from frontend.ops.factors import check_matrices, reduced
from frontend.ops.functions import abs as absolute
from frontend.ops.functions import log, sign
from frontend.ops.movement import reshape, squeeze
from frontend.ops.sources import coordinate
from frontend.parameters import converting
from frontend.tensor_base import T
from frontend.trace import method


class Determinant(NamedTuple, Generic[T]):
    """The sign of a determinant and the logarithm of its absolute value."""

    sign: T
    logabsdet: T


@method
def _signed_diagonal(self: T) -> T:
    """Return the diagonal of R, whose product is the determinant: the first has the sign of det(Q)."""
    n = self.expr.shape[-1]
    if not n:
        return reshape(add(reduce.sum(self, (-2, -1)), 1.0), (*self.expr.shape[:-2], 1))
    x, turns = reduced(self, n, exchange=True)
    found = diagonal(x, 0, -2, -1)
    first = eq(coordinate(found, found.expr.shape, len(found.expr.shape) - 1), 0)
    return mul(found, where(first, squeeze(turns, -1), 1.0))


@method
def det(self: T) -> T:
    """Return the determinants of square matrices."""
    check_matrices(self, "det", square=True)
    return reduce.prod(_signed_diagonal(self), -1)


@converting
def slogdet(self: T) -> Determinant[T]:
    """Return the signs of determinants and the logarithms of their absolute values."""
    check_matrices(self, "slogdet", square=True)
    found = _signed_diagonal(self)
    return Determinant(reduce.prod(sign(found), -1), reduce.sum(log(absolute(found)), -1))


@method
def logdet(self: T) -> T:
    """Return the logarithms of determinants; NaN of negative ones."""
    return log(det(self))
