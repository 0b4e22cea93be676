"""Constructors of tensor graphs: shapes are inferred, and what does not fit is refused with both sides
named."""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING

import pytest

from compiler.dtype import dtypes, promote
from compiler.ir import graph as g
from compiler.ir.index import Variable
from compiler.ir.ops import Ops
from compiler.ir.uop import const, trim_table, uop
from hcq.errors import UsageError
from tests.compiler.graphs import empty_table

if TYPE_CHECKING:
    from collections.abc import Callable

    from compiler.ir.uop import UOp

F32 = dtypes.float32
X = g.param(0, (2, 3, 4), F32)
V = Variable("v", 0, 5)


@pytest.mark.parametrize(
    ("build", "shape"),
    [
        (lambda: g.reshape(X, (6, 4)), (6, 4)), (lambda: g.permute(X, (2, 0, 1)), (4, 2, 3)),
        (lambda: g.expand(g.reshape(X, (2, 1, 3, 4)), (2, 5, 3, 4)), (2, 5, 3, 4)),
        (lambda: g.pad(X, ((1, 2), (0, 0), (0, 3))), (5, 3, 7)),
        (lambda: g.shrink(X, ((0, 1), (1, 3), (2, 2))), (1, 2, 0)),
        (lambda: g.shrink(g.param(0, (9,), F32), ((V, V + 3),)), (3,)),
        (lambda: g.flip(X, (0, 2)), (2, 3, 4)),
        (lambda: g.window(X, (1, 2), (2, 2), (1, 2), (1, 1)), (2, 2, 2, 2, 2)),
        (lambda: g.reduce(X, Ops.ADD, (0, 2)), (3,)),
        (lambda: g.gather(X, g.iota((5, 6), 0), 1), (2, 5, 6, 4)), (lambda: g.contiguous(X), (2, 3, 4)),
    ],
)  # fmt: skip
def test_shapes_are_inferred(build: Callable[[], UOp], shape: tuple[int, ...]) -> None:
    assert build().shape == shape


def test_equal_parts_give_the_same_node() -> None:
    assert g.binary(Ops.ADD, X, X) is g.binary(Ops.ADD, X, X)


def test_movement_that_changes_nothing_is_left_out() -> None:
    assert g.permute(g.permute(X, (2, 0, 1)), (1, 2, 0)) is X


def test_a_comparison_is_bool() -> None:
    assert g.binary(Ops.LT, X, X).dtype is dtypes.bool


@pytest.mark.parametrize(
    ("build", "words"),
    [
        (lambda: g.reshape(X, (5, 5)), "24 elements are not 25"),
        (lambda: g.permute(X, (1, 0)), r"\(1, 0\).*every axis 0\.\.2"),
        (lambda: g.expand(X, (2, 3, 8)), r"\[2, 3, 4\] to \(2, 3, 8\)"),
        (lambda: g.expand(X, (5, 2, 3, 4)), "RESHAPE it first"),
        (lambda: g.pad(X, ((-1, 0), (0, 0), (0, 0))), "use SHRINK"),
        (lambda: g.shrink(X, ((0, 3), (0, 3), (0, 4))), r"axis 0: 0\.\.3 is not inside 0\.\.2"),
        (lambda: g.shrink(X, ((0, 2), (0, V), (0, 4))), "size v; wanted a number"),
        (lambda: g.flip(X, (3,)), r"axes 0\.\.2, there is no axis 3"),
        (lambda: g.window(X, (2,), (5,), (1,), (1,)), "spans 5, the axis only 4"),
        (lambda: g.reduce(X, Ops.SUB, (0,)), "REDUCE by SUB"),
        (lambda: g.reduce(X, Ops.ADD, (1, 1)), "occurs twice"),
        (lambda: g.reduce(g.cast(X, dtypes.bool), Ops.ADD, (1,)), "CAST it to count"),
        (lambda: g.binary(Ops.ADD, X, g.cast(X, dtypes.int32)), "float32 and int32"),
        (lambda: g.binary(Ops.ADD, X, g.reshape(X, (24,))), r"\(2, 3, 4\) and \(24,\)"),
        (lambda: g.binary(Ops.MOD, X, X), "MOD of PARAM float32.*integer"),
        (lambda: g.unary(Ops.SQRT, g.cast(X, dtypes.int32)), "wanted a float"),
        (lambda: g.where(X, X, X), "must be bool"), (lambda: g.gather(X, X, 0), "must be int32 or int64"),
        (lambda: g.bitcast(X, dtypes.int16), "one itemsize"),
        (lambda: g.assign(g.unary(Ops.NEG, X), X), "must be a PARAM, saw NEG"),
        (lambda: g.assign(X, g.reduce(X, Ops.ADD, (0,))), "must be equal"),
        (lambda: const(300, dtypes.uint8), "300 does not fit uint8; expected 0 to 255"),
        (lambda: const(1.5, dtypes.int32), "expected an integer"),
        (lambda: g.unary(Ops.NEG, V), "index nodes take"),
    ],
)  # fmt: skip
def test_mismatched_shapes_are_refused_with_a_message(build: Callable[[], UOp], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        build()


def test_nodes_are_not_pickled_by_accident() -> None:
    with pytest.raises(UsageError, match="kernel_key"):
        pickle.dumps(X)


def test_dtypes_keep_their_identity_when_pickled() -> None:
    assert pickle.loads(pickle.dumps(F32)) is F32


def test_constants_of_index_arithmetic_survive_trimming() -> None:
    zero = const(0, dtypes.index)
    with empty_table():
        assert const(0, dtypes.index) is zero


def test_other_nodes_are_dropped_by_trimming() -> None:
    half = const(0.5, F32)
    with empty_table():
        assert const(0.5, F32) is not half


def test_a_small_table_is_not_trimmed() -> None:
    assert not trim_table(1 << 30)


def test_an_operation_is_compared_by_identity_of_its_name() -> None:
    assert uop(Ops.NEG, F32, (X,)).op is Ops.NEG


@pytest.mark.parametrize(
    ("a", "b", "want"),
    [
        ("bool", "int8", "int8"), ("int8", "uint8", "int16"), ("int64", "uint8", "int64"),
        ("uint64", "int8", "float64"), ("int64", "float16", "float16"), ("float16", "bfloat16", "float32"),
        ("float16", "float64", "float64"), ("uint8", "uint32", "uint32"),
    ],
)  # fmt: skip
def test_promotion(a: str, b: str, want: str) -> None:
    one, two = getattr(dtypes, a), getattr(dtypes, b)
    assert promote(one, two).name == promote(two, one).name == want
