"""Gradient rules of singular values and vectors, eigenvalues and eigenvectors, and pseudoinverses.

The formulas are PyTorch's. Gradients of singular vectors and eigenvectors divide by differences of squared
singular values, or of eigenvalues. Where two are equal, the vectors have no gradient, and the result is
infinite or NaN. Rules compute with the results of decompositions, which have rules themselves, so gradients
can be differentiated. A rule gets operands that fit.

A docstring gives the function and, after the colon, the gradient of its first source a for the gradient g of
the result; `upper` names the triangle that an eigenvalue decomposition reads.

Not here: the decompositions (`frontend.ops.decompositions`). Next: `rules`, the other functions.
"""

# ruff: noqa: ARG001, FBT001 - all rules have one signature, and their docstrings are formulas

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from frontend.evaluation.base import TensorBase
from frontend.evaluation.constants import coordinate
from frontend.ops import decompositions
from frontend.ops.arithmetic import div
from frontend.ops.elementwise import add, eq, mul, neg, sub, where
from frontend.ops.linalg import matmul, symmetric, triu
from frontend.ops.movement import transpose, unsqueeze
from frontend.ops.reductions import sum as total
from frontend.ops.splitting import part

Gradients = tuple["TensorBase | None", ...]


def _transposed(x: TensorBase) -> TensorBase:
    return transpose(x, -1, -2)


def _product(*factors: TensorBase) -> TensorBase:
    found = factors[0]
    for f in factors[1:]:
        found = matmul(found, f)
    return found


def _differences(values: TensorBase) -> TensorBase:
    """Return values[j] - values[i] at (i, j), and 1 on the diagonal, for vectors of values."""
    across, down = unsqueeze(values, -2), unsqueeze(values, -1)
    shape = (*values.expr.shape, values.expr.shape[-1])
    rank = len(shape)
    same = eq(coordinate(values, shape, rank - 2), coordinate(values, shape, rank - 1))
    return where(same, 1.0, sub(across, down))


def _halves(x: TensorBase, rows: int) -> tuple[TensorBase, TensorBase]:
    """Return the first `rows` rows of matrices, and the others."""
    axis = len(x.expr.shape) - 2
    return part(x, axis, 0, rows), part(x, axis, rows, x.expr.shape[-2])


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
    shape = turns.expr.shape
    rank = len(shape)
    same = eq(coordinate(turns, shape, rank - 2), coordinate(turns, shape, rank - 1))
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
    """X with a X = b, a upper triangular: -triu(B X.T) with B = a.T⁻¹ g, and B."""
    of_b = decompositions.triangular_solve(_transposed(a), g, upper=False)
    return neg(triu(matmul(of_b, _transposed(out)))), of_b


def solution(g: TensorBase, out: TensorBase, a: TensorBase, b: TensorBase, upper: bool) -> Gradients:
    """X with a X = b: -B X.T with B = a.T⁻¹ g, and B."""
    of_b = decompositions.solution(_transposed(a), g)
    return neg(matmul(of_b, _transposed(out))), of_b


_RULES: Final = (
    singular_values, singular_vectors, eigenvalues, eigenvectors, pseudoinverse, solution, triangular,
)  # fmt: skip
RULES: Final[dict[str, Callable[..., Any]]] = {f.__name__: f for f in _RULES}
