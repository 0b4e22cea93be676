"""Reductions, matrix products, convolutions, pools, norms and losses against NumPy."""

from __future__ import annotations

import math
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


@pytest.mark.sampled(3)
@pytest.mark.parametrize("axis", [None, 0, -1, (0, 2)])
@pytest.mark.parametrize("name", ["sum", "prod", "amax", "amin", "mean"])
def test_reductions(name: str, axis: Any):
    numpy = getattr(np, name)
    same(getattr(Tensor(X), name)(axis), numpy(X, axis=axis))
    same(getattr(Tensor(X), name)(axis, keepdim=True), numpy(X, axis=axis, keepdims=True))


@pytest.mark.parametrize("name", ["sum", "amax", "amin"])
def test_reductions_of_integers(name: str):
    same(getattr(Tensor(I), name)(1), getattr(np, name)(I, axis=1))


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


def test_sums_of_bools_count_them():
    for found in (Tensor([True, False, True]).sum(), Tensor([True, False, True]).cumsum(0)[-1]):
        assert (found.dtype, found.item()) == (dtypes.int64, 2)
    assert Tensor([True, True]).prod().dtype is dtypes.int64


def test_a_dtype_of_a_sum_is_that_of_its_result():
    x = Tensor([100, 100], dtype=dtypes.int8)
    for dtype, want in (("int8", -56), ("uint8", 200), ("int32", 200), ("float32", 200.0)):
        for found in (x.sum(dtype=dtype), x.cumsum(0, dtype=dtype)[-1]):
            assert (found.dtype.name, found.item()) == (dtype, want)


def test_means_of_integers_are_rounded_after_the_sum():
    assert Tensor([2**25 + 1, -(2**25)], dtype=dtypes.int32).mean().item() == 0.5
    assert Tensor([2**31 - 1] * 4, dtype=dtypes.int32).mean().item() == 2.0**31
    assert Tensor([2**32 - 1, 1], dtype=dtypes.uint32).mean(0).item() == 2.0**31
    assert Tensor([2**40 + 2, -(2**40)], dtype=dtypes.int64).mean().item() == 1.0
    for dtype in INTEGERS:
        found = Tensor([[1, 2], [4, 5]], dtype=dtype).mean(1)
        assert (found.dtype, found.tolist()) == (dtypes.float32, [1.5, 4.5])


def test_sixteen_bit_floats_are_added_in_32():
    assert Tensor.full((4096,), 1.0, dtype=dtypes.float16).sum().item() == 4096.0
    assert Tensor.full((4096,), 1.0, dtype=dtypes.bfloat16).mean().item() == 1.0


@pytest.mark.parametrize("correction", [0, 1])
def test_variance_and_deviation(correction: int):
    same(Tensor(X).var(1, correction=correction), X.var(1, ddof=correction))
    same(Tensor(X).std((0, 2), correction=correction), X.std((0, 2), ddof=correction))


@pytest.mark.parametrize("axis", [None, 0, 1, 2])
def test_indices_of_extremes(axis: Any):
    same(Tensor(I).argmax(axis), I.argmax(axis))
    same(Tensor(I).argmin(axis), I.argmin(axis))
    same(Tensor(X).argmax(axis), X.argmax(axis))


def test_a_nan_is_the_first_extreme():
    assert Tensor([1.0, math.nan, 5.0]).argmax().item() == 1
    assert math.isnan(Tensor([1.0, math.nan, 5.0]).max().item())


def test_any_and_all():
    mask = X > 0.5
    same(Tensor(mask).any(1), mask.any(1))
    same(Tensor(mask).all((0, 2), keepdim=True), mask.all((0, 2), keepdims=True))
    assert Tensor(I).count_nonzero().item() == np.count_nonzero(I)


def test_logsumexp_does_not_overflow():
    same(Tensor(X).logsumexp(1), np.log(np.exp(X).sum(1)))
    assert Tensor([1000.0, 1000.0]).logsumexp().item() == pytest.approx(1000 + math.log(2))
    assert Tensor([-math.inf, -math.inf]).logsumexp().item() == -math.inf


