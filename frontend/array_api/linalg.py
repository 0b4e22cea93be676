"""The linear algebra extension of the array API standard.

Eigenvalues of matrices that are not symmetric are missing: they are complex.

Not here: the algorithms (`frontend.ops.decompositions`).
"""

# ruff: noqa: FBT001, FBT002 - the field's signatures

from __future__ import annotations

import math
from typing import Any, NamedTuple

from frontend.arguments.aliases import answer_module
from frontend.arguments.checks import axis_of, is_pair
from frontend.arguments.conversion import flag
from frontend.array_api.data_types import finfo
from frontend.array_api.elementwise import agreed
from frontend.array_api.statistics import sum_dtype
from frontend.ops import decompositions, linalg
from frontend.tensor import Tensor
from hcq.errors import UsageError


class QRResult(NamedTuple):
    """An orthogonal and an upper triangular matrix."""

    Q: Tensor
    R: Tensor


class SlogdetResult(NamedTuple):
    """The sign of a determinant and the logarithm of its absolute value."""

    sign: Tensor
    logabsdet: Tensor


class SVDResult(NamedTuple):
    """U, S and the transpose of V."""

    U: Tensor
    S: Tensor
    Vh: Tensor


class EighResult(NamedTuple):
    """Eigenvalues, the least first, and their vectors as columns."""

    eigenvalues: Tensor
    eigenvectors: Tensor


def matmul(x1: Tensor, x2: Tensor, /) -> Tensor:
    """Return the matrix product."""
    a, b = agreed(x1, x2, "matmul")
    return a.matmul(b).cast(a.dtype)


def matrix_transpose(x: Tensor, /) -> Tensor:
    """Return the last two axes swapped."""
    return x.adjoint()


def tensordot(x1: Tensor, x2: Tensor, /, *, axes: Any = 2) -> Tensor:
    """Return the sum of products over axes."""
    a, b = agreed(x1, x2, "tensordot")
    return a.tensordot(b, axes).cast(a.dtype)


def vecdot(x1: Tensor, x2: Tensor, /, *, axis: int = -1) -> Tensor:
    """Return the sum of products along one axis; the others broadcast."""
    a, b = agreed(x1, x2, "vecdot")
    first, second = a.movedim(axis, -1), b.movedim(axis, -1)
    if first.shape[-1] != second.shape[-1]:
        raise UsageError(f"vecdot: axis {axis} of {a.shape} and {b.shape} must be equal")
    found: Tensor = (first * second).sum(-1, dtype=a.dtype).cast(a.dtype)
    return found


def cholesky(x: Tensor, /, *, upper: bool = False) -> Tensor:
    """Return the lower, or upper, triangular root of positive definite matrices."""
    return x.cholesky(upper)


def cross(x1: Tensor, x2: Tensor, /, *, axis: int = -1) -> Tensor:
    """Return the vector product."""
    a, b = agreed(x1, x2, "cross")
    if {x.shape[axis_of(axis, x.shape, "cross")] for x in (a, b)} != {3}:
        raise UsageError(f"cross: wanted size 3 of axis {axis}, saw the shapes {a.shape} and {b.shape}")
    return a.cross(b, axis)


def det(x: Tensor, /) -> Tensor:
    """Return determinants."""
    return x.det()


def diagonal(x: Tensor, /, *, offset: int = 0) -> Tensor:
    """Return a diagonal of the last two axes."""
    return x.diagonal(offset, -2, -1)


def inv(x: Tensor, /) -> Tensor:
    """Return inverses."""
    return x.inverse()


def matrix_norm(
    x: Tensor, /, ord: Any = "fro", axis: Any = (-2, -1), keepdims: bool = False, *, dtype: Any = None
) -> Tensor:
    """Return norms of matrices: fro, nuc, 1, -1, 2, -2, or an infinity.

    The standard has `keepdims` and `ord` by name; the axes of the matrices and `dtype` are PyTorch's.
    """
    x = x if dtype is None else x.cast(dtype)
    if axis != (-2, -1):
        if not is_pair(axis):
            raise UsageError(f"matrix_norm: wanted two axes, saw {axis!r}")
        pair = [axis_of(a, x.shape, "matrix_norm") for a in axis]
        found = matrix_norm(x.movedim(pair, (-2, -1)), ord, keepdims=keepdims)
        return found.movedim((-2, -1), pair) if keepdims else found
    if ord == "fro":
        return x.norm(2, (-2, -1), keepdims)
    if ord in {1, -1, math.inf, -math.inf}:
        columns = abs(ord) == 1
        sums = x.abs().sum(-2 if columns else -1, keepdim=True)
        return sums.amax((-2, -1), keepdims) if ord > 0 else sums.amin((-2, -1), keepdims)
    if ord not in {"nuc", 2, -2}:
        raise UsageError(f"matrix_norm: wanted fro, nuc, 1, -1, 2, -2 or an infinity, saw {ord!r}")
    s = svdvals(x)
    found = s.sum(-1) if ord == "nuc" else s.amax(-1) if ord == 2 else s.amin(-1)
    return found.unsqueeze(-1).unsqueeze(-1) if keepdims else found


