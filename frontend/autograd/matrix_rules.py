"""Gradient rules of decompositions and inverses of matrices, and of their determinants.

The formulas are PyTorch's. Gradients of singular vectors and eigenvectors divide by differences of squared
singular values, or of eigenvalues. Where two are equal, the vectors have no gradient, and the result is
infinite or NaN. Rules compute with the results of decompositions, which have rules themselves, so gradients
can be differentiated. A rule gets operands that fit.

A docstring gives the function and, after the colon, the gradient of its first source a for the gradient g of
the result; `upper` names the triangle that an eigenvalue decomposition reads.

Not here: the functions (`frontend.ops.decompositions`, `elimination`). Next: `rules`.
"""

# ruff: noqa: ARG001, FBT001, PLR0917 - all rules have one signature, and their docstrings are formulas

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from frontend.evaluation.base import TensorBase
from frontend.evaluation.constants import number_like, ruled, stopped
from frontend.ops import elimination
from frontend.ops.arithmetic import div
from frontend.ops.elementwise import add, eq, mul, neg, sub, where
from frontend.ops.elimination import column
from frontend.ops.gather_scatter import gather
from frontend.ops.linalg import diagonal, matmul, symmetric, tril, triu
from frontend.ops.movement import expand, transpose, unsqueeze
from frontend.ops.reductions import prod as product
from frontend.ops.reductions import sum as total
from frontend.ops.sorting import inverse as inverse_order
from frontend.ops.splitting import cat
from hcq.errors import UsageError

Gradients = tuple["TensorBase | None", ...]


def _transposed(x: TensorBase) -> TensorBase:
    return transpose(x, -1, -2)


def _spread(x: TensorBase) -> TensorBase:
    """Return numbers as matrices of one element."""
    return unsqueeze(unsqueeze(x, -1), -1)


def _product(*factors: TensorBase) -> TensorBase:
    found = factors[0]
    for f in factors[1:]:
        found = matmul(found, f)
    return found


def _differences(values: TensorBase) -> TensorBase:
    """Return values[j] - values[i] at (i, j), and 1 on the diagonal, for vectors of values."""
    across, down = unsqueeze(values, -2), unsqueeze(values, -1)
    found = sub(across, down)
    return where(eq(elimination.place(found, -2), elimination.place(found, -1)), 1.0, found)


def _halves(x: TensorBase, count: int) -> tuple[TensorBase, TensorBase]:
    """Return the first `count` rows of matrices, and the others."""
    return elimination.rows(x, 0, count), elimination.rows(x, count, x.expr.shape[-2])


def singular_values(
    g: TensorBase, out: TensorBase, a: TensorBase, vectors: TensorBase, upper: bool
) -> Gradients:
    """S of a = U diag(S) V.T, a and U above V given: U diag(g) V.T, and none."""
    u, v = _halves(vectors, a.expr.shape[-2])
    return _product(mul(u, unsqueeze(g, -2)), _transposed(v)), None


def singular_vectors(g: TensorBase, out: TensorBase, a: TensorBase, upper: bool) -> TensorBase:
    """U above V of a = U diag(S) V.T, which has no more columns than rows.

    U ((skew(U.T gU) / E) S + S (skew(V.T gV) / E)) V.T + (gU - U U.T gU) / S V.T, with skew(x) = x - x.T and
    E[i, j] = S[j]² - S[i]².
    """
    m, n = a.expr.shape[-2:]
    (u, v), (gu, gv) = _halves(out, m), _halves(g, m)
    s = total(mul(u, matmul(a, v)), -2)
    across, down = unsqueeze(s, -2), unsqueeze(s, -1)
    between = _differences(mul(s, s))
    ours, theirs = matmul(_transposed(u), gu), matmul(_transposed(v), gv)
    core = add(
        mul(div(sub(ours, _transposed(ours)), between), across),
        mul(down, div(sub(theirs, _transposed(theirs)), between)),
    )
    found = _product(u, core, _transposed(v))
    if m > n:
        found = add(found, matmul(div(sub(gu, matmul(u, ours)), across), _transposed(v)))
    return found


def eigenvalues(g: TensorBase, out: TensorBase, a: TensorBase, v: TensorBase, upper: bool) -> Gradients:
    """L of a = V diag(L) V.T, a and V given: V diag(g) V.T, and none."""
    return _product(mul(v, unsqueeze(g, -2)), _transposed(v)), None


