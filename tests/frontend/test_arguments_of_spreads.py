"""Spreads take what follows the axis by name: PyTorch's `x.var(0, False)` means `unbiased=False`.

Not here: the values (`test_reductions_and_products`), other arguments (`test_argument_names`).
"""

from __future__ import annotations

import numpy as np
import pytest

from frontend import Tensor, Variable
from hcq.errors import UsageTypeError

X = np.array([[1.0, 2.0, 4.0], [3.0, 7.0, 5.0]], np.float32)


@pytest.mark.parametrize("name", ["var", "std", "var_mean", "std_mean"])
def test_a_second_argument_by_position_is_refused(name: str):
    x = Tensor(X)
    with pytest.raises(
        UsageTypeError, match=f"{name}: wanted the arguments .* by name, saw False\nhint: unbiased="
    ):
        getattr(x, name)(0, False)
    if name != "std_mean":
        with pytest.raises(UsageTypeError, match="by name, saw True"):
            getattr(x[: Variable("n", 1, 2).bind(2)], name)(0, True)


@pytest.mark.parametrize("unbiased", [False, True])
def test_the_names_of_both_libraries_mean_one_correction(unbiased: bool):  # noqa: FBT001
    x, ddof = Tensor(X), int(unbiased)
    want = X.var(1, ddof=ddof, keepdims=True)
    for got in (x.var(1, unbiased=unbiased, keepdim=True), x.var(1, correction=ddof, keepdim=True)):
        np.testing.assert_allclose(got.numpy(), want, rtol=1e-6)
    spread, mean = x.std_mean(dim=1, unbiased=unbiased, keepdim=True)
    np.testing.assert_allclose(spread.numpy(), np.sqrt(want), rtol=1e-6)
    assert mean.shape == (2, 1)
    rows = x[: Variable("n", 1, 2).bind(2)]
    np.testing.assert_allclose(rows.var(1, unbiased=unbiased).numpy(), want[:, 0], rtol=1e-6)


def test_extremes_of_a_number_are_a_pair_of_numbers():
    values, indices = Tensor(3.0).topk(1)
    assert (values.shape, values.item(), indices.shape, indices.item()) == ((), 3.0, (), 0)
