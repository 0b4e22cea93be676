"""Loops end at a number that is known at launch, where masks leave nothing to do behind it."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import pytest

from compiler.dtype import dtypes
from compiler.emit import linear
from compiler.emit.loop_limits import LoopLimit, find, find_begins
from compiler.ir import index as symbolic
from compiler.ir.ops import Ops
from compiler.ir.uop import UOp, uop
from compiler.ir.walk import ordered, ranges_in
from compiler.pipeline import arguments, planned, to_lines
from compiler.targets import target_of
from tests.compiler.kernels import ARCH, load, loop, number, op, reduce, sink, store

if TYPE_CHECKING:
    from collections.abc import Callable

CAPACITY = 4096
COUNT = load(9, symbolic.ZERO, dtypes.int32)


def place(index: UOp) -> UOp:
    return uop(Ops.IVALUE, dtypes.int32, (index,))


def below(index: UOp, count: UOp = COUNT) -> UOp:
    return op("LT", place(index), count)


def limits_of(ast: UOp) -> dict[UOp, tuple[LoopLimit, ...]]:
    return find(ast, ranges_in(ast))


def test_a_store_of_a_value_needed_below_a_number_has_its_limit() -> None:
    i, j = loop(0, 8), loop(1, 16)
    ast = sink(store(0, i * 16 + j, op("WITHIN", below(i), load(1, i * 16 + j))))
    assert limits_of(ast) == {i: (LoopLimit(COUNT),)}


def test_limits_have_the_order_of_ranges_and_numbers() -> None:
    ranges = [loop(n, 8) for n in range(6)]
    index = symbolic.dot(ranges, [8**n for n in range(6)])
    counts = [load(9, symbolic.const(n), dtypes.int32) for n in range(6)]
    value = load(1, index)
    for n, r in enumerate(ranges):
        for count in counts[n:] + counts[:n]:
            value = op("WITHIN", below(r, count), value)
    ast = sink(store(0, index, value))
    places = {node: at for at, node in enumerate(ordered(ast))}
    found = limits_of(ast)
    assert list(found) == ranges
    for limits in found.values():
        assert [limit.number for limit in limits] == sorted(counts, key=lambda c: places[c])


def test_a_store_that_keeps_what_is_there_begins_and_ends_at_its_mask() -> None:
    i, r = loop(0, 8), loop(1, 4)
    end = op("ADD", COUNT, uop(Ops.CONST, dtypes.int32, (), 3))
    inside = op("AND", below(i, end), op("LT", COUNT, place(i)))

    def found(value: UOp, kept: UOp) -> tuple[object, object]:
        ast = sink(store(0, i, op("WHERE", inside, value, kept)))
        return limits_of(ast), find_begins(ast, ranges_in(ast))

    assert found(load(1, i), load(0, i)) == ({i: (LoopLimit(end),)}, {i: COUNT})
    assert found(load(1, i), load(2, i)) == ({}, {})  # what another buffer has must be copied
    assert found(load(1, i), load(0, symbolic.mod(i + 1, 8))) == ({}, {})  # another element
    assert found(reduce(load(1, r), "ADD", r), load(0, i)) == ({}, {})  # stages follow all blocks


def test_two_stores_of_a_kernel_need_the_same_limit() -> None:
    i = loop(0, 8)
    both = [store(n, i, op("WITHIN", below(i), load(2, i))) for n in (0, 1)]
    assert limits_of(sink(*both)) == {i: (LoopLimit(COUNT),)}
    assert limits_of(sink(both[0], store(1, i, load(2, i)))) == {}


@pytest.mark.parametrize(
    ("name", "identity"), [("ADD", 0.0), ("MUL", 1.0), ("MAX", -math.inf), ("MIN", math.inf)]
)
def test_a_reduction_with_its_identity_behind_a_number_has_its_limit(name: str, identity: float) -> None:
    r = loop(0, 64)
    value = load(1, r)
    ast = sink(store(0, symbolic.ZERO, reduce(op("WHERE", below(r), value, number(identity)), name, r)))
    assert limits_of(ast) == {r: (LoopLimit(COUNT),)}
    other = sink(store(0, symbolic.ZERO, reduce(op("WHERE", below(r), value, number(3.0)), name, r)))
    assert limits_of(other) == {}


def test_a_product_needs_zeros_on_both_sides() -> None:
    r = loop(0, 64)

    def masked(slot: int) -> UOp:
        return op("WHERE", below(r), load(slot, r), number(0.0))

    def total(value: UOp) -> UOp:
        return sink(store(0, symbolic.ZERO, reduce(value, "ADD", r)))

    assert limits_of(total(op("MUL", masked(1), masked(2)))) == {r: (LoopLimit(COUNT),)}
    assert limits_of(total(op("MUL", masked(1), load(2, r)))) == {}  # the other factor may be NaN


def test_a_number_that_a_range_changes_is_no_limit() -> None:
    i, r = loop(0, 8), loop(1, 8)
    value = op("WHERE", below(r, place(i)), load(1, r), number(0.0))
    assert limits_of(sink(store(0, i, reduce(value, "ADD", r)))) == {}


def test_parts_of_a_coordinate_have_limits_of_their_own() -> None:
    i, j = loop(0, 4), loop(1, 8)
    whole = sink(store(0, i * 8 + j, op("WITHIN", below(i * 8 + j + 3), load(1, i * 8 + j))))
    assert limits_of(whole) == {i: (LoopLimit(COUNT, 1, -3, 8),), j: (LoopLimit(COUNT, 1, -3, 1),)}
    k = loop(0, 32)
    rows = sink(store(0, k, op("WITHIN", below(symbolic.div(k, 8)), load(1, k))))
    assert limits_of(rows) == {k: (LoopLimit(COUNT, 8),)}


def _sum() -> UOp:
    r = loop(0, CAPACITY)
    value = op("WHERE", below(r, load(2, symbolic.ZERO, dtypes.int32)), load(1, r), number(0.0))
    return sink(store(0, symbolic.ZERO, reduce(value, "ADD", r)))


def _product() -> UOp:
    count = load(3, symbolic.ZERO, dtypes.int32)
    i, j, r = loop(0, 64), loop(1, 64), loop(2, CAPACITY)
    x, y = (
        op("WHERE", below(r, count), load(slot, at), number(0.0))
        for slot, at in ((1, i * CAPACITY + r), (2, r * 64 + j))
    )
    return sink(store(0, i * 64 + j, reduce(op("MUL", x, y), "ADD", r)))


def _chain() -> UOp:
    i = loop(0, CAPACITY)
    value = op("WITHIN", below(i, load(2, symbolic.ZERO, dtypes.int32)), load(1, i))
    return sink(store(0, i, op("WITHIN", value.src[0], op("MUL", value.src[1], number(2.0)))))


def _part() -> UOp:
    i, first = loop(0, CAPACITY), load(2, symbolic.ZERO, dtypes.int32)
    inside = op(
        "AND", below(i, op("ADD", first, uop(Ops.CONST, dtypes.int32, (), 3))), op("LT", first, place(i))
    )
    return sink(store(0, i, op("WHERE", inside, load(1, i), load(0, i))))


@pytest.mark.parametrize("arch", [ARCH, "sm_90a", "gfx1100"])
@pytest.mark.parametrize("kernel", [_sum, _product, _chain, _part])
def test_no_loop_of_a_kernel_runs_over_the_capacity(kernel: Callable[[], UOp], arch: str) -> None:
    ast, plan = planned(kernel(), target_of(arch))
    lines = to_lines(ast, plan, arguments(kernel()))
    ends = [line.src[1] for line in lines if line.op == "loop"]
    step = plan.reductions and next(iter(plan.reductions.values()))
    tile = (step.unroll * step.lanes * step.threads if step else 1) * 2
    assert not [end.arg for end in ends if isinstance(end.arg, int) and end.arg * tile >= CAPACITY]
    assert any(line.op == "call" and line.arg == "smin" for line in lines)
    linear.verify(lines)


def test_the_condition_of_a_value_that_is_not_stored_is_left_out() -> None:
    i = loop(0, 8)
    inner = op("WITHIN", below(i, load(2, symbolic.ZERO, dtypes.int32)), load(1, i))
    ast = sink(store(0, i, op("MUL", inner, number(2.0))))
    assert limits_of(ast) == {}
