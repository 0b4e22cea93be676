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


def test_casts_saturate_and_bitcasts_keep_bits():
    assert Tensor([300.7, -5.0, math.nan]).cast(dtypes.uint8).tolist() == [255, 0, 0]
    same(Tensor(A).bitcast(dtypes.int32), A.view(np.int32))


def test_constants_keep_their_class_and_sign():
    x = Tensor([1.0])
    assert (x * 1).dtype is dtypes.float32
    assert math.copysign(1, (Tensor([0.0]) * -1.0 + -0.0).item()) == -1
    assert math.copysign(1, (Tensor([0.0]) * -1.0 + 0.0).item()) == 1
    assert (Tensor([1]) * 2).dtype is dtypes.int64
    assert (Tensor([1]) * 2.0).dtype is dtypes.float32