def eigenvectors(g: TensorBase, out: TensorBase, a: TensorBase, upper: bool) -> TensorBase:
    """V of a = V diag(L) V.T: V (skew(V.T g) / (2 E)) V.T, with E[i, j] = L[j] - L[i] and a diagonal of 0."""
    values = total(mul(out, matmul(symmetric(a, upper=upper), out)), -2)
    between = _differences(values)
    turns = matmul(_transposed(out), g)
    turns = mul(sub(turns, _transposed(turns)), 0.5)
    same = eq(elimination.place(turns, -2), elimination.place(turns, -1))
    return _product(out, where(same, 0.0, div(turns, between)), _transposed(out))


def pseudoinverse(g: TensorBase, p: TensorBase, a: TensorBase, upper: bool) -> TensorBase:
    """P of a, with h = g.T.

    With k = h P, for no more rows than columns: k P.T - (P k).T - a P k P.T + P.T P (h - k a); for others
    with k = P h: (h - a k) P P.T - (k P).T + P.T k (1 - P a).
    """
    h, pt = _transposed(g), _transposed(p)
    if a.expr.shape[-2] <= a.expr.shape[-1]:
        k = matmul(h, p)
        kp = matmul(k, pt)
        found = sub(sub(kp, _transposed(matmul(p, k))), _product(a, p, kp))
        return add(found, _product(pt, p, sub(h, matmul(k, a))))
    k = matmul(p, h)
    pk = matmul(pt, k)
    found = add(neg(_transposed(matmul(k, p))), _product(sub(h, matmul(a, k)), p, pt))
    return add(found, sub(pk, _product(pk, p, a)))


def triangular(g: TensorBase, out: TensorBase, a: TensorBase, b: TensorBase, upper: bool) -> Gradients:
    """X with a X = b, a triangular: the triangle of -B X.T with B = a.T⁻¹ g, and B."""
    of_b = elimination.triangular_solve(_transposed(a), g, upper=not upper)
    return neg((triu if upper else tril)(matmul(of_b, _transposed(out)))), of_b


def solution(
    g: TensorBase, out: TensorBase, a: TensorBase, b: TensorBase, lu: TensorBase, upper: bool
) -> Gradients:
    """X with a X = b: -B X.T with B = a.T⁻¹ g, and B; (`upper`) with a.T X = b: -X B.T with B = a⁻¹ g."""
    of_b = elimination.by_factors(a, g, lu, adjoint=not upper)
    first, second = (out, of_b) if upper else (of_b, out)
    return neg(matmul(first, _transposed(second))), of_b, None


def factored(g: TensorBase, out: TensorBase, a: TensorBase, p: TensorBase, upper: bool) -> Gradients:
    """L and U in one matrix, a and the order p of its rows given: those rows of L.T⁻¹ X U.T⁻¹.

    X is tril(L.T gL, -1) + triu(gU U.T). Raises `UsageError` for matrices that are not square.
    """
    m, n = a.expr.shape[-2:]
    if m != n:
        raise UsageError(f"lu: gradients are there for square matrices, saw the shape {a.expr.shape}")
    lower = add(tril(out, -1), elimination.unit_of(out, n))
    inner = add(
        tril(matmul(_transposed(lower), tril(g, -1)), -1), triu(matmul(triu(g), _transposed(triu(out))))
    )
    found = elimination.triangular_solve(_transposed(lower), inner)
    found = _transposed(elimination.triangular_solve(out, _transposed(found)))
    order = unsqueeze(inverse_order(p, len(p.expr.shape) - 1), -1)
    return gather(found, -2, expand(order, found.expr.shape)), None


def inverted(g: TensorBase, out: TensorBase, a: TensorBase, upper: bool) -> TensorBase:
    """The inverse X: -X.T g X.T."""
    return neg(_product(_transposed(out), g, _transposed(out)))


def determinant(g: TensorBase, out: TensorBase, a: TensorBase, lu: TensorBase, upper: bool) -> Gradients:
    """The determinant, a and its factors given: g times the cofactors."""
    return mul(_spread(g), elimination.cofactors(a, lu)), None


