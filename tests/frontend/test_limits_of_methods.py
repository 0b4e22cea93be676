"""Methods at the limits of their dtypes: the least integers, the greatest floats, NaN, weights of 0.

Recorded answers of PyTorch over usual values: `test_answers_of_pytorch`.
"""

from __future__ import annotations

import math

import numpy as np
import pytest

from frontend import Tensor
from hcq.errors import UsageError


@pytest.mark.parametrize("dtype", ["int8", "int16", "int32", "int64"])
def test_the_greatest_common_divisor_of_the_least_integer_is_positive(dtype: str):
    least = np.iinfo(dtype).min
    x = Tensor(np.array([-9, 12, least, 6, 0], dtype=dtype))
    y = Tensor(np.array([least, least, -9, least, 3], dtype=dtype))
    assert x.gcd(y).tolist() == [1, 4, 1, 2, 3]


@pytest.mark.parametrize(("dtype", "large"), [("float16", 3e4), ("float32", 3e38), ("float64", 1.5e308)])
def test_a_hypotenuse_neither_overflows_nor_vanishes(dtype: str, large: float):
    tiny = float(np.finfo(dtype).tiny) * 4
    x = np.array([large, -large, 3 * tiny, np.inf, 3, 0, np.nan], dtype=dtype)
    y = np.array([1, large / 16, 4 * tiny, -1, -4, 0, 1], dtype=dtype)
    found = Tensor(x).hypot(Tensor(y)).numpy()
    assert found.dtype == dtype
    np.testing.assert_allclose(found, np.hypot(x, y), rtol=2e-3 if dtype == "float16" else 1e-6)


def test_a_hypotenuse_has_the_slopes_of_its_sides_at_all_sizes():
    for size in (1e-300, 1.0, 1e300):
        x, y = (Tensor(np.array([n * size]), requires_grad=True) for n in (3.0, -4.0))
        x.hypot(y).sum().backward()
        assert x.grad is not None
        assert y.grad is not None
        np.testing.assert_allclose([x.grad.item(), y.grad.item()], [0.6, -0.8], rtol=1e-12)


def test_half_types_are_rounded_once():
    x = np.array([1.0, 2.5, 65504.0, -0.25], dtype="float16")
    np.testing.assert_allclose(Tensor(x).sinc().numpy(), np.sinc(x.astype("float32")), rtol=1e-3, atol=1e-4)
    big = np.array([65504.0, -65504.0, 1.25], dtype="float16")
    assert Tensor(big).round(decimals=1).tolist() == [65504.0, -65504.0, np.float16(1.2)]


def test_a_bessel_function_is_infinite_beyond_its_range():
    found = Tensor(np.array([1.7e308, -np.inf, 800.0, np.nan])).i0().numpy()
    np.testing.assert_array_equal(found, [np.inf, np.inf, np.inf, np.nan])


@pytest.mark.parametrize(
    ("row", "left", "right"),
    [
        ([1.0, 2.0, 2.0, np.nan], [4, 1, 0, 4], [4, 4, 0, 4]),
        ([3.0, 1.0, 2.0, 5.0], [4, 2, 0, 4], [4, 3, 0, 4]),
        ([5.0, 4.0, 3.0, 1.0], [4, 0, 0, 4], [4, 0, 0, 4]),
        ([1.0, np.nan, 3.0], [3, 2, 2, 3], [3, 2, 2, 3]),
        ([], [0] * 4, [0] * 4),
    ],
)
def test_places_in_what_is_not_sorted_are_those_of_pytorch_s_binary_search(
    row: list[float], left: list[int], right: list[int]
):
    values, sequence = Tensor([np.nan, 2.0, 0.0, np.inf]), Tensor(row, dtype="float32")
    for side, want in (("left", left), ("right", right)):
        assert sequence.searchsorted(values, side=side).tolist() == want
        assert values.bucketize(sequence, right=side == "right").tolist() == want
        both = Tensor.stack([sequence, sequence]).searchsorted(Tensor.stack([values] * 2), side=side)
        assert both.tolist() == [want] * 2
    order = Tensor([3, 0, 0, 1])[: len(row)].cast("int64")
    assert order.shape == sequence.shape
    for wrong in (order.cast("int32"), Tensor.zeros(len(row) + 1).cast("int64")):
        with pytest.raises(UsageError, match="wanted a sorter int64"):
            sequence.searchsorted(values, sorter=wrong)


