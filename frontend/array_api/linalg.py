"""The linear algebra extension of the array API standard.

A matrix is the last two axes of an array; the axes before are a batch. Factorisations and norms take float32
and float64, and raise `UsageError` for other dtypes and for matrices of another shape than the function
needs. An axis that does not exist raises `UsageIndexError`, arguments of other classes `UsageTypeError`.
Eigenvalues of matrices that are not symmetric are missing, as they are complex.

Not here: the algorithms (`frontend.ops.decompositions`), products of PyTorch's names (`frontend.ops.linalg`).
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
from frontend.ops import decompositions, elimination, linalg
from frontend.tensor import Tensor
from hcq.errors import UsageError


class SVDResult(NamedTuple):
    """U, the singular values S, the greatest first, and the transpose of V: x = U @ diag(S) @ Vh."""

    U: Tensor
    S: Tensor
    Vh: Tensor


class EighResult(NamedTuple):
    """Eigenvalues, the least first, and the eigenvectors, as columns in the same order."""

    eigenvalues: Tensor
    eigenvectors: Tensor


def matmul(x1: Tensor, x2: Tensor, /) -> Tensor:
    """Return the matrix product (..., n, k) @ (..., k, m), or with vectors, in the dtype of both operands.

    Raises `UsageError` where the sizes k differ or the batches do not broadcast.
    """
    a, b = agreed(x1, x2, "matmul")
    return a.matmul(b)


def matrix_transpose(x: Tensor, /) -> Tensor:
    """Return x with the last two axes exchanged."""
    return x.adjoint()


def tensordot(x1: Tensor, x2: Tensor, /, *, axes: Any = 2) -> Tensor:
    """Return sums of products over the last `axes` axes of x1 and the first of x2, or over pairs of axes."""
    a, b = agreed(x1, x2, "tensordot")
    return a.tensordot(b, axes)


def vecdot(x1: Tensor, x2: Tensor, /, *, axis: int = -1) -> Tensor:
    """Return the sum of products along one axis; the other axes broadcast.

    Raises `UsageError` where the sizes of that axis differ.
    """
    a, b = agreed(x1, x2, "vecdot")
    first, second = a.movedim(axis, -1), b.movedim(axis, -1)
    if first.shape[-1] != second.shape[-1]:
        raise UsageError(f"vecdot: axis {axis} of {a.shape} and {b.shape} must be equal")
    found: Tensor = (first * second).sum(-1, dtype=a.dtype).cast(a.dtype)
    return found


def cholesky(x: Tensor, /, *, upper: bool = False) -> Tensor:
    """Return the lower triangular L with L @ L.T = x, or with `upper` its transpose.

    Raises `UsageError` for matrices that are not positive definite; it reads the result to find out.
    """
    return x.cholesky(upper)


def cross(x1: Tensor, x2: Tensor, /, *, axis: int = -1) -> Tensor:
    """Return the vector product along an axis of size 3. Raises `UsageError` for another size."""
    a, b = agreed(x1, x2, "cross")
    if {x.shape[axis_of(axis, x.shape, "cross")] for x in (a, b)} != {3}:
        raise UsageError(f"cross: wanted size 3 of axis {axis}, saw the shapes {a.shape} and {b.shape}")
    return a.cross(b, axis)


def det(x: Tensor, /) -> Tensor:
    """Return the determinants of square matrices."""
    return x.det()


def diagonal(x: Tensor, /, *, offset: int = 0) -> Tensor:
    """Return diagonal `offset` of the last two axes; positive ones lie above the main diagonal."""
    return x.diagonal(offset, -2, -1)


def inv(x: Tensor, /) -> Tensor:
    """Return the inverses of square matrices. Raises `UsageError` for a singular matrix."""
    return x.inverse()


def matrix_norm(
    x: Tensor, /, ord: Any = "fro", axis: Any = (-2, -1), keepdims: bool = False, *, dtype: Any = None
) -> Tensor:
    """Return norms of matrices: "fro", "nuc", 1, -1, 2, -2, or an infinity.

    "fro" is the root of the sum of squares; "nuc" the sum of singular values; 1 and infinity the greatest sum
    of magnitudes of a column and of a row; 2 the greatest singular value; a negative order the least instead
    of the greatest. `axis` (the two axes of the matrices) and `dtype` are PyTorch's. Raises `UsageError` for
    another order and for anything but two axes.
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
    """Return the n-th powers of square matrices; a negative n inverts them first, as `inv`."""
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
    """Return, as int64, how many singular values exceed both `rtol` times the greatest one and `atol`.

    Without either, `rtol` is the larger side of the matrix times the dtype's eps. With `hermitian` only the
    lower triangles are read. `atol`, its other name `tol`, and `hermitian` are PyTorch's.
    """
    atol = tol if atol is None else atol
    s = svdvals(linalg.symmetric(x, upper=False) if flag(hermitian, "matrix_rank, hermitian") else x)
    if rtol is None:
        rtol = max(x.shape[-2:]) * finfo(x.dtype).eps if atol is None else 0.0
    least, share = (t.unsqueeze(-1) if isinstance(t, Tensor) else t for t in (atol, rtol))
    limit = (s.amax(-1, True) if s.shape[-1] else s.sum(-1, True)) * share
    large: Tensor = s > (limit if least is None else limit.maximum(least))
    return large.sum(-1)


