"""The linear algebra extension of the array API standard.

Eigenvalues of matrices that are not symmetric are missing: they are complex.

Not here: the algorithms (`frontend.ops.factors`).
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from frontend.array_api.data_types import finfo
from frontend.array_api.elementwise import agreed
from frontend.array_api.statistics import sum_dtype
from frontend.ops import factors
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
    if a.shape[axis] != 3 or b.shape[axis] != 3:
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


def matrix_norm(x: Tensor, /, *, keepdims: bool = False, ord: Any = "fro") -> Tensor:
    """Return norms of matrices: fro, nuc, 1, -1, 2, -2, or an infinity."""
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


def _share(x: Tensor, rtol: Any) -> Any:
    """Return the share of the greatest singular value that counts as 0: a number, or one for each matrix."""
    if rtol is None:
        return max(x.shape[-2:]) * finfo(x.dtype).eps
    return rtol.unsqueeze(-1) if isinstance(rtol, Tensor) else rtol


def matrix_rank(x: Tensor, /, *, rtol: Tensor | float | None = None) -> Tensor:
    """Return how many singular values are greater than rtol times the greatest."""
    s = svdvals(x)
    large: Tensor = s > s.amax(-1, True) * _share(x, rtol)
    return large.sum(-1, dtype="int32")


def outer(x1: Tensor, x2: Tensor, /) -> Tensor:
    """Return the products of each element of one vector with each of another."""
    a, b = agreed(x1, x2, "outer")
    return a.outer(b)


def pinv(x: Tensor, /, *, rtol: Tensor | float | None = None) -> Tensor:
    """Return Moore-Penrose inverses; singular values up to rtol times the greatest count as 0."""
    return x.pinverse(rtol)


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


def eigh(x: Tensor, /) -> EighResult:
    """Return eigenvalues and vectors of symmetric matrices, whose upper half is not read."""
    return EighResult(*factors.eigh(x))


def eigvalsh(x: Tensor, /) -> Tensor:
    """Return the eigenvalues of symmetric matrices, the least first."""
    return eigh(x).eigenvalues


def trace(x: Tensor, /, *, offset: int = 0, dtype: Any = None) -> Tensor:
    """Return sums of a diagonal of the last two axes."""
    return x.diagonal(offset, -2, -1).sum(-1, dtype=sum_dtype(x.dtype) if dtype is None else dtype)


def vector_norm(x: Tensor, /, *, axis: Any = None, keepdims: bool = False, ord: float = 2) -> Tensor:
    """Return p-norms over axes."""
    return x.norm(float(ord), axis, keepdims)
