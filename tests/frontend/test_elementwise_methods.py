"""Elementwise methods against NumPy: values, dtypes, broadcasting."""

from __future__ import annotations

import inspect
import math
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from compiler.ir.ops import BINARY, COMPARE, UNARY, Ops
from frontend import Tensor, dtypes
from frontend.autograd import elementwise
from frontend.methods import METHODS
from frontend.primitives.erf import ERF
from hcq.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

    from frontend.methods import MethodRow

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
        pytest.param(r, kind, id=f"{r.own}-{kind}")
        for r in METHODS
        if r.oracle
        for kind in OPERANDS
        if kind in r.kinds
    ],
)
def test_an_elementwise_method_gives_what_its_oracle_gives(row: MethodRow, kind: str):
    arrays = operands(row, kind)
    with np.errstate(all="ignore"):
        want = eval(row.oracle, {"np": np, "math": math, **dict(zip("xy", arrays, strict=False))})
    same(getattr(Tensor, row.plain[0])(*map(Tensor, arrays)), want, rtol=4e-6)


def test_every_row_is_a_documented_function_under_names_of_its_own():
    names = [name for row in METHODS for name in row.plain + row.changing]
    assert len(set(names)) == len(names)
    assert len({(row.function, row.kind) for row in METHODS}) == len(METHODS), "two rows of one function"
    for row in METHODS:
        assert inspect.unwrap(getattr(Tensor, (row.plain + row.changing)[0])).__doc__, row


def test_every_differentiable_primitive_has_a_rule():
    without = {Ops.NOT, Ops.AND, Ops.OR, Ops.XOR, Ops.SHL, Ops.SHR, Ops.FLOORDIV, Ops.MOD} | COMPARE
    assert without | (elementwise.RULES.keys() - {ERF}) == UNARY | BINARY


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
    same(1 << Tensor([1, 4]), np.array([2, 16], np.int64))


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
    assert (Tensor([True]) + 1).dtype is dtypes.int64


def test_numbers_that_do_not_fit_wrap_around_as_in_pytorch():
    assert (Tensor([1], dtype=dtypes.uint8) + 300).tolist() == [45]
    assert (Tensor([1], dtype=dtypes.int8) * 129).tolist() == [-127]


def test_bools_are_joined_and_neither_subtracted_nor_negated():
    same(Tensor([True, False]) + Tensor([True, False]), np.array([True, False]))
    same(Tensor([True, False]) + True, np.array([True, True]))
    same(Tensor([True, True]) + 1, np.array([2, 2], np.int64))
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
    "leaky_relu": (lambda x: x.leaky_relu(0.1), lambda x: np.where(x < 0, np.float32(0.1) * x, x)),
    "gelu": (
        lambda x: x.gelu("tanh"),
        lambda x: (
            0.5 * x * (1 + np.tanh(np.float32(math.sqrt(2 / math.pi)) * (x + np.float32(0.044715) * x**3)))
        ),
    ),
    "clip": (lambda x: x.clip(-1, 2), lambda x: np.clip(x, -1, 2)),
    "clip below": (lambda x: x.clip(low=0.5), lambda x: np.maximum(x, np.float32(0.5))),
}
"""Functions with settings of their own; those without are rows of the table."""


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
    same(Tensor([2, -3, 5]) ** 3, np.array([8, -27, 125], np.int64))
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
    assert (Tensor([1]) * 2).dtype is dtypes.int64
    assert (Tensor([1]) * 2.0).dtype is dtypes.float32
