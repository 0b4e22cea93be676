"""Sums of integers, and what reductions, products, convolutions and losses refuse; dropout.

Values and gradients: `test_answers_of_pytorch`, `test_gradients_of_pytorch`, `test_operator_database`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from frontend import Tensor, dtypes
from hcq.errors import UsageError

RNG = np.random.default_rng(1)
X = RNG.standard_normal((3, 4, 5), dtype=np.float32)
I = RNG.integers(-9, 9, (3, 4, 5)).astype(np.int32)  # noqa: E741 - the usual name


def same(got: Tensor, want: Any, rtol: float = 1e-5, atol: float = 1e-5) -> None:
    array = got.numpy()
    assert array.shape == np.shape(want)
    np.testing.assert_allclose(array, want, rtol=rtol, atol=atol)


INTEGERS = ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]


@pytest.mark.parametrize("dtype", INTEGERS)
def test_sums_and_products_of_integers_have_64_bits(dtype: str):
    t, wide = Tensor([100] * 7, dtype=dtype), "uint64" if dtype == "uint64" else "int64"
    powers = [100**n for n in range(1, 8)]
    for found, want in (
        (t.prod(), powers[-1]),
        (t.cumprod(0), powers),
        (t.sum(), 700),
        (t.cumsum(0), [100 * n for n in range(1, 8)]),
        (t.nansum(), 700),
        (t.count_nonzero(), 7),
        (t.reshape(1, 7).prod(1, keepdim=True), [[powers[-1]]]),
        (Tensor.eye(3, dtype=dtype).trace(), 3),
        (t[0].sum(), 100),
        (t[0].cumprod(0), 100),
    ):
        assert found.tolist() == want
        assert found.dtype.name == (wide if found.tolist() != 7 else "int64")


def test_sums_of_great_integers_do_not_wrap_at_32_bits():
    x = Tensor([2**31 - 1] * 3, dtype=dtypes.int32)
    assert x.sum().item() == 3 * (2**31 - 1)
    assert x.cumsum(0).tolist() == [n * (2**31 - 1) for n in (1, 2, 3)]
    assert (x.reshape(1, 3) * Tensor([[1], [0], [0]])).trace().item() == 2**31 - 1
    assert Tensor([2**32 - 1] * 3, dtype=dtypes.uint32).sum().item() == 3 * (2**32 - 1)
    assert Tensor([65535] * 70000, dtype=dtypes.uint16).sum().item() == 65535 * 70000
    most = Tensor([2**63, 2**62], dtype=dtypes.uint64).sum()
    assert (most.dtype, most.item()) == (dtypes.uint64, 2**63 + 2**62)


def test_means_of_integers_are_rounded_after_the_sum():
    assert Tensor([2**25 + 1, -(2**25)], dtype=dtypes.int32).mean().item() == 0.5
    assert Tensor([2**31 - 1] * 4, dtype=dtypes.int32).mean().item() == 2.0**31
    assert Tensor([2**32 - 1, 1], dtype=dtypes.uint32).mean(0).item() == 2.0**31
    assert Tensor([2**40 + 2, -(2**40)], dtype=dtypes.int64).mean().item() == 1.0
    for dtype in INTEGERS:
        found = Tensor([[1, 2], [4, 5]], dtype=dtype).mean(1)
        assert (found.dtype, found.tolist()) == (dtypes.float32, [1.5, 4.5])


def test_axes_are_checked():
    with pytest.raises(UsageError, match=r"no axis 3; the shape \(3, 4, 5\)"):
        Tensor(X).sum(3)
    with pytest.raises(UsageError, match="twice"):
        Tensor(X).sum((0, -3))
    with pytest.raises(UsageError, match="no element"):
        Tensor(X)[:, :0].max(1)


def test_matmul_of_other_dtypes():
    a, b = I[0], I[1].T
    same(Tensor(a) @ Tensor(b), a @ b)
    assert (Tensor(X[0]).half() @ Tensor(X[1].T).half()).dtype is dtypes.float16
    with pytest.raises(UsageError, match=r"\(3, 4, 5\) with \(3, 4, 5\)"):
        Tensor(X) @ Tensor(X)


def test_conv2d_takes_unequal_padding_and_pictures_of_one_axis():
    x, w = Tensor(RNG.standard_normal((1, 2, 6, 6))), Tensor(RNG.standard_normal((3, 2, 3, 3)))
    assert x.conv2d(w, padding=(0, 1, 2, 0)).tolist() == x.pad((0, 1, 2, 0)).conv2d(w).tolist()
    line = x[:, :, 0].conv2d(w[:, :, 0])
    np.testing.assert_allclose(line.numpy(), x[:, :, :1].conv2d(w[:, :, :1])[:, :, 0].numpy(), rtol=1e-12)


def test_sparse_cross_entropy_smooths():
    x, classes = Tensor(LOGITS), Tensor([0, 4, 2, 2, 1, 3])
    found = x.sparse_categorical_crossentropy(classes, label_smoothing=0.1)
    assert found.item() == x.cross_entropy(classes, label_smoothing=0.1).item()


def test_conv2d_refuses_mismatched_arguments():
    with pytest.raises(UsageError, match="4 input channels"):
        Tensor.zeros(1, 3, 8, 8).conv2d(Tensor.zeros(2, 4, 3, 3))
    with pytest.raises(UsageError, match="kernel of 9"):
        Tensor.zeros(1, 3, 8, 8).conv2d(Tensor.zeros(2, 3, 9, 9))


LOGITS = RNG.standard_normal((6, 5), dtype=np.float32)


def test_dropout_keeps_the_mean_and_acts_in_training_only():
    x = Tensor.ones(10_000)
    assert x.dropout(0.5, training=False) is x
    with Tensor.train(False):
        assert x.dropout(0.5) is x
    y = x.dropout(0.25).numpy()
    assert set(np.unique(y)) == {0.0, np.float32(1 / 0.75)}
    assert y.mean() == pytest.approx(1, abs=0.03)
