"""Factors of matrices, alignments and sampled images: their gradients are those of differences.

Not here: their values, which are PyTorch's in kept programs (`test_programs_of_pytorch`).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import frontend as torch
from frontend import Tensor
from frontend.nn import functional as F  # noqa: N812 - PyTorch's habit
from hcq.errors import UsageError

rng = np.random.default_rng(3)


def drawn(*shape: int) -> Tensor:
    return Tensor(rng.standard_normal(shape), requires_grad=True)


@pytest.mark.parametrize("shape", [(1, 1), (1, 3), (3, 1), (2, 3), (4, 2), (2, 3, 3)])
def test_factors_multiply_to_the_matrix(shape: tuple[int, ...]):
    a = Tensor(rng.standard_normal(shape))
    p, lower, upper = torch.linalg.lu(a)
    np.testing.assert_allclose((p @ lower @ upper).numpy(), a.numpy(), atol=1e-12)
    assert lower.abs().max().item() == 1.0


def test_numbers_of_pivots_that_are_not_good():
    singular = Tensor([[1.0, 2.0], [2.0, 4.0]])
    assert torch.linalg.inv_ex(singular).info.item() == 2
    assert torch.linalg.inv_ex(torch.eye(2) * 2).inverse.tolist() == [[0.5, 0.0], [0.0, 0.5]]
    assert torch.linalg.cholesky_ex(torch.eye(2) * 4).L.tolist() == [[2.0, 0.0], [0.0, 2.0]]
    assert torch.linalg.solve_ex(torch.eye(2), singular).info.item() == 0
    assert torch.linalg.cholesky_ex(Tensor([[1.0, 0.0], [0.0, -1.0]])).info.item() == 2
    with pytest.raises(UsageError, match="pivot 2 of a matrix"):
        torch.linalg.inv_ex(singular, check_errors=True)


@pytest.mark.landing
@pytest.mark.parametrize(
    ("function", "inputs"),
    [
        (lambda x: F.ctc_loss(x.log_softmax(-1), Tensor([[1, 1], [2, 0]]), (3, 2), (2, 1)), [(3, 2, 3)]),
        (lambda x, g: F.grid_sample(x, g, align_corners=False), [(1, 2, 3, 4), (1, 2, 2, 2)]),
        (lambda x, g: F.grid_sample(x, g, padding_mode="reflection"), [(1, 1, 1, 3), (1, 2, 1, 2)]),
        (lambda x: F.affine_grid(x, (1, 1, 2, 3)), [(1, 2, 3)]),
        (torch.linalg.matrix_exp, [(2, 2)]),
    ],
    ids=["ctc", "grid", "reflected", "affine", "exponential"],
)
def test_gradients_are_those_of_differences(function: Any, inputs: list[tuple[int, ...]]):
    assert torch.autograd.gradcheck(function, [drawn(*shape) for shape in inputs])


def test_a_loss_without_alignment_is_infinite_or_zero():
    x = Tensor(np.zeros((2, 1, 3)), requires_grad=True).log_softmax(-1)
    given = (Tensor([[1, 1]]), (2,), (2,))
    assert F.ctc_loss(x, *given, reduction="sum").item() == float("inf")
    assert F.ctc_loss(x, *given, reduction="sum", zero_infinity=True).item() == 0.0
    with pytest.raises(UsageError, match="do not fit"):
        F.ctc_loss(x, Tensor([[1, 1]]), (3,), (2,))