def test_sorted_rows_have_numpy_s_places():
    random = np.random.default_rng(0)
    for n in (1, 2, 7, 64, 1000):
        row, values = np.sort(random.integers(0, n, n)), random.integers(-1, n + 1, (3, 50))
        for side in ("left", "right"):
            found = Tensor(row).searchsorted(Tensor(values), side=side)
            assert found.tolist() == np.searchsorted(row, values, side).tolist()


@pytest.mark.parametrize("wrong", [np.nan, np.inf])
def test_a_histogram_of_values_that_are_not_finite_needs_a_range(wrong: float):
    x = Tensor([1.0, wrong, 3.0])
    with pytest.raises(UsageError, match="finite range"):
        x.histc(4)
    assert x.histc(2, 0.0, 4.0).tolist() == [1.0, 1.0]


def test_a_weight_of_zero_is_not_drawn_where_its_random_number_is_zero():
    seed, place, count = 5544, 4045, 8192  # one random number of 2**24 is 0
    Tensor.manual_seed(seed)
    assert Tensor.rand(count).numpy()[place] == 0.0
    weights = np.zeros(count, dtype="float32")
    weights[7] = 1.0
    Tensor.manual_seed(seed)
    assert Tensor(weights).multinomial(1).tolist() == [7]


@pytest.mark.parametrize("x", [5e-324, 1e-310, -1e-310, 1e-300])
def test_the_logarithm_of_gamma_beside_0(x: float):
    assert Tensor([x], dtype="float64").lgamma().item() == pytest.approx(math.lgamma(x), rel=1e-14)


def test_products_and_means_of_half_floats_do_not_overflow_on_their_way():
    half = Tensor([60000.0]).half()
    assert half.lerp(-half, 0.25).item() == 30000.0
    assert (-half).addcmul(Tensor([300.0]).half(), Tensor([300.0]).half()).item() == 30000.0
    assert Tensor([0.0]).half().addcdiv(half * 1, Tensor([4.0]).half(), value=2).item() == 30000.0
    assert Tensor([[60000.0, 60000.0]]).half().renorm(2, 0, 1.0).tolist()[0] == [0.70703125] * 2


@pytest.mark.parametrize(
    ("dtype", "cases"),
    [
        ("float32", [(2.0**-126, 130), (1.5, -150), (0.0, 200), (math.inf, -2000), (1.0, 128)]),
        ("float64", [(2.0**-1000, 1500), (2.0**1000, -2000), (1.75 * 2.0**-1020, -30), (0.0, 5000)]),
        ("float16", [(2.0**-14, 20), (2.0**-24, 0), (1.0, -25), (1.0, 16)]),
    ],
)
def test_a_power_of_two_beyond_the_dtype_scales_a_number_exactly(dtype: str, cases: list[tuple[float, int]]):
    x, y = (np.array(one) for one in zip(*cases, strict=True))
    with np.errstate(over="ignore"):
        want = np.ldexp(x.astype(dtype), y)
    assert Tensor(x.astype(dtype)).ldexp(Tensor(y)).tolist() == want.tolist()


def test_settings_of_losses_are_within_their_range():
    x, y = Tensor([[0.0, 1.0]]), Tensor([1])
    with pytest.raises(UsageError, match="label_smoothing: wanted at least 0 and at most 1, saw 7"):
        x.cross_entropy(y, label_smoothing=7)
    with pytest.raises(UsageError, match="label_smoothing"):
        x.sparse_categorical_crossentropy(y, label_smoothing=-0.1)
    with pytest.raises(UsageError, match="beta"):
        x.smooth_l1_loss(x, beta=-1)
