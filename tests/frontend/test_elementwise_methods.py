"""Elementwise methods against NumPy: values, dtypes, broadcasting."""

from __future__ import annotations

import inspect
import math
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from compiler.ir.ops import BINARY, COMPARE, UNARY, Ops
from frontend import Tensor, dtypes
from frontend.autograd.table import ROWS
from frontend.ops import functions
from frontend.ops.functions import Functions
from frontend.primitives.erf import ERF
from hcq.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

    from frontend.ops.method_row import MethodRow

A = np.array([[-2.5, -1.0, -0.0, 0.0], [0.3, 1.0, 2.5, 7.0]], np.float32)
B = np.array([[1.5, -1.0, 2.0, 0.5], [3.0, 1.0, -2.5, 0.25]], np.float32)
I = np.array([[-7, -1, 0, 5], [9, 3, -2, 8]], np.int32)  # noqa: E741 - the usual name
J = np.array([[2, -3, 4, 5], [-4, 3, 2, -3]], np.int32)


def same(got: Tensor, want: Any, rtol: float = 2e-6, atol: float = 1e-6) -> None:
    want = np.asarray(want)
    array = got.numpy()
    assert array.shape == want.shape
    assert array.dtype == want.dtype, (array.dtype, want.dtype)
    np.testing.assert_allclose(array, want, rtol=rtol, atol=atol)


POSITIVE = np.array([1e-30, 0.01, 0.5, 1.0, 3.0, 1e20], np.float32)
OPERANDS: dict[str, tuple[Any, Any]] = {"float": (A, B), "int": (I, J), "bool": (A > 0, B > 0)}


def operands(row: MethodRow, kind: str) -> tuple[Any, ...]:
    return (POSITIVE, POSITIVE / 4)[: row.operands] if row.domain[0] > 0 else OPERANDS[kind][: row.operands]


@pytest.mark.sampled(5)
@pytest.mark.parametrize(
    ("row", "kind"),
    [
        pytest.param(r, kind, id=f"{r.method.__name__}-{kind}")
        for r in ROWS
        for kind in OPERANDS
        if kind in r.kinds
    ],
)
def test_an_elementwise_method_gives_what_its_oracle_gives(row: MethodRow, kind: str):
    arrays = operands(row, kind)
    with np.errstate(all="ignore"):
        want = eval(row.oracle, {"np": np, "math": math, **dict(zip("xy", arrays, strict=False))})
    same(row.method(*map(Tensor, arrays)), want, rtol=4e-6)


def test_every_elementwise_method_is_a_method_with_all_its_parts():
    methods = {inspect.unwrap(value) for value in vars(Functions).values() if callable(value)}
    assert all(inspect.unwrap(row.method) in methods for row in functions.ROWS)
    primitives = [row.op for row in ROWS if row.op is not None]
    assert len(set(primitives)) == len(primitives)
    for row in ROWS:
        assert row.method.__doc__, row
        assert row.operands in (1, 2), row
        assert (row.op is None) == (row.gradient is None), row
    without = {Ops.NOT, Ops.AND, Ops.OR, Ops.XOR, Ops.SHL, Ops.SHR, Ops.FLOORDIV, Ops.MOD} | COMPARE
    assert without | {op for op in primitives if op != ERF} == UNARY | BINARY


COMPARISONS: dict[str, tuple[Callable[[Any, Any], Any], Callable[[Any, Any], Any]]] = {
    "lt": (lambda a, b: a < b, np.less),
    "gt": (lambda a, b: a > b, np.greater),
    "le": (lambda a, b: a <= b, np.less_equal),
    "ge": (lambda a, b: a >= b, np.greater_equal),
    "eq": (lambda a, b: a == b, np.equal),
    "ne": (lambda a, b: a != b, np.not_equal),
}


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", COMPARISONS)
def test_comparisons(name: str):
    ours, theirs = COMPARISONS[name]
    same(ours(Tensor(A), Tensor(B)), theirs(A, B))
    same(ours(Tensor(I), Tensor(J)), theirs(I, J))


def test_true_division_of_integers_gives_float32():
    same(Tensor(I) / Tensor(J), (I / J).astype(np.float32))


def test_modulo_has_the_sign_of_the_divisor():
    same(Tensor(I) % Tensor(J), I % J)
    same(Tensor(A) % Tensor(B), A % B)


