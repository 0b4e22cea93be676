"""Checks that matrices are regular, or positive definite; they raise `LinAlgError`, as PyTorch.

A check computes one bool on the device and waits for it. Values cannot be read inside traced methods,
gradients and captured functions: there nothing is checked.

Not here: the decompositions (`decompositions`). Next: `linalg`, products of matrices.
"""

from __future__ import annotations

from compiler.dtype import dtypes
from compiler.ir.ops import Ops
from frontend.evaluation.base import T, TensorBase
from frontend.evaluation.constants import constant, coordinate
from frontend.evaluation.history import realize_for_reading
from frontend.evaluation.plan import CAPTURE
from frontend.evaluation.printing import described
from frontend.evaluation.storage import Leaf
from frontend.evaluation.trace import apply, method
from frontend.ops.arithmetic import div
from frontend.ops.elementwise import eq, gt, lt, mul, sub, where
from frontend.ops.functions import abs as absolute
from frontend.ops.linalg import diagonal
from frontend.ops.reductions import all as every
from frontend.ops.reductions import any as some
from frontend.ops.reductions import argmax
from frontend.ops.reductions import sum as total
from frontend.ops.splitting import part
from hcq.errors import UsageError


class LinAlgError(UsageError):
    """A matrix is singular, or not positive definite, where a function needs one that is."""


def refuse_singular(x: TensorBase, what: str) -> None:
    """Raise `LinAlgError` if a matrix of x is singular: a pivot is 0, rows being exchanged as LAPACK does."""
    if _is_readable(x) and _has_zero_pivot(x).item():
        raise LinAlgError(f"{what}: wanted regular matrices, saw a singular one in {described(x)}")


def refuse_indefinite(root: TensorBase, what: str) -> None:
    """Raise `LinAlgError` if a diagonal element of a Cholesky factor is not above 0."""
    if _is_readable(root) and not _is_positive(root).item():
        raise LinAlgError(
            f"{what}: wanted positive definite matrices, saw one that is not, of the shape {root.expr.shape}"
        )


def _is_readable(x: TensorBase) -> bool:
    """Return whether the values of x can be read; compute x then."""
    if CAPTURE.now is not None or 0 in x.expr.shape or any(leaf.__class__ is not Leaf for leaf in x.leaves):
        return False
    realize_for_reading(x)
    return True


@method
def _is_positive(self: T) -> T:
    return every(gt(diagonal(self, 0, -2, -1), 0.0))


@method
def _has_zero_pivot(self: T) -> T:
    """Return whether a pivot is 0 in Gaussian elimination; a column's greatest element is its pivot."""
    x, n, rank = self, self.expr.shape[-1], len(self.expr.shape)
    zero = constant(self, False, dtypes.bool, ())
    for i in range(n):
        place = coordinate(x, (*x.expr.shape[:-1], 1), rank - 2)
        column = part(x, rank - 1, i, i + 1)
        chosen = eq(place, argmax(where(lt(place, i), -1.0, absolute(column)), rank - 2, keepdim=True))
        row = total(where(chosen, x, 0.0), rank - 2, keepdim=True)
        pivot = part(row, rank - 1, i, i + 1)
        none = eq(pivot, 0.0)
        zero = apply(Ops.OR, None, zero, some(none))
        x = where(eq(place, i), row, where(chosen, part(x, rank - 2, i, i + 1), x))
        by = div(part(x, rank - 1, i, i + 1), where(none, 1.0, pivot))
        x = apply(Ops.CONTIGUOUS, None, sub(x, where(gt(place, i), mul(by, row), 0.0)))
    return zero
