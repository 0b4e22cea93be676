"""Values of kernels: rules keep every result bit, constants fold as kernels compute."""

from __future__ import annotations

import math
import random

import numpy as np
import pytest

from compiler.dtype import DType, dtypes
from compiler.ir import fold
from compiler.ir import index as symbolic
from compiler.ir.ops import BINARY, COMPARE, ROWS, TRANSCENDENTAL, UNARY, Ops
from compiler.ir.scalar import compute, convert
from compiler.ir.uop import UOp, const, uop
from tests import oracle

F32, I32 = dtypes.float32, dtypes.int32


def load(slot: int, dtype: DType = F32) -> UOp:
    return uop(Ops.LOAD, dtype, (uop(Ops.BUFFER, dtype, (), slot), symbolic.loop(0, 8)))


X, Y, N = load(0), load(1), load(2, I32)


def f(value: float) -> UOp:
    return const(value, F32)


def i(value: int) -> UOp:
    return const(value, I32)


TRUE, FALSE = const(value=True, dtype=dtypes.bool), const(value=False, dtype=dtypes.bool)
B = load(3, dtypes.bool)


@pytest.mark.parametrize(
    ("op", "src", "want"),
    [
        (Ops.ADD, (X, f(-0.0)), X), (Ops.ADD, (N, i(0)), N), (Ops.SUB, (X, f(0.0)), X),
        (Ops.SUB, (N, N), i(0)), (Ops.MUL, (X, f(1)), X), (Ops.MUL, (f(1), X), X),
        (Ops.MUL, (X, f(-1)), uop(Ops.NEG, F32, (X,))), (Ops.MUL, (N, i(0)), i(0)), (Ops.DIV, (X, f(1)), X),
        (Ops.DIV, (X, f(4)), uop(Ops.MUL, F32, (X, f(0.25)))), (Ops.FLOORDIV, (N, i(1)), N),
        (Ops.MOD, (N, i(1)), i(0)), (Ops.MAX, (X, X), X), (Ops.AND, (B, TRUE), B),
        (Ops.AND, (B, FALSE), FALSE), (Ops.OR, (B, FALSE), B), (Ops.OR, (TRUE, B), TRUE),
        (Ops.XOR, (B, TRUE), uop(Ops.NOT, dtypes.bool, (B,))), (Ops.SHL, (N, i(0)), N),
        (Ops.NEG, (uop(Ops.NEG, F32, (X,)),), X), (Ops.NOT, (uop(Ops.NOT, dtypes.bool, (B,)),), B),
        (Ops.WHERE, (B, X, X), X), (Ops.WHERE, (TRUE, X, Y), X), (Ops.WHERE, (FALSE, X, Y), Y),
        (Ops.WHERE, (uop(Ops.NOT, dtypes.bool, (B,)), X, Y), uop(Ops.WHERE, F32, (B, Y, X))),
        (Ops.EQ, (N, N), TRUE),
    ],
)  # fmt: skip
def test_a_rule_fires(op: str, src: tuple[UOp, ...], want: UOp) -> None:
    dtype = dtypes.bool if op in COMPARE else want.dtype
    assert same(fold.alu(op, dtype, src), want)


def same(a: UOp, b: UOp) -> bool:
    """Return whether two nodes are equal, also where the table was emptied between them (`trim_table`)."""
    alike = (a.op, a.dtype, a.arg, len(a.src)) == (b.op, b.dtype, b.arg, len(b.src))
    return a is b or (alike and all(map(same, a.src, b.src)))


@pytest.mark.parametrize(
    ("op", "src"),
    [
        (Ops.ADD, (X, f(0.0))), (Ops.SUB, (X, f(-0.0))), (Ops.SUB, (X, X)), (Ops.MUL, (X, f(0))),
        (Ops.DIV, (X, f(3))), (Ops.DIV, (X, X)), (Ops.EQ, (X, X)),
    ],
)  # fmt: skip
def test_inexact_casts_are_not_folded(op: str, src: tuple[UOp, ...]) -> None:
    dtype = dtypes.bool if op in COMPARE else src[0].dtype
    assert fold.alu(op, dtype, src) is uop(op, dtype, src)


def test_a_cast_through_a_wider_type_is_one_cast() -> None:
    half = load(4, dtypes.float16)
    wide = fold.alu(Ops.CAST, F32, (half,))
    assert fold.alu(Ops.CAST, I32, (wide,)) is uop(Ops.CAST, I32, (half,))


def test_a_cast_through_a_narrower_type_stays() -> None:
    narrow = fold.alu(Ops.CAST, dtypes.float16, (X,))
    assert fold.alu(Ops.CAST, F32, (narrow,)).src == (narrow,)


def test_integer_arithmetic_on_coordinates_is_index_arithmetic() -> None:
    r = symbolic.loop(0, 10)
    x = fold.alu(Ops.ADD, I32, (fold.alu(Ops.MUL, I32, (fold.number(r, I32), i(3))), i(1)))
    assert x is fold.number(r * 3 + 1, I32)


