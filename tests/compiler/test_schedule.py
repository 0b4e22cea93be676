"""What the scheduler fuses, what it gives a buffer, and in which order kernels come."""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING

import numpy as np
import pytest

from compiler.dtype import dtypes
from compiler.emit.loop_limits import find_begins
from compiler.ir import graph as g
from compiler.ir.index import Variable
from compiler.ir.ops import Ops
from compiler.ir.serialize import kernel_key, postorder
from compiler.ir.walk import ranges_in
from compiler.schedule.item import OutRef, ParamRef, TempRef
from compiler.schedule.scheduler import FusionLimits, limits_on, schedule
from compiler.targets import target_of
from tests import oracle
from tests.compiler.graphs import (
    F32,
    add,
    conv2d,
    layernorm,
    matmul,
    mean,
    mul,
    over,
    relu,
    scalar_like,
    softmax,
    sub,
    total,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from compiler.ir.uop import UOp
    from compiler.schedule.scheduler import ScheduleItem


def p(slot: int, *shape: int) -> UOp:
    return g.param(slot, shape, F32)


def exp(x: UOp) -> UOp:
    return g.unary(Ops.EXP, x)


def scheduled(
    *outputs: UOp, limits: FusionLimits | None = None, variables: dict[str, int] | None = None
) -> list[ScheduleItem]:
    """Schedule, check every kernel, and compare what they compute with the graph's meaning."""
    rng = np.random.default_rng(0)
    params = {
        n.arg[0]: oracle.random_array(rng, n.arg[1], n.dtype) for n in postorder(outputs) if n.op is Ops.PARAM
    }
    want = oracle.evaluate_all(outputs, {k: v.copy() for k, v in params.items()}, variables)
    items = schedule(outputs, limits=limits or FusionLimits(), verify=True)
    got = oracle.run(items, params, variables)
    for i, (output, expected) in enumerate(zip(outputs, want, strict=True)):
        if output.op is not Ops.ASSIGN and expected.size:
            np.testing.assert_allclose(
                oracle.from_memory(got[i], output.dtype), expected, rtol=1e-4, atol=1e-5
            )
    return items


def count(item: ScheduleItem, op: str) -> int:
    return sum(n.op is op for n in postorder((item.ast,)))


def convolved(x: UOp, slot: int) -> UOp:
    return relu(conv2d(x, p(slot, 4, 4, 3, 3), p(slot + 1, 4), padding=1))


def totals(x: UOp) -> tuple[UOp, UOp]:
    return total(x, 0), total(x, 1)


KERNELS: dict[str, tuple[Callable[[], UOp | tuple[UOp, ...]], int | list[dict[str, int]]]] = {
    "a chain of elementwise work": (
        lambda: exp(relu(add(mul(x := p(0, 4, 5), p(1, 4, 5)), scalar_like(2, x)))), [{Ops.LOAD: 2}]
    ),
    "prologue and epilogue of a reduction": (lambda: relu(total(exp(p(0, 6, 7)), 1)), [{Ops.REDUCE: 1}]),
    "bias and relu of a convolution": (lambda: convolved(p(0, 1, 4, 8, 8), 1), 1),
    "the epilogue of the first of two convolutions": (
        lambda: convolved(convolved(p(0, 1, 4, 8, 8), 1), 3), [{Ops.MAX: 1}, {Ops.MAX: 1}]
    ),
    "a residual sum": (
        lambda: relu(add(conv2d(x := convolved(p(0, 1, 4, 8, 8), 1), p(3, 4, 4, 3, 3), padding=1), x)), 2
    ),
    "two convolutions added": (
        lambda: add(conv2d(x := p(0, 1, 4, 8, 8), p(1, 4, 4, 3, 3), padding=1), conv2d(x, p(2, 4, 4, 1, 1))),
        [{Ops.REDUCE: 1}, {Ops.REDUCE: 1}],
    ),
    "a function of a product before a product": (
        lambda: matmul(mul(h := matmul(p(0, 6, 8), p(1, 8, 9)), g.unary(Ops.TANH, mul(h, h))), p(2, 9, 5)),
        [{Ops.TANH: 1}, {Ops.TANH: 0}],
    ),
    "cheap work before a product": (lambda: matmul(relu(p(0, 6, 8)), p(1, 8, 5)), 1),
    "an exponential before a product": (lambda: matmul(exp(p(0, 6, 8)), p(1, 8, 5)), 2),
    "cheap work of several kernels": (lambda: totals(add(p(0, 6, 8), p(1, 6, 8))), 2),
    "expensive work of several kernels": (
        lambda: totals(exp(p(0, 6, 8))), [{Ops.EXP: 1}, {Ops.EXP: 0}, {Ops.EXP: 0}]
    ),
    "a value used twice": (lambda: add(mul(x := exp(p(0, 6, 8)), x), x), [{Ops.EXP: 1, Ops.LOAD: 1}]),
    "softmax": (lambda: softmax(p(0, 40, 33)), [{Ops.REDUCE: 2}]),
    "softmax of few long rows": (lambda: softmax(p(0, 2, 10_000)), 4),
    "layernorm": (lambda: layernorm(p(0, 4, 10, 33), p(1, 33), p(2, 33)), [{Ops.REDUCE: 2}]),
    "logsumexp": (
        lambda: add(top := g.reduce(x := p(0, 40, 33), Ops.MAX, (1,)),
                    g.unary(Ops.LOG, total(exp(sub(x, over(top, x.shape, 1))), 1))),
        1,
    ),
    "attention": (
        lambda: matmul(softmax(matmul(p(0, 2, 3, 9, 5), p(1, 2, 3, 5, 9))), p(2, 2, 3, 9, 5)), 3
    ),
    "layernorm before a product": (
        lambda: matmul(layernorm(p(0, 40, 16), p(1, 16), p(2, 16)), p(3, 16, 5)),
        [{Ops.REDUCE: 2}, {Ops.REDUCE: 1}],
    ),
    "a reduction of a reduction over other axes": (
        lambda: g.reduce(relu(total(p(0, 5, 6, 7), 2)), Ops.MAX, (1,)), 2
    ),
    "unrelated outputs of one shape": (lambda: (exp(p(0, 6, 8)), exp(p(1, 6, 8))), 2),
    "a large reduction to many elements": (lambda: total(p(0, 64, 1 << 10), 1), 1),
    "a constant": (lambda: g.full(3, (2, 3), F32), 1),
    "a reduction over an empty range": (lambda: g.reduce(p(0, 3, 0), Ops.MAX, (1,)), [{Ops.LOAD: 0}]),
    "a sum of a repeated value": (
        lambda: total(g.expand(p(0, 4, 1), (4, 1000)), 1), [{Ops.REDUCE: 0, Ops.MUL: 1}]
    ),
    "padding of what does not keep zero": (lambda: g.pad(exp(p(0, 40)), ((1, 1),)), [{Ops.WHERE: 1}]),
    "padding of what keeps zero": (lambda: g.pad(relu(p(0, 40)), ((1, 1),)), [{Ops.WHERE: 0}]),
    "a product added in place": (
        lambda: g.assign(p(2, 6, 5), add(p(2, 6, 5), matmul(p(0, 6, 8), p(1, 8, 5)))),
        [{Ops.REDUCE: 1}, {Ops.REDUCE: 0}],
    ),
}  # fmt: skip
"""What is scheduled -> the number of kernels, or how often each has an operation."""


@pytest.mark.parametrize("name", KERNELS)
def test_work_is_divided_into_kernels(name: str) -> None:
    outputs, wanted = KERNELS[name]
    made = outputs()
    items = scheduled(*(made if isinstance(made, tuple) else (made,)))
    if isinstance(wanted, int):
        assert len(items) == wanted
    else:
        assert [{op: count(one, op) for op in ops} for one, ops in zip(items, wanted, strict=True)] == wanted


def test_an_index_that_is_stored_keeps_its_bounds():
    """Its users read without a mask, because it is less than their rows."""
    rows, place = p(0, 17, 8), g.iota((90,), 0)
    at = g.binary(Ops.MOD, mul(place, scalar_like(7, place)), scalar_like(17, place))
    parts = [g.gather(rows, g.shrink(at, [(n, n + 15)]), 0) for n in (0, 30)]
    assert len(scheduled(total(parts[0], 0), total(parts[1], 1), limits=FusionLimits(places=1))) == 3


def test_a_contiguous_kernel_has_one_range() -> None:
    (item,) = scheduled(add(p(0, 4, 5, 6), p(1, 4, 5, 6)))
    assert [n.arg for n in postorder((item.ast,)) if n.op is Ops.RANGE] == [(0, 120)]


def test_contiguous_reduced_axes_become_one_range() -> None:
    (item,) = scheduled(conv2d(p(0, 2, 4, 5, 5), p(1, 6, 4, 1, 1)))
    assert max(len(n.arg[1]) for n in postorder((item.ast,)) if n.op is Ops.REDUCE) == 1


def test_the_statistics_of_a_batch_share_one_loop() -> None:
    x = p(0, 5, 6, 7)
    (item,) = scheduled(g.reduce(x, Ops.ADD, (0, 2)), g.reduce(mul(x, x), Ops.ADD, (0, 2)))
    assert count(item, Ops.LOAD) == 1
    assert {n.arg[1] for n in postorder((item.ast,)) if n.op is Ops.REDUCE} == {(1, 2)}


def test_normalising_over_a_batch_is_statistics_and_one_kernel() -> None:
    x = conv2d(p(0, 2, 3, 8, 8), p(1, 4, 3, 3, 3))
    m = mean(x, (0, 2, 3))
    shape = (1, 4, 1, 1)
    centred = sub(x, g.expand(g.reshape(m, shape), x.shape))
    variance = mean(mul(centred, centred), (0, 2, 3))
    scale = g.unary(Ops.RECIP, g.unary(Ops.SQRT, add(variance, scalar_like(1e-5, variance))))
    assert len(scheduled(relu(mul(centred, g.expand(g.reshape(scale, shape), x.shape))))) == 4


def test_siblings_over_the_same_data_share_a_kernel() -> None:
    x = p(0, 6, 8)
    (item,) = scheduled(relu(x), exp(x))
    assert item.stores == (0, 1)


def test_a_value_that_is_also_an_output_is_stored_on_the_way() -> None:
    y = conv2d(p(0, 1, 4, 8, 8), p(1, 4, 4, 3, 3))
    (item,) = scheduled(relu(y), y)
    assert len(item.stores) == 2


def test_an_optimiser_step_is_one_kernel() -> None:
    weight, momentum, gradient = p(0, 30), p(1, 30), p(2, 30)
    new = add(mul(momentum, scalar_like(0.9, momentum)), gradient)
    updated = g.assign(momentum, new)
    (item,) = scheduled(g.assign(weight, sub(weight, mul(updated, scalar_like(0.1, weight)))), updated)
    assert len(item.stores) == 2
    assert all(isinstance(b, ParamRef) for b in item.bufs)


def test_one_output_requested_twice_is_stored_twice() -> None:
    y = relu(p(0, 6))
    (item,) = scheduled(y, y)
    assert item.writes == (OutRef(0, F32, (6,)), OutRef(1, F32, (6,)))


def test_siblings_do_not_make_a_circle() -> None:
    x = p(0, 6)
    scalar = total(exp(x), 0)
    y = mul(exp(x), g.expand(g.reshape(scalar, (1,)), (6,)))
    scheduled(y, total(y, 0), exp(x))


def run_assign(*outputs: UOp, params: dict[int, np.ndarray]) -> list[ScheduleItem]:
    items = schedule(outputs, verify=True)
    oracle.run(items, params)
    return items


def test_an_update_of_the_same_elements_is_in_place() -> None:
    x = np.arange(6, dtype=np.float32)
    items = run_assign(g.assign(p(0, 6), exp(p(0, 6))), params={0: x})
    assert len(items) == 1
    np.testing.assert_allclose(x, np.exp(np.arange(6)), rtol=1e-6)


def test_an_update_that_reads_other_elements_goes_through_a_buffer() -> None:
    x = np.arange(6, dtype=np.float32)
    items = run_assign(g.assign(p(0, 6), g.flip(p(0, 6), (0,))), params={0: x})
    assert len(items) == 2
    np.testing.assert_array_equal(x, np.arange(6)[::-1])


def test_readers_of_the_old_contents_run_before_the_update() -> None:
    x = np.arange(6, dtype=np.float32)
    y = exp(total(p(0, 6), 0))
    items = schedule([g.assign(p(0, 6), scalar_like(0, p(0, 6))), y], verify=True)
    np.testing.assert_allclose(oracle.run(items, {0: x})[1], np.exp(15), rtol=1e-6)
    assert not x.any()


def test_a_user_of_old_and_new_contents_gets_both() -> None:
    x = np.arange(6, dtype=np.float32)
    old = p(0, 6)
    new = g.assign(old, mul(old, scalar_like(2, old)))
    items = schedule([new, total(sub(g.flip(new, (0,)), old), 0)], verify=True)
    assert oracle.run(items, {0: x})[1] == 15
    np.testing.assert_array_equal(x, np.arange(6) * 2)


def test_a_slice_is_assigned_in_place() -> None:
    x = np.zeros((4, 3), np.float32)
    target = g.shrink(p(0, 4, 3), ((1, 3), (0, 3)))
    items = run_assign(g.assign(target, scalar_like(7, target)), params={0: x})
    assert len(items) == 1
    np.testing.assert_array_equal(x, [[0] * 3, [7] * 3, [7] * 3, [0] * 3])


def test_a_slice_may_move_with_a_variable() -> None:
    n = Variable("n", 0, 6)
    scheduled(relu(g.shrink(p(0, 8, 3), ((n, n + 2), (0, 3)))), variables={"n": 5})


def test_a_variable_is_a_value() -> None:
    x = g.cast(g.number_of(Variable("n", 0, 6)), F32)
    scheduled(add(p(0), x), variables={"n": 4})


def test_a_wide_sum_is_cut_to_the_limit_of_buffers() -> None:
    y = p(0, 10)
    for i in range(1, 100):
        y = add(y, p(i, 10))
    assert all(len(item.bufs) <= 24 for item in scheduled(y))


def test_a_very_long_chain_is_cut() -> None:
    y = p(0, 10)
    for _ in range(2000):
        y = g.unary(Ops.NEG, add(y, p(1, 10)))
    assert len(schedule([y], verify=True)) > 2


def test_a_padded_very_long_chain_does_not_recurse() -> None:
    y = p(0, 100)
    for _ in range(450):
        y = g.unary(Ops.NEG, add(y, p(1, 100)))
    scheduled(g.pad(y, ((1, 1),)))


def test_repeated_transposed_sums_do_not_explode() -> None:
    y = p(0, 4, 4)
    for _ in range(60):
        y = add(mul(y, scalar_like(0.5, y)), g.flip(g.permute(y, (1, 0)), (1,)))
    items = scheduled(y)
    assert sum(len(postorder((i.ast,))) for i in items) < 3000


def test_a_large_reduction_to_one_element_is_cut_in_two() -> None:
    first, second = scheduled(g.reduce(p(0, 1 << 8, 1 << 9), Ops.ADD, (0, 1)))
    assert isinstance(first.writes[0], TempRef)
    assert count(second, Ops.REDUCE) == 1


def test_the_gradients_of_a_convolution_are_one_kernel_each() -> None:
    x, w, dy = p(0, 2, 3, 8, 8), p(1, 4, 3, 3, 3), p(2, 2, 4, 6, 6)
    full = (2, 4, 6, 6, 3, 3, 3)
    seen = g.permute(g.window(x, (2, 3), (3, 3), (1, 1), (1, 1)), (0, 2, 3, 1, 4, 5))
    seen = g.expand(g.reshape(seen, (2, 1, 6, 6, 3, 3, 3)), full)
    spread = g.expand(g.reshape(dy, (2, 4, 6, 6, 1, 1, 1)), full)
    dw = g.reduce(mul(seen, spread), Ops.ADD, (0, 2, 3))
    flipped = g.permute(g.flip(w, (2, 3)), (1, 0, 2, 3))
    dx = conv2d(dy, flipped, padding=2)
    items = scheduled(dw, dx)
    assert [count(i, Ops.REDUCE) for i in items] == [1, 1]


def test_an_output_without_elements_needs_no_kernel() -> None:
    assert schedule([relu(p(0, 0, 3))], verify=True) == []


def test_unread_kernels_are_dropped() -> None:
    x = g.param(0, (6,), dtypes.int32)
    scalar = g.reduce(g.binary(Ops.MOD, x, scalar_like(7, x)), Ops.MAX, (0,))
    row = g.expand(g.reshape(scalar, (1,)), (6,))
    (item,) = scheduled(add(x, mul(row, scalar_like(0, row))))
    assert len(item.bufs) == 2


@pytest.mark.parametrize(
    "dtype", [dtypes.float16, dtypes.bfloat16, dtypes.float64, dtypes.int8, dtypes.uint32]
)
def test_every_width_goes_through(dtype: object) -> None:
    x = g.param(0, (5, 6), dtype)  # type: ignore[arg-type]
    scheduled(g.reduce(add(x, x), Ops.MAX, (1,)))


def test_a_kernel_comes_after_what_it_reads() -> None:
    written: set[object] = set()
    y = p(0, 1, 4, 8, 8)
    for i in range(5):
        y = convolved(y, 2 * i + 1)
    for item in scheduled(y, mean(y, (2, 3))):
        reads = [
            b for slot, b in enumerate(item.bufs) if slot not in item.stores and not isinstance(b, ParamRef)
        ]
        assert written.issuperset(reads)
        written.update(item.writes)


def test_independent_siblings_stand_together() -> None:
    x = exp(p(0, 8, 8))
    q, k, v = (matmul(x, p(i, 8, 8)) for i in (1, 2, 3))
    items = scheduled(matmul(softmax(matmul(q, g.permute(k, (1, 0)))), v))
    reads_x = [TempRef(0, F32, (8, 8)) in item.bufs[1:] for item in items]
    assert reads_x == [False, True, True, True, False, False, False]


def test_work_on_parameters_alone_comes_just_before_its_user() -> None:
    x = p(0, 8, 8)
    for _ in range(3):
        x = exp(matmul(x, x))
    items = scheduled(matmul(x, exp(p(1, 8, 8))))
    assert [count(item, Ops.MUL) for item in items] == [1, 1, 1, 0, 1]


def test_equal_layers_have_equal_kernels() -> None:
    y = p(0, 1, 4, 8, 8)
    for i in range(4):
        y = convolved(y, 2 * i + 1)
    assert len({kernel_key(item.ast) for item in schedule([y])}) == 1


def test_the_collector_is_back_on_after_a_schedule() -> None:
    schedule([relu(p(0, 3))])
    assert gc.isenabled()


def test_the_collector_stays_off_when_it_was_off() -> None:
    gc.disable()
    try:
        schedule([relu(p(0, 3))])
        assert not gc.isenabled()
    finally:
        gc.enable()


def reads(items: list[ScheduleItem]) -> int:
    """Return the elements of all buffers of all kernels."""
    return sum(b.nbytes // b.dtype.itemsize for item in items for b in item.bufs)


def test_an_optimiser_updates_its_state_and_its_parameter_in_place_in_one_kernel() -> None:
    m, v, weight = (p(i, 33) for i in range(1, 4))
    gradient = total(p(0, 7, 33), 0)
    new_m = add(mul(m, scalar_like(0.5, m)), gradient)
    new_v = add(mul(v, scalar_like(0.25, v)), mul(gradient, gradient))
    new = sub(weight, mul(new_m, new_v))
    (item,) = scheduled(g.assign(m, new_m), g.assign(v, new_v), g.assign(weight, new))
    assert {b.n for b in item.writes if isinstance(b, ParamRef)} == {1, 2, 3}
    assert len(item.bufs) == 4


def test_a_value_assigned_and_also_an_output_is_stored_twice() -> None:
    x, y = p(0, 8), p(1, 8)
    value = add(x, y)
    (item,) = scheduled(value, g.assign(x, value), mul(value, y))
    assert sorted(type(b).__name__ for b in item.writes) == ["OutRef", "OutRef", "ParamRef"]


def test_a_reader_of_old_contents_does_not_see_the_assigned_value() -> None:
    x, y = p(0, 4, 8), p(1, 4, 8)
    value = mul(x, y)
    turned = matmul(value, g.permute(x, (1, 0)))
    scheduled(g.assign(x, value), turned, total(value, 1))


def test_layer_norm_and_its_gradients_keep_two_numbers_a_row() -> None:
    x, dy = p(0, 64, 96), p(1, 64, 96)
    centred = sub(x, over(mean(x, (1,)), x.shape, 1))
    variance = mean(mul(centred, centred), (1,))
    root = g.unary(Ops.SQRT, add(variance, scalar_like(1e-5, variance)))
    scale = over(g.unary(Ops.RECIP, root), x.shape, 1)
    y = mul(centred, scale)
    along = mul(y, over(mean(mul(dy, y), (1,)), x.shape, 1))
    dx = mul(scale, sub(sub(dy, over(mean(dy, (1,)), x.shape, 1)), along))
    items = scheduled(dx, total(mul(dy, y), 0), total(dy, 0), limits=FusionLimits(near=1))
    stored = [b for item in items for b in item.writes if isinstance(b, TempRef)]
    assert stored
    assert all(b.nbytes <= 64 * 4 for b in stored)


def test_large_expensive_work_is_repeated_instead_of_stored() -> None:
    x = exp(p(0, 6, 8))
    items = scheduled(total(x, 0), total(x, 1), limits=FusionLimits(near=1))
    assert sum(count(i, Ops.EXP) for i in items) == 2
    assert not [b for item in items for b in item.writes if isinstance(b, TempRef)]


def test_work_shared_by_two_users_costs_once() -> None:
    x = p(0, 6, 8)
    for _ in range(5):
        x = add(mul(x, x), x)  # a cost of 95 as a tree, of 12 as a graph
    items = scheduled(total(x, 0), total(x, 1))
    assert not [b for item in items for b in item.writes if isinstance(b, TempRef)]


def test_a_pool_and_the_places_of_its_maxima_are_one_kernel() -> None:
    x = p(0, 2, 64, 64)
    windows = g.window(x, (1, 2), (2, 2), (2, 2), (1, 1))
    top = g.reduce(windows, Ops.MAX, (3, 4))
    is_top = g.binary(Ops.EQ, windows, g.expand(g.reshape(top, (*top.shape, 1, 1)), windows.shape))
    row, column = g.iota(windows.shape, 3), g.iota(windows.shape, 4)
    place = add(mul(row, scalar_like(2, row)), column)
    first = g.reduce(g.where(is_top, place, scalar_like(4, place)), Ops.MIN, (3, 4))
    (item,) = scheduled(top, first)
    assert reads([item]) == x.shape[0] * 64 * 64 + 2 * 2 * 32 * 32


def test_sums_to_few_results_are_split_to_keep_a_device_with_threads_busy():
    wide, tall = p(0, 64, 1 << 10), p(1, 1 << 10, 64)
    few = FusionLimits(split=64, outputs=512, groups=256)
    assert [len(scheduled(total(x, axis), limits=few)) for x, axis in ((wide, 1), (tall, 0))] == [2, 2]
    assert len(scheduled(total(tall, 0), limits=FusionLimits(split=64, outputs=64))) == 1, "enough threads"
    assert len(scheduled(total(tall, 0), limits=FusionLimits(split=1 << 12, outputs=512))) == 1, (
        "too little work"
    )


def test_limits_of_a_target_follow_from_its_processors():
    gpu, host = target_of("sm_90a"), limits_on(target_of("x86_64-v3"))
    wanted = FusionLimits(chains=True, threaded=gpu, groups=4 * gpu.cores, outputs=1024 * gpu.cores)
    assert limits_on(gpu) == wanted
    assert (host.groups, host.outputs, host.chains) == (0, 0, True)


@pytest.mark.parametrize(("numbers", "buffers"), [((), 0), ((64,), 1)])
def test_many_stores_at_one_slot_end_their_loops_at_it(numbers: tuple[int, ...], buffers: int) -> None:
    """Each kernel computes a mask of coordinates and single elements; one of other elements gets a buffer."""

    def whole(x: UOp, *shape: int) -> UOp:
        return g.expand(g.reshape(x, x.shape + (1,) * (len(shape) - len(x.shape))), shape)

    slot, first = g.cast(g.iota((64,), 0), dtypes.int32), whole(g.param(0, numbers, dtypes.int32), 64)
    end = g.binary(Ops.ADD, first, whole(g.const(1, dtypes.int32), 64))
    mask = g.binary(Ops.AND, g.binary(Ops.LT, slot, end), g.binary(Ops.LT, first, slot))
    outputs = []
    for n in range(12):
        cache, new = p(2 * n + 1, 64, n + 1), p(2 * n + 2, 1, n + 1)
        outputs.append(g.assign(cache, g.where(whole(mask, 64, n + 1), g.expand(new, (64, n + 1)), cache)))
    items = schedule(outputs)
    assert len([r for i in items for r in i.bufs[: len(i.stores)] if isinstance(r, TempRef)]) == buffers
    begun = [i for i in items if find_begins(i.ast, ranges_in(i.ast))]
    assert len(begun) == (0 if numbers else 12)