def logarithm(g: TensorBase, out: TensorBase, a: TensorBase, lu: TensorBase, upper: bool) -> Gradients:
    """The logarithm of the determinant's size, a and its factors given: g a.T⁻¹."""
    m, n, d, _ = elimination.parted(lu)
    inverse = elimination.with_rule(matmul(div(n, unsqueeze(d, -2)), m), a, rule="inverted")
    return mul(_spread(g), _transposed(inverse)), None


def cofactors(g: TensorBase, out: TensorBase, a: TensorBase, lu: TensorBase, upper: bool) -> Gradients:
    """The cofactors C of a, a = M⁻¹ diag(d) N⁻¹ given: M.T X N.T, where X is made of K = M g N.

    With e[i, j] the product of all d but d[i] and d[j], and the sign of the exchanges, X[i, i] is the sum
    of e[i, j] K[j, j] over other j, and else X[i, j] is -e[i, j] K[j, i]. That is right for singular
    matrices; its own gradient is that of the equal (sum(g C) C - C g.T C) / det(a).
    """
    m, n, d, turns = elimination.parted(stopped(lu))
    k = _product(m, stopped(g), n)
    same = eq(elimination.place(k, -1), elimination.place(k, -2))
    minors = where(same, 0.0, product(elimination.without(d, 2), -1))
    on_diagonal = total(mul(minors, unsqueeze(diagonal(k, 0, -2, -1), -2)), -1, keepdim=True)
    found = where(same, on_diagonal, neg(mul(minors, _transposed(k))))
    found = mul(_product(_transposed(m), found, _transposed(n)), _spread(turns))
    share = _spread(total(mul(g, out), (-2, -1)))
    regular = sub(mul(share, out), _product(out, _transposed(g), out))
    regular = div(regular, _spread(elimination.determinant(a, lu)))
    return ruled("beside", stopped(found), regular), None


def root_of_matrix(g: TensorBase, out: TensorBase, a: TensorBase, upper: bool) -> TensorBase:
    """L of a = L L.T: L.T⁻¹ P L⁻¹, where P is half of tril(L.T g) made symmetric from that triangle."""
    inner = tril(matmul(_transposed(out), g))
    inner = mul(add(inner, _transposed(tril(inner, -1))), 0.5)
    left = elimination.triangular_solve(_transposed(out), inner)
    return _transposed(elimination.triangular_solve(_transposed(out), _transposed(left)))


def qr(g: TensorBase, out: TensorBase, a: TensorBase, upper: bool) -> TensorBase:
    """R beside Q.T of a = Q R, with k rows.

    For no more columns than k rows, (gQ + Q S) R.T⁻¹, where S is triu(Y), with Y = gR R.T - Q.T gQ, made
    symmetric from that triangle. Of more columns, those after the first k have Q gR, and give gQ their share.
    Raises `UsageError` for a `complete` Q of more rows than columns.
    """
    m, n = a.expr.shape[-2:]
    k = out.expr.shape[-2]
    if k > n:
        raise UsageError(
            f"qr: wanted mode='reduced' where the gradient of {a.expr.shape} is taken, saw 'complete'"
        )
    (r, q), (gr, gq) = ((column(x, 0, n), _transposed(column(x, n, n + m))) for x in (out, g))
    beyond = column(gr, k, n)
    gq = add(gq, matmul(column(a, k, n), _transposed(beyond))) if n > k else gq
    r, gr = column(r, 0, k), column(gr, 0, k)
    inner = triu(sub(matmul(gr, _transposed(r)), matmul(_transposed(q), gq)))
    found = add(gq, matmul(q, add(inner, _transposed(triu(inner, 1)))))
    found = _transposed(elimination.triangular_solve(r, _transposed(found)))
    return cat(found, matmul(q, beyond), axis=-1) if n > k else found


_RULES: Final = (
    cofactors, determinant, eigenvalues, eigenvectors, factored, inverted, logarithm, pseudoinverse, qr,
    root_of_matrix, singular_values, singular_vectors, solution, triangular,
)  # fmt: skip
RULES: Final[dict[str, Callable[..., Any]]] = {
    **{f.__name__: f for f in _RULES},
    "constant": lambda _g, _, a, __: number_like(a, 0.0),
}
