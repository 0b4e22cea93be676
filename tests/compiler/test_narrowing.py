"""64-bit integers computed in 32 bits: where the result is the same, as for places and counts."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np
import pytest

from compiler.dtype import DType, dtypes
from compiler.ir import fold, graph, narrowing
from compiler.ir import index as symbolic
from compiler.ir.ops import Ops
from compiler.ir.serialize import postorder
from compiler.ir.uop import UOp, const, uop
from compiler.schedule.scheduler import schedule
from frontend import Tensor
from hcq.config import override

I32, I64 = dtypes.int32, dtypes.int64
ELEMENTWISE = ("add", "sub", "mul", "floordiv", "mod", "and_", "or_", "xor", "lt", "eq")
EDGES = np.array([-(2**31), -(2**31) + 1, -7, -1, 0, 1, 6, 2**31 - 2, 2**31 - 1], np.int32)


def load(slot: int, dtype: DType) -> UOp:
    return uop(Ops.LOAD, dtype, (uop(Ops.BUFFER, dtype, (), slot), symbolic.loop(0, 8)))


def wide(x: UOp) -> UOp:
    return uop(Ops.CAST, I64, (x,))


A, B, BYTE, LONG = load(0, I32), load(1, I32), load(2, dtypes.uint8), load(3, I64)
PLACE = fold.number(symbolic.loop(0, 8), I64)


def test_comparisons_extremes_and_selections_of_short_values_are_in_32_bits():
    assert fold.alu(Ops.LT, dtypes.bool, (wide(A), wide(B))) is fold.alu(Ops.LT, dtypes.bool, (A, B))
    assert fold.alu(Ops.MAX, I64, (wide(A), const(7, I64))) is wide(
        fold.alu(Ops.MAX, I32, (A, const(7, I32)))
    )
    below = fold.alu(Ops.LT, dtypes.bool, (PLACE, wide(A)))
    assert below.src[0].dtype is I32
    assert fold.alu(Ops.WHERE, I64, (below, PLACE, const(-1, I64))).src[0].dtype is I32


def test_sums_and_products_are_in_32_bits_if_they_fit():
    assert fold.alu(Ops.ADD, I64, (wide(A), const(1, I64))).src[0] is wide(A)  # overflows
    assert fold.alu(Ops.MUL, I64, (wide(BYTE), wide(BYTE))).src[0].dtype is I32
    assert fold.alu(Ops.MUL, I64, (wide(BYTE), const(2**24, I64))).src[0] is wide(BYTE)
    assert fold.alu(Ops.FLOORDIV, I64, (wide(A), wide(B))).src[0] is wide(A)  # -2**31 // -1
    assert fold.alu(Ops.FLOORDIV, I64, (wide(A), const(3, I64))).src[0].dtype is I32


@pytest.mark.parametrize("op", [Ops.ADD, Ops.LT, Ops.MAX, Ops.AND])
def test_what_is_64_bits_in_memory_stays(op: str):
    dtype = dtypes.bool if op is Ops.LT else I64
    assert fold.alu(op, dtype, (LONG, wide(A))) is uop(op, dtype, (LONG, wide(A)))


def test_counts_are_in_32_bits_up_to_two_to_31_elements():
    hit = wide(load(0, dtypes.bool))
    for size, dtype in ((2**31 - 1, I32), (2**31, I64)):
        count = fold.combine(Ops.ADD, hit, [symbolic.loop(0, size)], 1)
        assert count.dtype is I64
        assert next(n for n in postorder((count,)) if n.op is Ops.REDUCE).dtype is dtype


def test_a_place_of_an_extreme_is_found_in_32_bits():
    x = graph.param(0, (4, 8), dtypes.float32)
    hit = graph.binary(Ops.EQ, x, graph.full(1.0, (4, 8), dtypes.float32))
    place = graph.where(hit, graph.iota((4, 8), 1, I64), graph.full(8, (4, 8), I64))
    (item,) = schedule([graph.reduce(place, Ops.MIN, (1,))])
    assert {n.dtype for n in postorder((item.ast,)) if n.op is Ops.REDUCE} == {I32}


@pytest.mark.parametrize("name", ["maximum", "minimum", *ELEMENTWISE])
def test_results_of_converted_values_are_those_of_64_bits(name: str):
    op: Any = getattr(operator, name, None) or getattr(Tensor, name)
    numpy: Any = getattr(operator, name, None) or getattr(np, name)
    x, y = np.meshgrid(EDGES, EDGES[EDGES != 0])
    ours = [Tensor(np.ascontiguousarray(v)).realize().long() for v in (x, y)]
    theirs = x.astype(np.int64), y.astype(np.int64)
    np.testing.assert_array_equal(op(*ours).numpy(), numpy(*theirs))
    for number in (1, -1, 3, 2**31 - 1, 2**31, -(2**31)):
        np.testing.assert_array_equal(op(ours[0], number).numpy(), numpy(theirs[0], number), str(number))


def test_sums_and_extremes_of_converted_values_are_those_of_64_bits():
    x = np.array([[200] * 300, [255] * 300], np.uint8)
    t = Tensor(x).realize().long()
    assert (t * 2**23).sum(1).tolist() == (x.astype(np.int64) * 2**23).sum(1).tolist()
    assert (t * -(2**23)).amin(1).tolist() == (x.astype(np.int64) * -(2**23)).min(1).tolist()
    edges = Tensor(EDGES).realize().long()
    assert (edges.sum().item(), (-edges).amax().item()) == (int(EDGES.sum(dtype=np.int64)), 2**31)
    assert (edges.amin() - 1).item() == -(2**31) - 1


def test_an_index_is_short_where_its_mask_bounds_the_loaded_place():
    place = uop(Ops.INDEXOF, dtypes.index, (LONG,), (I64.min, I64.max))
    column = symbolic.loop(1, 64)

    def index(factor: int, sign: int = 1) -> UOp:
        return symbolic.dot((place, column), (sign * factor, 1))

    inside = symbolic.both(symbolic.ge(place, 0), symbolic.lt(place, 4096))
    assert narrowing.is_short(index(64), inside)
    assert narrowing.is_short(index(2**19 - 1), inside)  # the last is 2**31 - 2**19 - 4096 + 64
    assert not narrowing.is_short(index(2**19 + 2**9), inside)
    assert not narrowing.is_short(index(64, -1), inside)
    assert not narrowing.is_short(index(64), symbolic.lt(place, 4096))
    assert not narrowing.is_short(index(64), symbolic.ge(place, 0))
    assert not narrowing.is_short(column, inside)  # its bounds are known without the mask


@pytest.mark.parametrize("device", ["cpu", "amd-emu:gfx1100", "nv-emu:sm_90"])
def test_places_beyond_32_bits_read_zeros(device: str):
    far = [2**32 + 1, -(2**32) + 1, 2**31, -(2**63), 2**63 - 1, 8, -9]
    halves = [
        Tensor([f(n, 2) for n in (3, -1, *far)], device=device) for f in (operator.floordiv, operator.mod)
    ]
    places = (halves[0] * 2 + halves[1]).realize()
    x = Tensor(np.arange(1.0, 17.0, dtype=np.float32).reshape(8, 2), device=device)
    with override(validate=False):
        rows, taken = x[places].realize(), (x.reshape(-1)[:8] * 2).realize().take(places).realize()
    assert rows.tolist() == [[7.0, 8.0], [15.0, 16.0]] + [[0.0, 0.0]] * len(far)
    assert taken.tolist() == [8.0, 16.0] + [0.0] * len(far)
