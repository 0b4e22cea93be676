"""Powers: exact for integers, accurate for floats, and their gradients."""

from __future__ import annotations

import numpy as np
import pytest

from frontend import Tensor
from hcq.errors import UsageError

WIDTHS = {
    "int8": 8, "int16": 16, "int32": 32, "int64": 64, "uint8": 8, "uint16": 16, "uint32": 32, "uint64": 64,
}  # fmt: skip


def wrapped(value: int, dtype: str) -> int:
    low = value % (1 << WIDTHS[dtype])
    return low - (1 << WIDTHS[dtype]) if dtype[0] == "i" and low >> (WIDTHS[dtype] - 1) else low


@pytest.mark.sampled(11)
@pytest.mark.parametrize("dtype", WIDTHS)
def test_integer_powers_are_exact(dtype: str):
    bases, exponents = [0, 1, 2, 3, 7, 10, 100], [0, 1, 2, 5, 31, 39, 40, 63, 64, 65, 100, 127]
    x, y = Tensor(bases, dtype=dtype), Tensor(exponents, dtype=dtype)
    want = [[wrapped(b**e, dtype) for e in exponents] for b in bases]
    assert (x.unsqueeze(1) ** y).tolist() == want
    for at, exponent in enumerate(exponents):
        assert (x**exponent).tolist() == [row[at] for row in want]
    assert (3**y).tolist() == want[3]


@pytest.mark.parametrize("dtype", ["int8", "int64", "uint32"])
def test_integer_powers_with_large_exponents_wrap_around(dtype: str):
    x = [3, 2, 5, 0, 1]
    for exponent in (300, 2**62 + 3, 2**64 + 1, 10**25):
        want = [wrapped(pow(n, exponent, 1 << 64), dtype) for n in x]
        assert (Tensor(x, dtype=dtype) ** exponent).tolist() == want


def test_negative_powers_of_integers_match_pytorch():
    x, y = Tensor([2, 1, -1, 0, -1, 3, -1]), Tensor([-1, -2, -3, -1, -2, -5, -4])
    assert (x**y).tolist() == [0, 1, -1, 0, 1, 0, 1]
    with pytest.raises(UsageError, match="no whole number"):
        x**-1


@pytest.mark.sampled(2)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_powers_of_floats_stay_within_two_units_of_the_last_place(dtype: str):
    rng = np.random.default_rng(1)
    x, y = rng.uniform(0, 50, 4096).astype(dtype), rng.uniform(-20, 20, 4096).astype(dtype)
    wide = np.longdouble if dtype == "float64" else np.float64
    for got, want in [
        (Tensor(x) ** Tensor(y), x.astype(wide) ** y.astype(wide)),
        (0.7 ** Tensor(y), wide(np.array(0.7, dtype)) ** y.astype(wide)),
        *[
            (Tensor(x) ** e, x.astype(wide) ** wide(np.array(e, dtype)))
            for e in (2, 3, -1, -2, 0.5, -0.5, 7, 0.3)
        ],
    ]:
        error = np.abs(got.numpy().astype(wide) - want) / np.spacing(np.abs(want).astype(dtype))
        assert error.max() <= 2
