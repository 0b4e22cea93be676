"""Factors and determinants of matrices of all scales, and slopes of determinants at singular matrices.

Not here: matrices that are refused (`test_singular_matrices`).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from frontend import Tensor

A = np.array([[1.0, 2.0, 0.5], [3.0, 4.0, -1.0], [0.25, -2.0, 3.0]])
SCALES = {"float32": (1e-30, 1e-24, 1e25, 1e30), "float64": (1e-300, 1e-180, 1e200, 1e290)}
CASES = [(dtype, scale) for dtype, scales in SCALES.items() for scale in scales]
EPS = {"float32": 2e-5, "float64": 1e-12}


@pytest.mark.parametrize(("dtype", "scale"), CASES)
def test_factors_of_small_and_of_large_matrices(dtype: str, scale: float):
    x, eps = (A * scale).astype(dtype), EPS[dtype]
    q, r = (t.numpy().astype("float64") for t in Tensor(x).qr())
    np.testing.assert_allclose(q @ (r / scale), A, atol=eps * 10)
    np.testing.assert_allclose(q.T @ q, np.eye(3), atol=eps * 10)
    s = Tensor(x).svd().S.numpy().astype("float64") / scale
    np.testing.assert_allclose(s, np.linalg.svd(A)[1], rtol=eps * 10)
    sign, size = Tensor(x).slogdet()
    assert sign.item() == np.sign(np.linalg.det(A))
    np.testing.assert_allclose(size.item(), np.linalg.slogdet(A)[1] + 3 * np.log(scale), rtol=eps)
    solved = Tensor(x).solve(Tensor(x[:, 0])).numpy()
    np.testing.assert_allclose(solved, [1.0, 0.0, 0.0], atol=eps * 10)


@pytest.mark.parametrize("dtype", SCALES)
def test_a_matrix_of_very_unlike_blocks(dtype: str):
    small = 1e-25 if dtype == "float32" else 1e-200
    x = np.zeros((4, 4))
    x[:2, :2], x[2:, 2:] = np.array([[1.0, 2.0], [3.0, 4.0]]) * small, [[5.0, 6.0], [7.0, 9.0]]
    sign, size = Tensor(x.astype(dtype)).slogdet()
    assert sign.item() == -1.0
    np.testing.assert_allclose(size.item(), np.log(2) + 2 * np.log(small) + np.log(3), rtol=EPS[dtype])


SINGULAR: dict[str, Any] = {
    "first column 0": [[0.0, 1.0, 2.0], [0.0, 3.0, 5.0], [0.0, 7.0, 1.0]],
    "second column 0": [[1.0, 0.0, 2.0], [4.0, 0.0, 5.0], [3.0, 0.0, 1.0]],
    "last column 0": [[1.0, 2.0, 0.0], [4.0, 5.0, 0.0], [3.0, 1.0, 0.0]],
    "zero below the diagonal": [[2.0, 1.0, 3.0], [0.0, 0.0, 4.0], [0.0, 0.0, 5.0]],
    "row 0": [[1.0, 2.0, 3.0], [0.0, 0.0, 0.0], [4.0, 1.0, 2.0]],
    "equal columns": [[1.0, 1.0, 2.0], [3.0, 3.0, 1.0], [2.0, 2.0, 5.0]],
    "dependent": [[1.0, 2.0, 3.0], [4.0, 5.0, 6.0], [7.0, 8.0, 9.0]],
    "nilpotent": [[0.0, 1.0, 0.0], [0.0, 0.0, 1.0], [0.0, 0.0, 0.0]],
    "rank 1": [[1.0, 2.0, 3.0], [2.0, 4.0, 6.0], [0.0, 0.0, 0.0]],
    "zeros": [[0.0] * 3] * 3,
    "exchange": [[0.0, 1.0, 0.0], [1.0, 0.0, 0.0], [0.0, 0.0, 1.0]],
    "tiny columns": [[1e-200, 1.0, 2.0], [2e-200, 3.0, 5.0], [1e-200, 7.0, 1.0]],
}


def cofactors(x: np.ndarray) -> np.ndarray:
    n = len(x)
    found = np.zeros((n, n))
    for i in range(n):
        for j in range(n):
            (a, b), (c, d) = np.delete(np.delete(x, i, 0), j, 1)
            found[i, j] = (-1) ** (i + j) * (a * d - b * c)
    return found


@pytest.mark.parametrize("name", SINGULAR)
def test_the_slope_of_a_determinant_is_the_cofactors(name: str):
    x = np.array(SINGULAR[name])
    w = Tensor(np.stack([x, A]), requires_grad=True)
    (w * 1).det().sum().backward()
    assert w.grad is not None
    np.testing.assert_allclose(w.grad.numpy(), [cofactors(x), cofactors(A)], atol=1e-10)


def test_the_second_slope_of_a_determinant_at_a_singular_matrix():
    w = Tensor(SINGULAR["first column 0"], dtype="float64", requires_grad=True)
    (slope,) = w.det().gradient(w)
    (second,) = slope[0, 0].gradient(w)
    # the slope by [0, 0] is the determinant of the rest
    np.testing.assert_allclose(second.numpy(), [[0, 0, 0], [0, 1, -7], [0, -5, 3]], atol=1e-10)
