"""What is made of tensors without elements becomes constants before scheduling."""

from __future__ import annotations

import math

import pytest

from compiler.dtype import dtypes
from compiler.ir import graph as g
from compiler.ir.ops import Ops
from compiler.ir.serialize import postorder
from compiler.schedule.scheduler import schedule, without_empties

EMPTY = g.param(0, (0, 3), dtypes.float32)
FULL = g.param(1, (3,), dtypes.float32)


@pytest.mark.parametrize(
    ("op", "value"), [(Ops.ADD, 0), (Ops.MUL, 1), (Ops.MAX, -math.inf), (Ops.MIN, math.inf)]
)
def test_a_reduction_over_an_empty_axis_is_its_identity(op: str, value: float):
    (found,) = without_empties([g.binary(Ops.ADD, g.reduce(EMPTY, op, (0,)), FULL)])
    assert found is g.binary(Ops.ADD, g.full(value, (3,), dtypes.float32), FULL)


def test_padding_and_reading_from_nothing_give_zeros():
    padded = g.pad(g.unary(Ops.EXP, EMPTY), ((1, 1), (0, 0)))
    read = g.gather(EMPTY, g.param(2, (2,), dtypes.int32), 0)
    zeros = g.full(0, (2, 3), dtypes.float32)
    assert without_empties([padded, read]) == [zeros, zeros]


def test_no_kernel_reads_or_writes_what_is_empty():
    outputs = [g.unary(Ops.EXP, EMPTY), g.pad(g.reduce(EMPTY, Ops.ADD, (1,)), ((2, 1),))]
    items = schedule(outputs, verify=True)
    assert [ref.shape for item in items for ref in item.bufs] == [(3,)]


def test_a_graph_without_empties_stays():
    out = g.reduce(g.unary(Ops.EXP, FULL), Ops.ADD, (0,))
    assert without_empties([out]) == [out]
    assert all(0 not in x.shape for x in postorder([out]))
