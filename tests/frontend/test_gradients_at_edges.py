"""Gradients at kinks and poles are PyTorch's: (`data/edges.json`: `tests.oracles.edges`)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import frontend
from frontend import Tensor
from frontend.autograd import Function, gradgradcheck
from frontend.linalg import LinAlgError
from hcq.errors import UsageError
from tests.oracles.edges import record
from tests.oracles.recording import recorded

WANT = recorded("edges.json")


@pytest.mark.sampled(20)
@pytest.mark.parametrize("text", WANT)
def test_a_gradient_at_an_edge_is_pytorch_s(text: str):
    for got, want in zip(record(frontend, text), WANT[text], strict=True):
        assert (got is None) == (want is None)
        if got is not None:
            np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    "call",
    [
        lambda linalg: linalg.inv(Tensor([[1.0, 2.0], [2.0, 4.0]])),
        lambda linalg: linalg.solve(Tensor([[1.0, 2.0], [2.0, 4.0]]), Tensor([1.0, 2.0])),
        lambda linalg: linalg.cholesky(Tensor([[1.0, 2.0], [2.0, 1.0]])),
        lambda linalg: linalg.cholesky_ex(Tensor([[1.0, 2.0], [2.0, 1.0]]), check_errors=True),
        lambda linalg: linalg.inv_ex(Tensor([[0.0, 0.0], [2.0, 4.0]]), check_errors=True),
    ],
)
def test_singular_and_indefinite_matrices_raise_pytorch_s_error(call: Any):
    with pytest.raises(LinAlgError):
        call(frontend.linalg)
    assert issubclass(LinAlgError, RuntimeError)


def test_gradgradcheck_accepts_right_gradients_of_gradients_and_finds_wrong_ones():
    x = Tensor([0.5, -1.5], dtype="float64", requires_grad=True)
    y = Tensor([2.0, 0.25], dtype="float64", requires_grad=True)
    assert gradgradcheck(lambda a, b: (a**3 * b).sin(), (x, y))
    assert gradgradcheck(lambda a: a.exp(), x, [Tensor([1.0, 3.0], dtype="float64")])

    class Cube(Function):
        @staticmethod
        def forward(ctx: Any, a: Any) -> Any:
            ctx.save_for_backward(a)
            return a**3

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            return g * 3 * (ctx.saved_tensors[0] ** 2).detach()

    assert not gradgradcheck(Cube.apply, x, raise_exception=False)
    with pytest.raises(UsageError, match="gradcheck: input 0 has the gradient"):
        gradgradcheck(Cube.apply, x)


NAN = float("nan")


@pytest.mark.parametrize(
    ("name", "rows", "want"),
    [
        ("addmm", ([[NAN, 1.0], [2.0, 3.0]],) * 2, [[0.0, 0.0], [0.0, 0.0]]),
        ("addmv", ([[NAN, 1.0], [2.0, 3.0]], [1.0, 2.0]), [0.0, 0.0]),
        ("addbmm", ([[[NAN, 1.0], [2.0, 3.0]]],) * 2, [[0.0, 0.0], [0.0, 0.0]]),
        ("baddbmm", ([[[NAN, 1.0], [2.0, 3.0]]],) * 2, [[[NAN, NAN], [NAN, 0.0]]]),
        ("addr", ([NAN, 1.0], [1.0, 2.0]), [[NAN, NAN], [0.0, 0.0]]),
    ],
)
@pytest.mark.parametrize("alpha", [0, 1])
def test_what_a_factor_of_0_skips_is_pytorch_s(name: str, rows: Any, want: Any, alpha: int):
    """beta=0 skips the start, whose gradient is 0; alpha=0 skips the product, but of `baddbmm` and `addr`."""
    start = Tensor(np.full(np.shape(want), NAN, dtype=np.float32)).requires_grad_()
    factors = [Tensor(r).requires_grad_() for r in rows]
    found = getattr(start, name)(*factors, beta=0, alpha=alpha)
    if not alpha:
        np.testing.assert_array_equal(found.numpy(), want)
    found.sum().backward()
    assert start.grad is not None
    np.testing.assert_array_equal(start.grad.numpy(), np.zeros(np.shape(want)))
    assert all(f.grad is not None for f in factors)
