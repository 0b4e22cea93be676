"""Linear algebra under PyTorch's names: `torch.linalg`.

Most functions are those of `frontend.array_api.linalg`; the rest is here. Eigenvalues of matrices that are
not symmetric are missing, as they are complex. Shapes, orders and dtypes that a function does not take raise
`UsageError`. Not here: products (`frontend.ops.products`). Next: `frontend.array_api.linalg`.
"""

# ruff: noqa: FBT001, FBT002, N803, N806 - PyTorch's signatures

from __future__ import annotations

import functools
import math
from typing import Any, NamedTuple

from frontend.arguments.aliases import answer_module
from frontend.arguments.checks import broadcast
from frontend.array_api.elementwise import agreed
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
    svd,
    svdvals,
    vecdot,
    vector_norm,
)  # fmt: skip
from frontend.ops import decompositions, elimination
from frontend.ops.singular import LinAlgError, refuse_singular
from frontend.tensor import Tensor
from hcq.errors import UsageError

__all__ = [
    "LinAlgError", "cholesky", "cholesky_ex", "cond", "cross", "det", "diagonal", "eigh", "eigvalsh",
    "householder_product", "inv", "inv_ex", "lstsq", "lu", "lu_factor", "lu_factor_ex", "lu_solve", "matmul",
    "matrix_exp", "matrix_norm", "matrix_power", "matrix_rank", "multi_dot", "norm", "pinv", "qr", "slogdet",
    "solve", "solve_ex", "solve_triangular", "svd", "svdvals", "tensorinv", "tensorsolve", "vander", "vecdot",
    "vector_norm",
]  # fmt: skip


class Solved(NamedTuple):
    result: Tensor
    info: Tensor


class Inverse(NamedTuple):
    inverse: Tensor
    info: Tensor


class Root(NamedTuple):
    L: Tensor
    info: Tensor


"""A result, and for each matrix 0, or the number, from 1 on, of the pivot that is 0 or not positive."""


class LU(NamedTuple):
    P: Tensor
    L: Tensor
    U: Tensor


"""A permutation, a lower triangular matrix with ones on its diagonal, and an upper one; A = P @ L @ U."""


class LUFactor(NamedTuple):
    LU: Tensor
    pivots: Tensor


"""L and U in one matrix, and the rows, from 1 on, with which each row was exchanged in turn, as int32."""


class LstsqResult(NamedTuple):
    """Solutions (..., n, k), sums of squared residuals (..., k), ranks and singular values; see `lstsq`."""

    solution: Tensor
    residuals: Tensor
    rank: Tensor
    singular_values: Tensor