@pytest.mark.sampled(5)
@pytest.mark.parametrize("n", [1, 7, 600, 1500])
def test_running_sums(n: int):
    x = RNG.integers(-5, 5, (2, n)).astype(np.int32)
    same(Tensor(x).cumsum(1), x.cumsum(1))
    y = RNG.standard_normal((n, 2), dtype=np.float32)
    same(Tensor(y).cumsum(0), y.cumsum(0), atol=1e-3)


def test_axes_are_checked():
    with pytest.raises(UsageError, match=r"no axis 3; the shape \(3, 4, 5\)"):
        Tensor(X).sum(3)
    with pytest.raises(UsageError, match="twice"):
        Tensor(X).sum((0, -3))
    with pytest.raises(UsageError, match="no element"):
        Tensor(X)[:, :0].max(1)


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("a", "b"),
    [
        ((4,), (4,)),
        ((3, 4), (4,)),
        ((4,), (4, 5)),
        ((3, 4), (4, 5)),
        ((2, 3, 4), (4, 5)),
        ((2, 1, 3, 4), (7, 4, 5)),
        ((4,), (2, 4, 5)),
        ((2, 3, 4), (4,)),
    ],
    ids=str,
)
def test_matmul_of_any_rank(a: tuple[int, ...], b: tuple[int, ...]):
    x, y = RNG.standard_normal(a, dtype=np.float32), RNG.standard_normal(b, dtype=np.float32)
    same(Tensor(x) @ Tensor(y), x @ y)


def test_matmul_of_other_dtypes():
    a, b = I[0], I[1].T
    same(Tensor(a) @ Tensor(b), a @ b)
    assert (Tensor(X[0]).half() @ Tensor(X[1].T).half()).dtype is dtypes.float16
    with pytest.raises(UsageError, match=r"\(3, 4, 5\) with \(3, 4, 5\)"):
        Tensor(X) @ Tensor(X)


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    "formula", ["ijk,ljk->il", "ijk->kji", "ijk->", "ijk,ijk->ij", "ijk,ijk,ijk->j", "ijk->jk"]
)
def test_einsum(formula: str):
    count = formula.split("->", maxsplit=1)[0].count(",") + 1
    same(Tensor.einsum(formula, *[Tensor(X)] * count), np.einsum(formula, *[X] * count), rtol=1e-4)


def test_einsum_without_a_result_sorts_the_letters():
    y = RNG.standard_normal((5, 6), dtype=np.float32)
    same(Tensor.einsum("bij,jk", Tensor(X), Tensor(y)), np.einsum("bij,jk", X, y))


