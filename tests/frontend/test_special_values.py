"""Powers, remainders and rounded quotients of special numbers, as `tests.oracles.special` recorded them."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from frontend import Tensor
from tests.oracles.recording import recorded
from tests.oracles.special import NUMBERS

if TYPE_CHECKING:
    from collections.abc import Callable

WANT = recorded("special.json")
OPERATIONS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "pow": lambda x, y: x**y,
    "mod": lambda x, y: x % y,
    "floordiv": lambda x, y: x // y,
}
PLACES = {"pow": 2, "mod": 0.5, "floordiv": 1}
"""Units of the last place that may differ: PyTorch rounds quotients of float16 more than once."""
STEP = {"float16": 2.0**-10, "bfloat16": 2.0**-7, "float32": 2.0**-23, "float64": 2.0**-52}
"""One unit of the last place, relative."""


def check(got: Any, want: Any, places: float) -> None:
    """Compare numbers, signs of zeros, and NaNs; finite numbers up to a relative error."""
    got, want = np.array(got, np.float64), np.array(want, np.float64)
    exact = ~np.isfinite(want) | (want == 0)
    np.testing.assert_array_equal(got[exact], want[exact])
    zero = want == 0
    np.testing.assert_array_equal(np.signbit(got[zero]), np.signbit(want[zero]))
    np.testing.assert_allclose(got[~exact], want[~exact], rtol=places, atol=0)


def table(dtype: str, operation: str) -> Any:
    return [[float(n) for n in row] for row in WANT[f"{operation} {dtype}"]]


def lost(x: float, y: float, want: float) -> bool:
    """Whether PyTorch has no number for a remainder that has one: its float32 of 1e20 by 1e-30."""
    return math.isnan(want) and math.isfinite(x) and y != 0 and not math.isnan(y)


@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize("dtype", STEP)
def test_special_values_match_pytorch(dtype: str, operation: str):
    x = Tensor(NUMBERS, dtype="float64").cast(dtype)
    got = OPERATIONS[operation](x.unsqueeze(1), x)
    want = table(dtype, operation)
    if operation == "mod":  # the remainder is exact, as Python's
        want = [
            [a % b if lost(a, b, n) else n for b, n in zip(x.tolist(), row, strict=True)]
            for a, row in zip(x.tolist(), want, strict=True)
        ]
    check(got.tolist(), want, PLACES[operation] * STEP[dtype])


@pytest.mark.sampled(5)
@pytest.mark.parametrize("dtype", STEP)
def test_powers_to_special_numbers_match_pytorch(dtype: str):
    x = Tensor(NUMBERS, dtype="float64").cast(dtype)
    exponents = x.tolist()
    got = np.array([(x**n).tolist() for n in exponents]).T
    check(got, table(dtype, "pow"), 2 * STEP[dtype])


@pytest.mark.sampled(5)
@pytest.mark.parametrize("dtype", STEP)
def test_powers_of_special_numbers_match_pytorch(dtype: str):
    x = Tensor(NUMBERS, dtype="float64").cast(dtype)
    check([(n**x).tolist() for n in x.tolist()], table(dtype, "pow"), 2 * STEP[dtype])
