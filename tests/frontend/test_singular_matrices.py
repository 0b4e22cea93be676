"""Matrices without an inverse or a root raise, as in PyTorch 2.13, which raises for the same of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from frontend import Tensor, TinyJit
from hcq.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

NAN = float("nan")
MATRICES: dict[str, tuple[Any, set[str]]] = {
    # matrix, and what PyTorch refuses
    "dependent rows": ([[1.0, 2.0], [2.0, 4.0]], {"inverse", "solve", "cholesky"}),
    "zeros": ([[0.0, 0.0], [0.0, 0.0]], {"inverse", "solve", "cholesky"}),
    "exchange": ([[0.0, 1.0], [1.0, 0.0]], {"cholesky"}),
    "small but regular": ([[1.0, 1.0], [0.0, 1e-8]], set()),
    "of a stack": ([[[1.0, 0.0], [0.0, 1.0]], [[1.0, 1.0], [1.0, 1.0]]], {"inverse", "solve", "cholesky"}),
    "NaN": ([[NAN, 0.0], [0.0, 1.0]], {"cholesky"}),
}
FUNCTIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "inverse": lambda a: a.inverse(),
    "solve": lambda a: a.solve(a),
    "cholesky": lambda a: a.cholesky(),
}


@pytest.mark.parametrize("name", MATRICES)
def test_singular_and_indefinite_matrices_raise(name: str):
    matrix, refused = MATRICES[name]
    for what, function in FUNCTIONS.items():
        if what in refused:
            with pytest.raises(UsageError, match=what):
                function(Tensor(matrix))
        else:
            function(Tensor(matrix)).realize()


def test_a_power_of_the_inverse_raises_and_gradients_flow_through_a_check():
    with pytest.raises(UsageError, match="singular"):
        Tensor([[1.0, 1.0], [1.0, 1.0]]).matrix_power(-1)
    x = Tensor([[2.0, 0.0], [0.0, 4.0]], requires_grad=True)
    (x * 1).inverse().sum().backward()
    assert x.grad is not None
    assert x.grad.tolist() == [[-0.25, -0.125], [-0.125, -0.0625]]


def test_a_captured_function_checks_nothing_after_its_first_call():
    inverse = TinyJit(lambda a: a.inverse())
    regular, singular = Tensor([[2.0, 0.0], [0.0, 4.0]]), Tensor([[1.0, 1.0], [1.0, 1.0]])
    for _ in range(3):
        assert inverse(regular).tolist() == [[0.5, 0.0], [0.0, 0.25]]
    assert not all(abs(v) < 1e6 for row in inverse(singular).tolist() for v in row)
