"""The data structure of tensors: interning, leaves, recipes, changing constants, plans."""

from __future__ import annotations

import math
import random
import weakref
from typing import Any

import numpy as np
import pytest

from compiler.ir.ops import Ops
from frontend import Device, Tensor, TinyJit, dtypes, stats
from frontend.evaluation.expr import TABLE, constant_of, join, leaf_expr, merge, uops
from frontend.evaluation.plan import PLANS
from frontend.evaluation.trace import composite
from hcq.config import override
from hcq.errors import UsageError


def leaves(n: int, shape: tuple[int, ...] = (4,)) -> list[Tensor]:
    return [Tensor(np.full(shape, i + 1.5, np.float32)) for i in range(n)]


def test_equal_structures_are_one_expression():
    a, b, c, d = leaves(4)
    assert (a + b).expr is (c + d).expr
    assert (a + a).expr is (b + b).expr
    assert (a + a).expr is not (a + b).expr
    assert ((a + b) * a).expr is not ((a + b) * b).expr
    assert (a + b).softmax().expr is (c + d).softmax().expr


def test_leaves_have_no_duplicates_and_keep_their_order():
    a, b, c, _ = leaves(4)
    t = (a * b + c) * (b + a)
    assert t.leaves == (a.leaves[0], b.leaves[0], c.leaves[0])
    assert len(t.expr.params) == t.expr.n == 3


def test_a_realized_tensor_has_the_leaf_expression_of_its_kind():
    a, b = leaves(2)
    t = (a + b).realize()
    assert t.expr is a.expr is leaf_expr((4,), dtypes.float32, a.device)


def test_merge_returns_the_positions_of_leaves():
    x, y, z = object(), object(), object()
    assert merge((x, y), (z,)) == ((x, y, z), (2,))
    assert merge((x, y), (y, z, x)) == ((x, y, z), (1, 2, 0))


def test_uops_share_equal_parts():
    a, b = leaves(2)
    s = a + b
    t = s * 2
    u = s * 3
    one, two = uops([(t.expr, (0, 1)), (u.expr, (0, 1))])
    assert one.src[0] is two.src[0]


@pytest.mark.parametrize(
    ("build", "same"),
    [
        (lambda x: x.reshape(4, 6).reshape(2, 3, 4), lambda x: x),
        (lambda x: x.permute(2, 0, 1).permute(1, 2, 0), lambda x: x),
        (lambda x: x.flip(0).flip(0), None),
        (lambda x: x.neg().neg(), lambda x: x),
        (lambda x: x * 1, lambda x: x),
        (lambda x: x / 1, lambda x: x),
        (lambda x: x - 0.0, lambda x: x),
        (lambda x: x.float(), lambda x: x),
        (lambda x: x.expand(2, 3, 4), lambda x: x),
        (lambda x: x.pad((0, 0)), lambda x: x),
    ],
)
def test_exact_simplification(build: Any, same: Any):
    x = Tensor(np.arange(24, dtype=np.float32).reshape(2, 3, 4))
    got = build(x)
    if same is not None:
        assert got.expr is same(x).expr
    np.testing.assert_array_equal(got.numpy(), x.numpy())


def test_adding_zero_is_kept_for_floats_only():
    x, i = Tensor([-0.0]), Tensor([3])
    assert (x + 0.0).expr is not x.expr
    assert math.copysign(1, (x + 0.0).item()) == 1
    assert (i + 0).expr is i.expr


def test_constants_are_recognised_through_movement():
    assert constant_of(Tensor.full((2, 3), 2.5).expr) == 2.5
    assert constant_of(Tensor([1.0]).expr) is None


def test_devices_do_not_mix():
    a = leaf_expr((2,), dtypes.float32, "cpu")
    b = leaf_expr((2,), dtypes.float32, "elsewhere")
    with pytest.raises(UsageError, match=r"\.to\('cpu'\)"):
        join(Ops.ADD, None, (a, (0,)), (b, (1,)))


def test_a_composite_may_drop_and_reorder_leaves():
    @composite
    def second_first(x: Tensor, y: Tensor, z: Tensor) -> Tensor:
        return z - x

    a, b, c = leaves(3)
    for _ in range(2):
        t = second_first(a, b, c)
        assert t.leaves == (c.leaves[0], a.leaves[0])
        assert t.tolist() == [2.0] * 4


def test_values_are_refused_inside_a_composite():
    @composite
    def peeks(x: Tensor) -> Tensor:
        return x * x.sum().item()

    @composite
    def looks(x: Tensor) -> Tensor:
        return x * x.tolist()[0]

    Tensor([2.0]).sum().realize()  # a structure that has a plan is no exception
    for method in (peeks, looks):
        with pytest.raises(UsageError, match="traced method"):
            method(Tensor([1.0]))


