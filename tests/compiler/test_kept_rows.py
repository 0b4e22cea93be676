"""Rows that a kernel keeps in scratch memory: values of one loop that a later loop reads again.

Not here: which rows are kept by cost (`compiler.plan.row_reuse`).
"""

from __future__ import annotations

import numpy as np
import pytest

from frontend import Tensor
from frontend.autograd import grad
from frontend.nn import functional


@pytest.mark.parametrize("side", [1, 3, 7, 8, 16])
@pytest.mark.parametrize("groups", [1, 2, 8])
def test_gradient_of_a_group_norm_whose_weight_is_computed_with_it(side: int, groups: int) -> None:
    """The weight of an element is that of its channel, the same over a vector of elements of one channel."""
    x = np.sin(np.arange(2 * 8 * side * side, dtype="f4") * 0.37).reshape(2, 8, side, side)
    given = np.cos(np.arange(x.size, dtype="f4")).reshape(x.shape)

    def gradient(weight: Tensor) -> np.ndarray:
        leaf = Tensor(x, requires_grad=True)
        (found,) = grad((functional.group_norm(leaf, groups, weight) * Tensor(given)).sum(), [leaf])
        return found.numpy()

    pending = (Tensor.arange(8).float() * 0.7 + 2).sin() * 0.4
    np.testing.assert_allclose(gradient(pending), gradient(Tensor(pending.numpy())), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("run", [1, 4, 5, 16, 64, 256])
def test_a_share_of_values_that_are_equal_in_runs(run: int) -> None:
    x = np.random.default_rng(run).standard_normal((3, 256)).astype("f4")
    height = (Tensor.arange(256) // run).float().sin().exp()
    found = Tensor(x).exp() * height
    found = found / (Tensor(x) * height).sum(-1, keepdim=True).abs()
    wave = np.exp(np.sin(np.arange(256) // run))
    wanted = np.exp(x) * wave / np.abs((x * wave).sum(-1, keepdims=True))
    np.testing.assert_allclose(found.numpy(), wanted, rtol=2e-3)
