"""Random numbers: the published test vectors, reproducibility, distributions."""

from __future__ import annotations

import numpy as np
import pytest

from frontend import Tensor, dtypes
from frontend.ops.random import threefry
from hcq.errors import UsageError


@pytest.mark.parametrize(
    ("counter", "key", "want"),
    [
        ((0, 0), (0, 0), (0x6B200159, 0x99BA4EFE)),
        ((0xFFFFFFFF, 0xFFFFFFFF), (0xFFFFFFFF, 0xFFFFFFFF), (0x1CB996FC, 0xBB002BE7)),
        ((0x243F6A88, 0x85A308D3), (0x13198A2E, 0x03707344), (0xC4923A9C, 0x483DF7A0)),
    ],
)
def test_threefry_gives_the_published_words(
    counter: tuple[int, int], key: tuple[int, int], want: tuple[int, int]
):
    """Known answers of Random123 1.14, kat_vectors, threefry2x32 with 20 rounds."""
    words = [Tensor([w], dtype=dtypes.uint32) for w in (*key, *counter)]
    x, y = threefry(*words)
    assert (x.item(), y.item()) == want


def test_a_seed_gives_the_same_numbers_again():
    Tensor.manual_seed(42)
    first = [Tensor.rand(5).tolist(), Tensor.randn(3).tolist(), Tensor.randint(4, high=100).tolist()]
    Tensor.manual_seed(42)
    assert [Tensor.rand(5).tolist(), Tensor.randn(3).tolist(), Tensor.randint(4, high=100).tolist()] == first
    Tensor.manual_seed(43)
    assert Tensor.rand(5).tolist() != first[0]


def test_numbers_do_not_depend_on_when_they_are_computed():
    Tensor.manual_seed(7)
    a, b = Tensor.rand(4), Tensor.rand(4)
    late = (b.tolist(), a.tolist())
    Tensor.manual_seed(7)
    assert (Tensor.rand(4).realize().tolist(), Tensor.rand(4).realize().tolist()) == late[::-1]


def test_draws_of_a_shape_share_their_kernel():
    from frontend import stats

    Tensor.rand(6, 5).realize()
    plans = stats.plans
    assert Tensor.rand(6, 5).tolist() != Tensor.rand(6, 5).tolist()
    assert stats.plans == plans


def test_distributions():
    Tensor.manual_seed(0)
    n = 50_000
    u = Tensor.rand(n).numpy()
    assert u.min() >= 0
    assert u.max() < 1
    assert u.mean() == pytest.approx(0.5, abs=0.01)
    assert np.histogram(u, 10, (0, 1))[0].std() / n < 0.005
    z = Tensor.randn(n).numpy()
    assert z.mean() == pytest.approx(0, abs=0.02)
    assert z.std() == pytest.approx(1, abs=0.02)
    i = Tensor.randint(n, low=-2, high=3).numpy()
    assert set(np.unique(i)) == {-2, -1, 0, 1, 2}
    assert np.bincount(i + 2).std() / n < 0.01
    w = Tensor.uniform(n, low=-3, high=1).numpy()
    assert -3 <= w.min() < -2.99
    assert 0.99 < w.max() < 1
    assert Tensor.normal(n, mean=5, std=0.5).numpy().mean() == pytest.approx(5, abs=0.02)


def test_initialisers_have_their_bounds():
    for name, bound in (
        ("glorot_uniform", (6 / (100 * 9 + 50 * 9)) ** 0.5),
        ("kaiming_uniform", (6 / (1 + 0.01**2) / (50 * 9)) ** 0.5),
    ):
        x = getattr(Tensor, name)(100, 50, 3, 3).numpy()
        assert np.abs(x).max() == pytest.approx(bound, rel=0.01)
    assert Tensor.kaiming_normal(100, 50, a=0).numpy().std() == pytest.approx((2 / 50) ** 0.5, rel=0.05)
    assert np.abs(Tensor.scaled_uniform(10, 10).numpy()).max() <= 0.1


def test_like_and_dtypes():
    x = Tensor.zeros(2, 3, dtype=dtypes.float16)
    assert (x.rand_like().shape, x.rand_like().dtype) == ((2, 3), dtypes.float16)
    assert x.randn_like(dtype=dtypes.float64).dtype is dtypes.float64
    with pytest.raises(UsageError, match="randint"):
        Tensor.rand(3, dtype=dtypes.int32)
    with pytest.raises(UsageError, match="low < high"):
        Tensor.randint(3, low=5, high=5)


@pytest.mark.parametrize(
    ("dtype", "bits"), [("float16", 11), ("bfloat16", 8), ("float32", 24), ("float64", 53)]
)
def test_uniform_numbers_lie_evenly_on_the_grid_below_one(dtype: str, bits: int):
    Tensor.manual_seed(3)
    n = 200_000
    u = Tensor.rand(n, dtype=dtype).double().numpy()
    assert u.min() >= 0
    assert u.max() < 1
    steps = u * 2.0**bits
    np.testing.assert_array_equal(steps, np.floor(steps))
    if bits <= 11:  # every step is there, as often as any: within six standard deviations
        counts = np.bincount(steps.astype(int), minlength=1 << bits)
        mean = n / 2**bits
        assert np.abs(counts - mean).max() < 6 * mean**0.5
    else:
        assert np.unique(steps % 16).size == 16
    assert u.mean() == pytest.approx(0.5, abs=0.005)


@pytest.mark.sampled(5)
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
@pytest.mark.parametrize(("low", "high"), [(-1.0, 1.0), (5.0, 5.01), (-7.0, -6.5), (1.0, 2.0)])
def test_uniform_numbers_stay_below_their_bound(dtype: str, low: float, high: float):
    Tensor.manual_seed(4)
    u = Tensor.uniform(50_000, low=low, high=high, dtype=dtype).double().numpy()
    assert u.min() >= Tensor([low], dtype=dtype).item()
    assert u.max() < high


def test_uniform_and_normal_refuse_invalid_arguments():
    with pytest.raises(UsageError, match="low <= high"):
        Tensor.uniform(3, low=5, high=3)
    with pytest.raises(UsageError, match="not negative"):
        Tensor.normal(3, std=-1)
    assert Tensor.uniform(3, low=2, high=2).tolist() == [2.0, 2.0, 2.0]


def test_normal_numbers_of_float64_use_more_digits_than_float32():
    Tensor.manual_seed(5)
    x = Tensor.randn(1000, dtype="float64").numpy()
    assert (x != x.astype(np.float32)).mean() > 0.9
