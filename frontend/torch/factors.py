"""PyTorch's packed factors of matrices, and functions that read values, as methods.

Matrices are the last two axes. Raises `UsageError` for other shapes and dtypes, `UsageTypeError` for
arguments of other classes.

Not here: other factors (`frontend.ops.decompositions`). Next: `frontend.torch.linalg`, the computation.
"""

# ruff: noqa: FBT001, FBT002 - the field's signatures

from __future__ import annotations

from typing import Any, NamedTuple

from frontend.arguments.checks import tensor, whole
from frontend.arguments.conversion import converting, flag
from frontend.evaluation.base import T, TensorBase
from frontend.later import later
from hcq.errors import UsageError

_linalg, _functions = later("frontend.torch.linalg"), later("frontend.torch.functions")


def _checked(x: TensorBase, what: str, like: TensorBase) -> Any:
    tensor(x, what, like)
    if len(x.expr.shape) < 2 or not x.expr.dtype.is_float:
        raise UsageError(f"{what}: wanted matrices of floats, saw {x.expr.dtype.name}{list(x.expr.shape)}")
    return x


class Triangular(NamedTuple):
    """The result of `triangular_solve`."""

    solution: Any
    cloned_coefficient: Any


@converting
def matrix_exp(self: T) -> T:
    """Return the exponential of each matrix, by scaling and a series; reads the greatest norm."""
    x: Any = _checked(self, "matrix_exp", self)
    found: T = _linalg.matrix_exp(x) if 0 not in x.shape else x
    return found


@converting
def lu(self: T) -> tuple[T, T]:
    """Return (both triangular factors in one matrix, pivots) of each matrix: `linalg.lu_factor`."""
    factors, pivots = _linalg.lu_factor(_checked(self, "lu", self))
    return factors, pivots


@converting
def lu_solve(self: T, LU_data: T, LU_pivots: T) -> T:  # noqa: N803 - PyTorch's names
    """Return X with A @ X = self for the factors of A that `lu` gives."""
    tensor(LU_pivots, "lu_solve, LU_pivots", self)
    _checked(self, "lu_solve", self)
    found: T = _linalg.lu_solve(_checked(LU_data, "lu_solve", self), LU_pivots, self)
    return found


@converting
def orgqr(self: T, tau: T) -> T:
    """Return the product of the reflections that the columns of self and `tau` describe."""
    tensor(tau, "orgqr, tau", self)
    own, given = _checked(self, "orgqr", self).expr.shape, tau.expr.shape
    fits = given[:-1] == own[:-2] and given[-1:] <= own[-1:] and own[-1] <= own[-2]
    if not given or not fits or tau.expr.dtype is not self.expr.dtype:
        raise UsageError(f"orgqr: tau {given} does not fit the columns of {own}")
    found: T = _linalg.householder_product(self, tau)
    return found


@converting
def triangular_solve(
    self: T,
    A: T,  # noqa: N803 - PyTorch's name
    upper: bool = True,
    transpose: bool = False,
    unitriangular: bool = False,
) -> Triangular:
    """Return (X with A @ X = self, A) for triangular A, of which one half is read; `transpose`: A.T."""
    for value in (upper, transpose, unitriangular):
        flag(value, "triangular_solve")
    a, right = _checked(A, "triangular_solve", self), _checked(self, "triangular_solve", self)
    a, half = (a.adjoint(), not upper) if transpose else (a, upper)
    return Triangular(_linalg.solve_triangular(a, right, upper=half, unitriangular=unitriangular), A)


@converting
def polygamma(self: T, n: int) -> T:
    """Return the n-th derivative of `digamma`. Raises `UsageError` for a negative n."""
    if whole(n, "polygamma, n") > 100 or not (self.expr.dtype.is_float or self.expr.dtype.is_int):
        raise UsageError(f"polygamma: wanted n up to 100 and numbers, saw {n} and {self.expr.dtype.name}")
    found: T = _functions.polygamma(n, self)
    return found