def norm(A: Tensor, ord: Any = None, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Tensor:
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


def diagonal(A: Tensor, *, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Tensor:
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
    A: Tensor, B: Tensor, *, upper: bool, left: bool = True, unitriangular: bool = False
) -> Tensor:
    """Return X with A @ X = B, without `left` X @ A = B, for triangular A, of which one half is read.

    With `unitriangular` the diagonal counts as ones.
    """
    if B.ndim < 2:
        raise UsageError(f"solve_triangular: wanted matrices on the right, saw {B.shape}; unsqueeze a vector")
    if unitriangular:
        half = A.triu(1) if upper else A.tril(-1)
        A = half + Tensor.eye(A.shape[-1], dtype=A.dtype, device=A.device)
    if left:
        return elimination.triangular_solve(A, B, upper=upper)
    return elimination.triangular_solve(A.adjoint(), B.adjoint(), upper=not upper).adjoint()


def lstsq(A: Tensor, B: Tensor, rcond: float | None = None, *, driver: str | None = None) -> LstsqResult:
    """Return the X of (..., m, n) A and (..., m, k) or (m,) B that makes A @ X - B least, by pseudo-inverses.

    What PyTorch's `driver`, None: "gelsy", does not give is empty here, too: residuals, the rank, or the
    singular values. Residuals need m > n and full rank.
    """
    if driver not in {None, "gels", "gelsy", "gelsd", "gelss"}:
        raise UsageError(f"lstsq, driver: wanted gels, gelsy, gelsd or gelss, saw {driver!r}")
    if A.ndim < 2 or not B.ndim:
        raise UsageError(f"lstsq: wanted matrices, and vectors or matrices, saw {A.shape} and {B.shape}")
    vector = B.ndim == 1 or (B.ndim == A.ndim - 1 and B.shape == A.shape[:-1])
    right = B.unsqueeze(-1) if vector else B
    x = pinv(A, rcond) @ right
    rank = matrix_rank(A, rtol=rcond) if rcond is not None else matrix_rank(A)
    m, n = A.shape[-2:]
    empty = Tensor.empty(0, dtype=A.dtype, device=A.device)
    full = driver not in {None, "gelsy"} and m > n and bool((rank == n).all().item())
    left = (A @ x - right).square().sum(-2) if full else empty
    ranks = empty.cast(rank.dtype) if driver == "gels" else rank
    values = svdvals(A).detach() if driver in {"gelsd", "gelss"} else empty
    return LstsqResult(x.squeeze(-1) if vector else x, left, ranks, values)


def _rows(x: Tensor, order: Tensor) -> Tensor:
    """Return the rows of matrices in another order."""
    return x.gather(-2, order.unsqueeze(-1).expand(*order.shape, x.shape[-1]))


def _parted(lu: Tensor) -> tuple[Tensor, Tensor]:
    """Return L (..., m, k) and U (..., k, n) of their common matrix (..., m, n)."""
    k = min(lu.shape[-2:])
    eye = Tensor.eye(lu.shape[-2], k, dtype=lu.dtype, device=lu.device)
    return lu[..., :k].tril(-1) + eye, lu[..., :k, :].triu()


def _eliminated(A: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return the factors in one matrix, the order of the rows, and the pivots; one column after another."""
    m, n = A.shape[-2:]
    lu, batch = A.detach().clone().realize(), A.shape[:-2]
    rows, columns = (Tensor.arange(k, device=A.device) for k in (m, n))
    order = rows.expand(*batch, m).clone().realize()
    pivots = [order[..., :0]]
    for number in range(min(m, n)):
        k = Tensor.full((), number, dtype="int64", device=A.device).clone().realize()
        column = (columns == k).where(lu, 0.0).sum(-1)
        p = (rows >= k).where(column.abs(), -1.0).argmax(-1, keepdim=True)
        swap = (rows == k).where(p, (rows == p).where(k, rows.expand(*batch, m)))
        lu, order = _rows(lu, swap), order.gather(-1, swap)
        column = column.gather(-1, swap)
        pivot = (rows == k).where(column, 0.0).sum(-1, keepdim=True)
        below = ((rows > k) & (pivot != 0)).where(column / (pivot == 0).where(1.0, pivot), 0.0).unsqueeze(-1)
        row = (rows == k).unsqueeze(-1).where(lu, 0.0).sum(-2, keepdim=True)
        under = (rows > k).unsqueeze(-1) & (columns == k)
        lu = under.where(below, lu - (columns > k).where(below * row, 0.0))
        lu, order, p = lu.realize(), order.realize(), p.realize()
        pivots.append(p + 1)
    return lu, order, Tensor.cat(pivots, axis=-1).cast("int32")


def lu_factor(A: Tensor, *, pivot: bool = True) -> LUFactor:
    """Return the factors of A (..., m, n) with exchanged rows. `UsageError` without `pivot`."""
    if not pivot:
        raise UsageError("lu_factor: wanted pivot=True, saw False")
    lu, order, pivots = _eliminated(A)
    return LUFactor(elimination.with_rule(lu, A, order, rule="factored"), pivots)


def lu(A: Tensor, *, pivot: bool = True) -> LU:
    """Return P, L and U with A = P @ L @ U. Raises as `lu_factor`."""
    factors = lu_factor(A, pivot=pivot)
    order = _order(factors.pivots, A.shape[-2])
    eye = Tensor.eye(A.shape[-2], dtype=A.dtype, device=A.device)
    return LU(eye[order].adjoint(), *_parted(factors.LU))


def _order(pivots: Tensor, m: int) -> Tensor:
    """Return the order of m rows after the exchanges of `pivots`."""
    rows = Tensor.arange(m, device=pivots.device)
    order = rows.expand(*pivots.shape[:-1], m)
    for k in range(pivots.shape[-1]):
        p = pivots[..., k : k + 1].cast("int64") - 1
        order = order.gather(-1, (rows == k).where(p, (rows == p).where(k, rows.expand(order.shape))))
    return order


def lu_solve(LU: Tensor, pivots: Tensor, B: Tensor, *, left: bool = True, adjoint: bool = False) -> Tensor:
    """Return X with A @ X = B for factors of A, without `left` X @ A = B; `adjoint`: for A.T."""
    if not left:
        return lu_solve(LU, pivots, B.adjoint(), adjoint=not adjoint).adjoint()
    (lower, upper), order = _parted(LU), _order(pivots, LU.shape[-2])
    batch = broadcast((LU.shape[:-2], B.shape[:-2]), "lu_solve")
    B, order = B.expand(*batch, *B.shape[-2:]), order.expand(*batch, order.shape[-1])
    if adjoint:
        return _rows(lower.adjoint().solve(upper.adjoint().solve(B)), order.argsort(-1))
    return upper.solve(lower.solve(_rows(B, order)))


def _first(wrong: Tensor) -> Tensor:
    """Return the number, from 1 on, of the first True of the last axis, 0 without one, as int32."""
    if not wrong.shape[-1]:
        return wrong.any(-1).cast("int32")
    return wrong.any(-1).where(wrong.cast("int32").argmax(-1) + 1, 0).cast("int32")


def _info(name: str, wrong: Any, check_errors: bool) -> Tensor:
    info = _first(wrong)
    if check_errors and info.any().item():
        raise LinAlgError(f"{name}: pivot {info.max().item()} of a matrix is 0 or not positive")
    return info


def _solved(A: Tensor, B: Tensor, left: bool) -> tuple[Tensor, Tensor]:
    vectors = B.ndim == 1 or B.shape == A.shape[:-1]
    columns = B.unsqueeze(-1) if vectors else B
    turned = (A, columns) if left else (A.adjoint(), columns.adjoint())
    found, pivots = elimination.solved(*turned)
    found = found if left else found.adjoint()
    return found.squeeze(-1) if vectors else found, pivots


def solve(A: Tensor, B: Tensor, *, left: bool = True) -> Tensor:
    """Return the solution of A @ X = B, without `left` of X @ A = B.

    B are matrices, or vectors: of the shape (n,), or that of A without its last axis. Raises `LinAlgError`
    for a singular matrix.
    """
    found, pivots = _solved(*agreed(A, B, "solve"), left)
    refuse_singular(A, pivots, "solve")
    return found


def solve_ex(A: Tensor, B: Tensor, *, left: bool = True, check_errors: bool = False) -> Solved:
    """Return the solution as `solve` does, and the number of a pivot that is 0.

    Raises `LinAlgError` for a singular matrix with `check_errors` alone; else the result is not finite.
    """
    found, pivots = _solved(A, B, left)
    return Solved(found, _info("solve_ex", pivots == 0, check_errors))


def inv_ex(A: Tensor, *, check_errors: bool = False) -> Inverse:
    """Return the inverse, and the number of a pivot that is 0; errors as `solve_ex`."""
    found, pivots = elimination.inverted(A)
    return Inverse(found, _info("inv_ex", pivots == 0, check_errors))


class LUFactorEx(NamedTuple):
    """The factors and pivots of `lu_factor`, and for each matrix 0, or the number of a pivot that is 0."""

    LU: Tensor
    pivots: Tensor
    info: Tensor


def lu_factor_ex(A: Tensor, *, pivot: bool = True, check_errors: bool = False) -> LUFactorEx:
    """Return `lu_factor`, and the number of a pivot that is 0; errors as `solve_ex` and `lu_factor`."""
    found = lu_factor(A, pivot=pivot)
    zero = found.LU.detach().diagonal(0, -2, -1) == 0
    return LUFactorEx(*found, _info("lu_factor_ex", zero, check_errors))


def cholesky_ex(A: Tensor, *, upper: bool = False, check_errors: bool = False) -> Root:
    """Return the factor of `cholesky`, and the order of the first minor that is not positive.

    Raises `LinAlgError` for such a matrix with `check_errors` alone; else the factor has NaN.
    """
    root = decompositions.cholesky_root(A, upper)
    good = root.detach().diagonal(0, -2, -1) > 0
    return Root(root, _info("cholesky_ex", ~good, check_errors))


def cond(A: Tensor, p: Any = None) -> Tensor:
    """Return the condition numbers of matrices: the greatest by the least singular value, or of a norm `p`.

    Other norms than None, 2 and -2 need square matrices, and are infinite for singular ones.
    """
    if p in {None, 2, -2}:
        s = svdvals(A)
        return s[..., -1] / s[..., 0] if p == -2 else s[..., 0] / s[..., -1]
    inverse = elimination.inverted(A)[0]
    found = matrix_norm(A, p) * matrix_norm(inverse, p)
    return found.isnan().where(math.inf, found)


def matrix_exp(A: Tensor) -> Tensor:
    """Return the exponentials of square matrices: a Taylor sum of A / 2 ** k, squared k times.

    k is 5 for norms up to 8; greater norms are read to find it. 16-bit floats are computed in float32.
    """
    if A.dtype.itemsize == 2:
        return matrix_exp(A.cast("float32")).cast(A.dtype)
    size = A.detach().abs().sum(-1).amax().item()
    k = max(5, math.ceil(math.log2(size / 0.25))) if size > 8 else 5
    x = A / 2**k
    found: Tensor = Tensor.eye(A.shape[-1], dtype=A.dtype, device=A.device) + x * 0
    term = found
    for n in range(1, 14):
        term = term @ x / n
        found = found + term
    for _ in range(k):
        found = found @ found
    return found


def householder_product(A: Tensor, tau: Tensor) -> Tensor:
    """Return the first n columns of the product of the reflections I - tau * v @ v.T, v the columns of A."""
    m, n = A.shape[-2:]
    found = Tensor.eye(m, n, dtype=A.dtype, device=A.device).expand(*A.shape[:-2], m, n)
    for k in reversed(range(tau.shape[-1])):
        below = A[..., k].unsqueeze(-1) * (Tensor.arange(m, device=A.device) > k).unsqueeze(-1)
        v = below + (Tensor.arange(m, device=A.device) == k).unsqueeze(-1).cast(A.dtype)
        found = found - tau[..., k, None, None] * v @ (v.adjoint() @ found)
    return found


def tensorinv(A: Tensor, ind: int = 2) -> Tensor:
    """Return the inverse of A, a map of its last axes to its first `ind`; both have equally many elements."""
    first, last = A.shape[:ind], A.shape[ind:]
    return inv(A.reshape(math.prod(first), -1)).reshape(*last, *first)


def tensorsolve(A: Tensor, B: Tensor, dims: Any = None) -> Tensor:
    """Return X with B the sum of A * X over the axes of X; `dims` of A are first moved to the end."""
    moved = A if dims is None else A.movedim(tuple(dims), tuple(range(-len(dims), 0)))
    shape = moved.shape[B.ndim :]
    return solve(moved.reshape(-1, math.prod(shape)), B.reshape(-1)).reshape(shape)


def vander(x: Tensor, *, N: int | None = None) -> Tensor:
    """Return the powers 0 to N - 1 of each element along a new last axis; N None: the last axis's length.

    Powers of integers and bools are int64.
    """
    x = (x if x.is_floating_point() else x.cast("int64")).reshape(x.shape or (1,))
    return x.unsqueeze(-1) ** Tensor.arange(x.shape[-1] if N is None else N, device=x.device).cast(x.dtype)


answer_module(globals(), __name__)
