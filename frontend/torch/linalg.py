"""Linear algebra under PyTorch's names: `torch.linalg`.

Most functions are those of `frontend.array_api.linalg`; the rest is here. Eigenvalues of matrices that are
not symmetric are missing, as they are complex. Shapes, orders and dtypes that a function does not take raise
`UsageError`. Not here: products (`frontend.ops.products`). Next: `frontend.array_api.linalg`.
"""

# ruff: noqa: FBT001, FBT002 - PyTorch's signatures

from __future__ import annotations

import functools
import math
from typing import Any, NamedTuple

from frontend.arguments.aliases import answer_module
from frontend.array_api.linalg import (
    cholesky,
    cross,
    det,
    eigh,
    eigvalsh,
    inv,
    matmul,
    matrix_norm,
    matrix_power,
    matrix_rank,
    pinv,
    qr,
    slogdet,
    solve,
    svd,
    svdvals,
    vecdot,
    vector_norm,
)  # fmt: skip
from frontend.tensor import Tensor
from hcq.errors import UsageError

__all__ = [
    "cholesky", "cross", "det", "diagonal", "eigh", "eigvalsh", "inv", "lstsq", "matmul", "matrix_norm",
    "matrix_power", "matrix_rank", "multi_dot", "norm", "pinv", "qr", "slogdet", "solve", "solve_triangular",
    "svd", "svdvals", "tensorinv", "tensorsolve", "vander", "vecdot", "vector_norm",
]  # fmt: skip


class LstsqResult(NamedTuple):
    """Solutions (..., n, k), sums of squared residuals (..., k), ranks and singular values; see `lstsq`."""

    solution: Tensor
    residuals: Tensor
    rank: Tensor
    singular_values: Tensor


def norm(
    A: Tensor,  # noqa: N803 - PyTorch's name
    ord: Any = None,
    dim: Any = None,
    keepdim: bool = False,
    *,
    dtype: Any = None,
) -> Tensor:
    """Return `vector_norm` along one axis, or of a vector, `matrix_norm` over two, or of a matrix.

    Without `ord` it is the root of the sum of squares, over all axes if `dim` is None.
    """
    if ord is None or not (isinstance(dim, (tuple, list)) or (dim is None and A.ndim == 2)):
        if ord is not None and dim is None and A.ndim != 1:
            raise UsageError(f"linalg.norm: ord={ord!r} wants a vector or a matrix, saw the shape {A.shape}")
        return vector_norm(A, 2 if ord is None else ord, dim, keepdim, dtype=dtype)
    if dim is not None and len(dim) == 1:
        return vector_norm(A, ord, dim[0], keepdim, dtype=dtype)
    return matrix_norm(A, ord, (-2, -1) if dim is None else tuple(dim), keepdim, dtype=dtype)


def diagonal(A: Tensor, *, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Tensor:  # noqa: N803 - as above
    """Return diagonals of matrices; see `Tensor.diagonal`."""
    return A.diagonal(offset, dim1, dim2)


def multi_dot(tensors: Any) -> Tensor:
    """Return the product of matrices, in the cheapest order; the first and the last may be vectors.

    Raises `UsageError` for fewer than two tensors and for sizes that do not fit.
    """
    every = list(tensors)
    if len(every) < 2:
        raise UsageError(f"multi_dot: wanted at least two tensors, saw {len(every)}")
    sides = [
        t.shape if t.ndim == 2 else (1, *t.shape) if i == 0 else (*t.shape, 1) for i, t in enumerate(every)
    ]
    sizes = [sides[0][0], *[s[1] for s in sides]]

    @functools.cache
    def cheapest(i: int, j: int) -> tuple[int, int]:
        """Return the cost of the product of tensors i to j, and the last tensor of its left factor."""
        if i == j:
            return 0, i
        return min(
            (cheapest(i, k)[0] + cheapest(k + 1, j)[0] + sizes[i] * sizes[k + 1] * sizes[j + 1], k)
            for k in range(i, j)
        )

    def product(i: int, j: int) -> Tensor:
        k = cheapest(i, j)[1]
        return every[i] if i == j else product(i, k) @ product(k + 1, j)

    return product(0, len(every) - 1)


def solve_triangular(
    A: Tensor,  # noqa: N803 - as above
    B: Tensor,  # noqa: N803 - as above
    *,
    upper: bool,
    left: bool = True,
    unitriangular: bool = False,
) -> Tensor:
    """Return X with A @ X = B, without `left` X @ A = B, for triangular A, of which one half is read.

    With `unitriangular` the diagonal counts as ones.
    """
    half = A.triu(int(unitriangular)) if upper else A.tril(-int(unitriangular))
    if unitriangular:
        half = half + Tensor.eye(A.shape[-1], dtype=A.dtype, device=A.device)
    return half.solve(B) if left else half.adjoint().solve(B.adjoint()).adjoint()


def lstsq(
    A: Tensor,  # noqa: N803 - as above
    B: Tensor,  # noqa: N803 - as above
    rcond: float | None = None,
    *,
    driver: str | None = None,
) -> LstsqResult:
    """Return the X of (..., m, n) A and (..., m, k) or (m,) B that makes A @ X - B least, by pseudo-inverses.

    What PyTorch's `driver`, None: "gelsy", does not give is empty here, too: residuals, the rank, or the
    singular values. Residuals need m > n and full rank.
    """
    if driver not in {None, "gels", "gelsy", "gelsd", "gelss"}:
        raise UsageError(f"lstsq, driver: wanted gels, gelsy, gelsd or gelss, saw {driver!r}")
    vector = B.ndim == 1 or (B.ndim == A.ndim - 1 and B.shape == A.shape[:-1])
    right = B.unsqueeze(-1) if vector else B
    x = pinv(A, rcond) @ right
    rank = matrix_rank(A, rtol=rcond) if rcond is not None else matrix_rank(A)
    m, n = A.shape[-2:]
    empty = Tensor.empty(0, dtype=A.dtype, device=A.device)
    full = driver not in {None, "gelsy"} and m > n and bool((rank == n).all().item())
    left = (A @ x - right).square().sum(-2) if full else empty
    ranks = empty.cast(rank.dtype) if driver == "gels" else rank
    values = svdvals(A) if driver in {"gelsd", "gelss"} else empty
    return LstsqResult(x.squeeze(-1) if vector else x, left, ranks, values)


def tensorinv(A: Tensor, ind: int = 2) -> Tensor:  # noqa: N803 - as above
    """Return the inverse of A, a map of its last axes to its first `ind`; both have equally many elements."""
    first, last = A.shape[:ind], A.shape[ind:]
    return inv(A.reshape(math.prod(first), -1)).reshape(*last, *first)


def tensorsolve(A: Tensor, B: Tensor, dims: Any = None) -> Tensor:  # noqa: N803 - as above
    """Return X with B the sum of A * X over the axes of X; `dims` of A are first moved to the end."""
    moved = A if dims is None else A.movedim(tuple(dims), tuple(range(-len(dims), 0)))
    shape = moved.shape[B.ndim :]
    return solve(moved.reshape(-1, math.prod(shape)), B.reshape(-1)).reshape(shape)


def vander(x: Tensor, *, N: int | None = None) -> Tensor:  # noqa: N803 - as above
    """Return the powers 0 to N - 1 of each element along a new last axis; N None: the last axis's length."""
    return x.unsqueeze(-1) ** Tensor.arange(x.shape[-1] if N is None else N, device=x.device).cast(x.dtype)


answer_module(globals(), __name__)