def outer(x1: Tensor, x2: Tensor, /) -> Tensor:
    """Return the matrix of the products of each element of x1 with each element of x2, two vectors."""
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
    """Return Moore-Penrose inverses.

    Singular values up to `rtol` times the greatest, or up to `atol`, count as 0. With `hermitian` only the
    lower triangles are read. `rcond`, another name of `rtol`, `atol` and `hermitian` are PyTorch's.
    """
    x = decompositions.taken_as_symmetric(x) if flag(hermitian, "pinv, hermitian") else x
    return x.pinverse(rcond if rtol is None else rtol, atol=atol)


def qr(x: Tensor, /, *, mode: str = "reduced") -> decompositions.Factors[Tensor]:
    """Return Q and R with x = Q @ R.

    Q of an (m, n) matrix is (m, min(m, n)), for `mode` "complete" (m, m), for "r" empty.
    """
    found = x.qr("reduced" if mode == "r" else mode)
    return found._replace(Q=Tensor.zeros(0, dtype=x.dtype, device=x.device)) if mode == "r" else found


def slogdet(x: Tensor, /) -> elimination.Determinant[Tensor]:
    """Return signs of determinants and logarithms of their absolute values."""
    return x.slogdet()


def solve(x1: Tensor, x2: Tensor, /) -> Tensor:
    """Return the solution of x1 @ x = x2; x2 is a vector or a batch of matrices. Raises as `inv`."""
    a, b = agreed(x1, x2, "solve")
    return a.solve(b)


def svd(x: Tensor, /, *, full_matrices: bool = True) -> SVDResult:
    """Return singular values and vectors.

    U has m and Vh n vectors for (m, n) matrices; without `full_matrices`, min(m, n) each.
    """
    u, s, v = x.svd(not full_matrices)
    return SVDResult(u, s, v.adjoint())


def svdvals(x: Tensor, /) -> Tensor:
    """Return singular values, the greatest first."""
    return x.svd().S


def eigh(x: Tensor, /, UPLO: str = "L") -> EighResult:  # noqa: N803 - the field's name
    """Return eigenvalues and eigenvectors of symmetric matrices.

    Only one triangle is read: the lower one for `UPLO` "L", the upper one for "U". Another text raises
    `UsageError`.
    """
    if UPLO not in {"L", "U"}:
        raise UsageError(f"wanted the half UPLO 'L' or 'U', saw {UPLO!r}")
    return EighResult(*decompositions.eigh(x, upper=UPLO == "U"))


def eigvalsh(x: Tensor, /, UPLO: str = "L") -> Tensor:  # noqa: N803 - the field's name
    """Return the eigenvalues of symmetric matrices, the least first. Raises as `eigh`."""
    return eigh(x, UPLO).eigenvalues


def trace(x: Tensor, /, *, offset: int = 0, dtype: Any = None) -> Tensor:
    """Return the sum of diagonal `offset` of the last two axes; integers give 64 bits."""
    return x.diagonal(offset, -2, -1).sum(-1, dtype=sum_dtype(x.dtype) if dtype is None else dtype)


def vector_norm(
    x: Tensor, /, ord: float = 2, axis: Any = None, keepdims: bool = False, *, dtype: Any = None
) -> Tensor:
    """Return norms of order `ord` over axes; None: over all. 0 counts elements that are not 0.

    `dtype` is PyTorch's.
    """
    return (x if dtype is None else x.cast(dtype)).norm(float(ord), axis, keepdims)


answer_module(globals(), __name__)  # PyTorch's `dim` and `keepdim`
