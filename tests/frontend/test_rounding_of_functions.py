"""Functions of several steps of sixteen-bit floats are as near to float64 as PyTorch's: they round once.

`tests.oracles.rounding` lists them and recorded PyTorch's errors.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from frontend import Tensor
from frontend.nn import functional as F  # noqa: N812 - the field's name
from tests.oracles.recording import recorded
from tests.oracles.rounding import DTYPES, errors, names

RECORDS = recorded("rounding.json")
RATIO = 1.3
OF_ATTENTION = 1.5
"""Its weights are rounded after they are divided by their sum, PyTorch's before, where the greatest is 1."""


def value(text: str, dtype: str, *, wide: bool) -> Any:
    def make(array: Any) -> Tensor:
        t = Tensor(array)
        return (t.cast(dtype).cast("float64") if wide else t.cast(dtype)) if t.dtype.is_float else t

    found = eval(text, {"F": F, **names(make)})
    return found.cast("float64").numpy()


@pytest.mark.sampled(36)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("text", RECORDS)
def test_errors_are_no_greater_than_those_of_pytorch(text: str, dtype: str):
    got = errors(value(text, dtype, wide=False), value(text, dtype, wide=True))
    for what, ours, theirs in zip(("greatest", "root mean square"), got, RECORDS[text][dtype], strict=True):
        most = OF_ATTENTION if "attention" in text else RATIO
        assert ours <= most * theirs, f"{what} error {ours}, PyTorch {theirs}"


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(), (3,)], ids=str)
def test_a_number_beside_sixteen_bit_floats_is_not_rounded(dtype: str, shape: tuple[int, ...]):
    x = Tensor.full(shape, 1.7, dtype=dtype)
    for number in (0.3, 0.7, 1.1, -2.3, 0.9, 3001, 1e-3):  # from the fifth on they are passed in memory
        product, total = x * number, x + number
        assert product.dtype.name == total.dtype.name == dtype
        for found, exact in (
            (product, np.float32(x.max().item()) * np.float32(number)),
            (total, np.float32(x.max().item()) + np.float32(number)),
        ):
            assert found.max().item() == Tensor(exact).cast(dtype).item()


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_tensor_without_axes_beside_sixteen_bit_floats_is_not_rounded(dtype: str):
    x = Tensor.full((3,), 1.7, dtype=dtype)
    assert (x * Tensor(0.3)).tolist() == (x * 0.3).tolist()


@pytest.mark.parametrize("dtype", DTYPES)
def test_thresholds_are_not_rounded_and_compared_numbers_are(dtype: str):
    x = Tensor([0.3]).cast(dtype)  # a little above 0.3
    assert F.threshold(x, 0.3, -1.0).item() == x.item() > 0.3
    assert F.softshrink(x, 0.3).item() == pytest.approx(x.item() - 0.3, rel=0.01)
    assert (x == 0.3).item()
    assert not (x > 0.3).item()
    assert F.hardshrink(x, 0.3).item() == 0
