"""Activations of every dtype and in their tails, against the same formulas in more digits; integer losses."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from frontend import Tensor, dtypes

if TYPE_CHECKING:
    from collections.abc import Callable

INTEGERS = ("bool", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64")


def sigmoid(x: Any) -> Any:
    return np.where(x < 0, np.exp(np.minimum(x, 0)), 1.0) / (1 + np.exp(-np.abs(x)))


def softplus(x: Any) -> Any:
    return np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x)))


ACTIVATIONS: dict[str, Callable[[Any], Any]] = {
    "relu": lambda x: np.maximum(x, 0),
    "relu6": lambda x: np.clip(x, 0, 6),
    "leaky_relu": lambda x: np.where(x < 0, 0.01 * x, x),
    "elu": lambda x: np.where(x < 0, np.expm1(np.minimum(x, 0)), x),
    "sigmoid": sigmoid,
    "logsigmoid": lambda x: -softplus(-x),
    "silu": lambda x: x * sigmoid(x),
    "gelu": lambda x: 0.5 * x * (1 + np.vectorize(math.erf)(x / math.sqrt(2))),
    "quick_gelu": lambda x: x * sigmoid(1.702 * x),
    "softplus": softplus,
    "softsign": lambda x: x / (1 + np.abs(x)),
    "mish": lambda x: x * np.tanh(softplus(x)),
    "hardsigmoid": lambda x: np.clip(x / 6 + 0.5, 0, 1),
    "hardswish": lambda x: x * np.clip(x + 3, 0, 6) / 6,
    "hardtanh": lambda x: np.clip(x, -1, 1),
    "tanh": np.tanh,
}


@pytest.mark.sampled(11)
@pytest.mark.parametrize("dtype", INTEGERS)
@pytest.mark.parametrize("name", ACTIVATIONS)
def test_integers_are_converted_before_any_arithmetic(name: str, dtype: str):
    kind = np.dtype(dtype)
    ends = [0, 1] if dtype == "bool" else [0, 1, 2, 3, 100, np.iinfo(kind).min, np.iinfo(kind).max]
    x = np.array(ends, kind)
    got = getattr(Tensor(x), name)()
    kept = name.startswith("relu") or (name == "hardtanh" and dtype != "bool")
    assert kept or got.dtype is dtypes.float32
    want = ACTIVATIONS[name](x.astype(np.float64))
    np.testing.assert_allclose(got.numpy().astype(np.float64), want, rtol=2e-6, atol=1e-7)


TAILS = ["sigmoid", "logsigmoid", "silu", "quick_gelu", "softplus", "elu"]


@pytest.mark.sampled(3)
@pytest.mark.parametrize(("dtype", "rtol"), [("float32", 4e-7), ("float64", 1e-14)])
@pytest.mark.parametrize("name", TAILS)
def test_tails_keep_their_digits(name: str, dtype: str, rtol: float):
    sizes = 10 ** np.linspace(-7, math.log10(50), 200)
    x = np.concatenate([sizes, -sizes]).astype(dtype)
    wide = x.astype(np.longdouble)
    if name == "quick_gelu":
        wide = x * sigmoid((x * np.array(1.702, dtype)).astype(np.longdouble))
        want = wide.astype(np.float64)
    else:
        want = ACTIVATIONS[name](wide).astype(np.float64)
    np.testing.assert_allclose(getattr(Tensor(x), name)().numpy(), want, rtol=rtol)


@pytest.mark.parametrize(("dtype", "rtol"), [("float32", 1e-6), ("float64", 1e-14)])
def test_mish_keeps_its_digits(dtype: str, rtol: float):
    sizes = 10 ** np.linspace(-7, math.log10(40), 200)
    x = np.concatenate([sizes, -sizes]).astype(dtype)
    e = np.exp(-np.abs(x.astype(np.longdouble)))
    want = x * np.where(x < 0, e * (e + 2) / (e * (e + 2) + 2), (1 + 2 * e) / (1 + 2 * e + 2 * e * e))
    np.testing.assert_allclose(Tensor(x).mish().numpy(), want.astype(np.float64), rtol=rtol)


@pytest.mark.parametrize(("dtype", "rtol"), [("float32", 1e-6), ("float64", 1e-14)])
def test_gradient_of_sigmoid_keeps_its_digits_on_both_sides(dtype: str, rtol: float):
    x = np.linspace(-80, 80, 161).astype(dtype)
    t = Tensor(x)
    (g,) = t.sigmoid().sum().gradient(t)
    e = np.exp(-np.abs(x.astype(np.float64)))
    np.testing.assert_allclose(g.numpy(), e / (1 + e) ** 2, rtol=rtol)


def test_denormal_results_stay():
    assert Tensor([-100.0]).sigmoid().item() == pytest.approx(math.exp(-100), rel=0.02)
    assert Tensor([-95.0]).softplus().item() == pytest.approx(math.exp(-95), rel=0.01)
    assert Tensor([-13.0], dtype="float16").sigmoid().item() == float(np.float16(sigmoid(np.float64(-13))))


@pytest.mark.sampled(5)
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("name", ACTIVATIONS)
def test_sixteen_bits_are_computed_in_float32_and_rounded_once(name: str, dtype: str):
    x = Tensor(np.linspace(-20, 20, 801)).cast(dtype).realize()
    got = getattr(x, name)().float().numpy()
    want = getattr(x.float(), name)().cast(dtype).float().numpy()
    np.testing.assert_array_equal(got, want)


def test_sigmoid_has_all_its_derivatives_at_zero():
    x = Tensor([0.0], dtype="float64")
    y = x.sigmoid()
    found = []
    for _ in range(5):
        (y,) = y.sum().gradient(x)
        found.append(y)
    assert [y.item() for y in found] == pytest.approx([0.25, 0.0, -0.125, 0.0, 0.25], abs=1e-15)


def test_mish_and_softplus_have_their_second_derivatives_at_zero():
    x = Tensor([0.0], dtype="float64")
    for name, want in (("softplus", 0.25), ("mish", 0.64)):
        (g,) = getattr(x, name)().sum().gradient(x)
        assert g.sum().gradient(x)[0].item() == pytest.approx(want, abs=1e-14)


@pytest.mark.parametrize("name", ["rmsnorm", "layernorm", "normalize"])
def test_norms_of_small_integers_do_not_overflow(name: str):
    x = np.array([[100, -120, 127, -128]], np.int8)
    want = getattr(Tensor(x.astype(np.float32)), name)().numpy()
    np.testing.assert_array_equal(getattr(Tensor(x), name)().numpy(), want)


def test_losses_of_small_integers_do_not_overflow():
    x, y = np.array([100, -120], np.int8), np.array([-100, 100], np.int8)
    assert Tensor(x).mse_loss(Tensor(y)).item() == (200.0**2 + 220.0**2) / 2
    assert Tensor(x).mse_loss(Tensor(y), "none").tolist() == [40000.0, 48400.0]
    for name in ("binary_crossentropy", "binary_crossentropy_logits"):
        ones = np.array([0, 1], np.uint8)
        want = getattr(Tensor(ones.astype(np.float32)), name)(Tensor(ones.astype(np.float32))).item()
        assert getattr(Tensor(ones), name)(Tensor(ones)).item() == pytest.approx(want)


def test_logsumexp_of_integers_is_that_of_floats():
    x = np.array([[1, 2, 3], [100, 127, -128]], np.int8)
    want = Tensor(x.astype(np.float32)).logsumexp(1).tolist()
    assert Tensor(x).logsumexp(1).tolist() == want
    assert Tensor([10, 20]).logsumexp().dtype is dtypes.float32