def test_expressions_built_before_a_realize_use_its_result():
    a, b = leaves(2)
    x = a * b
    y = x + 1
    x.realize()
    kernels = stats.kernels
    assert y.tolist() == [1.5 * 2.5 + 1] * 4
    assert y.leaves != (a.leaves[0], b.leaves[0])
    assert stats.kernels == kernels + 1


def test_realizing_frees_what_a_tensor_was_built_from():
    a, b = leaves(2)
    t = a + b
    gone = weakref.ref(a)
    t.realize()
    del a, b
    assert gone() is None


@pytest.mark.slow
def test_random_programs_agree_with_numpy():
    rnd = random.Random(5)
    for _ in range(12):
        pool: list[tuple[Tensor, Any]] = []
        for _ in range(3):
            array = np.array([rnd.uniform(-1, 1) for _ in range(4)], np.float64)
            pool.append((Tensor(array), array))
        for _ in range(25):
            (a, x), (b, y) = rnd.choice(pool), rnd.choice(pool)
            kind = rnd.randrange(6)
            if kind == 0:
                pool.append((a + b, x + y))
            elif kind == 1:
                pool.append((a * b, x * y))
            elif kind == 2:
                pool.append((a - 0.5, x - 0.5))
            elif kind == 3:
                pool.append((a.sin(), np.sin(x)))
            elif kind == 4:
                a.realize()
            elif np.max(np.abs(y)) < 10:
                a.assign(b * 1.5)
                pool = [(t, y * 1.5 if t is a else v) for t, v in pool]
        for t, v in pool:
            np.testing.assert_allclose(t.numpy(), v, rtol=1e-12, atol=1e-12)


def test_a_repeatedly_changing_number_becomes_a_parameter():
    x = Tensor(np.ones((3, 7), np.float32))
    for i in range(4):
        assert (x * (0.1 + i)).numpy()[0, 0] == np.float32(0.1 + i)
    assert (x * 4.75).numpy()[0, 0] == np.float32(4.75)
    plans, size = stats.plans, len(TABLE)
    for i in range(50):
        assert (x * (5.25 + i)).numpy()[0, 0] == np.float32(5.25 + i)
    assert (stats.plans, len(TABLE)) == (plans, size)


def test_common_numbers_stay_part_of_the_structure():
    x = Tensor(np.ones((3, 9), np.float32))
    for v in (0.0, 1.0, -1.0, 2.0, 0.5) * 3:
        assert (x * v).expr.n == 1


def test_a_known_structure_is_not_scheduled_again():
    def value() -> float:
        a, b = Tensor([1.0, 2.0]), Tensor([3.0, 4.0])
        return float(((a - b) * a).sum().item())

    value()
    plans = stats.plans
    assert value() == -6.0
    assert stats.plans == plans


def test_several_outputs_are_one_launch():
    a, b = leaves(2)
    x, y, z = a + b, a * b, (a + b).sum()
    launches = stats.launches
    Tensor.realize(x, y, z, x)
    assert stats.launches == launches + 1
    assert x.tolist() == [4.0] * 4
    assert y.tolist() == [3.75] * 4
    assert z.item() == 16.0


def test_reshaping_memory_is_no_launch():
    a = Tensor(np.arange(6, dtype=np.float32))
    launches = stats.launches
    b = a.reshape(2, 3).realize()
    assert stats.launches == launches
    assert b.tolist() == [[0, 1, 2], [3, 4, 5]]
    b.assign(b + 1).realize()
    assert a.tolist() == [1, 2, 3, 4, 5, 6]
    assert b.tolist() == [[1, 2, 3], [4, 5, 6]]


def test_a_deep_graph_does_not_recurse():
    x = Tensor([1.0])
    for _ in range(3000):
        x = x + 1
    assert len(uops([(x.expr, (0,))])) == 1


def test_plans_keep_no_large_buffers():
    def work() -> list[weakref.ref[object]]:
        x = Tensor(np.ones(1 << 19, np.float32))
        y = (x + 1).realize()
        f = TinyJit(lambda a: a * 2)
        for _ in range(3):
            z = f(y).realize()
        captured.append(f)
        return [weakref.ref(t.leaves[0].buffer) for t in (x, y, z)]

    captured: list[object] = []
    gone = work()
    for _ in range(2):
        Device[Device.DEFAULT].synchronize()
        (Tensor([1.0]) + 1).tolist()
    assert [ref() for ref in gone] == [None] * 3


def test_plans_are_dropped_when_there_are_too_many():
    x = Tensor(np.arange(12, dtype=np.float32))
    with override(plan_bytes=1):
        for i in range(1, 12):
            assert x[:i].sum().item() == sum(range(i))
            assert x[:i].sum().item() == sum(range(i))
        assert len(PLANS) == 1