def convolved(  # noqa: PLR0917 - the case's numbers
    x: Any, w: Any, stride: tuple[int, int], padding: tuple[int, int], dilation: tuple[int, int], groups: int
) -> Any:
    """The definition, term by term."""
    x = np.pad(x, ((0, 0), (0, 0), (padding[0],) * 2, (padding[1],) * 2))
    batch, _, height, width = x.shape
    outputs, inner, kh, kw = w.shape
    oh = (height - dilation[0] * (kh - 1) - 1) // stride[0] + 1
    ow = (width - dilation[1] * (kw - 1) - 1) // stride[1] + 1
    out = np.zeros((batch, outputs, oh, ow), x.dtype)
    for o in range(outputs):
        g = o // (outputs // groups)
        part = x[:, g * inner : (g + 1) * inner]
        for i in range(kh):
            for j in range(kw):
                top, left = i * dilation[0], j * dilation[1]
                piece = part[
                    :,
                    :,
                    top : top + stride[0] * (oh - 1) + 1 : stride[0],
                    left : left + stride[1] * (ow - 1) + 1 : stride[1],
                ]
                out[:, o] += np.einsum("bchw,c->bhw", piece, w[o, :, i, j])
    return out


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("stride", "padding", "dilation", "groups"),
    [
        ((1, 1), (0, 0), (1, 1), 1),
        ((2, 1), (1, 2), (1, 1), 1),
        ((1, 1), (2, 2), (2, 1), 1),
        ((2, 2), (1, 1), (1, 1), 2),
        ((1, 1), (0, 0), (1, 1), 4),
    ],
)
def test_conv2d(stride: tuple[int, int], padding: tuple[int, int], dilation: tuple[int, int], groups: int):
    x = RNG.standard_normal((2, 4, 9, 8), dtype=np.float32)
    w = RNG.standard_normal((8, 4 // groups, 3, 2), dtype=np.float32)
    b = RNG.standard_normal(8, dtype=np.float32)
    want = convolved(x, w, stride, padding, dilation, groups) + b[:, None, None]
    same(Tensor(x).conv2d(Tensor(w), Tensor(b), stride, padding, dilation, groups), want, rtol=1e-4)


def test_conv2d_takes_unequal_padding_and_other_ranks():
    x = RNG.standard_normal((1, 2, 6, 6), dtype=np.float32)
    w = RNG.standard_normal((3, 2, 3, 3), dtype=np.float32)
    want = convolved(np.pad(x, ((0, 0), (0, 0), (2, 0), (0, 1))), w, (1, 1), (0, 0), (1, 1), 1)
    same(Tensor(x).conv2d(Tensor(w), padding=(0, 1, 2, 0)), want, rtol=1e-4)
    line = Tensor(x[:, :, 0]).conv2d(Tensor(w[:, :, 0]))
    same(line, convolved(x[:, :, :1], w[:, :, :1], (1, 1), (0, 0), (1, 1), 1)[:, :, 0], rtol=1e-4)


def test_conv2d_refuses_mismatched_arguments():
    with pytest.raises(UsageError, match="4 input channels"):
        Tensor.zeros(1, 3, 8, 8).conv2d(Tensor.zeros(2, 4, 3, 3))
    with pytest.raises(UsageError, match="kernel of 9"):
        Tensor.zeros(1, 3, 8, 8).conv2d(Tensor.zeros(2, 3, 9, 9))


@pytest.mark.parametrize(("stride", "padding", "extra", "groups"), [(1, 0, 0, 1), (2, 1, 1, 1), (3, 1, 0, 2)])
def test_conv_transpose2d_is_the_adjoint_of_conv2d(stride: int, padding: int, extra: int, groups: int):
    y = RNG.standard_normal((2, 4, 5, 4), dtype=np.float32)
    w = RNG.standard_normal((4, 6 // groups, 3, 3), dtype=np.float32)
    up = Tensor(y).conv_transpose2d(Tensor(w), None, stride, padding, extra, groups)
    x = RNG.standard_normal(up.shape, dtype=np.float32)
    down = convolved(x, w, (stride,) * 2, (padding,) * 2, (1, 1), groups)
    assert down.shape == y.shape
    assert float((up * Tensor(x)).sum().item()) == pytest.approx(float((down * y).sum()), rel=1e-3)


def test_pools():
    x = RNG.standard_normal((2, 3, 6, 8), dtype=np.float32)
    blocks = x.reshape(2, 3, 3, 2, 4, 2)
    same(Tensor(x).max_pool2d(), blocks.max((3, 5)))
    same(Tensor(x).avg_pool2d(), blocks.mean((3, 5)))
    windows = np.lib.stride_tricks.sliding_window_view(
        np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)), constant_values=-np.inf), (3, 3), (2, 3)
    )
    same(Tensor(x).max_pool2d((3, 3), 2, padding=1), windows[:, :, ::2, ::2].max((4, 5)))
    zeros = np.lib.stride_tricks.sliding_window_view(
        np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1))), (3, 3), (2, 3)
    )
    same(Tensor(x).avg_pool2d((3, 3), 1, padding=1), zeros.mean((4, 5)))
    counts = np.lib.stride_tricks.sliding_window_view(
        np.pad(np.ones_like(x), ((0, 0), (0, 0), (1, 1), (1, 1))), (3, 3), (2, 3)
    )
    same(
        Tensor(x).avg_pool2d((3, 3), 1, padding=1, count_include_pad=False),
        zeros.sum((4, 5)) / counts.sum((4, 5)),
    )


def softmax(x: Any, axis: int) -> Any:
    e = np.exp(x - x.max(axis, keepdims=True))
    return e / e.sum(axis, keepdims=True)


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_softmax(axis: int):
    same(Tensor(X).softmax(axis), softmax(X, axis))
    same(Tensor(X).log_softmax(axis), np.log(softmax(X, axis)))
    same(Tensor(X * 1000).softmax(axis), softmax(X * 1000, axis))


