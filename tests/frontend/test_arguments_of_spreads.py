"""PyTorch's forms of spreads: `x.var(0, False)` means `unbiased=False`, also of bound sizes.

Not here: the values (`test_reductions_and_products`), other arguments (`test_argument_names`).
"""

from __future__ import annotations

import numpy as np
import pytest

from frontend import Tensor, Variable
from hcq.errors import UsageTypeError

X = np.array([[1.0, 2.0, 4.0], [3.0, 7.0, 5.0]], np.float32)


@pytest.mark.parametrize("name", ["var", "std", "var_mean"])
def test_unbiased_and_keepdim_follow_the_axis_by_position(name: str):
    x = Tensor(X)
    for t in (x, x[: Variable("n", 1, 2).bind(2)]):
        spread = getattr(t, name)
        for got, want in (
            (spread(1, False), spread(axis=1, correction=0)),
            (spread(1, True, True), spread(axis=1, keepdim=True)),
            (spread(1, correction=None), spread(axis=1)),
        ):
            pairs = zip(got, want, strict=True) if name == "var_mean" else [(got, want)]
            assert all(a.tolist() == b.tolist() for a, b in pairs)
        with pytest.raises(UsageTypeError, match=f"{name}: wanted an axis, unbiased and keepdim, saw 4"):
            spread(0, False, True, 1)
        with pytest.raises(UsageTypeError, match=f"{name}, unbiased: wanted True or False, saw 1"):
            spread(0, 1)
        with pytest.raises(UsageTypeError, match="and unbiased="):
            spread(0, False, unbiased=True)
