"""Layers that take the size of their first input.

Not here: values beside PyTorch's (`data/programs/lazy_layers.txt`).
"""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest

import frontend
from frontend import Tensor
from frontend.nn.parameter import UninitializedParameter
from hcq.errors import UsageError, UsageTypeError

nn: Any = frontend.nn


def test_a_tensor_without_a_shape_says_what_to_do():
    layer = nn.LazyLinear(3)
    for use in (lambda: layer.weight.shape, layer.weight.numel, lambda: len(layer.weight)):
        with pytest.raises(UsageError, match="UninitializedParameter: it has no shape before the first call"):
            use()
    assert repr(layer.weight) == "<UninitializedParameter>"


def test_a_lazy_layer_draws_the_numbers_of_an_ordinary_one():
    Tensor.manual_seed(7)
    want = nn.Conv2d(3, 4, 2).weight.tolist()
    Tensor.manual_seed(7)
    layer = nn.LazyConv2d(4, 2)
    layer(Tensor.ones(1, 3, 4, 4))
    assert layer.weight.tolist() == want


def test_an_optimiser_without_state_may_be_made_before_the_first_call_and_others_say_why_not():
    layer = nn.LazyLinear(2)
    optimiser = nn.optim.SGD(layer.parameters(), lr=0.5)
    with pytest.raises(UsageError, match="call the model once with an example, and make the optimiser after"):
        nn.optim.Adam(layer.parameters())
    before = layer(Tensor.ones(1, 3)).numpy()
    layer(Tensor.ones(1, 3)).sum().backward()
    optimiser.step()
    np.testing.assert_allclose(layer(Tensor.ones(1, 3)).numpy(), before - 2, rtol=1e-5)


def test_inputs_and_settings_that_do_not_fit_are_refused():
    with pytest.raises(UsageError, match="LazyConv2d: wanted an input of 3 or 4 axes, saw the"):
        nn.LazyConv2d(4, 2)(Tensor.ones(2, 3))
    with pytest.raises(UsageError, match=r"LazyBatchNorm1d: wanted an input of at least 2 axes"):
        nn.LazyBatchNorm1d()(Tensor.ones(3))
    with pytest.raises(UsageError, match="Linear, out_features: wanted at least 1"):
        nn.LazyLinear(0)
    with pytest.raises(UsageTypeError, match="LazyLinear"):
        nn.LazyLinear(3, typo=1)


def test_a_copy_of_a_lazy_layer_is_lazy():
    layer = nn.LazyLinear(3)
    other = copy.deepcopy(layer)
    layer(Tensor.ones(2, 5))
    assert isinstance(other.weight, UninitializedParameter)
    assert other(Tensor.ones(2, 4)).shape == (2, 3)


def test_hooks_see_the_first_call():
    seen: list[Any] = []
    layer = nn.LazyLinear(3)
    layer.register_forward_hook(lambda module, _, y: seen.append((type(module).__name__, y.shape)))
    layer(Tensor.ones(2, 5))
    assert seen == [("Linear", (2, 3))]
