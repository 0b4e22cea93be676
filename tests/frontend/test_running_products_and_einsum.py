"""Running products, einsum with repeated letters, variance with mean: against NumPy and differences."""

from __future__ import annotations

import numpy as np
import pytest

from frontend import Tensor, dtypes, stats
from hcq.errors import UsageError

RNG = np.random.default_rng(17)


@pytest.mark.sampled(7)
@pytest.mark.parametrize("n", [0, 1, 2, 512, 513, 1500])
def test_running_products_of_any_length(n: int):
    x = RNG.uniform(0.9, 1.1, (2, n))
    np.testing.assert_allclose(Tensor(x).cumprod(dim=1).numpy(), np.cumprod(x, 1), rtol=1e-10)
    counts = RNG.integers(-3, 4, (2, n)).astype(np.int32)
    np.testing.assert_array_equal(Tensor(counts).cumprod(1).numpy(), np.cumprod(counts, 1, dtype=np.int32))
    np.testing.assert_array_equal(Tensor(counts).cumsum(1).numpy(), np.cumsum(counts, 1, dtype=np.int64))


def test_running_products_of_small_dtypes():
    assert Tensor([100, 2, 3], dtype="int8").cumprod().tolist() == [100, 200, 600]
    assert Tensor([True, True, False]).cumsum().tolist() == [1, 2, 2]
    half = Tensor([1.001] * 300, dtype=dtypes.float16).cumprod()
    assert half.dtype is dtypes.float16
    exact = float(np.float16(1.001)) ** 300
    assert abs(half[-1].item() - exact) <= np.spacing(np.float16(exact))
    assert Tensor(3.0).cumprod().item() == 3.0


@pytest.mark.parametrize(("size", "stride", "dilation"), [(17, 1, 1), (20, 3, 1), (18, 2, 2), (40, 1, 1)])
def test_gradient_of_large_windows(size: int, stride: int, dilation: int):
    """Each element's gradient is the sum over the windows that hold it."""
    x = Tensor(RNG.normal(size=(2, 60, 2)))
    windows = x.windows(1, size, stride, dilation)
    weight = RNG.normal(size=windows.shape)
    (g,) = (windows * Tensor(weight)).sum().gradient(x)
    want = np.zeros(x.shape)
    for o in range(windows.shape[1]):
        for w in range(size):
            want[:, o * stride + w * dilation] += weight[:, o, :, w]
    np.testing.assert_allclose(g.numpy(), want, rtol=1e-12)


def test_einsum_refuses_unequal_axes_of_one_letter():
    with pytest.raises(UsageError, match="axis 'i' has sizes 3 and 4"):
        Tensor.einsum("ii->i", Tensor.zeros(3, 4))
    with pytest.raises(UsageError, match="must name each axis"):
        Tensor.einsum("i->i", Tensor.zeros(3, 4))


def test_variance_with_mean_of_rows_is_two_kernels_at_most():
    var, mean = Tensor(RNG.normal(size=(64, 33))).var_mean(1)
    before = stats.kernels
    var.realize(mean)
    assert stats.kernels - before <= 2


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "int32"])
def test_products_of_integers_have_their_dtype_and_lowest_bits_as_in_pytorch(dtype: str):
    a, b = np.array([[100, 3], [50, 97]], dtype), np.array([[100, 1], [1, 100]], dtype)
    x, y = Tensor(a), Tensor(b)
    found = {
        "matmul": x @ y, "einsum": Tensor.einsum("ij,jk->ik", x, y), "linear": x.linear(y, y[0]) - y[0],
        "addmm": x.addmm(x, y) - x, "tensordot": x.tensordot(y, 1),
        "baddbmm": (x[None].baddbmm(x[None], y[None]) - x)[0],
    }  # fmt: skip
    for name, z in found.items():
        assert (str(z.dtype), z.tolist()) == (f"torch.{dtype}", (a @ b).tolist()), name
    wide = x.int() @ y.int()
    assert (wide.dtype, wide.tolist()) == (dtypes.int32, (a.astype("int32") @ b.astype("int32")).tolist())
    assert Tensor.einsum("ij,jk,kl->il", x, y, x).tolist() == (a @ b @ a).tolist()