def test_bits():
    same(Tensor(I) & Tensor(J), I & J)
    same(Tensor(I) | Tensor(J), I | J)
    same(Tensor(I) ^ Tensor(J), I ^ J)
    same(~Tensor(I), ~I)
    same(Tensor(I) << 3, I << 3)
    same(Tensor(I) >> 1, I >> 1)
    same(1 << Tensor([1, 4]), np.array([2, 16], np.int32))


def test_reflected_operators_with_numbers():
    same(2 - Tensor(A), 2 - A)
    same(3 + Tensor(I), 3 + I)
    same(2 / Tensor(B), 2 / B)
    same(7 // Tensor(J), 7 // J)
    same(7 % Tensor(J), 7 % J)
    same(2.0 ** Tensor(B), 2.0**B)
    same(Tensor(A) < 2.0, A < 2.0)


def test_broadcasting_aligns_at_the_end():
    x, y = A[:, :1], B[0]
    same(Tensor(x) + Tensor(y), x + y)
    same(Tensor(A).reshape(2, 1, 4) * Tensor(B), A.reshape(2, 1, 4) * B)


def test_shapes_that_do_not_broadcast_are_named():
    with pytest.raises(UsageError, match=r"\(2, 4\) and \(3,\)"):
        Tensor(A) + Tensor([1.0, 2.0, 3.0])


@pytest.mark.parametrize(
    ("a", "b", "want"),
    [
        (dtypes.bool, dtypes.int8, "int8"),
        (dtypes.int32, dtypes.float16, "float16"),
        (dtypes.uint8, dtypes.int8, "int16"),
        (dtypes.float16, dtypes.float64, "float64"),
        (dtypes.int64, dtypes.uint32, "int64"),
    ],
)
def test_promotion(a: Any, b: Any, want: str):
    assert (Tensor.ones(2, dtype=a) + Tensor.ones(2, dtype=b)).dtype.name == want


def test_python_numbers_take_the_dtype_of_the_tensor():
    assert (Tensor([1], dtype=dtypes.int8) + 1).dtype is dtypes.int8
    assert (Tensor([1], dtype=dtypes.int8) + 1.5).dtype is dtypes.float32
    assert (Tensor([1.0], dtype=dtypes.float16) * 2.5).dtype is dtypes.float16
    assert (Tensor([True]) + 1).dtype is dtypes.int32


def test_numbers_that_do_not_fit_wrap_around_as_in_pytorch():
    assert (Tensor([1], dtype=dtypes.uint8) + 300).tolist() == [45]
    assert (Tensor([1], dtype=dtypes.int8) * 129).tolist() == [-127]


def test_bools_are_joined_and_neither_subtracted_nor_negated():
    same(Tensor([True, False]) + Tensor([True, False]), np.array([True, False]))
    same(Tensor([True, False]) + True, np.array([True, True]))
    same(Tensor([True, True]) + 1, np.array([2, 2], np.int32))
    for wrong in (
        lambda: Tensor([True]) - Tensor([True]),
        lambda: Tensor([True]) - True,
        lambda: True - Tensor([True]),
        lambda: -Tensor([True]),
    ):
        with pytest.raises(UsageError, match="refused"):
            wrong()
    same(Tensor([True, True]) * Tensor([True, False]), np.array([True, False]))


ACTIVATIONS: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {
    "sigmoid": (lambda x: x.sigmoid(), lambda x: 1 / (1 + np.exp(-x))),
    "relu": (lambda x: x.relu(), lambda x: np.maximum(x, 0)),
    "relu6": (lambda x: x.relu6(), lambda x: np.clip(x, 0, 6)),
    "leaky_relu": (lambda x: x.leaky_relu(0.1), lambda x: np.where(x < 0, np.float32(0.1) * x, x)),
    "elu": (lambda x: x.elu(), lambda x: np.where(x < 0, np.exp(np.minimum(x, 0)) - 1, x)),
    "silu": (lambda x: x.silu(), lambda x: x / (1 + np.exp(-x))),
    "gelu": (
        lambda x: x.gelu("tanh"),
        lambda x: (
            0.5 * x * (1 + np.tanh(np.float32(math.sqrt(2 / math.pi)) * (x + np.float32(0.044715) * x**3)))
        ),
    ),
    "quick_gelu": (lambda x: x.quick_gelu(), lambda x: x / (1 + np.exp(-np.float32(1.702) * x))),
    "softplus": (lambda x: x.softplus(), lambda x: np.log1p(np.exp(x))),
    "softsign": (lambda x: x.softsign(), lambda x: x / (1 + np.abs(x))),
    "logsigmoid": (lambda x: x.logsigmoid(), lambda x: -np.log1p(np.exp(-x))),
    "mish": (lambda x: x.mish(), lambda x: x * np.tanh(np.log1p(np.exp(x)))),
    "hardsigmoid": (lambda x: x.hardsigmoid(), lambda x: np.clip(x / 6 + np.float32(0.5), 0, 1)),
    "hardswish": (lambda x: x.hardswish(), lambda x: x * np.clip(x + 3, 0, 6) / 6),
    "hardtanh": (lambda x: x.hardtanh(), lambda x: np.clip(x, -1, 1)),
    "clip": (lambda x: x.clip(-1, 2), lambda x: np.clip(x, -1, 2)),
    "clip below": (lambda x: x.clip(low=0.5), lambda x: np.maximum(x, np.float32(0.5))),
}


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", ACTIVATIONS)
def test_activations(name: str):
    ours, theirs = ACTIVATIONS[name]
    same(ours(Tensor(A)), theirs(A), rtol=4e-6)


def test_functions_of_integers_give_float32():
    same(Tensor([0, 1, 2]).exp(), np.exp(np.array([0, 1, 2], np.float32)))


@pytest.mark.parametrize("exponent", [0, 1, 2, 3, -1, -2, 0.5, -0.5, 1.5, 2.0])
def test_powers_of_positive_floats(exponent: float):
    x = np.array([0.25, 1.0, 3.0], np.float32)
    same(Tensor(x) ** exponent, x ** np.float32(exponent), rtol=1e-5)


def test_powers_of_tensors_follow_the_signs():
    x = np.array([-2.0, -2.0, -2.0, 0.0, 0.0, 3.0, 1.0], np.float32)
    y = np.array([2.0, 3.0, 0.5, 0.0, 2.0, -1.0, 77.0], np.float32)
    with np.errstate(invalid="ignore"):
        same(Tensor(x) ** Tensor(y), x**y, rtol=1e-5)


def test_powers_of_integers():
    same(Tensor([2, -3, 5]) ** 3, np.array([8, -27, 125], np.int32))
    with pytest.raises(UsageError, match="float"):
        Tensor([2]) ** -1


def test_where_broadcasts_and_promotes():
    mask = A > 0
    same(Tensor(mask).where(Tensor(A), Tensor(B[0])), np.where(mask, A, B[0]))
    same(Tensor(mask).where(1.0, 0.0), np.where(mask, np.float32(1), np.float32(0)))
    same(Tensor(A).masked_fill(Tensor(mask), 9.0), np.where(mask, np.float32(9), A))
    with pytest.raises(UsageError, match="bool"):
        Tensor(A).where(1, 0)


def test_infinities_and_nan():
    x = np.array([math.inf, -math.inf, math.nan, 1.0], np.float32)
    same(Tensor(x).isinf(), np.isinf(x))
    same(Tensor(x).isnan(), np.isnan(x))
    same(Tensor(x).isfinite(), np.isfinite(x))
    same(Tensor(x).maximum(0.0), np.maximum(x, 0))


@pytest.mark.sampled(3)
@pytest.mark.parametrize("dtype", ["int8", "uint8", "int32", "int64", "uint32", "float16", "float64", "bool"])
def test_casts(dtype: str):
    x = np.array([0.0, 1.75, 100.25], np.float32)
    from compiler.dtype import by_name

    same(Tensor(x).cast(by_name(dtype)), x.astype(dtype))


def test_casts_saturate_and_bitcasts_keep_bits():
    assert Tensor([300.7, -5.0, math.nan]).cast(dtypes.uint8).tolist() == [255, 0, 0]
    same(Tensor(A).bitcast(dtypes.int32), A.view(np.int32))


def test_lerp():
    same(Tensor(A).lerp(Tensor(B), 0.25), A + (B - A) * np.float32(0.25))


def test_constants_keep_their_class_and_sign():
    x = Tensor([1.0])
    assert (x * 1).dtype is dtypes.float32
    assert math.copysign(1, (Tensor([0.0]) * -1.0 + -0.0).item()) == -1
    assert math.copysign(1, (Tensor([0.0]) * -1.0 + 0.0).item()) == 1
    assert (Tensor([1]) * 2).dtype is dtypes.int32
    assert (Tensor([1]) * 2.0).dtype is dtypes.float32
