"""Decompositions by steps: all steps are the same few kernels, and results and gradients those of NumPy.

Sizes include 0, 1, 2, primes and powers of two; there are stacks, and matrices whose rows must be exchanged.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from frontend import Tensor, TinyJit, autograd, linalg, stats

FUNCTIONS: dict[str, Any] = {
    "solve": lambda a, b: a.solve(b),
    "inverse": lambda a, b: a.inverse() @ b,
    "upper": lambda a, b: linalg.solve_triangular(a, b, upper=True),
    "lower": lambda a, b: linalg.solve_triangular(a, b, upper=False),
    "unit": lambda a, b: linalg.solve_triangular(a, b, upper=True, unitriangular=True),
    "from the right": lambda a, b: linalg.solve(a.mT, b.mT, left=False).mT,
    "factors": lambda a, b: linalg.lu_solve(*linalg.lu_factor(a), b),
}
STEPPED: dict[str, Any] = FUNCTIONS | {
    "svd": lambda a, _: a.svd().S,
    "cholesky": lambda a, _: (a @ a.mT).cholesky(),
    "qr": lambda a, _: Tensor.cat(*a.qr()),
    "det": lambda a, _: a.det(),
    "slogdet": lambda a, _: a.slogdet()[1],
}


def matrices(n: int, k: int, batch: tuple[int, ...] = (), seed: int = 0) -> tuple[Any, Any]:
    rng = np.random.default_rng(seed)
    a = rng.standard_normal((*batch, n, n)) + 2 * np.eye(n)
    return a[..., ::-1, :].copy(), rng.standard_normal((*batch, n, k))


def wanted(name: str, a: Any, b: Any) -> Any:
    one = np.eye(a.shape[-1])
    read = {"upper": np.triu(a), "lower": np.tril(a), "unit": np.triu(a, 1) + one}.get(name, a)
    return np.linalg.solve(read, b)


@pytest.mark.parametrize("n", [0, 1, 2, 3, 7, 16, 17, 35])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_solutions_are_those_of_numpy(name: str, n: int):
    for k, batch in ((1, ()), (3, ()), (2, (2,)), (1, (1, 3)), (0, ())):
        a, b = matrices(n, k, batch)
        if name in {"upper", "lower"}:
            a = a + 4 * np.eye(n)
        found = FUNCTIONS[name](Tensor(a), Tensor(b)).numpy()
        np.testing.assert_allclose(found, wanted(name, a, b), rtol=1e-8, atol=1e-8, err_msg=f"{k} {batch}")


@pytest.mark.parametrize(("m", "n"), [(1, 1), (2, 2), (5, 5), (8, 8), (7, 3), (2, 9), (16, 1)])
def test_singular_values_and_vectors_are_those_of_numpy(m: int, n: int):
    a = np.random.default_rng(m).standard_normal((2, m, n))
    u, s, v = Tensor(a).svd()
    np.testing.assert_allclose(s.numpy(), np.linalg.svd(a)[1], rtol=1e-10)
    np.testing.assert_allclose(((u * s.unsqueeze(-2)) @ v.mT).numpy(), a, atol=1e-10)
    even = a @ a.swapaxes(-1, -2)
    np.testing.assert_allclose(linalg.eigh(Tensor(even))[0].numpy(), np.linalg.eigvalsh(even), atol=1e-8)


@pytest.mark.parametrize("name", STEPPED)
def test_all_steps_are_the_same_kernels(name: str):
    for n in (20, 40) if name != "svd" else (26,):
        a, b = (Tensor(x).realize() for x in matrices(n, 2))
        before = stats.lowered + stats.hits
        found = STEPPED[name](a.requires_grad_(name != "svd"), b).sum().realize()
        (found if name == "svd" else autograd.grad(STEPPED[name](a, b).sum(), a)[0]).realize()
        most = 200 if name == "factors" else 90  # of lu 55 to 113, by what the process compiled before
        assert stats.lowered + stats.hits - before <= most


@pytest.mark.parametrize("n", [3, 18])
@pytest.mark.parametrize("name", sorted(STEPPED.keys() - {"svd"}))
def test_gradients_are_differences_and_flow_twice(name: str, n: int):
    a, b = matrices(n, 2, seed=4)
    a = (a + 4 * np.eye(n)) / (n if name == "det" else 1)
    x, y = (Tensor(v, requires_grad=True) for v in (a, b))

    def slope(p: Tensor, q: Tensor) -> Tensor:
        (g,) = autograd.grad((STEPPED[name](p, q) ** 2).sum(), p, create_graph=True)
        return (g**2).sum()

    (found,) = autograd.grad(slope(x, y), x)
    step = 1e-5
    for i, j in ((0, 0), (0, 2), (2, 0), (1, 1)):
        move = np.zeros((n, n))
        move[i, j] = step
        values = [slope(Tensor(a + s * move, requires_grad=True), Tensor(b)).item() for s in (1, -1)]
        assert found[i, j].item() == pytest.approx((values[0] - values[1]) / 2 / step, rel=1e-4, abs=1e-5)


def test_a_captured_solution_follows_its_arguments():
    solve = TinyJit(lambda a, b: a.solve(b))
    for seed in range(4):
        a, b = matrices(4, 2, seed=seed)
        np.testing.assert_allclose(solve(Tensor(a), Tensor(b)).numpy(), np.linalg.solve(a, b), rtol=1e-8)
