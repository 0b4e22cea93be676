"""Gradients through singular values and vectors, eigenvectors and pseudoinverses, beside differences."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import pytest

from frontend import Tensor
from frontend import array_api as xp

if TYPE_CHECKING:
    from collections.abc import Callable

SHAPES = ((3, 3), (3, 2), (2, 2, 3))
A = {shape: np.sin(np.arange(math.prod(shape)) * 1.3 + 0.4).reshape(shape) for shape in SHAPES}


WEIGHTS = np.arange(9.0).reshape(3, 3)


def slopes(f: Callable[[Tensor], Tensor], values: object, times: int = 1) -> list[np.ndarray]:
    x = Tensor(values, dtype="float64", requires_grad=True)
    found, now = [], f(x)
    for _ in range(times):
        (g,) = now.gradient(x)
        found.append(g.numpy())
        now = (g * Tensor(np.cos(np.arange(g.numel())).reshape(g.shape))).sum()
    return found


def product_of_svd(x: Tensor) -> Tensor:
    u, s, v = x.svd()
    return (u * s.unsqueeze(-2)) @ v.mT


def product_of_eigh(x: Tensor) -> Tensor:
    values, vectors = xp.linalg.eigh(x @ x.mT)
    return (vectors * values.unsqueeze(-2)) @ vectors.mT


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_what_factors_are_made_of_has_the_gradient_of_their_product(shape: tuple[int, ...]):
    weights = Tensor(np.cos(np.arange(math.prod(shape)) * 0.7).reshape(shape))
    (got,) = slopes(lambda x: (product_of_svd(x) * weights).sum(), A[shape])
    np.testing.assert_allclose(got, weights.numpy(), atol=1e-12)


def test_eigenvectors_and_values_have_the_gradient_of_their_product():
    got = slopes(lambda x: (product_of_eigh(x) ** 2).sum(), A[3, 2].T, 2)
    want = slopes(lambda x: ((x @ x.mT) ** 2).sum(), A[3, 2].T, 2)
    for g, w in zip(got, want, strict=True):
        np.testing.assert_allclose(g, w, atol=1e-9)


def difference(f: Callable[[Tensor], Tensor], values: np.ndarray, step: float = 1e-6) -> np.ndarray:
    """Return the gradient of f by differences."""
    found = np.zeros_like(values)
    for at in np.ndindex(values.shape):
        moved = [values.copy(), values.copy()]
        moved[0][at] += step
        moved[1][at] -= step
        up, down = (f(Tensor(m, dtype="float64")).item() for m in moved)
        found[at] = (up - down) / (2 * step)
    return found


FUNCTIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "U": lambda x: (x.svd().U.abs() * Tensor([[1.0, 2.0]])).sum(),
    "V": lambda x: (x.svd().V.abs() * Tensor([[1.0, 3.0]])).sum(),
    "S": lambda x: (x.svd().S ** 3).sum(),
    "all of svd": lambda x: (x.svd().U.abs().sum(-2) * x.svd().S * x.svd().V.abs().amax(-2)).sum(),
    "eigenvectors": lambda x: (xp.linalg.eigh(x.mT @ x).eigenvectors.abs() * Tensor([[1.0, 2.0]])).sum(),
    "eigenvalues": lambda x: (xp.linalg.eigvalsh(x.mT @ x) * Tensor([1.0, 2.0])).sum(),
    "pinv": lambda x: (xp.linalg.pinv(x) * Tensor(np.arange(6.0).reshape(2, 3))).sum(),
    "pinv of wide": lambda x: (xp.linalg.pinv(x.mT) * Tensor(np.arange(6.0).reshape(3, 2))).sum(),
    "nuclear norm": lambda x: xp.linalg.matrix_norm(x, ord="nuc"),
    "spectral norm": lambda x: xp.linalg.matrix_norm(x, ord=2) ** 2,
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_gradients_are_those_of_differences(name: str):
    f = FUNCTIONS[name]
    got = slopes(f, A[3, 2])[0]
    np.testing.assert_allclose(got, difference(f, A[3, 2]), atol=1e-6)


@pytest.mark.parametrize("name", ["U", "eigenvectors", "pinv"])
def test_second_gradients_are_those_of_differences(name: str):
    def first(x: Tensor) -> Tensor:
        y = x.detach()
        y.requires_grad = True
        return (FUNCTIONS[name](y).gradient(y)[0] * Tensor(np.cos(np.arange(6.0)).reshape(3, 2))).sum()

    got = slopes(FUNCTIONS[name], A[3, 2], 2)[1]
    np.testing.assert_allclose(got, difference(first, A[3, 2]), atol=1e-5)


def test_gradients_of_eigenvectors_are_symmetric_whichever_half_is_read():
    half = A[3, 3] + A[3, 3].T
    lower, upper = (
        slopes(lambda x, u=uplo: (xp.linalg.eigh(x, u).eigenvectors.abs() * Tensor(WEIGHTS)).sum(), half)[0]
        for uplo in "LU"
    )
    np.testing.assert_allclose(lower, lower.T, atol=1e-9)
    np.testing.assert_allclose(lower, upper, atol=1e-9)


def test_equal_singular_values_have_a_gradient_and_their_vectors_none():
    (values,) = slopes(lambda x: x.svd().S.sum(), np.eye(2))
    np.testing.assert_allclose(values, np.eye(2), atol=1e-12)
    (vectors,) = slopes(lambda x: x.svd().U.abs().sum(), np.eye(2))
    assert not np.isfinite(vectors).all()


def test_pinverse_is_that_of_pytorch():
    x = Tensor([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])
    want = [[-1.3333333, -0.3333333, 0.6666667], [1.0833333, 0.3333333, -0.4166667]]
    np.testing.assert_allclose(x.pinverse().numpy(), want, atol=1e-5)
    assert np.linalg.matrix_rank(x.pinverse(0.5).numpy(), tol=1e-5) == 1