def test_norms():
    d = X - X.mean(-1, keepdims=True)
    same(Tensor(X).layernorm(), d / np.sqrt((d * d).mean(-1, keepdims=True) + 1e-5))
    same(Tensor(X).rmsnorm(), X / np.sqrt((X * X).mean(-1, keepdims=True) + 1e-6))
    same(Tensor(X).normalize(), X / np.sqrt((X * X).sum(1, keepdims=True)))
    w, b, m, v = (RNG.standard_normal(4, dtype=np.float32) for _ in range(4))
    want = (X - m[:, None]) * v[:, None] * w[:, None] + b[:, None]
    same(Tensor(X).batchnorm(Tensor(w), Tensor(b), Tensor(m), Tensor(v)), want)


LOGITS = RNG.standard_normal((6, 5), dtype=np.float32)
CLASSES = np.array([0, 4, 2, 2, 1, 3], np.int32)


def test_cross_entropy_of_classes():
    logs = np.log(softmax(LOGITS, 1))[np.arange(6), CLASSES]
    same(Tensor(LOGITS).sparse_categorical_crossentropy(Tensor(CLASSES)), -logs.mean())
    same(Tensor(LOGITS).cross_entropy(Tensor(CLASSES), reduction="none"), -logs)
    same(Tensor(LOGITS).cross_entropy(Tensor(CLASSES), reduction="sum"), -logs.sum())
    same(Tensor(np.log(softmax(LOGITS, 1))).nll_loss(Tensor(CLASSES)), -logs.mean())


def test_cross_entropy_ignores_a_class_and_smooths():
    full = np.log(softmax(LOGITS, 1))
    logs = full[np.arange(6), CLASSES]
    kept = CLASSES != 2
    same(Tensor(LOGITS).sparse_categorical_crossentropy(Tensor(CLASSES), ignore_index=2), -logs[kept].mean())
    want = -(0.9 * logs + 0.1 * full.mean(1)).mean()
    same(Tensor(LOGITS).sparse_categorical_crossentropy(Tensor(CLASSES), label_smoothing=0.1), want)


def test_cross_entropy_of_probabilities():
    p = softmax(RNG.standard_normal((6, 5), dtype=np.float32), 1)
    same(Tensor(LOGITS).cross_entropy(Tensor(p)), -(p * np.log(softmax(LOGITS, 1))).sum(1).mean())


def test_other_losses():
    x, y = LOGITS, (LOGITS > 0).astype(np.float32)
    p = 1 / (1 + np.exp(-x))
    want = -(y * np.log(p) + (1 - y) * np.log(1 - p)).mean()
    same(Tensor(p).binary_crossentropy(Tensor(y)), want)
    same(Tensor(x).binary_crossentropy_logits(Tensor(y)), want)
    same(Tensor(x).mse_loss(Tensor(y)), ((x - y) ** 2).mean())


def test_targets_of_another_shape_are_refused():
    with pytest.raises(UsageError, match=r"wanted integer targets \(6,\)"):
        Tensor(LOGITS).sparse_categorical_crossentropy(Tensor([1, 2]))


def test_attention():
    q, k, v = (RNG.standard_normal((2, 3, 4, 8), dtype=np.float32) for _ in range(3))
    scores = q @ k.swapaxes(-1, -2) / math.sqrt(8)
    same(Tensor(q).scaled_dot_product_attention(Tensor(k), Tensor(v)), softmax(scores, -1) @ v)
    causal = np.where(np.tril(np.ones((4, 4), bool)), scores, -np.inf)
    same(
        Tensor(q).scaled_dot_product_attention(Tensor(k), Tensor(v), is_causal=True), softmax(causal, -1) @ v
    )
    bias = RNG.standard_normal((4, 4), dtype=np.float32)
    same(
        Tensor(q).scaled_dot_product_attention(Tensor(k), Tensor(v), Tensor(bias)),
        softmax(scores + bias, -1) @ v,
    )


def test_dropout_keeps_the_mean_and_acts_in_training_only():
    x = Tensor.ones(10_000)
    assert x.dropout(0.5, training=False) is x
    with Tensor.train(False):
        assert x.dropout(0.5) is x
    y = x.dropout(0.25).numpy()
    assert set(np.unique(y)) == {0.0, np.float32(1 / 0.75)}
    assert y.mean() == pytest.approx(1, abs=0.03)


def test_one_hot():
    same(Tensor([[0, 2], [1, 1]]).one_hot(3), np.eye(3, dtype=np.int64)[[[0, 2], [1, 1]]])
