"""Running sums, products and extremes over axes of one, two and three levels of blocks, and their plans."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from compiler.ir.ops import Ops
from compiler.ir.serialize import postorder
from compiler.pipeline import planned
from compiler.schedule.scheduler import schedule
from compiler.targets import target_of
from frontend import Tensor
from frontend.evaluation.expr import uops

LENGTHS = [15, 16, 17, 64, 65, 79, 80, 81, 1024, 1025, 1300]
"""Around the lengths of a block, of one level and of two levels."""


def estimate(x: Tensor) -> float:
    """Return the nanoseconds of the kernels of an unrealized tensor on one core, by their plans."""
    target = replace(target_of("x86_64-v4"), cores=1)
    items = schedule(uops([(x.expr, tuple(range(len(x.leaves))))]))
    return sum([planned(item.ast, target)[1].nanoseconds for item in items if item.ast is not None])


@pytest.mark.sampled(4)
@pytest.mark.parametrize("n", LENGTHS)
def test_running_totals_of_any_length(n: int) -> None:
    x = np.random.default_rng(n).integers(-9, 9, (3, n)).astype(np.int32)
    np.testing.assert_array_equal(Tensor(x).cumsum(1).numpy(), np.cumsum(x, 1, dtype=np.int64))
    np.testing.assert_array_equal(Tensor(x.T).cumsum(0).numpy(), np.cumsum(x, 1, dtype=np.int64).T)
    np.testing.assert_array_equal(Tensor(x).cumprod(1).numpy(), np.cumprod(x, 1, dtype=np.int64))
    np.testing.assert_array_equal(Tensor(x).cummax(1).values.numpy(), np.maximum.accumulate(x, 1))
    np.testing.assert_array_equal(Tensor(x).cummin(1).values.numpy(), np.minimum.accumulate(x, 1))


@pytest.mark.parametrize("n", [17, 65, 300])
def test_values_that_are_no_numbers_change_only_later_sums(n: int) -> None:
    for value in (np.inf, -np.inf, np.nan):
        x = np.ones((2, n), np.float32)
        x[0, n // 2] = value
        np.testing.assert_array_equal(Tensor(x).cumsum(1).numpy(), np.cumsum(x, 1))


@pytest.mark.parametrize("n", [1, 17, 64, 65, 300])
def test_running_logarithms_of_sums_neither_overflow_nor_lose_digits(n: int) -> None:
    x = np.random.default_rng(n).normal(0, 300, (2, n))
    x[0, : n // 3] = -np.inf
    want = np.logaddexp.accumulate(x, 1)
    np.testing.assert_allclose(Tensor(x).logcumsumexp(1).numpy(), want, rtol=1e-13)
    np.testing.assert_allclose(Tensor(x.T).logcumsumexp(0).numpy(), want.T, rtol=1e-13)
    np.testing.assert_allclose(Tensor(x, dtype="float32").logcumsumexp(1).numpy(), want, rtol=1e-6)
    for value in (np.inf, np.nan):
        x[1, n // 2] = value
        found = Tensor(x).logcumsumexp(1).numpy()[1]
        np.testing.assert_allclose(found[: n // 2], want[1, : n // 2], rtol=1e-13)
        np.testing.assert_array_equal(found[n // 2 :], value)


@pytest.mark.parametrize("n", [17, 65, 300])
def test_gradients_of_running_logarithms_of_sums_are_shares(n: int) -> None:
    x = np.random.default_rng(n).normal(0, 20, n)
    x[3:6] = -np.inf
    t = Tensor(x)
    (found,) = t.logcumsumexp(0).sum().gradient(t)
    total = np.logaddexp.accumulate(x)
    want = [np.exp(x[i] - total[i:]).sum() for i in range(n)]
    np.testing.assert_allclose(found.numpy(), want, rtol=1e-11, atol=1e-300)


def test_running_logarithms_of_sums_are_linear_in_the_length() -> None:
    rows = [estimate(Tensor.zeros(8, n).contiguous().realize().logcumsumexp(1)) for n in (1024, 8192)]
    assert rows[1] < 10 * rows[0]


@pytest.mark.parametrize("n", [17, 65, 300])
def test_gradients_of_running_sums_are_sums_from_the_end(n: int) -> None:
    rng = np.random.default_rng(n)
    x, weight = rng.normal(size=(2, n)), rng.normal(size=(2, n))
    t = Tensor(x)
    (found,) = (t.cumsum(1) * Tensor(weight)).sum().gradient(t)
    np.testing.assert_allclose(found.numpy(), weight[:, ::-1].cumsum(1)[:, ::-1], rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("n", [512, 3249, 3328])
def test_running_sums_need_few_operations_for_each_element(n: int) -> None:
    x = Tensor.zeros(64, n).contiguous().realize()
    assert estimate(x.cumsum(1)) < 10 * 64 * n


@pytest.mark.parametrize("n", [65, 80, 3249])
def test_totals_of_blocks_are_of_whole_blocks(n: int) -> None:
    """The last block is in front of no other, so that no load of a total has a mask."""
    x = Tensor.zeros(4, n).contiguous().realize().cumsum(1)
    totals, *_ = schedule(uops([(x.expr, tuple(range(len(x.leaves))))]))
    loads = [node for node in postorder((totals.ast,)) if node.op is Ops.LOAD]
    assert [len(node.src) for node in loads] == [2]