def matrix_power(x: Tensor, n: int, /) -> Tensor:
    """Return powers of square matrices."""
    return x.matrix_power(n)


def matrix_rank(
    x: Tensor,
    /,
    tol: Any = None,
    *,
    atol: Tensor | float | None = None,
    rtol: Tensor | float | None = None,
    hermitian: bool = False,
) -> Tensor:
    """Return how many singular values are greater than rtol times the greatest, and than atol.

    The standard has `rtol` alone; `tol` is another name of `atol`; of `hermitian` the lower half is read.
    """
    atol = tol if atol is None else atol
    s = svdvals(linalg.symmetric(x, upper=False) if flag(hermitian, "matrix_rank, hermitian") else x)
    if rtol is None:
        rtol = max(x.shape[-2:]) * finfo(x.dtype).eps if atol is None else 0.0
    least, share = (t.unsqueeze(-1) if isinstance(t, Tensor) else t for t in (atol, rtol))
    limit = (s.amax(-1, True) if s.shape[-1] else s.sum(-1, True)) * share
    large: Tensor = s > (limit if least is None else limit.maximum(least))
    return large.sum(-1, dtype="int32")


def outer(x1: Tensor, x2: Tensor, /) -> Tensor:
    """Return the products of each element of one vector with each of another."""
    a, b = agreed(x1, x2, "outer")
    return a.outer(b)


def pinv(
    x: Tensor,
    /,
    rcond: Any = None,
    *,
    atol: Tensor | float | None = None,
    rtol: Tensor | float | None = None,
    hermitian: bool = False,
) -> Tensor:
    """Return Moore-Penrose inverses; singular values up to rtol times the greatest, or atol, count as 0.

    The standard has `rtol` alone; `rcond` is another name of it; of `hermitian` ones the lower half is read.
    """
    x = decompositions.taken_as_symmetric(x) if flag(hermitian, "pinv, hermitian") else x
    return x.pinverse(rcond if rtol is None else rtol, atol=atol)


def qr(x: Tensor, /, *, mode: str = "reduced") -> QRResult:
    """Return orthogonal and upper triangular factors."""
    return QRResult(*x.qr(mode))


def slogdet(x: Tensor, /) -> SlogdetResult:
    """Return signs of determinants and logarithms of their absolute values."""
    return SlogdetResult(*x.slogdet())


def solve(x1: Tensor, x2: Tensor, /) -> Tensor:
    """Return the solution of x1 @ x = x2."""
    a, b = agreed(x1, x2, "solve")
    return a.solve(b)


def svd(x: Tensor, /, *, full_matrices: bool = True) -> SVDResult:
    """Return singular values and vectors; full matrices of square ones alone (`UsageError`)."""
    u, s, v = x.svd(not full_matrices)
    return SVDResult(u, s, v.adjoint())


def svdvals(x: Tensor, /) -> Tensor:
    """Return singular values, the greatest first."""
    return x.svd().S


def eigh(x: Tensor, /, UPLO: str = "L") -> EighResult:  # noqa: N803 - the field's name
    """Return eigenvalues and vectors of symmetric matrices, of which `UPLO` names the half that is read."""
    if UPLO not in {"L", "U"}:
        raise UsageError(f"wanted the half UPLO 'L' or 'U', saw {UPLO!r}")
    return EighResult(*decompositions.eigh(x, upper=UPLO == "U"))


def eigvalsh(x: Tensor, /, UPLO: str = "L") -> Tensor:  # noqa: N803 - the field's name
    """Return the eigenvalues of symmetric matrices, the least first."""
    return eigh(x, UPLO).eigenvalues


def trace(x: Tensor, /, *, offset: int = 0, dtype: Any = None) -> Tensor:
    """Return sums of a diagonal of the last two axes."""
    return x.diagonal(offset, -2, -1).sum(-1, dtype=sum_dtype(x.dtype) if dtype is None else dtype)


def vector_norm(
    x: Tensor, /, ord: float = 2, axis: Any = None, keepdims: bool = False, *, dtype: Any = None
) -> Tensor:
    """Return p-norms over axes. The standard has the arguments by name; `dtype` is PyTorch's."""
    return (x if dtype is None else x.cast(dtype)).norm(float(ord), axis, keepdims)


answer_module(globals(), __name__)  # PyTorch's `dim` and `keepdim`
