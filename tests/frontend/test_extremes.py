"""Greatest and least values: pairs as in PyTorch, refusals. Values: `test_operator_database`."""

from __future__ import annotations

import numpy as np
import pytest

from frontend import Tensor, stats
from hcq.errors import UsageError

RNG = np.random.default_rng(23)
X = RNG.normal(size=(3, 4, 5)).astype(np.float32)


def test_aminmax_is_a_named_pair_of_one_kernel():
    both = Tensor(X).aminmax()
    before = stats.kernels
    Tensor.realize(*both)
    assert stats.kernels - before == 1
    assert (both.min.item(), both.max.item()) == (X.min(), X.max())
    assert Tensor(X).max(keepdim=True).shape == (1, 1, 1)


@pytest.mark.parametrize("name", ["amax", "amin", "aminmax", "argmax", "argmin"])
def test_an_empty_tensor_has_no_extreme(name: str):
    with pytest.raises(UsageError, match="there is no element to choose"):
        getattr(Tensor.zeros(0, 3), name)()


@pytest.mark.parametrize("name", ["max", "min"])
def test_values_and_indices_over_several_axes_are_refused(name: str):
    with pytest.raises(TypeError, match=rf"one axis, saw \(0, 1\)\nhint: a{name}\(\(0, 1\)\)"):
        getattr(Tensor(X), name)((0, 1))
    with pytest.raises(UsageError, match="there is no element to choose"):
        getattr(Tensor.zeros(3, 0), name)(1)
    with pytest.raises(IndexError, match="there is no axis 3"):
        getattr(Tensor(X), name)(3)