def test_coordinates_that_may_overflow_stay_values() -> None:
    r = fold.number(symbolic.loop(0, 1 << 20), I32)
    x = fold.alu(Ops.MUL, I32, (r, i(1 << 12)))
    assert x.op is Ops.MUL


def test_a_comparison_of_coordinates_is_a_mask() -> None:
    r = symbolic.loop(0, 10)
    assert fold.alu(Ops.LT, dtypes.bool, (fold.number(r, I32), i(4))).src == (r < 4,)


def test_a_computed_index_of_a_coordinate_is_the_coordinate() -> None:
    r = symbolic.loop(0, 10)
    assert fold.index_of(fold.alu(Ops.CAST, dtypes.int64, (fold.number(r, I32),))) is r


def test_an_unused_range_of_a_product_is_a_power() -> None:
    got = fold.combine(Ops.MUL, const(3, I32), (symbolic.loop(0, 5),), 0)
    assert got is i(243)


def test_a_repeated_half_is_multiplied_in_float32_when_half_cannot_count_so_far() -> None:
    got = fold.combine(Ops.ADD, load(4, dtypes.float16), (symbolic.loop(1, 4099),), 0)
    assert got.src[0].dtype is F32


def test_negative_zero_is_another_constant() -> None:
    assert f(0.0) is not f(-0.0)


def test_every_nan_is_the_same_constant() -> None:
    assert f(math.nan) is f(-math.nan)


def test_a_constant_is_rounded_to_its_dtype() -> None:
    assert const(0.1, F32).arg == np.float32(0.1)


def test_true_and_one_are_different_constants() -> None:
    assert const(1, dtypes.int32) is not const(value=True, dtype=dtypes.bool)


def test_bfloat16_values_are_kept_exactly() -> None:
    bits = np.arange(0, 1 << 16, 97, np.uint32)
    values = (bits << 16).view(np.float32).tolist()
    got = np.array([const(v, dtypes.bfloat16).arg for v in values])
    np.testing.assert_array_equal(got, values)  # NaN equals NaN here


def test_rounding_to_bfloat16_agrees_with_rounding_of_bits() -> None:
    choose = random.Random(1)
    for _ in range(2000):
        value = np.float32(choose.uniform(-1, 1) * 2.0 ** choose.randint(-140, 127))
        want = oracle.rounded(np.array([value]), dtypes.bfloat16)[0]
        assert const(float(value), dtypes.bfloat16).arg == want, value


_SPECIAL = (0.0, -0.0, 1.0, -1.5, 2.5, math.inf, -math.inf, math.nan, 3e38, 1e-40, -7.0, 0.1)


def samples(dtype: DType) -> list[float]:
    if dtype is dtypes.bool:
        return [False, True]
    if dtype.is_float:
        return [const(v, dtype).arg for v in _SPECIAL]
    return [
        v for v in (0, 1, 2, 7, 31, 32, 64, dtype.max, dtype.min, -1, -5, -128) if dtype.min <= v <= dtype.max
    ]


@pytest.mark.sampled(5)
@pytest.mark.parametrize("dtype", [d for d in dtypes.all() if d.computes], ids=repr)
def test_folding_computes_what_the_oracle_computes(dtype: DType) -> None:
    for op in sorted((UNARY | BINARY) - TRANSCENDENTAL):
        if dtype.kind not in ROWS[op].kinds or (op is Ops.POW and dtype.is_float):  # rounded by the device
            continue
        result = dtypes.bool if op in COMPARE else dtype
        for a in samples(dtype):
            for b in samples(dtype) if op in BINARY else [None]:
                values = [a] if b is None else [a, b]
                got = compute(op, result, values, dtype)
                assert got is not None
                node = uop(op, result, tuple([const(v, dtype) for v in values]))
                want = oracle.elementwise(node, [np.array(v, oracle.numpy_type(dtype)) for v in values])
                same = got == want and (
                    got != 0 or op in (Ops.MAX, Ops.MIN) or np.signbit(got) == np.signbit(want)
                )
                assert same or (math.isnan(got) and np.isnan(want)), (op, values, got, want)


@pytest.mark.parametrize("source", list(dtypes.all()), ids=repr)
def test_casting_constants_agrees_with_the_oracle(source: DType) -> None:
    for target in dtypes.all():
        for value in samples(source):
            got = convert(value, target)
            want = oracle.cast(np.array(value, oracle.numpy_type(source)), source, target)
            assert got == want or (math.isnan(got) and np.isnan(want)), (source, target, value, got, want)


def test_a_long_integer_is_rounded_once() -> None:
    value = (1 << 60) + (1 << 36) + 1
    assert convert(value, F32) == np.int64(value).astype(np.float32)
